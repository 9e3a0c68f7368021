//! Host tools: tools that the platform registers and carries out, and the results of their calls. Capture tools are registered
//! here, too.

use std::path::{Path as FilePath, PathBuf};

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use playhouse_actors::{
    HOST_PERMISSION, HostToolFailure, HostToolSpec, HostTools, MOST_HOST_TOOLS, NewWebhook,
};
use playhouse_protocol::consent::Risk;
use playhouse_protocol::limit::{Amount, LimitScope, LimitUnit};
use playhouse_protocol::record::also_null;
use playhouse_protocol::tool::ToolOrigin;
use playhouse_protocol::{CallAnswer, Limit, PartId, SessionId};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::extract::{Body, Ids, Search};
#[cfg(test)]
use super::openapi::operation::Operation;
use crate::app::App;
use crate::facts::{ToolKind, ToolView};
use crate::native::sessions::blocking;
use crate::principal::Principal;
use crate::problem::{Kind, Problem};

/// The largest result, in bytes.
const LARGEST_RESULT: usize = 1024 * 1024;

/// The tools.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Tools {
    tools: Vec<ToolView>,
}

/// How the platform gets calls, or what they leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolDelivery {
    /// As `call.offered` on the event streams.
    Events,
    /// Not at all: it is a capture tool, whose checked arguments are kept as artifacts.
    Capture,
}

/// A tool to register.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolRegistration {
    /// Its name: 1 to 64 of the characters a-z, A-Z, 0-9, _ and -.
    name: String,
    /// What a model is told of it.
    description: String,
    /// The JSON Schema of its arguments, which are an object; of a capture tool, of any value. At most 64 KB.
    #[schemars(with = "Map<String, Value>")]
    schema: Value,
    /// How dangerous it is without a rule about it: `dangerous` if absent. Rules of the operator hold over it. A capture tool has
    /// none to say: it is `safe`.
    risk: Option<Risk>,
    /// How the platform gets its calls; absent where it has a webhook.
    delivery: Option<ToolDelivery>,
    /// Where its calls are sent; they are events as well.
    webhook: Option<WebhookBody>,
}

/// Where calls of a tool are sent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookBody {
    /// An address that begins with https:// and is public.
    url: String,
    /// The key that signs deliveries, as Standard Webhooks write it: `whsec_` and 24 to 64 bytes in base64. No answer has it.
    secret: String,
}

/// The result of a call: one of the two.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallResultBody {
    /// What the model reads: a text, or any other value as JSON.
    #[serde(default, deserialize_with = "also_null")]
    #[schemars(schema_with = "anything")]
    output: Option<Value>,
    /// Why the call failed, for the model.
    error: Option<String>,
}

fn anything(_: &mut SchemaGenerator) -> Schema {
    Schema::default()
}

impl From<HostToolFailure> for Problem {
    fn from(failure: HostToolFailure) -> Self {
        let kind = match failure {
            HostToolFailure::Store(error) => return playhouse_protocol::CommandError::from(error).into(),
            HostToolFailure::Invalid(_)
            | HostToolFailure::Capture(_)
            | HostToolFailure::LargeSchema(_)
            | HostToolFailure::Webhook(_) => Kind::Invalid,
            HostToolFailure::Secret(_) => Kind::Store,
            HostToolFailure::Taken(_) => Kind::Taken,
            HostToolFailure::TooMany => Kind::Forbidden,
            HostToolFailure::Missing(_) => Kind::NotFound,
        };
        let problem = Self::new(kind, failure.to_string());
        if !matches!(failure, HostToolFailure::TooMany) {
            return problem;
        }
        let most = MOST_HOST_TOOLS as u64;
        let limit = Limit::of_count("host_tools", LimitScope::Tenant, LimitUnit::Count, most);
        problem.of_limit(Limit { needed: Some(Amount::Count(1)), ..limit.used(Amount::Count(most)) })
    }
}

fn host_tools(app: &App) -> Result<HostTools, Problem> {
    let none = || Problem::new(Kind::Forbidden, "this engine takes no tools of the platform");
    app.engine().host_tools().cloned().ok_or_else(none)
}

/// The directories of a key, links resolved, which may be none; `None` for whoever is bound to no directories.
fn roots_of(app: &App, principal: &Principal) -> Option<Vec<PathBuf>> {
    (principal.key.is_some() && principal.roots.is_some()).then(|| app.roots_of(principal).all().to_vec())
}

