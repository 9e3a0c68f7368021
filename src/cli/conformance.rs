//! `playhouse mcp-conformance`: the MCP client as the official conformance suite tests it.
//!
//! The suite names the scenario, the revision of the protocol and what else a client has to know in variables of the
//! environment. Whatever the scenario, the client does the same: it connects, lists the tools, and calls those that are named to
//! it, or else each one. It logs in by itself where the server wants it, and answers questions with their defaults.
//!
//! Nothing but this command reaches servers of this machine without being configured to.

use std::sync::Arc;

use clap::Args;
use futures::future::{BoxFuture, join_all};
use playhouse_mcp::{
    Authorizer, CallRequest, Connection, GrantType, OAuthClient, Place, Protocol, ServerEntry, Transport,
    Visitor, offered,
};
use playhouse_policy::Verdict;
use playhouse_protocol::SessionId;
use playhouse_protocol::question::{Question, QuestionAnswer, Todo};
use playhouse_sandbox::Walls;
use playhouse_sandbox::process::Scope;
use playhouse_tools::web::{Allowed, Door, DoorError, Request, Url};
use playhouse_tools::{Alone, Host, Prepared, Showing, Tool, ToolError};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{CommandResult, Exit, Failure, say, variable};

/// The first revision of the protocol without a handshake.
const STATELESS: &str = "2026-07-28";
/// Where the browser would be sent back. Nothing listens there.
const REDIRECT: &str = "http://localhost:3000/callback";
/// A document that describes the client, for the scenario that looks for its address.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";
const SESSION: &str = "ses_000000000001Conformance001";

/// Options of `playhouse mcp-conformance`.
#[derive(Debug, Args)]
pub(super) struct ConformanceArguments {
    /// The address of the server under which the client is tested
    url: String,
}

/// What the suite tells beside the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    client_id: Option<String>,
    client_secret: Option<String>,
    #[serde(rename = "toolCalls")]
    tool_calls: Vec<Call>,
}

