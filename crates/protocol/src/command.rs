//! What can be asked of a session, and what it answers. The same values travel in process and over a socket.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::attribution::Attribution;
use crate::consent::{ConsentAnswer, ConsentAsked, PermissionRule};
use crate::damage::Damage;
use crate::delegate::HandedOver;
use crate::error::ErrorInfo;
use crate::id::{ConsentId, IdError, MessageId, PartId, QuestionId, SessionId};
use crate::limit::Limit;
use crate::message::{Attachment, Message, TextMarks, ToolSwitches};
use crate::model::ModelRef;
use crate::offer::CallAnswer;
use crate::output::WantedOutput;
use crate::question::{QuestionAnswer, QuestionAsked, Todo};
use crate::record::{Seq, SessionChanged};
use crate::revert::{RevertReport, RevertRequest, UnrevertRequest};
use crate::summary::SessionSummary;
use crate::time::Timestamp;
use crate::upkeep::SessionLoss;
use crate::walls::{WallsAllowed, WallsInForce};

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
    /// The session's own rules, stronger than those of its agent. None allows what the operator denies.
    #[serde(default)]
    pub permissions: Vec<PermissionRule>,
    /// Whether nobody answers its requests for consent: each is declined at once, with a message that says so.
    #[serde(default)]
    pub unattended: bool,
    /// What the walls around its programs let through, as far as the operator's do; absent for all of that.
    #[serde(default)]
    pub walls: Option<WallsAllowed>,
    /// The only tools that there are in it and in its sub-sessions, by name; absent for all. A sub-session has none that the one above
    /// has not.
    #[serde(default)]
    pub tools: Option<Vec<String>>,
    /// The session that starts this one as a sub-session: of the same tenant.
    #[serde(default)]
    pub parent: Option<SessionId>,
    /// What its system prompts end with: at most 32 KB.
    #[serde(default)]
    pub system: Option<String>,
    /// What its clients keep with it: at most 16 KB of JSON.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

impl NewSession {
    /// A session of a tenant in a workspace, with nothing else set.
    pub fn new(tenant: impl Into<String>, workspace: impl Into<String>) -> Self {
        Self {
            tenant: tenant.into(),
            workspace: workspace.into(),
            title: None,
            agent: None,
            model: None,
            permissions: Vec::new(),
            unattended: false,
            walls: None,
            tools: None,
            parent: None,
            system: None,
            metadata: Map::new(),
        }
    }
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

/// A file or a directory of the workspace that a prompt names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMention {
    /// Where it is: relative to the workspace, or absolute inside of it.
    pub path: String,
    /// The first line that is wanted, from 1; absent for the beginning.
    #[serde(default)]
    pub first: Option<u64>,
    /// The last line that is wanted; absent for all that is shown at once.
    #[serde(default)]
    pub last: Option<u64>,
    /// The id that its part of the prompt shall have, if it is attached; absent for a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartId>,
    /// What the client wants back with it; of no matter to anybody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Box<Value>>,
}

/// A text of a prompt that has several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptText {
    /// The id that its part shall have; absent for a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartId>,
    /// The text.
    pub text: String,
    /// How it is to be taken; absent for what somebody wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marks: Option<Box<TextMarks>>,
}

impl PromptText {
    /// Whether somebody wrote it, for a model to read.
    pub fn is_said(&self) -> bool {
        !self.marks.as_ref().is_some_and(|marks| marks.synthetic || marks.ignored)
    }
}

/// A prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// An id made by the client; the same id again is the same prompt, admitted once.
    #[serde(default)]
    pub message: Option<MessageId>,
    /// The text. May be empty where there are `texts`, files or paths.
    pub text: String,
    /// More texts, behind the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<PromptText>,
    /// Files that were stored as blobs before. What they are is told by their content; images are scaled down to what
    /// models take.
    #[serde(default)]
    pub files: Vec<Attachment>,
    /// Files and directories of the workspace that are attached as if the text named them: see [`Prompt::plain`].
    #[serde(default)]
    pub paths: Vec<PathMention>,
    /// Whether an `@` in the text is only text. Else `@PATH`, `@"PATH"` and `@PATH#FIRST-LAST` attach what is there: a file or
    /// a directory's listing, of the workspace only, and as far as rules let the agent read it unasked. All else stays text.
    #[serde(default)]
    pub plain: bool,
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
    /// Whether nobody answers requests for consent while it runs: each is declined at once.
    #[serde(default)]
    pub unattended: bool,
    /// Whether it is only kept: no turn runs for it, and the next request of one has it. What [`WhenBusy`] says of turns
    /// says then when that may be.
    #[serde(default)]
    pub note: bool,
    /// What the model is told beside it, for its turn only. The system prompt stays as it is.
    #[serde(default)]
    pub system: Option<String>,
    /// Tools that are turned off for its turn. None is allowed by it that is not allowed without.
    #[serde(default)]
    pub tools: ToolSwitches,
    /// The answer that is wanted: its turn is completed when the model has given a value that fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Box<WantedOutput>>,
    /// Where it comes from, if another session sends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed: Option<Box<HandedOver>>,
    /// Whom the usage of its turn is attributed to: the key with which it came, or what another session said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<Box<Attribution>>,
}

