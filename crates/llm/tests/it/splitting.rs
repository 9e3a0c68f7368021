//! However the network cuts a stream, its answer is the same.

use playhouse_llm::{DialectKind, StreamEvent};
use playhouse_protocol::message::FinishReason;
use proptest::prelude::*;

use crate::support::{ALL, Scripted, everything, everything_decoded, run};

fn cases() -> [(DialectKind, String, Vec<StreamEvent>); 4] {
    ALL.map(|dialect| (dialect, everything(dialect), everything_decoded(dialect)))
}

async fn check(dialect: DialectKind, chunks: Vec<Vec<u8>>, expected: &[StreamEvent], what: &str) {
    let (pieces, end) = run(dialect, Scripted::stream(chunks)).await;
    assert_eq!(pieces, expected, "{what}");
    assert_eq!(end.unwrap().finish, FinishReason::ToolCalls, "{what}");
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn every_place_to_split_gives_the_same_answer() {
    for (dialect, stream, expected) in cases() {
        let bytes = stream.as_bytes();
        for at in 0..=bytes.len() {
            let (left, right) = bytes.split_at(at);
            check(dialect, vec![left.to_vec(), right.to_vec()], &expected, &format!("split at {at}")).await;
        }
        let single = bytes.iter().map(|byte| vec![*byte]).collect();
        check(dialect, single, &expected, "byte by byte").await;
    }
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn line_ends_marks_and_comments_do_not_matter() {
    for (dialect, stream, expected) in cases() {
        let lines = stream.replace('\n', "\r\n");
        let variants = [
            lines.clone(),
            format!("\u{feff}{stream}"),
            format!(": hello\n\n{}", stream.replace("data: ", ": keep-alive\nid: 7\nretry: 10\ndata:")),
            stream.trim_end().to_owned(),
            stream.replace('\n', "\r"),
        ];
        for variant in variants {
            check(dialect, vec![variant.into_bytes()], &expected, "variant").await;
        }
        for at in 0..=lines.len() {
            let (left, right) = lines.as_bytes().split_at(at);
            check(dialect, vec![left.to_vec(), right.to_vec()], &expected, &format!("CRLF split at {at}"))
                .await;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_pieces_give_the_same_answer(places in proptest::collection::vec(0.0..1.0f64, 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for (dialect, stream, expected) in cases() {
            let mut places: Vec<usize> = places.iter().map(|place| (place * stream.len() as f64) as usize).collect();
            places.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for place in places.into_iter().chain([stream.len()]) {
                chunks.push(stream.as_bytes()[from..place].to_vec());
                from = place;
            }
            runtime.block_on(check(dialect, chunks, &expected, "random pieces"));
        }
    }

    /// Whatever a server sends, reading it ends with an answer or an error.
    #[test]
    fn garbage_is_no_panic(lines in proptest::collection::vec(
        prop_oneof![
            "(data|event|:)?[ :]?.{0,20}",
            r#"data: \{"type":"(message_start|content_block_(start|delta|stop)|message_(delta|stop)|error)","index":[0-3],"message":\{\},"delta":\{"type":"text_delta","text":"x"\},"content_block":\{"type":"(text|tool_use|thinking)","name":"n"\}\}\n"#,
            r#"data: \{"choices":\[\{"delta":\{"content":"x","tool_calls":\[\{"index":[0-2],"id":"[ab]?","function":\{"name":"[ab]?","arguments":"\}"\}\}\]\}\}\]\}\n"#,
            r#"data: \{"type":"response\.(output_item\.(added|done)|output_text\.delta|completed|incomplete)","output_index":[0-2],"delta":"x","item":\{"type":"(message|function_call|reasoning)","name":"n"\},"response":\{\}\}\n"#,
            r#"data: \{"candidates":\[\{"content":\{"parts":\[\{"text":"x","thought":(true|false),"thoughtSignature":"[ab]?"\},\{"functionCall":\{"name":"[ab]?","args":(\{\}|7|null)\}\}\]\}\}\]\}\n"#,
        ],
        0..30,
    )) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for dialect in ALL {
            let stream: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
            let (_, end) = runtime.block_on(run(dialect, Scripted::stream([stream])));
            if let Err(error) = end {
                prop_assert!(error.message.starts_with("acme: "), "{}", error);
            }
        }
    }
}
