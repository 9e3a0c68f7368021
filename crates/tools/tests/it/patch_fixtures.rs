//! Patches as folders: `input/`, `patch.txt`, and `expected/` or `error.txt`.
//!
//! Each folder of `tests/fixtures/patch` is a case: the patch is applied to a copy of `input/` in a session that has read
//! every file of it. Then the tree is `expected/`, byte for byte; or the call fails with the text of `error.txt`, and the
//! tree is still `input/`. A missing `input/` or `expected/` is an empty directory, which git does not keep. Directories
//! that hold no file do not count. `output.txt`, where it is there, is what the model reads of a good result. In both
//! texts `<root>` stands for the workspace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use playhouse_tools::{Registry, ToolOutput, runner};
use serde_json::json;

use crate::{Count, context};
use playhouse_protocol::message::CallInput;

/// The least number of cases: fewer means that they were not found.
const LEAST: usize = 40;

type Tree = BTreeMap<String, Vec<u8>>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/patch")
}

/// The files below `directory`, by their paths.
fn tree(directory: &Path) -> Tree {
    let mut files = Tree::new();
    if directory.exists() {
        gather(directory, "", &mut files);
    }
    files
}

fn gather(directory: &Path, prefix: &str, files: &mut Tree) {
    for entry in fs_err::read_dir(directory).unwrap().map(Result::unwrap) {
        let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            gather(&entry.path(), &format!("{name}/"), files);
        } else {
            files.insert(name, fs_err::read(entry.path()).unwrap());
        }
    }
}

/// A tree, for a person who looks at a failure.
fn shown(tree: &Tree) -> String {
    let file = |(name, content): (&String, &Vec<u8>)| format!("== {name}\n{}", content.escape_ascii());
    tree.iter().map(file).collect::<Vec<_>>().join("\n")
}

/// What a patch makes of a tree.
async fn patched(input: &Tree, patch: &str) -> (Result<ToolOutput, String>, Tree) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("repo");
    fs_err::create_dir(&root).unwrap();
    let context = context(&root, Arc::new(Count::default()));
    for (name, content) in input {
        let path = root.join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, content).unwrap();
        let place = context.workspace.resolve(name).unwrap();
        context.files.remember(place.path, playhouse_workspace::hash(content));
    }
    let registry = Registry::native();
    let canonical = fs_err::canonicalize(&root).unwrap();
    let call = CallInput::from_model(&json!({"patchText": patch}).to_string());
    let result = match runner::prepare(&registry, "apply_patch", &call, &context).await {
        Ok((tool, prepared)) => runner::execute(&tool, prepared, &context).await,
        Err(error) => Err(error),
    };
    let result = result.map_err(|error| error.to_string().replace(canonical.to_str().unwrap(), "<root>"));
    let after = tree(&root);
    (result, after)
}

#[tokio::test]
async fn every_folder_gives_what_it_says() {
    let mut cases: Vec<PathBuf> = fs_err::read_dir(folder())
        .expect("the fixtures are in tests/fixtures/patch of this crate")
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    cases.sort();
    assert!(cases.len() >= LEAST, "only {} cases in {}", cases.len(), folder().display());
    let mut wrong = Vec::new();
    for case in &cases {
        let name = case.file_name().unwrap().to_str().unwrap().to_owned();
        let text = |file: &str| fs_err::read_to_string(case.join(file)).ok();
        let input = tree(&case.join("input"));
        let patch = text("patch.txt").unwrap_or_else(|| panic!("{name} has no patch.txt"));
        let (result, after) = patched(&input, &patch).await;
        let (expected, error) = match text("error.txt") {
            Some(error) => (input, Some(error)),
            None => (tree(&case.join("expected")), None),
        };
        if after != expected {
            wrong.push(format!(
                "{name}: the tree is\n{}\nand should be\n{}",
                shown(&after),
                shown(&expected)
            ));
        }
        match (result, error) {
            (Ok(output), None) => {
                if text("output.txt").is_some_and(|expected| expected != output.output) {
                    wrong.push(format!("{name}: the result is\n{}", output.output));
                }
            }
            (Err(error), Some(expected)) if error.trim_end() == expected.trim_end() => {}
            (Err(error), _) => wrong.push(format!("{name}: the error is\n{error}")),
            (Ok(output), Some(_)) => wrong.push(format!("{name}: it must fail, and says\n{}", output.output)),
        }
    }
    assert!(wrong.is_empty(), "{} of {} are wrong:\n\n{}", wrong.len(), cases.len(), wrong.join("\n\n"));
}

mod random {
    //! The difference of two random trees, as a patch, leads from the one to the other.

    use std::fmt::Write as _;

    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    use similar::{ChangeTag, TextDiff};

    use super::{Tree, patched, shown};

    /// What becomes of a file.
    #[derive(Clone, Debug)]
    enum Fate {
        Stays,
        Changes,
        Goes,
        Comes,
        Moves,
    }

    /// A line, and what becomes of it.
    #[derive(Clone, Debug)]
    struct Line {
        text: String,
        kept: bool,
        before: Option<String>,
    }

    #[derive(Clone, Debug)]
    struct File {
        fate: Fate,
        lines: Vec<Line>,
        crlf: bool,
        ends: (bool, bool),
    }

