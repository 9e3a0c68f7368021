//! Opening, closing, refusing, and dying in the middle.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fs_err as fs;
use playhouse_protocol::Seq;
use playhouse_store::{Backend, Store, StoreError, StoreOptions, SuspensionReason};

use crate::samples::*;

/// Names and contents of all files below `folder`.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            let content = fs::read(&path).unwrap();
            found.insert(path, content);
        }
    }
    found
}

#[test]
fn a_store_is_found_again_with_the_next_generation() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("deep/below");
    for generation in 1..=3 {
        let store = Store::open(&data).unwrap();
        assert_eq!(store.generation, generation);
        if generation == 1 {
            create(&store, session(1));
        }
        assert_eq!(append(&store, session(1), generation, vec![titled("a")]).unwrap(), Seq(generation + 1));
    }
    assert_eq!(fs::read_to_string(data.join("format.json")).unwrap().trim(), FORMAT_NOW);
}

const FORMAT_NOW: &str = r#"{"format":"playhouse-store","version":5,"backend":"sled"}"#;
const FORMAT_1: &str = r#"{"format":"playhouse-store","version":1,"backend":"sled"}"#;

#[test]
fn a_directory_that_is_replaced_is_left_alone_and_nothing_is_acknowledged() {
    for backend in [Backend::Sled, Backend::Redb] {
        let directory = tempfile::tempdir().unwrap();
        let (data, moved) = (directory.path().join("data"), directory.path().join("moved"));
        let store = open(&data, Some(backend));
        create(&store, session(1));
        store.log.check_place().unwrap();
        fs::rename(&data, &moved).unwrap();
        assert!(matches!(store.log.check_place(), Err(StoreError::Replaced { path }) if path == data));
        // What lies there now belongs to somebody else.
        let other = open(&data, Some(backend));
        create(&other, session(2));
        let error = append(&store, session(1), 1, vec![titled("lost")]).unwrap_err();
        assert_eq!(error.suspension(), Some(SuspensionReason::Replaced), "{error}");
        assert_eq!(store.log.health().map(|suspended| suspended.reason), Some(SuspensionReason::Replaced));
        let error = store.blobs.put(TENANT, b"content").unwrap_err();
        assert!(matches!(error, StoreError::Replaced { .. }), "{error}");
        drop(store);
        assert_eq!(append(&other, session(2), 1, vec![titled("kept")]).unwrap(), Seq(2));
        drop(other);
        let other = open(&data, Some(backend));
        assert_eq!((other.generation, read_all(&other, session(2)).len()), (2, 2));
        drop(other);
        // What was acknowledged is where it was moved to.
        let store = open(&moved, Some(backend));
        assert!(!read_all(&store, session(1)).is_empty());
    }
}

#[test]
fn a_directory_that_comes_back_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (data, moved) = (directory.path().join("data"), directory.path().join("moved"));
    let store = Store::open(&data).unwrap();
    create(&store, session(1));
    fs::rename(&data, &moved).unwrap();
    append(&store, session(1), 1, vec![titled("refused")]).unwrap_err();
    fs::rename(&moved, &data).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while store.log.health().is_some() {
        assert!(std::time::Instant::now() < end, "it goes on");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let at = read_all(&store, session(1)).len() as u64;
    append(&store, session(1), at, vec![titled("taken")]).unwrap();
}

#[test]
fn a_store_is_held_until_its_last_part_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let parts: [Box<dyn std::any::Any>; 4] = [
        Box::new(store.clone()),
        Box::new(store.log.clone()),
        Box::new(store.shelf.clone()),
        Box::new(store.blobs.clone()),
    ];
    drop(store);
    for part in parts {
        let error = Store::open(directory.path()).unwrap_err();
        let StoreError::Locked { path, holder } = &error else { panic!("{error}") };
        assert_eq!(path, directory.path());
        assert!(holder.contains(&format!("process {} (", std::process::id())), "{holder}");
        let program = std::env::args().next().unwrap();
        assert!(holder.contains(&program[..program.len().min(150)]), "{holder}");
        drop(part);
    }
    Store::open(directory.path()).unwrap();
}

