//! `playhouse tool`: tool calls by hand, through the same path that a model's calls take.
//!
//! The calls are the script of a model in the same process, one call a step, so that argument checks, policy, walls,
//! execution, truncation and the log are exactly those of a turn. Only the requests for consent are answered otherwise:
//! who types a call agrees to it, as far as it stays in the directory.

mod verdict;

use std::collections::HashMap;
use std::io::{BufRead as _, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use playhouse_actors::{Engine, SessionHandle};
use playhouse_policy::EXTERNAL_DIRECTORY;
use playhouse_protocol::id::PartId;
use playhouse_protocol::message::{CallOutcome, CallResult};
use playhouse_protocol::nearest::did_you_mean;
use playhouse_protocol::record::{ConsentAnswer, ConsentAsked, TurnOutcome};
use playhouse_protocol::{EventBody, ModelRef, NewSession, Prompt, Record, Want};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::asker::{Asker, Present, Reply, Then, needs_a_person};
use super::interrupt::Interrupt;
use super::render::{Format, Renderer};
use super::run::{answer, directory, follow, new_session};
use super::{CommandResult, Common, Exit, Failure, WallsArguments, print};

pub(super) const USAGE: &str = "\
playhouse tool [OPTIONS] <NAME> --input <JSON>
       playhouse tool [OPTIONS] --script <FILE>";

pub(super) const EXIT_CODES: &str = "\
Each call prints one line of JSON: {\"tool\", \"ok\", \"title\", \"output\", \"metadata\"}.

A call that you type counts as agreed to, as far as it stays in the directory. For what leads out of it you are asked at
the terminal. Without one, its output is \"asked: \" and the reason, and it is not run, unless --yes agrees to it; to
changes outside of the directory --yes does not agree. What the rules deny is not run.

With --verdict a line is \"allow\", or \"ask: \" or \"deny: \" with the reason, as the rules judge a model's call, or
\"refuse: \" where the tool does not take it.

Exit codes:
  0    every call was ok; with --verdict, every call was judged
  1    a call was answered with an error, refused, or asked for and not run
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
    /// Agree to whatever asks for consent, but for what needs a person, as a change outside of the directory
    #[arg(long)]
    yes: bool,
    /// Only say what the rules say of each call, and run nothing
    #[arg(long, conflicts_with = "yes")]
    verdict: bool,
    #[command(flatten)]
    walls: WallsArguments,
}

/// A call to make.
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
    if arguments.verdict {
        return verdict::tell(common, &calls, &directory).await;
    }
    let model = calls.iter().fold(mock_llm::Model::new(), |model, call| {
        model.step(mock_llm::call(call.tool.clone(), Value::Object(call.input.clone())))
    });
    // Nothing else of these calls is kept, so that they need no data directory.
    super::leftovers::sweep(&std::env::temp_dir());
    let outputs = tempfile::Builder::new().prefix(&super::leftovers::prefix()).tempdir()?;
    let house = arguments
        .walls
        .house(common.settings_apart()?)
        .outputs(outputs.path())
        .mock(mock_llm::Script::new().model("by-hand", model))
        .start()
        .await?;
    for call in &calls {
        check_name(&call.tool, house.tool_names())?;
    }
    let new = NewSession {
        title: Some("calls by hand".to_owned()),
        agent: Some(playhouse_prompts::Agents::DEFAULT.to_owned()),
        model: Some(ModelRef::new(crate::mock::PROVIDER, "by-hand")),
        ..new_session(&directory)?
    };
    let session = house.engine().create(new).await?;
    let present = Present::here(true, arguments.yes);
    let mut by_hand = ByHand {
        session,
        present,
        asker: Asker::new(present),
        renderer: Renderer::new(Format::text(&std::io::stderr())),
        tools: HashMap::new(),
        asked: HashMap::new(),
        exit: Exit::Completed,
    };
    let ended = by_hand.run(house.engine()).await;
    house.shutdown().await;
    ended?;
    if holds_files(outputs.path())? {
        // What was too long to print is in there, and was named.
        let _ = outputs.keep();
    }
    Ok(by_hand.exit)
}

fn check_name(tool: &str, names: &[String]) -> Result<(), Failure> {
    if names.iter().any(|name| name == tool) {
        return Ok(());
    }
    let meant = did_you_mean(tool, names.iter().map(String::as_str));
    Err(Failure::usage(format!("unknown tool \"{tool}\"; there are {}{meant}", names.join(", "))))
}

/// Calls by hand, while they run.
struct ByHand {
    session: SessionHandle,
    present: Present,
    asker: Asker,
    renderer: Renderer,
    /// Calls by their tool.
    tools: HashMap<PartId, String>,
    /// Calls that nobody could be asked about: what is said instead of a result.
    asked: HashMap<PartId, String>,
    exit: Exit,
}

