//! Two tools that stand for those of all servers, where these are too many to be shown: one finds them, one calls them.

use std::future::ready;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::message::CallInput;
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_protocol::tool::ToolOrigin;
use playhouse_tools::{CallContext, MCP_CALL, MCP_SEARCH, Plan, Prepared, Risk, Tool, ToolError, ToolOutput};
use serde_json::{Map, Value, json};

/// So many tools are found at once.
const MOST_FOUND: usize = 10;
/// How much a match in a name counts, beside one in a description.
const NAME_WEIGHT: usize = 4;

/// The two tools for the tools of a session.
pub fn pass_on(tools: &Arc<[Arc<dyn Tool>]>) -> [Arc<dyn Tool>; 2] {
    [Arc::new(McpSearch::new(Arc::clone(tools))), Arc::new(McpCall::new(Arc::clone(tools)))]
}

/// Finds tools by words.
struct McpSearch {
    spec: ToolSpec,
    tools: Arc<[Arc<dyn Tool>]>,
}

impl McpSearch {
    fn new(tools: Arc<[Arc<dyn Tool>]>) -> Self {
        let description = format!(
            "Finds tools of servers by words of their names and descriptions. There are {} such tools, and none of them is in \
             your list: call one with {MCP_CALL}. Answers with the {MOST_FOUND} that fit best, and the schemas of their arguments.",
            tools.len()
        );
        let parameters = json!({
            "type": "object",
            "properties": {"query": {"type": "string", "description": "Words, for instance what shall be done with what."}},
            "required": ["query"],
        });
        Self { spec: ToolSpec { name: MCP_SEARCH.to_owned(), description, parameters }, tools }
    }

    /// Those that fit best, the best first.
    fn find(&self, query: &str) -> Vec<&Arc<dyn Tool>> {
        let words: Vec<String> = words(query).collect();
        let score = |tool: &Arc<dyn Tool>| -> usize {
            let spec = tool.spec();
            let named: Vec<String> = words_of(tool).collect();
            let described: Vec<String> = self::words(&spec.description).collect();
            let fits = |word: &String| {
                let in_name = named.iter().any(|other| other.contains(word.as_str()));
                let in_description = described.iter().any(|other| other.contains(word.as_str()));
                usize::from(in_name) * NAME_WEIGHT + usize::from(in_description)
            };
            words.iter().map(fits).sum()
        };
        let mut found: Vec<(usize, &Arc<dyn Tool>)> =
            self.tools.iter().map(|tool| (score(tool), tool)).filter(|(score, _)| *score > 0).collect();
        // Stable: of two that fit alike the first comes first.
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        found.into_iter().map(|(_, tool)| tool).collect()
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

/// The words of its name, and of its server's.
fn words_of(tool: &Arc<dyn Tool>) -> impl Iterator<Item = String> {
    let names = match tool.origin().and_then(ToolOrigin::mcp) {
        Some((server, name)) => format!("{server} {name}"),
        None => tool.spec().name.clone(),
    };
    words(&names).collect::<Vec<_>>().into_iter()
}

impl Tool for McpSearch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        Risk::Safe
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        let query = input.get("query").and_then(Value::as_str).filter(|query| !query.trim().is_empty());
        let prepared = query.map(|query| Prepared {
            accesses: Vec::new(),
            effect: Effect::None,
            recovery: Recovery::Rerun,
            preview: query.to_owned(),
            title: query.to_owned(),
            plan: Box::new(query.to_owned()),
        });
        ready(
            prepared
                .ok_or_else(|| ToolError::Invalid("\"query\" is missing: say what you look for".to_owned())),
        )
        .boxed()
    }

