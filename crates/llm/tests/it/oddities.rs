//! What servers do that no dialect says, and what becomes of it in every dialect.

use std::time::{Duration, Instant};

use playhouse_llm::{DialectKind, Endpoint, Limits, Repair, Repairs, StreamEvent, UsageConvention, send};
use playhouse_protocol::error::ErrorCode;
use playhouse_protocol::message::FinishReason;
use playhouse_protocol::usage::{Quality, Tokens};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{
    ALL, MODEL, PATIENCE, Scripted, Then, arguments, ask_within, attempt, call, endpoint, everything,
    everything_decoded, read, run, text,
};
use crate::{anthropic, gemini, openai_chat, openai_responses};

/// An answer of one text.
fn saying(dialect: DialectKind, words: &str) -> String {
    match dialect {
        DialectKind::Anthropic => {
            let [reason, end] = anthropic::stop("end_turn");
            anthropic::stream(&[
                anthropic::start(),
                anthropic::begin(0, json!({"type": "text", "text": ""})),
                anthropic::delta(0, json!({"type": "text_delta", "text": words})),
                anthropic::end(0),
                reason,
                end,
            ])
        }
        DialectKind::OpenaiChat => openai_chat::stream(&[
            json!({"choices": [{"delta": {"content": words}}]}),
            json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
        ]),
        DialectKind::OpenaiResponses => openai_responses::stream(&[
            json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}}),
            json!({"type": "response.output_text.delta", "output_index": 0, "delta": words}),
            json!({"type": "response.output_item.done", "output_index": 0, "item": {"type": "message"}}),
            json!({"type": "response.completed", "response": {}}),
        ]),
        DialectKind::Gemini => gemini::stream(&[
            json!({"candidates": [{"content": {"parts": [{"text": words}]}, "finishReason": "STOP"}]}),
        ]),
    }
}

/// An answer of calls of `read`, by id and arguments.
fn calling(dialect: DialectKind, calls: &[(&str, &str)]) -> String {
    match dialect {
        DialectKind::Anthropic => {
            let mut events = vec![anthropic::start()];
            for (index, (id, arguments)) in (0..).zip(calls) {
                events.push(anthropic::begin(
                    index,
                    json!({"type": "tool_use", "id": id, "name": "read", "input": {}}),
                ));
                events.push(anthropic::delta(
                    index,
                    json!({"type": "input_json_delta", "partial_json": arguments}),
                ));
                events.push(anthropic::end(index));
            }
            events.extend(anthropic::stop("tool_use"));
            anthropic::stream(&events)
        }
        DialectKind::OpenaiChat => {
            let call = |(index, (id, arguments)): (usize, &(&str, &str))| {
                let function = json!({"name": "read", "arguments": arguments});
                json!({"choices": [{"delta": {"tool_calls": [{"index": index, "id": id, "function": function}]}}]})
            };
            let mut events: Vec<Value> = calls.iter().enumerate().map(call).collect();
            events.push(json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}));
            openai_chat::stream(&events)
        }
        DialectKind::OpenaiResponses => {
            let mut events = Vec::new();
            for (index, (id, arguments)) in calls.iter().enumerate() {
                let item =
                    json!({"type": "function_call", "call_id": id, "name": "read", "arguments": arguments});
                events
                    .push(json!({"type": "response.output_item.added", "output_index": index, "item": item}));
                events
                    .push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
            }
            events.push(json!({"type": "response.completed", "response": {}}));
            openai_responses::stream(&events)
        }
        DialectKind::Gemini => {
            let part = |(id, arguments): &(&str, &str)| {
                let args: Value = serde_json::from_str(arguments).unwrap();
                json!({"functionCall": {"id": id, "name": "read", "args": args}})
            };
            let parts: Vec<Value> = calls.iter().map(part).collect();
            gemini::stream(&[json!({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]})])
        }
    }
}

fn made(repairs: &Repairs) -> Vec<(Repair, u32)> {
    repairs.iter().collect()
}

#[tokio::test]
async fn a_sound_answer_needs_no_repair() {
    for dialect in ALL {
        let (_, end) = run(dialect, Scripted::stream([everything(dialect)])).await;
        let answer = end.unwrap();
        assert!(answer.repairs.is_empty(), "{dialect:?}: {:?}", answer.repairs);
    }
}

