use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::bash::Bash;
use crate::storage::{Storage, StorageLimits};
use crate::{Registry, Typed, runner, testing};

struct Fixture {
    _folder: tempfile::TempDir,
    registry: Registry,
    context: CallContext,
}

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    fs_err::create_dir(folder.path().join("work")).unwrap();
    let mut context = testing::context(&folder.path().join("work"), &folder.path().join("outputs")).unwrap();
    let mut registry = Registry::new();
    registry.add(Arc::new(Typed::new(Bash::default()))).unwrap();
    registry.add(Arc::new(Typed::new(Process))).unwrap();
    context.host = Arc::new(crate::Alone::new(Arc::new(registry.clone())));
    Fixture { _folder: folder, registry, context }
}

impl Fixture {
    async fn call(&self, input: Value) -> Result<ToolOutput, ToolError> {
        testing::call(&self.registry, "process", &input, &self.context).await
    }

    /// Starts a command in the background, and gives its id.
    async fn start(&self, command: &str) -> String {
        let input = json!({"command": command, "background": true});
        let output = testing::call(&self.registry, "bash", &input, &self.context).await.unwrap();
        output.metadata["processId"].as_str().unwrap().to_owned()
    }

    async fn read(&self, id: &str) -> String {
        let input = json!({"action": "read", "id": id, "wait": 20_000});
        self.call(input).await.unwrap().output
    }
}

#[tokio::test]
async fn a_command_is_read_written_to_and_ended() {
    let fixture = fixture();
    let id = fixture.start("while read -r line; do echo got $line; done; echo over; exec sleep 600").await;
    let listed = fixture.call(json!({"action": "list"})).await.unwrap();
    let start = format!("{id}: running for ");
    assert!(listed.output.starts_with(&start) && listed.output.contains("while read"), "{}", listed.output);
    assert_eq!(listed.metadata["processes"][0]["processId"], json!(id));
    let nothing = fixture.call(json!({"action": "read", "id": id})).await.unwrap().output;
    assert!(nothing.starts_with("(no new output)\n[running for "), "{nothing}");
    let write = json!({"action": "write", "id": id, "text": "one\n", "wait": 20_000});
    let answer = fixture.call(write).await.unwrap();
    assert!(answer.output.starts_with("got one\n[running for "), "{}", answer.output);
    let close = json!({"action": "write", "id": id, "close": true, "wait": 20_000});
    let rest = fixture.call(close).await.unwrap().output;
    assert!(rest.starts_with("over\n[running for "), "{rest}");
    let ended = fixture.call(json!({"action": "end", "id": id})).await.unwrap();
    assert!(ended.output.starts_with("(no new output)\n[ended after "), "{}", ended.output);
    assert!(ended.output.ends_with(" s, ended by signal 15]"), "{}", ended.output);
    assert_eq!(ended.metadata["running"], false);
    // It can still be read.
    let all = fixture.call(json!({"action": "read", "id": "last", "all": true})).await.unwrap();
    assert!(all.output.starts_with("got one\nover\n["), "{}", all.output);
    let file = all.metadata["outputPath"].as_str().unwrap();
    assert_eq!(fs_err::read_to_string(file).unwrap(), "got one\nover\n");
    let again =
        fixture.call(json!({"action": "write", "id": id, "text": "x"})).await.unwrap_err().to_string();
    assert_eq!(again, format!("{id}: its standard input is closed"));
}

#[tokio::test]
async fn a_wait_ends_with_the_command() {
    let fixture = fixture();
    let id = fixture.start("read -r line; exit 3").await;
    fixture.call(json!({"action": "write", "id": id, "text": "\n"})).await.unwrap();
    let output = fixture.read(&id).await;
    assert!(
        output.starts_with("(no new output)\n[ended after ") && output.ends_with("exit code 3]"),
        "{output}"
    );
}

#[tokio::test]
async fn what_is_not_remembered_is_named() {
    let fixture = fixture();
    let id = fixture.start("head -c 3000000 /dev/zero | tr '\\0' 'x'; echo end").await;
    let command = fixture.context.processes.find(&id).unwrap();
    command.ended().await;
    let output = fixture.call(json!({"action": "read", "id": id, "all": true})).await.unwrap();
    let file = fixture.context.workspace.output().join(format!("{id}.txt"));
    assert_eq!(fs_err::metadata(&file).unwrap().len(), 3_000_004);
    assert!(output.output.contains(&format!("not remembered; all of the output is in {}]", file.display())));
    assert!(output.output.len() < 60_000 && output.output.contains("end\n[ended after "));
}

