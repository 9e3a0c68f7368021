//! The tool that lists and reads what servers offer to be read.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_policy::Access;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::message::CallInput;
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_protocol::tool::ToolOrigin;
use playhouse_tools::{CallContext, MCP_RESOURCE, Plan, Prepared, Risk, Tool, ToolError, ToolOutput};
use serde_json::{Map, Value, json};

use crate::connection::ResourceContent;
use crate::entry::ServerEntry;
use crate::list::ListedResource;
use crate::result::{CallResult, Content};
use crate::text::{cut, line};
use crate::tool::Caller;

/// The longest address, in bytes.
const URI: usize = 4 * 1024;
/// The longest line of a list, in bytes.
const LINE: usize = 400;

/// A server that has resources, for one session.
pub struct ResourceServer {
    name: String,
    agents: Option<Vec<String>>,
    risk: Risk,
    caller: Arc<dyn Caller>,
}

impl ResourceServer {
    /// The server of an entry, which `caller` asks.
    pub fn new(entry: &ServerEntry, caller: Arc<dyn Caller>) -> Self {
        let ServerEntry { name, agents, risk, .. } = entry;
        Self { name: name.clone(), agents: agents.clone(), risk: risk.unwrap_or(Risk::Moderate), caller }
    }

    fn serves(&self, agent: &str) -> bool {
        self.agents.as_ref().is_none_or(|agents| agents.iter().any(|name| name == agent))
    }
}

/// Lists and reads the resources of a session's servers.
pub struct McpResource {
    spec: ToolSpec,
    servers: Vec<ResourceServer>,
    risk: Risk,
}

impl McpResource {
    /// The tool for these servers; `None` if there are none.
    pub fn new(servers: Vec<ResourceServer>) -> Option<Self> {
        let risk = servers.iter().map(|server| server.risk).max()?;
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        let description = format!(
            "Lists what a server offers to be read, such as files, pages and records, or reads one of them by its address. \
             These servers have some: {}.",
            names.join(", ")
        );
        let parameters = json!({
            "type": "object",
            "properties": {
                "server": {"type": "string", "description": "The server."},
                "uri": {"type": "string", "description": "The address of what is read; without one, all that can be read is listed."},
            },
            "required": ["server"],
        });
        Some(Self {
            spec: ToolSpec { name: MCP_RESOURCE.to_owned(), description, parameters },
            servers,
            risk,
        })
    }

    fn server(&self, name: &str, agent: &str) -> Result<&ResourceServer, ToolError> {
        let mut usable = self.servers.iter().filter(|server| server.serves(agent));
        usable.clone().find(|server| server.name == name).ok_or_else(|| {
            let known: Vec<&str> = usable.by_ref().map(|server| server.name.as_str()).collect();
            ToolError::Invalid(format!(
                "no server \"{}\" has resources; these do: {}",
                line(name, 64).escape_debug(),
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            ))
        })
    }
}

impl Tool for McpResource {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn permission(&self) -> &str {
        crate::PERMISSION
    }

    fn risk(&self) -> Risk {
        self.risk
    }

    fn origin_of(&self, input: &CallInput) -> Option<ToolOrigin> {
        let CallInput::Object(input) = input else { return None };
        let server = input.get("server")?.as_str()?;
        self.servers.iter().find(|known| known.name == server)?;
        Some(ToolOrigin::Mcp { server: server.to_owned(), tool: MCP_RESOURCE.to_owned() })
    }

    fn serves(&self, agent: &str) -> bool {
        self.servers.iter().any(|server| server.serves(agent))
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        async move {
            let server = input.get("server").and_then(Value::as_str);
            let server = server.ok_or_else(|| ToolError::Invalid("\"server\" is missing".to_owned()))?;
            let server = self.server(server, context.host.agent())?;
            let uri = match input.get("uri") {
                None | Some(Value::Null) => None,
                Some(Value::String(uri)) => Some(uri.clone()).filter(|uri| !uri.trim().is_empty()),
                Some(_) => return Err(ToolError::Invalid("\"uri\" must be a text".to_owned())),
            };
            if uri.as_ref().is_some_and(|uri| uri.len() > URI) {
                return Err(ToolError::Invalid(format!("\"uri\" has more than {URI} bytes")));
            }
            let title = match &uri {
                Some(uri) => line(&format!("{}: {uri}", server.name), LINE),
                None => format!("{}: resources", server.name),
            };
            Ok(Prepared {
                accesses: vec![Access::Tool { server: server.name.clone(), tool: MCP_RESOURCE.to_owned() }],
                effect: Effect::None,
                // Whether reading again does the same, only the server knows.
                recovery: Recovery::Interrupt,
                preview: title.clone(),
                title: title.clone(),
                plan: Box::new((server.name.clone(), uri, title)),
            })
        }
        .boxed()
    }

    fn execute<'a>(
        &'a self,
        plan: Plan,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async move {
            let Ok(plan) = plan.downcast::<(String, Option<String>, String)>() else {
                return Err(ToolError::Failed("the call was not prepared".to_owned()));
            };
            let (server, uri, title) = *plan;
            let server = self.server(&server, context.host.agent())?;
            let result = server.caller.resources(uri, context).await?;
            context.pool.run(move || result.into_output(title)).await
        }
        .boxed()
    }
}

/// A list of resources, as models read it.
pub fn listed(resources: &[ListedResource]) -> CallResult {
    let lines = resources.iter().map(|ListedResource { uri, name, description, mime_type, .. }| {
        let mime = mime_type.as_deref().map(|mime| format!(" ({mime})")).unwrap_or_default();
        let said = description.as_deref().or((!name.is_empty()).then_some(name));
        let said = said.map(|text| format!(": {text}")).unwrap_or_default();
        line(&format!("{}{mime}{said}", cut(uri, URI)), URI + LINE)
    });
    let text = match resources.is_empty() {
        true => "the server offers nothing to be read now".to_owned(),
        false => lines.collect::<Vec<_>>().join("\n"),
    };
    CallResult { content: vec![Content::Text(text)], structured: None, is_error: false }
}

/// What was read, as models read it.
pub fn read(contents: Vec<ResourceContent>) -> CallResult {
    let parts =
        contents.into_iter().map(|ResourceContent { uri, mime_type, text, blob }| match (text, blob) {
            (Some(text), _) => Content::Text(text),
            (None, Some(data)) => Content::Blob { name: uri, mime: mime_type, data },
            (None, None) => Content::Unknown("nothing".to_owned()),
        });
    CallResult { content: parts.collect(), structured: None, is_error: false }
}
