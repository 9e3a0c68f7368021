//! A page of the list of sessions.

use std::time::Instant;

use crate::http::Connection;
use crate::report::Measurement;
use crate::served::Place;
use crate::start::{SESSIONS, fill};
use crate::{Effort, Result};

/// Sessions of another tenant beside those that are listed.
const OTHERS: usize = 100_000;
/// The target, in milliseconds.
const TARGET: f64 = 5.0;

pub(crate) async fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let place = Place::new("")?;
    let sessions = effort.of(SESSIONS);
    fill(&place, &[("local", sessions)])?;
    let served = place.serve()?;
    let mut connection = served.connect().await?;
    let folder = place.workspace();
    fs_err::create_dir_all(folder.join("project-7"))?;
    let folder = folder.join("project-7");
    let mut measurements = Vec::new();
    for (name, query) in [
        ("a page of 50", "?limit=50".to_owned()),
        ("the page after it", String::new()),
        ("one workspace's", format!("?limit=50&workspace={}", folder.display())),
        ("by a title that few have", "?limit=50&title=number%20777".to_owned()),
        ("by a title that none has", "?limit=50&title=nothing".to_owned()),
    ] {
        let query = match query.is_empty() {
            true => after_the_first(&mut connection).await?,
            false => query,
        };
        let times = times(&mut connection, &query, effort.of(200)).await?;
        measurements.push(
            Measurement::new(format!("`/v1/sessions` of {sessions}: {name}"), "ms", times).under(TARGET),
        );
    }
    drop(served);
    let others = effort.of(OTHERS);
    let place = Place::new("")?;
    fill(&place, &[("other", others), ("local", 20)])?;
    let served = place.serve()?;
    let mut connection = served.connect().await?;
    let times = times(&mut connection, "?limit=50", effort.of(200)).await?;
    let name = format!("`/v1/sessions` of 20 among {others} of others");
    measurements.push(Measurement::new(name, "ms", times).under(TARGET));
    Ok(measurements)
}

async fn after_the_first(connection: &mut Connection) -> Result<String> {
    let page = connection.json("GET", "/v1/sessions?limit=50", None).await?;
    // A short run has one page only.
    Ok(match page["cursor"].as_str() {
        Some(cursor) => format!("?limit=50&cursor={cursor}"),
        None => "?limit=50".to_owned(),
    })
}

/// Milliseconds of so many requests.
async fn times(connection: &mut Connection, query: &str, count: usize) -> Result<Vec<f64>> {
    let path = format!("/v1/sessions{query}");
    let mut times = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        let (status, answer) = connection.ask("GET", &path, None).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        if status != 200 {
            return Err(format!("{path} was answered {status}: {}", String::from_utf8_lossy(&answer)).into());
        }
    }
    Ok(times)
}
