//! `playhouse sessions`.

use mock_llm::{Model, call, reasoning, text};
use playhouse::protocol::Record;
use playhouse::server::SessionView;
use serde_json::json;

use crate::stage::{Stage, in_both};

fn talker() -> Model {
    Model::new()
        .step(reasoning("Let me think.").text("I look.").call("list", json!({})))
        .step(text("Here is what I found."))
}

#[test]
fn sessions_are_listed_newest_first() {
    in_both(|| {
        let stage = Stage::new(talker());
        stage.write("below/x", "");
        let empty = stage.playhouse(["sessions", "list"]).is(0);
        assert_eq!(empty.stdout.lines().count(), 1, "{}", empty.stdout);
        assert!(empty.stdout.starts_with("SESSION "));
        assert_eq!(stage.playhouse(["sessions", "list", "--format", "ndjson"]).is(0).stdout, "");
        for (prompt, directory) in [("alpha", "."), ("beta", "below"), ("gamma", ".")] {
            stage.run(["-C", directory, prompt]).is(0);
        }
        stage.playhouse(["sessions", "list"]).is(0).shows(["gamma", "beta", "alpha"]);
        let titles = |arguments: &[&str]| -> Vec<String> {
            let ended =
                stage.playhouse(["sessions", "list", "--format", "ndjson"].iter().chain(arguments)).is(0);
            let line = |line: &str| serde_json::from_str::<SessionView>(line).unwrap();
            let sessions: Vec<SessionView> = ended.stdout.lines().map(line).collect();
            assert!(
                sessions
                    .iter()
                    .all(|session| session.turns == 1 && session.tenant.as_deref() == Some("local"))
            );
            sessions.into_iter().map(|session| session.title).collect()
        };
        assert_eq!(titles(&[]), ["gamma", "beta", "alpha"]);
        assert_eq!(titles(&["-C", "."]), ["gamma", "alpha"]);
        assert_eq!(titles(&["--limit", "2"]), ["gamma", "beta"]);
        assert!(titles(&["--limit", "0"]).is_empty());
        let document = stage.playhouse(["sessions", "list", "--format", "json"]).is(0).stdout;
        let sessions: Vec<SessionView> = serde_json::from_str(&document).unwrap();
        assert_eq!(
            sessions.iter().map(|session| session.title.as_str()).collect::<Vec<_>>(),
            ["gamma", "beta", "alpha"]
        );
        stage.playhouse(["sessions", "list", "-C", "absent"]).is(2).says(["absent"]);
    });
}

#[test]
fn a_session_is_shown_with_its_conversation_and_totals() {
    in_both(|| {
        let stage = Stage::new(talker());
        stage.write("a.txt", "");
        stage.run(["What is here?"]).is(0);
        let session = stage.session();
        let ended = stage.playhouse(["sessions", "show", &session]).is(0);
        let head = format!("session    {session}");
        let workspace = stage.workspace.to_str().unwrap();
        ended.shows([
            &head,
            "title      What is here?",
            workspace,
            "agent      sisyphus",
            "model      local/m",
            "state      idle",
            "turns      1",
            " tokens in, ",
            "$0.0",
            "── user, ",
            "What is here?",
            "── sisyphus (local/m), ",
            "(thinking) Let me think.",
            "I look.",
            "[list {} → done, ",
            "── sisyphus (local/m), ",
            "Here is what I found.",
        ]);
    });
}

#[test]
fn an_export_is_the_log() {
    in_both(|| {
        let stage = Stage::new(talker());
        stage.run(["What is here?"]).is(0);
        let records = stage.records(&stage.session());
        assert!(matches!(records.first(), Some(Record::SessionCreated(_))));
        assert!(matches!(records.last(), Some(Record::TurnEnded(_))));
        let kinds: Vec<&str> = records.iter().map(Record::kind).collect();
        for kind in ["prompt.admitted", "attempt.started", "call.proposed", "call.intended", "call.settled"] {
            assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
        }
    });
}

#[test]
fn a_deleted_session_is_gone() {
    in_both(|| {
        let stage = Stage::new(talker());
        stage.run(["one"]).is(0);
        let one = stage.session();
        stage.run(["two"]).is(0);
        assert_eq!(stage.playhouse(["sessions", "delete", &one]).is(0).stdout, format!("deleted {one}\n"));
        let left = stage.playhouse(["sessions", "list"]).is(0);
        assert!(!left.stdout.contains(&one) && left.stdout.contains("two"), "{}", left.stdout);
        for command in ["show", "export", "delete"] {
            let ended = stage.playhouse(["sessions", command, &one]).is(2);
            assert_eq!(ended.stdout, "");
            ended.says([&format!("there is no session {one}")]);
        }
        stage.run(["-s", &one, "x"]).is(2).says(["there is no session"]);
    });
}

#[test]
fn what_a_model_wrote_does_not_break_the_list() {
    let stage = Stage::new(Model::new().step(call("bash", json!({"command": "printf '\\033[31m'"}))));
    stage.run(["\x1b[31mred\tfirst line\rback\nsecond line"]).is(0);
    let list = stage.playhouse(["sessions", "list"]).is(0);
    assert_eq!(list.stdout.lines().count(), 2, "{}", list.stdout);
    assert!(!list.stdout.contains('\x1b'), "{}", list.stdout);
}
