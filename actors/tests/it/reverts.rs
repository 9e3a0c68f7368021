//! Taking changes of files back, and what becomes of the messages.

use std::sync::Arc;
use std::time::Duration;

use mock_llm::{Model, Script, call, text};
use playhouse_actors::SessionHandle;
use playhouse_protocol::consent::{Action, PermissionRule};
use playhouse_protocol::record::{PromptAdmitted, SessionChanged};
use playhouse_protocol::revert::{LeftFile, RevertReport, RevertRequest, UnrevertRequest};
use playhouse_protocol::{Command, CommandError, Message, ModelRef, Prompt, Record};
use playhouse_store::{Reclaim, Store, StoreOptions};
use serde_json::{Value, json};

use crate::support::{Stage, until};
use crate::tasks::hands_over;

fn write(path: &str, content: &str) -> Value {
    json!({"filePath": path, "content": content})
}

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({"filePath": path, "oldString": old, "newString": new})
}

struct House {
    stage: Stage,
    session: SessionHandle,
}

impl House {
    /// A session whose model does this, and a workspace with these files.
    async fn with(files: &[(&str, &str)], model: Model) -> Self {
        Self::playing(files, Script::new().model("m", model)).await
    }

    async fn playing(files: &[(&str, &str)], script: Script) -> Self {
        Self::on(Store::memory().unwrap(), files, script).await
    }

    async fn on(store: Store, files: &[(&str, &str)], mut script: Script) -> Self {
        // Each model answers one prompt of several.
        script.models.values_mut().for_each(|model| model.cycle = true);
        let stage = Stage::on(store, Arc::new(tempfile::tempdir().unwrap()), script, 1024 * 1024).await;
        for (name, content) in files {
            fs_err::write(stage.folder.path().join("workspace").join(name), content).unwrap();
        }
        let session = stage.session("m").await;
        Self { stage, session }
    }

    /// Runs a prompt of this text, which the model of this name answers.
    async fn run(&self, text: &str, model: &str) {
        let model = Some(ModelRef::new("mock", model));
        self.session.run(Prompt { model, ..Prompt::text(text) }).await.unwrap();
    }

    fn text(&self, name: &str) -> Option<String> {
        fs_err::read_to_string(self.stage.folder.path().join("workspace").join(name)).ok()
    }

    fn put(&self, name: &str, content: &str) {
        fs_err::write(self.stage.folder.path().join("workspace").join(name), content).unwrap();
    }

    async fn undo(&self) -> RevertReport {
        self.session.revert(RevertRequest::default()).await.unwrap()
    }

    async fn redo(&self) -> RevertReport {
        self.session.unrevert(UnrevertRequest { steps: Some(1), dry_run: false }).await.unwrap()
    }
}

fn files(report: &RevertReport) -> Vec<&str> {
    report.files.iter().map(|file| &*file.path).collect()
}

