//! The exact requests that a model reads.

use bytes::Bytes;
use playhouse_llm::{
    DialectKind, Effort, Head, OutputLimitField, Reasoning, Reminder, ToolChoice, Transcript,
};
use playhouse_protocol::chat::{AssistantPart, ChatMessage, ResultPart, ToolSpec, UserPart};
use playhouse_protocol::message::{Attachment, BlobRef};
use serde_json::{Map, Value, json};

use crate::support::{ALL, blob};

fn head() -> Head {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: format!("{name}s something"),
        parameters: json!({"type": "object", "properties": {"filePath": {"type": "string"}}, "required": ["filePath"]}),
    };
    Head {
        model: "acme-1".into(),
        system: "You are a coding agent.".into(),
        tools: vec![tool("read"), tool("edit")].into(),
        max_output: 8192,
        temperature: Some(0.5),
        ..Head::default()
    }
}

fn file(mime: &str, filename: &str, hash: &str) -> Attachment {
    Attachment { mime: mime.into(), filename: filename.into(), blob: blob(hash, 3) }
}

fn user_text(text: &str) -> UserPart {
    UserPart::Text { text: text.into() }
}

fn said(text: &str) -> AssistantPart {
    AssistantPart::Text { text: text.into() }
}

fn called(id: &str, name: &str, input: Value) -> AssistantPart {
    let input: Map<String, Value> = input.as_object().unwrap().clone();
    AssistantPart::Call { id: id.into(), name: name.into(), input }
}

fn thought(text: &str, opaque: Option<Value>) -> AssistantPart {
    AssistantPart::Reasoning { text: text.into(), opaque }
}

fn result(id: &str, name: &str, output: &str, ok: bool, attachments: Vec<Attachment>) -> ResultPart {
    ResultPart { id: id.into(), name: name.into(), output: output.into(), ok, attachments }
}

/// Text, two calls of which one failed, images, a document, reasoning, and what cannot be sent.
fn conversation() -> Vec<ChatMessage> {
    vec![
        ChatMessage::User {
            parts: vec![
                user_text("why does this look wrong?"),
                UserPart::File(file("image/png", "shot.png", "png")),
                UserPart::File(file("application/pdf", "spec.pdf", "pdf")),
                UserPart::File(file("video/mp4", "film.mp4", "film")),
                UserPart::File(file("image/jpeg", "lost.jpg", "lost")),
                user_text("  "),
            ],
        },
        ChatMessage::Assistant {
            parts: vec![
                thought("look first", Some(json!({"signature": "c2ln"}))),
                thought("", Some(json!({"redacted": "aGlk"}))),
                thought("nothing to send back", None),
                thought("look\n\nfirst", Some(json!({"reasoning_id": "rs_1", "encrypted_content": "ZW5j"}))),
                said("I will look."),
                thought("", Some(json!({"thought_signature": "dGV4dA==", "on": "text"}))),
                thought("", Some(json!({"thought_signature": "Y2FsbA==", "on": "call"}))),
                called("toolu_1", "read", json!({"filePath": "z.rs", "offset": 1})),
                called("bad id/2", "no such tool", json!({})),
            ],
        },
        ChatMessage::Results {
            results: vec![
                result("toolu_1", "read", "a \"file\"\n", true, vec![file("image/webp", "z.webp", "webp")]),
                result("bad id/2", "no such tool", "there is no tool \"no such tool\"", false, Vec::new()),
            ],
        },
        ChatMessage::Assistant {
            parts: vec![
                said(""),
                thought("only thought", Some(json!({"signature": "x"}))),
                thought("only thought", Some(json!({"reasoning_id": "rs_2", "encrypted_content": "x"}))),
            ],
        },
        ChatMessage::User { parts: vec![user_text("go on"), user_text("please")] },
        ChatMessage::Assistant { parts: vec![called("toolu_1", "edit", json!({"filePath": "z.rs"}))] },
        ChatMessage::Results { results: vec![result("toolu_1", "edit", "", true, Vec::new())] },
    ]
}

fn blobs(blob: &BlobRef) -> Option<Bytes> {
    (blob.hash != "lost").then(|| Bytes::copy_from_slice(blob.hash.as_bytes()))
}

fn transcript(dialect: DialectKind, head: &Head) -> Transcript {
    let mut transcript = Transcript::new(dialect, head);
    for message in conversation() {
        transcript.push(&message, &blobs);
    }
    assert_eq!(transcript.len(), conversation().len());
    transcript
}

/// The request over several lines. That nothing is lost by this is checked: the compact form is the request itself.
fn readable(request: &Bytes) -> String {
    let value: Value = serde_json::from_slice(request).unwrap();
    assert_eq!(value.to_string().as_bytes(), request);
    serde_json::to_string_pretty(&value).unwrap()
}

#[test]
fn anthropic_request() {
    let request = transcript(DialectKind::Anthropic, &head()).request(ToolChoice::Auto, None);
    insta::assert_snapshot!(readable(&request));
}

