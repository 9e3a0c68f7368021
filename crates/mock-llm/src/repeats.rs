//! Requests that come again.

use std::collections::{HashMap, VecDeque};

/// How often the requests came that meet a fault a few times only.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    counts: HashMap<u64, u32>,
    /// Their hashes, oldest first.
    order: VecDeque<u64>,
}

/// Requests whose repetitions are counted; older ones count as new.
const REPEATS: usize = 65_536;

impl Repeats {
    /// Counts a request, and says how often it came before.
    pub(crate) fn count(&mut self, request: u64) -> u32 {
        let count = self.counts.entry(request).or_insert_with(|| {
            self.order.push_back(request);
            0
        });
        let before = *count;
        *count = count.saturating_add(1);
        if self.order.len() > REPEATS
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_counted_by_request_and_bounded() {
        let mut repeats = Repeats::default();
        assert_eq!((repeats.count(1), repeats.count(1), repeats.count(2)), (0, 1, 0));
        for request in 10..10 + REPEATS as u64 {
            repeats.count(request);
        }
        assert_eq!(repeats.counts.len(), REPEATS);
        assert_eq!(repeats.count(1), 0);
    }
}
