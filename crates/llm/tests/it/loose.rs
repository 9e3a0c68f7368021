//! Answers of servers that are compatible in their own way: each can be understood, and is used.
//!
//! A row is the stream, what it says, how it ends, and what had to be repaired (usage aside).

use std::time::Duration;

use playhouse_llm::{DialectKind, Limits, Repair, StreamEvent};
use playhouse_protocol::error::ErrorCode;
use playhouse_protocol::message::FinishReason;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{
    ALL, PATIENCE, Scripted, Then, arguments, ask_within, call, everything, everything_decoded, read,
    reasoning, run, text,
};
use crate::{anthropic, gemini, openai_chat, openai_responses};

mod blocks;
mod items;

const END: StreamEvent = StreamEvent::PartEnd;

struct Row {
    what: &'static str,
    stream: String,
    pieces: Vec<StreamEvent>,
    finish: FinishReason,
    repairs: Vec<Repair>,
}

fn row(
    what: &'static str,
    stream: String,
    pieces: Vec<StreamEvent>,
    finish: FinishReason,
    repairs: &[Repair],
) -> Row {
    Row { what, stream, pieces, finish, repairs: repairs.to_vec() }
}

async fn check(dialect: DialectKind, rows: Vec<Row>) {
    for Row { what, stream, pieces, finish, repairs } in rows {
        // At once and byte by byte.
        let bytes: Vec<Vec<u8>> = stream.bytes().map(|byte| vec![byte]).collect();
        for chunks in [vec![stream.clone().into_bytes()], bytes] {
            let (came, end) = run(dialect, Scripted::stream(chunks)).await;
            assert_eq!(came, pieces, "{dialect:?}: {what}");
            let answer = end.unwrap_or_else(|error| panic!("{dialect:?}: {what}: {error}"));
            assert_eq!(answer.finish, finish, "{dialect:?}: {what}");
            let usage = [Repair::NoUsage, Repair::UnreconciledUsage];
            let made = answer.repairs.iter().map(|(repair, _)| repair);
            let made: Vec<Repair> = made.filter(|repair| !usage.contains(repair)).collect();
            assert_eq!(made, repairs, "{dialect:?}: {what}");
        }
    }
}

/// A stream of chunks of Chat Completions, without an end.
fn chunks(deltas: &[Value]) -> String {
    deltas.iter().map(|delta| format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}))).collect()
}

const DONE: &str = "data: [DONE]\n\n";

fn piece(index: impl Into<Value>, id: impl Into<Value>, name: &str, arguments: impl Into<Value>) -> Value {
    let function = json!({"name": name, "arguments": arguments.into()});
    json!({"tool_calls": [{"index": index.into(), "id": id.into(), "function": function}]})
}

fn one_call(id: &str, name: &str, text: &str) -> Vec<StreamEvent> {
    vec![call(id, name), arguments(0, text), END]
}

fn two_calls(ids: [&str; 2], names: [&str; 2], texts: [&str; 2]) -> Vec<StreamEvent> {
    let [first, second] = [0, 1].map(|at| vec![call(ids[at], names[at]), arguments(at, texts[at]), END]);
    [first, second].concat()
}

#[tokio::test]
async fn events_that_say_nothing_are_passed_over() {
    for dialect in ALL {
        for nothing in ["data:\n\n", "data: \n\n", "data: : PROCESSING\n\n", "event: x\ndata: :\n\n"] {
            let stream = everything(dialect);
            let between = stream.replace("\n\n", &format!("\n\n{nothing}"));
            for stream in [format!("{nothing}{stream}"), between] {
                let (pieces, end) = run(dialect, Scripted::stream([stream])).await;
                assert_eq!(pieces, everything_decoded(dialect), "{dialect:?}: {nothing:?}");
                let answer = end.unwrap();
                assert_eq!(answer.finish, FinishReason::ToolCalls);
                assert!(answer.repairs.is_empty(), "{:?}", answer.repairs);
            }
        }
        // That there was an error is something.
        let (_, end) = run(dialect, Scripted::stream(["event: error\ndata:\n\n"])).await;
        assert_eq!(end.unwrap_err().code, ErrorCode::BadAnswer, "{dialect:?}");
    }
}

