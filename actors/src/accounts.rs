//! What the ledger says of turns, sessions and tenants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use playhouse_protocol::ledger::{
    ArchivePage, ArchiveQuery, RowPage, RowQuery, TreeUsage, UsagePage, UsageQuery, UsageSum,
};
use playhouse_protocol::{CommandError, Day, LedgerRow, MessageId, SessionId, Timestamp};
use playhouse_store::{Ledger, StoreError};

use crate::engine::Engine;
use crate::shared::now;

/// How many rows are read at once.
const PAGE: usize = 1_000;

impl Engine {
    /// Sums of what was used, by groups.
    ///
    /// # Errors
    /// The store failed.
    pub async fn usage_by(&self, query: UsageQuery) -> Result<UsagePage, CommandError> {
        self.ledger(move |ledger| ledger.usage(&query)).await
    }

    /// A page of rows of the ledger.
    ///
    /// # Errors
    /// The store failed.
    pub async fn rows(&self, query: RowQuery) -> Result<RowPage, CommandError> {
        self.ledger(move |ledger| ledger.rows(&query)).await
    }

    /// What a turn used: its steps, and the sub-sessions that its calls started. Nothing for a turn without rows.
    ///
    /// # Errors
    /// There is no such session, or the store failed.
    pub async fn turn_usage(&self, session: SessionId, turn: MessageId) -> Result<TreeUsage, CommandError> {
        self.tree(session, Some(turn)).await
    }

    /// What a session and those below it used.
    ///
    /// # Errors
    /// There is no such session, or the store failed.
    pub async fn tree_usage(&self, session: SessionId) -> Result<TreeUsage, CommandError> {
        self.tree(session, None).await
    }

    async fn tree(&self, session: SessionId, turn: Option<MessageId>) -> Result<TreeUsage, CommandError> {
        let summary = self.summary(session).await?;
        let root = summary.root.unwrap_or(session);
        self.ledger(move |ledger| {
            let mut rows = Rows::default();
            let mut query = RowQuery { root: Some(root), limit: PAGE, ..RowQuery::default() };
            loop {
                let page = ledger.rows(&query)?;
                page.rows.iter().for_each(|row| rows.add(row));
                match page.next {
                    Some(next) => query.after = Some(next),
                    None => return Ok(rows.below(session, turn)),
                }
            }
        })
        .await
    }

    /// What a tenant used on this day (UTC) up to now, and the time that is now.
    ///
    /// # Errors
    /// The store failed.
    pub async fn used_today(&self, tenant: &str) -> Result<(UsageSum, Timestamp), CommandError> {
        let now = now();
        let query = UsageQuery {
            tenant: Some(tenant.to_owned()),
            from: Some(Day::of(now).start()),
            to: Some(Day::of(now).next().start()),
            ..UsageQuery::default()
        };
        let page = self.usage_by(query).await?;
        Ok((page.groups.first().map(|group| group.sum).unwrap_or_default(), now))
    }

    /// A page of what of the ledger may be written away.
    ///
    /// # Errors
    /// The time is not over yet, or the store failed.
    pub async fn archivable(&self, query: ArchiveQuery) -> Result<ArchivePage, CommandError> {
        check_past(query.before)?;
        self.ledger(move |ledger| ledger.archivable(&query)).await
    }

    /// Removes rows of the ledger that were written away; how many. Sums stay.
    ///
    /// # Errors
    /// The time is not over yet, or the store failed.
    pub async fn archive(&self, before: Timestamp, numbers: Vec<u64>) -> Result<u64, CommandError> {
        check_past(before)?;
        self.ledger(move |ledger| ledger.archive(before, &numbers)).await
    }

    async fn ledger<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn Ledger) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, CommandError> {
        let ledger = Arc::clone(&self.shared.store.ledger);
        let answer = self.shared.pool.run(move || ask(&*ledger)).await;
        answer.map_err(|error| CommandError::Store(error.to_string()))
    }
}

fn check_past(before: Timestamp) -> Result<(), CommandError> {
    if before > now() {
        return Err(CommandError::Invalid(
            "only what is past can be written away: name an earlier day".into(),
        ));
    }
    Ok(())
}

