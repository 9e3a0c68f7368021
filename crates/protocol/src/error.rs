//! Errors as data: what went wrong, for records, events, replies and exit codes.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A class of errors that a program can tell apart. New ones are added; old ones keep their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The provider's key is missing or was refused (401, 403).
    Authentication,
    /// The provider or the model is not known.
    UnknownModel,
    /// The provider refused the request itself (400, 404, 413, 422).
    BadRequest,
    /// The provider asks for less traffic (429, 529).
    RateLimited,
    /// The account's quota or credit is used up: waiting does not help (402, some 429).
    QuotaExceeded,
    /// The provider failed (5xx).
    ProviderUnavailable,
    /// The provider could not be reached: nothing was sent.
    Connection,
    /// The provider cannot be spoken to as it is configured: what stands for its address is none, it does not speak TLS
    /// there, or its certificate is not trusted.
    Misconfigured,
    /// The request was sent, and no answer began: the provider may have worked on it.
    NoAnswer,
    /// The answer stopped before it was complete.
    StreamCut,
    /// The answer is not what the dialect says (HTML, malformed JSON, an error event without more).
    BadAnswer,
    /// The answer was complete and held nothing.
    EmptyAnswer,
    /// The request does not fit the model's context window.
    ContextOverflow,
    /// The provider's content filter or the model refused.
    ContentFilter,
    /// The answer reached the output limit.
    OutputLimit,
    /// A part of the engine failed: a bug, with the panic's message.
    Internal,
    /// The store could not be read or written.
    Store,
    /// The session cannot go on: its log is damaged or it crashed too often.
    Parked,
}

impl ErrorCode {
    /// The class as it is written in records, events and labels of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::UnknownModel => "unknown_model",
            Self::BadRequest => "bad_request",
            Self::RateLimited => "rate_limited",
            Self::QuotaExceeded => "quota_exceeded",
            Self::ProviderUnavailable => "provider_unavailable",
            Self::Connection => "connection",
            Self::Misconfigured => "misconfigured",
            Self::NoAnswer => "no_answer",
            Self::StreamCut => "stream_cut",
            Self::BadAnswer => "bad_answer",
            Self::EmptyAnswer => "empty_answer",
            Self::ContextOverflow => "context_overflow",
            Self::ContentFilter => "content_filter",
            Self::OutputLimit => "output_limit",
            Self::Internal => "internal",
            Self::Store => "store",
            Self::Parked => "parked",
        }
    }

    /// Whether the same request may succeed when it is sent again.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::RateLimited
                | Self::ProviderUnavailable
                | Self::Connection
                | Self::NoAnswer
                | Self::StreamCut
                | Self::BadAnswer
                | Self::EmptyAnswer
        )
    }
}

/// An error as data: a class, what happened, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{message}")]
pub struct ErrorInfo {
    /// The class.
    pub code: ErrorCode,
    /// What went wrong and where, for people: never a secret.
    pub message: String,
    /// The HTTP status of the provider's answer, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the provider asks to wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl ErrorInfo {
    /// An error of class `code`.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), status: None, retry_after_ms: None }
    }

    /// The same error with the HTTP status it came with.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_the_name_that_is_stored() {
        for code in
            [ErrorCode::Authentication, ErrorCode::NoAnswer, ErrorCode::OutputLimit, ErrorCode::Parked]
        {
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
            assert_eq!(serde_json::from_value::<ErrorCode>(code.name().into()).unwrap(), code);
        }
    }
}
