//! Typed errors of what providers say when they refuse or fail.

mod body;
mod said;
mod wait;

use std::time::SystemTime;

use playhouse_protocol::ErrorInfo;
use playhouse_protocol::error::ErrorCode;
use serde_json::Value;

use self::said::Said;
use self::wait::retry_after_ms;
use crate::Endpoint;

pub(crate) use self::body::{describe_body, is_page};

/// The error of an event that reports one, in the middle of an answer: a fragment without the provider's name.
pub(crate) fn in_stream(value: &Value) -> ErrorInfo {
    let said = Said::from_json(value, SystemTime::now());
    let nothing = said.kind.is_empty() && said.message.is_empty() && said.status.is_none();
    let code = said.code_with(said.status, said.retry_after_ms).unwrap_or(if nothing {
        ErrorCode::BadAnswer
    } else {
        ErrorCode::ProviderUnavailable
    });
    let mut error =
        ErrorInfo::new(code, format!("an error came in the middle of the answer: {}", said.text()));
    error.status = said.status;
    error.retry_after_ms = said.retry_after_ms;
    error
}

/// The error that a body reports although its status says that all is well; `None` where it reports none.
pub(crate) fn in_good_body(body: &[u8]) -> Option<ErrorInfo> {
    let value: Value = serde_json::from_slice(body).ok()?;
    value.get("error").filter(|error| !error.is_null())?;
    let said = Said::from_json(&value, SystemTime::now());
    let code = said.code_with(said.status, said.retry_after_ms).unwrap_or(ErrorCode::BadAnswer);
    let mut error = ErrorInfo::new(code, format!("the answer is an error: {}", said.text()));
    error.status = said.status;
    error.retry_after_ms = said.retry_after_ms;
    error.said = Some(said.words());
    Some(error)
}

/// An answer whose status is not 2xx.
pub(crate) struct Refusal<'a> {
    /// Who answered.
    pub(crate) endpoint: &'a Endpoint,
    /// The model that was asked for.
    pub(crate) model: &'a str,
    /// Where the request went, without what may be secret in it.
    pub(crate) address: &'a str,
    /// The status.
    pub(crate) status: u16,
    /// Names (lower case) and values.
    pub(crate) headers: &'a [(String, String)],
    /// The beginning of the body.
    pub(crate) body: &'a [u8],
}

impl Refusal<'_> {
    /// The error, which names the provider and what to do. When to try again is for the caller to say, who decides it.
    pub(crate) fn error(&self) -> ErrorInfo {
        let Self { endpoint, model, address, status, .. } = self;
        let provider = &endpoint.provider;
        let now = SystemTime::now();
        let said = Said::from_body(self.body, now);
        // What would come too early for one of them is of no use.
        let is_limited = matches!(status, 429 | 529);
        let wait = retry_after_ms(self.headers, is_limited, now).max(said.retry_after_ms);
        let code = said.code_with(Some(*status), wait).unwrap_or(ErrorCode::BadAnswer);
        let text = said.text();
        let message = match (code, status) {
            (ErrorCode::Authentication, _) => {
                format!("{provider} refused the key ({status}): {text}; {}", endpoint.key_advice())
            }
            (ErrorCode::UnknownModel, 403) => {
                format!(
                    "{provider} does not let this key use the model \"{model}\" (403): {text}; choose another model or another key"
                )
            }
            (ErrorCode::UnknownModel, _) => {
                format!("{provider} does not know the model \"{model}\" ({status}): {text}; check its name")
            }
            (ErrorCode::QuotaExceeded, _) => {
                format!(
                    "{provider} does not serve this account any more ({status}): {text}; check its plan and credit"
                )
            }
            (ErrorCode::ContentFilter, _) => {
                format!(
                    "{provider} filtered the request for {model} ({status}): {text}; change what the conversation says"
                )
            }
            (ErrorCode::ContextOverflow, _) => {
                format!(
                    "{provider} cannot take this much for {model} ({status}): {text}; the conversation must become shorter"
                )
            }
            (ErrorCode::RateLimited, _) => {
                format!("{provider} asks for less traffic ({status}): {text}")
            }
            (ErrorCode::ProviderUnavailable, _) => {
                format!("{provider} failed ({status}): {text}")
            }
            (_, 300..=399) => {
                let target = self.header("location").map_or("another address", one_origin);
                format!(
                    "{provider} redirects {address} to {target} ({status}): redirects are not followed; set its base_url to where it is"
                )
            }
            (_, 404 | 405) => {
                format!(
                    "{provider} has nothing at {address} ({status}): {text}; check its base_url and the model \"{model}\""
                )
            }
            (_, 413) => {
                format!(
                    "{provider} takes no request of this size for {model} ({status}): {text}; attach less or shorten the conversation"
                )
            }
            _ => format!("{provider} refused the request for {model} ({status}): {text}"),
        };
        let mut error = ErrorInfo::new(code, endpoint.without_secrets(message)).with_status(*status);
        error.retry_after_ms = wait;
        error.said = Some(said.words());
        error
    }

    fn header(&self, name: &str) -> Option<&str> {
        header(self.headers, name)
    }
}

/// The value of header `name` (lower case).
pub(crate) fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// An address without what may be secret in it: credentials, query and fragment.
fn one_origin(address: &str) -> &str {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    if address.contains('@') { "another address" } else { address }
}
