//! One round of the writer: requests are checked and staged one after the other, and written as one batch.
//!
//! A request sees what was staged before it. One that is refused leaves no trace in the batch.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use playhouse_protocol::record::Forked;
use playhouse_protocol::summary::SessionState;
use playhouse_protocol::{Entry, LedgerRow, Metric, Record, Seq, SessionId, SessionSummary, Timestamp};

use crate::draft::Draft;
use crate::frame::{self, Spilled};
use crate::ledger::{Archived, Growth, Staging};
use crate::projection::{self, Source, Standing};
use crate::table::{Batch, for_each};
use crate::veil::Before;
use crate::writer::Archive;
use crate::{Append, Damage, StoreError, index, keys, ledger, lineage};

/// How many sessions the writer remembers between rounds: at some kilobytes each.
const REMEMBERED: usize = 1024;

/// Where the logs end, as far as the writer knows; `None` for a session that is not there.
pub(crate) type Heads = HashMap<SessionId, Option<Standing>>;

/// What was staged.
pub(crate) struct Round<'a> {
    source: &'a Source,
    heads: &'a mut Heads,
    batch: Batch,
    /// Size of the keys and values in `batch`.
    bytes: usize,
    /// How the ledger's feed grows with what is staged.
    growth: Growth,
    /// The number up to which rows are settled with what is staged, where that is another now.
    settled: Option<u64>,
    /// What was there before, of that which readers are not to see yet.
    before: Before,
}

impl<'a> Round<'a> {
    pub(crate) fn new(source: &'a Source, heads: &'a mut Heads) -> Self {
        // Only between rounds: what is staged stands nowhere else.
        if heads.len() > REMEMBERED {
            heads.clear();
        }
        let feed_end = source.feed_end.load(Ordering::Relaxed);
        Self {
            source,
            heads,
            batch: Batch::new(),
            bytes: 0,
            growth: Growth::after(feed_end, Timestamp::from_millis(source.closed.load(Ordering::Relaxed))),
            settled: None,
            before: Before::default(),
        }
    }

    /// Size of what is staged.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Stages an append; the new end of the log.
    pub(crate) fn append(&mut self, append: &Append) -> Result<Seq, StoreError> {
        let head = self.head(append.session)?;
        check(append, head.standing.as_ref().map(|standing| &standing.summary))?;
        if head.standing.is_none() && lineage::is_rest(&|key| self.look(key), append.session)? {
            return Err(refusal(append, "it was deleted, and forks need records of it: take another id"));
        }
        self.stage_entries(append, head, Batch::new())
    }

    /// Stages a new fork; the end of its log.
    pub(crate) fn fork(&mut self, fork: &Append) -> Result<Seq, StoreError> {
        let session = fork.session;
        if let Some(before) = self.head(session)?.standing {
            return Err(StoreError::Conflict { session, expected: Seq::START, found: before.summary.head });
        }
        let forked = check_fork(fork)?;
        let parent = match self.heads.get(&forked.from) {
            Some(known) => known.as_ref().map(|known| known.summary.clone()),
            // It may be damaged behind what is shared.
            None => self.source.summary(forked.from)?,
        };
        let parent = parent.filter(|parent| parent.state != SessionState::Deleted);
        let parent = parent.ok_or(StoreError::Missing(forked.from))?;
        if (&parent.tenant, &parent.workspace) != (&forked.tenant, &forked.workspace) {
            let text = format!(
                "session {} is one of tenant \"{}\" in {}",
                parent.id, parent.tenant, parent.workspace
            );
            return Err(refusal(fork, &text));
        }
        if forked.at > parent.head {
            let text = format!("the log of session {} ends at record {}", parent.id, parent.head);
            return Err(refusal(fork, &text));
        }
        let look = |key: &[u8]| self.look(key);
        if lineage::is_rest(&look, session)? {
            return Err(refusal(fork, "it was deleted, and forks need records of it: take another id"));
        }
        let link = lineage::link_to(&look, forked.from, forked.at)?;
        let mut draft = Draft::new(&*self.source.table, &self.batch);
        // A frame stands under the place of its last record.
        let (from, to) = (keys::frame(link.log, link.at), keys::end_of(&keys::log(link.log)));
        if draft.last_key(&from, &to)?.is_none() {
            return Err(refusal(fork, &format!("record {} of session {} is missing", link.at, parent.id)));
        }
        fail_point!(FORK_CHECKED);
        lineage::add(&mut draft, session, link);
        let staged = draft.changes;
        self.stage_entries(fork, Head { standing: None, rebuilt: false }, staged)
    }

