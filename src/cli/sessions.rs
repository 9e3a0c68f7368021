//! `playhouse sessions`: list, show, export, delete, resume.

use std::collections::{BTreeMap, HashMap};
use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::Subcommand;
use jiff::tz::TimeZone;
use playhouse_actors::fold;
use playhouse_protocol::id::PartId;
use playhouse_protocol::message::{AssistantMessage, CallState, Message, Part};
use playhouse_protocol::operator::{ListSessions, SessionLog};
use playhouse_protocol::record::{ConsentAnswer, ConsentAsked};
use playhouse_protocol::summary::SessionState;
use playhouse_protocol::usage::Totals;
use playhouse_protocol::{Entry, Record, SessionId, SessionSummary, Timestamp};

use super::reach::{Reach, open, or_start};
use super::render::{printable, settled, usage};
use super::run::{TENANT, directory, text_of};
use super::{CommandResult, Common, Exit, Failure, WallsArguments, print};

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
        /// How to print them
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
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
    /// Let sessions go on with turns that an engine left unfinished, also those that are parked
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
        SessionsCommand::List { directory: wanted, limit, format } => {
            let workspace = match wanted {
                Some(wanted) => Some(text_of(&directory(Some(&wanted))?)?),
                None => None,
            };
            let held = open(common).await?;
            list(held.reach(), workspace, limit, format).await?;
            held.close().await;
        }
        SessionsCommand::Show { session } => {
            let session = id(&session)?;
            let held = open(common).await?;
            show(held.reach(), session).await?;
            held.close().await;
        }
        SessionsCommand::Export { session } => {
            let session = id(&session)?;
            let held = open(common).await?;
            export(held.reach(), session).await?;
            held.close().await;
        }
        SessionsCommand::Resume { session, all: _, walls } => {
            let session = session.as_deref().map(id).transpose()?;
            let held = or_start(common, walls).await?;
            resume(held.reach(), session).await?;
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

/// Lets a session go on, or all. Where the engine runs in this process, it stays until their turns are over.
async fn resume(reach: &Reach, session: Option<SessionId>) -> Result<(), Failure> {
    let resumed = reach.resume(session).await?;
    match (session, resumed.len()) {
        (Some(session), 0) => print(&format!("{session} has nothing unfinished\n"))?,
        (None, 0) => print("nothing is unfinished\n")?,
        _ => resumed.iter().try_for_each(|session| print(&format!("resumed {session}\n")))?,
    }
    if reach.process().is_some() {
        return Ok(());
    }
    for session in resumed {
        let mut events = reach.events(session, reach.summary(session).await?.head).await?;
        while reach.summary(session).await?.open_turns > 0 && events.next().await?.is_some() {}
    }
    Ok(())
}

async fn list(
    reach: &Reach,
    workspace: Option<String>,
    limit: usize,
    format: ListFormat,
) -> Result<(), Failure> {
    let mut left = limit;
    let mut after = None;
    if format == ListFormat::Table {
        print(&format!(
            "{:30}  {:16}  {:7}  {:>5}  {:>9}  {:>9}  {}\n",
            "SESSION", "UPDATED", "STATE", "TURNS", "TOKENS", "COST", "TITLE"
        ))?;
    }
    while left > 0 {
        let query = ListSessions {
            tenant: Some(TENANT.to_owned()),
            workspace: workspace.clone(),
            after,
            limit: left.min(500),
        };
        let page = reach.list(query).await?;
        for summary in &page.sessions {
            print(&match format {
                ListFormat::Table => row(summary),
                ListFormat::Json => format!("{}\n", json(summary)?),
            })?;
        }
        left = left.saturating_sub(page.sessions.len());
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(())
}

fn row(summary: &SessionSummary) -> String {
    let totals = summary.totals();
    let cost = totals.known_cost().map_or_else(|| "unknown".to_owned(), |cost| cost.to_string());
    format!(
        "{:30}  {:16}  {:7}  {:>5}  {:>9}  {:>9}  {}\n",
        summary.id.as_str(),
        time(summary.updated),
        state(summary.state),
        summary.turns,
        totals.tokens.total(),
        cost,
        one_line(&summary.title),
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

async fn show(reach: &Reach, id: SessionId) -> Result<(), Failure> {
    let SessionLog { entries, damage } = reach.read(id).await?;
    let (session, misfit) = fold(&entries);
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
            ("state", state(summary.state).to_owned()),
            ("turns", summary.turns.to_string()),
            ("used", usage_and_cache(&summary.totals())),
        ];
        for (name, value) in head {
            push(&mut text, format_args!("{name:10} {value}\n"));
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
                Message::User(message) => {
                    let withdrawn = if message.withdrawn { " (aborted before it ran)" } else { "" };
                    push(&mut text, format_args!("\n── user, {}{withdrawn}\n", time(message.created)));
                    message.parts.iter().for_each(|part| show_part(part, &consents, &mut text));
                }
                Message::Assistant(message) => show_answer(message, &consents, &mut text),
            }
        }
    }
    let shown = if std::io::stdout().is_terminal() { printable(&text) } else { text };
    print(&shown)?;
    match damage.or(misfit) {
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
        if let Record::ConsentAsked(asked) = &entry.record {
            let end = ends.get(&asked.consent).copied();
            consents.entry(asked.call).or_default().push((asked, end));
        }
    }
    consents
}

fn show_answer(message: &AssistantMessage, consents: &Consents<'_>, text: &mut String) {
    push(text, format_args!("\n── {} ({}), {}\n", message.agent, message.model, time(message.created)));
    message.parts.iter().for_each(|part| show_part(part, consents, text));
    if let Some(error) = &message.error {
        push(text, format_args!("error: {error}\n"));
    }
}

fn show_part(part: &Part, consents: &Consents<'_>, text: &mut String) {
    match part {
        Part::Text { text: content, .. } => push(text, format_args!("{}\n", content.trim_end())),
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
            push(text, format_args!("[{} {} → {result}]\n", call.tool, call.input.to_value()));
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
    match damage {
        None => Ok(()),
        Some(damage) => {
            Err(Failure::failed(format!("session {id} is parked and exported up to there: {damage}")))
        }
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
