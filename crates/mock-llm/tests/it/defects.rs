//! Streams that break at a named moment, and answers that end and are wrong, in every format.

use std::io::ErrorKind;

use mock_llm::{
    Cut, Defect, Fault, Item, Mock, Model, Moment, Outcome, Script, Step, reasoning, refusal, text,
};
use serde_json::{Value, json};

use crate::support::{Answer, ask_all, ask_all_whole};

fn mock(step: Step) -> Mock {
    Mock::new(Script::new().model("m", Model::new().step(step)))
}

fn step() -> Step {
    text("one two three").call("read", json!({"filePath": "README.md", "limit": 5})).call("list", json!({}))
}

async fn with(fault: Fault) -> [Answer; 4] {
    ask_all(&mock(step().fault(fault)), "m").await
}

fn arguments(answer: &Answer) -> String {
    answer.whole_calls().into_iter().map(|(_, _, arguments)| arguments).collect()
}

/// What ends an answer in each format.
const FINAL: [&str; 4] = ["message_delta", "\"finish_reason\":\"", "response.completed", "finishReason"];

#[tokio::test]
async fn a_cut_comes_at_its_moment() {
    let whole = ask_all(&mock(step()), "m").await;
    for how in [Cut::Eof, Cut::Reset] {
        for moment in [Moment::FirstToken, Moment::InText, Moment::InArguments, Moment::FinalEvent] {
            let mock = mock(step().fault(Fault::cut(moment, how)));
            let answers = ask_all(&mock, "m").await;
            for (format, (answer, whole)) in answers.iter().zip(&whole).enumerate() {
                let context = format!("{moment:?} {how:?}: {}", answer.text);
                assert!(whole.text.starts_with(&answer.text) && answer.text != whole.text, "{context}");
                assert!(!answer.text.contains(FINAL[format]), "{context}");
                let error = answer.error.as_ref().map(std::io::Error::kind);
                assert_eq!(error, (how == Cut::Reset).then_some(ErrorKind::ConnectionReset));
                let said = if moment == Moment::FirstToken { "" } else { "one two three" };
                let said = if moment == Moment::InText { "one" } else { said };
                if moment == Moment::InArguments {
                    // One format has a call in one event, so that the cut is in the middle of a line.
                    assert!(format != 3 || !answer.text.ends_with('\n'), "{context}");
                    let begun = answer.text.contains("filePath");
                    assert!(begun && !answer.text.contains("README.md"), "{context}");
                } else {
                    assert_eq!(answer.said(), said, "{context}");
                    let calls = if moment == Moment::FinalEvent { 2 } else { 0 };
                    assert_eq!(answer.calls().len(), calls, "{context}");
                }
            }
            assert!(mock.journal().entries().iter().all(|entry| entry.outcome == Outcome::Cut));
        }
    }
}

#[tokio::test]
async fn a_moment_that_never_comes_does_no_harm() {
    let whole = ask_all(&mock(text("one two")), "m").await;
    let faulty = mock(text("one two").fault(Fault::cut(Moment::InArguments, Cut::Reset)));
    for (answer, whole) in ask_all(&faulty, "m").await.iter().zip(&whole) {
        assert_eq!((&answer.text, answer.error.is_none()), (&whole.text, true));
    }
    assert!(faulty.journal().entries().iter().all(|entry| entry.outcome == Outcome::Complete));
}

#[tokio::test]
async fn a_stall_at_a_moment_loses_nothing() {
    let whole = ask_all(&mock(step()), "m").await;
    for at in [Moment::FirstToken, Moment::InText, Moment::InArguments, Moment::FinalEvent] {
        let start = std::time::Instant::now();
        let answers = with(Fault::Stall { at, ms: Some(10) }).await;
        assert!(start.elapsed().as_millis() >= 40);
        for (answer, whole) in answers.iter().zip(&whole) {
            assert_eq!(answer.text, whole.text);
        }
    }
}

