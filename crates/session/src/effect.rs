//! What goes into the turn machine, and what comes out of it.

use playhouse_policy::{Verdict, Want};
use playhouse_protocol::changes::{ChangeSet, FileBefore};
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::consent::{ConsentAnswer, Risk};
use playhouse_protocol::delegate::Delegation;
use playhouse_protocol::error::ErrorInfo;
use playhouse_protocol::id::{AttemptId, ConsentId, IdGenerator, MessageId, PartId, QuestionId};
use playhouse_protocol::ledger::{Purpose, Tier};
use playhouse_protocol::message::{Attachment, CallInput, CallOutcome, FinishReason};
use playhouse_protocol::question::{Question, QuestionAnswer, Todo};
use playhouse_protocol::record::{
    ArtifactCaptured, Effect as CallEffect, Entry, PromptAdmitted, Recovery, SessionChanged, SettledTool,
    StepPart,
};
use playhouse_protocol::revert::{RevertReport, SessionReverted};
use playhouse_protocol::tool::ToolOrigin;
use playhouse_protocol::usage::{PriceList, Usage};
use playhouse_protocol::{
    CallAnswer, CommandError, Labels, ModelRef, Reply, Timestamp, WallsInForce, WhenBusy,
};
use serde_json::{Map, Value};

use crate::context::Fit;

/// Names a caller that waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Prices and input limits of models.
pub trait ModelDirectory: Send + Sync {
    /// What `model` costs now.
    fn prices(&self, model: &ModelRef) -> PriceList;

    /// How the platform charges for `model`.
    fn tier(&self, _model: &ModelRef) -> Tier {
        Tier::default()
    }

    /// The labels of usage among the `metadata` of a session. Fast, and without I/O.
    fn labels(&self, _metadata: &Map<String, Value>) -> Labels {
        Labels::new()
    }

    /// The version of the catalogue that the prices of `model` are from; `None` for prices that the operator wrote.
    fn catalogue(&self, _model: &ModelRef) -> Option<String> {
        None
    }

    /// The most input tokens that a request to `model` may have, where that is known. Fast, and without I/O.
    fn window(&self, _model: &ModelRef) -> Option<u64> {
        None
    }

    /// The most input tokens that a request to `model` shall have: its window without what is kept for the answer. `None` where
    /// the window is not known: then room is made only when a provider says that a request is too long. Fast, and without I/O.
    fn room(&self, _model: &ModelRef) -> Option<u64> {
        None
    }

    /// The words of a provider that refused this tool, and for which model; `None` if no provider refused it.
    fn tool_refusal(&self, _tool: &ToolSpec) -> Option<String> {
        None
    }
}

/// Facts from outside that a decision needs. Looking one up is pure.
pub trait Facts {
    /// Prices and sizes of models.
    fn models(&self) -> &dyn ModelDirectory;

    /// A first guess at the tokens of what precedes the conversation, the system prompt and the tools, until these are made
    /// and measured ([`Input::SystemMade`]).
    fn overhead_tokens(&self, agent: &str, model: &ModelRef) -> u64;

    /// Where the tool comes from that a call reaches; `None` for a native one, and where there is none.
    fn origin(&self, _tool: &str, _input: &CallInput) -> Option<ToolOrigin> {
        None
    }

    /// The agent and the model that are asked for a title or a summary in a session that uses `model`; `None` where nobody is
    /// asked.
    fn aside(&self, _purpose: Purpose, _model: &ModelRef) -> Option<(String, ModelRef)> {
        None
    }
}

/// What comes with every input: the time, the maker of ids, and facts.
pub struct Stamp<'a> {
    /// Wall-clock time of the input.
    pub now: Timestamp,
    /// Makes the ids of what the input brings about.
    pub ids: &'a mut IdGenerator,
    /// Facts that the session does not hold itself.
    pub facts: &'a dyn Facts,
    /// A random number from 0 to 1, by which waits are spread.
    pub jitter: f64,
}

