//! What many clients of one session cost, and what each is sent.

use futures::future::try_join_all;

use crate::clients::read_until;
use crate::http::Connection;
use crate::model::{ANSWER, PRINTED, PRINTER, Scripted, TALKER};
use crate::report::Measurement;
use crate::served::{Place, Served, prompt, session};
use crate::{Effort, Result};

/// Clients of one session.
const CLIENTS: usize = 1_000;
/// Clients while a command prints.
const READERS: usize = 20;
/// What each may be sent beside what the command prints.
const OVERHEAD: f64 = 1.5;

pub(crate) async fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let model = Scripted::start()?;
    let place = Place::with(&model)?;
    let served = place.serve()?;
    let clients = effort.of(CLIENTS);
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for _ in 0..effort.of(3) {
        alone.push(cost(&served, &place, 1).await?);
        together.push(cost(&served, &place, clients).await?);
    }
    let one = Measurement::new("processor time of a token, 1 subscriber", "µs", alone);
    // The share of the session itself is in the first.
    let each = together.iter().map(|cost| (cost - one.median()) / clients as f64).collect();
    let each =
        Measurement::new(format!("and for each subscriber more, {clients} of one session"), "µs", each);
    let mut measurements = vec![one, each];
    for (name, path) in [("`/v1/sessions/{id}/events`", None), ("`/event`", Some("/event"))] {
        let mut ratios = Vec::new();
        for _ in 0..effort.of(3) {
            let bytes = sent(&served, &place, PRINTER, READERS, path).await?;
            ratios.extend(bytes.into_iter().map(|bytes| bytes as f64 / PRINTED as f64));
        }
        let name = format!("bytes sent for each that a command prints (1 MB), {name}");
        measurements.push(Measurement::new(name, "bytes", ratios).under(OVERHEAD));
    }
    Ok(measurements)
}

/// Microseconds of processor time of each token of an answer that so many clients read.
async fn cost(served: &Served, place: &Place, clients: usize) -> Result<f64> {
    let before = served.process.times()?;
    let idle = served.process.spent_since(&before)?;
    sent(served, place, TALKER, clients, None).await?;
    Ok((served.process.spent_since(&before)? - idle) / ANSWER as f64)
}

/// How many bytes each of so many clients of a session is sent in a turn. They stream from `path`, else from the session.
async fn sent(
    served: &Served,
    place: &Place,
    model: &str,
    clients: usize,
    path: Option<&str>,
) -> Result<Vec<usize>> {
    let mut connection = served.connect().await?;
    let id = session(&mut connection, &place.workspace(), model).await?;
    let events = format!("/v1/sessions/{id}/events");
    let (path, end) = match path {
        None => (events, "\"turn.ended\"".to_owned()),
        Some(path) => {
            let path = format!("{path}?directory={}", place.workspace().display());
            (path, "\"session.idle\"".to_owned())
        }
    };
    let mut streams = Vec::new();
    for _ in 0..clients {
        streams.push(Connection::open(&served.address).await?.stream("GET", &path, None).await?);
    }
    prompt(&mut connection, &id).await?;
    let reads = streams.into_iter().map(|(stream, begun)| read_until(stream, begun, &end));
    try_join_all(reads).await
}
