//! A tool call, and the call actor, which carries one through its phases.
//!
//! A call has two phases, and keeps the tool's plan between them. It has an actor of its own, which reports to the session and is
//! stopped by it then, like the step actor. Only calls of tools that are brief (`Tool::is_brief`) are begun where the session runs:
//! one that waits for nothing, as most looks at files do, is over then, and costs no actor; one that waits gets one, which goes on
//! with the phase under way and keeps the call from then on.

pub(crate) mod host;

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt as _;
use parking_lot::Mutex;
use playhouse_policy::Verdict;
use playhouse_protocol::consent::Risk;
use playhouse_protocol::id::PartId;
use playhouse_protocol::message::{Attachment, CallInput, CallOutcome};
use playhouse_protocol::record::{ArtifactCaptured, Effect};
use playhouse_protocol::{ChangeSet, CommandError, Delegate, SessionId, WallsInForce};
use playhouse_session::{CallReport, PreparedCall};
use playhouse_tools::{
    Artifact, CallContext, Intent, OutputSink, Prepared, Tool, ToolError, ToolOutput, runner,
};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tracing::{Instrument as _, Span};

use crate::base::{Child, begins, panic_text};
use crate::call::host::SessionHost;
use crate::context::EngineContext;
use crate::events::ring::Ring;
use crate::journal::Images;
use crate::mailbox::SessionMessage;
use crate::measure;

/// A phase of a call.
pub(crate) enum Phase {
    /// Read the arguments.
    Prepare {
        tool: String,
        input: CallInput,
        /// Whether the model goes round in circles with it.
        looping: bool,
    },
    /// Do what was prepared; with to whom it hands work over.
    Execute(Option<Delegate>),
}

impl Phase {
    /// The tool, where it is named.
    pub(crate) fn tool(&self) -> Option<&str> {
        match self {
            Self::Prepare { tool, .. } => Some(tool),
            Self::Execute(_) => None,
        }
    }
}

/// How a phase ended.
pub(crate) enum Report {
    Prepared(Box<Result<PreparedCall, CallReport>>),
    Executed(Box<CallReport>),
}

impl Report {
    /// What the session is told.
    pub(crate) fn of(self, call: PartId) -> SessionMessage {
        match self {
            Self::Prepared(prepared) => SessionMessage::Prepared(call, prepared),
            Self::Executed(report) => SessionMessage::Call(call, report),
        }
    }
}

/// A phase under way. It ends with the call and its report.
pub(crate) type Running = Pin<Box<dyn Future<Output = (Box<Call>, Report)> + Send>>;

/// What came of beginning a phase.
pub(crate) enum Begun {
    /// It is over.
    Over(Box<Call>, Report),
    /// It waits for something.
    Waits(Running),
    /// It panicked, with this to say.
    Crashed(String),
}

pub(crate) enum CallMessage {
    /// Do a phase, or go on with one that waits.
    GoOn(Running),
    /// Do what was prepared.
    Execute(Option<Delegate>),
}

/// What one call stands on.
pub(crate) struct CallArguments {
    pub(crate) call: PartId,
    /// What traces tell of it.
    pub(crate) span: Span,
    pub(crate) host: Arc<SessionHost>,
    pub(crate) tenant: Arc<str>,
    pub(crate) context: CallContext,
    pub(crate) session: ActorRef<SessionMessage>,
    pub(crate) session_id: SessionId,
    pub(crate) shared: Arc<EngineContext>,
    /// Counts this call among what is at work until it ends.
    #[allow(dead_code, reason = "held for its count")]
    pub(crate) child: Child,
}

/// A call, between its phases.
pub(crate) struct Call {
    arguments: CallArguments,
    prepared: Option<(Arc<dyn Tool>, Prepared)>,
}

impl Call {
    pub(crate) fn new(arguments: CallArguments) -> Box<Self> {
        Box::new(Self { arguments, prepared: None })
    }

    /// Begins a phase, and does all of it that waits for nothing. Panics of the tool stay in here.
    pub(crate) async fn begin(self: Box<Self>, phase: Phase) -> Begun {
        let mut running = self.run(phase);
        let polled = AssertUnwindSafe(futures::future::poll_immediate(&mut running)).catch_unwind().await;
        match polled {
            Ok(Some((call, report))) => Begun::Over(call, report),
            Ok(None) => Begun::Waits(running),
            Err(panic) => Begun::Crashed(panic_text(&*panic).to_owned()),
        }
    }

