//! Blocks of Anthropic Messages without their order.

use super::*;

#[tokio::test]
async fn blocks_of_anthropic_are_understood_without_their_order() {
    use anthropic::{begin, delta, end, start, stop};
    let saying = |index: u64, words: &str| delta(index, json!({"type": "text_delta", "text": words}));
    let thinking =
        |index: u64, words: &str| delta(index, json!({"type": "thinking_delta", "thinking": words}));
    let more =
        |index: u64, json: Value| delta(index, json!({"type": "input_json_delta", "partial_json": json}));
    let words = |index: u64| begin(index, json!({"type": "text", "text": ""}));
    let tool = |index: u64, id: &str, input: Value| {
        begin(index, json!({"type": "tool_use", "id": id, "name": "read", "input": input}))
    };
    let said =
        || vec![reasoning("hm"), END, text("x"), END, call("c", "read"), arguments(0, r#"{"a":1}"#), END];
    let of = |events: &[Value]| anthropic::stream(events);
    let pieces = [
        start(),
        begin(0, json!({"type": "thinking", "thinking": ""})),
        thinking(0, "hm"),
        words(1),
        saying(1, "x"),
        tool(2, "c", json!({})),
        more(2, json!("{\"a\":")),
        more(2, json!("1}")),
    ];
    let with = |rest: &[Value]| of(&[&pieces, rest].concat());
    let [reason, marker] = stop("tool_use");
    let unnumbered: Vec<Value> = [&pieces[..], &[reason.clone(), marker.clone()]]
        .concat()
        .into_iter()
        .map(|mut event| {
            event.as_object_mut().unwrap().remove("index");
            event
        })
        .collect();
    let rows = vec![
        row(
            "no ends of blocks",
            with(&[reason.clone(), marker.clone()]),
            said(),
            FinishReason::ToolCalls,
            &[Repair::OutOfOrder],
        ),
        row(
            "no indexes and no ends",
            of(&unnumbered),
            said(),
            FinishReason::ToolCalls,
            &[Repair::OutOfOrder],
        ),
        row(
            "no message_stop",
            with(&[end(2), reason.clone()]),
            said(),
            FinishReason::ToolCalls,
            &[Repair::HalfAnEnd, Repair::OutOfOrder],
        ),
        row(
            "no reason",
            with(&[end(2), marker.clone()]),
            said(),
            FinishReason::ToolCalls,
            &[Repair::HalfAnEnd, Repair::OutOfOrder],
        ),
        row(
            "the marker of another dialect",
            with(&[end(2)]) + DONE,
            said(),
            FinishReason::ToolCalls,
            &[Repair::HalfAnEnd, Repair::OutOfOrder],
        ),
        row(
            "no message_start, and all blocks under one index",
            of(&[
                words(0),
                saying(0, "x"),
                end(0),
                tool(0, "c", json!({})),
                more(0, json!({"a": 1})),
                end(0),
                tool(0, "d", json!("{\"b\":2}")),
                end(0),
                reason.clone(),
                marker.clone(),
            ]),
            vec![
                text("x"),
                END,
                call("c", "read"),
                arguments(0, r#"{"a":1}"#),
                END,
                call("d", "read"),
                arguments(1, r#"{"b":2}"#),
                END,
            ],
            FinishReason::ToolCalls,
            &[],
        ),
        row(
            "beginnings and ends twice, and a beginning behind its first piece",
            of(&[
                start(),
                saying(0, "x"),
                words(0),
                saying(0, "y"),
                end(0),
                end(0),
                tool(1, "c", json!({})),
                tool(1, "c", json!({})),
                more(1, json!("{}")),
                end(1),
                end(1),
                reason.clone(),
                marker.clone(),
            ]),
            vec![text("xy"), END, call("c", "read"), arguments(0, "{}"), END],
            FinishReason::ToolCalls,
            &[Repair::OutOfOrder],
        ),
        row(
            "mixed blocks",
            of(&[
                start(),
                tool(0, "c", json!({})),
                more(0, json!("{\"a\":")),
                tool(1, "d", json!({})),
                more(1, json!("{}")),
                more(0, json!("1}")),
                end(0),
                end(1),
                reason.clone(),
                marker.clone(),
            ]),
            vec![
                call("c", "read"),
                arguments(0, "{\"a\":"),
                END,
                call("d", "read"),
                arguments(1, "{}"),
                arguments(0, "1}"),
                END,
            ],
            FinishReason::ToolCalls,
            &[Repair::OutOfOrder],
        ),
        row(
            "a whole message",
            format!(
                "data: {}\n\n",
                json!({"type": "message", "model": "m", "stop_reason": "tool_use", "usage": {"input_tokens": 1},
                    "content": [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "c", "name": "read", "input": {"a": 1}}]})
            ),
            vec![text("x"), END, call("c", "read"), arguments(0, r#"{"a":1}"#), END],
            FinishReason::ToolCalls,
            &[],
        ),
    ];
    check(DialectKind::Anthropic, rows).await;
    let half = of(&[start(), tool(0, "c", json!({})), more(0, json!("{\"a\":"))]) + DONE;
    let (_, end) = run(DialectKind::Anthropic, Scripted::stream([half])).await;
    assert_eq!(end.unwrap_err().code, ErrorCode::StreamCut);
    // The error of another dialect.
    let error = format!("data: {}\n\n", json!({"error": {"message": "slow down", "code": 429}}));
    let (_, end) = run(DialectKind::Anthropic, Scripted::stream([error])).await;
    assert_eq!(end.unwrap_err().code, ErrorCode::RateLimited);
}
