//! `playhouse agents`: the agents that there are for sessions in a directory.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use playhouse_prompts::{Agent, Agents, Origin, ToolFilter};
use playhouse_tools::Registry;
use serde_json::{Value, json};

use super::tools::configured;
use super::{CommandResult, Common, Exit, Failure, print, say};
use crate::config::{Settings, check_agent};

/// Options of `playhouse agents`.
#[derive(Debug, Args)]
pub(super) struct AgentsArguments {
    /// The directory whose own agents are listed as well [default: the current one]
    #[arg(short = 'C', long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// List those as well that work for the engine itself
    #[arg(long)]
    all: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(super) fn agents(common: &Common, arguments: &AgentsArguments) -> CommandResult {
    let settings = common.settings()?;
    let tools = configured(&settings)?;
    let directory = match &arguments.directory {
        Some(directory) => directory.clone(),
        None => std::env::current_dir()?,
    };
    let root = fs_err::canonicalize(&directory).map_err(|error| Failure::usage(error.to_string()))?;
    let local = settings.agents_in(&root, &|agent| check_agent(agent, &tools));
    let agents = local.as_ref().unwrap_or(&settings.agents);
    let mut out = String::new();
    for agent in agents.iter().filter(|agent| arguments.all || !agent.hidden) {
        if arguments.json {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}", object(agent, agents));
        } else {
            table(agent, agents, &settings, &tools, &mut out);
        }
    }
    if arguments.json {
        for refused in agents.refused() {
            let _ = writeln!(out, "{}", json!({"name": refused.name, "error": refused.error.to_string()}));
        }
    }
    print(&out)?;
    if !arguments.json {
        agents.refused().iter().for_each(|refused| say(&format!("warning: {}", refused.error)));
    }
    Ok(Exit::Completed)
}

/// Where an agent comes from, in a word or by its file.
fn origin<'a>(agent: &Agent, agents: &'a Agents) -> &'a str {
    match agents.origin(&agent.name) {
        Origin::Builtin => "built in",
        Origin::Operator(file) | Origin::Workspace(file) => file,
    }
}

/// One agent, for people.
fn table(agent: &Agent, agents: &Agents, settings: &Settings, tools: &Registry, out: &mut String) {
    let usual = settings.agent.as_deref().unwrap_or(Agents::DEFAULT) == agent.name;
    let separator = if out.is_empty() { "" } else { "\n" };
    let mark = if usual { ", the usual one" } else { "" };
    let _ = writeln!(out, "{separator}{} ({}{mark})", agent.name, agent.mode.name());
    let _ = writeln!(out, "  {}", agent.description);
    let mut facts = vec![format!("from: {}", origin(agent, agents))];
    facts.extend(agent.model.as_ref().map(|model| format!("model: {model}")));
    facts.extend(agent.reasoning.map(|reasoning| format!("reasoning: {reasoning}")));
    facts.extend(agent.steps.map(|steps| format!("steps: {steps}")));
    facts.extend(agent.read_only.then(|| "changes nothing".to_owned()));
    facts.push(match &agent.tools {
        ToolFilter::All => "tools: all".to_owned(),
        ToolFilter::Only(names) if names.is_empty() => "tools: none".to_owned(),
        ToolFilter::Only(names) => format!("tools: {}", names.join(", ")),
    });
    if let ToolFilter::Only(names) = &agent.tools {
        let unknown: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| tools.get(name).is_none()).collect();
        facts.extend((!unknown.is_empty()).then(|| format!("not a tool here: {}", unknown.join(", "))));
    }
    for fact in facts {
        let _ = writeln!(out, "    {fact}");
    }
}

/// One agent, for programs.
fn object(agent: &Agent, agents: &Agents) -> Value {
    let (origin, file) = match agents.origin(&agent.name) {
        Origin::Builtin => ("builtin", None),
        Origin::Operator(file) => ("operator", Some(file)),
        Origin::Workspace(file) => ("workspace", Some(file)),
    };
    json!({
        "name": agent.name,
        "description": agent.description,
        "mode": agent.mode.name(),
        "origin": origin,
        "file": file,
        "hidden": agent.hidden,
        "color": agent.color,
        "model": agent.model,
        "variant": agent.reasoning.map(|reasoning| reasoning.to_string()),
        "steps": agent.steps,
        "read_only": agent.read_only,
        "tools": match &agent.tools {
            ToolFilter::All => None,
            ToolFilter::Only(tools) => Some(tools),
        },
    })
}
