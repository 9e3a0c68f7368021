//! Sessions that only exist: in memory, asleep, and in the store.

use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::json;

use super::old_session;
use crate::fill::copies;
use crate::model::Scripted;
use crate::report::{Row, Rows};
use crate::target::{Target, Wire};
use crate::who::{place, serve};
use crate::{Options, Result};

/// Stored sessions for each that is in memory.
const STORED: usize = 10;
/// How long the server is left alone before it is looked at.
const SETTLE: Duration = Duration::from_millis(1_500);
/// After what time a session leaves memory, where that is wanted.
const SLEEPY: &str = "[sessions]\nidle_after_ms = 1000\n";
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections on which sessions are woken.
const LANES: usize = 32;

pub(crate) async fn run(options: &Options, live: usize) -> Result<Vec<Row>> {
    let model = Scripted::start(options, 1, 1)?;
    let mut rows = Rows::of(format!("idle, {live} live and {} stored sessions", live * STORED));
    let place = Rc::new(place(options, &model, "")?);
    let old = old_session(&place, 5).await?;
    let bare = {
        let target = serve(Wire::Native, Rc::clone(&place))?;
        target.session(&mut target.connect().await?, crate::model::SHORT).await?
    };
    let ids = copies(&place, &old, live)?;
    copies(&place, &bare, live * (STORED - 1))?;

    let target = serve(Wire::Native, Rc::clone(&place))?;
    tokio::time::sleep(SETTLE).await;
    let stored = target.resident()?;
    rows.add("memory, none of them live", "MB", stored);
    wake(&target, &ids).await?;
    tokio::time::sleep(SETTLE).await;
    let woken = target.resident()?;
    let awake = count(&target, "idle").await?;
    rows.add("sessions in memory", "", awake);
    rows.goal("memory of a live idle session with 10 messages", "KB", (woken - stored) * 1e3 / awake, 40.0);
    rows.goal("memory, all of them", "MB", woken, 500.0);
    drop(target);

    // Once more, and they fall asleep. The first ones show what stays of having woken any.
    let text = fs_err::read_to_string(place.path().join("config.toml"))?;
    fs_err::write(place.path().join("config.toml"), format!("{text}{SLEEPY}"))?;
    let target = serve(Wire::Native, place)?;
    let mut sizes = Vec::new();
    let half = ids.len() / 2;
    for ids in [&ids[..half], &ids[half..]] {
        wake(&target, ids).await?;
        let begun = Instant::now();
        while count(&target, "idle").await? > 0.0 {
            if begun.elapsed() > PATIENCE {
                return Err("sessions do not leave memory".into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(SETTLE).await;
        sizes.push(target.resident()?);
    }
    rows.goal("memory of a session that left", "KB", (sizes[1] - sizes[0]) * 1e3 / half as f64, 1.0);
    rows.add("memory, all of them asleep", "MB", sizes[1]);
    Ok(rows.rows)
}

/// Has every session in memory, by a change of its title.
async fn wake(target: &Target, ids: &[String]) -> Result<()> {
    let lanes = (0..LANES.min(ids.len())).map(|lane| async move {
        let mut connection = target.connect().await?;
        for id in ids.iter().skip(lane).step_by(LANES) {
            let change = json!({"title": "Waits"});
            connection.json("PATCH", &format!("/v1/sessions/{id}"), Some(&change)).await?;
        }
        Ok::<_, crate::Failure>(())
    });
    try_join_all(lanes).await?;
    Ok(())
}

/// How many sessions are in this state, as the engine says.
async fn count(target: &Target, state: &str) -> Result<f64> {
    let (_, text) = target.connect().await?.ask("GET", "/metrics", None).await?;
    let text = String::from_utf8(text)?;
    let name = format!("playhouse_sessions{{state=\"{state}\"}} ");
    let count = text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok());
    count.ok_or_else(|| format!("the engine does not tell how many sessions are {state}").into())
}
