//! The wanted text byte for byte.

use std::ops::Range;

use memchr::memmem;

use super::strategy::{Found, MOST, Place, Search, Strategy};

/// Byte for byte.
pub(super) struct Exact;

impl Strategy for Exact {
    fn name(&self) -> &'static str {
        "exact"
    }

    fn difference(&self) -> &'static str {
        "nothing differs"
    }

    fn find(&self, search: &Search<'_>) -> Found {
        let places = occurrences(search.text, search.wanted, search.all);
        if places.is_empty() {
            return Found::Nothing;
        }
        Found::Places(places.into_iter().map(Place::plain).collect())
    }
}

/// Where `wanted` is in `text`; when not `all` are meant, also a second place that overlaps the first.
pub(super) fn occurrences(text: &[u8], wanted: &[u8], all: bool) -> Vec<Range<usize>> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut places: Vec<Range<usize>> =
        memmem::find_iter(text, wanted).take(MOST + 1).map(|start| start..start + wanted.len()).collect();
    // In `aaa`, `aa` is found once by a scan that does not overlap, and yet it is there twice.
    if let ([only], false) = (&places[..], all) {
        let from = only.start + 1;
        let end = (only.end + wanted.len()).min(text.len());
        if let Some(at) = memmem::find(&text[from..end], wanted) {
            places.push(from + at..from + at + wanted.len());
        }
    }
    places
}