    fn execute<'a>(
        &'a self,
        plan: Plan,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let query = plan.downcast::<String>().map_or_else(|_| String::new(), |query| *query);
        // What the agent may not use is not there for it.
        let usable = |tool: &&Arc<dyn Tool>| context.host.find(&tool.spec().name).is_ok();
        let found: Vec<Value> = self
            .find(&query)
            .into_iter()
            .filter(usable)
            .take(MOST_FOUND)
            .filter_map(|tool| {
                let (server, name) = tool.origin()?.mcp()?;
                let ToolSpec { description, parameters, .. } = tool.spec();
                Some(json!({"server": server, "tool": name, "description": description, "arguments": parameters}))
            })
            .collect();
        let output = if found.is_empty() {
            "no tool fits: try other words".to_owned()
        } else {
            found.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
        };
        ready(Ok(ToolOutput { title: format!("{} found", found.len()), ..ToolOutput::text(output) })).boxed()
    }
}

/// Calls a tool that is not shown.
struct McpCall {
    spec: ToolSpec,
    tools: Arc<[Arc<dyn Tool>]>,
    /// As dangerous as the most dangerous of them: what is judged is this tool, with what the other would touch.
    risk: Risk,
}

/// A call that another tool has prepared.
struct PassedOn {
    tool: Arc<dyn Tool>,
    plan: Plan,
}

impl McpCall {
    fn new(tools: Arc<[Arc<dyn Tool>]>) -> Self {
        let description =
            format!("Calls a tool of a server that is not in your list. Find it with {MCP_SEARCH} first.");
        let parameters = json!({
            "type": "object",
            "properties": {
                "server": {"type": "string", "description": "The server; may be left out where only one has the tool."},
                "tool": {"type": "string", "description": "The tool, by its name at the server."},
                "arguments": {"type": "object", "description": "What the tool's own schema asks for."},
            },
            "required": ["tool", "arguments"],
        });
        let is_dangerous = tools.iter().any(|tool| tool.risk() == Risk::Dangerous);
        let risk = if is_dangerous { Risk::Dangerous } else { Risk::Moderate };
        Self { spec: ToolSpec { name: MCP_CALL.to_owned(), description, parameters }, tools, risk }
    }

    /// The tool that arguments name.
    fn named(&self, input: &Map<String, Value>) -> Result<&Arc<dyn Tool>, String> {
        let text = |name: &str| input.get(name).and_then(Value::as_str);
        let wanted = text("tool").ok_or("\"tool\" is missing")?;
        let fits = |tool: &&Arc<dyn Tool>| {
            let Some((server, name)) = tool.origin().and_then(ToolOrigin::mcp) else { return false };
            (name == wanted || tool.spec().name == wanted) && text("server").is_none_or(|text| text == server)
        };
        let mut found = self.tools.iter().filter(fits);
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => {
                Err(format!("more than one server has the tool {wanted:?}: name the \"server\""))
            }
            (None, _) => Err(format!("there is no tool {wanted:?}: find it with {MCP_SEARCH}")),
        }
    }
}

impl Tool for McpCall {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        self.risk
    }

    fn permission(&self) -> &str {
        crate::PERMISSION
    }

    fn changes_unnamed_files(&self) -> bool {
        true
    }

    fn origin_of(&self, input: &CallInput) -> Option<ToolOrigin> {
        match input {
            CallInput::Object(input) => self.named(input).ok()?.origin().cloned(),
            CallInput::Malformed(_) => None,
        }
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        async move {
            let named = self.named(input).map_err(ToolError::Invalid)?;
            // Whether it may be used is asked of it, not of this tool.
            let tool = context.host.find(&named.spec().name)?;
            let none = Map::new();
            let arguments = match input.get("arguments") {
                Some(Value::Object(arguments)) => arguments,
                None => &none,
                Some(_) => return Err(ToolError::Invalid("\"arguments\" must be an object".to_owned())),
            };
            let prepared = tool.prepare(arguments, context).await?;
            let Prepared { accesses, effect, recovery, preview, title, plan } = prepared;
            let plan = Box::new(PassedOn { tool, plan });
            Ok(Prepared { accesses, effect, recovery, preview, title, plan })
        }
        .boxed()
    }

    fn execute<'a>(
        &'a self,
        plan: Plan,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async move {
            let Ok(passed_on) = plan.downcast::<PassedOn>() else {
                return Err(ToolError::Failed("the call was not prepared".to_owned()));
            };
            let PassedOn { tool, plan } = *passed_on;
            tool.execute(plan, context).await
        }
        .boxed()
    }
}
