//! Answers of Responses.

use bytes::Bytes;
use playhouse_llm::{DialectKind, Endpoint, Limits, StreamEvent, send};
use playhouse_protocol::error::ErrorCode;
use playhouse_protocol::message::FinishReason;
use playhouse_protocol::usage::{Quality, Tokens};
use serde_json::{Value, json};

use crate::support::{Scripted, arguments, ask, attempt, call, read, reasoning, run, text};

/// A stream of these events, named by their types and numbered.
pub(crate) fn stream(events: &[Value]) -> String {
    let mut stream = String::new();
    for (number, event) in events.iter().enumerate() {
        let mut event = event.clone();
        event["sequence_number"] = number.into();
        stream += &format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    }
    stream
}

fn response(kind: &str, extra: Value) -> Value {
    let status = kind.rsplit('.').next().unwrap();
    let mut response = json!({"id": "resp_1", "object": "response", "status": status, "model": "acme-1-2026", "output": [],
        "error": null, "incomplete_details": null, "usage": null});
    for (name, value) in extra.as_object().unwrap() {
        response[name] = value.clone();
    }
    json!({"type": kind, "response": response})
}

fn created() -> Vec<Value> {
    vec![response("response.created", json!({})), response("response.in_progress", json!({}))]
}

fn completed() -> Value {
    let usage = json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 80}, "output_tokens": 50,
        "output_tokens_details": {"reasoning_tokens": 30}, "total_tokens": 150});
    response("response.completed", json!({"usage": usage}))
}

fn added(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn delta(kind: &str, index: u64, delta: &str) -> Value {
    json!({"type": format!("response.{kind}.delta"), "item_id": "item", "output_index": index, "content_index": 0, "delta": delta})
}

fn thought(index: u64, section: u64, delta: &str) -> Value {
    json!({"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "output_index": index,
        "summary_index": section, "delta": delta})
}

fn message(index: u64, pieces: &[&str]) -> Vec<Value> {
    let item =
        |content: Value| json!({"id": "msg_1", "type": "message", "role": "assistant", "content": content});
    let part = |kind: &str, text: &str| {
        json!({"type": kind, "item_id": "msg_1", "output_index": index, "content_index": 0,
            "part": {"type": "output_text", "text": text, "annotations": []}})
    };
    let whole = pieces.concat();
    let mut events = vec![added(index, item(json!([]))), part("response.content_part.added", "")];
    events.extend(pieces.iter().map(|piece| delta("output_text", index, piece)));
    events.push(json!({"type": "response.output_text.done", "output_index": index, "text": whole}));
    events.push(part("response.content_part.done", &whole));
    events.push(done(index, item(json!([{"type": "output_text", "text": whole, "annotations": []}]))));
    events
}

fn function(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": format!("fc_{id}"), "type": "function_call", "status": "completed", "call_id": id, "name": name,
        "arguments": arguments})
}

fn function_call(index: u64, id: &str, name: &str, pieces: &[&str]) -> Vec<Value> {
    let whole = pieces.concat();
    let mut events = vec![added(index, function(id, name, ""))];
    events.extend(pieces.iter().map(|piece| delta("function_call_arguments", index, piece)));
    events.push(
        json!({"type": "response.function_call_arguments.done", "output_index": index, "arguments": whole}),
    );
    events.push(done(index, function(id, name, &whole)));
    events
}

/// Reasoning, text and two calls.
pub(crate) fn everything() -> String {
    let item = |encrypted: Value, summary: Value| json!({"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": encrypted});
    let mut events = created();
    events.extend([
        added(0, item(json!(null), json!([]))),
        json!({"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0,
            "part": {"type": "summary_text", "text": ""}}),
        thought(0, 0, "let me "),
        thought(0, 0, "see"),
        thought(0, 1, "again"),
        done(0, item(json!("Z2VoZWlt"), json!([{"type": "summary_text", "text": "let me see"}]))),
    ]);
    events.extend(message(1, &["h\u{e9}llo ", "\u{1f3ad}\n"]));
    events.extend(function_call(2, "call_1", "read", &["{\"filePath\":", "\"a.rs\"}"]));
    events.extend(function_call(3, "call_2", "list", &["{}"]));
    events.push(completed());
    stream(&events)
}