    /// A phase, of which nothing was done yet.
    pub(crate) fn run(mut self: Box<Self>, phase: Phase) -> Running {
        Box::pin(async move {
            let span = self.arguments.span.clone();
            let name = if matches!(phase, Phase::Execute(_)) { "execute" } else { "prepare" };
            begins("call", name, Some(self.arguments.session_id));
            let report = match phase {
                Phase::Prepare { tool, input, looping } => {
                    let prepared = prepare(&mut self, &tool, &input, looping).instrument(span).await;
                    Report::Prepared(Box::new(prepared))
                }
                Phase::Execute(delegate) => {
                    if let Some(delegate) = delegate {
                        // It is told once.
                        let _ = self.arguments.host.delegate.set(delegate);
                    }
                    let report = execute(&mut self).instrument(span.clone()).await;
                    span.record("outcome", measure::outcome(report.outcome));
                    span.in_scope(|| tracing::debug!("a call ended"));
                    Report::Executed(Box::new(report))
                }
            };
            (self, report)
        })
    }
}

pub(crate) struct CallActor;

impl Actor for CallActor {
    type Msg = CallMessage;
    /// The call, between its phases.
    type State = Option<Box<Call>>;
    type Arguments = ();

    async fn pre_start(
        &self,
        _: ActorRef<CallMessage>,
        (): (),
    ) -> Result<Option<Box<Call>>, ActorProcessingErr> {
        Ok(None)
    }

    async fn handle(
        &self,
        _: ActorRef<CallMessage>,
        message: CallMessage,
        state: &mut Option<Box<Call>>,
    ) -> Result<(), ActorProcessingErr> {
        let running = match message {
            CallMessage::GoOn(running) => running,
            CallMessage::Execute(delegate) => {
                state.take().ok_or("a call has one phase at a time")?.run(Phase::Execute(delegate))
            }
        };
        let (call, report) = running.await;
        // A session that is gone settles the call when it comes back.
        drop(call.arguments.session.send_message(report.of(call.arguments.call)));
        *state = Some(call);
        Ok(())
    }
}

async fn prepare(
    state: &mut Call,
    name: &str,
    input: &CallInput,
    looping: bool,
) -> Result<PreparedCall, CallReport> {
    let CallArguments { host, context, .. } = &state.arguments;
    if let Some(refusal) = host.refusal(name) {
        return Err(CallReport::text(CallOutcome::Declined, refusal));
    }
    let (tool, prepared) =
        runner::prepare(&host.catalogue, name, input, context).await.map_err(|error| failure(&error))?;
    let walls = if tool.starts_programs() { Some(in_force(context).await?) } else { None };
    let holds = walls.is_some() && context.walls.keep_the_workspace();
    if let Some(refusal) = host.changes_nothing(tool.as_ref(), &prepared, holds) {
        return Err(CallReport::text(CallOutcome::Declined, refusal));
    }
    let verdict = host.verdict(tool.as_ref(), &prepared, looping);
    let intent = match &verdict {
        // One that people agreed to is still one to ask about.
        Verdict::Allow | Verdict::Ask { .. } => {
            let intent = runner::intend(tool.as_ref(), prepared.effect, &prepared.accesses, context).await;
            intent.map_err(|error| failure(&error))?
        }
        Verdict::Deny { .. } => Intent::default(),
    };
    let judged = PreparedCall {
        effect: prepared.effect,
        recovery: prepared.recovery,
        verdict,
        risk: risk_of(tool.risk(), prepared.effect),
        preview: prepared.preview.clone(),
        diff: is_diff(tool.as_ref(), &prepared.preview),
        walls,
        delegation: tool.delegation(input),
        before: intent.before,
        tracked: intent.tracked,
    };
    state.prepared = Some((tool, prepared));
    Ok(judged)
}

/// The risk of one call, as people see it: a tool that is safe since it usually reads may have calls that write.
fn risk_of(tool: Risk, effect: Effect) -> Risk {
    if effect == Effect::Workspace && tool == Risk::Safe { Risk::Dangerous } else { tool }
}

/// The walls that hold what the call starts: the first that starts something builds them.
async fn in_force(context: &CallContext) -> Result<WallsInForce, CallReport> {
    if let Some(known) = context.walls.known() {
        return Ok(known.clone());
    }
    let walls = context.walls.clone();
    let built = context.pool.run(move || walls.in_force().cloned()).await;
    built.map_err(|error| CallReport::text(CallOutcome::Failed, error.to_string()))
}

/// Whether a preview is a unified diff: the tools that change files show one, or say why there is none.
fn is_diff(tool: &dyn Tool, preview: &str) -> bool {
    tool.permission() == "edit" && preview.starts_with("--- ")
}

