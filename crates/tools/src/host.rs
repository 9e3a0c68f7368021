//! What the engine does for a call: other tools, the session's own state, and the people behind it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_policy::{Action, EXTERNAL_DIRECTORY, Policy, Rule, Verdict, loop_want, wants};
use playhouse_protocol::question::{Question, QuestionAnswer, Todo};
use playhouse_protocol::record::TurnOutcome;
use playhouse_protocol::{CallAnswer, PartId, RevertReport, SessionId};

use crate::undo::{OwnChange, UndoPlan};
use crate::{CallContext, CallObserver, Prepared, Registry, Tool, ToolError};

/// What the engine does for one call. Whatever a call does through it is bound by the rules that bind the call itself.
pub trait Host: Send + Sync {
    /// The tool of this name, as far as this call's agent may use it.
    ///
    /// # Errors
    /// What the model shall read: there is no such tool, or it may not be used.
    fn find(&self, tool: &str) -> Result<Arc<dyn Tool>, ToolError>;

    /// The agent whose call it is; empty where there is none.
    fn agent(&self) -> &str {
        ""
    }

    /// May a call of `tool` run?
    fn judge(&self, tool: &dyn Tool, prepared: &Prepared) -> Verdict;

    /// Which files a search may show that comes to them.
    fn showing(&self) -> Showing;

    /// The session's list of things to do.
    fn todos(&self) -> Arc<[Todo]>;

    /// Whether work can be handed over to this agent.
    ///
    /// # Errors
    /// What the model shall read: there is no such agent, it takes no tasks, or this session may hand none over.
    fn takes_tasks(&self, _agent: &str) -> Result<(), ToolError> {
        Err(nobody())
    }

    /// Hands work over to a session of its own, a sub-session, and waits for its end unless it runs in the background. What it
    /// begins is durable before it returns; a call that runs again goes on with what it had begun. When the call is cancelled, so
    /// is the work.
    fn hand_over(&self, _work: Work) -> BoxFuture<'_, Result<WorkEnd, ToolError>> {
        async { Err(nobody()) }.boxed()
    }

    /// The calls of the session that changed files and were not taken back, newest first.
    fn own_changes(&self) -> BoxFuture<'_, Result<Vec<OwnChange>, ToolError>> {
        async { Err(no_changes()) }.boxed()
    }

    /// What taking back the changes of these calls would write.
    fn plan_undo(&self, _calls: Vec<PartId>) -> BoxFuture<'_, Result<UndoPlan, ToolError>> {
        async { Err(no_changes()) }.boxed()
    }

    /// Takes back the changes of these calls, if that writes no other paths than these. What is written is noted in the write
    /// log of the call.
    fn undo<'a>(
        &'a self,
        _calls: Vec<PartId>,
        _paths: Vec<PathBuf>,
        _context: &'a CallContext,
    ) -> BoxFuture<'a, Result<RevertReport, ToolError>> {
        async { Err(no_changes()) }.boxed()
    }

    /// What sees its calls, in this order, where they may change the workspace.
    fn observers(&self) -> &[Box<dyn CallObserver>] {
        &[]
    }

    /// Whether the session's model has yet to be shown this rules file of a subdirectory. From then on it counts as shown, as
    /// long as the result of this call names it in the fact `rules`.
    fn claims_rules(&self, _file: &str) -> bool {
        false
    }

    /// Asks the people behind the session, and waits until somebody answered, nobody did in time, or the call was
    /// cancelled. The request is durable before anyone sees it; after a restart of the engine the call that runs again
    /// gets the answer of the request that it had made: so a call asks the same questions once. A call asks one request at
    /// a time.
    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, QuestionAnswer>;

    /// The session and the call; `None` outside of a session.
    fn place(&self) -> Option<(SessionId, PartId)> {
        None
    }

    /// Offers the call to the platform, as an event of the session, and waits for its result until the deadline, `wait` from
    /// now. Both are durable: a call that runs again after a restart of the engine is told the result that came meanwhile, or
    /// waits on until the first deadline. `None` means that nobody can give a result. A call is offered once.
    fn offer(&self, _wait: Duration) -> BoxFuture<'_, Option<CallAnswer>> {
        async { None }.boxed()
    }

    /// Gives the result of a call that was offered, unless it has one: [`offer`](Self::offer) ends with the one that it has.
    fn give(&self, _answer: CallAnswer) {}
}

