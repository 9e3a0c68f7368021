//! Makes the new text fit lines of the file that are not exactly those that the edit names.
//!
//! Lines that the old and the new text have in common at their ends are lines that the edit does not change: they stay
//! as they are in the file. The others are indented as the file is: an indentation of the old text stands for that of the
//! file in the same line, and what goes further in goes further by the file's own steps.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use super::lines::{indent, is_blank};

/// How many lines of the old text have their own line in the file: from the front, and from the back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    /// From the front.
    pub(super) head: usize,
    /// From the back.
    pub(super) tail: usize,
}

impl Shared {
    /// Each of so many lines.
    pub(super) fn all(lines: usize) -> Self {
        Self { head: lines, tail: lines }
    }

    /// The lines that belong together: those at the ends, and between them those that are the same, in the same place
    /// of as many lines or only once on both sides.
    pub(super) fn pairs(self, file: &[&[u8]], wanted: &[&[u8]]) -> Pairs {
        let most = wanted.len().min(file.len());
        let head = self.head.min(most);
        let tail = self.tail.min(most - head);
        let mut each: Vec<Pair> = (0..head).map(|at| Pair::whole(at, at)).collect();
        let (inner, end) = (head..wanted.len() - tail, file.len() - tail);
        if !inner.is_empty() && head < end {
            let there = once(file[head..end].iter().map(|line| line.trim_ascii()));
            let own = once(wanted[inner.clone()].iter().map(|line| line.trim_ascii()));
            let as_many = wanted.len() == file.len();
            for at in inner {
                let line = wanted[at].trim_ascii();
                if as_many && file[at].trim_ascii() == line {
                    each.push(Pair::whole(at, at));
                } else if let (Some(Some(_)), Some(Some(found)), false) =
                    (own.get(line), there.get(line), line.is_empty())
                {
                    each.push(Pair::whole(at, head + found));
                }
            }
        }
        each.extend((0..tail).rev().map(|at| Pair::whole(wanted.len() - 1 - at, file.len() - 1 - at)));
        Pairs { each, inline: false }
    }
}

/// Which lines of the old text are which of the file.
#[derive(Debug)]
pub(super) struct Pairs {
    /// Ascending by the lines of the old text.
    pub(super) each: Vec<Pair>,
    /// Whether the place begins within a line, so that the first lines have no indentation of their own.
    pub(super) inline: bool,
}

/// A line of the old text and one of the file that begin with the same word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    /// The line of the old text, from 0.
    pub(super) wanted: usize,
    /// The line of the file, from 0 at the place.
    pub(super) file: usize,
    /// Whether they end with the same word, too.
    pub(super) whole: bool,
}

impl Pair {
    fn whole(wanted: usize, file: usize) -> Self {
        Self { wanted, file, whole: true }
    }
}

/// Where each of the `lines` is; `None` for one that is there more than once.
fn once<'a>(lines: impl Iterator<Item = &'a [u8]>) -> BTreeMap<&'a [u8], Option<usize>> {
    let mut places = BTreeMap::new();
    for (at, line) in lines.enumerate() {
        places.entry(line).and_modify(|place| *place = None).or_insert(Some(at));
    }
    places
}

/// The lines that are put in the place of those of the `file`, joined; `None` when it is not clear how to indent them.
pub(super) fn fit(file: &[&[u8]], wanted: &[&[u8]], new: &[&[u8]], pairs: &Pairs) -> Option<Vec<u8>> {
    let indents = Indents::of(file, wanted, pairs)?;
    let most = new.len().min(wanted.len()).min(file.len());
    let front = pairs.each.iter().enumerate().take(most);
    let head = front
        .take_while(|(at, pair)| {
            pair.whole && (pair.wanted, pair.file) == (*at, *at) && wanted[*at] == new[*at]
        })
        .count();
    let back = pairs.each.iter().rev().enumerate().take(most - head);
    let tail = back
        .take_while(|(at, pair)| {
            let last = (pair.wanted + at + 1, pair.file + at + 1) == (wanted.len(), file.len());
            pair.whole && last && wanted[pair.wanted] == new[new.len() - 1 - at]
        })
        .count();

    let inner = head..new.len() - tail;
    let kept = kept(wanted, new, pairs, inner.clone());
    let mut made = Vec::new();
    for (index, line) in new.iter().enumerate() {
        if index > 0 {
            made.push(b'\n');
        }
        if index < head {
            made.extend_from_slice(file[index]);
        } else if index >= inner.end {
            made.extend_from_slice(file[file.len() - (new.len() - index)]);
        } else if is_blank(line) || (index == 0 && pairs.inline) {
            made.extend_from_slice(line);
        } else if let Some(same) = kept.get(&index) {
            made.extend_from_slice(file[*same]);
        } else {
            made.extend_from_slice(&indents.translated(indent(line)));
            made.extend_from_slice(line.trim_ascii_start());
        }
    }
    Some(made)
}

