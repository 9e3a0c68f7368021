//! Rows of the ledger whose cost is not known: where money is limited, they cost what their model costs now.

use std::collections::HashSet;
use std::fmt;

use playhouse_protocol::ledger::{RowId, RowQuery};
use playhouse_protocol::usage::{Cost, Tokens};
use playhouse_protocol::{ModelRef, Timestamp};
use playhouse_store::{Ledger, StoreError};

use super::price_hint;
use crate::directory::Directory;

/// How many rows are read at once.
pub(super) const PAGE: usize = 1_000;

/// The most rows that are priced anew.
const MOST: usize = 100_000;

/// What is needed of a row to say what it costs.
#[derive(Debug)]
pub(crate) struct Unpriced {
    id: RowId,
    model: ModelRef,
    tokens: Tokens,
    calls: Vec<Tokens>,
    served: Vec<String>,
    started: Timestamp,
}

/// The rows that are asked for and have no cost, of which there are `count`, without those that were corrected: the correction
/// has their cost. `None` where not all of them are found, since some
/// were archived, or where they are too many.
pub(crate) fn unpriced(
    ledger: &dyn Ledger,
    mut query: RowQuery,
    count: u64,
) -> Result<Option<Vec<Unpriced>>, StoreError> {
    query.limit = PAGE;
    let (mut found, mut corrected) = (Vec::new(), HashSet::new());
    if count > MOST as u64 {
        return Ok(None);
    }
    loop {
        let page = ledger.rows(&query)?;
        corrected.extend(page.rows.iter().filter_map(|row| row.corrects.clone()));
        let rows = page.rows.into_iter().filter(|row| row.cost.is_none());
        found.extend(rows.map(|row| Unpriced {
            id: row.id,
            model: ModelRef::new(&row.provider, &row.model),
            tokens: row.tokens,
            calls: row.calls,
            served: row.served,
            started: row.started,
        }));
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    if (found.len() as u64) < count {
        return Ok(None);
    }
    found.retain(|row| !corrected.contains(&row.id));
    Ok(Some(found))
}

/// Why it is not known what rows cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnknownCost {
    /// This model still has no price.
    Unpriced(ModelRef),
    /// The rows cannot be read any more, or are too many.
    Archived,
}

impl UnknownCost {
    /// What the operator can do.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Unpriced(model) => price_hint(model),
            Self::Archived => {
                "rows without a cost were archived, or are more than 100000: price models before they are used".to_owned()
            }
        }
    }
}

impl fmt::Display for UnknownCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unpriced(model) => write!(f, "{model} was used and has no price"),
            Self::Archived => f.write_str("models without a price were used"),
        }
    }
}

/// What these rows cost at the prices that hold now.
///
/// # Errors
/// That is not known.
pub(crate) fn at_current_prices(
    rows: Option<&[Unpriced]>,
    directory: &dyn Directory,
) -> Result<Cost, UnknownCost> {
    rows.ok_or(UnknownCost::Archived)?.iter().try_fold(Cost::ZERO, |mut sum, row| {
        let prices = directory.prices(&row.model).beginning(row.started);
        let cost = prices.rate_calls(&row.tokens, &row.calls, &row.served).cost;
        sum += cost.ok_or_else(|| UnknownCost::Unpriced(row.model.clone()))?;
        Ok(sum)
    })
}
