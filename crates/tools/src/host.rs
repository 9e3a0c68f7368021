//! What the engine does for a call: other tools, the session's own state, and the people behind it.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_policy::{Verdict, judge};
use playhouse_protocol::question::{Question, QuestionAnswer, Todo};

use crate::{Prepared, Registry, Tool, ToolError};

/// What the engine does for one call. Whatever a call does through it is bound by the rules that bind the call itself.
pub trait Host: Send + Sync {
    /// The tool of this name, as far as this call's agent may use it.
    ///
    /// # Errors
    /// What the model shall read: there is no such tool, or it may not be used.
    fn find(&self, tool: &str) -> Result<Arc<dyn Tool>, ToolError>;

    /// May a call of `tool` run?
    fn judge(&self, tool: &str, prepared: &Prepared) -> Verdict;

    /// The session's list of things to do.
    fn todos(&self) -> Arc<[Todo]>;

    /// Asks the people behind the session, and waits until somebody answered, nobody did in time, or the call was
    /// cancelled. The request is durable before anyone sees it; after a restart of the engine the call that runs again
    /// gets the answer of the request that it had made: so a call asks once.
    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, QuestionAnswer>;
}

/// A host outside of any session, for a call that a person makes: all tools, nothing to do, and nobody to ask.
#[derive(Clone, Debug, Default)]
pub struct Alone {
    tools: Arc<Registry>,
}

impl Alone {
    /// With these tools.
    pub fn new(tools: Arc<Registry>) -> Self {
        Self { tools }
    }
}

impl Host for Alone {
    fn find(&self, tool: &str) -> Result<Arc<dyn Tool>, ToolError> {
        self.tools.find(tool).cloned()
    }

    fn judge(&self, _tool: &str, prepared: &Prepared) -> Verdict {
        judge(&prepared.accesses)
    }

    fn todos(&self) -> Arc<[Todo]> {
        Arc::from([])
    }

    fn ask(&self, _questions: Vec<Question>) -> BoxFuture<'_, QuestionAnswer> {
        std::future::ready(QuestionAnswer::Rejected).boxed()
    }
}
