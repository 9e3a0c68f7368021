//! The exact bytes of both wire formats.

use bytes::Bytes;
use mock_llm::{Finish, Mock, Model, Script, UsageOverride, calls, reasoning, text};
use serde_json::{Value, json};

use crate::support::{CHAT, MESSAGES, ask, chat, messages, prompt, read};

fn mock() -> Mock {
    let usage = UsageOverride {
        input: Some(100),
        cache_read: Some(40),
        cache_write: Some(7),
        ..UsageOverride::default()
    };
    let step = reasoning("Think first.")
        .text("Reading \"it\".\n")
        .call("read", json!({"filePath": "README.md"}))
        .call("list", json!({}))
        .usage(usage);
    Mock::new(Script::new().model("fix", Model::new().step(step)))
}

#[tokio::test]
async fn a_stream_of_messages() {
    let answer = ask(&mock(), MESSAGES, &messages("fix", prompt())).await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    insta::assert_snapshot!(answer.text);
}

#[tokio::test]
async fn a_stream_of_chat_completions() {
    let answer = ask(&mock(), CHAT, &chat("fix", prompt())).await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    insta::assert_snapshot!(answer.text);
}

fn in_one_piece(mut request: Value) -> Value {
    request["stream"] = json!(false);
    request
}

#[tokio::test]
async fn messages_in_one_piece() {
    let answer = ask(&mock(), MESSAGES, &in_one_piece(messages("fix", prompt()))).await;
    assert_eq!(answer.header("content-length"), Some(answer.text.len().to_string().as_str()));
    insta::assert_snapshot!(format!("{:#}", answer.json()));
}

#[tokio::test]
async fn chat_completions_in_one_piece() {
    let answer = ask(&mock(), CHAT, &in_one_piece(chat("fix", prompt()))).await;
    insta::assert_snapshot!(format!("{:#}", answer.json()));
}

#[tokio::test]
async fn chat_completions_report_usage_only_when_asked() {
    let mut request = chat("tokens-2", prompt());
    request["stream_options"] = Value::Null;
    let mock = Mock::new(Script::new());
    let answer = ask(&mock, CHAT, &request).await;
    assert!(!answer.text.contains("usage") && answer.text.ends_with("data: [DONE]\n\n"), "{}", answer.text);
    assert_eq!(mock.journal().entries()[0].reported, None);
}

#[tokio::test]
async fn the_same_request_gets_the_same_bytes() {
    let (mock, request) = (mock(), messages("fix", prompt()));
    let first = ask(&mock, MESSAGES, &request).await.text;
    assert_eq!(ask(&mock, MESSAGES, &request).await.text, first);
}

#[tokio::test]
async fn input_is_counted_and_output_is_what_was_sent() {
    let mock = Mock::new(Script::new());
    for (path, request) in [(MESSAGES, messages("tokens-30", prompt())), (CHAT, chat("tokens-30", prompt()))]
    {
        ask(&mock, path, &request).await;
        let entry = mock.journal().entries().pop().unwrap();
        let tokens = entry.reported.unwrap();
        assert_eq!(tokens.input, request.to_string().len().div_ceil(4) as u64);
        assert_eq!((tokens.output, entry.tokens), (30, 30));
    }
}

#[tokio::test]
async fn every_reason_to_end_has_its_word() {
    let cases = [
        (Finish::Stop, "end_turn", "stop"),
        (Finish::ToolCalls, "tool_use", "tool_calls"),
        (Finish::Length, "max_tokens", "length"),
        (Finish::ContentFilter, "refusal", "content_filter"),
        (Finish::Other("pause_turn".into()), "pause_turn", "pause_turn"),
    ];
    for (finish, in_messages, in_chat) in cases {
        let mock = Mock::new(Script::new().model("m", Model::new().step(text("a").finish(finish))));
        let answer = ask(&mock, MESSAGES, &messages("m", prompt())).await;
        let events = answer.events();
        assert_eq!(events[events.len() - 2]["delta"]["stop_reason"], in_messages);
        let answer = ask(&mock, CHAT, &chat("m", prompt())).await;
        assert_eq!(answer.events()[2]["choices"][0]["finish_reason"], in_chat);
    }
}