#[test]
fn openai_chat_request() {
    let request = transcript(DialectKind::OpenaiChat, &head()).request(ToolChoice::Auto, None);
    insta::assert_snapshot!(readable(&request));
}

#[test]
fn openai_responses_request() {
    let head = Head {
        reasoning: Some(Reasoning::Effort(Effort::Medium)),
        cache_key: Some("ses_1".into()),
        temperature: None,
        ..head()
    };
    let request = transcript(DialectKind::OpenaiResponses, &head).request(ToolChoice::Auto, None);
    insta::assert_snapshot!(readable(&request));
}

#[test]
fn gemini_request() {
    let head =
        Head { model: "gemini-3-pro".into(), reasoning: Some(Reasoning::Effort(Effort::Low)), ..head() };
    let request = transcript(DialectKind::Gemini, &head).request(ToolChoice::Auto, None);
    insta::assert_snapshot!(readable(&request));
}

fn short(dialect: DialectKind, head: &Head) -> Transcript {
    let mut transcript = Transcript::new(dialect, head);
    transcript.push(&ChatMessage::User { parts: vec![user_text("hello")] }, &blobs);
    transcript
}

fn ending(transcript: &mut Transcript, tool_choice: ToolChoice, reminder: Option<Reminder>) -> String {
    let request = transcript.request(tool_choice, reminder.as_ref());
    let request = std::str::from_utf8(&request).unwrap();
    serde_json::from_str::<Value>(request).unwrap();
    request.split_once("hello").unwrap().1.to_owned()
}

#[test]
fn the_last_step_keeps_the_tools_and_may_begin_the_answer() {
    let last = Reminder::Assistant("that was the last step. \n".into());
    let user = Reminder::User("sum up".into());
    let mut anthropic = short(DialectKind::Anthropic, &head());
    assert_eq!(
        ending(&mut anthropic, ToolChoice::None, Some(last.clone())),
        r#"","cache_control":{"type":"ephemeral"}}]},{"role":"assistant","content":[{"type":"text","text":"that was the last step."}]}],"tool_choice":{"type":"none"}}"#
    );
    assert_eq!(
        ending(&mut anthropic, ToolChoice::Auto, Some(user.clone())),
        r#"","cache_control":{"type":"ephemeral"}}]},{"role":"user","content":[{"type":"text","text":"sum up"}]}]}"#
    );
    let mut openai = short(DialectKind::OpenaiChat, &head());
    assert_eq!(
        ending(&mut openai, ToolChoice::None, Some(last.clone())),
        r#""},{"role":"assistant","content":"that was the last step."}],"tool_choice":"none"}"#
    );
    assert_eq!(
        ending(&mut openai, ToolChoice::Auto, Some(user)),
        r#""},{"role":"user","content":"sum up"}]}"#
    );
    assert_eq!(ending(&mut openai, ToolChoice::Auto, Some(Reminder::Assistant(" ".into()))), r#""}]}"#);
    let mut gemini = short(DialectKind::Gemini, &head());
    assert_eq!(
        ending(&mut gemini, ToolChoice::None, Some(last.clone())),
        r#""}]},{"role":"model","parts":[{"text":"that was the last step."}]}],"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}}"#
    );
    let mut responses = short(DialectKind::OpenaiResponses, &head());
    assert_eq!(
        ending(&mut responses, ToolChoice::None, Some(last)),
        r#""}]},{"type":"message","role":"user","content":[{"type":"input_text","text":"that was the last step. \n"}]}],"tool_choice":"none"}"#,
        "no answer can be begun here"
    );
}

#[test]
fn without_tools_there_is_no_word_of_them() {
    let bare = Head { tools: Vec::new().into(), system: String::new(), ..head() };
    for dialect in ALL {
        let request = short(dialect, &bare).request(ToolChoice::None, None);
        let request = std::str::from_utf8(&request).unwrap();
        assert!(!request.contains("tool") && !request.contains("system"), "{request}");
        assert!(!request.contains("instructions") && !request.contains("Instruction"), "{request}");
        let request = serde_json::from_str::<Value>(request).unwrap();
        let (_, messages) = request.as_object().unwrap().iter().next_back().unwrap();
        assert_eq!(messages.as_array().unwrap().len(), 1);
    }
}

#[test]
fn the_output_limit_has_the_name_that_the_server_knows() {
    for (field, name) in [
        (OutputLimitField::MaxTokens, "max_tokens"),
        (OutputLimitField::MaxCompletionTokens, "max_completion_tokens"),
    ] {
        let head = Head { output_limit_field: field, ..head() };
        let request = short(DialectKind::OpenaiChat, &head).request(ToolChoice::Auto, None);
        let request: Value = serde_json::from_slice(&request).unwrap();
        assert_eq!(request[name], 8192);
        let limits = request.as_object().unwrap().keys().filter(|key| key.starts_with("max_")).count();
        assert_eq!(limits, 1);
    }
}
