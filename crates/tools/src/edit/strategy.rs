//! Ways to find in a file what an edit wants to replace, and the order in which they are tried.
//!
//! The strategies that find the same text with other white space or escapes come before those that find a text that is
//! merely like it: so a guess is made only where nothing certain is left. Each is linear in the file.

use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;

use super::block::BlockAnchor;
use super::boundary::TrimmedBoundary;
use super::context::ContextAware;
use super::escape::EscapeNormalised;
use super::exact::Exact;
use super::lines::Lines;
use super::trimmed::{IndentationFlexible, LineTrimmed};
use super::whitespace::WhitespaceNormalised;
use crate::files::seen::LARGEST;

/// Places that are replaced in one call: each takes memory of its own.
pub(super) const MOST: usize = 1_000_000;

/// The strategies, in the order in which they are tried. The first that is sure decides.
pub(super) const STRATEGIES: &[&dyn Strategy] = &[
    &Exact,
    &LineTrimmed,
    &IndentationFlexible,
    &TrimmedBoundary,
    &WhitespaceNormalised,
    &EscapeNormalised,
    &BlockAnchor,
    &ContextAware,
];

/// A way to find the wanted text.
pub(super) trait Strategy: Sync {
    /// Its name in results.
    fn name(&self) -> &'static str;

    /// What it lets differ between the wanted text and that of the file, for the one who reads the result.
    fn difference(&self) -> &'static str;

    /// Looks for the places that are meant.
    fn find(&self, search: &Search<'_>) -> Found;
}

/// What a strategy found.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// Places, ascending, none of them empty. When every occurrence is wanted, none overlaps another.
    Places(Vec<Place>),
    /// One place that is probably not meant, so that it counts only where nothing better is found.
    Doubt {
        /// Its bytes in the text.
        range: Range<usize>,
        /// Why it is not taken, after "which may be meant, but".
        reason: String,
    },
    /// More places than can be told apart with reasonable effort; some of them.
    TooAlike(Vec<Place>),
}

/// A place that is replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its bytes in the text.
    pub(super) range: Range<usize>,
    /// What is put there, where it is not the new text as it was given.
    pub(super) new: Option<Rc<[u8]>>,
}

impl Place {
    /// A place for the new text as it was given.
    pub(super) fn plain(range: Range<usize>) -> Self {
        Self { range, new: None }
    }
}

/// Places as they are found, until their texts are more than a file may have.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    places: Vec<Place>,
    size: u64,
}

impl Gathered {
    /// Takes one more; false when there is no use in more, since what was taken is refused by its size.
    pub(super) fn take(&mut self, place: Place) -> bool {
        self.size += place.new.as_ref().map_or(0, |new| new.len() as u64);
        self.places.push(place);
        self.size <= 2 * LARGEST
    }

    /// What was taken.
    pub(super) fn found(self) -> Found {
        if self.places.is_empty() { Found::Nothing } else { Found::Places(self.places) }
    }
}

/// What is looked for, and where. Every text has `\n` as its only line ending.
pub(super) struct Search<'a> {
    /// The content of the file.
    pub(super) text: &'a [u8],
    /// What is to be replaced. Not empty.
    pub(super) wanted: &'a [u8],
    /// What is put there.
    pub(super) new: &'a [u8],
    /// Whether every occurrence is meant.
    pub(super) all: bool,
    lines: OnceCell<Lines<'a>>,
    wanted_lines: OnceCell<Lines<'a>>,
}

impl<'a> Search<'a> {
    /// A search for `wanted` in `text`.
    pub(super) fn new(text: &'a [u8], wanted: &'a [u8], new: &'a [u8], all: bool) -> Self {
        Self { text, wanted, new, all, lines: OnceCell::new(), wanted_lines: OnceCell::new() }
    }

    /// The same place, with another text to find and to put there.
    pub(super) fn with<'b>(&'b self, wanted: &'b [u8], new: &'b [u8]) -> Search<'b>
    where
        'a: 'b,
    {
        let search = Search::new(self.text, wanted, new, self.all);
        // Made by now, so that it need not be made again.
        let _ = search.lines.set(self.lines().clone());
        search
    }

    /// The lines of the text.
    pub(super) fn lines(&self) -> &Lines<'a> {
        self.lines.get_or_init(|| Lines::of(self.text))
    }

    /// The lines of the wanted text.
    pub(super) fn wanted_lines(&self) -> &Lines<'a> {
        self.wanted_lines.get_or_init(|| Lines::of(self.wanted))
    }
}
