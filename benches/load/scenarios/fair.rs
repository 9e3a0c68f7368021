//! Whether those that are slow suffer from one that is fast, and a small tenant from a large one.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

use crate::floor;
use crate::model::{CLOCK, FLOOD, Scripted};
use crate::place::Place;
use crate::report::{Row, Rows};
use crate::target::{Target, Wire};
use crate::watch::{Shared, Watch, until};
use crate::who::{Who, place, serve};
use crate::{Options, Result};

const WINDOW: Duration = Duration::from_secs(8);
const WARM_UP: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);
/// By how much the 99th percentile may grow.
const GROWTH: f64 = 2.0;

pub(crate) async fn run(options: &Options, who: &Who, sessions: usize) -> Result<Vec<Row>> {
    // On two threads, so that the model is fair.
    let model = Scripted::with_threads(options, 1, 1, options.model_threads.max(2))?;
    let mut rows = Rows::of(format!("fair, {sessions} paced sessions beside one at full speed"));
    let part = if options.bench { 1 } else { 8 };
    let models = [CLOCK, FLOOD];
    let [bare, flooded] = floor::beside(&model, sessions, models, WARM_UP / part, WINDOW / part).await?;
    let target = who.start(options, &model).await?;
    let watch = Watch::shared();
    let ids = target.sessions(&watch, sessions, CLOCK).await?;
    target.prompt_all(&watch, 0, &ids, CLOCK).await?;
    speak(&watch, 0..sessions).await?;
    window(options, &watch).await;
    let alone = watch.borrow().latency.at(0.99);
    flood(&target).await?;
    window(options, &watch).await;
    let beside = watch.borrow().latency.at(0.99);
    rows.goal("errors", "", told(&watch), 0.0);
    rows.add("event latency of the paced, 99 %, alone", "ms", alone);
    rows.add("event latency of the paced, 99 %, beside it", "ms", beside);
    rows.goal("growth of the event latency of the paced, 99 %", "times that alone", beside / alone, GROWTH);
    rows.add(
        "growth of the event latency of the paced, 99 %, bare forwarder",
        "times that alone",
        flooded / bare,
    );
    drop(target);
    if let Who::Engine(Wire::Native) = who {
        // What was seen so far is told all the same.
        match tenants(options, &model, 2 * sessions).await {
            Ok(more) => rows.rows.extend(more),
            Err(error) => {
                println!("tenants: {error}");
                rows.goal("errors, tenants", "", 1.0, 0.0);
            }
        }
    }
    Ok(rows.rows)
}

async fn tenants(options: &Options, model: &Scripted, sessions: usize) -> Result<Vec<Row>> {
    let mut rows = Rows::of(format!("fair, a tenant with {sessions} sessions beside one with 1"));
    let place = Rc::new(place(options, model, "")?);
    let keys = ["large", "small"].map(|tenant| key(&place, tenant));
    let [large, small] = keys;
    let mut large = Target { authorization: Some(large?), ..serve(Wire::Native, place)? };
    let small = Target { authorization: Some(small?), process: large.process.take(), ..view(&large) };
    let watch = Watch::shared();
    let ids = large.sessions(&watch, sessions, CLOCK).await?;
    let one = small.sessions(&watch, 1, CLOCK).await?;
    watch.borrow_mut().others_from = sessions;
    small.prompt_all(&watch, sessions, &one, CLOCK).await?;
    speak(&watch, sessions..sessions + 1).await?;
    window(options, &watch).await;
    let alone = watch.borrow().others.at(0.99);
    large.prompt_all(&watch, 0, &ids, CLOCK).await?;
    speak(&watch, 0..sessions).await?;
    window(options, &watch).await;
    rows.goal("errors", "", told(&watch), 0.0);
    let watch = watch.borrow();
    let (many, one) = (watch.latency.at(0.99), watch.others.at(0.99));
    rows.add("event latency of the one, 99 %, alone", "ms", alone);
    rows.add("event latency of the many, 99 %", "ms", many);
    rows.add("event latency of the one, 99 %", "ms", one);
    rows.goal("event latency of the one beside the many, 99 %", "times that of the many", one / many, GROWTH);
    Ok(rows.rows)
}

/// The same server, seen by somebody else.
fn view(target: &Target) -> Target {
    Target {
        wire: target.wire,
        address: target.address.clone(),
        workspace: target.workspace.clone(),
        process: None,
        id: target.id,
        place: target.place.clone(),
        authorization: None,
    }
}

/// A key of a tenant, as it is sent.
fn key(place: &Place, tenant: &str) -> Result<String> {
    let words = ["keys", "create", "--tenant", tenant, "--name", "bench", "--format", "json"];
    let made = place.program(&words).output()?;
    let made: Value = serde_json::from_slice(&made.stdout)
        .map_err(|error| format!("no key was made ({error}): {}", String::from_utf8_lossy(&made.stderr)))?;
    Ok(format!("Bearer {}", made["key"].as_str().ok_or("a key without its secret")?))
}

/// Begins an answer at full speed, with a client that takes what comes.
pub(super) async fn flood(target: &Target) -> Result<()> {
    let mut connection = target.connect().await?;
    let id = target.session(&mut connection, FLOOD).await?;
    target.unheard(&id).await?;
    target.prompt(&mut connection, &id, FLOOD, "As fast as you can.").await
}

async fn window(options: &Options, watch: &Shared) {
    let part = if options.bench { 1 } else { 8 };
    tokio::time::sleep(WARM_UP / part).await;
    watch.borrow_mut().look();
    tokio::time::sleep(WINDOW / part).await;
}

/// Waits until the sessions with these numbers speak.
async fn speak(watch: &Shared, numbers: Range<usize>) -> Result<()> {
    if until(watch, PATIENCE, |watch| watch.sessions[numbers.clone()].iter().all(|seen| seen.tokens > 0))
        .await
    {
        return Ok(());
    }
    let watch = watch.borrow();
    let silent = watch.sessions[numbers.clone()].iter().filter(|seen| seen.tokens == 0).count();
    let (count, why) = (numbers.len(), watch.failures.first());
    Err(format!("{silent} of {count} sessions said nothing in {PATIENCE:?}; first failure: {why:?}").into())
}

fn told(watch: &Shared) -> f64 {
    let watch = watch.borrow();
    watch.failures.iter().take(3).for_each(|failure| println!("{failure}"));
    watch.failed as f64
}
