use std::sync::Arc;

use tokio::sync::Barrier;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::testing::{self, Fake, Person};
use crate::{Alone, FunctionTool, NewAttachment, Registry, Tool as _, truncate};

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
    context.host = Arc::new(Person { alone: Alone::new(Arc::clone(&registry)), ..Person::default() });
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
async fn a_call_that_would_ask_or_is_denied_is_an_error_and_the_others_go_on() {
    use playhouse_policy::{Action, Policy, Rule};
    let mut fixture = fixture(Vec::new());
    fixture.write("a.txt", "alpha\n");
    fixture.write("secret", "omega\n");
    let rules = [
        Rule::new("read", "secret", Action::Ask),
        Rule::new("list", "*", Action::Ask),
        Rule::new("glob", "*", Action::Deny),
    ];
    let policy = Policy { configuration: rules.into_iter().collect(), ..Policy::default() };
    fixture.context.host = Arc::new(Alone::with_policy(Arc::clone(&fixture.registry), policy));
    let calls = json!([
        {"tool": "read", "parameters": {"filePath": "secret"}},
        {"tool": "read", "parameters": {"filePath": "a.txt"}},
        {"tool": "list", "parameters": {}},
        {"tool": "glob", "parameters": {"pattern": "*"}},
    ]);
    let result = fixture.batch(calls).await.unwrap();
    let oks: Vec<bool> =
        result.metadata["results"].as_array().unwrap().iter().map(|call| call["ok"] == true).collect();
    assert_eq!(oks, [false, true, false, false], "{}", result.output);
    assert!(!result.output.contains("omega") && result.output.contains("alpha"), "{}", result.output);
    assert_eq!(result.output.matches("which a batch does not wait for").count(), 2, "{}", result.output);
    assert!(result.output.contains("glob is denied by a rule"), "{}", result.output);
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
    for (at, name) in ["call-1.txt", "call-2.txt"].into_iter().enumerate() {
        assert!(result.output.contains(name), "{}", result.output);
        assert!(result.metadata["results"][at]["outputPath"].as_str().unwrap().ends_with(name));
    }
    assert!(!fixture.folder.path().join("outputs/call.txt").exists());
}

#[tokio::test]
async fn calls_share_the_room_of_one_result_and_short_ones_are_whole() {
    let long = format!("{:0100}\n", 7).repeat(400);
    let mut tools: Vec<Fake> = (0..5).map(|number| says(&format!("long{number}"), &long)).collect();
    let many = "y\n".repeat(1_900);
    tools.extend([says("many", &many), says("short", "short it is")]);
    let names: Vec<String> = tools.iter().map(|tool| tool.spec().name.clone()).collect();
    let calls: Vec<Value> = names.iter().map(|name| json!({"tool": name})).collect();
    let result = fixture(tools).batch(json!(calls)).await.unwrap();
    assert!(result.output.len() <= truncate::MAX_BYTES && result.output.len() > truncate::MAX_BYTES * 3 / 4);
    assert!(result.output.lines().count() <= truncate::MAX_LINES);
    assert!(result.output.ends_with("[7] short\nshort it is"), "{}", result.output);
    let cut: Vec<bool> = (0..7).map(|at| result.metadata["results"][at]["truncated"] == true).collect();
    assert_eq!(cut, [true, true, true, true, true, true, false]);
    assert_eq!(result.output.matches(" left out …]").count(), 6);
}

#[tokio::test]
async fn a_file_that_was_cut_away_is_not_read() {
    let fixture = fixture(Vec::new());
    let long: String = (0..700).map(|line| format!("{line:067}\n")).collect();
    let mut calls = Vec::new();
    for number in 0..6 {
        fixture.write(&format!("b{number}.txt"), &long);
        calls.push(json!({"tool": "read", "parameters": {"filePath": format!("b{number}.txt")}}));
    }
    fixture.write("small.txt", "small\n");
    calls.push(json!({"tool": "read", "parameters": {"filePath": "small.txt"}}));
    fixture.batch(json!(calls)).await.unwrap();
    let write = async |name: &str| {
        let input = json!({"filePath": name, "content": "new"});
        testing::call(&fixture.registry, "write", &input, &fixture.context).await
    };
    let error = write("b3.txt").await.unwrap_err().to_string();
    assert!(error.contains("has not been read in this session"), "{error}");
    write("small.txt").await.unwrap();
    let read = json!({"filePath": "b3.txt"});
    testing::call(&fixture.registry, "read", &read, &fixture.context).await.unwrap();
    write("b3.txt").await.unwrap();
}

