//! `playhouse commands`: the command templates that there are for sessions in a directory, and the prompts of servers of tools
//! that run like them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use playhouse_mcp::WORKSPACE_FILE;
use playhouse_protocol::template::{TemplateFacts, TemplateOwner};
use serde_json::json;

use super::reach::open;
use super::run::text_of;
use super::{CommandResult, Common, Exit, Failure, print, say};
use crate::templates;

/// Options of `playhouse commands`.
#[derive(Debug, Args)]
pub(super) struct CommandsArguments {
    /// The directory whose own commands are listed as well [default: the current one]
    #[arg(short = 'C', long, visible_alias = "dir", value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(super) async fn commands(common: &Common, arguments: &CommandsArguments) -> CommandResult {
    let settings = common.settings()?;
    let directory = match &arguments.directory {
        Some(directory) => directory.clone(),
        None => std::env::current_dir()?,
    };
    let root = fs_err::canonicalize(&directory).map_err(|error| Failure::usage(error.to_string()))?;
    let mut list = templates::list(&templates::read(&settings, &root), ToString::to_string);
    if !settings.mcp.is_empty() || root.join(WORKSPACE_FILE).exists() {
        match of_servers(common, &root).await {
            Ok(prompts) => list.commands.extend(prompts),
            Err(Failure { message, .. }) => {
                say(&format!("warning: prompts of servers of tools are not listed: {message}"));
            }
        }
    }
    let mut out = String::new();
    for command in &list.commands {
        // Writing to a String cannot fail.
        if arguments.json {
            let _ = writeln!(out, "{}", json!(command));
        } else {
            table(command, &mut out);
        }
    }
    if arguments.json {
        for error in &list.refused {
            let _ = writeln!(out, "{}", json!({"error": error}));
        }
    }
    print(&out)?;
    if !arguments.json {
        list.refused.iter().for_each(|error| say(&format!("warning: {error}")));
        if list.commands.is_empty() {
            say("there are no commands: write one as a Markdown file in .playhouse/commands/");
        }
    }
    Ok(Exit::Completed)
}

/// The prompts of servers of tools. Only an engine knows them.
async fn of_servers(common: &Common, root: &Path) -> Result<Vec<TemplateFacts>, Failure> {
    let workspace = text_of(root)?;
    let held = open(common).await?;
    let listed = held.client().commands(&workspace).await;
    held.close().await;
    let mut commands = listed?.commands;
    commands.retain(|command| command.owner == TemplateOwner::Server);
    Ok(commands)
}

/// One command, for people.
fn table(command: &TemplateFacts, out: &mut String) {
    let hints: String = command.hints.iter().map(|hint| format!(" {hint}")).collect();
    let _ = writeln!(out, "/{}{hints}", command.name);
    let _ = match &command.description {
        Some(description) => writeln!(out, "  {description}"),
        None => writeln!(out, "  {}", command.template.lines().next().unwrap_or_default()),
    };
    let mut facts = vec![match command.owner {
        TemplateOwner::Operator => "from: the operator".to_owned(),
        TemplateOwner::Workspace => "from: the workspace".to_owned(),
        TemplateOwner::Server => "from: a server of tools".to_owned(),
    }];
    facts.extend(command.agent.as_ref().map(|agent| format!("agent: {agent}")));
    facts.extend(command.model.as_ref().map(|model| format!("model: {model}")));
    facts.extend(command.subtask.then(|| "a subtask".to_owned()));
    let _ = writeln!(out, "    {}", facts.join(", "));
}
