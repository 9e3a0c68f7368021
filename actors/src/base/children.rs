//! Counts of what is at work.

use std::sync::Arc;

/// Counts what is at work for sessions, so that a shutdown can tell when it is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Children(Arc<()>);

/// One of them. Dropped with what it holds.
#[derive(Debug)]
pub(crate) struct Child(#[allow(dead_code, reason = "held for its count")] Arc<()>);

impl Children {
    pub(crate) fn enter(&self) -> Child {
        Child(Arc::clone(&self.0))
    }

    pub(crate) fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}
