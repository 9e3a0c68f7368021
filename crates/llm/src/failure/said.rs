//! What a provider says when it refuses or fails, and the class of error that it is.

use playhouse_protocol::ProviderWords;
use playhouse_protocol::error::ErrorCode;
use serde_json::Value;

use super::body::{describe_body, one_line};
use super::wait::{Now, field_wait_ms, told_wait_ms};

/// What a provider said.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Type and code, whatever of these it gave.
    pub(super) kind: String,
    /// The message; empty when there was none.
    pub(super) message: String,
    /// The parameter of the request that it names.
    pub(super) parameter: String,
    /// A status in the body.
    pub(super) status: Option<u16>,
    /// How long to wait, in milliseconds, where the body says so.
    pub(super) retry_after_ms: Option<u64>,
    /// Whether it is the day's allowance that is used up.
    daily: bool,
    /// Whether it came in one of the forms that providers use, and is no page of somebody between.
    structured: bool,
}

/// A context that is too small, in each provider's own words.
const OVERFLOW: &[&str] = &[
    // OpenAI, DeepSeek, vLLM, OpenRouter, Mistral: "maximum context length"
    "context_length_exceeded",
    "context length",
    "context window",
    // llama.cpp
    "context size",
    "exceed_context",
    // Anthropic
    "context limit",
    "prompt is too long",
    "input is too long",
    // Ollama
    "prompt too long",
    // Groq, Cohere
    "reduce the length of the messages",
    "reduce the length of your prompt",
    // xAI
    "maximum prompt length",
    // vLLM; what is left for the answer is less than nothing
    "maximum model length",
    "must be at least 1, got -",
    // GitHub
    "max_prompt_tokens_exceeded",
    "prompt token count of",
    // SGLang, and others
    "exceeds the maximum length",
    "number of tokens exceeds",
    // Gemini
    "input token count",
    "exceeds the maximum number of tokens",
    // LM Studio, llama.cpp
    "context shift is disabled",
    "context the overflows",
    "context overflow",
    // Alibaba
    "range of input length",
    // Moonshot, Z.ai, MiniMax
    "exceeded model token limit",
    "prompt exceeds max length",
    "more than max tokens allowed",
    // OpenAI, Groq: one request that is more than a minute's allowance never fits.
    "input or output tokens must be reduced",
    "request too large for model",
    // Text Generation Inference
    "inputs` tokens",
];

/// Types that say that the account is used up.
const QUOTA_KINDS: &[&str] = &[
    "insufficient_quota",
    "billing",
    "payment_required",
    "insufficient_credit",
    "arrearage",
    "quota_exceeded",
];

/// Words that say so.
const QUOTA: &[&str] = &[
    // Anthropic
    "credit balance is too low",
    "specified api usage limits",
    // DeepSeek
    "insufficient balance",
    // OpenRouter
    "insufficient credits",
    "requires more credits",
    // xAI
    "used all available credits",
    "monthly spending limit",
    // Groq
    "spend limit",
    // Alibaba
    "account is in good standing",
];

/// Words that say that what was asked or answered is not allowed.
const FILTER: &[&str] = &[
    // Anthropic
    "content filtering policy",
    // Azure
    "content management policy",
    // OpenAI
    "safety system",
    "usage polic",
    // xAI
    "violates usage guidelines",
    // DeepSeek
    "content exists risk",
    // Alibaba
    "inappropriate content",
];

/// Periods of limits that are longer than anybody waits.
const PERIODS: &[&str] = &[
    "daily",
    "weekly",
    "monthly",
    "per day",
    "per week",
    "per month",
    "per-day",
    "per-week",
    "per-month",
    "/day",
    "/week",
    "/month",
    "per_day",
    "per_week",
    "per_month",
];

/// What Gemini says of a minute's allowance as well as of a plan, and OpenAI of a plan only.
const QUOTA_OR_RATE: &str = "exceeded your current quota";