#[tokio::test]
async fn an_error_event_has_the_form_of_the_format() {
    let answers = with(Fault::error_event(Moment::InText, "Too much to do")).await;
    let lasts = answers.each_ref().map(|answer| answer.events().pop().unwrap());
    let told = |value: &Value, path: &str| value.pointer(path).cloned().unwrap_or_default();
    assert_eq!(told(&lasts[0], "/error/type"), "overloaded_error");
    assert_eq!(told(&lasts[1], "/error/type"), "server_error");
    assert_eq!(told(&lasts[2], "/response/error/code"), "server_error");
    assert_eq!(told(&lasts[3], "/error/status"), "UNAVAILABLE");
    assert_eq!(told(&lasts[3], "/error/code"), 503);
    for (answer, path) in answers.iter().zip(["/error", "/error", "/response/error", "/error"]) {
        assert_eq!(told(&answer.events().pop().unwrap(), &format!("{path}/message")), "Too much to do");
        assert_eq!(answer.said(), "one");
    }
    assert_eq!(
        (&lasts[2]["type"], &lasts[2]["response"]["status"]),
        (&json!("response.failed"), &json!("failed"))
    );
    let events = answers[2].events();
    assert_eq!(events[events.len() - 2]["type"], "error");
}

#[tokio::test]
async fn an_event_of_broken_json_is_one_of_many() {
    let whole = ask_all(&mock(step()), "m").await;
    for (answer, whole) in with(Fault::Broken(Defect::MalformedJson)).await.iter().zip(&whole) {
        let data = answer
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter(|data| *data != "[DONE]");
        let broken = data.filter(|data| serde_json::from_str::<Value>(data).is_err()).count();
        assert_eq!((broken, answer.event_count()), (1, whole.event_count()), "{}", answer.text);
    }
    for answer in ask_all_whole(&mock(step().fault(Fault::Broken(Defect::MalformedJson))), "m").await {
        assert!(serde_json::from_str::<Value>(&answer.text).is_err());
        assert_eq!(answer.header("content-length"), Some(answer.text.len().to_string().as_str()));
    }
}

#[tokio::test]
async fn the_last_event_may_tell_no_usage() {
    let mock = mock(step().fault(Fault::Broken(Defect::NoUsage)));
    let answers = ask_all(&mock, "m").await;
    for (format, answer) in answers.iter().enumerate() {
        let events = answer.events();
        let last = &events[events.len() - if format == 0 { 2 } else { 1 }];
        let places = ["/usage", "/usage", "/response/usage", "/usageMetadata"];
        assert!(last.pointer(places[format]).is_none_or(Value::is_null), "{last}");
    }
    let reported: Vec<_> =
        mock.journal().entries().iter().map(|entry| entry.reported.map(|tokens| tokens.output)).collect();
    // What was told before the last event stays told.
    assert_eq!((reported[0], reported[1], reported[2]), (Some(1), None, None));
    assert!(reported[3] > Some(3));
    for answer in ask_all_whole(&mock, "m").await {
        let answer = answer.json();
        assert!(answer["usage"].is_null() && answer["usageMetadata"].is_null(), "{answer}");
    }
    let told: Vec<_> = mock.journal().entries().iter().skip(4).map(|entry| entry.reported).collect();
    assert_eq!(told, [None; 4]);
}

#[tokio::test]
async fn blocks_may_come_twice_or_late() {
    let count = |answer: &Answer, words: &str| answer.text.matches(words).count();
    let [anthropic, chat, responses, gemini] = with(Fault::Broken(Defect::DuplicateBlocks)).await;
    assert_eq!(count(&anthropic, "event: content_block_start"), 6);
    assert_eq!(count(&chat, "\"name\":\"read\""), 2);
    assert_eq!(count(&responses, "event: response.output_item.added"), 6);
    assert_eq!(gemini.calls(), ["read", "read", "list", "list"]);

    let [anthropic, chat, responses, gemini] = with(Fault::Broken(Defect::OutOfOrder)).await;
    let at = |answer: &Answer, words: &str| {
        answer.text.find(words).unwrap_or_else(|| panic!("{words}: {}", answer.text))
    };
    assert!(at(&anthropic, "event: content_block_delta") < at(&anthropic, "event: content_block_start"));
    assert!(at(&chat, "filePath") < at(&chat, "\"name\":\"read\""));
    assert!(at(&responses, "response.output_text.delta") < at(&responses, "response.output_item.added"));
    assert!(at(&gemini, "finishReason") < at(&gemini, "\"name\":\"list\""));
    // Nothing is lost on the way.
    let whole = ask_all(&mock(step()), "m").await;
    for (answer, whole) in [anthropic, chat, responses, gemini].iter().zip(&whole) {
        assert_eq!(answer.event_count(), whole.event_count());
    }
}

