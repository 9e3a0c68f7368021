//! `playhouse commands`: the command templates that there are for sessions in a directory.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use playhouse_protocol::template::{TemplateFacts, TemplateOwner};
use serde_json::json;

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

pub(super) fn commands(common: &Common, arguments: &CommandsArguments) -> CommandResult {
    let settings = common.settings()?;
    let directory = match &arguments.directory {
        Some(directory) => directory.clone(),
        None => std::env::current_dir()?,
    };
    let root = fs_err::canonicalize(&directory).map_err(|error| Failure::usage(error.to_string()))?;
    let list = templates::list(&templates::read(&settings, &root), ToString::to_string);
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
