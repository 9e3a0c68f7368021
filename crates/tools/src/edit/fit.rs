//! Makes the new text fit lines of the file that are not exactly those that the edit names.
//!
//! Lines that the old and the new text have in common at their ends are lines that the edit does not change: they stay
//! as they are in the file. The others are indented as the file is: an indentation of the old text stands for that of the
//! file in the same line, and what goes further in goes further by the file's own steps.

use std::collections::BTreeMap;
use std::ops::Bound;

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
}

/// The lines that are put in the place of those of the `file`, joined; `None` when it is not clear how to indent them.
pub(super) fn fit(file: &[&[u8]], wanted: &[&[u8]], new: &[&[u8]], shared: Shared) -> Option<Vec<u8>> {
    let most = new.len().min(wanted.len()).min(file.len());
    let head = wanted.iter().zip(new).take(shared.head.min(most)).take_while(|(old, new)| old == new).count();
    let most = (most - head).min(shared.tail);
    let tail =
        wanted.iter().rev().zip(new.iter().rev()).take(most).take_while(|(old, new)| old == new).count();

    let indents = Indents::of(file, wanted, shared);
    let mut made = Vec::new();
    for (index, line) in new.iter().enumerate() {
        if index > 0 {
            made.push(b'\n');
        }
        if index < head {
            made.extend_from_slice(file[index]);
        } else if index >= new.len() - tail {
            made.extend_from_slice(file[file.len() - (new.len() - index)]);
        } else if is_blank(line) {
            made.extend_from_slice(line);
        } else {
            made.extend_from_slice(&indents.translated(indent(line))?);
            made.extend_from_slice(line.trim_ascii_start());
        }
    }
    Some(made)
}

/// What the indentations of the old text are in the file.
struct Indents<'a> {
    /// `None` where one stands for several.
    known: BTreeMap<&'a [u8], Option<&'a [u8]>>,
    /// One step further in: in the old text, and in the file.
    step: Option<(&'a [u8], &'a [u8])>,
    /// Whether the file is indented with tabs only.
    tabs: bool,
    /// Whether each stands for itself.
    same: bool,
}

impl<'a> Indents<'a> {
    fn of(file: &[&'a [u8]], wanted: &[&'a [u8]], shared: Shared) -> Self {
        let front = wanted.iter().zip(file).take(shared.head);
        let seen = if shared.head >= wanted.len() { 0 } else { shared.tail };
        let back = wanted.iter().rev().zip(file.iter().rev()).take(seen);
        let mut counts: BTreeMap<&[u8], BTreeMap<&[u8], usize>> = BTreeMap::new();
        for (old, line) in front.chain(back).filter(|(old, line)| !is_blank(old) && !is_blank(line)) {
            *counts.entry(indent(old)).or_default().entry(indent(line)).or_default() += 1;
        }
        let known: BTreeMap<_, _> = counts.into_iter().map(|(old, files)| (old, majority(&files))).collect();
        let clear: Vec<(&[u8], &[u8])> =
            known.iter().filter_map(|(old, file)| Some((*old, (*file)?))).collect();
        let tabs = clear.iter().all(|(_, file)| file.iter().all(|byte| *byte == b'\t'))
            && clear.iter().any(|(_, file)| !file.is_empty());
        let same = known.iter().all(|(old, file)| *file == Some(*old));
        Self { step: step(&clear), tabs, same, known }
    }

    /// The file's indentation for one of the new text.
    fn translated(&self, new: &[u8]) -> Option<Vec<u8>> {
        if self.same {
            return Some(new.to_vec());
        }
        if let Some((old, file)) = self.longest_beginning(new) {
            let mut made = (*file)?.to_vec();
            made.extend(self.deeper(&new[old.len()..]));
            return Some(made);
        }
        // Further out than every line that is known: as far out from the outermost of them in the file.
        match self.known.iter().find(|(old, _)| old.starts_with(new)) {
            Some((old, file)) => {
                let file = (*file)?;
                let less = self.deeper(&old[new.len()..]).len();
                Some(file[..file.len().saturating_sub(less)].to_vec())
            }
            None => Some(new.to_vec()),
        }
    }

    /// The longest known indentation that `new` begins with.
    fn longest_beginning(&self, new: &[u8]) -> Option<(&&'a [u8], &Option<&'a [u8]>)> {
        let mut most = new;
        loop {
            let (old, file) =
                self.known.range::<[u8], _>((Bound::Unbounded, Bound::Included(most))).next_back()?;
            let common = old.iter().zip(most).take_while(|(old, new)| old == new).count();
            if common == old.len() {
                return Some((old, file));
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

/// What more than half of the lines say.
fn majority<'a>(files: &BTreeMap<&'a [u8], usize>) -> Option<&'a [u8]> {
    let all: usize = files.values().sum();
    files.iter().find(|(_, count)| **count * 2 > all).map(|(file, _)| *file)
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
        fit(&file, &wanted, &new, Shared::all(file.len())).map(|made| String::from_utf8(made).unwrap())
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
        let made = fitted("a  \n\tb\nc ;\nd", "a\nb\nc;\nd", "a\nB\nc;\nd").unwrap();
        assert_eq!(made, "a  \nB\nc ;\nd");
    }

    #[test]
    fn an_indentation_that_stands_for_two_is_not_guessed() {
        assert_eq!(fitted("  a\n    b", "a\nb", "c"), None);
        assert_eq!(fitted("  a\n    b", "a\nb", "a\nb\nc"), None);
        assert_eq!(fitted("  a\n  b\n    c", "a\nb\nc", "d").unwrap(), "  d");
    }
}
