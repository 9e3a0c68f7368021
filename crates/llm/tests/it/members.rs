//! What came with a message or a call goes back with it in the next request.

use playhouse_llm::{DialectKind, Head, StreamEvent, ToolChoice, Transcript};
use playhouse_protocol::chat::{AssistantPart, ChatMessage};
use serde_json::{Map, Value, json};

use crate::support::{Scripted, run};
use crate::{anthropic, openai_chat, openai_responses};

/// The answer that a stream holds, as the next request has it.
async fn back(dialect: DialectKind, stream: String) -> Value {
    let (events, end) = run(dialect, Scripted::stream([stream])).await;
    end.unwrap();
    let mut parts: Vec<AssistantPart> = Vec::new();
    let mut calls = Vec::new();
    for event in events {
        match (event, parts.last_mut()) {
            (StreamEvent::Text(text), _) => parts.push(AssistantPart::Text { text, opaque: None }),
            (StreamEvent::TextOpaque(members), Some(AssistantPart::Text { opaque, .. })) => {
                *opaque = Some(members);
            }
            (StreamEvent::Reasoning(text), _) => {
                parts.push(AssistantPart::Reasoning { text, opaque: None, stale: false });
            }
            (StreamEvent::ReasoningOpaque(value), _) => {
                parts.push(AssistantPart::Reasoning {
                    text: String::new(),
                    opaque: Some(value),
                    stale: false,
                });
            }
            (StreamEvent::CallStart { id, name }, _) => {
                calls.push(parts.len());
                parts.push(AssistantPart::Call { id, name, input: Map::new(), opaque: None });
            }
            (StreamEvent::CallOpaque { call, members }, _) => {
                let AssistantPart::Call { opaque, .. } = &mut parts[calls[call]] else { panic!("no call") };
                *opaque = Some(members);
            }
            (StreamEvent::CallArguments { .. } | StreamEvent::PartEnd, _) => {}
            (event, last) => panic!("{event:?} behind {last:?}"),
        }
    }
    let mut transcript = Transcript::new(dialect, &Head::default());
    transcript.push(&ChatMessage::Assistant { parts }, &|_| None);
    serde_json::from_slice(&transcript.request(ToolChoice::Auto)).unwrap()
}