/// Whether a key with these roots may know a tool.
fn is_known(spec: &HostToolSpec, roots: Option<&[PathBuf]>) -> bool {
    let Some(roots) = roots else { return true };
    let meets = |one: &PathBuf, other: &PathBuf| one.starts_with(other) || other.starts_with(one);
    !roots.is_empty()
        && (spec.roots.is_empty() || spec.roots.iter().any(|own| roots.iter().any(|root| meets(own, root))))
}

/// Whether a key with these roots may remove a tool: one that no sessions elsewhere have.
fn is_own(spec: &HostToolSpec, roots: Option<&[PathBuf]>) -> bool {
    let Some(roots) = roots else { return true };
    let within = |own: &PathBuf| roots.iter().any(|root| own.starts_with(root));
    !spec.roots.is_empty() && spec.roots.iter().all(within)
}

fn view(spec: &HostToolSpec) -> ToolView {
    let (permission, source) = match spec.capture {
        true => (&*spec.name, ToolKind::Capture),
        false => (HOST_PERMISSION, ToolKind::Host),
    };
    ToolView {
        name: spec.name.clone(),
        description: spec.description.clone(),
        parameters: spec.parameters(),
        risk: spec.risk,
        permission: permission.to_owned(),
        source: Some(source),
    }
}

/// The tools that come with the engine, and the registered ones that `principal` may know.
pub(crate) fn listed(app: &App, principal: &Principal) -> Vec<ToolView> {
    let mut tools = app.facts().tools();
    if let Some(registered) = app.engine().host_tools() {
        let roots = roots_of(app, principal);
        let registered = registered.list(&principal.tenant);
        tools
            .extend(registered.iter().filter(|spec| is_known(spec, roots.as_deref())).map(|spec| view(spec)));
    }
    tools
}

/// The tools that come with the engine, and the others that sessions of `principal` in a directory have.
pub(crate) async fn listed_in(
    app: &App,
    principal: &Principal,
    workspace: &FilePath,
) -> Result<Vec<ToolView>, Problem> {
    let mut tools = app.facts().tools();
    let outside = app.engine().outside_tools(&principal.tenant, workspace).await?;
    tools.extend(outside.into_iter().map(|tool| ToolView {
        name: tool.name,
        description: tool.description,
        parameters: tool.parameters,
        risk: tool.risk,
        permission: tool.permission,
        source: Some(match tool.origin {
            ToolOrigin::Mcp { .. } => ToolKind::Mcp,
            ToolOrigin::Host => ToolKind::Host,
            ToolOrigin::Capture => ToolKind::Capture,
        }),
    }));
    Ok(tools)
}

/// Which tools are listed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolSearch {
    /// A directory: the tools of its sessions are listed, those of servers and capture tools as well. Absent for the tools that
    /// come with the engine and the registered ones.
    workspace: Option<String>,
}

#[cfg(test)]
pub(crate) const LIST: Operation = Operation {
    method: "get",
    path: "/v1/tools",
    id: "listTools",
    summary: "The tools.",
    ids: &[],
    query: Some(ToolSearch::json_schema),
    body: None,
    answer: (200, "It worked.", Some(SchemaGenerator::subschema_for::<Tools>)),
    problems: &[(Kind::Forbidden, "The directory lies below no root.")],
};

/// `GET /v1/tools`
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Search(search): Search<ToolSearch>,
) -> Result<Json<Tools>, Problem> {
    let Some(written) = search.workspace else {
        return Ok(Json(Tools { tools: listed(&app, &principal) }));
    };
    let (of, who) = (app.clone(), principal.clone());
    let workspace = blocking(move || of.admit_directory(&who, &written)).await??;
    Ok(Json(Tools { tools: listed_in(&app, &principal, &workspace).await? }))
}

#[cfg(test)]
pub(crate) const REGISTER: Operation = Operation {
    method: "post",
    path: "/v1/tools",
    id: "registerTool",
    summary: "Register a tool that the platform carries out, or a capture tool.",
    ids: &[],
    query: None,
    body: Some(SchemaGenerator::subschema_for::<ToolRegistration>),
    answer: (201, "It is registered.", Some(SchemaGenerator::subschema_for::<ToolView>)),
    problems: &[
        (Kind::Invalid, "Its name, description, schema or address cannot be used."),
        (Kind::Taken, "There is a tool of this name."),
        (Kind::Forbidden, "The tenant has 64 registered tools."),
    ],
};

