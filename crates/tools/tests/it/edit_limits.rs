//! Edits of large and hostile files, wrong arguments, and calls that are cancelled.
//!
//! The hostile files are such that a search that is not linear takes minutes for them.

use std::sync::Arc;

use playhouse_tools::{Alone, CallContext, Registry, ToolError, ToolOutput};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::edit_fixtures::call;
use super::{Count, context};

/// A workspace with one file, which was read.
struct House {
    folder: TempDir,
    context: CallContext,
}

impl House {
    async fn with(content: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("file"), content).unwrap();
        let context = context(folder.path(), Arc::new(Count::default()));
        call("read", &json!({"filePath": "file", "limit": 1}), &context).await.unwrap();
        Self { folder, context }
    }

    fn content(&self) -> Vec<u8> {
        fs_err::read(self.folder.path().join("file")).unwrap()
    }

    async fn edit(&self, old: &str, new: &str, all: bool) -> Result<ToolOutput, ToolError> {
        let input = json!({"filePath": "file", "oldString": old, "newString": new, "replaceAll": all});
        call("edit", &input, &self.context).await
    }

    async fn refused(&self, old: &str, new: &str, all: bool) -> String {
        let before = self.content();
        let error = self.edit(old, new, all).await.unwrap_err().to_string();
        assert_eq!(self.content(), before);
        assert!(error.len() < 8_000, "{} bytes", error.len());
        error
    }
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn every_strategy_ends_soon_in_five_megabytes() {
    let line = |n: usize| format!("    let value_{n} = compute({n}, \"{}\");\n", n * 7);
    let text: String = (0..110_000).map(line).collect();
    let (a, b, c) = (line(90_000), line(90_001), line(90_002));
    let changed = "    let b = 0;\n";
    let cases = [
        ("exact", format!("{a}{b}{c}")),
        ("line-trimmed", format!("{a}{}  \n{c}", b.trim_end())),
        ("indentation-flexible", format!("{}\n{}\n{}\n", a.trim(), b.trim(), c.trim())),
        ("whitespace-normalised", format!("{a}{}{c}", b.replace("= compute", "=  compute"))),
        ("escape-normalised", format!("{a}{b}{c}").replace('"', "\\\"")),
        ("trimmed-boundary", format!("\n\n{a}{b}{c}\n\n")),
        ("block-anchor", format!("{a}{}{c}", b.replace("compute", "computed"))),
    ];
    for (strategy, old) in cases {
        let house = House::with(&text).await;
        let new =
            old.split_inclusive('\n').map(|line| if line.contains("value_90001") { changed } else { line });
        let new = new.collect::<String>();
        // What indentation the new line has is what the others have in the same text.
        let new =
            if strategy == "indentation-flexible" { new.replace(changed, changed.trim_start()) } else { new };
        let output = house.edit(&old, &new, false).await.unwrap();
        assert_eq!(output.metadata["strategy"], strategy);
        assert_eq!(house.content(), text.replace(&b, changed).into_bytes(), "{strategy}");
    }
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn a_file_of_identical_lines_is_refused_as_ambiguous() {
    let house = House::with("    same();\n".repeat(400_000)).await;
    assert!(house.refused("    same();\n", "x", false).await.contains("400000 times"));
    let many = "same();\n".repeat(2_000);
    for old in [
        "\tsame();\n\tsame();\n".to_owned(),
        many.clone(),
        format!("{}same();  ", "same();\n".repeat(100)),
        "same();  same();".to_owned(),
        "\n\n  same();\n\n\n".to_owned(),
    ] {
        let error = house.refused(&old, "x", false).await;
        assert!(error.contains("places may be meant"), "{error}");
    }
    let inner = format!("same();\n{}same();\n", "other();\n".repeat(2_000));
    assert!(house.refused(&inner, "x", false).await.contains("nothing was changed"));
    let context = format!("{many}other();\n{many}");
    let error = house.refused(&context, &format!("{many}new();\n{many}"), false).await;
    assert!(error.contains("nothing was changed"), "{error}");
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn a_first_line_that_occurs_everywhere_is_not_compared_everywhere() {
    let text: String =
        (0..100_000).map(|n| format!("it(\"works\", () => {{\n  check({n});\n}});\n")).collect();
    let house = House::with(&text).await;
    let error = house.refused("it(\"works\", () => {\n  check(five);\n});\n", "x", false).await;
    assert!(error.contains("nothing was changed"), "{error}");
    let long = format!("it(\"works\", () => {{\n{}}});\n", "  check(five);\n".repeat(3_000));
    assert!(house.refused(&long, "x", false).await.contains("nothing was changed"));
    let last = "it(\"works\", () => {\n  check(99999)  ;\n});\n".replace(")  ;", ");  ");
    let output = house.edit(&last, "the end\n", false).await.unwrap();
    assert_eq!(output.metadata["strategy"], "line-trimmed");
    assert!(house.content().ends_with(b"check(99998);\n});\nthe end\n"));
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn very_long_lines_are_compared_with_bounded_work() {
    let house = House::with(format!("begin\n{}\nend\n", "ab ".repeat(1_500_000))).await;
    let other = format!("begin\n{}\nend\n", "ba ".repeat(1_500_000));
    let error = house.refused(&other, "x", false).await;
    assert!(error.contains("nothing was changed"), "{error}");
    let output = house.edit("begin \n", "start\n", false).await.unwrap();
    assert_eq!(output.metadata["strategy"], "line-trimmed");
    assert!(house.content().starts_with(b"start\nab ab "));
    let spaces = House::with(format!("{}x\n{}y\n", " ".repeat(2_000_000), "\t ".repeat(1_000_000))).await;
    let old = format!("{}x\n{}z\n", "\t ".repeat(300_000), " ".repeat(300_000));
    let error = spaces.refused(&old, "x", false).await;
    assert!(error.contains("was not found"), "{error}");
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn every_occurrence_is_replaced_by_other_strategies_too() {
    let house = House::with("\tif a {\n\t\tgo();\n\t}\n".repeat(30_000)).await;
    let output = house.edit("if a {\n    go();\n}\n", "if b {\n    stop();\n}\n", true).await.unwrap();
    assert_eq!(output.metadata["replacements"], 30_000);
    assert_eq!(house.content(), "\tif b {\n\t\tstop();\n\t}\n".repeat(30_000).into_bytes());
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn what_would_be_too_large_is_refused_by_every_strategy() {
    let house = House::with("a b\t\n".repeat(100_000)).await;
    let huge = "z".repeat(10_000);
    for old in ["a b", "  a b", "a b \n", "a  b"] {
        let error = house.refused(old, &huge, true).await;
        assert!(error.contains("files are changed up to 50.0 MB only"), "{old:?}: {error}");
    }
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_explained() {
    let house = House::with("a\n").await;
    let same = json!([{"oldString": "a", "newString": "b"}, {"oldString": "c", "newString": "c"}]);
    let bad: [(&str, Value, &str); 8] = [
        ("edit", json!({"filePath": "file"}), "oldString"),
        (
            "edit",
            json!({"filePath": "file", "oldString": 1, "newString": []}),
            "arguments of edit do not fit",
        ),
        ("edit", json!({"filePath": "file", "old_string": "a", "new_string": "b"}), "oldString"),
        ("edit", json!({"filePath": "", "oldString": "a", "newString": "b"}), "path"),
        ("edit", json!({"filePath": "file/", "oldString": "a", "newString": "b"}), "names a directory"),
        ("multiedit", json!({"filePath": "file", "edits": {}}), "arguments of multiedit do not fit"),
        ("multiedit", json!({"filePath": "file", "edits": [{"oldString": "a"}]}), "newString"),
        ("multiedit", json!({"filePath": "file", "edits": same}), "edit 2 of 2 (none was applied)"),
    ];
    for (tool, input, says) in bad {
        let error = call(tool, &input, &house.context).await.unwrap_err().to_string();
        assert!(error.contains(says), "{input}: {error}");
    }
    let edits: Vec<Value> = (0..101).map(|n| json!({"oldString": "a", "newString": n.to_string()})).collect();
    let input = json!({"filePath": "file", "edits": edits});
    let error = call("multiedit", &input, &house.context).await.unwrap_err().to_string();
    assert!(error.contains("edits has 101 edits: give 1 to 100"), "{error}");
    assert_eq!(house.content(), b"a\n");
}

#[tokio::test]
async fn who_edits_a_notebook_as_text_is_told_what_changes_a_cell() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.ipynb");
    fs_err::write(&path, r#"{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}"#).unwrap();
    fs_err::write(folder.path().join("notes.txt"), "5").unwrap();
    let mut context = context(folder.path(), Arc::new(Count::default()));
    // Who may not use it is told nothing.
    call("read", &json!({"filePath": "notes.ipynb"}), &context).await.unwrap();
    let input = json!({"filePath": "notes.ipynb", "oldString": "no such text", "newString": "6"});
    let told = call("edit", &input, &context).await.unwrap_err().to_string();
    assert!(!told.contains("notebook_edit"), "{told}");
    context.host = Arc::new(Alone::new(Arc::new(Registry::native())));
    for name in ["notes.ipynb", "notes.txt"] {
        call("read", &json!({"filePath": name}), &context).await.unwrap();
    }
    let edit = async |tool: &str, file: &str, old: &str| {
        let change = json!({"oldString": old, "newString": "6"});
        let input = match tool {
            "edit" => json!({"filePath": file, "oldString": old, "newString": "6"}),
            _ => json!({"filePath": file, "edits": [change]}),
        };
        match call(tool, &input, &context).await {
            Ok(output) => output.output,
            Err(error) => error.to_string(),
        }
    };
    for tool in ["edit", "multiedit"] {
        let told = edit(tool, "notes.ipynb", "no such text").await;
        assert!(told.contains("not found") && told.contains("`notebook_edit`"), "{told}");
    }
    assert!(edit("edit", "notes.ipynb", "5").await.contains("`notebook_edit`"));
    assert!(!edit("edit", "notes.txt", "5").await.contains("notebook_edit"));
}

#[tokio::test]
async fn a_file_must_have_been_read_for_multiedit_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs_err::write(&path, "a\n").unwrap();
    let context = context(folder.path(), Arc::new(Count::default()));
    let input = json!({"filePath": "file", "edits": [{"oldString": "a", "newString": "b"}]});
    let error = call("multiedit", &input, &context).await.unwrap_err().to_string();
    assert!(error.contains("has not been read in this session"), "{error}");
    call("read", &json!({"filePath": "file"}), &context).await.unwrap();
    fs_err::write(&path, "a changed\n").unwrap();
    let error = call("multiedit", &input, &context).await.unwrap_err().to_string();
    assert!(error.contains("changed since it was last read"), "{error}");
    assert_eq!(fs_err::read(&path).unwrap(), b"a changed\n");
}

#[tokio::test]
async fn a_cancelled_call_changes_nothing() {
    let house = House::with("a\n").await;
    let multi = json!({"filePath": "file", "edits": [{"oldString": "a", "newString": "b"}]});
    let edit = json!({"filePath": "file", "oldString": "a", "newString": "b"});
    let path = fs_err::canonicalize(house.folder.path().join("file")).unwrap();
    for (tool, input) in [("edit", &edit), ("multiedit", &multi)] {
        // Another call has the file, so this one waits until it is cancelled.
        let guard = house.context.locks.lock(std::slice::from_ref(&path)).await;
        let mut context = house.context.clone();
        context.cancel = house.context.cancel.child_token();
        let cancel = context.cancel.clone();
        let (result, ()) = tokio::join!(call(tool, input, &context), async {
            tokio::task::yield_now().await;
            cancel.cancel();
        });
        assert!(matches!(result, Err(ToolError::Cancelled(_))), "{result:?}");
        drop(guard);
        assert!(matches!(call(tool, input, &context).await, Err(ToolError::Cancelled(_))));
        assert_eq!(house.content(), b"a\n");
    }
}
