//! Requests grow, they don't change: otherwise a provider's prompt cache would not hit.

use bytes::Bytes;
use playhouse_llm::{
    CallIdForm, ChatFacts, DialectKind, Head, Reasoning, ReasoningWords, ToolChoice, Transcript,
};
use playhouse_protocol::capability::{BudgetRange, Effort, Modalities, ReasoningField, ReasoningForm};
use playhouse_protocol::chat::{AssistantPart, ChatMessage, ResultPart, ToolSpec, UserPart};
use playhouse_protocol::message::{Attachment, BlobRef};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::support::ALL;

const MARKER: &str = r#","cache_control":{"type":"ephemeral"}"#;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just(" \n".to_owned()),
        Just(r#"}]},"cache_control":{"type":"ephemeral"}"#.to_owned()),
        "\\PC{1,12}",
        "[\"\\\\\u{0}-\u{1f}\u{2028}é]{1,6}",
    ]
}

fn attachment() -> impl Strategy<Value = Attachment> {
    let mime =
        prop_oneof![Just("image/png"), Just("application/pdf"), Just("text/csv"), Just("IMAGE/JPG; q=1")];
    (mime, text(), any::<bool>()).prop_map(|(mime, filename, known)| {
        let blob = BlobRef { hash: if known { "known" } else { "lost" }.into(), size: 5 };
        Attachment::new(mime, filename, blob)
    })
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof![Just("call_0".to_owned()), "[a-z0-9_:.]{0,80}"]
}

fn assistant_part() -> impl Strategy<Value = AssistantPart> {
    let opaque = prop_oneof![
        Just(None),
        Just(Some(json!({"signature": "s"}))),
        Just(Some(json!({"redacted": "r"}))),
        Just(Some(json!({"reasoning_id": "rs_1", "encrypted_content": "e"}))),
        Just(Some(json!({"thought_signature": "t", "on": "call"}))),
        Just(Some(json!({"thought_signature": "t", "on": "text"}))),
        Just(Some(json!({"thought_signature": "t", "on": "thought"}))),
        Just(Some(json!({"reasoning_details": [{"type": "reasoning.text", "text": "t"}, 7]}))),
        Just(Some(json!(7))),
    ];
    prop_oneof![
        text().prop_map(|text| AssistantPart::Text { text, opaque: None }),
        (text(), opaque).prop_map(|(text, opaque)| AssistantPart::Reasoning { text, opaque, stale: false }),
        (id(), text(), text()).prop_map(|(id, name, value)| {
            let input = Map::from_iter([("z".to_owned(), Value::String(value)), ("a".to_owned(), json!(1))]);
            AssistantPart::Call { id, name, input, opaque: None }
        }),
    ]
}

/// An assistant message, and the results of its calls where it has any.
fn step() -> impl Strategy<Value = Vec<ChatMessage>> {
    (vec(assistant_part(), 0..5), text(), any::<bool>(), vec(attachment(), 0..2)).prop_map(
        |(parts, output, ok, attachments)| {
            let results: Vec<ResultPart> = parts
                .iter()
                .filter_map(|part| match part {
                    AssistantPart::Call { id, name, .. } => Some(ResultPart {
                        id: id.clone(),
                        name: name.clone(),
                        output: output.clone(),
                        ok,
                        attachments: attachments.clone(),
                    }),
                    _ => None,
                })
                .collect();
            let mut messages = vec![ChatMessage::Assistant { parts }];
            if !results.is_empty() {
                messages.push(ChatMessage::Results { results });
            }
            messages
        },
    )
}

fn prompt() -> impl Strategy<Value = Vec<ChatMessage>> {
    let part =
        prop_oneof![text().prop_map(|text| UserPart::Text { text }), attachment().prop_map(UserPart::File)];
    vec(part, 0..3).prop_map(|parts| vec![ChatMessage::User { parts }])
}

fn conversation() -> impl Strategy<Value = Vec<ChatMessage>> {
    vec(prop_oneof![prompt(), step()], 0..8).prop_map(|messages| messages.concat())
}

fn sampling() -> impl Strategy<Value = Head> {
    let reasoning = prop_oneof![
        Just(None),
        Just(Some(Reasoning::Effort(Effort::Low))),
        any::<u64>().prop_map(|tokens| Some(Reasoning::Budget(tokens))),
    ];
    let form = proptest::option::of((any::<bool>(), any::<Option<(u64, Option<u64>)>>()).prop_map(
        |(efforts, budget)| ReasoningForm {
            efforts: if efforts { vec![Effort::High, Effort::Max] } else { Vec::new() },
            budget: budget.map(|(min, max)| BudgetRange { min, max }),
        },
    ));
    (any::<Option<f64>>(), any::<Option<f64>>(), reasoning, form, any::<Option<String>>(), chat()).prop_map(
        |(temperature, top_p, reasoning, reasoning_form, cache_key, chat)| Head {
            chat,
            temperature,
            top_p,
            reasoning,
            reasoning_form,
            cache_key,
            ..Head::default()
        },
    )
}

fn chat() -> impl Strategy<Value = ChatFacts> {
    let field = prop_oneof![
        Just(None),
        Just(Some(ReasoningField::ReasoningContent)),
        Just(Some(ReasoningField::ReasoningDetails)),
    ];
    let words = prop_oneof![
        Just(ReasoningWords::Effort),
        Just(ReasoningWords::Object),
        Just(ReasoningWords::ThinkingBudget),
    ];
    (any::<[bool; 3]>(), field, words).prop_map(
        |([stream_options, nine, user_after_results], reasoning_field, reasoning_words)| ChatFacts {
            stream_options,
            reasoning_field,
            reasoning_words,
            call_ids: if nine { CallIdForm::NineAlphanumeric } else { CallIdForm::Usual },
            user_after_results,
            ..ChatFacts::USUAL
        },
    )
}

