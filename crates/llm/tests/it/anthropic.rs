//! Answers of Anthropic Messages.

use playhouse_llm::{DialectKind, StreamEvent};
use playhouse_protocol::error::ErrorCode;
use playhouse_protocol::message::FinishReason;
use playhouse_protocol::usage::{Quality, Tokens};
use serde_json::{Value, json};

use crate::support::{Scripted, Then, arguments, ask, call, read, reasoning, run, text};

/// A stream of these events, named by their types.
pub(crate) fn stream(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect()
}

pub(crate) fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [],
        "model": "acme-1-20260101", "stop_reason": null,
        "usage": {"input_tokens": 12, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5,
            "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 3}, "output_tokens": 1}}})
}

pub(crate) fn begin(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

pub(crate) fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

pub(crate) fn end(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

pub(crate) fn stop(reason: &str) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
            "usage": {"output_tokens": 42}}),
        json!({"type": "message_stop"}),
    ]
}

fn text_block(index: u64, words: &str) -> Vec<Value> {
    vec![
        begin(index, json!({"type": "text", "text": ""})),
        delta(index, json!({"type": "text_delta", "text": words})),
        end(index),
    ]
}

/// Thinking, text and two calls.
pub(crate) fn everything() -> String {
    let mut events = vec![start(), json!({"type": "ping"})];
    events.extend([
        begin(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "let me "})),
        delta(0, json!({"type": "thinking_delta", "thinking": "see"})),
        delta(0, json!({"type": "signature_delta", "signature": "c2ln"})),
        end(0),
        begin(1, json!({"type": "redacted_thinking", "data": "aGlk"})),
        end(1),
        begin(2, json!({"type": "text", "text": ""})),
        delta(2, json!({"type": "text_delta", "text": "h\u{e9}llo "})),
        delta(2, json!({"type": "text_delta", "text": "\u{1f3ad}\n"})),
        end(2),
        begin(3, json!({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}})),
        delta(3, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "{\"filePath\":"})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "\"a.rs\"}"})),
        end(3),
        begin(4, json!({"type": "tool_use", "id": "toolu_2", "name": "list", "input": {}})),
        end(4),
    ]);
    events.extend(stop("tool_use"));
    stream(&events)
}

pub(crate) fn everything_decoded() -> Vec<StreamEvent> {
    vec![
        reasoning("let me see"),
        StreamEvent::ReasoningOpaque(json!({"signature": "c2ln"})),
        StreamEvent::PartEnd,
        StreamEvent::ReasoningOpaque(json!({"redacted": "aGlk"})),
        StreamEvent::PartEnd,
        text("h\u{e9}llo \u{1f3ad}\n"),
        StreamEvent::PartEnd,
        call("toolu_1", "read"),
        arguments(0, "{\"filePath\":\"a.rs\"}"),
        StreamEvent::PartEnd,
        call("toolu_2", "list"),
        StreamEvent::PartEnd,
    ]
}

#[tokio::test]
async fn thinking_text_and_calls_are_decoded_in_one_batch() {
    let answer = ask(DialectKind::Anthropic, &Scripted::stream([everything()])).await.unwrap();
    let (batches, end) = read(answer).await;
    assert_eq!(batches, vec![everything_decoded()]);
    let answer = end.unwrap();
    assert_eq!(answer.finish, FinishReason::ToolCalls);
    assert_eq!(answer.model.as_deref(), Some("acme-1-20260101"));
    let usage = answer.usage.unwrap();
    let expected = Tokens {
        input: 12,
        cache_read: 100,
        cache_write_5m: 2,
        cache_write_1h: 3,
        output: 42,
        ..Tokens::default()
    };
    assert_eq!((usage.tokens, usage.quality), (expected, Quality::Reported));
    assert_eq!(usage.raw.unwrap()["input_tokens"], 12);
}

