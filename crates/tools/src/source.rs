//! Tools from outside: what comes and goes while the engine runs.
//!
//! A [`ToolSource`] offers tools to a [`ToolScope`]: the servers of MCP, the platform's own tools, capture tools. The engine's
//! [`ToolSources`] put them behind the native ones, as one [`Registry`] for a session: its *catalogue*. Who calls, judges,
//! caps and records knows no difference.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use playhouse_protocol::SessionId;
use playhouse_protocol::message::CallInput;
use playhouse_protocol::output::SUBMIT_OUTPUT;
use playhouse_protocol::tool::ToolOrigin;
use tokio::sync::watch;

use crate::registry::is_allowed_name;
use crate::submit::SubmitOutput;
use crate::{Registry, Tool};

/// How the names of all tools of MCP servers begin.
pub const MCP_PREFIX: &str = "mcp_";
/// The tool that finds tools of MCP servers, where these are too many to be shown.
pub const MCP_SEARCH: &str = "mcp_search";
/// The tool that calls one of them.
pub const MCP_CALL: &str = "mcp_call";
/// The tool that lists and reads what servers offer to be read.
pub const MCP_RESOURCE: &str = "mcp_resource";

/// For whom tools are wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ToolScope {
    /// Who pays.
    pub tenant: Arc<str>,
    /// The session's directory: absolute, links resolved.
    pub workspace: Arc<Path>,
    /// The session.
    pub session: SessionId,
}

/// A program of somebody else's, which a source starts only once people agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRequest {
    /// What they agree to, in the words of rules: another program, and the same one with another content, is another subject.
    pub subject: String,
    /// How it is called, in the place of a tool's name.
    pub name: String,
    /// Why people are asked.
    pub reason: String,
    /// What would be started: the whole command, or the address.
    pub preview: String,
}

/// For whom people agreed to a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreed {
    /// For nobody.
    No,
    /// For one session.
    Session,
    /// For all sessions of the tenant in the workspace.
    Workspace,
}

/// Where tools come from that are not native.
pub trait ToolSource: Send + Sync {
    /// The tools that can be called in `scope`, in a stable order. Fast, without I/O, and never waits for a server.
    fn tools(&self, scope: &ToolScope) -> Arc<[Arc<dyn Tool>]>;

    /// Reads from files what is offered in `scope`: asked before a session wakes, also for the first time. Blocks, for milliseconds.
    fn load(&self, _scope: &ToolScope) {}

    /// What people must agree to, or have agreed to, before this offers all that it has to `scope`: asked with every prompt. Fast,
    /// without I/O.
    fn starts(&self, _scope: &ToolScope) -> Vec<StartRequest> {
        Vec::new()
    }

    /// For whom people agreed to the start of this subject: told with every prompt, and when they answered.
    fn agreed(&self, _scope: &ToolScope, _subject: &str, _agreed: Agreed) {}

    /// Grows with every change of what [`tools`](Self::tools) says to any scope.
    fn changed(&self) -> watch::Receiver<u64>;

    /// Waits, a few seconds at most, for tools that `scope` was never shown and may get: asked before the first request of a
    /// session. What this begins goes on where the future is dropped.
    fn ready<'a>(&'a self, _scope: &'a ToolScope) -> BoxFuture<'a, ()> {
        futures::future::ready(()).boxed()
    }

    /// The engine ends: ends what runs.
    fn stop(&self) -> BoxFuture<'_, ()> {
        futures::future::ready(()).boxed()
    }
}

/// The native tools, and all that comes from outside.
#[derive(Clone)]
pub struct ToolSources {
    native: Arc<Registry>,
    outside: Arc<[Arc<dyn ToolSource>]>,
}

impl ToolSources {
    /// The native tools, and `outside` behind them. Of two tools of one name the first stands.
    pub fn new(native: Arc<Registry>, outside: Vec<Arc<dyn ToolSource>>) -> Self {
        Self { native, outside: outside.into() }
    }

    /// The native tools, which are the same for everybody.
    pub fn native(&self) -> &Arc<Registry> {
        &self.native
    }

    /// A catalogue, with the tool of a turn that wants an answer with a schema.
    pub fn with_output(catalogue: &Registry, tool: Arc<SubmitOutput>) -> Arc<Registry> {
        Arc::new(catalogue.iter().cloned().chain([tool as Arc<dyn Tool>]).collect())
    }

    /// The tools of a session, without those that are offered [by name only](Tool::by_name_only); with `only`, those of these
    /// names and no others. A tool whose name providers would refuse, or that
    /// another has, is left out.
    pub fn catalogue(&self, scope: &ToolScope, only: Option<&[String]>) -> Arc<Registry> {
        let outside: Vec<_> = self.outside.iter().map(|source| source.tools(scope)).collect();
        let is_usual = |tool: &Arc<dyn Tool>| !tool.by_name_only();
        if only.is_none() && !outside.iter().any(|tools| tools.iter().any(is_usual)) {
            return Arc::clone(&self.native);
        }
        let only: Option<HashSet<&str>> = only.map(|names| names.iter().map(String::as_str).collect());
        let mut taken = HashSet::new();
        let all = self.native.iter().chain(outside.iter().flat_map(|tools| tools.iter()));
        let is_offered = |tool: &&Arc<dyn Tool>| {
            let name = tool.spec().name.as_str();
            only.as_ref().map_or_else(|| is_usual(tool), |only| only.contains(name))
                && is_allowed_name(name)
                && name != SUBMIT_OUTPUT
                && taken.insert(name.to_owned())
        };
        Arc::new(all.filter(is_offered).cloned().collect())
    }

