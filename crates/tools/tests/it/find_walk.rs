//! What `glob` leaves out is what ripgrep leaves out.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use ignore::WalkBuilder;
use playhouse_protocol::message::CallInput;
use playhouse_tools::{Registry, runner};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Count, context};

/// Makes a call and gives its output.
pub(crate) fn call(root: &Path, tool: &str, input: &Value) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let registry = Registry::native();
    let context = context(root, Arc::new(Count::default()));
    let input = CallInput::from_model(&input.to_string());
    runtime.block_on(async {
        let (tool, prepared) = runner::prepare(&registry, tool, &input, &context).await.unwrap();
        runner::execute(&tool, prepared, &context).await.unwrap().output
    })
}

/// What the walker of ripgrep shows of a repository. Nothing outside the workspace counts.
fn reference(root: &Path) -> BTreeSet<String> {
    WalkBuilder::new(root)
        .git_global(false)
        .parents(false)
        .add_custom_ignore_filename(".rgignore")
        .build()
        // A rule that cannot be read is reported between the entries.
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
        .map(|entry| entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned())
        .collect()
}

/// A few lines of an ignore file.
fn rules() -> impl Strategy<Value = String> {
    let rule = prop::sample::select(vec![
        "a", "/b", "c/", "*.x", "!*.x", "!a", "**/b", "b/**", "a/b", "!a/b", "!.h", "/a/*", "[bc]", "# c",
        "", "\\!a", "b*", "!/c", "{", "*.x  ",
    ]);
    prop::collection::vec(rule, 1..4).prop_map(|rules| rules.join("\n"))
}

/// A directory, relative to the root; the root itself is the empty path.
const DIRECTORY: &str = "|([abc]|\\.h)(/[abc]){0,2}";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    #[ignore = "slow: scripts/slow runs it"]
    fn the_same_files_are_shown(
        files in prop::collection::btree_set("(([abc]|\\.h)/){0,3}([abc](\\.x)?|\\.h)", 1..40),
        ignores in prop::collection::vec((DIRECTORY, prop::sample::select(vec![".gitignore", ".ignore", ".rgignore"]), rules()), 0..5),
        repositories in prop::collection::vec((DIRECTORY, rules()), 0..2),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let root = fs_err::canonicalize(folder.path()).unwrap();
        // What is a file at one place and a directory at another is only the one that came first.
        let put = |directory: &str, name: &str, content: &str| {
            let path = root.join(directory).join(name);
            assert!(path.starts_with(&root), "{path:?}");
            let made = fs_err::create_dir_all(path.parent().unwrap());
            let _ = made.and_then(|()| fs_err::write(path, content));
        };
        // Without a repository ripgrep reads no .gitignore; here they count anyway.
        put("", ".git/info/exclude", "");
        for (directory, rules) in &repositories {
            put(directory, ".git/info/exclude", rules);
        }
        for (directory, name, rules) in &ignores {
            put(directory, name, rules);
        }
        for file in &files {
            put("", file, "");
        }
        let output = call(&root, "glob", &json!({"pattern": "**"}));
        let shown: BTreeSet<String> =
            output.lines().filter(|line| !line.starts_with("no file matches")).map(str::to_owned).collect();
        prop_assert_eq!(shown, reference(&root));
    }
}
