//! Files hold each row once, however often the engine is killed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use playhouse_exporters::{Feed as _, SinkConfig, SinkKind};
use playhouse_protocol::LedgerRow;
use playhouse_store::{Shelf, Store};

use crate::ledger::{TestFeed, ledger, rows};
use crate::lives::Engine;
use crate::server::Dice;

fn config(folder: &Path) -> SinkConfig {
    SinkConfig {
        folder: Some(folder.to_owned()),
        rotate_bytes: Some(20_000),
        batch_rows: Some(5),
        linger_ms: Some(1),
        retry_first_ms: Some(2),
        retry_longest_ms: Some(5),
        ..SinkConfig::new(SinkKind::File)
    }
}

/// The rows of all files, by the names of the files; and how many files there are.
fn read(folder: &Path) -> (Vec<LedgerRow>, usize) {
    let mut paths: Vec<_> = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // `usage.ndjson` is the last one: a dot sorts after a hyphen.
    paths.sort();
    let lines = |path| {
        let text = fs_err::read_to_string(path).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "a partial line");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<LedgerRow>>()
    };
    let count = paths.len();
    (paths.into_iter().flat_map(lines).collect(), count)
}

#[test]
fn files_hold_each_row_once_and_in_order() {
    for seed in [21, 22, 23] {
        let folder = tempfile::tempdir().unwrap();
        let items = ledger(seed, 600);
        let shelf: Arc<dyn Shelf> = Store::memory().unwrap().shelf;
        let feed = TestFeed::new(Vec::new());
        let mut dice = Dice::new(seed);
        for portion in items.chunks(items.len().div_ceil(15)) {
            let engine = Engine::start(&config(folder.path()), &feed, &shelf);
            feed.grow(portion.to_vec());
            std::thread::sleep(Duration::from_millis(dice.roll(25)));
            drop(engine);
            // What a crash of the machine would leave of a write.
            if dice.roll(2) == 0 {
                let active = folder.path().join("usage.ndjson");
                if let Ok(mut text) = fs_err::read(&active) {
                    text.extend_from_slice(b"{\"id\":\"row_half");
                    fs_err::write(&active, text).unwrap();
                }
            }
        }
        Engine::start(&config(folder.path()), &feed, &shelf).finish(&feed);
        let (found, files) = read(folder.path());
        assert_eq!(found, rows(&items), "seed {seed}");
        assert!(files > 3, "only {files} files");
    }
}

#[test]
fn a_file_that_was_moved_away_is_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let items = ledger(31, 40);
    let shelf: Arc<dyn Shelf> = Store::memory().unwrap().shelf;
    let (begin, rest) = items.split_at(20);
    let feed = TestFeed::new(begin.to_vec());
    let mut config = config(folder.path());
    config.rotate_bytes = None;
    Engine::start(&config, &feed, &shelf).finish(&feed);
    let active = folder.path().join("usage.ndjson");
    let moved = folder.path().join("a-month.ndjson");
    fs_err::rename(&active, &moved).unwrap();
    feed.grow(rest.to_vec());
    Engine::start(&config, &feed, &shelf).finish(&feed);
    assert_eq!(read(folder.path()).0, rows(&items));
    assert!(moved.exists() && active.exists());
}

#[test]
fn files_of_others_stop_the_sink_and_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let active = folder.path().join("usage.ndjson");
    fs_err::write(&active, "theirs\n").unwrap();
    let shelf: Arc<dyn Shelf> = Store::memory().unwrap().shelf;
    let feed = TestFeed::new(ledger(32, 10));
    let engine = Engine::start(&config(folder.path()), &feed, &shelf);
    let status = engine.wait("the trouble", |status| status.trouble.is_some());
    let trouble = status.trouble.unwrap();
    assert!(trouble.misconfigured && trouble.reason.contains("move it away"), "{}", trouble.reason);
    assert_eq!(fs_err::read_to_string(&active).unwrap(), "theirs\n");
    fs_err::remove_file(&active).unwrap();
    engine.finish(&feed);
    assert_eq!(feed.end(), status.rows_behind, "nothing was skipped");
    assert_eq!(read(folder.path()).0.len(), 10);
}
