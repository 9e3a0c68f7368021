//! Blobs as files.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use fs_err as fs;
use playhouse_protocol::message::BlobRef;
use playhouse_store::{Store, StoreError, SuspensionReason};

use crate::samples::{append, create, letters, proposed, read_all, session};

fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn the_same_content_is_one_file_and_nothing_unfinished_stays() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let blob = store.blobs.put("acme", b"hello").unwrap();
    store.blobs.put("acme", b"hello").unwrap();
    let path = directory.path().join("blobs/acme").join(&blob.hash[..2]).join(&blob.hash);
    assert_eq!(files(&directory.path().join("blobs")), [path]);
}

#[test]
fn a_damaged_blob_is_refused_and_put_right_by_the_next_put() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let blob = store.blobs.put("acme", b"hello").unwrap();
    let path = files(&directory.path().join("blobs")).remove(0);
    fs::write(&path, b"hellO").unwrap();
    let error = store.blobs.get("acme", &blob).unwrap_err().to_string();
    assert!(error.contains(&blob.hash) && error.contains("should have 5 bytes"), "{error}");
    store.blobs.put("acme", b"hello").unwrap();
    assert_eq!(store.blobs.get("acme", &blob).unwrap(), b"hello");
}

#[test]
fn no_tenant_and_no_hash_reaches_outside() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let store = Store::open(&data).unwrap();
    let before = fs::read_dir(directory.path()).unwrap().count();
    for tenant in ["..", "../../..", "/", "a/../../b", "", ".", "\0", "a\\b"] {
        let blob = store.blobs.put(tenant, tenant.as_bytes()).unwrap();
        assert_eq!(store.blobs.get(tenant, &blob).unwrap(), tenant.as_bytes());
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), before);
    assert_eq!(fs::read_dir(data.join("blobs")).unwrap().count(), 8);
    for hash in
        ["", "ab", "../../format.json", &"A".repeat(64), &format!("/{}", "a".repeat(63)), &"é".repeat(32)]
    {
        let error = store.blobs.get("acme", &BlobRef { hash: hash.to_owned(), size: 1 }).unwrap_err();
        assert!(matches!(error, StoreError::Blob { .. }), "{error}");
        assert!(error.to_string().contains("not a SHA-256 hash"), "{error}");
    }
}

/// As where `blobs` lies on a file system of its own, which fails otherwise than by being full.
#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_large_record_that_the_disk_does_not_take_suspends_the_store_until_it_does() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let number = session(1);
    create(&store, number);
    let blobs = directory.path().join("blobs");
    fs::write(&blobs, b"no folder").unwrap();
    let large = || vec![proposed(1, &letters(400_000, 1))];
    let failed = Some(SuspensionReason::Failed);
    assert_eq!(append(&store, number, 1, large()).unwrap_err().suspension(), failed);
    // Small ones are not taken either: the next large one would only fail again.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2_500) {
        assert_eq!(append(&store, number, 1, vec![proposed(1, "small")]).unwrap_err().suspension(), failed);
        thread::sleep(Duration::from_millis(50));
    }
    fs::remove_file(&blobs).unwrap();
    let begun = Instant::now();
    while let Some(suspended) = store.log.health() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not go on: {suspended:?}");
        thread::sleep(Duration::from_millis(20));
    }
    append(&store, number, 1, large()).unwrap();
    assert_eq!(read_all(&store, number)[1].record, large()[0]);
}
