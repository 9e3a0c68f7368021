//! `grep` finds what a plain loop over sorted files finds, on however many threads.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use playhouse_policy::{Action, Policy, Rule, Verdict};
use playhouse_tools::{Alone, Registry};
use proptest::prelude::*;
use serde_json::json;

use super::find_walk::call;
use super::{Count, context, edit_fixtures};

/// Lines that are shown.
const SHOWN: usize = 100;

/// What is expected of a search for lines with `needle` in files with these paths and contents.
fn reference(files: &[(String, String)], needle: &str) -> String {
    let mut files: Vec<_> = files.iter().collect();
    files.sort_by(|(one, _), (other, _)| Path::new(one).cmp(Path::new(other)));
    let (mut output, mut shown) = (String::new(), 0);
    for (path, content) in &files {
        let lines: Vec<_> = (1..).zip(content.lines()).filter(|(_, line)| line.contains(needle)).collect();
        let room = lines.len().min(SHOWN - shown);
        if room > 0 {
            let gap = if shown > 0 { "\n" } else { "" };
            let _ = writeln!(output, "{gap}{path}");
        }
        for (number, line) in &lines[..room] {
            let _ = writeln!(output, "{number}\t{line}");
        }
        shown += room;
        if room < lines.len() {
            let more = lines.len() - room;
            let _ = write!(
                output,
                "\n(stopped after {SHOWN} lines; at least {more} more: narrow the pattern, the path or include to see them)"
            );
            return output;
        }
    }
    if shown == 0 {
        let counted = if files.len() == 1 { "1 file".to_owned() } else { format!("{} files", files.len()) };
        return format!(
            "no line matches in . ({counted} searched; hidden, ignored and binary files are left out)"
        );
    }
    output.trim_end().to_owned()
}

fn make(files: &[(String, String)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = folder.path().join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, content).unwrap();
    }
    folder
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn many_files_are_searched_in_the_order_of_paths() {
    let line = |number: usize| if number.is_multiple_of(29) { "a needle\n" } else { "hay\n" };
    let files: Vec<(String, String)> = (0..3_000)
        .map(|number| {
            // Some files are slow, so that what comes after them is done before them.
            let hay = if number % 500 == 7 { "hay\n".repeat(200_000) } else { String::new() };
            (format!("d{}/e{}/f{number}", number % 7, number % 31), hay + line(number))
        })
        .collect();
    let folder = make(&files);
    let expected = reference(&files, "needle");
    assert!(expected.contains("at least 1 more"));
    for _ in 0..10 {
        assert_eq!(call(folder.path(), "grep", &json!({"pattern": "needle"})), expected);
    }
    let few: Vec<(String, String)> =
        files.iter().filter(|(path, _)| path.starts_with("d3/")).cloned().collect();
    assert_eq!(
        call(folder.path(), "grep", &json!({"pattern": "needle", "include": "d3/**"})),
        reference(&few, "needle")
    );
    let nothing = call(folder.path(), "grep", &json!({"pattern": "nowhere"}));
    assert_eq!(nothing, reference(&files, "nowhere"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn lines_are_found_as_a_loop_finds_them(
        files in prop::collection::btree_map("([a-c]/){0,2}[d-z]", "([ab\u{fc} ]{0,4}\n){0,40}", 1..12),
        needle in "[ab]{1,2}",
    ) {
        // An end of a line that is only space is not shown.
        let files: Vec<(String, String)> = files
            .into_iter()
            .map(|(path, content)| (path, content.lines().map(|line| format!("{}\n", line.trim_end())).collect()))
            .collect();
        let folder = make(&files);
        prop_assert_eq!(call(folder.path(), "grep", &json!({"pattern": needle})), reference(&files, &needle));
    }
}

#[tokio::test]
async fn files_that_must_not_be_read_unasked_are_left_out_and_counted() {
    let files = ["src/a.rs", "secret/key", ".env", "plain/.env.local"];
    let folder = make(&files.map(|path| (path.to_owned(), "NEEDLE\n".to_owned())));
    let rules = [
        Rule::new("*", "*", Action::Ask),
        Rule::new("grep", "*", Action::Allow),
        Rule::new("read", "*", Action::Allow),
        Rule::new("read", "secret/*", Action::Deny),
        Rule::new("read", "*.env.*", Action::Ask),
    ];
    let policy = Policy { configuration: rules.into_iter().collect(), ..Policy::default() };
    let mut context = context(folder.path(), Arc::new(Count::default()));
    let tools = Arc::new(Registry::native());
    context.host = Arc::new(Alone::with_policy(Arc::clone(&tools), policy));
    let found = async |include: &str| {
        let input = json!({"pattern": "NEEDLE", "include": include});
        edit_fixtures::call("grep", &input, &context).await.unwrap().output
    };
    let told = found("*").await;
    assert!(told.starts_with("src/a.rs\n1\tNEEDLE"), "{told}");
    assert!(told.contains("(1 file left out, since rules do not let them be read"), "{told}");
    let told = found(".env*,**/.env*").await;
    assert!(told.starts_with(".env\n1\tNEEDLE") && told.contains("(1 file left out"), "{told}");
    // Named directly it is judged as a look into it.
    let verdict = async |path: &str| {
        let input = json!({"pattern": "NEEDLE", "path": path});
        let grep = tools.get("grep").unwrap();
        let prepared = grep.prepare(input.as_object().unwrap(), &context).await.unwrap();
        context.host.judge(grep.as_ref(), &prepared)
    };
    assert!(matches!(verdict("secret/key").await, Verdict::Deny { .. }));
    assert!(matches!(verdict("plain/.env.local").await, Verdict::Ask { .. }));
    assert_eq!(verdict("src").await, Verdict::Allow);
}
