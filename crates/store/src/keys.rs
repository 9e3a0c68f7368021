//! Where things stand in the table.
//!
//! | key | value |
//! |---|---|
//! | `l/` session, sequence | a frame of the session's log, under the place of its last entry |
//! | `f/` fork | its link to the log that it shares records of (`lineage`) |
//! | `d/` session, sequence, fork | nothing: the forks that need the session's records up to there |
//! | `g/` session | nothing: it was deleted, and forks need records of it |
//! | `s/` session | its summary |
//! | `c/` inverted time of creation, session | nothing: the list, newest first |
//! | `u/` session | nothing: the sessions with work (`index`) |
//! | `t/` hash of a tenant, … | its sessions, their number, and those with work (`index`) |
//! | `m/index` | the version of `t/`, and the generation that kept it |
//! | `m/removed` | how many bytes of frames and rows were removed since the last compaction |
//! | `m/reopened` | how often the table was opened again in place after a write failed |
//! | `m/journal` | what a backend knows of the journal before it (`journaled`), and nobody else |
//! | `k/` key | a value of the shelf |
//! | `x/`, `i/`, `j/`, `a/`, `b/`, `m/ledger` | rows of what was used, and their sums (`ledger`) |
//!
//! Numbers are big-endian, so that the order of keys is the order of numbers. Session ids have a fixed length.

use playhouse_protocol::id::ID_LENGTH;
use playhouse_protocol::{Seq, SessionId, SessionSummary, Timestamp};

use crate::Cursor;

const NUMBER: usize = size_of::<u64>();
pub(crate) const LOGS: &[u8] = b"l/";
pub(crate) const CREATED: &[u8] = b"c/";
pub(crate) const UNFINISHED: &[u8] = b"u/";
pub(crate) const BY_TENANT: &[u8] = b"t/";
pub(crate) const INDEX_MARK: &[u8] = b"m/index";
pub(crate) const REMOVED: &[u8] = b"m/removed";
pub(crate) const REOPENED: &[u8] = b"m/reopened";
pub(crate) const JOURNAL: &[u8] = b"m/journal";

fn with_session(kind: &[u8], session: SessionId) -> Vec<u8> {
    [kind, session.as_str().as_bytes()].concat()
}

/// All frames of a session's log begin with this.
pub(crate) fn log(session: SessionId) -> Vec<u8> {
    with_session(LOGS, session)
}

/// The frame whose last entry is this one.
pub(crate) fn frame(session: SessionId, seq: Seq) -> Vec<u8> {
    let mut key = log(session);
    key.extend(seq.0.to_be_bytes());
    key
}

/// The place that a frame's key names: that of its last entry.
pub(crate) fn seq_of_frame(key: &[u8]) -> Option<Seq> {
    let number = key.get(2 + ID_LENGTH..)?;
    Some(Seq(u64::from_be_bytes(number.try_into().ok()?)))
}

/// The session that a frame's key names.
pub(crate) fn session_of_frame(key: &[u8]) -> Option<SessionId> {
    session_at_start(key, LOGS.len())
}

/// The link of a fork.
pub(crate) fn link(fork: SessionId) -> Vec<u8> {
    with_session(b"f/", fork)
}

/// The keys of the forks that need records of a log begin with this; the one that needs most comes last.
pub(crate) fn dependents(log: SessionId) -> Vec<u8> {
    with_session(b"d/", log)
}

/// The mark of a fork that needs the records of a log up to `at`.
pub(crate) fn dependent(log: SessionId, at: Seq, fork: SessionId) -> Vec<u8> {
    [&dependents(log)[..], &at.0.to_be_bytes(), fork.as_str().as_bytes()].concat()
}

/// The place that the key of a dependent names.
pub(crate) fn seq_of_dependent(key: &[u8]) -> Option<Seq> {
    let number = key.get(2 + ID_LENGTH..)?.first_chunk()?;
    Some(Seq(u64::from_be_bytes(*number)))
}

/// The mark of a log that was deleted and kept for its forks.
pub(crate) fn rest(session: SessionId) -> Vec<u8> {
    with_session(b"g/", session)
}

