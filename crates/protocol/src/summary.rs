//! The projection of a log that lists, totals and the index of unfinished sessions are made from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::{MessageId, SessionId};
use crate::ledger::OpenAttempt;
use crate::message::Changed;
use crate::model::ModelRef;
use crate::record::{Entry, Forked, Record, Seq, SessionCreated};
use crate::revert::{RevertPoint, SessionReverted};
use crate::time::Timestamp;
use crate::usage::Totals;

/// What a session is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Nothing.
    #[default]
    Idle,
    /// A turn runs or waits.
    Busy,
    /// It is being removed.
    Deleted,
}

/// Facts and totals of a session. A function of its log: see [`SessionSummary::apply`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// The session.
    pub id: SessionId,
    /// Who pays, and whose data it is.
    pub tenant: String,
    /// The directory that it works in.
    pub workspace: String,
    /// A title for people.
    pub title: String,
    /// The agent of prompts that name none.
    pub agent: String,
    /// The model of prompts that name none.
    pub model: ModelRef,
    /// The session that started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// The session at the top of its tree, for one that another started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<SessionId>,
    /// The step whose call started it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_step: Option<MessageId>,
    /// The session that this one is a fork of. It may be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<SessionId>,
    /// When it was created.
    pub created: Timestamp,
    /// When its last record was made.
    pub updated: Timestamp,
    /// What it does.
    pub state: SessionState,
    /// Turns that run or wait.
    pub open_turns: u32,
    /// The turn that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<MessageId>,
    /// Turns that are over.
    pub turns: u32,
    /// Attempts and what they used, by model.
    #[serde(default)]
    pub usage: BTreeMap<String, Totals>,
    /// The attempts that have not ended, by id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub open_attempts: BTreeMap<String, OpenAttempt>,
    /// Place of the last record.
    pub head: Seq,
    /// What its clients keep with it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// When it was put aside, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<Timestamp>,
    /// From where on its messages are taken back, until the next prompt drops them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted: Option<RevertPoint>,
    /// What its turns changed in files, up to the last one that is over.
    #[serde(default, skip_serializing_if = "Changed::is_nothing")]
    pub changed: Changed,
}

/// The title of a session that has none yet.
pub const UNTITLED: &str = "New session";

impl SessionSummary {
    /// The summary of a log whose first entry is `first`, or of a fork whose first entry of its own that is; `None` when it
    /// is neither [`Record::SessionCreated`] nor [`Record::Forked`].
    pub fn begin(first: &Entry) -> Option<Self> {
        let blank = |id, tenant: &str, workspace: &str, title: &str, agent: &str, model: &ModelRef| Self {
            id,
            tenant: tenant.to_owned(),
            workspace: workspace.to_owned(),
            title: title.to_owned(),
            agent: agent.to_owned(),
            model: model.clone(),
            parent: None,
            root: None,
            parent_step: None,
            forked_from: None,
            created: first.at,
            updated: first.at,
            state: SessionState::Idle,
            open_turns: 0,
            turn: None,
            turns: 0,
            usage: BTreeMap::new(),
            open_attempts: BTreeMap::new(),
            head: first.seq,
            metadata: Map::new(),
            archived: None,
            reverted: None,
            changed: Changed::default(),
        };
        match &first.record {
            Record::SessionCreated(SessionCreated {
                session,
                tenant,
                workspace,
                title,
                agent,
                model,
                parent,
                root,
                parent_step,
                system: _,
                metadata,
                ..
            }) => {
                let summary = blank(*session, tenant, workspace, title, agent, model);
                // Older records do not say which session is at the top.
                let (root, metadata) = (root.or(*parent), metadata.clone());
                Some(Self { parent: *parent, root, parent_step: *parent_step, metadata, ..summary })
            }
            Record::Forked(Forked {
                session,
                from,
                tenant,
                workspace,
                title,
                agent,
                model,
                metadata,
                turn,
                changed,
                ..
            }) => {
                let summary = blank(*session, tenant, workspace, title, agent, model);
                let (open_turns, state) = match turn {
                    Some(_) => (1, SessionState::Busy),
                    None => (0, SessionState::Idle),
                };
                let metadata = metadata.clone();
                let (forked_from, changed) = (Some(*from), *changed);
                Some(Self { forked_from, open_turns, turn: *turn, state, metadata, changed, ..summary })
            }
            _ => None,
        }
    }

