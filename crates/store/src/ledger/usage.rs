//! Sums by groups: of whole days from running sums, at the edges from rows.

use std::collections::BTreeMap;

use playhouse_protocol::day::DAY;
use playhouse_protocol::ledger::{Grain, GroupBy, UsageGroup, UsageKey, UsagePage, UsageQuery, UsageSum};
use playhouse_protocol::{Day, LedgerRow, SessionId};

use super::read::{each_row, each_row_of_session, each_tenant, page, span};
use super::{Running, VERSION, damaged, keys};
use crate::keys::end_of;
use crate::table::Table;
use crate::{StoreError, value};

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
    table: &'a dyn Table,
    by: &'a [GroupBy],
    spans: Spans,
}

impl Wanted<'_> {
    fn add(&self, groups: &mut Groups, grain: &Grain, session: Option<SessionId>, sum: UsageSum) {
        *groups.entry(UsageKey::new(self.by, grain, session)).or_default() += sum;
    }

    /// Adds up the running sums that stand in a list by day.
    fn days(&self, groups: &mut Groups, list: &[u8], session: Option<SessionId>) -> Result<(), StoreError> {
        let Some((first, last)) = self.spans.days else { return Ok(()) };
        self.table.visit(keys::day(list, first), &keys::day(list, last), &mut |key, stored| {
            let running: Running = value::decode(VERSION, key, stored).ok_or_else(|| damaged("sum", key))?;
            self.add(groups, &running.grain, session, running.sum);
            Ok(true)
        })
    }

    fn row(&self, groups: &mut Groups, row: &LedgerRow) {
        self.add(groups, &row.grain(), Some(row.session), UsageSum::of(row));
    }

    /// Adds up what a tenant used.
    fn tenant(&self, groups: &mut Groups, sums: &[u8]) -> Result<(), StoreError> {
        self.days(groups, sums, None)?;
        let rows = [keys::ROWS, &sums[keys::SUMS.len()..]].concat();
        for edge in &self.spans.edges {
            each_row(self.table, &rows, *edge, None, &mut |row| {
                self.row(groups, &row);
                Ok(true)
            })?;
        }
        Ok(())
    }

    /// Adds up what a session used.
    fn session(&self, groups: &mut Groups, tenant: &[u8], session: SessionId) -> Result<(), StoreError> {
        self.days(groups, &keys::session_sums(tenant, session), Some(session))?;
        for edge in &self.spans.edges {
            each_row_of_session(self.table, session, *edge, None, &mut |row| {
                let of_tenant = || keys::of_tenant(keys::SESSION_SUMS, &row.tenant);
                if row.session == session && of_tenant() == tenant {
                    self.row(groups, &row);
                }
                Ok(true)
            })?;
        }
        Ok(())
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
pub(crate) fn usage(table: &dyn Table, query: &UsageQuery) -> Result<UsagePage, StoreError> {
    let (limit, after) = (page(query.limit, USUAL_GROUPS), query.after.as_ref());
    let wanted = Wanted { table, by: &query.by, spans: Spans::of(span(query.from, query.to)) };
    let mut found = UsagePage::default();
    if !query.by.contains(&GroupBy::Session) {
        let mut groups = Groups::new();
        each_tenant(table, keys::SUMS, query.tenant.as_deref(), None, &mut |sums| {
            wanted.tenant(&mut groups, sums)?;
            Ok(true)
        })?;
        take(&mut found, groups, after, limit);
        return Ok(found);
    }
    let first = after.and_then(|after| after.tenant.as_deref());
    each_tenant(table, keys::SESSION_SUMS, query.tenant.as_deref(), first, &mut |tenant| {
        let is_first = first.is_some_and(|first| keys::of_tenant(keys::SESSION_SUMS, first) == tenant);
        let begin = after.and_then(|after| after.session).filter(|_| is_first);
        let mut from = begin.map_or_else(|| tenant.to_vec(), |session| keys::session_sums(tenant, session));
        while let Some((key, _)) = table.scan(&from, &end_of(tenant), 1)?.into_iter().next() {
            let session = keys::session_of_sum(tenant, &key).ok_or_else(|| damaged("sum", &key))?;
            let mut groups = Groups::new();
            wanted.session(&mut groups, tenant, session)?;
            if !take(&mut found, groups, after, limit) {
                return Ok(false);
            }
            from = end_of(&keys::session_sums(tenant, session));
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
