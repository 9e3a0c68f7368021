//! How long it takes to bring a long session back: from its log into memory, and from a prompt to the next request, for
//! which the whole conversation is serialized anew.

use std::time::{Duration, Instant};

use playhouse::store::StoreError;
use playhouse::{House, HouseError};

use crate::house::{Place, run};
use crate::model::{Server, WALK};
use crate::report::Measurement;
use crate::{Effort, Result};

/// Messages of a long session and of a short one: prompt, answers and results; and the longest time in which each may wake,
/// in milliseconds.
const LENGTHS: [(usize, f64); 2] = [(2_000, 20.0), (20, 2.0)];
/// How long the data directory of an engine that was shut down may be in use, and how long a session may take to fall asleep.
const PATIENCE: Duration = Duration::from_secs(5);
/// Sessions leave memory as soon as they have nothing to do.
const SLEEPY: &str = "[sessions]\nidle_after_ms = 1";

pub(crate) fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    for (messages, target) in LENGTHS {
        measurements.extend(measure_one(effort, messages, target)?);
    }
    Ok(measurements)
}

fn measure_one(effort: Effort, messages: usize, target: f64) -> Result<Vec<Measurement>> {
    let steps = effort.of(messages / 2);
    let place = Place::new()?;
    let server = Server::start(place.path(), steps)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (opened, woken, turns, slept) = runtime.block_on(async {
        let house = place.start(&server, "anthropic").await?;
        let session = place.session(&house, WALK).await?;
        let id = session.id();
        run(&session).await?;
        drop(session);
        house.shutdown().await;
        let (mut opened, mut woken, mut turns, mut slept) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..effort.of(10) {
            let (house, time) = start(&place, &server).await?;
            opened.push(time);
            let begun = Instant::now();
            let session = house.engine().session(id).await?;
            woken.push(milliseconds(begun));
            drop(session);
            for _ in 0..effort.of(10) {
                sleep(&house).await?;
                let begun = Instant::now();
                house.engine().session(id).await?;
                slept.push(milliseconds(begun));
            }
            house.shutdown().await;
        }
        // Last, since turns make it longer.
        for _ in 0..effort.of(10) {
            let (house, _) = start(&place, &server).await?;
            let session = house.engine().session(id).await?;
            let begun = Instant::now();
            run(&session).await?;
            turns.push(milliseconds(begun));
            drop(session);
            house.shutdown().await;
        }
        Ok::<_, crate::Failure>((opened, woken, turns, slept))
    })?;
    server.stop()?;
    let messages = 2 * steps;
    Ok(vec![
        Measurement::new(
            format!("start of an engine on its data directory, {messages} messages"),
            "ms",
            opened,
        ),
        Measurement::new(format!("wake of a session after that, {messages} messages"), "ms", woken)
            .under(target),
        Measurement::new(format!("wake of a session that slept, {messages} messages"), "ms", slept)
            .under(target),
        Measurement::new(format!("first turn after a wake, {messages} messages"), "ms", turns),
    ])
}

fn milliseconds(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e3
}

/// Waits until no session is in memory.
async fn sleep(house: &House) -> Result<()> {
    let begun = Instant::now();
    while house.engine().in_memory() > 0 {
        if begun.elapsed() > PATIENCE {
            return Err("the session does not fall asleep".into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Starts an engine, and says how many milliseconds that took. The one before it lets go of the data directory a moment
/// after its shutdown; that wait does not count.
async fn start(place: &Place, server: &Server) -> Result<(House, f64)> {
    let first = Instant::now();
    loop {
        let begun = Instant::now();
        match place.start_with(server, "anthropic", SLEEPY).await {
            Ok(house) => return Ok((house, begun.elapsed().as_secs_f64() * 1e3)),
            Err(error) if first.elapsed() < PATIENCE && is_in_use(&*error) => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_in_use(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(HouseError::Store(StoreError::Locked { .. })))
}
