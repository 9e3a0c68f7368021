//! Parameters that Gemini models refuse, and signatures that must come back to them.

use serde_json::Value;

use super::refusal::{Refusal, given, list};
use super::table::Gemini;

/// The value in place of a signature for calls that another model made.
pub(super) const SKIP_SIGNATURE: &str = "skip_thought_signature_validator";

/// Checks a request.
pub(super) fn check(rules: &Gemini, request: &Value) -> Result<(), Refusal> {
    let config = either(request, "generationConfig", "generation_config")
        .and_then(|config| either(config, "thinkingConfig", "thinking_config"));
    if let Some(config) = config {
        check_thinking(rules, config)?;
    }
    if rules.signatures {
        check_signatures(request)?;
    }
    Ok(())
}

fn check_thinking(rules: &Gemini, config: &Value) -> Result<(), Refusal> {
    let budget = either(config, "thinkingBudget", "thinking_budget");
    let level = either(config, "thinkingLevel", "thinking_level");
    if budget.is_some() && level.is_some() {
        return Err(Refusal::new("You can only set only one of thinking budget and thinking level."));
    }
    if let Some(level) = level {
        if rules.levels.is_empty() {
            return Err(Refusal::new("Thinking level is not supported for this model."));
        }
        let level = level.as_str().unwrap_or_default();
        if !rules.levels.iter().any(|known| known.eq_ignore_ascii_case(level)) {
            let level = level.to_ascii_uppercase();
            let message = format!(
                "Thinking level {level} is not supported for this model. Please retry with other thinking level."
            );
            return Err(Refusal::new(message));
        }
    }
    let (Some(budget), Some((least, most))) = (budget, rules.budgets) else { return Ok(()) };
    match budget.as_i64() {
        // The model chooses.
        Some(-1) => Ok(()),
        Some(0) if rules.can_be_off => Ok(()),
        Some(tokens) if (least..=most).contains(&tokens) => Ok(()),
        _ => Err(Refusal::new(format!(
            "The thinking budget {budget} is invalid. Please choose a value between {least} and {most}."
        ))),
    }
}

/// Refuses an answer whose first call comes back without a signature.
fn check_signatures(request: &Value) -> Result<(), Refusal> {
    for content in list(request, "contents").iter().filter(|content| content["role"] == "model") {
        let first = list(content, "parts").iter().enumerate().find_map(|(number, part)| {
            either(part, "functionCall", "function_call").map(|call| (number, part, call))
        });
        let Some((number, part, call)) = first else { continue };
        if signature(part).is_none() {
            let name = call["name"].as_str().unwrap_or_default();
            let message = format!(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to \
                 work correctly, and missing thought_signature may lead to degraded model performance. Additional \
                 data, function call `{name}`, position {number}."
            );
            return Err(Refusal::new(message));
        }
    }
    Ok(())
}

/// The signature of a part, unless it is empty.
pub(super) fn signature(part: &Value) -> Option<&str> {
    either(part, "thoughtSignature", "thought_signature")?.as_str().filter(|signature| !signature.is_empty())
}

/// A field in either of its spellings.
pub(super) fn either<'a>(object: &'a Value, camel: &str, snake: &str) -> Option<&'a Value> {
    given(object, camel).or_else(|| given(object, snake))
}
