//! What a small model writes beside turns: titles of sessions, and what came of turns.

use mock_llm::{Model, Script, call, text};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::serve::Serving;
use crate::stage::{Dialect, Stage, in_both, until};

/// A model that writes a file when it is first asked, and one that says the same to whatever it is asked.
fn stage() -> Stage {
    let write = json!({"filePath": "a.txt", "content": "one\ntwo\n"});
    let model = Model::new()
        .step(call("write", write))
        .step(text("Written."))
        .next_turn()
        .step(text("You are welcome."));
    let small = Model::new().step(text("\"A file is written.\"\n")).cycle();
    let stage = Stage::speaking(Dialect::OpenaiChat, Script::new().model("m", model).model("small", small));
    stage.configure_first("small_model = \"local/small\"");
    stage
}

/// How many rows the ledger has for what.
fn rows(stage: &Stage) -> Vec<(String, u64)> {
    let usage = stage.playhouse(["usage", "--by", "purpose", "--format", "json"]).is(0);
    let page: Value = serde_json::from_str(&usage.stdout).unwrap();
    let lines = page["rows"].as_array().unwrap().iter();
    let mut rows: Vec<(String, u64)> = lines
        .map(|line| (line["purpose"].as_str().unwrap().to_owned(), line["rows"].as_u64().unwrap()))
        .collect();
    rows.sort();
    rows
}

/// The messages that a small model was shown.
fn shown(stage: &Stage) -> Vec<String> {
    let asked = stage.requests().into_iter().filter(|request| request["model"] == "small");
    asked.map(|request| request["messages"].to_string()).collect()
}

#[test]
fn a_session_is_named_once_and_the_tokens_of_that_are_in_the_ledger() {
    in_both(|| {
        let stage = stage();
        let first = stage.run(["--yes", "Write a.txt, please"]).is(0);
        assert!(!first.stderr.contains("another turn"), "{}", first.stderr);
        let session = stage.session();
        until("the title is there", || {
            let listed = stage.playhouse(["sessions", "list", "--format", "ndjson"]).is(0);
            listed.lines()[0]["title"] == "A file is written."
        });
        stage.run(["-s", &session, "Thanks"]).is(0);
        let titles = shown(&stage).into_iter().filter(|shown| shown.contains("Write a.txt, please"));
        let titles: Vec<String> = titles.filter(|shown| shown.contains("You write the title")).collect();
        assert_eq!(titles.len(), 1, "{titles:?}");
        assert!(!titles[0].contains("Thanks"));
        let rows = rows(&stage);
        let of = |purpose: &str| rows.iter().find(|(of, _)| of == purpose).map_or(0, |(_, rows)| *rows);
        assert_eq!((of("title"), of("turn")), (1, 3), "{rows:?}");
        // A turn says that another one goes first only where one does.
        let again = stage.run(["-s", &session, "Again"]).is(0);
        assert!(!again.stderr.contains("another turn"), "{}", again.stderr);
    });
}

#[test]
fn a_server_says_what_came_of_a_turn_that_changed_files() {
    let stage = stage();
    stage.configure("[permissions]\nedit = \"allow\"");
    let serving = Serving::start(&stage, ["--port", "0"]);
    let get = |path: &str| {
        let directory = format!("x-opencode-directory: {}", stage.workspace.display());
        let (status, body) = serving.ask("GET", path, &[&directory], "");
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    let directory = json!({"workspace": stage.workspace}).to_string();
    let (_, made) = serving.ask("POST", "/v1/sessions", &[], &directory);
    let made: Value = serde_json::from_str(&made).unwrap();
    let session = made["id"].as_str().unwrap().to_owned();
    let prompt = |text: &str| {
        let path = format!("/v1/sessions/{session}/prompts");
        assert_eq!(serving.ask("POST", &path, &[], &json!({"text": text}).to_string()).0, 202);
    };
    prompt("Write a.txt, please");
    let listed = format!("/session/{session}/message");
    until("the turn has a summary", || get(&listed)[0]["info"]["summary"]["body"].is_string());
    prompt("Thanks");
    until("the second turn is over", || {
        let session = get(&format!("/v1/sessions/{session}"));
        (session["turns"].as_u64(), session["state"].as_str()) == (Some(2), Some("idle"))
    });
    let messages = get(&listed);
    let summary = &messages[0]["info"]["summary"];
    assert_eq!(summary["body"], "\"A file is written.\"");
    let diff = &summary["diffs"][0];
    assert_eq!((&diff["file"], &diff["status"]), (&json!("a.txt"), &json!("added")));
    assert_eq!((&diff["additions"], &diff["deletions"]), (&json!(2), &json!(0)));
    assert!(diff["patch"].as_str().unwrap().contains("+one\n+two\n"), "{diff}");
    let thanks = messages.as_array().unwrap().iter().rfind(|of| of["info"]["role"] == "user").unwrap();
    assert!(thanks["info"].get("summary").is_none(), "it changed nothing: {thanks}");
    // The page ends in the middle of the turn, and its prompt tells of all of it.
    let third = messages[2]["info"]["id"].as_str().unwrap();
    let page = get(&format!("{listed}?before={third}"));
    assert_eq!((page.as_array().unwrap().len(), &page[0]["info"]), (2, &messages[0]["info"]));
    let second = messages[1]["info"]["id"].as_str().unwrap();
    let page = get(&format!("{listed}?before={second}"));
    assert_eq!(page[0]["info"], messages[0]["info"]);
    let one = messages[0]["info"]["id"].as_str().unwrap();
    assert_eq!(get(&format!("{listed}/{one}"))["info"], messages[0]["info"]);
    assert_eq!(get("/session")[0]["summary"], json!({"additions": 2, "deletions": 0, "files": 1}));
    let native = get(&format!("/v1/sessions/{session}/messages"));
    assert_eq!(native["messages"][0]["summary"], "\"A file is written.\"");
    let shown = shown(&stage);
    let of_turn: Vec<&String> =
        shown.iter().filter(|shown| shown.contains("for one message of the person")).collect();
    assert_eq!(of_turn.len(), 1, "{shown:?}");
    assert!(of_turn[0].contains("Written."), "{of_turn:?}");
    serving.signal(Signal::TERM);
    serving.ended().is(0);
    let row = |purpose: &str, rows| (purpose.to_owned(), rows);
    assert_eq!(rows(&stage), [row("summary", 1), row("title", 1), row("turn", 3)]);
}

#[test]
fn without_a_small_model_nothing_is_asked_beside_turns() {
    let stage = stage();
    let config = fs_err::read_to_string(&stage.config).unwrap();
    fs_err::write(&stage.config, config.replace("small_model = \"local/small\"\n", "")).unwrap();
    stage.configure("[permissions]\nedit = \"allow\"");
    let serving = Serving::start(&stage, ["--port", "0"]);
    serving.prompt(&stage);
    until("the turn is over", || {
        let (_, page) = serving.ask("GET", "/v1/sessions", &[], "");
        page.contains("\"turns\":1")
    });
    assert_eq!(stage.requests().len(), 2, "the steps of the turn");
    let (_, page) = serving.ask("GET", "/v1/sessions", &[], "");
    assert!(page.contains(r#""changed":{"additions":2,"deletions":0,"files":1}"#), "{page}");
    assert!(page.contains(r#""title":"go""#), "{page}");
}
