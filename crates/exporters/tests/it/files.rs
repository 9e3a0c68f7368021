//! Files hold each row once, however often the engine is killed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use playhouse_exporters::{Feed as _, SinkConfig, SinkKind, exported_up_to};
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
                // An empty one was not written to.
                if let Some(mut text) = fs_err::read(&active).ok().filter(|text| !text.is_empty()) {
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

/// What somebody does to the file `active` of `folder`, and may leave it in `away`.
type Taking = fn(folder: &Path, active: &Path, away: &Path);

#[test]
fn a_file_that_is_taken_from_a_sink_at_work_loses_no_row() {
    let ways: [(&str, Taking); 5] = [
        ("moved", |_, active, away| fs_err::rename(active, away.join("1.ndjson")).unwrap()),
        ("moved, and an empty one made", |_, active, away| {
            fs_err::rename(active, away.join("1.ndjson")).unwrap();
            fs_err::write(active, "").unwrap();
        }),
        ("removed", |_, active, _| fs_err::remove_file(active).unwrap()),
        ("moved with its folder", |folder, _, away| fs_err::rename(folder, away.join("moved")).unwrap()),
        ("removed with its folder", |folder, _, _| fs_err::remove_dir_all(folder).unwrap()),
    ];
    for (way, take) in ways {
        let place = tempfile::tempdir().unwrap();
        let (folder, away) = (place.path().join("usage"), place.path().join("away"));
        fs_err::create_dir(&away).unwrap();
        let items = ledger(33, 40);
        let (begin, rest) = items.split_at(20);
        let feed = TestFeed::new(begin.to_vec());
        let shelf: Arc<dyn Shelf> = Store::memory().unwrap().shelf;
        let mut config = config(&folder);
        config.rotate_bytes = None;
        let engine = Engine::start(&config, &feed, &shelf);
        engine.wait("what was there", |_| exported_up_to(&shelf, "money").unwrap() == 20);
        let active = folder.join("usage.ndjson");
        let first = fs_err::read_to_string(&active).unwrap();
        take(&folder, &active, &away);
        feed.grow(rest.to_vec());
        assert_eq!(engine.finish(&feed).trouble, None, "{way}");
        assert_eq!(read(&folder).0, rows(rest), "{way}");
        for kept in ["1.ndjson", "moved/usage.ndjson"].map(|name| away.join(name)) {
            if kept.exists() {
                assert_eq!(fs_err::read_to_string(&kept).unwrap(), first, "{way}");
            }
        }
    }
}

#[test]
fn files_that_are_taken_at_any_moment_hold_every_row() {
    let place = tempfile::tempdir().unwrap();
    let (folder, away) = (place.path().join("usage"), place.path().join("away"));
    fs_err::create_dir(&away).unwrap();
    let items = ledger(34, 600);
    let shelf: Arc<dyn Shelf> = Store::memory().unwrap().shelf;
    let feed = TestFeed::new(Vec::new());
    let engine = Engine::start(&SinkConfig { batch_rows: Some(2), ..config(&folder) }, &feed, &shelf);
    let (mut dice, mut taken) = (Dice::new(34), 0);
    for portion in items.chunks(5) {
        feed.grow(portion.to_vec());
        std::thread::sleep(Duration::from_micros(dice.roll(4_000)));
        if fs_err::rename(folder.join("usage.ndjson"), away.join(format!("{taken}.ndjson"))).is_ok() {
            taken += 1;
        }
    }
    engine.finish(&feed);
    assert!(taken > 10, "only {taken} were taken");
    let ids = |rows: Vec<LedgerRow>| rows.into_iter().map(|row| row.id.0).collect::<BTreeSet<String>>();
    let mut found = ids(read(&folder).0);
    found.extend(ids(read(&away).0));
    assert_eq!(found, ids(rows(&items)));
}

#[test]
fn what_others_put_in_the_place_of_a_file_is_left_alone_and_told() {
    let place = tempfile::tempdir().unwrap();
    let (folder, aside) = (place.path().join("usage"), place.path().join("aside"));
    let items = ledger(35, 40);
    let (begin, rest) = items.split_at(20);
    let feed = TestFeed::new(begin.to_vec());
    let shelf: Arc<dyn Shelf> = Store::memory().unwrap().shelf;
    let engine = Engine::start(&config(&folder), &feed, &shelf);
    engine.wait("what was there", |_| exported_up_to(&shelf, "money").unwrap() == 20);
    let active = folder.join("usage.ndjson");
    // As long as what was written, so that its length says nothing.
    let theirs = "x".repeat(30_000);
    fs_err::rename(&active, &aside).unwrap();
    fs_err::write(&active, &theirs).unwrap();
    feed.grow(rest.to_vec());
    let told = |fragment: &str| {
        let status = engine.wait(fragment, |status| {
            status.trouble.as_ref().is_some_and(|trouble| trouble.reason.contains(fragment))
        });
        assert!(status.trouble.unwrap().misconfigured, "{fragment}");
        assert_eq!((status.settled, status.rows_behind), (20, feed.end() - 20), "{fragment}");
        assert!(status.oldest.is_some(), "{fragment}");
    };
    told("holds what this sink has not written");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(fs_err::read_to_string(&active).unwrap(), theirs);
    // The sink makes its folder anew whenever it looks.
    while fs_err::write(&folder, "no folder").is_err() {
        let _ = fs_err::remove_dir_all(&folder);
    }
    told("is not a folder");
    assert_eq!(fs_err::read_to_string(&folder).unwrap(), "no folder");
    fs_err::remove_file(&folder).unwrap();
    engine.finish(&feed);
    assert_eq!(read(&folder).0, rows(rest));
}

#[test]
fn a_file_that_was_cut_by_others_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let items = ledger(36, 40);
    let (begin, rest) = items.split_at(20);
    let feed = TestFeed::new(begin.to_vec());
    let shelf: Arc<dyn Shelf> = Store::memory().unwrap().shelf;
    let engine = Engine::start(&config(folder.path()), &feed, &shelf);
    engine.wait("what was there", |_| exported_up_to(&shelf, "money").unwrap() == 20);
    let active = folder.path().join("usage.ndjson");
    fs_err::write(&active, "").unwrap();
    feed.grow(rest.to_vec());
    let status = engine.wait("the trouble", |status| status.trouble.is_some());
    assert!(status.trouble.unwrap().reason.contains("has 0 bytes, and"));
    fs_err::remove_file(&active).unwrap();
    engine.finish(&feed);
    assert_eq!(read(folder.path()).0, rows(rest));
}
