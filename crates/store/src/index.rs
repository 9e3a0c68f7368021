//! The index by tenant: which sessions a tenant has, how many they are, and which of them have work.
//!
//! Each session has rows in the lists of its tenant: one in the list of all, one in that of its workspace, and one in
//! that of the session above it, if there is one. A row's value says enough of the session to pass over most that a
//! query does not want without reading their summaries. What it lets pass is still compared with the summary, so a row
//! may say too little, never too much.
//!
//! The index is a projection: its rows are written in the same batch as the records that change them. A store whose
//! last opening did not keep the index (an older engine knew nothing of it) gets it anew when it is opened.

mod held;

use std::collections::BTreeMap;

use memchr::memmem::Finder;
use playhouse_protocol::{SessionId, SessionSummary, Timestamp};
use sha2::{Digest as _, Sha256};

use crate::projection::{Source, is_marked};
use crate::table::{Batch, Table, for_each};
use crate::{Cursor, Kin, ListQuery, StoreError, keys};

pub(crate) use held::Held;

/// Of the rows. Another version makes all of them again. Since 2 sessions with attempts that have no end, and such as are being
/// removed, count as those with work.
const VERSION: u8 = 2;

/// Times of change are kept in steps of this many milliseconds, so that a session at work does not change its rows with
/// each record.
const STEP: u64 = 10 * 60 * 1000;

/// A longer title, in bytes, is not in the row.
const LONGEST_TITLE: usize = 256;

/// How many sessions are indexed with one write when the index is made again.
const SLICE: usize = 1_000;

const HASH: usize = 16;
const FLAGS_AT: usize = size_of::<u64>();
const WORKSPACE_AT: usize = FLAGS_AT + 1;
const TITLE_AT: usize = WORKSPACE_AT + HASH;
const HAS_PARENT: u8 = 1;
const TITLE_IS_LEFT_OUT: u8 = 2;

/// What stands for a name of any length in keys and rows.
type Hash = [u8; HASH];

fn hash(name: &str) -> Hash {
    let mut hash = [0; HASH];
    hash.copy_from_slice(&Sha256::digest(name.as_bytes())[..HASH]);
    hash
}

/// The lists that a tenant has. Their names end in a byte that is never 255, for [`keys::end_of`].
fn list_of_all(tenant: &str) -> Vec<u8> {
    [keys::BY_TENANT, &hash(tenant), b"a"].concat()
}

/// The list of all that a key stands in, if it stands in one.
fn list_of_row(key: &[u8]) -> Option<&[u8]> {
    let end = keys::BY_TENANT.len() + HASH + 1;
    key.get(..end).filter(|list| list.ends_with(b"a") && key.len() > end)
}

fn list_of_workspace(tenant: &str, workspace: &str) -> Vec<u8> {
    [keys::BY_TENANT, &hash(tenant), b"w", &hash(workspace), b"/"].concat()
}

fn list_of_children(tenant: &str, parent: SessionId) -> Vec<u8> {
    [keys::BY_TENANT, &hash(tenant), b"p", parent.as_str().as_bytes(), b"/"].concat()
}

/// All sessions with work of a tenant begin with this.
fn list_of_unfinished(tenant: &str) -> Vec<u8> {
    [keys::BY_TENANT, &hash(tenant), b"u"].concat()
}

/// Where it stands how many sessions the tenant has.
fn count_key(tenant: &str) -> Vec<u8> {
    [keys::BY_TENANT, &hash(tenant), b"n"].concat()
}

fn unfinished_key(summary: &SessionSummary) -> Vec<u8> {
    [list_of_unfinished(&summary.tenant), summary.id.as_str().as_bytes().to_vec()].concat()
}

fn row_keys(summary: &SessionSummary) -> impl Iterator<Item = Vec<u8>> {
    let place = keys::place(&keys::cursor(summary));
    let lists = [
        Some(list_of_all(&summary.tenant)),
        Some(list_of_workspace(&summary.tenant, &summary.workspace)),
        summary.parent.map(|parent| list_of_children(&summary.tenant, parent)),
    ];
    lists.into_iter().flatten().map(move |list| [list, place.clone()].concat())
}

/// The last time, rounded up, at which the session can have changed.
fn latest_change(updated: Timestamp) -> u64 {
    (updated.as_millis() / STEP).saturating_add(1).saturating_mul(STEP)
}

/// The value of a session's rows: the latest change, flags, the workspace's hash, the title in lower case.
fn row(summary: &SessionSummary) -> Vec<u8> {
    let title = summary.title.to_lowercase();
    let is_long = title.len() > LONGEST_TITLE;
    let mut flags = 0;
    if summary.parent.is_some() {
        flags |= HAS_PARENT;
    }
    if is_long {
        flags |= TITLE_IS_LEFT_OUT;
    }
    let mut row = latest_change(summary.updated).to_be_bytes().to_vec();
    row.push(flags);
    row.extend(hash(&summary.workspace));
    if !is_long {
        row.extend(title.as_bytes());
    }
    row
}

