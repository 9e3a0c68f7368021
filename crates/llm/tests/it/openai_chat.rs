//! Answers of Chat Completions.

use playhouse_llm::{DialectKind, StreamEvent};
use playhouse_protocol::error::ErrorCode;
use playhouse_protocol::message::FinishReason;
use playhouse_protocol::usage::{Quality, Tokens};
use serde_json::{Value, json};

use crate::support::{Scripted, arguments, ask, call, read, reasoning, run, text};

fn chunk(choices: Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "acme-1", "choices": choices})
}

fn delta(delta: Value) -> Value {
    chunk(json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]))
}

fn finish(reason: &str) -> Value {
    chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}]))
}

fn calls(calls: Value) -> Value {
    delta(json!({"tool_calls": calls}))
}

fn usage() -> Value {
    json!({"model": "acme-1", "choices": [], "usage": {
        "prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 80}, "completion_tokens_details": {"reasoning_tokens": 30}}})
}

pub(crate) fn stream(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).chain(["data: [DONE]\n\n".to_owned()]).collect()
}

/// Reasoning, text and two calls.
pub(crate) fn everything() -> String {
    stream(&[
        delta(json!({"role": "assistant", "content": "", "refusal": null})),
        delta(json!({"reasoning_content": "let me "})),
        delta(json!({"reasoning": "see"})),
        delta(json!({"content": "h\u{e9}llo "})),
        delta(json!({"content": "\u{1f3ad}\n"})),
        calls(
            json!([{"index": 0, "id": "call_1", "type": "function", "function": {"name": "read", "arguments": ""}}]),
        ),
        calls(json!([{"index": 0, "function": {"arguments": "{\"filePath\":"}}])),
        calls(json!([{"index": 0, "function": {"arguments": "\"a.rs\"}"}}])),
        calls(
            json!([{"index": 1, "id": "call_2", "type": "function", "function": {"name": "list", "arguments": "{}"}}]),
        ),
        finish("tool_calls"),
        usage(),
    ])
}

pub(crate) fn everything_decoded() -> Vec<StreamEvent> {
    vec![
        reasoning("let me see"),
        StreamEvent::PartEnd,
        text("h\u{e9}llo \u{1f3ad}\n"),
        StreamEvent::PartEnd,
        call("call_1", "read"),
        arguments(0, "{\"filePath\":\"a.rs\"}"),
        StreamEvent::PartEnd,
        call("call_2", "list"),
        arguments(1, "{}"),
        StreamEvent::PartEnd,
    ]
}

#[tokio::test]
async fn reasoning_text_and_calls_are_decoded_in_one_batch() {
    let answer = ask(DialectKind::OpenaiChat, &Scripted::stream([everything()])).await.unwrap();
    let (batches, end) = read(answer).await;
    assert_eq!(batches, vec![everything_decoded()]);
    let answer = end.unwrap();
    assert_eq!((answer.finish, answer.model.as_deref()), (FinishReason::ToolCalls, Some("acme-1")));
    let usage = answer.usage.unwrap();
    let expected = Tokens { input: 20, cache_read: 80, output: 20, reasoning: 30, ..Tokens::default() };
    assert_eq!((usage.tokens, usage.quality), (expected, Quality::Reported));
}

#[tokio::test]
async fn an_empty_usage_at_the_end_takes_nothing_back() {
    let empty = json!({"model": "acme-1", "choices": [], "usage": {}});
    let events = [delta(json!({"content": "x"})), finish("stop"), usage(), empty];
    let (_, end) = run(DialectKind::OpenaiChat, Scripted::stream([stream(&events)])).await;
    let usage = end.unwrap().usage.unwrap();
    assert_eq!((usage.tokens.total(), usage.quality), (150, Quality::Reported));
}

#[tokio::test]
async fn every_reason_has_its_meaning() {
    for (reason, expected) in [
        ("stop", FinishReason::Stop),
        ("length", FinishReason::Length),
        ("content_filter", FinishReason::ContentFilter),
        ("something_new", FinishReason::Other),
    ] {
        let events = [delta(json!({"content": "x"})), finish(reason)];
        let (pieces, end) = run(DialectKind::OpenaiChat, Scripted::stream([stream(&events)])).await;
        assert_eq!(pieces, vec![text("x"), StreamEvent::PartEnd]);
        let answer = end.unwrap();
        assert_eq!((answer.finish, answer.usage), (expected, None), "{reason}");
    }
    let refusal = [delta(json!({"refusal": "no"})), finish("stop")];
    let (pieces, end) = run(DialectKind::OpenaiChat, Scripted::stream([stream(&refusal)])).await;
    assert_eq!(pieces, vec![text("no"), StreamEvent::PartEnd]);
    assert_eq!(end.unwrap().finish, FinishReason::ContentFilter);
}

/// What OpenRouter sends of a model whose reasoning is signed, and part of it encrypted.
#[tokio::test]
async fn details_of_reasoning_are_kept_whole_beside_its_text() {
    let detail = |more: Value| {
        let mut detail = json!({"type": "reasoning.text", "index": 0, "format": "f-1"});
        detail.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        detail
    };
    let encrypted = json!({"type": "reasoning.encrypted", "index": 1, "id": "rs_1", "data": "eA=="});
    let events = [
        delta(json!({"reasoning": "look ", "reasoning_details": [detail(json!({"text": "look "}))]})),
        delta(json!({"reasoning": "first", "reasoning_details": [detail(json!({"text": "first"}))]})),
        delta(json!({"content": "Well.", "reasoning": null})),
        delta(json!({"content": "", "reasoning_details": [detail(json!({"signature": "c2ln"}))]})),
        delta(json!({"reasoning_details": [encrypted]})),
        finish("stop"),
        usage(),
    ];
    let (pieces, end) = run(DialectKind::OpenaiChat, Scripted::stream([stream(&events)])).await;
    let whole = detail(json!({"text": "look first", "signature": "c2ln"}));
    let expected = vec![
        reasoning("look first"),
        StreamEvent::PartEnd,
        text("Well."),
        StreamEvent::PartEnd,
        StreamEvent::ReasoningOpaque(json!({"reasoning_details": [whole, encrypted]})),
        StreamEvent::PartEnd,
    ];
    assert_eq!(pieces, expected);
    assert_eq!(end.unwrap().finish, FinishReason::Stop);

    let silent = [
        delta(json!({"reasoning_details": [{"type": "reasoning.summary", "summary": "so"}]})),
        delta(json!({"content": "x"})),
        finish("stop"),
    ];
    let (pieces, _) = run(DialectKind::OpenaiChat, Scripted::stream([stream(&silent)])).await;
    assert_eq!(pieces[0], reasoning("so"), "where the text stands nowhere else");
}

/// What Mistral's models send while they think, and some after it.
#[tokio::test]
async fn content_in_pieces_is_reasoning_and_text() {
    let thinking = |words: &str| json!({"type": "thinking", "thinking": [{"type": "text", "text": words}]});
    let events = [
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"content": [thinking("h\u{e9}, "), thinking("\"well\"")]})),
        delta(json!({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "yes"}]})),
        delta(
            json!({"content": [{"type": "reference", "reference_ids": [1]}, {"type": "text", "text": "."}]}),
        ),
        delta(json!({"content": " \u{1f3ad}"})),
        finish("stop"),
        usage(),
    ];
    let (pieces, end) = run(DialectKind::OpenaiChat, Scripted::stream([stream(&events)])).await;
    let expected = vec![
        reasoning("h\u{e9}, \"well\""),
        StreamEvent::PartEnd,
        text("yes. \u{1f3ad}"),
        StreamEvent::PartEnd,
    ];
    assert_eq!(pieces, expected);
    assert_eq!(end.unwrap().finish, FinishReason::Stop);
}

