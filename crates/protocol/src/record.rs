//! What a session's log holds.
//!
//! A log is a sequence of [`Entry`]s with gapless [`Seq`] numbers from 1. Every kind of record has a version; old
//! versions stay readable for ever, and a kind or version from a newer engine is refused by name.

mod artifact;
mod attempt;
mod session;
mod step_part;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::attribution::Attribution;
use crate::changes::{FileBefore, WorkspaceChanged};
use crate::chat::ToolSpec;
use crate::consent::PermissionRule;
pub use crate::consent::{ConsentAnswer, ConsentAsked};
use crate::delegate::{Delegate, HandedOver};
use crate::error::ErrorInfo;
use crate::id::{AttemptId, ConsentId, MessageId, PartId, QuestionId, SessionId};
use crate::message::{
    CallInput, CallResult, Changed, CompactionKind, FinishReason, Part, PromptKind, ToolSwitches, UserMessage,
};
use crate::model::ModelRef;
use crate::offer::{CallAnswer, CallOffered};
use crate::output::WantedOutput;
use crate::question::{QuestionAnswer, QuestionAsked, Todo};
use crate::revert::SessionReverted;
use crate::time::Timestamp;
use crate::tool::ToolOrigin;
use crate::usage::{Cost, Tokens, Totals};

pub use artifact::{ArtifactCaptured, also_null};
pub use attempt::{AttemptEnded, AttemptOutcome, AttemptStarted, InnerCall};
pub use session::{SessionChanged, SessionCreated};
pub use step_part::StepPart;

/// A place in a session's log: 1 for the first record, gapless. 0 is the place before the first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Seq(pub u64);

impl Seq {
    /// The place before the first record.
    pub const START: Self = Self(0);

    /// The next place.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A record at its place in a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Where it stands.
    pub seq: Seq,
    /// When it was made (never earlier than the record before it).
    pub at: Timestamp,
    /// What happened.
    pub record: Record,
}

