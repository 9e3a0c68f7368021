//! Logins at servers of tools (MCP).

use axum::Json;
use axum::extract::Path;
use playhouse_actors::{McpServers, Redirected};
use serde::Deserialize;
use serde_json::{Value, json};

use super::mcp::standing;
use crate::native::mcp::login::{begun, ended, forgotten};
use crate::native::mcp::{servers, views};
use crate::problem::Problem;
use crate::wire::asked::{Asked, Body};
use crate::wire::failure::Failure;

/// What a client hands on of what the browser brought back.
#[derive(Deserialize)]
pub(crate) struct Code {
    code: String,
    state: Option<String>,
    iss: Option<String>,
}

/// `POST /mcp/{name}/auth`: the browser comes back to the engine.
pub(crate) async fn begin(Path(name): Path<String>, asked: Asked) -> Result<Json<Value>, Failure> {
    known(&asked, &name)?;
    let begun = begun(&asked.app, &asked.principal, &name, None).await?;
    Ok(Json(json!({"authorizationUrl": begun.url, "oauthState": begun.state})))
}

/// `POST /mcp/{name}/auth/callback`: where a client hands on no state, it is that of the login that was begun last.
pub(crate) async fn end(
    Path(name): Path<String>,
    asked: Asked,
    Body(Code { code, state, iss }): Body<Code>,
) -> Result<Json<Value>, Failure> {
    let state = match state {
        Some(state) => state,
        None => last(&asked, &name)?,
    };
    let view = ended(&asked.app, &asked.principal, &name, Redirected { code, state, issuer: iss }).await?;
    Ok(Json(standing(&view)))
}

/// `POST /mcp/{name}/auth/authenticate`: waits for the end of the login that was begun last.
pub(crate) async fn wait(Path(name): Path<String>, asked: Asked) -> Result<Json<Value>, Failure> {
    let state = last(&asked, &name)?;
    let ended = known(&asked, &name)?.login_ended(&state).await;
    if let Err(failure) = ended {
        return Ok(Json(json!({"status": "failed", "error": failure.to_string()})));
    }
    let views = views(&asked.app, &asked.principal, None).await?;
    let view = views.into_iter().find(|view| view.name == name);
    Ok(Json(view.map_or_else(|| json!({"status": "disabled"}), |view| standing(&view))))
}

/// `DELETE /mcp/{name}/auth`
pub(crate) async fn forget(Path(name): Path<String>, asked: Asked) -> Result<Json<Value>, Failure> {
    known(&asked, &name)?;
    forgotten(&asked.app, &asked.principal, &name).await?;
    Ok(Json(json!({"success": true})))
}

fn known<'a>(asked: &'a Asked, name: &str) -> Result<&'a McpServers, Failure> {
    servers(&asked.app, name).map_err(|_| Failure::no_mcp_server(name))
}

fn last(asked: &Asked, name: &str) -> Result<String, Failure> {
    let state = known(asked, name)?.last_login(name, &asked.principal.tenant);
    let missing = || {
        Problem::invalid("no login is under way: begin one with POST /mcp/{name}/auth, and open its address")
    };
    Ok(state.ok_or_else(missing)?)
}