/// A prompt with all its choices made: agent, model and step limit are known to exist.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPrompt {
    /// As it is admitted. Whether it steers follows from `when_busy`.
    pub prompt: PromptAdmitted,
    /// What happens when the session is busy.
    pub when_busy: WhenBusy,
}

/// A call that a model asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct ProposedCall {
    /// The call.
    pub id: PartId,
    /// The provider's id, unique within the step.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub input: CallInput,
}

/// A complete answer.
#[derive(Clone, Debug, PartialEq)]
pub struct StepAnswer {
    /// Text, reasoning and the places of the calls.
    pub parts: Vec<StepPart>,
    /// The calls, in order.
    pub calls: Vec<ProposedCall>,
    /// Why it ended.
    pub finish: FinishReason,
    /// What the provider said it used.
    pub usage: Option<Usage>,
    /// The model that says it answered.
    pub answered_by: Option<String>,
}

/// An attempt without a complete answer.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedAttempt {
    /// Why.
    pub error: ErrorInfo,
    /// Text and reasoning that had come (calls are left out: none of them is complete).
    pub parts: Vec<StepPart>,
    /// What the provider had said it used.
    pub usage: Option<Usage>,
    /// Bytes of the answer that had come.
    pub streamed_bytes: u64,
    /// Whether the provider may have used tokens.
    pub may_have_used: bool,
    /// Whether the provider refused an optional parameter that the next request goes without: it is made at once.
    pub adjusted: bool,
}

