//! What a session does for its running calls.

use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_policy::{Verdict, loop_want, wants};
use playhouse_protocol::id::PartId;
use playhouse_protocol::message::{ToolSwitches, turns_off};
use playhouse_protocol::question::{Question, QuestionAnswer, Todo};
use playhouse_tools::{Host, Prepared, Tool, ToolError};
use ractor::ActorRef;
use tokio::sync::oneshot;

use crate::judge::Judge;
use crate::session::SessionMessage;
use crate::shared::Shared;

/// The session's list of things to do, as its calls see it. The session actor sets it, calls read it.
#[derive(Clone, Debug)]
pub(crate) struct TodoList(Arc<Mutex<Arc<[Todo]>>>);

impl TodoList {
    pub(crate) fn new(todos: &[Todo]) -> Self {
        Self(Arc::new(Mutex::new(Arc::from(todos))))
    }

    pub(crate) fn set(&self, todos: &[Todo]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::from(todos);
    }

    fn get(&self) -> Arc<[Todo]> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The host of one call.
pub(crate) struct SessionHost {
    pub(crate) call: PartId,
    /// Whose model made it; `None` for a person who typed it.
    pub(crate) agent: Option<String>,
    /// The tools that are turned off for the turn.
    pub(crate) tools: ToolSwitches,
    pub(crate) judge: Arc<Judge>,
    pub(crate) todos: TodoList,
    pub(crate) session: ActorRef<SessionMessage>,
    pub(crate) shared: Arc<Shared>,
}

impl SessionHost {
    /// Why a tool that there is may not be used.
    pub(crate) fn refusal(&self, tool: &str) -> Option<String> {
        let Self { judge, shared, .. } = self;
        let agent = self.agent.as_deref();
        let permission = shared.tools.get(tool)?.permission();
        if let Some(by) = judge.hidden_by(agent, permission) {
            return Some(format!("the tool {tool} is denied by {by}"));
        }
        if turns_off(&self.tools, tool) {
            return Some(format!(
                "the tool {tool} is turned off until this prompt is answered: go on without it"
            ));
        }
        let agent = agent?;
        let allowed = shared.directory.allows(agent, tool);
        (!allowed).then(|| format!("the agent {agent} may not use the tool {tool}"))
    }

    /// May a call of `tool` run? `looping` says whether the model goes round in circles with it.
    pub(crate) fn verdict(&self, tool: &dyn Tool, prepared: &Prepared, looping: bool) -> Verdict {
        match wants(tool.permission(), tool.risk(), &prepared.accesses) {
            Ok(mut wants) => {
                wants.extend(looping.then(|| loop_want(&tool.spec().name)));
                self.judge.verdict(self.agent.as_deref(), &wants)
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
    fn find(&self, tool: &str) -> Result<Arc<dyn Tool>, ToolError> {
        match self.refusal(tool) {
            Some(refusal) => Err(ToolError::Failed(refusal)),
            None => self.shared.tools.find(tool).cloned(),
        }
    }

    fn judge(&self, tool: &dyn Tool, prepared: &Prepared) -> Verdict {
        self.verdict(tool, prepared, false)
    }

    fn todos(&self) -> Arc<[Todo]> {
        self.todos.get()
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
}