#[derive(Debug, Deserialize)]
struct Call {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

pub(super) async fn conformance(arguments: ConformanceArguments) -> CommandResult {
    let scenario = variable("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let revision = variable("MCP_CONFORMANCE_PROTOCOL_VERSION").unwrap_or_default();
    let context: Context = match variable("MCP_CONFORMANCE_CONTEXT") {
        Some(text) => serde_json::from_str(&text)
            .map_err(|error| Failure::usage(format!("MCP_CONFORMANCE_CONTEXT cannot be read: {error}")))?,
        None => Context::default(),
    };
    let mut entry = ServerEntry::http("conformance", arguments.url);
    entry.protocol = if revision.as_str() >= STATELESS { Protocol::Discover } else { Protocol::Initialize };
    if let Transport::Http(http) = &mut entry.transport {
        http.oauth.client_metadata_url = Some(DOCUMENT.to_owned());
        if let Some(id) = context.client_id.clone() {
            let secret = context.client_secret.clone().map(Into::into);
            http.oauth.client = Some(OAuthClient { id, secret });
        }
        if scenario.contains("client-credentials") {
            http.oauth.grant = GrantType::ClientCredentials;
        }
    }
    let own = ["localhost", "127.0.0.1", "::1"].map(str::parse::<Allowed>);
    let door = Door::new(own.into_iter().collect::<Result<_, _>>().map_err(Failure::failed)?);
    let place = Place {
        workdir: "/".into(),
        roots: Vec::new(),
        scope: Scope::new(),
        walls: Walls::open(),
        authorizer: Authorizer::unattended(&entry, door.clone(), REDIRECT.to_owned(), visitor(door.clone())),
        door,
    };
    let failed = |what: &str, error: &dyn std::fmt::Display| Failure::failed(format!("{what}: {error}"));
    let (connection, _ended) = Connection::open(&entry, &place)
        .await
        .map_err(|error| failed("it cannot be connected to", &error))?;
    let listing = connection.listing().await.map_err(|error| failed("its tools cannot be listed", &error))?;
    let (tools, refused) = offered(&entry, &listing);
    for (name, reason) in refused {
        say(&format!("set aside: {name}: {reason}"));
    }
    let calls = match context.tool_calls {
        named if !named.is_empty() => named,
        _ => {
            let schema = |name: &str| {
                listing.tools.iter().find(|tool| tool.name == name).map(|tool| &tool.input_schema)
            };
            let call = |name: &str| Call { name: name.to_owned(), arguments: least(schema(name)) };
            tools.iter().map(|tool| call(tool.name())).collect()
        }
    };
    let session = SessionId::parse(SESSION).map_err(|error| Failure::failed(error.to_string()))?;
    let called = calls.into_iter().map(|call| {
        let request = CallRequest {
            session,
            tool: call.name.clone(),
            arguments: call.arguments,
            cancel: CancellationToken::new(),
            timeout: None,
            progress: None,
            host: Some(Arc::new(Defaults::default())),
        };
        let connection = &connection;
        async move { (call.name, connection.call(request).await) }
    });
    let mut exit = Exit::Completed;
    for (name, result) in join_all(called).await {
        if let Err(error) = result {
            say(&format!("{name}: {error}"));
            exit = Exit::Failed;
        }
    }
    connection.shutdown().await;
    Ok(exit)
}

/// Opens the address of a login as a browser would, and returns where it is sent.
fn visitor(door: Door) -> Visitor {
    Arc::new(move |address: String| {
        let door = door.clone();
        Box::pin(async move {
            let url = Url::parse(&address).map_err(|error| error.to_string())?;
            let request = Request { follow: false, ..Request::get(url) };
            match door.send(request).await {
                Err(DoorError::Redirect { to, .. }) => Ok(to),
                Err(error) => Err(error.to_string()),
                Ok(answer) => Err(format!("the login answers {} and leads nowhere", answer.status)),
            }
        })
    })
}

/// The least arguments that fit a schema.
fn least(schema: Option<&Value>) -> Map<String, Value> {
    let Some(schema) = schema else { return Map::new() };
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = required.iter().filter_map(Value::as_str);
    named.map(|name| (name.to_owned(), example(&schema["properties"][name]))).collect()
}

fn example(schema: &Value) -> Value {
    if let Some(value) = schema.get("default").or_else(|| schema["enum"].get(0)) {
        return value.clone();
    }
    match schema["type"].as_str() {
        Some("number" | "integer") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => Value::Object(least(Some(schema))),
        Some("null") => Value::Null,
        _ => json!("text"),
    }
}

/// Answers every question with its default.
#[derive(Default)]
struct Defaults(Alone);

impl Host for Defaults {
    fn find(&self, tool: &str) -> Result<Arc<dyn Tool>, ToolError> {
        self.0.find(tool)
    }

    fn judge(&self, tool: &dyn Tool, prepared: &Prepared) -> Verdict {
        self.0.judge(tool, prepared)
    }

    fn showing(&self) -> Showing {
        self.0.showing()
    }

    fn todos(&self) -> Arc<[Todo]> {
        self.0.todos()
    }

    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, QuestionAnswer> {
        let answer = |question: &Question| {
            // One that has to be agreed to has no default.
            let agreed = question
                .options
                .first()
                .filter(|first| first.label == "Yes" && !question.question.contains("Default: "));
            agreed.map(|first| first.label.clone()).into_iter().collect()
        };
        let answers = questions.iter().map(answer).collect();
        Box::pin(async move { QuestionAnswer::Answered { answers } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_arguments_fit_their_schema() {
        let schema = json!({"required": ["a", "b", "c"], "properties": {
            "a": {"type": "integer"}, "b": {"enum": ["x"]}, "c": {"type": "string", "default": "d"}, "e": {"type": "string"},
        }});
        assert_eq!(Value::Object(least(Some(&schema))), json!({"a": 1, "b": "x", "c": "d"}));
        assert!(least(None).is_empty());
    }
}
