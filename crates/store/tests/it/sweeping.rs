//! Blobs go when no record names them, and never before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime};

use fs_err as fs;
use playhouse_protocol::message::{Attachment, BlobRef, Part};
use playhouse_protocol::record::ArtifactCaptured;
use playhouse_protocol::{Record, Seq};
use playhouse_store::{Backend, Reclaim, Store, StoreError, StoreOptions};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::raw;
use crate::samples::*;

/// A store that lets go of blobs at once, and sweeps only when it is asked.
pub(crate) fn open_without_grace(data: &Path, backend: Backend) -> Store {
    let reclaim = Reclaim { least: u64::MAX, quiet: Duration::from_secs(3_600), grace: Duration::ZERO };
    Store::open_with(data, &StoreOptions { backend, reclaim }).unwrap()
}

fn files(folder: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeSet::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false => BTreeSet::from([path.file_name().unwrap().to_str().unwrap().to_owned()]),
        })
        .collect()
}

/// A prompt with this file.
fn with_file(turn: u64, blob: BlobRef) -> Record {
    let mut record = admitted(turn);
    if let Record::PromptAdmitted(admitted) = &mut record {
        let file = Attachment::new("text/plain", "a", blob);
        admitted.parts.push(Part::File { id: part(turn), file });
    }
    record
}

/// The same in a record that is too long for the log: only what lies in a blob says that it names another one.
fn with_file_and_long_text(turn: u64, blob: BlobRef) -> Record {
    let mut record = with_file(turn, blob);
    if let Record::PromptAdmitted(admitted) = &mut record {
        admitted.parts.push(Part::text(part(turn + 1), "long ".repeat(20_000) + &turn.to_string()));
    }
    record
}

#[derive(Clone, Debug)]
enum Act {
    /// A blob with this content that no record names.
    Put {
        tenant: usize,
        content: u8,
    },
    Create {
        session: u64,
        tenant: usize,
    },
    Attach {
        session: u64,
        content: u8,
        long: bool,
    },
    Fork {
        from: u64,
        to: u64,
    },
    Delete {
        session: u64,
    },
    Sweep,
    Reopen,
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0_usize..2, 0_u8..6).prop_map(|(tenant, content)| Act::Put { tenant, content }),
        2 => (1_u64..5, 0_usize..2).prop_map(|(session, tenant)| Act::Create { session, tenant }),
        6 => (1_u64..9, 0_u8..6, any::<bool>())
            .prop_map(|(session, content, long)| Act::Attach { session, content, long }),
        2 => (1_u64..9, 5_u64..9).prop_map(|(from, to)| Act::Fork { from, to }),
        3 => (1_u64..9).prop_map(|session| Act::Delete { session }),
        2 => Just(Act::Sweep),
        1 => Just(Act::Reopen),
    ]
}

const TENANTS: [&str; 2] = ["acme", "Ümläut/.."];

fn content(number: u8) -> Vec<u8> {
    format!("content {number}").into_bytes()
}

