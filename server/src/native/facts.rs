//! Agents, tools and models.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use playhouse_protocol::ModelRef;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::facts::{AgentList, Found, ProviderView};
use crate::native::extract::Search;
use crate::native::sessions::blocking;
use crate::principal::Principal;
use crate::problem::Problem;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Where {
    /// The directory whose own agents are listed as well; absent for those that there are everywhere.
    workspace: Option<String>,
}

/// `GET /v1/agents`
pub(crate) async fn agents(
    State(app): State<App>,
    principal: Principal,
    Search(place): Search<Where>,
) -> Result<Json<AgentList>, Problem> {
    let Some(written) = place.workspace else {
        return Ok(Json(AgentList { agents: app.facts().agents(), ..AgentList::default() }));
    };
    let list = blocking(move || {
        let workspace = app.admit_directory(&principal, &written)?;
        Ok::<_, Problem>(app.facts().agents_in(&workspace))
    });
    Ok(Json(list.await??))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Models {
    /// The model of sessions that name none.
    default: Option<ModelRef>,
    providers: Vec<ProviderView>,
    /// What the engine found providers to refuse since it began, by model; requests go without it. Only for clients without
    /// a key: names of models may say who else asked them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    findings: BTreeMap<String, Vec<Found>>,
}

/// `GET /v1/models`
pub(crate) async fn models(State(app): State<App>, principal: Principal) -> Json<Models> {
    let facts = app.facts();
    let findings = if principal.reads_all() { facts.findings() } else { BTreeMap::new() };
    Json(Models { default: facts.default_model(), providers: facts.providers(), findings })
}
