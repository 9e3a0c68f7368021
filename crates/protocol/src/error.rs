//! Errors as data: what went wrong, for records, events, replies and exit codes.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::day::Day;
use crate::limit::Limit;
use crate::model::ModelRef;

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
    /// A budget of the turn, the session or the tenant does not cover the next step: nothing was sent.
    Budget,
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
    /// What must be in a request does not fit the model's context window, whatever else is left out: nothing was sent.
    PromptTooLong,
    /// The provider's content filter or the model refused.
    ContentFilter,
    /// The answer reached the output limit.
    OutputLimit,
    /// The model gave no answer that fits the schema, however often it was asked.
    InvalidOutput,
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
            Self::Budget => "budget",
            Self::ProviderUnavailable => "provider_unavailable",
            Self::Connection => "connection",
            Self::Misconfigured => "misconfigured",
            Self::NoAnswer => "no_answer",
            Self::StreamCut => "stream_cut",
            Self::BadAnswer => "bad_answer",
            Self::EmptyAnswer => "empty_answer",
            Self::ContextOverflow => "context_overflow",
            Self::PromptTooLong => "prompt_too_long",
            Self::ContentFilter => "content_filter",
            Self::OutputLimit => "output_limit",
            Self::InvalidOutput => "invalid_output",
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
    /// What went wrong and where, for the operator: never a secret, but perhaps an address, the name of a variable, or what a
    /// provider said. [`ErrorInfo::for_tenant`] is without that.
    pub message: String,
    /// The HTTP status of the provider's answer, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the provider asks to wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The model that was asked, where one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// When the model ended, where it is known that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Box<EndOfLife>>,
    /// The limit that is in the way, where one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Box<Limit>>,
    /// The provider's own words, while the error is being handled. In no record.
    #[serde(skip)]
    pub said: Option<Box<ProviderWords>>,
    /// Whether what came is a page for people, so that no model was asked. In no record.
    #[serde(skip)]
    pub is_page: bool,
}

/// The words in which a provider refused a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderWords {
    /// The message, on one line.
    pub message: String,
    /// The parameter of the request that it names beside the message; empty where it names none.
    pub parameter: String,
}

/// The end of a model: from then on its provider does not serve it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndOfLife {
    /// The first day without it.
    pub on: Day,
    /// The model that its provider names to be used then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<String>,
}

impl fmt::Display for EndOfLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.on)?;
        self.successor.as_ref().map_or(Ok(()), |successor| write!(f, ": use {successor}"))
    }
}

