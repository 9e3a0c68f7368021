//! Parameters that Claude models refuse.

use mock_llm::Rules;
use serde_json::{Value, json};

use super::answer_with;
use crate::support::{Answer, MESSAGES, messages, prompt};

const OLD: &str = "claude-haiku-4-5";
const BUDGETS: [&str; 3] = [OLD, "claude-opus-4-5", "claude-sonnet-4-6"];
const ALWAYS: [&str; 5] =
    ["claude-fable-5", "claude-sonnet-5-5", "claude-opus-5-5", "claude-fable-5-1", "claude-fable-5-2"];
const OPTIONAL: [&str; 5] =
    ["claude-opus-4-7", "claude-opus-4-8", "claude-opus-5", "claude-sonnet-5", "claude-haiku-5-5"];
const UNFORCED: [&str; 4] = ["claude-sonnet-5-5", "claude-opus-5-5", "claude-fable-5-1", "claude-fable-5-2"];

async fn ask_with(model: &str, headers: &[(&str, &str)], set: &Value) -> Answer {
    answer_with(Rules::default(), MESSAGES, headers, messages(model, prompt()), set).await
}

async fn ask(model: &str, set: &Value) -> Answer {
    ask_with(model, &[], set).await
}

#[track_caller]
fn refused(answer: &Answer, message: &str) {
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    assert_eq!((answer.status, answer.json()), (400, error));
}

fn newer() -> impl Iterator<Item = &'static str> {
    OPTIONAL.into_iter().chain(ALWAYS)
}

#[tokio::test]
async fn budgets_end_with_4_7() {
    let set = json!({"thinking": {"type": "enabled", "budget_tokens": 2_000}, "max_tokens": 3_000});
    for model in BUDGETS {
        assert_eq!(ask(model, &set).await.status, 200, "{model}");
    }
    for model in newer() {
        refused(
            &ask(model, &set).await,
            "\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\" and \
             \"output_config.effort\" to control thinking behavior.",
        );
    }
}

#[tokio::test]
async fn thinking_is_adaptive_from_4_6_and_not_always_optional() {
    let adaptive = json!({"thinking": {"type": "adaptive"}});
    for model in [OLD, "claude-opus-4-5"] {
        let message =
            "\"thinking.type.adaptive\" is not supported for this model. Use \"thinking.type.enabled\".";
        refused(&ask(model, &adaptive).await, message);
    }
    assert_eq!(ask("claude-opus-4-6", &adaptive).await.status, 200);
    let disabled = json!({"thinking": {"type": "disabled"}});
    for model in BUDGETS.into_iter().chain(OPTIONAL) {
        assert_eq!(ask(model, &disabled).await.status, 200, "{model}");
    }
    for model in ALWAYS {
        refused(&ask(model, &disabled).await, "\"thinking.type.disabled\" is not supported for this model.");
    }
    for model in newer() {
        assert_eq!(ask(model, &adaptive).await.status, 200, "{model}");
        let between = ask(model, &json!({"thinking": {"type": "between_tools"}})).await;
        assert_eq!(between.status, if model == "claude-sonnet-5-5" { 200 } else { 400 }, "{model}");
    }
}

#[tokio::test]
async fn budgets_have_bounds() {
    let thinking = |budget: Value, most: u64| json!({"max_tokens": most, "thinking": {"type": "enabled", "budget_tokens": budget}});
    let least = "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024";
    let most = "`max_tokens` must be greater than `thinking.budget_tokens`.";
    assert_eq!(ask(OLD, &thinking(json!(1024), 1025)).await.status, 200);
    refused(&ask(OLD, &thinking(json!(1023), 2000)).await, least);
    refused(&ask(OLD, &thinking(json!(1024), 1024)).await, most);
    refused(&ask(OLD, &thinking(Value::Null, 2000)).await, "thinking.enabled.budget_tokens: Field required");
    let adaptive = json!({"thinking": {"type": "adaptive", "budget_tokens": 2000}});
    refused(
        &ask("claude-opus-5-5", &adaptive).await,
        "thinking.adaptive.budget_tokens: Extra inputs are not permitted",
    );
}

#[tokio::test]
async fn efforts_are_those_of_the_family() {
    for (model, known) in [
        (OLD, ""),
        ("claude-opus-4-5", "low medium high"),
        ("claude-sonnet-4-6", "low medium high max"),
        ("claude-opus-4-7", "low medium high xhigh max"),
        ("claude-opus-5-5", "low medium high xhigh max"),
    ] {
        for effort in ["minimal", "low", "medium", "high", "xhigh", "max"] {
            let answer = ask(model, &json!({"output_config": {"effort": effort}})).await;
            let is_known = known.split(' ').any(|known| known == effort);
            assert_eq!(answer.status, if is_known { 200 } else { 400 }, "{model} {effort}");
        }
    }
    refused(
        &ask("claude-sonnet-4-6", &json!({"output_config": {"effort": "xhigh"}})).await,
        "output_config.effort: \"xhigh\" is not supported for this model. Supported values: low, medium, high, max.",
    );
    for (model, kind) in [
        ("claude-opus-5", "disabled"),
        ("claude-haiku-5-5", "disabled"),
        ("claude-sonnet-5-5", "between_tools"),
    ] {
        let set = |effort: &str| json!({"thinking": {"type": kind}, "output_config": {"effort": effort}});
        assert_eq!(ask(model, &set("high")).await.status, 200, "{model}");
        let adaptive = json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}});
        assert_eq!(ask(model, &adaptive).await.status, 200, "{model}");
        let message =
            format!("output_config.effort: \"xhigh\" is not supported with \"thinking.type.{kind}\".");
        refused(&ask(model, &set("xhigh")).await, &message);
    }
}

