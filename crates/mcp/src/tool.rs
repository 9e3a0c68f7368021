//! A tool of a server as a tool of the engine.
//!
//! - [`OfferedTool`] is what is the same for all sessions: the description that models are shown, the schema that arguments are
//!   checked by, risk and effect. [`offered`] makes them of a [`Listing`].
//! - [`McpTool`] is one of them with a [`Caller`], who knows the session and has the server.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_policy::Access;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_protocol::tool::ToolOrigin;
use playhouse_tools::{CallContext, MCP_RESOURCE, Plan, Prepared, Risk, Tool, ToolError, ToolOutput};
use serde_json::{Map, Value};

use crate::connection::mirrored;
use crate::connection::{Progress, ProgressSink};
use crate::entry::{ServerEntry, Transport};
use crate::list::{ListedTool, Listing};
use crate::result::CallResult;
use crate::schema::ArgumentCheck;
use crate::text::{cut, line};
use crate::{names, schema};

/// The longest description that models are shown, in bytes.
const DESCRIPTION: usize = 2 * 1024;
/// The longest preview of a call, in bytes.
const PREVIEW: usize = 16 * 1024;
/// The longest title of a call, in bytes.
const TITLE: usize = 150;

/// A call of a tool, on its way to the server.
#[derive(Clone)]
pub struct ToolCall {
    /// The server's name.
    pub server: Arc<str>,
    /// The server's own name of the tool.
    pub tool: Arc<str>,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// Where its progress is told.
    pub progress: ProgressSink,
}

/// Makes calls for one session.
pub trait Caller: Send + Sync {
    /// Makes a call. Ends soon after `context.cancel` is cancelled; dropping the future cancels the call.
    fn call<'a>(
        &'a self,
        call: ToolCall,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<CallResult, ToolError>>;

    /// Reads the resource of this address, or lists those that there are. Ends as calls do.
    fn resources<'a>(
        &'a self,
        uri: Option<String>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<CallResult, ToolError>>;
}

/// A tool that a server offers.
#[derive(Debug)]
pub struct OfferedTool {
    spec: ToolSpec,
    server: Arc<str>,
    tool: Arc<str>,
    origin: ToolOrigin,
    /// By the schema as the server wrote it.
    check: ArgumentCheck,
    agents: Option<Vec<String>>,
    risk: Risk,
    effect: Effect,
    /// The server is a program on this machine.
    is_local: bool,
    instructions: Option<Arc<str>>,
}

/// The tools of a listing that an entry shows, and those that cannot be shown: by name, with the reason.
pub fn offered(entry: &ServerEntry, listing: &Listing) -> (Vec<Arc<OfferedTool>>, Vec<(String, String)>) {
    let mut refused = listing.refused.clone();
    let shown: Vec<&ListedTool> = listing.tools.iter().filter(|tool| entry.tools.takes(&tool.name)).collect();
    let names = names::of_tools(&entry.name, shown.iter().map(|tool| tool.name.as_str()));
    let mut offered = Vec::new();
    let instructions: Option<Arc<str>> = listing.instructions.as_deref().map(Arc::from);
    for (tool, name) in shown.into_iter().zip(names) {
        // Rules could not tell it from the tool that reads resources.
        let is_free = if tool.name == MCP_RESOURCE { Err("its name is taken".to_owned()) } else { Ok(()) };
        let usable =
            is_free.and_then(|()| schema::usable(&tool.input_schema)).and_then(|()| match entry.transport {
                Transport::Http(_) => mirrored(&tool.input_schema).map(drop),
                Transport::Stdio(_) => Ok(()),
            });
        let reason = match (name, usable) {
            (Some(name), Ok(())) => {
                offered.push(Arc::new(OfferedTool::new(entry, tool, name, instructions.clone())));
                continue;
            }
            (None, _) => "it is listed twice".to_owned(),
            (_, Err(reason)) => reason,
        };
        refused.push((line(&tool.name, TITLE), reason));
    }
    (offered, refused)
}

impl OfferedTool {
    /// Its name at the server.
    pub fn name(&self) -> &str {
        &self.tool
    }

