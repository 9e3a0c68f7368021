//! Parameters that Claude models refuse.

use serde_json::Value;

use super::refusal::{Refusal, given, list};
use super::table::{Claude, Forced};

/// The beta that has `thinking.block_binding`.
pub(super) const BINDING_BETA: &str = "thinking-binding-controls-2026-08-01";
/// The beta that has the display `updates`.
const UPDATES_BETA: &str = "thinking-display-updates-2026-08-18";
/// The smallest budget of thinking, in tokens.
const LEAST_BUDGET: u64 = 1024;
const FORCED_WITH_THINKING: &str = "Thinking may not be enabled when tool_choice forces tool use.";
const PREFILL: &str = "This model does not support assistant message prefill. The conversation must end with a user \
    message.";
/// Efforts that are not taken where thinking is restricted.
const ABOVE_HIGH: [&str; 2] = ["xhigh", "max"];

/// Checks a request. `betas` are the values of its `anthropic-beta` headers.
pub(super) fn check(rules: &Claude, betas: &str, request: &Value) -> Result<(), Refusal> {
    let thinking = &request["thinking"];
    let kind = given(thinking, "type").and_then(Value::as_str);
    if let Some(kind) = kind {
        check_thinking(rules, kind, betas, request)?;
    }
    check_effort(rules, kind, request)?;
    let thinks = kind.map_or(rules.thinks, |kind| kind != "disabled");
    check_sampling(rules, thinks, request)?;
    let choice = request["tool_choice"]["type"].as_str().filter(|kind| matches!(*kind, "any" | "tool"));
    match (choice, rules.forced) {
        (Some(choice), Forced::Never) => {
            let message = format!("tool_choice.type: \"{choice}\" is not supported for this model.");
            return Err(Refusal::new(message));
        }
        (Some(_), Forced::WithoutThinking) if thinks => return Err(Refusal::new(FORCED_WITH_THINKING)),
        _ => {}
    }
    let is_prefill = list(request, "messages").last().is_some_and(|last| last["role"] == "assistant");
    if is_prefill && !rules.prefill {
        return Err(Refusal::new(PREFILL));
    }
    check_last_blocks(request)
}

/// An answer may not end with thinking.
fn check_last_blocks(request: &Value) -> Result<(), Refusal> {
    for (number, message) in list(request, "messages").iter().enumerate() {
        let last = message["content"].as_array().and_then(|blocks| blocks.last());
        let kind = last.and_then(|last| last["type"].as_str()).unwrap_or_default();
        if message["role"] == "assistant" && matches!(kind, "thinking" | "redacted_thinking") {
            let message =
                format!("messages.{number}: The final block in an assistant message cannot be `thinking`.");
            return Err(Refusal::new(message));
        }
    }
    Ok(())
}

fn check_thinking(rules: &Claude, kind: &str, betas: &str, request: &Value) -> Result<(), Refusal> {
    let thinking = &request["thinking"];
    if !rules.thinking.contains(&kind) {
        let hint = match (kind, rules.thinking) {
            ("enabled", _) => {
                " Use \"thinking.type.adaptive\" and \"output_config.effort\" to control thinking behavior."
            }
            (_, known) if known.contains(&"enabled") => " Use \"thinking.type.enabled\".",
            _ => "",
        };
        let message = format!("\"thinking.type.{kind}\" is not supported for this model.{hint}");
        return Err(Refusal::new(message));
    }
    if given(thinking, "block_binding").is_some() && !betas.contains(BINDING_BETA) {
        let message = format!("thinking.{kind}.block_binding: Extra inputs are not permitted");
        return Err(Refusal::new(message));
    }
    match given(thinking, "display").map(|display| display.as_str().unwrap_or_default()) {
        None | Some("summarized" | "omitted") => {}
        Some("updates") if betas.contains(UPDATES_BETA) => {}
        Some(_) => {
            let message = format!("thinking.{kind}.display: Input should be 'summarized' or 'omitted'");
            return Err(Refusal::new(message));
        }
    }
    let budget = given(thinking, "budget_tokens");
    if kind != "enabled" {
        let message = format!("thinking.{kind}.budget_tokens: Extra inputs are not permitted");
        return budget.map_or(Ok(()), |_| Err(Refusal::new(message)));
    }
    let Some(budget) = budget.and_then(Value::as_u64) else {
        return Err(Refusal::new("thinking.enabled.budget_tokens: Field required"));
    };
    if budget < LEAST_BUDGET {
        let message = format!(
            "thinking.enabled.budget_tokens: Input should be greater than or equal to {LEAST_BUDGET}"
        );
        return Err(Refusal::new(message));
    }
    if request["max_tokens"].as_u64().is_some_and(|most| most <= budget) {
        return Err(Refusal::new("`max_tokens` must be greater than `thinking.budget_tokens`."));
    }
    Ok(())
}

fn check_effort(rules: &Claude, kind: Option<&str>, request: &Value) -> Result<(), Refusal> {
    let Some(effort) = given(&request["output_config"], "effort") else { return Ok(()) };
    if rules.efforts.is_empty() {
        return Err(Refusal::new("This model does not support the effort parameter."));
    }
    let effort = effort.as_str().unwrap_or_default();
    if !rules.efforts.contains(&effort) {
        let known = rules.efforts.join(", ");
        let message = format!(
            "output_config.effort: \"{effort}\" is not supported for this model. Supported values: {known}."
        );
        return Err(Refusal::new(message));
    }
    match kind {
        Some(kind) if kind == rules.up_to_high_with && ABOVE_HIGH.contains(&effort) => Err(Refusal::new(
            format!("output_config.effort: \"{effort}\" is not supported with \"thinking.type.{kind}\"."),
        )),
        _ => Ok(()),
    }
}

fn check_sampling(rules: &Claude, thinks: bool, request: &Value) -> Result<(), Refusal> {
    let temperature = given(request, "temperature");
    let top_p = given(request, "top_p");
    let top_k = given(request, "top_k");
    let message = if !rules.sampling {
        let first = [("temperature", temperature), ("top_p", top_p), ("top_k", top_k)]
            .into_iter()
            .find_map(|(name, value)| value.map(|_| name));
        first.map(|name| format!("`{name}` is not supported for this model."))
    } else if thinks && temperature.is_some_and(|value| value.as_f64() != Some(1.0)) {
        Some("`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.".to_owned())
    } else if thinks && top_p.is_some_and(|value| value.as_f64().is_none_or(|value| value < 0.95)) {
        Some("`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled.".to_owned())
    } else if thinks && top_k.is_some() {
        Some("`top_k` must be unset when thinking is enabled.".to_owned())
    } else if temperature.is_some() && top_p.is_some() {
        Some("`temperature` and `top_p` cannot both be specified for this model.".to_owned())
    } else {
        None
    };
    message.map_or(Ok(()), |message| Err(Refusal::new(message)))
}
