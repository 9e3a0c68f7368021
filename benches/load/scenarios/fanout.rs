//! Many clients of one session that speaks at a pace.

use std::time::{Duration, Instant};

use crate::model::{CLOCK, Scripted};
use crate::report::{Row, Rows};
use crate::streams::follow;
use crate::target::Wire;
use crate::watch::{Feed, Watch, until};
use crate::who::Who;
use crate::{Options, Result};

const WINDOW: Duration = Duration::from_secs(8);
const WARM_UP: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn run(options: &Options, who: &Who, clients: usize) -> Result<Vec<Row>> {
    let model = Scripted::start(options, 1, 1)?;
    let mut rows = Rows::of(format!("fanout, {clients} subscribers"));
    let target = who.start(options, &model).await?;
    let (watch, own) = (Watch::shared(), Watch::shared());
    let ids = target.sessions(&own, 1, CLOCK).await?;
    watch.borrow_mut().session(&ids[0]);
    let before = target.resident()?;
    for _ in 0..clients {
        match target.wire {
            Wire::Native => drop(target.client(&watch, &ids[0], 0).await?),
            Wire::V1 => {
                let path = format!("/event?directory={}", target.workspace.display());
                let (stream, begun) = target.connect().await?.stream("GET", &path, None).await?;
                drop(follow(stream, &begun, Feed::Shared, &watch)?);
            }
        }
    }
    let memory = (target.resident()? - before) * 1e3 / clients as f64;
    target.prompt_all(&own, 0, &ids, CLOCK).await?;
    until(&watch, PATIENCE, |watch| watch.tokens > clients as u64).await;
    tokio::time::sleep(if options.bench { WARM_UP } else { WARM_UP / 8 }).await;
    watch.borrow_mut().look();
    own.borrow_mut().look();
    let (before, begun) = (target.used()?, Instant::now());
    tokio::time::sleep(if options.bench { WINDOW } else { WINDOW / 8 }).await;
    let (spent, wall) = (target.used()?.since(before), begun.elapsed().as_secs_f64());

    let watch = watch.borrow();
    for failure in watch.failures.iter().take(3) {
        println!("{failure}");
    }
    let (tokens, said) = (watch.tokens as f64, own.borrow().tokens as f64);
    rows.goal("errors", "", watch.failed as f64, 0.0);
    rows.add("tokens to all clients, wanted", "a second", clients as f64 * options.rate);
    rows.add("tokens to all clients", "a second", tokens / wall);
    let missing = 1.0 - tokens / (clients as f64 * options.rate * wall);
    rows.goal("tokens that did not come in time", "%", (missing * 100.0).max(0.0), 2.0);
    rows.add("event latency, median", "ms", watch.latency.at(0.5));
    rows.add("event latency, 99 %", "ms", watch.latency.at(0.99));
    rows.goal("processors used by the server", "", spent.own / 1e6 / wall, 1.0);
    rows.add("processor time of the server", "µs a token and client", spent.own / tokens);
    rows.add("processor time of the server for all clients", "µs a token", spent.own / said);
    rows.add("memory of a client that waits", "KB", memory);
    Ok(rows.rows)
}