/// Which of the new lines in `inner` are lines that the edit leaves alone, and which lines of the file those are.
fn kept(wanted: &[&[u8]], new: &[&[u8]], pairs: &Pairs, inner: Range<usize>) -> BTreeMap<usize, usize> {
    let mut kept = BTreeMap::new();
    if inner.is_empty() || pairs.each.len() + inner.len() <= new.len() {
        return kept;
    }
    let (own, ours) = (once(wanted.iter().copied()), once(new.iter().copied()));
    let whole = pairs.each.iter().filter(|pair| pair.whole && !(pairs.inline && pair.wanted == 0));
    for pair in whole {
        let line = wanted[pair.wanted];
        if let (Some(Some(_)), Some(Some(at))) = (own.get(line), ours.get(line)) {
            kept.insert(*at, pair.file);
        }
    }
    kept
}

/// What the indentations of the old text are in the file.
struct Indents<'a> {
    known: BTreeMap<&'a [u8], &'a [u8]>,
    /// One step further in: in the old text, and in the file.
    step: Option<(&'a [u8], &'a [u8])>,
    /// Whether the file is indented with tabs only.
    tabs: bool,
    /// Whether each stands for itself.
    same: bool,
}

impl<'a> Indents<'a> {
    /// `None` when the lines do not agree: a line that the old text has in one block is in another one in the file.
    fn of(file: &[&'a [u8]], wanted: &[&'a [u8]], pairs: &Pairs) -> Option<Self> {
        let mut known: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
        for pair in &pairs.each {
            let (old, line) = (wanted[pair.wanted], file[pair.file]);
            if is_blank(old) || is_blank(line) || (pairs.inline && pair.wanted == 0) {
                continue;
            }
            if *known.entry(indent(old)).or_insert(indent(line)) != indent(line) {
                return None;
            }
        }
        let clear: Vec<(&[u8], &[u8])> = known.iter().map(|(old, file)| (*old, *file)).collect();
        // What is further in must not be further out there.
        if clear.windows(2).any(|pair| pair[1].0.starts_with(pair[0].0) && !pair[1].1.starts_with(pair[0].1))
        {
            return None;
        }
        let tabs = clear.iter().all(|(_, file)| file.iter().all(|byte| *byte == b'\t'))
            && clear.iter().any(|(_, file)| !file.is_empty());
        let same = known.iter().all(|(old, file)| file == old);
        Some(Self { step: step(&clear), tabs, same, known })
    }

    /// The file's indentation for one of the new text.
    fn translated(&self, new: &[u8]) -> Vec<u8> {
        if self.same {
            return new.to_vec();
        }
        if let Some((old, file)) = self.longest_beginning(new) {
            let mut made = file.to_vec();
            made.extend(self.deeper(&new[old.len()..]));
            return made;
        }
        // Further out than every line that is known: as far out from the outermost of them in the file.
        match self.known.iter().find(|(old, _)| old.starts_with(new)) {
            Some((old, file)) => {
                let less = self.deeper(&old[new.len()..]).len();
                file[..file.len().saturating_sub(less)].to_vec()
            }
            None => new.to_vec(),
        }
    }

    /// The longest known indentation that `new` begins with.
    fn longest_beginning(&self, new: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
        let mut most = new;
        loop {
            let (old, file) =
                self.known.range::<[u8], _>((Bound::Unbounded, Bound::Included(most))).next_back()?;
            let common = old.iter().zip(most).take_while(|(old, new)| old == new).count();
            if common == old.len() {
                return Some((*old, *file));
            }
            most = &most[..common];
        }
    }

    /// `rest`, which goes beyond a known indentation, by the steps of the file.
    fn deeper(&self, mut rest: &[u8]) -> Vec<u8> {
        let guessed = || {
            let spaces = self.tabs && rest.iter().all(|byte| *byte == b' ');
            // Without a step to go by, four or two spaces are what a tab usually stands for.
            spaces
                .then(|| {
                    [&b"    "[..], b"  "].into_iter().find(|width| rest.len().is_multiple_of(width.len()))
                })
                .flatten()
        };
        let Some((old, file)) = self.step.or_else(|| guessed().map(|width| (width, &b"\t"[..]))) else {
            return rest.to_vec();
        };
        let mut made = Vec::new();
        while let Some(more) = rest.strip_prefix(old) {
            made.extend_from_slice(file);
            rest = more;
        }
        made.extend_from_slice(rest);
        made
    }
}

