//! `playhouse billing`: how far the ledger is exported, what sinks refused for good, and sending that once more.

use clap::Subcommand;
use playhouse_protocol::operator::{Letter, Resent, SinkFacts};
use serde_json::json;

use super::asker::visible;
use super::reach::{Reach, open};
use super::sessions::{ListFormat, json, time};
use super::{CommandResult, Common, Exit, Failure, print};

/// Characters of a reason that a table shows.
const SHOWN: usize = 100;

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
    /// Send dead letters once more. What is taken is one no more
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
}

pub(super) async fn billing(common: &Common, command: BillingCommand) -> CommandResult {
    let held = open(common).await?;
    let result = match command {
        BillingCommand::Status { format } => status(held.reach(), format).await,
        BillingCommand::Dead { sink, format } => dead(held.reach(), sink, format).await,
        BillingCommand::Retry { sink, id, format } => retry(held.reach(), sink, id, format).await,
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
    match &sink.error {
        Some(error) => {
            let what = if error.misconfigured { "configured wrongly" } else { "fails" };
            format!("{what} since {} ({} tries): {}", time(error.since), error.tries, error.reason)
        }
        None if !sink.running => "at rest: no engine runs".to_owned(),
        None if sink.rows_behind == 0 => "all is delivered".to_owned(),
        None => "delivers".to_owned(),
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
    let names = match sink {
        Some(name) => vec![name],
        None => {
            let sinks = reach.sinks().await?;
            sinks.into_iter().filter(|sink| sink.dead_letters > 0).map(|sink| sink.sink).collect()
        }
    };
    let mut exit = Exit::Completed;
    if names.is_empty() && format == ListFormat::Table {
        print("there are no dead letters\n")?;
    }
    for name in names {
        let became = resend(reach, &name, id.as_deref()).await?;
        let Resent { delivered, refused, left, reason, .. } = &became;
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
                json(&told)? + "\n"
            }
            ListFormat::Table => {
                let mut text = format!("{name}: {delivered} delivered, {refused} refused again");
                if let Some(reason) = reason {
                    text += &format!(", {left} not tried: {}", visible(reason));
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
        sum.next = some.next;
        if sum.next.is_none() {
            return Ok(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::Timestamp;
    use playhouse_protocol::operator::SinkError;

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
            running: true,
            cursor: 5,
            rows_behind: 2,
            seconds_behind: 1.0,
            dead_letters: 0,
            delivered: 5,
            error: None,
        };
        assert_eq!(state(&sink), "delivers");
        sink.rows_behind = 0;
        assert_eq!(state(&sink), "all is delivered");
        sink.running = false;
        assert_eq!(state(&sink), "at rest: no engine runs");
        let since = Timestamp::from_millis(0);
        let reason = "no\nsuch\u{1b} key".to_owned();
        sink.error = Some(SinkError { misconfigured: true, reason, since, tries: 3 });
        let shown = short(&state(&sink));
        assert!(shown.contains("configured wrongly since") && shown.contains("(3 tries)"), "{shown}");
        assert!(!shown.contains('\n') && !shown.contains('\u{1b}'), "{shown}");
        assert!(short(&"é".repeat(500)).chars().count() == SHOWN + 1);
    }
}
