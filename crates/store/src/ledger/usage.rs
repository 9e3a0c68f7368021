//! Sums by groups: of whole days from running sums, at the edges from rows.

use std::collections::BTreeMap;
use std::ops::Bound;

use playhouse_protocol::day::DAY;
use playhouse_protocol::ledger::{Grain, GroupBy, UsageGroup, UsageKey, UsagePage, UsageQuery, UsageSum};
use playhouse_protocol::{Day, LedgerRow, SessionId};

use super::lists::List;
use super::read::{Reader, page, span};
use super::sums::Running;
use super::tail::{BySum, by_sum};
use super::{damaged, keys};
use crate::StoreError;
use crate::keys::end_of;
use crate::projection::Source;

/// How many groups a page has when nobody says.
const USUAL_GROUPS: usize = 1_000;

type Groups = BTreeMap<UsageKey, UsageSum>;

/// A range of time as whole days, and what is left of it.
#[derive(Debug, PartialEq)]
struct Spans {
    /// From the first day to before the last.
    days: Option<(Day, Day)>,
    /// In milliseconds, without the end.
    edges: Vec<(u64, u64)>,
}

impl Spans {
    fn of((from, to): (u64, u64)) -> Self {
        let (first, last) = (from.div_ceil(DAY), if to == u64::MAX { u64::MAX } else { to / DAY });
        if first >= last {
            return Self { days: None, edges: Vec::from_iter((from < to).then_some((from, to))) };
        }
        let edges = [(from, first.saturating_mul(DAY)), (last.saturating_mul(DAY), to)];
        let edges = edges.into_iter().filter(|(from, to)| from < to).collect();
        Self { days: Some((Day(first), Day(last))), edges }
    }
}

/// What is wanted, made ready for many sums.
struct Wanted<'a> {
    reader: &'a Reader<'a>,
    /// The rows of the tail by their running sums.
    pending: BySum,
    by: &'a [GroupBy],
    labels: &'a [String],
    spans: Spans,
}

impl Wanted<'_> {
    fn add(&self, groups: &mut Groups, grain: &Grain, session: Option<SessionId>, sum: UsageSum) {
        *groups.entry(UsageKey::new(self.by, self.labels, grain, session)).or_default() += sum;
    }

    /// Adds up the running sums that stand in a list by day, and the rows that they do not count yet.
    fn days(&self, groups: &mut Groups, list: &[u8], session: Option<SessionId>) -> Result<(), StoreError> {
        let Some((first, last)) = self.spans.days else { return Ok(()) };
        let (from, to) = (keys::day(list, first), keys::day(list, last));
        let mut pending: BTreeMap<_, _> = self.pending.range(from.clone()..to.clone()).collect();
        self.reader.table.visit(from, &to, &mut |key, stored| {
            let mut running = Running::decode(key, stored).ok_or_else(|| damaged("sum", key))?;
            if let Some(rows) = pending.remove(&key.to_vec()) {
                running.count(rows);
            }
            self.add(groups, &running.grain, session, running.sum);
            Ok(true)
        })?;
        for row in pending.into_values().flatten() {
            self.add(groups, &row.grain, session, row.sum);
        }
        Ok(())
    }

    fn row(&self, groups: &mut Groups, row: &LedgerRow) {
        self.add(groups, &row.grain(), Some(row.session), UsageSum::of(row));
    }

    /// Adds up what a tenant used.
    fn tenant(&self, groups: &mut Groups, tenant: &str) -> Result<(), StoreError> {
        self.days(groups, &keys::of_tenant(keys::SUMS, tenant), None)?;
        for edge in &self.spans.edges {
            self.reader.each_row(&List::of_tenant(tenant), *edge, None, &mut |_, row| {
                self.row(groups, &row);
                Ok(true)
            })?;
        }
        Ok(())
    }

    /// Adds up what a session used. All keys of sums by session of its tenant begin with `of_tenant`.
    fn session(
        &self,
        groups: &mut Groups,
        tenant: &str,
        of_tenant: &[u8],
        session: SessionId,
    ) -> Result<(), StoreError> {
        self.days(groups, &keys::session_sums(of_tenant, session), Some(session))?;
        for edge in &self.spans.edges {
            self.reader.each_row(&List::of_session(session), *edge, None, &mut |_, row| {
                if row.session == session && row.tenant == tenant {
                    self.row(groups, &row);
                }
                Ok(true)
            })?;
        }
        Ok(())
    }

    /// The first key from `from` to before `to` at which a sum stands, or will.
    fn first_sum(&self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let stored = self.reader.table.scan(from, to, 1)?.into_iter().next().map(|(key, _)| key);
        let pending = self
            .pending
            .range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)))
            .next()
            .map(|(key, _)| key.clone());
        Ok([stored, pending].into_iter().flatten().min())
    }
}

