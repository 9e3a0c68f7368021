//! The end of an output, and how far it was read.

use std::collections::VecDeque;

/// Bytes that are remembered of a command that runs.
const MOST: usize = 1024 * 1024;
/// Bytes that are remembered of a command that has ended.
const MOST_ENDED: usize = 128 * 1024;

#[derive(Default)]
pub(super) struct Recent {
    bytes: VecDeque<u8>,
    /// How many came before those.
    forgotten: u64,
    /// Up to where somebody has read.
    read: u64,
}

/// A part of an output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The output.
    pub bytes: Vec<u8>,
    /// So many bytes before it are not remembered any more.
    pub skipped: u64,
}

impl Recent {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.shorten(MOST);
    }

    /// No more comes.
    pub(super) fn finish(&mut self) {
        self.shorten(MOST_ENDED);
        self.bytes.shrink_to_fit();
    }

    fn shorten(&mut self, most: usize) {
        let surplus = self.bytes.len().saturating_sub(most);
        self.bytes.drain(..surplus);
        self.forgotten += surplus as u64;
    }

    /// How many bytes came.
    pub(super) fn total(&self) -> u64 {
        self.forgotten + self.bytes.len() as u64
    }

    /// Whether there is something that nobody has read.
    pub(super) fn has_new(&self) -> bool {
        self.read < self.total()
    }

    /// What came since the last time.
    pub(super) fn read_new(&mut self) -> Reading {
        let from = self.read.max(self.forgotten);
        let reading = self.from(from, from - self.read);
        self.read = self.total();
        reading
    }

    /// All that is remembered.
    pub(super) fn read_all(&mut self) -> Reading {
        self.read = self.total();
        self.from(self.forgotten, self.forgotten)
    }

    fn from(&self, from: u64, skipped: u64) -> Reading {
        let start = usize::try_from(from - self.forgotten).unwrap_or(usize::MAX).min(self.bytes.len());
        Reading { bytes: self.bytes.range(start..).copied().collect(), skipped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_new_once() {
        let mut recent = Recent::default();
        assert!(!recent.has_new());
        recent.push(b"one");
        recent.push(b"two");
        assert!(recent.has_new());
        assert_eq!(recent.read_new(), Reading { bytes: b"onetwo".to_vec(), skipped: 0 });
        assert_eq!(recent.read_new(), Reading::default());
        recent.push(b"three");
        assert_eq!(recent.read_all().bytes, b"onetwothree");
        assert!(!recent.has_new());
        recent.push(b"four");
        assert_eq!(recent.read_new().bytes, b"four");
    }

    #[test]
    fn what_is_forgotten_is_counted() {
        let mut recent = Recent::default();
        recent.push(&vec![b'a'; MOST]);
        recent.read_new();
        recent.push(&vec![b'b'; MOST + 10]);
        let reading = recent.read_new();
        assert_eq!((reading.bytes.len(), reading.skipped), (MOST, 10));
        assert_eq!(recent.read_all().skipped, MOST as u64 + 10);
        recent.finish();
        let reading = recent.read_all();
        assert_eq!(reading.bytes.len(), MOST_ENDED);
        assert_eq!(reading.skipped + MOST_ENDED as u64, recent.total());
    }
}
