//! What calls cost that change files, from their arguments to their result.

use std::fmt::Write as _;
use std::sync::Arc;

use playhouse::protocol::message::CallInput;
use playhouse_sandbox::{Processes, Walls};
use playhouse_tools::{Alone, CallContext, Registry, runner};
use playhouse_workspace::{FileTracker, PathLocks, Pool, Workspace};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::Part;

/// Lines of a file.
const LINES: usize = 1_000;
/// Files of a patch, and its sections in each.
const FILES: usize = 10;
const HUNKS: usize = 5;

/// A workspace in which calls are made.
struct House {
    folder: tempfile::TempDir,
    registry: Registry,
    context: CallContext,
    runtime: Runtime,
}

impl House {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let outputs = folder.path().join("outputs");
        let root = folder.path().join("repo");
        fs_err::create_dir_all(&root).expect("a folder in it");
        let context = CallContext {
            workspace: Arc::new(Workspace::open(&root, outputs.clone()).expect("a workspace")),
            files: Arc::new(FileTracker::new()),
            locks: Arc::new(PathLocks::new()),
            pool: Pool::new(1),
            cancel: CancellationToken::new(),
            output: Arc::new(()),
            output_file: outputs.join("call.txt"),
            storage: playhouse_tools::storage::SessionStorage::alone(outputs.to_owned()),
            host: Arc::new(Alone::default()),
            processes: Processes::new().of("ses_bench"),
            walls: Walls::open(),
            writes: playhouse_tools::WriteLog::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { folder, registry: Registry::native(), context, runtime }
    }

    /// Writes a file, and has it read once.
    fn file(&self, name: &str, content: &str) {
        fs_err::write(self.folder.path().join("repo").join(name), content).expect("it is written");
        self.call("read", &json!({"filePath": name, "limit": 1}));
    }

    fn call(&self, tool: &str, input: &Value) {
        let input = CallInput::from_model(&input.to_string());
        let done = self.runtime.block_on(async {
            let (tool, prepared) = runner::prepare(&self.registry, tool, &input, &self.context).await?;
            runner::execute(&tool, prepared, &self.context).await
        });
        done.expect("the call succeeds");
    }
}

fn line(number: usize) -> String {
    format!("    let value_{number} = compute({number}, \"{}\");\n", number * 7)
}

/// A file, and two edits of which each undoes the other.
fn edit(shown: impl Fn(&str) -> String) -> Part {
    let house = House::new();
    house.file("file", &(0..LINES).map(line).collect::<String>());
    let before: String = [line(LINES - 3), line(LINES - 2), line(LINES - 1)].concat();
    let after = before.replace("compute", "computed");
    let edits = [(&before, &after), (&after, &before)]
        .map(|(old, new)| json!({"filePath": "file", "oldString": shown(old), "newString": new}));
    Part::new(2, "edit of a file of 1,000 lines", move || {
        edits.iter().for_each(|edit| house.call("edit", edit));
    })
}

pub(crate) fn edit_exact() -> Part {
    edit(str::to_owned)
}

pub(crate) fn edit_trimmed() -> Part {
    // As models write it that lose white space at the ends of lines.
    edit(|text| text.replace(";\n", ";  \n"))
}

/// A patch of all files, from the lines `old` to the lines `new`.
fn patch_text(old: &str, new: &str) -> Value {
    let mut patch = String::from("*** Begin Patch\n");
    for file in 0..FILES {
        // Writing to memory does not fail.
        let _ = writeln!(patch, "*** Update File: module_{file}.rs");
        for hunk in 0..HUNKS {
            let place = place(hunk);
            let (above, below) = (line(place - 1), line(place + 1));
            let _ = write!(patch, "@@\n {above}-    {old}({place});\n+    {new}({place});\n {below}");
        }
    }
    patch.push_str("*** End Patch\n");
    json!({"patchText": patch})
}

/// The line that a section changes.
fn place(hunk: usize) -> usize {
    hunk * LINES / HUNKS + 100
}

pub(crate) fn patch() -> Part {
    let house = House::new();
    let places: Vec<usize> = (0..HUNKS).map(place).collect();
    let lines = (0..LINES).map(|number| match places.contains(&number) {
        true => format!("    old({number});\n"),
        false => line(number),
    });
    let content: String = lines.collect();
    (0..FILES).for_each(|file| house.file(&format!("module_{file}.rs"), &content));
    let patches = [patch_text("old", "new"), patch_text("new", "old")];
    Part::new(2, "patch of 50 places in 10 files", move || {
        patches.iter().for_each(|patch| house.call("apply_patch", patch));
    })
}
