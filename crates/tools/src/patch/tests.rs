use std::fmt::Write as _;

use proptest::prelude::*;
use similar::{ChangeTag, TextDiff};

use super::*;

fn parsed(body: &str) -> Patch {
    parse(&format!("*** Begin Patch\n{body}\n*** End Patch")).unwrap()
}

fn hunks(body: &str) -> Vec<Hunk> {
    match parsed(&format!("*** Update File: f\n{body}")).sections.remove(0).action {
        Action::Update { hunks, .. } => hunks,
        other => panic!("{other:?}"),
    }
}

fn put(content: &[u8], body: &str) -> Result<Applied, Stop> {
    apply(content, &hunks(body), &Effort::new(&|| false))
}

fn good(content: &str, body: &str) -> String {
    String::from_utf8(put(content.as_bytes(), body).unwrap().bytes).unwrap()
}

fn bad(content: &str, body: &str) -> String {
    match put(content.as_bytes(), body) {
        Err(Stop::Misfit(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sections_are_read() {
    let patch = parsed(
        "*** Add File: a b.txt\n+one\n\n+two\n\n*** Delete File: gone\n*** Update File: old\n*** Move to: new\n@@ x\n-y",
    );
    let [add, delete, update] = &patch.sections[..] else { panic!("{patch:?}") };
    assert_eq!((add.path.as_str(), &add.action), ("a b.txt", &Action::Add("one\n\ntwo\n".into())));
    assert_eq!((delete.path.as_str(), &delete.action), ("gone", &Action::Delete));
    let Action::Update { hunks, to: Some(to) } = &update.action else { panic!("{update:?}") };
    assert_eq!((to.as_str(), hunks.len(), hunks[0].number), ("new", 1, 10));
    assert_eq!(hunks[0].contexts, ["x"]);
}

#[test]
fn what_models_wrap_around_a_patch_does_not_matter() {
    let plain = parsed("*** Delete File: a");
    let body = "*** Begin Patch\n*** Delete File: a\n*** End Patch";
    for wrapped in [
        format!("\n\n{body}\n\n"),
        format!("<<'EOF'\n{body}\nEOF\n"),
        format!("<<EOF\n{body}\nEOF"),
        format!("apply_patch <<\"PATCH\"\n{body}\nPATCH"),
        format!("```diff\n{body}\n```"),
        format!("```\n<<-'EOF'\n{body}\nEOF\n```"),
        format!("\u{feff}{}", body.replace('\n', "\r\n")),
        "  *** Begin Patch  \n *** Delete File:   a  \n*** End Patch ".to_owned(),
    ] {
        assert_eq!(parse(&wrapped).unwrap(), plain, "{wrapped}");
    }
}

#[test]
fn contexts_are_read() {
    let contexts = |text: &str| hunks(&format!("{text}\n-x")).remove(0).contexts;
    assert_eq!(contexts("@@"), [""; 0]);
    assert_eq!(contexts("@@ class A\n\n@@   def b():"), ["class A", "  def b():"]);
    assert_eq!(contexts("@@ -1,3 +1,4 @@"), [""; 0]);
    assert_eq!(contexts("@@ -1 +1 @@ fn main() {"), [""; 0]);
    assert_eq!(contexts("@@ fn main() { @@"), ["fn main() {"]);
    assert_eq!(contexts("@@fn main() {"), ["fn main() {"]);
}

#[test]
fn what_is_wrong_with_a_patch_is_said() {
    let error = |text: &str| parse(text).unwrap_err();
    let within = |body: &str| error(&format!("*** Begin Patch\n{body}\n*** End Patch"));
    assert!(error("").starts_with("there is no patch"));
    assert!(error("--- a\n+++ b\n").contains("line 1 of the patch, \"--- a\""));
    assert!(error("*** Begin Patch\n*** Delete File: a\n").contains("cut off"));
    assert!(error("*** Begin Patch\n*** End Patch\nthanks").contains("line 3 of the patch, \"thanks\""));
    assert!(within("").starts_with("the patch is empty"));
    assert!(within("*** Rename File: a").contains("\"*** Add File: path\""));
    assert!(within("*** Delete File: ").contains("names no file"));
    assert!(within("*** Update File: a\n*** Move to:").contains("names no file"));
    assert!(within("*** Update File: a").contains("has no hunk"));
    assert!(within("*** Update File: a\n@@ only").contains("the hunk in line 3 of the patch is empty"));
    assert!(within("*** Update File: a\n@@\nabc").contains("begins with \" \" (stays)"));
    assert!(within("*** Update File: a\n*** End of File").contains("after the lines of a hunk"));
    assert!(within("*** Update File: a\n-b\n*** End of File\n-c").contains("begins with \"@@\""));
    assert!(within("*** Add File: a\nabc").contains("begins with \"+\""));
    let long = within(&format!("*** Add File: a\n{}", "é".repeat(1000)));
    assert!(long.len() < 500 && long.contains('…'), "{long}");
}

#[test]
fn kept_lines_stay_as_the_file_has_them() {
    let content = "def a():  \n\tone\n\ttwo \u{201c}x\u{201d}\n";
    let made = good(content, "@@\n def a():\n-    one\n+\t1\n     two \"x\"");
    assert_eq!(made, "def a():  \n\t1\n\ttwo \u{201c}x\u{201d}\n");
    let loose = put(content.as_bytes(), "@@\n     two \"x\"\n+\t3").unwrap().loose;
    assert_eq!(loose, [apply::Loose { hunk: 1, line: 3, pass: seek::Pass::Punctuation, also: None }]);
}

#[test]
fn insertions_go_where_their_context_is() {
    let content = "class A:\n  def f():\n    1\nclass B:\n  def f():\n    2\n";
    let made = good(content, "@@ class B:\n@@   def f():\n+    x\n@@ class B:\n@@   def f():\n+    y");
    assert_eq!(made, "class A:\n  def f():\n    1\nclass B:\n  def f():\n    x\n    y\n    2\n");
    assert_eq!(good("a\nb\n", "@@\n+c"), "a\nb\nc\n");
    assert_eq!(good("a\nb\n", "@@ a\n+c\n*** End of File"), "a\nb\nc\n");
    assert_eq!(good("a\nb\n", "@@\n+c\n@@\n-a"), "b\nc\n");
    assert_eq!(good("", "@@\n+c"), "c\n");
}

#[test]
fn hunks_are_searched_from_the_last_position_on() {
    let content = "x\n1\nx\n1\nx\n1\n";
    assert_eq!(good(content, "@@\n x\n-1\n+2\n@@\n x\n-1\n+3"), "x\n2\nx\n3\nx\n1\n");
    assert_eq!(good(content, "@@\n x\n-1\n+2\n*** End of File"), "x\n1\nx\n1\nx\n2\n");
    // Below the same line of `@@` as the hunk before it.
    let content = "fn a\n1\n2\n3\nfn b\n";
    assert_eq!(good(content, "@@ fn a\n-1\n@@ fn a\n-3"), "fn a\n2\nfn b\n");
    // The line of the `@@` is written again.
    assert_eq!(good(content, "@@ fn a\n fn a\n-1"), "fn a\n2\n3\nfn b\n");
    // An empty line that is only the end of the file.
    assert_eq!(good("a\n", "@@\n a\n+b\n "), "a\nb\n");
}

#[test]
fn the_last_line_ending_stays_unless_the_patch_says_otherwise() {
    assert_eq!(good("a\nb", "@@\n b\n+c"), "a\nb\nc");
    assert_eq!(good("a\nb", "@@\n a\n-b"), "a");
    assert_eq!(good("a\nb", "@@\n-b\n\\ No newline at end of file\n+c"), "a\nc\n");
    assert_eq!(good("a\nb\n", "@@\n-b\n+c\n\\ No newline at end of file"), "a\nc");
    assert_eq!(good("a\nb\n", "@@\n b\n\\ No newline at end of file"), "a\nb");
    assert_eq!(good("a\nb", "@@\n-a"), "b");
    assert_eq!(good("a", "@@\n-a"), "");
}

#[test]
fn line_endings_and_byte_order_marks_stay() {
    assert_eq!(good("\u{feff}a\r\nb\r\n", "@@\n a\n-b\n+c\n+d"), "\u{feff}a\r\nc\r\nd\r\n");
    assert_eq!(good("a\r\nb\nc\r\n", "@@\n b\n+x"), "a\r\nb\nx\r\nc\r\n");
    assert_eq!(good("a\r\nb", "@@\n b\r\n+x\r"), "a\r\nb\r\nx");
}

#[test]
fn a_misfit_says_which_hunk_and_what_is_there() {
    let content = "fn one() {\n    let total = 1;\n}\nfn two() {\n    let other = 2;\n}\n";
    insta::assert_snapshot!(bad(content, "@@\n fn one() {\n-    let total = 2;\n+    x"), @r"
    hunk 1 (line 3 of the patch) does not fit: these lines are not in the file:
    fn one() {
        let total = 2;
    The nearest lines are:
    1	fn one() {
    2	    let total = 1;
    ");
    insta::assert_snapshot!(bad(content, "@@ fn two() {\n-    let other = 2;\n@@ fn one() {\n-    let total = 1;"), @r"
    hunk 2 (line 5 of the patch) does not fit: the line of its @@ is not in the file after line 5, where the hunk before it ends:
    fn one() {
    It is at line 1: put the hunks in the order of the file
    ");
    insta::assert_snapshot!(bad(content, "@@\n fn one() {\n*** End of File"), @r#"
    hunk 1 (line 3 of the patch) does not fit: this line is not at the end of the file:
    fn one() {
    It is at line 1: leave out "*** End of File", or add the lines that follow
    "#);
    insta::assert_snapshot!(bad(content, "@@ fn two() {\n-    let total = 1;"), @r"
    hunk 1 (line 3 of the patch) does not fit: this line is not in the file after line 4, the line of its @@:
        let total = 1;
    It is at line 2: name another line after @@, or none
    ");
    insta::assert_snapshot!(bad(content, "@@\n fn one() {\n-    let total = 0;\n+    let total = 1;"), @r"
    hunk 1 (line 3 of the patch) does not fit: these lines are not in the file:
    fn one() {
        let total = 0;
    What the hunk makes of them is at line 1 already: was the patch applied before?
    ");
    insta::assert_snapshot!(bad(content, "@@ #####\n-@@@@@"), @r"
    hunk 1 (line 3 of the patch) does not fit: the line of its @@ is not in the file:
    #####
    Nothing in the file is like it: read the file again
    ");
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_hunk_that_fails_at_the_end_of_a_million_lines_is_one_look_at_each() {
    let content = "same\n".repeat(1_000_000);
    let mut body = "@@\n".to_owned();
    body.push_str(&" same\n".repeat(2000));
    body.push_str("-other\n+x");
    // Four passes for the hunk, four for what it may have become, four to find it elsewhere; and some for retries.
    let effort = Effort::limited(16 * content.len() as u64, &|| false);
    let stop = apply(content.as_bytes(), &hunks(&body), &effort).unwrap_err();
    assert!(matches!(&stop, Stop::Misfit(text) if text.contains("(and 1989 more)")), "{stop:?}");
}

#[test]
fn too_much_searching_is_given_up() {
    // Each hunk fits, but only after three looks at all that follows.
    let content = " a\n".repeat(10_000);
    let body = "@@\n-a\n".repeat(1000);
    let effort = Effort::limited(1_000_000, &|| false);
    assert_eq!(apply(content.as_bytes(), &hunks(&body), &effort).unwrap_err(), Stop::TooMuch);
    let effort = Effort::new(&|| true);
    assert_eq!(apply(content.as_bytes(), &hunks(&body), &effort).unwrap_err(), Stop::Cancelled);
}

/// The hunks that lead from `old` to `new`, with that much context.
fn diff_hunks(old: &str, new: &str, radius: usize) -> String {
    let diff = TextDiff::from_lines(old, new);
    let mut body = String::new();
    for group in diff.grouped_ops(radius) {
        body.push_str("@@\n");
        let mut at_end = false;
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            let _ = writeln!(body, "{sign}{}", change.value().strip_suffix('\n').unwrap_or(change.value()));
            if change.missing_newline() {
                body.push_str("\\ No newline at end of file\n");
            }
            at_end =
                change.old_index().map_or(at_end, |index| index + 1 == old.split_inclusive('\n').count());
        }
        if at_end {
            body.push_str("*** End of File\n");
        }
    }
    body.pop();
    body
}

proptest! {
    /// Lines that are all different have one place only, so that the diff says everything.
    #[test]
    fn a_diff_as_a_patch_leads_from_old_to_new(
        keep in prop::collection::vec(0..4_u8, 1..40),
        (old_ends, new_ends, crlf, mark) in any::<(bool, bool, bool, bool)>(),
        radius in 1..4_usize,
    ) {
        let (mut old, mut new) = (String::new(), String::new());
        for (number, fate) in keep.iter().enumerate() {
            if *fate != 1 {
                let _ = writeln!(old, "line {number}");
            }
            if *fate != 2 {
                let _ = writeln!(new, "line {number}{}", if *fate == 3 { "!" } else { "" });
            }
        }
        if !old_ends {
            old.pop();
        }
        if !new_ends {
            new.pop();
        }
        prop_assume!(old != new && !old.is_empty() && !new.is_empty());
        let body = diff_hunks(&old, &new, radius);
        let dressed = |text: &str| {
            let text = if crlf { text.replace('\n', "\r\n") } else { text.to_owned() };
            if mark { format!("\u{feff}{text}") } else { text }
        };
        // A file of one line without an ending has no style to keep.
        prop_assume!(!crlf || old.contains('\n'));
        let made = put(dressed(&old).as_bytes(), &body);
        prop_assert_eq!(String::from_utf8(made.unwrap().bytes).unwrap(), dressed(&new), "{}", body);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(\\*\\*\\* (Begin Patch|End Patch|Add File: a|Update File: a|Move to: b|Delete File: a|End of File)|@@ ?a?|[ +-]?a?|<<'E'|E|\\\\ No newline|é|\r)(\n(\\*\\*\\* (Begin Patch|End Patch|Add File: a|Update File: a|Move to: b|Delete File: a|End of File)|@@ ?a?|[ +-]?a?|<<'E'|E|\\\\ No newline|é|\r)){0,12}") {
        let _ = parse(&text);
        let _ = parse(&format!("*** Begin Patch\n{text}"));
    }

    #[test]
    fn any_hunks_are_applied_or_refused_and_leave_the_rest(
        content in "([ab]?\r?\n){0,8}[ab]?",
        lines in prop::collection::vec("@@( [ab])?|[ +-][ab]?|\\*\\*\\* End of File|\\\\ No newline|", 1..10),
    ) {
        let body = format!("*** Begin Patch\n*** Update File: f\n{}\n*** End Patch", lines.join("\n"));
        if let Ok(patch) = parse(&body) {
            let Action::Update { hunks, .. } = &patch.sections[0].action else { panic!("it is an update") };
            if let Ok(applied) = apply(content.as_bytes(), hunks, &Effort::new(&|| false)) {
                let count = |bytes: &[u8]| crate::files::document::line_count(bytes);
                let sign = |sign: Sign| hunks.iter().flat_map(|hunk| &hunk.lines).filter(|line| line.sign == sign).count();
                let (before, after) = (count(content.as_bytes()), count(&applied.bytes));
                let expected = before + sign(Sign::Added) - sign(Sign::Removed);
                // A last line that is empty and has no ending is none.
                prop_assert!(after == expected || after + 1 == expected, "{before} {after} {expected}");
            }
        }
    }
}