/// Whether it is enough is for the session to say.
#[tokio::test]
async fn an_answer_of_reasoning_only_is_whole() {
    let (chat, thought) = (
        json!({"choices": [{"delta": {"reasoning": "hm"}, "finish_reason": "stop"}]}),
        json!([{"text": "hm", "thought": true}]),
    );
    let summary = json!([{"type": "summary_text", "text": "hm"}]);
    let [reason, marker] = anthropic::stop("end_turn");
    for (dialect, stream) in [
        (DialectKind::OpenaiChat, openai_chat::stream(&[chat])),
        (
            DialectKind::Gemini,
            gemini::stream(&[
                json!({"candidates": [{"content": {"parts": thought}, "finishReason": "STOP"}]}),
            ]),
        ),
        (
            DialectKind::OpenaiResponses,
            openai_responses::stream(&[
                event("output_item.done", json!({"item": {"type": "reasoning", "summary": summary}})),
                event("completed", json!({"response": {}})),
            ]),
        ),
        (
            DialectKind::Anthropic,
            anthropic::stream(&[
                anthropic::start(),
                anthropic::begin(0, json!({"type": "thinking", "thinking": "hm"})),
                anthropic::end(0),
                reason,
                marker,
            ]),
        ),
    ] {
        check(dialect, vec![row("reasoning", stream, vec![reasoning("hm"), END], FinishReason::Stop, &[])])
            .await;
    }
}

/// An answer of these deltas, as JSON writes them, without the dialect's end.
fn without_an_end(dialect: DialectKind, deltas: &[&str]) -> String {
    let mut stream = String::new();
    if dialect == DialectKind::Anthropic {
        stream += &anthropic::stream(&[anthropic::begin(0, json!({"type": "text", "text": ""}))]);
    }
    if dialect == DialectKind::OpenaiResponses {
        let item = json!({"type": "message"});
        stream += &openai_responses::stream(&[json!({"type": "response.output_item.added", "item": item})]);
    }
    for delta in deltas {
        stream += &match dialect {
            DialectKind::Anthropic => format!(
                "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{delta}\"}}}}\n\n"
            ),
            DialectKind::OpenaiChat => {
                format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{delta}\"}}}}]}}\n\n")
            }
            DialectKind::OpenaiResponses => format!(
                "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"delta\":\"{delta}\"}}\n\n"
            ),
            DialectKind::Gemini => format!(
                "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{delta}\"}}]}}}}]}}\n\n"
            ),
        };
    }
    stream
}

#[tokio::test]
async fn an_end_marker_ends_an_answer_without_a_reason() {
    for dialect in ALL {
        let stream = without_an_end(dialect, &["so ", "it is"]);
        let (_, end) = run(dialect, Scripted::stream([stream.clone()])).await;
        assert_eq!(end.unwrap_err().code, ErrorCode::StreamCut, "{dialect:?}");
        let said = vec![text("so it is"), END];
        let whole = row("[DONE]", stream + DONE, said, FinishReason::Stop, &[Repair::HalfAnEnd]);
        check(dialect, vec![whole]).await;
    }
}

#[tokio::test]
async fn a_character_in_two_deltas_is_one() {
    for dialect in ALL {
        let stream = without_an_end(dialect, &[r"a\ud83c", r"\udfad b", r"\n", "c"]) + DONE;
        let said = vec![text("a\u{1f3ad} b\nc"), END];
        check(dialect, vec![row("halves", stream, said, FinishReason::Stop, &[Repair::HalfAnEnd])]).await;
    }
}

