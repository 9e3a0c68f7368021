//! Answers of Gemini.

use playhouse_llm::{DialectKind, StreamEvent};
use playhouse_protocol::error::ErrorCode;
use playhouse_protocol::message::FinishReason;
use playhouse_protocol::usage::{Quality, Tokens};
use serde_json::{Value, json};

use crate::support::{Scripted, Then, arguments, ask, call, read, reasoning, run, text};

fn chunk(parts: Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}],
        "usageMetadata": {"promptTokenCount": 100, "totalTokenCount": 100}, "modelVersion": "acme-1", "responseId": "r"})
}

/// A chunk with these parts and this reason, and the last figures.
fn last(parts: Value, reason: &str) -> Value {
    let mut chunk = chunk(parts);
    chunk["candidates"][0]["finishReason"] = reason.into();
    chunk["usageMetadata"] = json!({"promptTokenCount": 100, "cachedContentTokenCount": 80, "candidatesTokenCount": 20,
        "thoughtsTokenCount": 30, "totalTokenCount": 150, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 100}]});
    chunk
}

pub(crate) fn stream(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn opaque(signature: &str, on: &str) -> StreamEvent {
    StreamEvent::ReasoningOpaque(json!({"thought_signature": signature, "on": on}))
}

/// Thoughts, text and two calls.
pub(crate) fn everything() -> String {
    stream(&[
        chunk(json!([{"text": "let me ", "thought": true}])),
        chunk(json!([{"text": "see", "thought": true}, {"text": "h\u{e9}llo "}])),
        chunk(json!([{"text": "\u{1f3ad}\n", "thoughtSignature": "dGV4dA=="}])),
        chunk(
            json!([{"functionCall": {"id": "c1", "name": "read", "args": {"filePath": "a.rs"}}, "thoughtSignature": "Y2FsbA=="}]),
        ),
        last(json!([{"functionCall": {"name": "list", "args": {}}}]), "STOP"),
    ])
}

pub(crate) fn everything_decoded() -> Vec<StreamEvent> {
    vec![
        reasoning("let me see"),
        StreamEvent::PartEnd,
        text("h\u{e9}llo \u{1f3ad}\n"),
        StreamEvent::PartEnd,
        opaque("dGV4dA==", "text"),
        StreamEvent::PartEnd,
        opaque("Y2FsbA==", "call"),
        StreamEvent::PartEnd,
        call("c1", "read"),
        arguments(0, "{\"filePath\":\"a.rs\"}"),
        StreamEvent::PartEnd,
        call("", "list"),
        arguments(1, "{}"),
        StreamEvent::PartEnd,
    ]
}

async fn decode(
    events: &[Value],
) -> (Vec<StreamEvent>, Result<playhouse_llm::Answer, playhouse_protocol::ErrorInfo>) {
    run(DialectKind::Gemini, Scripted::stream([stream(events)])).await
}

#[tokio::test]
async fn thoughts_text_and_calls_are_decoded_in_one_batch() {
    let answer = ask(DialectKind::Gemini, &Scripted::stream([everything()])).await.unwrap();
    let (batches, end) = read(answer).await;
    assert_eq!(batches, vec![everything_decoded()]);
    let answer = end.unwrap();
    assert_eq!((answer.finish, answer.model.as_deref()), (FinishReason::ToolCalls, Some("acme-1")));
    let usage = answer.usage.unwrap();
    let expected = Tokens { input: 20, cache_read: 80, output: 20, reasoning: 30, ..Tokens::default() };
    assert_eq!((usage.tokens, usage.quality), (expected, Quality::Reported));
}

#[tokio::test]
async fn totals_that_every_chunk_repeats_are_new_once() {
    let chunks =
        [chunk(json!([{"text": "a"}])), chunk(json!([{"text": "b"}])), last(json!([{"text": "c"}]), "STOP")];
    let mut server = Scripted::stream(chunks.map(|event| stream(&[event])));
    server.then = Then::Slowly;
    let mut answer = ask(DialectKind::Gemini, &server).await.unwrap();
    let (mut reports, mut pieces) = (Vec::new(), Vec::new());
    loop {
        let more = answer.next(&mut pieces).await.unwrap();
        reports.extend(answer.new_usage().map(|usage| usage.tokens.total()));
        if !more {
            break;
        }
    }
    assert_eq!(reports, vec![100, 150]);
}

#[tokio::test]
async fn every_reason_has_its_meaning() {
    for (reason, expected) in [
        ("STOP", FinishReason::Stop),
        ("MAX_TOKENS", FinishReason::Length),
        ("SAFETY", FinishReason::ContentFilter),
        ("RECITATION", FinishReason::ContentFilter),
        ("PROHIBITED_CONTENT", FinishReason::ContentFilter),
        ("OTHER", FinishReason::Other),
        ("SOMETHING_NEW", FinishReason::Other),
    ] {
        let (pieces, end) = decode(&[last(json!([{"text": "x"}]), reason)]).await;
        assert_eq!(pieces, vec![text("x"), StreamEvent::PartEnd]);
        assert_eq!(end.unwrap().finish, expected, "{reason}");
    }
    let (_, end) = decode(&[last(json!([]), "SAFETY")]).await;
    assert_eq!(end.unwrap().finish, FinishReason::ContentFilter, "a refusal may be without words");
    for reason in ["STOP", "SOMETHING_NEW"] {
        let (_, end) = decode(&[last(json!([{"text": " ", "thought": true}]), reason)]).await;
        assert_eq!(end.unwrap_err().code, ErrorCode::EmptyAnswer);
    }
}

#[tokio::test]
async fn a_prompt_that_is_blocked_is_filtered() {
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
        "usageMetadata": {"promptTokenCount": 7, "totalTokenCount": 7}});
    let (pieces, end) = decode(&[blocked]).await;
    assert_eq!(pieces, Vec::new());
    let answer = end.unwrap();
    assert_eq!(answer.finish, FinishReason::ContentFilter);
    assert_eq!(answer.usage.unwrap().tokens, Tokens { input: 7, ..Tokens::default() });
}

