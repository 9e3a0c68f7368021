//! Files of a store that are shorter than they were laid out: a copy that broke off, a disk that lost the end of a file.

use std::path::Path;

use fs_err as fs;
use playhouse_store::{Backend, Store, StoreError};

use crate::flips::{copy_folder, text};
use crate::raw;
use crate::samples::*;

const SESSIONS: u64 = 8;

/// A store as a killed process leaves it, with so many bytes of each session in its journal.
fn killed(backend: Backend, bytes: usize) -> tempfile::TempDir {
    let (live, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(live.path(), Some(backend));
    for number in 1..=SESSIONS {
        create(&store, session(number));
        append(&store, session(number), 1, vec![admitted(1), titled(&text(number, bytes))]).unwrap();
    }
    copy_folder(live.path(), copy.path());
    fs::remove_file(copy.path().join("lock")).unwrap();
    copy
}

fn cut(file: &Path, length: u64) {
    fs::OpenOptions::new().write(true).open(file).unwrap().set_len(length).unwrap();
}

/// Whether all is there, for a store that opens.
fn is_whole(data: &Path) -> bool {
    let store = Store::open(data).unwrap();
    (1..=SESSIONS).all(|number| read_all(&store, session(number)).len() == 3)
}

#[test]
fn a_journal_that_was_cut_is_refused_and_named_by_a_check_and_a_whole_one_is_neither() {
    for backend in Backend::ALL {
        let whole = killed(backend, 30_000);
        for (file, percent) in
            [("journal-0", 30), ("journal-0", 90), ("journal-0", 0), ("journal-1", 30), ("journal-1", 0)]
        {
            let copy = tempfile::tempdir().unwrap();
            copy_folder(whole.path(), copy.path());
            let path = raw::place(copy.path(), backend).join(file);
            let length = fs::metadata(&path).unwrap().len() * percent / 100;
            cut(&path, length);
            let case = format!("{backend} {file} {percent} %");
            let error = Store::open(copy.path()).unwrap_err();
            assert!(matches!(error, StoreError::Damaged { .. }), "{case}: {error}");
            for part in [file, &format!("it is {length} bytes long"), "store check", "store salvage"] {
                assert!(error.to_string().contains(part), "{case}: {error}");
            }
            let report = Store::check_closed(copy.path()).unwrap();
            let problem = &report.problems[0];
            assert!(problem.what.contains(&format!("it is {length} bytes long")), "{case}: {problem:?}");
            assert!(Store::open(copy.path()).is_err(), "{case}: nothing was changed");
        }
        assert!(Store::check_closed(whole.path()).unwrap().problems.is_empty());
        assert!(is_whole(whole.path()), "{backend}");
    }
}

/// One that ended in order needs its journal no more.
#[test]
fn a_journal_of_a_store_that_was_closed_holds_nothing() {
    for backend in Backend::ALL {
        let directory = killed(backend, 30_000);
        drop(Store::open(directory.path()).unwrap());
        cut(&raw::place(directory.path(), backend).join("journal-0"), 1_000);
        assert!(is_whole(directory.path()), "{backend}");
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_database_that_was_cut_is_refused_or_whole() {
    let mut refused = 0;
    for backend in Backend::ALL {
        let is_closed = [false, true];
        for (is_closed, percent) in
            is_closed.into_iter().flat_map(|closed| (0..10).map(move |part| (closed, part * 10)))
        {
            let directory = killed(backend, 90_000);
            if is_closed {
                drop(Store::open(directory.path()).unwrap());
            }
            let path = raw::place(directory.path(), backend).join("db");
            let length = fs::metadata(&path).unwrap().len();
            cut(&path, length * percent / 100);
            let case = format!("{backend}, {percent} % of {length} bytes, closed: {is_closed}");
            match Store::open(directory.path()) {
                Ok(store) => {
                    drop(store);
                    assert!(is_whole(directory.path()), "{case}");
                }
                Err(error) => {
                    refused += 1;
                    assert!(matches!(error, StoreError::Damaged { .. }), "{case}: {error}");
                    let report = Store::check_closed(directory.path()).unwrap();
                    assert!(!report.problems.is_empty(), "{case}");
                }
            }
        }
    }
    assert!(refused > 10, "{refused}");
}
