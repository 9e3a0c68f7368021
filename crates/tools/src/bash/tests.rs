use std::path::Path;
use std::sync::Arc;

use playhouse_policy::{Access, AccessKind, Zone};
use playhouse_protocol::message::CallInput;
use serde_json::{Value, json};

use super::*;
use crate::testing::{self, Recorder};
use crate::{Alone, Prepared, Registry, Typed, runner};

#[tokio::test]
async fn nothing_is_left_in_the_background_where_nothing_can_look_after_it() {
    let mut fixture = fixture();
    fixture.context.host = Arc::new(Alone::default());
    let error = fixture.prepare(json!({"command": "sleep 300", "background": true})).await.unwrap_err();
    assert!(error.to_string().contains("no tool `process`"), "{error}");
    assert!(fixture.prepare(json!({"command": "ls"})).await.is_ok());
}

struct Fixture {
    folder: tempfile::TempDir,
    registry: Registry,
    recorder: Arc<Recorder>,
    context: CallContext,
}

/// The workspace is `work`, with `src` in it.
fn fixture() -> Fixture {
    fixture_with(BashOptions::default())
}

fn fixture_with(options: BashOptions) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    fs_err::create_dir_all(folder.path().join("work/src")).unwrap();
    let recorder = Arc::new(Recorder::default());
    let outputs = folder.path().join("outputs");
    let mut context = testing::context_with(&folder.path().join("work"), &outputs, recorder.clone()).unwrap();
    let mut registry = Registry::new();
    registry.add(Arc::new(Typed::new(Bash::new(options)))).unwrap();
    registry.add(Arc::new(Typed::new(crate::process::Process))).unwrap();
    context.host = Arc::new(Alone::new(Arc::new(registry.clone())));
    Fixture { folder, registry, recorder, context }
}

impl Fixture {
    async fn call(&self, input: Value) -> Result<ToolOutput, ToolError> {
        testing::call(&self.registry, "bash", &input, &self.context).await
    }

    async fn run(&self, command: &str) -> ToolOutput {
        self.call(json!({"command": command})).await.unwrap()
    }

    async fn prepare(&self, input: Value) -> Result<Prepared, ToolError> {
        let input = CallInput::from_model(&input.to_string());
        let prepared = runner::prepare(&self.registry, "bash", &input, &self.context).await;
        prepared.map(|(_, prepared)| prepared)
    }

    async fn refused(&self, input: Value) -> String {
        self.prepare(input).await.unwrap_err().to_string()
    }
}

#[tokio::test]
async fn a_good_command_answers_with_what_it_wrote() {
    let fixture = fixture();
    let output = fixture.run("echo one; echo two >&2; pwd -P").await;
    let root = fixture.context.workspace.root().display();
    assert_eq!(output.output, format!("one\ntwo\n{root}\n"));
    assert_eq!(output.title, "echo one; echo two >&2; pwd -P");
    assert_eq!(output.metadata["exit"], 0);
    assert_eq!(output.metadata["truncated"], false);
    assert_eq!(output.metadata["output"], json!(output.output));
    assert_eq!(fixture.recorder.text(), output.output);
    assert_eq!(fixture.run("true").await.output, "(no output)");
}

#[tokio::test]
async fn a_bad_end_is_told_and_is_still_a_result() {
    let fixture = fixture();
    let output = fixture.run("echo oops; exit 3").await;
    assert_eq!((output.output.as_str(), &output.metadata["exit"]), ("oops\n[exit code 3]", &json!(3)));
    let output = fixture.run("printf x; kill -9 $$").await;
    assert_eq!((output.output.as_str(), &output.metadata["exit"]), ("x\n[ended by signal 9]", &json!(null)));
    assert_eq!(output.metadata["signal"], 9);
    assert_eq!(fixture.run("false").await.output, "(no output)\n[exit code 1]");
}

#[tokio::test]
async fn out_of_time_says_what_to_do() {
    let fixture = fixture();
    let output = fixture.call(json!({"command": "echo begun; sleep 600", "timeout": "200"})).await.unwrap();
    assert!(output.output.starts_with("begun\n[The command did not end within 200 ms"), "{}", output.output);
    assert!(output.output.contains("greater timeout (at most 600000)"), "{}", output.output);
    assert_eq!((&output.metadata["timedOut"], &output.metadata["exit"]), (&json!(true), &json!(null)));
}

#[tokio::test]
async fn cancelled_keeps_what_was_written() {
    struct CancelOnOutput(tokio_util::sync::CancellationToken);
    impl crate::OutputSink for CancelOnOutput {
        fn write(&self, _text: &str) {
            self.0.cancel();
        }
    }
    let mut fixture = fixture();
    fixture.context.output = Arc::new(CancelOnOutput(fixture.context.cancel.clone()));
    let error = fixture.call(json!({"command": "echo begun; sleep 600"})).await.unwrap_err();
    assert!(matches!(error, ToolError::Cancelled(_)));
    assert_eq!(error.to_string(), "cancelled: the command was ended, after it had written:\nbegun");
}

