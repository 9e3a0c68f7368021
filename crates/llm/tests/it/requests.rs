//! The exact requests that a model reads.

use bytes::Bytes;
use playhouse_llm::{
    CallIdForm, ChatFacts, DialectKind, Head, OutputLimitField, Reasoning, ToolChoice, Transcript,
};
use playhouse_protocol::capability::{Effort, Modalities, ReasoningField};
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
        modalities: Modalities { image: true, pdf: true },
        temperature: Some(0.5),
        ..Head::default()
    }
}

fn file(mime: &str, filename: &str, hash: &str) -> Attachment {
    Attachment::new(mime, filename, blob(hash, 3))
}

fn user_text(text: &str) -> UserPart {
    UserPart::Text { text: text.into() }
}

fn said(text: &str) -> AssistantPart {
    AssistantPart::Text { text: text.into(), opaque: None }
}

fn called(id: &str, name: &str, input: Value) -> AssistantPart {
    let input: Map<String, Value> = input.as_object().unwrap().clone();
    AssistantPart::Call { id: id.into(), name: name.into(), input, opaque: None }
}

fn thought(text: &str, opaque: Option<Value>) -> AssistantPart {
    AssistantPart::Reasoning { text: text.into(), opaque, stale: false }
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
                UserPart::File(file("text/plain", "notes.txt", "{{name}}\n")),
                UserPart::File(file(Attachment::DIRECTORY, "src/", " ")),
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
    let request = transcript(DialectKind::Anthropic, &head()).request(ToolChoice::Auto);
    insta::assert_snapshot!(readable(&request));
}

#[test]
fn openai_chat_request() {
    let request = transcript(DialectKind::OpenaiChat, &head()).request(ToolChoice::Auto);
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
    let request = transcript(DialectKind::OpenaiResponses, &head).request(ToolChoice::Auto);
    insta::assert_snapshot!(readable(&request));
}

#[test]
fn gemini_request() {
    let head =
        Head { model: "gemini-3-pro".into(), reasoning: Some(Reasoning::Effort(Effort::Low)), ..head() };
    let request = transcript(DialectKind::Gemini, &head).request(ToolChoice::Auto);
    insta::assert_snapshot!(readable(&request));
}

fn short(dialect: DialectKind, head: &Head) -> Transcript {
    let mut transcript = Transcript::new(dialect, head);
    transcript.push(&ChatMessage::User { parts: vec![user_text("hello")] }, &blobs);
    transcript
}

fn ending(transcript: &mut Transcript, tool_choice: ToolChoice) -> String {
    let request = transcript.request(tool_choice);
    let request = std::str::from_utf8(&request).unwrap();
    serde_json::from_str::<Value>(request).unwrap();
    request.split_once("hello").unwrap().1.to_owned()
}

