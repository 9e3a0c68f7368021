//! How long it takes to bring a long session back: from its log into memory, and from a prompt to the next request, for
//! which the whole conversation is serialized anew.

use std::time::{Duration, Instant};

use playhouse::store::StoreError;
use playhouse::{House, HouseError};

use crate::house::{Place, run};
use crate::model::{Server, WALK};
use crate::report::Measurement;
use crate::{Effort, Result};

/// Messages of the session: prompt, answers and results.
const MESSAGES: usize = 2_000;
/// How long the data directory of an engine that was shut down may be in use.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let steps = effort.of(MESSAGES / 2);
    let place = Place::new()?;
    let server = Server::start(place.path(), steps)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (opened, woken, turns) = runtime.block_on(async {
        let house = place.start(&server, "anthropic").await?;
        let session = place.session(&house, WALK).await?;
        let id = session.id();
        run(&session).await?;
        drop(session);
        house.shutdown().await;
        let (mut opened, mut woken, mut turns) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..effort.of(10) {
            let (house, time) = start(&place, &server).await?;
            opened.push(time);
            let begun = Instant::now();
            let session = house.engine().session(id).await?;
            woken.push(begun.elapsed().as_secs_f64() * 1e3);
            let begun = Instant::now();
            run(&session).await?;
            turns.push(begun.elapsed().as_secs_f64() * 1e3);
            drop(session);
            house.shutdown().await;
        }
        Ok::<_, crate::Failure>((opened, woken, turns))
    })?;
    server.stop()?;
    Ok(vec![
        Measurement::new("start of an engine on its data directory", "ms", opened),
        Measurement::new(format!("wake of a session, {} messages", 2 * steps), "ms", woken),
        Measurement::new(format!("first turn after it, {} messages", 2 * steps), "ms", turns),
    ])
}

/// Starts an engine, and says how many milliseconds that took. The one before it lets go of the data directory a moment
/// after its shutdown; that wait does not count.
async fn start(place: &Place, server: &Server) -> Result<(House, f64)> {
    let first = Instant::now();
    loop {
        let begun = Instant::now();
        match place.start(server, "anthropic").await {
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
