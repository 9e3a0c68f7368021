//! Command templates of the operator and of workspaces, as the engine and its clients know them.

use std::path::Path;

use playhouse_actors::{FilledTemplate, TemplatePiece};
use playhouse_prompts::command::{CommandFault, Filled, Owner};
use playhouse_prompts::{Agents, CommandTemplate, Commands};
use playhouse_protocol::template::{TemplateFacts, TemplateList, TemplateOwner};

use crate::config::{ConfigError, Settings};

/// The commands of the operator and of the workspace `root`. Reads files.
pub(crate) fn read(settings: &Settings, root: &Path) -> Commands {
    Commands::read(settings.commands.as_deref(), Some(root))
}

/// The same as lists name them, with what is wrong as `told` says it.
pub(crate) fn list(commands: &Commands, told: impl Fn(&CommandFault) -> String) -> TemplateList {
    let facts = commands.iter().map(|(owner, command)| TemplateFacts {
        name: command.name.clone(),
        description: command.description.clone(),
        agent: command.agent.clone(),
        model: command.model.clone(),
        subtask: command.subtask,
        template: command.template.clone(),
        hints: command.hints(),
        owner: match owner {
            Owner::Operator => TemplateOwner::Operator,
            Owner::Workspace => TemplateOwner::Workspace,
        },
    });
    let refused = commands.refused().iter().map(told).collect();
    TemplateList { commands: facts.collect(), refused }
}

/// The command `name`, if it can be run.
///
/// # Errors
/// There is no such command, its file cannot be used, or it names an agent or a model that there is not.
pub(crate) fn check<'a>(
    commands: &'a Commands,
    agents: &Agents,
    settings: &Settings,
    name: &str,
) -> Result<&'a CommandTemplate, CommandFault> {
    let command = commands.find(name)?;
    // Who takes tasks is found out where one is handed over.
    if let Some(agent) = command.agent.as_deref().filter(|_| !command.subtask) {
        agents.find(agent).map_err(|error| commands.wrong(command, "agent", error))?;
    }
    if let Some(model) = &command.model {
        let unknown = |error: ConfigError| commands.wrong(command, "model", error.to_string());
        settings.check_model(model).map_err(unknown)?;
    }
    Ok(command)
}

/// The command `name` with what was typed behind it.
///
/// # Errors
/// There is no such command, its file cannot be used, it names an agent or a model that there is not, or the arguments do not fit.
pub(crate) fn fill(
    commands: &Commands,
    agents: &Agents,
    settings: &Settings,
    name: &str,
    arguments: &str,
) -> Result<FilledTemplate, CommandFault> {
    let command = check(commands, agents, settings, name)?;
    let wrong = |error| CommandFault::Typed(format!("/{name}: {error}"));
    let filled = command.fill(arguments).map_err(wrong)?;
    let pieces = filled.into_iter().map(|piece| match piece {
        Filled::Text(text) => TemplatePiece::Text(text),
        Filled::Shell(command) => TemplatePiece::Shell(command),
    });
    Ok(FilledTemplate {
        agent: command.agent.clone(),
        model: command.model.clone(),
        subtask: command.subtask,
        pieces: pieces.collect(),
    })
}