impl ErrorInfo {
    /// An error of class `code`.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            status: None,
            retry_after_ms: None,
            model: None,
            ended: None,
            limit: None,
            said: None,
            is_page: false,
        }
    }

    /// The same error for a tenant who is not the operator: what failed and what to do, and neither how the provider is reached
    /// nor what it said. Its message is made from the rest, so that those of older logs say no more.
    #[must_use]
    pub fn for_tenant(&self) -> Self {
        Self { message: self.told(), ..self.clone() }
    }

    fn told(&self) -> String {
        let provider = self.model.as_ref().map_or("the provider", |model| model.provider.as_str());
        let model = self.model.as_ref().map_or_else(|| "the model".to_owned(), ModelRef::to_string);
        let status = self.status.map_or_else(String::new, |status| format!(" ({status})"));
        match (self.code, self.status) {
            // The engine's own words.
            (
                ErrorCode::Budget
                | ErrorCode::OutputLimit
                | ErrorCode::InvalidOutput
                | ErrorCode::PromptTooLong,
                _,
            ) => self.message.clone(),
            (ErrorCode::Authentication, _) => {
                format!("{provider} accepts no key of this server{status}: ask the operator")
            }
            (ErrorCode::UnknownModel, _) if self.ended.is_some() => {
                let ended = self.ended.as_ref().map(|ended| ended.to_string()).unwrap_or_default();
                format!("{model} ended on {ended}")
            }
            (ErrorCode::UnknownModel, _) => {
                format!("{model} cannot be used here{status}: choose another model, or ask the operator")
            }
            (ErrorCode::BadRequest, Some(413)) => {
                format!(
                    "{provider} takes no request of this size for {model}{status}: attach less or shorten the conversation"
                )
            }
            (ErrorCode::BadRequest, _) => {
                format!("{provider} refused the request for {model}{status}: ask the operator")
            }
            (ErrorCode::RateLimited, _) => {
                format!("{provider} asks for less traffic{status}: try again later")
            }
            (ErrorCode::QuotaExceeded, _) => {
                format!("{provider} does not serve this server's account any more{status}: ask the operator")
            }
            (ErrorCode::ProviderUnavailable, _) => {
                format!("{provider} failed for {model}{status}: try again later, or ask the operator")
            }
            (ErrorCode::Connection, _) => {
                format!("{provider} could not be reached: try again later, or ask the operator")
            }
            (ErrorCode::Misconfigured, _) => {
                format!("{provider} cannot be spoken to as it is configured: ask the operator")
            }
            (ErrorCode::NoAnswer, _) => {
                format!("{provider} gave no answer for {model}: try again later, or ask the operator")
            }
            (ErrorCode::StreamCut, _) => {
                format!("the answer of {model} broke off: try again later, or ask the operator")
            }
            (ErrorCode::BadAnswer, _) => {
                format!("the answer of {model} cannot be read{status}: try again later, or ask the operator")
            }
            (ErrorCode::EmptyAnswer, _) => {
                format!("{model} gave neither text nor a call: try again later, or ask the operator")
            }
            (ErrorCode::ContextOverflow, _) => {
                format!("{model} cannot take this much{status}: the conversation must become shorter")
            }
            (ErrorCode::ContentFilter, _) => format!(
                "{model} or its provider's content filter refused to answer{status}: change what is asked, or use another model"
            ),
            (ErrorCode::Internal, _) => "a part of the engine failed: ask the operator".to_owned(),
            (ErrorCode::Store, _) => "the store failed: ask the operator".to_owned(),
            (ErrorCode::Parked, _) => "the session cannot go on: ask the operator".to_owned(),
        }
    }

    /// The same error of a request to this model.
    #[must_use]
    pub fn of_model(mut self, model: &ModelRef) -> Self {
        self.model = Some(model.clone());
        self
    }

    /// The same error, where a provider does not know a model that has ended: then it says so.
    #[must_use]
    pub fn of_ended(mut self, ended: Option<EndOfLife>) -> Self {
        if self.code == ErrorCode::UnknownModel
            && let Some(ended) = ended
        {
            self.message = format!("{}; the model ended on {ended}", self.message);
            self.ended = Some(Box::new(ended));
        }
        self
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
        for code in [ErrorCode::Authentication, ErrorCode::Budget, ErrorCode::OutputLimit, ErrorCode::Parked]
        {
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
            assert_eq!(serde_json::from_value::<ErrorCode>(code.name().into()).unwrap(), code);
        }
    }

    #[test]
    fn a_tenant_is_told_what_failed_and_not_where() {
        let raw =
            "acme has nothing at http://10.1.2.3/v1 (404): bad thing at backend; check the key in ACME_KEY";
        for code in [
            ErrorCode::Authentication,
            ErrorCode::UnknownModel,
            ErrorCode::BadRequest,
            ErrorCode::RateLimited,
            ErrorCode::QuotaExceeded,
            ErrorCode::ProviderUnavailable,
            ErrorCode::Connection,
            ErrorCode::Misconfigured,
            ErrorCode::NoAnswer,
            ErrorCode::StreamCut,
            ErrorCode::BadAnswer,
            ErrorCode::EmptyAnswer,
            ErrorCode::ContextOverflow,
            ErrorCode::ContentFilter,
            ErrorCode::Internal,
            ErrorCode::Store,
            ErrorCode::Parked,
        ] {
            let error = ErrorInfo::new(code, raw).with_status(404);
            for error in [error.clone(), error.of_model(&ModelRef::new("acme", "m"))] {
                let told = error.for_tenant();
                assert_eq!((told.code, told.status, &told.model), (code, Some(404), &error.model));
                for hidden in ["http", "10.1.2.3", "backend", "ACME_KEY"] {
                    assert!(!told.message.contains(hidden), "{}", told.message);
                }
                assert_eq!(told.for_tenant(), told);
            }
        }
        let refused = ErrorInfo::new(ErrorCode::BadRequest, raw).with_status(400);
        let told = refused.of_model(&ModelRef::new("acme", "m")).for_tenant();
        assert_eq!(told.message, "acme refused the request for acme/m (400): ask the operator");
        let budget = ErrorInfo::new(ErrorCode::Budget, "the budget of the turn is used up");
        assert_eq!(budget.for_tenant(), budget, "the engine's own words stay");
    }
}
