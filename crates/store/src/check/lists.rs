//! Lists that name sessions, and keys that nobody knows.

use playhouse_protocol::SessionId;

use super::{Check, Found, unknown};
use crate::{StoreError, index, keys, lineage};

/// What keys of the store begin with, in order.
const KNOWN: [&[u8]; 17] = [
    b"a/", b"b/", b"c/", b"d/", b"f/", b"g/", b"i/", b"j/", b"k/", b"l/", b"m/", b"r/", b"s/", b"t/", b"u/",
    b"x/", b"y/",
];

/// Lists of sessions, with the session that a key of theirs names.
type List = (&'static [u8], &'static str, fn(&[u8]) -> Option<SessionId>);

const LISTS: [List; 6] = [
    (keys::CREATED, "the list of all sessions", |key| Some(keys::cursor_of_created(key)?.session)),
    (b"f/", "the list of forks", after_prefix),
    (b"g/", "the list of those that were deleted and kept for forks", after_prefix),
    (b"s/", "the summaries", after_prefix),
    (keys::BY_TENANT, "the index of a tenant", index::session_of),
    (keys::UNFINISHED, "the list of sessions with work", keys::session_of_unfinished),
];

fn after_prefix(key: &[u8]) -> Option<SessionId> {
    keys::session_at(key, 2)
}

impl Check<'_> {
    /// Whether the lists name sessions that are there.
    pub(super) fn lists(&mut self) -> Result<(), StoreError> {
        for (prefix, name, session_of) in LISTS {
            let mut strays = Vec::new();
            self.table.visit(prefix.to_vec(), &keys::end_of(prefix), &mut |key, _| {
                if prefix == keys::BY_TENANT && index::is_count(key) {
                    return Ok(true);
                }
                let session = session_of(key);
                let has_log = match session {
                    Some(session) => self.source.last(session)?.is_some(),
                    None => false,
                };
                if !has_log {
                    strays.push((key.to_vec(), session));
                }
                Ok(true)
            })?;
            for (key, session) in strays {
                let found = self.look(|check| check.stray(&key, name, session))?;
                self.tell(found.problems);
            }
        }
        self.dependents()?;
        self.counts()
    }

    fn stray(&self, key: &[u8], name: &str, session: Option<SessionId>) -> Result<Found, StoreError> {
        let mut found = Found::default();
        match session {
            None => found.problems.push(unknown(key)),
            Some(session) if self.source.last(session)?.is_none() && self.table.get(key)?.is_some() => {
                found.wrong(format!("session {session}"), format!("it is in {name}, and has no record"));
            }
            Some(_) => {}
        }
        Ok(found)
    }

    /// Marks of forks that are none.
    fn dependents(&mut self) -> Result<(), StoreError> {
        let mut strays = Vec::new();
        self.table.visit(b"d/".to_vec(), &keys::end_of(b"d/"), &mut |key, _| {
            let (log, fork) = (keys::session_at_start(key, 2), keys::session_at_end(key));
            let link = match fork {
                Some(fork) => lineage::link(&|key| self.table.get(key), fork)?.ok().flatten(),
                None => None,
            };
            if log.is_none() || link.is_none_or(|link| Some(link.log) != log) {
                strays.push((key.to_vec(), log));
            }
            Ok(true)
        })?;
        for (key, log) in strays {
            let found = self.look(|check| {
                let mut found = Found::default();
                match log {
                    None => found.problems.push(unknown(&key)),
                    Some(log) if check.table.get(&key)?.is_some() => {
                        found.wrong(
                            format!("session {log}"),
                            "it keeps records for a fork that is not one of it",
                        );
                    }
                    Some(_) => {}
                }
                Ok(found)
            })?;
            self.tell(found.problems);
        }
        Ok(())
    }

    /// How many sessions tenants have.
    fn counts(&mut self) -> Result<(), StoreError> {
        let found = self.look(|check| {
            let mut found = Found::default();
            for (count, is) in index::counts(check.table)? {
                if count != is {
                    found.wrong(
                        "the index of a tenant",
                        format!("it says that there are {count} sessions; there are {is}"),
                    );
                }
            }
            Ok(found)
        })?;
        self.tell(found.problems);
        Ok(())
    }

    /// Keys of no known form.
    pub(super) fn unknown(&mut self) -> Result<(), StoreError> {
        let mut gaps = Vec::new();
        let mut from = Vec::new();
        for prefix in KNOWN {
            gaps.push((std::mem::replace(&mut from, keys::end_of(prefix)), prefix.to_vec()));
        }
        gaps.push((from, vec![0xff]));
        for (from, to) in gaps {
            let mut strangers = Vec::new();
            self.table.visit(from, &to, &mut |key, _| {
                strangers.push(unknown(key));
                Ok(true)
            })?;
            self.tell(strangers);
        }
        Ok(())
    }
}
