//! The end of the feed, in memory: rows that may be in no list and no running sum yet.
//!
//! With its records a row is written to the feed only. Lists and sums are written for many rows together, a few keys with
//! each batch that is written anyway (`Job`), and the mark [`keys::SETTLED_MARK`] says up to which number that is done; what
//! stands behind it is done when the store is opened. Until then the row is here, and whoever reads lists or sums adds what
//! is here.
//!
//! A reader takes the tail first and reads the table then. So a row is missed by nobody, and one that was settled between
//! the two is told apart: a sum says up to which number it counts, and a place in a list is the same place in both.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use playhouse_protocol::LedgerRow;
use playhouse_protocol::ledger::{Grain, RowId, UsageSum};
use playhouse_protocol::{SessionId, Timestamp};

use super::lists::{self, Block, Place};
use super::{keys, sums};
use crate::StoreError;
use crate::draft::Draft;
use crate::projection::Source;
use crate::table::Batch;

/// How many rows are settled together in a store.
pub(super) const MANY: usize = 1024;

/// At least so many keys of a job are written with a batch, and so many for each row that the batch adds: a job ends sooner
/// than it takes to gather the next.
const KEYS: usize = 32;
const KEYS_PER_ROW: usize = 8;

/// What lists and sums need to know of a row.
#[derive(Debug)]
pub(crate) struct Pending {
    /// In the feed.
    pub(super) number: u64,
    pub(super) ended: Timestamp,
    pub(super) id: RowId,
    pub(super) session: SessionId,
    pub(super) root: SessionId,
    pub(super) grain: Grain,
    pub(super) sum: UsageSum,
}

impl Pending {
    pub(super) fn new(number: u64, row: &LedgerRow) -> Self {
        Self {
            number,
            ended: row.ended,
            id: row.id.clone(),
            session: row.session,
            root: row.root,
            grain: row.grain(),
            sum: UsageSum::of(row),
        }
    }

    /// The sessions in whose lists it stands.
    pub(super) fn sessions(&self) -> impl Iterator<Item = SessionId> {
        let root = (self.root != self.session).then_some(self.root);
        std::iter::once(self.session).chain(root)
    }

    /// Where it stands in lists.
    pub(super) fn place(&self) -> Place {
        (self.ended.as_millis(), self.id.clone())
    }
}

/// Rows by the running sum that counts them.
pub(super) type BySum = BTreeMap<Vec<u8>, Vec<Arc<Pending>>>;

pub(super) fn by_sum(rows: &[Arc<Pending>]) -> BySum {
    // A key costs more than what is compared here.
    let mut grains = BTreeMap::<&Grain, BTreeMap<SessionId, Vec<Arc<Pending>>>>::new();
    for row in rows {
        grains.entry(&row.grain).or_default().entry(row.session).or_default().push(Arc::clone(row));
    }
    let mut sums = BySum::new();
    for (grain, sessions) in grains {
        sums.insert(keys::sum(grain), sessions.values().flatten().map(Arc::clone).collect());
        sums.extend(sessions.into_iter().map(|(session, rows)| (keys::session_sum(grain, session), rows)));
    }
    sums
}

/// See the page. The writer changes it, everybody reads it.
pub(crate) struct Tail {
    /// By number.
    rows: RwLock<VecDeque<Arc<Pending>>>,
    /// What is being settled. The writer's own.
    job: Mutex<Job>,
    /// So many rows are settled together.
    many: usize,
}

impl Default for Tail {
    fn default() -> Self {
        Self::new(MANY)
    }
}

impl Tail {
    /// One of which so many rows are settled together.
    pub(super) fn new(many: usize) -> Self {
        Self { rows: RwLock::default(), job: Mutex::default(), many }
    }

    /// Those rows that are wanted, by number.
    pub(super) fn rows(&self, is_wanted: impl Fn(&Pending) -> bool) -> Vec<Arc<Pending>> {
        let rows = self.rows.read();
        rows.iter().filter(|row| is_wanted(row)).map(Arc::clone).collect()
    }

    /// Takes rows whose entries in the feed are durable, and forgets those up to the number `settled`.
    pub(crate) fn moved(&self, added: Vec<Arc<Pending>>, settled: Option<u64>) {
        if added.is_empty() && settled.is_none() {
            return;
        }
        let mut rows = self.rows.write();
        rows.extend(added);
        let done = rows.partition_point(|row| settled.is_some_and(|settled| row.number <= settled));
        rows.drain(..done);
    }

    /// All rows are settled in the table: see [`super::settle_behind`].
    pub(crate) fn forget(&self) {
        *self.job.lock() = Job::default();
        self.rows.write().clear();
    }
}

/// Lists and sums of rows that are being written. What of it is written twice, because the process ended in between, counts
/// once.
#[derive(Default)]
struct Job {
    blocks: VecDeque<Block>,
    sums: VecDeque<(Vec<u8>, Vec<Arc<Pending>>)>,
    /// The number of the last of the rows.
    end: u64,
}

impl Job {
    fn new(rows: &[Arc<Pending>]) -> Self {
        let end = rows.last().map_or(0, |row| row.number);
        Self { blocks: lists::blocks(rows).into(), sums: by_sum(rows).into_iter().collect(), end }
    }

    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.sums.is_empty()
    }

    /// Stages this many keys; when all are, also the mark, and the number up to which rows are settled.
    fn stage(
        &mut self,
        source: &Source,
        draft: &mut Draft<'_>,
        count: usize,
    ) -> Result<Option<u64>, StoreError> {
        for _ in 0..count {
            if let Some((key, rows)) = self.blocks.pop_front() {
                lists::put(draft, key, &rows);
            } else if let Some((key, rows)) = self.sums.pop_front() {
                sums::add(source, draft, key, &rows, self.end)?;
            } else {
                break;
            }
        }
        if !self.is_empty() {
            return Ok(None);
        }
        draft.put(keys::SETTLED_MARK.to_vec(), self.end.to_be_bytes().to_vec());
        Ok(Some(self.end))
    }
}

/// Settles some of the tail, beside a batch that adds this many rows to it. The number up to which rows are settled with
/// that, where it is another now.
pub(crate) fn settle_some(
    source: &Source,
    batch: &mut Batch,
    added: usize,
) -> Result<Option<u64>, StoreError> {
    let mut job = source.tail.job.lock();
    if job.is_empty() {
        if source.tail.rows.read().len() < source.tail.many {
            return Ok(None);
        }
        *job = Job::new(&source.tail.rows(|_| true));
    }
    let mut draft = Draft::new(&*source.table, batch);
    let settled = job.stage(source, &mut draft, KEYS + KEYS_PER_ROW * added)?;
    let changes = draft.changes;
    batch.extend(changes);
    Ok(settled)
}

/// Settles all of the tail. The number up to which rows are settled with that, where there are any.
pub(super) fn settle(source: &Source, draft: &mut Draft<'_>) -> Result<Option<u64>, StoreError> {
    *source.tail.job.lock() = Job::default();
    let rows = source.tail.rows(|_| true);
    if rows.is_empty() {
        return Ok(None);
    }
    stage_all(source, draft, &rows)
}

/// Stages lists and sums of these rows.
pub(super) fn stage_all(
    source: &Source,
    draft: &mut Draft<'_>,
    rows: &[Arc<Pending>],
) -> Result<Option<u64>, StoreError> {
    Job::new(rows).stage(source, draft, usize::MAX)
}
