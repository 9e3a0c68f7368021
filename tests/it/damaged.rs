//! A store that is found damaged: refused, or salvaged with `store_on_damage = "salvage"`, and what is then said of sessions.

use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use fs_err as fs;
use mock_llm::{Model, text};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::serve::Serving;
use crate::stage::{Stage, until};

const LISTENING: [&str; 2] = ["--port", "0"];
/// An id that no session has.
const NOBODY: &str = "ses_00000000000012345678901234";

fn stage(on_damage: &str) -> Stage {
    let stage = Stage::new(Model::new().step(text("Hello. ".repeat(300))).cycle());
    stage.configure_first(&format!("store_on_damage = \"{on_damage}\""));
    stage
}

fn get(serving: &Serving, path: &str) -> (u16, Value) {
    let (status, body) = serving.ask("GET", path, &[], "");
    (status, serde_json::from_str(&body).unwrap())
}

fn session(serving: &Serving, id: &str) -> (u16, Value) {
    get(serving, &format!("/v1/sessions/{id}"))
}

/// Runs a turn in a session, or in a new one, to its end; the session.
fn turn(serving: &Serving, stage: &Stage, id: Option<&str>) -> String {
    let id = id.map(str::to_owned).unwrap_or_else(|| {
        let body = json!({"workspace": stage.workspace}).to_string();
        let (status, made) = serving.ask("POST", "/v1/sessions", &[], &body);
        assert_eq!(status, 201, "{made}");
        serde_json::from_str::<Value>(&made).unwrap()["id"].as_str().unwrap().to_owned()
    });
    let before = session(serving, &id).1["turns"].as_u64().unwrap();
    let path = format!("/v1/sessions/{id}/prompts");
    let (status, answer) = serving.ask("POST", &path, &[], r#"{"text": "go"}"#);
    assert_eq!(status, 202, "{answer}");
    until("the turn is over", || session(serving, &id).1["turns"] == before + 1);
    id
}

fn kill(serving: Serving) {
    serving.signal(Signal::KILL);
    drop(serving.ended());
}

/// The journal of the database that counts.
fn journal(stage: &Stage) -> PathBuf {
    let current = fs::read_to_string(stage.data.join("current")).unwrap_or_else(|_| "sled".to_owned());
    stage.data.join(current.trim_end()).join("journal-0")
}

/// Cuts what was written last off the journal: its length to this part of it in percent.
fn cut(stage: &Stage, percent: u64) -> (u64, u64) {
    let path = journal(stage);
    let length = fs::metadata(&path).unwrap().len();
    let left = length * percent / 100;
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(left).unwrap();
    (left, length)
}

/// A store that was killed after five turns in each of four sessions. The sessions.
fn killed(stage: &Stage) -> Vec<String> {
    let serving = Serving::start(stage, LISTENING);
    let sessions: Vec<_> = (0..4).map(|_| turn(&serving, stage, None)).collect();
    for id in sessions.iter().cycle().take(16) {
        turn(&serving, stage, Some(id));
    }
    kill(serving);
    sessions
}

#[test]
fn a_journal_that_was_cut_is_refused_by_whoever_opens_it_and_named_by_a_check() {
    let stage = stage("refuse");
    killed(&stage);
    let (left, length) = cut(&stage, 30);
    let lengths = [format!("it is {left} bytes long"), format!("laid out for {length}")];
    for command in [&["serve", "--port", "0"][..], &["run", "More."], &["sessions", "list"]] {
        let said = stage.playhouse(command).is(2).stderr;
        for part in [
            "journal-0 is damaged",
            &*lengths[0],
            &*lengths[1],
            "playhouse store check",
            "playhouse store salvage",
        ] {
            assert!(said.contains(part), "{command:?}: {part}: {said}");
        }
    }
    let told = stage.playhouse(["store", "check"]).is(1).stdout;
    assert!(lengths.iter().all(|part| told.contains(part)), "{told}");
    assert!(!stage.data.join("damaged-1").exists(), "and all is as it was");
}

#[test]
fn a_damaged_store_is_salvaged_where_that_is_configured_and_each_session_says_so() {
    let stage = stage("salvage");
    let sessions = killed(&stage);
    let (left, _) = cut(&stage, 30);
    // Whoever only looks salvages nothing.
    stage.playhouse(["sessions", "list"]).is(2).says(["journal-0 is damaged"]);
    let serving = Serving::start(&stage, LISTENING);
    assert!(serving.has_begun(), "{}", serving.ended().stderr);
    let mut turns = 0;
    for id in &sessions {
        let (status, view) = session(&serving, id);
        let detail = match status {
            200 => view["salvaged"]["reason"].as_str().unwrap(),
            _ => view["detail"].as_str().unwrap(),
        };
        assert!(detail.contains("damaged and salvaged at 20"), "{status} {view}");
        turns += view["turns"].as_u64().unwrap_or(0);
    }
    assert!((1..20).contains(&turns), "{turns} turns are left");
    let (status, nobody) = session(&serving, NOBODY);
    let detail = nobody["detail"].as_str().unwrap();
    assert!(status == 404 && detail.contains("salvaged at 20"), "{nobody}");
    let (status, nobody) = get(&serving, &format!("/session/{NOBODY}"));
    let message = nobody["data"]["message"].as_str().unwrap();
    assert!(status == 404 && message.contains("salvaged at 20"), "{nobody}");
    // What comes is whole, and what is there goes on.
    let new = turn(&serving, &stage, None);
    assert!(session(&serving, &new).1.get("salvaged").is_none());
    let first = turn(&serving, &stage, Some(&sessions[0]));
    let shown = stage.client(["sessions", "show", &first]).is(0).stdout;
    assert!(shown.contains("salvaged   the store was damaged and salvaged at 20"), "{shown}");
    assert_eq!(fs::metadata(stage.data.join("damaged-1/sled/journal-0")).unwrap().len(), left);

    kill(serving);
    cut(&stage, 30);
    let serving = Serving::start(&stage, LISTENING);
    assert!(!serving.has_begun());
    let said = serving.ended().is(2).stderr;
    assert!(said.contains("journal-0 is damaged") && said.contains("less than an hour ago"), "{said}");
    assert!(!stage.data.join("damaged-2").exists());
    // As by somebody who looked at the disk.
    stage.playhouse(["store", "salvage"]).is(0);
    stage.playhouse(["sessions", "list"]).is(0);
}

#[test]
fn a_salvage_an_hour_ago_stands_in_no_way() {
    let stage = stage("salvage");
    killed(&stage);
    cut(&stage, 30);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    fs::write(stage.data.join("salvaged"), format!("{}\n", now - 3_590_000)).unwrap();
    let said = Serving::start(&stage, LISTENING).ended().is(2).stderr;
    assert!(said.contains("less than an hour ago"), "{said}");
    fs::write(stage.data.join("salvaged"), format!("{}\n", now - 3_600_000)).unwrap();
    stage.run(["More."]).is(0);
    assert!(stage.data.join("damaged-1/sled/journal-0").exists());
}

/// Changes a byte of what was written into the database since it was `before`, with more of it behind.
fn flip(stage: &Stage, before: &[u8]) {
    let path = stage.data.join("sled/db");
    let content = fs::read(&path).unwrap();
    let mut written = (0..content.len()).filter(|place| before.get(*place).unwrap_or(&0) != &content[*place]);
    let place = written.nth(40).unwrap();
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.file().write_all_at(&[content[place] ^ 0x10], place as u64).unwrap();
}

#[test]
fn a_session_that_is_only_named_any_more_is_gone_with_the_reason() {
    let stage = stage("salvage");
    stage.run(["First."]).is(0);
    let before = fs::read(stage.data.join("sled/db")).unwrap();
    stage.run(["Second."]).is(0);
    let second = stage.session();
    flip(&stage, &before);
    // It would be read from there again.
    fs::write(journal(&stage), "").unwrap();
    let serving = Serving::start(&stage, LISTENING);
    for (method, path, body) in [
        ("GET", format!("/v1/sessions/{second}"), ""),
        ("GET", format!("/v1/sessions/{second}/messages"), ""),
        ("POST", format!("/v1/sessions/{second}/prompts"), r#"{"text": "go"}"#),
        ("GET", format!("/session/{second}"), ""),
    ] {
        let (status, answer) = serving.ask(method, &path, &[], body);
        assert_eq!(status, 410, "{path}: {answer}");
        assert!(answer.contains(&format!("session {second} is lost")), "{path}: {answer}");
        assert_eq!(
            path.starts_with("/v1"),
            answer.contains("urn:playhouse:problem:lost"),
            "{path}: {answer}"
        );
    }
    stage.client(["sessions", "show", &second]).is(2).says(["is lost", "damaged-1"]);
    stage.client(["run", "--sandbox", "off", "--session", &second, "Go."]).is(2).says(["is lost"]);
    kill(serving);
    // It says so for good.
    let serving = Serving::start(&stage, LISTENING);
    assert_eq!(session(&serving, &second).0, 410);
    kill(serving);
}

#[test]
fn a_salvage_that_was_killed_is_gone_on_with_or_undone() {
    for point in ["copied", "kept", "pointed"] {
        let stage = stage("salvage");
        let sessions = killed(&stage);
        cut(&stage, 30);
        let mut command = stage.command(["serve", "--sandbox", "off", "--port", "0"]);
        command.env("PLAYHOUSE_FAIL", format!("salvage.{point}=kill@1"));
        let serving = Serving::of(command);
        assert!(!serving.has_begun(), "{point}");
        let said = serving.ended().stderr;
        assert!(said.contains(&format!("the fail point salvage.{point}")), "{said}");
        let serving = Serving::start(&stage, LISTENING);
        assert!(serving.has_begun(), "{point}: {}", serving.ended().stderr);
        assert!(session(&serving, &sessions[0]).1["turns"].as_u64() > Some(0), "{point}");
        assert!(session(&serving, NOBODY).1["detail"].as_str().unwrap().contains("salvaged at"), "{point}");
        kill(serving);
        let names = fs::read_dir(&stage.data).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        let is_left = |name: &&String| name.starts_with("salvage-") || name.starts_with("damaged-");
        let left: Vec<_> = names.iter().filter(is_left).collect();
        assert_eq!(left, ["damaged-1"], "{point}: {names:?}");
        cut(&stage, 30);
        let said = Serving::start(&stage, LISTENING).ended().is(2).stderr;
        assert!(said.contains("less than an hour ago"), "{point}: {said}");
    }
}

#[test]
fn what_becomes_of_damage_is_one_of_two() {
    let stage = stage("salvaged");
    let said = stage.playhouse(["sessions", "list"]).is(2).stderr;
    let wanted = "`store_on_damage`: is \"salvaged\", expected refuse or salvage; did you mean \"salvage\"?";
    assert!(said.contains(wanted), "{said}");
}