async fn execute(state: &mut Call) -> CallReport {
    let Some((tool, prepared)) = state.prepared.take() else {
        return CallReport::text(CallOutcome::Failed, "the call was not prepared");
    };
    let CallArguments { host, context, .. } = &state.arguments;
    if let Some(refusal) = host.out_of_bounds(tool.as_ref(), &prepared) {
        return CallReport::text(CallOutcome::Declined, refusal);
    }
    let title = prepared.title.clone();
    let began = Instant::now();
    let ended = runner::execute(&tool, prepared, context).await;
    let label = tool.origin().map_or(&*tool.spec().name, |origin| origin.label());
    measure::tool_ran(label, began.elapsed());
    let changed = changed(&state.arguments).await;
    let report = match ended {
        Ok(output) => finish(&state.arguments, output).await,
        Err(error) => CallReport { title, ..failure(&error) },
    };
    CallReport { changed, ..report }
}

/// What the call changed in files, whether it succeeded or not.
async fn changed(arguments: &CallArguments) -> Option<Box<ChangeSet>> {
    let CallArguments { context, shared, tenant, .. } = arguments;
    let drained = context.writes.reader().drain();
    if drained.is_nothing() {
        return None;
    }
    let images = Images { shared: Arc::clone(shared), tenant: Arc::clone(tenant) };
    let workspace = Arc::clone(&context.workspace);
    let set = shared.pool.run(move || images.change_set(workspace.root(), drained)).await;
    Some(Box::new(set))
}

/// The largest artifact whose value stands in the log, in bytes of JSON; that of a larger one is a blob.
const LARGEST_VALUE: usize = 64 * 1024;

/// Stores what the tool attached, and makes the result.
async fn finish(arguments: &CallArguments, output: ToolOutput) -> CallReport {
    let CallArguments { tenant, shared, .. } = arguments;
    let ToolOutput { title, output, metadata, attachments, todos, artifact, seen: _, rules: _ } = output;
    let artifact = match artifact {
        None => None,
        Some(artifact) => match captured(arguments, *artifact).await {
            Ok(captured) => Some(Box::new(captured)),
            Err(error) => {
                let text = format!("nothing was kept, since it could not be stored: {error}");
                return CallReport { title, ..CallReport::text(CallOutcome::Failed, text) };
            }
        },
    };
    let mut stored = Vec::with_capacity(attachments.len());
    for attachment in attachments {
        let (store, tenant) = (Arc::clone(shared), Arc::clone(tenant));
        let content = attachment.content;
        match shared.pool.run(move || store.put_blob(&tenant, &content)).await {
            Ok(blob) => {
                stored.push(Attachment::new(attachment.mime, attachment.filename, blob));
            }
            Err(error) => {
                let text = format!("{} could not be stored: {error}", attachment.filename);
                return CallReport { title, ..CallReport::text(CallOutcome::Failed, text) };
            }
        }
    }
    let attachments = stored;
    CallReport {
        title,
        metadata,
        attachments,
        todos,
        artifact,
        ..CallReport::text(CallOutcome::Done, output)
    }
}

/// An artifact as the log has it.
async fn captured(arguments: &CallArguments, artifact: Artifact) -> Result<ArtifactCaptured, CommandError> {
    let CallArguments { call, tenant, shared, .. } = arguments;
    let Artifact { name, value, json, hash } = artifact;
    if json.len() <= LARGEST_VALUE {
        return Ok(ArtifactCaptured { call: *call, name, value: Some(value), blob: None, hash });
    }
    let (store, tenant) = (Arc::clone(shared), Arc::clone(tenant));
    let blob = shared.pool.run(move || store.put_blob(&tenant, json.as_bytes())).await?;
    Ok(ArtifactCaptured { call: *call, name, value: None, blob: Some(blob), hash })
}

fn failure(error: &ToolError) -> CallReport {
    let outcome = match error {
        ToolError::Invalid(_) | ToolError::Failed(_) => CallOutcome::Failed,
        ToolError::Cancelled(_) => CallOutcome::Cancelled,
    };
    CallReport::text(outcome, error.to_string())
}

/// Live output of a call, written into the session's ring.
pub(crate) struct RingOutput {
    ring: Arc<Ring>,
    call: PartId,
    /// Bytes written so far.
    offset: Mutex<u64>,
}

/// The most live output of one call that subscribers are sent; its result says the rest.
const LIVE_OUTPUT_LIMIT: u64 = 1024 * 1024;

impl RingOutput {
    pub(crate) fn new(ring: Arc<Ring>, call: PartId) -> Self {
        Self { ring, call, offset: Mutex::new(0) }
    }
}

impl OutputSink for RingOutput {
    fn write(&self, text: &str) {
        let mut offset = self.offset.lock();
        if text.is_empty() || *offset >= LIVE_OUTPUT_LIMIT {
            return;
        }
        self.ring.write(|writer| writer.call_output(self.call, *offset, text.to_owned()));
        *offset += text.len() as u64;
    }
}
