//! How `grep`, `glob`, `list` and `read` compare to ripgrep: `cargo bench -p playhouse-tools --bench find`.
//!
//! Makes a tree of 50,000 files and searches it with the tools and with `rg`, by turns, each search in a process of its
//! own. Prints medians of wall time and of peak memory, and their ratio; both have to find the same. Then it reads the first
//! lines of a file of 1 GB. Run without `--bench` (as `cargo test --benches` does) the tree is small and each search
//! runs once.

#![allow(clippy::print_stdout, reason = "the figures are what it is for")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run stops")]

#[path = "find/tree.rs"]
mod tree;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use playhouse_protocol::message::CallInput;
use playhouse_sandbox::{Processes, Walls};
use playhouse_tools::glob::Glob;
use playhouse_tools::grep::Grep;
use playhouse_tools::list::List;
use playhouse_tools::read::Read;
use playhouse_tools::{Alone, CallContext, Registry, Tool, Typed, runner};
use playhouse_workspace::{FileTracker, PathLocks, Pool, Workspace};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wait4::Wait4 as _;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, tool, root, input] = arguments.as_slice()
        && mode == "--call"
    {
        print!("{}", call(tool, Path::new(root), &serde_json::from_str(input).unwrap()));
        return;
    }
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let (files, rounds) = if is_bench { (50_000, 21) } else { (500, 1) };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("tree");
    let start = Instant::now();
    let bytes = tree::make(&root, files);
    println!(
        "{files} files, {} MB, made in {:.1?}; {rounds} rounds, medians",
        bytes / 1_000_000,
        start.elapsed()
    );
    search(&root, rounds);
    read(folder.path(), if is_bench { 1_000_000_000 } else { 10_000_000 }, 100 * rounds);
}

/// A search in both ways.
struct Case {
    name: &'static str,
    tool: &'static str,
    input: Value,
    ripgrep: &'static [&'static str],
    /// Whether both show all that they find.
    is_whole: bool,
}

fn cases() -> Vec<Case> {
    let case = |name, tool, input, ripgrep, is_whole| Case { name, tool, input, ripgrep, is_whole };
    vec![
        case("grep: a word that is rare", "grep", json!({"pattern": tree::RARE}), &["-n", tree::RARE], true),
        case(
            "grep: a word that is nowhere",
            "grep",
            json!({"pattern": "nowhere_at_all"}),
            &["-n", "nowhere_at_all"],
            true,
        ),
        case(
            "grep: an expression, in some files",
            "grep",
            json!({"pattern": r"(?i)NEEDLE_\d+\b", "include": "*.rs"}),
            &["-n", "-g", "*.rs", r"(?i)NEEDLE_\d+\b"],
            true,
        ),
        case("grep: a word that is everywhere", "grep", json!({"pattern": "let"}), &["-n", "let"], false),
        case("glob: some files", "glob", json!({"pattern": "*.toml"}), &["--files", "-g", "*.toml"], false),
        case("glob: all files", "glob", json!({"pattern": "**"}), &["--files"], false),
        case(
            "glob: all files, rg sorts them, too",
            "glob",
            json!({"pattern": "**"}),
            &["--files", "--sortr", "modified"],
            false,
        ),
        case("list: the top, rg 3 levels", "list", json!({}), &["--files", "--max-depth", "3"], false),
    ]
}

fn search(root: &Path, rounds: usize) {
    for case in cases() {
        let ours = || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.arg("--call").arg(case.tool).arg(root).arg(case.input.to_string());
            command
        };
        let theirs = || {
            let mut command = Command::new("rg");
            // Their configuration and global excludes are not ours.
            command.current_dir(root).args(["--no-config", "--no-heading"]).args(case.ripgrep).arg("./");
            command.env("XDG_CONFIG_HOME", "/nonexistent").env("HOME", "/nonexistent");
            command
        };
        let (mut mine, mut rival) = (Vec::new(), Vec::new());
        // The first round fills the caches, and compares what is found.
        for round in 0..=rounds {
            if round == 0 {
                let (found, expected) = (lines(ours()), lines(theirs()));
                assert!(!case.is_whole || found == expected, "{}: {found} and {expected}", case.name);
                continue;
            }
            mine.push(measure(ours()));
            rival.push(measure(theirs()));
        }
        let (time, memory) = middle(&mine);
        let (their_time, their_memory) = middle(&rival);
        println!(
            "{:<38} {:>7.1} ms, rg {:>7.1} ms: {:.2} of its time; {:>5.1} MB, rg {:>5.1} MB: {:.2} of its memory",
            case.name,
            milliseconds(time),
            milliseconds(their_time),
            time.as_secs_f64() / their_time.as_secs_f64(),
            megabytes(memory),
            megabytes(their_memory),
            megabytes(memory) / megabytes(their_memory),
        );
    }
}

