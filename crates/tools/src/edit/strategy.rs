//! Ways to find in a file what an edit wants to replace.

use std::ops::Range;

use memchr::memmem;

/// A way to find the wanted text. Both texts have `\n` as their only line ending.
pub(super) trait Strategy: Sync {
    /// Its name in results.
    fn name(&self) -> &'static str;

    /// The places that may be meant, at most `most` of them, ascending, without overlaps, and none of them empty.
    fn find(&self, text: &[u8], wanted: &[u8], most: usize) -> Vec<Range<usize>>;

    /// A second place that overlaps the `only` one that was found, so that it is not clear which is meant.
    fn another(&self, text: &[u8], wanted: &[u8], only: &Range<usize>) -> Option<Range<usize>>;
}

/// The strategies, in the order in which they are tried. The first that finds something decides.
pub(super) const STRATEGIES: &[&dyn Strategy] = &[&Exact];

/// Byte for byte.
struct Exact;

impl Strategy for Exact {
    fn name(&self) -> &'static str {
        "exact"
    }

    fn find(&self, text: &[u8], wanted: &[u8], most: usize) -> Vec<Range<usize>> {
        if wanted.is_empty() {
            return Vec::new();
        }
        memmem::find_iter(text, wanted).take(most).map(|start| start..start + wanted.len()).collect()
    }

    /// In `aaa`, `aa` is found once by a scan that does not overlap, and yet it is there twice.
    fn another(&self, text: &[u8], wanted: &[u8], only: &Range<usize>) -> Option<Range<usize>> {
        let from = only.start + 1;
        let end = (only.end + wanted.len()).min(text.len());
        memmem::find(&text[from..end], wanted).map(|at| from + at..from + at + wanted.len())
    }
}
