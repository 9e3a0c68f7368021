//! What can be asked of a session, and what it answers. The same values travel in process and over a socket.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::ErrorInfo;
use crate::id::{ConsentId, IdError, MessageId, QuestionId, SessionId};
use crate::message::{Attachment, Message};
use crate::model::ModelRef;
use crate::question::{QuestionAsked, Todo};
use crate::record::{ConsentAnswer, Seq, SessionChanged};
use crate::summary::SessionSummary;

/// What a new session is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSession {
    /// Who pays, and whose data it is.
    pub tenant: String,
    /// The directory that it works in.
    pub workspace: String,
    /// A title; absent for one made from the first prompt.
    #[serde(default)]
    pub title: Option<String>,
    /// The agent of prompts that name none; absent for the engine's default.
    #[serde(default)]
    pub agent: Option<String>,
    /// The model of prompts that name none; absent for the agent's or the engine's default.
    #[serde(default)]
    pub model: Option<ModelRef>,
}

/// What happens to a prompt for a session that is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenBusy {
    /// It waits until the running turn and those queued before it are over.
    #[default]
    Queue,
    /// It is refused with [`CommandError::Busy`].
    Reject,
    /// The running turn and the queued ones are aborted, and it runs.
    Interrupt,
    /// The running turn reads it between two steps; if no step does, it becomes the next turn.
    Steer,
}

/// A prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// An id made by the client; the same id again is the same prompt, admitted once.
    #[serde(default)]
    pub message: Option<MessageId>,
    /// The text.
    pub text: String,
    /// Files that were stored as blobs before.
    #[serde(default)]
    pub files: Vec<Attachment>,
    /// The agent; absent for the session's.
    #[serde(default)]
    pub agent: Option<String>,
    /// The model; absent for the session's.
    #[serde(default)]
    pub model: Option<ModelRef>,
    /// The most steps of this turn; absent for the agent's limit.
    #[serde(default)]
    pub steps: Option<u32>,
    /// What happens when the session is busy.
    #[serde(default)]
    pub when_busy: WhenBusy,
}

impl Prompt {
    /// A prompt of text only, with the session's agent and model.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// What can be asked of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", content = "data", rename_all = "snake_case")]
pub enum Command {
    /// Run a turn. Answered with [`Reply::Accepted`] when it is durable.
    Prompt(Prompt),
    /// End the running turn and the queued ones. Answered with [`Reply::Aborted`].
    Abort,
    /// Answer a request for consent. Answered with [`Reply::Done`] when it is durable.
    Answer {
        /// The request.
        consent: ConsentId,
        /// The answer.
        answer: ConsentAnswer,
    },
    /// Answer a request with questions. Answered with [`Reply::Done`] when it is durable.
    AnswerQuestion {
        /// The request.
        question: QuestionId,
        /// One list for each question, as in [`QuestionAnswer::Answered`](crate::question::QuestionAnswer); absent to
        /// say that nobody will answer.
        answers: Option<Vec<Vec<String>>>,
    },
    /// Change title, agent or model. Answered with [`Reply::Done`] when it is durable.
    Change(SessionChanged),
    /// Read the session as it stands. Answered with [`Reply::Snapshot`].
    Snapshot,
}

/// A prompt that was admitted, durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The prompt's id, which also names its turn.
    pub turn: MessageId,
    /// Whether the same prompt had been admitted before.
    pub repeated: bool,
}

/// A session as it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Facts and totals.
    pub summary: SessionSummary,
    /// All messages.
    pub messages: Vec<Message>,
    /// The session's list of things to do.
    #[serde(default)]
    pub todos: Vec<Todo>,
    /// The requests with questions that wait for an answer.
    #[serde(default)]
    pub questions: Vec<QuestionAsked>,
}

/// What a session answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", content = "data", rename_all = "snake_case")]
pub enum Reply {
    /// The prompt was admitted.
    Accepted(Accepted),
    /// How many turns (running and queued) were ended.
    Aborted {
        /// The count.
        turns: u32,
    },
    /// It is done.
    Done,
    /// The session as it stands.
    Snapshot(Box<Snapshot>),
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[serde(tag = "error", content = "data", rename_all = "snake_case")]
pub enum CommandError {
    /// There is no such session.
    #[error("there is no session {0}; `playhouse sessions list` shows those that exist")]
    NotFound(SessionId),
    /// The session is busy, and the prompt said `reject`.
    #[error("session is busy")]
    Busy,
    /// The session cannot go on.
    #[error("session {session} is parked: {reason}")]
    Parked {
        /// The session.
        session: SessionId,
        /// Why.
        reason: String,
    },
    /// Something that was named is not known, or does not fit.
    #[error("{0}")]
    Invalid(String),
    /// The request for consent is settled already, or was never made.
    #[error("there is no open request for consent {0}: it was answered or withdrawn already")]
    NoSuchConsent(ConsentId),
    /// The request with questions is settled already, or was never made.
    #[error("there is no open request {0} with questions: it was answered or withdrawn already")]
    NoSuchQuestion(QuestionId),
    /// The store failed; the text says so.
    #[error("{0}")]
    Store(String),
    /// The engine stops, or the session did not answer in time: the command was not accepted and may be sent again.
    #[error("not accepted: {0}")]
    NotAccepted(String),
    /// Too much work is waiting.
    #[error("overloaded: {0}")]
    Overloaded(String),
}

impl From<IdError> for CommandError {
    fn from(error: IdError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// A turn that is over, for a caller that waited for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// How it ended, and what it used.
    pub ended: crate::record::TurnEnded,
    /// Place of the record that says so.
    pub seq: Seq,
}

impl From<ErrorInfo> for CommandError {
    fn from(error: ErrorInfo) -> Self {
        Self::Invalid(error.message)
    }
}