impl Said {
    /// Reads the forms that providers use: `{"error": {"type", "code", "message"}}`, `{"error": "…"}`, the inner object
    /// alone, `{"message": "…"}`, `{"detail": …}`, and any of these as the one element of a list.
    pub(super) fn from_json(value: &Value, now: Now) -> Self {
        let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
        let inner = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        let text = |field: &str| inner.get(field).and_then(Value::as_str).unwrap_or_default();
        // An event's own type says nothing.
        let kind = Some(text("type")).filter(|kind| *kind != "error").unwrap_or_default();
        let mut kinds = vec![kind, text("code"), text("status")];
        let details = inner.get("details").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        kinds.extend(details.iter().filter_map(|detail| detail.get("reason").and_then(Value::as_str)));
        kinds.retain(|kind| !kind.is_empty());
        kinds.dedup();
        let message = match inner {
            Value::String(message) => message.clone(),
            _ => match (text("message"), inner.get("detail")) {
                ("", Some(Value::String(detail))) => detail.clone(),
                ("", Some(Value::Array(faults))) => listed(faults),
                ("", Some(detail)) => detail.to_string(),
                (message, _) => message.to_owned(),
            },
        };
        Self {
            kind: one_line(&kinds.join(" ")),
            message: one_line(&message),
            parameter: one_line(text("param")),
            status: inner.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()),
            retry_after_ms: details
                .iter()
                .find_map(retry_delay_ms)
                .or_else(|| field_wait_ms(inner, now))
                .or_else(|| told_wait_ms(&message, now)),
            daily: details.iter().any(is_daily),
            structured: true,
        }
    }

    pub(super) fn from_body(body: &[u8], now: Now) -> Self {
        let value = serde_json::from_slice::<Value>(body).or_else(|_| {
            // Cut at the limit, or several values: the beginning may still be one.
            serde_json::Deserializer::from_slice(body).into_iter().next().unwrap_or(Ok(Value::Null))
        });
        match value {
            Ok(value @ (Value::Object(_) | Value::String(_) | Value::Array(_))) => {
                let said = Self::from_json(&value, now);
                if said.message.is_empty() && said.kind.is_empty() {
                    Self { message: one_line(&value.to_string()), ..said }
                } else {
                    said
                }
            }
            _ => {
                let message = describe_body(body);
                Self { retry_after_ms: told_wait_ms(&message, now), message, ..Self::default() }
            }
        }
    }

    /// Message and parameter.
    pub(super) fn words(&self) -> Box<ProviderWords> {
        Box::new(ProviderWords { message: self.message.clone(), parameter: self.parameter.clone() })
    }

    /// Type and message as one text.
    pub(super) fn text(&self) -> String {
        let text = match (self.kind.as_str(), self.message.as_str()) {
            ("", "") => "no more was said".to_owned(),
            (text, "") | ("", text) => text.to_owned(),
            (kind, message) => format!("{message} ({kind})"),
        };
        // Most messages name it themselves.
        if self.parameter.is_empty() || text.contains(&self.parameter) {
            return text;
        }
        format!("{text} [{}]", self.parameter)
    }

    fn mentions(&self, words: &[&str]) -> bool {
        let text = format!("{} {}", self.kind, self.message).to_ascii_lowercase();
        words.iter().any(|word| text.contains(word))
    }

    /// Whether it speaks of a model, other than in the path of an address (`/v1/models/x`).
    fn names_a_model(&self) -> bool {
        let text = format!("{} {}", self.kind, self.message).to_ascii_lowercase();
        text.match_indices("model").any(|(at, _)| !text[..at].ends_with('/'))
    }

    fn is_kind(&self, kinds: &[&str]) -> bool {
        let kind = self.kind.to_ascii_lowercase();
        kinds.iter().any(|known| kind.contains(known))
    }

    fn is_quota(&self, status: Option<u16>) -> bool {
        let rate = self.is_kind(&["resource_exhausted"]) && !self.daily;
        status == Some(402)
            || self.is_kind(QUOTA_KINDS)
            || self.mentions(QUOTA)
            || self.daily
            || (!rate && self.mentions(&[QUOTA_OR_RATE]))
    }

    /// The class of an error that asks to wait this long, in milliseconds. A limit of a day or more whose end is not told is a
    /// quota that is used up: it is not over in a moment.
    pub(super) fn code_with(&self, status: Option<u16>, wait: Option<u64>) -> Option<ErrorCode> {
        let code = self.code(status);
        let is_long = || self.mentions(&["limit", "quota"]) && self.mentions(PERIODS);
        match code {
            Some(ErrorCode::RateLimited) if wait.is_none() && is_long() => Some(ErrorCode::QuotaExceeded),
            code => code,
        }
    }

    /// The class of error, as far as it can be told.
    fn code(&self, status: Option<u16>) -> Option<ErrorCode> {
        let by_kind = [
            (
                ErrorCode::RateLimited,
                &["overloaded", "rate_limit", "too_many_requests", "resource_exhausted"][..],
            ),
            (
                ErrorCode::Authentication,
                &["authentication", "permission", "invalid_api_key", "api_key_invalid", "unauthorized"],
            ),
            (ErrorCode::UnknownModel, &["model_not_found", "model_decommissioned"]),
            (
                ErrorCode::ContentFilter,
                &["content_filter", "content_policy", "data_inspection_failed", "datainspectionfailed"],
            ),
            (
                ErrorCode::BadRequest,
                &[
                    "invalid_request",
                    "invalid_argument",
                    "invalid_prompt",
                    "not_found",
                    "request_too_large",
                    "badrequest",
                ],
            ),
            (
                ErrorCode::ProviderUnavailable,
                &["api_error", "server_error", "internal", "timeout", "unavailable", "deadline_exceeded"],
            ),
        ];
        if self.is_quota(status) {
            return Some(ErrorCode::QuotaExceeded);
        }
        if matches!(status, None | Some(400 | 413 | 422 | 429 | 500)) && self.mentions(OVERFLOW) {
            return Some(ErrorCode::ContextOverflow);
        }
        if matches!(status, None | Some(400 | 403 | 422 | 451)) && self.mentions(FILTER) {
            return Some(ErrorCode::ContentFilter);
        }
        let by_status = match status {
            Some(401 | 403) => Some(ErrorCode::Authentication),
            Some(404) if self.structured && self.names_a_model() => Some(ErrorCode::UnknownModel),
            Some(425 | 429 | 529) => Some(ErrorCode::RateLimited),
            Some(408 | 500..=599) => Some(ErrorCode::ProviderUnavailable),
            Some(300..=499) => Some(ErrorCode::BadRequest),
            _ => None,
        };
        let by_kind = by_kind.iter().find(|(_, kinds)| self.is_kind(kinds)).map(|(code, _)| *code);
        match (by_status, by_kind) {
            // Not every 403 is about the key: a project may lack a model, a region a feature.
            (
                Some(ErrorCode::Authentication),
                Some(
                    code @ (ErrorCode::UnknownModel
                    | ErrorCode::ContentFilter
                    | ErrorCode::RateLimited
                    | ErrorCode::BadRequest),
                ),
            ) if status == Some(403) => Some(code),
            // A general refusal may be told apart by its type; the other classes of status are clear.
            (
                Some(ErrorCode::BadRequest),
                Some(code @ (ErrorCode::UnknownModel | ErrorCode::ContentFilter | ErrorCode::Authentication)),
            ) => Some(code),
            (Some(code), _) => Some(code),
            (None, code) => code,
        }
    }
}

