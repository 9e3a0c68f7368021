//! Parameters that open models and compatible servers refuse.

use serde_json::Value;

use super::refusal::{Refusal, given, list};
use super::table::{Compatible, ReasoningBack};
use super::{RefusalShape, Rules};

/// Checks a request to an open model.
pub(super) fn check(rules: &Compatible, model: &str, request: &Value) -> Result<(), Refusal> {
    let thinking = given(request, "thinking");
    if thinking.is_some() && !rules.has_thinking {
        return Err(Refusal::unsupported_parameter("thinking", ""));
    }
    match given(request, "reasoning_effort") {
        Some(effort) if !rules.efforts.is_empty() && !rules.efforts.iter().any(|known| effort == *known) => {
            return Err(Refusal::unsupported_value("reasoning_effort", effort, model, rules.efforts));
        }
        _ => {}
    }
    if !rules.is_lenient {
        if let Some(value) = given(request, "temperature")
            && value.as_f64() != Some(1.0)
        {
            let message = "invalid temperature: only 1 is allowed for this model";
            return Err(Refusal::new(message).param("temperature"));
        }
        if request["tool_choice"] == "required" {
            let message = "tool_choice 'required' is incompatible with thinking enabled";
            return Err(Refusal::new(message).param("tool_choice"));
        }
    }
    if thinking.is_some_and(|thinking| thinking["type"] == "disabled") {
        return Ok(());
    }
    for (number, message) in list(request, "messages").iter().enumerate() {
        let is_asked_for = message["role"] == "assistant"
            && match rules.reasoning_back {
                ReasoningBack::EveryAnswer => true,
                ReasoningBack::AnswersWithCalls => !list(message, "tool_calls").is_empty(),
            };
        if is_asked_for && message["reasoning_content"].as_str().is_none_or(str::is_empty) {
            return Err(Refusal::new(rules.missing.replace("{}", &number.to_string())));
        }
    }
    Ok(())
}

/// Checks a request to a model without rules of its own: it is refused for the first of [`Rules::refused_fields`] that
/// it has.
pub(super) fn check_fields(rules: &Rules, model: &str, request: &Value) -> Result<(), Refusal> {
    for name in &rules.refused_fields {
        let Some(path) = path_of(request, name) else { continue };
        return Err(match rules.refusal_shape {
            RefusalShape::Param => Refusal::unsupported_parameter(name, ""),
            RefusalShape::Path => Refusal::new(format!("{path}: Extra inputs are not permitted")),
            RefusalShape::Prose => Refusal::new(format!(
                "The model {model} cannot be used with {name}. Please remove it and try again."
            )),
        });
    }
    Ok(())
}

/// The path of the field `name`: `cache_control` anywhere in the request, others at its top or in a tool.
fn path_of(request: &Value, name: &str) -> Option<String> {
    if name == "cache_control" {
        return search(request, name);
    }
    let of_tools = || Some(format!("tools.{}", search(request.get("tools")?, name)?));
    given(request, name).map(|_| name.to_owned()).or_else(of_tools)
}

fn search(value: &Value, name: &str) -> Option<String> {
    let below = |key: &str, value: &Value| search(value, name).map(|path| format!("{key}.{path}"));
    match value {
        Value::Object(fields) if fields.contains_key(name) => Some(name.to_owned()),
        Value::Object(fields) => fields.iter().find_map(|(key, value)| below(key, value)),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(number, item)| below(&number.to_string(), item))
        }
        _ => None,
    }
}
