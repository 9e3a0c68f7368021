//! How much memory clients take that wait for events of sessions without work.

use std::time::Duration;

use serde_json::json;

use crate::http::Connection;
use crate::model::{CLOCK, Scripted};
use crate::report::Measurement;
use crate::served::{Place, session};
use crate::{Effort, Result};

/// How many clients wait.
const CLIENTS: usize = 1_000;
/// The target, in millions of bytes.
const TARGET: f64 = 20.0;
/// How long the server is left alone before it is looked at.
const SETTLE: Duration = Duration::from_millis(500);

pub(crate) async fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let model = Scripted::start()?;
    let clients = effort.of(CLIENTS);
    let (mut one, mut many, mut wire) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.of(3) {
        one.push(growth(&model, clients, |sessions, _| events(&sessions[0])).await?);
        many.push(growth(&model, clients, |sessions, number| events(&sessions[number])).await?);
        wire.push(growth(&model, clients, |_, _| "/event".to_owned()).await?);
    }
    let name = |of: &str| format!("{clients} idle subscribers, {of}");
    Ok(vec![
        Measurement::new(name("of one session"), "MB", one).under(TARGET),
        Measurement::new(name("of as many sessions"), "MB", many).under(TARGET),
        Measurement::new(name("of `/event`"), "MB", wire).under(TARGET),
    ])
}

fn events(session: &str) -> String {
    format!("/v1/sessions/{session}/events")
}

/// By how much a server grows with so many sessions while as many clients stream from what `path` says for each.
async fn growth(model: &Scripted, clients: usize, path: impl Fn(&[String], usize) -> String) -> Result<f64> {
    let place = Place::with(model)?;
    let served = place.serve()?;
    let mut connection = served.connect().await?;
    let mut sessions = Vec::new();
    for _ in 0..clients {
        let id = session(&mut connection, &place.workspace(), CLOCK).await?;
        // It is awake from here on, so that only the clients are new.
        let change = json!({"title": "Waits"});
        connection.json("PATCH", &format!("/v1/sessions/{id}"), Some(&change)).await?;
        sessions.push(id);
    }
    tokio::time::sleep(SETTLE).await;
    let before = served.process.resident()?;
    let mut streams = Vec::new();
    for number in 0..clients {
        let path = path(&sessions, number);
        streams.push(Connection::open(&served.address).await?.stream("GET", &path, None).await?);
    }
    tokio::time::sleep(SETTLE).await;
    Ok(served.process.resident()? - before)
}