/// What each wrong request is told.
#[tokio::test]
async fn requests_that_make_no_sense_are_refused_in_their_own_format() {
    let mock = Mock::new(Script::new());
    let call =
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "x", "input": {}}]});
    let empty_text = json!([{"role": "user", "content": [{"type": "text", "text": ""}]}]);
    let bodies = [
        (MESSAGES, "{\"model\": ".to_owned()),
        (MESSAGES, "[]".to_owned()),
        (MESSAGES, json!({"model": "echo", "messages": prompt()}).to_string()),
        (MESSAGES, messages("echo", json!([])).to_string()),
        (MESSAGES, messages("echo", json!([{"role": "system", "content": "x"}])).to_string()),
        (MESSAGES, messages("echo", json!([{"role": "user", "content": []}])).to_string()),
        (MESSAGES, messages("echo", json!([{"role": "user", "content": 5}])).to_string()),
        (MESSAGES, messages("echo", empty_text).to_string()),
        (MESSAGES, messages("echo", json!([{"role": "user", "content": "x"}, call])).to_string()),
        (CHAT, "<html>".to_owned()),
        (CHAT, json!({"messages": prompt()}).to_string()),
        (CHAT, chat("echo", json!([])).to_string()),
        (CHAT, chat("echo", json!([{"role": "robot", "content": "x"}])).to_string()),
        (CHAT, chat("echo", json!([{"role": "tool", "content": "x"}])).to_string()),
        (CHAT, chat("echo", json!([{"role": "tool", "tool_call_id": "a", "content": "x"}])).to_string()),
        (CHAT, json!({"model": "echo", "messages": prompt(), "tool_choice": "none"}).to_string()),
    ];
    let mut told = String::new();
    for (path, body) in bodies {
        let answer = read(mock.respond(path, &[], Bytes::from(body)).await).await;
        assert_eq!(answer.status, 400);
        told += &format!("{path}: {}\n", answer.text);
    }
    insta::assert_snapshot!(told);
}

#[tokio::test]
async fn bytes_that_are_not_text_are_refused() {
    let mock = Mock::new(Script::new());
    for path in [MESSAGES, CHAT] {
        let answer = read(mock.respond(path, &[], Bytes::from_static(b"\xff\xfe{}")).await).await;
        assert_eq!(answer.status, 400);
        assert!(answer.json()["error"]["message"].is_string());
    }
}

#[tokio::test]
async fn unknown_models_and_paths_are_not_found() {
    let mock = mock();
    let answer = ask(&mock, MESSAGES, &messages("gpt", prompt())).await;
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (404, &json!("not_found_error")));
    let answer = ask(&mock, CHAT, &chat("gpt", prompt())).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (404, &json!("model_not_found")));
    assert!(answer.text.contains("fix") && answer.text.contains("tokens-N"), "{}", answer.text);
    let answer = ask(&mock, "/v1/completions", &chat("fix", prompt())).await;
    assert_eq!(answer.status, 404);
    assert!(answer.text.contains("/v1/completions"), "{}", answer.text);
}

#[tokio::test]
async fn prefixes_and_queries_are_accepted() {
    let answer = ask(&mock(), "/anthropic/v1/messages?beta=true", &messages("fix", prompt())).await;
    assert_eq!(answer.calls(), ["read", "list"]);
    let answer = ask(&mock(), "/openai/v1/chat/completions?a=/x", &chat("fix", prompt())).await;
    assert_eq!(answer.calls(), ["read", "list"]);
}

#[tokio::test]
async fn several_calls_have_different_ids() {
    let step = calls([("read", json!({})), ("read", json!({}))]);
    let mock = Mock::new(Script::new().model("m", Model::new().step(step)));
    for (path, request) in [(MESSAGES, messages("m", prompt())), (CHAT, chat("m", prompt()))] {
        let events = ask(&mock, path, &request).await.events();
        let ids: Vec<&str> = events
            .iter()
            .filter_map(|event| {
                let in_chat = &event["choices"][0]["delta"]["tool_calls"][0]["id"];
                event["content_block"]["id"].as_str().or_else(|| in_chat.as_str())
            })
            .collect();
        assert_eq!(ids.len(), 2);
        assert_ne!(ids[0], ids[1]);
    }
}
