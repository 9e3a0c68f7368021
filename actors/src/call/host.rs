//! What a session does for its running calls.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use playhouse_policy::{Verdict, loop_want, wants};
use playhouse_protocol::id::PartId;
use playhouse_protocol::message::{ToolSwitches, turns_off};
use playhouse_protocol::output::SUBMIT_OUTPUT;
use playhouse_protocol::question::{Question, QuestionAnswer, Todo};
use playhouse_protocol::record::Effect;
use playhouse_protocol::{CallAnswer, Delegate, HandedOver, Mandate, RevertReport, SessionId};
use playhouse_tools::undo::{OwnChange, UndoPlan};
use playhouse_tools::{
    CallContext, CallObserver, Host, Prepared, Registry, Showing, Tool, ToolError, Work, WorkEnd,
};
use ractor::ActorRef;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::judge::Judge;
use crate::mailbox::SessionMessage;
use crate::revert::OwnChanges;
use crate::rules::ShownRules;
use crate::tasks::Giver;

/// The session's list of things to do, as its calls see it. The session actor sets it, calls read it.
#[derive(Clone, Debug)]
pub(crate) struct TodoList(Arc<Mutex<Arc<[Todo]>>>);

impl TodoList {
    pub(crate) fn new(todos: &[Todo]) -> Self {
        Self(Arc::new(Mutex::new(Arc::from(todos))))
    }

    pub(crate) fn set(&self, todos: &[Todo]) {
        *self.0.lock() = Arc::from(todos);
    }

    fn get(&self) -> Arc<[Todo]> {
        Arc::clone(&self.0.lock())
    }
}

/// The host of one call.
pub(crate) struct SessionHost {
    pub(crate) call: PartId,
    /// The session.
    pub(crate) session_id: SessionId,
    /// Whose model made it; `None` for a person who typed it.
    pub(crate) agent: Option<String>,
    /// The tools that are turned off for the turn.
    pub(crate) tools: ToolSwitches,
    /// Where the turn's prompt comes from, if another session sent it.
    pub(crate) handed: Option<Box<HandedOver>>,
    /// Who hands work over, for a call that does.
    pub(crate) giver: Option<Arc<Giver>>,
    /// To whom it does, once that is in the log.
    pub(crate) delegate: OnceLock<Delegate>,
    /// Ends the call.
    pub(crate) cancel: CancellationToken,
    pub(crate) judge: Arc<Judge>,
    /// The tools that there are in the session.
    pub(crate) catalogue: Arc<Registry>,
    pub(crate) todos: TodoList,
    pub(crate) rules: ShownRules,
    pub(crate) session: ActorRef<SessionMessage>,
    /// The session's changes of files, for a call that takes them back.
    pub(crate) own: Option<OwnChanges>,
    /// What sees the call, in this order.
    pub(crate) observers: Vec<Box<dyn CallObserver>>,
}

impl SessionHost {
    /// Why a tool that there is may not be used.
    pub(crate) fn refusal(&self, tool: &str) -> Option<String> {
        // What the prompt itself wants is refused by nothing.
        if tool == SUBMIT_OUTPUT {
            return None;
        }
        let Self { judge, catalogue, .. } = self;
        let agent = self.agent.as_deref();
        let permission = catalogue.get(tool)?.permission();
        if let Some(by) = judge.hidden_by(agent, self.mandates(), permission) {
            return Some(format!("the tool {tool} is denied by {by}"));
        }
        if turns_off(&self.tools, tool) {
            return Some(format!(
                "the tool {tool} is turned off until this prompt is answered: go on without it"
            ));
        }
        if !self.mandates().iter().all(|mandate| mandate.allows(tool)) {
            return Some(format!(
                "the tool {tool} is none of those that the agents have who handed this work over: go on without it"
            ));
        }
        let agent = agent?;
        let serves = catalogue.get(tool).is_some_and(|tool| tool.serves(agent));
        let allowed = serves && judge.directory().allows(agent, tool);
        (!allowed).then(|| {
            format!("the agent {agent} may not use the tool {tool}: go on with the tools that you were given")
        })
    }

    fn own_or_none(&self) -> Result<&OwnChanges, ToolError> {
        self.own.as_ref().ok_or_else(|| ToolError::Failed("nothing can be taken back here".to_owned()))
    }

    /// What those may do who handed the turn's work over.
    fn mandates(&self) -> &[Mandate] {
        self.handed.as_ref().map_or(&[][..], |handed| &handed.mandates)
    }

    /// Whether the call is one of an agent that changes nothing, or was handed over by one.
    pub(crate) fn is_read_only(&self) -> bool {
        self.mandates().iter().any(|mandate| mandate.read_only)
            || self.agent.as_deref().is_some_and(|agent| self.judge.directory().is_read_only(agent))
    }

