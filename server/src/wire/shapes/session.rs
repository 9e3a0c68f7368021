//! Sessions, and what hangs on them beside messages.

use playhouse_protocol::question::Question;
use playhouse_protocol::{ConsentId, MessageId, PartId, PermissionRule, QuestionId, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::message::CacheTokens;

use playhouse_session::FileChange;

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// A name that is easy to say.
    pub(crate) slug: String,
    #[serde(rename = "projectID")]
    pub(crate) project: String,
    pub(crate) directory: String,
    /// The directory from the project's worktree on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    #[serde(rename = "parentID", default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<SessionId>,
    /// What its turns changed in files; absent where they changed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<SessionChanges>,
    /// US dollars.
    pub(crate) cost: f64,
    pub(crate) tokens: SessionTokens,
    pub(crate) title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<SessionModel>,
    pub(crate) version: String,
    pub(crate) time: SessionTime,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) metadata: Map<String, Value>,
    /// From where on its messages are taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revert: Option<SessionRevert>,
    /// Its own rules; absent where they are not known without reading its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) permission: Option<Vec<PermissionRule>>,
}

/// From where on messages are taken back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionRevert {
    #[serde(rename = "messageID")]
    pub(crate) message: MessageId,
    #[serde(rename = "partID", default, skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<PartId>,
}

/// Lines and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionChanges {
    pub(crate) additions: u64,
    pub(crate) deletions: u64,
    pub(crate) files: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionTokens {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) reasoning: u64,
    pub(crate) cache: CacheTokens,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionModel {
    pub(crate) id: String,
    #[serde(rename = "providerID")]
    pub(crate) provider: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) variant: Option<String>,
}

/// A session among those of all directories.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct GlobalSession {
    #[serde(flatten)]
    pub(crate) session: Session,
    pub(crate) project: ProjectSummary,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ProjectSummary {
    pub(crate) id: String,
    pub(crate) worktree: String,
}

/// Milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionTime {
    pub(crate) created: u64,
    pub(crate) updated: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) archived: Option<u64>,
}

/// What a session does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Status {
    Idle,
    Busy,
    /// An attempt failed, or waits for its provider.
    Retry {
        attempt: u32,
        message: String,
        /// When it goes on, in milliseconds since the epoch.
        next: u64,
    },
}

/// The call that a request belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolOf {
    #[serde(rename = "messageID")]
    pub(crate) message: MessageId,
    #[serde(rename = "callID")]
    pub(crate) call: String,
}

/// A request for consent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermissionRequest {
    pub(crate) id: ConsentId,
    #[serde(rename = "sessionID")]
    pub(crate) session: SessionId,
    pub(crate) permission: String,
    pub(crate) patterns: Vec<String>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) always: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<ToolOf>,
}

/// A request with questions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuestionRequest {
    pub(crate) id: QuestionId,
    #[serde(rename = "sessionID")]
    pub(crate) session: SessionId,
    pub(crate) questions: Vec<Question>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<ToolOf>,
}

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileDiff {
    pub(crate) file: String,
    /// Absent where it is not known, or too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) patch: Option<String>,
    pub(crate) additions: u64,
    pub(crate) deletions: u64,
    pub(crate) status: String,
}

impl From<FileChange> for FileDiff {
    fn from(change: FileChange) -> Self {
        Self {
            file: change.path,
            patch: Some(change.patch).filter(|patch| !patch.is_empty()),
            additions: change.additions,
            deletions: change.deletions,
            status: change.status.to_owned(),
        }
    }
}
