//! Frames as each version writes them. All must stay readable for ever.
//!
//! `PLAYHOUSE_UPDATE_GOLDEN=1 cargo test -p playhouse-store golden` writes the files of the newest version anew: right for a
//! record kind that was added, wrong for one that exists, whose new form is a new version with a folder of its own. Nothing
//! writes the frames of version 1 any more.

use std::path::PathBuf;

use fs_err as fs;
use playhouse_protocol::message::BlobRef;
use playhouse_protocol::{Entry, Record, Seq, Timestamp};
use playhouse_store::StoreError;
use playhouse_store::frame::{self, Spilled};

use crate::attached::with_mentions_and_blocks;
use crate::changes::with_before_images;
use crate::handed::with_work_handed_over;
use crate::samples::*;

const SPILLED: &str = "spilled";
/// A frame with one of each kind.
const ALL: &str = "all";
const PLACE: Seq = Seq(42);

fn folder(version: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version)
}

fn entry(record: Record) -> Entry {
    Entry { seq: PLACE, at: Timestamp::from_millis(1_795_292_879_257), record }
}

fn spilled(record: &Record) -> (Vec<u8>, Spilled) {
    let json = serde_json::to_vec(record).unwrap();
    let blob = BlobRef { hash: "cd".repeat(32), size: json.len() as u64 };
    (json, Spilled { tenant: TENANT.to_owned(), blob })
}

/// What each file holds, by its name, with the blob that it names.
fn contents() -> Vec<(String, Vec<Entry>)> {
    let records = one_of_each_kind().into_iter().map(|record| (record.kind(), record));
    let mut contents: Vec<(String, Vec<Entry>)> = records
        .chain(with_later_fields())
        .chain(with_work_handed_over())
        .chain(with_mentions_and_blocks())
        .chain(with_before_images())
        .map(|(name, record)| (name.to_owned(), vec![entry(record)]))
        .collect();
    contents.push((SPILLED.to_owned(), vec![entry(large())]));
    // What names a blob is not packed; a frame of all others is.
    let all = one_of_each_kind().into_iter().filter(|record| !names_a_blob(record)).collect();
    contents.push((ALL.to_owned(), entries(PLACE.0, all)));
    contents
}

fn names_a_blob(record: &Record) -> bool {
    serde_json::to_string(record).unwrap().contains("\"hash\"")
}

fn large() -> Record {
    proposed(1, &"x".repeat(70_000))
}

fn read(name: &str, last: Seq, golden: &[u8]) -> Vec<Entry> {
    let fetch = |named: &Spilled| {
        let (json, spilled) = spilled(&large());
        assert_eq!((name, named), (SPILLED, &spilled));
        Ok(json)
    };
    frame::decode(session(1), last, golden, fetch).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn golden_frames_are_read_and_written_as_they_were() {
    let is_new = std::env::var_os("PLAYHOUSE_UPDATE_GOLDEN").is_some();
    let mut names = Vec::new();
    for (name, entries) in contents() {
        let spill = |json: &[u8]| {
            let (expected, spilled) = spilled(&large());
            assert_eq!(json, expected);
            Ok(spilled)
        };
        let written = frame::encode(session(1), &entries, spill).unwrap();
        let [(last, written)] = &written[..] else { panic!("{name}: one frame") };
        let file = format!("{name}.bin");
        let path = folder("v2").join(&file);
        if is_new {
            fs::write(&path, written).unwrap();
        }
        let golden = fs::read(&path).unwrap();
        assert!(
            golden == *written,
            "{name} would be written in another form than version 2:\n{}\nis now\n{}",
            golden.escape_ascii(),
            written.escape_ascii()
        );
        assert_eq!(read(&name, *last, &golden), entries, "{name}");
        names.push(file);
    }
    names.sort();
    let mut found: Vec<String> = fs::read_dir(folder("v2"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, names, "one golden file for each kind of record, and for what was added to it");
}

#[test]
fn golden_frames_of_version_1_are_read() {
    let contents = contents();
    let mut count = 0;
    for file in fs::read_dir(folder("v1")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let (_, entries) = contents.iter().find(|(known, _)| known == name).expect("it is a known record");
        assert_eq!(read(name, PLACE, &fs::read(&path).unwrap()), *entries, "{name}");
        count += 1;
    }
    assert_eq!(count, 36, "none was added and none removed");
}

#[test]
fn a_frame_that_never_spills_asks_for_no_blob() {
    let refuse = |_: &[u8]| Err(StoreError::Closed);
    let frames =
        frame::encode(session(1), &[entry(Record::TurnStarted { turn: message(3) })], refuse).unwrap();
    let (last, frame) = &frames[0];
    assert_eq!(frame::decode(session(1), *last, frame, |_| Err(StoreError::Closed)).unwrap().len(), 1);
}
