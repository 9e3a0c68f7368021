//! Agents, tools and models.

use axum::Json;
use axum::extract::State;
use playhouse_protocol::ModelRef;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::facts::{AgentList, ProviderView, ToolView};
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
