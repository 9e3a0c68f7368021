//! `playhouse serve` with the scripted model, and its sessions.

use std::path::Path;

use serde_json::{Value, json};

use crate::Result;
use crate::http::Connection;
use crate::model::Scripted;
pub(crate) use crate::place::{Place, Served};

impl Place {
    /// Whose models are those of `model`, whose commands need nobody's leave, and which holds them by no walls, so that
    /// they run on every machine.
    pub(crate) fn with(model: &Scripted) -> Result<Self> {
        Self::new(&format!("sandbox = \"off\"\n{}", model.config()))
    }
}

impl Served {
    pub(crate) async fn connect(&self) -> Result<Connection> {
        Connection::open(&self.address).await
    }
}

/// A new session with one of the scripted models; its id.
pub(crate) async fn session(connection: &mut Connection, workspace: &Path, model: &str) -> Result<String> {
    let new = json!({
        "workspace": workspace, "title": model, "model": format!("bench/{model}"), "unattended": true,
        "permissions": [{"permission": "*", "pattern": "*", "action": "allow"}],
    });
    let session = connection.json("POST", "/v1/sessions", Some(&new)).await?;
    Ok(text_of(&session, "id")?.to_owned())
}

/// Begins a turn; the prompt's id.
pub(crate) async fn prompt(connection: &mut Connection, session: &str) -> Result<String> {
    let accepted = connection
        .json("POST", &format!("/v1/sessions/{session}/prompts"), Some(&json!({"text": "Go."})))
        .await?;
    Ok(text_of(&accepted, "turn")?.to_owned())
}

fn text_of<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().ok_or_else(|| format!("there is no \"{field}\" in {value}").into())
}
