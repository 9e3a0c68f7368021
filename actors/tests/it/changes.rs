//! What calls changed in files is in the log, however they ended.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use mock_llm::{Model, Script, call, text};
use playhouse_actors::Resume;
use playhouse_policy::{Access, AccessKind, Zone};
use playhouse_protocol::changes::{ChangeKind, ChangeSource, Coverage, FileImage};
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::message::{CallOutcome, CallState};
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_protocol::{ChangeSet, Message, Part, Prompt, Record};
use playhouse_store::Store;
use playhouse_tools::changed::{FileState, FileWrite};
use playhouse_tools::{CallContext, Plan, Prepared, Risk, Tool, ToolError, ToolOutput};
use playhouse_workspace::hash;
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use crate::resume::{Ground, all_is_finished};
use crate::support::{Stage, until};

/// Writes `a`, and then ends as it is told.
struct Scribe {
    spec: ToolSpec,
    wrote: Semaphore,
    release: Arc<Semaphore>,
}

impl Scribe {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            spec: ToolSpec {
                name: "scribe".into(),
                description: "writes a file".into(),
                parameters: json!({"type": "object", "properties": {"mode": {"type": "string"}}}),
            },
            wrote: Semaphore::new(0),
            release: Arc::new(Semaphore::new(0)),
        })
    }
}

fn write(context: &CallContext) {
    let path = context.workspace.root().join("a");
    let state = |bytes: &[u8]| FileState::new(hash(bytes), bytes, 0o100_644);
    let before = fs_err::read(&path).ok().map(|bytes| state(&bytes));
    fs_err::write(&path, "written\n").unwrap();
    context.writes.wrote(FileWrite { path, before, after: Some(state(b"written\n")) });
}

impl Tool for Scribe {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        Risk::Safe
    }

    fn permission(&self) -> &str {
        "edit"
    }

    fn prepare<'a>(
        &'a self,
        input: &'a Map<String, Value>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        async move {
            let path = context.workspace.root().join("a").to_string_lossy().into_owned();
            Ok(Prepared {
                accesses: vec![Access::path(AccessKind::Write, path, Zone::Workspace).shown("a")],
                effect: Effect::Workspace,
                recovery: Recovery::Interrupt,
                preview: String::new(),
                title: "a".into(),
                plan: Box::new(input["mode"].as_str().unwrap_or_default().to_owned()),
            })
        }
        .boxed()
    }

    fn execute<'a>(
        &'a self,
        plan: Plan,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async move {
            let mode = *plan.downcast::<String>().unwrap();
            if mode == "late" {
                // What has begun on the pool goes on when the call is given up.
                let (release, own) = (Arc::clone(&self.release), context.clone());
                tokio::task::spawn_blocking(move || {
                    futures::executor::block_on(release.acquire()).unwrap().forget();
                    write(&own);
                });
                self.wrote.add_permits(1);
                std::future::pending::<()>().await;
            }
            write(context);
            self.wrote.add_permits(1);
            match mode.as_str() {
                "fail" => Err(ToolError::Failed("not all of it".into())),
                "panic" => panic!("the scribe is on fire"),
                "hang" => std::future::pending().await,
                _ => Ok(ToolOutput::text("done")),
            }
        }
        .boxed()
    }
}

async fn stage(scribe: &Arc<Scribe>, mode: &str) -> Stage {
    let model = Model::new().step(call("scribe", json!({ "mode": mode }))).step(text("Done."));
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let tool = Arc::clone(scribe) as _;
    Stage::with(Store::memory().unwrap(), folder, Script::new().model("m", model), |options| {
        options.tools.add(tool).unwrap();
    })
    .await
}