/// A log as the model has it: its tenant, and the records.
type Log = (usize, Vec<Record>);

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_left_is_what_is_named(acts in vec(acts(), 1..40), redb in any::<bool>()) {
        let backend = if redb { Backend::Redb } else { Backend::Sled };
        let directory = tempfile::tempdir().unwrap();
        let mut store = open_without_grace(directory.path(), backend);
        let mut logs: BTreeMap<u64, Log> = BTreeMap::new();
        // The ids of sessions whose records forks still need cannot be taken again.
        let mut spent = BTreeSet::new();
        let acts: Vec<Act> = acts.into_iter().chain([Act::Sweep]).collect();
        for (step, act) in (0_u64..).zip(acts) {
            match act {
                Act::Put { tenant, content: number } => {
                    store.blobs.put(TENANTS[tenant], &content(number)).unwrap();
                }
                Act::Create { session: number, tenant } => {
                    if logs.contains_key(&number) || spent.contains(&number) {
                        continue;
                    }
                    let record = created(session(number), TENANTS[tenant], "/w");
                    append_entries(&store, session(number), TENANTS[tenant], Seq::START, entries(0, vec![record.clone()])).unwrap();
                    logs.insert(number, (tenant, vec![record]));
                }
                Act::Attach { session: number, content: of, long } => {
                    let Some((tenant, records)) = logs.get_mut(&number) else { continue };
                    let blob = store.blobs.put(TENANTS[*tenant], &content(of)).unwrap();
                    let record = if long { with_file_and_long_text(step, blob) } else { with_file(step, blob) };
                    let end = records.len() as u64;
                    let new = entries(end, vec![record.clone()]);
                    append_entries(&store, session(number), TENANTS[*tenant], Seq(end), new).unwrap();
                    records.push(record);
                }
                Act::Fork { from, to } => {
                    if logs.contains_key(&to) || spent.contains(&to) {
                        continue;
                    }
                    let Some((tenant, records)) = logs.get(&from).cloned() else { continue };
                    let at = records.len() as u64;
                    let mut fork = forked(session(to), session(from), at);
                    fork.tenant = TENANTS[tenant].to_owned();
                    let record = Record::Forked(fork);
                    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
                    let append = playhouse_store::Append {
                        session: session(to),
                        tenant: TENANTS[tenant].into(),
                        expected: Seq(at),
                        entries: entries(at, vec![record.clone()]),
                    };
                    store.log.fork(append, Box::new(move |end| sender.send(end).unwrap()));
                    receiver.recv().unwrap().unwrap();
                    logs.insert(to, (tenant, records.into_iter().chain([record]).collect()));
                }
                Act::Delete { session: number } => {
                    if logs.remove(&number).is_some() {
                        delete(&store, session(number)).unwrap();
                        spent.insert(number);
                    }
                }
                Act::Reopen => {
                    drop(store);
                    store = open_without_grace(directory.path(), backend);
                }
                Act::Sweep => {
                    store.upkeep.reclaim().unwrap();
                    for (tenant, name) in TENANTS.iter().enumerate() {
                        let expected = named(&store, &logs, tenant);
                        let found: BTreeSet<String> = folders(directory.path())
                            .into_iter()
                            .filter(|folder| folder.starts_with("acme") == (*name == "acme"))
                            .flat_map(|folder| files(&directory.path().join("blobs").join(folder)))
                            .collect();
                        prop_assert_eq!(found, expected);
                    }
                    let report = store.upkeep.check().unwrap();
                    prop_assert_eq!(report.problems, Vec::new());
                }
            }
        }
    }
}

fn folders(data: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(data.join("blobs")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The blobs that records of a tenant name, and those that hold records.
fn named(store: &Store, logs: &BTreeMap<u64, Log>, tenant: usize) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for (_, records) in logs.values().filter(|(of, _)| *of == tenant) {
        for record in records {
            if let Record::PromptAdmitted(admitted) = record {
                named.extend(admitted.parts.iter().filter_map(|part| match part {
                    Part::File { file, .. } => Some(file.blob.hash.clone()),
                    _ => None,
                }));
            }
            let json = serde_json::to_vec(record).unwrap();
            if json.len() > playhouse_store::frame::SPILL_BYTES {
                // Stored already: this only says under which name.
                named.insert(store.blobs.put(TENANTS[tenant], &json).unwrap().hash);
            }
        }
    }
    named
}

#[test]
fn what_is_about_to_be_named_stays_for_the_grace_also_in_the_next_process() {
    for backend in Backend::ALL {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let reclaim = Reclaim { grace: Duration::from_secs(3_600), ..Reclaim::default() };
        let open = || Store::open_with(data, &StoreOptions { backend, reclaim }).unwrap();
        let store = open();
        let [old, young] = [b"old", &b"you"[..]].map(|content| store.blobs.put(TENANT, content).unwrap());
        let path = |blob: &BlobRef| data.join("blobs").join(TENANT).join(&blob.hash[..2]).join(&blob.hash);
        let age = |blob: &BlobRef, age: Duration| {
            let file = fs::File::open(path(blob)).unwrap();
            file.file().set_modified(SystemTime::now() - age).unwrap();
        };
        // Whatever the clock says, this process knows that it was put just now.
        age(&old, Duration::from_secs(7_200));
        assert_eq!(store.upkeep.reclaim().unwrap().blobs, 0);
        drop(store);
        let store = open();
        assert_eq!(store.upkeep.reclaim().unwrap().blobs, 1);
        assert!(!path(&old).exists() && path(&young).exists());
        // What is put again is young again, also for the process after this one.
        age(&young, Duration::from_secs(7_200));
        store.blobs.put(TENANT, b"you").unwrap();
        drop(store);
        let store = open();
        assert_eq!(store.upkeep.reclaim().unwrap().blobs, 0);
        assert_eq!(store.blobs.get(TENANT, &young).unwrap(), b"you");
    }
}

#[test]
fn the_value_of_an_artifact_is_kept_and_its_own_hash_names_no_blob() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_without_grace(directory.path(), Backend::Sled);
    create(&store, session(1));
    let [value, other] = [b"value", &b"other"[..]].map(|content| store.blobs.put(TENANT, content).unwrap());
    let captured = Record::ArtifactCaptured(ArtifactCaptured {
        call: part(1),
        name: "save_note".to_owned(),
        value: None,
        blob: Some(value.clone()),
        hash: format!("sha256:{}", other.hash),
    });
    append(&store, session(1), 1, vec![captured]).unwrap();
    assert_eq!(store.upkeep.reclaim().unwrap().blobs, 1);
    assert_eq!(store.blobs.get(TENANT, &value).unwrap(), b"value");
    assert!(store.blobs.get(TENANT, &other).is_err());
}