/// What happened in a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Record {
    /// The session began. Always the first record.
    #[serde(rename = "session.created")]
    SessionCreated(SessionCreated),
    /// Title, agent, model, rules or what clients keep with the session changed.
    #[serde(rename = "session.changed")]
    SessionChanged(SessionChanged),
    /// The session began as a fork of another one, whose log it shares up to here. Directly behind that prefix, and the
    /// first record of the fork's own. What waited there is no part of the fork; what ran there ends with records behind
    /// this one.
    #[serde(rename = "session.forked")]
    Forked(Forked),
    /// A prompt was accepted; it runs now or waits its turn, unless it is a note: nothing runs for that.
    #[serde(rename = "prompt.admitted")]
    PromptAdmitted(PromptAdmitted),
    /// The turn of an admitted prompt began.
    #[serde(rename = "turn.started")]
    TurnStarted {
        /// The prompt.
        turn: MessageId,
    },
    /// The system prompt of one agent and model is settled: it stays as it is for the whole session, whatever becomes of the
    /// files that it was made of.
    #[serde(rename = "system.settled")]
    SystemSettled(SystemSettled),
    /// The tools that one agent and model are shown are settled until models read older messages differently. Written only where
    /// a tool that the agent may use is left out.
    #[serde(rename = "tools.settled")]
    ToolsSettled(ToolsSettled),
    /// A request is about to leave for a provider.
    #[serde(rename = "attempt.started")]
    AttemptStarted(AttemptStarted),
    /// A request ended, with what it used. One ledger row.
    #[serde(rename = "attempt.ended")]
    AttemptEnded(AttemptEnded),
    /// The answer of a step is complete, or given up.
    #[serde(rename = "step.finished")]
    StepFinished(StepFinished),
    /// The model asked for a call. Stands directly before its step's [`Record::StepFinished`]. In the turn of a command
    /// that a person runs it begins the step, in which no attempt is made.
    #[serde(rename = "call.proposed")]
    CallProposed(CallProposed),
    /// A call waits for a person's consent.
    #[serde(rename = "consent.asked")]
    ConsentAsked(ConsentAsked),
    /// A request for consent is over.
    #[serde(rename = "consent.settled")]
    ConsentSettled {
        /// The request.
        consent: ConsentId,
        /// The answer, or why there is none.
        answer: ConsentAnswer,
    },
    /// A running call asks the people behind the session.
    #[serde(rename = "question.asked")]
    QuestionAsked(QuestionAsked),
    /// A request with questions is over.
    #[serde(rename = "question.settled")]
    QuestionSettled {
        /// The request.
        question: QuestionId,
        /// The answers, or why there are none.
        answer: QuestionAnswer,
    },
    /// The session's list of things to do is now this one. Stands directly before the result of the call that wrote it.
    #[serde(rename = "todos.changed")]
    TodosChanged {
        /// The whole list.
        todos: Vec<Todo>,
    },
    /// A capture tool kept a value. Stands directly before the result of its call, in the same append; where the log was cut
    /// between the two, the call runs again, and the last artifact of a call counts.
    #[serde(rename = "artifact.captured")]
    ArtifactCaptured(ArtifactCaptured),
    /// A call changed files of the workspace. Stands directly before the result of the call; alone for one that was killed or
    /// that goes on in the background.
    #[serde(rename = "workspace.changed")]
    WorkspaceChanged(WorkspaceChanged),
    /// A call is about to run.
    #[serde(rename = "call.intended")]
    CallIntended(CallIntended),
    /// A running call waits for its result from the platform.
    #[serde(rename = "call.offered")]
    CallOffered(CallOffered),
    /// The platform gave the result, or did not in time. What the model reads of it comes with the call's own result.
    #[serde(rename = "call.answered")]
    CallAnswered {
        /// The call.
        call: PartId,
        /// The result.
        answer: CallAnswer,
    },
    /// A call has its result.
    #[serde(rename = "call.settled")]
    CallSettled {
        /// The call.
        call: PartId,
        /// The result.
        result: CallResult,
    },
    /// Outputs of calls make room: models do not read them any more, or not all of them. The history stays as it is.
    #[serde(rename = "context.cleared")]
    ContextCleared(ContextCleared),
    /// Something short stands for the older part of the history, where models are concerned. The history stays as it is.
    #[serde(rename = "context.compacted")]
    ContextCompacted(ContextCompacted),
    /// A turn is over. Every admitted prompt gets exactly one of these, except a note, and one that a running turn took
    /// over (see [`AttemptStarted::steered`]): it ends with that turn.
    #[serde(rename = "turn.ended")]
    TurnEnded(TurnEnded),
    /// A model said in a few sentences what came of a turn that changed files.
    #[serde(rename = "turn.summarized")]
    TurnSummarized(TurnSummarized),
    /// Changes of files were taken back, or what was taken back was done again. The messages stay until the next prompt is
    /// admitted, which drops them.
    #[serde(rename = "session.reverted")]
    Reverted(SessionReverted),
    /// The session is gone: what follows is the removal of its log.
    #[serde(rename = "session.deleted")]
    Deleted {},
}

impl Record {
    /// The version in which a record of this kind is written today.
    pub const fn version(&self) -> u16 {
        1
    }

    /// The record as events tell it: what only requests to models are made of stays in the log.
    #[must_use]
    pub fn into_event(self) -> Self {
        match self {
            Self::SystemSettled(settled) => {
                Self::SystemSettled(SystemSettled { text: String::new(), ..settled })
            }
            Self::ToolsSettled(mut settled) => {
                settled.tools.iter_mut().for_each(|tool| tool.spec = None);
                settled.instructions = None;
                Self::ToolsSettled(settled)
            }
            other => other,
        }
    }

    /// The record's kind, as it stands in the log and in events.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::SessionCreated(_) => "session.created",
            Self::SessionChanged(_) => "session.changed",
            Self::Forked(_) => "session.forked",
            Self::PromptAdmitted(_) => "prompt.admitted",
            Self::TurnStarted { .. } => "turn.started",
            Self::SystemSettled(_) => "system.settled",
            Self::ToolsSettled(_) => "tools.settled",
            Self::AttemptStarted(_) => "attempt.started",
            Self::AttemptEnded(_) => "attempt.ended",
            Self::StepFinished(_) => "step.finished",
            Self::CallProposed(_) => "call.proposed",
            Self::ConsentAsked(_) => "consent.asked",
            Self::ConsentSettled { .. } => "consent.settled",
            Self::QuestionAsked(_) => "question.asked",
            Self::QuestionSettled { .. } => "question.settled",
            Self::TodosChanged { .. } => "todos.changed",
            Self::ArtifactCaptured(_) => "artifact.captured",
            Self::WorkspaceChanged(_) => "workspace.changed",
            Self::CallIntended(_) => "call.intended",
            Self::CallOffered(_) => "call.offered",
            Self::CallAnswered { .. } => "call.answered",
            Self::CallSettled { .. } => "call.settled",
            Self::ContextCleared(_) => "context.cleared",
            Self::ContextCompacted(_) => "context.compacted",
            Self::TurnEnded(_) => "turn.ended",
            Self::TurnSummarized(_) => "turn.summarized",
            Self::Reverted(_) => "session.reverted",
            Self::Deleted {} => "session.deleted",
        }
    }
}

