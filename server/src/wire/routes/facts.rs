//! What a client asks before it begins: the server, the project, agents, models and tools.

use std::collections::BTreeMap;

use axum::Json;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::facts::{AgentMode, ToolView};
use crate::native::host_tools::{listed, listed_in};
use crate::native::sessions::blocking;
use crate::wire::asked::Asked;
use crate::wire::failure::{Failure, Named};
use crate::wire::place::Place;
use crate::wire::shapes::{Agent, Command, Path, Project, Provider, SessionTime, ToolListItem};
use crate::wire::translate;

/// The home of those who have none: where the operator's own files lie is nothing that clients need to know.
const NO_HOME: &str = "/nonexistent";

/// `GET /global/health`. It is what tells the web application which wire is spoken here.
pub(crate) async fn health(asked: Asked) -> Json<Value> {
    Json(json!({"healthy": true, "version": asked.app.facts().version()}))
}

/// `GET /path`
pub(crate) async fn path(asked: Asked) -> Result<Json<Path>, Named> {
    let place = asked.place().await?;
    let directory = place.directory.to_string();
    Ok(Json(Path {
        home: NO_HOME.to_owned(),
        state: directory.clone(),
        config: directory.clone(),
        worktree: place.worktree.to_string(),
        directory,
    }))
}

fn project(place: &Place) -> Project {
    Project {
        id: place.project.to_string(),
        worktree: place.worktree.to_string(),
        vcs: place.git.then_some("git"),
        time: SessionTime { created: place.created, updated: place.created, archived: None },
        sandboxes: Vec::new(),
    }
}

/// `GET /project/current`
pub(crate) async fn current_project(asked: Asked) -> Result<Json<Project>, Named> {
    Ok(Json(project(&*asked.place().await?)))
}

/// `GET /project`
pub(crate) async fn projects(asked: Asked) -> Result<Json<Vec<Project>>, Named> {
    Ok(Json(vec![project(&*asked.place().await?)]))
}

/// `GET /project/{projectID}/directories`
pub(crate) async fn project_directories(asked: Asked) -> Result<Json<Value>, Named> {
    let place = asked.place().await?;
    Ok(Json(json!([{"directory": *place.worktree}])))
}

/// `GET /config` and `GET /global/config`: what clients use of it, and nothing that was configured for the engine alone.
pub(crate) async fn config(asked: Asked) -> Json<Value> {
    let facts = asked.app.facts();
    let mut config = json!({"share": "disabled", "autoupdate": false});
    if let Some(model) = facts.default_model() {
        config["model"] = Value::from(model.to_string());
    }
    let usual = facts.agents().into_iter().find(|agent| agent.mode != AgentMode::Subagent && !agent.hidden);
    if let Some(agent) = usual {
        config["default_agent"] = Value::from(agent.name);
    }
    Json(config)
}

/// `GET /agent`: also those of the directory, and those that pickers leave out, which clients know by `mode` and `hidden`.
pub(crate) async fn agents(asked: Asked) -> Result<Json<Vec<Agent>>, Named> {
    let (app, place) = (asked.app.clone(), asked.named_place().await?);
    let agents = match place {
        Some(place) => {
            let list = move || app.facts().agents_in(std::path::Path::new(&*place.directory)).agents;
            blocking(list).await?
        }
        None => app.facts().agents(),
    };
    Ok(Json(agents.into_iter().map(translate::agent).collect()))
}

/// `GET /command`: also those of the directory.
pub(crate) async fn commands(asked: Asked) -> Result<Json<Vec<Command>>, Failure> {
    let place = asked.place().await?;
    let list = asked
        .app
        .engine()
        .templates(&asked.principal.tenant, std::path::Path::new(&*place.directory))
        .await?;
    Ok(Json(list.commands.into_iter().map(translate::command).collect()))
}

/// The providers that can be used, and the usual model of each.
fn connected(asked: &Asked) -> (Vec<Provider>, BTreeMap<String, String>) {
    let facts = asked.app.facts();
    let usual = facts.default_model();
    let views = facts.providers().into_iter().filter(|view| view.connected && !view.models.is_empty());
    let mut providers = Vec::new();
    let mut defaults = BTreeMap::new();
    for view in views {
        let of_usual = usual.as_ref().filter(|model| model.provider == view.id).map(|model| &model.model);
        let first = view.models.first().map(|view| &view.model.model);
        let known = of_usual.filter(|usual| view.models.iter().any(|view| view.model.model == **usual));
        if let Some(model) = known.or(first) {
            defaults.insert(view.id.clone(), model.clone());
        }
        providers.push(translate::provider(view));
    }
    (providers, defaults)
}

/// `GET /config/providers`
pub(crate) async fn config_providers(asked: Asked) -> Json<Value> {
    let (providers, default) = connected(&asked);
    Json(json!({"providers": providers, "default": default}))
}

/// `GET /provider`: only those that can be used, where the original sends all that there are in the world.
pub(crate) async fn providers(asked: Asked) -> Json<Value> {
    let (all, default) = connected(&asked);
    let connected: Vec<&str> = all.iter().map(|provider| provider.id.as_str()).collect();
    Json(json!({"connected": connected, "all": all, "default": default}))
}

#[derive(Deserialize)]
struct ToolsQuery {
    provider: Option<String>,
    model: Option<String>,
}

/// The tools of the directory that the client named, or those that there are without one.
async fn there(asked: &Asked) -> Result<Vec<ToolView>, Failure> {
    Ok(match asked.named_place().await? {
        Some(place) => {
            listed_in(&asked.app, &asked.principal, std::path::Path::new(&*place.directory)).await?
        }
        None => listed(&asked.app, &asked.principal),
    })
}

/// `GET /experimental/tool`
pub(crate) async fn tools(asked: Asked) -> Result<Json<Vec<ToolListItem>>, Failure> {
    let ToolsQuery { provider, model } = asked.query()?;
    if provider.is_none() || model.is_none() {
        return Err(Failure::invalid("the query needs `provider` and `model`"));
    }
    Ok(Json(there(&asked).await?.into_iter().map(translate::tool).collect()))
}

/// `GET /experimental/tool/ids`
pub(crate) async fn tool_ids(asked: Asked) -> Result<Json<Vec<String>>, Failure> {
    Ok(Json(there(&asked).await?.into_iter().map(|tool| tool.name).collect()))
}

/// `GET /experimental/capabilities`
pub(crate) async fn capabilities(_: Asked) -> Json<Value> {
    Json(json!({"backgroundSubagents": false}))
}

/// `GET /experimental/console`
pub(crate) async fn console(_: Asked) -> Json<Value> {
    Json(json!({"consoleManagedProviders": [], "switchableOrgCount": 0}))
}

/// `GET /formatter`: those that are used.
pub(crate) async fn formatters(asked: Asked) -> Json<Vec<Value>> {
    let formatters = asked.app.engine().formatters().iter();
    let shown = |it: &playhouse_actors::Formatter| json!({"name": it.name, "extensions": it.extensions, "enabled": true});
    Json(formatters.map(shown).collect())
}

/// Lists of what the engine has none of: workspaces elsewhere.
pub(crate) async fn none(_: Asked) -> Json<[Value; 0]> {
    Json([])
}

/// Tables of what the engine has none of: MCP servers and their resources, ways to sign in.
pub(crate) async fn nothing(_: Asked) -> Json<Value> {
    Json(json!({}))
}
