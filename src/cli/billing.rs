//! `playhouse billing`: how far the ledger is exported, what sinks refused for good, and sending that once more.

use clap::Subcommand;
use playhouse_protocol::operator::{ArchivedRows, Letter, Resent, SinkError, SinkFacts};
use serde_json::json;

use super::asker::visible;
use super::reach::{Reach, open};
use super::sessions::{ListFormat, json, time};
use super::{CommandResult, Common, Exit, Failure, print};

/// Characters of a reason that a table shows.
const SHOWN: usize = 200;

/// The subcommands of `playhouse billing`.
#[derive(Debug, Subcommand)]
pub(super) enum BillingCommand {
    /// Show how far each sink is
    Status {
        /// How to print it
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// List what sinks refused for good: dead letters
    Dead {
        /// Only this sink's
        #[arg(value_name = "SINK")]
        sink: Option<String>,
        /// How to print them
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// Send dead letters once more, and at once what a sink waits with after a failure
    Retry {
        /// Only this sink's
        #[arg(value_name = "SINK")]
        sink: Option<String>,
        /// Only the one with this id, as `dead` shows it
        #[arg(value_name = "ID")]
        id: Option<String>,
        /// How to print what became of them
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// Remove what is kept of a sink that is not configured any more: its cursor, and its dead letters
    Forget {
        /// The sink
        #[arg(value_name = "SINK")]
        sink: String,
        /// Remove its dead letters, too
        #[arg(long)]
        dead_letters: bool,
    },
}

pub(super) async fn billing(common: &Common, command: BillingCommand) -> CommandResult {
    let held = open(common).await?;
    let result = match command {
        BillingCommand::Status { format } => status(held.reach(), format).await,
        BillingCommand::Dead { sink, format } => dead(held.reach(), sink, format).await,
        BillingCommand::Retry { sink, id, format } => retry(held.reach(), sink, id, format).await,
        BillingCommand::Forget { sink, dead_letters } => forget(held.reach(), sink, dead_letters).await,
    };
    held.close().await;
    result
}

async fn status(reach: &Reach, format: ListFormat) -> CommandResult {
    let sinks = reach.sinks().await?;
    if format == ListFormat::Json {
        let lines: Result<String, Failure> = sinks.iter().map(|sink| Ok(json(sink)? + "\n")).collect();
        print(&lines?)?;
        return Ok(Exit::Completed);
    }
    let mut text = row(["SINK", "KIND", "CURSOR", "BEHIND", "AGE", "DEAD", "STATE"]);
    for sink in &sinks {
        let SinkFacts { cursor, rows_behind, seconds_behind, dead_letters, .. } = sink;
        let numbers = [cursor, rows_behind, dead_letters].map(u64::to_string);
        let age = age(*seconds_behind);
        let state = short(&state(sink));
        text.push_str(&row([&sink.sink, &sink.kind, &numbers[0], &numbers[1], &age, &numbers[2], &state]));
    }
    print(&text)?;
    Ok(Exit::Completed)
}

fn row([sink, kind, cursor, behind, age, dead, state]: [&str; 7]) -> String {
    format!("{sink:16}  {kind:11}  {cursor:>10}  {behind:>8}  {age:>5}  {dead:>5}  {state}\n")
}

fn state(sink: &SinkFacts) -> String {
    let mut state = match &sink.error {
        Some(error) => trouble(error),
        None if !sink.configured => {
            format!("not configured: `playhouse billing forget {}` removes what is kept of it", sink.sink)
        }
        None if !sink.running => "at rest: no engine runs".to_owned(),
        None if sink.rows_behind == 0 && sink.dead_letters > 0 => {
            "all but dead letters is delivered: `playhouse billing dead` lists them".to_owned()
        }
        None if sink.rows_behind == 0 => "all is delivered".to_owned(),
        None => "delivers".to_owned(),
    };
    if let Some(ArchivedRows { rows, before }) = sink.archived {
        let rows = if rows == 1 { "1 row".to_owned() } else { format!("{rows} rows") };
        state += &format!("; not sent: {rows} from before {}, archived when it began", time(before));
    }
    state
}

fn trouble(error: &SinkError) -> String {
    let SinkError { misconfigured, reason, since, tries, waits_until, asked } = error;
    let what = if *misconfigured { "configured wrongly" } else { "fails" };
    let since = format!("{what} since {} ({tries} tries)", time(*since));
    match waits_until {
        Some(until) => {
            let asked = if *asked { ", as it was asked to," } else { "" };
            format!("{since}, waits until {}{asked} because {reason}", time(*until))
        }
        None => format!("{since} because {reason}"),
    }
}

/// A time in its largest whole unit.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an age is small, and casts saturate"
)]
fn age(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0 => "-".to_owned(),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn short(text: &str) -> String {
    let text = visible(text);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

async fn dead(reach: &Reach, sink: Option<String>, format: ListFormat) -> CommandResult {
    let line = |sink: &str, id: &str, at: &str, status: &str, reason: &str| {
        format!("{sink:16}  {id:30}  {at:16}  {status:>6}  {reason}\n")
    };
    let mut after = None;
    let mut is_first = true;
    loop {
        let page = reach.letters(sink.clone(), after).await?;
        let mut text = String::new();
        if std::mem::take(&mut is_first) && format == ListFormat::Table {
            text.push_str(&line("SINK", "ID", "REFUSED", "STATUS", "REASON"));
        }
        for letter in &page.letters {
            text.push_str(&match format {
                ListFormat::Json => json(letter)? + "\n",
                ListFormat::Table => {
                    let Letter { sink, id, status, reason, at, .. } = letter;
                    line(sink, &visible(id), &time(*at), &status.to_string(), &short(reason))
                }
            });
        }
        print(&text)?;
        after = page.next;
        if after.is_none() {
            return Ok(Exit::Completed);
        }
    }
}

async fn retry(reach: &Reach, sink: Option<String>, id: Option<String>, format: ListFormat) -> CommandResult {
    let sinks = reach.sinks().await?;
    let runs = sinks.iter().any(|sink| sink.running);
    let names = match sink {
        Some(name) => vec![name],
        None => {
            let is_wanted = |sink: &SinkFacts| {
                let waits = sink.error.as_ref().is_some_and(|error| error.waits_until.is_some());
                sink.configured && (sink.dead_letters > 0 || waits)
            };
            sinks.into_iter().filter(is_wanted).map(|sink| sink.sink).collect()
        }
    };
    let mut exit = Exit::Completed;
    if names.is_empty() && format == ListFormat::Table {
        let text = match runs {
            true => "there are no dead letters, and no sink waits\n",
            false => concat!(
                "there are no dead letters; no engine runs: what is not delivered yet goes out when one does, as with ",
                "`playhouse serve`\n"
            ),
        };
        print(text)?;
    }
    for name in names {
        let became = resend(reach, &name, id.as_deref()).await?;
        let Resent { delivered, refused, left, reason, hurried, .. } = &became;
        if refused + left > 0 {
            exit = Exit::Failed;
        }
        print(&match format {
            ListFormat::Json => {
                let mut told =
                    json!({"sink": name, "delivered": delivered, "refused": refused, "left": left});
                if let Some(reason) = reason {
                    told["reason"] = json!(reason);
                }
                if *hurried {
                    told["hurried"] = json!(true);
                }
                json(&told)? + "\n"
            }
            ListFormat::Table => {
                let mut text = format!("{name}: {delivered} delivered, {refused} refused again");
                if let Some(reason) = reason {
                    text += &format!(", {left} not tried: {}", visible(reason));
                }
                if *hurried {
                    text += "; what it waits with is tried now: see `playhouse billing status`";
                } else if !runs {
                    text += "; no engine runs: what else is not delivered yet goes out when one does";
                }
                text + "\n"
            }
        })?;
    }
    Ok(exit)
}

/// Sends all letters of a sink, or one, as many at a time as the engine does at once.
async fn resend(reach: &Reach, sink: &str, id: Option<&str>) -> Result<Resent, Failure> {
    let mut sum = Resent::default();
    loop {
        let some = reach.resend(sink.to_owned(), id.map(str::to_owned), sum.next.take()).await?;
        sum.delivered += some.delivered;
        sum.refused += some.refused;
        sum.left += some.left;
        sum.reason = some.reason;
        sum.hurried |= some.hurried;
        sum.next = some.next;
        if sum.next.is_none() {
            return Ok(sum);
        }
    }
}

async fn forget(reach: &Reach, sink: String, letters: bool) -> CommandResult {
    let removed = reach.forget_sink(sink.clone(), letters).await?;
    let letters = if removed == 1 { "1 dead letter".to_owned() } else { format!("{removed} dead letters") };
    print(&format!("{sink}: nothing is kept any more ({letters} removed)\n"))?;
    Ok(Exit::Completed)
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::Timestamp;

    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let ages = [0.0, 0.4, 59.9, 60.0, 7_300.0, 200_000.0].map(age);
        assert_eq!(ages, ["-", "-", "59s", "1m", "2h", "2d"]);
    }

    #[test]
    fn a_state_is_told_in_one_line() {
        let mut sink = SinkFacts {
            sink: "a".to_owned(),
            kind: "polar".to_owned(),
            configured: true,
            running: true,
            cursor: 5,
            rows_behind: 2,
            seconds_behind: 1.0,
            dead_letters: 0,
            delivered: 5,
            archived: None,
            error: None,
        };
        assert_eq!(state(&sink), "delivers");
        sink.rows_behind = 0;
        assert_eq!(state(&sink), "all is delivered");
        sink.dead_letters = 1;
        assert!(state(&sink).starts_with("all but dead letters is delivered"));
        sink.dead_letters = 0;
        sink.running = false;
        assert_eq!(state(&sink), "at rest: no engine runs");
        let since = Timestamp::from_millis(0);
        let reason = "no\nsuch\u{1b} key".to_owned();
        let error =
            SinkError { misconfigured: true, reason, since, tries: 3, waits_until: None, asked: false };
        sink.error = Some(error.clone());
        let shown = short(&state(&sink));
        assert!(
            shown.contains("configured wrongly since") && shown.contains("(3 tries) because no"),
            "{shown}"
        );
        assert!(!shown.contains('\n') && !shown.contains('\u{1b}'), "{shown}");
        assert!(short(&"é".repeat(500)).chars().count() == SHOWN + 1);
        let waits_until = Some(Timestamp::from_millis(3_600_000));
        let reason = "status 429".to_owned();
        sink.error = Some(SinkError { misconfigured: false, reason, waits_until, asked: true, ..error });
        let shown = state(&sink);
        let expected = ", waits until 1970-01-01 01:00, as it was asked to, because status 429";
        assert!(shown.starts_with("fails since") && shown.ends_with(expected), "{shown}");
        sink.error = None;
        sink.archived = Some(ArchivedRows { rows: 7, before: Timestamp::from_millis(86_400_000) });
        assert_eq!(
            state(&sink),
            "at rest: no engine runs; not sent: 7 rows from before 1970-01-02 00:00, archived when it began"
        );
        sink.archived = None;
        sink.configured = false;
        let shown = state(&sink);
        assert!(shown.starts_with("not configured: `playhouse billing forget a`"), "{shown}");
    }
}