/// The rows of a tree of sessions, added up as far as they need not be told apart.
#[derive(Debug, Default)]
struct Rows {
    sums: BTreeMap<(SessionId, MessageId, String), UsageSum>,
    /// The steps of each turn of each session.
    steps: BTreeMap<(SessionId, MessageId), BTreeSet<MessageId>>,
    /// The steps that started sessions.
    parents: BTreeMap<SessionId, MessageId>,
}

impl Rows {
    fn add(&mut self, row: &LedgerRow) {
        let model = format!("{}/{}", row.provider, row.model);
        *self.sums.entry((row.session, row.turn, model)).or_default() += UsageSum::of(row);
        self.steps.entry((row.session, row.turn)).or_default().insert(row.step);
        self.parents.extend(row.parent_step.map(|step| (row.session, step)));
    }

    /// What one turn used, or all turns of a session, with the sessions that their steps started.
    fn below(&self, session: SessionId, turn: Option<MessageId>) -> TreeUsage {
        let is_own =
            |of: SessionId, in_turn: MessageId| of == session && turn.is_none_or(|turn| turn == in_turn);
        let steps_of = |wanted: &dyn Fn(SessionId, MessageId) -> bool| {
            let wanted = self.steps.iter().filter(|((of, turn), _)| wanted(*of, *turn));
            wanted.flat_map(|(_, steps)| steps.iter().copied()).collect::<Vec<_>>()
        };
        let (mut steps, mut below) = (BTreeSet::new(), BTreeSet::new());
        let mut new = steps_of(&is_own);
        while !new.is_empty() {
            steps.extend(new);
            let started: Vec<SessionId> = self
                .parents
                .iter()
                .filter(|(child, step)| {
                    steps.contains(*step) && **child != session && !below.contains(*child)
                })
                .map(|(child, _)| *child)
                .collect();
            new = steps_of(&|of, _| started.contains(&of));
            below.extend(started);
        }
        let mut usage = TreeUsage::default();
        let mut used = BTreeSet::new();
        for ((of, in_turn, model), sum) in &self.sums {
            if is_own(*of, *in_turn) {
                usage.own += *sum;
            } else if below.contains(of) {
                used.insert(*of);
            } else {
                continue;
            }
            usage.sum += *sum;
            *usage.models.entry(model.clone()).or_default() += *sum;
        }
        usage.sub_sessions = used.len() as u64;
        usage
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::IdGenerator;
    use playhouse_protocol::usage::{Tokens, Totals};

    use super::*;

    #[test]
    fn a_turn_has_what_its_steps_started_and_no_more() {
        let mut ids = IdGenerator::new(|bytes| bytes.fill(3));
        let at = Timestamp::from_millis(1);
        let [top, child, below, other]: [SessionId; 4] = std::array::from_fn(|_| ids.next(at));
        let [first, second, turn]: [MessageId; 3] = std::array::from_fn(|_| ids.next(at));
        let [a, b, c, d]: [MessageId; 4] = std::array::from_fn(|_| ids.next(at));
        let mut rows = Rows::default();
        // Sessions with their turn, a step of it, the step that started them, and tokens.
        for (session, turn, step, parent, input) in [
            (top, first, a, None, 1),
            (top, second, b, None, 10),
            (child, turn, c, Some(a), 100),
            (below, turn, d, Some(c), 1_000),
            (other, turn, turn, Some(b), 10_000),
        ] {
            let tokens = Tokens { input, ..Tokens::default() };
            let totals = Totals { tokens, attempts: 1, ..Totals::default() };
            rows.sums.insert((session, turn, "p/m".into()), UsageSum { totals, unreconciled: 0 });
            rows.steps.entry((session, turn)).or_default().insert(step);
            rows.parents.extend(parent.map(|step| (session, step)));
        }
        let used = |session, turn| {
            let usage = rows.below(session, turn);
            assert_eq!(usage.models.get("p/m").copied().unwrap_or_default(), usage.sum);
            (usage.own.totals.tokens.input, usage.sum.totals.tokens.input, usage.sub_sessions)
        };
        assert_eq!(used(top, Some(first)), (1, 1_101, 2));
        assert_eq!(used(top, Some(second)), (10, 10_010, 1));
        assert_eq!(used(top, None), (11, 11_111, 3));
        assert_eq!(used(child, None), (100, 1_100, 1));
        assert_eq!(used(other, Some(first)), (0, 0, 0));
    }
}