/// `POST /v1/tools`
pub(crate) async fn register(
    State(app): State<App>,
    principal: Principal,
    Body(body): Body<ToolRegistration>,
) -> Result<(StatusCode, Json<ToolView>), Problem> {
    app.admit()?;
    let ToolRegistration { name, description, schema, risk, delivery, webhook } = body;
    if delivery.is_some() == webhook.is_some() {
        let detail = "the body needs \"delivery\" (\"events\" or \"capture\") or \"webhook\", and not both";
        return Err(Problem::invalid(detail));
    }
    let capture = delivery == Some(ToolDelivery::Capture);
    if capture && risk.is_some_and(|risk| risk != Risk::Safe) {
        let detail = "a capture tool is \"safe\", since it only keeps its arguments: leave \"risk\" out";
        return Err(Problem::invalid(detail));
    }
    let risk = risk.unwrap_or_default();
    let webhook = webhook.map(|webhook| NewWebhook::new(webhook.url, webhook.secret));
    let roots = roots_of(&app, &principal);
    if roots.as_ref().is_some_and(Vec::is_empty) {
        let detail =
            "this key reaches no directory of the server: there is no session that could have the tool";
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    // Without any, all sessions of the tenant have it.
    let roots = roots.unwrap_or_default();
    let spec = HostToolSpec { name, description, schema, risk, webhook: None, capture, roots };
    let tools = host_tools(&app)?;
    let registered = blocking(move || tools.register(&principal.tenant, spec, webhook)).await??;
    Ok((StatusCode::CREATED, Json(view(&registered))))
}

#[cfg(test)]
pub(crate) const REMOVE: Operation = Operation {
    method: "delete",
    path: "/v1/tools/{name}",
    id: "removeTool",
    summary: "Remove a registered tool. Its calls that wait for a result can still get it until the engine starts again.",
    ids: &[("name", SchemaGenerator::subschema_for::<String>)],
    query: None,
    body: None,
    answer: (204, "It is removed.", None),
    problems: &[(Kind::NotFound, "There is no such registered tool.")],
};

/// `DELETE /v1/tools/{name}`
pub(crate) async fn remove(
    State(app): State<App>,
    principal: Principal,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let roots = roots_of(&app, &principal);
    let tools = host_tools(&app)?;
    blocking(move || tools.remove(&principal.tenant, &name, |spec| is_own(spec, roots.as_deref()))).await??;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
pub(crate) const RESULT: Operation = Operation {
    method: "post",
    path: "/v1/sessions/{session}/calls/{call}/result",
    id: "giveCallResult",
    summary: "Give the result of a call of a registered tool.",
    ids: &[
        ("session", SchemaGenerator::subschema_for::<SessionId>),
        ("call", SchemaGenerator::subschema_for::<PartId>),
    ],
    query: None,
    body: Some(SchemaGenerator::subschema_for::<CallResultBody>),
    answer: (204, "The call has this result, also if the engine is killed.", None),
    problems: &[
        (Kind::Invalid, "The call takes no result, or the body has not exactly one of the two."),
        (Kind::NotFound, "There is no such session for this tenant, or no such call in it."),
        (Kind::Settled, "The call has a result already."),
        (Kind::TooLarge, "The result has more than 1 MiB."),
    ],
};

/// `POST /v1/sessions/{session}/calls/{call}/result`
pub(crate) async fn result(
    State(app): State<App>,
    principal: Principal,
    Ids((id, call)): Ids<(SessionId, PartId)>,
    Body(CallResultBody { output, error }): Body<CallResultBody>,
) -> Result<StatusCode, Problem> {
    let answer = match (output, error) {
        (Some(output), None) => CallAnswer::output(output),
        (None, Some(error)) => CallAnswer::Error { error },
        _ => return Err(Problem::invalid("the body needs \"output\" or \"error\", and not both")),
    };
    if let CallAnswer::Output { output: text } | CallAnswer::Error { error: text } = &answer
        && text.len() > LARGEST_RESULT
    {
        let detail = format!("the result has {} bytes, at most {LARGEST_RESULT}", text.len());
        return Err(Problem::new(Kind::TooLarge, detail));
    }
    app.session(&principal, id).await?.answer_call(call, answer).await?;
    Ok(StatusCode::NO_CONTENT)
}
