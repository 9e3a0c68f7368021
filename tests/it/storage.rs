//! What sessions and tenants take up on disk is bounded.

use std::fs::Metadata;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use fs_err as fs;
use mock_llm::{Model, call, text};
use serde_json::{Value, json};

use crate::serve::Serving;
use crate::stage::{Stage, until};

const MIB: u64 = 1 << 20;

/// A model that runs these commands in one turn each.
fn running<const N: usize>(commands: [&str; N]) -> Model {
    let mut model = Model::new();
    for (index, command) in commands.into_iter().enumerate() {
        model = if index == 0 { model } else { model.next_turn() };
        model = model.step(call("bash", json!({"command": command}))).step(text("Done."));
    }
    model
}

fn serving(stage: &Stage, walls: &str) -> Serving {
    Serving::of(stage.command(["serve", "--sandbox", walls, "--port", "0"]))
}

fn create(serving: &Serving, stage: &Stage) -> String {
    let workspace = json!({"workspace": stage.workspace}).to_string();
    let (status, session) = serving.ask("POST", "/v1/sessions", &[], &workspace);
    assert_eq!(status, 201, "{session}");
    let session: Value = serde_json::from_str(&session).unwrap();
    session["id"].as_str().unwrap().to_owned()
}

fn prompt(serving: &Serving, session: &str, body: &Value) -> (u16, String) {
    serving.ask("POST", &format!("/v1/sessions/{session}/prompts"), &[], &body.to_string())
}

/// A turn, to its end.
fn turn(serving: &Serving, session: &str) {
    let (status, said) = prompt(serving, session, &json!({"text": "go"}));
    assert_eq!(status, 202, "{said}");
    until("the turn ends", || {
        thread::sleep(Duration::from_millis(20));
        serving.ask("GET", &format!("/v1/sessions/{session}"), &[], "").1.contains("\"idle\"")
    });
}

/// The saved outputs, the oldest first.
fn outputs(stage: &Stage) -> Vec<(PathBuf, Metadata)> {
    let mut files = Vec::new();
    for session in fs::read_dir(stage.data.join("output")).unwrap() {
        for file in fs::read_dir(session.unwrap().path()).unwrap() {
            let file = file.unwrap();
            files.push((file.path(), file.metadata().unwrap()));
        }
    }
    files.sort_by_key(|(_, facts)| facts.modified().unwrap());
    files
}

fn sizes(stage: &Stage) -> Vec<u64> {
    outputs(stage).iter().map(|(_, facts)| facts.len()).collect()
}