#[test]
fn what_damaged_records_name_is_kept() {
    for backend in Backend::ALL {
        let directory = tempfile::tempdir().unwrap();
        let store = open_without_grace(directory.path(), backend);
        create(&store, session(1));
        let blob = store.blobs.put(TENANT, b"named by a damaged record").unwrap();
        append(&store, session(1), 1, vec![with_file(1, blob.clone())]).unwrap();
        drop(store);
        raw::tamper(directory.path(), backend, |pairs| {
            for (_, frame) in pairs.iter_mut().filter(|(key, _)| key.starts_with(b"l/")) {
                // In the checksum: none can be read.
                frame[14] ^= 1;
            }
        });
        let store = open_without_grace(directory.path(), backend);
        assert!(!store.upkeep.check().unwrap().problems.is_empty());
        assert_eq!(store.upkeep.reclaim().unwrap().blobs, 0);
        assert!(store.blobs.get(TENANT, &blob).is_ok());
        delete(&store, session(1)).unwrap();
        assert_eq!(store.upkeep.reclaim().unwrap().blobs, 1);
        assert!(matches!(store.blobs.get(TENANT, &blob), Err(StoreError::Blob { .. })));
    }
}

#[test]
fn a_tenant_with_a_record_that_cannot_be_read_keeps_its_blobs_and_others_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_without_grace(directory.path(), Backend::Redb);
    create(&store, session(1));
    let inner = store.blobs.put(TENANT, b"inner").unwrap();
    append(&store, session(1), 1, vec![with_file_and_long_text(1, inner.clone())]).unwrap();
    let other = store.blobs.put("other", b"inner").unwrap();
    let folder = directory.path().join("blobs").join(TENANT);
    let spilled = files(&folder).into_iter().find(|name| *name != inner.hash).unwrap();
    let place = folder.join(&spilled[..2]).join(&spilled);
    let content = fs::read(&place).unwrap();
    fs::remove_file(&place).unwrap();
    assert_eq!(store.upkeep.reclaim().unwrap().blobs, 1, "only that of the other tenant");
    assert!(store.blobs.get("other", &other).is_err());
    // Whoever puts it back finds all as it was.
    fs::write(&place, content).unwrap();
    assert_eq!(store.upkeep.reclaim().unwrap().blobs, 0);
    assert!(store.upkeep.check().unwrap().problems.is_empty());
}

#[test]
fn blobs_in_memory_are_swept_too() {
    let store = Store::memory().unwrap();
    create(&store, session(1));
    let blob = store.blobs.put(TENANT, b"in hand").unwrap();
    append(&store, session(1), 1, vec![with_file(1, blob.clone())]).unwrap();
    delete(&store, session(1)).unwrap();
    let reclaimed = store.upkeep.reclaim().unwrap();
    assert_eq!((reclaimed.before, reclaimed.blobs), (0, 0), "it was put just now");
    assert!(store.blobs.get(TENANT, &blob).is_ok());
}

#[test]
fn blobs_whose_grace_is_not_over_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    create(&store, session(1));
    store.blobs.put(TENANT, b"nothing names this").unwrap();
    store.blobs.put("other", b"nor this").unwrap();
    let reclaimed = store.upkeep.reclaim().unwrap();
    assert_eq!((reclaimed.blobs, reclaimed.waiting_blobs), (0, 2), "{reclaimed:?}");
}
