//! The exact bytes of the Gemini format, and what it refuses.

use bytes::Bytes;
use mock_llm::{Finish, Mock, Model, Script, Step, UsageOverride, malformed_call, reasoning, text};
use serde_json::{Value, json};

use crate::support::{ask, gemini, gemini_path, gemini_prompt, read};

const WHOLE: &str = "/v1beta/models/fix:generateContent";

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
        .text("Reading \"it\".\n")
        .call("read", json!({"filePath": "README.md"}))
        .call_with_id("call_7", "list", json!({}))
        .usage(usage)
}

#[tokio::test]
async fn a_stream() {
    let answer = ask(&mock(step()), &gemini_path("fix"), &gemini(gemini_prompt())).await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    // Lines end as this provider ends them; the snapshot would not show it.
    assert_eq!(answer.text.matches('\n').count(), answer.text.matches("\r\n").count());
    insta::assert_snapshot!(answer.text.replace("\r\n", "\n"));
}

#[tokio::test]
async fn an_answer_in_one_piece() {
    let answer = ask(&mock(step()), WHOLE, &gemini(gemini_prompt())).await;
    insta::assert_snapshot!(format!("{:#}", answer.json()));
}

#[tokio::test]
async fn a_stream_without_events_is_a_list() {
    let path = "/v1beta/models/fix:streamGenerateContent?key=x";
    let answer = ask(&mock(text("a")), path, &gemini(gemini_prompt())).await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.json()[0]["candidates"][0]["content"]["parts"][0]["text"], "a");
}

#[tokio::test]
async fn thoughts_are_signed_on_what_follows_them() {
    let ask_with =
        async |step| ask(&mock(step), &gemini_path("fix"), &gemini(gemini_prompt())).await.events();
    let part = |event: &Value| event["candidates"][0]["content"]["parts"][0].clone();
    let events = ask_with(reasoning("Hm.").text("Yes.")).await;
    assert_eq!(part(&events[0]), json!({"text": "Hm.", "thought": true}));
    assert_eq!(part(&events[1]), json!({"text": "Yes."}));
    let signature = "bW9jay10aG91Z2h0LXNpZ25hdHVyZQ==";
    assert_eq!(part(&events[2]), json!({"text": "", "thoughtSignature": signature}));
    let step = Step::empty().redacted_reasoning("b3du").call("a", json!({})).call("b", json!({}));
    let events = ask_with(step).await;
    assert_eq!(part(&events[0])["thoughtSignature"], "b3du");
    assert_eq!(part(&events[1])["thoughtSignature"], Value::Null);
}

#[tokio::test]
async fn counts_are_totals_so_far() {
    let answer = ask(&mock(step()), &gemini_path("fix"), &gemini(gemini_prompt())).await;
    let events = answer.events();
    let mut before = 0;
    for event in &events {
        let usage = &event["usageMetadata"];
        let count = |name: &str| usage[name].as_u64().unwrap_or(0);
        let total = count("promptTokenCount") + count("candidatesTokenCount") + count("thoughtsTokenCount");
        assert_eq!((count("totalTokenCount"), count("promptTokenCount")), (total, 147));
        assert_eq!(count("cachedContentTokenCount"), 40);
        assert!(total >= before);
        before = total;
    }
    let last = &events.last().unwrap()["usageMetadata"];
    assert_eq!((&last["thoughtsTokenCount"], &last["candidatesTokenCount"]), (&json!(2), &json!(6)));
}

#[tokio::test]
async fn every_reason_to_end_has_its_word() {
    let cases = [
        (Finish::Stop, "STOP"),
        (Finish::ToolCalls, "STOP"),
        (Finish::Length, "MAX_TOKENS"),
        (Finish::ContentFilter, "SAFETY"),
        (Finish::Refusal, "PROHIBITED_CONTENT"),
        (Finish::Other("RECITATION".into()), "RECITATION"),
    ];
    for (finish, word) in cases {
        let answer =
            ask(&mock(text("a").finish(finish)), &gemini_path("fix"), &gemini(gemini_prompt())).await;
        assert_eq!(answer.events().pop().unwrap()["candidates"][0]["finishReason"], word);
    }
}