#[test]
fn what_is_not_a_store_of_ours_is_refused_and_left_alone() {
    let newer = r#"{"format":"playhouse-store","version":6,"backend":"granite","more":[]}"#;
    for (name, content, found) in [
        ("notes.txt", "mine", "holds something else (notes.txt, for one) and no format.json"),
        ("lock", "a lock of another program", "holds something else (lock, for one)"),
        ("sled/db", "", "holds something else (sled, for one)"),
        (
            "format.json",
            newer,
            "holds playhouse-store version 6; this engine reads playhouse-store versions 1 to 5 (sled, redb)",
        ),
        ("format.json", r#"{"format":"cookbook","version":1}"#, "holds the foreign format \"cookbook\""),
        ("format.json", r#"{"version":1}"#, "holds the foreign format null"),
        ("format.json", &FORMAT_1.replace("sled", "granite"), "with the backend \"granite\""),
        ("format.json", r#"{"format":"#, "has a format.json that is not JSON"),
        ("format.json", "", "has a format.json that is not JSON"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let before = contents(directory.path());
        let error = Store::open(directory.path()).unwrap_err();
        assert!(matches!(error, StoreError::Format { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(found) && text.contains("Nothing was changed"), "expected {found:?} in {text}");
        assert_eq!(contents(directory.path()), before);
    }
}

#[test]
fn a_database_that_nothing_names_is_neither_used_nor_removed() {
    for backend in Backend::ALL {
        let directory = tempfile::tempdir().unwrap();
        let options = StoreOptions { backend, ..StoreOptions::default() };
        let store = Store::open_with(directory.path(), &options).unwrap();
        create(&store, session(1));
        store.upkeep.reclaim().unwrap();
        drop(store);
        let pointer = directory.path().join("current");
        let named = fs::read(&pointer).unwrap();
        fs::remove_file(&pointer).unwrap();
        let error = Store::open(directory.path()).unwrap_err();
        assert!(matches!(error, StoreError::Format { .. }), "{error}");
        let text = error.to_string();
        let moved = format!("{backend}-1");
        assert!(text.contains(&format!("the database {moved}, and no file \"current\"")), "{text}");
        assert!(!directory.path().join(backend.name()).exists());
        fs::write(&pointer, named).unwrap();
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(read_all(&store, session(1)).len(), 1);
    }
}

#[test]
fn a_store_of_before_is_of_this_version_once_it_was_opened() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("format.json"), FORMAT_1).unwrap();
    drop(Store::open(directory.path()).unwrap());
    assert_eq!(fs::read_to_string(directory.path().join("format.json")).unwrap().trim(), FORMAT_NOW);
}

#[test]
fn a_file_in_place_of_the_directory_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = Store::open(file.path()).unwrap_err().to_string();
    assert!(error.contains("is not a directory"), "{error}");
    let error = Store::open(&file.path().join("below")).unwrap_err().to_string();
    assert!(error.contains("below"), "{error}");
}

#[test]
fn a_creation_that_was_cut_off_is_begun_again() {
    let lock = r#"{"playhouse_lock":1,"pid":1,"command":"playhouse"}"#;
    let leftovers: [&[(&str, &str)]; 5] = [
        &[],
        &[("lock", "")],
        &[("lock", lock), ("format.json.new", r#"{"form"#)],
        &[("lock", lock), ("format.json", FORMAT_1)],
        &[("format.json", FORMAT_1), ("blobs/acme/00/.new-abc", "half")],
    ];
    for leftover in leftovers {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in leftover {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(store.generation, 1);
        create(&store, session(1));
        assert!(!directory.path().join("format.json.new").exists());
    }
}

const CHILD: &str = "PLAYHOUSE_STORE_TEST_DATA";

/// Not a test by itself: the process that [`what_was_acknowledged_survives_a_kill`] starts and kills. It appends
/// without end, and names each append after it was acknowledged.
#[test]
fn process_that_appends() {
    let Some(data) = std::env::var_os(CHILD) else { return };
    let store = Store::open(Path::new(&data)).unwrap();
    create(&store, session(1));
    let mut stdout = std::io::stdout();
    for place in 1.. {
        append(&store, session(1), place, vec![titled(&place.to_string())]).unwrap();
        writeln!(stdout, "acknowledged {}", place + 1).unwrap();
    }
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["opening::process_that_appends", "--exact", "--nocapture"])
        .env(CHILD, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((_, place)) = line.split_once("acknowledged ") else { continue };
        let Ok(place) = place.parse::<u64>() else { continue };
        acknowledged = place;
        if place == 300 {
            // While it lives, it is named as the holder.
            let error = Store::open(directory.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("process {}", child.id())), "{error}");
            assert!(error.contains("process_that_appends"), "{error}");
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(acknowledged >= 300, "{acknowledged}");
    let store = Store::open(directory.path()).unwrap();
    let entries = read_all(&store, session(1));
    assert!(entries.len() as u64 >= acknowledged, "{} of {acknowledged}", entries.len());
    assert_eq!(store.log.summary(session(1)).unwrap(), fold(&entries));
    assert_eq!(store.generation, 2);
}