#[tokio::test]
async fn calls_may_share_an_id() {
    for (step, names) in [(step(), ["read", "list"]), (text("a").call("read", json!({})), ["read", "read"])] {
        for answer in ask_all(&mock(step.fault(Fault::Broken(Defect::SameCallId))), "m").await {
            let calls = answer.whole_calls();
            assert_eq!(answer.calls(), names);
            assert!(!calls[0].1.is_empty() && calls[0].1 == calls[1].1, "{calls:?}");
        }
    }
}

#[tokio::test]
async fn arguments_may_be_a_list() {
    for answer in with(Fault::Broken(Defect::ArgumentsNotAnObject)).await {
        for (_, _, arguments) in answer.whole_calls() {
            assert!(serde_json::from_str::<Value>(&arguments).unwrap().is_array(), "{arguments}");
        }
        assert_eq!(answer.calls().len(), 2);
    }
}

#[tokio::test]
async fn an_answer_may_hold_nothing() {
    for answer in with(Fault::Empty).await {
        assert_eq!((answer.said(), arguments(&answer)), (String::new(), String::new()));
    }
    for answer in ask_all_whole(&mock(step().fault(Fault::Empty)), "m").await {
        assert!(!answer.text.contains("one two"), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_refusal_stands_where_the_format_has_it() {
    let mock = mock(refusal("I will not."));
    let [anthropic, chat, responses, gemini] = ask_all(&mock, "m").await;
    assert!(anthropic.said() == "I will not." && anthropic.text.contains("\"stop_reason\":\"refusal\""));
    let refused: String =
        chat.events().iter().filter_map(|event| event["choices"][0]["delta"]["refusal"].as_str()).collect();
    assert_eq!((chat.said(), refused), (String::new(), "I will not.".to_owned()));
    assert!(responses.text.contains("event: response.refusal.done") && responses.said().is_empty());
    assert!(gemini.said() == "I will not." && gemini.text.contains("PROHIBITED_CONTENT"));
    let [_, chat, responses, _] = ask_all_whole(&mock, "m").await;
    assert_eq!(chat.json()["choices"][0]["message"]["refusal"], "I will not.");
    let content = &responses.json()["output"][0]["content"];
    assert_eq!(content, &json!([{"type": "refusal", "refusal": "I will not."}]));
}

#[tokio::test]
async fn reasoning_has_what_it_needs_to_be_sent_back() {
    let step = reasoning("a").signed_reasoning("b", "b3du").redacted_reasoning("c2VjcmV0").text("c");
    let [anthropic, chat, responses, _] = ask_all(&mock(step), "m").await;
    assert!(anthropic.text.contains(r#""signature":"b3du""#), "{}", anthropic.text);
    assert!(anthropic.text.contains(r#"{"type":"redacted_thinking","data":"c2VjcmV0"}"#));
    assert_eq!(anthropic.text.matches("event: content_block_start").count(), 4);
    assert!(chat.text.contains(r#""reasoning_content":"b""#) && !chat.text.contains("b3du"));
    assert!(responses.text.contains(r#""encrypted_content":"c2VjcmV0""#));
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn an_event_may_be_large() {
    let bytes = 8 << 20;
    let mock = mock(Step::empty().item(Item::LargeEvent(bytes)));
    for answer in ask_all(&mock, "m").await {
        let longest = answer.text.lines().map(str::len).max().unwrap();
        assert!(longest as u64 > bytes);
        assert_eq!(answer.said().len() as u64, bytes);
    }
}