    /// Stages the entries of an append beside what is `staged` for it, and what is made from them.
    fn stage_entries(&mut self, append: &Append, head: Head, staged: Batch) -> Result<Seq, StoreError> {
        let Head { standing, rebuilt } = head;
        let before = standing.as_ref().map(|standing| standing.summary.clone());
        let mut summary = before.clone();
        let mut draft = Draft::new(&*self.source.table, &self.batch).with(staged);
        let mut growth = self.growth.next();
        let frames = frame::encode(append.session, &append.entries, |json| {
            let blob = self.source.blobs.put(&append.tenant, json).map_err(of_blob)?;
            Ok(Spilled { tenant: append.tenant.to_string(), blob })
        })?;
        let mut bytes = 0;
        for (last, frame) in frames {
            bytes += frame.len();
            draft.put(keys::frame(append.session, last), frame);
        }
        for entry in &append.entries {
            match &mut summary {
                Some(summary) => {
                    Staging::new(&mut draft, &mut growth).record(summary, entry)?;
                    summary.apply(entry);
                }
                None => summary = SessionSummary::begin(entry),
            }
        }
        let Some(summary) = summary else { return Err(refusal(append, "it holds no records")) };
        let mut staged = draft.changes;
        let (standing, is_due) = Standing::after(standing.filter(|_| !rebuilt), summary, bytes);
        let summary = &standing.summary;
        if is_due {
            staged.insert(keys::summary(summary.id), Some(projection::encode(summary)?));
        }
        let is_new = before.is_none() || rebuilt;
        if is_new {
            staged.insert(keys::created(&keys::cursor(summary)), Some(Vec::new()));
        }
        // Where the summary was made again, so are the rows.
        let known = before.as_ref().filter(|_| !rebuilt);
        index::put(known, summary, &|key| self.look(key), &mut staged)?;
        let head = summary.head;
        self.heads.insert(append.session, Some(standing));
        self.before.session(append.session, before);
        self.growth.add(growth);
        self.stage(staged);
        Ok(head)
    }

    /// Stages the removal of a session; the end that its log had.
    pub(crate) fn delete(&mut self, session: SessionId) -> Result<Seq, StoreError> {
        // What is damaged can be deleted as well.
        let known = match self.heads.get(&session) {
            Some(known) => known.as_ref().map(|known| known.summary.clone()),
            None => self.source.summary(session)?,
        };
        let mut draft = Draft::new(&*self.source.table, &self.batch);
        if known.is_none() {
            let prefix = keys::log(session);
            let is_rest = lineage::is_rest(&|key| draft.get(key), session)?;
            if is_rest || draft.last_key(&prefix, &keys::end_of(&prefix))?.is_none() {
                return Err(StoreError::Missing(session));
            }
        }
        lineage::remove(&mut draft, session)?;
        let mut growth = self.growth.next();
        if let Some(summary) = &known {
            Staging::new(&mut draft, &mut growth).removed(summary)?;
        }
        let mut staged = draft.changes;
        staged.insert(keys::summary(session), None);
        staged.insert(keys::unfinished(session), None);
        match &known {
            Some(summary) => {
                staged.insert(keys::created(&keys::cursor(summary)), None);
                index::remove(summary, &|key| self.look(key), &mut staged)?;
            }
            None => {
                self.find_in_list(session, &mut staged)?;
                index::remove_unknown(&*self.source.table, session, &|key| self.look(key), &mut staged)?;
            }
        }
        fail_point!(DELETE_CHECKED);
        self.heads.insert(session, None);
        self.before.removed(session);
        self.growth.add(growth);
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
        let found = self.look(&key)?;
        if found.as_deref() != expected {
            return Ok(false);
        }
        if expected != new {
            self.before.shelf(&key, expected);
            self.stage(Batch::from([(key, new.map(<[u8]>::to_vec))]));
        }
        Ok(true)
    }

    /// Stages the removal of entries of the ledger's feed from before a time; how many rows are among them.
    pub(crate) fn archive(&mut self, archive: &Archive) -> Result<u64, StoreError> {
        let mut draft = Draft::new(&*self.source.table, &self.batch);
        let is_settled = self.settled.is_some();
        let Archived { rows, settled } = ledger::archive(self.source, &mut draft, is_settled, archive)?;
        let staged = draft.changes;
        self.settled = self.settled.or(settled);
        self.stage(staged);
        Ok(rows)
    }

    /// Stages corrections of rows.
    pub(crate) fn correct(&mut self, corrections: &[LedgerRow]) -> Result<(), StoreError> {
        self.grow(|staging| corrections.iter().try_for_each(|row| staging.row(row.clone())))
    }

    /// Stages that the ledger is closed up to a time.
    pub(crate) fn close(&mut self, until: Timestamp) -> Result<(), StoreError> {
        self.grow(|staging| {
            staging.close(until);
            Ok(())
        })
    }