#[tokio::test]
async fn calls_without_a_fitting_index_are_told_apart() {
    for (indexes, times) in [([json!(0), json!(0)], 1), ([Value::Null, Value::Null], 2)] {
        let call = |(id, index): (&str, &Value)| {
            let function = json!({"name": "read", "arguments": "{}"});
            json!({"choices": [{"delta": {"tool_calls": [{"index": index, "id": id, "function": function}]}}]})
        };
        let mut events: Vec<Value> = ["a", "b"].into_iter().zip(&indexes).map(call).collect();
        events.push(json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}));
        let stream = openai_chat::stream(&events);
        let (pieces, end) = run(DialectKind::OpenaiChat, Scripted::stream([stream])).await;
        assert_eq!(pieces.iter().filter(|piece| matches!(piece, StreamEvent::CallStart { .. })).count(), 2);
        let answer = end.unwrap();
        assert_eq!(answer.finish, FinishReason::ToolCalls);
        let repairs = made(&answer.repairs);
        let expected = [(Repair::CallIndex, times), (Repair::StoppedWithCalls, 1), (Repair::NoUsage, 1)];
        assert_eq!(repairs, expected);
    }
}

#[tokio::test]
async fn two_calls_with_one_id_are_two_calls() {
    for dialect in ALL {
        let stream = calling(dialect, &[("same", r#"{"a":1}"#), ("same", r#"{"a":2}"#)]);
        let (pieces, end) = run(dialect, Scripted::stream([stream])).await;
        let expected = vec![
            call("same", "read"),
            arguments(0, r#"{"a":1}"#),
            StreamEvent::PartEnd,
            call("same", "read"),
            arguments(1, r#"{"a":2}"#),
            StreamEvent::PartEnd,
        ];
        assert_eq!(pieces, expected, "{dialect:?}");
        let answer = end.unwrap();
        assert_eq!(answer.finish, FinishReason::ToolCalls);
        assert_eq!(made(&answer.repairs)[0], (Repair::RepeatedCallId, 1), "{dialect:?}");
    }
}

#[tokio::test]
async fn arguments_that_are_no_object_are_passed_on_as_they_came() {
    for dialect in ALL {
        for odd in ["[1,2]", "\"text\"", "7"] {
            let (pieces, end) = run(dialect, Scripted::stream([calling(dialect, &[("c", odd)])])).await;
            assert_eq!(
                pieces,
                vec![call("c", "read"), arguments(0, odd), StreamEvent::PartEnd],
                "{dialect:?}"
            );
            assert_eq!(end.unwrap().finish, FinishReason::ToolCalls);
        }
    }
}

#[tokio::test]
async fn an_answer_without_usage_has_none() {
    for dialect in [DialectKind::OpenaiChat, DialectKind::OpenaiResponses, DialectKind::Gemini] {
        let (pieces, end) = run(dialect, Scripted::stream([saying(dialect, "x")])).await;
        assert_eq!(pieces, vec![text("x"), StreamEvent::PartEnd]);
        let answer = end.unwrap();
        assert_eq!((answer.finish, &answer.usage), (FinishReason::Stop, &None), "{dialect:?}");
        assert_eq!(made(&answer.repairs), [(Repair::NoUsage, 1)], "{dialect:?}");
    }
    let early = [
        json!({"candidates": [{"content": {"parts": [{"text": "x"}]}}], "usageMetadata": {"promptTokenCount": 7}}),
        json!({"candidates": [{"finishReason": "STOP"}]}),
    ];
    let (_, end) = run(DialectKind::Gemini, Scripted::stream([gemini::stream(&early)])).await;
    assert_eq!(end.unwrap().usage, None, "what was counted before the end is not all");
    let without = anthropic::stream(&[
        anthropic::start(),
        anthropic::begin(0, json!({"type": "text", "text": "x"})),
        anthropic::end(0),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        json!({"type": "message_stop"}),
    ]);
    let (_, end) = run(DialectKind::Anthropic, Scripted::stream([without])).await;
    assert_eq!(end.unwrap().usage, None);
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn a_line_of_eight_megabytes_is_read_whole_and_in_small_pieces() {
    let words = "h\u{e9}llo w\u{f6}rld ".repeat((8 << 20) / 14);
    for dialect in ALL {
        let stream = saying(dialect, &words).into_bytes();
        for size in [stream.len(), 16 << 10] {
            let chunks: Vec<Vec<u8>> = stream.chunks(size).map(<[u8]>::to_vec).collect();
            let (pieces, end) = run(dialect, Scripted::stream(chunks)).await;
            assert!(pieces == vec![text(&words), StreamEvent::PartEnd], "{dialect:?} in pieces of {size}");
            assert_eq!(end.unwrap().finish, FinishReason::Stop);
        }
    }
}

/// One `data:` field over several lines, where JSON allows a line to end.
#[tokio::test]
async fn data_may_be_on_several_lines() {
    for dialect in ALL {
        let stream = everything(dialect).replace("data: {", "data: {\ndata: ");
        let (pieces, end) = run(dialect, Scripted::stream([stream])).await;
        assert_eq!(pieces, everything_decoded(dialect), "{dialect:?}");
        assert_eq!(end.unwrap().finish, FinishReason::ToolCalls);
    }
}

/// The last word is there, and neither figures nor a marker nor the end of the body come.
#[tokio::test]
async fn an_answer_that_is_whole_does_not_wait_long_for_what_may_follow() {
    for (dialect, marker) in [(DialectKind::OpenaiChat, "data: [DONE]\n\n"), (DialectKind::Gemini, "")] {
        let mut server = Scripted::stream([saying(dialect, "x").strip_suffix(marker).unwrap().to_owned()]);
        server.then = Then::Hang;
        let limits = Limits { trailer: Duration::from_millis(50), ..Limits::default() };
        let begin = Instant::now();
        let answer = ask_within(dialect, &server, limits).await.unwrap();
        let (batches, end) = timeout(PATIENCE, read(answer)).await.expect("it is not waited for");
        assert_eq!(batches.concat(), vec![text("x"), StreamEvent::PartEnd]);
        assert_eq!(end.unwrap().finish, FinishReason::Stop);
        assert!(begin.elapsed() >= limits.trailer);
    }
}

#[tokio::test]
async fn a_server_that_gives_up_says_so_in_its_reason() {
    for reason in ["error", "abort", "insufficient_system_resource"] {
        let stream = openai_chat::stream(&[
            json!({"choices": [{"delta": {"content": "half an ans"}, "finish_reason": reason}]}),
        ]);
        let (_, end) = run(DialectKind::OpenaiChat, Scripted::stream([stream])).await;
        let error = end.unwrap_err();
        assert_eq!(error.code, ErrorCode::ProviderUnavailable);
        assert!(error.message.contains(reason), "{error}");
    }
}

/// The total tells the reading, whatever the provider's convention is.
#[tokio::test]
async fn figures_are_read_as_their_total_says() {
    let figures = json!({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 180,
        "prompt_cache_hit_tokens": 80, "prompt_cache_miss_tokens": 20,
        "completion_tokens_details": {"reasoning_tokens": 30}});
    let stream = openai_chat::stream(&[
        json!({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": figures}),
    ]);
    let server = Scripted::stream([stream]);
    let tokens = Tokens { input: 20, cache_read: 80, output: 50, reasoning: 30, ..Tokens::default() };
    for provider in ["acme", "xai", "deepseek"] {
        let endpoint = Endpoint {
            usage: UsageConvention::of(provider, DialectKind::OpenaiChat),
            ..endpoint(DialectKind::OpenaiChat)
        };
        let sent = send(&server, &endpoint, MODEL, attempt(), bytes::Bytes::new(), Limits::default());
        let (_, end) = read(sent.await.unwrap()).await;
        let answer = end.unwrap();
        assert_eq!(made(&answer.repairs), [], "{provider}");
        let usage = answer.usage.unwrap();
        assert_eq!((usage.tokens, usage.quality), (tokens, Quality::Reported), "{provider}");
        assert_eq!(usage.raw, Some(figures.clone()), "both figures are kept");
    }
}