#[tokio::test]
async fn calls_of_chat_completions_are_understood_however_their_pieces_come() {
    let (a, b) = (r#"{"filePath":"a"}"#, r#"{"filePath":"b"}"#);
    let twice = ["read", "read"];
    type Case = (&'static str, Vec<Value>, Vec<StreamEvent>, &'static [Repair]);
    let cases: Vec<Case> = vec![
        (
            "whole calls under one index and one id",
            vec![piece(0, "c", "read", a), piece(0, "c", "read", b)],
            two_calls(["c", "c"], twice, [a, b]),
            &[Repair::RepeatedCallId, Repair::CallIndex],
        ),
        (
            "whole calls under one index without ids",
            vec![piece(0, Value::Null, "read", a), piece(0, Value::Null, "read", b)],
            two_calls(["", ""], twice, [a, b]),
            &[Repair::CallIndex],
        ),
        (
            "calls in pieces under one index without ids",
            vec![
                piece(0, Value::Null, "read", ""),
                piece(0, Value::Null, "", a),
                piece(0, Value::Null, "list", ""),
                piece(0, Value::Null, "", "{}"),
            ],
            two_calls(["", ""], ["read", "list"], [a, "{}"]),
            &[Repair::CallIndex],
        ),
        (
            "the same call twice",
            vec![piece(0, "c", "read", a), piece(0, "c", "read", a)],
            one_call("c", "read", a),
            &[Repair::OutOfOrder],
        ),
        ("an object", vec![piece(0, "c", "read", json!({"filePath": "a"}))], one_call("c", "read", a), &[]),
        (
            "a name in pieces",
            vec![piece(0, "c", "re", ""), piece(0, "", "ad", ""), piece(0, "", "", a)],
            one_call("c", "read", a),
            &[],
        ),
        (
            "a name that grows, and an id that comes later",
            vec![piece(0, "", "re", ""), piece(0, "c", "read", ""), piece(0, "c", "read", a)],
            one_call("c", "read", a),
            &[],
        ),
        (
            "a name that is repeated within arguments, under new ids",
            vec![piece(0, "c", "read", "{\"filePath\":"), piece(0, "d", "read", "\"a\"}")],
            one_call("c", "read", a),
            &[],
        ),
        (
            "an index that is a text",
            vec![piece("0", "c", "read", a), piece("1", "d", "read", b)],
            two_calls(["c", "d"], twice, [a, b]),
            &[Repair::CallIndex],
        ),
        (
            "an empty object before the arguments",
            vec![piece(0, "c", "read", "{}"), piece(0, "", "", a)],
            one_call("c", "read", a),
            &[],
        ),
        (
            "the arguments again at the end",
            vec![piece(0, "c", "read", "{\"filePath\":"), piece(0, "", "", "\"a\"}"), piece(0, "", "", a)],
            one_call("c", "read", a),
            &[Repair::OutOfOrder],
        ),
        (
            "calls without arguments",
            vec![piece(0, "c", "read", ""), piece(1, "d", "list", Value::Null)],
            vec![call("c", "read"), END, call("d", "list"), END],
            &[],
        ),
        (
            "mixed calls",
            vec![
                piece(0, "c", "read", "{"),
                piece(1, "d", "list", "{"),
                piece(0, "", "", "}"),
                piece(1, "", "", "}"),
            ],
            vec![
                call("c", "read"),
                arguments(0, "{"),
                END,
                call("d", "list"),
                arguments(1, "{"),
                arguments(0, "}"),
                arguments(1, "}"),
                END,
            ],
            &[Repair::OutOfOrder],
        ),
    ];
    let reason = format!("data: {}\n\n", json!({"choices": [{"finish_reason": "tool_calls"}]}));
    for (what, deltas, pieces, repairs) in cases {
        let stream = chunks(&deltas);
        let mut with_done = repairs.to_vec();
        with_done.push(Repair::HalfAnEnd);
        with_done.sort();
        let rows = vec![
            row(what, stream.clone() + &reason, pieces.clone(), FinishReason::ToolCalls, repairs),
            row(what, stream + DONE, pieces, FinishReason::ToolCalls, &with_done),
        ];
        check(DialectKind::OpenaiChat, rows).await;
    }
    // Half a call is none, whatever the server says.
    let half = chunks(&[piece(0, "c", "read", "{\"filePath\":")]) + DONE;
    let (_, end) = run(DialectKind::OpenaiChat, Scripted::stream([half])).await;
    assert_eq!(end.unwrap_err().code, ErrorCode::StreamCut);
}

#[tokio::test]
async fn chunks_of_chat_completions_need_not_have_the_usual_form() {
    let reason = |delta: Value| json!({"choices": [{"index": "0", "delta": delta, "finish_reason": "stop"}]});
    let message = json!({"role": "assistant", "content": "all of it", "reasoning_content": "hm"});
    check(
        DialectKind::OpenaiChat,
        vec![
            row(
                "a reason with each chunk",
                openai_chat::stream(&[reason(json!({"content": "a"})), reason(json!({"content": "b"}))]),
                vec![text("ab"), END],
                FinishReason::Stop,
                &[Repair::OutOfOrder],
            ),
            row(
                "text behind the reason, and fields of other forms",
                openai_chat::stream(&[
                    reason(json!({"reasoning": {"effort": 1}, "reasoning_details": "none"})),
                    json!({"model": 5, "choices": [{"delta": {"content": "late"}, "logprobs": []}]}),
                ]),
                vec![text("late"), END],
                FinishReason::Stop,
                &[Repair::OutOfOrder],
            ),
            row(
                "a message instead of deltas",
                openai_chat::stream(&[json!({"choices": [{"message": message, "finish_reason": "stop"}]})]),
                vec![reasoning("hm"), END, text("all of it"), END],
                FinishReason::Stop,
                &[],
            ),
            row(
                "the whole message once more at the end",
                openai_chat::stream(&[
                    json!({"choices": [{"delta": {"content": "a"}}]}),
                    json!({"choices": [{"delta": {}, "message": {"content": "a"}, "finish_reason": "stop"}]}),
                ]),
                vec![text("a"), END],
                FinishReason::Stop,
                &[],
            ),
        ],
    )
    .await;
}

fn event(kind: &str, more: Value) -> Value {
    let mut event = json!({"type": format!("response.{kind}")});
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

/// Each is looked for among all, which must not take for ever.
#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn an_answer_of_countless_calls_is_refused() {
    let calls: Vec<Value> = (0..20_000).map(|index| piece(index, "", "read", "")).collect();
    let added = |index: u64| {
        let item = json!({"type": "message"});
        json!({"type": "response.output_item.added", "output_index": index, "item": item})
    };
    let tool = |index: u64| {
        anthropic::begin(index, json!({"type": "tool_use", "name": "read", "id": index.to_string()}))
    };
    for (dialect, stream) in [
        (DialectKind::OpenaiChat, chunks(&calls)),
        (DialectKind::OpenaiResponses, openai_responses::stream(&(0..20_000).map(added).collect::<Vec<_>>())),
        (DialectKind::Anthropic, anthropic::stream(&(0..20_000).map(tool).collect::<Vec<_>>())),
    ] {
        let (_, end) = run(dialect, Scripted::stream([stream])).await;
        let error = end.unwrap_err();
        assert!(error.message.contains("more than 10000 parts"), "{dialect:?}: {error}");
    }
}

/// A reason that more of the answer follows ends nothing: what comes after a pause is not lost, and a cut is one.
#[tokio::test]
async fn a_reason_that_was_none_does_not_end_an_answer() {
    let of = |dialect, word: &str| match dialect {
        DialectKind::Gemini => gemini::stream(&[
            json!({"candidates": [{"content": {"parts": [{"text": word}]}, "finishReason": "STOP"}]}),
        ]),
        _ => format!(
            "data: {}\n\n",
            json!({"choices": [{"delta": {"content": word}, "finish_reason": "stop"}]})
        ),
    };
    for dialect in [DialectKind::OpenaiChat, DialectKind::Gemini] {
        let mut server = Scripted::stream([of(dialect, "a"), of(dialect, "b")]);
        server.then = Then::Hang;
        let limits = Limits {
            silence: Duration::from_millis(50),
            trailer: Duration::from_millis(20),
            ..Limits::default()
        };
        let answer = ask_within(dialect, &server, limits).await.unwrap();
        let (_, end) = timeout(PATIENCE, read(answer)).await.expect("it ends");
        assert_eq!(end.unwrap_err().code, ErrorCode::StreamCut, "{dialect:?}");
    }
}

#[tokio::test]
async fn candidates_of_gemini_need_not_have_the_usual_form() {
    let chunk = |parts: Value, reason: Value| json!({"modelVersion": 5, "candidates": [{"index": "0", "content": {"parts": parts}, "finishReason": reason}]});
    let function = |args: Value| json!([{"functionCall": {"id": 7, "name": "read", "args": args}}]);
    let rows = vec![
        row(
            "arguments as a text",
            gemini::stream(&[chunk(function(json!("{\"a\":1}")), json!("STOP"))]),
            one_call("", "read", r#"{"a":1}"#),
            FinishReason::ToolCalls,
            &[],
        ),
        row(
            "a reason with each chunk",
            gemini::stream(&[
                chunk(json!([{"text": "a", "thought": "no"}]), json!("STOP")),
                chunk(json!([{"text": "b"}]), json!("STOP")),
            ]),
            vec![text("ab"), END],
            FinishReason::Stop,
            &[Repair::OutOfOrder],
        ),
        row(
            "a call behind the reason",
            gemini::stream(&[
                chunk(json!([{"text": "a"}]), json!("STOP")),
                chunk(function(json!({"a": 1})), Value::Null),
            ]),
            vec![text("a"), END, call("", "read"), arguments(0, r#"{"a":1}"#), END],
            FinishReason::ToolCalls,
            &[Repair::OutOfOrder],
        ),
    ];
    check(DialectKind::Gemini, rows).await;
}