impl FailedAttempt {
    /// An attempt of whose answer nothing came.
    pub fn without_answer(error: ErrorInfo, may_have_used: bool) -> Self {
        Self { error, parts: Vec::new(), usage: None, streamed_bytes: 0, may_have_used, adjusted: false }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum AttemptReport {
    /// With a complete answer.
    Finished(StepAnswer),
    /// Without one. Also what a cancelled attempt reports.
    Failed(FailedAttempt),
}

/// A call that its tool has understood, and policy has judged.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedCall {
    /// What it may change.
    pub effect: CallEffect,
    /// What to do after a crash.
    pub recovery: Recovery,
    /// May it run?
    pub verdict: Verdict,
    /// How dangerous its tool is.
    pub risk: Risk,
    /// What a person sees before agreeing to it.
    pub preview: String,
    /// Whether the preview is a unified diff.
    pub diff: bool,
    /// What holds it if it runs, for a tool that starts programs.
    pub walls: Option<WallsInForce>,
    /// The work that it hands over to another session.
    pub delegation: Option<Delegation>,
    /// The files that it is about to change, as they are.
    pub before: Vec<FileBefore>,
    /// Whether all that it changes will be known, although its tool does not say it.
    pub tracked: bool,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub struct CallReport {
    /// How.
    pub outcome: CallOutcome,
    /// One line for people.
    pub title: String,
    /// What the model reads.
    pub output: String,
    /// Facts for clients.
    pub metadata: Map<String, Value>,
    /// Images and documents for the model.
    pub attachments: Vec<Attachment>,
    /// What the session's list of things to do becomes; `None` leaves it as it is.
    pub todos: Option<Vec<Todo>>,
    /// What it captured.
    pub artifact: Option<Box<ArtifactCaptured>>,
    /// What it changed in files.
    pub changed: Option<Box<ChangeSet>>,
}

impl CallReport {
    /// A result that is only text.
    pub fn text(outcome: CallOutcome, output: impl Into<String>) -> Self {
        Self {
            outcome,
            title: String::new(),
            output: output.into(),
            metadata: Map::new(),
            attachments: Vec::new(),
            todos: None,
            artifact: None,
            changed: None,
        }
    }
}

/// A time limit that the machine asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deadline {
    /// The next attempt of this step, or of a summary, is due.
    Retry {
        /// The step, or what stands for one.
        step: MessageId,
    },
    /// What was cancelled has had time enough to end by itself.
    AbortGrace {
        /// Which time that is in the life of the machine.
        number: u32,
    },
    /// Nobody answered a request for consent in time.
    Consent {
        /// The request.
        consent: ConsentId,
    },
    /// Nobody answered a request with questions in time.
    Question {
        /// The request.
        question: QuestionId,
    },
    /// The platform gave no result of a call in time.
    Offer {
        /// The call.
        call: PartId,
    },
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A prompt.
    Prompt(Ticket, NewPrompt),
    /// End the running turn and the queued ones.
    Abort(Ticket),
    /// End this turn, whether it runs or waits.
    AbortTurn(Ticket, MessageId),
    /// An answer to a request for consent: one that people give. What "always" allows is durable before this comes.
    Answer(Ticket, ConsentId, ConsentAnswer),
    /// Rules that changed meanwhile allow what this request asks for; with the request to which "always" was said, where
    /// it was that.
    Cover(ConsentId, Option<ConsentId>),
    /// People are to be asked for something that is about no call. It waits for an answer as long as the session is there, and nothing
    /// waits for it.
    AskAhead(ConsentAhead),
    /// What such a request asks for is not there any more.
    WithdrawAhead(ConsentId),
    /// Answers to a request with questions; none when nobody will answer.
    AnswerQuestion(Ticket, QuestionId, Option<Vec<Vec<String>>>),
    /// The result of a call that was offered to the platform.
    AnswerCall(Ticket, PartId, CallAnswer),
    /// Change title, agent, model, rules or what clients keep with the session.
    Change(Ticket, SessionChanged),
    /// Let a summary stand for the conversation so far, written by this model, or by that of the session.
    Compact(Ticket, Option<ModelRef>),
    /// Remove the session: abort what runs, then say that it is gone.
    Delete(Ticket),
    /// The session was just read from its log: go on with what is unfinished.
    Resume,
    /// The engine stops: an answer under way is given up, and nothing new begins. What is unfinished is left to whoever reads the log
    /// next.
    Stop,
    /// An attempt ended.
    Attempt(AttemptId, AttemptReport),
    /// The system prompt and the tools of an agent and a model were made, and a request is about to leave with them.
    SystemMade(SystemMade),
    /// A call was prepared, or could not be (with what the model shall read).
    Prepared(PartId, Result<PreparedCall, CallReport>),
    /// A running call asks the people behind the session.
    Ask(PartId, Vec<Question>),
    /// A running call is offered to the platform, which has so many milliseconds for its result.
    Offer(PartId, u64),
    /// A call ended.
    Call(PartId, CallReport),
    /// A call changed files after it was given its result: it was killed, or goes on in the background.
    Changed(PartId, ChangeSet),
    /// A call that was given its result before can change nothing any more, and what it changed was told.
    AllTold(PartId),
    /// Changes of files were taken back, or done again, while nothing ran.
    Reverted(Ticket, SessionReverted, Box<RevertReport>),
    /// A deadline passed.
    Deadline(Deadline),
}

/// What people are asked that is about no call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsentAhead {
    /// What is asked for, in the place of a tool's name.
    pub tool: String,
    /// Why it asks.
    pub reason: String,
    /// What would be done.
    pub preview: String,
    /// What people would agree to.
    pub want: Want,
}

/// An attempt to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptOrder {
    /// The attempt.
    pub attempt: AttemptId,
    /// The step.
    pub step: MessageId,
    /// The turn.
    pub turn: MessageId,
    /// The agent.
    pub agent: String,
    /// The model.
    pub model: ModelRef,
    /// Whether nothing may be called in it.
    pub last: bool,
    /// How many of the session's messages the request holds.
    pub messages: usize,
    /// Input tokens of the request, as they are estimated.
    pub estimated_input: u64,
    /// Where nobody has measured yet what precedes the conversation: what it may have. A request that does not fit is not sent,
    /// and its attempt fails with [`ErrorCode::PromptTooLong`](playhouse_protocol::ErrorCode).
    pub fit: Option<Fit>,
}