/// The smallest step between known indentations, or that which a single one suggests.
fn step<'a>(known: &[(&'a [u8], &'a [u8])]) -> Option<(&'a [u8], &'a [u8])> {
    let between = known.windows(2).filter_map(|pair| {
        let old = pair[1].0.strip_prefix(pair[0].0)?;
        let file = pair[1].1.strip_prefix(pair[0].1)?;
        (!old.is_empty() && !file.is_empty()).then_some((old, file))
    });
    between.min_by_key(|(old, _)| old.len()).or_else(|| {
        // Four spaces for a tab, or the other way round: what one unit of the coarser side is.
        known.iter().find_map(|(old, file)| {
            let of = |text: &[u8], byte| !text.is_empty() && text.iter().all(|each| *each == byte);
            let (old_len, file_len) = (old.len(), file.len());
            if of(old, b' ') && of(file, b'\t') && old_len % file_len == 0 {
                Some((&old[..old_len / file_len], &file[..1]))
            } else if of(old, b'\t') && of(file, b' ') && file_len % old_len == 0 {
                Some((&old[..1], &file[..file_len / old_len]))
            } else {
                None
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(file: &str, wanted: &str, new: &str) -> Option<String> {
        let lines = |text: &'static str| text.split('\n').map(str::as_bytes).collect::<Vec<_>>();
        let leak = |text: &str| lines(String::from(text).leak());
        let (file, wanted, new) = (leak(file), leak(wanted), leak(new));
        fit(&file, &wanted, &new, &Shared::all(file.len()).pairs(&file, &wanted))
            .map(|made| String::from_utf8(made).unwrap())
    }

    #[test]
    fn what_is_not_indented_enough_is_moved_in() {
        let made =
            fitted("    if x:\n        y()", "if x:\n    y()", "if z:\n    for a in b:\n        y()\n\nw()");
        assert_eq!(made.unwrap(), "    if z:\n        for a in b:\n            y()\n\n    w()");
    }

    #[test]
    fn what_is_indented_too_far_is_moved_out() {
        let made = fitted("if x {\n    y()", "        if x {\n            y()", "    z();\n        w();");
        assert_eq!(made.unwrap(), "z();\nw();");
        let made = fitted("    y()", "        y()", "        z()\n    }");
        assert_eq!(made.unwrap(), "    z()\n}");
    }

    #[test]
    fn spaces_become_tabs_and_tabs_become_spaces() {
        let made = fitted(
            "\tif x {\n\t\ty()",
            "    if x {\n        y()",
            "    if x {\n        if z {\n            y()",
        );
        assert_eq!(made.unwrap(), "\tif x {\n\t\tif z {\n\t\t\ty()");
        assert_eq!(fitted("  x", "\tx", "\t\ty\n\tx").unwrap(), "    y\n  x");
        assert_eq!(fitted("\tx", "x", "y {\n    x").unwrap(), "\ty {\n\t\tx");
        assert_eq!(fitted("\t\tx", "    x", "    y {\n      x").unwrap(), "\t\ty {\n\t\t\tx");
    }

    #[test]
    fn lines_that_do_not_change_stay_as_they_are_in_the_file() {
        let made = fitted("a  \nb\t\nc ;\nd", "a\nb\nc;\nd", "a\nB\nc;\nd").unwrap();
        assert_eq!(made, "a  \nB\nc ;\nd");
    }

    #[test]
    fn an_indentation_that_stands_for_two_is_not_guessed() {
        assert_eq!(fitted("  a\n    b", "a\nb", "c"), None);
        assert_eq!(fitted("  a\n    b", "a\nb", "a\nb\nc"), None);
        assert_eq!(fitted("  a\n  b\n    c", "a\nb\nc", "d"), None);
        assert_eq!(fitted("    a\nb", "a\n  b", "a\n  c"), None, "further in, and yet further out");
    }

    #[test]
    fn a_line_in_the_middle_that_does_not_change_stays_as_it_is_in_the_file() {
        assert_eq!(fitted("a\nb  ;\nc", "a\nb;\nc", "A\nb;\nC").unwrap(), "A\nb  ;\nC");
        assert_eq!(fitted("a\nb  ;\nc", "a\nb;\nc", "A\nb;\nb;\nC").unwrap(), "A\nb;\nb;\nC", "there twice");
    }

    #[test]
    fn lines_are_paired_in_the_middle_only_where_they_are_the_same() {
        let file = [&b"a"[..], b"  b", b"  x", b"    c", b"d"];
        let wanted = [&b"a"[..], b"b", b"y", b"c", b"z", b"d"];
        let pairs = Shared { head: 1, tail: 1 }.pairs(&file, &wanted);
        let pairs: Vec<_> = pairs.each.iter().map(|pair| (pair.wanted, pair.file)).collect();
        assert_eq!(pairs, [(0, 0), (1, 1), (3, 3), (5, 4)]);
        let pairs = Shared { head: 1, tail: 0 }.pairs(&[b"a", b"x", b" x", b"b"], &[b"a", b"x", b"x", b"c"]);
        assert_eq!(pairs.each.len(), 3, "as many lines");
    }
}