pub(crate) fn everything_decoded() -> Vec<StreamEvent> {
    vec![
        reasoning("let me see\n\nagain"),
        StreamEvent::ReasoningOpaque(json!({"reasoning_id": "rs_1", "encrypted_content": "Z2VoZWlt"})),
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

async fn decode(
    events: &[Value],
) -> (Vec<StreamEvent>, Result<playhouse_llm::Answer, playhouse_protocol::ErrorInfo>) {
    run(DialectKind::OpenaiResponses, Scripted::stream([stream(events)])).await
}

#[tokio::test]
async fn what_the_provider_left_out_of_the_request_is_told() {
    let mut events = created();
    events.extend(message(0, &["Hi."]));
    let mut end = completed();
    end["response"]["input_transformations"] =
        json!([{"type": "reasoning", "id": "rs_1", "action": "removed", "reason": "prefix_mismatch"}]);
    events.push(end);
    let (_, answer) = decode(&events).await;
    assert_eq!(answer.unwrap().removals.to_string(), "reasoning (prefix_mismatch) × 1");
}

#[tokio::test]
async fn reasoning_text_and_calls_are_decoded_in_one_batch() {
    let answer = ask(DialectKind::OpenaiResponses, &Scripted::stream([everything()])).await.unwrap();
    let (batches, end) = read(answer).await;
    assert_eq!(batches, vec![everything_decoded()]);
    let answer = end.unwrap();
    assert_eq!((answer.finish, answer.model.as_deref()), (FinishReason::ToolCalls, Some("acme-1-2026")));
    let usage = answer.usage.unwrap();
    let expected = Tokens { input: 20, cache_read: 80, output: 20, reasoning: 30, ..Tokens::default() };
    assert_eq!((usage.tokens, usage.quality), (expected, Quality::Reported));
}

#[tokio::test]
async fn a_host_of_a_region_is_a_way_of_service() {
    for (host, served) in
        [("eu.api.openai.com", vec!["eu"]), ("us.api.openai.com", vec!["us"]), ("api.openai.com", vec![])]
    {
        let endpoint = Endpoint::new("openai", DialectKind::OpenaiResponses, format!("https://{host}/v1"));
        let server = Scripted::stream([everything()]);
        let body = Bytes::from_static(b"{}");
        let answer = send(&server, &endpoint, "acme-1", attempt(), body, Limits::default()).await.unwrap();
        let (_, end) = read(answer).await;
        assert_eq!(end.unwrap().usage.unwrap().served, served, "{host}");
    }
}

#[tokio::test]
async fn every_reason_has_its_meaning() {
    let incomplete =
        |reason: &str| response("response.incomplete", json!({"incomplete_details": {"reason": reason}}));
    for (last, expected) in [
        (completed(), FinishReason::Stop),
        (incomplete("max_output_tokens"), FinishReason::Length),
        (incomplete("content_filter"), FinishReason::ContentFilter),
        (incomplete("something_new"), FinishReason::Other),
        (response("response.incomplete", json!({})), FinishReason::Other),
    ] {
        let events = [created(), message(0, &["x"]), vec![last]].concat();
        let (pieces, end) = decode(&events).await;
        assert_eq!(pieces, vec![text("x"), StreamEvent::PartEnd]);
        assert_eq!(end.unwrap().finish, expected);
    }
    // The limit may come in the middle of an item.
    let events =
        [created(), message(0, &["x"])[..3].to_vec(), vec![incomplete("max_output_tokens")]].concat();
    let (pieces, end) = decode(&events).await;
    assert_eq!(pieces, vec![text("x"), StreamEvent::PartEnd]);
    let answer = end.unwrap();
    assert_eq!((answer.finish, answer.usage), (FinishReason::Length, None));
}

#[tokio::test]
async fn a_refusal_is_told_from_an_answer() {
    let item = json!({"type": "message", "content": [{"type": "refusal", "refusal": "no"}]});
    for pieces in [vec![delta("refusal", 0, "no")], vec![]] {
        let events = [
            created(),
            vec![added(0, json!({"type": "message"}))],
            pieces,
            vec![done(0, item.clone()), completed()],
        ];
        let (pieces, end) = decode(&events.concat()).await;
        assert_eq!(pieces, vec![text("no"), StreamEvent::PartEnd]);
        assert_eq!(end.unwrap().finish, FinishReason::ContentFilter);
    }
}

#[tokio::test]
async fn what_was_not_streamed_comes_with_the_end_of_its_item() {
    let message = json!({"type": "message", "content": [{"type": "output_text", "text": "x"}]});
    let thoughts = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "e",
        "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]});
    let events = vec![
        added(0, json!({"type": "reasoning"})),
        done(0, thoughts),
        added(1, json!({"type": "message"})),
        done(1, message),
        added(2, function("c", "read", "")),
        done(2, function("c", "read", "{\"a\":1}")),
        added(3, json!({"type": "web_search_call"})),
        done(3, json!({"type": "web_search_call"})),
        completed(),
    ];
    let (pieces, end) = decode(&events).await;
    let expected = vec![
        reasoning("a\n\nb"),
        StreamEvent::ReasoningOpaque(json!({"reasoning_id": "rs_1", "encrypted_content": "e"})),
        StreamEvent::PartEnd,
        text("x"),
        StreamEvent::PartEnd,
        call("c", "read"),
        arguments(0, "{\"a\":1}"),
        StreamEvent::PartEnd,
    ];
    assert_eq!(pieces, expected);
    assert_eq!(end.unwrap().finish, FinishReason::ToolCalls);
}

#[tokio::test]
async fn names_of_events_may_be_missing() {
    let nameless: String =
        everything().split_inclusive('\n').filter(|line| !line.starts_with("event:")).collect();
    let (pieces, end) =
        run(DialectKind::OpenaiResponses, Scripted::stream([nameless + "data: [DONE]\n\n"])).await;
    assert_eq!(pieces, everything_decoded());
    assert_eq!(end.unwrap().finish, FinishReason::ToolCalls);
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_says_where() {
    let open = || added(0, json!({"type": "message"}));
    let nameless = || json!({"type": "function_call", "call_id": "c"});
    let cases: Vec<(Vec<Value>, &str)> = vec![
        (
            vec![open(), delta("function_call_arguments", 0, "x")],
            "a piece of arguments does not fit output item 0",
        ),
        (vec![added(0, nameless()), done(0, nameless())], "the call in output item 0 has no name"),
        (vec![added(0, nameless()), completed()], "a call has no name"),
        (vec![json!({"type": "response.output_text.delta", "delta": 5})], "is not what the dialect says"),
        (vec![json!({"type": "response.output_item.added"})], "is not what the dialect says"),
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
        (json!({"code": "server_error", "message": "oops"}), ErrorCode::ProviderUnavailable),
        (json!({"code": "rate_limit_exceeded", "message": "slow down"}), ErrorCode::RateLimited),
        (json!({"code": "context_length_exceeded", "message": "too much"}), ErrorCode::ContextOverflow),
        (json!({"code": "insufficient_quota", "message": "pay"}), ErrorCode::QuotaExceeded),
        (json!({"code": "invalid_prompt", "message": "what"}), ErrorCode::BadRequest),
        (json!(null), ErrorCode::BadAnswer),
    ] {
        let so_far = || [created(), message(0, &["so far"])].concat();
        let failed = response(
            "response.failed",
            json!({"error": error, "usage": {"input_tokens": 3, "output_tokens": 1}}),
        );
        let mut event = json!({"type": "error", "code": null, "message": null, "param": null});
        for (name, value) in error.as_object().into_iter().flatten() {
            event[name] = value.clone();
        }
        for last in [failed, event, json!({"type": "error", "error": error})] {
            let events = [so_far(), vec![last.clone()]].concat();
            let (pieces, end) = decode(&events).await;
            assert_eq!(pieces, vec![text("so far"), StreamEvent::PartEnd]);
            let reported = end.unwrap_err();
            assert_eq!(reported.code, expected, "{last}");
            let message = error["message"].as_str().unwrap_or_default();
            assert!(reported.message.contains(message) && !reported.message.contains("(error"), "{reported}");
        }
    }
}

#[tokio::test]
async fn an_end_that_does_not_fit_what_came_is_refused() {
    let (_, end) = decode(&[created(), vec![completed()]].concat()).await;
    assert_eq!(end.unwrap_err().code, ErrorCode::EmptyAnswer);
    let (_, end) = decode(&[created(), message(0, &["x"])].concat()).await;
    let error = end.unwrap_err();
    assert_eq!(error.code, ErrorCode::StreamCut);
    assert!(error.message.contains("response.completed"), "{error}");
}