#[tokio::test]
async fn documents_of_a_batch_are_bounded_together() {
    let fixture = fixture(Vec::new());
    let page = crate::media::document_of(1);
    let mut document = page.clone();
    document.resize(4_000_000 - page.len(), 7);
    document.extend(page);
    let mut calls = Vec::new();
    for number in 0..4 {
        let path = fixture.folder.path().join(format!("workspace/{number}.pdf"));
        fs_err::write(path, &document).unwrap();
        calls.push(json!({"tool": "read", "parameters": {"filePath": format!("{number}.pdf")}}));
    }
    let result = fixture.batch(json!(calls)).await.unwrap();
    let names: Vec<&str> = result.attachments.iter().map(|file| file.filename.as_str()).collect();
    assert_eq!(names, ["0.pdf", "1.pdf"]);
    for part in ["[not attached: 2.pdf (application/pdf, 4.0 MB)", "[not attached: 3.pdf"] {
        assert!(result.output.contains(part), "{}", result.output);
    }
    let known = |name: &str| {
        let path = fixture.context.workspace.root().join(name);
        fixture.context.files.known(&path).is_some()
    };
    assert_eq!((known("1.pdf"), known("2.pdf")), (true, false));
}

#[test]
fn what_short_ones_leave_is_shared_by_the_long_ones() {
    let share = |sizes: &[usize], room| share(sizes.iter().copied(), room);
    assert_eq!(share(&[10, 20, 30], 60), 60);
    assert_eq!(share(&[10, 20, 31], 60), 30);
    assert_eq!(share(&[100, 1, 100], 61), 30);
    assert_eq!(share(&[7, 7, 7], 0), 0);
    assert_eq!(share(&[], 5), 5);
}

#[tokio::test]
async fn what_others_call_tool_and_parameters_is_shown_as_such() {
    let fixture = fixture(Vec::new());
    let error = fixture.batch(json!([{"name": "read", "input": {"filePath": "a"}}])).await.unwrap_err();
    let call = r#"batch {"tool_calls":[{"tool":"read","parameters":{"filePath":"a"}}]}"#;
    let parameters_first = r#"batch {"tool_calls":[{"parameters":{"filePath":"a"},"tool":"read"}]}"#;
    let error = error.to_string();
    assert!(error.ends_with(call) || error.ends_with(parameters_first), "{error}");
    let input = json!({"calls": []});
    let error = testing::call(&fixture.registry, "batch", &input, &fixture.context).await.unwrap_err();
    assert!(error.to_string().ends_with("Write the call again with arguments that fit"), "{error}");
}

#[tokio::test]
async fn a_cancelled_batch_cancels_its_calls() {
    let (hangs, ended) = (CancellationToken::new(), CancellationToken::new());
    let marks = (hangs.clone(), ended.clone());
    let hang = Fake::new("hang", move |context| {
        let cancel = context.cancel.clone();
        marks.0.cancel();
        async move {
            cancel.cancelled().await;
            Err(ToolError::Cancelled("it had begun".into()))
        }
        .boxed()
    });
    let quick = Fake::new("quick", move |_| {
        marks.1.cancel();
        std::future::ready(Ok(ToolOutput::text("done"))).boxed()
    });
    let fixture = fixture(vec![hang, quick]);
    let calls = json!([{"tool": "hang", "parameters": {}}, {"tool": "quick", "parameters": {}}]);
    let cancelling = async {
        tokio::join!(hangs.cancelled(), ended.cancelled());
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
