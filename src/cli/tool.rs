//! `playhouse tool`: tool calls by hand, through the same path that a model's calls take.
//!
//! The calls are the script of a model, one call a step, so that argument checks, policy, walls,
//! execution, truncation and the log are exactly those of a turn. Only the requests for consent are answered otherwise:
//! who types a call agrees to it, as far as it stays in the directory.

mod verdict;

use std::collections::HashMap;
use std::io::{BufRead as _, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use playhouse_policy::EXTERNAL_DIRECTORY;
use playhouse_protocol::id::PartId;
use playhouse_protocol::message::{CallOutcome, CallResult};
use playhouse_protocol::operator::{BY_HAND_TENANT, ScriptedCall};
use playhouse_protocol::record::{ConsentAnswer, ConsentAsked, TurnOutcome};
use playhouse_protocol::{CommandError, EventBody, NewSession, Prompt, Record, Seq, SessionId, Want};
use playhouse_server::OperatorError;
use serde::Serialize;
use serde_json::{Map, Value};

use super::asker::{Asker, Present, Reply, Then, needs_a_person};
use super::interrupt::Interrupt;
use super::reach::{Held, Reach, outside_if_fit};
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
    if let Some(held) = outside_if_fit(common, arguments.walls).await? {
        let ended = by_hand(held.reach(), calls, &directory, arguments.yes).await;
        held.close().await;
        return ended;
    }
    // Nothing else of these calls is kept, so that they need no data directory.
    super::leftovers::sweep(&std::env::temp_dir());
    let outputs = tempfile::Builder::new().prefix(&super::leftovers::prefix()).tempdir()?;
    let house = arguments.walls.house(common.settings_apart()?).outputs(outputs.path()).start().await?;
    let held = Held::inside(house);
    let ended = by_hand(held.reach(), calls, &directory, arguments.yes).await;
    held.close().await;
    let exit = ended?;
    if holds_files(outputs.path())? {
        // What was too long to print is in there, and was named.
        let _ = outputs.keep();
    }
    Ok(exit)
}

/// Makes the calls in a session of their own, which is gone afterwards. An engine in another process removes it also when
/// this one is gone.
async fn by_hand(reach: &Reach, calls: Vec<ScriptedCall>, directory: &Path, yes: bool) -> CommandResult {
    let new = NewSession {
        title: Some("calls by hand".to_owned()),
        agent: Some(playhouse_prompts::Agents::DEFAULT.to_owned()),
        model: Some(reach.script(calls).await?),
        tenant: BY_HAND_TENANT.to_owned(),
        ..new_session(directory)?
    };
    let session = reach.create(new).await?;
    let present = Present::here(true, yes);
    let mut by_hand = ByHand {
        reach,
        session,
        present,
        asker: Asker::new(present),
        renderer: Renderer::new(Format::text(&std::io::stderr())),
        tools: HashMap::new(),
        asked: HashMap::new(),
        exit: Exit::Completed,
    };
    let ended = by_hand.run().await;
    let exit = by_hand.exit;
    if reach.process().is_some() {
        match reach.delete(session).await {
            // The engine noticed that nobody follows it any more.
            Ok(()) | Err(OperatorError::Refused(CommandError::NotFound(_))) => {}
            Err(error) => return ended.and(Err(error.into())),
        }
    }
    ended.map(|()| exit)
}

/// Calls by hand, while they run.
struct ByHand<'a> {
    reach: &'a Reach,
    session: SessionId,
    present: Present,
    asker: Asker,
    renderer: Renderer,
    /// Calls by their tool.
    tools: HashMap<PartId, String>,
    /// Calls that nobody could be asked about: what is said instead of a result.
    asked: HashMap<PartId, String>,
    exit: Exit,
}

impl ByHand<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        let mut events = self.reach.events(self.session, Seq::START).await?;
        let interrupt = Interrupt::watch(self.reach.clone());
        interrupt
            .turn(self.session, self.reach.prompt(self.session, Prompt::text("Run the calls.")).await?.turn);
        loop {
            let event = tokio::select! {
                biased;
                event = events.next() => event?,
                line = self.asker.line(), if self.asker.is_asking() => {
                    self.follow(|asker| asker.typed(line.as_deref())).await?;
                    continue;
                }
            };
            let Some(event) = event else {
                return Err(Failure::failed("the engine stopped before the calls were over"));
            };
            let EventBody::Durable(record) = &event.event().body else { continue };
            if self.recorded(record).await? {
                return Ok(());
            }
        }
    }

    async fn follow(&mut self, happened: impl FnOnce(&mut Asker) -> Then) -> Result<(), Failure> {
        let Self { reach, session, renderer, asker, .. } = self;
        let kept = reach.process().is_some();
        let happened = |asker: &mut Asker| match happened(asker) {
            // Nothing of calls by hand is kept in the data directory.
            Then::Send(from, Reply::Consent(consent, ConsentAnswer::Always)) if kept => {
                Then::Send(from, Reply::Consent(consent, ConsentAnswer::Once))
            }
            other => other,
        };
        follow(reach, *session, renderer, asker, happened).await
    }

    /// Whether it was the last.
    async fn recorded(&mut self, record: &Record) -> Result<bool, Failure> {
        match record {
            Record::CallProposed(proposed) => {
                self.tools.insert(proposed.call, proposed.tool.clone());
            }
            Record::CallSettled { call, result } => self.settled(*call, result)?,
            // Nobody is asked: what is run by hand must not wait.
            Record::QuestionAsked(asked) => {
                answer(self.reach, self.session, &Reply::Questions(asked.question, None)).await?;
            }
            Record::ConsentAsked(asked) if is_typed(asked) => {
                answer(self.reach, self.session, &Reply::Consent(asked.consent, ConsentAnswer::Once)).await?;
            }
            Record::ConsentAsked(asked) => {
                if let (Some(call), Some(how)) = (asked.call, self.unasked(asked)) {
                    self.asked.insert(call, said(asked, how));
                }
                self.follow(|asker| asker.recorded(None, record)).await?;
            }
            Record::ConsentSettled { .. } => {
                self.follow(|asker| asker.recorded(None, record)).await?;
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
