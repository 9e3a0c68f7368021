//! `playhouse store`: damage, and space.

use clap::Subcommand;
use playhouse_protocol::operator::{OperatorReply, StoreRequest};
use playhouse_protocol::upkeep::{Reclaimed, Salvaged, StoreReport};

use super::asker::visible;
use super::reach::{ask_store, salvage};
use super::sessions::{ListFormat, json};
use super::{CommandResult, Common, Exit, Failure, print};

/// The subcommands of `playhouse store`.
#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Read everything that is kept, and say what is wrong where. Changes nothing; ends with 1 when something is wrong
    Check {
        /// How to print it
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// Go on with what can still be read of a database that the engine refuses. It is copied into a fresh one; the old one is kept
    Salvage {
        /// How to print it
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// Give back the space of what was removed. That happens by itself too, a while after much was removed
    Compact {
        /// How to print it
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
}

pub(super) async fn store(common: &Common, command: StoreCommand) -> CommandResult {
    let (request, format) = match command {
        StoreCommand::Check { format } => (StoreRequest::Check, format),
        StoreCommand::Compact { format } => (StoreRequest::Compact, format),
        StoreCommand::Salvage { format } => {
            let salvaged = salvage(common).await?;
            print(&match format {
                ListFormat::Json => json(&salvaged)? + "\n",
                ListFormat::Table => saved(&salvaged),
            })?;
            return Ok(Exit::Completed);
        }
    };
    match ask_store(common, request).await? {
        OperatorReply::Checked(report) => {
            print(&match format {
                ListFormat::Json => json(&report)? + "\n",
                ListFormat::Table => checked(&report),
            })?;
            Ok(if report.problems.is_empty() { Exit::Completed } else { Exit::Failed })
        }
        OperatorReply::Reclaimed(reclaimed) => {
            print(&match format {
                ListFormat::Json => json(&reclaimed)? + "\n",
                ListFormat::Table => told(&reclaimed),
            })?;
            Ok(Exit::Completed)
        }
        _ => Err(Failure::failed("the engine answered something else than was asked about its store")),
    }
}

fn checked(report: &StoreReport) -> String {
    let mut text = String::new();
    for problem in &report.problems {
        text += &format!("{}: {}\n", visible(&problem.place), visible(&problem.what));
    }
    if report.more > 0 {
        text += &format!("and {} more\n", report.more);
    }
    let found = match report.problems.len() as u64 + report.more {
        0 => "nothing is wrong".to_owned(),
        1 => "1 thing is wrong".to_owned(),
        count => format!("{count} things are wrong"),
    };
    let sessions = counted(report.sessions, "session", "sessions");
    let records = counted(report.records, "record", "records");
    let rows = counted(report.rows, "row", "rows");
    let blobs = counted(report.blobs, "blob", "blobs");
    text += &format!("{found}: {sessions}, {records}, {rows} of the ledger and {blobs} were read\n");
    match report.removals {
        0 => text,
        1 => {
            text + "1 session is deleted and still there: a running engine finishes that, or the next that starts\n"
        }
        count => {
            text + &format!(
                "{count} sessions are deleted and still there: a running engine finishes that, or the next that starts\n"
            )
        }
    }
}

fn saved(salvaged: &Salvaged) -> String {
    let mut text = String::new();
    for problem in &salvaged.problems {
        text += &format!("{}: {}\n", visible(&problem.place), visible(&problem.what));
    }
    for session in &salvaged.not_there {
        text += &format!("{session}: lost, or deleted before\n");
    }
    if salvaged.more_not_there > 0 {
        text += &format!("and {} more\n", counted(salvaged.more_not_there, "session", "sessions"));
    }
    for session in &salvaged.shorter {
        text += &format!("{session}: shorter than it was\n");
    }
    if salvaged.more_shorter > 0 {
        text += &format!("and {} more\n", counted(salvaged.more_shorter, "session", "sessions"));
    }
    if salvaged.end_lost {
        text += "what was written last is gone: any session may be shorter than it was\n";
    }
    text + &format!(
        "{} can be read; what was there before is in {}, with its blobs. `playhouse store check` says what is wrong with what is \
         there now\n",
        counted(salvaged.sessions, "session", "sessions"),
        visible(&salvaged.kept)
    )
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn told(reclaimed: &Reclaimed) -> String {
    let waiting = match reclaimed.waiting_blobs {
        0 => String::new(),
        count => format!(
            "; {} more wait until nothing has named them for ten minutes",
            counted(count, "blob", "blobs")
        ),
    };
    format!(
        "the database takes up {}, it was {}; {} of {} that nothing names went{waiting}\n",
        size(reclaimed.after),
        size(reclaimed.before),
        counted(reclaimed.blobs, "blob", "blobs"),
        size(reclaimed.blob_bytes)
    )
}

/// A size for people.
fn size(bytes: u64) -> String {
    const MEGABYTE: f64 = 1_000_000.0;
    match bytes as f64 / MEGABYTE {
        megabytes if megabytes >= 0.1 => format!("{megabytes:.1} MB"),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::upkeep::StoreProblem;

    use super::*;

    #[test]
    fn what_is_wrong_stands_before_the_sum() {
        let problem =
            |place: &str| StoreProblem { place: place.to_owned(), what: "it is\u{1b} gone".to_owned() };
        let report =
            StoreReport { sessions: 2, problems: vec![problem("session a")], ..StoreReport::default() };
        let text = checked(&report);
        assert!(text.starts_with("session a: it is"), "{text}");
        assert!(text.contains("\n1 thing is wrong: 2 sessions") && !text.contains('\u{1b}'), "{text}");
        let many = StoreReport { more: 5, ..report };
        assert!(checked(&many).contains("and 5 more\n6 things are wrong"));
        assert!(checked(&StoreReport::default()).starts_with("nothing is wrong"));
    }

    #[test]
    fn sizes_are_for_people() {
        assert_eq!(size(99_999), "99999 bytes");
        assert_eq!(size(12_345_678), "12.3 MB");
    }
}
