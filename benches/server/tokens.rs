//! How long a token is under way from the model's socket to a client's, and what processor time it costs, beside a bare
//! forwarder of bytes. Both are measured in turn, with the same model, the same pace and as many clients.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;
use tokio::task::LocalSet;

use crate::clients::{Seen, watch};
use crate::forwarder::Forwarder;
use crate::http::Connection;
use crate::model::{CLOCK, Scripted};
use crate::process::Process;
use crate::report::Measurement;
use crate::served::{Place, Served, prompt, session};
use crate::{Effort, Result};

/// Sessions that stream at once.
const SESSIONS: usize = 100;
/// How long is looked, and how often.
const WINDOW: Duration = Duration::from_secs(5);
const ROUNDS: usize = 5;
/// How long nobody looks after the beginning.
const WARM_UP: Duration = Duration::from_secs(1);
/// Targets: milliseconds, and times the forwarder's processor time.
const TARGET: f64 = 1.0;
const RATIO: f64 = 2.0;

/// What was seen in a window.
struct Window {
    /// How long the tokens were under way, in milliseconds.
    delays: Vec<f64>,
    /// Processor time of a token, in microseconds.
    cost: f64,
}

pub(crate) async fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let model = Scripted::start()?;
    let sessions = effort.of(SESSIONS);
    let (mut delays, mut bare_delays) = (Vec::new(), Vec::new());
    let (mut costs, mut bare_costs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut single_costs, mut single_ratios) = (Vec::new(), Vec::new());
    for _ in 0..effort.of(ROUNDS) {
        let bare = forwarded(&model, sessions, None).await?;
        let single = forwarded(&model, sessions, Some(1)).await?;
        let served = served(&model, sessions).await?;
        delays.extend(served.delays);
        bare_delays.extend(bare.delays);
        costs.push(served.cost);
        bare_costs.push(bare.cost);
        ratios.push(served.cost / bare.cost);
        single_costs.push(single.cost);
        single_ratios.push(served.cost / single.cost);
    }
    let name = |what: &str| format!("{what}, {sessions} sessions at 50 tokens a second");
    Ok(vec![
        Measurement::new(name("from model to subscriber"), "ms", delays).under(TARGET),
        Measurement::new(name("the same through a bare forwarder"), "ms", bare_delays),
        Measurement::new(name("processor time of a token"), "µs", costs),
        Measurement::new(name("the same of a bare forwarder"), "µs", bare_costs),
        Measurement::new(name("processor time beside the forwarder's"), "times", ratios).under(RATIO),
        Measurement::new(name("the same of a bare forwarder on one thread"), "µs", single_costs),
        Measurement::new(name("processor time beside that of one thread"), "times", single_ratios),
    ])
}

async fn served(model: &Scripted, sessions: usize) -> Result<Window> {
    let place = Place::with(model)?;
    let served = place.serve()?;
    let seen = Rc::new(RefCell::new(Seen::default()));
    let local = LocalSet::new();
    local
        .run_until(async {
            let mut connection = served.connect().await?;
            for _ in 0..sessions {
                begin(&served, &mut connection, &place, &seen).await?;
            }
            look(&served.process, &seen).await
        })
        .await
}

/// A session more that streams, and a client of it.
async fn begin(
    served: &Served,
    connection: &mut Connection,
    place: &Place,
    seen: &Rc<RefCell<Seen>>,
) -> Result<()> {
    let id = session(connection, &place.workspace(), CLOCK).await?;
    let path = format!("/v1/sessions/{id}/events");
    let (stream, _) = served.connect().await?.stream("GET", &path, None).await?;
    tokio::task::spawn_local(watch(stream, Rc::clone(seen)));
    prompt(connection, &id).await?;
    Ok(())
}

async fn forwarded(model: &Scripted, sessions: usize, threads: Option<usize>) -> Result<Window> {
    let forwarder = Forwarder::start(&model.address, threads)?;
    let seen = Rc::new(RefCell::new(Seen::default()));
    let local = LocalSet::new();
    local
        .run_until(async {
            let request = json!({
                "model": CLOCK, "max_tokens": 1_000_000, "stream": true,
                "messages": [{"role": "user", "content": "Go."}],
            });
            for _ in 0..sessions {
                let connection = Connection::open(&forwarder.address).await?;
                let (stream, _) = connection.stream("POST", "/v1/messages", Some(&request)).await?;
                tokio::task::spawn_local(watch(stream, Rc::clone(&seen)));
            }
            look(&forwarder.process, &seen).await
        })
        .await
}

/// Looks for a while at what clients of this process see.
async fn look(process: &Process, seen: &Rc<RefCell<Seen>>) -> Result<Window> {
    tokio::time::sleep(WARM_UP).await;
    let before = process.times()?;
    let count = {
        let mut seen = seen.borrow_mut();
        seen.is_watched = true;
        seen.count
    };
    tokio::time::sleep(WINDOW).await;
    let mut seen = seen.borrow_mut();
    let spent = process.spent_since(&before)?;
    if let Some(failure) = seen.failures.first() {
        return Err(failure.clone().into());
    }
    let count = seen.count - count;
    if count == 0 {
        return Err("no token came".into());
    }
    let delays = seen.delays.drain(..).map(|delay| delay / 1e3).collect();
    Ok(Window { delays, cost: spent / count as f64 })
}
