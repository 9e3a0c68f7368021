use std::path::PathBuf;

use futures::FutureExt;
use serde_json::json;

use super::*;
use crate::testing::{self, Fake};

struct Fixture {
    folder: tempfile::TempDir,
    registry: Registry,
    context: CallContext,
}

fn fixture(tool: Fake) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let context = testing::context(folder.path(), &folder.path().join("outputs")).unwrap();
    let mut registry = Registry::new();
    registry.add(Arc::new(tool)).unwrap();
    Fixture { folder, registry, context }
}

impl Fixture {
    async fn call(&self) -> Result<ToolOutput, ToolError> {
        testing::call(&self.registry, "fake", &json!({}), &self.context).await
    }

    async fn refused(&self, name: &str, input: &str) -> String {
        let prepared = prepare(&self.registry, name, &CallInput::from_model(input), &self.context).await;
        prepared.map(|(_, prepared)| prepared).unwrap_err().to_string()
    }
}

fn answering(result: Result<String, ToolError>) -> Fake {
    Fake::new("fake", move |_| {
        let result = result.clone().map(|output| ToolOutput { output, ..ToolOutput::default() });
        std::future::ready(result).boxed()
    })
}

#[tokio::test]
async fn calls_that_are_no_calls_are_answered_with_what_would_be_one() {
    let fixture = fixture(Fake::named("fake"));
    let error = fixture.refused("fakes", "{}").await;
    assert_eq!(error, "there is no tool \"fakes\". Did you mean fake? The tools are: fake");
    let error = fixture.refused("fake", "{\"input\": \"cut of").await;
    assert!(error.contains("not valid JSON") && error.contains("{input?: string}"), "{error}");
    assert!(error.starts_with("the arguments of fake do not fit"), "{error}");
}

#[tokio::test]
async fn output_and_errors_are_capped() {
    let long = "line\n".repeat(100_000);
    let output = fixture(answering(Ok(long.clone()))).call().await.unwrap();
    assert!(output.output.len() <= truncate::MAX_BYTES);
    assert_eq!(output.metadata["truncated"], true);
    let path = PathBuf::from(output.metadata["outputPath"].as_str().unwrap());
    assert!(output.output.contains(path.to_str().unwrap()));

    let failing = fixture(answering(Err(ToolError::Failed(long.clone()))));
    let Err(ToolError::Failed(error)) = failing.call().await else { panic!("must fail") };
    assert!(error.len() <= truncate::MAX_BYTES);
    let saved = fs_err::read_to_string(failing.folder.path().join("outputs/call.txt")).unwrap();
    assert_eq!(saved, long);
}

#[tokio::test]
async fn facts_and_titles_are_capped() {
    let tool = Fake::new("fake", |_| {
        let mut output = ToolOutput { title: "ü".repeat(1_000), ..ToolOutput::text("x") };
        output.metadata.insert("long".into(), "ü".repeat(1_000_000).into());
        output.metadata.insert("list".into(), vec!["x".repeat(1_000); 100].into());
        output.metadata.insert("exit".into(), 0.into());
        std::future::ready(Ok(output)).boxed()
    });
    let output = fixture(tool).call().await.unwrap();
    assert_eq!(output.title, format!("{}…", "ü".repeat(TITLE)));
    assert_eq!(output.metadata["long"], format!("{}…", "ü".repeat(FACT)));
    assert_eq!((&output.metadata["exit"], output.metadata.get("list")), (&json!(0), None));
    assert_eq!(output.metadata["metadataCut"], json!(["long", "list"]));

    let tool = Fake::new("fake", |_| {
        let many = (0..100_000).map(|number| (format!("fact{number}"), json!(number))).collect();
        std::future::ready(Ok(ToolOutput { metadata: many, ..ToolOutput::text("x") })).boxed()
    });
    let output = fixture(tool).call().await.unwrap();
    assert!(serde_json::to_string(&output.metadata).unwrap().len() < METADATA + 4_096);
}

#[tokio::test]
async fn more_files_than_a_result_carries_are_named_and_left_out() {
    let tool = |count: usize, bytes: usize| {
        Fake::new("fake", move |_| {
            let one = |number| NewAttachment {
                mime: "image/png".into(),
                filename: format!("{number}.png"),
                content: vec![0; bytes].into(),
            };
            let output = ToolOutput { attachments: (0..count).map(one).collect(), ..ToolOutput::text("see") };
            std::future::ready(Ok(output)).boxed()
        })
    };
    let output = fixture(tool(22, 10)).call().await.unwrap();
    assert_eq!(output.attachments.len(), 20);
    assert!(
        output.output.contains("\n[not attached: 20.png (image/png, 10 bytes), 21.png"),
        "{}",
        output.output
    );
    let output = fixture(tool(3, 4_000_000)).call().await.unwrap();
    assert_eq!(output.attachments.len(), 2);
    assert!(output.output.contains("[not attached: 2.png (image/png, 4.0 MB). One"), "{}", output.output);
}