    /// What every entry does to it, and all that one does which is not of a turn, an attempt or the session itself.
    pub fn advance(&mut self, seq: Seq, at: Timestamp) {
        self.head = seq;
        self.updated = self.updated.max(at);
    }

    /// Adds the next entry of the log.
    pub fn apply(&mut self, entry: &Entry) {
        self.advance(entry.seq, entry.at);
        match &entry.record {
            // What a session used in the part that it shares was used by the other one.
            Record::Forked(_) => {
                if let Some(forked) = Self::begin(entry) {
                    *self = forked;
                }
            }
            Record::SessionChanged(changed) => {
                if let Some(title) = &changed.title {
                    self.title.clone_from(title);
                }
                if let Some(agent) = &changed.agent {
                    self.agent.clone_from(agent);
                }
                if let Some(model) = &changed.model {
                    self.model.clone_from(model);
                }
                if let Some(metadata) = &changed.metadata {
                    self.metadata.clone_from(metadata);
                }
                if let Some(archived) = changed.archived {
                    self.archived = archived;
                }
            }
            Record::PromptAdmitted(prompt) => {
                self.open_turns += u32::from(!prompt.kind.is_note());
                self.reverted = None;
            }
            Record::AttemptStarted(started) => {
                let open = OpenAttempt::new(started, entry.at);
                self.open_attempts.insert(started.attempt.to_string(), open);
                // A steered prompt that a step reads is part of the turn of that step from here on.
                let steered = u32::try_from(started.steered.len()).unwrap_or(u32::MAX);
                self.open_turns = self.open_turns.saturating_sub(steered);
            }
            Record::AttemptEnded(ended) => {
                let open = self.open_attempts.remove(ended.attempt.as_str());
                if self.open_attempts.is_empty() {
                    // An empty map would keep room for eleven.
                    self.open_attempts = BTreeMap::new();
                }
                if let (Some(open), Some(usage)) = (open, &ended.usage) {
                    self.usage.entry(open.model.to_string()).or_default().add_attempt(usage, ended.cost);
                    for call in &ended.inner {
                        let totals = self.usage.entry(call.model.to_string()).or_default();
                        totals.add_attempt(&call.usage, call.cost);
                    }
                }
            }
            Record::TurnStarted { turn } => self.turn = Some(*turn),
            Record::TurnEnded(ended) => {
                self.turn.take_if(|turn| *turn == ended.turn);
                self.open_turns = self.open_turns.saturating_sub(1);
                self.turns += 1;
                if let Some(changed) = ended.changed {
                    self.changed = changed;
                }
            }
            // What is done again stays undone until that has ended.
            Record::Reverted(SessionReverted { under_way: true, redone: 1.., .. }) => {}
            Record::Reverted(reverted) => {
                let SessionReverted { to, call, .. } = reverted;
                self.reverted = to.map(|message| RevertPoint { message, call: *call });
            }
            Record::Deleted {} => self.state = SessionState::Deleted,
            Record::SessionCreated(_)
            | Record::SystemSettled(_)
            | Record::ToolsSettled(_)
            | Record::StepFinished(_)
            | Record::CallProposed(_)
            | Record::ConsentAsked(_)
            | Record::ConsentSettled { .. }
            | Record::QuestionAsked(_)
            | Record::QuestionSettled { .. }
            | Record::TodosChanged { .. }
            | Record::ArtifactCaptured(_)
            | Record::WorkspaceChanged(_)
            | Record::CallIntended(_)
            | Record::CallOffered(_)
            | Record::CallAnswered { .. }
            | Record::CallSettled { .. }
            | Record::ContextCleared(_)
            | Record::ContextCompacted(_)
            | Record::TurnSummarized(_) => {}
        }
        if self.state != SessionState::Deleted {
            self.state = if self.open_turns > 0 { SessionState::Busy } else { SessionState::Idle };
        }
    }

    /// Whether an engine that starts has something to do about it: a turn that runs or waits, an attempt whose end is not in the
    /// log (one for a title belongs to no open turn), or a removal that was begun.
    pub fn is_unfinished(&self) -> bool {
        self.open_turns > 0 || !self.open_attempts.is_empty() || self.state == SessionState::Deleted
    }

    /// The sum over all models.
    pub fn totals(&self) -> Totals {
        self.usage.values().fold(Totals::default(), |mut sum, totals| {
            sum += *totals;
            sum
        })
    }
}
