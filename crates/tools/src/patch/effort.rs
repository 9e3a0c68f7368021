//! A bound for the work of a search.

use std::cell::Cell;

/// Bytes that may be compared in one call. Hunks that fit exactly cost each byte of a file once, so only thousands of
/// hunks that all fit loosely, in a file of many megabytes, come to it.
const MOST: u64 = 2_000_000_000;

/// Why a search ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exhausted {
    /// Nobody wants its result any more.
    Cancelled,
    /// It would take too long.
    TooMuch,
}

/// How much work may still be done, and whether anyone still wants it.
pub(crate) struct Effort<'a> {
    left: Cell<u64>,
    cancelled: &'a dyn Fn() -> bool,
}

impl<'a> Effort<'a> {
    /// The effort of one call, for as long as `cancelled` says no.
    pub(crate) fn new(cancelled: &'a dyn Fn() -> bool) -> Self {
        Self::limited(MOST, cancelled)
    }

    /// The same with another limit, in bytes.
    pub(crate) fn limited(bytes: u64, cancelled: &'a dyn Fn() -> bool) -> Self {
        Self { left: Cell::new(bytes), cancelled }
    }

    /// Another effort, for what may be left undone.
    pub(crate) fn spare(&self, bytes: u64) -> Self {
        Self::limited(bytes, self.cancelled)
    }

    /// Accounts for `bytes` that were compared.
    pub(crate) fn spend(&self, bytes: usize) -> Result<(), Exhausted> {
        let left = self.left.get().checked_sub(bytes as u64).ok_or(Exhausted::TooMuch)?;
        self.left.set(left);
        if (self.cancelled)() { Err(Exhausted::Cancelled) } else { Ok(()) }
    }
}