#[test]
fn a_request_that_allows_no_call_keeps_the_tools() {
    for (dialect, end) in [
        (
            DialectKind::Anthropic,
            r#"","cache_control":{"type":"ephemeral"}}]}],"tool_choice":{"type":"none"}}"#,
        ),
        (DialectKind::OpenaiChat, r#""}],"tool_choice":"none"}"#),
        (DialectKind::Gemini, r#""}]}],"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}}"#),
        (DialectKind::OpenaiResponses, r#""}]}],"tool_choice":"none"}"#),
    ] {
        assert_eq!(ending(&mut short(dialect, &head()), ToolChoice::None), end, "{dialect:?}");
    }
}

#[test]
fn without_tools_there_is_no_word_of_them() {
    let bare = Head { tools: Vec::new().into(), system: String::new(), ..head() };
    for dialect in ALL {
        let request = short(dialect, &bare).request(ToolChoice::None);
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
        let chat = ChatFacts { output_limit_field: field, ..ChatFacts::default() };
        let head = Head { chat, ..head() };
        let request = short(DialectKind::OpenaiChat, &head).request(ToolChoice::Auto);
        let request: Value = serde_json::from_slice(&request).unwrap();
        assert_eq!(request[name], 8192);
        let limits = request.as_object().unwrap().keys().filter(|key| key.starts_with("max_")).count();
        assert_eq!(limits, 1);
    }
}

#[test]
fn usage_is_asked_for_where_the_field_is_taken() {
    for (stream_options, expected) in [(true, json!({"include_usage": true})), (false, Value::Null)] {
        let head = Head { chat: ChatFacts { stream_options, ..ChatFacts::USUAL }, ..head() };
        let request = short(DialectKind::OpenaiChat, &head).request(ToolChoice::Auto);
        let request: Value = serde_json::from_slice(&request).unwrap();
        assert_eq!((&request["stream"], &request["stream_options"]), (&json!(true), &expected));
    }
}

/// The assistant's and the tools' messages of the conversation, as a server of Chat Completions gets them.
fn answers(chat: ChatFacts) -> Vec<Value> {
    let request = transcript(DialectKind::OpenaiChat, &Head { chat, ..head() }).request(ToolChoice::Auto);
    let mut request: Value = serde_json::from_slice(&request).unwrap();
    let messages = request["messages"].as_array_mut().unwrap();
    messages.retain(|message| ["assistant", "tool"].iter().any(|role| message["role"] == *role));
    messages.clone()
}

#[test]
fn reasoning_goes_back_to_a_server_that_wants_it() {
    let field = |chat: ChatFacts| -> Vec<Option<String>> {
        let answers = answers(chat).into_iter().filter(|message| message["role"] == "assistant");
        answers.map(|message| message["reasoning_content"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(field(ChatFacts::USUAL), [None, None]);
    let thought = "look first\n\nnothing to send back\n\nlook\n\nfirst".to_owned();
    let wanted = ChatFacts { reasoning_field: Some(ReasoningField::ReasoningContent), ..ChatFacts::USUAL };
    assert_eq!(field(wanted), [Some(thought), Some(" ".to_owned())], "also where there was none");
}

#[test]
fn details_of_reasoning_go_back_as_they_came() {
    let detail =
        |index: u64| json!({"type": "reasoning.text", "index": index, "text": "t", "signature": "s"});
    let kept = |details: Value| thought("", Some(json!({ "reasoning_details": details })));
    let step = ChatMessage::Assistant {
        parts: vec![
            thought("look first", None),
            kept(json!([detail(0)])),
            called("c1", "read", json!({})),
            kept(json!([detail(1), {"type": "reasoning.encrypted", "data": "eA=="}])),
        ],
    };
    let sent = |reasoning_field| {
        let chat = ChatFacts { reasoning_field, ..ChatFacts::USUAL };
        let mut transcript = Transcript::new(DialectKind::OpenaiChat, &Head { chat, ..Head::default() });
        transcript.push(&step, &blobs);
        let request: Value = serde_json::from_slice(&transcript.request(ToolChoice::Auto)).unwrap();
        request["messages"][0].clone()
    };
    let all = json!([detail(0), detail(1), {"type": "reasoning.encrypted", "data": "eA=="}]);
    for field in [None, Some(ReasoningField::ReasoningDetails)] {
        let back = sent(field);
        assert_eq!((&back["reasoning_details"], &back["reasoning_content"]), (&all, &Value::Null));
    }
    assert_eq!(sent(Some(ReasoningField::ReasoningContent))["reasoning_details"], Value::Null);
}

/// The roles of the messages of a request.
fn roles(request: &Bytes) -> Vec<String> {
    let request: Value = serde_json::from_slice(request).unwrap();
    let messages = request["messages"].as_array().unwrap().iter();
    messages.map(|message| message["role"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_model_says_something_between_results_and_the_user_where_a_server_wants_it() {
    let chat = ChatFacts { user_after_results: false, ..ChatFacts::USUAL };
    let mut strict = transcript(DialectKind::OpenaiChat, &Head { chat, ..head() });
    let told =
        ["system", "user", "assistant", "tool", "tool", "assistant", "user", "user", "assistant", "tool"];
    assert_eq!(roles(&strict.request(ToolChoice::Auto)), told, "the first result has an image");
    let last = |request: &Bytes| roles(request)[told.len()..].join(" ");
    strict.push(&ChatMessage::User { parts: vec![user_text(" ")] }, &blobs);
    assert_eq!(last(&strict.request(ToolChoice::Auto)), "", "it says nothing");
    strict.push(&ChatMessage::User { parts: vec![user_text("stop")] }, &blobs);
    strict.push(&ChatMessage::User { parts: vec![user_text("go on")] }, &blobs);
    assert_eq!(last(&strict.request(ToolChoice::None)), "assistant user user");
    let mut usual = transcript(DialectKind::OpenaiChat, &head());
    usual.push(&ChatMessage::User { parts: vec![user_text("stop")] }, &blobs);
    let roles = roles(&usual.request(ToolChoice::Auto)).join(" ");
    assert!(roles.contains("tool user user assistant") && roles.ends_with("tool user"), "{roles}");
}

#[test]
fn a_model_reads_a_note_for_a_file_of_a_kind_that_it_does_not_read() {
    let image = "\\\"shot.png\\\" (image/png, 3 bytes) is not shown: this model reads no images";
    let result = "\\\"z.webp\\\" (image/webp, 3 bytes) is not shown: this model reads no images";
    let pdf = "\\\"spec.pdf\\\" (application/pdf, 3 bytes) is not shown: this model reads no PDF documents";
    // "png", "webp" and "pdf" in base64, which is what the files hold.
    let (png, webp, document) = ("cG5n", "d2VicA==", "cGRm");
    for dialect in ALL {
        let sent = |image: bool, pdf: bool| {
            let head = Head { modalities: Modalities { image, pdf }, ..head() };
            String::from_utf8(transcript(dialect, &head).request(ToolChoice::Auto).to_vec()).unwrap()
        };
        let neither = sent(false, false);
        for note in [image, result, pdf] {
            assert!(neither.contains(note), "{dialect:?}: {note} in {neither}");
        }
        for content in [png, webp, document] {
            assert!(!neither.contains(&format!("{content}\"")), "{dialect:?}: {neither}");
        }
        let images = sent(true, false);
        assert!(images.contains(webp) && images.contains(pdf) && !images.contains(image), "{images}");
        assert!(sent(true, true).contains(&format!("{document}\"")));
    }
}

#[test]
fn calls_have_ids_of_nine_characters_where_a_server_wants_such() {
    let nine = ChatFacts { call_ids: CallIdForm::NineAlphanumeric, ..ChatFacts::USUAL };
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for message in answers(nine) {
        let id = |value: &Value| value.as_str().unwrap().to_owned();
        calls.extend(message["tool_calls"].as_array().into_iter().flatten().map(|call| id(&call["id"])));
        results.extend(message.get("tool_call_id").map(id));
    }
    assert_eq!(calls, results);
    assert_eq!(calls.len(), 3);
    for id in &calls {
        assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    }
}
