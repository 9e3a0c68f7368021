//! How long an edit takes: `cargo bench -p playhouse-tools --bench edit`.
//!
//! Whole calls, as the engine makes them: the file is read, searched, written beside and renamed, and the diff is made.
//! Targets: 1 MB under 5 ms when the text is there exactly, under 50 ms by the worst strategy. Each case says how its text
//! differs from that of the file; the last are refused only after every strategy has looked.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run stops")]

use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use playhouse_protocol::message::CallInput;
use playhouse_sandbox::{Processes, Walls};
use playhouse_tools::{Alone, CallContext, Registry, ToolError, ToolOutput, runner};
use playhouse_workspace::{FileTracker, PathLocks, Pool, Workspace};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// A workspace with one file.
struct House {
    folder: tempfile::TempDir,
    registry: Registry,
    context: CallContext,
}

impl House {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let outputs = folder.path().join("outputs");
        let context = CallContext {
            workspace: Arc::new(Workspace::open(folder.path(), outputs.clone()).unwrap()),
            files: Arc::new(FileTracker::new()),
            locks: Arc::new(PathLocks::new()),
            pool: Pool::new(2),
            cancel: CancellationToken::new(),
            output: Arc::new(()),
            output_file: outputs.join("call.txt"),
            storage: playhouse_tools::storage::SessionStorage::alone(outputs.to_owned()),
            host: Arc::new(Alone::default()),
            processes: Processes::new().of("ses_bench"),
            walls: Walls::open(),
            writes: playhouse_tools::WriteLog::default(),
        };
        Self { folder, registry: Registry::native(), context }
    }

    async fn call(&self, tool: &str, input: &Value) -> Result<ToolOutput, ToolError> {
        let input = CallInput::from_model(&input.to_string());
        let (tool, prepared) = runner::prepare(&self.registry, tool, &input, &self.context).await?;
        runner::execute(&tool, prepared, &self.context).await
    }

    /// Puts the file there again, and reads it.
    async fn reset(&self, content: &str) {
        fs_err::write(self.folder.path().join("file"), content).unwrap();
        self.call("read", &json!({"filePath": "file", "limit": 1})).await.unwrap();
    }
}

fn line(n: usize) -> String {
    format!("    let value_{n} = compute({n}, \"{}\");\n", n * 7)
}

/// Texts to find, each as one strategy finds it, at the end of a file of so many lines.
fn cases(lines: usize) -> Vec<(&'static str, String)> {
    let (a, b, c) = (line(lines - 3), line(lines - 2), line(lines - 1));
    vec![
        ("exact", format!("{a}{b}{c}")),
        ("line-trimmed", format!("{a}{}  \n{c}", b.trim_end())),
        ("indentation-flexible", format!("{}\n{}\n{}\n", a.trim(), b.trim(), c.trim())),
        ("whitespace-normalised", format!("{a}{}{c}", b.replace("= compute", "=  compute"))),
        ("escape-normalised", format!("{a}{b}{c}").replace('"', "\\\"")),
        ("trimmed-boundary", format!("\n\n{a}{b}{c}\n\n")),
        ("block-anchor", format!("{a}{}{c}", b.replace("compute", "computed"))),
        ("refused-absent", "    let other = 1;\n    let another = 2;\n    let last = 3;\n".to_owned()),
    ]
}

fn edits(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let house = House::new();
    for (name, size) in [("1MB", 1_000_000), ("5MB", 5_000_000)] {
        let lines = size / line(size / 50).len();
        let text: String = (0..lines).map(line).collect();
        let same = "it(\"works\", () => {\n  check(1);\n});\n".repeat(size / 36);
        let mut all: Vec<_> = cases(lines).into_iter().map(|(case, old)| (case, &text, old)).collect();
        all.push((
            "refused-identical-blocks",
            &same,
            "it(\"works\", () => {\n  check(five);\n});\n".to_owned(),
        ));
        // As many replacements as lines, so that the diff is as large as the file.
        all.push(("exact-everywhere", &same, "check(1)".to_owned()));
        all.push(("indentation-flexible-everywhere", &same, "check(1);\n});\n".to_owned()));
        let mut group = criterion.benchmark_group(format!("edit/{name}"));
        group
            .sample_size(20)
            .warm_up_time(Duration::from_millis(500))
            .measurement_time(Duration::from_secs(3));
        for (case, text, old) in all {
            let everywhere = case.ends_with("everywhere");
            let input = json!({
                "filePath": "file",
                "oldString": old,
                "newString": "    let b = 0;\n",
                "replaceAll": everywhere,
            });
            group.bench_function(case, |bencher| {
                bencher.iter_batched(
                    || runtime.block_on(house.reset(text)),
                    |()| {
                        let result = runtime.block_on(house.call("edit", &input));
                        assert_eq!(result.is_err(), case.starts_with("refused"), "{case}: {result:?}");
                        result
                    },
                    BatchSize::PerIteration,
                );
            });
        }
        group.finish();
    }
}

criterion_group!(benches, edits);
criterion_main!(benches);
