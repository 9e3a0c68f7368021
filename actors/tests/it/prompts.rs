//! Prompts that are no questions to a model: commands by hand, notes, and what holds for one turn only.

use std::sync::Arc;
use std::time::Duration;

use mock_llm::{Model, Script, call, text};
use playhouse_actors::{Ground, SessionHandle};
use playhouse_policy::{Action, Rule};
use playhouse_protocol::consent::PermissionRule;
use playhouse_protocol::event::Provisional;
use playhouse_protocol::message::{CallOutcome, CallResult, Message};
use playhouse_protocol::record::{Record, TurnOutcome};
use playhouse_protocol::{CommandError, EventBody, NewSession, Prompt, ShellCommand, WhenBusy};
use playhouse_store::Store;
use serde_json::{Value, json};

use crate::support::{Stage, bare_ground, kinds, open_ground, until};

fn shell(command: &str) -> ShellCommand {
    ShellCommand { command: command.to_owned(), ..ShellCommand::default() }
}

async fn results(stage: &Stage, session: &SessionHandle) -> Vec<CallResult> {
    let records = stage.records(session).await;
    let results = records.into_iter().filter_map(|record| match record {
        Record::CallSettled { result, .. } => Some(result),
        _ => None,
    });
    results.collect()
}

/// The requests that the model was sent, without cache markers and with calls named in order.
fn requests(stage: &Stage) -> Vec<Value> {
    let entries = stage.directory.mock.journal().entries();
    entries
        .iter()
        .map(|entry| plain(&serde_json::from_slice(entry.body.as_deref().unwrap()).unwrap()))
        .collect()
}

