//! What must hold at the end, beside what every follower checks of its events on the way:
//!
//! - every acknowledged prompt stands in its session's log once, in order, and has one end (`logs`)
//! - every log is gapless, and holds what clients saw of it; every call has one result; acknowledged answers, titles and
//!   deletions count (`logs`)
//! - calls ran at most once, and once where their result says so: by the lines that they wrote (`traces`)
//! - every request that the model got is in the ledger once, with what was reported (`ledger`)
//! - no process is left, no blob is missing or left over, and the store finds nothing wrong with itself (`traces`, `logs`,
//!   `upkeep`)

mod ledger;
mod logs;
pub(crate) mod proof;
mod traces;
mod upkeep;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use playhouse::store::Store;

pub(crate) use self::traces::processes;
use crate::client::insist;
use crate::model::{Deletion, Failure, World, text_at};
use crate::stage::Stage;

/// The largest page of sessions.
const PAGE: usize = 500;

/// The first session that is not at its end, or whose client is behind.
pub(crate) async fn unfinished(world: &World) -> Option<Failure> {
    let mut heads = BTreeMap::new();
    for tenant in 0..world.tenants.len() {
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/sessions?limit={PAGE}{cursor}");
            let Some(page) = insist(world, tenant, "GET", &path, None).await else {
                return Some(Failure::new("sessions can be listed", "no answer"));
            };
            for session in page.body["sessions"].as_array().into_iter().flatten() {
                let id = text_at(session, "/id").to_owned();
                if session["open_turns"] != 0 {
                    let expected = "every turn comes to its end when nothing is killed any more";
                    return Some(Failure::of(&id, expected, session.to_string()));
                }
                heads.insert(id, session["head"].as_u64().unwrap_or_default());
            }
            match page.body["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
    }
    let sessions = world.sessions.lock().unwrap();
    for (id, told) in sessions.iter().filter(|(_, told)| told.deletion == Deletion::No) {
        let Some(head) = heads.get(id) else {
            return Some(Failure::of(id, "a session that was made and not deleted is listed", "it is not"));
        };
        if told.seen.len() as u64 != *head {
            let expected = format!("its client has all {head} durable events");
            return Some(Failure::of(id, expected, format!("it has {}", told.seen.len())));
        }
    }
    None
}

/// Rows of each tenant, as the server counts them.
pub(crate) async fn usage(world: &World) -> Result<Vec<u64>, Failure> {
    let mut rows = Vec::new();
    for tenant in 0..world.tenants.len() {
        let page = insist(world, tenant, "GET", "/v1/usage", None).await;
        let page = page.ok_or_else(|| Failure::new("usage can be read", "no answer"))?;
        let lines = page.body["rows"].as_array().into_iter().flatten();
        rows.push(lines.map(|line| line["rows"].as_u64().unwrap_or_default()).sum());
    }
    Ok(rows)
}

/// All that can be seen when the server has ended.
pub(crate) fn check(stage: &Stage) -> Result<(), Failure> {
    let world = &stage.world;
    for counter in [&world.counters.records, &world.counters.lines] {
        counter.store(0, Ordering::Relaxed);
    }
    world.counters.calls.lock().unwrap().clear();
    traces::check_processes(world)?;
    let data = world.data();
    let store = Store::open(&data).map_err(|error| Failure::new("the store opens", error.to_string()))?;
    let logs = logs::read(world, &store)?;
    traces::check_lines(world, &logs)?;
    ledger::check(stage, &store, &logs)?;
    drop(store);
    upkeep::check(world, logs.blobs.len() as u64)
}
