//! What every tool is.

use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use playhouse_policy::Access;
pub use playhouse_policy::Risk;
use playhouse_prompts::RulesFile;
use playhouse_protocol::Delegation;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::message::CallInput;
use playhouse_protocol::question::Todo;
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_protocol::tool::ToolOrigin;
use playhouse_sandbox::{SessionProcesses, Walls};
use playhouse_workspace::{ContentHash, FileTracker, PathLocks, Pool, Workspace};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::Host;
use crate::changed::WriteLog;
use crate::storage::SessionStorage;

/// Why a call has no good result. The text is what the model reads.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ToolError {
    /// The arguments do not fit, with what to do instead.
    #[error("{0}")]
    Invalid(String),
    /// The work could not be done.
    #[error("{0}")]
    Failed(String),
    /// The call was cancelled. Whatever was done until then is in the text.
    #[error("cancelled{separator}{0}", separator = if .0.is_empty() { "" } else { ": " })]
    Cancelled(String),
}

/// Where a running call writes output that clients may watch.
pub trait OutputSink: Send + Sync {
    /// More output. Must not block.
    fn write(&self, text: &str);
}

/// Discards all output.
impl OutputSink for () {
    fn write(&self, _: &str) {}
}

/// What a call stands on. One for each call.
#[derive(Clone)]
pub struct CallContext {
    /// The session's directory, the boundary of what a call may touch.
    pub workspace: Arc<Workspace>,
    /// What this session knows of the content of files.
    pub files: Arc<FileTracker>,
    /// Locks on canonical paths, shared by all sessions of the process.
    pub locks: Arc<PathLocks>,
    /// Where blocking work runs.
    pub pool: Pool,
    /// Ends the call. Blocking work polls it.
    pub cancel: CancellationToken,
    /// Where live output goes.
    pub output: Arc<dyn OutputSink>,
    /// File in which output that is too long for the model is kept; made when it is needed.
    pub output_file: PathBuf,
    /// Bounds of what is saved for the session.
    pub storage: SessionStorage,
    /// What the engine does for the call.
    pub host: Arc<dyn Host>,
    /// The session's commands that run in the background.
    pub processes: SessionProcesses,
    /// What holds the programs that the call starts.
    pub walls: Walls,
    /// Where it notes each file that it writes, the moment it is written.
    pub writes: WriteLog,
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext").field("output_file", &self.output_file).finish_non_exhaustive()
    }
}

/// What `prepare` hands to `execute`: private to each tool.
pub type Plan = Box<dyn Any + Send>;

/// A call that is understood, and has not been done.
pub struct Prepared {
    /// Everything that it would touch, links resolved.
    pub accesses: Vec<Access>,
    /// What it may change.
    pub effect: Effect,
    /// What to do if the process ends in the middle of it.
    pub recovery: Recovery,
    /// What a person sees before agreeing to it: a command, a diff, a path.
    pub preview: String,
    /// One line for people, as long as it runs.
    pub title: String,
    /// For `execute`.
    pub plan: Plan,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("accesses", &self.accesses)
            .field("effect", &self.effect)
            .field("recovery", &self.recovery)
            .field("preview", &self.preview)
            .field("title", &self.title)
            .finish_non_exhaustive()
    }
}

/// A file that a call gives to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAttachment {
    /// Media type.
    pub mime: String,
    /// Name for people and models.
    pub filename: String,
    /// The content.
    pub content: bytes::Bytes,
}

/// A value that a call has the session's log keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Artifact {
    /// What people know it by: the tool's name.
    pub name: String,
    /// The value.
    pub value: Value,
    /// The value as compact JSON.
    pub json: String,
    /// `sha256:` and the SHA-256 of that, in hexadecimal digits.
    pub hash: String,
}

impl Artifact {
    /// The artifact `name` with this value.
    pub fn new(name: impl Into<String>, value: Value) -> Self {
        let json = value.to_string();
        let hash = format!("sha256:{}", playhouse_workspace::hash(json.as_bytes()));
        Self { name: name.into(), value, json, hash }
    }
}

