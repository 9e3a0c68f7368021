//! Unified diffs of one file, as clients and models read them.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use memchr::{memchr, memchr_iter, memrchr};
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline, group_diff_ops};

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// How long the search for the shortest diff may take before a longer one will do.
const PATIENCE: Duration = Duration::from_millis(200);

/// A diff line longer than this many characters is cut.
const LINE: usize = 500;

/// The difference between two states of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Diff {
    /// `---`, `+++`, and hunks; empty where nothing differs.
    pub(crate) text: String,
    /// Lines that are only in the new state.
    pub(crate) additions: usize,
    /// Lines that are only in the old state.
    pub(crate) deletions: usize,
}

impl Diff {
    /// The text up to about `limit` bytes, whole lines, with a note of what is left out.
    pub(crate) fn capped(&self, limit: usize) -> String {
        self.capped_with_lines(limit, usize::MAX)
    }

    /// The same up to so many `lines`, too. For outputs, which are limited in both: one that is cut there says where the
    /// whole of it is, and must not be cut before.
    pub(crate) fn capped_with_lines(&self, limit: usize, lines: usize) -> String {
        let text = self.text.as_bytes();
        let mut end = text.len();
        if end > limit {
            end = memrchr(b'\n', &text[..limit]).map_or(0, |at| at + 1);
        }
        end = match lines.checked_sub(1) {
            Some(most) => memchr_iter(b'\n', &text[..end]).nth(most).map_or(end, |at| at + 1),
            None => 0,
        };
        if end == text.len() {
            return self.text.clone();
        }
        let left = memchr_iter(b'\n', &text[end..]).count();
        format!("{}(diff cut: {left} more lines)\n", &self.text[..end])
    }
}

/// The difference between `old` (`None`: no file yet) and `new` of the file that is shown as `path`.
pub(crate) fn unified(path: &str, old: Option<&[u8]>, new: &[u8]) -> Diff {
    let before = old.unwrap_or_default();
    if before == new {
        return Diff::default();
    }
    let window = Window::of(before, new);
    let old_lines = lines(&before[window.start..before.len() - window.tail]);
    let new_lines = lines(&new[window.start..new.len() - window.tail]);
    let deadline = Instant::now() + PATIENCE;
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old_lines, &new_lines, Some(deadline));

    let mut diff = Diff::default();
    match old {
        Some(_) => diff.text = format!("--- a/{path}\n+++ b/{path}\n"),
        None => diff.text = format!("--- /dev/null\n+++ b/{path}\n"),
    }
    for hunk in group_diff_ops(ops, CONTEXT) {
        write_hunk(&mut diff, &hunk, window.line, &old_lines, &new_lines);
    }
    diff
}

/// The part of two texts in which they differ, with some context: what lies around it need not be compared.
struct Window {
    /// Where it begins, in both.
    start: usize,
    /// How many bytes come after it, in both.
    tail: usize,
    /// How many lines come before it, in both.
    line: usize,
}

impl Window {
    fn of(old: &[u8], new: &[u8]) -> Self {
        let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
        let mut start = line_start(old, same);
        for _ in 0..CONTEXT {
            start = line_start(old, start.saturating_sub(1));
        }

        let most = old.len().min(new.len()) - same;
        let tail =
            old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(old, new)| old == new).count();
        let mut end = old.len() - tail;
        for _ in 0..=CONTEXT {
            end = memchr(b'\n', &old[end..]).map_or(old.len(), |at| end + at + 1);
        }
        Self { start, tail: old.len() - end, line: memchr_iter(b'\n', &old[..start]).count() }
    }
}

fn line_start(text: &[u8], at: usize) -> usize {
    memrchr(b'\n', &text[..at]).map_or(0, |end| end + 1)
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

fn write_hunk(diff: &mut Diff, hunk: &[DiffOp], before: usize, old: &[&[u8]], new: &[&[u8]]) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { return };
    let old_span = span(before, first.old_range().start, last.old_range().end);
    let new_span = span(before, first.new_range().start, last.new_range().end);
    let _ = writeln!(diff.text, "@@ -{old_span} +{new_span} @@");
    for op in hunk {
        if let DiffOp::Equal { .. } = op {
            write_lines(&mut diff.text, ' ', &old[op.old_range()]);
        } else {
            diff.deletions += op.old_range().len();
            diff.additions += op.new_range().len();
            write_lines(&mut diff.text, '-', &old[op.old_range()]);
            write_lines(&mut diff.text, '+', &new[op.new_range()]);
        }
    }
}

/// `first,count` as hunk headers have it: an empty span names the line before it, and a count of one is left out.
fn span(before: usize, start: usize, end: usize) -> String {
    match end - start {
        0 => format!("{},0", before + start),
        1 => format!("{}", before + start + 1),
        count => format!("{},{count}", before + start + 1),
    }
}

