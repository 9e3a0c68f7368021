use std::sync::Arc;

use tokio::sync::Barrier;

use super::*;
use crate::testing::{self, Fake, Person};
use crate::{FunctionTool, Registry, truncate};

struct Fixture {
    folder: tempfile::TempDir,
    registry: Arc<Registry>,
    context: CallContext,
}

#[derive(Deserialize, JsonSchema)]
struct Empty {}

/// The native tools, and some that tests need.
fn fixture(more: Vec<Fake>) -> Fixture {
    let mut registry = Registry::native();
    for tool in more {
        registry.add(Arc::new(tool)).unwrap();
    }
    let touch = FunctionTool::new("touch", "Has effects.", |_: Empty, context: CallContext| async move {
        fs_err::write(context.workspace.root().join("touched"), "").unwrap();
        Ok(ToolOutput::text("touched"))
    });
    registry.add(Arc::new(touch.effect(Effect::Workspace))).unwrap();
    let registry = Arc::new(registry);
    let folder = tempfile::tempdir().unwrap();
    fs_err::create_dir(folder.path().join("workspace")).unwrap();
    let mut context =
        testing::context(&folder.path().join("workspace"), &folder.path().join("outputs")).unwrap();
    context.host = Arc::new(Person { tools: Arc::clone(&registry), ..Person::default() });
    Fixture { folder, registry, context }
}

impl Fixture {
    async fn batch(&self, calls: Value) -> Result<ToolOutput, ToolError> {
        testing::call(&self.registry, "batch", &json!({ "tool_calls": calls }), &self.context).await
    }

    fn write(&self, name: &str, text: &str) {
        fs_err::write(self.folder.path().join("workspace").join(name), text).unwrap();
    }
}

fn says(name: &str, text: &str) -> Fake {
    let text = text.to_owned();
    Fake::new(name, move |_| std::future::ready(Ok(ToolOutput::text(text.clone()))).boxed())
}

#[tokio::test]
async fn results_stand_in_the_order_of_the_calls_and_failures_stay_alone() {
    let fixture = fixture(vec![Fake::new("crash", |_| async { panic!("on purpose") }.boxed())]);
    fixture.write("a.txt", "alpha\n");
    fixture.write("b.txt", "beta\n");
    let calls = json!([
        {"tool": "read", "parameters": {"filePath": "a.txt"}},
        {"tool": "read", "parameters": {"filePath": "missing.txt"}},
        {"tool": "crash", "parameters": {}},
        {"tool": "raed", "parameters": {"filePath": "a.txt"}},
        {"tool": "read", "parameters": {"file": "a.txt"}},
        {"tool": "read", "parameters": {"filePath": "/etc/passwd"}},
        {"tool": "grep", "parameters": {"pattern": "bet."}},
    ]);
    let result = fixture.batch(calls).await.unwrap();
    let mut rest = result.output.as_str();
    for part in [
        "[1] read a.txt\n",
        "alpha",
        "\n\n[2] read\nerror: ",
        "missing.txt",
        "\n\n[3] crash\nerror: the tool crashed: on purpose",
        "\n\n[4] raed\nerror: there is no tool \"raed\". Did you mean read",
        "\n\n[5] read\nerror: the arguments of read do not fit",
        "\n\n[6] read\nerror: /etc/passwd is outside the workspace",
        "\n\n[7] grep ",
        "beta",
        "\n\n5 of 7 calls failed",
    ] {
        let Some((_, after)) = rest.split_once(part) else { panic!("{part:?} in {}", result.output) };
        rest = after;
    }
    let results = result.metadata["results"].as_array().unwrap();
    let ok: Vec<bool> = results.iter().map(|result| result["ok"].as_bool().unwrap()).collect();
    assert_eq!(ok, [true, false, false, false, false, false, true]);
    assert_eq!(results[0], json!({"tool": "read", "ok": true, "title": "a.txt"}));
    assert_eq!(result.title, "7 calls");
}

