//! `playhouse prompt`: what a model would be told, as it would be sent.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use mock_llm::{Mock, Script};
use playhouse_protocol::ModelRef;
use playhouse_protocol::chat::ToolSpec;
use serde_json::json;

use super::{CommandResult, Common, Exit, Failure, print, say, tools, variable};
use crate::directory::{Preview, SettingsDirectory};

/// Options of `playhouse prompt`.
#[derive(Debug, Args)]
pub(super) struct PromptArguments {
    /// The agent [default: as for a new session here]
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// The model, as PROVIDER/MODEL [default: as for a new session here]
    #[arg(short, long, value_name = "MODEL")]
    model: Option<ModelRef>,
    /// The directory that the session would work in [default: this one]
    #[arg(short = 'C', long, visible_alias = "dir", value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// How a prompt is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// To be read: the system prompt, then the tools.
    Text,
    /// One JSON object: agent, model, system, tools.
    Json,
}

/// Prints what a new session in a directory would tell its model. Asks nobody and changes nothing.
pub(super) fn prompt(common: &Common, arguments: PromptArguments) -> CommandResult {
    let PromptArguments { agent, model, directory, format } = arguments;
    let root = super::run::directory(Some(&directory))?;
    let settings = common.settings_apart()?;
    let registry = tools::configured(&settings)?;
    let variables = Arc::new(|name: &str| variable(name));
    let mock = Mock::new(Script::new());
    let directory = SettingsDirectory::new(settings, variables, None, mock, registry)?;
    let Preview { agent, model, system, tools } =
        directory.preview(&root, agent.as_deref(), model.as_ref()).map_err(Failure::usage)?;
    for problem in &system.problems {
        say(&format!("warning: left out: {problem}"));
    }
    print(&match format {
        Format::Text => text(&system.text, &tools),
        Format::Json => {
            let object = json!({"agent": agent, "model": model, "system": system.text, "tools": &*tools});
            format!("{object:#}\n")
        }
    })?;
    Ok(Exit::Completed)
}

/// Both to be read: nothing is left out.
fn text(system: &str, tools: &[ToolSpec]) -> String {
    let mut out = system.trim_end().to_owned();
    for tool in tools {
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "\n\n--- tool: {}\n\n{}\n\n{:#}",
            tool.name,
            tool.description.trim_end(),
            tool.parameters
        );
    }
    out.push('\n');
    out
}
