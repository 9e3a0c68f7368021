//! Taking changes of files back: what is asked, what is answered, and what the log keeps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::changes::{ChangeSet, ChangedFolder, TouchedFile};
use crate::id::{MessageId, PartId};

/// What is to be taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevertRequest {
    /// The message or the call before which to go back; absent for the last prompt that is not taken back yet.
    #[serde(default)]
    pub to: Option<String>,
    /// Whether to write nothing, and only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Take back these paths as well where they are ambiguous, as a report names them; of something that is taken back
    /// already, take back only these.
    #[serde(default)]
    pub paths: Vec<String>,
}

/// What a revert goes back to before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevertTarget {
    /// A message.
    Message(MessageId),
    /// A call.
    Call(PartId),
}

impl RevertTarget {
    /// The target with this id; `None` for what is no id of a message or a call.
    pub fn parse(id: &str) -> Option<Self> {
        let message = MessageId::parse(id).ok().map(Self::Message);
        message.or_else(|| PartId::parse(id).ok().map(Self::Call))
    }
}

/// What is to be done again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnrevertRequest {
    /// Number of reverts to take back, the last one first; absent for all.
    #[serde(default)]
    pub steps: Option<u32>,
    /// Whether to write nothing, and only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// What was left alone, or is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftFile {
    /// The path; absent for a call of which nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The call that changed it, where that is all that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<PartId>,
    /// Why.
    pub reason: String,
}

impl LeftFile {
    /// A path that is left alone.
    pub fn path(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: Some(path.into()), call: None, reason: reason.into() }
    }

    /// A call whose changes are not known.
    pub fn call(call: PartId, reason: impl Into<String>) -> Self {
        Self { path: None, call: Some(call), reason: reason.into() }
    }
}

/// What came of a revert or an unrevert, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevertReport {
    /// The first message that is taken back now; absent where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<MessageId>,
    /// The first call of it that is taken back; absent for the whole message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<PartId>,
    /// Whether nothing was written.
    pub dry_run: bool,
    /// The files that were written or removed, from the workspace on.
    pub files: Vec<TouchedFile>,
    /// The folders that were made or removed, or got other permissions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<ChangedFolder>,
    /// Files that were left as they are.
    pub conflicts: Vec<LeftFile>,
    /// Files that were left as they are since nobody can tell who changed them.
    pub ambiguous: Vec<LeftFile>,
    /// Changes that are not known, or whose state before is not kept.
    pub not_covered: Vec<LeftFile>,
}

/// Changes of files that were taken back, or done again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionReverted {
    /// The first message that is taken back from now on; absent where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<MessageId>,
    /// The first call of it that is taken back; absent for the whole message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<PartId>,
    /// Number of reverts that this takes back; 0 for a revert.
    #[serde(default)]
    pub redone: u32,
    /// What was written.
    #[serde(flatten)]
    pub set: ChangeSet,
    /// What was left alone, or is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftFile>,
    /// It is about to be carried out: `set` is what is to be written. The next record tells how that ended, unless the engine
    /// was killed meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub under_way: bool,
    /// Paths of which the writing failed, or that are to be written: the same request again is about these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
}

/// Why a point cannot be gone back to that is taken back already.
pub const TAKEN_BACK: &str =
    "that point is undone already: do it again (redo, unrevert), or name an earlier one";

/// From where on a session's messages are taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevertPoint {
    /// The first message.
    pub message: MessageId,
    /// The first call of it; absent for the whole message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<PartId>,
}
