use proptest::prelude::*;

use super::*;

fn edit(bytes: &[u8], old: &str, new: &str, all: bool) -> Result<Vec<u8>, Refusal> {
    replace(bytes, old, new, all).map(|edited| edited.bytes)
}

fn ambiguous_at(result: Result<Vec<u8>, Refusal>) -> (Vec<usize>, usize) {
    match result {
        Err(Refusal::Ambiguous { lines, count }) => (lines, count),
        other => panic!("must be ambiguous, is {other:?}"),
    }
}

#[test]
fn the_only_occurrence_is_replaced() {
    assert_eq!(edit(b"a\nb\nc\n", "b\n", "B\nB\n", false).unwrap(), b"a\nB\nB\nc\n");
    assert_eq!(edit(b"abc", "b", "", false).unwrap(), b"ac");
    assert_eq!(edit(b"abc", "abc", "x", false).unwrap(), b"x");
}

#[test]
fn several_occurrences_are_told_by_line_and_replaced_only_on_demand() {
    let text = b"x = 1\ny = 1\nz = 1\n";
    assert_eq!(ambiguous_at(edit(text, "= 1", "= 2", false)), (vec![1, 2, 3], 3));
    assert_eq!(edit(text, "= 1", "= 2", true).unwrap(), b"x = 2\ny = 2\nz = 2\n");
    assert_eq!(ambiguous_at(edit(b"aaa", "aa", "b", false)), (vec![1, 1], 2));
    assert_eq!(edit(b"aaa", "aa", "b", true).unwrap(), b"ba");
}

#[test]
fn nothing_in_the_replacement_is_special() {
    for new in ["$&", "\\1", "$1$$", "\\n", "${0}", "%s"] {
        assert_eq!(edit(b"<x>", "x", new, false).unwrap(), format!("<{new}>").into_bytes());
    }
}

#[test]
fn mark_and_line_endings_survive() {
    let text = b"\xEF\xBB\xBFone\r\ntwo\r\nthree\r\n";
    assert_eq!(edit(text, "two\n", "2\nand\n", false).unwrap(), b"\xEF\xBB\xBFone\r\n2\r\nand\r\nthree\r\n");
    assert_eq!(edit(text, "\ntwo", "", false).unwrap(), b"\xEF\xBB\xBFone\r\nthree\r\n");
    assert_eq!(edit(text, "one\r\ntwo", "1", false).unwrap(), b"\xEF\xBB\xBF1\r\nthree\r\n");
    assert_eq!(edit(text, "\u{feff}one", "1", false).unwrap(), b"\xEF\xBB\xBF1\r\ntwo\r\nthree\r\n");
    assert_eq!(edit(b"a\nb\n", "a", "1\r\n2", false).unwrap(), b"1\n2\nb\n");
    assert_eq!(edit(b"a", "a", "1\r\n2", false).unwrap(), b"1\r\n2", "no ending to keep");
}

#[test]
fn a_file_with_mixed_endings_changes_only_where_it_is_edited() {
    let text = b"a\r\nb\nc\r\nd\r\n";
    assert_eq!(edit(text, "b\nc\n", "x\n", false).unwrap(), b"a\r\nx\r\nd\r\n");
    assert_eq!(edit(text, "d", "e", false).unwrap(), b"a\r\nb\nc\r\ne\r\n");
}

#[test]
fn bytes_that_are_not_utf8_survive() {
    assert_eq!(edit(b"gr\xfc\xdfe = 1\n", "= 1", "= 2", false).unwrap(), b"gr\xfc\xdfe = 2\n");
}

#[test]
fn the_lines_of_the_result_are_told() {
    let lines = |text: &str, old: &str, new: &str| {
        let edited = replace(text.as_bytes(), old, new, true).unwrap();
        edited.lines.iter().map(|lines| (lines.start, lines.end)).collect::<Vec<_>>()
    };
    assert_eq!(lines("a\nb\nc\n", "b\n", "1\n2\n3\n"), [(2, 4)]);
    assert_eq!(lines("a\nb\nc\n", "b", "B"), [(2, 2)]);
    assert_eq!(lines("a\nb\nc\n", "b\n", ""), [(2, 2)]);
    assert_eq!(lines("x\nx\nx", "x", "1\n2"), [(1, 2), (3, 4), (5, 6)]);
}

#[test]
fn a_text_that_is_absent_is_refused_with_what_helps() {
    let text = b"fn add(a: i32, b: i32) -> i32 {\n    a - b\n}\n";
    match edit(text, "fn add(a: i64, b: i64) -> i64 {", "x", false).unwrap_err() {
        Refusal::Absent { nearest, hint: None } => {
            assert_eq!(nearest.as_deref(), Some("1\tfn add(a: i32, b: i32) -> i32 {\n"));
        }
        other => panic!("{other:?}"),
    }
    let hint = |old: &str| match edit(text, old, "x", false) {
        Err(Refusal::Absent { hint, .. }) => hint.unwrap(),
        other => panic!("{other:?}"),
    };
    assert!(hint("1\tfn add(a: i32, b: i32) -> i32 {\n2\t    a - b").contains("line numbers"));
    assert!(hint("gr\u{fffd}n").contains("not UTF-8"));
}

#[test]
fn a_result_that_is_too_large_is_refused_before_it_is_made() {
    let refusal = edit(&b"x".repeat(1_000), "x", &"y".repeat(100_000), true).unwrap_err();
    assert_eq!(refusal, Refusal::TooLarge { bytes: 100_000_000 });
}

proptest! {
    #[test]
    fn replacing_is_what_str_replace_does(
        text in "[ab\n ]{0,60}",
        old in "[ab\n ]{1,4}",
        new in "[abc$\\\\\n]{0,6}",
    ) {
        let found = text.matches(&old).count();
        match replace(text.as_bytes(), &old, &new, true) {
            Ok(edited) => {
                prop_assert_eq!(edited.bytes, text.replace(&old, &new).into_bytes());
                prop_assert_eq!(edited.lines.len(), found);
            }
            Err(_) => prop_assert_eq!(found, 0),
        }
        match replace(text.as_bytes(), &old, &new, false) {
            Ok(edited) => {
                prop_assert_eq!(found, 1);
                prop_assert_eq!(edited.bytes, text.replacen(&old, &new, 1).into_bytes());
            }
            Err(Refusal::Absent { .. }) => prop_assert_eq!(found, 0),
            Err(Refusal::Ambiguous { count, .. }) => prop_assert!(count > 1 && found > 0),
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn no_byte_outside_the_place_changes(
        before in prop::collection::vec("a|b|\r\n|\n|\u{fc}", 0..12),
        old in "(x|\n){0,3}x",
        after in prop::collection::vec("a|b|\r\n|\n|\u{fc}", 0..12),
        crlf in any::<bool>(),
        new in "[yz]{0,5}",
    ) {
        let (before, after) = (before.concat(), after.concat());
        let inside = if crlf { old.replace('\n', "\r\n") } else { old.clone() };
        // A line ending at the border could belong to either side.
        let (before, after) = (format!("{before}|"), format!("|{after}"));
        let text = format!("{before}{inside}{after}");
        let made = replace(text.as_bytes(), &format!("|{old}|"), &format!("|{new}|"), false).unwrap();
        prop_assert_eq!(made.bytes, format!("{before}{new}{after}").into_bytes());
    }
}