#[tokio::test]
async fn every_reason_has_its_meaning() {
    for (reason, expected) in [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::Length),
        ("refusal", FinishReason::ContentFilter),
        ("pause_turn", FinishReason::Other),
        ("something_new", FinishReason::Other),
    ] {
        let events = [vec![start()], text_block(0, "x"), stop(reason).to_vec()].concat();
        let (_, end) = run(DialectKind::Anthropic, Scripted::stream([stream(&events)])).await;
        assert_eq!(end.unwrap().finish, expected, "{reason}");
    }
}

#[tokio::test]
async fn a_stop_with_calls_is_a_stop_for_calls_and_arguments_may_come_with_the_beginning() {
    let block = json!({"type": "tool_use", "id": "a", "name": "read", "input": {"filePath": "x"}});
    let events = [vec![start(), begin(0, block), end(0)], stop("end_turn").to_vec()].concat();
    let (pieces, answer) = run(DialectKind::Anthropic, Scripted::stream([stream(&events)])).await;
    assert_eq!(pieces, vec![call("a", "read"), arguments(0, r#"{"filePath":"x"}"#), StreamEvent::PartEnd]);
    assert_eq!(answer.unwrap().finish, FinishReason::ToolCalls);
}

#[tokio::test]
async fn names_of_events_may_be_missing() {
    let nameless: String =
        everything().split_inclusive('\n').filter(|line| !line.starts_with("event:")).collect();
    let (pieces, end) = run(DialectKind::Anthropic, Scripted::stream([nameless])).await;
    assert_eq!(pieces, everything_decoded());
    assert_eq!(end.unwrap().finish, FinishReason::ToolCalls);
}

#[tokio::test]
async fn blocks_of_an_unknown_kind_are_passed_over() {
    let mut events =
        vec![start(), begin(0, json!({"type": "server_tool_use", "id": "s", "name": "web_search"}))];
    events.push(delta(0, json!({"type": "input_json_delta", "partial_json": "{}"})));
    events.push(end(0));
    events.push(json!({"type": "something_new"}));
    events.extend(text_block(1, "found"));
    events.extend(stop("end_turn"));
    let (pieces, answer) = run(DialectKind::Anthropic, Scripted::stream([stream(&events)])).await;
    assert_eq!(pieces, vec![text("found"), StreamEvent::PartEnd]);
    assert_eq!(answer.unwrap().finish, FinishReason::Stop);
}

#[tokio::test]
async fn what_the_provider_left_out_of_the_request_is_told() {
    let mut began = start();
    let dropped = json!({"type": "thinking_dropped", "reason": "prefix_binding_mismatch"});
    began["message"]["input_transformations"] = json!([dropped, dropped]);
    let mut events = vec![began];
    events.extend(text_block(0, "found"));
    events.extend(stop("end_turn"));
    let (_, answer) = run(DialectKind::Anthropic, Scripted::stream([stream(&events)])).await;
    assert_eq!(answer.unwrap().removals.to_string(), "thinking_dropped (prefix_binding_mismatch) × 2");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_says_where() {
    let open = || begin(0, json!({"type": "text", "text": ""}));
    let more = |index| delta(index, json!({"type": "input_json_delta", "partial_json": "x"}));
    let cases: Vec<(Vec<Value>, &str)> = vec![
        (vec![start(), open(), start()], "message_start came twice"),
        (vec![start(), open(), more(0)], "content block 0 has arguments and is no call"),
        (vec![start(), more(1)], "content block 1 has arguments and is no call"),
        (vec![start(), begin(0, json!({"type": "tool_use", "id": "a", "input": {}}))], "block 0 has no name"),
        (vec![json!({"type": "content_block_start", "index": 0})], "is not what the dialect says"),
    ];
    for (events, expected) in cases {
        let (_, end) = run(DialectKind::Anthropic, Scripted::stream([stream(&events)])).await;
        let error = end.unwrap_err();
        assert_eq!(error.code, ErrorCode::BadAnswer, "{error}");
        assert!(error.message.starts_with("acme: ") && error.message.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn errors_in_the_stream_are_typed() {
    for (kind, message, expected) in [
        ("overloaded_error", "Overloaded", ErrorCode::RateLimited),
        ("rate_limit_error", "slow down", ErrorCode::RateLimited),
        ("api_error", "oops", ErrorCode::ProviderUnavailable),
        ("authentication_error", "bad key", ErrorCode::Authentication),
        ("invalid_request_error", "prompt is too long: 300000 tokens > 200000", ErrorCode::ContextOverflow),
        ("invalid_request_error", "messages: wrong", ErrorCode::BadRequest),
        ("billing_error", "pay", ErrorCode::QuotaExceeded),
        ("new_error", "what", ErrorCode::ProviderUnavailable),
    ] {
        let error = json!({"type": "error", "error": {"type": kind, "message": message}});
        let events =
            [vec![start(), begin(0, json!({"type": "text", "text": "so far"}))], vec![error]].concat();
        let (pieces, end) = run(DialectKind::Anthropic, Scripted::stream([stream(&events)])).await;
        assert_eq!(pieces, vec![text("so far")], "what came before the error is kept");
        let error = end.unwrap_err();
        assert_eq!(error.code, expected, "{error}");
        assert!(error.message.contains(message) && error.message.contains(kind), "{error}");
    }
    let (_, end) = run(DialectKind::Anthropic, Scripted::stream(["event: error\ndata: {}\n\n"])).await;
    assert_eq!(end.unwrap_err().code, ErrorCode::BadAnswer);
}

#[tokio::test]
async fn usage_is_known_when_the_stream_is_cut() {
    let events = [vec![start()], text_block(0, "x")].concat();
    let mut answer = ask(DialectKind::Anthropic, &Scripted::stream([stream(&events)])).await.unwrap();
    let mut pieces = Vec::new();
    while answer.next(&mut pieces).await.unwrap() {}
    assert_eq!(answer.finish().unwrap_err().code, ErrorCode::StreamCut);
    assert_eq!(answer.usage_so_far().unwrap().tokens.input, 12);
}

#[tokio::test]
async fn usage_is_handed_out_when_it_is_new() {
    let [message_delta, message_stop] = stop("end_turn");
    let chunks = [vec![start()], text_block(0, "x"), vec![message_delta], vec![message_stop]];
    let mut server = Scripted::stream(chunks.map(|events| stream(&events)));
    server.then = Then::Slowly;
    let mut answer = ask(DialectKind::Anthropic, &server).await.unwrap();
    let mut outputs = Vec::new();
    let mut pieces = Vec::new();
    loop {
        let more = answer.next(&mut pieces).await.unwrap();
        outputs.push(answer.new_usage().map(|usage| usage.tokens.output));
        if !more {
            break;
        }
    }
    assert_eq!(outputs, vec![Some(1), None, Some(42), None]);
}

#[tokio::test]
async fn an_end_that_does_not_fit_what_came_is_refused() {
    let words = [vec![start()], text_block(0, "x"), stop("tool_use").to_vec()].concat();
    let (_, end) = run(DialectKind::Anthropic, Scripted::stream([stream(&words)])).await;
    assert_eq!(end.unwrap_err().code, ErrorCode::BadAnswer);
    for blank in ["", " \n"] {
        let nothing = [vec![start()], text_block(0, blank), stop("end_turn").to_vec()].concat();
        let (_, end) = run(DialectKind::Anthropic, Scripted::stream([stream(&nothing)])).await;
        assert_eq!(end.unwrap_err().code, ErrorCode::EmptyAnswer);
    }
    let refused = [vec![start()], stop("refusal").to_vec()].concat();
    let (_, end) = run(DialectKind::Anthropic, Scripted::stream([stream(&refused)])).await;
    assert_eq!(end.unwrap().finish, FinishReason::ContentFilter, "a refusal may be without words");
}
