//! What a journal holds, in memory: what readers look into before the backend.

use std::sync::Arc;

use crate::table::Batch;

/// Keys in order with what is known of each: a value, or that it is removed.
pub(super) type Known = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// What is not in the backend, or not for sure.
#[derive(Default)]
pub(super) struct Overlay {
    pub(super) young: Batch,
    /// What is being settled.
    pub(super) old: Option<Arc<Batch>>,
}

impl Overlay {
    /// What is known of a key: its value, or that it is removed.
    pub(super) fn get(&self, key: &[u8]) -> Option<&Option<Vec<u8>>> {
        self.young.get(key).or_else(|| self.old.as_ref()?.get(key))
    }

    /// What is known of the keys from `from` to below `to`, in order, up to about `limit` values and `bytes` bytes;
    /// whether that is all.
    pub(super) fn page(&self, from: &[u8], to: &[u8], limit: usize, bytes: usize) -> (Known, bool) {
        let range = from.to_vec()..to.to_vec();
        let mut young = self.young.range(range.clone()).peekable();
        let mut old = self.old.iter().flat_map(|old| old.range(range.clone())).peekable();
        let (mut page, mut values, mut size) = (Vec::new(), 0, 0_usize);
        loop {
            let (key, value) = match (young.peek(), old.peek()) {
                (None, None) => return (page, true),
                (Some((first, _)), Some((second, _))) if first > second => old.next(),
                (None, Some(_)) => old.next(),
                (first, second) => {
                    if first.map(|(key, _)| key) == second.map(|(key, _)| key) {
                        old.next();
                    }
                    young.next()
                }
            }
            .unwrap_or_else(|| unreachable!("one of both has more"));
            if values >= limit || size >= bytes {
                return (page, false);
            }
            if let Some(value) = value {
                values += 1;
                size = size.saturating_add(key.len() + value.len());
            }
            page.push((key.clone(), value.clone()));
        }
    }
    /// The last key from `from` to below `to` of which something is known, and whether it has a value.
    pub(super) fn last_key(&self, from: &[u8], to: &[u8]) -> Option<(Vec<u8>, bool)> {
        let range = from.to_vec()..to.to_vec();
        let young = self.young.range(range.clone()).next_back();
        let old = self.old.as_ref().and_then(|old| old.range(range).next_back());
        let last = match (young, old) {
            (Some(young), Some(old)) if old.0 > young.0 => Some(old),
            (young, old) => young.or(old),
        };
        last.map(|(key, value)| (key.clone(), value.is_some()))
    }
}
