//! Work that one session hands over to another, a sub-session.

use serde::{Deserialize, Serialize};

use crate::attribution::Attribution;
use crate::consent::PermissionRule;
use crate::id::{MessageId, SessionId};
use crate::model::ModelRef;

/// To whom a call hands work over. It stands in the call's intent, so that a call that runs again finds what it had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegate {
    /// The sub-session: one that the call makes, or one that goes on.
    pub session: SessionId,
    /// The prompt there.
    pub prompt: MessageId,
    /// The prompt by which this session is told how it ended, where the call does not wait for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<MessageId>,
}

/// Which work a call hands over, before it has a [`Delegate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delegation {
    /// The sub-session that goes on with it; `None` for a new one.
    pub session: Option<SessionId>,
    /// Whether the call does not wait for the end.
    pub background: bool,
}

/// What whoever handed work over may do itself: nothing is allowed to the work that is not allowed to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mandate {
    /// The rules of the agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agent: Vec<PermissionRule>,
    /// The session's own rules, which are stronger.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub session: Vec<PermissionRule>,
    /// Rules of the agent that can only make things stricter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restrictions: Vec<PermissionRule>,
    /// Whether nothing in the workspace may be changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The tools that the agent may use; `None` for all that there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

impl Mandate {
    /// Whether whoever handed work over may use this tool.
    pub fn allows(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|name| name == tool))
    }
}

/// The tools that everybody may use who gave one of these mandates, sorted; `None` for all that there are.
pub fn tools_of(mandates: &[Mandate]) -> Option<Vec<&str>> {
    let first = mandates.iter().find_map(|mandate| mandate.tools.as_ref())?;
    let is_common = |tool: &&str| mandates.iter().all(|mandate| mandate.allows(tool));
    let mut common: Vec<&str> = first.iter().map(String::as_str).filter(is_common).collect();
    common.sort_unstable();
    Some(common)
}

/// Where a prompt comes from that another session sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {
    /// The session that sent it.
    pub from: SessionId,
    /// The agent whose call it was.
    pub agent: String,
    /// The model that made the call.
    pub model: ModelRef,
    /// What the sessions above may do, the outermost first. All of them bind the prompt's turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mandates: Vec<Mandate>,
    /// The prompt by which the session that sent it is told how its turn ended, where nothing waits for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<MessageId>,
    /// Whom the usage of the turn is attributed to that made the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<Box<Attribution>>,
}
