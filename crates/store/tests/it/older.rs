//! A store as engines left it whose frames hold one entry each.

use fs_err as fs;
use playhouse_protocol::{Entry, Record, Seq, SessionId};
use playhouse_store::{Append, Backend, StoreError, frame};

use crate::raw;
use crate::samples::*;

/// A frame of version 1.
fn single(session: SessionId, entry: &Entry) -> Vec<u8> {
    let json = serde_json::to_vec(&entry.record).unwrap();
    let mut frame = vec![0xb7, 1, 0];
    frame.extend(entry.record.version().to_be_bytes());
    frame.extend(entry.at.as_millis().to_be_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(session.as_str().as_bytes());
    sum.update(&entry.seq.0.to_be_bytes());
    sum.update(&frame);
    sum.update(&json);
    frame.extend(sum.finalize().to_be_bytes());
    frame.extend(json);
    frame
}

#[test]
fn a_store_with_frames_of_one_entry_is_read_and_goes_on() {
    for backend in Backend::ALL {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), Some(backend));
        create(&store, session(1));
        append_each(
            &store,
            session(1),
            1,
            vec![admitted(1), started(1, 1), used(1, 700), proposed(1, "a.rs")],
        );
        let log = read_all(&store, session(1));
        drop(store);
        raw::tamper(directory.path(), backend, |pairs| {
            let mut count = 0;
            for (key, value) in pairs.iter_mut().filter(|(key, _)| key.starts_with(b"l/")) {
                let last = Seq(u64::from_be_bytes(*key.last_chunk().unwrap()));
                let entries = frame::decode(session(1), last, value, |_| Err(StoreError::Closed)).unwrap();
                let [entry] = &entries[..] else { panic!("one was appended at a time") };
                *value = single(session(1), entry);
                count += 1;
            }
            assert_eq!(count, log.len());
        });
        let format = directory.path().join("format.json");
        let of_today = fs::read_to_string(&format).unwrap();
        fs::write(&format, of_today.replace("\"version\":5", "\"version\":3")).unwrap();

        let store = open(directory.path(), Some(backend));
        assert_eq!(fs::read_to_string(&format).unwrap(), of_today, "older engines refuse it from now on");
        assert_eq!(read_all(&store, session(1)), log);
        assert_eq!(store.log.summary(session(1)).unwrap(), fold(&log));
        assert_eq!(store.upkeep.check().unwrap().problems, Vec::new());
        // Frames of both versions in one log, and a fork that shares some of each.
        append(&store, session(1), 5, vec![titled("six"), titled("seven")]).unwrap();
        let fork = Record::Forked(forked(session(2), session(1), 6));
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let append = Append {
            session: session(2),
            tenant: TENANT.into(),
            expected: Seq(6),
            entries: entries(6, vec![fork]),
        };
        store.log.fork(append, Box::new(move |end| sender.send(end).unwrap()));
        assert_eq!(receiver.recv().unwrap().unwrap(), Seq(7));
        assert_eq!(read_all(&store, session(1)).len(), 7);
        assert_eq!(read_all(&store, session(2))[..5], log[..]);
        delete(&store, session(1)).unwrap();
        assert_eq!(read_all(&store, session(2)).len(), 7);
        assert_eq!(store.upkeep.check().unwrap().problems, Vec::new());
    }
}
