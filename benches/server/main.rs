//! The numbers of the server that `benches/RESULTS.md` states, measured.
//!
//! `cargo bench --bench server` prints all of them; `-- page tokens` only these cases; `-- --json FILE` also writes them
//! as JSON. Without `--bench`, as in `cargo test --benches`, every case makes one short run.
//!
//! What is measured is the program `playhouse serve`, a process of its own, over sockets. The scripted model and the bare
//! forwarder that the server is compared with are further processes (this program again, see [`model`] and [`forwarder`]),
//! and the clients are in this one.
#![allow(clippy::print_stdout, reason = "a bench tells its numbers")]

mod clients;
mod flood;
#[path = "../common/forwarder.rs"]
mod forwarder;
#[path = "../common/http.rs"]
#[allow(dead_code, reason = "each bench uses its part")]
mod http;
#[path = "../common/machine.rs"]
mod machine;
mod model;
mod page;
#[path = "../common/place.rs"]
#[allow(dead_code, reason = "each bench uses its part")]
mod place;
#[path = "../common/process.rs"]
#[allow(dead_code, reason = "each bench uses its part")]
mod process;
#[path = "../engine/report.rs"]
mod report;
mod served;
mod start;
mod subscribers;
mod tokens;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use report::{Measurement, Report};

/// Why a measurement failed.
type Failure = Box<dyn Error + Send + Sync>;
/// What a case ends with.
type Result<T> = std::result::Result<T, Failure>;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Case {
    /// From the start of the program until it is ready.
    Start,
    /// Pages of the list of sessions.
    Page,
    /// Memory of clients that wait for events.
    Subscribers,
    /// Time and processor time of a token, from the model's socket to a client's.
    Tokens,
    /// What many clients of one session cost, and what each of them is sent when a command prints much.
    Flood,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Divides counts of samples and times.
    divisor: usize,
}

impl Effort {
    /// `count`, or what is left of it in a short run.
    fn of(self, count: usize) -> usize {
        (count / self.divisor).max(1)
    }
}

/// Measures the server.
#[derive(Parser)]
struct Arguments {
    /// What to measure; everything without it.
    #[arg(value_enum)]
    cases: Vec<Case>,
    /// Write the results to this file too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Said by `cargo bench`: measure in earnest.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let done = match arguments.next().as_deref() {
        Some(model::ROLE) => model::serve(),
        Some(forwarder::ROLE) => forwarder::serve(arguments),
        _ => measure(&Arguments::parse()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("the measurement failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<()> {
    let effort = Effort { divisor: if arguments.bench { 1 } else { 50 } };
    let cases = match arguments.cases.as_slice() {
        [] => Case::value_variants(),
        cases => cases,
    };
    let mut report = Report::new();
    if !arguments.bench {
        println!("one short run of each case, to see that it works: `cargo bench` measures");
    }
    println!("{}\n{}", report.machine, report::HEAD);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for case in cases {
        let measurements: Vec<Measurement> = runtime.block_on(async {
            match case {
                Case::Start => start::measure(effort).await,
                Case::Page => page::measure(effort).await,
                Case::Subscribers => subscribers::measure(effort).await,
                Case::Tokens => Box::pin(tokens::measure(effort)).await,
                Case::Flood => Box::pin(flood::measure(effort)).await,
            }
        })?;
        for measurement in measurements {
            println!("{measurement}");
            report.measurements.push(measurement);
        }
    }
    if let Some(file) = &arguments.json {
        fs_err::write(file, report.to_json()?)?;
    }
    Ok(())
}
