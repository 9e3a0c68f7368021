//! Folders of a workspace, when changes are taken back.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use mock_llm::{Model, Script, call, text};
use playhouse_actors::SessionHandle;
use playhouse_protocol::revert::{RevertReport, RevertRequest, UnrevertRequest};
use playhouse_protocol::{CommandError, Prompt, Record};
use serde_json::json;

use crate::support::Stage;
use crate::tasks::hands_over;

/// Every path below a folder, with its permission bits.
fn tree(root: &Path) -> BTreeMap<PathBuf, u32> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let facts = path.symlink_metadata().unwrap();
            found.insert(path.strip_prefix(root).unwrap().to_owned(), facts.permissions().mode() & 0o7777);
            if facts.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

fn folder(root: &Path, path: &str, mode: u32) {
    fs_err::create_dir_all(root.join(path)).unwrap();
    fs_err::set_permissions(root.join(path), std::fs::Permissions::from_mode(mode)).unwrap();
}

async fn undo(session: &SessionHandle) -> RevertReport {
    session.revert(RevertRequest::default()).await.unwrap()
}

/// Runs a prompt, and takes it back, does it again, and takes it back once more.
async fn there_and_back(model: Model, make: impl FnOnce(&Path)) -> RevertReport {
    let stage = Stage::new(Script::new().model("m", model)).await;
    let root = stage.folder.path().join("workspace");
    make(&root);
    let before = tree(&root);
    let session = stage.session("m").await;
    session.run(Prompt::text("go")).await.unwrap();
    let after = tree(&root);
    assert_ne!(after, before);
    let report = undo(&session).await;
    assert_eq!(tree(&root), before, "{report:#?}");
    session.unrevert(UnrevertRequest::default()).await.unwrap();
    assert_eq!(tree(&root), after);
    assert_eq!(undo(&session).await, report);
    assert_eq!(tree(&root), before);
    report
}

fn folders(report: &RevertReport) -> Vec<String> {
    let told = |mode: Option<u32>| mode.map_or("-".to_owned(), |mode| format!("{mode:o}"));
    let folders = report.folders.iter();
    folders
        .map(|folder| format!("{}: {} > {}", folder.path, told(folder.before), told(folder.after)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_was_empty_before_stays_and_one_that_was_made_goes() {
    let write = |path: &str| call("write", json!({"filePath": path, "content": "x\n"}));
    let patch = "*** Begin Patch\n*** Add File: patched/deep/b\n+x\n*** End Patch";
    let model = Model::new()
        .step(write("logs/a.txt"))
        .step(write("logs/made/a.txt"))
        .step(call("apply_patch", json!({"patchText": patch})))
        .step(call("bash", json!({"command": "mkdir -p shell/inner old/new && echo x > shell/inner/a"})))
        .step(text("done"));
    let report = there_and_back(model, |root| {
        folder(root, "logs", 0o750);
        folder(root, "old", 0o755);
    })
    .await;
    let removed = |path: &str| format!("{path}: 755 > -");
    let expected = ["logs/made", "old/new", "patched", "patched/deep", "shell", "shell/inner"];
    assert_eq!(folders(&report), expected.map(removed));
    assert!(report.conflicts.is_empty(), "{report:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_that_a_command_removed_come_back_with_their_permissions() {
    let command = "rm -rf secrets a && chmod 700 open && chmod u+w narrow && rm -r narrow";
    let model = Model::new().step(call("bash", json!({"command": command}))).step(text("done"));
    let report = there_and_back(model, |root| {
        folder(root, "secrets", 0o700);
        fs_err::write(root.join("secrets/key"), "k").unwrap();
        fs_err::set_permissions(root.join("secrets/key"), std::fs::Permissions::from_mode(0o600)).unwrap();
        folder(root, "a/empty", 0o2775);
        folder(root, "narrow", 0o755);
        fs_err::write(root.join("narrow/file"), "n").unwrap();
        folder(root, "narrow", 0o555);
        folder(root, "open", 0o755);
    })
    .await;
    let expected =
        ["a: - > 755", "a/empty: - > 2775", "narrow: - > 555", "open: 700 > 755", "secrets: - > 700"];
    assert_eq!(folders(&report), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_with_something_of_others_stays_and_is_named() {
    let model = Model::new().step(call("bash", json!({"command": "mkdir -p new/inner"}))).step(text("done"));
    let stage = Stage::new(Script::new().model("m", model)).await;
    let root = stage.folder.path().join("workspace");
    let session = stage.session("m").await;
    session.run(Prompt::text("go")).await.unwrap();
    fs_err::write(root.join("new/theirs"), "theirs").unwrap();
    let preview = session.revert(RevertRequest { dry_run: true, ..RevertRequest::default() }).await.unwrap();
    let report = undo(&session).await;
    assert_eq!(folders(&report), ["new/inner: 755 > -"]);
    assert_eq!(RevertReport { dry_run: false, ..preview }, report);
    let left: Vec<_> = report.conflicts.iter().map(|left| left.path.as_deref().unwrap()).collect();
    assert_eq!(left, ["new"]);
    assert_eq!(tree(&root).keys().collect::<Vec<_>>(), [Path::new("new"), Path::new("new/theirs")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_command_of_a_sub_session_holds_up_the_revert() {
    let worker = Model::new()
        .step(call("bash", json!({"command": "sleep 600", "background": true})))
        .step(text("It runs."));
    let stage = Stage::new(hands_over(worker)).await;
    let session = stage.session("m").await;
    session.run(Prompt::text("go")).await.unwrap();
    let refused = session.revert(RevertRequest::default()).await.unwrap_err();
    assert!(matches!(&refused, CommandError::StillRunning(why) if why.contains("sleep 600")), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_two_sub_sessions_changed_at_once_is_taken_back_by_the_session_above() {
    let command = |own: &str, other: &str| {
        format!(
            "echo x > begun-{own}; while [ ! -e begun-{other} ]; do sleep 0.02; done; mkdir -p d; echo x > d/{own}; touch done-{own}; while [ ! -e done-{other} ]; do sleep 0.02; done; sleep 0.3"
        )
    };
    let worker = |own: &str, other: &str| {
        Model::new().step(call("bash", json!({"command": command(own, other)}))).step(text("done"))
    };
    let hand = |agent: &str| ("task", json!({"description": "x", "prompt": "x", "subagent_type": agent}));
    let parent = Model::new().step(mock_llm::calls([hand("worker"), hand("helper")])).step(text("So."));
    let script =
        Script::new().model("m", parent).model("worker", worker("a", "b")).model("helper", worker("b", "a"));
    let stage = Stage::new(script).await;
    let root = stage.folder.path().join("workspace");
    let session = stage.session("m").await;
    session.run(Prompt::text("go")).await.unwrap();
    assert!(root.join("d/a").exists() && root.join("d/b").exists());
    let records = stage.records(&session).await;
    let sub = records.iter().find_map(|record| match record {
        Record::CallIntended(intended) => intended.delegate.map(|delegate| delegate.session),
        _ => None,
    });
    // One of the two alone cannot tell.
    let sub = stage.engine.session(sub.unwrap()).await.unwrap();
    let own = sub.revert(RevertRequest { dry_run: true, ..RevertRequest::default() }).await.unwrap();
    assert!(!own.ambiguous.is_empty(), "{own:#?}");
    let report = undo(&session).await;
    assert_eq!(tree(&root), BTreeMap::new(), "{report:#?}");
    assert!(report.ambiguous.is_empty(), "{report:#?}");
}