/// Servers that are compatible in their own way: calls without index, with the same index, repeated ids and names.
#[tokio::test]
async fn calls_are_told_apart_however_they_are_numbered() {
    let function = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
    for pieces in [
        vec![
            json!([{"id": "a", "function": function("read", "{}")}]),
            json!([{"id": "b", "function": function("list", "{}")}]),
        ],
        vec![
            json!([{"index": 0, "id": "a", "function": function("read", "{}")}]),
            json!([{"index": 0, "id": "b", "function": function("list", "{}")}]),
        ],
        vec![json!([
            {"index": 0, "id": "a", "function": function("read", "{}")},
            {"index": 1, "id": "b", "function": function("list", "{}")},
        ])],
        vec![
            json!([{"index": 0, "id": "a", "function": function("read", "{")}]),
            json!([{"index": 0, "id": "a", "function": function("read", "}")}]),
            json!([{"index": 1, "id": "b", "function": function("list", "{")}]),
            json!([{"index": 1, "id": "", "function": {"name": "", "arguments": "}"}}]),
        ],
        vec![
            json!([{"index": 0, "id": "a", "function": function("read", "{}")}]),
            json!([{"index": 3, "id": "b", "function": function("list", "{")}]),
            json!([{"function": {"arguments": "}"}}]),
        ],
    ] {
        let mut events: Vec<Value> = pieces.into_iter().map(calls).collect();
        // Says `stop` although it holds calls.
        events.push(finish("stop"));
        let (decoded, end) = run(DialectKind::OpenaiChat, Scripted::stream([stream(&events)])).await;
        let expected = vec![
            call("a", "read"),
            arguments(0, "{}"),
            StreamEvent::PartEnd,
            call("b", "list"),
            arguments(1, "{}"),
            StreamEvent::PartEnd,
        ];
        assert_eq!(decoded, expected);
        assert_eq!(end.unwrap().finish, FinishReason::ToolCalls);
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_says_where() {
    let more = || calls(json!([{"index": 0, "function": {"arguments": "}"}}]));
    let cases: Vec<(Vec<Value>, &str)> = vec![
        (vec![more()], "a call began without a name"),
        (vec![json!({"choices": 5})], "\"chunk\" event is not what the dialect says"),
        (
            vec![json!({"choices": [{"delta": {"content": 5}}]})],
            "\"chunk\" event is not what the dialect says",
        ),
    ];
    for (events, expected) in cases {
        let (_, end) = run(DialectKind::OpenaiChat, Scripted::stream([stream(&events)])).await;
        let error = end.unwrap_err();
        assert_eq!(error.code, ErrorCode::BadAnswer, "{error}");
        assert!(error.message.starts_with("acme: ") && error.message.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn errors_in_the_stream_are_typed() {
    for (error, expected) in [
        (json!({"type": "server_error", "message": "oops", "code": null}), ErrorCode::ProviderUnavailable),
        (json!({"type": "tokens", "code": "rate_limit_exceeded", "message": "slow"}), ErrorCode::RateLimited),
        (json!({"code": 502, "message": "upstream"}), ErrorCode::ProviderUnavailable),
        (json!({"code": 429, "message": "upstream"}), ErrorCode::RateLimited),
        (json!({"code": "context_length_exceeded", "message": "too much"}), ErrorCode::ContextOverflow),
        (json!("it broke"), ErrorCode::ProviderUnavailable),
        (json!({}), ErrorCode::BadAnswer),
    ] {
        let events = [delta(json!({"content": "so far"})), json!({"error": error})];
        let (pieces, end) = run(DialectKind::OpenaiChat, Scripted::stream([stream(&events)])).await;
        assert_eq!(pieces, vec![text("so far")]);
        assert_eq!(end.unwrap_err().code, expected, "{error}");
    }
    // The form of older servers.
    let old = json!({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400});
    let events = [delta(json!({"content": "so far"})), old];
    let (_, end) = run(DialectKind::OpenaiChat, Scripted::stream([stream(&events)])).await;
    assert_eq!(end.unwrap_err().code, ErrorCode::BadRequest);
}

#[tokio::test]
async fn the_done_marker_or_the_reason_may_be_missing() {
    let whole = everything();
    let without_marker = whole.strip_suffix("data: [DONE]\n\n").unwrap().to_owned();
    let (pieces, end) = run(DialectKind::OpenaiChat, Scripted::stream([without_marker])).await;
    assert_eq!(pieces, everything_decoded());
    assert!(end.unwrap().usage.is_some());

    let without_reason = stream(&[delta(json!({"content": "x"}))]);
    let (pieces, end) = run(DialectKind::OpenaiChat, Scripted::stream([without_reason.clone()])).await;
    assert_eq!(pieces, vec![text("x"), StreamEvent::PartEnd]);
    assert_eq!(end.unwrap().finish, FinishReason::Stop);

    let without_both = without_reason.strip_suffix("data: [DONE]\n\n").unwrap().to_owned();
    let (_, end) = run(DialectKind::OpenaiChat, Scripted::stream([without_both])).await;
    let error = end.unwrap_err();
    assert_eq!(error.code, ErrorCode::StreamCut);
    assert!(error.message.contains("finish_reason"), "{error}");
}

#[tokio::test]
async fn an_end_that_does_not_fit_what_came_is_refused() {
    let words = stream(&[delta(json!({"content": "x"})), finish("tool_calls")]);
    let (_, end) = run(DialectKind::OpenaiChat, Scripted::stream([words])).await;
    assert_eq!(end.unwrap_err().code, ErrorCode::BadAnswer);
    let nothing = stream(&[delta(json!({"reasoning": " "})), finish("stop")]);
    let (_, end) = run(DialectKind::OpenaiChat, Scripted::stream([nothing])).await;
    assert_eq!(end.unwrap_err().code, ErrorCode::EmptyAnswer);
}