impl ByHand {
    async fn run(&mut self, engine: &Engine) -> Result<(), Failure> {
        let mut events = self.session.events(None).await?;
        let _interrupt = Interrupt::abort(self.session.clone());
        self.session.prompt(Prompt::text("Run the calls.")).await?;
        loop {
            let event = tokio::select! {
                biased;
                event = events.next() => event?,
                line = self.asker.line(), if self.asker.is_asking() => {
                    self.follow(engine, |asker| asker.typed(line.as_deref())).await?;
                    continue;
                }
            };
            let Some(event) = event else { return Ok(()) };
            let EventBody::Durable(record) = &event.event().body else { continue };
            if self.recorded(engine, record).await? {
                return Ok(());
            }
        }
    }

    async fn follow(
        &mut self,
        engine: &Engine,
        happened: impl FnOnce(&mut Asker) -> Then,
    ) -> Result<(), Failure> {
        let Self { session, renderer, asker, .. } = self;
        follow(engine, session, renderer, asker, happened).await
    }

    /// Whether it was the last.
    async fn recorded(&mut self, engine: &Engine, record: &Record) -> Result<bool, Failure> {
        match record {
            Record::CallProposed(proposed) => {
                self.tools.insert(proposed.call, proposed.tool.clone());
            }
            Record::CallSettled { call, result } => self.settled(*call, result)?,
            // Nobody is asked: what is run by hand must not wait.
            Record::QuestionAsked(asked) => {
                answer(&self.session, &Reply::Questions(asked.question, None)).await?;
            }
            Record::ConsentAsked(asked) if is_typed(asked) => {
                answer(&self.session, &Reply::Consent(asked.consent, ConsentAnswer::Once)).await?;
            }
            Record::ConsentAsked(asked) => {
                if let Some(how) = self.unasked(asked) {
                    self.asked.insert(asked.call, said(asked, how));
                }
                self.follow(engine, |asker| asker.recorded(None, record)).await?;
            }
            Record::ConsentSettled { .. } => {
                self.follow(engine, |asker| asker.recorded(None, record)).await?;
            }
            Record::TurnEnded(ended) => {
                match (ended.outcome, &ended.error) {
                    (TurnOutcome::Aborted, _) => self.exit = Exit::Aborted,
                    (_, Some(error)) => return Err(Failure::failed(error.to_string())),
                    _ => {}
                }
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }

    /// How a request could be agreed to, where that is not possible now.
    fn unasked(&self, asked: &ConsentAsked) -> Option<&'static str> {
        match (needs_a_person(asked), self.present) {
            (true, Present { yes: true, .. }) => Some("run it at a terminal, without --yes"),
            (true, Present { terminal: false, .. }) => Some("run it at a terminal"),
            (false, present) if present.nobody() => {
                Some("run it at a terminal, allow it with a rule, or with --yes")
            }
            _ => None,
        }
    }

    fn settled(&mut self, call: PartId, result: &CallResult) -> Result<(), Failure> {
        let ok = result.outcome == CallOutcome::Done;
        if !ok {
            self.exit = Exit::Failed;
        }
        let said = self.asked.remove(&call).filter(|_| result.outcome == CallOutcome::Declined);
        let line = Line {
            tool: self.tools.get(&call).map_or("", String::as_str),
            ok,
            title: &result.title,
            output: said.as_deref().unwrap_or(&result.output),
            metadata: &result.metadata,
        };
        let json = serde_json::to_string(&line).map_err(|error| Failure::failed(error.to_string()))?;
        Ok(print(&format!("{json}\n"))?)
    }
}

/// Whether whoever types a call knows that it wants this: it stays in the directory, and what no rule can allow is not
/// in it.
fn is_own(want: &Want) -> bool {
    want.permission != EXTERNAL_DIRECTORY && !want.in_person
}

/// Whether whoever typed the call knew all that is asked for.
fn is_typed(asked: &ConsentAsked) -> bool {
    asked.wants.iter().all(is_own)
}

/// What is said of a call that nobody could be asked about.
fn said(asked: &ConsentAsked, how: &str) -> String {
    let mut text = format!("asked: {}", asked.reason);
    // The reason is about the first of what it wants.
    if asked.wants.first().is_some_and(is_own) {
        let others = asked.wants.iter().filter(|want| !is_own(want)).map(|want| want.subject.as_str());
        text.push_str(&format!("; and for {}", others.collect::<Vec<_>>().join(", ")));
    }
    text + "; it was not run: " + how
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