#[tokio::test]
async fn calls_with_effects_are_refused_and_nothing_of_them_happens() {
    let fixture = fixture(Vec::new());
    let calls = json!([
        {"tool": "touch", "parameters": {}},
        {"tool": "bash", "parameters": {"command": "touch touched"}},
        {"tool": "write", "parameters": {"filePath": "touched", "content": "x"}},
        {"tool": "todowrite", "parameters": {"todos": []}},
        {"tool": "batch", "parameters": {"tool_calls": []}},
        {"tool": "question", "parameters": {"questions": []}},
        {"tool": "todoread"},
    ]);
    let result = fixture.batch(calls).await.unwrap();
    assert!(!fixture.folder.path().join("workspace/touched").exists());
    assert_eq!(result.output.matches(" has effects").count(), 4, "{}", result.output);
    assert_eq!(result.output.matches("cannot be called in a batch").count(), 2, "{}", result.output);
    assert!(result.output.contains("[7] todoread 0 things to do\nthe list is empty"), "{}", result.output);
    assert_eq!(result.todos, None);
}

#[tokio::test]
async fn all_run_at_the_same_time() {
    let barrier = Arc::new(Barrier::new(25));
    let meet = Fake::new("meet", move |_| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            Ok(ToolOutput::text("met"))
        }
        .boxed()
    });
    let result = fixture(vec![meet]).batch(json!(vec![json!({"tool": "meet", "parameters": {}}); 25])).await;
    assert_eq!(result.unwrap().output.matches("met").count(), 25);
}

#[tokio::test]
async fn long_results_are_kept_each_in_a_file_of_its_own() {
    let long = |letter: &str| format!("{letter}\n").repeat(60_000);
    let fixture = fixture(vec![says("a", &long("a")), says("b", &long("b"))]);
    let calls = json!([{"tool": "a", "parameters": {}}, {"tool": "b", "parameters": {}}]);
    let result = fixture.batch(calls).await.unwrap();
    assert!(result.output.len() <= truncate::MAX_BYTES);
    assert_eq!(result.metadata["truncated"], true);
    let kept = |name: &str| fs_err::read_to_string(fixture.folder.path().join("outputs").join(name)).unwrap();
    assert_eq!(kept("call-1.txt"), long("a"));
    assert_eq!(kept("call-2.txt"), long("b"));
    let whole = kept("call.txt");
    assert!(whole.contains("call-1.txt") && whole.contains("call-2.txt"), "{whole}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_batch_cancels_its_calls() {
    let hang = Fake::new("hang", |context| {
        let cancel = context.cancel.clone();
        async move {
            cancel.cancelled().await;
            Err(ToolError::Cancelled("it had begun".into()))
        }
        .boxed()
    });
    let fixture = fixture(vec![hang, says("quick", "done")]);
    let calls = json!([{"tool": "hang", "parameters": {}}, {"tool": "quick", "parameters": {}}]);
    let cancelling = async {
        tokio::task::yield_now().await;
        fixture.context.cancel.cancel();
    };
    let (result, ()) = tokio::join!(fixture.batch(calls), cancelling);
    assert_eq!(result.unwrap_err().to_string(), "cancelled: 1 of 2 calls had ended");
}

#[tokio::test]
async fn attachments_of_all_calls_are_given_on() {
    let picture = Fake::new("picture", |_| {
        let attachment = NewAttachment {
            mime: "image/png".into(),
            filename: "a.png".into(),
            content: bytes::Bytes::from_static(b"png"),
        };
        let output = ToolOutput { attachments: vec![attachment], ..ToolOutput::text("see") };
        std::future::ready(Ok(output)).boxed()
    });
    let calls = json!(vec![json!({"tool": "picture", "parameters": {}}); 2]);
    assert_eq!(fixture(vec![picture]).batch(calls).await.unwrap().attachments.len(), 2);
}

#[tokio::test]
async fn what_does_not_fit_is_refused() {
    let fixture = fixture(Vec::new());
    let one = json!({"tool": "list", "parameters": {}});
    for (calls, says) in [
        (json!([]), "1 to 25 calls in a batch, not 0"),
        (json!(vec![one; 26]), "1 to 25 calls in a batch, not 26"),
        (json!([{"parameters": {}}]), "`tool_calls[0].tool` is missing"),
        (json!([{"tool": "list", "parameters": "all"}]), "`tool_calls[0].parameters` must be an object"),
        (json!({"tool": "list"}), "`tool_calls` must be a list"),
    ] {
        let error = fixture.batch(calls).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
