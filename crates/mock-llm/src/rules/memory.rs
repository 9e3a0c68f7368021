//! A bounded memory of the answers that had reasoning.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

use super::canonical::hash_of;

/// The most answers, and the most blocks of each verdict, that are remembered; the oldest are forgotten.
const MOST: usize = 1 << 16;

/// A block of an answer, as far as it matters when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// [`Seal::id`](super::seal::Seal::id).
    pub(super) id: u64,
    /// The hash of its text.
    pub(super) text: u64,
}

/// The key of an answer: the model, what stood before it, and its calls, or its text where it has none. `None` for an
/// answer with neither, which cannot be recognised.
pub(super) fn key<'a>(
    model: u64,
    prefix: u64,
    calls: impl IntoIterator<Item = &'a str>,
    text: &str,
) -> Option<u64> {
    let mut calls: Vec<&str> = calls.into_iter().collect();
    calls.sort_unstable();
    let text = if calls.is_empty() { text.trim() } else { "" };
    (!calls.is_empty() || !text.is_empty()).then(|| hash_of(&(model, prefix, calls, text)))
}

/// Answers and their blocks.
#[derive(Debug, Default)]
pub(super) struct Answers {
    blocks: HashMap<u64, Vec<Block>>,
    /// The keys, oldest first.
    order: VecDeque<u64>,
}

impl Answers {
    /// Remembers the blocks of the answer `key`, in place of those that it had.
    pub(super) fn put(&mut self, key: u64, blocks: Vec<Block>) {
        if self.blocks.insert(key, blocks).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.blocks.remove(&oldest);
        }
    }

    /// The blocks of the answer `key`; none for one that is not remembered.
    pub(super) fn get(&self, key: u64) -> &[Block] {
        self.blocks.get(&key).map_or(&[], Vec::as_slice)
    }
}

/// A set that forgets its oldest elements.
#[derive(Debug)]
pub(super) struct Seen<T> {
    set: HashSet<T>,
    order: VecDeque<T>,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self { set: HashSet::new(), order: VecDeque::new() }
    }
}

impl<T: Hash + Eq + Copy> Seen<T> {
    /// Adds an element; returns whether it is new.
    pub(super) fn add(&mut self, element: T) -> bool {
        let is_new = self.set.insert(element);
        if is_new {
            self.order.push_back(element);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded() {
        let mut answers = Answers::default();
        let mut seen = Seen::default();
        for number in 0..=MOST as u64 {
            answers.put(number, vec![Block { id: number, text: 0 }]);
            assert!(seen.add(number));
        }
        assert!(!seen.add(MOST as u64));
        assert_eq!((answers.get(0), answers.get(1).len()), (&[][..], 1));
        assert_eq!((answers.blocks.len(), seen.set.len()), (MOST, MOST));
    }

    #[test]
    fn answers_are_told_apart_by_calls_or_text() {
        assert_eq!(key(1, 2, ["a", "b"], "x"), key(1, 2, ["b", "a"], "y"));
        assert_ne!(key(1, 2, ["a"], ""), key(1, 3, ["a"], ""));
        assert_eq!(key(1, 2, [], " x\n"), key(1, 2, [], "x"));
        assert_eq!(key(1, 2, [], " "), None);
    }
}
