//! Rules of open models, and fields that compatible servers refuse.

use mock_llm::{Mock, MockOptions, Model, RefusalShape, Rules, Script, Step, reasoning};
use serde_json::{Value, json};

use super::{answer_with, mock_with, openai_error};
use crate::support::{Answer, CHAT, MESSAGES, ask, chat, messages, prompt};

const DEEPSEEK: &str = "deepseek-v4-pro";
const KIMI: &str = "kimi-k3";

async fn ask_chat(model: &str, set: &Value) -> Answer {
    answer_with(Rules::default(), CHAT, &[], chat(model, prompt()), set).await
}

/// A conversation with an answer that calls, and one that does not.
fn history(calling: Value, talking: Value) -> Value {
    let with = |mut message: Value, reasoning: Value| {
        message["reasoning_content"] = reasoning;
        message
    };
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}});
    json!([
        {"role": "user", "content": "a"},
        with(json!({"role": "assistant", "content": null, "tool_calls": [call]}), calling),
        {"role": "tool", "tool_call_id": "call_1", "content": "x"},
        with(json!({"role": "assistant", "content": "b"}), talking),
        {"role": "user", "content": "c"},
    ])
}

#[tokio::test]
async fn deepseek_wants_all_reasoning_back() {
    let missing = "The `reasoning_content` in the thinking mode must be passed back to the API.";
    for (calling, talking, is_sound) in [
        (json!("x"), json!("y"), true),
        (json!(" "), json!(" "), true),
        (json!("x"), json!(""), false),
        (json!("x"), Value::Null, false),
        (Value::Null, json!("y"), false),
    ] {
        let set = json!({"messages": history(calling, talking)});
        let answer = ask_chat(DEEPSEEK, &set).await;
        if is_sound {
            assert_eq!(answer.status, 200);
        } else {
            assert_eq!((answer.status, answer.json()), (400, openai_error(missing, None, None)));
        }
    }
    let mut set = json!({"messages": history(Value::Null, Value::Null), "thinking": {"type": "enabled"}});
    assert_eq!(ask_chat(DEEPSEEK, &set).await.status, 400);
    set["thinking"]["type"] = json!("disabled");
    assert_eq!(ask_chat(DEEPSEEK, &set).await.status, 200);
}

#[tokio::test]
async fn kimi_wants_reasoning_of_calls_back() {
    let set = json!({"messages": history(json!("x"), Value::Null)});
    assert_eq!(ask_chat(KIMI, &set).await.status, 200);
    let answer = ask_chat(KIMI, &json!({"messages": history(Value::Null, json!("y"))})).await;
    let missing =
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1";
    assert_eq!((answer.status, answer.json()), (400, openai_error(missing, None, None)));
}

#[tokio::test]
async fn kimi_refuses_parameters() {
    for (set, param) in [
        (json!({"temperature": 0.6}), "temperature"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"thinking": {"type": "enabled"}}), "thinking"),
        (json!({"reasoning_effort": "medium"}), "reasoning_effort"),
        (json!({"reasoning_effort": {"effort": "low"}}), "reasoning_effort"),
    ] {
        let answer = ask_chat(KIMI, &set).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(param)), "{set}");
    }
    for set in [json!({"temperature": 1}), json!({"tool_choice": "auto"}), json!({"reasoning_effort": "max"})]
    {
        assert_eq!(ask_chat(KIMI, &set).await.status, 200, "{set}");
    }
}

fn refusing(names: &[&str], refusal_shape: RefusalShape) -> Rules {
    let refused_fields = names.iter().map(|name| (*name).to_owned()).collect();
    Rules { refused_fields, refusal_shape, ..Rules::default() }
}

