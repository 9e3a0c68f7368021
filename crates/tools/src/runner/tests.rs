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
async fn short_output_is_left_alone() {
    let output = fixture(answering(Ok("short".into()))).call().await.unwrap();
    assert_eq!((output.output.as_str(), output.metadata.len()), ("short", 0));
}

#[tokio::test]
async fn a_tool_that_heeds_the_cancelling_says_how_it_ended() {
    let fixture = fixture(Fake::new("fake", |context| {
        let cancel = context.cancel.clone();
        async move {
            cancel.cancelled().await;
            Err(ToolError::Cancelled("half of it is done".into()))
        }
        .boxed()
    }));
    let cancelling = async { fixture.context.cancel.cancel() };
    let (result, ()) = tokio::join!(fixture.call(), cancelling);
    assert_eq!(result.unwrap_err().to_string(), "cancelled: half of it is done");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_is_left_behind_and_cleaned_up() {
    struct Dropped(CancellationToken);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }
    let dropped = CancellationToken::new();
    let mark = dropped.clone();
    let fixture = fixture(Fake::new("fake", move |_| {
        let held = Dropped(mark.clone());
        async move {
            let _held = held;
            std::future::pending().await
        }
        .boxed()
    }));
    let cancelling = async { fixture.context.cancel.cancel() };
    let (result, ()) = tokio::join!(fixture.call(), cancelling);
    assert!(matches!(result, Err(ToolError::Cancelled(_))), "{result:?}");
    assert!(dropped.is_cancelled());
}

#[tokio::test]
async fn nothing_is_prepared_once_it_is_cancelled() {
    let fixture = fixture(Fake::named("fake"));
    fixture.context.cancel.cancel();
    assert_eq!(fixture.refused("fake", "{}").await, "cancelled");
}
