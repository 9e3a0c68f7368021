//! What a session is, and what changes of that.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::consent::PermissionRule;
use crate::id::{MessageId, SessionId};
use crate::model::ModelRef;
use crate::time::Timestamp;
use crate::walls::WallsAllowed;

/// See [`super::Record::SessionCreated`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionCreated {
    /// The session's id.
    pub session: SessionId,
    /// Who pays, and whose data it is.
    pub tenant: String,
    /// The directory that it works in: absolute, links resolved.
    pub workspace: String,
    /// A title for people.
    pub title: String,
    /// The agent of prompts that name none.
    pub agent: String,
    /// The model of prompts that name none.
    pub model: ModelRef,
    /// The session that started this one as a sub-session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// The session at the top of its tree, for one that another started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<SessionId>,
    /// The step whose call started it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_step: Option<MessageId>,
    /// The session's own rules, after those of its agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<PermissionRule>,
    /// Whether nobody answers its requests for consent, so that each is declined at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// What the walls around its programs let through; absent for what the operator lets through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walls: Option<WallsAllowed>,
    /// The only tools that there are in it; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// What its system prompts end with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// What its clients keep with it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl SessionCreated {
    /// A session with what every one has: its id, who pays, where it works (absolute, links resolved), and who answers its
    /// prompts. It has no title, no rules and no text of its own, and no other session started it.
    #[must_use]
    pub fn new(
        session: SessionId,
        tenant: impl Into<String>,
        workspace: impl Into<String>,
        agent: impl Into<String>,
        model: ModelRef,
    ) -> Self {
        Self {
            session,
            tenant: tenant.into(),
            workspace: workspace.into(),
            title: String::new(),
            agent: agent.into(),
            model,
            parent: None,
            root: None,
            parent_step: None,
            permissions: Vec::new(),
            unattended: false,
            walls: None,
            tools: None,
            system: None,
            metadata: Map::new(),
        }
    }
}

/// See [`super::Record::SessionChanged`]. Absent fields stay as they were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionChanged {
    /// The new title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The new agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The new model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// The session's own rules from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Vec<PermissionRule>>,
    /// What its clients keep with it from now on: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// When it was put aside; `null` takes it back.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub archived: Option<Option<Timestamp>>,
}

/// Tells what is `null` from what is absent.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