fn write_lines(text: &mut String, sign: char, lines: &[&[u8]]) {
    for line in lines {
        let (body, ended) = match line.strip_suffix(b"\n") {
            Some(body) => (body.strip_suffix(b"\r").unwrap_or(body), true),
            None => (*line, false),
        };
        text.push(sign);
        // A character has at most four bytes, so what is cut off here is not shown anyway.
        let body = String::from_utf8_lossy(&body[..body.len().min(4 * LINE + 4)]);
        let (shown, cut) = super::document::cut_characters(&body, LINE);
        text.push_str(shown);
        text.push_str(if cut { "…\n" } else { "\n" });
        if !ended {
            text.push_str("\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_change_in_the_middle_has_context_and_line_numbers() {
        let old: String = (1..=20).map(|n| format!("line {n}\n")).collect();
        let new = old.replace("line 10\n", "line ten\nand more\n");
        let diff = unified("a.txt", Some(old.as_bytes()), new.as_bytes());
        insta::assert_snapshot!(diff.text, @r"
        --- a/a.txt
        +++ b/a.txt
        @@ -7,7 +7,8 @@
         line 7
         line 8
         line 9
        -line 10
        +line ten
        +and more
         line 11
         line 12
         line 13
        ");
        assert_eq!((diff.additions, diff.deletions), (2, 1));
    }

    #[test]
    fn changes_far_apart_are_hunks_of_their_own() {
        let old: String = (1..=30).map(|n| format!("{n}\n")).collect();
        let new = old.replace("\n2\n", "\ntwo\n").replace("\n29\n", "\n");
        let diff = unified("a", Some(old.as_bytes()), new.as_bytes());
        let heads: Vec<_> = diff.text.lines().filter(|line| line.starts_with("@@")).collect();
        assert_eq!(heads, ["@@ -1,5 +1,5 @@", "@@ -26,5 +26,4 @@"]);
    }

    #[test]
    fn a_new_file_and_a_missing_last_newline_are_told() {
        let diff = unified("new.txt", None, b"one\ntwo");
        insta::assert_snapshot!(diff.text, @r"
        --- /dev/null
        +++ b/new.txt
        @@ -0,0 +1,2 @@
        +one
        +two
        \ No newline at end of file
        ");
    }

    #[test]
    fn a_long_diff_is_cut_at_a_line_and_says_so() {
        let new: String = (1..=100).map(|n| format!("{n}\n")).collect();
        let diff = unified("a", None, new.as_bytes());
        let capped = diff.capped(60);
        assert!(capped.ends_with("(diff cut: 94 more lines)\n"), "{capped}");
        assert_eq!(diff.additions, 100);
    }

    #[test]
    fn a_diff_of_short_lines_is_cut_by_their_number() {
        let old: String = "a\n".repeat(3_000);
        let diff = unified("a", Some(old.as_bytes()), b"b\n");
        assert!(diff.text.len() < 10_000);
        let capped = diff.capped_with_lines(8_000, 1_000);
        assert_eq!(capped.lines().count(), 1_001, "and the note");
        assert!(capped.ends_with("(diff cut: 2004 more lines)\n"), "{}", &capped[capped.len() - 40..]);
        let few = unified("a", Some(b"a\n"), b"b\n");
        assert_eq!(few.capped_with_lines(8_000, 5), few.text);
        assert_eq!(few.capped_with_lines(8_000, 0), "(diff cut: 5 more lines)\n");
    }

    proptest! {
        /// Applying the hunks to the old lines gives the new ones, whatever changed where.
        #[test]
        fn a_diff_leads_from_old_to_new(old in "([abc]\n){0,30}[abc]?", new in "([abc]\n){0,30}[abc]?") {
            let diff = unified("x", Some(old.as_bytes()), new.as_bytes());
            let old_lines: Vec<&str> = old.split_inclusive('\n').collect();
            let mut made: Vec<String> = Vec::new();
            let mut at = 0;
            for line in diff.text.lines().skip(2) {
                if let Some(head) = line.strip_prefix("@@ -") {
                    let span = head.split(' ').next().unwrap();
                    let (start, count) = span.split_once(',').unwrap_or((span, "1"));
                    let start: usize = start.parse().unwrap();
                    let start = if count == "0" { start } else { start - 1 };
                    made.extend(old_lines[at..start].iter().map(|line| (*line).to_owned()));
                    at = start;
                } else if let Some(body) = line.strip_prefix(' ') {
                    made.push(format!("{body}\n"));
                    at += 1;
                } else if line.starts_with('-') {
                    at += 1;
                } else if let Some(body) = line.strip_prefix('+') {
                    made.push(format!("{body}\n"));
                }
            }
            made.extend(old_lines[at..].iter().map(|line| (*line).to_owned()));
            let made = made.concat();
            prop_assert_eq!(made.trim_end(), new.trim_end());
        }
    }
}