/// The faults that a validator found: where, and what. Its `input` repeats the request, which is not for messages.
fn listed(faults: &[Value]) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    let fault = |fault: &Value| {
        let place = fault.get("loc").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let place = place.iter().map(text).collect::<Vec<_>>().join(".");
        let what = fault.get("msg").or(Some(fault)).map(text).unwrap_or_default();
        if place.is_empty() { what } else { format!("{place}: {what}") }
    };
    let faults: Vec<String> = faults.iter().map(fault).filter(|fault| !fault.is_empty()).collect();
    if faults.is_empty() { "the request is not valid".to_owned() } else { faults.join("; ") }
}

/// Google's way to say how long to wait: `{"retryDelay": "34.5s"}`.
fn retry_delay_ms(detail: &Value) -> Option<u64> {
    let seconds = detail.get("retryDelay")?.as_str()?.strip_suffix('s')?;
    let seconds = seconds.parse::<f64>().ok().filter(|seconds| *seconds >= 0.0)?;
    Some((seconds * 1000.0).ceil() as u64)
}

/// Whether one of Google's violations is about a day.
fn is_daily(detail: &Value) -> bool {
    let violations = detail.get("violations").and_then(Value::as_array);
    violations.into_iter().flatten().any(|violation| {
        violation.get("quotaId").and_then(Value::as_str).is_some_and(|quota| quota.contains("PerDay"))
    })
}
