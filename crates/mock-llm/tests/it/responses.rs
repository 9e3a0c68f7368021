//! The exact bytes of the Responses format, and what it refuses.

use bytes::Bytes;
use mock_llm::{Finish, Mock, Model, Script, Step, UsageOverride, reasoning, refusal, text};
use serde_json::{Value, json};

use crate::support::{RESPONSES, ask, prompt, read, responses};

fn mock(step: Step) -> Mock {
    Mock::new(Script::new().model("fix", Model::new().step(step)))
}

fn step() -> Step {
    let usage = UsageOverride {
        input: Some(100),
        cache_read: Some(40),
        cache_write: Some(7),
        ..UsageOverride::default()
    };
    reasoning("Think first.")
        .redacted_reasoning("c2VjcmV0")
        .text("Reading \"it\".\n")
        .call("read", json!({"filePath": "README.md"}))
        .call("list", json!({}))
        .usage(usage)
}

fn whole(mut request: Value) -> Value {
    request["stream"] = json!(false);
    request
}

#[tokio::test]
async fn a_stream() {
    let answer = ask(&mock(step()), RESPONSES, &responses("fix", prompt())).await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    insta::assert_snapshot!(answer.text);
}

#[tokio::test]
async fn an_answer_in_one_piece() {
    let answer = ask(&mock(step()), RESPONSES, &whole(responses("fix", prompt()))).await;
    assert_eq!(answer.header("content-length"), Some(answer.text.len().to_string().as_str()));
    insta::assert_snapshot!(format!("{:#}", answer.json()));
}

#[tokio::test]
async fn the_last_event_holds_what_an_answer_in_one_piece_does() {
    for step in [step(), refusal("I will not."), Step::empty(), text("a").finish(Finish::Length)] {
        let mock = mock(step);
        let request = responses("fix", prompt());
        let events = ask(&mock, RESPONSES, &request).await.events();
        let mut piece = ask(&mock, RESPONSES, &whole(request)).await.json();
        let mut last = events.last().unwrap()["response"].clone();
        // The counted input differs with the size of the request.
        for answer in [&mut piece, &mut last] {
            answer["usage"].take();
        }
        assert_eq!(last, piece);
        let numbers: Vec<u64> =
            events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn reasoning_is_encrypted_only_when_asked_for() {
    let mut request = responses("fix", prompt());
    request["include"] = Value::Null;
    let answer = ask(&mock(step()), RESPONSES, &request).await;
    assert!(!answer.text.contains("encrypted_content") && answer.text.contains("Think"), "{}", answer.text);
    let signed = mock(Step::empty().signed_reasoning("Hm.", "b3du"));
    let answer = ask(&signed, RESPONSES, &responses("fix", prompt())).await;
    assert!(answer.text.contains(r#""encrypted_content":"b3du""#), "{}", answer.text);
}

#[tokio::test]
async fn every_reason_to_end_has_its_word() {
    let cases = [
        (Finish::Stop, "response.completed", Value::Null),
        (Finish::ToolCalls, "response.completed", Value::Null),
        (Finish::Refusal, "response.completed", Value::Null),
        (Finish::Length, "response.incomplete", json!({"reason": "max_output_tokens"})),
        (Finish::ContentFilter, "response.incomplete", json!({"reason": "content_filter"})),
        (Finish::Other("steered".into()), "response.incomplete", json!({"reason": "steered"})),
    ];
    for (finish, name, details) in cases {
        let answer = ask(&mock(text("a").finish(finish)), RESPONSES, &responses("fix", prompt())).await;
        let last = answer.events().pop().unwrap();
        assert_eq!((&last["type"], &last["response"]["incomplete_details"]), (&json!(name), &details));
        assert_eq!(last["response"]["status"], name.trim_start_matches("response."));
    }
}

#[tokio::test]
async fn a_prompt_may_be_a_text() {
    let mock = Mock::new(Script::new());
    let answer = ask(&mock, RESPONSES, &responses("echo", json!("Say it again."))).await;
    assert_eq!(answer.said(), "Say it again.");
}

/// What each wrong request is told.
#[tokio::test]
async fn requests_that_make_no_sense_are_refused() {
    let mock = Mock::new(Script::new());
    let user = json!({"role": "user", "content": "x"});
    let call = json!({"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "call_1", "output": "x"});
    let thoughts = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"});
    let with = |item: &Value, name: &str, value: Value| {
        let mut item = item.clone();
        item[name] = value;
        item
    };
    let input = |items: &[&Value]| responses("echo", json!(items));
    let set = |name: &str, value: Value| with(&input(&[&user]), name, value);
    let chat_tool = json!([{"type": "function", "function": {"name": "read"}}]);
    let requests = [
        json!([]),
        json!({"model": "echo", "messages": prompt()}),
        json!({"model": "echo", "input": 5}),
        set("max_tokens", json!(5)),
        set("max_output_tokens", json!(0)),
        set("previous_response_id", json!("resp_1")),
        set("tools", chat_tool),
        set("tools", json!([{"name": "read"}])),
        input(&[&user, &call]),
        input(&[&user, &call, &user]),
        input(&[&user, &output]),
        input(&[&user, &call, &output, &output]),
        input(&[&user, &thoughts]),
        input(&[&user, &thoughts, &user]),
        input(&[&user, &with(&thoughts, "encrypted_content", Value::Null), &call, &output]),
        input(&[&user, &with(&thoughts, "summary", Value::Null), &call, &output]),
        input(&[&user, &with(&thoughts, "id", json!("item_1")), &call, &output]),
        input(&[&user, &with(&call, "id", json!("call_1")), &output]),
        input(&[&user, &with(&call, "arguments", Value::Null), &output]),
        input(&[&user, &with(&call, "call_id", json!("c".repeat(65))), &output]),
        input(&[&user, &call, &with(&output, "output", Value::Null)]),
        input(&[&with(&user, "role", json!("tool"))]),
        input(&[&with(&user, "content", json!([{"type": "text", "text": "x"}]))]),
        input(&[&user, &json!({"role": "assistant", "content": [{"type": "input_text", "text": "x"}]})]),
        input(&[&user, &json!({"type": "item_reference", "id": "msg_1"})]),
        input(&[&json!({"type": "tool_result"})]),
        input(&[&json!({"content": "x"})]),
    ];
    let mut told = String::new();
    for request in requests {
        let answer = read(mock.respond(RESPONSES, &[], Bytes::from(request.to_string())).await).await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["type"]), (400, &json!("invalid_request_error")), "{request}");
        told += &format!("{}\n", error["message"].as_str().unwrap());
    }
    insta::assert_snapshot!(told);
}