#[tokio::test]
async fn arguments_that_are_not_json_are_no_call() {
    let mock = mock(malformed_call("edit", "{\"filePath\": "));
    for (path, is_stream) in [(gemini_path("fix"), true), (WHOLE.to_owned(), false)] {
        let answer = ask(&mock, &path, &gemini(gemini_prompt())).await;
        let answer = if is_stream { answer.events().pop().unwrap() } else { answer.json() };
        let candidate = &answer["candidates"][0];
        assert_eq!(candidate["finishReason"], "MALFORMED_FUNCTION_CALL");
        assert_eq!(candidate["content"], json!({"role": "model"}));
        assert!(candidate["finishMessage"].as_str().unwrap().contains("filePath"));
    }
}

#[tokio::test]
async fn both_spellings_are_read() {
    let request = json!({
        "system_instruction": {"parts": [{"text": "Be kind."}]},
        "generation_config": {"max_output_tokens": 5, "thinking_config": {"include_thoughts": true}},
        "tools": [{"function_declarations": [{"name": "read", "parameters_json_schema": {"$schema": "x"}}]}],
        "tool_config": {"function_calling_config": {"mode": "ANY"}},
        "contents": [
            {"parts": [{"text": "Look."}, {"inline_data": {"mime_type": "image/png", "data": "AAAA"}}]},
            {"role": "model", "parts": [
                {"text": "Hm.", "thought": true},
                {"function_call": {"name": "read", "args": {}}, "thought_signature": "x"}
            ]},
            {"role": "function", "parts": [{"function_response": {"name": "read", "response": {"a": 1}}}]},
        ],
    });
    let answer = ask(&Mock::new(Script::new()), &gemini_path("echo"), &request).await;
    assert_eq!(answer.said(), "Look.");
}

/// What each wrong request is told.
#[tokio::test]
async fn requests_that_make_no_sense_are_refused() {
    let mock = Mock::new(Script::new());
    let user = json!({"role": "user", "parts": [{"text": "x"}]});
    let call =
        json!({"role": "model", "parts": [{"functionCall": {"id": "call_1", "name": "read", "args": {}}}]});
    let result = |id: Value| {
        let response = json!({"id": id, "name": "read", "response": {"output": "x"}});
        json!({"role": "user", "parts": [{"functionResponse": response}]})
    };
    let of = |contents: &[&Value]| gemini(json!(contents));
    let set = |name: &str, value: Value| {
        let mut request = of(&[&user]);
        request[name] = value;
        request
    };
    let parameters = |schema: Value| {
        set("tools", json!([{"functionDeclarations": [{"name": "read", "parameters": schema}]}]))
    };
    let parts = |parts: Value| of(&[&json!({"role": "user", "parts": parts})]);
    let no_object = json!({"name": "read", "response": "x"});
    let requests = [
        json!({"contents": 5}),
        of(&[]),
        set("max_tokens", json!(5)),
        set("generationConfig", json!({"max_tokens": 5})),
        set("generationConfig", json!({"thinkingConfig": {"effort": "low"}})),
        set("toolConfig", json!({"functionCallingConfig": {"mode": "auto"}})),
        set("tools", json!([{"functionDeclarations": [{"name": "read file"}]}])),
        parameters(json!({"type": "object", "$schema": "x"})),
        parameters(json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}})),
        parameters(json!({"type": "array", "items": {"oneOf": []}})),
        set("systemInstruction", json!({"parts": []})),
        parts(json!([])),
        parts(json!([{"thought": true}])),
        parts(json!([{"text": "x", "functionCall": {"name": "read"}}])),
        parts(json!([{"functionCall": {"name": "read", "args": {}}}])),
        parts(json!([{"functionCall": {"name": "read", "args": []}}])),
        parts(json!([{"functionResponse": no_object}])),
        parts(json!([{"type": "text", "text": "x"}])),
        of(&[&json!({"role": "assistant", "parts": [{"text": "x"}]})]),
        of(&[&user, &call]),
        of(&[&user, &call, &user]),
        of(&[&user, &result(Value::Null)]),
        of(&[&user, &call, &result(json!("call_2"))]),
        of(&[
            &user,
            &call,
            &json!({"parts": [result(Value::Null)["parts"][0], result(Value::Null)["parts"][0]]}),
        ]),
    ];
    let mut told = String::new();
    for request in requests {
        let path = gemini_path("echo");
        let answer = read(mock.respond(&path, &[], Bytes::from(request.to_string())).await).await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["status"]), (400, &json!("INVALID_ARGUMENT")), "{request}");
        assert_eq!(error["code"], 400);
        told += &format!("{}\n", error["message"].as_str().unwrap());
    }
    insta::assert_snapshot!(told);
}