/// A query, made ready for many rows and summaries.
pub(crate) struct Wanted<'a> {
    query: &'a ListQuery,
    /// Looks for the text that titles must hold, in lower case. Made once, for it would cost as much as a row.
    title: Option<Finder<'static>>,
    workspace: Option<Hash>,
}

impl<'a> Wanted<'a> {
    pub(crate) fn of(query: &'a ListQuery) -> Self {
        Self {
            query,
            title: query.title.as_ref().map(|title| Finder::new(&title.to_lowercase()).into_owned()),
            workspace: query.workspace.as_deref().map(hash),
        }
    }

    /// The shortest list with all that is wanted. Its keys are this, followed by [`keys::place`].
    pub(crate) fn list(&self) -> Vec<u8> {
        let Some(tenant) = &self.query.tenant else { return keys::CREATED.to_vec() };
        match (self.query.kin, &self.query.workspace) {
            (Some(Kin::ChildrenOf(parent)), _) => list_of_children(tenant, parent),
            (_, Some(workspace)) => list_of_workspace(tenant, workspace),
            (_, None) => list_of_all(tenant),
        }
    }

    /// The tenant all of whose rows have to be looked at.
    pub(crate) fn searched(&self) -> Option<&str> {
        let is_all = self.query.workspace.is_none() && !matches!(self.query.kin, Some(Kin::ChildrenOf(_)));
        self.query.tenant.as_deref().filter(|_| is_all && self.title.is_some())
    }

    /// Whether the session with this row may be wanted. What is not a row of the index says nothing.
    pub(crate) fn may_match(&self, row: &[u8]) -> bool {
        let Some((head, title)) = row.split_at_checked(TITLE_AT) else { return true };
        let (flags, workspace) = (head[FLAGS_AT], &head[WORKSPACE_AT..]);
        let changed = head.first_chunk().map_or(u64::MAX, |number| u64::from_be_bytes(*number));
        self.workspace.is_none_or(|wanted| wanted == workspace)
            && self.query.updated_since.is_none_or(|since| changed >= since.as_millis())
            && (self.query.kin != Some(Kin::Roots) || flags & HAS_PARENT == 0)
            && self
                .title
                .as_ref()
                .is_none_or(|wanted| flags & TITLE_IS_LEFT_OUT != 0 || wanted.find(title).is_some())
    }

    /// Whether the session with this summary is wanted.
    pub(crate) fn matches(&self, summary: &SessionSummary) -> bool {
        let query = self.query;
        query.tenant.as_ref().is_none_or(|tenant| *tenant == summary.tenant)
            && query.workspace.as_ref().is_none_or(|workspace| *workspace == summary.workspace)
            && query.updated_since.is_none_or(|since| summary.updated >= since)
            && query.archived.is_none_or(|archived| summary.archived.is_some() == archived)
            && match query.kin {
                None => true,
                Some(Kin::Roots) => summary.parent.is_none(),
                Some(Kin::ChildrenOf(parent)) => summary.parent == Some(parent),
            }
            && self
                .title
                .as_ref()
                .is_none_or(|wanted| wanted.find(summary.title.to_lowercase().as_bytes()).is_some())
    }
}

/// The sessions with work of one tenant.
pub(crate) fn unfinished_of(table: &dyn Table, tenant: &str) -> Result<Vec<SessionId>, StoreError> {
    let (list, mut sessions) = (list_of_unfinished(tenant), Vec::new());
    for_each(table, list.clone(), &keys::end_of(&list), |(key, _)| {
        sessions.extend(keys::session_at(&key, list.len()));
        Ok(true)
    })?;
    Ok(sessions)
}

/// How many sessions a tenant has.
pub(crate) fn count(table: &dyn Table, tenant: &str) -> Result<u64, StoreError> {
    Ok(read_count(table.get(&count_key(tenant))?.as_deref()))
}