impl Prompt {
    /// A prompt of text only, with the session's agent and model.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// A command that a person runs by hand, with the tool `bash`.
///
/// It is a turn without a model. Who sends it agrees to it: rules that ask are answered by that, those that deny hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellCommand {
    /// An id made by the client; the same id again is the same command, run once.
    #[serde(default)]
    pub message: Option<MessageId>,
    /// The command, as bash reads it.
    pub command: String,
    /// How long it may run, in milliseconds; absent for the tool's usual time.
    #[serde(default)]
    pub timeout: Option<u64>,
    /// The agent; absent for the session's.
    #[serde(default)]
    pub agent: Option<String>,
    /// The model; absent for the session's.
    #[serde(default)]
    pub model: Option<ModelRef>,
    /// Whose shell block it is; absent for what a person typed. The engine sets it for what it runs itself.
    #[serde(default)]
    pub block: Option<ShellBlock>,
}

/// The command template of which a command is a shell block. Such a one is agreed to as any call of the agent is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellBlock {
    /// The template's name.
    pub template: String,
    /// What happens when the session is busy.
    #[serde(default)]
    pub when_busy: WhenBusy,
    /// Whether nobody answers requests for consent.
    #[serde(default)]
    pub unattended: bool,
}

/// A call of one tool that a client makes: a turn without a model.
///
/// It is judged, agreed to and recorded as any call of the agent is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCommand {
    /// An id made by the client; the same id again is the same call, made once.
    #[serde(default)]
    pub message: Option<MessageId>,
    /// The name of the tool.
    pub tool: String,
    /// The arguments.
    #[serde(default)]
    pub input: Map<String, Value>,
    /// The agent; absent for the session's.
    #[serde(default)]
    pub agent: Option<String>,
    /// What happens when the session is busy. A call steers nothing: it is queued instead.
    #[serde(default)]
    pub when_busy: WhenBusy,
    /// Whether nobody answers requests for consent.
    #[serde(default)]
    pub unattended: bool,
}

/// A command template that is run by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateCommand {
    /// The template's name, without a `/`.
    pub name: String,
    /// What was typed behind it.
    #[serde(default)]
    pub arguments: String,
    /// The prompt that it becomes, without a text: that is the template's, as are agent and model where it names them.
    #[serde(default)]
    pub prompt: Prompt,
}

/// What can be asked of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", content = "data", rename_all = "snake_case")]
pub enum Command {
    /// Run a turn. Answered with [`Reply::Accepted`] when it is durable.
    Prompt(Prompt),
    /// Run a command by hand, if the session is idle; else it is refused with [`CommandError::Busy`]. Answered with
    /// [`Reply::Accepted`] when it is durable.
    Shell(ShellCommand),
    /// Call one tool. Answered with [`Reply::Accepted`] when it is durable.
    Call(ToolCommand),
    /// Run a command template: its shell blocks first, and then the prompt that it becomes. Answered with [`Reply::Accepted`]
    /// when that one is durable.
    Template(Box<TemplateCommand>),
    /// End the running turn and the queued ones. Answered with [`Reply::Aborted`].
    Abort,
    /// End this turn only, whether it runs or waits; the others go on. Answered with [`Reply::Aborted`], of no turn where
    /// it is over or there is none.
    AbortTurn {
        /// The turn: the id of its prompt.
        turn: MessageId,
    },
    /// Answer a request for consent. Answered with [`Reply::Done`] when it is durable.
    Answer {
        /// The request.
        consent: ConsentId,
        /// What a person may say: once, always, or decline. The others are the engine's, and refused.
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
    /// Give the result of a call that was offered to the platform. Answered with [`Reply::Done`] when it is durable.
    AnswerCall {
        /// The call.
        call: PartId,
        /// The result.
        answer: CallAnswer,
    },
    /// Change title, agent, model, rules or what clients keep with the session. Answered with [`Reply::Done`] when it is durable.
    Change(SessionChanged),
    /// Let a summary stand for the conversation so far, where models are concerned, if the session is idle; else it is refused
    /// with [`CommandError::Busy`]. Answered with [`Reply::Done`] when the request for the summary is durable: events tell how
    /// that ends.
    Compact {
        /// The model that writes it; absent for the one of the agent `compaction`, or the session's.
        #[serde(default)]
        model: Option<ModelRef>,
    },
    /// Take changes of files back, if nothing of the session runs; else it is refused with [`CommandError::StillRunning`].
    /// Answered with [`Reply::Reverted`].
    Revert(RevertRequest),
    /// Do again what was taken back. Answered with [`Reply::Reverted`].
    Unrevert(UnrevertRequest),
    /// Read the session as it stands. Answered with [`Reply::Snapshot`].
    Snapshot,
    /// Read it without its messages. Answered with [`Reply::Snapshot`].
    Outline,
    /// Read some of its messages. Answered with [`Reply::Messages`].
    Messages(MessagesQuery),
}

/// A prompt that was admitted, durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// The requests for consent that wait for an answer.
    #[serde(default)]
    pub consents: Vec<ConsentAsked>,
    /// The walls around the programs that it starts; absent where they are not known, since its directory is gone.
    #[serde(default)]
    pub walls: Option<WallsInForce>,
    /// Where its log stops to be readable, if it does: this is what comes before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<Damage>,
}