/// See [`Record::Forked`]. It says all that a list needs, so that the prefix need not be read for one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forked {
    /// The fork's id.
    pub session: SessionId,
    /// The session that was forked.
    pub from: SessionId,
    /// The last record that the two share: the one before this.
    pub at: Seq,
    /// Who pays, and whose data it is: as in the prefix.
    pub tenant: String,
    /// The directory that it works in: as in the prefix.
    pub workspace: String,
    /// A title for people.
    pub title: String,
    /// The agent of prompts that name none.
    pub agent: String,
    /// The model of prompts that name none.
    pub model: ModelRef,
    /// The session's own rules from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<PermissionRule>,
    /// What its clients keep with it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// The turn that had begun in the prefix and had not ended there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<MessageId>,
    /// What the turns of the prefix changed in files.
    #[serde(default, skip_serializing_if = "Changed::is_nothing")]
    pub changed: Changed,
}

/// See [`Record::PromptAdmitted`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptAdmitted {
    /// The prompt's id; also names its turn, and is the key by which a repeated prompt is known.
    pub message: MessageId,
    /// Text and files.
    pub parts: Vec<Part>,
    /// The agent that answers.
    pub agent: String,
    /// The model that answers.
    pub model: ModelRef,
    /// The most steps that its turn may take; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_limit: Option<u32>,
    /// Whether a running turn shall read it between two steps instead of leaving it to a turn of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steer: bool,
    /// Whether nobody answers requests for consent in its turn, so that each is declined at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// What follows from it.
    #[serde(default, skip_serializing_if = "PromptKind::is_turn")]
    pub kind: PromptKind,
    /// What the model is told beside it, for its turn only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The tools that are turned off for its turn.
    #[serde(default, skip_serializing_if = "ToolSwitches::is_empty")]
    pub tools: ToolSwitches,
    /// The answer that is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Box<WantedOutput>>,
    /// Where it comes from, if another session sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed: Option<Box<HandedOver>>,
    /// Whom the usage of its turn is attributed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<Box<Attribution>>,
}

impl PromptAdmitted {
    /// One with nothing but what each has.
    pub fn new(
        message: MessageId,
        parts: Vec<Part>,
        agent: impl Into<String>,
        model: ModelRef,
        kind: PromptKind,
    ) -> Self {
        Self {
            message,
            parts,
            agent: agent.into(),
            model,
            step_limit: None,
            steer: false,
            unattended: false,
            kind,
            system: None,
            tools: ToolSwitches::new(),
            output: None,
            handed: None,
            attribution: None,
        }
    }

    /// The message that it is, admitted at this time.
    pub fn to_message(&self, at: Timestamp) -> UserMessage {
        UserMessage {
            id: self.message,
            created: at,
            agent: self.agent.clone(),
            model: self.model.clone(),
            parts: self.parts.clone(),
            withdrawn: false,
            kind: self.kind.clone(),
            system: self.system.clone(),
            tools: self.tools.clone(),
            summary: None,
        }
    }
}

/// See [`Record::SystemSettled`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemSettled {
    /// The agent.
    pub agent: String,
    /// The model.
    pub model: ModelRef,
    /// The text, with which every request begins. Events leave it out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// See [`Record::ToolsSettled`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolsSettled {
    /// The agent.
    pub agent: String,
    /// The model.
    pub model: ModelRef,
    /// The tools, in the order of the request.
    pub tools: Vec<SettledTool>,
    /// What the system prompt says at its end of the use of tools from outside; absent where nothing is said. Events leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// A tool that a model is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SettledTool {
    /// Its name.
    pub name: String,
    /// Where it comes from; absent for a native one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Box<ToolOrigin>>,
    /// What the model is told of it; absent for a native one, of which the engine knows that. Events leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ToolSpec>,
    /// Its part in a search by the provider; absent for a tool that every request has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferral: Option<Deferral>,
}

/// The part of a tool in a search by the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deferral {
    /// Sent as deferred: the model reads it once the provider has found it.
    Deferred,
    /// Sent in the place of the deferred ones where the provider does not search.
    Fallback,
}