fn metric(serving: &Serving, name: &str) -> f64 {
    let (status, metrics) = serving.ask("GET", "/metrics", &[], "");
    assert_eq!(status, 200, "{metrics}");
    let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{name}: {metrics}"))
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn two_long_outputs_stay_within_the_usual_bound() {
    let print = "yes 1234567 | head -c 200000000";
    let stage = Stage::new(running([print, print]));
    stage.configure("[permissions]\nbash = \"allow\"");
    let serving = serving(&stage, "off");
    let session = create(&serving, &stage);
    for _ in 0..2 {
        turn(&serving, &session);
        assert_eq!(sizes(&stage), [200_000_000]);
    }
}

#[test]
fn the_oldest_outputs_go_first_also_after_a_restart_and_a_metric_counts_them() {
    let print = "yes 1234567 | head -c 5000000";
    let stage = Stage::new(running([print, print, print, "head -c 9000000 /dev/zero | tr '\\0' x"]));
    stage.configure("[permissions]\nbash = \"allow\"\n[tools]\nkeep_outputs_mb = 11");
    let first = serving(&stage, "off");
    let session = create(&first, &stage);
    turn(&first, &session);
    turn(&first, &session);
    assert_eq!(sizes(&stage), [5_000_000, 5_000_000]);
    assert!((metric(&first, "playhouse_output_bytes") - 10_000_000.0).abs() < 1.0);
    assert!(metric(&first, "playhouse_data_free_bytes") <= metric(&first, "playhouse_data_size_bytes"));
    first.signal(rustix::process::Signal::KILL);
    drop(first.ended());
    let before = outputs(&stage);
    stage.configure_first("store_on_damage = \"refuse\"");
    let second = serving(&stage, "off");
    turn(&second, &session);
    assert_eq!(sizes(&stage), [5_000_000, 5_000_000]);
    assert!(!before[0].0.exists() && before[1].0.exists());
    // What is counted is what is there.
    assert!((metric(&second, "playhouse_output_bytes") - 10_000_000.0).abs() < 1.0);
    turn(&second, &session);
    assert_eq!(sizes(&stage), [9_000_000]);
}

#[test]
fn an_output_above_the_bound_is_cut_and_the_model_is_told() {
    let stage = Stage::new(running(["yes 1234567 | head -c 5000000"]));
    stage.configure("[permissions]\nbash = \"allow\"\n[tools]\nkeep_outputs_mb = 2");
    let serving = serving(&stage, "off");
    turn(&serving, &create(&serving, &stage));
    assert_eq!(sizes(&stage), [2 * MIB]);
    let told = stage.requests().last().unwrap().to_string();
    let says = "2097152 of 5000000 bytes are kept, the rest was not: the session's outputs may take 2 MB";
    assert!(told.contains(says), "{told}");
}

#[test]
fn an_upload_above_the_bound_of_the_tenant_is_refused() {
    let stage = Stage::new(Model::new().step(text("Thanks.")).cycle());
    stage.configure("[server.limits]\nstorage_mb = 1");
    let serving = serving(&stage, "off");
    let session = create(&serving, &stage);
    let file = |byte: &str, size: usize| {
        let files = json!([{"mime": "text/plain", "filename": "a.txt", "text": byte.repeat(size)}]);
        json!({"text": "look", "files": files})
    };
    let (status, said) = prompt(&serving, &session, &file("x", 1_200_000));
    assert_eq!(status, 413, "{said}");
    let problem: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(problem["type"], "urn:playhouse:problem:too-large");
    for part in ["1200000 bytes", "take 0 MB", "may take 1 MB"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("storage_mb"), "the operator's keys are not the tenant's: {said}");
    let limit = json!({"name": "storage", "scope": "tenant", "unit": "bytes", "max": 1 << 20, "used": 0, "needed": 1_200_000});
    assert_eq!(problem["limit"], limit);
    let (_, listed) = serving.ask("GET", "/v1/limits", &[], "");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let held = listed["limits"].as_array().unwrap().iter().find(|held| held["name"] == "storage").unwrap();
    assert_eq!(
        (&held["max"], &held["used"], &held["left"]),
        (&json!(1 << 20), &json!(0), &json!(1 << 20)),
        "{listed}"
    );
    // As much as fits is taken, and the same again takes up no more.
    for _ in 0..12 {
        assert_eq!(prompt(&serving, &session, &file("y", 150_000)).0, 202);
    }
    assert_eq!(prompt(&serving, &session, &file("z", 950_000)).0, 413);
}

#[test]
fn a_command_that_fills_its_home_is_ended_and_told_why() {
    let stage = Stage::new(running(["head -c 20000000 /dev/zero > ~/much; sleep 600", "echo fine"]));
    stage.configure(
        "[permissions]\nbash = \"allow\"\nexternal_directory = \"allow\"\n[server.limits]\nstorage_mb = 8",
    );
    let serving = serving(&stage, "required");
    let session = create(&serving, &stage);
    turn(&serving, &session);
    let told = stage.requests().last().unwrap().to_string();
    assert!(told.contains("the command was ended, as it filled its home directory"), "{told}");
    assert!(told.contains("may take 8 MB"), "{told}");
    // What is there stays, and a command that adds nothing runs.
    turn(&serving, &session);
    let told = stage.requests().last().unwrap().to_string();
    assert!(told.contains("fine"), "{told}");
}