/// Which messages to read. The order is that of the conversation, with the prompts that wait at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagesQuery {
    /// Only those before this message: the last of them, unless `after` is given as well.
    #[serde(default)]
    pub before: Option<MessageId>,
    /// Only those after this message: the first of them.
    #[serde(default)]
    pub after: Option<MessageId>,
    /// At most so many; 0 stands for 50. Without `before` and `after` the last ones.
    #[serde(default)]
    pub limit: u32,
}

/// A page of messages, in the order of the conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MessagePage {
    /// The messages.
    pub messages: Vec<Message>,
    /// The first of them, if there are messages before it: the page before this one is that `before` it.
    pub before: Option<MessageId>,
    /// The last of them, if there are messages after it: the next page is that `after` it.
    pub after: Option<MessageId>,
    /// Where the session's log stops to be readable, if it does: messages that come after that are in no page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<Damage>,
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
    /// Some of its messages.
    Messages(MessagePage),
    /// What was taken back, or done again.
    Reverted(Box<RevertReport>),
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[serde(tag = "error", content = "data", rename_all = "snake_case")]
pub enum CommandError {
    /// There is no such session.
    #[error("there is no session {0}; `playhouse sessions list` shows those that exist")]
    NotFound(SessionId),
    /// There is no such session since the store was salvaged from damage, which did not name it any more.
    #[error(
        "there is no session {session}; `playhouse sessions list` shows those that exist. The store was damaged and salvaged at \
         {salvaged}: a session from before may have been lost then"
    )]
    NotFoundSince {
        /// The session.
        session: SessionId,
        /// When the store was salvaged.
        salvaged: Timestamp,
    },
    /// There was such a session, which was lost when the store was damaged.
    #[error("{reason}. What there was is kept in {}", loss.kept)]
    Lost {
        /// The session.
        session: SessionId,
        /// What became of it.
        reason: String,
        /// What is known of it.
        loss: Box<SessionLoss>,
    },
    /// The session has no such turn.
    #[error("there is no turn {turn} in session {session}")]
    NoSuchTurn {
        /// The session.
        session: SessionId,
        /// The turn.
        turn: MessageId,
    },
    /// The session is busy, and the prompt said `reject`, or it is a command that a person runs.
    #[error("session is busy")]
    Busy,
    /// Something of the session runs, whose changes would not be taken back. The text says what to stop.
    #[error("{0}")]
    StillRunning(String),
    /// The prompt's id is that of another one.
    #[error(
        "a prompt with other content was sent as {0} before: give this one an id of its own, or send it as it was"
    )]
    Repeated(MessageId),
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
    /// What was chosen cannot be used as the operator set it up. Only who may read how that is reads the error in full; the
    /// others read what [`ErrorInfo::for_tenant`] leaves of it.
    #[error("{0}")]
    Unusable(Box<ErrorInfo>),
    /// The request for consent was never made, or so long ago that it is not known how it was settled.
    #[error("there is no request for consent {0} that waits in this session")]
    NoSuchConsent(ConsentId),
    /// The request for consent is settled already.
    #[error("request {consent} is settled already: {answer}")]
    ConsentSettled {
        /// The request.
        consent: ConsentId,
        /// By what.
        answer: ConsentAnswer,
    },
    /// The request with questions was never made, or so long ago that it is not known how it was settled.
    #[error("there is no request {0} with questions that waits in this session")]
    NoSuchQuestion(QuestionId),
    /// The request with questions is settled already.
    #[error("request {question} is settled already: {answer}")]
    QuestionSettled {
        /// The request.
        question: QuestionId,
        /// By what.
        answer: QuestionAnswer,
    },
    /// The session has no such call.
    #[error("there is no call {0} in this session")]
    NoSuchCall(PartId),
    /// The call has its result already.
    #[error("call {0} has its result already: its first result, its deadline or an abort settled it")]
    CallSettled(PartId),
    /// The store failed; the text says so.
    #[error("{0}")]
    Store(String),
    /// Nothing can be written just now, as the disk is full, for example; the text says why. The engine goes on by itself when
    /// that is over, and the same may be sent again then.
    #[error("{0}")]
    Suspended(String),
    /// The tenant takes up as much storage as it may; the text names what is used and the bound.
    #[error("{told}")]
    OutOfStorage {
        /// What happened, and what to do.
        told: String,
        /// The bound.
        limit: Box<Limit>,
    },
    /// A limit of the session or its tenant is reached.
    #[error("{told}")]
    AtLimit {
        /// What happened, and what to do.
        told: String,
        /// The limit.
        limit: Box<Limit>,
        /// Whether waiting helps.
        passes: bool,
    },
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