fn paths(left: &[LeftFile]) -> Vec<&str> {
    left.iter().filter_map(|left| left.path.as_deref()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn undo_goes_from_prompt_to_prompt_and_redo_comes_back() {
    let first = Model::new()
        .step(call("read", json!({"filePath": "a"})))
        .step(call("edit", edit("a", "one", "ONE")))
        .step(text("first"));
    let second = Model::new()
        .step(call("edit", edit("a", "two", "TWO")))
        .step(call("write", write("deep/new", "x\n")))
        .step(text("second"));
    let third = Model::new().step(call("write", write("later", "y\n"))).step(text("third"));
    let script = Script::new().model("m", first).model("second", second).model("third", third);
    let house = House::playing(&[("a", "one\ntwo\n")], script).await;
    house.run("prompt one", "m").await;
    house.run("prompt two", "second").await;
    let preview =
        house.session.revert(RevertRequest { dry_run: true, ..RevertRequest::default() }).await.unwrap();
    assert_eq!((files(&preview), house.text("a").unwrap()), (vec!["a", "deep/new"], "ONE\nTWO\n".into()));
    assert_eq!((preview.files[0].additions, preview.files[0].deletions), (1, 1));

    assert_eq!(files(&house.undo().await), ["a", "deep/new"]);
    assert_eq!((house.text("a").unwrap(), house.text("deep/new")), ("ONE\ntwo\n".into(), None));
    house.undo().await;
    assert_eq!(house.text("a").unwrap(), "one\ntwo\n");
    let none = house.session.revert(RevertRequest::default()).await.unwrap_err();
    assert!(matches!(&none, CommandError::Invalid(why) if why.contains("no prompt")), "{none}");
    house.redo().await;
    assert_eq!(house.text("a").unwrap(), "ONE\ntwo\n");
    house.redo().await;
    assert_eq!(
        (house.text("a").unwrap(), house.text("deep/new").unwrap()),
        ("ONE\nTWO\n".into(), "x\n".into())
    );
    let none = house.session.unrevert(UnrevertRequest::default()).await.unwrap_err();
    assert!(matches!(&none, CommandError::Invalid(_)), "{none}");

    // The next prompt drops what is taken back; until then it is there.
    house.undo().await;
    let said = |messages: &[Message]| {
        let texts = messages.iter().filter_map(|message| match message {
            Message::User(prompt) => prompt.parts[0].told().map(str::to_owned),
            Message::Assistant(_) => None,
        });
        texts.collect::<Vec<_>>()
    };
    assert_eq!(said(&house.session.snapshot().await.unwrap().messages), ["prompt one", "prompt two"]);
    house.run("prompt three", "third").await;
    let snapshot = house.session.snapshot().await.unwrap();
    assert_eq!(said(&snapshot.messages), ["prompt one", "prompt three"]);
    assert!(snapshot.summary.reverted.is_none());
    assert_eq!(house.text("later").unwrap(), "y\n");
    assert!(house.session.unrevert(UnrevertRequest::default()).await.is_err());
    // Read anew, it is the same session.
    let entries = house.stage.engine.read(house.session.id()).await.unwrap().0;
    let again = playhouse_session::Session::replay(&entries).unwrap();
    assert_eq!(said(&again.messages), ["prompt one", "prompt three"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_and_other_sessions_wrote_stays() {
    let model = Model::new()
        .step(call("read", json!({"filePath": "a"})))
        .step(call("read", json!({"filePath": "same"})))
        .step(call("edit", edit("a", "one", "ONE")))
        .step(call("edit", edit("same", "middle", "MIDDLE")))
        .step(call("write", write("made", "x\n")))
        .step(call("write", write("now-a-folder", "x\n")))
        .step(text("done"));
    let house = House::with(&[("a", "one\ntwo\nthree\n"), ("same", "top\nmiddle\nend\n")], model).await;
    house.session.run(Prompt::text("go")).await.unwrap();
    house.put("a", "ONE\ntwo\nthree\nfour by a person\n");
    house.put("same", "top\nmiddle by a person\nend\n");
    let folder = house.stage.folder.path().join("workspace/now-a-folder");
    fs_err::remove_file(&folder).unwrap();
    fs_err::create_dir(&folder).unwrap();
    fs_err::write(folder.join("inside"), "by a person").unwrap();
    let report = house.undo().await;
    assert_eq!(house.text("a").unwrap(), "one\ntwo\nthree\nfour by a person\n");
    assert_eq!(house.text("same").unwrap(), "top\nmiddle by a person\nend\n");
    assert_eq!((house.text("made"), folder.is_dir()), (None, true));
    let mut conflicts = paths(&report.conflicts);
    conflicts.sort_unstable();
    assert_eq!((files(&report), conflicts), (vec!["a", "made"], vec!["now-a-folder", "same"]));
    // The merge is taken back like any other change.
    house.redo().await;
    assert_eq!(house.text("a").unwrap(), "ONE\ntwo\nthree\nfour by a person\n");
    assert_eq!(house.text("made").unwrap(), "x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_and_a_message_can_be_gone_back_to_with_what_commands_changed() {
    let model = Model::new()
        .step(call("write", write("x", "x\n")))
        .step(call("bash", json!({"command": "echo z > z"})))
        .step(call("write", write("y", "y\n")))
        .step(text("done"));
    let script = Script::new().model("m", model).model("says", Model::new().step(text("and now?")));
    let house = House::playing(&[], script).await;
    house.session.run(Prompt::text("go")).await.unwrap();
    let records = house.stage.records(&house.session).await;
    let calls: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::CallIntended(intended) => Some(intended.call),
            _ => None,
        })
        .collect();
    let to = |id: &str| RevertRequest { to: Some(id.to_owned()), ..RevertRequest::default() };
    let report = house.session.revert(to(calls[2].as_str())).await.unwrap();
    assert_eq!((house.text("x").is_some(), house.text("y")), (true, None));
    assert_eq!((report.call, report.not_covered.len()), (Some(calls[2]), 0));
    let prompt = records.iter().find_map(|record| match record {
        Record::PromptAdmitted(PromptAdmitted { message, .. }) => Some(*message),
        _ => None,
    });
    let report = house.session.revert(to(prompt.unwrap().as_str())).await.unwrap();
    assert_eq!((house.text("x"), house.text("z")), (None, None));
    assert_eq!((files(&report), report.not_covered.len()), (vec!["x", "z"], 0));
    let unknown = house.session.revert(to("msg_00000000000012345678901234")).await.unwrap_err();
    assert!(unknown.to_string().contains("there is no message"), "{unknown}");
    let again = house.session.revert(to(calls[2].as_str())).await.unwrap_err();
    assert!(again.to_string().contains("undone already"), "{again}");
    // All of it comes back at once.
    house.session.unrevert(UnrevertRequest::default()).await.unwrap();
    assert_eq!((house.text("x").is_some(), house.text("y").is_some()), (true, true));
    // What stands before the call stays in the conversation.
    house.session.revert(to(calls[2].as_str())).await.unwrap();
    house.run("what now", "says").await;
    let messages = house.session.snapshot().await.unwrap().messages;
    let kept = messages.iter().filter(|message| matches!(message, Message::Assistant(_))).count();
    assert_eq!(kept, 3, "two steps of the first turn, and the new one: {messages:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_taken_back_while_something_runs_or_that_rules_deny() {
    let model = Model::new()
        .step(call("write", write("secret", "x\n")))
        .step(call("write", write("open", "x\n")))
        .step(call("probe", json!({"mode": "wait"})))
        .step(text("done"));
    let leaves = Model::new()
        .step(call("bash", json!({"command": "sleep 600", "background": true})))
        .step(text("left it"));
    let house = House::playing(&[], Script::new().model("m", model).model("leaves", leaves)).await;
    house.session.prompt(Prompt::text("go")).await.unwrap();
    house.stage.probe.begun().await;
    let busy = house.session.revert(RevertRequest::default()).await.unwrap_err();
    assert!(matches!(&busy, CommandError::StillRunning(why) if why.contains("turn")), "{busy}");
    let mut events = house.session.events(None).await.unwrap();
    house.stage.probe.release(1);
    until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
    house.run("run something", "leaves").await;
    let busy = house.session.revert(RevertRequest::default()).await.unwrap_err();
    assert!(matches!(&busy, CommandError::StillRunning(why) if why.contains("sleep 600")), "{busy}");

    let house = House::with(
        &[],
        Model::new()
            .step(call("write", write("secret", "x\n")))
            .step(call("write", write("open", "x\n")))
            .step(text("done")),
    )
    .await;
    house.session.run(Prompt::text("go")).await.unwrap();
    let rule = PermissionRule { permission: "edit".into(), pattern: "secret".into(), action: Action::Deny };
    let changed = SessionChanged { permissions: Some(vec![rule]), ..SessionChanged::default() };
    house.session.command(Command::Change(changed)).await.unwrap();
    let report = house.undo().await;
    assert_eq!((files(&report), paths(&report.conflicts)), (vec!["open"], vec!["secret"]));
    assert_eq!((house.text("secret").is_some(), house.text("open")), (true, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_was_handed_over_is_taken_back_with_what_handed_it_over() {
    let worker = Model::new().step(call("write", write("below", "x\n"))).step(text("done below"));
    let stage = Stage::new(hands_over(worker)).await;
    let session = stage.session("m").await;
    session.run(Prompt::text("go")).await.unwrap();
    let path = stage.folder.path().join("workspace/below");
    assert!(path.exists());
    let report = session.revert(RevertRequest::default()).await.unwrap();
    assert_eq!((files(&report), path.exists()), (vec!["below"], false));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_commands_do_to_files_is_taken_back_and_done_again() {
    let script = "rm gone; mv a moved; mkdir -p deep/er; echo x > deep/er/f; ln -s moved link; rm f; mkdir f; echo in > f/inner; chmod 755 mode";
    let model = Model::new().step(call("bash", json!({"command": script}))).step(text("done"));
    let files_before = [("a", "one\n"), ("gone", "bee\n"), ("f", "a file\n"), ("mode", "m\n")];
    let house = House::with(&files_before, model).await;
    house.session.run(Prompt::text("go")).await.unwrap();
    let root = house.stage.folder.path().join("workspace");
    let report = house.undo().await;
    assert!(report.conflicts.is_empty() && report.not_covered.is_empty(), "{report:#?}");
    for (name, content) in files_before {
        assert_eq!(house.text(name).as_deref(), Some(content), "{name}");
    }
    let mut names: Vec<_> =
        fs_err::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "f", "gone", "mode"], "no folder and no link is left");
    house.redo().await;
    assert_eq!((house.text("moved"), house.text("deep/er/f")), (Some("one\n".into()), Some("x\n".into())));
    assert_eq!((house.text("f/inner"), house.text("gone")), (Some("in\n".into()), None));
    assert_eq!(fs_err::read_link(root.join("link")).unwrap().to_str(), Some("moved"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_changes_in_the_background_is_told_when_it_ends() {
    let background = "echo 1 > early; while [ ! -e stop ]; do sleep 0.02; done; echo 2 > late";
    let model = Model::new()
        .step(call("bash", json!({"command": background, "background": true})))
        .step(call("bash", json!({"command": "while [ ! -e early ]; do sleep 0.02; done; echo 3 > between"})))
        .step(text("it runs"));
    let house = House::with(&[], model).await;
    let mut events = house.session.events(None).await.unwrap();
    house.session.run(Prompt::text("go")).await.unwrap();
    let busy = house.session.revert(RevertRequest::default()).await.unwrap_err();
    assert!(matches!(&busy, CommandError::StillRunning(why) if why.contains("early")), "{busy}");
    house.put("stop", "");
    let told = |record: &Record| matches!(record, Record::WorkspaceChanged(changed) if changed.set.changes.iter().any(|file| file.path == "late"));
    until(&mut events, told).await;
    let report = house.undo().await;
    assert!(report.not_covered.is_empty() && report.ambiguous.is_empty(), "{report:#?}");
    for name in ["early", "between", "late"] {
        assert_eq!(house.text(name), None, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_takes_its_own_changes_back_one_by_one() {
    let model = Model::new()
        .step(call("write", write("first", "1\n")))
        .step(call("bash", json!({"command": "echo 2 > second"})))
        .step(call("undo_to", json!({})))
        .step(call("undo_last", json!({})))
        .step(call("undo_last", json!({})))
        .step(call("undo_last", json!({})))
        .step(call("undo_to", json!({"to": "prt_nothing"})))
        .step(text("done"));
    let house = House::with(&[("theirs", "a person's\n")], model).await;
    house.session.run(Prompt::text("go")).await.unwrap();
    let results: Vec<_> = house
        .stage
        .records(&house.session)
        .await
        .into_iter()
        .filter_map(|record| match record {
            Record::CallSettled { result, .. } => Some(result.output),
            _ => None,
        })
        .collect();
    let list: Vec<&str> = results[2].lines().collect();
    assert!(
        list.len() == 2 && list[0].ends_with(" bash second") && list[1].ends_with(" write first"),
        "{list:?}"
    );
    assert_eq!(
        (results[3].as_str(), results[4].as_str()),
        ("removed second (+0 -1)", "removed first (+0 -1)")
    );
    assert!(results[5].contains("no change of yours"), "{}", results[5]);
    assert!(results[6].contains("no change of yours has the id"), "{}", results[6]);
    assert_eq!(
        (house.text("first"), house.text("second"), house.text("theirs").is_some()),
        (None, None, true)
    );
    // An undo of the whole turn takes these back as well.
    let report = house.undo().await;
    assert!(report.conflicts.is_empty() && files(&report).is_empty(), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_cut_off_or_left_running_and_changed_nothing_is_covered() {
    let wait = "touch begun; rm begun; while [ ! -e stop ]; do sleep 0.02; done; rm stop";
    let model = Model::new()
        .step(call("bash", json!({"command": "sleep 0.5", "background": true})))
        .step(text("it runs"))
        .next_turn()
        .step(call("bash", json!({"command": wait})))
        .step(text("done"));
    let house = House::with(&[], model).await;
    let mut events = house.session.events(None).await.unwrap();
    house.session.run(Prompt::text("go")).await.unwrap();
    // The second record of the call says that this was all.
    let all_told =
        |record: &Record| matches!(record, Record::WorkspaceChanged(changed) if changed.set.is_nothing());
    until(&mut events, all_told).await;
    house.session.prompt(Prompt::text("wait")).await.unwrap();
    until(&mut events, |record| matches!(record, Record::CallIntended(_))).await;
    house.session.abort().await.unwrap();
    until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
    until(&mut events, all_told).await;
    for _ in 0..2 {
        let report = house.undo().await;
        assert!(report.not_covered.is_empty() && files(&report).is_empty(), "{report:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_had_to_make_room_for_later_changes_is_not_covered_and_stays() {
    let read = Model::new().step(call("read", json!({"filePath": "a"})));
    let model = read.step(call("edit", edit("a", "one", "ONE"))).step(text("done"));
    let data = tempfile::tempdir().unwrap();
    let at_once = Reclaim { grace: Duration::ZERO, ..Reclaim::default() };
    let options = StoreOptions { reclaim: at_once, ..StoreOptions::default() };
    let store = Store::open_with(data.path(), &options).unwrap();
    let house = House::on(store, &[("a", "one\n")], Script::new().model("m", model)).await;
    house.run("go", "m").await;
    assert_eq!(house.stage.store.blobs.trim_images("local", 0).unwrap(), 0);
    let report = house.undo().await;
    assert_eq!((files(&report), paths(&report.not_covered)), (vec![], vec!["a"]), "{report:?}");
    assert_eq!(house.text("a").unwrap(), "ONE\n");
}
