//! Where the hunks of a file belong.

use std::iter;
use std::ops::Range;

use super::super::effort::{Effort, Exhausted};
use super::super::seek::{Found, Pass, fits, line_at, lines_before, seek};
use super::super::{Hunk, Sign};
use super::{Stop, misfit};

/// Where a hunk belongs.
#[derive(Debug)]
pub(super) struct Place {
    /// The lines that it keeps and removes; empty where it only adds.
    pub(super) range: Range<usize>,
    /// How its lines were compared.
    pub(super) pass: Pass,
    /// How many of its lines count.
    pub(super) lines: usize,
    /// Whether it comes after everything else.
    pub(super) appends: bool,
    /// Where the first of its lines was found: that of its first `@@`, else its own.
    first: usize,
    /// Another place behind it where it fits as well.
    pub(super) also: Option<usize>,
}

/// Why a hunk has no place: what was not found, and behind which place it was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The line of one of its `@@`, by its index.
    Context(usize, usize),
    /// Its own lines.
    Lines(usize),
}

/// Bytes that may be compared to find out whether hunks of a file have other places as well.
const SPARE: u64 = 100_000_000;

/// Finds hunks, one after the other.
pub(super) struct Locator<'a> {
    text: &'a [u8],
    effort: &'a Effort<'a>,
    /// For what is only told, and may remain unknown.
    spare: Effort<'a>,
    /// Behind the last hunk.
    at: usize,
    /// The `@@` lines of the last hunk.
    entered: &'a [String],
}

impl<'a> Locator<'a> {
    pub(super) fn new(text: &'a [u8], effort: &'a Effort<'a>) -> Self {
        Self { text, effort, spare: effort.spare(SPARE), at: 0, entered: &[] }
    }

    /// The place of the next hunk, the one with this `number`.
    pub(super) fn locate(&mut self, number: usize, hunk: &'a Hunk) -> Result<Place, Stop> {
        let shared = hunk.contexts.iter().zip(self.entered).take_while(|(new, old)| new == old).count();
        let search = Search { text: self.text, effort: self.effort };
        let mut skip = 0;
        let mut place = search.below(hunk, skip, self.at)?;
        if place.is_err() && shared > 0 {
            // The hunk before it stands below the same lines, and so may this one.
            skip = shared;
            place = search.below(hunk, skip, self.at)?;
        }
        match place {
            Ok(mut place) => {
                place.also = self.another(hunk, skip, &place)?;
                if !place.appends {
                    self.at = place.range.end;
                }
                self.entered = &hunk.contexts;
                Ok(place)
            }
            Err(missing) => {
                let refused = misfit::Refused { text: self.text, last: self.at, number, hunk };
                Err(Stop::Misfit(refused.explain(missing, self.effort)?))
            }
        }
    }

    /// Where `hunk` fits behind `place`, which was found with its first `skip` `@@` lines passed, and no more loosely.
    fn another(&self, hunk: &Hunk, skip: usize, place: &Place) -> Result<Option<usize>, Exhausted> {
        let Some((_, behind)) = line_at(self.text, place.first).filter(|_| !place.appends && !hunk.at_end)
        else {
            return Ok(None);
        };
        match (Search { text: self.text, effort: &self.spare }).below(hunk, skip, behind) {
            Ok(Ok(other)) if other.pass as u8 <= place.pass as u8 && !other.appends => {
                Ok(Some(other.range.start))
            }
            Err(Exhausted::Cancelled) => Err(Exhausted::Cancelled),
            Ok(_) | Err(Exhausted::TooMuch) => Ok(None),
        }
    }
}

/// A search for one hunk.
struct Search<'a> {
    text: &'a [u8],
    effort: &'a Effort<'a>,
}

impl Search<'_> {
    /// The place of `hunk` at or behind `from`, with the first `skip` of its `@@` lines passed already.
    fn below(&self, hunk: &Hunk, skip: usize, from: usize) -> Result<Result<Place, Missing>, Exhausted> {
        let mut at = from;
        let (mut first, mut last) = (None, None);
        let mut pass = Pass::Exact;
        for (index, context) in hunk.contexts.iter().enumerate().skip(skip) {
            let Some(found) = seek(self.text, &[context.as_bytes()], at, self.effort)? else {
                return Ok(Err(Missing::Context(index, at)));
            };
            at = found.range.end;
            pass = looser(pass, found.pass);
            first = first.or(Some(found.range.start));
            last = Some(found.range.start);
        }
        let all = hunk.lines.len();
        let shorter = all - empty_at_end(hunk);
        for lines in iter::once(all).chain((shorter < all).then_some(shorter)) {
            let wanted = expected(hunk, lines);
            if wanted.is_empty() {
                let appends = hunk.at_end || hunk.contexts.is_empty();
                let first = first.unwrap_or(at);
                return Ok(Ok(Place { range: at..at, pass, lines, appends, first, also: None }));
            }
            if let Some(found) = self.find(hunk, &wanted, at, last)? {
                let (range, pass) = (found.range, looser(pass, found.pass));
                let first = first.unwrap_or(range.start);
                return Ok(Ok(Place { range, pass, lines, appends: false, first, also: None }));
            }
        }
        Ok(Err(Missing::Lines(at)))
    }

    /// The lines `wanted` of `hunk`, from `at` on. `context` is where the line of its last `@@` begins.
    fn find(
        &self,
        hunk: &Hunk,
        wanted: &[&[u8]],
        at: usize,
        context: Option<usize>,
    ) -> Result<Option<Found>, Exhausted> {
        if hunk.at_end {
            return self.at_end(wanted, at);
        }
        match (seek(self.text, wanted, at, self.effort)?, context) {
            // The line of the `@@` is often written again as the first line of the hunk.
            (None, Some(context)) => fits(self.text, wanted, context, self.effort),
            (found, _) => Ok(found),
        }
    }

    fn at_end(&self, wanted: &[&[u8]], from: usize) -> Result<Option<Found>, Exhausted> {
        match lines_before(self.text, self.text.len(), wanted.len()) {
            Some(start) if start >= from => fits(self.text, wanted, start, self.effort),
            _ => Ok(None),
        }
    }
}

/// The lines that must be in the file, of the first `count` lines of `hunk`.
pub(super) fn expected(hunk: &Hunk, count: usize) -> Vec<&[u8]> {
    let there = hunk.lines[..count].iter().filter(|line| line.sign != Sign::Added);
    there.map(|line| line.text.as_bytes()).collect()
}

/// Empty lines that a hunk keeps at its end: often the end of the file, taken for a line of it.
fn empty_at_end(hunk: &Hunk) -> usize {
    let empty = |line: &&super::Line| line.sign == Sign::Kept && line.text.trim().is_empty();
    hunk.lines.iter().rev().take_while(empty).count()
}

fn looser(one: Pass, other: Pass) -> Pass {
    if (one as u8) < (other as u8) { other } else { one }
}
