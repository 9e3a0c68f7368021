//! What a turn, or a session with those below it, used.
//!
//! The ledger has the rows of the whole tree. Once rows were archived, those of a session itself are made again from its log,
//! by the rule that made them the first time; what its sub-sessions used before is not known then, and the answer says so.
//! Corrections are in no log. Those of a session itself are in its sums, which stay; those of one turn are not known once they
//! were archived.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use playhouse_protocol::ledger::{
    GroupBy, RowId, RowQuery, TreeUsage, UsageGroup, UsagePage, UsageQuery, UsageSum,
};
use playhouse_protocol::{
    CommandError, Entry, LedgerRow, MessageId, Record, Seq, SessionId, SessionSummary, Timestamp,
};
use playhouse_store::{Ledger, Log, StoreError};

use crate::api::engine::Engine;

/// How many rows are read at once.
const PAGE: usize = 1_000;

impl Engine {
    /// What a turn used: its steps, and the sub-sessions that its calls started. Nothing for a turn without rows, and for one
    /// that a fork shares: the session that ran it paid for it.
    ///
    /// # Errors
    /// There is no such session, it has no such turn, or the store failed.
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
        let log = Arc::clone(&self.shared.store.log);
        let found = self.ledger(move |ledger| of_tree(ledger, &*log, &summary, turn)).await?;
        match (found, turn) {
            (Some(usage), _) => Ok(usage),
            (None, Some(turn)) => Err(CommandError::NoSuchTurn { session, turn }),
            (None, None) => Err(CommandError::NotFound(session)),
        }
    }
}

/// `None` where there is no such turn, and where the session was removed meanwhile.
fn of_tree(
    ledger: &dyn Ledger,
    log: &dyn Log,
    summary: &SessionSummary,
    turn: Option<MessageId>,
) -> Result<Option<TreeUsage>, StoreError> {
    let (session, mut rows) = (summary.id, Rows::default());
    let mut query =
        RowQuery { root: Some(summary.root.unwrap_or(session)), limit: PAGE, ..RowQuery::default() };
    let mut own: HashSet<RowId> = HashSet::new();
    loop {
        let page = ledger.rows(&query)?;
        for row in &page.rows {
            rows.add(row);
            if row.session == session && row.corrects.is_none() {
                own.insert(row.id.clone());
            }
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    // Asked for after the rows: what was archived between two pages of them is known then.
    let any_archived = ledger.archived_before()?;
    let archived = any_archived.filter(|archived| *archived > summary.created);
    let is_known = turn.is_none_or(|turn| rows.steps.contains_key(&(session, turn)));
    // A row may be older than its session where the clock was ahead when that was made.
    let is_whole = any_archived.is_none() || own.len() as u64 >= summary.totals().attempts;
    if archived.is_none() && is_known && is_whole {
        return Ok(Some(rows.below(session, turn)));
    }
    let entries = match log.read(session, Seq::START, usize::MAX) {
        Ok(read) => read.entries,
        Err(StoreError::Missing(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let began = match turn {
        None => summary.created,
        Some(turn) => match began(&entries, turn) {
            Some(at) => at.max(summary.created),
            // Its record may stand behind one that cannot be trusted.
            None if is_known => summary.created,
            None => return Ok(None),
        },
    };
    for row in rows_of(&entries, session).iter().filter(|row| !own.contains(&row.id)) {
        rows.add(row);
    }
    if turn.is_none() {
        rows.restate(session, ledger.usage(&sums_of(summary))?);
    }
    let archived_before = archived.filter(|archived| *archived > began);
    Ok(Some(TreeUsage { archived_before, ..rows.below(session, turn) }))
}

/// The sums of a session by model.
fn sums_of(summary: &SessionSummary) -> UsageQuery {
    UsageQuery {
        tenant: Some(summary.tenant.clone()),
        session: Some(summary.id),
        by: vec![GroupBy::Model],
        limit: PAGE,
        ..UsageQuery::default()
    }
}

/// When the prompt of a turn was admitted. Nothing where there is no turn of this id: a prompt that a running turn took in, or
/// to which no model answers, makes none.
fn began(entries: &[Entry], turn: MessageId) -> Option<Timestamp> {
    let mut began = None;
    for entry in entries {
        match &entry.record {
            Record::PromptAdmitted(prompt) if prompt.message == turn && !prompt.kind.is_note() => {
                began = Some(entry.at);
            }
            Record::AttemptStarted(started) if started.steered.contains(&turn) => return None,
            _ => {}
        }
    }
    began
}

/// The rows that a session's log makes: what the ledger had, and what was archived of it.
fn rows_of(entries: &[Entry], session: SessionId) -> Vec<LedgerRow> {
    let mut rows = Vec::new();
    let mut summary: Option<SessionSummary> = None;
    for entry in entries {
        let Some(before) = &mut summary else {
            summary = SessionSummary::begin(entry);
            continue;
        };
        if let Record::AttemptEnded(ended) = &entry.record {
            // What stands before the point where a fork left is the other session's.
            rows.extend(
                LedgerRow::of(before, ended, entry.at).into_iter().filter(|row| row.session == session),
            );
        }
        before.apply(entry);
    }
    rows
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

    /// All turns of a session together used this, by model, whatever its rows say.
    fn restate(&mut self, session: SessionId, used: UsagePage) {
        let Some(turn) = self.sums.keys().find(|(of, ..)| *of == session).map(|(_, turn, _)| *turn) else {
            return;
        };
        self.sums.retain(|(of, ..), _| *of != session);
        self.sums.extend(
            used.groups
                .into_iter()
                .filter_map(|UsageGroup { key, sum }| Some(((session, turn, key.model?), sum))),
        );
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
        for sum in [&mut usage.own, &mut usage.sum].into_iter().chain(usage.models.values_mut()) {
            sum.totals.cost = sum.totals.cost.normalized();
        }
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
            rows.sums.insert((session, turn, "p/m".into()), UsageSum { totals, ..UsageSum::default() });
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
