//! Workspaces and data directories that cannot be used.

use std::process::{Child, Stdio};

use fs_err as fs;
use mock_llm::{Fault, Model, Script, Step, text};
use playhouse::protocol::{Event, EventBody, Record};

use crate::stage::{Dialect, Stage, contents};

#[test]
fn a_workspace_must_be_a_directory() {
    let stage = Stage::new(Model::new());
    stage.write("file.txt", "");
    stage.run(["-C", "absent", "x"]).is(2).says(["error: cannot work in absent: ", "No such file"]);
    stage.run(["-C", "file.txt", "x"]).is(2).says(["cannot work in file.txt: it is not a directory"]);
    stage.playhouse(["tool", "list", "--input", "{}", "-C", "absent"]).is(2).says(["cannot work in absent"]);
    assert!(stage.asked().is_empty());
}

#[test]
fn a_session_id_must_be_one() {
    let stage = Stage::new(Model::new());
    stage.run(["first"]).is(0);
    for wrong in ["nonsense", "ses_", "msg_00000000000012345678901234", "ses_0000000000001234567890123é"] {
        stage.run(["-s", wrong, "x"]).is(2).says(["session id", wrong]);
        stage.playhouse(["sessions", "show", wrong]).is(2).says([wrong]);
    }
    let unknown = "ses_00000000000012345678901234";
    stage.run(["-s", unknown, "x"]).is(2).says(["there is no session ses_0000", "playhouse sessions list"]);
    assert_eq!(stage.asked().len(), 1);
}

#[test]
fn a_session_stays_in_its_directory() {
    let stage = Stage::new(Model::new());
    stage.write("below/file.txt", "");
    stage.run(["first"]).is(0);
    let session = stage.session();
    let here = stage.workspace.to_str().unwrap().to_owned();
    stage
        .run(["-C", "below", "-s", &session, "x"])
        .is(2)
        .says([&format!("session {session} works in {here}, not in {here}/below"), "-C"]);
    // Through a link it is the same directory.
    let link = stage.root().join("link");
    std::os::unix::fs::symlink(&stage.workspace, &link).unwrap();
    stage.run(["-C", link.to_str().unwrap(), "-s", &session, "x"]).is(0);
}

/// A process that waits in the middle of a turn.
fn waiting(stage: &Stage) -> Child {
    let mut command = stage.command(["run", "Wait."]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    stage.wait_for(|asked| !asked.is_empty());
    child
}

#[test]
fn a_data_directory_has_one_process_at_a_time() {
    let script = Script::new()
        .model("m", Model::new().step(text("Wait for me.").fault(Fault::stall(0))))
        .model("n", Model::new());
    let stage = Stage::speaking(Dialect::OpenaiChat, script);
    let mut child = waiting(&stage);
    let holder = format!("process {}", child.id());
    stage.run(["-m", "local/n", "x"]).is(2).says(["is in use by", &holder, " run Wait.", "--data"]);
    stage.playhouse(["sessions", "list"]).is(2).says([&holder]);
    // What needs no data directory goes on.
    stage.playhouse(["tool", "list", "--input", "{}"]).is(0);
    child.kill().unwrap();
    child.wait().unwrap();
    stage.run(["-m", "local/n", "x"]).is(0);
    assert_eq!(stage.asked().len(), 2, "the one who was refused asked nothing");
}

#[test]
fn a_directory_with_something_else_is_left_alone() {
    let newer = r#"{"format":"playhouse-store","version":9,"backend":"granite","more":[]}"#;
    for (name, content, found) in [
        ("notes.txt", "mine", "holds something else (notes.txt, for one)"),
        (
            "format.json",
            newer,
            "holds playhouse-store version 9; this engine reads playhouse-store versions 1 to 5",
        ),
        ("format.json", r#"{"format":"cookbook"}"#, "holds the foreign format \"cookbook\""),
    ] {
        let stage = Stage::new(Model::new());
        fs::create_dir(&stage.data).unwrap();
        fs::write(stage.data.join(name), content).unwrap();
        let before = contents(&stage.data);
        stage.run(["x"]).is(2).says([found, "Nothing was changed"]);
        stage.playhouse(["sessions", "list"]).is(2).says([found]);
        stage.playhouse(["tool", "list", "--input", "{}"]).is(0);
        assert_eq!(contents(&stage.data), before);
        assert!(stage.asked().is_empty());
    }
}

#[test]
fn calls_by_hand_do_not_stand_in_the_way_of_a_new_data_directory() {
    let stage = Stage::new(Model::new());
    stage.playhouse(["tool", "bash", "--input", r#"{"command": "seq 100000"}"#]).is(0);
    stage.run(["x"]).is(0);
}

#[test]
fn a_damaged_session_is_parked_and_the_others_run() {
    let stage = Stage::new(
        Model::new()
            .step(text("Good words."))
            .next_turn()
            .step(text("More."))
            .next_turn()
            .step(Step::empty()),
    );
    stage.run(["first prompt"]).is(0);
    let damaged = stage.session();
    stage.run(["-s", &damaged, "second prompt"]).is(0);
    let records = stage.records(&damaged).len();
    let place = stage.damage(&damaged, records as u64 - 1);

    stage.run(["-s", &damaged, "third prompt"]).is(1).says([
        "is parked",
        &format!("record {place}"),
        "checksum",
    ]);
    stage.run(["-c", "third prompt"]).is(1).says(["is parked"]);
    stage.run(["another session"]).is(0);
    let list = stage.playhouse(["sessions", "list"]).is(0);
    assert!(list.stdout.contains(&damaged) && list.stdout.lines().count() == 3, "{}", list.stdout);

    let show = stage.playhouse(["sessions", "show", &damaged]).is(1);
    show.shows(["first prompt", "Good words.", "second prompt"]).says([&damaged, "is parked", "checksum"]);
    let export = stage.playhouse(["sessions", "export", &damaged]).is(1).says([&damaged, "checksum"]);
    assert_eq!(export.lines().len(), usize::try_from(place).unwrap() - 1);
    // The rest is still there, and can be removed.
    stage.playhouse(["sessions", "delete", &damaged]).is(0);
    assert_eq!(stage.playhouse(["sessions", "list"]).is(0).stdout.lines().count(), 2);
}

#[test]
fn a_damaged_session_is_whole_again_when_the_damage_is_undone() {
    let stage = Stage::new(Model::new());
    stage.run(["first"]).is(0);
    let session = stage.session();
    stage.damage(&session, 2);
    stage.run(["-s", &session, "second"]).is(1);
    stage.damage(&session, 2);
    let ended = stage.run(["-s", &session, "--format", "json", "second"]).is(0);
    let ends = |event: &Event| match &event.body {
        EventBody::Durable(record) => matches!(record.as_ref(), Record::TurnEnded(_)),
        EventBody::Provisional(_) => false,
    };
    assert_eq!(ended.events().iter().filter(|event| ends(event)).count(), 1);
}
