use proptest::prelude::*;
// The trait of this name is that of generated values here.
use proptest::strategy::Strategy;

use super::*;

fn edit(bytes: &[u8], old: &str, new: &str, all: bool) -> Result<Vec<u8>, Refusal> {
    replace(bytes, old, new, all).map(|edited| edited.bytes)
}

fn ambiguous_at(result: Result<Vec<u8>, Refusal>) -> (Vec<usize>, usize) {
    match result {
        Err(Refusal::Ambiguous { places, count, .. }) => {
            (places.iter().map(|place| place.first).collect(), count)
        }
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
    assert_eq!(ambiguous_at(edit(b"aaa", "aa", "b", false)), (vec![1], 2));
    assert_eq!(edit(b"aaa", "aa", "b", true).unwrap(), b"ba");
}

#[test]
fn a_line_with_several_occurrences_is_told_once() {
    let text = format!("x\n{}\nx\n{}", "aa ".repeat(50_000), "y aa\n".repeat(30));
    match edit(text.as_bytes(), "aa", "b", false) {
        Err(Refusal::Ambiguous { places, lines, count, .. }) => {
            assert_eq!((lines, count), (31, 50_030));
            assert_eq!(
                places.iter().map(|place| place.first).collect::<Vec<_>>(),
                [2, 4, 5, 6, 7, 8, 9, 10, 11, 12]
            );
        }
        other => panic!("{other:?}"),
    }
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
fn lines_that_an_edit_keeps_keep_their_endings() {
    let text = b"a1\r\na2\r\na3\na4\r\na5\r\na6\r\n";
    let made = |old: &str, new: &str| String::from_utf8(edit(text, old, new, false).unwrap()).unwrap();
    assert_eq!(made("a2\na3\na4", "a2\na3\nA4"), "a1\r\na2\r\na3\nA4\r\na5\r\na6\r\n");
    assert_eq!(made("a2\na3\na4\n", "a2\nnew\na3\na4\n"), "a1\r\na2\r\nnew\r\na3\na4\r\na5\r\na6\r\n");
    assert_eq!(made("a3\na4", "a3\nnew\na4"), "a1\r\na2\r\na3\nnew\na4\r\na5\r\na6\r\n");
    // A line that comes to the end of the place, and the ending of another one stands behind that.
    assert_eq!(made("a3\na4", "a3"), "a1\r\na2\r\na3\na5\r\na6\r\n");
    assert_eq!(made("\na3", "\nA3"), "a1\r\na2\r\nA3\na4\r\na5\r\na6\r\n");
    assert_eq!(made("a1\n", "new\na1\n"), "new\r\na1\r\na2\r\na3\na4\r\na5\r\na6\r\n");
    // Found by other strategies: white space at the ends, and indentation.
    assert_eq!(made("a2 \na3\na4", "a2 \na3\nA4"), "a1\r\na2\r\na3\nA4\r\na5\r\na6\r\n");
    assert_eq!(made("  a2\n  a3\n  a4", "  a2\n  a3\n  A4"), "a1\r\na2\r\na3\nA4\r\na5\r\na6\r\n");
    let all = edit(b"x\r\ny\nz\r\nx\r\ny\nz\r\n", "x\ny\nz", "x\ny\nZ", true).unwrap();
    assert_eq!(all, b"x\r\ny\nZ\r\nx\r\ny\nZ\r\n");
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

#[test]
fn a_doubtful_place_is_told_of_with_its_lines() {
    let text = b"a\nbegin\n  one = 1\n  two = 2\nend\nb\n";
    match edit(text, "begin\n  eins := 100\n  zwei = 2\nend\n", "x", false) {
        Err(Refusal::Doubtful { strategy, place, .. }) => {
            assert_eq!((strategy, place.first, place.last), ("block-anchor", 2, 5));
            assert_eq!(place.shown, "2\tbegin\n3\t  one = 1\n4\t  two = 2\n5\tend\n");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn in_a_huge_file_only_the_exact_text_is_looked_for() {
    let mut text = b"0123456789abcde\n".repeat(APPROXIMATE / 16 + 1);
    text.extend_from_slice(b"the end \n");
    assert!(edit(&text, "the end \n", "x", false).is_ok());
    match edit(&text, "the end\n\n", "x", false) {
        Err(Refusal::Absent { hint: Some(hint), .. }) => {
            assert!(hint.contains("only exactly this text"), "{hint}")
        }
        other => panic!("{other:?}"),
    }
}

/// What a model does to a text that it copies.
#[derive(Clone, Copy, Debug)]
enum Slip {
    None,
    TrailingSpace,
    NotIndented,
    TooFar,
    Tabs,
    DoubleSpaces,
    Escaped,
    BlankLines,
    Misspelt,
    OneLine,
}

fn slip() -> impl Strategy<Value = Slip> {
    use Slip::*;
    prop::sample::select(vec![
        None,
        TrailingSpace,
        NotIndented,
        TooFar,
        Tabs,
        DoubleSpaces,
        Escaped,
        BlankLines,
        Misspelt,
        OneLine,
    ])
}

impl Slip {
    fn made(self, text: &str) -> String {
        let each = |change: &dyn Fn(&str) -> String| text.lines().map(|line| change(line) + "\n").collect();
        match self {
            Self::None => text.to_owned(),
            Self::TrailingSpace => each(&|line| format!("{line}  ")),
            Self::NotIndented => each(&|line| line.strip_prefix("  ").unwrap_or(line).to_owned()),
            Self::TooFar => each(&|line| format!("    {line}")),
            Self::Tabs => text.replace("  ", "\t"),
            Self::DoubleSpaces => text.replace(' ', "  "),
            Self::Escaped => text.replace('"', "\\\""),
            Self::BlankLines => format!("\n\n{text}\n"),
            Self::Misspelt => text.replacen("call", "coll", 1),
            Self::OneLine => text.replace('\n', " "),
        }
    }
}

/// Some lines of code, and which of them are copied.
fn code() -> impl Strategy<Value = (Vec<String>, std::ops::Range<usize>)> {
    let line = "(  ){0,3}(call\\(\"[a-e]{2}\"\\);|if [xy] \\{|\\}|return [0-9]|)[ \t]{0,1}";
    prop::collection::vec(line, 1..14).prop_flat_map(|lines| {
        let count = lines.len();
        (
            Just(lines),
            (0..count, 1..8_usize).prop_map(move |(start, height)| start..(start + height).min(count)),
        )
    })
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
            Ok(edited) if edited.difference.is_some() => prop_assert_eq!(found, 0),
            Ok(edited) => {
                prop_assert_eq!(edited.bytes, text.replace(&old, &new).into_bytes());
                prop_assert_eq!(edited.lines.len(), found);
            }
            Err(_) => prop_assert_eq!(found, 0),
        }
        match replace(text.as_bytes(), &old, &new, false) {
            Ok(edited) if edited.difference.is_some() => prop_assert_eq!(found, 0),
            Ok(edited) => {
                prop_assert_eq!(found, 1);
                prop_assert_eq!(edited.bytes, text.replacen(&old, &new, 1).into_bytes());
            }
            Err(Refusal::Absent { .. } | Refusal::Doubtful { .. }) => prop_assert_eq!(found, 0),
            Err(Refusal::Ambiguous { difference: None, count, .. }) => prop_assert!(count > 1 && found > 0),
            Err(Refusal::Ambiguous { count, .. }) => prop_assert!(count > 1 && found == 0),
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

    /// Whatever strategy finds the text: only the places that it names change, and putting back what was there gives
    /// the file as it was.
    #[test]
    fn only_the_places_that_a_strategy_names_change(
        (lines, copied) in code(),
        slip in slip(),
        new in "((  ){0,2}[a-e\"]{1,4}\n){0,4}",
        keep in 0..3_usize,
        all in any::<bool>(),
        crlf in any::<bool>(),
        mark in any::<bool>(),
    ) {
        let plain: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let copy: String = lines[copied].iter().map(|line| format!("{line}\n")).collect();
        let old = slip.made(&copy);
        // The edit leaves some lines at the front alone.
        let new = old.split_inclusive('\n').take(keep).collect::<String>() + &new;
        let ending = if crlf { "\r\n" } else { "\n" };
        let front = if mark { "\u{feff}" } else { "" };
        let file = format!("{front}{}", plain.replace('\n', ending));
        let search = Search::new(plain.as_bytes(), old.as_bytes(), new.as_bytes(), all);
        match (find(&search), replace(file.as_bytes(), &old, &new, all)) {
            (Ok((strategy, places)), Ok(edited)) => {
                prop_assert_eq!(edited.strategy, strategy.name());
                prop_assert_eq!(edited.lines.len(), places.len());
                let (mut made, mut from, mut back) = (String::from(front), 0, Vec::new());
                for place in &places {
                    prop_assert!(place.range.start >= from && !place.range.is_empty());
                    made.push_str(&plain[from..place.range.start].replace('\n', ending));
                    let put = place.new.as_deref().unwrap_or(new.as_bytes());
                    let put = String::from_utf8(put.to_vec()).unwrap().replace('\n', ending);
                    back.push((made.len()..made.len() + put.len(), &plain[place.range.clone()]));
                    made.push_str(&put);
                    from = place.range.end;
                }
                made.push_str(&plain[from..].replace('\n', ending));
                prop_assert_eq!(&edited.bytes, made.as_bytes());
                for (range, was) in back.iter().rev() {
                    made.replace_range(range.clone(), &was.replace('\n', ending));
                }
                prop_assert_eq!(made, file);
            }
            (Err(one), Err(other)) => prop_assert_eq!(one, other),
            (one, other) => prop_assert!(false, "{:?} and {:?}", one.is_ok(), other.is_ok()),
        }
    }

    /// Whichever lines an edit keeps, changes, adds and takes out, with or without the last ending, whatever the strategy.
    #[test]
    fn every_line_that_stays_keeps_its_ending(
        endings in prop::collection::vec(any::<bool>(), 2..10),
        deeds in prop::collection::vec(0..5_u8, 10),
        part in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        ended in any::<bool>(),
        slip in prop::sample::select(vec!["", "  "]),
        mark in any::<bool>(),
    ) {
        let ending = |crlf: bool| if crlf { "\r\n" } else { "\n" };
        let front = if mark { "\u{feff}" } else { "" };
        let file: String = endings.iter().enumerate().map(|(at, crlf)| format!("line{at};{}", ending(*crlf))).collect();
        let (one, other) = (part.0.index(endings.len()), part.1.index(endings.len()));
        let range = one.min(other)..one.max(other) + 1;
        let line = |at: usize| format!("{slip}line{at};");
        let old: Vec<String> = range.clone().map(line).collect();
        let mut new = Vec::new();
        for at in range {
            match deeds[at] {
                0 => {}
                1 => new.push(format!("{slip}changed{at};")),
                2 => new.extend([format!("{slip}added{at};"), line(at)]),
                3 => new.extend([line(at), format!("{slip}added{at};")]),
                _ => new.push(line(at)),
            }
        }
        let join = |lines: &[String]| {
            let mut text = lines.join("\n");
            if ended && !lines.is_empty() { text.push('\n') }
            text
        };
        let (old, new) = (join(&old), join(&new));
        prop_assume!(old != new);
        let made = edit(format!("{front}{file}").as_bytes(), &old, &new, false).unwrap();
        let made = String::from_utf8(made).unwrap();
        let made = made.strip_prefix(front).unwrap();
        for (at, crlf) in endings.iter().enumerate() {
            let name = format!("line{at};");
            if let Some(line) = made.split_inclusive('\n').find(|line| line.trim_ascii() == name) {
                prop_assert!(line.ends_with(&format!("{name}{}", ending(*crlf))), "{:?} becomes {:?}", file, made);
            }
        }
        prop_assert!(made.is_empty() || made.ends_with('\n') || !ended);
    }

    /// White space around the text that differs never joins a line of the file to another one.
    #[test]
    fn lines_around_a_place_stay_lines(
        around in ("([ab]{1,2}\n){0,3}", "([ab]{1,2}\n){0,3}[ab]{0,2}"),
        file_space in ("[ \n]{0,3}", "[ \n]{0,3}"),
        old_space in ("[ \n]{0,3}", "[ \n]{0,3}"),
        new_space in ("[ \n]{0,3}", "[ \n]{0,3}"),
        core in "X( |\n)?Y",
        new in "[XYZ]{0,2}",
        all in any::<bool>(),
    ) {
        let text = format!("{}{}{core}{}{}", around.0, file_space.0, file_space.1, around.1);
        let old = format!("{}{core}{}", old_space.0, old_space.1);
        let new = format!("{}{new}{}", new_space.0, new_space.1);
        let search = Search::new(text.as_bytes(), old.as_bytes(), new.as_bytes(), all);
        let Ok((strategy, places)) = find(&search) else { return Ok(()) };
        if strategy.name() == "exact" {
            return Ok(());
        }
        for place in places {
            let (start, end) = (place.range.start, place.range.end);
            let (inside, put) = (&text[start..end], place.new.as_deref().unwrap_or(new.as_bytes()));
            let put = std::str::from_utf8(put).unwrap();
            let leads = |text: &str| text[..text.len() - text.trim_start().len()].contains('\n');
            let trails = |text: &str| text[text.trim_end().len()..].contains('\n');
            let begins = start == 0 || text[..start].ends_with('\n');
            prop_assert!(
                begins || !leads(inside) || leads(put)
                    || (put.is_empty() && (end == text.len() || text[end..].starts_with('\n'))),
                "{:?}: {:?} becomes {:?} in {:?}", strategy.name(), inside, put, text
            );
            prop_assert!(
                !trails(inside) || trails(put) || (put.is_empty() && begins) || text[end..].starts_with('\n')
                    // The last line had no ending.
                    || (end == text.len() && !text.ends_with('\n')),
                "{:?}: {:?} becomes {:?} in {:?}", strategy.name(), inside, put, text
            );
        }
    }

    /// The texts have capitals that nothing around them has, so each of them is there exactly once.
    #[test]
    fn the_inverse_gives_the_original(
        before in "[ab \n]{0,20}",
        old in "[AB][AB \n]{0,5}",
        new in "[XY][XY \n]{0,5}",
        after in "[ab \n]{0,20}",
        crlf in any::<bool>(),
        mark in any::<bool>(),
    ) {
        let ending = if crlf { "\r\n" } else { "\n" };
        let front = if mark { "\u{feff}" } else { "" };
        // One line ending stays, which shows what the file's own is.
        let text = format!("{front}|\n{before}{old}{after}").replace('\n', ending);
        let there = replace(text.as_bytes(), &old, &new, false).unwrap();
        prop_assert_eq!((there.strategy, there.lines.len()), ("exact", 1));
        let back = replace(&there.bytes, &new, &old, false).unwrap();
        prop_assert_eq!((back.strategy, back.lines.len()), ("exact", 1));
        prop_assert_eq!(back.bytes, text.into_bytes());
    }

    #[test]
    fn replacing_in_two_halves_is_replacing_in_the_whole(
        one in "[ab\n]{0,30}",
        other in "[ab\n]{0,30}",
        old in "[ab]{1,3}",
        new in "[abc\n]{0,4}",
    ) {
        let exact = |text: &str| match replace(text.as_bytes(), &old, &new, true) {
            Ok(edited) if edited.difference.is_none() => edited.bytes,
            _ => text.as_bytes().to_vec(),
        };
        let whole = exact(&format!("{one}|\n|{other}"));
        prop_assert_eq!(whole, [exact(&format!("{one}|\n")), exact(&format!("|{other}"))].concat());
    }

    #[test]
    fn nothing_panics_whatever_the_bytes(
        text in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b" \t\r\n\\\"ab{}".to_vec())], 0..200),
        old in "[ \t\r\nab{}\\\"\u{a0}\u{fc}\u{1f680}]{0,40}",
        new in ".{0,20}",
        all in any::<bool>(),
        part in any::<prop::sample::Index>(),
    ) {
        let _ = replace(&text, &old, &new, all);
        // A part of the text itself, which is there at least nearly.
        let lossy = String::from_utf8_lossy(&text).into_owned();
        let start = part.index(lossy.len() + 1);
        if let Some(own) = lossy.get(start..) {
            let _ = replace(&text, own, &new, all);
            let _ = replace(&text, &own.replace(' ', "\t"), &new, all);
        }
    }
}
