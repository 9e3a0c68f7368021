//! The numbers that `benches/RESULTS.md` states, measured.
//!
//! `cargo bench --bench engine` prints all of them; `-- tokens step` only these cases; `-- --json FILE` also writes them
//! as JSON. Without `--bench`, as in `cargo test --benches`, every case makes one short run.
//!
//! Each case is measured in the process where it belongs: the scripted model runs in a process of its own (this program
//! again, see [`model`]), so that the processor time counted here is the engine's only.
#![allow(clippy::print_stdout, reason = "a bench tells its numbers")]

mod house;
mod idle;
#[path = "../common/machine.rs"]
mod machine;
mod mcp;
mod memory;
mod model;
mod prefix;
mod report;
mod step;
mod tokens;
mod turn;
mod undo;
mod version;
mod wake;

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
    /// `playhouse --version`.
    Version,
    /// Memory of an engine without sessions.
    Idle,
    /// Memory of sessions.
    Memory,
    /// From the end of an answer to the next request.
    Step,
    /// Processor time of a token, from the socket to a subscriber.
    Tokens,
    /// Bringing a long session back from its log.
    Wake,
    /// How much of each request is what the last one was, in a session that is longer than its model's window.
    Prefix,
    /// What a step of a turn of `--steps` takes.
    Turn,
    /// Calls of MCP servers, and sessions that share them.
    Mcp,
    /// Change sets of edits and commands, reverts, and what language servers add to an edit.
    Undo,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Divides counts of samples and lengths of histories.
    divisor: usize,
}

impl Effort {
    /// `count`, or what is left of it in a short run.
    fn of(self, count: usize) -> usize {
        (count / self.divisor).max(1)
    }
}

/// Measures the engine.
#[derive(Parser)]
struct Arguments {
    /// What to measure; everything without it.
    #[arg(value_enum)]
    cases: Vec<Case>,
    /// Write the results to this file too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How long the turn of the case `turn` is.
    #[arg(long, default_value_t = 500)]
    steps: usize,
    /// Said by `cargo bench`: measure in earnest.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let done = match arguments.next().as_deref() {
        Some(model::ROLE) => model::serve(arguments),
        Some(idle::ROLE) => idle::child(),
        Some(mcp::ROLE) => mcp::serve(arguments),
        Some(mcp::SHARING) => mcp::child(arguments),
        Some(memory::ROLE) => memory::child(arguments),
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
    for case in cases {
        let measurements: Vec<Measurement> = match case {
            Case::Version => version::measure(effort)?,
            Case::Idle => idle::measure(effort)?,
            Case::Memory => memory::measure(effort)?,
            Case::Step => step::measure(effort)?,
            Case::Tokens => tokens::measure(effort)?,
            Case::Wake => wake::measure(effort)?,
            Case::Prefix => prefix::measure(effort)?,
            Case::Turn => turn::measure(effort, arguments.steps)?,
            Case::Mcp => mcp::measure(effort)?,
            Case::Undo => undo::measure(effort)?,
        };
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
