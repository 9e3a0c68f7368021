//! Native tools of the engine, offered by choice: each call runs in a session of the client.

use std::sync::Arc;

use playhouse_protocol::consent::Risk;
use playhouse_protocol::message::{CallOutcome, CallResult};
use playhouse_protocol::{Accepted, SessionId};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::api::{Api, ApiError, SessionFacts, read, session};
use crate::prompt::{Asking, Caller, Finished, follow};
use crate::turn::{Ended, Turn};

/// The native tools that a server offers, and the session in which their calls run.
#[derive(Debug, Default)]
pub(crate) struct NativeTools {
    tools: Vec<Tool>,
    /// Begun with the first call.
    session: Mutex<Option<SessionId>>,
}

/// What works in turns of models only, or calls tools that were not chosen.
const NOT_OFFERED: [&str; 2] = ["batch", "task"];

/// A tool, as `GET /v1/tools` lists it.
#[derive(Deserialize)]
struct Listed {
    name: String,
    description: String,
    parameters: Value,
    risk: Risk,
    /// Absent for those that come with the engine.
    source: Option<Value>,
}

#[derive(Deserialize)]
struct List {
    tools: Vec<Listed>,
}

impl NativeTools {
    /// The tools of these names, as the engine describes them.
    ///
    /// # Errors
    /// The engine has no native tool of a name, or cannot list them.
    pub(crate) async fn chosen<A: Api>(api: &A, names: &[String]) -> Result<Self, ApiError> {
        if names.is_empty() {
            return Ok(Self::default());
        }
        let List { tools: mut listed } = read(api.get("/v1/tools").await?)?;
        listed.retain(|tool| tool.source.is_none() && !NOT_OFFERED.contains(&tool.name.as_str()));
        let mut tools: Vec<Tool> = Vec::with_capacity(names.len());
        for name in names {
            let Some(tool) = listed.iter().find(|tool| tool.name == *name) else {
                let shown: String = name.escape_debug().take(64).collect();
                let known: Vec<&str> = listed.iter().map(|tool| tool.name.as_str()).collect();
                let known = known.join(", ");
                return Err(ApiError(format!("there is no native tool \"{shown}\": choose of {known}")));
            };
            if !tools.iter().any(|chosen| chosen.name == *name) {
                tools.push(shown(tool));
            }
        }
        Ok(Self { tools, session: Mutex::default() })
    }

    pub(crate) fn all(&self) -> &[Tool] {
        &self.tools
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The session of the calls; begins one where there is none, or where it was removed.
    pub(crate) async fn session<A: Api>(
        &self,
        api: &A,
        directory: Option<&str>,
    ) -> Result<SessionFacts, ApiError> {
        let mut known = self.session.lock().await;
        if let Some(id) = *known {
            match session(api, id).await {
                Ok(facts) => return Ok(facts),
                Err(error) => tracing::debug!(%error, "the session of a client's calls is gone"),
            }
        }
        let mut body = json!({"title": "Calls of an MCP client"});
        if let Some(directory) = directory {
            body["workspace"] = directory.into();
        }
        let made: SessionFacts = read(api.post("/v1/sessions", &body).await?)?;
        *known = Some(made.id);
        Ok(made)
    }
}

/// A tool as clients are shown it.
fn shown(tool: &Listed) -> Tool {
    let Listed { name, description, parameters, risk, .. } = tool;
    let parameters: JsonObject = parameters.as_object().cloned().unwrap_or_default();
    // Which calls change nothing is not known of a tool, but of a call only.
    let annotations = ToolAnnotations::new().destructive(*risk == Risk::Dangerous);
    Tool::new(name.clone(), description.clone(), Arc::new(parameters)).with_annotations(annotations)
}

/// Begins a call, and waits for its end.
///
/// # Errors
/// The engine refused it, or its events ended.
pub(crate) async fn begin<A: Api>(
    api: &A,
    caller: &Caller,
    of: &SessionFacts,
    tool: &str,
    input: Option<Map<String, Value>>,
) -> Result<Finished, ApiError> {
    let SessionFacts { id, head, .. } = *of;
    let events = api.events(id, head).await?;
    let unattended = caller.asking == Asking::Nobody;
    let body = json!({"tool": tool, "input": input.unwrap_or_default(), "unattended": unattended});
    let accepted: Accepted = read(api.post(&format!("/v1/sessions/{id}/calls"), &body).await?)?;
    follow(api, caller, Turn::new(id, accepted.turn, head), events).await
}

/// What a client reads of a call that is over.
pub(crate) fn ended_result(ended: Ended) -> CallToolResult {
    let Ended { prompt, call } = ended;
    let Some(CallResult { outcome, output, attachments, .. }) = call else {
        let error = prompt.error.unwrap_or_else(|| "the call was aborted before it ran".to_owned());
        return CallToolResult::error(vec![ContentBlock::text(error)]);
    };
    let mut content = vec![ContentBlock::text(output)];
    content.extend(attachments.iter().map(|file| {
        let session = prompt.session;
        ContentBlock::text(format!(
            "The file {} ({}) is kept in session {session}.",
            file.filename, file.mime
        ))
    }));
    content.extend(prompt.declined.iter().map(|declined| {
        ContentBlock::text(format!("Declined: {}: {} ({})", declined.tool, declined.asked, declined.why))
    }));
    match outcome {
        CallOutcome::Done => CallToolResult::success(content),
        _ => CallToolResult::error(content),
    }
}