    /// Where the tool comes from that a call reaches; `None` for a native one, and where there is none of this name.
    pub fn origin(&self, scope: &ToolScope, name: &str, input: &CallInput) -> Option<ToolOrigin> {
        if self.is_native() || self.native.get(name).is_some() {
            return None;
        }
        let find = |source: &Arc<dyn ToolSource>| {
            source.tools(scope).iter().find(|tool| tool.spec().name == name).cloned()
        };
        self.outside.iter().find_map(find)?.origin_of(input)
    }

    /// [`ToolSource::load`] of all sources. Blocks.
    pub fn load(&self, scope: &ToolScope) {
        self.outside.iter().for_each(|source| source.load(scope));
    }

    /// [`ToolSource::starts`] of all sources.
    pub fn starts(&self, scope: &ToolScope) -> Vec<StartRequest> {
        self.outside.iter().flat_map(|source| source.starts(scope)).collect()
    }

    /// [`ToolSource::agreed`] of all sources.
    pub fn agreed(&self, scope: &ToolScope, subject: &str, agreed: Agreed) {
        self.outside.iter().for_each(|source| source.agreed(scope, subject, agreed));
    }

    /// A number that grows with every change of any catalogue.
    pub fn revision(&self) -> u64 {
        self.outside.iter().map(|source| *source.changed().borrow()).sum()
    }

    /// Whether there is anything but native tools, or could be.
    pub fn is_native(&self) -> bool {
        self.outside.is_empty()
    }

    /// [`ToolSource::ready`] of all sources, side by side.
    pub async fn ready(&self, scope: &ToolScope) {
        join_all(self.outside.iter().map(|source| source.ready(scope))).await;
    }

    /// [`ToolSource::stop`] of all sources, side by side.
    pub async fn stop(&self) {
        join_all(self.outside.iter().map(|source| source.stop())).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::testing::Fake;

    /// Offers the same to every scope.
    struct FakeSource(Mutex<Vec<Arc<dyn Tool>>>, watch::Sender<u64>);

    impl FakeSource {
        fn of(tools: Vec<Arc<dyn Tool>>) -> Arc<Self> {
            Arc::new(Self(Mutex::new(tools), watch::Sender::new(0)))
        }

        fn set(&self, tools: Vec<Arc<dyn Tool>>) {
            *self.0.lock().unwrap() = tools;
            self.1.send_modify(|revision| *revision += 1);
        }
    }

    impl ToolSource for FakeSource {
        fn tools(&self, _: &ToolScope) -> Arc<[Arc<dyn Tool>]> {
            self.0.lock().unwrap().clone().into()
        }

        fn changed(&self) -> watch::Receiver<u64> {
            self.1.subscribe()
        }
    }

    fn fake(name: &str) -> Arc<dyn Tool> {
        Arc::new(Fake::named(name))
    }

    fn scope(tenant: &str) -> ToolScope {
        let session = SessionId::parse("ses_000000000001Sess1234567890").unwrap();
        ToolScope { tenant: tenant.into(), workspace: Path::new("/work").into(), session }
    }

    fn names(registry: &Registry) -> Vec<&str> {
        registry.iter().map(|tool| tool.spec().name.as_str()).collect()
    }

    fn native() -> Arc<Registry> {
        Arc::new([fake("read"), fake("bash")].into_iter().collect())
    }

    #[test]
    fn without_anything_from_outside_all_share_one_catalogue() {
        let sources = ToolSources::new(native(), vec![FakeSource::of(Vec::new())]);
        assert!(Arc::ptr_eq(&sources.catalogue(&scope("a"), None), sources.native()));
    }

    #[test]
    fn tools_stand_behind_the_native_ones_and_take_the_place_of_none() {
        let offered = ["mcp_x_echo", "read", "mcp_x_echo", "bad name", "mcp_y_z"].map(fake);
        let sources = ToolSources::new(native(), vec![FakeSource::of(offered.into())]);
        let catalogue = sources.catalogue(&scope("a"), None);
        assert_eq!(names(&catalogue), ["read", "bash", "mcp_x_echo", "mcp_y_z"]);
        let only = ["mcp_y_z".to_owned(), "bash".to_owned()];
        assert_eq!(names(&sources.catalogue(&scope("a"), Some(&only))), ["bash", "mcp_y_z"]);
    }

    #[test]
    fn what_is_offered_by_name_only_is_offered_to_those_who_name_it() {
        let example: Arc<dyn Tool> =
            Arc::new(crate::capture::example("save_prd").unwrap().unwrap().by_name_only());
        let source = FakeSource::of(vec![example]);
        let sources = ToolSources::new(native(), vec![source.clone()]);
        assert!(Arc::ptr_eq(&sources.catalogue(&scope("a"), None), sources.native()));
        let only = ["save_prd".to_owned()];
        assert_eq!(names(&sources.catalogue(&scope("a"), Some(&only))), ["save_prd"]);
        source.0.lock().unwrap().push(fake("mcp_x_echo"));
        assert_eq!(names(&sources.catalogue(&scope("a"), None)), ["read", "bash", "mcp_x_echo"]);
    }

    #[test]
    fn what_changed_is_counted() {
        let source = FakeSource::of(Vec::new());
        let sources = ToolSources::new(native(), vec![source.clone()]);
        let before = sources.revision();
        source.set(vec![fake("mcp_x_echo")]);
        assert!(sources.revision() > before);
        assert_eq!(names(&sources.catalogue(&scope("a"), None)).len(), 3);
    }
}