fn chunk(delta: Value, finish: Value) -> Value {
    json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

#[tokio::test]
async fn chat_members_of_messages_and_calls() {
    let signed = |signature: &str| json!({"google": {"thought_signature": signature}});
    let call = |index: u64, more: Value| {
        let mut call = json!({"index": index, "id": format!("c{index}"), "type": "function",
            "function": {"name": "read", "arguments": "{}"}});
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        chunk(json!({"tool_calls": [call]}), Value::Null)
    };
    let stream = openai_chat::stream(&[
        chunk(json!({"role": "assistant", "content": "Look", "provider_specific_fields": null}), Value::Null),
        chunk(json!({"content": "", "extra_content": signed("m"), "logprobs": {}}), Value::Null),
        chunk(json!({"reasoning_opaque": "ro", "annotations": [1]}), Value::Null),
        chunk(
            json!({"thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}),
            Value::Null,
        ),
        call(0, json!({"extra_content": signed("a"), "note": 1})),
        call(1, json!({})),
        call(2, json!({"provider_specific_fields": {"thought_signature": "b", "x": null}})),
        chunk(json!({}), json!("tool_calls")),
    ]);
    let request = back(DialectKind::OpenaiChat, stream).await;
    let message = &request["messages"][0];
    assert_eq!(message["extra_content"], signed("m"));
    assert_eq!(message["reasoning_opaque"], "ro");
    assert_eq!(message["thinking_blocks"], json!([{"type": "thinking", "thinking": "hm", "signature": "s"}]));
    assert_eq!((&message["annotations"], &message["logprobs"]), (&Value::Null, &Value::Null));
    let calls = message["tool_calls"].as_array().unwrap();
    let with = |place: usize, name: &str| calls[place][name].clone();
    assert_eq!(with(0, "extra_content"), signed("a"));
    assert_eq!(calls[1].as_object().unwrap().len(), 3, "{}", calls[1]);
    assert_eq!(with(2, "provider_specific_fields"), json!({"thought_signature": "b", "x": null}));
    assert_eq!(with(0, "note"), Value::Null);
}

#[tokio::test]
async fn phases_of_messages_and_namespaces_of_calls() {
    let event = |name: &str, place: u64, item: Value| json!({"type": format!("response.output_item.{name}"), "output_index": place, "item": item});
    let message = |phase: &str, text: &str| {
        json!({"type": "message", "id": format!("m{phase}"), "role": "assistant", "phase": phase,
            "content": [{"type": "output_text", "text": text}]})
    };
    let delta = |place: u64, text: &str| json!({"type": "response.output_text.delta", "output_index": place, "delta": text});
    let call = json!({"type": "function_call", "id": "f", "call_id": "c", "name": "read", "arguments": "{}",
        "namespace": "files", "status": "completed"});
    let events = [
        // Streamed, the phase at the beginning; at the end; and not streamed.
        event("added", 0, message("commentary", "")),
        delta(0, "One."),
        event(
            "done",
            0,
            json!({"type": "message", "id": "mcommentary", "content": [{"type": "output_text", "text": "One."}]}),
        ),
        event("added", 1, json!({"type": "message", "id": "mfinal_answer", "content": []})),
        delta(1, "Two."),
        event("done", 1, message("final_answer", "Two.")),
        event("done", 2, message("commentary", "Three.")),
        event("added", 3, call.clone()),
        event("done", 3, call),
        json!({"type": "response.completed", "response": {"status": "completed"}}),
    ];
    let request = back(DialectKind::OpenaiResponses, openai_responses::stream(&events)).await;
    let items = request["input"].as_array().unwrap();
    let phases: Vec<_> = items.iter().filter_map(|item| item["phase"].as_str()).collect();
    assert_eq!(phases, ["commentary", "final_answer", "commentary"]);
    assert_eq!((&items[3]["namespace"], &items[3]["status"]), (&json!("files"), &Value::Null));
}

#[tokio::test]
async fn callers_of_tool_uses() {
    let caller = json!({"type": "direct"});
    let events = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {
            "type": "tool_use", "id": "t", "name": "read", "input": {}, "caller": caller, "signature": "s", "x": 1}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ];
    let request = back(DialectKind::Anthropic, anthropic::stream(&events)).await;
    let block = &request["messages"][0]["content"][0];
    let back = (&block["caller"], &block["signature"], &block["x"]);
    assert_eq!(back, (&caller, &json!("s"), &Value::Null), "{request}");
}

/// The halves of a search of tools in a dialect.
fn search(dialect: DialectKind) -> [Value; 2] {
    match dialect {
        DialectKind::Anthropic => [
            json!({"type": "server_tool_use", "id": "s", "name": "tool_search_tool_regex", "input": {"query": "mail"}, "x": 1}),
            json!({"type": "tool_search_tool_result", "tool_use_id": "s", "content": {
                "type": "tool_search_tool_search_result",
                "tool_references": [{"type": "tool_reference", "tool_name": "mcp_x_mail"}]}}),
        ],
        _ => [
            json!({"type": "tool_search_call", "id": "tsc_1", "call_id": null, "execution": "server",
                "arguments": {"paths": ["mail"]}, "status": "completed"}),
            json!({"type": "tool_search_output", "id": "tso_1", "call_id": null, "execution": "server",
                "tools": [{"type": "function", "name": "mcp_x_mail", "parameters": {}}], "status": "completed"}),
        ],
    }
}

#[tokio::test]
async fn searches_of_tools_in_their_places() {
    let [call, found] = search(DialectKind::Anthropic);
    let start =
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}});
    let block = |index: u64, block: &Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let input = |piece: &str| json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": piece}});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let mut begun = call.clone();
    begun["input"] = json!({});
    let text = json!({"type": "text", "text": "Look."});
    let events = |pieces: &[&str]| {
        let mut events = vec![start.clone(), block(0, &text), stop(0), block(1, &begun)];
        events.extend(pieces.iter().map(|piece| input(piece)));
        events.extend([
            stop(1),
            block(2, &found),
            stop(2),
            block(3, &json!({"type": "tool_use", "id": "t", "name": "mcp_x_mail", "input": {}})),
            stop(3),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
                "usage": {"output_tokens": 9, "server_tool_use": {"tool_search_requests": 1}}}),
            json!({"type": "message_stop"}),
        ]);
        anthropic::stream(&events)
    };
    let content =
        async |stream: String| back(DialectKind::Anthropic, stream).await["messages"][0]["content"].clone();
    let whole = content(events(&["{\"query\":", "\"mail\"}"])).await;
    assert_eq!(whole.as_array().unwrap()[..3], [text.clone(), call.clone(), found.clone()]);
    assert_eq!((whole[3]["name"].clone(), whole.as_array().unwrap().len()), (json!("mcp_x_mail"), 4));
    // Half of a search does not go back.
    let cut = content(events(&["{\"query\":"])).await;
    assert_eq!(
        (&cut[0], cut[1]["name"].as_str(), cut.as_array().unwrap().len()),
        (&text, Some("mcp_x_mail"), 2)
    );
    // A server that does not stream.
    let message = json!({"type": "message", "content": [text, call, found], "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}});
    let unstreamed = content(format!("data: {message}\n\n")).await;
    assert_eq!(unstreamed, json!([text, call, found]));

    let [call, found] = search(DialectKind::OpenaiResponses);
    let event = |name: &str, place: u64, item: &Value| json!({"type": format!("response.output_item.{name}"), "output_index": place, "item": item});
    let function =
        json!({"type": "function_call", "id": "f", "call_id": "c", "name": "mcp_x_mail", "arguments": "{}"});
    let items = [&call, &found, &function];
    let places = || items.into_iter().zip(0..);
    let streamed =
        places().flat_map(|(item, place)| [event("added", place, item), event("done", place, item)]);
    let end = |output: Value| json!({"type": "response.completed", "response": {"status": "completed", "output": output}});
    // As events, at the end only, and both.
    for (events, output) in [
        (streamed.clone().collect::<Vec<_>>(), json!([])),
        (Vec::new(), json!(items)),
        (streamed.collect(), json!(items)),
    ] {
        let events: Vec<Value> = events.into_iter().chain([end(output)]).collect();
        let request = back(DialectKind::OpenaiResponses, openai_responses::stream(&events)).await;
        let input = request["input"].as_array().unwrap();
        assert_eq!(input[..2], [call.clone(), found.clone()], "{request}");
        assert_eq!((input.len(), &input[2]["name"]), (3, &json!("mcp_x_mail")));
    }
}