#[tokio::test]
async fn it_runs_where_it_is_told_and_policy_is_told_where() {
    let fixture = fixture();
    let prepared = fixture.prepare(json!({"command": "ls\npwd", "workdir": "src"})).await.unwrap();
    let path = fixture.context.workspace.root().join("src");
    let access = Access::path(AccessKind::Execute, path.to_str().unwrap(), Zone::Workspace).shown("src");
    assert_eq!(prepared.accesses[0], access);
    assert_eq!((prepared.preview.as_str(), prepared.title.as_str()), ("in src:\nls\npwd", "ls"));
    assert_eq!((prepared.effect, prepared.recovery), (Effect::Workspace, Recovery::Interrupt));
    let output =
        fixture.call(json!({"command": "basename $PWD", "workdir": "src", "description": "says where"}));
    let output = output.await.unwrap();
    assert_eq!((output.output.as_str(), output.title.as_str()), ("src\n", "says where"));
}

#[tokio::test]
async fn outside_is_outside_also_through_links() {
    let fixture = fixture();
    fs_err::os::unix::fs::symlink("../..", fixture.folder.path().join("work/src/up")).unwrap();
    for workdir in ["..", "/", "src/up", "src/../.."] {
        let input = json!({"command": "touch made", "workdir": workdir});
        let access = &fixture.prepare(input.clone()).await.unwrap().accesses[0];
        assert!(matches!(access, Access::Path { zone: Zone::Outside, .. }), "{workdir}: {access:?}");
        let error = fixture.call(input).await.unwrap_err().to_string();
        assert!(error.contains("outside the workspace"), "{error}");
    }
    assert!(!fixture.folder.path().join("made").exists() && !Path::new("/made").exists());
}

#[tokio::test]
async fn a_workdir_that_was_replaced_after_it_was_judged_is_refused() {
    let fixture = fixture();
    let prepared = fixture.prepare(json!({"command": "touch made", "workdir": "src"})).await.unwrap();
    let src = fixture.folder.path().join("work/src");
    fs_err::remove_dir(&src).unwrap();
    fs_err::os::unix::fs::symlink(fixture.folder.path(), &src).unwrap();
    let tool = fixture.registry.get("bash").unwrap();
    let error = runner::execute(tool, prepared, &fixture.context).await.unwrap_err().to_string();
    assert!(error.contains("src was replaced"), "{error}");
    assert!(!fixture.folder.path().join("made").exists());
}

