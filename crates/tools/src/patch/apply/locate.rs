//! Where the hunks of a file belong.

use std::iter;
use std::ops::Range;

use super::super::effort::{Effort, Exhausted};
use super::super::seek::{Found, Pass, fits, lines_before, seek};
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
}

/// Why a hunk has no place: what was not found, and behind which place it was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The line of one of its `@@`, by its index.
    Context(usize, usize),
    /// Its own lines.
    Lines(usize),
}

/// Finds hunks, one after the other.
pub(super) struct Locator<'a> {
    text: &'a [u8],
    effort: &'a Effort<'a>,
    /// Behind the last hunk.
    at: usize,
    /// The `@@` lines of the last hunk.
    entered: &'a [String],
}

impl<'a> Locator<'a> {
    pub(super) fn new(text: &'a [u8], effort: &'a Effort<'a>) -> Self {
        Self { text, effort, at: 0, entered: &[] }
    }

    /// The place of the next hunk, the one with this `number`.
    pub(super) fn locate(&mut self, number: usize, hunk: &'a Hunk) -> Result<Place, Stop> {
        let shared = hunk.contexts.iter().zip(self.entered).take_while(|(new, old)| new == old).count();
        let place = match self.below(hunk, 0)? {
            // The hunk before it stands below the same lines, and so may this one.
            Err(_) if shared > 0 => self.below(hunk, shared)?,
            place => place,
        };
        match place {
            Ok(place) => {
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

    /// The place of `hunk` behind the last one, with the first `skip` of its `@@` lines passed already.
    fn below(&self, hunk: &Hunk, skip: usize) -> Result<Result<Place, Missing>, Exhausted> {
        let mut at = self.at;
        let mut last = None;
        let mut pass = Pass::Exact;
        for (index, context) in hunk.contexts.iter().enumerate().skip(skip) {
            let Some(found) = seek(self.text, &[context.as_bytes()], at, self.effort)? else {
                return Ok(Err(Missing::Context(index, at)));
            };
            at = found.range.end;
            pass = looser(pass, found.pass);
            last = Some(found.range.start);
        }
        let all = hunk.lines.len();
        let shorter = all - empty_at_end(hunk);
        for lines in iter::once(all).chain((shorter < all).then_some(shorter)) {
            let wanted = expected(hunk, lines);
            if wanted.is_empty() {
                let appends = hunk.at_end || hunk.contexts.is_empty();
                return Ok(Ok(Place { range: at..at, pass, lines, appends }));
            }
            if let Some(found) = self.find(hunk, &wanted, at, last)? {
                let (range, pass) = (found.range, looser(pass, found.pass));
                return Ok(Ok(Place { range, pass, lines, appends: false }));
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
