//! `playhouse tool`: tool calls by hand, through the same path that a model's calls take.
//!
//! The calls are the script of a model in the same process, one call a step, so that argument checks, policy, execution,
//! truncation and the log are exactly those of a turn.

use std::io::{BufRead as _, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::nearest::did_you_mean;
use playhouse_protocol::record::TurnOutcome;
use playhouse_protocol::{EventBody, ModelRef, NewSession, Prompt, Record};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::interrupt::Interrupt;
use super::run::{TENANT, answer, directory, text_of};
use super::{CommandResult, Common, Exit, Failure, print};
use crate::house::House;

pub(super) const USAGE: &str = "\
playhouse tool [OPTIONS] <NAME> --input <JSON>
       playhouse tool [OPTIONS] --script <FILE>";

pub(super) const EXIT_CODES: &str = "\
Each call prints one line of JSON: {\"tool\", \"ok\", \"title\", \"output\", \"metadata\"}.

Exit codes:
  0    every call was ok
  1    a call was answered with an error
  2    bad usage or configuration
  3    aborted
  130  ended by a second Ctrl-C (143: by SIGTERM)";

/// Options of `playhouse tool`.
#[derive(Debug, Args)]
pub(super) struct ToolArguments {
    /// The tool
    #[arg(required_unless_present = "script", conflicts_with = "script")]
    name: Option<String>,
    /// Its arguments, a JSON object; `-` reads it from standard input
    #[arg(long, value_name = "JSON", required_unless_present = "script", conflicts_with = "script")]
    input: Option<String>,
    /// A file with a line {"tool": …, "input": …} for each call, run one after the other in one session
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// The directory to work in [default: the current one]
    #[arg(short = 'C', long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedCall {
    tool: String,
    input: Map<String, Value>,
}

/// What is printed for a call.
#[derive(Serialize)]
struct Line<'a> {
    tool: &'a str,
    ok: bool,
    title: &'a str,
    output: &'a str,
    metadata: &'a Map<String, Value>,
}

pub(super) async fn tool(common: &Common, arguments: ToolArguments) -> CommandResult {
    let calls = calls(&arguments)?;
    let directory = directory(arguments.directory.as_deref())?;
    let model = calls.iter().fold(mock_llm::Model::new(), |model, call| {
        model.step(mock_llm::call(call.tool.clone(), Value::Object(call.input.clone())))
    });
    // Nothing else of these calls is kept, so that they need no data directory.
    super::leftovers::sweep(&std::env::temp_dir());
    let outputs = tempfile::Builder::new().prefix(&super::leftovers::prefix()).tempdir()?;
    let house = House::builder(common.settings()?)
        .outputs(outputs.path())
        .mock(mock_llm::Script::new().model("by-hand", model))
        .start()
        .await?;
    if let Some(call) = calls.iter().find(|call| !house.tool_names().contains(&call.tool)) {
        let names = house.tool_names();
        let meant = did_you_mean(&call.tool, names.iter().map(String::as_str));
        let message = format!("unknown tool \"{}\"; there are {}{meant}", call.tool, names.join(", "));
        return Err(Failure::usage(message));
    }
    let new = NewSession {
        tenant: TENANT.to_owned(),
        workspace: text_of(&directory)?,
        title: Some("calls by hand".to_owned()),
        agent: Some(playhouse_prompts::Agents::DEFAULT.to_owned()),
        model: Some(ModelRef::new(crate::mock::PROVIDER, "by-hand")),
    };
    let session = house.engine().create(new).await?;
    let mut events = session.events(None).await?;
    let _interrupt = Interrupt::abort(session.clone());
    session.prompt(Prompt::text("Run the calls.")).await?;
    let mut tools = std::collections::HashMap::new();
    let mut exit = Exit::Completed;
    while let Some(event) = events.next().await? {
        let EventBody::Durable(record) = &event.event().body else { continue };
        match record.as_ref() {
            Record::CallProposed(proposed) => {
                tools.insert(proposed.call, proposed.tool.clone());
            }
            Record::CallSettled { call, result } => {
                let ok = result.outcome == CallOutcome::Done;
                if !ok {
                    exit = Exit::Failed;
                }
                let line = Line {
                    tool: tools.get(call).map_or("", String::as_str),
                    ok,
                    title: &result.title,
                    output: &result.output,
                    metadata: &result.metadata,
                };
                let json =
                    serde_json::to_string(&line).map_err(|error| Failure::failed(error.to_string()))?;
                print(&format!("{json}\n"))?;
            }
            // Nobody is asked: what is run by hand must not wait.
            Record::QuestionAsked(asked) => answer(&session, asked.question, None).await?,
            Record::TurnEnded(ended) => {
                match (ended.outcome, &ended.error) {
                    (TurnOutcome::Aborted, _) => exit = Exit::Aborted,
                    (_, Some(error)) => return Err(Failure::failed(error.to_string())),
                    _ => {}
                }
                break;
            }
            _ => {}
        }
    }
    house.shutdown().await;
    if holds_files(outputs.path())? {
        // What was too long to print is in there, and was named.
        let _ = outputs.keep();
    }
    Ok(exit)
}

fn holds_files(folder: &Path) -> std::io::Result<bool> {
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() || holds_files(&entry.path())? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn calls(arguments: &ToolArguments) -> Result<Vec<ScriptedCall>, Failure> {
    if let Some(file) = &arguments.script {
        return script(file);
    }
    let mut input = arguments.input.clone().unwrap_or_default();
    if input == "-" {
        input.clear();
        std::io::stdin()
            .read_to_string(&mut input)
            .map_err(|error| Failure::usage(format!("cannot read --input from standard input: {error}")))?;
    }
    let input = serde_json::from_str(&input)
        .map_err(|error| Failure::usage(format!("--input must be a JSON object: {error}")))?;
    Ok(vec![ScriptedCall { tool: arguments.name.clone().unwrap_or_default(), input }])
}

fn script(file: &Path) -> Result<Vec<ScriptedCall>, Failure> {
    let unreadable = |error: std::io::Error| Failure::usage(format!("cannot read the script: {error}"));
    let reader = std::io::BufReader::new(fs_err::File::open(file).map_err(unreadable)?);
    let mut calls = Vec::new();
    for (index, line) in reader.lines().enumerate() {
        let line = line.map_err(unreadable)?;
        if line.trim().is_empty() {
            continue;
        }
        let call = serde_json::from_str(&line).map_err(|error| {
            let place = format!("{}:{}", file.display(), index + 1);
            Failure::usage(format!("{place}: a line is {{\"tool\": NAME, \"input\": {{…}}}}: {error}"))
        })?;
        calls.push(call);
    }
    if calls.is_empty() {
        return Err(Failure::usage(format!("{} holds no call", file.display())));
    }
    Ok(calls)
}