    fn new(entry: &ServerEntry, tool: &ListedTool, name: String, instructions: Option<Arc<str>>) -> Self {
        // A server may lie: so a hint makes a tool no safer than one that reaches out.
        let only_reads = tool.annotations.read_only_hint == Some(true);
        let by_hints = if only_reads { Risk::Moderate } else { Risk::Dangerous };
        let described =
            tool.description.as_deref().or(tool.title.as_deref()).map(str::trim).unwrap_or_default();
        let mut description = if described.is_empty() {
            format!("The tool {} of the server {}.", line(&tool.name, TITLE), entry.name)
        } else {
            cut(described, DESCRIPTION)
        };
        if let Some(alternatives) = schema::alternatives(&tool.input_schema) {
            description.push_str("\n\n");
            description.push_str(&alternatives);
        }
        let (server, tool_name): (Arc<str>, Arc<str>) =
            (entry.name.as_str().into(), tool.name.as_str().into());
        Self {
            spec: ToolSpec { name, description, parameters: schema::shown(&tool.input_schema) },
            origin: ToolOrigin::Mcp { server: server.to_string(), tool: tool_name.to_string() },
            server,
            tool: tool_name,
            check: ArgumentCheck::new(&tool.input_schema),
            agents: entry.agents.clone(),
            risk: entry.risk.unwrap_or(by_hints),
            effect: if only_reads { Effect::None } else { Effect::Workspace },
            is_local: matches!(entry.transport, Transport::Stdio(_)),
            instructions,
        }
    }

    /// Its name and description, as models are told of it.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }
}

/// A tool of a server for one session.
pub struct McpTool {
    offered: Arc<OfferedTool>,
    caller: Arc<dyn Caller>,
}

impl McpTool {
    /// The tool, whose calls `caller` makes.
    pub fn new(offered: Arc<OfferedTool>, caller: Arc<dyn Caller>) -> Self {
        Self { offered, caller }
    }
}

impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.offered.spec
    }

    fn permission(&self) -> &str {
        crate::PERMISSION
    }

    fn risk(&self) -> Risk {
        self.offered.risk
    }

    fn origin(&self) -> Option<&ToolOrigin> {
        Some(&self.offered.origin)
    }

    fn changes_unnamed_files(&self) -> bool {
        self.offered.is_local
    }

    fn instructions(&self) -> Option<&str> {
        self.offered.instructions.as_deref()
    }

    fn serves(&self, agent: &str) -> bool {
        self.offered.agents.as_ref().is_none_or(|agents| agents.iter().any(|name| name == agent))
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        _context: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        let OfferedTool { spec, server, tool, check, effect, .. } = &*self.offered;
        let prepared = check
            .check(input)
            .map_err(|problem| {
                ToolError::Invalid(format!("the arguments of {} do not fit: {problem}", spec.name))
            })
            .map(|()| Prepared {
                accesses: vec![Access::Tool { server: server.to_string(), tool: tool.to_string() }],
                effect: *effect,
                // Whether a call that was cut off had its effects, or has them when it is made again, nobody knows.
                recovery: Recovery::Interrupt,
                preview: preview(server, tool, input),
                title: line(&format!("{server}: {tool}"), TITLE),
                plan: Box::new(input.clone()),
            });
        std::future::ready(prepared).boxed()
    }

    fn execute<'a>(
        &'a self,
        plan: Plan,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async move {
            let OfferedTool { spec, server, tool, .. } = &*self.offered;
            let Ok(arguments) = plan.downcast::<Map<String, Value>>() else {
                let bug =
                    format!("{} was given the plan of another tool; this is a bug in the engine", spec.name);
                return Err(ToolError::Failed(bug));
            };
            let output = Arc::clone(&context.output);
            let progress: ProgressSink = Arc::new(move |progress| output.write(&shown(&progress)));
            let call = ToolCall {
                server: Arc::clone(server),
                tool: Arc::clone(tool),
                arguments: *arguments,
                progress,
            };
            let result = self.caller.call(call, context).await?;
            let title = line(&format!("{server}: {tool}"), TITLE);
            context.pool.run(move || result.into_output(title)).await
        }
        .boxed()
    }
}

