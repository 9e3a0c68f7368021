//! Everybody at once: prompts, aborts, connections. And how fast an abort is, and what it ends.

use std::time::{Duration, Instant};

use futures::future::try_join_all;

use crate::histogram::share;
use crate::model::{CLOCK, SLEEPER, Scripted};
use crate::report::{Row, Rows};
use crate::streams::Client;
use crate::target::Target;
use crate::watch::{Shared, Watch, until};
use crate::who::Who;
use crate::{Options, Result};

/// Aborts that are timed one by one.
const SAMPLES: usize = 100;
/// Trees of processes that are ended.
const TREES: usize = 10;
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a tree is looked at.
const LOOK: Duration = Duration::from_millis(1);

pub(crate) async fn run(options: &Options, who: &Who, sessions: usize) -> Result<Vec<Row>> {
    let model = Scripted::start(options, 1, 1)?;
    let mut rows = Rows::of(format!("storm, {sessions} sessions"));
    let target = who.start(options, &model).await?;
    // While nobody else is at work.
    let mut dead = Vec::new();
    for _ in 0..options.of(TREES) {
        dead.push(tree(&target, &model).await?);
    }
    dead.sort_by(f64::total_cmp);
    rows.add("tree of processes dead after an abort, median", "ms", share(&dead, 0.5));
    rows.goal("tree of processes dead after an abort, longest", "ms", share(&dead, 1.0), 100.0);

    let watch = Watch::shared();
    watch.borrow_mut().may_abort = true;
    let ids = target.sessions(&watch, sessions, CLOCK).await?;
    target.prompt_all(&watch, 0, &ids, CLOCK).await?;
    speak(&watch, &vec![0; sessions]).await?;

    // One by one, while the others go on.
    let mut connection = target.connect().await?;
    let mut times = Vec::new();
    for (number, id) in ids.iter().enumerate().take(SAMPLES.min(sessions)) {
        let begun = Instant::now();
        target.abort(&mut connection, id).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        watch.borrow_mut().begin(number);
        target.prompt(&mut connection, id, CLOCK, "Again.").await?;
    }
    times.sort_by(f64::total_cmp);
    rows.add("abort acknowledged, median", "ms", share(&times, 0.5));
    rows.goal("abort acknowledged, 99 %", "ms", share(&times, 0.99), 5.0);

    // All at once, each on a connection of its own.
    speak(&watch, &counts(&watch)).await?;
    let connections = try_join_all(ids.iter().map(|_| target.connect())).await?;
    let begun = Instant::now();
    let aborts = connections.into_iter().zip(&ids).map(|(mut connection, id)| {
        let target = &target;
        async move { target.abort(&mut connection, id).await }
    });
    try_join_all(aborts).await?;
    rows.add("all aborts acknowledged, sent at once", "ms", begun.elapsed().as_secs_f64() * 1e3);
    let ended = until(&watch, PATIENCE, |watch| watch.busy == 0).await;
    rows.add("all turns seen to end", "ms", begun.elapsed().as_secs_f64() * 1e3);
    if !ended {
        watch.borrow_mut().fail("turns that were aborted did not end".to_owned());
    }

    // Prompts and new connections for all of them.
    let before = counts(&watch);
    let begun = Instant::now();
    again(&target, &watch, &ids).await?;
    target.prompt_all(&watch, 0, &ids, CLOCK).await?;
    speak(&watch, &before).await?;
    rows.add("all connected again, prompted and speaking", "ms", begun.elapsed().as_secs_f64() * 1e3);
    {
        let watch = watch.borrow();
        watch.failures.iter().take(3).for_each(|failure| println!("{failure}"));
        rows.goal("errors", "", watch.failed as f64, 0.0);
    }
    Ok(rows.rows)
}

/// How much each session has said.
fn counts(watch: &Shared) -> Vec<u64> {
    watch.borrow().sessions.iter().map(|seen| seen.tokens).collect()
}

/// Waits until every session has said more than this.
async fn speak(watch: &Shared, before: &[u64]) -> Result<()> {
    let all = |watch: &Watch| watch.sessions.iter().zip(before).all(|(seen, before)| seen.tokens > *before);
    if until(watch, PATIENCE, all).await {
        return Ok(());
    }
    let watch = watch.borrow();
    let silent = watch.sessions.iter().zip(before).filter(|(seen, before)| seen.tokens <= **before).count();
    Err(format!("{silent} sessions do not speak; {:?}", watch.failures.first()).into())
}

/// All clients go, and as many come.
async fn again(target: &Target, watch: &Shared, ids: &[String]) -> Result<()> {
    let clients = std::mem::take(&mut watch.borrow_mut().clients);
    clients.into_iter().for_each(Client::close);
    target.follow(watch, 0, ids).await
}

/// How long a tree of processes lives after its turn was aborted, in milliseconds.
async fn tree(target: &Target, model: &Scripted) -> Result<f64> {
    let watch = Watch::shared();
    watch.borrow_mut().may_abort = true;
    let ids = target.sessions(&watch, 1, SLEEPER).await?;
    target.prompt_all(&watch, 0, &ids, SLEEPER).await?;
    let begun = Instant::now();
    // Four that sleep, and the shell that waits for them.
    let found = loop {
        let found = processes(&model.sleep)?;
        if found.len() >= 5 {
            break found;
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("only {} processes of a command are there", found.len()).into());
        }
        tokio::time::sleep(LOOK * 10).await;
    };
    let mut connection = target.connect().await?;
    let begun = Instant::now();
    target.abort(&mut connection, &ids[0]).await?;
    while found.iter().any(|id| is_alive(*id, &model.sleep)) {
        if begun.elapsed() > PATIENCE {
            return Err("processes of a command outlive an abort".into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

/// Processes whose command line holds this text.
fn processes(text: &str) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir("/proc")? {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if is_alive(id, text) {
            found.push(id);
        }
    }
    Ok(found)
}

fn is_alive(id: u32, text: &str) -> bool {
    // One that has ended and waits for its parent has no command line any more.
    let line = fs_err::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    memchr::memmem::find(&line, text.as_bytes()).is_some()
}
