//! What a backend says of the journal before it.

use crate::table::{Batch, Table};
use crate::{StoreError, keys};

/// Its first byte where a journal is in use.
const IN_USE: u8 = 1;

/// What the backend says of the journal.
pub(super) struct Mark {
    pub(super) in_use: bool,
    /// What the entries of the journal are known by.
    pub(super) salt: u64,
    /// All entries up to this one are in the backend.
    pub(super) settled: u64,
    /// The last entry that was durable when this was written.
    pub(super) seen: u64,
}

impl Mark {
    /// `None` where there never was a journal.
    pub(super) fn of(table: &dyn Table) -> Result<Option<Self>, StoreError> {
        let Some(value) = table.get(keys::JOURNAL)? else { return Ok(None) };
        let parse = |value: &[u8]| {
            let (in_use, rest) = value.split_first()?;
            let (salt, rest) = rest.split_first_chunk::<8>()?;
            let (settled, seen) = rest.split_first_chunk::<8>()?;
            Some(Self {
                in_use: *in_use == IN_USE,
                salt: u64::from_be_bytes(*salt),
                settled: u64::from_be_bytes(*settled),
                seen: u64::from_be_bytes(seen.try_into().ok()?),
            })
        };
        let damaged = || StoreError::Damaged {
            what: "the database".to_owned(),
            found: "what it says of its journal is not of this form".to_owned(),
        };
        parse(&value).map(Some).ok_or_else(damaged)
    }

    /// What writes it.
    pub(super) fn batch(&self) -> Batch {
        let numbers = [self.salt, self.settled, self.seen].map(u64::to_be_bytes);
        let value = [&[u8::from(self.in_use) * IN_USE][..], numbers.as_flattened()];
        Batch::from([(keys::JOURNAL.to_vec(), Some(value.concat()))])
    }
}