fn head() -> impl Strategy<Value = Head> {
    let model = prop_oneof![text(), Just("gemini-3-pro".to_owned())];
    let facts = any::<[bool; 3]>();
    (model, text(), 0..3usize, 0..9_000u64, facts, sampling()).prop_map(|(model, system, tools, max_output, [image, pdf, reasons], sampling)| Head {
        model,
        system,
        tools: (0..tools)
            .map(|index| ToolSpec {
                name: format!("tool{index}"),
                description: String::new(),
                parameters: json!({"type": "object", "properties": {"z": {"type": ["string", "null"]}, "a": true}}),
            })
            .collect(),
        max_output,
        modalities: Modalities { image, pdf },
        reasons,
        ..sampling
    })
}

fn blobs(blob: &BlobRef) -> Option<Bytes> {
    (blob.hash == "known").then(|| Bytes::from_static(b"bytes"))
}

fn request(transcript: &mut Transcript) -> String {
    String::from_utf8(transcript.request(ToolChoice::Auto).to_vec()).unwrap()
}

/// The list that grows.
fn list(dialect: DialectKind) -> &'static str {
    match dialect {
        DialectKind::Anthropic | DialectKind::OpenaiChat => "messages",
        DialectKind::OpenaiResponses => "input",
        DialectKind::Gemini => "contents",
    }
}

fn blocks(message: &Value, list: &str) -> Vec<Value> {
    let blocks = message[list].as_array().unwrap();
    assert!(!blocks.is_empty(), "an empty message");
    for text in blocks
        .iter()
        .filter(|block| block["thoughtSignature"].is_null())
        .filter_map(|block| block["text"].as_str())
    {
        assert!(!text.trim().is_empty(), "a blank text");
    }
    blocks.clone()
}

/// Every id of a call is acceptable, is unique, and has its result; and nothing is empty.
/// `strict`: nor does the user speak directly after results.
fn check_messages(request: &Value, dialect: DialectKind, strict: bool) {
    let mut after_results = false;
    let mut calls = Vec::new();
    let mut results = Vec::new();
    for message in request[list(dialect)].as_array().unwrap() {
        match dialect {
            DialectKind::Anthropic => {
                for block in blocks(message, "content") {
                    match block["type"].as_str().unwrap() {
                        "tool_use" => calls.push(block["id"].clone()),
                        "tool_result" => results.push(block["tool_use_id"].clone()),
                        _ => {}
                    }
                }
            }
            DialectKind::OpenaiChat => {
                let bare = message["role"] == "user" && after_results;
                assert!(!(bare && strict), "the user speaks directly after results");
                after_results = message["role"] == "tool";
                calls.extend(
                    message["tool_calls"].as_array().into_iter().flatten().map(|call| call["id"].clone()),
                );
                results.extend(message.get("tool_call_id").cloned());
            }
            DialectKind::OpenaiResponses => match message["type"].as_str().unwrap() {
                "function_call" => calls.push(message["call_id"].clone()),
                "function_call_output" => results.push(message["call_id"].clone()),
                "message" => drop(blocks(message, "content")),
                _ => {}
            },
            DialectKind::Gemini => {
                for part in blocks(message, "parts") {
                    calls.extend(part.get("functionCall").map(|call| call["id"].clone()));
                    results.extend(part.get("functionResponse").map(|result| result["id"].clone()));
                }
            }
        }
    }
    for id in &calls {
        let id = id.as_str().unwrap();
        let plain = id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        assert!(plain && (1..=64).contains(&id.len()), "{id:?}");
    }
    let mut unique = calls.clone();
    unique.sort_by_key(Value::to_string);
    unique.dedup();
    assert_eq!(unique.len(), calls.len(), "an id twice");
    assert!(results.iter().all(|result| calls.contains(result)), "{calls:?} {results:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_next_request_extends_this_one(head in head(), messages in conversation()) {
        for dialect in ALL {
            let mut transcript = Transcript::new(dialect, &head);
            let mut before = request(&mut transcript).replace(MARKER, "");
            for message in &messages {
                transcript.push(message, &blobs);
                let whole = request(&mut transcript);
                let value: Value = serde_json::from_str(&whole).unwrap();
                prop_assert!(whole.matches(MARKER).count() <= 4);
                check_messages(&value, dialect, !head.chat.user_after_results);

                let now = whole.replace(MARKER, "");
                let kept = before.strip_suffix("]}").unwrap();
                let added = now.strip_prefix(kept).expect("what was sent before is sent again");
                prop_assert!(added == "]}" || added.starts_with(',') || kept.ends_with(&format!("\"{}\":[", list(dialect))), "{}", added);
                before = now;
            }
            let mut again = Transcript::new(dialect, &head);
            messages.iter().for_each(|message| again.push(message, &blobs));
            prop_assert_eq!(request(&mut again), request(&mut transcript), "a transcript is a function of its messages");
        }
    }

    #[test]
    fn what_one_request_adds_stands_after_the_messages(head in head(), messages in conversation()) {
        for dialect in ALL {
            let mut transcript = Transcript::new(dialect, &head);
            messages.iter().for_each(|message| transcript.push(message, &blobs));
            let plain = request(&mut transcript);
            let last = transcript.request(ToolChoice::None);
            serde_json::from_slice::<Value>(&last).unwrap();
            let kept = plain.strip_suffix("]}").unwrap().as_bytes();
            prop_assert!(last.starts_with(kept), "{:?}", last);
        }
    }
}
