//! Parameters that OpenAI's models refuse.

use serde_json::Value;

use super::refusal::{Refusal, given, list};
use super::table::{ChatTools, OpenAi, Sampling};
use crate::wire::Dialect;

/// Parameters that no reasoning model takes.
const NEVER: [&str; 3] = ["presence_penalty", "frequency_penalty", "logit_bias"];
/// Parameters that depend on the effort.
const SAMPLING: [&str; 4] = ["temperature", "top_p", "logprobs", "top_logprobs"];

/// Checks a request to `model` on Chat Completions or Responses.
pub(super) fn check(rules: &OpenAi, dialect: Dialect, model: &str, request: &Value) -> Result<(), Refusal> {
    let is_chat = dialect == Dialect::OpenaiChat;
    let (effort_name, effort) = match is_chat {
        true => ("reasoning_effort", given(request, "reasoning_effort")),
        false => ("reasoning.effort", given(&request["reasoning"], "effort")),
    };
    if is_chat && rules.chat_tools == ChatTools::NoChat {
        let message = "This model is only supported in v1/responses and not in v1/chat/completions.";
        return Err(Refusal { status: 404, ..Refusal::new(message).param("model") });
    }
    if let Some(effort) = effort {
        let known: Vec<&str> =
            rules.efforts.iter().filter(|known| !is_chat || **known != "max").copied().collect();
        if !known.iter().any(|known| effort == *known) {
            return Err(Refusal::unsupported_value(effort_name, effort, model, &known));
        }
    }
    if is_chat && !list(request, "tools").is_empty() {
        check_chat_tools(rules, model, effort)?;
    }
    let is_none = effort.is_some_and(|effort| effort == "none");
    let takes_sampling = rules.sampling == Sampling::WithNone && is_none;
    let refused = NEVER.iter().chain(rules.refused).chain(if takes_sampling { &[] } else { &SAMPLING[..] });
    for name in refused {
        if given(request, name).is_some() {
            return Err(Refusal::unsupported_parameter(name, ""));
        }
    }
    if is_chat && given(request, "max_tokens").is_some() {
        let hint = " Use 'max_completion_tokens' instead.";
        return Err(Refusal::unsupported_parameter("max_tokens", hint));
    }
    match given(request, "service_tier") {
        Some(tier) if rules.no_flex && tier == "flex" => {
            Err(Refusal::unsupported_value("service_tier", tier, model, &["auto", "default", "priority"]))
        }
        _ => Ok(()),
    }
}

fn check_chat_tools(rules: &OpenAi, model: &str, effort: Option<&Value>) -> Result<(), Refusal> {
    let is_none = effort.is_some_and(|effort| effort == "none");
    let is_taken = match rules.chat_tools {
        ChatTools::Any => true,
        ChatTools::WithoutEffort => effort.is_none() || is_none,
        ChatTools::WithNone => is_none,
        ChatTools::Never | ChatTools::NoChat => false,
    };
    if is_taken {
        return Ok(());
    }
    let message = format!(
        "Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. Please use \
         /v1/responses instead."
    );
    Err(Refusal::new(message).param("reasoning_effort"))
}
