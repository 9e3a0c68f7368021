//! Frames as version 1 writes them. They must stay readable for ever.
//!
//! `PLAYHOUSE_UPDATE_GOLDEN=1 cargo test -p playhouse-store golden` writes the files anew: right for a record kind that
//! was added, wrong for one that exists, whose new form is a new version with a folder of its own.

use std::path::PathBuf;

use fs_err as fs;
use playhouse_protocol::message::BlobRef;
use playhouse_protocol::{Record, Seq, Timestamp};
use playhouse_store::StoreError;
use playhouse_store::frame::{self, Spilled};

use crate::samples::*;

const SPILLED: &str = "spilled.bin";
const PLACE: Seq = Seq(42);

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(name)
}

fn entry(record: Record) -> playhouse_protocol::Entry {
    playhouse_protocol::Entry { seq: PLACE, at: Timestamp::from_millis(1_795_292_879_257), record }
}

/// The golden bytes, which must be `written`.
fn check(name: &str, written: &[u8]) -> Vec<u8> {
    let path = file(name);
    if std::env::var_os("PLAYHOUSE_UPDATE_GOLDEN").is_some() {
        fs::write(&path, written).unwrap();
    }
    let golden = fs::read(&path).unwrap();
    assert!(
        golden == written,
        "{name} would be written in another form than version 1:\n{}\nis now\n{}",
        String::from_utf8_lossy(&golden),
        String::from_utf8_lossy(written)
    );
    golden
}

#[test]
fn golden_frames_are_read_and_written_as_they_were() {
    let never_spills = |_: &[u8]| Err(StoreError::Closed);
    let mut names = Vec::new();
    let records = one_of_each_kind().into_iter().map(|record| (record.kind(), record));
    for (name, record) in records.chain(with_later_fields()) {
        let name = format!("{name}.bin");
        let written = frame::encode(session(1), &entry(record.clone()), never_spills).unwrap();
        let golden = check(&name, &written);
        let read = frame::decode(session(1), PLACE, &golden, |_| Err(StoreError::Closed)).unwrap();
        assert_eq!(read, entry(record), "{name}");
        names.push(name);
    }
    names.sort();
    let mut found: Vec<String> = fs::read_dir(file(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.retain(|name| name != SPILLED);
    found.sort();
    assert_eq!(found, names, "one golden file for each kind of record, and for what was added to it");
}

#[test]
fn a_golden_frame_of_a_large_record_is_read_and_written_as_it_was() {
    let record = proposed(1, &"x".repeat(70_000));
    let json = serde_json::to_vec(&record).unwrap();
    let blob = BlobRef { hash: "cd".repeat(32), size: json.len() as u64 };
    let spilled = Spilled { tenant: TENANT.to_owned(), blob };
    let written = frame::encode(session(1), &entry(record.clone()), |content| {
        assert_eq!(content, json);
        Ok(spilled.clone())
    });
    let golden = check(SPILLED, &written.unwrap());
    let read = frame::decode(session(1), PLACE, &golden, |named| {
        assert_eq!(*named, spilled);
        Ok(json.clone())
    });
    assert_eq!(read.unwrap(), entry(record));
}
