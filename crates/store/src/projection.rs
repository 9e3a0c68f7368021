//! What is made from a log and stored beside it: the session's summary.
//!
//! It can be made again from the records: a summary that is missing, damaged or of another version is replaced by the fold of
//! the log. While a session has work it is written with some of its records only ([`Standing`]): the records behind it are
//! added to it whenever it is read. One without open turns is always of the whole log.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use playhouse_protocol::json::read_summary;
use playhouse_protocol::{Entry, Record, Seq, SessionId, SessionSummary};

use crate::frame::{self, FrameError, StoredEntry};
use crate::index::Held;
use crate::ledger::{Tail, Unreadable};
use crate::lineage::{self, Segment};
use crate::table::Table;
use crate::veil::Veil;
use crate::witness::Witness;
use crate::{Blobs, Damage, FeedFollower, LogRead, StoreError, keys, value};

/// Another version is made again.
const VERSION: u8 = 2;
/// Room for so many entries is made at once, whatever a summary says.
const MOST_RESERVED: usize = 1_024;
/// A summary is written again when so many records, or frames of so many bytes, stand behind the stored one: whoever reads it
/// reads these too.
const MOST_BEHIND: u64 = 64;
const MOST_BYTES_BEHIND: usize = 64 * 1024;

/// Whether what `key` marks was kept by the opening before `generation`. One of this very number was cut off between its mark
/// and the moment when its number was durable: it wrote nothing else, and all is as it left it.
pub(crate) fn is_marked(
    table: &dyn Table,
    key: &[u8],
    generation: u64,
    mark: impl Fn(u64) -> Vec<u8>,
) -> Result<bool, StoreError> {
    let found = table.get(key)?;
    Ok(found.is_some_and(|found| {
        [generation.saturating_sub(1), generation].into_iter().any(|of| found == mark(of))
    }))
}

/// The stored form.
pub(crate) fn encode(summary: &SessionSummary) -> Result<Vec<u8>, StoreError> {
    value::encode(VERSION, summary.id.as_str().as_bytes(), summary)
}

/// The summary, where the stored form is whole and of this version.
pub(crate) fn decode(session: SessionId, stored: &[u8]) -> Option<SessionSummary> {
    value::read(VERSION, session.as_str().as_bytes(), stored, read_summary)
}

/// The summary of a whole log, and how far the stored one is behind it.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) summary: SessionSummary,
    /// The place up to which the stored one goes.
    stored: Seq,
    /// How many bytes the frames behind that have.
    behind: usize,
}

impl Standing {
    /// Of a log whose stored summary is this one.
    pub(crate) fn stored(summary: SessionSummary) -> Self {
        Self { stored: summary.head, summary, behind: 0 }
    }

    /// As it was read: the summary of the whole log, and the place up to which the stored one goes.
    fn read(summary: SessionSummary, stored: Seq) -> Self {
        // How many bytes that were is not known: the next append writes it.
        let behind = if stored == summary.head { 0 } else { MOST_BYTES_BEHIND };
        Self { summary, stored, behind }
    }

    /// After an append that leads to `summary` with frames of so many bytes. Whether the summary is to be written with it.
    pub(crate) fn after(before: Option<Self>, summary: SessionSummary, bytes: usize) -> (Self, bool) {
        let Some(Self { summary: was, stored, behind }) = before else {
            return (Self::stored(summary), true);
        };
        let behind = behind.saturating_add(bytes);
        let is_exact = was.open_turns == 0 || summary.open_turns == 0;
        if is_exact || behind > MOST_BYTES_BEHIND || summary.head.0.saturating_sub(stored.0) > MOST_BEHIND {
            return (Self::stored(summary), true);
        }
        (Self { summary, stored, behind }, false)
    }
}

/// What logs are read from.
pub(crate) struct Source {
    pub(crate) table: Arc<dyn Table>,
    pub(crate) blobs: Arc<dyn Blobs>,
    /// The last number of the ledger's feed that is durable. Only the writer changes it.
    pub(crate) feed_end: AtomicU64,
    /// The time up to which the ledger is closed, in milliseconds.
    pub(crate) closed: AtomicU64,
    /// Rows of the index that are in memory.
    pub(crate) held: Held,
    /// Rows of the ledger that may be in no list and no sum yet.
    pub(crate) tail: Tail,
    /// Entries of its feed that cannot be read.
    pub(crate) unreadable: Unreadable,
    /// What of the last round must be there when the table is opened again in place.
    pub(crate) witness: Witness,
    /// What readers see of a round that is not durable.
    pub(crate) veil: Veil,
    /// Who wants to know when it grew.
    followers: Mutex<Vec<FeedFollower>>,
}