/// Adds the groups behind `after` to the page; whether there is room for more.
fn take(page: &mut UsagePage, groups: Groups, after: Option<&UsageKey>, limit: usize) -> bool {
    for (key, sum) in groups {
        if after.is_some_and(|after| key <= *after) {
            continue;
        }
        if page.groups.len() == limit {
            page.next = page.groups.last().map(|group| group.key.clone());
            return false;
        }
        page.groups.push(UsageGroup { key, sum });
    }
    true
}

/// See [`super::Ledger::usage`].
pub(crate) fn usage(source: &Source, query: &UsageQuery) -> Result<UsagePage, StoreError> {
    let (limit, after) = (page(query.limit, USUAL_GROUPS), query.after.as_ref());
    let reader = Reader::of_tenant(source, query.tenant.as_deref());
    let pending = by_sum(&reader.pending);
    let spans = Spans::of(span(query.from, query.to));
    let wanted = Wanted { reader: &reader, pending, by: &query.by, labels: &query.labels, spans };
    let mut found = UsagePage::default();
    if let Some(session) = query.session {
        let mut groups = Groups::new();
        reader.each_tenant(keys::SESSION_SUMS, query.tenant.as_deref(), None, &mut |tenant| {
            let of_tenant = keys::of_tenant(keys::SESSION_SUMS, tenant);
            wanted.session(&mut groups, tenant, &of_tenant, session)?;
            Ok(true)
        })?;
        take(&mut found, groups, after, limit);
        return Ok(found);
    }
    if !query.by.contains(&GroupBy::Session) {
        let mut groups = Groups::new();
        reader.each_tenant(keys::SUMS, query.tenant.as_deref(), None, &mut |tenant| {
            wanted.tenant(&mut groups, tenant)?;
            Ok(true)
        })?;
        take(&mut found, groups, after, limit);
        return Ok(found);
    }
    let first = after.and_then(|after| after.tenant.as_deref());
    reader.each_tenant(keys::SESSION_SUMS, query.tenant.as_deref(), first, &mut |tenant| {
        let of_tenant = keys::of_tenant(keys::SESSION_SUMS, tenant);
        let begin = after.and_then(|after| after.session).filter(|_| first == Some(tenant));
        let mut from =
            begin.map_or_else(|| of_tenant.clone(), |session| keys::session_sums(&of_tenant, session));
        while let Some(key) = wanted.first_sum(&from, &end_of(&of_tenant))? {
            let session = keys::session_of_sum(&of_tenant, &key).ok_or_else(|| damaged("sum", &key))?;
            let mut groups = Groups::new();
            wanted.session(&mut groups, tenant, &of_tenant, session)?;
            if !take(&mut found, groups, after, limit) {
                return Ok(false);
            }
            from = end_of(&keys::session_sums(&of_tenant, session));
        }
        Ok(true)
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_whole_days_and_their_edges() {
        let days = |first, last| Some((Day(first), Day(last)));
        for (range, expected, edges) in [
            ((0, u64::MAX), days(0, u64::MAX), vec![]),
            ((DAY, 3 * DAY), days(1, 3), vec![]),
            ((1, 3 * DAY + 5), days(1, 3), vec![(1, DAY), (3 * DAY, 3 * DAY + 5)]),
            ((1, DAY + 5), None, vec![(1, DAY + 5)]),
            ((5, 9), None, vec![(5, 9)]),
            ((9, 9), None, vec![]),
            ((9, 5), None, vec![]),
            ((DAY, DAY), None, vec![]),
            ((5, u64::MAX), days(1, u64::MAX), vec![(5, DAY)]),
            ((u64::MAX, u64::MAX), days(u64::MAX / DAY + 1, u64::MAX), vec![]),
        ] {
            assert_eq!(Spans::of(range), Spans { days: expected, edges }, "{range:?}");
        }
    }
}
