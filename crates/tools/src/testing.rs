//! Helpers for tests of tools.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use playhouse_policy::Verdict;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::message::CallInput;
use playhouse_protocol::question::{Question, QuestionAnswer, Todo};
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_sandbox::{Processes, Walls};
use playhouse_workspace::{FileTracker, PathLocks, Pool, Workspace, WorkspaceError};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::storage::SessionStorage;
use crate::{
    Alone, CallContext, Host, OutputSink, Plan, Prepared, Registry, Risk, Showing, Tool, ToolError,
    ToolOutput, Work, WorkEnd, WriteLog, runner,
};

/// The smallest image: one pixel.
pub const DOT: &[u8] = b"\x89PNG\x0d\x0a\x1a\x0a\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU\x00\x00\x00\x0aIDATx\xdac\xa8\x07\x00\x00\x81\x00\x80~\x1c)\xc7\x00\x00\x00\x00IEND\xaeB`\x82";

/// Collects live output.
#[derive(Debug, Default)]
pub struct Recorder {
    text: Mutex<String>,
}

impl Recorder {
    /// All that was written so far.
    pub fn text(&self) -> String {
        self.text.lock().clone()
    }
}

impl OutputSink for Recorder {
    fn write(&self, text: &str) {
        self.text.lock().push_str(text);
    }
}

/// What a call stands on, in the directory `root`, with saved outputs in the folder `outputs`.
///
/// # Errors
/// When `root` cannot be a workspace.
pub fn context(root: &Path, outputs: &Path) -> Result<CallContext, WorkspaceError> {
    context_with(root, outputs, Arc::new(Recorder::default()))
}

/// The same with a receiver of live output.
///
/// # Errors
/// When `root` cannot be a workspace.
pub fn context_with(
    root: &Path,
    outputs: &Path,
    output: Arc<dyn OutputSink>,
) -> Result<CallContext, WorkspaceError> {
    let workspace = Workspace::open(root, outputs.to_owned())?;
    let workspace_output = workspace.output().to_owned();
    let output_file = workspace_output.join("call.txt");
    Ok(CallContext {
        workspace: Arc::new(workspace),
        files: Arc::new(FileTracker::new()),
        locks: Arc::new(PathLocks::new()),
        pool: Pool::new(4),
        cancel: CancellationToken::new(),
        output,
        storage: SessionStorage::alone(workspace_output),
        output_file,
        host: Arc::new(Alone::default()),
        processes: Processes::new().of("ses_test"),
        walls: Walls::open(),
        writes: WriteLog::default(),
    })
}

/// Makes one call the way the engine does: prepared, judged, executed.
///
/// # Errors
/// What the call answers as an error; a judgement that denies it, or would ask about what it knows, is one as well.
pub async fn call(
    registry: &Registry,
    name: &str,
    input: &Value,
    context: &CallContext,
) -> Result<ToolOutput, ToolError> {
    let input = CallInput::from_model(&input.to_string());
    let (tool, prepared) = runner::prepare(registry, name, &input, context).await?;
    match context.host.judge(&*tool, &prepared) {
        Verdict::Allow => runner::execute(&tool, prepared, context).await,
        // What cannot be told is all right for a test.
        Verdict::Ask { wants, .. }
            if wants.iter().all(|want| want.doubt.is_some() && !want.in_person && !want.named) =>
        {
            runner::execute(&tool, prepared, context).await
        }
        Verdict::Ask { reason, .. } | Verdict::Deny { reason } => Err(ToolError::Failed(reason)),
    }
}

/// A host with somebody behind it.
#[derive(Clone, Default)]
pub struct Person {
    /// What it is without them.
    pub alone: Alone,
    /// The session's list of things to do.
    pub todos: Arc<[Todo]>,
    /// The rules files of subdirectories that were shown.
    pub rules: Arc<Mutex<BTreeSet<String>>>,
    /// How each question is answered; never without it.
    pub answer: Option<QuestionAnswer>,
    /// Cancelled when the first question is asked.
    pub asked: CancellationToken,
    /// What becomes of work that is handed over; nobody takes any without it.
    pub end: Option<WorkEnd>,
    /// The work that was handed over.
    pub tasks: Arc<Mutex<Vec<Work>>>,
}

impl Host for Person {
    fn find(&self, tool: &str) -> Result<Arc<dyn Tool>, ToolError> {
        self.alone.find(tool)
    }

    fn judge(&self, tool: &dyn Tool, prepared: &Prepared) -> Verdict {
        self.alone.judge(tool, prepared)
    }

    fn showing(&self) -> Showing {
        self.alone.showing()
    }

    fn todos(&self) -> Arc<[Todo]> {
        Arc::clone(&self.todos)
    }

    fn claims_rules(&self, file: &str) -> bool {
        self.rules.lock().insert(file.to_owned())
    }

    fn takes_tasks(&self, agent: &str) -> Result<(), ToolError> {
        match (&self.end, agent) {
            (Some(_), "nobody") | (None, _) => Err(ToolError::Invalid(format!("there is no agent {agent}"))),
            (Some(_), _) => Ok(()),
        }
    }

    fn hand_over(&self, work: Work) -> BoxFuture<'_, Result<WorkEnd, ToolError>> {
        self.tasks.lock().push(work);
        let end = self.end.clone().ok_or_else(|| ToolError::Failed("nobody takes it".to_owned()));
        std::future::ready(end).boxed()
    }

    fn ask(&self, _questions: Vec<Question>) -> BoxFuture<'_, QuestionAnswer> {
        self.asked.cancel();
        match self.answer.clone() {
            Some(answer) => std::future::ready(answer).boxed(),
            None => std::future::pending().boxed(),
        }
    }
}

type Behaviour = dyn Fn(&CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync;

/// A tool that does what a test wants.
pub struct Fake {
    spec: ToolSpec,
    behaviour: Box<Behaviour>,
}

impl Fake {
    /// A tool that answers with an empty result.
    pub fn named(name: &str) -> Self {
        Self::new(name, |_| std::future::ready(Ok(ToolOutput::default())).boxed())
    }

    /// A tool whose `execute` is `behaviour`.
    pub fn new(
        name: &str,
        behaviour: impl Fn(&CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let parameters = json!({"type": "object", "properties": {"input": {"type": "string"}}});
        let spec =
            ToolSpec { name: name.to_owned(), description: "A tool for tests.".to_owned(), parameters };
        Self { spec, behaviour: Box::new(behaviour) }
    }
}

impl Tool for Fake {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        Risk::Safe
    }

    fn prepare<'a>(
        &'a self,
        _input: &'a Map<String, Value>,
        _context: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        let prepared = Prepared {
            accesses: Vec::new(),
            effect: Effect::None,
            recovery: Recovery::Rerun,
            preview: String::new(),
            title: String::new(),
            plan: Box::new(()),
        };
        std::future::ready(Ok(prepared)).boxed()
    }

    fn execute<'a>(
        &'a self,
        _plan: Plan,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        (self.behaviour)(context)
    }
}
