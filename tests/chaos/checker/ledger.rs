//! The ledger, held against the journal of the model.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use mock_llm::{Entry, Outcome};
use playhouse::protocol::LedgerRow;
use playhouse::protocol::ledger::RowQuery;
use playhouse::protocol::record::AttemptOutcome;
use playhouse::protocol::usage::Quality;
use playhouse::store::Store;

use super::logs::Logs;
use crate::model::Failure;
use crate::stage::Stage;

/// Every request is one row, and every row one request.
pub(super) fn check(stage: &Stage, store: &Store, logs: &Logs) -> Result<(), Failure> {
    let rows = rows(store)?;
    let counters = &stage.world.counters;
    counters.rows.store(rows.len() as u64, Ordering::Relaxed);
    check_sums(stage, &rows)?;
    let mut of_attempt: BTreeMap<String, &LedgerRow> = BTreeMap::new();
    for row in &rows {
        if of_attempt.insert(row.attempt.to_string(), row).is_some() {
            return Err(Failure::of(row.session.as_str(), "one row an attempt", format!("{row:?}")));
        }
    }
    let entries = stage.mock.journal().entries();
    counters.attempts.store(entries.len() as u64, Ordering::Relaxed);
    let mut asked: BTreeMap<String, &Entry> = BTreeMap::new();
    for entry in &entries {
        let Some(attempt) = entry.attempt.clone() else {
            return Err(Failure::new("every request names its attempt", format!("{entry:?}")));
        };
        check_entry(entry, of_attempt.get(&attempt).copied(), logs.outcomes.get(&attempt))?;
        if asked.insert(attempt, entry).is_some() {
            return Err(Failure::new("no attempt is sent twice", format!("{entry:?}")));
        }
    }
    for row in &rows {
        let attempt = row.attempt.to_string();
        let outcome = logs.outcomes.get(&attempt);
        // An engine that was killed may have had no time to send it. Of a session that is gone nobody knows.
        let may_be_unsent = matches!(outcome, None | Some(AttemptOutcome::Lost | AttemptOutcome::Aborted));
        let is_known = outcome.is_some() || !logs.sessions.contains_key(row.session.as_str());
        if !is_known || (!asked.contains_key(&attempt) && !may_be_unsent) {
            let expected = "every row is one of a request that the model got";
            return Err(Failure::of(row.session.as_str(), expected, format!("{outcome:?} {row:?}")));
        }
    }
    Ok(())
}

fn rows(store: &Store) -> Result<Vec<LedgerRow>, Failure> {
    let (mut query, mut rows) = (RowQuery { limit: 10_000, ..RowQuery::default() }, Vec::new());
    loop {
        let page = store.ledger.rows(&query);
        let page = page.map_err(|error| Failure::new("the ledger can be read", error.to_string()))?;
        rows.extend(page.rows);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(rows),
        }
    }
}

/// The server counts as many rows as there are.
fn check_sums(stage: &Stage, rows: &[LedgerRow]) -> Result<(), Failure> {
    let counted = stage.world.usage.lock().unwrap();
    for (tenant, counted) in stage.world.tenants.iter().zip(&*counted) {
        let found = rows.iter().filter(|row| row.tenant == tenant.name).count() as u64;
        if found != *counted {
            let expected = format!("{found} rows of {} in the sums, as in the ledger", tenant.name);
            return Err(Failure::new(expected, counted.to_string()));
        }
    }
    Ok(())
}

/// What a request is in the ledger. `outcome` is `None` where the session is gone.
fn check_entry(
    entry: &Entry,
    row: Option<&LedgerRow>,
    outcome: Option<&AttemptOutcome>,
) -> Result<(), Failure> {
    let failure = |expected: &str| {
        let seen = format!("{outcome:?} {row:?} for {entry:?}");
        let session = row.map(|row| row.session.to_string());
        Err(Failure { session, ..Failure::new(expected, seen) })
    };
    let is_finished = outcome == Some(&AttemptOutcome::Finished);
    let was_worked_on = entry.status == 200;
    let Some(row) = row else {
        // A refusal costs nothing, if it was read.
        return match was_worked_on {
            true => failure("a request that was answered is in the ledger"),
            false => Ok(()),
        };
    };
    let is_whole = entry.outcome == Outcome::Complete && was_worked_on;
    if is_finished && !(is_whole && row.quality == Quality::Reported) {
        return failure("an attempt that finished was answered in full, and is billed as reported");
    }
    match (row.quality, entry.reported) {
        (Quality::Estimated, _) => Ok(()),
        (_, Some(reported)) if reported == row.tokens => Ok(()),
        _ => failure("what is billed as reported is what was reported"),
    }
}
