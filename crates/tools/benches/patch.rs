//! How long a patch takes: `cargo bench -p playhouse-tools --bench patch`.
//!
//! 100 hunks over 20 files of 1,000 lines, through the tool as the engine calls it: read, resolved, previewed, checked and
//! written, with the diffs that are told. Odd runs undo what even ones do. Prints the median, the fastest and the slowest of 50 runs.
//! Run without `--bench` (as `cargo test --benches` does) it runs twice.

#![allow(clippy::print_stdout, reason = "the figures are what it is for")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run stops")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use playhouse_protocol::message::CallInput;
use playhouse_sandbox::{Processes, Walls};
use playhouse_tools::{Alone, CallContext, Registry, runner};
use playhouse_workspace::{FileTracker, PathLocks, Pool, Workspace, hash};
use serde_json::json;
use tokio_util::sync::CancellationToken;

const FILES: usize = 20;
const HUNKS: usize = 5;
const LINES: usize = 1000;

/// What it may take, at the median.
const MOST: Duration = Duration::from_millis(20);

/// A patch that changes lines from `old` to `new` everywhere.
fn patch(old: &str, new: &str) -> String {
    let mut patch = String::from("*** Begin Patch\n");
    for file in 0..FILES {
        let _ = writeln!(patch, "*** Update File: src/module_{file}.rs");
        for hunk in 0..HUNKS {
            let line = hunk * LINES / HUNKS + 100;
            let context = |line: usize| format!("    let value_{line} = compute({line});");
            let _ = write!(
                patch,
                "@@\n {}\n-    {old}({line});\n+    {new}({line});\n {}\n",
                context(line - 1),
                context(line + 1)
            );
        }
    }
    patch.push_str("*** End Patch\n");
    patch
}

fn main() {
    let runs = if std::env::args().any(|argument| argument == "--bench") { 50 } else { 2 };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("repo");
    fs_err::create_dir_all(root.join("src")).unwrap();
    let registry = Arc::new(Registry::native());
    let context = CallContext {
        workspace: Arc::new(Workspace::open(&root, folder.path().join("outputs")).unwrap()),
        files: Arc::new(FileTracker::new()),
        locks: Arc::new(PathLocks::new()),
        pool: Pool::new(4),
        cancel: CancellationToken::new(),
        output: Arc::new(()),
        output_file: folder.path().join("outputs/call.txt"),
        storage: playhouse_tools::storage::SessionStorage::alone(folder.path().join("outputs")),
        host: Arc::new(Alone::new(registry.clone())),
        processes: Processes::new().of("ses_bench"),
        walls: Walls::open(),
        writes: playhouse_tools::WriteLog::default(),
    };
    for file in 0..FILES {
        let mut content = String::new();
        for line in 0..LINES {
            let changes = line % (LINES / HUNKS) == 100;
            let _ = match changes {
                true => writeln!(content, "    old({line});"),
                false => writeln!(content, "    let value_{line} = compute({line});"),
            };
        }
        let place = context.workspace.resolve(&format!("src/module_{file}.rs")).unwrap();
        fs_err::write(&place.path, &content).unwrap();
        context.files.remember(place.path, hash(content.as_bytes()));
    }

    let calls = [patch("old", "new"), patch("new", "old")]
        .map(|patch| CallInput::from_model(&json!({"patchText": patch}).to_string()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut times: Vec<Duration> = (0..runs)
        .map(|run| {
            let start = Instant::now();
            let output = runtime.block_on(async {
                let (tool, prepared) =
                    runner::prepare(&registry, "apply_patch", &calls[run % 2], &context).await.unwrap();
                runner::execute(&tool, prepared, &context).await.unwrap()
            });
            assert_eq!(output.metadata["additions"], FILES * HUNKS);
            start.elapsed()
        })
        .collect();
    times.sort();
    let median = times[times.len() / 2];
    println!(
        "apply_patch, {} hunks over {FILES} files of {LINES} lines: median {median:.1?}, fastest {:.1?}, slowest {:.1?}; at most {MOST:?}: {}",
        FILES * HUNKS,
        times[0],
        times[times.len() - 1],
        if median <= MOST { "kept" } else { "MISSED" }
    );
}
