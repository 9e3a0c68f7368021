//! How long the program takes from its start until it answers that it is ready.

use std::time::Instant;

use playhouse::protocol::id::{IdGenerator, SessionId};
use playhouse::protocol::{Entry, ModelRef, Record, Seq, Timestamp, record::SessionCreated};
use playhouse::store::{Append, Store};

use crate::report::Measurement;
use crate::served::Place;
use crate::{Effort, Result};

/// Sessions in the full store.
pub(crate) const SESSIONS: usize = 10_000;
/// Targets, in milliseconds.
const EMPTY: f64 = 50.0;
const FULL: f64 = 200.0;

pub(crate) async fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let mut empty = Vec::new();
    for _ in 0..effort.of(20) {
        empty.push(once(&Place::new("")?).await?);
    }
    let place = Place::new("")?;
    fill(&place, &[("local", effort.of(SESSIONS))])?;
    let mut full = Vec::new();
    for _ in 0..effort.of(20) {
        full.push(once(&place).await?);
    }
    let sessions = effort.of(SESSIONS);
    Ok(vec![
        Measurement::new("ready after its start, empty store", "ms", empty).under(EMPTY),
        Measurement::new(format!("ready after its start, {sessions} sessions"), "ms", full).under(FULL),
    ])
}

/// Starts a server; milliseconds until it is ready.
async fn once(place: &Place) -> Result<f64> {
    let begun = Instant::now();
    let served = place.serve()?;
    let (status, _) = served.connect().await?.ask("GET", "/readyz", None).await?;
    let time = begun.elapsed().as_secs_f64() * 1e3;
    if status != 200 {
        return Err(format!("a server that listens was not ready: {status}").into());
    }
    Ok(time)
}

/// Puts so many sessions of each of these tenants into the data directory, taking turns.
pub(crate) fn fill(place: &Place, tenants: &[(&str, usize)]) -> Result<()> {
    let store = Store::open(&place.data())?;
    let mut ids = IdGenerator::new(|bytes| bytes.fill(7));
    let (done, ended) = std::sync::mpsc::sync_channel(1024);
    let most = tenants.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let mut waiting = 0;
    for number in 0..most {
        for (tenant, _) in tenants.iter().filter(|(_, count)| number < *count) {
            let at = Timestamp::from_millis(1_780_000_000_000 + number as u64);
            let session: SessionId = ids.next(at);
            let created = Record::SessionCreated(created(session, tenant, place, number)?);
            let entries = vec![Entry { seq: Seq(1), at, record: created }];
            let append = Append { session, tenant: (*tenant).into(), expected: Seq::START, entries };
            let done = done.clone();
            store.log.append(append, Box::new(move |end| drop(done.send(end.map(|_| ())))));
            waiting += 1;
            // As many as share a flush.
            if waiting == 1000 {
                for _ in 0..std::mem::take(&mut waiting) {
                    ended.recv()??;
                }
            }
        }
    }
    for _ in 0..waiting {
        ended.recv()??;
    }
    Ok(())
}

fn created(session: SessionId, tenant: &str, place: &Place, number: usize) -> Result<SessionCreated> {
    // Few fields matter here, and those that come later shall not.
    Ok(serde_json::from_value(serde_json::json!({
        "session": session, "tenant": tenant,
        "workspace": place.workspace().join(format!("project-{}", number % 100)),
        "title": format!("Fix the failing test number {number}"), "agent": "build",
        "model": ModelRef::new("bench", "clock"),
    }))?)
}