/// What the only change set says, and the kinds of the records around it.
fn changed(records: &[Record]) -> (ChangeSet, [&'static str; 2]) {
    let sets: Vec<usize> =
        (0..records.len()).filter(|at| matches!(records[*at], Record::WorkspaceChanged(_))).collect();
    let [at] = sets[..] else { panic!("one change set: {records:#?}") };
    let Record::WorkspaceChanged(changed) = &records[at] else { unreachable!() };
    let kind = |at: usize| records.get(at).map_or("end", Record::kind);
    (changed.set.clone(), [kind(at - 1), kind(at + 1)])
}

fn outcome(records: &[Record]) -> CallOutcome {
    let settled = records.iter().find_map(|record| match record {
        Record::CallSettled { result, .. } => Some(result.outcome),
        _ => None,
    });
    settled.unwrap()
}

/// It says that `a` was made, and its contents are kept.
fn says_made(stage: &Stage, set: &ChangeSet) {
    let [file] = &set.changes[..] else { panic!("{set:#?}") };
    assert_eq!((&*file.path, file.kind, file.additions), ("a", ChangeKind::Added, 1));
    assert_eq!((set.source, &set.coverage, &file.before), (ChangeSource::Tool, &Coverage::Full, &None));
    let blob = file.after.as_ref().unwrap().content.blob().unwrap().clone();
    assert_eq!(stage.store.blobs.get_image("local", &blob).unwrap().unwrap(), b"written\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_set_stands_directly_before_the_result_also_of_a_call_that_failed() {
    for (mode, expected) in [("", CallOutcome::Done), ("fail", CallOutcome::Failed)] {
        let stage = stage(&Scribe::new(), mode).await;
        let session = stage.session("m").await;
        session.run(Prompt::text("go")).await.unwrap();
        let records = stage.records(&session).await;
        let (set, around) = changed(&records);
        assert_eq!((outcome(&records), around), (expected, ["call.intended", "call.settled"]));
        says_made(&stage, &set);
        let folded = session.snapshot().await.unwrap();
        let told = folded.messages.iter().find_map(|message| match message {
            Message::Assistant(answer) => answer.parts.iter().find_map(|part| match part {
                Part::Call(call) if matches!(call.state, CallState::Settled(_)) => call.changed.clone(),
                _ => None,
            }),
            Message::User(_) => None,
        });
        assert_eq!(told.unwrap().0[0].kind, ChangeKind::Added);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_call_wrote_before_it_panicked_or_was_killed_is_told_alone() {
    for mode in ["panic", "hang", "late"] {
        let scribe = Scribe::new();
        let stage = stage(&scribe, mode).await;
        let session = stage.session("m").await;
        let mut events = session.events(None).await.unwrap();
        session.prompt(Prompt::text("go")).await.unwrap();
        scribe.wrote.acquire().await.unwrap().forget();
        if mode != "panic" {
            session.abort().await.unwrap();
        }
        if mode == "late" {
            until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
            assert!(!stage.folder.path().join("workspace/a").exists());
            scribe.release.add_permits(1);
        }
        until(&mut events, |record| matches!(record, Record::WorkspaceChanged(_))).await;
        let records = stage.records(&session).await;
        let expected = if mode == "panic" { CallOutcome::Crashed } else { CallOutcome::Cancelled };
        assert_eq!(outcome(&records), expected, "{mode}");
        says_made(&stage, &changed(&records).0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn before_images_of_file_tools_are_durable_with_the_intent() {
    let edit = json!({"filePath": "a", "oldString": "one", "newString": "two"});
    let model = Model::new()
        .step(call("read", json!({"filePath": "a"})))
        .step(call("edit", edit))
        .step(call("write", json!({"filePath": "a", "content": "two\n"})))
        .step(text("Done."));
    let stage = Stage::new(Script::new().model("m", model)).await;
    fs_err::write(stage.folder.path().join("workspace/a"), "one\n").unwrap();
    let session = stage.session("m").await;
    session.run(Prompt::text("go")).await.unwrap();
    let records = stage.records(&session).await;
    let intents = records.iter().filter_map(|record| match record {
        Record::CallIntended(intended) => Some(&intended.before[..]),
        _ => None,
    });
    let [[], [before], [again]] = intents.collect::<Vec<_>>()[..] else { panic!("{records:#?}") };
    let content = |image: &playhouse_protocol::FileBefore| {
        let blob = image.image.as_ref().unwrap().content.blob().unwrap().clone();
        stage.store.blobs.get_image("local", &blob).unwrap().unwrap()
    };
    assert_eq!((&*before.path, content(before), content(again)), ("a", b"one\n".to_vec(), b"two\n".to_vec()));
    // The second call wrote what was there.
    let (set, around) = changed(&records);
    assert_eq!(around, ["call.intended", "call.settled"]);
    assert_eq!((set.changes[0].kind, set.changes[0].additions), (ChangeKind::Modified, 1));
    let summary = stage.engine.summary(session.id()).await.unwrap();
    assert_eq!((summary.changed.files, summary.changed.additions, summary.changed.deletions), (1, 1, 1));
}

#[test]
fn after_a_crash_files_are_compared_and_of_commands_it_is_listed_what_changed_since() {
    let ground = Ground::new();
    let scribe = Scribe::new();
    let script = |mode: &str| {
        Script::new()
            .model("edits", Model::new().step(call("scribe", json!({ "mode": mode }))).step(text("Done.")))
            .model("runs", Model::new().step(call("probe", json!({"mode": "hang"}))).step(text("Done.")))
    };
    let sessions = {
        let scribe = Arc::clone(&scribe);
        ground.killed_by(script("hang"), Some(Arc::clone(&scribe) as _), async |stage| {
            let (edits, runs) = (stage.session("edits").await, stage.session("runs").await);
            let mut events = runs.events(None).await.unwrap();
            edits.prompt(Prompt::text("go")).await.unwrap();
            runs.prompt(Prompt::text("go")).await.unwrap();
            scribe.wrote.acquire().await.unwrap().forget();
            until(&mut events, |record| matches!(record, Record::CallIntended(_))).await;
            fs_err::write(stage.folder.path().join("workspace/later"), "x").unwrap();
            [edits.id(), runs.id()]
        })
    };
    Runtime::new().unwrap().block_on(async {
        let stage = ground.stage(script(""), Resume::Auto).await;
        all_is_finished(&stage).await;
        for (session, is_edit) in sessions.into_iter().zip([true, false]) {
            let records: Vec<Record> =
                stage.engine.read(session).await.unwrap().0.into_iter().map(|entry| entry.record).collect();
            let (set, around) = changed(&records);
            assert_eq!((outcome(&records), around[1]), (CallOutcome::Interrupted, "call.settled"));
            if is_edit {
                says_made(&stage, &set);
            } else {
                // What changed meanwhile is listed, and can be taken back by nobody.
                assert_eq!(set.coverage, Coverage::Partial { reason: "crash".into() });
                // The other session may have written its file before.
                let later = set.changes.iter().find(|file| file.path == "later");
                let file = later.unwrap_or_else(|| panic!("{set:?}"));
                let is_unknown = |image: &Option<FileImage>| {
                    image.as_ref().is_some_and(|image| image.content.sha().is_empty())
                };
                assert!(is_unknown(&file.before) && is_unknown(&file.after), "{file:?}");
            }
        }
    });
}