/// A system prompt and tools, as requests begin with them.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemMade {
    /// The agent.
    pub agent: String,
    /// The model.
    pub model: ModelRef,
    /// The system prompt; `None` where it was settled before.
    pub text: Option<String>,
    /// The tools that the model is shown, where one is not native or one is left out that its agent may use, and that is not
    /// settled yet.
    pub tools: Option<Vec<SettledTool>>,
    /// What the system prompt says of their use, where they are told.
    pub instructions: Option<String>,
    /// Bytes of the system prompt and of what the model is told of its tools.
    pub bytes: u64,
}

/// An attempt to start beside the steps of turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsideOrder {
    /// The attempt.
    pub attempt: AttemptId,
    /// What it is for.
    pub purpose: Purpose,
    /// The turn that it is counted in.
    pub turn: MessageId,
    /// Stands for a step in its row.
    pub step: MessageId,
    /// Whether that turn runs, so that its budget is used.
    pub in_turn: bool,
    /// The agent.
    pub agent: String,
    /// The model.
    pub model: ModelRef,
    /// All that is asked.
    pub text: String,
    /// The most tokens of the answer that are of use.
    pub most_output: u64,
    /// Input tokens of the request, as they are estimated.
    pub estimated_input: u64,
}

/// Something to be done, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Append these records, in one append. The machine's own state has them already.
    Append(Vec<Entry>),
    /// Answer a caller. After a flush.
    Reply(Ticket, Result<Reply, CommandError>),
    /// Start an attempt. Its request leaves after a flush; it may be made before.
    StartAttempt(AttemptOrder),
    /// Start an attempt beside the steps of turns. After a flush.
    StartAside(AsideOrder),
    /// Let a tool read its arguments.
    Prepare {
        /// The call.
        call: PartId,
        /// The tool.
        tool: String,
        /// The arguments.
        input: CallInput,
        /// Whether the model goes round in circles with it: the same call, or the same two or three, again and again.
        looping: bool,
    },
    /// Let a tool do what it has prepared.
    Execute {
        /// The call.
        call: PartId,
        /// Whether its intent must be flushed first: it has effects.
        after_flush: bool,
    },
    /// Tell a running call how its request with questions ended.
    TellAnswer(PartId, QuestionAnswer),
    /// Tell a running call what the platform said.
    TellResult(PartId, CallAnswer),
    /// End an attempt; it reports what it has.
    CancelAttempt(AttemptId),
    /// End a call; it reports what it has.
    CancelCall(PartId),
    /// End an attempt that did not end when it was cancelled; its report is not awaited.
    KillAttempt(AttemptId),
    /// End a call that did not end when it was cancelled; its report is not awaited.
    KillCall(PartId),
    /// Come back with [`Input::Deadline`] after so many milliseconds.
    Arm(Deadline, u64),
    /// The same, for the next attempt of a step, or of a summary for which a turn waits; clients are told.
    RetryLater {
        /// The step, or what stands for one.
        step: MessageId,
        /// Number of the next attempt.
        attempt_number: u32,
        /// Milliseconds from now.
        wait_ms: u64,
        /// Why the last one failed.
        error: ErrorInfo,
    },
    /// The session's last record is in the log: remove it. After a flush.
    Remove(Ticket),
}

impl Effect {
    /// Whether everything appended before it must be flushed before it can be seen from outside. This is the whole list of what waits
    /// for a flush.
    pub fn waits_for_flush(&self) -> bool {
        match self {
            Self::Reply(..) | Self::StartAttempt(_) | Self::StartAside(_) | Self::Remove(_) => true,
            Self::Execute { after_flush, .. } => *after_flush,
            Self::Append(_)
            | Self::Prepare { .. }
            | Self::TellAnswer(..)
            | Self::TellResult(..)
            | Self::CancelAttempt(_)
            | Self::CancelCall(_)
            | Self::KillAttempt(_)
            | Self::KillCall(_)
            | Self::Arm(..)
            | Self::RetryLater { .. } => false,
        }
    }
}
