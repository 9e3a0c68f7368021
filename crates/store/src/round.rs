//! One round of the writer: requests are checked and staged one after the other, and written as one batch.
//!
//! A request sees what was staged before it. One that is refused leaves no trace in the batch.

use std::collections::HashMap;

use playhouse_protocol::{Record, Seq, SessionId, SessionSummary};

use crate::frame::{self, Spilled};
use crate::projection::{self, Source};
use crate::table::{Batch, for_each};
use crate::{Append, StoreError, keys};

/// How many sessions the writer remembers between rounds.
const REMEMBERED: usize = 4096;

/// Where the logs end, as far as the writer knows; `None` for a session that is not there.
pub(crate) type Heads = HashMap<SessionId, Option<SessionSummary>>;

/// What was staged.
pub(crate) struct Round<'a> {
    source: &'a Source,
    heads: &'a mut Heads,
    batch: Batch,
    /// Size of the keys and values in `batch`.
    bytes: usize,
}

impl<'a> Round<'a> {
    pub(crate) fn new(source: &'a Source, heads: &'a mut Heads) -> Self {
        // Only between rounds: what is staged stands nowhere else.
        if heads.len() > REMEMBERED {
            heads.clear();
        }
        Self { source, heads, batch: Batch::new(), bytes: 0 }
    }

    /// Size of what is staged.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Stages an append; the new end of the log.
    pub(crate) fn append(&mut self, append: &Append) -> Result<Seq, StoreError> {
        let Head { summary: before, rebuilt } = self.head(append.session)?;
        check(append, before.as_ref())?;
        let mut summary = before.clone();
        let mut staged = Batch::new();
        for entry in &append.entries {
            let frame = frame::encode(append.session, entry, |json| {
                let blob = self.source.blobs.put(&append.tenant, json)?;
                Ok(Spilled { tenant: append.tenant.to_string(), blob })
            })?;
            staged.insert(keys::frame(append.session, entry.seq), Some(frame));
            match &mut summary {
                Some(summary) => summary.apply(entry),
                None => summary = SessionSummary::begin(entry),
            }
        }
        let Some(summary) = summary else {
            return Err(StoreError::Backend(format!("the append to session {} is empty", append.session)));
        };
        staged.insert(keys::summary(summary.id), Some(projection::encode(&summary)?));
        let is_new = before.is_none() || rebuilt;
        if is_new {
            staged.insert(keys::created(&keys::cursor(&summary)), Some(Vec::new()));
        }
        let was_open = before.is_some_and(|before| before.open_turns > 0);
        let is_open = summary.open_turns > 0;
        if is_new || was_open != is_open {
            staged.insert(keys::unfinished(summary.id), is_open.then(Vec::new));
        }
        let head = summary.head;
        self.heads.insert(append.session, Some(summary));
        self.stage(staged);
        Ok(head)
    }

    /// Stages the removal of a session; the end that its log had.
    pub(crate) fn delete(&mut self, session: SessionId) -> Result<Seq, StoreError> {
        // What is damaged can be deleted as well.
        let known = match self.heads.get(&session) {
            Some(known) => known.clone(),
            None => self.source.summary(session)?,
        };
        let mut staged = Batch::new();
        let prefix = keys::log(session);
        let end = keys::end_of(&prefix);
        for_each(&*self.source.table, prefix.clone(), &end, |(key, _)| {
            staged.insert(key, None);
            Ok(true)
        })?;
        // What was appended in this round is not in the table yet, and what was deleted in it is still there.
        let in_round = self.batch.range(prefix..end);
        staged.extend(in_round.map(|(key, _)| (key.clone(), None)));
        let is_gone = |key: &Vec<u8>| self.batch.get(key).is_some_and(Option::is_none);
        if known.is_none() && staged.keys().all(is_gone) {
            return Err(StoreError::Missing(session));
        }
        staged.insert(keys::summary(session), None);
        staged.insert(keys::unfinished(session), None);
        match &known {
            Some(summary) => {
                staged.insert(keys::created(&keys::cursor(summary)), None);
            }
            None => self.find_in_list(session, &mut staged)?,
        }
        self.heads.insert(session, None);
        self.stage(staged);
        Ok(known.map_or(Seq::START, |summary| summary.head))
    }

