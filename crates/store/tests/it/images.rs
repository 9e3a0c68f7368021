//! Contents of files before and after changes: they may go although records name them, the oldest ones first.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use playhouse_protocol::Record;
use playhouse_protocol::changes::{FileBefore, FileContent, FileImage};
use playhouse_protocol::message::BlobRef;
use playhouse_protocol::record::CallIntended;
use playhouse_store::{Backend, Store};

use crate::changes::intended;
use crate::samples::{append, create, part, session};
use crate::sweeping::open_without_grace;

/// A record that names these images.
fn naming(images: &[&BlobRef]) -> Record {
    let before = images.iter().map(|blob| {
        let content = FileContent::Blob((*blob).clone());
        FileBefore {
            path: blob.hash.clone(),
            image: Some(FileImage { content, mode: 0o100_644 }),
            missing_folders: 0,
        }
    });
    Record::CallIntended(CallIntended { before: before.collect(), ..intended(part(1)) })
}

fn has(store: &Store, blob: &BlobRef) -> bool {
    store.blobs.get_image("acme", blob).unwrap().is_some()
}

/// Where an image lies.
fn file(data: &Path, image: &BlobRef) -> PathBuf {
    data.join("blobs/acme%images").join(&image.hash[..2]).join(&image.hash)
}

fn those_stored_first_go_first(store: &Store, data: &Path) {
    let [first, second, third] = [1, 2, 3].map(|number| {
        let image = store.blobs.put_image("acme", &[number; 100]).unwrap();
        let opened = std::fs::File::options().write(true).open(file(data, &image)).unwrap();
        opened.set_modified(UNIX_EPOCH + Duration::from_secs(number.into())).unwrap();
        image
    });
    // Stored again, it is the newest one.
    store.blobs.put_image("acme", &[1; 100]).unwrap();
    let attached = store.blobs.put("acme", &[2; 100]).unwrap();
    assert_eq!((store.blobs.size("acme").unwrap(), attached.clone()), (100, second.clone()));
    assert_eq!(store.blobs.trim_images("acme", 300).unwrap(), 300);
    assert_eq!(store.blobs.trim_images("acme", 299).unwrap(), 200);
    // What is left of the second one is the attachment.
    assert_eq!([&first, &second, &third].map(|image| file(data, image).exists()), [true, false, true]);
    assert_eq!(store.blobs.trim_images("other", 0).unwrap(), 0);
    assert_eq!(store.blobs.trim_images("acme", 99).unwrap(), 0);
    assert!(!has(store, &first) && !has(store, &third));
    assert_eq!(store.blobs.get("acme", &attached).unwrap(), [2; 100]);
}

#[test]
fn a_bound_is_kept_and_what_was_just_stored_stays() {
    let directory = tempfile::tempdir().unwrap();
    those_stored_first_go_first(&open_without_grace(directory.path(), Backend::Redb), directory.path());
    let young = tempfile::tempdir().unwrap();
    for store in [Store::open(young.path()).unwrap(), Store::memory().unwrap()] {
        let image = store.blobs.put_image("acme", &[1; 100]).unwrap();
        assert_eq!((store.blobs.trim_images("acme", 0).unwrap(), has(&store, &image)), (100, true));
    }
}

#[test]
fn a_sweep_keeps_what_records_name_and_a_check_misses_nothing_that_made_room() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_without_grace(directory.path(), Backend::Redb);
    create(&store, session(1));
    let named = store.blobs.put_image("acme", b"named").unwrap();
    let loose = store.blobs.put_image("acme", b"loose").unwrap();
    // Of an older version: among the other content.
    let old = store.blobs.put("acme", b"old").unwrap();
    append(&store, session(1), 1, vec![naming(&[&named, &old])]).unwrap();
    store.upkeep.reclaim().unwrap();
    assert_eq!([&named, &loose, &old].map(|blob| has(&store, blob)), [true, false, true]);
    let report = store.upkeep.check().unwrap();
    assert_eq!((report.blobs, report.problems.len()), (2, 0));

    assert_eq!(store.blobs.trim_images("acme", 0).unwrap(), 0);
    let report = store.upkeep.check().unwrap();
    assert_eq!((report.blobs, report.problems.len()), (1, 0));

    let again = store.blobs.put_image("acme", b"named").unwrap();
    fs_err::write(file(directory.path(), &again), "NAMED").unwrap();
    let report = store.upkeep.check().unwrap();
    assert_eq!(report.problems.len(), 1, "{report:?}");
}
