//! How OpenAI says no, in both of its formats.

use serde_json::{Value, json};

use super::{About, Rejected};
use crate::fault::Rejection;
use crate::rules::Refusal;

/// Which of the formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    Chat,
    Responses,
}

/// The context of the models that a conversation is too long for, in tokens.
const CONTEXT: u64 = 128_000;
const NO_QUOTA: &str = "You exceeded your current quota, please check your plan and billing details. For more \
    information on this error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.";
const OVERLOADED: &str = "The server is currently overloaded with other requests. Sorry about that! You can retry your \
    request, or contact us through our help center at help.openai.com if the error persists.";
const BAD_KEY: &str = "Incorrect API key provided: sk-mock********key. You can find your API key at \
    https://platform.openai.com/account/api-keys.";

/// An error.
pub(super) fn value(kind: &str, code: Option<&str>, param: Option<&str>, message: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}

/// The body of an error with this status.
pub(super) fn error(status: u16, message: &str) -> Vec<u8> {
    let (kind, code) = match status {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        404 => ("invalid_request_error", Some("model_not_found")),
        429 => ("requests", Some("rate_limit_exceeded")),
        500..=599 => ("server_error", None),
        _ => ("invalid_request_error", None),
    };
    value(kind, code, None, message).to_string().into_bytes()
}

/// The body of a refusal.
pub(super) fn refuse(refusal: &Refusal) -> Vec<u8> {
    let Refusal { message, param, code, .. } = refusal;
    value("invalid_request_error", *code, param.as_deref(), message).to_string().into_bytes()
}

/// What it says no with.
pub(super) fn reject(rejection: Rejection, about: &About, api: Api) -> Rejected {
    const INVALID: &str = "invalid_request_error";
    let model = &about.model;
    let (status, kind, code, param, message) = match rejection {
        Rejection::ContextOverflow => {
            let (param, message) = match api {
                Api::Chat => ("messages", context_overflow(about.input.all_input())),
                Api::Responses => {
                    let words = "Your input exceeds the context window of this model. Please adjust your input and \
                        try again.";
                    ("input", words.to_owned())
                }
            };
            (400, INVALID, Some("context_length_exceeded"), Some(param), message)
        }
        Rejection::QuotaUsedUp => {
            (429, "insufficient_quota", Some("insufficient_quota"), None, NO_QUOTA.to_owned())
        }
        Rejection::RateLimited => {
            let words = format!(
                "Rate limit reached for {model} in organization org-mock on tokens per min (TPM): Limit 30000, Used \
                 29000, Requested 4000. Please try again in 6s. Visit https://platform.openai.com/account/rate-limits \
                 to learn more."
            );
            (429, "tokens", Some("rate_limit_exceeded"), None, words)
        }
        Rejection::Overloaded => (503, "server_error", None, None, OVERLOADED.to_owned()),
        Rejection::BadKey => (401, INVALID, Some("invalid_api_key"), None, BAD_KEY.to_owned()),
        Rejection::Forbidden => {
            let words = format!("Project `proj_mock` does not have access to model `{model}`");
            (403, INVALID, Some("model_not_found"), None, words)
        }
        Rejection::NoSuchModel => {
            let words = format!("The model `{model}` does not exist or you do not have access to it.");
            (404, INVALID, Some("model_not_found"), None, words)
        }
        Rejection::TooLarge => {
            let words = "Maximum content size limit (26214400) exceeded (26214401 bytes read)";
            (413, "server_error", None, None, words.to_owned())
        }
        Rejection::ContentFilter => {
            let words = "Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please \
                try again with a different prompt.";
            (400, INVALID, Some("invalid_prompt"), None, words.to_owned())
        }
    };
    let body = value(kind, code, param, &message).to_string().into_bytes();
    Rejected { status, body, is_stream: false }
}

fn context_overflow(tokens: u64) -> String {
    let tokens = tokens.max(CONTEXT) + 1;
    format!(
        "This model's maximum context length is {CONTEXT} tokens. However, your messages resulted in {tokens} tokens. \
         Please reduce the length of the messages."
    )
}
