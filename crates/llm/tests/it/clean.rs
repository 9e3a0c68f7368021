//! No control character and no code point without a character leaves, wherever it came from.

use playhouse_llm::{Head, ToolChoice, Transcript};
use playhouse_protocol::chat::{AssistantPart, ChatMessage, ResultPart, ToolSpec, UserPart};
use playhouse_protocol::message::{Attachment, BlobRef};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::support::ALL;

/// Texts in which every kind of odd character comes.
fn odd() -> impl Strategy<Value = String> {
    let odd = prop_oneof![
        Just('\0'),
        Just('\u{fdd0}'),
        Just('\u{ffff}'),
        Just('\u{10fffe}'),
        proptest::char::range('\u{1}', '\u{a0}'),
        any::<char>(),
    ];
    proptest::collection::vec(odd, 1..12).prop_map(|characters| characters.into_iter().collect())
}

fn is_odd(character: char) -> bool {
    let kept = matches!(character, '\t' | '\n' | '\r');
    let code = u32::from(character);
    (character.is_control() && !kept) || (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
}

/// Looks at every string in `value`, and in the JSON that a string may be.
fn check(value: &Value) {
    match value {
        Value::String(text) => {
            assert!(!text.contains(is_odd), "{text:?}");
            if let Ok(inner @ Value::Object(_)) = serde_json::from_str(text) {
                check(&inner);
            }
        }
        Value::Array(values) => values.iter().for_each(check),
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            assert!(!name.contains(is_odd), "{name:?}");
            check(value);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

proptest! {
    #[test]
    fn no_odd_character_leaves(texts in proptest::collection::vec(odd(), 8)) {
        let text = |place: usize| texts[place].clone();
        let lost = Attachment::new("text/plain", text(0), BlobRef { hash: "lost".into(), size: 5 });
        let input = Map::from_iter([(text(1), json!([text(2)]))]);
        let messages = [
            ChatMessage::User { parts: vec![UserPart::Text { text: text(3) }, UserPart::File(lost)] },
            ChatMessage::Assistant { parts: vec![
                AssistantPart::Text { text: text(4), opaque: None },
                AssistantPart::Call { id: "c".into(), name: text(5), input, opaque: None },
            ] },
            ChatMessage::Results { results: vec![ResultPart {
                id: "c".into(), name: text(5), output: text(6), ok: true, attachments: Vec::new(),
            }] },
        ];
        let tool = ToolSpec { name: "t".into(), description: text(7), parameters: json!({"title": text(0)}) };
        let head = Head { system: text(1), tools: vec![tool].into(), ..Head::default() };
        for dialect in ALL {
            let mut transcript = Transcript::new(dialect, &head);
            for message in &messages {
                transcript.push(message, &|_| None);
            }
            check(&serde_json::from_slice(&transcript.request(ToolChoice::Auto)).unwrap());
        }
    }
}

#[test]
fn what_is_text_stays_as_it_is() {
    let said = "tab\t line\r\n \u{a0}\u{ad} é €\u{fffd} \u{feff} \u{1f3ad} ，\u{e000}";
    for dialect in ALL {
        let mut transcript = Transcript::new(dialect, &Head::default());
        transcript
            .push(&ChatMessage::User { parts: vec![UserPart::Text { text: said.to_owned() }] }, &|_| None);
        let request: Value = serde_json::from_slice(&transcript.request(ToolChoice::Auto)).unwrap();
        assert!(holds(&request, said), "{request}");
    }
}

fn holds(value: &Value, text: &str) -> bool {
    match value {
        Value::String(said) => said == text,
        Value::Array(values) => values.iter().any(|value| holds(value, text)),
        Value::Object(members) => members.values().any(|value| holds(value, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
