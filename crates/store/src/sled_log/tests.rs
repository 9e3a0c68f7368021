//! A log is well as sled leaves it, however it was cut off; and damage before its end is found, not cut off.

use std::io::{Seek, SeekFrom, Write};

use super::*;

/// Small, so that a log has many.
const SEGMENT: usize = 64 * 1024;

fn open(directory: &Path) -> sled::Db {
    sled::Config::new().path(directory).segment_size(SEGMENT).flush_every_ms(None).open().unwrap()
}

/// A batch as the store writes it, durable.
fn write(database: &sled::Db, number: u32, size: usize) {
    let mut batch = sled::Batch::default();
    for part in 0..3_u8 {
        batch.insert([&number.to_be_bytes()[..], &[part]].concat(), vec![number as u8; size]);
    }
    database.apply_batch(batch).unwrap();
    database.flush().unwrap();
}

/// The whole of a log, as a killed process leaves it: without what sled does when it is closed.
fn killed(batches: u32, size: usize) -> (tempfile::TempDir, Vec<u8>) {
    let live = tempfile::tempdir().unwrap();
    let database = open(live.path());
    (0..batches).for_each(|number| write(&database, number, size));
    let copy = tempfile::tempdir().unwrap();
    for file in ["db", "conf"] {
        fs::copy(live.path().join(file), copy.path().join(file)).unwrap();
    }
    let content = fs::read(copy.path().join(FILE)).unwrap();
    (copy, content)
}

fn put(directory: &Path, offset: u64, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().write(true).open(directory.join(FILE)).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(bytes).unwrap();
}

fn found(directory: &Path) -> Option<u64> {
    damage(directory, SEGMENT).unwrap().map(|(_, place)| place)
}

/// How many whole batches there are.
fn batches(directory: &Path) -> usize {
    open(directory).len() / 3
}

/// The end of the last message.
fn end(content: &[u8]) -> usize {
    content.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

#[test]
fn a_log_that_is_well_is_well() {
    for (count, size) in [(0, 1), (1, 10), (40, 10), (400, 300)] {
        let (directory, _) = killed(count, size);
        assert_eq!(found(directory.path()), None, "{count} batches");
        assert_eq!(batches(directory.path()), count as usize);
        // Once more, with what sled has written when it was closed.
        assert_eq!(found(directory.path()), None, "{count} batches");
        let database = open(directory.path());
        (0..count).for_each(|number| write(&database, number, size / 2));
        drop(database);
        assert_eq!(found(directory.path()), None, "{count} batches");
    }
    assert_eq!(found(tempfile::tempdir().unwrap().path()), None, "no log at all");
}

#[test]
fn a_log_that_was_cut_off_is_well() {
    let (directory, content) = killed(40, 100);
    let end = end(&content);
    for cut in (end - 2_000..end).step_by(37) {
        put(directory.path(), 0, &content[..cut]);
        put(directory.path(), cut as u64, &vec![0; content.len() - cut]);
        assert_eq!(found(directory.path()), None, "cut at {cut} of {end}");
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_byte_that_was_changed_is_found_and_nothing_is_cut_off() {
    let count = 40;
    let (directory, content) = killed(count, 100);
    let (mut told, end) = (0, end(&content));
    for place in (0..end).step_by(41) {
        put(directory.path(), 0, &content);
        put(directory.path(), place as u64, &[content[place] ^ 4]);
        if let Some(at) = found(directory.path()) {
            assert!(at <= place as u64, "byte {place} is said to be {at}");
            let error = check(directory.path(), SEGMENT).unwrap_err();
            assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains(&format!("byte {at} is not what was written")), "{error}");
            told += 1;
            continue;
        }
        // Only what looks as if it had been cut off: the last batch.
        let left = batches(directory.path());
        assert!(left + 1 >= count as usize, "byte {place} of {end} lost all but {left} batches");
    }
    assert!(told > end / 41 * 9 / 10, "{told} of {}", end / 41);
}

#[test]
fn a_damaged_segment_is_found_among_many() {
    let (directory, content) = killed(400, 300);
    assert!(content.len() > 4 * SEGMENT, "{}", content.len());
    let (mut told, mut kept) = (0, 0);
    for place in (0..content.len()).step_by(SEGMENT / 8 + 5) {
        put(directory.path(), 0, &content);
        for file in fs::read_dir(directory.path()).unwrap() {
            let path = file.unwrap().path();
            if path.to_string_lossy().contains("snap.") {
                fs::remove_file(path).unwrap();
            }
        }
        put(directory.path(), place as u64, &[content[place] ^ 4]);
        match found(directory.path()) {
            Some(at) => {
                assert!(at <= place as u64);
                told += 1;
            }
            None => kept += 1,
        }
    }
    assert!(told > 0, "{told} were found, {kept} are of no matter or told by sled");
}

/// Where the messages with which batches begin are, in order.
fn manifests(content: &[u8], segment: u64) -> Vec<usize> {
    let mut found = Vec::new();
    while let Some(place) = first_batch(content, found.last().map_or(HEADER, |last| last + 1), segment) {
        found.push(place);
    }
    found
}

/// What sled's threads had not written when the process was killed, before a batch that one of them had.
#[test]
fn a_hole_before_the_last_batch_is_what_a_kill_leaves() {
    let (directory, content) = killed(12, 300);
    assert!(content.len() <= SEGMENT, "all is in one segment");
    let number = read_segment(&fs::File::open(directory.path().join(FILE)).unwrap(), 0, SEGMENT as u64);
    let batches = manifests(&content, number.unwrap().unwrap().number);
    let [.., third, second, last] = batches[..] else { panic!("there are {}", batches.len()) };
    let hole = |from: usize, to: usize, filled: &dyn Fn(usize) -> u8| {
        put(directory.path(), 0, &content);
        put(directory.path(), from as u64, &(from..to).map(filled).collect::<Vec<u8>>());
        found(directory.path())
    };
    // The end of a message, and all of several; nothing, and what stood there before.
    let stale = |at: usize| content[at / 2 + 1];
    for from in [second, second + 24, second + 100, (second + last) / 2] {
        assert_eq!(hole(from, last, &|_| 0), None, "from {from} to {last}");
        assert_eq!(hole(from, last, &stale), None, "from {from} to {last}");
    }
    // Before that batch another one was flushed: what is missing there was durable.
    for from in [third, third + 24, third + 100] {
        assert!(
            hole(from, second, &|_| 0).is_some_and(|place| place <= from as u64),
            "from {from} to {second}"
        );
    }
}

#[test]
fn what_is_empty_is_passed_over_and_nothing_else() {
    let mut content = vec![0_u8; 3 * CHUNK + 7];
    for place in [0, 3, 4, 5, CHUNK - 1, CHUNK, CHUNK + 4, 2 * CHUNK + 90, 3 * CHUNK + 6] {
        content[place] = 1;
        for from in 0..content.len() + 2 {
            let one_by_one = (from..content.len())
                .find(|at| content.get(at + KIND_AT).is_some_and(|kind| *kind != NOTHING));
            assert_eq!(
                next_kind(&content, from),
                one_by_one.unwrap_or(content.len()),
                "from {from}, up to {place}"
            );
        }
    }
}
