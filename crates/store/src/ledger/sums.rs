//! Running sums.

use std::sync::Arc;

use playhouse_protocol::Day;
use playhouse_protocol::ledger::{Grain, UsageSum};
use serde::{Deserialize, Serialize};

use super::lists::List;
use super::read::Reader;
use super::tail::Pending;
use super::{VERSION, keys};
use crate::draft::Draft;
use crate::projection::Source;
use crate::{StoreError, value};

/// A running sum as it is stored: with what it is of, which its key holds in another form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Running {
    pub(super) grain: Grain,
    pub(super) sum: UsageSum,
    /// Of the rows with numbers up to this all are counted, and no others.
    #[serde(default)]
    up_to: u64,
}

impl Running {
    pub(super) fn decode(key: &[u8], stored: &[u8]) -> Option<Self> {
        value::decode(VERSION, key, stored)
    }

    /// Counts those of the rows that are not yet counted. They are of its grain.
    pub(super) fn count(&mut self, rows: &[Arc<Pending>]) {
        for row in rows.iter().filter(|row| row.number > self.up_to) {
            self.sum += row.sum;
        }
    }
}

/// Stages that the sum at `key` counts these rows: all of it that have numbers up to `end` and may not be counted yet.
pub(super) fn add(
    source: &Source,
    draft: &mut Draft<'_>,
    key: Vec<u8>,
    rows: &[Arc<Pending>],
    end: u64,
) -> Result<(), StoreError> {
    let Some(first) = rows.first() else { return Ok(()) };
    let running = match draft.get(&key)? {
        None => None,
        Some(stored) => match Running::decode(&key, &stored) {
            Some(running) => Some(running),
            None => {
                tracing::error!(key = %key.escape_ascii(), "a sum of the ledger is damaged and is made again from the rows that are there");
                let of_session = key != keys::sum(&first.grain);
                let sum = again(source, first, of_session, end)?;
                Some(Running { grain: first.grain.clone(), sum, up_to: end })
            }
        },
    };
    let grain = || first.grain.clone();
    let mut running =
        running.unwrap_or_else(|| Running { grain: grain(), sum: UsageSum::default(), up_to: 0 });
    running.count(rows);
    running.up_to = running.up_to.max(end);
    let stored = value::encode(VERSION, &key, &running)?;
    draft.put(key, stored);
    Ok(())
}

/// Stages that the cost of a row is known that is counted as one without a cost.
pub(super) fn priced(draft: &mut Draft<'_>, row: &Pending) -> Result<(), StoreError> {
    for key in [keys::sum(&row.grain), keys::session_sum(&row.grain, row.session)] {
        let Some(mut running) = draft.get(&key)?.and_then(|stored| Running::decode(&key, &stored)) else {
            continue;
        };
        let unpriced = &mut running.sum.totals.unpriced;
        *unpriced = unpriced.saturating_sub(1);
        let stored = value::encode(VERSION, &key, &running)?;
        draft.put(key, stored);
    }
    Ok(())
}

/// The sum that `one` is counted by, over the rows up to the number `end` that are there.
fn again(source: &Source, one: &Pending, of_session: bool, end: u64) -> Result<UsageSum, StoreError> {
    let grain: &Grain = &one.grain;
    let day = Day(grain.day);
    let span = (day.start().as_millis(), day.next().start().as_millis());
    let list = List::of_tenant(&grain.tenant);
    let mut sum = UsageSum::default();
    let reader = Reader::of_tenant(source, Some(&grain.tenant));
    let added = reader.each_row(&list, span, None, &mut |number, row| {
        if number <= end && row.grain() == *grain && (!of_session || row.session == one.session) {
            sum += UsageSum::of(&row);
        }
        Ok(true)
    });
    match added {
        // The writer has to go on.
        Err(error @ StoreError::Damaged { .. }) => {
            tracing::error!(%error, "a sum of the ledger that is made again counts less than there was");
        }
        added => added?,
    }
    Ok(sum)
}