#[tokio::test]
async fn bad_arguments_are_refused() {
    let fixture = fixture();
    fs_err::write(fixture.folder.path().join("work/file"), "").unwrap();
    let cases = [
        (json!({}), "`command` is missing"),
        (json!({"command": " \n"}), "the command is empty"),
        (json!({"command": "a\0b"}), "NUL byte"),
        (json!({"command": "ls", "timeout": 600_001}), "`timeout` must be at most 600000"),
        (json!({"command": "ls", "timeout": 0}), "`timeout` must be at least 1"),
        (json!({"command": "ls", "timeout": -1}), "`timeout` must be"),
        (json!({"command": "ls", "workdir": ""}), "workdir: the path is empty"),
        (json!({"command": "ls", "cwd": "src"}), "there is no `cwd`"),
    ];
    for (input, expected) in cases {
        let error = fixture.refused(input).await;
        assert!(error.contains(expected), "{error}");
    }
    for (workdir, expected) in [("missing", "missing does not exist"), ("file", "file is not a directory")] {
        let error = fixture.call(json!({"command": "ls", "workdir": workdir})).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_child_in_the_background_holds_nothing_up() {
    let fixture = fixture();
    let output =
        fixture.call(json!({"command": "sleep 600 & disown; echo $!", "timeout": 60_000})).await.unwrap();
    assert_eq!((&output.metadata["exit"], &output.metadata["timedOut"]), (&json!(0), &json!(false)));
    let child = output.output.trim();
    assert_eq!(fixture.run(&format!("kill {child}")).await.metadata["exit"], 0);
}

#[tokio::test]
async fn binary_output_does_no_harm() {
    let fixture = fixture();
    let output = fixture.run("printf 'a\\000\\377b'; printf '\\303'; sleep 0.05; printf '\\251'").await;
    assert_eq!(output.output, "a\u{fffd}bé");
    assert_eq!(fixture.recorder.text(), "a\0\u{fffd}bé");
}

#[tokio::test]
async fn no_secret_reaches_a_command() {
    // Cargo sets this one for the tests, and it is on no list of what is passed down.
    let given = std::env::var("CARGO_MANIFEST_DIR").expect("run the tests with cargo");
    let output = fixture().run("env").await.output;
    assert!(!output.contains("CARGO_MANIFEST_DIR") && !output.contains(&given), "{output}");
    assert!(output.contains("TERM=dumb") && output.contains("PATH="), "{output}");
}

#[tokio::test]
async fn the_longest_time_is_configured_and_told() {
    let options = BashOptions { max_timeout: Duration::from_secs(1), ..BashOptions::default() };
    let fixture = fixture_with(options);
    let spec = fixture.registry.get("bash").unwrap().spec();
    let described = spec.parameters["properties"]["timeout"]["description"].as_str().unwrap();
    assert!(described.ends_with("At most 1000 when waited for."), "{described}");
    let error = fixture.refused(json!({"command": "ls", "timeout": 1_001})).await;
    assert_eq!(error, "`timeout` must be at most 1000, not 1001: for what takes longer, use background");
    // The usual time is not longer than the longest.
    let output = fixture.run("sleep 600").await;
    assert_eq!(output.metadata["timedOut"], true);
    assert!(fixture.prepare(json!({"command": "ls", "timeout": 9_000, "background": true})).await.is_ok());
}

#[tokio::test]
async fn too_many_processes_are_ended_and_told() {
    let fixture = fixture_with(BashOptions {
        limits: Limits { tasks: 16, ..Limits::default() },
        ..BashOptions::default()
    });
    let output = fixture.run("for i in $(seq 40); do sleep 600 & done; wait").await.output;
    assert!(output.contains("[The command wanted more than 16 processes and threads at once"), "{output}");
}

#[tokio::test]
async fn a_command_that_ignores_the_end_is_ended_in_time() {
    let fixture = fixture();
    let command = "trap '' TERM; (trap '' TERM; sleep 600) & sleep 600; sleep 600";
    let output = fixture.call(json!({"command": command, "timeout": 100})).await.unwrap();
    assert_eq!(output.metadata["timedOut"], true);
    assert_eq!(output.metadata["signal"], 9);
}

#[tokio::test]
async fn what_is_in_the_background_returns_at_once() {
    let fixture = fixture();
    let prepared = fixture.prepare(json!({"command": "ls", "background": true})).await.unwrap();
    assert_eq!(prepared.preview, "in the background:\nls");
    let output = fixture.call(json!({"command": "echo begun; exec sleep 600", "background": true})).await;
    let output = output.unwrap();
    let id = output.metadata["processId"].as_str().unwrap();
    let expected = format!(
        "[It runs in the background as {id}. Use the tool process to read, write to or end it.] It has written so \
         far:\nbegun"
    );
    assert_eq!(output.output, expected);
    assert_eq!((&output.metadata["running"], &output.metadata["background"]), (&json!(true), &json!(true)));
    let file = output.metadata["outputPath"].as_str().unwrap();
    assert_eq!(fs_err::read_to_string(file).unwrap(), "begun\n");
    fixture.context.processes.end().await;
}

#[tokio::test]
async fn what_fails_at_once_in_the_background_says_so() {
    let fixture = fixture();
    let output = fixture.call(json!({"command": "echo oops >&2; exit 7", "background": true})).await.unwrap();
    assert_eq!(output.output, "oops\n[It has ended already: exit code 7]");
    assert_eq!((&output.metadata["running"], &output.metadata["exit"]), (&json!(false), &json!(7)));
}

#[tokio::test]
async fn clients_get_a_glance_at_long_output_of_the_background() {
    let fixture = fixture();
    let output = fixture.call(json!({"command": "seq 100000", "background": true})).await.unwrap();
    let glance = output.metadata["output"].as_str().unwrap();
    assert!(glance.len() <= report::GLANCE && !glance.contains("\n1\n"), "{} bytes", glance.len());
    fixture.context.processes.end().await;
}

#[tokio::test]
async fn only_so_many_run_in_the_background() {
    let fixture = fixture_with(BashOptions { most_background: 1, ..BashOptions::default() });
    let input = json!({"command": "sleep 600", "background": true});
    fixture.call(input.clone()).await.unwrap();
    let error = fixture.call(input).await.unwrap_err().to_string();
    assert!(error.contains("1 commands run in the background, and no more than 1 may"), "{error}");
    fixture.context.processes.end().await;
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_it_begins_starts_nothing() {
    let tool = Bash::default();
    for background in [false, true] {
        let fixture = fixture_with(BashOptions::default());
        let arguments = json!({"command": "touch made", "background": background});
        let ready = tool.prepare(serde_json::from_value(arguments).unwrap(), &fixture.context).await.unwrap();
        fixture.context.cancel.cancel();
        let error = tool.execute(ready.task, &fixture.context).await.unwrap_err();
        assert!(matches!(error, ToolError::Cancelled(_)), "{error}");
        assert!(!fixture.folder.path().join("work/made").exists());
    }
}
