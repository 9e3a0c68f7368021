//! Sessions hear of changes of their workspaces.

use mock_llm::{Model, Script, call, text};
use playhouse_actors::{SessionHandle, Subscription};
use playhouse_protocol::changes::ChangeKind;
use playhouse_protocol::event::{ChangeAuthor, FilesChanged, Provisional};
use playhouse_protocol::message::{CallPart, CallState};
use playhouse_protocol::{EventBody, Message, Part, Prompt};
use serde_json::json;

use crate::support::Stage;

/// What is told until each of these files was named.
async fn changed(events: &mut Subscription, paths: &[&str]) -> Vec<FilesChanged> {
    let mut all: Vec<FilesChanged> = Vec::new();
    let is_named = |all: &[FilesChanged], path: &&str| {
        all.iter().flat_map(|told| &told.files).any(|file| file.path == **path)
    };
    while !paths.iter().all(|path| is_named(&all, path)) {
        let event = events.next().await.unwrap().unwrap();
        if let EventBody::Provisional(Provisional::FileChanged(told)) = &event.event().body {
            all.push(told.clone());
        }
    }
    all
}

/// The results of all calls.
async fn results(session: &SessionHandle) -> Vec<String> {
    let snapshot = session.snapshot().await.unwrap();
    let parts = snapshot.messages.iter().flat_map(|message| match message {
        Message::User(_) => &[],
        Message::Assistant(answer) => &*answer.parts,
    });
    let calls = parts.filter_map(|part| match part {
        Part::Call(CallPart { state: CallState::Settled(result), .. }) => Some(result.output.clone()),
        _ => None,
    });
    calls.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_hear_who_changed_what_and_models_what_they_read_anew() {
    let edit = json!({"filePath": "a", "oldString": "one", "newString": "two"});
    let first = Model::new()
        .step(call("read", json!({"filePath": "a"})))
        .step(call("edit", edit))
        // `made` comes last and stays empty: a file that is written after it was made may be told twice.
        .step(call("bash", json!({"command": "echo more >> a; : > made"})))
        .step(text("done"));
    let second = Model::new()
        .step(call("read", json!({"filePath": "b"})))
        .step(call("read", json!({"filePath": "b"})))
        .step(text("done"));
    let other = Model::new().step(call("read", json!({"filePath": "a"}))).step(text("done"));
    let mut script = Script::new().model("m", first).model("second", second).model("other", other);
    // Each model answers one prompt of several.
    script.models.values_mut().for_each(|model| model.cycle = true);
    let stage = Stage::new(script).await;
    let root = stage.folder.path().join("workspace");
    fs_err::write(root.join("a"), "one\n").unwrap();
    fs_err::write(root.join("b"), "bee\n").unwrap();
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    let beside = stage.session("other").await;
    beside.run(Prompt::text("look")).await.unwrap();
    let mut seen_beside = beside.events(None).await.unwrap();

    let own = tokio::spawn({
        let session = session.clone();
        async move { session.run(Prompt::text("go")).await.unwrap() }
    });
    own.await.unwrap();
    let told = changed(&mut events, &["a", "made"]).await;
    let is_own = |told: &FilesChanged| (told.by, told.session) == (ChangeAuthor::Session, Some(session.id()));
    assert!(told.iter().all(is_own), "{told:?}");
    // Sessions of one workspace are told the same.
    assert_eq!(changed(&mut seen_beside, &["a", "made"]).await, told);

    fs_err::write(root.join("a"), "by hand\n").unwrap();
    fs_err::remove_file(root.join("made")).unwrap();
    let told = changed(&mut events, &["a", "made"]).await;
    assert!(told.iter().all(|told| (told.by, told.session) == (ChangeAuthor::Outside, None)), "{told:?}");
    let files: Vec<_> = told.iter().flat_map(|told| &told.files).collect();
    assert!(files.iter().any(|file| file.path == "made" && file.kind == ChangeKind::Deleted), "{files:?}");
    fs_err::write(root.join("b"), "bee, touched\n").unwrap();
    changed(&mut events, &["b"]).await;
    let model = Some(playhouse_protocol::ModelRef::new("mock", "second"));
    session.run(Prompt { model, ..Prompt::text("again") }).await.unwrap();
    let results = results(&session).await;
    let [.., once, again] = results.as_slice() else { panic!("{results:?}") };
    assert!(once.starts_with("[changed by others since you read it: a]\n\n"), "{once}");
    assert!(!again.contains("changed by others"), "{again}");
}
