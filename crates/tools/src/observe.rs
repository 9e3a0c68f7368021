//! Call observers: what sees each call that may change the workspace, before and after it runs.

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use playhouse_policy::Access;
use playhouse_protocol::changes::FileBefore;
use playhouse_protocol::record::Effect;

use crate::{CallContext, Tool, ToolError, ToolOutput};

/// A call that was prepared.
#[derive(Clone, Copy)]
pub struct ObservedCall<'a> {
    /// Its tool.
    pub tool: &'a dyn Tool,
    /// What it would touch.
    pub accesses: &'a [Access],
}

impl ObservedCall<'_> {
    /// Whether observers see it, where it was prepared with this effect. A program of others that says of its tool that it only
    /// reads is not believed.
    pub fn is_observed(&self, effect: Effect) -> bool {
        let is_of_others = || self.accesses.iter().any(|access| matches!(access, Access::Tool { .. }));
        match effect {
            Effect::Workspace => true,
            Effect::None => self.changes_unnamed_files() && is_of_others(),
            Effect::Session | Effect::Delegated => false,
        }
    }

    /// Whether it changes nothing but the paths that it names, and notes each of them in its write log.
    pub fn names_all_it_writes(&self) -> bool {
        self.tool.permission() == "edit"
    }

    /// The paths that it would write.
    pub fn written(&self) -> impl Iterator<Item = &str> {
        self.accesses.iter().filter_map(|access| match access {
            Access::Path { kind, path, .. } if kind.may_write() => Some(path.as_str()),
            _ => None,
        })
    }

    /// Whether it may change files that neither it nor its tool names.
    pub fn changes_unnamed_files(&self) -> bool {
        self.tool.changes_unnamed_files()
    }
}

/// What an observer knows of a call before it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intent {
    /// The files that the call is about to change, as they are. Their content is durable.
    pub before: Vec<FileBefore>,
    /// Whether all that the call changes will be known.
    pub tracked: bool,
}

/// Sees the calls of a session that may change its workspace. Calls without that effect are not observed, and cost nothing.
/// Observers run in the order in which the host lists them.
pub trait CallObserver: Send + Sync {
    /// The last part of the prepare phase. What it gives stands in the record of the intent.
    ///
    /// # Errors
    /// What the model shall read: the call is not made.
    fn intend<'a>(
        &'a self,
        _call: ObservedCall<'a>,
        _context: &'a CallContext,
    ) -> BoxFuture<'a, Result<Intent, ToolError>> {
        ready(Ok(Intent::default())).boxed()
    }

    /// Directly before the tool executes: the intent is durable.
    fn before<'a>(&'a self, _call: ObservedCall<'a>, _context: &'a CallContext) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }

    /// At the end of every call, also of one that changes nothing: what is to be told with the next result stands at its start.
    /// Fast, without I/O.
    fn tell(&self, _ended: &mut Result<ToolOutput, ToolError>) {}

    /// After it ended, unless it was killed or panicked. May add to the result, to the text of the error, and to the write log.
    fn after<'a>(
        &'a self,
        _ended: &'a mut Result<ToolOutput, ToolError>,
        _context: &'a CallContext,
    ) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }
}
