//! `playhouse tools`, and the outputs that tools leave behind.

use std::time::{Duration, SystemTime};

use mock_llm::{Model, call, text};
use playhouse::tools::Registry;
use serde_json::json;

use crate::stage::{Stage, contents};

#[test]
fn every_tool_is_listed_with_risk_and_parameters() {
    let stage = Stage::new(Model::new());
    let names: Vec<String> = Registry::native().iter().map(|tool| tool.spec().name.clone()).collect();
    let table = stage.playhouse(["tools"]).is(0).stdout;
    let lines = stage.playhouse(["tools", "--json"]).is(0).lines();
    assert_eq!(lines.iter().map(|line| line["name"].as_str().unwrap()).collect::<Vec<_>>(), names);
    for line in &lines {
        let (name, risk) = (line["name"].as_str().unwrap(), line["risk"].as_str().unwrap());
        assert!(table.contains(&format!("\n{name} ({risk})\n  ")), "{name} in {table}");
        assert_eq!(line["schema"]["type"], "object");
        for parameter in line["parameters"].as_array().unwrap() {
            let mark = if parameter["required"] == true { '*' } else { ' ' };
            let row = format!("\n    {mark} {} ", parameter["name"].as_str().unwrap());
            assert!(table.contains(&row), "{row:?} in {table}");
        }
    }
    let of = |name: &str| lines.iter().find(|line| line["name"] == name).unwrap();
    assert_eq!(of("read")["risk"], "safe");
    assert_eq!(of("bash")["risk"], "dangerous");
    assert_eq!(of("read")["parameters"][0]["name"], "filePath");
    assert_eq!(of("todowrite")["parameters"][0]["type"], "list of {content, status, priority}");
    assert!(table.lines().all(|line| !line.ends_with(' ')));
    // One that can do nothing says why, until it can.
    assert!(of("websearch")["unavailable"].as_str().unwrap().contains("[tools.web]"));
    assert!(table.contains("\n  not shown to models: no search service is configured"), "{table}");
    assert!(of("webfetch").get("unavailable").is_none());
    stage.configure("[tools.web]\nsearch = \"exa\"");
    assert!(!stage.playhouse(["tools"]).is(0).stdout.contains("not shown"));
}

#[test]
fn what_was_saved_long_ago_is_removed_when_the_engine_starts() {
    let stage = Stage::new(
        Model::new()
            .step(call("bash", json!({"command": "seq 100000"})))
            .step(text("Long."))
            .next_turn()
            .step(text("Still here."))
            .next_turn()
            .step(text("Here, too.")),
    );
    stage.run(["--yes", "Talk."]).is(0);
    let outputs = stage.data.join("output");
    let kept = contents(&outputs);
    let (file, _) = kept.first_key_value().expect("it is saved");
    let age = |hours: u64| {
        for path in [file.as_path(), file.parent().unwrap()] {
            let time = SystemTime::now() - Duration::from_secs(hours * 3_600);
            fs_err::File::open(path).unwrap().file().set_modified(time).unwrap();
        }
    };
    age(30);
    stage.configure("[tools]\nkeep_outputs_hours = 48");
    stage.run(["-c", "And now?"]).is(0);
    assert!(file.exists(), "it may stay for two days here");
    age(50);
    // Sweeping goes on beside the turn.
    stage.run(["-c", "And now?"]).is(0);
    crate::stage::until("it is swept", || {
        if file.exists() {
            stage.playhouse(["sessions", "list"]).is(0);
        }
        !file.exists()
    });
    assert!(outputs.exists());
}