impl Source {
    pub(crate) fn new(table: Arc<dyn Table>, blobs: Arc<dyn Blobs>) -> Self {
        Self {
            table,
            blobs,
            feed_end: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            held: Held::default(),
            tail: Tail::default(),
            unreadable: Unreadable::default(),
            witness: Witness::default(),
            veil: Veil::default(),
            followers: Mutex::default(),
        }
    }

    /// See [`crate::Ledger::follow`].
    pub(crate) fn follow(&self, follower: FeedFollower) {
        self.followers.lock().push(follower);
    }

    /// The feed is durable up to `end`: shows it to readers, and tells those who wait for that.
    pub(crate) fn grown(&self, end: u64) {
        if self.feed_end.swap(end, Ordering::AcqRel) == end {
            return;
        }
        let mut followers = self.followers.lock();
        // What was written is durable, whatever they do with it.
        followers.retain(|follower| catch_unwind(AssertUnwindSafe(|| follower(end))).unwrap_or(false));
    }

    /// The value of a key: how others look into the table.
    fn look(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.table.get(key)
    }

    /// Whether the log was deleted and kept for its forks.
    pub(crate) fn is_rest(&self, session: SessionId) -> Result<bool, StoreError> {
        lineage::is_rest(&|key| self.look(key), session)
    }

    /// The stored summary, where it is good. The log of a session with work may go on behind it.
    pub(crate) fn stored_summary(&self, session: SessionId) -> Result<Option<SessionSummary>, StoreError> {
        let value = self.table.get(&keys::summary(session))?;
        Ok(value.and_then(|value| decode(session, &value)))
    }

    /// The summary of the good part of the log.
    pub(crate) fn summary(&self, session: SessionId) -> Result<Option<SessionSummary>, StoreError> {
        match self.stored_summary(session)? {
            Some(summary) => Ok(Some(self.go_on(summary)?.0)),
            None => Ok(self.fold(session)?.0),
        }
    }

    /// How the whole log of a session stands, where its stored summary is good.
    pub(crate) fn standing(
        &self,
        session: SessionId,
    ) -> Result<Option<(Standing, Option<Damage>)>, StoreError> {
        let Some(stored) = self.stored_summary(session)? else { return Ok(None) };
        let place = stored.head;
        let (summary, damage) = self.go_on(stored)?;
        Ok(Some((Standing::read(summary, place), damage)))
    }

    /// Adds the good part of what the log has behind a stored summary, and says what is wrong with the rest.
    fn go_on(&self, mut summary: SessionSummary) -> Result<(SessionSummary, Option<Damage>), StoreError> {
        if summary.open_turns == 0 {
            return Ok((summary, None));
        }
        let damage = self.walk(summary.id, summary.head, |entry| {
            summary.apply(&entry);
            true
        })?;
        Ok((summary, damage))
    }

    /// The summary of the good part of the log, and what is wrong with what follows. A fork's is made from the records
    /// that it does not share.
    pub(crate) fn fold(
        &self,
        session: SessionId,
    ) -> Result<(Option<SessionSummary>, Option<Damage>), StoreError> {
        self.fold_with(session, |_, _| true)
    }

    /// The same. `each` sees every entry but the first together with the summary of those before it, and says whether to
    /// go on.
    pub(crate) fn fold_with(
        &self,
        session: SessionId,
        mut each: impl FnMut(&SessionSummary, &Entry) -> bool,
    ) -> Result<(Option<SessionSummary>, Option<Damage>), StoreError> {
        if self.is_rest(session)? {
            return Ok((None, None));
        }
        let shared = match lineage::link(&|key| self.look(key), session)? {
            Ok(link) => link.map_or(Seq::START, |link| link.at),
            Err(reason) => return Ok((None, Some(Damage { seq: Seq(1), reason }))),
        };
        let mut summary: Option<SessionSummary> = None;
        let damage = self.walk(session, shared, |entry| {
            match &mut summary {
                Some(summary) => {
                    let goes_on = each(summary, &entry);
                    summary.apply(&entry);
                    return goes_on;
                }
                None => summary = SessionSummary::begin(&entry),
            }
            true
        })?;
        Ok((summary, damage))
    }

    /// Calls `each` with the entries that the log of a session has itself, until it returns false or one cannot be trusted:
    /// also of a log that was deleted and kept for its forks.
    pub(crate) fn walk_own(
        &self,
        session: SessionId,
        mut each: impl FnMut(Entry) -> bool,
    ) -> Result<Option<Damage>, StoreError> {
        let link = match lineage::link(&|key| self.look(key), session)? {
            Ok(link) => link,
            Err(reason) => return Ok(Some(Damage { seq: Seq(1), reason })),
        };
        let first = link.map_or(Seq(1), |link| link.at.next());
        let segment = Segment { log: session, first, last: None };
        Ok(self.walk_segment(segment, first, &mut each)?.damage)
    }