/// See [`Record::StepFinished`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepFinished {
    /// The step.
    pub step: MessageId,
    /// Text, reasoning, and the places of the calls, in the model's order.
    pub parts: Vec<StepPart>,
    /// Why the answer ended.
    pub finish: FinishReason,
    /// What went wrong, for a step that failed; a note for people, for one that stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// Tokens of all its attempts.
    pub tokens: Tokens,
    /// Cost of all its attempts; absent when it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// See [`Record::CallProposed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallProposed {
    /// The call.
    pub call: PartId,
    /// The step that asked for it.
    pub step: MessageId,
    /// The provider's id of the call, made unique within the step.
    pub call_id: String,
    /// The tool's name as the model wrote it.
    pub tool: String,
    /// The arguments.
    pub input: CallInput,
    /// Where the tool comes from; absent for a native one, and for one that there is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Box<ToolOrigin>>,
}

impl CallProposed {
    /// A call as a model asks for it.
    pub fn new(
        call: PartId,
        step: MessageId,
        call_id: impl Into<String>,
        tool: impl Into<String>,
        input: CallInput,
    ) -> Self {
        Self { call, step, call_id: call_id.into(), tool: tool.into(), input, source: None }
    }
}

/// What a call may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing.
    None,
    /// The session's own state.
    Session,
    /// The workspace.
    Workspace,
    /// Whatever the one it is handed to changes (a sub-session).
    Delegated,
}

/// What to do with a call that was running when the process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// Run it again.
    Rerun,
    /// Settle it as interrupted: its effects are not known.
    Interrupt,
    /// Attach to what it had started.
    Reattach,
}

/// See [`Record::CallIntended`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallIntended {
    /// The call.
    pub call: PartId,
    /// What it may change.
    pub effect: Effect,
    /// What to do if the process ends before it is settled.
    pub recovery: Recovery,
    /// To whom it hands work over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegate: Option<Delegate>,
    /// The files that it is about to change, where its tool knows them. Their content is durable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<FileBefore>,
    /// Whether all that it changes will be known, although its tool does not say it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tracked: bool,
}

/// See [`Record::ContextCleared`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextCleared {
    /// The calls of whose outputs one line is left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<PartId>,
    /// The calls of whose outputs only the beginning is left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shortened: Vec<ShortenedOutput>,
    /// Attached files that a provider refused, and calls of whose results it refused the files: a line stands for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PartId>,
}

/// An output of which only the beginning is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShortenedOutput {
    /// The call.
    pub call: PartId,
    /// How many bytes of its output are left, at most.
    pub bytes: u64,
}

/// See [`Record::ContextCompacted`].
///
/// What a model reads from here on: `first`, the text, `prompt`, and the messages from `kept_from` on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextCompacted {
    /// How.
    pub how: CompactionKind,
    /// The message that tells clients of it.
    pub message: MessageId,
    /// The answer that it has for clients that want one.
    pub answer: MessageId,
    /// The part that holds the text.
    pub part: PartId,
    /// What models read in place of what is left out.
    pub text: String,
    /// The first message, where it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<MessageId>,
    /// The prompt of the turn under way, where it would be left out otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<MessageId>,
    /// The first message of those that stay at the end; absent when only later ones do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_from: Option<MessageId>,
    /// The attempt that wrote the summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// Whether somebody asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_hand: bool,
    /// Estimated tokens of a request before.
    pub before: u64,
    /// Estimated tokens of a request after it.
    pub after: u64,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TurnOutcome {
    /// The model stopped by itself.
    Completed,
    /// Somebody stopped it.
    Aborted,
    /// The step limit was reached.
    MaxSteps,
    /// It could not go on, for the reason beside it.
    Failed,
}

impl fmt::Display for TurnOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::MaxSteps => "max-steps",
            Self::Failed => "failed",
        })
    }
}

/// See [`Record::TurnEnded`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnEnded {
    /// The turn.
    pub turn: MessageId,
    /// How it ended.
    pub outcome: TurnOutcome,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// Steps that it took.
    pub steps: u32,
    /// Tokens and cost of all its attempts.
    pub totals: Totals,
    /// What all turns of the session so far changed in files, where this one changed some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Changed>,
    /// The answer, where its prompt wanted one with a schema and it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// See [`Record::TurnSummarized`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnSummarized {
    /// The turn.
    pub turn: MessageId,
    /// The attempt that wrote it.
    pub attempt: AttemptId,
    /// What came of the turn.
    pub text: String,
}
