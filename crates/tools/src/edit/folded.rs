//! A text in a simpler form, and the way back to the bytes that it was made from.

/// A text that is made byte by byte from another one.
#[derive(Debug, Default)]
pub(super) struct Folded {
    /// The text.
    pub(super) text: Vec<u8>,
    /// Places from which on the original is further on, and by how much.
    jumps: Vec<(u32, u32)>,
    extra: u32,
}

impl Folded {
    /// Adds a byte that stands for so many of the original.
    pub(super) fn push(&mut self, byte: u8, taken: usize) {
        self.text.push(byte);
        if taken > 1 {
            self.extra += u32::try_from(taken - 1).unwrap_or(u32::MAX);
            self.jumps.push((u32::try_from(self.text.len()).unwrap_or(u32::MAX), self.extra));
        }
    }

    /// Where the byte at `at` begins in the original, which is where the one before it ends.
    pub(super) fn original(&self, at: usize) -> usize {
        let after = self.jumps.partition_point(|(place, _)| *place as usize <= at);
        let extra = after.checked_sub(1).map_or(0, |last| self.jumps[last].1);
        at + extra as usize
    }
}