fn plain(value: &Value) -> Value {
    match value {
        Value::Object(object) => object
            .iter()
            .filter(|(key, _)| *key != "cache_control")
            .map(|(key, value)| match key.as_str() {
                "id" | "tool_use_id" => (key.clone(), json!("[call]")),
                _ => (key.clone(), plain(value)),
            })
            .collect(),
        Value::Array(items) => items.iter().map(plain).collect(),
        other => other.clone(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_by_hand_runs_without_a_model_which_reads_it_with_the_next_prompt() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session("echo").await;
    let mut events = session.events(None).await.unwrap();
    let finished = session.run_shell(shell("echo made > it; echo one; echo two >&2")).await.unwrap();
    assert_eq!(finished.ended.outcome, TurnOutcome::Completed);
    assert_eq!(finished.ended.totals.attempts, 0);
    let made = stage.folder.path().join("workspace/it");
    assert_eq!(fs_err::read_to_string(made).unwrap(), "made\n");
    let mut streamed = String::new();
    loop {
        let event = events.next().await.unwrap().unwrap();
        match &event.event().body {
            EventBody::Provisional(Provisional::CallOutput { text, .. }) => streamed.push_str(text),
            EventBody::Durable(record) if matches!(**record, Record::TurnEnded(_)) => break,
            _ => {}
        }
    }
    assert!(streamed.contains("one") && streamed.contains("two"), "{streamed}");
    assert!(requests(&stage).is_empty(), "no model is asked");
    assert_eq!(
        kinds(&stage.records(&session).await),
        [
            "session.created",
            "prompt.admitted",
            "turn.started",
            "call.proposed",
            "step.finished",
            "call.intended",
            "workspace.changed",
            "call.settled",
            "turn.ended",
        ]
    );
    session.run(Prompt::text("What does it say?")).await.unwrap();
    assert_eq!(session.snapshot().await.unwrap().summary.title, "What does it say?");
    let request = requests(&stage).remove(0);
    insta::assert_snapshot!(serde_json::to_string_pretty(&request["messages"]).unwrap(), @r#"
    [
      {
        "role": "user",
        "content": [
          {
            "type": "text",
            "text": "The following tool was executed by the user"
          }
        ]
      },
      {
        "role": "assistant",
        "content": [
          {
            "type": "tool_use",
            "id": "[call]",
            "name": "bash",
            "input": {
              "command": "echo made > it; echo one; echo two >&2"
            }
          }
        ]
      },
      {
        "role": "user",
        "content": [
          {
            "type": "tool_result",
            "tool_use_id": "[call]",
            "content": "one\ntwo\n"
          }
        ]
      },
      {
        "role": "user",
        "content": [
          {
            "type": "text",
            "text": "What does it say?"
          }
        ]
      }
    ]
    "#);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_types_a_command_need_not_be_asked_and_the_operator_is_obeyed() {
    let stage = Stage::new(Script::new()).await.bare();
    // An agent's rules and its choice of tools are about its model.
    let reader = NewSession { agent: Some("reader".into()), ..stage.new_session("echo") };
    for new in
        [stage.new_session("echo"), NewSession { unattended: true, ..stage.new_session("echo") }, reader]
    {
        let session = stage.engine.create(new).await.unwrap();
        session.run_shell(shell("echo hello; rm -rf nothing")).await.unwrap();
        let result = results(&stage, &session).await.remove(0);
        assert_eq!(result.outcome, CallOutcome::Done, "{}", result.output);
        assert!(!kinds(&stage.records(&session).await).contains(&"consent.asked"));
    }
    let deny = Rule::new("bash", "rm *", Action::Deny);
    *stage.directory.ground.lock().unwrap() =
        Ground { configuration: [deny].into_iter().collect(), ..bare_ground() };
    let session = stage.session("echo").await;
    for command in ["rm -rf it", "echo a && rm -rf it"] {
        let ended = session.run_shell(shell(command)).await.unwrap().ended;
        assert_eq!(ended.outcome, TurnOutcome::Completed);
        let result = results(&stage, &session).await.pop().unwrap();
        assert_eq!(result.outcome, CallOutcome::Declined, "{command}: {}", result.output);
        assert!(result.output.contains("denied"), "{}", result.output);
    }
    let rule = PermissionRule { permission: "bash".into(), pattern: "*".into(), action: Action::Deny };
    let new = NewSession { permissions: vec![rule], ..stage.new_session("echo") };
    let session = stage.engine.create(new).await.unwrap();
    session.run_shell(shell("true")).await.unwrap();
    assert_eq!(results(&stage, &session).await[0].outcome, CallOutcome::Declined);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_hidden_stays_hidden_from_commands_by_hand() {
    let stage = Stage::new(Script::new()).await;
    let outputs = fs_err::canonicalize(stage.folder.path().join("outputs")).unwrap();
    fs_err::create_dir_all(outputs.join("ses_other")).unwrap();
    fs_err::write(outputs.join("ses_other/secret.txt"), "s3cret").unwrap();
    let session = stage.session("echo").await;
    session.run_shell(shell(&format!("cat {}/ses_other/secret.txt", outputs.display()))).await.unwrap();
    let result = results(&stage, &session).await.remove(0);
    assert_eq!(result.outcome, CallOutcome::Declined, "{}", result.output);
    assert!(!result.output.contains("s3cret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_by_hand_is_aborted_and_refused_while_something_runs() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session("echo").await;
    let mut events = session.events(None).await.unwrap();
    let first = session.shell(shell("sleep 100")).await.unwrap();
    until(&mut events, |record| matches!(record, Record::CallIntended(_))).await;
    assert_eq!(session.shell(shell("true")).await.unwrap_err(), CommandError::Busy);
    let again = ShellCommand { message: Some(first.turn), ..shell("sleep 100") };
    assert!(session.shell(again).await.unwrap().repeated);
    assert_eq!(session.abort().await.unwrap(), 1);
    let ended = until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
    assert!(matches!(ended, Record::TurnEnded(ended) if ended.outcome == TurnOutcome::Aborted));
    assert_eq!(results(&stage, &session).await[0].outcome, CallOutcome::Cancelled);
    for (command, wrong) in [("  ", "empty"), ("a\0b", "NUL"), (&"x".repeat(200_000), "longer than")] {
        let error = session.shell(shell(command)).await.unwrap_err();
        assert!(matches!(&error, CommandError::Invalid(text) if text.contains(wrong)), "{error}");
    }
    let error = session.run_shell(ShellCommand { timeout: Some(1), ..shell("sleep 100") }).await.unwrap();
    assert_eq!(error.ended.outcome, TurnOutcome::Completed);
    assert_ne!(results(&stage, &session).await.pop().unwrap().outcome, CallOutcome::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_by_hand_that_a_stop_cuts_off_is_not_run_again() {
    let store = Store::memory().unwrap();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let stage = Stage::on(store.clone(), Arc::clone(&folder), Script::new(), 1024 * 1024).await;
    let session = stage.session("echo").await;
    let mut events = session.events(None).await.unwrap();
    session.shell(shell("echo ran >> ran; sleep 100")).await.unwrap();
    until(&mut events, |record| matches!(record, Record::CallIntended(_))).await;
    let ran = folder.path().join("workspace/ran");
    // It is there before anything is in it.
    while fs_err::read_to_string(&ran).unwrap_or_default() != "ran\n" {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let id = session.id();
    stage.engine.shutdown().await;
    let stage = Stage::on(store, folder, Script::new(), 1024 * 1024).await;
    let session = stage.engine.session(id).await.unwrap();
    session.run(Prompt::text("What happened?")).await.unwrap();
    let result = results(&stage, &session).await.remove(0);
    assert_eq!(result.outcome, CallOutcome::Interrupted);
    assert!(result.output.contains("effects unknown"), "{}", result.output);
    assert_eq!(fs_err::read_to_string(ran).unwrap(), "ran\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_is_durable_and_asks_no_model() {
    let store = Store::memory().unwrap();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let stage = Stage::on(store.clone(), Arc::clone(&folder), Script::new(), 1024 * 1024).await;
    let session = stage.session("echo").await;
    let note = Prompt { note: true, ..Prompt::text("The build is broken since Monday.") };
    assert!(matches!(session.run(note.clone()).await, Err(CommandError::Invalid(_))));
    let accepted = session.prompt(note).await.unwrap();
    assert_eq!(kinds(&stage.records(&session).await), ["session.created", "prompt.admitted"]);
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.summary.open_turns, 0);
    assert!(matches!(&snapshot.messages[..], [Message::User(message)] if message.id == accepted.turn));
    assert!(stage.engine.busy("local").await.unwrap().is_empty());
    let id = session.id();
    stage.engine.shutdown().await;
    let stage = Stage::on(store, folder, Script::new(), 1024 * 1024).await;
    let session = stage.engine.session(id).await.unwrap();
    session.run(Prompt::text("Mend it.")).await.unwrap();
    let request = requests(&stage).remove(0);
    insta::assert_snapshot!(serde_json::to_string_pretty(&request["messages"]).unwrap(), @r#"
    [
      {
        "role": "user",
        "content": [
          {
            "type": "text",
            "text": "The build is broken since Monday."
          }
        ]
      },
      {
        "role": "user",
        "content": [
          {
            "type": "text",
            "text": "Mend it."
          }
        ]
      }
    ]
    "#);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_for_a_running_turn_is_read_by_its_next_step_and_makes_none() {
    let script = Script::new()
        .model("m", Model::new().step(call("probe", json!({"mode": "wait"}))).step(text("Done.")));
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    let turn = tokio::spawn({
        let session = session.clone();
        async move { session.run(Prompt::text("go")).await.unwrap() }
    });
    stage.probe.begun().await;
    let note = Prompt { note: true, when_busy: WhenBusy::Steer, ..Prompt::text("mind the gap") };
    session.prompt(note).await.unwrap();
    stage.probe.release(1);
    let ended = turn.await.unwrap().ended;
    assert_eq!((ended.outcome, ended.steps), (TurnOutcome::Completed, 2));
    let requests = requests(&stage);
    assert_eq!(requests.len(), 2);
    assert!(!requests[0].to_string().contains("mind the gap"));
    assert!(requests[1].to_string().contains("mind the gap"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_holds_for_a_turn_changes_nothing_that_was_sent_before() {
    let bash = || call("bash", json!({"command": "echo ran >> ran"}));
    let batch = json!({"tool_calls": [{"tool": "bash", "parameters": {"command": "echo ran >> ran"}}]});
    let model = Model::new()
        .step(text("One."))
        .next_turn()
        .step(bash())
        .step(call("batch", batch))
        .step(text("Two."))
        .next_turn()
        .step(bash())
        .step(text("Three."));
    let stage = Stage::new(Script::new().model("m", model)).await;
    let session = stage.session("m").await;
    session.run(Prompt::text("one")).await.unwrap();
    let turn = Prompt {
        system: Some("Answer in verse.".into()),
        tools: [("bash".to_owned(), false), ("read".to_owned(), true)].into(),
        ..Prompt::text("two")
    };
    session.run(turn).await.unwrap();
    let ran = stage.folder.path().join("workspace/ran");
    assert!(!ran.exists(), "what is turned off does not run, in a batch neither");
    let refused = results(&stage, &session).await;
    assert_eq!(refused[0].outcome, CallOutcome::Declined);
    assert!(refused[0].output.contains("turned off until this prompt is answered"), "{}", refused[0].output);
    assert!(refused[1].output.contains("turned off until this prompt is answered"), "{}", refused[1].output);
    session.run(Prompt::text("three")).await.unwrap();
    assert!(ran.exists(), "it holds for its turn only");
    let requests = requests(&stage);
    for pair in requests.windows(2) {
        let [before, after] = pair else { unreachable!() };
        assert_eq!((&before["system"], &before["tools"]), (&after["system"], &after["tools"]));
        let (before, after) = (before["messages"].as_array().unwrap(), after["messages"].as_array().unwrap());
        assert_eq!(after[..before.len()], before[..]);
    }
    insta::assert_snapshot!(serde_json::to_string_pretty(&requests[1]["messages"][2]).unwrap(), @r#"
    {
      "role": "user",
      "content": [
        {
          "type": "text",
          "text": "two"
        },
        {
          "type": "text",
          "text": "<system-for-this-turn>\nWhat follows comes from whoever runs this session and stands beside the system prompt. It holds until this prompt is answered, and not after that.\n\nAnswer in verse.\n</system-for-this-turn>\n\n<tools-for-this-turn>\nUntil this prompt is answered these tools are turned off, and calls of them are refused: bash.\n</tools-for-this-turn>"
        }
      ]
    }
    "#);
    let messages = session.snapshot().await.unwrap().messages;
    let Message::User(message) = &messages[2] else { panic!("a prompt") };
    assert_eq!(message.system.as_deref(), Some("Answer in verse."));
    assert_eq!(message.tools.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_tools_that_exist_can_be_turned_off_and_none_is_turned_on() {
    let script = Script::new()
        .model("m", Model::new().step(call("danger", json!({"to": "there"}))).step(text("Done.")));
    let stage = Stage::new(script).await;
    let prompt = |name: &str, on| Prompt { tools: [(name.to_owned(), on)].into(), ..Prompt::text("go") };
    let session = stage.session("m").await;
    for on in [false, true] {
        let error = session.prompt(prompt("bahs", on)).await.unwrap_err();
        assert!(matches!(&error, CommandError::Invalid(text) if text.contains("bash")), "{error}");
    }
    let deny = Rule::new("danger", "*", Action::Deny);
    *stage.directory.ground.lock().unwrap() =
        Ground { configuration: [deny].into_iter().collect(), ..open_ground() };
    let session = stage.session("m").await;
    session.run(prompt("danger", true)).await.unwrap();
    assert_eq!(results(&stage, &session).await[0].outcome, CallOutcome::Declined);
    assert!(stage.danger.went().is_empty());
}
