//! `playhouse sessions`: list, show, export, artifacts, delete, resume, compact, undo, redo, diff.

mod artifacts;
mod undo;

use std::collections::{BTreeMap, HashMap};
use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::Subcommand;
use jiff::tz::TimeZone;
use playhouse_actors::fold;
use playhouse_protocol::id::PartId;
use playhouse_protocol::ledger::Purpose;
use playhouse_protocol::message::{AssistantMessage, CallState, FinishReason, Message, Part, TextMarks};
use playhouse_protocol::operator::{Resumed, SessionLog};
use playhouse_protocol::record::{AttemptOutcome, ConsentAnswer, ConsentAsked};
use playhouse_protocol::summary::SessionState;
use playhouse_protocol::usage::Totals;
use playhouse_protocol::{
    Command, Entry, EventBody, ModelRef, Record, RevertRequest, SessionId, Timestamp, UnrevertRequest,
};
use playhouse_server::{ListSearch, SessionView, Stands};

use super::reach::{Held, Reach, any_or_start, open};
use super::render::{Shape, printable, settled, usage};
use super::run::{TENANT, directory, text_of};
use super::{CommandResult, Common, Exit, Failure, WallsArguments, print};
use crate::client::Client;

/// The subcommands of `playhouse sessions`.
#[derive(Debug, Subcommand)]
pub(super) enum SessionsCommand {
    /// List sessions, newest first
    List {
        /// Only those of this directory
        #[arg(short = 'C', long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Also those that agents began below others
        #[arg(long)]
        all: bool,
        /// How to print them
        #[arg(long, value_enum, default_value_t = Shape::Table)]
        format: Shape,
    },
    /// Show a session's conversation and totals
    Show {
        /// The session
        session: String,
    },
    /// Print a session's log, one record a line, as JSON
    Export {
        /// The session
        session: String,
    },
    /// Print what capture tools kept in a session
    Artifacts {
        /// The session
        session: String,
        /// The call of which the value is printed, as JSON
        call: Option<String>,
        /// How to print the list
        #[arg(long, value_enum, default_value_t = Shape::Table, conflicts_with = "call")]
        format: Shape,
    },
    /// Let sessions go on with turns that an engine left unfinished, also those that are parked
    ///
    /// The engine that has the data directory open does it, whatever its walls are; where there is none, one is started in the
    /// background, as `playhouse run` does, and ends when their turns are over. Sessions that cannot go on are named, and the
    /// command fails.
    Resume {
        /// The session
        #[arg(required_unless_present = "all")]
        session: Option<String>,
        /// All that have something unfinished
        #[arg(long, conflicts_with = "session")]
        all: bool,
        #[command(flatten)]
        walls: WallsArguments,
    },
    /// Let a summary stand for a session's conversation so far, where models are concerned
    ///
    /// A model writes it: that of the agent `compaction`, or the session's. The conversation itself stays as it is. Turns make room
    /// by themselves when they need it.
    Compact {
        /// The session
        session: String,
        /// The model that writes it
        #[arg(short, long, value_name = "PROVIDER/MODEL")]
        model: Option<ModelRef>,
        #[command(flatten)]
        walls: WallsArguments,
    },
    /// Take back what a session changed in files since its last prompt, or since a message or a call
    ///
    /// Again, it goes to before the prompt before that one. Files that somebody else changed since are merged or left as they are,
    /// and named. The messages stay until the next prompt.
    Undo {
        /// The session
        session: String,
        /// Go back to before this message or call
        #[arg(long, value_name = "MESSAGE|CALL")]
        to: Option<String>,
        /// Take back this path as well where it is ambiguous; after an undo, only this one
        #[arg(long = "path", value_name = "PATH")]
        paths: Vec<String>,
        /// Write nothing, and print what would be done
        #[arg(long)]
        dry_run: bool,
        /// How to print it
        #[arg(long, value_enum, default_value_t = Shape::Table)]
        format: Shape,
        #[command(flatten)]
        walls: WallsArguments,
    },
    /// Do again what `undo` took back, one step
    Redo {
        /// The session
        session: String,
        /// Write nothing, and print what would be done
        #[arg(long)]
        dry_run: bool,
        /// How to print it
        #[arg(long, value_enum, default_value_t = Shape::Table)]
        format: Shape,
        #[command(flatten)]
        walls: WallsArguments,
    },
    /// Print what the calls of a session changed in files
    Diff {
        /// The session
        session: String,
        /// How to print it
        #[arg(long, value_enum, default_value_t = Shape::Table)]
        format: Shape,
    },
    /// Remove a session and its log
    Delete {
        /// The session
        session: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ListFormat {
    /// Columns for people
    Table,
    /// One JSON object a line
    Json,
}

pub(super) async fn sessions(common: &Common, command: SessionsCommand) -> CommandResult {
    let id = |text: &str| SessionId::parse(text).map_err(|error| Failure::usage(error.to_string()));
    match command {
        SessionsCommand::List { directory: wanted, limit, all, format } => {
            let workspace = match wanted {
                Some(wanted) => Some(text_of(&directory(Some(&wanted))?)?),
                None => None,
            };
            let held = open(common).await?;
            list(&held.client(), workspace, limit, all, format).await?;
            held.close().await;
        }
        SessionsCommand::Show { session } => {
            let session = id(&session)?;
            let held = open(common).await?;
            show(&held, session).await?;
            held.close().await;
        }
        SessionsCommand::Export { session } => {
            let session = id(&session)?;
            let held = open(common).await?;
            export(held.reach(), session).await?;
            held.close().await;
        }
        SessionsCommand::Artifacts { session, call, format } => {
            let session = id(&session)?;
            let call = call.map(|call| PartId::parse(&call)).transpose();
            let call = call.map_err(|error| Failure::usage(error.to_string()))?;
            let held = open(common).await?;
            artifacts::print_artifacts(&held.client(), session, call, format).await?;
            held.close().await;
        }
        SessionsCommand::Resume { session, all: _, walls } => {
            let session = session.as_deref().map(id).transpose()?;
            let held = any_or_start(common, walls).await?;
            let passed_over = resume(held.reach(), session).await?;
            held.close().await;
            if passed_over > 0 {
                let what =
                    if passed_over == 1 { "1 session does" } else { &format!("{passed_over} sessions do") };
                return Err(Failure::failed(format!(
                    "{what} not go on: `playhouse sessions show` shows how far it can be read, `playhouse sessions delete` removes it"
                )));
            }
        }
        SessionsCommand::Compact { session, model, walls } => {
            let session = id(&session)?;
            let held = any_or_start(common, walls).await?;
            compact(held.reach(), session, model).await?;
            held.close().await;
        }
        SessionsCommand::Undo { session, to, paths, dry_run, format, walls } => {
            let session = id(&session)?;
            let held = any_or_start(common, walls).await?;
            let report = held.client().revert(session, &RevertRequest { to, dry_run, paths }).await;
            held.close().await;
            return undo::print_report(&report?, format);
        }
        SessionsCommand::Redo { session, dry_run, format, walls } => {
            let session = id(&session)?;
            let held = any_or_start(common, walls).await?;
            let report = held.client().unrevert(session, &UnrevertRequest { steps: Some(1), dry_run }).await;
            held.close().await;
            return undo::print_report(&report?, format);
        }
        SessionsCommand::Diff { session, format } => {
            let session = id(&session)?;
            let held = open(common).await?;
            undo::print_diff(&held.client(), session, format).await?;
            held.close().await;
        }
        SessionsCommand::Delete { session } => {
            let session = id(&session)?;
            let held = open(common).await?;
            held.reach().delete(session).await?;
            print(&format!("deleted {session}\n"))?;
            held.close().await;
        }
    }
    Ok(Exit::Completed)
}

/// Lets a session go on, or all. Where the engine runs in this process, it stays until their turns are over. How many do not
/// go on that should.
async fn resume(reach: &Reach, session: Option<SessionId>) -> Result<usize, Failure> {
    let Resumed { sessions, passed_over } = reach.resume(session).await?;
    match (session, sessions.len() + passed_over.len()) {
        (Some(session), 0) => print(&format!("{session} has nothing unfinished\n"))?,
        (None, 0) => print("nothing is unfinished\n")?,
        _ => sessions.iter().try_for_each(|session| print(&format!("resumed {session}\n")))?,
    }
    for (session, reason) in &passed_over {
        print(&format!("passed over {session}, which is parked: {}\n", one_line(reason)))?;
    }
    if reach.process().is_none() {
        for session in sessions {
            let mut events = reach.events(session, reach.summary(session).await?.head).await?;
            while reach.summary(session).await?.open_turns > 0 && events.next().await?.is_some() {}
        }
    }
    Ok(passed_over.len())
}

/// Asks for a summary, and waits until it is written.
async fn compact(reach: &Reach, session: SessionId, model: Option<ModelRef>) -> Result<(), Failure> {
    let mut events = reach.events(session, reach.summary(session).await?.head).await?;
    reach.command(session, Command::Compact { model }).await?;
    let mut attempt = None;
    while let Some(event) = events.next().await? {
        let EventBody::Durable(record) = &event.event().body else { continue };
        match record.as_ref() {
            Record::AttemptStarted(started) if started.purpose == Purpose::Compaction => {
                attempt = Some(started.attempt);
            }
            Record::AttemptEnded(ended) if Some(ended.attempt) == attempt => match &ended.outcome {
                AttemptOutcome::Finished => {}
                AttemptOutcome::Failed { error } => {
                    return Err(Failure::failed(format!("no summary was written: {error}")));
                }
                AttemptOutcome::Aborted | AttemptOutcome::Lost => {
                    return Err(Failure::failed(
                        "no summary was written: its request was aborted".to_owned(),
                    ));
                }
            },
            Record::ContextCompacted(compacted) => {
                let (before, after) = (compacted.before, compacted.after);
                print(&format!("compacted {session}: from about {before} tokens to {after}\n"))?;
                return Ok(());
            }
            _ => {}
        }
    }
    Err(Failure::failed("the session ended before its summary was written".to_owned()))
}

async fn list(
    client: &Client,
    workspace: Option<String>,
    limit: usize,
    all: bool,
    format: Shape,
) -> Result<(), Failure> {
    let (mut left, mut cursor, mut document) = (limit, None, Vec::new());
    if format == Shape::Table {
        print(&format!(
            "{:30}  {:16}  {:7}  {:>5}  {:>9}  {:>9}  {}\n",
            "SESSION", "UPDATED", "STATE", "TURNS", "TOKENS", "COST", "TITLE"
        ))?;
    }
    while left > 0 {
        let search = ListSearch {
            workspace: workspace.clone(),
            roots: !all,
            cursor,
            limit: Some(left.min(500)),
            ..ListSearch::default()
        };
        let page = client.sessions(Some(TENANT), &search).await?;
        left = left.saturating_sub(page.sessions.len());
        for session in page.sessions {
            match format {
                Shape::Table => print(&row(&session))?,
                Shape::Ndjson => print(&format!("{}\n", json(&session)?))?,
                Shape::Json => document.push(session),
            }
        }
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    if format == Shape::Json {
        print(&format!("{}\n", json(&document)?))?;
    }
    Ok(())
}

fn row(session: &SessionView) -> String {
    let cost = session.totals.known_cost().map_or_else(|| "unknown".to_owned(), |cost| cost.to_string());
    let state = match session.state {
        Stands::Idle => "idle",
        Stands::Busy => "busy",
        Stands::Parked => "parked",
        Stands::Deleted => "deleted",
    };
    format!(
        "{:30}  {:16}  {:7}  {:>5}  {:>9}  {:>9}  {}\n",
        session.id.as_str(),
        time(session.updated),
        state,
        session.turns,
        session.totals.tokens.total(),
        cost,
        one_line(&session.title),
    )
}

/// A title without what would break the line, or command the terminal.
fn one_line(title: &str) -> String {
    title.replace(char::is_control, " ")
}

fn state(state: SessionState) -> &'static str {
    match state {
        SessionState::Idle => "idle",
        SessionState::Busy => "busy",
        SessionState::Deleted => "deleted",
    }
}

async fn show(held: &Held, id: SessionId) -> Result<(), Failure> {
    let SessionLog { entries, damage } = held.reach().read(id).await?;
    let (session, misfit) = fold(&entries);
    let reason = damage.or(misfit.map(|misfit| misfit.to_string()));
    let mut text = String::new();
    if let Some(session) = session {
        let summary = &session.summary;
        let head = [
            ("session", summary.id.to_string()),
            ("title", one_line(&summary.title)),
            ("directory", summary.workspace.clone()),
            ("agent", summary.agent.clone()),
            ("model", summary.model.to_string()),
            ("created", time(summary.created)),
            ("updated", time(summary.updated)),
            ("state", if reason.is_some() { "parked" } else { state(summary.state) }.to_owned()),
            ("turns", summary.turns.to_string()),
            ("used", usage_and_cache(&summary.totals())),
        ];
        for (name, value) in head {
            push(&mut text, format_args!("{name:10} {value}\n"));
        }
        // One that is parked for its damage, or is gone by now, says so by itself.
        if let Ok(SessionView { salvaged: Some(salvaged), .. }) = held.client().session(id).await {
            push(&mut text, format_args!("{:10} {}\n", "salvaged", one_line(&salvaged.reason)));
        }
        let by_model: &BTreeMap<String, Totals> = &summary.usage;
        if by_model.len() > 1 {
            for (model, totals) in by_model {
                push(&mut text, format_args!("  {model}: {}\n", usage_and_cache(totals)));
            }
        }
        let consents = consents(&entries);
        for message in &session.all_messages() {
            match message {
                Message::User(message) if message.kind.is_compaction() => {
                    let at = time(message.created);
                    push(&mut text, format_args!("\n── models read this in place of what is above, {at}\n"));
                    message.parts.iter().for_each(|part| show_part(part, &consents, &mut text));
                }
                Message::User(message) => {
                    let withdrawn = if message.withdrawn { " (aborted before it ran)" } else { "" };
                    let (at, id) = (time(message.created), message.id);
                    push(&mut text, format_args!("\n── user, {at}, {id}{withdrawn}\n"));
                    message.parts.iter().for_each(|part| show_part(part, &consents, &mut text));
                }
                Message::Assistant(message) => show_answer(message, &consents, &mut text),
            }
        }
    }
    let shown = if std::io::stdout().is_terminal() { printable(&text) } else { text };
    print(&shown)?;
    match reason {
        None => Ok(()),
        Some(reason) => Err(Failure::failed(format!(
            "session {id} is parked and shown up to there: {reason}. \
             `playhouse sessions export` gives its good records"
        ))),
    }
}

/// The requests for consent of each call, with how they ended.
type Consents<'a> = HashMap<PartId, Vec<(&'a ConsentAsked, Option<&'a ConsentAnswer>)>>;

fn consents(entries: &[Entry]) -> Consents<'_> {
    let mut ends = HashMap::new();
    for entry in entries {
        if let Record::ConsentSettled { consent, answer } = &entry.record {
            ends.insert(*consent, answer);
        }
    }
    let mut consents: Consents<'_> = HashMap::new();
    for entry in entries {
        if let Record::ConsentAsked(asked) = &entry.record
            && let Some(call) = asked.call
        {
            let end = ends.get(&asked.consent).copied();
            consents.entry(call).or_default().push((asked, end));
        }
    }
    consents
}

fn show_answer(message: &AssistantMessage, consents: &Consents<'_>, text: &mut String) {
    push(text, format_args!("\n── {} ({}), {}\n", message.agent, message.model, time(message.created)));
    message.parts.iter().for_each(|part| show_part(part, consents, text));
    if let Some(error) = &message.error {
        let word = if message.finish == Some(FinishReason::Stop) { "note" } else { "error" };
        push(text, format_args!("{word}: {error}\n"));
    }
}

fn show_part(part: &Part, consents: &Consents<'_>, text: &mut String) {
    match part {
        Part::Text { text: content, marks, .. } => {
            let whose = match marks.as_deref() {
                Some(TextMarks { ignored: true, .. }) => "(not told to models) ",
                Some(TextMarks { synthetic: true, .. }) => "(by a program) ",
                _ => "",
            };
            push(text, format_args!("{whose}{}\n", content.trim_end()));
        }
        Part::Reasoning { text: content, .. } if content.is_empty() => {}
        Part::Reasoning { text: content, .. } => {
            push(text, format_args!("(thinking) {}\n", content.trim_end()));
        }
        Part::File { file, .. } => {
            push(text, format_args!("[{}, {}, {} bytes]\n", file.filename, file.mime, file.blob.size));
        }
        Part::Call(call) => {
            let result = match &call.state {
                CallState::Settled(result) => {
                    let took = result.ended.millis_since(result.started);
                    format!("{:?}, {took} ms", result.outcome).to_lowercase()
                }
                CallState::Pending => "pending".to_owned(),
                CallState::Asking => "waits for consent".to_owned(),
                CallState::Running { .. } => "running".to_owned(),
            };
            let (tool, input, id) = (&call.tool, call.input.to_value(), call.id);
            push(text, format_args!("[{tool} {input} → {result}, {id}]\n"));
            for (asked, answer) in consents.get(&call.id).into_iter().flatten() {
                let end = answer.map_or_else(|| "waits for an answer".to_owned(), settled);
                push(text, format_args!("  (asked for consent: {} → {end})\n", one_line(&asked.reason)));
            }
        }
    }
}

/// Totals, with the share of input that came from the provider's prompt cache.
fn usage_and_cache(totals: &Totals) -> String {
    let input = totals.tokens.all_input();
    let share = (totals.tokens.cache_read * 100).checked_div(input).unwrap_or(0);
    format!("{}; {share} % of input read from cache", usage(totals))
}

async fn export(reach: &Reach, id: SessionId) -> Result<(), Failure> {
    let SessionLog { entries, damage } = reach.read(id).await?;
    // One write for many records: a log may hold ten thousand.
    for entries in entries.chunks(100) {
        let lines: Result<String, Failure> = entries.iter().map(|entry| Ok(json(entry)? + "\n")).collect();
        print(&lines?)?;
    }
    let misfit = || fold(&entries).1;
    match (damage, misfit()) {
        (None, None) => Ok(()),
        (Some(damage), _) => {
            Err(Failure::failed(format!("session {id} is parked and exported up to there: {damage}")))
        }
        (None, Some(misfit)) => Err(Failure::failed(format!(
            "session {id} is parked: {misfit}. all its records are exported, and can be trusted up to there"
        ))),
    }
}

pub(super) fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::failed(error.to_string()))
}

pub(super) fn time(time: Timestamp) -> String {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_millisecond(millis) {
        Ok(time) => time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string(),
        Err(_) => "unknown".to_owned(),
    }
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.push_str(&arguments.to_string());
}