    /// At most `limit` entries after `after`.
    pub(crate) fn read(&self, session: SessionId, after: Seq, limit: usize) -> Result<LogRead, StoreError> {
        // Read before the log: what the summary counts must then be in the log, even while others append.
        let head = self.stored_summary(session)?.map(|summary| summary.head);
        if head.is_none() && self.is_rest(session)? {
            return Err(StoreError::Missing(session));
        }
        let mut read = LogRead::default();
        if limit > 0 {
            let left = head.map_or(0, |head| head.0.saturating_sub(after.0));
            read.entries.reserve(usize::try_from(left).unwrap_or(limit).min(limit).min(MOST_RESERVED));
            read.damage = self.walk(session, after, |entry| {
                read.entries.push(entry);
                read.entries.len() < limit
            })?;
        }
        if read.damage.is_none() && read.entries.len() < limit {
            let end = read.entries.last().map_or(after, |entry| entry.seq);
            read.damage = self.check_end(session, end, head)?;
        }
        if read.entries.is_empty() && read.damage.is_none() && !self.exists(session)? {
            return Err(StoreError::Missing(session));
        }
        Ok(read)
    }

    /// What is wrong with the log of a session, with what it shares, if something is.
    pub(crate) fn damage(&self, session: SessionId) -> Result<Option<Damage>, StoreError> {
        let head = self.stored_summary(session)?.map(|summary| summary.head);
        let mut end = Seq::START;
        let damage = self.walk(session, Seq::START, |entry| {
            end = entry.seq;
            true
        })?;
        match damage {
            None => self.check_end(session, end, head),
            damage => Ok(damage),
        }
    }

    fn exists(&self, session: SessionId) -> Result<bool, StoreError> {
        let has_log = || Ok::<_, StoreError>(self.last(session)?.is_some() && !self.is_rest(session)?);
        Ok(self.table.get(&keys::summary(session))?.is_some() || has_log()?)
    }

    /// The place of the last frame of the log's own, good or not.
    pub(crate) fn last(&self, session: SessionId) -> Result<Option<Seq>, StoreError> {
        let prefix = keys::log(session);
        let key = self.table.last_key(&prefix, &keys::end_of(&prefix))?;
        Ok(key.and_then(|key| keys::seq_of_frame(&key)))
    }

    /// A log that ends before the place that its summary counted to is damaged, unless it is being deleted.
    fn check_end(
        &self,
        session: SessionId,
        end: Seq,
        head: Option<Seq>,
    ) -> Result<Option<Damage>, StoreError> {
        match head {
            Some(head) if end < head && self.table.get(&keys::summary(session))?.is_some() => {
                let reason = format!("it is missing: the log should go on to record {head}");
                Ok(Some(Damage { seq: end.next(), reason }))
            }
            _ => Ok(None),
        }
    }

    /// Calls `each` with the entries after `after` until it returns false, or until one cannot be trusted.
    fn walk(
        &self,
        session: SessionId,
        after: Seq,
        mut each: impl FnMut(Entry) -> bool,
    ) -> Result<Option<Damage>, StoreError> {
        let Some(first) = after.0.checked_add(1).map(Seq) else { return Ok(None) };
        let segments = match lineage::segments(&|key| self.look(key), session, after)? {
            Ok(segments) => segments,
            Err(reason) => return Ok(Some(Damage { seq: first, reason })),
        };
        for segment in segments {
            let from = first.max(segment.first);
            let Walked { next, ended, damage } = self.walk_segment(segment, from, &mut each)?;
            if ended || damage.is_some() {
                return Ok(damage);
            }
            let Some(last) = segment.last.filter(|last| next <= *last) else { continue };
            // A fork that is deleted meanwhile may take along what it was the last to need.
            let reason =
                format!("it is missing: what is shared with {} should go on to record {last}", segment.log);
            return Ok(self.exists(session)?.then_some(Damage { seq: next, reason }));
        }
        Ok(None)
    }