#[tokio::test]
async fn sampling_ends_with_4_7() {
    for model in newer() {
        for (name, value) in [("temperature", json!(1)), ("top_p", json!(0.99)), ("top_k", json!(5))] {
            refused(
                &ask(model, &json!({name: value})).await,
                &format!("`{name}` is not supported for this model."),
            );
        }
    }
    for model in BUDGETS {
        assert_eq!(ask(model, &json!({"temperature": 0.5, "top_k": 5})).await.status, 200, "{model}");
        assert_eq!(ask(model, &json!({"top_p": 0.5})).await.status, 200, "{model}");
        refused(
            &ask(model, &json!({"temperature": 0.5, "top_p": 0.5})).await,
            "`temperature` and `top_p` cannot both be specified for this model.",
        );
        let thinking = json!({"type": "enabled", "budget_tokens": 1024});
        let set = |name: &str, value: f64| json!({"max_tokens": 2000, "thinking": thinking, name: value});
        assert_eq!(ask(model, &set("temperature", 1.0)).await.status, 200, "{model}");
        assert_eq!(ask(model, &set("top_p", 0.95)).await.status, 200, "{model}");
        for (name, value) in [("temperature", 0.5), ("top_p", 0.5), ("top_k", 5.0)] {
            let answer = ask(model, &set(name, value)).await;
            let error = answer.json();
            assert_eq!(answer.status, 400, "{model} {name}");
            assert!(error["error"]["message"].as_str().unwrap().starts_with(&format!("`{name}`")), "{error}");
        }
    }
}

#[tokio::test]
async fn calls_are_not_forced_where_a_model_thinks() {
    for choice in [json!({"type": "any"}), json!({"type": "tool", "name": "read"})] {
        let kind = &choice["type"];
        for model in UNFORCED {
            let message = format!("tool_choice.type: {kind} is not supported for this model.");
            refused(&ask(model, &json!({"tool_choice": choice})).await, &message);
        }
        for model in BUDGETS.into_iter().chain(OPTIONAL) {
            assert_eq!(ask(model, &json!({"tool_choice": choice})).await.status, 200, "{model}");
        }
        for model in BUDGETS {
            let thinking = json!({"type": "enabled", "budget_tokens": 1024});
            let set = json!({"max_tokens": 2000, "thinking": thinking, "tool_choice": choice});
            let message = "Thinking may not be enabled when tool_choice forces tool use.";
            refused(&ask(model, &set).await, message);
        }
    }
    for model in UNFORCED {
        assert_eq!(ask(model, &json!({"tool_choice": {"type": "auto"}})).await.status, 200, "{model}");
    }
}

#[tokio::test]
async fn prefill_ends_with_4_6() {
    let set = json!({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "{"}]});
    for model in [OLD, "claude-opus-4-5"] {
        assert_eq!(ask(model, &set).await.status, 200, "{model}");
    }
    for model in newer().chain(["claude-sonnet-4-6"]) {
        refused(
            &ask(model, &set).await,
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        );
    }
}

#[tokio::test]
async fn betas_have_their_headers() {
    let model = "claude-opus-5-5";
    let binding = json!({"thinking": {"type": "adaptive",
        "block_binding": {"prefix_mismatch_behavior": "drop_block"}}});
    let message = "thinking.adaptive.block_binding: Extra inputs are not permitted";
    refused(&ask(model, &binding).await, message);
    refused(&ask_with(model, &[("anthropic-beta", "other-2026-01-01")], &binding).await, message);
    for headers in [
        &[("anthropic-beta", "thinking-binding-controls-2026-08-01")][..],
        &[("Anthropic-Beta", "other"), ("Anthropic-Beta", "a,thinking-binding-controls-2026-08-01")],
    ] {
        assert_eq!(ask_with(model, headers, &binding).await.status, 200);
    }
    let display = |display: &str| json!({"thinking": {"type": "adaptive", "display": display}});
    for known in ["summarized", "omitted"] {
        assert_eq!(ask(model, &display(known)).await.status, 200);
    }
    refused(
        &ask(model, &display("updates")).await,
        "thinking.adaptive.display: Input should be 'summarized' or 'omitted'",
    );
    let headers = [("anthropic-beta", "thinking-display-updates-2026-08-18")];
    assert_eq!(ask_with(model, &headers, &display("updates")).await.status, 200);
}