#[tokio::test]
async fn a_compatible_server_refuses_what_it_is_told_to() {
    let names = ["reasoning_effort", "stream_options", "parallel_tool_calls", "temperature"];
    for (shape, error) in [
        (
            RefusalShape::Param,
            openai_error(
                "Unsupported parameter: 'stream_options' is not supported with this model.",
                Some("stream_options"),
                Some("unsupported_parameter"),
            ),
        ),
        (RefusalShape::Path, openai_error("stream_options: Extra inputs are not permitted", None, None)),
        (
            RefusalShape::Prose,
            openai_error(
                "The model house cannot be used with stream_options. Please remove it and try again.",
                None,
                None,
            ),
        ),
    ] {
        let rules = refusing(&names, shape);
        let request = chat("house", prompt());
        let answer = answer_with(rules.clone(), CHAT, &[], request.clone(), &json!({})).await;
        assert_eq!((answer.status, answer.json()), (400, error));
        let set = json!({"stream_options": null});
        assert_eq!(answer_with(rules.clone(), CHAT, &[], request.clone(), &set).await.status, 200);
        for name in names {
            let set = json!({"stream_options": null, name: {"x": 1}});
            let answer = answer_with(rules.clone(), CHAT, &[], request.clone(), &set).await;
            assert!(answer.status == 400 && answer.text.contains(name), "{name}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn cache_control_is_found_anywhere() {
    let rules = refusing(&["cache_control"], RefusalShape::Path);
    let request = messages("house", prompt());
    assert_eq!(answer_with(rules.clone(), MESSAGES, &[], request.clone(), &json!({})).await.status, 200);
    let block = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
    for (set, path) in [
        (json!({"system": [block]}), "system.0"),
        (json!({"messages": [{"role": "user", "content": [block]}]}), "messages.0.content.0"),
        (json!({"tools": [{"name": "read", "cache_control": {}}]}), "tools.0"),
    ] {
        let answer = answer_with(rules.clone(), MESSAGES, &[], request.clone(), &set).await;
        let message = format!("{path}.cache_control: Extra inputs are not permitted");
        assert_eq!((answer.status, &answer.json()["error"]["message"]), (400, &json!(message)));
    }
}

#[tokio::test]
async fn names_with_a_vendor_before_them_have_no_rules() {
    let set = json!({"temperature": 0.5, "max_tokens": 5, "reasoning_effort": "low"});
    assert_eq!(ask_chat("openai/gpt-5.5", &set).await.status, 200);
    assert_eq!(ask_chat("gpt-5.5", &set).await.status, 400);
}

/// Reasoning that comes back here has no signature: it is recognised by its text.
#[tokio::test]
async fn reasoning_without_signature_is_counted() {
    let mock = mock_with(Rules::default(), KIMI, [reasoning("Let me see.").text("Done.")]);
    ask(&mock, CHAT, &chat(KIMI, prompt())).await;
    let next = |reasoning: Value| {
        let answer = json!({"role": "assistant", "content": "Done.", "reasoning_content": reasoning});
        chat(KIMI, json!([prompt()[0], answer, {"role": "user", "content": "Thanks."}]))
    };
    assert_eq!(ask(&mock, CHAT, &next(json!("Let me see."))).await.status, 200);
    let counts = mock.rules_report().total;
    assert_eq!((counts.valid, counts.missing), (1, 0));
    for _ in 0..2 {
        assert_eq!(ask(&mock, CHAT, &next(Value::Null)).await.status, 200);
    }
    let counts = mock.rules_report().total;
    assert_eq!((counts.valid, counts.missing), (1, 1));
}

#[tokio::test]
async fn reasoning_without_signature_is_not_bound() {
    let model = Model::new().step(reasoning("a").text("A.")).next_turn().step(reasoning("b").text("B."));
    let script = Script::new().model(KIMI, model);
    let mock = Mock::with_rules(script, MockOptions::default(), Rules::default()).unwrap();
    let answer = |text: &str, reasoning: Value| json!({"role": "assistant", "content": text, "reasoning_content": reasoning});
    let thanks = json!({"role": "user", "content": "Thanks."});
    let first = |reasoning: Value| [prompt()[0].clone(), answer("A.", reasoning), thanks.clone()];
    ask(&mock, CHAT, &chat(KIMI, prompt())).await;
    ask(&mock, CHAT, &chat(KIMI, json!(first(json!("a"))))).await;
    let counts = mock.rules_report().total;
    assert_eq!((counts.valid, counts.missing), (1, 0));
    // The second answer is recognised although the reasoning before it is gone.
    let mut all = first(Value::Null).to_vec();
    all.extend([answer("B.", Value::Null), thanks.clone()]);
    ask(&mock, CHAT, &chat(KIMI, json!(all))).await;
    let counts = mock.rules_report().total;
    assert_eq!((counts.valid, counts.missing), (1, 2));
}

#[tokio::test]
async fn what_chat_cannot_carry_is_not_missed() {
    let mock = mock_with(Rules::default(), KIMI, [Step::empty().redacted_reasoning("c2VjcmV0").text("A.")]);
    ask(&mock, CHAT, &chat(KIMI, prompt())).await;
    let answer = json!({"role": "assistant", "content": "A."});
    ask(&mock, CHAT, &chat(KIMI, json!([prompt()[0], answer, {"role": "user", "content": "b"}]))).await;
    assert_eq!(mock.rules_report().total.missing, 0);
}
