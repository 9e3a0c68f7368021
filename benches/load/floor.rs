//! The floor: the same streams of the same model through a process that only hands on bytes.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::Result;
use crate::forwarder::Forwarder;
use crate::http::Connection;
use crate::model::Scripted;
use crate::process;
use crate::streams::follow;
use crate::watch::{Feed, Shared, Watch, unheard, until};

/// What was seen of the forwarder.
pub(crate) struct Floor {
    /// From the first request to the end of the last answer, or for how long was looked, in seconds.
    pub(crate) wall: f64,
    /// Its processor time meanwhile, in microseconds.
    pub(crate) spent: f64,
    /// What the clients saw.
    pub(crate) watch: Shared,
}

impl Floor {
    /// Tokens that a client read at once.
    pub(crate) fn at_once(&self) -> f64 {
        let watch = self.watch.borrow();
        watch.tokens as f64 / watch.reads as f64
    }

    /// Processor time of a token, of so many, in microseconds.
    pub(crate) fn cost(&self, tokens: f64) -> f64 {
        self.spent / tokens
    }
}

/// So many answers of a model at once, to their ends; each tells the time `times` times, where that is known.
pub(crate) async fn to_the_end(
    model: &Scripted,
    count: usize,
    name: &str,
    times: Option<u64>,
    most: Duration,
) -> Result<Floor> {
    let (forwarder, watch) = (Forwarder::start(&model.address, None)?, clients(count));
    watch.borrow_mut().of_a_turn = times;
    let before = process::used(forwarder.process.id())?;
    let begun = Instant::now();
    begin(&forwarder, count, name, &watch).await?;
    if !until(&watch, most, |watch| watch.busy == 0 || watch.failed > 0).await {
        return Err("the forwarder did not come to an end".into());
    }
    done(&forwarder, begun, before, watch)
}

/// So many answers of a model at once, for a while.
pub(crate) async fn for_a_while(
    model: &Scripted,
    count: usize,
    name: &str,
    warm_up: Duration,
    window: Duration,
) -> Result<Floor> {
    let (forwarder, watch) = (Forwarder::start(&model.address, None)?, clients(count));
    begin(&forwarder, count, name, &watch).await?;
    tokio::time::sleep(warm_up).await;
    let before = process::used(forwarder.process.id())?;
    watch.borrow_mut().look();
    let begun = Instant::now();
    tokio::time::sleep(window).await;
    done(&forwarder, begun, before, watch)
}

/// The 99th percentile of the latency of so many paced answers, in milliseconds: alone, and beside one at full speed.
pub(crate) async fn beside(
    model: &Scripted,
    count: usize,
    [name, fast]: [&str; 2],
    warm_up: Duration,
    window: Duration,
) -> Result<[f64; 2]> {
    let (forwarder, watch) = (Forwarder::start(&model.address, None)?, clients(count));
    begin(&forwarder, count, name, &watch).await?;
    let mut latencies = [f64::NAN; 2];
    for (number, latency) in latencies.iter_mut().enumerate() {
        if number == 1 {
            let connection = Connection::open(&forwarder.address).await?;
            unheard(connection.stream("POST", "/v1/messages", Some(&request(fast))).await?.0)?;
        }
        tokio::time::sleep(warm_up).await;
        watch.borrow_mut().look();
        tokio::time::sleep(window).await;
        *latency = watch.borrow().latency.at(0.99);
    }
    Ok(latencies)
}

fn done(forwarder: &Forwarder, begun: Instant, before: process::Used, watch: Shared) -> Result<Floor> {
    let wall = begun.elapsed().as_secs_f64();
    let spent = process::used(forwarder.process.id())?.since(before).own;
    if let Some(failure) = watch.borrow().failures.first() {
        return Err(format!("the forwarder's clients: {failure}").into());
    }
    Ok(Floor { wall, spent, watch })
}

fn clients(count: usize) -> Shared {
    let watch = Watch::shared();
    for number in 0..count {
        let mut watch = watch.borrow_mut();
        watch.session(&number.to_string());
        watch.begin(number);
    }
    watch
}

fn request(model: &str) -> Value {
    json!({
        "model": model, "max_tokens": 1_000_000, "stream": true,
        "messages": [{"role": "user", "content": "Go on."}],
    })
}

async fn begin(forwarder: &Forwarder, count: usize, name: &str, watch: &Shared) -> Result<()> {
    let request = request(name);
    let requests = (0..count).map(|number| {
        let request = &request;
        async move {
            let connection = Connection::open(&forwarder.address).await?;
            let (stream, begun) = connection.stream("POST", "/v1/messages", Some(request)).await?;
            // A connection that stays open is no concern of anybody's.
            drop(follow(stream, &begun, Feed::Of(number), watch)?);
            Ok::<_, crate::Failure>(())
        }
    });
    try_join_all(requests).await?;
    Ok(())
}