fn read_count(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// Whether a key of the index is the number of a tenant's sessions.
pub(crate) fn is_count(key: &[u8]) -> bool {
    key.len() == keys::BY_TENANT.len() + HASH + 1 && key.ends_with(b"n") && key.starts_with(keys::BY_TENANT)
}

/// The session that a row's key names.
pub(crate) fn session_of(key: &[u8]) -> Option<SessionId> {
    keys::session_at_end(key)
}

/// Of each tenant, how many sessions it is said to have, and how many are in its list.
pub(crate) fn counts(table: &dyn Table) -> Result<Vec<(u64, u64)>, StoreError> {
    let of_tenant = keys::BY_TENANT.len() + HASH;
    let mut counts = BTreeMap::<Vec<u8>, (u64, u64)>::new();
    table.visit(keys::BY_TENANT.to_vec(), &keys::end_of(keys::BY_TENANT), &mut |key, value| {
        let Some((tenant, list)) = key.split_at_checked(of_tenant) else { return Ok(true) };
        match list.first() {
            Some(b'a') => counts.entry(tenant.to_vec()).or_default().1 += 1,
            Some(b'n') => counts.entry(tenant.to_vec()).or_default().0 = read_count(Some(value)),
            _ => {}
        }
        Ok(true)
    })?;
    Ok(counts.into_values().collect())
}

/// Values by key, as a round of the writer sees them: what it staged, else what is in the table.
pub(crate) type Look<'a> = &'a dyn Fn(&[u8]) -> Result<Option<Vec<u8>>, StoreError>;

/// Stages the rows of a session that changed from `before` to `after`. Without `before` none of them is taken to be
/// good.
pub(crate) fn put(
    before: Option<&SessionSummary>,
    after: &SessionSummary,
    look: Look<'_>,
    staged: &mut Batch,
) -> Result<(), StoreError> {
    let is_same = before.is_some_and(|before| {
        before.title == after.title && latest_change(before.updated) == latest_change(after.updated)
    });
    if !is_same {
        let row = row(after);
        staged.extend(row_keys(after).map(|key| (key, Some(row.clone()))));
    }
    let (was_open, is_open) = (before.map(SessionSummary::is_unfinished), after.is_unfinished());
    if was_open != Some(is_open) {
        staged.insert(unfinished_key(after), is_open.then(Vec::new));
        staged.insert(keys::unfinished(after.id), is_open.then(Vec::new));
    }
    // It may have been counted before its summary was lost.
    if before.is_none() && look(&in_list_of_all(after))?.is_none() {
        let key = count_key(&after.tenant);
        let count = read_count(look(&key)?.as_deref()).saturating_add(1);
        staged.insert(key, Some(count.to_be_bytes().to_vec()));
    }
    Ok(())
}

fn in_list_of_all(summary: &SessionSummary) -> Vec<u8> {
    [list_of_all(&summary.tenant), keys::place(&keys::cursor(summary))].concat()
}

/// Stages the removal of a session's rows.
pub(crate) fn remove(summary: &SessionSummary, look: Look<'_>, staged: &mut Batch) -> Result<(), StoreError> {
    if look(&in_list_of_all(summary))?.is_some() {
        let key = count_key(&summary.tenant);
        let count = read_count(look(&key)?.as_deref()).saturating_sub(1);
        staged.insert(key, (count > 0).then(|| count.to_be_bytes().to_vec()));
    }
    staged.extend(row_keys(summary).map(|key| (key, None)));
    staged.insert(unfinished_key(summary), None);
    Ok(())
}

/// Stages the removal of the rows of a session of which nothing is known.
pub(crate) fn remove_unknown(
    table: &dyn Table,
    session: SessionId,
    look: Look<'_>,
    staged: &mut Batch,
) -> Result<(), StoreError> {
    for_each(table, keys::BY_TENANT.to_vec(), &keys::end_of(keys::BY_TENANT), |(key, _)| {
        // A child's list has the id of the session above it too, but not at the end.
        if !key.ends_with(session.as_str().as_bytes()) {
            return Ok(true);
        }
        let of_tenant = keys::BY_TENANT.len() + HASH;
        if key.get(of_tenant) == Some(&b'a') && look(&key)?.is_some() {
            let count_key = [&key[..of_tenant], b"n"].concat();
            let count = read_count(look(&count_key)?.as_deref()).saturating_sub(1);
            staged.insert(count_key, (count > 0).then(|| count.to_be_bytes().to_vec()));
        }
        staged.insert(key, None);
        Ok(true)
    })
}

/// Makes the index good, if it was not kept by the opening before, and marks it as kept by `generation`, the one that
/// opens now. What it writes is durable with the next flush.
pub(crate) fn prepare(source: &Source, generation: u64) -> Result<(), StoreError> {
    let mark = |generation: u64| [&[VERSION][..], &generation.to_be_bytes()].concat();
    let table = &*source.table;
    if generation > 1 && !is_marked(table, keys::INDEX_MARK, generation, mark)? {
        tracing::info!("the index of sessions by tenant is made again");
        clear(table)?;
        rebuild(source)?;
    }
    table.apply(Batch::from([(keys::INDEX_MARK.to_vec(), Some(mark(generation)))]))
}

fn clear(table: &dyn Table) -> Result<(), StoreError> {
    let mut from = keys::BY_TENANT.to_vec();
    loop {
        let rows = table.scan(&from, &keys::end_of(keys::BY_TENANT), SLICE)?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        from = keys::after(last);
        table.apply(rows.into_iter().map(|(key, _)| (key, None)).collect())?;
    }
}

fn rebuild(source: &Source) -> Result<(), StoreError> {
    let mut counts: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut after: Option<Cursor> = None;
    loop {
        let from = match &after {
            Some(cursor) => keys::after(&keys::created(cursor)),
            None => keys::CREATED.to_vec(),
        };
        let listed = source.table.scan(&from, &keys::end_of(keys::CREATED), SLICE)?;
        let Some((last, _)) = listed.last() else { break };
        after = keys::cursor_of_created(last);
        let mut batch = Batch::new();
        for cursor in listed.iter().filter_map(|(key, _)| keys::cursor_of_created(key)) {
            // One whose log is damaged at its first record has no tenant.
            let Some(summary) = source.summary(cursor.session)? else { continue };
            put(None, &summary, &|_| Ok(None), &mut batch)?;
            *counts.entry(count_key(&summary.tenant)).or_default() += 1;
        }
        source.table.apply(batch)?;
        if after.is_none() {
            break;
        }
    }
    source
        .table
        .apply(counts.into_iter().map(|(key, count)| (key, Some(count.to_be_bytes().to_vec()))).collect())
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::summary::SessionState;

    use super::*;

    fn summary(title: &str) -> SessionSummary {
        let summary = serde_json::json!({
            "id": "ses_00000000000012345678901234", "tenant": "acme", "workspace": "/w", "title": title,
            "agent": "build", "model": "mock/demo", "created": 5,
            "updated": 3 * STEP + 1, "state": "idle", "open_turns": 0, "turns": 0, "head": 1,
        });
        serde_json::from_value(summary).unwrap()
    }

    fn may_match(query: &ListQuery, summary: &SessionSummary) -> bool {
        Wanted::of(query).may_match(&row(summary))
    }

    #[test]
    fn a_row_passes_over_what_is_not_wanted_and_never_what_is() {
        let parent = SessionId::parse("ses_00000000000112345678901234").unwrap();
        let child = SessionSummary { parent: Some(parent), ..summary("Büro") };
        let all = ListQuery::default();
        let queries = [
            all.clone(),
            ListQuery { workspace: Some("/w".to_owned()), ..all.clone() },
            ListQuery { workspace: Some("/v".to_owned()), ..all.clone() },
            ListQuery { title: Some("BÜ".to_owned()), ..all.clone() },
            ListQuery { title: Some("haus".to_owned()), ..all.clone() },
            ListQuery { kin: Some(Kin::Roots), ..all.clone() },
            ListQuery { kin: Some(Kin::ChildrenOf(parent)), ..all.clone() },
            ListQuery { updated_since: Some(Timestamp::from_millis(3 * STEP)), ..all.clone() },
            ListQuery { updated_since: Some(Timestamp::from_millis(4 * STEP + 1)), ..all },
        ];
        let passes = queries.each_ref().map(|query| may_match(query, &child));
        assert_eq!(passes, [true, true, false, true, false, false, true, true, false]);
        for query in &queries {
            for summary in [&child, &summary("Haus"), &summary(&"a long haus ".repeat(100))] {
                let is_wanted = Wanted::of(query).matches(summary);
                assert!(!is_wanted || may_match(query, summary), "{query:?} wants {summary:?}");
            }
        }
    }

    #[test]
    fn a_title_that_is_left_out_and_a_row_of_another_form_may_be_anything() {
        let query = ListQuery { title: Some("haus".to_owned()), ..ListQuery::default() };
        assert!(may_match(&query, &summary(&"x".repeat(LONGEST_TITLE + 1))));
        assert!(Wanted::of(&query).may_match(b"nonsense"));
    }

    #[test]
    fn rows_change_with_the_title_the_work_and_the_hour_only() {
        let first = summary("a");
        let changed = |change: fn(&mut SessionSummary)| {
            let (mut after, mut staged) = (first.clone(), Batch::new());
            change(&mut after);
            put(Some(&first), &after, &|_| Ok(None), &mut staged).unwrap();
            staged.len()
        };
        assert_eq!(changed(|after| after.updated = Timestamp::from_millis(3 * STEP + 2)), 0);
        assert_eq!(changed(|after| after.updated = Timestamp::from_millis(4 * STEP)), 2);
        assert_eq!(changed(|after| after.title = "b".to_owned()), 2);
        // In the list of the tenant, and in that of all.
        assert_eq!(changed(|after| after.open_turns = 1), 2);
        assert_eq!(changed(|after| after.state = SessionState::Deleted), 2);
    }
}
