//! What went wrong.

use playhouse_protocol::output::MOST_TRIES;
use playhouse_protocol::{ErrorCode, ErrorInfo};

use crate::wire::shapes::WireError;

/// The error of a request to `provider`, or of the engine itself.
pub(crate) fn error(error: &ErrorInfo, provider: &str) -> WireError {
    let message = error.message.clone();
    match error.code {
        ErrorCode::Authentication => WireError::ProviderAuthError { provider: provider.to_owned(), message },
        ErrorCode::OutputLimit => WireError::MessageOutputLengthError {},
        ErrorCode::ContextOverflow | ErrorCode::PromptTooLong => WireError::ContextOverflowError { message },
        ErrorCode::ContentFilter => WireError::ContentFilterError { message },
        ErrorCode::InvalidOutput => WireError::StructuredOutputError { message, retries: MOST_TRIES },
        ErrorCode::BadRequest
        | ErrorCode::RateLimited
        | ErrorCode::QuotaExceeded
        | ErrorCode::ProviderUnavailable
        | ErrorCode::Connection
        | ErrorCode::NoAnswer
        | ErrorCode::StreamCut
        | ErrorCode::BadAnswer
        | ErrorCode::EmptyAnswer => {
            WireError::Api { message, status: error.status, retryable: error.code.is_retryable() }
        }
        ErrorCode::UnknownModel
        | ErrorCode::Budget
        | ErrorCode::Misconfigured
        | ErrorCode::Internal
        | ErrorCode::Store
        | ErrorCode::Parked => WireError::UnknownError { message },
    }
}

/// A session that is parked.
pub(super) fn parked(reason: &str) -> WireError {
    WireError::UnknownError { message: format!("the session is parked: {reason}") }
}

/// An abort.
pub(super) fn aborted() -> WireError {
    WireError::MessageAbortedError { message: "the turn was aborted".to_owned() }
}
