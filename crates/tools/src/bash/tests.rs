use std::path::Path;
use std::sync::Arc;

use playhouse_policy::Zone;
use playhouse_protocol::message::CallInput;
use serde_json::json;

use super::*;
use crate::Registry;
use crate::testing::{self, Recorder};

struct Fixture {
    folder: tempfile::TempDir,
    registry: Registry,
    recorder: Arc<Recorder>,
    context: CallContext,
}

/// The workspace is `work`, with `src` in it.
fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    fs_err::create_dir_all(folder.path().join("work/src")).unwrap();
    let recorder = Arc::new(Recorder::default());
    let outputs = folder.path().join("outputs");
    let context = testing::context_with(&folder.path().join("work"), &outputs, recorder.clone()).unwrap();
    let mut registry = Registry::new();
    registry.add(Arc::new(Bash::new())).unwrap();
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
    let access = &prepared.accesses[0];
    assert_eq!((access.kind, access.zone), (AccessKind::Execute, Zone::Workspace));
    assert!(access.path.ends_with("work/src"));
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
        assert_eq!(
            fixture.prepare(input.clone()).await.unwrap().accesses[0].zone,
            Zone::Outside,
            "{workdir}"
        );
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
    let error = runner::execute(&**tool, prepared, &fixture.context).await.unwrap_err().to_string();
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
