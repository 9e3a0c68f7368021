//! What a backend has to be: an ordered table with atomic batches.
//!
//! Everything else (frames, projections, the order of writes) is built on this once, for all backends.

use std::collections::BTreeMap;

use crate::StoreError;

/// Keys with their new values; `None` removes. Applied as a whole or not at all.
pub(crate) type Batch = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A key and its value.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// What is called with each pair, and says whether to go on.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<bool, StoreError> + 'a;

/// An ordered table. Many threads read it; only the writer's thread applies batches.
pub(crate) trait Table: Send + Sync {
    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// The first pairs whose keys are at least `from` and below `to`, in order: at most `limit` of them, and no more once
    /// they have `bytes` bytes. At least one, where there is one and the limit is not 0.
    fn page(&self, from: &[u8], to: &[u8], limit: usize, bytes: usize) -> Result<Vec<Pair>, StoreError>;

    /// The first `limit` pairs whose keys are at least `from` and below `to`, in order.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        self.page(from, to, limit, usize::MAX)
    }

    /// Calls `each` with every key that is at least `from` and below `to`, in order, and its value, until it returns false.
    /// What is changed meanwhile may be seen or not. Nothing is held while `each` runs, so it may use the table.
    fn visit(&self, from: Vec<u8>, to: &[u8], each: &mut Visit<'_>) -> Result<(), StoreError> {
        let mut from = from;
        loop {
            let page = self.page(&from, to, PAGE, PAGE_BYTES)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            let next = crate::keys::after(last);
            for (key, value) in &page {
                if !each(key, value)? {
                    return Ok(());
                }
            }
            from = next;
        }
    }

    /// Whether a copy of a whole table takes up less where its keys are there, without values, before its values come.
    fn wants_keys_first(&self) -> bool {
        false
    }

    /// Whether the backend can still be read after a write that failed: some refuse everything from then on.
    fn can_be_read(&self) -> bool {
        self.get(crate::keys::REOPENED).is_ok()
    }

    /// The last key that is at least `from` and below `to`.
    fn last_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Makes a batch visible to readers. It is durable after the next [`Table::flush`].
    fn apply(&self, batch: Batch) -> Result<(), StoreError>;

    /// Makes everything durable that was applied before. A failure leaves open what is durable.
    fn flush(&self) -> Result<(), StoreError>;

    /// The same for a table that is being filled, and that nobody needs before it is whole.
    fn flush_filled(&self) -> Result<(), StoreError> {
        self.flush()
    }

    /// It is about to be removed: nothing more need be written of it.
    fn discard(&self) {}

    /// Whether what is written is still found where it was opened; see [`crate::Log::check_place`].
    fn check_place(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Closes the database and opens it again in place: for after a failed write or flush, of which nobody knows what is
    /// durable. What was flushed is there, what was applied later may be there or not. Readers wait meanwhile. Where it
    /// cannot be opened everything fails, and this may be tried again.
    fn reopen(&self) -> Result<(), StoreError>;
}

/// How many pairs, and about how many bytes, a long scan reads at once.
const PAGE: usize = 256;
const PAGE_BYTES: usize = 256 * 1024;

/// Takes pairs in order until there are `limit` of them, or they have `bytes` bytes.
pub(crate) fn take<E>(
    pairs: impl Iterator<Item = Result<Pair, E>>,
    limit: usize,
    bytes: usize,
) -> Result<Vec<Pair>, E> {
    let (mut taken, mut size) = (Vec::with_capacity(limit.min(PAGE)), 0_usize);
    for pair in pairs.take(limit) {
        let (key, value) = pair?;
        size = size.saturating_add(key.len() + value.len());
        taken.push((key, value));
        if size >= bytes {
            break;
        }
    }
    Ok(taken)
}

/// Calls `each` with every pair that is at least `from` and below `to`, in order, until it returns false.
pub(crate) fn for_each(
    table: &dyn Table,
    from: Vec<u8>,
    to: &[u8],
    mut each: impl FnMut(Pair) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    table.visit(from, to, &mut |key, value| each((key.to_vec(), value.to_vec())))
}
