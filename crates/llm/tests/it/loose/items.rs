//! Items of Responses without indexes, ends or beginnings.

use super::*;

/// What a llama.cpp server sends: no indexes, and all ends at the end.
#[tokio::test]
async fn items_of_responses_are_matched_by_id() {
    let message = |text: &str| json!({"type": "message", "id": "m", "content": [{"type": "output_text", "text": text}]});
    let thought = |content: Value| json!({"type": "reasoning", "id": "r", "summary": [], "content": content, "encrypted_content": ""});
    let function = |arguments: Value| json!({"type": "function_call", "call_id": "c", "name": "read", "arguments": arguments});
    let text_of = |delta: &str| event("output_text.delta", json!({"item_id": "m", "delta": delta}));
    let thought_of = |delta: &str| event("reasoning_text.delta", json!({"item_id": "r", "delta": delta}));
    let arguments_of =
        |delta: &str| event("function_call_arguments.delta", json!({"item_id": "fc_c", "delta": delta}));
    let added = |item: Value| event("output_item.added", json!({"item": item}));
    let done = |item: Value| event("output_item.done", json!({"item": item}));
    let completed = |more: Value| event("completed", json!({"response": more}));
    let said = vec![
        reasoning("let me see"),
        END,
        text("h\u{e9}llo"),
        END,
        call("c", "read"),
        arguments(0, r#"{"a":1}"#),
        END,
    ];
    let whole_thought = || thought(json!([{"type": "reasoning_text", "text": "let me see"}]));
    let all_done =
        || vec![done(whole_thought()), done(message("h\u{e9}llo")), done(function(json!("{\"a\":1}")))];
    let pieces = || {
        vec![
            added(thought(json!([]))),
            thought_of("let me "),
            thought_of("see"),
            added(message("")),
            text_of("h\u{e9}"),
            text_of("llo"),
            added(function(json!(""))),
            arguments_of("{\"a\":"),
            arguments_of("1}"),
        ]
    };
    let output = || json!([whole_thought(), message("h\u{e9}llo"), function(json!({"a": 1}))]);
    let of = |events: &[Vec<Value>]| openai_responses::stream(&events.concat());
    let numbered = |index: u64, mut event: Value| {
        event["output_index"] = index.into();
        event
    };
    let rows = vec![
        row(
            "no indexes, ends at the end",
            of(&[pieces(), all_done(), vec![completed(json!({"output": output()}))]]),
            said.clone(),
            FinishReason::ToolCalls,
            &[],
        ),
        row(
            "no ends",
            of(&[pieces(), vec![completed(json!({}))]]),
            said.clone(),
            FinishReason::ToolCalls,
            &[Repair::OutOfOrder],
        ),
        row(
            "no beginnings",
            of(&[all_done(), vec![completed(json!({}))]]),
            said.clone(),
            FinishReason::ToolCalls,
            &[],
        ),
        row(
            "nothing but the end",
            of(&[vec![completed(json!({"output": output(), "usage": [], "model": 5}))]]),
            said.clone(),
            FinishReason::ToolCalls,
            &[Repair::OutOfOrder],
        ),
        row(
            "an item that only the end has",
            of(&[
                vec![added(thought(json!([]))), thought_of("let me see"), done(whole_thought())],
                vec![completed(json!({"output": output()}))],
            ]),
            said.clone(),
            FinishReason::ToolCalls,
            &[Repair::OutOfOrder],
        ),
        row(
            "the marker of another dialect",
            of(&[pieces()]) + DONE,
            said.clone(),
            FinishReason::ToolCalls,
            &[Repair::HalfAnEnd],
        ),
        row(
            "one index for all items",
            of(&[pieces().into_iter().map(|event| numbered(0, event)).collect(), vec![completed(json!({}))]]),
            said.clone(),
            FinishReason::ToolCalls,
            &[Repair::OutOfOrder],
        ),
        row(
            "beginnings and ends twice",
            of(&[
                pieces()
                    .into_iter()
                    .flat_map(|event| match event["type"] == "response.output_item.added" {
                        true => vec![event.clone(), event],
                        false => vec![event],
                    })
                    .collect(),
                all_done(),
                all_done(),
                vec![completed(json!({}))],
            ]),
            said.clone(),
            FinishReason::ToolCalls,
            &[Repair::OutOfOrder],
        ),
        row(
            "names of events that are others",
            of(&[pieces(), vec![completed(json!({}))]]).replace("event: response.", "event: "),
            said,
            FinishReason::ToolCalls,
            &[Repair::OutOfOrder],
        ),
        row(
            "a name and an id that come with the end, and text that comes at once",
            of(&[vec![
                event("output_text.done", json!({"item_id": "m", "text": "x"})),
                done(message("x")),
                added(json!({"type": "function_call"})),
                event("function_call_arguments.delta", json!({"delta": "{}"})),
                done(function(json!("{}"))),
                completed(json!({})),
            ]]),
            vec![text("x"), END, call("c", "read"), arguments(0, "{}"), END],
            FinishReason::ToolCalls,
            &[Repair::OutOfOrder],
        ),
    ];
    check(DialectKind::OpenaiResponses, rows).await;
    let half = [added(function(json!(""))), arguments_of("{\"a\":")];
    let (_, end) =
        run(DialectKind::OpenaiResponses, Scripted::stream([openai_responses::stream(&half) + DONE])).await;
    assert_eq!(end.unwrap_err().code, ErrorCode::StreamCut);
}