    /// Why a call that would change the workspace is not made: its agent changes nothing. Commands run where that holds;
    /// `holds` says whether it does.
    pub(crate) fn changes_nothing(
        &self,
        tool: &dyn Tool,
        prepared: &Prepared,
        holds: bool,
    ) -> Option<String> {
        if !self.is_read_only() || prepared.effect != Effect::Workspace || (tool.starts_programs() && holds) {
            return None;
        }
        let agent = self.agent.as_deref().unwrap_or_default();
        Some(if tool.starts_programs() {
            format!(
                "the agent {agent} changes nothing, and nothing on this machine can hold commands to that: go on without them (the operator can install bubblewrap)"
            )
        } else {
            format!(
                "the agent {agent} changes nothing, and {} would change the workspace: say in your answer what should be changed instead",
                tool.spec().name
            )
        })
    }

    /// May a call of `tool` run? `looping` says whether the model goes round in circles with it.
    pub(crate) fn verdict(&self, tool: &dyn Tool, prepared: &Prepared, looping: bool) -> Verdict {
        if tool.spec().name == SUBMIT_OUTPUT {
            return Verdict::Allow;
        }
        match wants(tool.permission(), tool.risk(), &prepared.accesses) {
            Ok(mut wants) => {
                wants.extend(looping.then(|| loop_want(&tool.spec().name)));
                self.judge.verdict(self.agent.as_deref(), self.mandates(), &wants)
            }
            Err(verdict) => verdict,
        }
    }

    /// Why what was prepared is not done after all: bounds may have come after a person agreed.
    pub(crate) fn out_of_bounds(&self, tool: &dyn Tool, prepared: &Prepared) -> Option<String> {
        let wants = wants(tool.permission(), tool.risk(), &prepared.accesses).ok()?;
        self.judge.out_of_bounds(&wants)
    }
}

impl Host for SessionHost {
    fn agent(&self) -> &str {
        self.agent.as_deref().unwrap_or_default()
    }

    fn find(&self, tool: &str) -> Result<Arc<dyn Tool>, ToolError> {
        match self.refusal(tool) {
            Some(refusal) => Err(ToolError::Failed(refusal)),
            None => self.catalogue.find(tool).cloned(),
        }
    }

    fn judge(&self, tool: &dyn Tool, prepared: &Prepared) -> Verdict {
        self.verdict(tool, prepared, false)
    }

    fn showing(&self) -> Showing {
        self.judge.showing(self.agent.as_deref(), self.mandates())
    }

    fn todos(&self) -> Arc<[Todo]> {
        self.todos.get()
    }

    fn observers(&self) -> &[Box<dyn CallObserver>] {
        &self.observers
    }

    fn claims_rules(&self, file: &str) -> bool {
        // What a person does is not shown to a model.
        self.agent.is_some() && self.rules.claim(file, self.call)
    }

    fn takes_tasks(&self, agent: &str) -> Result<(), ToolError> {
        if let Some(too_deep) = self.judge.too_deep() {
            return Err(ToolError::Failed(too_deep));
        }
        self.judge.directory().takes_tasks(agent).map_err(ToolError::Invalid)
    }

    fn hand_over(&self, work: Work) -> BoxFuture<'_, Result<WorkEnd, ToolError>> {
        async move {
            let (Some(giver), Some(delegate)) = (&self.giver, self.delegate.get()) else {
                // A batch has no intent of its own for it.
                return Err(ToolError::Failed("work is handed over by a call of its own only".to_owned()));
            };
            Arc::clone(giver).hand_over(*delegate, work, self.cancel.clone()).await
        }
        .boxed()
    }

    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, QuestionAnswer> {
        async move {
            let (answer, answered) = oneshot::channel();
            // A session that is gone asks again when it comes back.
            drop(self.session.send_message(SessionMessage::Ask(self.call, questions, answer)));
            answered.await.unwrap_or(QuestionAnswer::Withdrawn)
        }
        .boxed()
    }

    fn place(&self) -> Option<(SessionId, PartId)> {
        Some((self.session_id, self.call))
    }

    fn own_changes(&self) -> BoxFuture<'_, Result<Vec<OwnChange>, ToolError>> {
        async move { self.own_or_none()?.list().await }.boxed()
    }

    fn plan_undo(&self, calls: Vec<PartId>) -> BoxFuture<'_, Result<UndoPlan, ToolError>> {
        async move { self.own_or_none()?.plan(calls).await }.boxed()
    }

    fn undo<'a>(
        &'a self,
        calls: Vec<PartId>,
        paths: Vec<PathBuf>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<RevertReport, ToolError>> {
        async move { Ok(self.own_or_none()?.undo(calls, paths, context).await?.report) }.boxed()
    }

    fn offer(&self, wait: Duration) -> BoxFuture<'_, Option<CallAnswer>> {
        async move {
            let (result, given) = oneshot::channel();
            // A session that is gone offers it again when it comes back.
            drop(self.session.send_message(SessionMessage::Offer(self.call, wait, result)));
            given.await.ok()
        }
        .boxed()
    }

    fn give(&self, answer: CallAnswer) {
        // A session that is gone has the call carried out again when it comes back.
        drop(self.session.send_message(SessionMessage::Give(self.call, answer)));
    }
}
