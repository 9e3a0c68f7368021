//! A store that nobody has open is looked through without being changed.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fs_err as fs;
use playhouse_store::{Backend, Store, StoreError};

use crate::damage::frame_key;
use crate::flips::{copy_folder, text};
use crate::raw;
use crate::samples::*;

/// A closed store with two sessions, the same large record in both, and a row of the ledger.
fn closed_store(backend: Backend) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Some(backend));
    for number in 1..=2 {
        create(&store, session(number));
        let records = vec![admitted(1), started(1, 1), used(1, 100), proposed(1, &text(7, 100_000))];
        append_each(&store, session(number), 1, records);
    }
    directory
}

/// Every file below a folder, with when it was changed.
fn files(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let changed = fs::metadata(&path).unwrap().modified().unwrap();
            found.insert(path.clone(), (fs::read(&path).unwrap(), changed));
        }
    }
    found
}

/// Makes all below a folder unwritable, or writable again.
fn protect(folder: &Path, write: bool) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            protect(&path, write);
        } else {
            let mode = if write { 0o644 } else { 0o444 };
            fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    }
    let mode = if write { 0o755 } else { 0o555 };
    fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_copy_that_can_only_be_read_is_looked_through_and_stays_as_it_is() {
    for backend in Backend::ALL {
        let directory = closed_store(backend);
        protect(directory.path(), false);
        let before = files(directory.path());
        let report = Store::check_closed(directory.path()).unwrap();
        assert_eq!(report.problems, []);
        // One blob holds the record of both.
        assert_eq!((report.sessions, report.records, report.rows), (2, 10, 2), "{report:?}");
        assert_eq!(report.blobs, 1 + u64::from(blob_files(&directory.path().join("blobs")).len() == 2));
        assert!(files(directory.path()) == before, "something was changed");
        protect(directory.path(), true);
    }
}

fn blob_files(folder: &Path) -> Vec<PathBuf> {
    files(folder).into_keys().collect()
}

#[test]
fn a_store_after_a_compaction_is_looked_through_where_it_is() {
    let directory = closed_store(Backend::Sled);
    let store = Store::open(directory.path()).unwrap();
    delete(&store, session(2)).unwrap();
    store.upkeep.reclaim().unwrap();
    drop(store);
    let report = Store::check_closed(directory.path()).unwrap();
    assert_eq!((report.problems.len(), report.sessions), (0, 1), "{report:?}");
}

#[test]
fn damage_is_found_in_a_closed_store_too() {
    for backend in Backend::ALL {
        let directory = closed_store(backend);
        raw::tamper(directory.path(), backend, |pairs| {
            let frame = pairs.get_mut(&frame_key(1, 3)).expect("the frame is there");
            let last = frame.len() - 1;
            frame[last] ^= 1;
        });
        let report = Store::check_closed(directory.path()).unwrap();
        assert_eq!(report.problems.len(), 1, "{report:?}");
        assert_eq!(report.problems[0].place, format!("session {}, record 3", session(1)));
    }
}

#[test]
fn a_store_that_is_open_or_none_is_not_looked_through() {
    let directory = closed_store(Backend::Sled);
    let store = Store::open(directory.path()).unwrap();
    let error = Store::check_closed(directory.path()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    // A copy of it may be: as a snapshot of the file system has it.
    let copy = tempfile::tempdir().unwrap();
    copy_folder(directory.path(), copy.path());
    assert_eq!(Store::check_closed(copy.path()).unwrap().sessions, 2);
    drop(store);
    Store::check_closed(directory.path()).unwrap();
    let nothing = tempfile::tempdir().unwrap();
    let error = Store::check_closed(nothing.path()).unwrap_err();
    assert!(matches!(error, StoreError::Format { .. }), "{error}");
    assert_eq!(fs::read_dir(nothing.path()).unwrap().count(), 0);
}
