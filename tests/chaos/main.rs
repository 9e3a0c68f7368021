//! A server that is killed again and again under load, and a checker beside it that keeps what it was told.
//!
//! `cargo test --test chaos -- --duration 60s --seed 7`: a real server process on real sockets, with a scripted model in this
//! process; sessions of several tenants with tools, consents, questions, aborts, forks, deletions and clients that lose their
//! connections. The server gets SIGKILL every few seconds, at random and at named places in the store, and is started again
//! on the same data. At the end it is checked that nothing that was acknowledged is lost and nothing was done twice:
//! `checker` says what is looked at. Without arguments it runs 20 s with a seed of its own, which it prints. With `--soak`
//! nothing is killed, and it is looked at what the server holds (`soak`).
//!
//! What is done follows from the seed (`plan`), as far as real processes permit: how far each operation comes before a kill
//! is a matter of timing, so a seed repeats the load and the kills, not every interleaving.

#![allow(clippy::unwrap_used, reason = "this is a test: what is not as it must be ends it")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test tells what it found")]

mod arguments;
mod checker;
mod client;
mod driver;
mod follower;
mod model;
mod plan;
mod server;
mod soak;
mod stage;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::arguments::{Arguments, Wanted};
use self::model::{Failure, Phase, World};
use self::stage::Stage;

/// How long all turns may take to end when nothing is killed any more. Far longer than it takes.
const PATIENCE: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(Wanted::Run(arguments)) => arguments,
        Ok(Wanted::Nothing(said)) => {
            print!("{said}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("chaos: {error}");
            return ExitCode::from(2);
        }
    };
    let Arguments { seed, duration, sessions, soak, .. } = arguments;
    println!("chaos: seed {seed}, {duration:?}, {sessions} sessions");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let stage = runtime.block_on(Stage::new(&arguments));
    let world = Arc::clone(&stage.world);
    let result = runtime.block_on(run(&stage, soak));
    // What still runs is of no use any more.
    runtime.shutdown_timeout(Duration::from_secs(1));
    let result = result.and_then(|()| checker::check(&stage));
    println!("chaos: {}", world.counters.told());
    // Of so much load each proof takes its time.
    let result = result.and_then(|()| if soak { Ok(()) } else { prove(&stage) });
    if arguments.keep {
        println!("chaos: kept in {}", world.place.display());
        stage.keep();
    }
    match result {
        Ok(()) => {
            println!("chaos: all is as it must be");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{}", failure.told(&world));
            stage.keep();
            ExitCode::FAILURE
        }
    }
}

/// The checker finds what it looks for.
fn prove(stage: &Stage) -> Result<(), Failure> {
    let found = checker::proof::prove(stage)?;
    println!("chaos: {found} faults that were planted were found");
    Ok(())
}

/// The load and the kills, then the end of all turns, then the end of the server.
async fn run(stage: &Stage, soak: bool) -> Result<(), Failure> {
    let world = &stage.world;
    for slot in 0..world.plan.sessions {
        tokio::spawn(driver::drive(Arc::clone(world), slot));
    }
    for tenant in 0..world.tenants.len() {
        tokio::spawn(driver::answer(Arc::clone(world), tenant));
    }
    let server = if soak { soak::reign(stage).await? } else { server::reign(stage).await? };
    let begun = Instant::now();
    let quiet = drain(world).await;
    println!("chaos: all turns were over {:.1} s later", begun.elapsed().as_secs_f64());
    if let Err(failure) = quiet.and_then(|()| world.failed()) {
        server.end();
        return Err(failure);
    }
    let sums = checker::usage(world).await;
    world.enter(Phase::Over);
    let ended = server.end_in_good_order();
    *world.usage.lock().unwrap() = sums?;
    ended?;
    world.failed()
}

/// Waits until no turn is open and every follower has all that there is.
async fn drain(world: &Arc<World>) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        world.failed()?;
        let Some(behind) = checker::unfinished(world).await else { return Ok(()) };
        if begun.elapsed() > PATIENCE {
            return Err(behind);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