/// What a call gives back, before it is capped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    /// One line for people.
    pub title: String,
    /// What the model reads.
    pub output: String,
    /// Facts for clients.
    pub metadata: Map<String, Value>,
    /// Images and documents for the model.
    pub attachments: Vec<NewAttachment>,
    /// What the session's list of things to do becomes; `None` leaves it as it is.
    pub todos: Option<Vec<Todo>>,
    /// What the session's log keeps, directly before the result.
    pub artifact: Option<Box<Artifact>>,
    /// Rules of folders in which the call read something that nobody had read before. They stand behind the result, whatever
    /// is cut of it.
    pub rules: Vec<RulesFile>,
    /// Files that this result shows, by canonical path, with their content. They count as read once the result stands in
    /// front of the model, and only if nothing of it had to be left out.
    pub seen: Vec<(PathBuf, ContentHash)>,
}

impl ToolOutput {
    /// A text, and nothing else.
    pub fn text(output: impl Into<String>) -> Self {
        Self { output: output.into(), ..Self::default() }
    }
}

/// A tool. One value serves all sessions; what belongs to a call comes with its [`CallContext`].
pub trait Tool: Send + Sync {
    /// Name, description and parameters, as a model is told of them.
    fn spec(&self) -> &ToolSpec;

    /// How dangerous it is without a rule about it.
    fn risk(&self) -> Risk;

    /// What rules call it: its name, unless several tools share a permission.
    fn permission(&self) -> &str {
        &self.spec().name
    }

    /// Whether it starts programs, so that those who are asked are told what would hold them.
    fn starts_programs(&self) -> bool {
        false
    }

    /// Whether a call may change files of the workspace that neither it nor its tool names: a program does. The workspace is
    /// compared before and after such a call.
    fn changes_unnamed_files(&self) -> bool {
        self.starts_programs()
    }

    /// Whether a call mostly waits for nothing and computes little: it is begun where its session runs then, and costs no actor
    /// if it is over at once. What it does up to its first wait holds the session up, and whoever wants to abort it; so a tool
    /// that may block or compute for milliseconds there leaves this as it is.
    fn is_brief(&self) -> bool {
        false
    }

    /// Why this tool cannot work as configured, and what to do about it. Models are not shown it.
    fn unavailable(&self) -> Option<String> {
        None
    }

    /// How the names of the only files end that it is for: models are shown it only where such a file is named. It may be called
    /// anyway.
    fn only_for(&self) -> Option<&str> {
        None
    }

    /// How long a call may run that is waited for, where its arguments may say it.
    fn longest(&self) -> Option<Duration> {
        None
    }

    /// Where it comes from; `None` for a native tool.
    fn origin(&self) -> Option<&ToolOrigin> {
        None
    }

    /// Where the tool comes from that a call with these arguments reaches: another one, for a tool that only passes calls on.
    fn origin_of(&self, _input: &CallInput) -> Option<ToolOrigin> {
        self.origin().cloned()
    }

    /// What its server says of the use of its tools: the same for all of them.
    fn instructions(&self) -> Option<&str> {
        None
    }

    /// Whether only sessions are offered it whose allowlist names it.
    fn by_name_only(&self) -> bool {
        false
    }

    /// Whether it is there for `agent`. Asked where tools are shown and where calls run.
    fn serves(&self, _agent: &str) -> bool {
        true
    }

    /// The work that a call with these arguments hands over to another session; `None` for a tool that hands over none.
    fn delegation(&self, _input: &CallInput) -> Option<Delegation> {
        None
    }

    /// Reads the arguments and says what the call would do. Has no side effects. Must not block: what does belongs into
    /// [`CallContext::pool`], here as in [`Tool::execute`].
    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>>;

    /// Does what was prepared. Returns soon after `context.cancel` is cancelled; dropping the future cleans up.
    fn execute<'a>(
        &'a self,
        plan: Plan,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
}