/// A summary.
pub(crate) fn summary(session: SessionId) -> Vec<u8> {
    with_session(b"s/", session)
}

/// The mark of a session with work.
pub(crate) fn unfinished(session: SessionId) -> Vec<u8> {
    with_session(UNFINISHED, session)
}

/// A session's place in the list.
pub(crate) fn created(cursor: &Cursor) -> Vec<u8> {
    [CREATED, &place(cursor)].concat()
}

/// The end of a session's key in every list: newest first.
pub(crate) fn place(cursor: &Cursor) -> Vec<u8> {
    let inverted = !cursor.created.as_millis();
    [&inverted.to_be_bytes()[..], cursor.session.as_str().as_bytes()].concat()
}

/// The place in the list of the session with this summary.
pub(crate) fn cursor(summary: &SessionSummary) -> Cursor {
    Cursor { created: summary.created, session: summary.id }
}

/// The place that a key of the list names.
pub(crate) fn cursor_of_created(key: &[u8]) -> Option<Cursor> {
    let (number, session) = key.get(CREATED.len()..)?.split_at_checked(NUMBER)?;
    let inverted = u64::from_be_bytes(number.try_into().ok()?);
    Some(Cursor { created: Timestamp::from_millis(!inverted), session: parse_session(session)? })
}

/// The session whose place ends a key of a list whose keys begin with `list` bytes of their own.
pub(crate) fn session_of_place(key: &[u8], list: usize) -> Option<SessionId> {
    session_at(key, list + NUMBER)
}

/// The session whose id is what a key has from `start` on.
pub(crate) fn session_at(key: &[u8], start: usize) -> Option<SessionId> {
    parse_session(key.get(start..)?)
}

/// The session whose id is what a key has from `start` on, with more behind it.
pub(crate) fn session_at_start(key: &[u8], start: usize) -> Option<SessionId> {
    parse_session(key.get(start..start + ID_LENGTH)?)
}

/// The session whose id ends a key.
pub(crate) fn session_at_end(key: &[u8]) -> Option<SessionId> {
    parse_session(key.get(key.len().checked_sub(ID_LENGTH)?..)?)
}

/// The session that a key of the index of unfinished sessions names.
pub(crate) fn session_of_unfinished(key: &[u8]) -> Option<SessionId> {
    session_at(key, UNFINISHED.len())
}

/// A value of the shelf.
pub(crate) fn shelf(key: &str) -> Vec<u8> {
    [b"k/", key.as_bytes()].concat()
}

/// The name by which the shelf's owner knows `key`.
pub(crate) fn name_on_shelf(key: &[u8]) -> Option<String> {
    String::from_utf8(key.get(2..)?.to_vec()).ok()
}

/// The first key after all that begin with `prefix`, whose last byte must not be 255.
pub(crate) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

/// The first key after `key`.
pub(crate) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn parse_session(bytes: &[u8]) -> Option<SessionId> {
    SessionId::parse(std::str::from_utf8(bytes).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionId {
        SessionId::parse("ses_00000000000012345678901234").unwrap()
    }

    #[test]
    fn keys_sort_by_number_and_are_read_back() {
        let keys = [1, 2, 255, 256, u64::MAX].map(|seq| frame(session(), Seq(seq)));
        assert!(keys.is_sorted());
        assert!(keys.iter().all(|key| *key < end_of(&log(session()))));
        assert_eq!(seq_of_frame(&keys[3]), Some(Seq(256)));
    }

    #[test]
    fn the_newest_session_comes_first_in_the_list() {
        let [old, new] = [5, 6].map(|at| Cursor { created: Timestamp::from_millis(at), session: session() });
        assert!(created(&new) < created(&old));
        assert_eq!(cursor_of_created(&created(&new)), Some(new));
    }

    #[test]
    fn foreign_keys_are_not_taken_for_ours() {
        for key in [&b"c/"[..], b"c/12345678nobody", b"u/ses_1", b"l/", b""] {
            assert_eq!(cursor_of_created(key), None);
            assert_eq!(session_of_unfinished(key), None);
            assert_eq!(seq_of_frame(key), None);
        }
    }
}