    /// Stages a new value of the shelf, if the value there is `expected`.
    pub(crate) fn compare_and_set(
        &mut self,
        key: &str,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        let key = keys::shelf(key);
        let found = match self.batch.get(&key) {
            Some(staged) => staged.clone(),
            None => self.source.table.get(&key)?,
        };
        if found.as_deref() != expected {
            return Ok(false);
        }
        if expected != new {
            self.stage(Batch::from([(key, new.map(<[u8]>::to_vec))]));
        }
        Ok(true)
    }

    /// Writes what was staged, durably.
    pub(crate) fn commit(&mut self) -> Result<(), StoreError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.source.table.apply(std::mem::take(&mut self.batch))?;
        self.source.table.flush()
    }

    fn stage(&mut self, staged: Batch) {
        self.bytes +=
            staged.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len)).sum::<usize>();
        self.batch.extend(staged);
    }

    /// Where the log of `session` ends.
    fn head(&mut self, session: SessionId) -> Result<Head, StoreError> {
        if let Some(known) = self.heads.get(&session) {
            return Ok(Head { summary: known.clone(), rebuilt: false });
        }
        let stored = self.source.stored_summary(session)?;
        let last = self.source.last(session)?;
        if stored.as_ref().map(|summary| summary.head) == last {
            return Ok(Head { summary: stored, rebuilt: false });
        }
        let (summary, damage) = self.source.fold(session)?;
        if let Some(damage) = damage {
            return Err(StoreError::Backend(format!(
                "the log of session {session} is damaged and takes no more records: {damage}"
            )));
        }
        tracing::warn!(%session, "the summary did not match the log and was made again");
        Ok(Head { summary, rebuilt: true })
    }

    /// Removes a session from the list without knowing when it was created.
    fn find_in_list(&self, session: SessionId, staged: &mut Batch) -> Result<(), StoreError> {
        let end = keys::end_of(keys::CREATED);
        for_each(&*self.source.table, keys::CREATED.to_vec(), &end, |(key, _)| {
            let is_here = keys::cursor_of_created(&key).is_some_and(|cursor| cursor.session == session);
            if is_here {
                staged.insert(key, None);
            }
            Ok(!is_here)
        })
    }
}

struct Head {
    summary: Option<SessionSummary>,
    /// Whether the projections in the table do not match it.
    rebuilt: bool,
}

/// Whether an append fits the log that it is for.
fn check(append: &Append, before: Option<&SessionSummary>) -> Result<(), StoreError> {
    let found = before.map_or(Seq::START, |summary| summary.head);
    let session = append.session;
    if found != append.expected {
        return Err(StoreError::Conflict { session, expected: append.expected, found });
    }
    let refuse = |reason: String| Err(StoreError::Backend(format!("append to session {session}: {reason}")));
    if append.entries.is_empty() {
        return refuse("it holds no records".to_owned());
    }
    let mut expected = found;
    for entry in &append.entries {
        expected = Seq(expected.0.saturating_add(1));
        if entry.seq != expected {
            return refuse(format!("record {} stands where record {expected} should", entry.seq));
        }
        let kind = entry.record.kind();
        match (&entry.record, expected == Seq(1)) {
            (Record::SessionCreated(created), true) if created.session != session => {
                return refuse(format!("its session.created is that of session {}", created.session));
            }
            (Record::SessionCreated(created), true) if *created.tenant != *append.tenant => {
                return refuse(format!(
                    "it is for tenant \"{}\", its session.created for \"{}\"",
                    append.tenant, created.tenant
                ));
            }
            (Record::SessionCreated(_), true) => {}
            (_, true) => return refuse(format!("a log begins with session.created, not with {kind}")),
            (Record::SessionCreated(_), false) => {
                return refuse(format!("record {expected} is a second session.created"));
            }
            (_, false) => {}
        }
    }
    match before {
        Some(before) if *before.tenant != *append.tenant => refuse(format!(
            "it is for tenant \"{}\", the session belongs to \"{}\"",
            append.tenant, before.tenant
        )),
        _ => Ok(()),
    }
}