/// Lines of output that begin with a number, alone or after a path: lines that were found.
fn lines(mut command: Command) -> usize {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap_or_else(|error| missing(&error));
    let mut count = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).split(b'\n') {
        let line = String::from_utf8_lossy(&line.unwrap()).into_owned();
        let number = line.split(['\t', ':']).find(|part| !part.starts_with("./"));
        count += usize::from(number.is_some_and(|number| number.parse::<u64>().is_ok()));
    }
    child.wait().unwrap();
    count
}

fn missing(error: &std::io::Error) -> ! {
    panic!("the search cannot be started ({error}): install ripgrep (apt-get install -y ripgrep)")
}

struct Run {
    time: Duration,
    /// The most memory that it had, in bytes. Never less than what this process has, which is little.
    memory: u64,
}

fn measure(mut command: Command) -> Run {
    let start = Instant::now();
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let end = spawned.unwrap_or_else(|error| missing(&error)).wait4().unwrap();
    let time = start.elapsed();
    // Ripgrep ends with 1 when nothing matches.
    assert!(matches!(end.status.code(), Some(0 | 1)), "{command:?} ended with {}", end.status);
    Run { time, memory: end.rusage.maxrss }
}

fn middle(runs: &[Run]) -> (Duration, u64) {
    let mut times: Vec<Duration> = runs.iter().map(|run| run.time).collect();
    let mut memory: Vec<u64> = runs.iter().map(|run| run.memory).collect();
    times.sort_unstable();
    memory.sort_unstable();
    (times[times.len() / 2], memory[memory.len() / 2])
}

/// The first lines of a large file, in this process.
fn read(folder: &Path, bytes: u64, rounds: usize) {
    let text = "a line of a log that goes on and on\n".repeat(30_000);
    fs_err::write(folder.join("log"), &text).unwrap();
    fs_err::OpenOptions::new().write(true).open(folder.join("log")).unwrap().set_len(bytes).unwrap();
    let input = json!({"filePath": "log", "limit": 100});
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let runtime = runtime();
            let (registry, context) = context(folder);
            let start = Instant::now();
            let output = runtime.block_on(answer(&registry, "read", &input, &context));
            let time = start.elapsed();
            assert!(output.contains("read on with offset 101"), "{output}");
            time
        })
        .collect();
    times.sort_unstable();
    println!(
        "read: 100 lines of {} MB             {:>7.3} ms",
        bytes / 1_000_000,
        milliseconds(times[times.len() / 2])
    );
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn context(root: &Path) -> (Registry, CallContext) {
    let outputs = root.with_extension("outputs");
    let context = CallContext {
        workspace: Arc::new(Workspace::open(root, outputs.clone()).unwrap()),
        files: Arc::new(FileTracker::new()),
        locks: Arc::new(PathLocks::new()),
        pool: Pool::new(4),
        cancel: CancellationToken::new(),
        output: Arc::new(()),
        output_file: outputs.join("call.txt"),
        storage: playhouse_tools::storage::SessionStorage::alone(outputs.to_owned()),
        host: Arc::new(Alone::default()),
        processes: Processes::new().of("ses_bench"),
        walls: Walls::open(),
        writes: playhouse_tools::WriteLog::default(),
    };
    // Only these, so that the process holds nothing else: the other tools bring along clients for the network.
    let mut registry = Registry::new();
    let tools: [Arc<dyn Tool>; 4] = [
        Arc::new(Typed::new(Read)),
        Arc::new(Typed::new(Glob)),
        Arc::new(Typed::new(Grep)),
        Arc::new(Typed::new(List)),
    ];
    for tool in tools {
        registry.add(tool).unwrap();
    }
    (registry, context)
}

async fn answer(registry: &Registry, tool: &str, input: &Value, context: &CallContext) -> String {
    let input = CallInput::from_model(&input.to_string());
    let (tool, prepared) = runner::prepare(registry, tool, &input, context).await.unwrap();
    runner::execute(&tool, prepared, context).await.unwrap().output
}

fn call(tool: &str, root: &Path, input: &Value) -> String {
    let (registry, context) = context(root);
    runtime().block_on(answer(&registry, tool, input, &context))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[allow(clippy::cast_precision_loss)]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
