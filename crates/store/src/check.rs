//! Looks through a whole store and says what is wrong where. It changes nothing, and the store may be in use meanwhile.
//!
//! Logs come first, each with its summary and its places in lists; then lists that name what is not there, the ledger, and
//! keys that nobody knows. What is found wrong is looked at again a moment later: a session that changed between two looks
//! is not damaged.

use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use playhouse_protocol::message::{BlobRef, Part};
use playhouse_protocol::summary::SessionState;
use playhouse_protocol::upkeep::{StoreProblem, StoreReport};
use playhouse_protocol::{Record, Seq, SessionId, SessionSummary};

use crate::frame::{self, Spilled};
use crate::projection::Source;
use crate::table::{Batch, Table};
use crate::{StoreError, index, keys, ledger, lineage};

pub(crate) mod closed;
mod lists;

/// The most problems that are told.
const MOST: usize = 1_000;

/// How often something is looked at before it counts as wrong, and how long is waited in between.
const LOOKS: usize = 3;
const BETWEEN: Duration = Duration::from_millis(50);

/// See the page of this module.
pub(crate) fn check(source: &Source) -> Result<StoreReport, StoreError> {
    let mut check = Check {
        source,
        table: &*source.table,
        report: StoreReport::default(),
        blobs: HashSet::new(),
        images: HashSet::new(),
    };
    for part in [Check::logs, Check::lists, Check::ledger, Check::unknown] {
        if let Err(error) = part(&mut check) {
            // Where the table itself is damaged, there may be more that is not.
            let problem = of_damage(error)?;
            check.tell(vec![problem]);
        }
    }
    Ok(check.report)
}

struct Check<'a> {
    source: &'a Source,
    table: &'a dyn Table,
    report: StoreReport,
    /// Blobs that were read and are good, by tenant.
    blobs: HashSet<(String, BlobRef)>,
    images: HashSet<(String, BlobRef)>,
}

/// What was found in one place.
#[derive(Default)]
struct Found {
    is_session: bool,
    /// Its last record says that it is deleted.
    is_removal: bool,
    records: u64,
    problems: Vec<StoreProblem>,
}

impl Found {
    fn wrong(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.problems.push(StoreProblem { place: place.into(), what: what.into() });
    }
}

