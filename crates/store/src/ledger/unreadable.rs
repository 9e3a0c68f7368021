//! Entries of the feed that cannot be read.
//!
//! They stay where they are: a check names them, and so does the log of the engine, once. Whoever reads the feed passes over them,
//! so that one damaged row keeps no other from those who bill.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use playhouse_protocol::Metric;

use crate::StoreError;

/// So many are remembered; where there are more, they are told again.
const MOST: usize = 10_000;

/// The numbers of those that were told.
#[derive(Default)]
pub(crate) struct Unreadable(Mutex<BTreeSet<u64>>);

impl Unreadable {
    /// What was read, if it could be: else it is told that it could not. Other errors than damage stay.
    pub(super) fn pass<T>(
        &self,
        number: u64,
        key: &[u8],
        read: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let error = match read {
            Err(error @ StoreError::Damaged { .. }) => error,
            read => return read.map(Some),
        };
        let mut told = self.0.lock();
        if told.len() >= MOST {
            told.clear();
        }
        if told.insert(number) {
            metrics::counter!(Metric::LedgerUnreadable.name()).increment(1);
            tracing::error!(
                key = %key.escape_ascii(), %error,
                "an entry of the ledger cannot be read: sinks and archives pass over it, and it stays where it is"
            );
        }
        Ok(None)
    }
}
