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

/// The native tools that a server offers. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct NativeTools(Arc<[Tool]>);

/// The session in which the calls of a client run. Begun with the first call.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallSession(Arc<Mutex<Option<SessionId>>>);

/// Records of a session from which on the next call begins another one: calls ask no model, so nothing compacts their session.
const MOST_RECORDS: u64 = 2_000;

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
    /// The tools of these names, of those that an engine lists as `GET /v1/tools` does.
    ///
    /// # Errors
    /// The engine has no native tool of a name, or the list is none.
    pub fn choose(listed: Value, names: &[String]) -> Result<Self, ApiError> {
        let List { tools: mut listed } = read(listed)?;
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
        Ok(Self(tools.into()))
    }

    /// The same, of those that an engine has.
    ///
    /// # Errors
    /// It has no native tool of a name, or cannot list them.
    pub(crate) async fn chosen(api: &dyn Api, names: &[String]) -> Result<Self, ApiError> {
        if names.is_empty() {
            return Ok(Self::default());
        }
        Self::choose(api.get("/v1/tools").await?, names)
    }

    pub(crate) fn all(&self) -> &[Tool] {
        &self.0
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Tool> {
        self.0.iter().find(|tool| tool.name == name)
    }
}

impl CallSession {
    /// The session of the next call; begins one where there is none, where it was removed, and where it is long.
    pub(crate) async fn of(&self, api: &dyn Api, directory: Option<&str>) -> Result<SessionFacts, ApiError> {
        let mut known = self.0.lock().await;
        if let Some(id) = *known {
            match session(api, id).await {
                Ok(facts) if facts.head.0 < MOST_RECORDS => return Ok(facts),
                Ok(_) => {}
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
pub(crate) async fn begin(
    api: &dyn Api,
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use playhouse_protocol::Seq;

    use futures::FutureExt as _;
    use futures::future::{self, BoxFuture};

    use super::*;
    use crate::api::Events;

    /// An engine whose sessions have so many records.
    #[derive(Debug, Default)]
    struct Fake {
        made: Arc<AtomicU64>,
        records: Arc<AtomicU64>,
    }

    impl Fake {
        fn session(&self) -> Value {
            let number = self.made.load(Ordering::Relaxed);
            json!({"id": format!("ses_0000000000{number:02}Sess1234567890"), "workspace": "/work", "title": "", "agent": "build",
                "model": "mock/m", "parent": null, "state": "idle", "parked": null, "open_turns": 0, "turns": 0,
                "head": self.records.load(Ordering::Relaxed)})
        }
    }

    impl Api for Fake {
        fn get<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Value, ApiError>> {
            future::ready(Ok(self.session())).boxed()
        }

        fn post<'a>(&'a self, _: &'a str, _: &'a Value) -> BoxFuture<'a, Result<Value, ApiError>> {
            self.made.fetch_add(1, Ordering::Relaxed);
            future::ready(Ok(self.session())).boxed()
        }

        fn events(&self, _: SessionId, _: Seq) -> BoxFuture<'_, Result<Events, ApiError>> {
            unreachable!("nothing is called")
        }
    }

    #[tokio::test]
    async fn a_long_session_is_followed_by_another_one() {
        let (api, calls) = (Fake::default(), CallSession::default());
        for (records, made) in [(0, 1), (MOST_RECORDS - 1, 1), (MOST_RECORDS, 2), (9, 2)] {
            api.records.store(records, Ordering::Relaxed);
            let session = calls.of(&api, None).await.unwrap();
            assert_eq!(
                (api.made.load(Ordering::Relaxed), session.id),
                (made, read::<SessionFacts>(api.session()).unwrap().id)
            );
        }
    }
}