    /// Stages what `add` adds to the ledger. Where it fails, nothing of it is staged.
    fn grow(
        &mut self,
        add: impl FnOnce(&mut Staging<'_, '_, '_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut draft = Draft::new(&*self.source.table, &self.batch);
        let mut growth = self.growth.next();
        add(&mut Staging::new(&mut draft, &mut growth))?;
        let staged = draft.changes;
        self.growth.add(growth);
        self.stage(staged);
        Ok(())
    }

    /// Writes what was staged, durably.
    pub(crate) fn commit(&mut self) -> Result<(), StoreError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        if self.settled.is_none() {
            self.settled = ledger::settle_some(self.source, &mut self.batch, self.growth.rows.len())?;
        }
        fail_point!(APPEND_STAGED);
        self.source.veil.fall(std::mem::take(&mut self.before));
        self.source.witness.begin(&self.batch);
        let changes = self.source.held.change(&self.batch);
        self.source.table.apply(std::mem::take(&mut self.batch))?;
        self.source.held.changed(changes);
        fail_point!(APPEND_APPLIED);
        self.source.table.flush()?;
        self.source.witness.done();
        fail_point!(FLUSH_DONE);
        self.source.veil.lift();
        // Readers see what was used, and the feed, from here on.
        self.source.tail.moved(std::mem::take(&mut self.growth.rows), self.settled);
        self.source.closed.store(self.growth.closed.as_millis(), Ordering::Relaxed);
        self.source.grown(self.growth.end);
        metrics::histogram!(Metric::LogFlush.name()).record(began.elapsed());
        Ok(())
    }

    /// The value of a key, as this round leaves it.
    fn look(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.batch.get(key) {
            Some(staged) => Ok(staged.clone()),
            None => self.source.table.get(key),
        }
    }

    fn stage(&mut self, staged: Batch) {
        self.bytes +=
            staged.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len)).sum::<usize>();
        self.batch.extend(staged);
    }

    /// Where the log of `session` ends.
    fn head(&mut self, session: SessionId) -> Result<Head, StoreError> {
        if let Some(known) = self.heads.get(&session) {
            return Ok(Head { standing: known.clone(), rebuilt: false });
        }
        let refuse = |damage: Damage| {
            StoreError::Backend(format!(
                "the log of session {session} is damaged and takes no more records: {damage}"
            ))
        };
        let standing = match self.source.standing(session)? {
            Some((_, Some(damage))) => return Err(refuse(damage)),
            Some((standing, None)) => Some(standing),
            None => None,
        };
        if standing.is_none() && self.source.is_rest(session)? {
            return Ok(Head { standing: None, rebuilt: false });
        }
        let last = self.source.last(session)?;
        if standing.as_ref().map(|standing| standing.summary.head) == last {
            return Ok(Head { standing, rebuilt: false });
        }
        let (summary, damage) = self.source.fold(session)?;
        if let Some(damage) = damage {
            return Err(refuse(damage));
        }
        tracing::warn!(%session, "the summary did not match the log and was made again");
        Ok(Head { standing: summary.map(Standing::stored), rebuilt: true })
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

/// A blob that the disk does not take, however it says so, is no fault of the append: whoever is refused that would try again and
/// again, at a price.
fn of_blob(error: StoreError) -> StoreError {
    let StoreError::Io(found) = &error else { return error };
    tracing::error!(error = %found, "a large record could not be written beside the log");
    StoreError::Suspended { reason: error.as_suspension() }
}

struct Head {
    standing: Option<Standing>,
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
    let refuse = |reason: String| Err(refusal(append, &reason));
    check_places(append)?;
    for entry in &append.entries {
        let expected = entry.seq;
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
            (Record::Forked(_), false) => {
                return refuse(format!(
                    "record {expected} is a session.forked, with which only a new fork begins"
                ));
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

/// The record with which a new fork begins.
fn check_fork(fork: &Append) -> Result<&Forked, StoreError> {
    check_places(fork)?;
    let Some((Entry { record: Record::Forked(forked), .. }, more)) = fork.entries.split_first() else {
        return Err(refusal(fork, "a fork begins with session.forked"));
    };
    if more.iter().any(|entry| matches!(entry.record, Record::SessionCreated(_) | Record::Forked(_))) {
        return Err(refusal(fork, "it begins twice"));
    }
    if forked.session != fork.session || forked.at != fork.expected || *forked.tenant != *fork.tenant {
        return Err(refusal(
            fork,
            &format!(
                "its session.forked is that of session {} of tenant \"{}\" behind record {}",
                forked.session, forked.tenant, forked.at
            ),
        ));
    }
    if forked.at == Seq::START {
        return Err(refusal(fork, "it shares no record"));
    }
    Ok(forked)
}

/// Whether the records follow the expected end of the log without a gap.
fn check_places(append: &Append) -> Result<(), StoreError> {
    if append.entries.is_empty() {
        return Err(refusal(append, "it holds no records"));
    }
    let mut expected = append.expected;
    for entry in &append.entries {
        expected = Seq(expected.0.saturating_add(1));
        if entry.seq != expected {
            return Err(refusal(
                append,
                &format!("record {} stands where record {expected} should", entry.seq),
            ));
        }
    }
    Ok(())
}

fn refusal(append: &Append, reason: &str) -> StoreError {
    StoreError::Backend(format!("append to session {}: {reason}", append.session))
}