/// What a person sees before agreeing to a call.
fn preview(server: &str, tool: &str, arguments: &Map<String, Value>) -> String {
    let name = format!("server {}, tool {}", line(server, TITLE), line(tool, TITLE));
    match serde_json::to_string_pretty(arguments) {
        Ok(arguments) => cut(&format!("{name}\n{arguments}"), PREVIEW),
        Err(_) => name,
    }
}

/// A line of progress.
fn shown(progress: &Progress) -> String {
    let Progress { done, total, message } = progress;
    let total = total.map(|total| format!("/{total}")).unwrap_or_default();
    let message = message.as_deref().map(|text| format!(" {}", line(text, 4 * TITLE))).unwrap_or_default();
    format!("[{done}{total}]{message}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::entry::ToolChoice;

    fn listing(tools: Value) -> Listing {
        Listing { tools: serde_json::from_value(tools).unwrap(), ..Listing::default() }
    }

    struct Nobody;

    impl Caller for Nobody {
        fn call<'a>(
            &'a self,
            _: ToolCall,
            _: &'a CallContext,
        ) -> BoxFuture<'a, Result<CallResult, ToolError>> {
            std::future::ready(Err(ToolError::Failed("nobody".into()))).boxed()
        }

        fn resources<'a>(
            &'a self,
            _: Option<String>,
            _: &'a CallContext,
        ) -> BoxFuture<'a, Result<CallResult, ToolError>> {
            std::future::ready(Err(ToolError::Failed("nobody".into()))).boxed()
        }
    }

    #[test]
    fn tools_are_chosen_and_told_apart() {
        let mut entry = ServerEntry::stdio("files", "x", Vec::new());
        entry.tools = ToolChoice::new(Vec::new(), vec!["secret*".into()]).unwrap();
        let listing = listing(json!([
            {"name": "read"},
            {"name": "read"},
            {"name": "secret_read"},
            {"name": "nonsense", "inputSchema": "a text"},
        ]));
        let (offered, refused) = offered(&entry, &listing);
        assert_eq!(offered.len(), 1);
        assert_eq!(offered[0].spec().name, "mcp_files_read");
        assert_eq!(offered[0].spec().description, "The tool read of the server files.");
        let expected = [
            ("read", "it is listed twice"),
            ("nonsense", "its inputSchema is a string, and must be an object"),
        ];
        assert_eq!(refused, expected.map(|(name, reason)| (name.to_owned(), reason.to_owned())));
    }

    #[test]
    fn hints_make_a_tool_no_safer_than_moderate_and_the_operator_may() {
        let listing = listing(json!([
            {"name": "a", "annotations": {"readOnlyHint": true}},
            {"name": "b", "annotations": {"destructiveHint": false}},
        ]));
        let mut entry = ServerEntry::stdio("s", "x", Vec::new());
        let risks = |entry: &ServerEntry| {
            let (offered, _) = offered(entry, &listing);
            offered.iter().map(|tool| (tool.risk, tool.effect)).collect::<Vec<_>>()
        };
        assert_eq!(risks(&entry), [(Risk::Moderate, Effect::None), (Risk::Dangerous, Effect::Workspace)]);
        entry.risk = Some(Risk::Safe);
        assert_eq!(risks(&entry), [(Risk::Safe, Effect::None), (Risk::Safe, Effect::Workspace)]);
    }

    #[test]
    fn a_tool_serves_the_agents_of_its_entry() {
        let mut entry = ServerEntry::stdio("s", "x", Vec::new());
        entry.agents = Some(vec!["build".into()]);
        let (offered, _) =
            offered(&entry, &listing(json!([{"name": "a", "description": "x".repeat(9_999)}])));
        let tool = McpTool::new(Arc::clone(&offered[0]), Arc::new(Nobody));
        assert!(tool.serves("build") && !tool.serves("plan"));
        let origin = ToolOrigin::Mcp { server: "s".into(), tool: "a".into() };
        assert_eq!(tool.origin(), Some(&origin));
        assert!(tool.spec().description.len() <= DESCRIPTION + 3);
    }

    #[test]
    fn progress_is_a_line() {
        let progress = Progress { done: 1.0, total: Some(4.0), message: Some("a\nb".into()) };
        assert_eq!(shown(&progress), "[1/4] a b\n");
    }
}
