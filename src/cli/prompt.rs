//! `playhouse prompt`: what a model would be told, as it would be sent.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use mock_llm::{Mock, Script};
use playhouse_llm::Toolset;
use playhouse_protocol::ModelRef;
use playhouse_protocol::chat::ToolSpec;
use playhouse_session::estimated_tokens;
use serde_json::{Value, json};

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
    /// Print the bytes and the estimated tokens of the system prompt and of each tool instead
    #[arg(long)]
    count: bool,
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
    let PromptArguments { agent, model, directory, format, count } = arguments;
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
        Format::Text if count => table(&blocks(&system.text, &tools)),
        Format::Json if count => {
            format!("{:#}\n", counted(json!({"agent": agent, "model": model}), &blocks(&system.text, &tools)))
        }
        Format::Text => text(&system.text, &tools),
        Format::Json => {
            let object = json!({"agent": agent, "model": model, "system": system.text, "tools": &*tools});
            format!("{object:#}\n")
        }
    })?;
    Ok(Exit::Completed)
}

/// A part of what a model is told, with its size.
struct Block {
    /// `system`, or the name of a tool.
    name: String,
    bytes: u64,
    /// As the engine estimates them before a provider has reported any.
    tokens: u64,
}

impl Block {
    fn new(name: &str, bytes: u64) -> Self {
        Self { name: name.to_owned(), bytes, tokens: estimated_tokens(bytes) }
    }
}

/// The system prompt, then each tool (name, description and schema), then all of it.
fn blocks(system: &str, tools: &[ToolSpec]) -> Vec<Block> {
    let bytes_of = |tool: &ToolSpec| Toolset::from_iter([tool.clone()]).bytes();
    let mut blocks = vec![Block::new("system", system.len() as u64)];
    blocks.extend(tools.iter().map(|tool| Block::new(&tool.name, bytes_of(tool))));
    let total = blocks.iter().map(|block| block.bytes).sum();
    blocks.push(Block::new("total", total));
    blocks
}

/// The sizes, to be read.
fn table(blocks: &[Block]) -> String {
    let width = blocks.iter().map(|block| block.name.len()).max().unwrap_or_default();
    let mut out = format!("{:width$}  {:>7}  {:>7}\n", "", "bytes", "tokens");
    for Block { name, bytes, tokens } in blocks {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name:width$}  {bytes:>7}  {tokens:>7}");
    }
    out.push_str("\nTokens are estimated, as they are before a provider reports them.\n");
    out
}

/// The sizes as one object, beside what `object` says already.
fn counted(mut object: Value, blocks: &[Block]) -> Value {
    let size = |block: &Block| json!({"bytes": block.bytes, "tokens": block.tokens});
    if let [system, tools @ .., total] = blocks {
        object["system"] = size(system);
        object["tools"] = tools
            .iter()
            .map(|tool| json!({"name": tool.name, "bytes": tool.bytes, "tokens": tool.tokens}))
            .collect();
        object["total"] = size(total);
    }
    object
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
