//! Rows of the ledger whose cost is not known: where money is limited, they cost what their model costs now.

use playhouse_protocol::ledger::RowQuery;
use playhouse_protocol::usage::{Cost, Tokens};
use playhouse_protocol::{ModelRef, Timestamp};
use playhouse_store::{Ledger, StoreError};

use crate::directory::Directory;

/// How many rows are read at once.
pub(super) const PAGE: usize = 1_000;

/// What is needed of a row to say what it costs.
#[derive(Debug)]
pub(crate) struct Unpriced {
    model: ModelRef,
    tokens: Tokens,
    served: Vec<String>,
    started: Timestamp,
}

/// The rows that are asked for and have no cost; those that were archived are not among them.
pub(crate) fn unpriced(ledger: &dyn Ledger, mut query: RowQuery) -> Result<Vec<Unpriced>, StoreError> {
    query.limit = PAGE;
    let mut found = Vec::new();
    loop {
        let page = ledger.rows(&query)?;
        let rows = page.rows.into_iter().filter(|row| row.cost.is_none());
        found.extend(rows.map(|row| Unpriced {
            model: ModelRef::new(&row.provider, &row.model),
            tokens: row.tokens,
            served: row.served,
            started: row.started,
        }));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(found),
        }
    }
}

/// What these rows cost at the prices that hold now.
///
/// # Errors
/// The first model that still has no price.
pub(crate) fn at_current_prices(rows: &[Unpriced], directory: &dyn Directory) -> Result<Cost, ModelRef> {
    rows.iter().try_fold(Cost::ZERO, |mut sum, row| {
        let prices = directory.prices(&row.model).beginning(row.started);
        sum += prices.rate(&row.tokens, &row.served).cost.ok_or_else(|| row.model.clone())?;
        Ok(sum)
    })
}
