//! What needs a process of its own: the memory that a call takes.

#![allow(clippy::unwrap_used, reason = "a test, also in its helpers")]

mod edit_fixtures;
mod edit_limits;
mod find_grep;
mod find_walk;
mod patch_fixtures;
mod web_door;
mod web_fetch;
mod web_search;
mod web_server;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use playhouse_protocol::message::CallInput;
use playhouse_sandbox::{Processes, Walls};
use playhouse_tools::storage::{Storage, StorageLimits};
use playhouse_tools::{Alone, CallContext, OutputSink, Registry, runner};
use playhouse_workspace::{FileTracker, PathLocks, Pool, Workspace};
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[derive(Default)]
struct Count(Mutex<usize>);

impl OutputSink for Count {
    fn write(&self, text: &str) {
        *self.0.lock().unwrap() += text.len();
    }
}

fn context(folder: &Path, output: Arc<dyn OutputSink>) -> CallContext {
    let unbounded = StorageLimits { outputs: None, tenant: None, undo: None };
    CallContext {
        workspace: Arc::new(Workspace::open(folder, folder.join("outputs")).unwrap()),
        files: Arc::new(FileTracker::new()),
        locks: Arc::new(PathLocks::new()),
        pool: Pool::new(4),
        cancel: CancellationToken::new(),
        output,
        output_file: folder.join("outputs/call.txt"),
        storage: Storage::new(unbounded).session("", folder.join("outputs"), Vec::new()),
        host: Arc::new(Alone::default()),
        processes: Processes::new().of("ses_test"),
        walls: Walls::open(),
        writes: playhouse_tools::WriteLog::default(),
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: scripts/slow runs it"]
async fn a_gigabyte_of_output_is_kept_on_disk_and_little_of_it_in_memory() {
    if ran_alone("a_gigabyte_of_output_is_kept_on_disk_and_little_of_it_in_memory") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let watched = Arc::new(Count::default());
    let context = context(folder.path(), watched.clone());
    let registry = Registry::native();
    let input = json!({"command": "head -c 1000000000 /dev/zero; echo; echo end"}).to_string();
    let (tool, prepared) =
        runner::prepare(&registry, "bash", &CallInput::from_model(&input), &context).await.unwrap();

    let before = resident();
    let running = runner::execute(&tool, prepared, &context);
    tokio::pin!(running);
    let mut most = before;
    let result = loop {
        tokio::select! {
            result = &mut running => break result.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(10)) => most = most.max(resident()),
        }
    };

    assert_eq!(result.metadata["exit"], 0);
    let start = "[binary output of 1000000005 bytes is not shown]";
    assert!(result.output.starts_with(start), "{}", result.output);
    let path = result.metadata["outputPath"].as_str().unwrap();
    assert_eq!(fs_err::metadata(path).unwrap().len(), 1_000_000_005);
    assert!(result.metadata["output"].as_str().unwrap().ends_with("\nend\n"));
    assert!(most - before < 32 * 1024 * 1024, "{before} bytes before, then up to {most}");
    assert!(*watched.0.lock().unwrap() < 2_000_000);
}

/// Runs `test` in a process where no other test takes memory; false in that process itself.
fn ran_alone(test: &str) -> bool {
    const ALONE: &str = "PLAYHOUSE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return false;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output =
        command.args(["--exact", test, "--nocapture", "--include-ignored"]).env(ALONE, "1").output().unwrap();
    let told =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
    true
}

/// Memory of this process, in bytes.
fn resident() -> u64 {
    let status = fs_err::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