    /// The same for records from `from` on of one log.
    fn walk_segment(
        &self,
        segment: Segment,
        from: Seq,
        each: &mut impl FnMut(Entry) -> bool,
    ) -> Result<Walked, StoreError> {
        let mut walked = Walked { next: from, ended: false, damage: None };
        let mut unpacked = Vec::new();
        // The last record that belongs here may be in the middle of a frame, which stands under its last place.
        let end = keys::end_of(&keys::log(segment.log));
        self.table.visit(keys::frame(segment.log, from), &end, &mut |key, value| {
            if segment.is_behind(walked.next) {
                return Ok(false);
            }
            let entries = match open(segment, from, walked.next, key, value, &mut unpacked) {
                Ok(entries) => entries,
                Err(reason) => {
                    walked.damage = Some(Damage { seq: walked.next, reason });
                    return Ok(false);
                }
            };
            for entry in entries.skip_while(|entry| entry.seq < from) {
                if segment.is_behind(entry.seq) {
                    return Ok(false);
                }
                match self.check(segment, &entry)? {
                    Ok(entry) => {
                        walked.next = entry.seq.next();
                        walked.ended = !each(entry);
                    }
                    Err(reason) => walked.damage = Some(Damage { seq: entry.seq, reason }),
                }
                if walked.ended || walked.damage.is_some() {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        Ok(walked)
    }

    /// What is stored of an entry, or what is wrong there.
    fn check(&self, segment: Segment, stored: &StoredEntry<'_>) -> Result<Result<Entry, String>, StoreError> {
        let fetch = |spilled: &frame::Spilled| self.blobs.get(&spilled.tenant, &spilled.blob);
        let seq = stored.seq;
        match stored.entry(fetch) {
            Ok(entry) if seq == segment.first => Ok(match &entry.record {
                Record::SessionCreated(_) if seq == Seq(1) => Ok(entry),
                Record::Forked(_) if seq != Seq(1) => Ok(entry),
                record if seq == Seq(1) => {
                    Err(format!("a log begins with session.created, not with {}", record.kind()))
                }
                record => Err(format!("a fork begins with session.forked, not with {}", record.kind())),
            }),
            Ok(entry) => Ok(Ok(entry)),
            // A blob that is gone or changed is damage; one that cannot be read right now is a failure of the store.
            Err(FrameError::Content(error)) if !matches!(error, StoreError::Blob { .. }) => Err(error),
            Err(error) => Ok(Err(error.to_string())),
        }
    }
}

/// The entries of a frame, in a walk from `from` on that comes to `expected`; or what is wrong with it.
fn open<'a>(
    segment: Segment,
    from: Seq,
    expected: Seq,
    key: &[u8],
    value: &'a [u8],
    unpacked: &'a mut Vec<u8>,
) -> Result<frame::Stored<'a>, String> {
    let Some(last) = keys::seq_of_frame(key) else {
        return Err("a key of another form stands in its place".to_owned());
    };
    let entries = frame::open(segment.log, last, value, unpacked).map_err(|error| error.to_string())?;
    let first = entries.first;
    // A walk may begin in the middle of a frame.
    let may_begin = if expected == from { segment.first } else { expected };
    if first > expected {
        return Err(format!("it is missing: the log goes on with record {first}"));
    }
    if first < may_begin {
        return Err(format!("it stands in a frame that begins with record {first}, which stands before it"));
    }
    Ok(entries)
}

/// How far a walk came.
struct Walked {
    /// The next record.
    next: Seq,
    /// No more are wanted.
    ended: bool,
    damage: Option<Damage>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(head: u64, open_turns: u32) -> SessionSummary {
        let summary = serde_json::json!({
            "id": "ses_00000000000012345678901234", "tenant": "acme", "workspace": "/w", "title": "",
            "agent": "build", "model": "mock/demo", "created": 5, "updated": 5, "state": "idle",
            "open_turns": open_turns, "turns": 0, "head": head,
        });
        serde_json::from_value(summary).unwrap()
    }

    /// The places at which summaries are written, where each append adds so many bytes.
    fn written(open_turns: impl Fn(u64) -> u32, bytes: usize) -> Vec<u64> {
        let (mut standing, mut written) = (None, Vec::new());
        for head in 1..=200 {
            let (after, is_due) = Standing::after(standing, summary(head, open_turns(head)), bytes);
            written.extend(is_due.then_some(head));
            standing = Some(after);
        }
        written
    }

    #[test]
    fn a_summary_is_written_seldom_while_there_is_work_and_always_else() {
        assert_eq!(written(|_| 0, 100), (1..=200).collect::<Vec<_>>());
        // The first and the last of a turn, too.
        let of_a_turn = |head| u32::from((5..=150).contains(&head));
        let expected: Vec<u64> = (1..=5).chain([70, 135]).chain(151..=200).collect();
        assert_eq!(written(of_a_turn, 100), expected);
        assert_eq!(written(|_| 1, 20_000)[..4], [1, 5, 9, 13]);
        assert_eq!(written(|_| 1, 100_000).len(), 200);
    }

    #[test]
    fn one_that_was_read_behind_its_log_is_written_with_the_next_append() {
        for (stored, is_due) in [(7, false), (6, true)] {
            let read = Standing::read(summary(7, 1), Seq(stored));
            assert_eq!(Standing::after(Some(read), summary(8, 1), 100).1, is_due);
        }
    }
}
