//! Servers of tools (MCP).

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::Path;
use serde_json::{Value, json};

use crate::native::mcp::{McpServerView, McpStanding, connect_in, disconnect_in, may_switch, views};
use crate::problem::{Kind, Problem};
use crate::wire::asked::Asked;
use crate::wire::failure::{Failure, Named};

/// `GET /mcp`
pub(crate) async fn status(asked: Asked) -> Result<Json<BTreeMap<String, Value>>, Named> {
    // Where no directory is named and there is no root, only the operator's are listed.
    let place = asked.place().await.ok();
    let directory = place.as_ref().map(|place| &*place.directory);
    let views = views(&asked.app, &asked.principal, directory).await?;
    Ok(Json(views.into_iter().map(|view| (view.name.clone(), standing(&view))).collect()))
}

/// One that rests is as good as connected: it starts when it is needed.
pub(super) fn standing(view: &McpServerView) -> Value {
    let mut standing = match (view.status, &view.error) {
        (McpStanding::Failed, Some(error)) => json!({"status": "failed", "error": error}),
        (McpStanding::Failed, None) => json!({"status": "failed", "error": "it failed"}),
        (McpStanding::Refused, error) => json!({"status": "failed", "error": error}),
        (McpStanding::Asks, _) => json!({
            "status": "failed",
            "error": "the workspace declares it: a person must agree before it is started, who is asked with the next prompt"
        }),
        (McpStanding::NeedsAuth, _) => json!({"status": "needs_auth"}),
        (McpStanding::NeedsClientRegistration, error) => {
            json!({"status": "needs_client_registration", "error": error.as_deref().unwrap_or_default()})
        }
        (McpStanding::Disabled, _) => json!({"status": "disabled"}),
        (McpStanding::Stopped, _) if view.tools.is_none() => {
            json!({"status": "failed", "error": "it was not started yet: it starts when a session needs it"})
        }
        (McpStanding::Connected | McpStanding::Stopped, _) => json!({"status": "connected"}),
        (McpStanding::Starting, _) => json!({"status": "failed", "error": "it is being started"}),
    };
    if !view.refused.is_empty()
        && let Some(standing) = standing.as_object_mut()
    {
        standing.insert("refused".to_owned(), json!(view.refused));
    }
    standing
}

/// `POST /mcp/{name}/connect`
pub(crate) async fn connect(Path(name): Path<String>, asked: Asked) -> Result<Json<bool>, Failure> {
    may_switch(&asked.principal)?;
    let place = asked.place().await?;
    let connected = connect_in(&asked.app, &asked.principal, &name, &place.directory).await;
    Ok(Json(found(&name, connected)?.error.is_none()))
}

/// `POST /mcp/{name}/disconnect`
pub(crate) async fn disconnect(Path(name): Path<String>, asked: Asked) -> Result<Json<bool>, Failure> {
    may_switch(&asked.principal)?;
    let place = asked.place().await.ok();
    let directory = place.as_ref().map(|place| &*place.directory);
    found(&name, disconnect_in(&asked.app, &asked.principal, &name, directory).await)?;
    Ok(Json(true))
}

fn found(name: &str, view: Result<McpServerView, Problem>) -> Result<McpServerView, Failure> {
    view.map_err(|problem| match problem.kind {
        Kind::NotFound => Failure::no_mcp_server(name),
        _ => problem.into(),
    })
}
