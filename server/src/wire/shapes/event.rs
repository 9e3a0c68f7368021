//! Events.

use playhouse_protocol::changes::ChangeKind;
use playhouse_protocol::question::Todo;
use playhouse_protocol::{ConsentId, MessageId, PartId, QuestionId, SessionId};
use serde::{Deserialize, Serialize};

use super::message::{Message, WireError};
use super::part::Part;
use super::session::{FileDiff, PermissionRequest, QuestionRequest, Session, Status};

/// An event with its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Envelope<E = WireEvent> {
    pub(crate) id: String,
    #[serde(flatten)]
    pub(crate) event: E,
}

/// How a file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WatcherEvent {
    Add,
    Change,
    Unlink,
}

impl From<ChangeKind> for WatcherEvent {
    fn from(kind: ChangeKind) -> Self {
        match kind {
            ChangeKind::Added => Self::Add,
            ChangeKind::Modified => Self::Change,
            ChangeKind::Deleted => Self::Unlink,
        }
    }
}

/// An event of the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "properties")]
pub(crate) enum WireEvent {
    #[serde(rename = "server.connected")]
    Connected {},
    #[serde(rename = "server.heartbeat")]
    Heartbeat {},
    /// What a client knows of a directory is out of date: it reads everything again.
    #[serde(rename = "server.instance.disposed")]
    Disposed { directory: String },
    /// A language server started or ended.
    #[serde(rename = "lsp.updated")]
    LspUpdated {},
    /// A session changed a file.
    #[serde(rename = "file.edited")]
    FileEdited { file: String },
    /// A file changed, whoever did it.
    #[serde(rename = "file.watcher.updated")]
    FileWatcherUpdated { file: String, event: WatcherEvent },
    #[serde(rename = "session.created")]
    SessionCreated {
        #[serde(rename = "sessionID")]
        session: SessionId,
        info: Box<Session>,
    },
    #[serde(rename = "session.updated")]
    SessionUpdated {
        #[serde(rename = "sessionID")]
        session: SessionId,
        info: Box<Session>,
    },
    #[serde(rename = "session.deleted")]
    SessionDeleted {
        #[serde(rename = "sessionID")]
        session: SessionId,
        info: Box<Session>,
    },
    #[serde(rename = "session.status")]
    SessionStatus {
        #[serde(rename = "sessionID")]
        session: SessionId,
        status: Status,
    },
    #[serde(rename = "session.idle")]
    SessionIdle {
        #[serde(rename = "sessionID")]
        session: SessionId,
    },
    #[serde(rename = "session.compacted")]
    SessionCompacted {
        #[serde(rename = "sessionID")]
        session: SessionId,
    },
    #[serde(rename = "session.error")]
    SessionError {
        #[serde(rename = "sessionID")]
        session: SessionId,
        error: WireError,
    },
    #[serde(rename = "session.diff")]
    SessionDiff {
        #[serde(rename = "sessionID")]
        session: SessionId,
        diff: Vec<FileDiff>,
    },
    #[serde(rename = "message.updated")]
    MessageUpdated {
        #[serde(rename = "sessionID")]
        session: SessionId,
        info: Box<Message>,
    },
    #[serde(rename = "message.removed")]
    MessageRemoved {
        #[serde(rename = "sessionID")]
        session: SessionId,
        #[serde(rename = "messageID")]
        message: MessageId,
    },
    #[serde(rename = "message.part.updated")]
    PartUpdated {
        #[serde(rename = "sessionID")]
        session: SessionId,
        part: Box<Part>,
        /// Milliseconds since the epoch.
        time: u64,
    },
    #[serde(rename = "message.part.removed")]
    PartRemoved {
        #[serde(rename = "sessionID")]
        session: SessionId,
        #[serde(rename = "messageID")]
        message: MessageId,
        #[serde(rename = "partID")]
        part: PartId,
    },
    #[serde(rename = "message.part.delta")]
    PartDelta {
        #[serde(rename = "sessionID")]
        session: SessionId,
        #[serde(rename = "messageID")]
        message: MessageId,
        #[serde(rename = "partID")]
        part: PartId,
        field: String,
        // Last, so that the deltas of a part can be made one by joining their ends.
        delta: String,
    },
    #[serde(rename = "permission.asked")]
    PermissionAsked(Box<PermissionRequest>),
    #[serde(rename = "permission.replied")]
    PermissionReplied {
        #[serde(rename = "sessionID")]
        session: SessionId,
        #[serde(rename = "requestID")]
        request: ConsentId,
        reply: String,
    },
    #[serde(rename = "question.asked")]
    QuestionAsked(Box<QuestionRequest>),
    #[serde(rename = "question.replied")]
    QuestionReplied {
        #[serde(rename = "sessionID")]
        session: SessionId,
        #[serde(rename = "requestID")]
        request: QuestionId,
        answers: Vec<Vec<String>>,
    },
    #[serde(rename = "question.rejected")]
    QuestionRejected {
        #[serde(rename = "sessionID")]
        session: SessionId,
        #[serde(rename = "requestID")]
        request: QuestionId,
    },
    #[serde(rename = "todo.updated")]
    TodoUpdated {
        #[serde(rename = "sessionID")]
        session: SessionId,
        todos: Vec<Todo>,
    },
}