    fn line() -> impl Strategy<Value = Line> {
        // Few different lines, so that hunks are ambiguous unless their context is used well; and some that look like
        // parts of a patch.
        let text = || {
            prop_oneof![
                "[abc]{0,1}",
                "( |\t){0,2}x",
                Just("*** End Patch".to_owned()),
                Just("@@ é".to_owned())
            ]
        };
        (text(), prop::bool::weighted(0.8), prop::option::weighted(0.15, text()))
            .prop_map(|(text, kept, before)| Line { text, kept, before })
    }

    fn file() -> impl Strategy<Value = File> {
        let fate = prop_oneof![
            Just(Fate::Stays),
            Just(Fate::Changes),
            Just(Fate::Changes),
            Just(Fate::Changes),
            Just(Fate::Goes),
            Just(Fate::Comes),
            Just(Fate::Moves),
        ];
        (fate, prop::collection::vec(line(), 0..25), any::<bool>(), any::<(bool, bool)>())
            .prop_map(|(fate, lines, crlf, ends)| File { fate, lines, crlf, ends })
    }

    impl File {
        /// With the line endings that a patch knows.
        fn before(&self) -> String {
            let lines = self.lines.iter().map(|line| line.text.clone());
            joined(lines, self.ends.0)
        }

        fn after(&self) -> String {
            let lines = self
                .lines
                .iter()
                .flat_map(|line| line.before.iter().cloned().chain(line.kept.then(|| line.text.clone())));
            joined(lines, self.ends.1)
        }

        fn dressed(&self, text: &str) -> Vec<u8> {
            // A file without any line ending has no style to keep, and a new one is written as it is given.
            let styled = self.crlf && self.before().contains('\n') && !matches!(self.fate, Fate::Comes);
            if styled { text.replace('\n', "\r\n").into_bytes() } else { text.as_bytes().to_vec() }
        }
    }

    fn joined(lines: impl Iterator<Item = String>, ends: bool) -> String {
        let mut text: String = lines.map(|line| line + "\n").collect();
        if !ends && text.len() > 1 && !text.ends_with("\n\n") {
            text.pop();
        }
        text
    }

    /// The patch from `old` to `new`, with the whole file as context, so that every place is clear.
    fn hunk(old: &str, new: &str) -> String {
        let diff = TextDiff::from_lines(old, new);
        let mut text = String::from("@@\n");
        for change in diff.iter_all_changes() {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            let value = change.value();
            let _ = writeln!(text, "{sign}{}", value.strip_suffix('\n').unwrap_or(value));
            if change.missing_newline() {
                text.push_str("\\ No newline at end of file\n");
            }
        }
        text.push_str("*** End of File\n");
        text
    }

    fn patch_of(files: &[File]) -> (Tree, String, Tree) {
        let (mut before, mut after) = (Tree::new(), Tree::new());
        let mut patch = String::from("*** Begin Patch\n");
        for (number, file) in files.iter().enumerate() {
            let name = format!("d{}/f{number}", number % 2);
            let (old, new) = (file.before(), file.after());
            if !matches!(file.fate, Fate::Comes) {
                before.insert(name.clone(), file.dressed(&old));
            }
            match file.fate {
                Fate::Stays => {
                    after.insert(name, file.dressed(&old));
                }
                Fate::Goes => {
                    let _ = writeln!(patch, "*** Delete File: {name}");
                }
                Fate::Comes => {
                    let _ = writeln!(patch, "*** Add File: {name}");
                    for line in new.split_inclusive('\n') {
                        let _ = writeln!(patch, "+{}", line.strip_suffix('\n').unwrap_or(line));
                    }
                    if !new.is_empty() && !new.ends_with('\n') {
                        patch.push_str("\\ No newline at end of file\n");
                    }
                    after.insert(name, new.into_bytes());
                }
                Fate::Changes if old == new => {
                    after.insert(name, file.dressed(&old));
                }
                Fate::Changes => {
                    let _ = write!(patch, "*** Update File: {name}\n{}", hunk(&old, &new));
                    after.insert(name, file.dressed(&new));
                }
                Fate::Moves => {
                    let _ = write!(patch, "*** Update File: {name}\n*** Move to: {name}.moved/to\n");
                    if old != new {
                        patch.push_str(&hunk(&old, &new));
                    }
                    after.insert(format!("{name}.moved/to"), file.dressed(&new));
                }
            }
        }
        patch.push_str("*** End Patch\n");
        (before, patch, after)
    }

    #[test]
    fn the_difference_of_two_trees_leads_from_one_to_the_other() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut runner =
            TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
        let files = prop::collection::vec(file(), 1..6);
        runner
            .run(&files, |files| {
                let (before, patch, after) = patch_of(&files);
                if before == after {
                    return Ok(());
                }
                let (result, made) = runtime.block_on(patched(&before, &patch));
                prop_assert!(result.is_ok(), "{}\n{patch}\n{}", result.unwrap_err(), shown(&before));
                prop_assert!(
                    made == after,
                    "{patch}\nmade {}\nof {}\nnot {}",
                    shown(&made),
                    shown(&before),
                    shown(&after)
                );
                Ok(())
            })
            .unwrap();
    }
}
