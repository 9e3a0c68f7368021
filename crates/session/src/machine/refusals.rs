//! Refusals that the history itself causes and whose words do not say so: they would come again with every prompt.
//!
//! A request that is clearly larger than any that was accepted is taken for too long; where none was, one that is large for
//! the model. A file that no accepted request had is
//! left out, where the words are about files. Where the turn before ended with the same words, less is asked for: then
//! there is nothing else that a new prompt could change.

use playhouse_protocol::id::PartId;
use playhouse_protocol::message::{CallState, FinishReason, Part};
use playhouse_protocol::usage::Tokens;
use playhouse_protocol::{ErrorCode, ErrorInfo, Message};

use super::Machine;
use crate::context::Sizes;
use crate::effect::Stamp;
use crate::fold::OpenAttempt;

/// Statuses of requests that a server does not take as they are.
const REFUSED: [u16; 4] = [400, 413, 415, 422];
/// The status that says that a request is too large.
const TOO_LARGE: u16 = 413;
/// A conversation of fewer bytes than this fits every model.
const LEAST_OVERFLOW: u64 = 32 * 1024;
/// Words of refusals that are about a file.
const OF_FILES: [&str; 13] = [
    "image",
    "images",
    "picture",
    "pictures",
    "pixels",
    "document",
    "documents",
    "pdf",
    "media",
    "attachment",
    "attachments",
    "base64",
    "multimodal",
];

impl Machine {
    /// The same error, as one of a request that was too long where it seems to be one. That is tried once until an answer
    /// comes, and once in each turn.
    pub(super) fn unsaid_overflow(
        &self,
        error: ErrorInfo,
        open: &OpenAttempt,
        stamp: &Stamp<'_>,
    ) -> ErrorInfo {
        let refused =
            error.code == ErrorCode::BadRequest && error.status.is_some_and(|it| REFUSED.contains(&it));
        let step = self.session.turn.as_ref().and_then(|turn| turn.step.as_ref());
        let is_first = step.is_some_and(|step| step.number == 1 && step.failures == 0);
        let may_help = self.session.context.in_a_row == 0 || is_first;
        let bytes = open.conversation_bytes;
        if !refused || !may_help || bytes < LEAST_OVERFLOW {
            return error;
        }
        let sizes = self.session.context.sizes(&self.model());
        // Of a model that accepted nothing yet it is not known what it takes: any setting of it may be wrong. Once it is tried
        // with less, where the request is large for what it is said to take.
        let is_large = || {
            let tokens = self.gauge(stamp).tokens(bytes);
            stamp.facts.models().room(&self.model()).is_some_and(|room| tokens > room / 2)
        };
        let is_clear = sizes.accepted > 0 && bytes > sizes.accepted / 8 * 9
            || sizes.refused.is_some_and(|refused| bytes >= refused / 8 * 7)
            || (sizes == Sizes::default() && is_large());
        let is_known = sizes != Sizes::default();
        let is_told = error.status == Some(TOO_LARGE) || (is_known && self.came_before(&error));
        if is_clear || (is_told && bytes > sizes.accepted) {
            return ErrorInfo { code: ErrorCode::ContextOverflow, ..error };
        }
        error
    }

    /// The files that a refusal seems to be about: those that no accepted request had. Empty where it is not about files.
    pub(super) fn refused_files(&self, error: &ErrorInfo) -> Vec<PartId> {
        let refused = error.code == ErrorCode::BadRequest
            && error.status.is_some_and(|status| REFUSED.contains(&status));
        let said = error.said.as_ref().map(|said| said.message.to_lowercase()).unwrap_or_default();
        let mut words = said.split(|character: char| !character.is_alphanumeric());
        let is_about_files = words.any(|word| OF_FILES.contains(&word))
            || error.status == Some(TOO_LARGE)
            || self.came_before(error);
        if !refused || !is_about_files {
            return Vec::new();
        }
        let (session, model) = (&self.session, self.model());
        let mut files = Vec::new();
        for message in session.messages.iter().skip(session.context.begins_at()).rev() {
            match message {
                Message::User(message) => {
                    files.extend(message.parts.iter().filter_map(|part| match part {
                        Part::File { id, file } if !file.is_text() => Some(*id),
                        _ => None,
                    }));
                }
                Message::Assistant(message) => {
                    files.extend(message.parts.iter().filter_map(|part| match part {
                        Part::Call(call) => match &call.state {
                            CallState::Settled(result) if !result.attachments.is_empty() => Some(call.id),
                            _ => None,
                        },
                        _ => None,
                    }));
                    // Its request was accepted, with all that stands before it.
                    let is_answer =
                        !matches!(message.finish, None | Some(FinishReason::Failed | FinishReason::Aborted));
                    if is_answer && message.model == model && message.tokens != Tokens::default() {
                        break;
                    }
                }
            }
        }
        files.retain(|file| !session.context.is_refused(&model, *file));
        files
    }

    /// Whether the turn before failed with the same words.
    fn came_before(&self, error: &ErrorInfo) -> bool {
        let turn = self.session.turn.as_ref().map(|turn| turn.id);
        let mut before = self.session.messages.iter().rev().filter_map(|message| match message {
            Message::Assistant(message) if Some(message.parent) != turn => Some(message),
            _ => None,
        });
        let failed = before.next().and_then(|message| message.error.as_ref());
        failed.is_some_and(|failed| failed.status == error.status && failed.message == error.message)
    }
}