#[tokio::test]
async fn a_call_that_the_server_could_not_read_is_named_and_may_be_tried_again() {
    let mut event = last(json!([]), "MALFORMED_FUNCTION_CALL");
    event["candidates"][0]["finishMessage"] = "Malformed function call: print(x)".into();
    let (_, end) = decode(&[event]).await;
    let error = end.unwrap_err();
    assert!(error.code.is_retryable(), "{error}");
    assert!(
        error.message.contains("print(x)") && error.message.contains("MALFORMED_FUNCTION_CALL"),
        "{error}"
    );
}

/// Signatures may come on a part without text, and after the reason.
#[tokio::test]
async fn signatures_are_kept_wherever_they_come() {
    let signed = |text: &str| json!([{"text": text, "thoughtSignature": "s"}]);
    let whole = vec![text("x"), StreamEvent::PartEnd, opaque("s", "text"), StreamEvent::PartEnd];
    for events in [
        vec![last(signed("x"), "STOP")],
        vec![chunk(json!([{"text": "x"}])), last(signed(""), "STOP")],
        vec![last(json!([{"text": "x"}]), "STOP"), last(signed(""), "STOP")],
    ] {
        let (pieces, end) = decode(&events).await;
        assert_eq!(pieces, whole);
        assert_eq!(end.unwrap().finish, FinishReason::Stop);
    }
    let thought = json!([{"text": "hm", "thought": true, "thoughtSignature": "s"}, {"text": "x"}]);
    let (pieces, _) = decode(&[last(thought, "STOP")]).await;
    let expected =
        vec![reasoning("hm"), opaque("s", "thought"), StreamEvent::PartEnd, text("x"), StreamEvent::PartEnd];
    assert_eq!(pieces, expected);
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_says_where() {
    let cases: Vec<(Vec<Value>, &str)> = vec![
        (vec![chunk(json!([{"functionCall": {"args": {}}}]))], "a call has no name"),
        (vec![json!({"candidates": 5})], "\"chunk\" event is not what the dialect says"),
    ];
    for (events, expected) in cases {
        let (_, end) = decode(&events).await;
        let error = end.unwrap_err();
        assert_eq!(error.code, ErrorCode::BadAnswer, "{error}");
        assert!(error.message.starts_with("acme: ") && error.message.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn errors_in_the_stream_are_typed() {
    for (error, expected) in [
        (
            json!({"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}),
            ErrorCode::ProviderUnavailable,
        ),
        (
            json!({"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}),
            ErrorCode::RateLimited,
        ),
        (json!({"code": 500, "message": "oops", "status": "INTERNAL"}), ErrorCode::ProviderUnavailable),
        (json!({"code": 400, "message": "what", "status": "INVALID_ARGUMENT"}), ErrorCode::BadRequest),
        (json!({}), ErrorCode::BadAnswer),
    ] {
        let events = [chunk(json!([{"text": "so far"}])), json!({"error": error})];
        let (pieces, end) = decode(&events).await;
        assert_eq!(pieces, vec![text("so far")]);
        assert_eq!(end.unwrap_err().code, expected, "{error}");
    }
}

#[tokio::test]
async fn only_the_first_candidate_is_read_and_unknown_parts_are_passed_over() {
    let mut event = last(json!([{"executableCode": {"code": "x"}}, {"text": "x"}]), "STOP");
    let mut second = event["candidates"][0].clone();
    second["index"] = 1.into();
    event["candidates"].as_array_mut().unwrap().push(second);
    let (pieces, end) = decode(&[event]).await;
    assert_eq!(pieces, vec![text("x"), StreamEvent::PartEnd]);
    assert_eq!(end.unwrap().finish, FinishReason::Stop);
}
