//! The engine under load: what it delivers, and what that costs, beside a bare forwarder of bytes and beside a peer.
//!
//! `cargo bench --bench load` measures everything with the sizes of the goals; `-- steady stream` only these scenarios.
//! `benches/README.md` is the guide. Without `--bench`, as in `cargo test --benches`, every scenario makes one short run.
//!
//! The server is a process of its own (`playhouse serve`, or `opencode serve` with `--peer opencode`), and so are the
//! scripted model ([`model`]: this program again, with the crate `mock-llm`) and the bare forwarder. All clients are in this
//! process, on one thread ([`streams`], [`watch`]), whose processor time is told apart. Times of different processes are compared by the
//! one clock of the machine.
#![allow(clippy::print_stdout, reason = "a bench tells its numbers")]

mod body;
mod fill;
mod floor;
#[path = "../common/forwarder.rs"]
mod forwarder;
mod histogram;
#[path = "../common/http.rs"]
#[allow(dead_code, reason = "each bench uses its part")]
mod http;
#[path = "../common/machine.rs"]
mod machine;
mod model;
mod options;
mod peer;
#[path = "../common/place.rs"]
#[allow(dead_code, reason = "each bench uses its part")]
mod place;
#[path = "../common/process.rs"]
#[allow(dead_code, reason = "each bench uses its part")]
mod process;
mod proof;
mod report;
mod scenarios;
mod streams;
mod target;
mod tls;
mod watch;
mod who;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use tokio::task::LocalSet;

use options::Options;
use report::Report;
use who::Who;

/// Why a measurement failed.
type Failure = Box<dyn Error + Send + Sync>;
/// What a scenario ends with.
type Result<T> = std::result::Result<T, Failure>;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let done = match arguments.next().as_deref() {
        Some(model::ROLE) => model::serve(arguments),
        Some(forwarder::ROLE) => forwarder::serve(arguments),
        _ => measure(&Options::parse()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("the measurement failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<()> {
    options.prepare()?;
    proof::check()?;
    let who = Who::subject(options)?;
    let peer = Who::peer(options)?;
    let mut report = Report::new(peer.as_ref().map(Who::name));
    if !options.bench {
        println!("one short run of each scenario, to see that it works: `cargo bench` measures");
    }
    println!("{}", report.head());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut failed = Vec::new();
    for (scenario, sessions) in options.runs() {
        let run = |who: &Who| {
            let local = LocalSet::new();
            // A server that does not answer shall not keep the others from their turn.
            let run = async {
                let run = tokio::time::timeout(options.most(), scenario.run(options, who, sessions));
                run.await.unwrap_or_else(|_| Err("it did not come to an end".into()))
            };
            local.block_on(&runtime, run)
        };
        // One that fails is told, and the others go on.
        let peers = match peer.as_ref().filter(|_| scenario.is_for_peers()).map(run) {
            Some(Ok(rows)) => rows,
            Some(Err(error)) => {
                println!("| {} | the peer failed: {error} | | | |", scenario.name());
                Vec::new()
            }
            None => Vec::new(),
        };
        match run(&who) {
            Ok(rows) => report.add(rows, &peers).iter().for_each(|line| println!("{line}")),
            Err(error) => {
                println!("| {} | failed: {error} | | | **MISSED** |", scenario.name());
                failed.push(format!("{}: {error}", scenario.name()));
            }
        }
        options.write(&report)?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("; ").into()),
    }
}