impl Check<'_> {
    fn tell(&mut self, problems: Vec<StoreProblem>) {
        for problem in problems {
            match self.report.problems.len() < MOST {
                true => self.report.problems.push(problem),
                false => self.report.more += 1,
            }
        }
    }

    /// Looks until nothing is wrong, or it is so for good.
    fn look(&mut self, look: impl Fn(&mut Self) -> Result<Found, StoreError>) -> Result<Found, StoreError> {
        let mut found = look(self)?;
        for _ in 1..LOOKS {
            if found.problems.is_empty() {
                break;
            }
            thread::sleep(BETWEEN);
            found = look(self)?;
        }
        Ok(found)
    }

    /// Every log.
    fn logs(&mut self) -> Result<(), StoreError> {
        let end = keys::end_of(keys::LOGS);
        let mut from = keys::LOGS.to_vec();
        loop {
            let first = self.table.scan(&from, &end, 1)?;
            let Some((key, _)) = first.first() else { return Ok(()) };
            let Some(session) = keys::session_of_frame(key) else {
                self.tell(vec![unknown(key)]);
                from = keys::after(key);
                continue;
            };
            let found = match self.look(|check| check.log(session)) {
                Ok(found) => found,
                Err(error) => Found { problems: vec![of_damage(error)?], ..Found::default() },
            };
            self.report.sessions += u64::from(found.is_session);
            self.report.removals += u64::from(found.is_removal);
            self.report.records += found.records;
            self.tell(found.problems);
            from = keys::end_of(&keys::log(session));
        }
    }

    /// One log, and what is made from it.
    fn log(&mut self, session: SessionId) -> Result<Found, StoreError> {
        let mut found = Found::default();
        let place = format!("session {session}");
        let look = |key: &[u8]| self.source.table.get(key);
        let is_rest = lineage::is_rest(&look, session)?;
        if let Err(broken) = lineage::link(&look, session)? {
            found.wrong(&place, broken);
            return Ok(found);
        }
        let (mut summary, mut blobs, mut kept) = (None::<SessionSummary>, Vec::new(), Vec::new());
        let damage = self.source.walk_own(session, |entry| {
            found.records += 1;
            blobs.extend(attachments(&entry.record).cloned());
            kept.extend(images(&entry.record).cloned());
            match &mut summary {
                Some(summary) => summary.apply(&entry),
                None => summary = SessionSummary::begin(&entry),
            }
            true
        })?;
        if let Some(damage) = damage {
            found.wrong(format!("{place}, record {}", damage.seq), damage.reason);
        }
        let Some(summary) = summary else { return Ok(found) };
        for blob in blobs {
            self.blob(&summary.tenant, &place, blob, &mut found)?;
        }
        for image in kept {
            self.image(&summary.tenant, &place, image, &mut found)?;
        }
        self.count_spilled(session)?;
        if is_rest {
            self.rest(session, summary.head, &mut found)?;
            return Ok(found);
        }
        found.is_session = true;
        found.is_removal = summary.state == SessionState::Deleted;
        // What is shared with other logs as well.
        if let Some(damage) = self.source.damage(session)?
            && found.problems.is_empty()
        {
            found.wrong(format!("{place}, record {}", damage.seq), damage.reason);
        }
        if found.problems.is_empty() {
            self.projections(&summary, &place, &mut found)?;
        }
        Ok(found)
    }

    /// The summary of a good log, and its places in lists.
    fn projections(
        &self,
        summary: &SessionSummary,
        place: &str,
        found: &mut Found,
    ) -> Result<(), StoreError> {
        match self.source.stored_summary(summary.id)? {
            None => {
                found.wrong(place, "its summary is missing or damaged; it is made again with the next record")
            }
            // It may be behind the records of a session with work.
            Some(_) if self.source.summary(summary.id)?.as_ref() != Some(summary) => {
                found.wrong(place, "its summary is not what its records say");
            }
            Some(_) => {}
        }
        if self.table.get(&keys::created(&keys::cursor(summary)))?.is_none() {
            found.wrong(place, "it is not in the list of all sessions");
        }
        let is_listed = self.table.get(&keys::unfinished(summary.id))?.is_some();
        match (summary.is_unfinished(), is_listed) {
            (true, false) => {
                found.wrong(
                    place,
                    "it has work to do and is not in the list of those: it is not resumed by itself",
                );
            }
            (false, true) => found.wrong(place, "it is in the list of those with work to do, and has none"),
            _ => {}
        }
        // What the index would have of it.
        let mut rows = Batch::new();
        index::put(None, summary, &|key| self.table.get(key), &mut rows)?;
        for (key, row) in rows {
            let is_told = key == keys::unfinished(summary.id);
            if !index::is_count(&key) && !is_told && self.table.get(&key)? != row {
                found.wrong(
                    place,
                    format!("its row {} in the index of its tenant is not good", key.escape_ascii()),
                );
            }
        }
        if lineage::link(&|key| self.table.get(key), summary.id)?
            .ok()
            .flatten()
            .is_some_and(|link| !self.is_marked(link, summary.id))
        {
            found.wrong(place, "the log that it was forked from does not know of it, and may be removed");
        }
        Ok(())
    }

    fn is_marked(&self, link: lineage::Link, fork: SessionId) -> bool {
        self.table.get(&keys::dependent(link.log, link.at, fork)).is_ok_and(|mark| mark.is_some())
    }

    /// A log that was kept for its forks, and ends at `head`.
    fn rest(&self, session: SessionId, head: Seq, found: &mut Found) -> Result<(), StoreError> {
        let place = format!("session {session}, which was deleted");
        let prefix = keys::dependents(session);
        let last = self.table.last_key(&prefix, &keys::end_of(&prefix))?;
        match last.and_then(|key| keys::seq_of_dependent(&key)) {
            None => found.wrong(place, "its records were kept for forks, of which there is none"),
            Some(needed) if needed != head => {
                found.wrong(
                    place,
                    format!("its forks need its records up to {needed}; it has them up to {head}"),
                );
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Counts the blobs that large records of a log are in. Those that cannot be read were told with their records.
    fn count_spilled(&mut self, session: SessionId) -> Result<(), StoreError> {
        let (prefix, mut spilled) = (keys::log(session), Vec::new());
        self.table.visit(prefix.clone(), &keys::end_of(&prefix), &mut |_, frame| {
            spilled.extend(frame::spilled(frame));
            Ok(true)
        })?;
        for Spilled { tenant, blob } in spilled {
            let named = (tenant, blob);
            if !self.blobs.contains(&named) && self.source.blobs.get(&named.0, &named.1).is_ok() {
                self.report.blobs += 1;
                self.blobs.insert(named);
            }
        }
        Ok(())
    }

    fn blob(
        &mut self,
        tenant: &str,
        place: &str,
        blob: BlobRef,
        found: &mut Found,
    ) -> Result<(), StoreError> {
        let named = (tenant.to_owned(), blob);
        if self.blobs.contains(&named) {
            return Ok(());
        }
        match self.source.blobs.get(tenant, &named.1) {
            Ok(_) => {
                self.report.blobs += 1;
                self.blobs.insert(named);
            }
            Err(error @ StoreError::Blob { .. }) => found.wrong(place, format!("it names {error}")),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// One that is not there was removed to make room.
    fn image(
        &mut self,
        tenant: &str,
        place: &str,
        image: BlobRef,
        found: &mut Found,
    ) -> Result<(), StoreError> {
        let named = (tenant.to_owned(), image);
        if self.images.contains(&named) {
            return Ok(());
        }
        match self.source.blobs.get_image(tenant, &named.1) {
            Ok(Some(_)) => {
                self.report.blobs += 1;
                self.images.insert(named);
            }
            Ok(None) => {}
            Err(error @ StoreError::Blob { .. }) => found.wrong(place, format!("it names {error}")),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The attachments that a record names.
fn attachments(record: &Record) -> impl Iterator<Item = &BlobRef> {
    let (parts, attachments) = match record {
        Record::PromptAdmitted(admitted) => (&admitted.parts[..], &[][..]),
        Record::CallSettled { result, .. } => (&[][..], &result.attachments[..]),
        _ => (&[][..], &[][..]),
    };
    let files = parts.iter().filter_map(|part| match part {
        Part::File { file, .. } => Some(file),
        _ => None,
    });
    files.chain(attachments).map(|attachment| &attachment.blob)
}

/// The contents of files before and after changes that a record names.
fn images(record: &Record) -> impl Iterator<Item = &BlobRef> {
    let (before, changes) = match record {
        Record::CallIntended(intended) => (&intended.before[..], &[][..]),
        Record::WorkspaceChanged(changed) => (&[][..], &changed.set.changes[..]),
        Record::Reverted(reverted) => (&[][..], &reverted.set.changes[..]),
        _ => (&[][..], &[][..]),
    };
    let images = changes.iter().flat_map(|file| [&file.before, &file.after]);
    let images = before.iter().map(|file| &file.image).chain(images).flatten();
    images.filter_map(|image| image.content.blob())
}

/// Damage of the table, as a problem. Other errors are none of what is stored.
pub(crate) fn of_damage(error: StoreError) -> Result<StoreProblem, StoreError> {
    match error {
        StoreError::Damaged { what, found } => Ok(StoreProblem { place: what, what: found }),
        error => Err(error),
    }
}

fn unknown(key: &[u8]) -> StoreProblem {
    StoreProblem {
        place: format!("key {}", key.escape_ascii()),
        what: "nothing of this form is known to this engine".to_owned(),
    }
}

impl Check<'_> {
    /// Rows and the feed of the ledger.
    fn ledger(&mut self) -> Result<(), StoreError> {
        let table = self.table;
        let mut rows = 0;
        let mut wrong = Vec::new();
        ledger::check(table, &mut |place: String, what: Option<String>| match what {
            None => rows += 1,
            Some(what) => wrong.push(StoreProblem { place, what }),
        })?;
        self.report.rows = rows;
        self.tell(wrong);
        Ok(())
    }
}