/// Which files may be shown without asking: what all of these rules allow to be read.
#[derive(Clone, Debug, Default)]
pub struct Showing(Vec<Policy>);

impl Showing {
    /// By these rules.
    pub fn by(policies: Vec<Policy>) -> Self {
        Self(policies)
    }

    /// Whether there may be a file that may not be.
    pub fn may_hide(&self) -> bool {
        self.0.iter().any(Policy::may_hide)
    }

    /// Whether the file that rules call `shown` may be.
    pub fn allows(&self, shown: &str) -> bool {
        self.0.iter().all(|policy| policy.shows(shown))
    }
}

/// Work for another agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// What it is, in a few words.
    pub title: String,
    /// What is to be done: all that the other agent is told.
    pub prompt: String,
    /// The agent.
    pub agent: String,
    /// The sub-session that goes on with it; `None` for a new one.
    pub session: Option<SessionId>,
    /// Whether the end is not waited for.
    pub background: bool,
}

/// What became of work that was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkEnd {
    /// The sub-session.
    pub session: SessionId,
    /// How its turn ended; `None` for one that goes on in the background.
    pub outcome: Option<TurnOutcome>,
    /// What it said last, or why it failed.
    pub text: String,
}

/// Outside of a session there is nobody to hand work over to.
fn nobody() -> ToolError {
    ToolError::Failed("there are no other agents here: do it yourself".to_owned())
}

/// Outside of a session nobody knows what calls changed.
fn no_changes() -> ToolError {
    ToolError::Failed("changes are known within a session only".to_owned())
}

/// What `policy` says of a call of `tool` that was prepared; `looping` when the call closes a loop of calls.
pub fn judge_call(policy: &Policy, tool: &dyn Tool, prepared: &Prepared, looping: bool) -> Verdict {
    match wants(tool.permission(), tool.risk(), &prepared.accesses) {
        Ok(mut wants) => {
            wants.extend(looping.then(|| loop_want(&tool.spec().name)));
            policy.judge(&wants)
        }
        Err(verdict) => verdict,
    }
}

/// A host outside of any session, for a call that a person makes: all tools, nothing to do, and nobody to ask.
#[derive(Clone, Debug)]
pub struct Alone {
    tools: Arc<Registry>,
    policy: Arc<Policy>,
}

impl Default for Alone {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Alone {
    /// With these tools. Whoever makes the call wants it, so whatever stays in the workspace may run.
    pub fn new(tools: Arc<Registry>) -> Self {
        let configuration =
            [Rule::new("*", "*", Action::Allow), Rule::new(EXTERNAL_DIRECTORY, "*", Action::Ask)];
        let configuration = configuration.into_iter().collect();
        Self::with_policy(tools, Policy { configuration, ..Policy::default() })
    }

    /// With these tools, and with rules.
    pub fn with_policy(tools: Arc<Registry>, policy: Policy) -> Self {
        Self { tools, policy: Arc::new(policy) }
    }
}

impl Host for Alone {
    fn find(&self, tool: &str) -> Result<Arc<dyn Tool>, ToolError> {
        let found = self.tools.find(tool)?;
        if self.policy.is_hidden(found.permission()) {
            let reason = format!("{tool} is denied by a rule: use another tool, or ask the user");
            return Err(ToolError::Invalid(reason));
        }
        Ok(Arc::clone(found))
    }

    fn judge(&self, tool: &dyn Tool, prepared: &Prepared) -> Verdict {
        judge_call(&self.policy, tool, prepared, false)
    }

    fn showing(&self) -> Showing {
        Showing::by(vec![Policy::clone(&self.policy)])
    }

    fn todos(&self) -> Arc<[Todo]> {
        Arc::from([])
    }

    fn ask(&self, _questions: Vec<Question>) -> BoxFuture<'_, QuestionAnswer> {
        std::future::ready(QuestionAnswer::Rejected).boxed()
    }
}

#[cfg(test)]
mod tests;