#[tokio::test]
async fn a_file_counts_as_read_only_if_it_was_shown() {
    for (length, known) in [(10, true), (100_000, false)] {
        let path = PathBuf::from("/repo/a");
        let seen = vec![(path.clone(), playhouse_workspace::hash(b"a"))];
        let fixture = fixture(Fake::new("fake", move |_| {
            let output = ToolOutput { seen: seen.clone(), ..ToolOutput::text("x".repeat(length)) };
            std::future::ready(Ok(output)).boxed()
        }));
        fixture.call().await.unwrap();
        assert_eq!(fixture.context.files.known(&path).is_some(), known);
    }
}

#[tokio::test]
async fn short_output_is_left_alone() {
    let output = fixture(answering(Ok("short".into()))).call().await.unwrap();
    assert_eq!((output.output.as_str(), output.metadata.len()), ("short", 0));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_call_that_looks_at_what_the_kernel_has_needs_no_place_on_the_pool() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("file"), "one").unwrap();
    let mut context = testing::context(folder.path(), &folder.path().join("outputs")).unwrap();
    context.pool = playhouse_workspace::Pool::new(1);
    let (release, held) = std::sync::mpsc::sync_channel::<()>(0);
    let pool = context.pool.clone();
    let full = tokio::spawn(async move { pool.run(move || held.recv()).await });
    while context.pool.running() < 1 {
        tokio::task::yield_now().await;
    }
    let registry = Registry::native();
    let prepare = |path: &str| {
        let input = CallInput::Object(json!({"filePath": path}).as_object().unwrap().clone());
        let (registry, context) = (&registry, &context);
        async move { prepare(registry, "read", &input, context).await.map(|(_, prepared)| prepared.title) }
    };
    let at_once = tokio::time::timeout(Duration::from_secs(10), prepare("file")).await;
    assert_eq!(at_once.expect("a kernel from 5.12 on, and no filter of openat2").unwrap(), "file");
    // So is its reading, on file systems that know how.
    let file = fs_err::File::open(folder.path().join("file")).unwrap();
    let reads = playhouse_workspace::at_once(|| {
        std::io::Read::read(&mut playhouse_workspace::Reader(file.file()), &mut [0]).is_ok()
    });
    if reads.is_some() {
        let input = json!({"filePath": "file"});
        let called = testing::call(&registry, "read", &input, &context);
        let read = tokio::time::timeout(Duration::from_secs(10), called).await.expect("it waits for nothing");
        assert!(read.unwrap().output.contains("one"));
    }
    // Links are followed where it may block.
    fs_err::os::unix::fs::symlink("file", folder.path().join("link")).unwrap();
    let mut link = Box::pin(prepare("link"));
    assert!((&mut link).now_or_never().is_none());
    assert_eq!(context.pool.waiting(), 1);
    drop(release);
    assert_eq!(link.await.unwrap(), "file");
    assert!(full.await.unwrap().is_err());
}

#[tokio::test]
async fn a_panic_while_a_call_begins_reaches_whoever_made_it() {
    let fixture = fixture(Fake::new("fake", |_| panic!("on purpose")));
    let panic = std::panic::AssertUnwindSafe(fixture.call()).catch_unwind().await.unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
}

#[tokio::test]
async fn a_tool_that_heeds_the_cancelling_says_how_it_ended() {
    let begun = CancellationToken::new();
    let mark = begun.clone();
    let fixture = fixture(Fake::new("fake", move |context| {
        let cancel = context.cancel.clone();
        mark.cancel();
        async move {
            cancel.cancelled().await;
            Err(ToolError::Cancelled("half of it is done".into()))
        }
        .boxed()
    }));
    let cancelling = async {
        begun.cancelled().await;
        fixture.context.cancel.cancel();
    };
    let (result, ()) = tokio::join!(fixture.call(), cancelling);
    assert_eq!(result.unwrap_err().to_string(), "cancelled: half of it is done");
}

#[tokio::test]
async fn a_tool_that_hangs_is_left_behind_and_cleaned_up() {
    struct Dropped(CancellationToken);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }
    let (begun, dropped) = (CancellationToken::new(), CancellationToken::new());
    let marks = (begun.clone(), dropped.clone());
    let fixture = fixture(Fake::new("fake", move |_| {
        let held = Dropped(marks.1.clone());
        marks.0.cancel();
        async move {
            let _held = held;
            std::future::pending().await
        }
        .boxed()
    }));
    let cancelling = async {
        begun.cancelled().await;
        let cancelled = std::time::Instant::now();
        fixture.context.cancel.cancel();
        cancelled
    };
    let both = async { tokio::join!(fixture.call(), cancelling) };
    let (result, cancelled) =
        tokio::time::timeout(Duration::from_secs(30), both).await.expect("it is left behind");
    assert!(matches!(result, Err(ToolError::Cancelled(_))), "{result:?}");
    assert!(dropped.is_cancelled());
    assert!(cancelled.elapsed() >= GRACE, "it may end by itself");
}

#[tokio::test]
async fn nothing_is_prepared_once_it_is_cancelled() {
    let fixture = fixture(Fake::named("fake"));
    fixture.context.cancel.cancel();
    assert_eq!(fixture.refused("fake", "{}").await, "cancelled");
}
