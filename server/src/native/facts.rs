//! Agents, tools and models.

use axum::Json;
use axum::extract::State;
use playhouse_protocol::ModelRef;
use serde::Serialize;

use crate::app::App;
use crate::facts::{AgentFacts, ProviderView, ToolView};
use crate::principal::Principal;

#[derive(Serialize)]
pub(crate) struct Agents {
    agents: Vec<AgentFacts>,
}

/// `GET /v1/agents`
pub(crate) async fn agents(State(app): State<App>, _: Principal) -> Json<Agents> {
    Json(Agents { agents: app.facts().agents() })
}

#[derive(Serialize)]
pub(crate) struct Tools {
    tools: Vec<ToolView>,
}

/// `GET /v1/tools`
pub(crate) async fn tools(State(app): State<App>, _: Principal) -> Json<Tools> {
    Json(Tools { tools: app.facts().tools() })
}

#[derive(Serialize)]
pub(crate) struct Models {
    /// The model of sessions that name none.
    default: Option<ModelRef>,
    providers: Vec<ProviderView>,
}

/// `GET /v1/models`
pub(crate) async fn models(State(app): State<App>, _: Principal) -> Json<Models> {
    Json(Models { default: app.facts().default_model(), providers: app.facts().providers() })
}
