//! Sinks are told hour by hour that the ledger is closed, behind the rows of that hour, and once however often they are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use playhouse_exporters::{Exporters, Feed as _, LedgerFeed, SinkConfig, SinkKind, Surroundings};
use playhouse_protocol::Timestamp;
use playhouse_store::Store;
use serde_json::Value;

use crate::lives::sink;

const HOUR: u64 = 3_600_000;

/// The first hour of a day.
const BEGIN: u64 = 20_700 * 24 * HOUR;

fn lines(folder: &std::path::Path) -> Vec<Value> {
    let mut paths: Vec<_> = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let text: String = paths.into_iter().map(|path| fs_err::read_to_string(path).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_hour_that_is_over_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::memory().unwrap();
    let clock = Arc::new(AtomicU64::new(0));
    let surroundings = Surroundings {
        clock: {
            let clock = Arc::clone(&clock);
            Arc::new(move || Timestamp::from_millis(clock.load(Ordering::SeqCst)))
        },
        random: Arc::new(|| 0.3),
    };
    let config = SinkConfig {
        folder: Some(folder.path().to_owned()),
        linger_ms: Some(1),
        ..SinkConfig::new(SinkKind::File)
    };
    let feed = Arc::new(LedgerFeed::new(Arc::clone(&store.ledger)));
    // Each life of an engine begins at another time; two of them go back.
    let mut told = Vec::new();
    for (hours, minutes, is_told) in [
        (0, 30, false),
        (0, 59, false),
        (1, 0, false),
        (1, 1, true),
        (1, 30, false),
        (0, 30, false),
        (48, 1, true),
        (47, 5, false),
        (49, 59, true),
    ] {
        clock.store(BEGIN + hours * HOUR + minutes * 60_000, Ordering::SeqCst);
        let exporters = Exporters::start(
            vec![sink(&config)],
            Arc::clone(&feed) as _,
            Arc::clone(&store.shelf),
            surroundings.clone(),
        );
        if is_told {
            told.push(BEGIN + hours * HOUR);
        }
        // What is told now is in the feed, and delivered by this engine or by the next.
        let grown =
            tokio::time::timeout(Duration::from_secs(20), feed.grown(told.len() as u64 - u64::from(is_told)));
        if is_told {
            grown.await.expect("it is closed");
        } else {
            drop(grown);
        }
        exporters.stop(Duration::from_secs(20)).await;
        assert_eq!(feed.end(), told.len() as u64, "{hours}:{minutes}");
    }
    let exporters =
        Exporters::start(vec![sink(&config)], Arc::clone(&feed) as _, Arc::clone(&store.shelf), surroundings);
    exporters.stop(Duration::from_secs(20)).await;
    let expected: Vec<Value> = told
        .iter()
        .map(|until| serde_json::json!({"type": "ledger.closed", "id": format!("closed_{until}"), "until": until}))
        .collect();
    assert_eq!(lines(folder.path()), expected);
}