#[tokio::test]
async fn what_is_not_saved_is_told() {
    let mut fixture = fixture();
    let limits = StorageLimits { outputs: Some(8 << 20), tenant: None, undo: None };
    let folder = fixture.context.workspace.output().to_owned();
    fixture.context.storage = Storage::new(limits).session("acme", folder.clone(), Vec::new());
    let id = fixture.start("head -c 9000001 /dev/zero").await;
    fixture.context.processes.find(&id).unwrap().ended().await;
    let output = fixture.call(json!({"action": "read", "id": "last"})).await.unwrap().output;
    let file = folder.join(format!("{id}.txt"));
    let told = format!(
        "[8388608 of 9000001 bytes of the output are kept in {}, the rest was not: the session's outputs may take 8 MB]\n",
        file.display()
    );
    assert!(output.contains(&told), "{}", output.chars().take(500).collect::<String>());
    assert_eq!(fs_err::metadata(&file).unwrap().len(), 8 << 20);
    // It has ended, so the next one takes its place.
    let next = fixture.start("head -c 3000000 /dev/zero").await;
    fixture.context.processes.find(&next).unwrap().ended().await;
    assert!(!file.exists() && folder.join(format!("{next}.txt")).exists());
}

#[tokio::test]
async fn binary_output_does_no_harm() {
    let fixture = fixture();
    let id = fixture.start("printf 'a\\000\\377b'").await;
    fixture.context.processes.find(&id).unwrap().ended().await;
    let output = fixture.call(json!({"action": "read", "id": id, "all": true})).await.unwrap().output;
    assert!(output.starts_with("a\u{fffd}b\n["), "{output}");
}

#[tokio::test]
async fn only_what_acts_is_judged() {
    let fixture = fixture();
    for (input, accesses, effect) in [
        (json!({"action": "list"}), 0, Effect::None),
        (json!({"action": "read", "id": "bg_1"}), 0, Effect::None),
        (json!({"action": "write", "id": "bg_1", "text": "rm -r x\n"}), 1, Effect::Workspace),
        (json!({"action": "end", "id": "bg_1"}), 1, Effect::Workspace),
    ] {
        let input = playhouse_protocol::message::CallInput::from_model(&input.to_string());
        let (_, prepared) =
            runner::prepare(&fixture.registry, "process", &input, &fixture.context).await.unwrap();
        assert_eq!((prepared.accesses.len(), prepared.effect), (accesses, effect), "{prepared:?}");
        if effect == Effect::Workspace {
            assert_eq!(prepared.recovery, Recovery::Interrupt);
        }
        assert!(!prepared.preview.is_empty());
    }
}

#[tokio::test]
async fn bad_arguments_are_refused() {
    let fixture = fixture();
    for (input, expected) in [
        (json!({}), "`action` is missing"),
        (json!({"action": "kill"}), "`action` must be one of"),
        (json!({"action": "read"}), "`id` is missing"),
        (json!({"action": "end", "id": " "}), "`id` is missing"),
        (json!({"action": "write", "id": "bg_1"}), "`text` is missing"),
        (json!({"action": "read", "id": "bg_1", "wait": 120_001}), "`wait` must be at most 120000"),
        (json!({"action": "read", "id": "bg_1"}), "there is no background command \"bg_1\""),
        (json!({"action": "read", "id": "bg_00000g_1"}), "this session has started none"),
        (json!({"action": "end", "id": "bg_000000_1"}), "bg_000000_1 ended with the engine that started it"),
        (json!({"action": "list", "pid": 1}), "there is no `pid`"),
    ] {
        let error = fixture.call(input).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(
        fixture.call(json!({"action": "list"})).await.unwrap().output,
        "(none runs in the background)"
    );
}

#[tokio::test]
async fn a_wait_is_cancelled() {
    let fixture = fixture();
    let id = fixture.start("exec sleep 600").await;
    for input in [
        json!({"action": "read", "id": id, "wait": 100_000}),
        json!({"action": "write", "id": id, "text": "x".repeat(1_000_000)}),
    ] {
        let context = CallContext { cancel: Default::default(), ..fixture.context.clone() };
        let call = testing::call(&fixture.registry, "process", &input, &context);
        let cancel = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            context.cancel.cancel();
        };
        let (result, ()) = tokio::join!(call, cancel);
        assert!(matches!(result.unwrap_err(), ToolError::Cancelled(_)));
    }
    fixture.context.processes.end().await;
}
