//! `playhouse tool`.

use mock_llm::Model;
use serde_json::{Value, json};

use crate::stage::{Ended, Stage, contents};

/// One call by hand.
fn tool(stage: &Stage, name: &str, input: &Value) -> Ended {
    stage.playhouse(["tool", name, "--input", &input.to_string()])
}

fn keys(line: &Value) -> Vec<&str> {
    line.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn one_call_is_one_line() {
    let stage = Stage::new(Model::new());
    stage.write("a.txt", "one\ntwo\n");
    let ended = tool(&stage, "read", &json!({"filePath": "a.txt"})).is(0);
    assert_eq!(ended.stderr, "");
    let lines = ended.lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(keys(&lines[0]), ["tool", "ok", "title", "output", "metadata"]);
    assert_eq!((&lines[0]["tool"], &lines[0]["ok"]), (&json!("read"), &json!(true)));
    assert!(lines[0]["output"].as_str().unwrap().contains("two"));
    assert!(lines[0]["metadata"].is_object());
    assert!(stage.asked().is_empty() && !stage.data.exists(), "it asks no model and keeps no session");
}

#[test]
fn every_native_tool_can_be_called() {
    let stage = Stage::new(Model::new());
    stage.write("a.txt", "one\ntwo\n").write("below/b.txt", "two\n");
    for (name, input, output) in [
        ("write", json!({"filePath": "new.txt", "content": "x\n"}), "new.txt"),
        ("glob", json!({"pattern": "**/*.txt"}), "below/b.txt"),
        ("grep", json!({"pattern": "tw.", "include": "*.txt", "path": "below"}), "b.txt"),
        ("list", json!({"path": ".", "ignore": ["below"]}), "a.txt"),
        ("bash", json!({"command": "pwd", "timeout": 10_000, "workdir": "below"}), "below"),
        ("read", json!({"filePath": "a.txt", "offset": 2, "limit": 1}), "two"),
    ] {
        let line = tool(&stage, name, &input).is(0).lines().remove(0);
        assert!(line["output"].as_str().unwrap().contains(output), "{output} in {line}");
    }
    assert_eq!(stage.read("new.txt"), "x\n");
}

#[test]
fn a_script_runs_in_one_session() {
    let stage = Stage::new(Model::new());
    stage.write("a.txt", "one\n");
    let script = stage.root().join("calls.jsonl");
    let lines = [
        json!({"tool": "read", "input": {"filePath": "a.txt"}}).to_string(),
        String::new(),
        // Without the read before it, this would be refused.
        json!({"tool": "edit", "input": {"filePath": "a.txt", "oldString": "one", "newString": "two"}})
            .to_string(),
        json!({"tool": "bash", "input": {"command": "cat a.txt; exit 3"}}).to_string(),
    ];
    fs_err::write(&script, lines.join("\n")).unwrap();
    let ended = stage.playhouse(["tool", "--script", script.to_str().unwrap()]).is(0);
    let lines = ended.lines();
    let names: Vec<&str> = lines.iter().map(|line| line["tool"].as_str().unwrap()).collect();
    assert_eq!(names, ["read", "edit", "bash"]);
    assert!(lines[2]["output"].as_str().unwrap().contains("two\n"), "{}", lines[2]);
    assert!(lines.iter().all(|line| keys(line) == ["tool", "ok", "title", "output", "metadata"]));
    assert_eq!(stage.read("a.txt"), "two\n");
}

#[test]
fn an_error_of_a_tool_is_exit_code_1() {
    let stage = Stage::new(Model::new());
    let lines = tool(&stage, "read", &json!({"filePath": "absent.txt"})).is(1).lines();
    assert_eq!(lines[0]["ok"], false);
    assert!(lines[0]["output"].as_str().unwrap().contains("absent.txt"));
    // The policy is the same as in a turn.
    let lines = tool(&stage, "read", &json!({"filePath": "/etc/passwd"})).is(1).lines();
    assert!(
        lines[0]["output"].as_str().unwrap().starts_with("asked: /etc/passwd is outside the workspace"),
        "{}",
        lines[0]
    );
    let lines = tool(&stage, "read", &json!({"file": "a.txt"})).is(1).lines();
    assert!(lines[0]["output"].as_str().unwrap().contains("filePath"));
    // What follows in a script runs all the same.
    let script = stage.root().join("calls.jsonl");
    let calls = [
        json!({"tool": "read", "input": {"filePath": "absent.txt"}}),
        json!({"tool": "bash", "input": {"command": "echo still here"}}),
    ];
    fs_err::write(&script, calls.map(|call| call.to_string()).join("\n")).unwrap();
    let lines = stage.playhouse(["tool", "--script", script.to_str().unwrap()]).is(1).lines();
    assert_eq!((&lines[0]["ok"], &lines[1]["ok"]), (&json!(false), &json!(true)));
}

#[test]
fn bad_usage_is_exit_code_2() {
    let stage = Stage::new(Model::new());
    tool(&stage, "raed", &json!({})).is(2).says(["unknown tool \"raed\"", "did you mean \"read\"?"]);
    for (input, says) in [("{", "--input must be a JSON object"), ("[1]", "JSON object"), ("", "JSON object")]
    {
        stage.playhouse(["tool", "read", "--input", input]).is(2).says([says]);
    }
    stage.playhouse(["tool", "read"]).is(2).says(["--input"]);
    stage.playhouse(["tool"]).is(2).says(["--script"]);
    let script = stage.root().join("calls.jsonl");
    let name = script.to_str().unwrap();
    stage.playhouse(["tool", "--script", name]).is(2).says(["cannot read the script", name]);
    for (text, says) in [
        ("{\"tool\": \"list\", \"input\": {}}\nnonsense\n", "calls.jsonl:2: "),
        ("{\"tool\": \"list\"}\n", "missing field `input`"),
        ("{\"tool\": \"list\", \"input\": {}, \"more\": 1}\n", "unknown field `more`"),
        ("{\"tool\": \"lits\", \"input\": {}}\n", "unknown tool \"lits\""),
        ("\n\n", "holds no call"),
    ] {
        fs_err::write(&script, text).unwrap();
        let ended = stage.playhouse(["tool", "--script", name]).is(2);
        assert_eq!(ended.stdout, "", "nothing was run");
        ended.says([says]);
    }
}

#[test]
fn the_input_may_come_from_standard_input() {
    let stage = Stage::new(Model::new());
    stage.write("a.txt", "one\n");
    stage
        .playhouse_reading(r#"{"filePath": "a.txt"}"#, ["tool", "read", "--input", "-"])
        .is(0)
        .shows(["one"]);
    stage.playhouse_reading("", ["tool", "read", "--input", "-"]).is(2).says(["JSON object"]);
}

#[test]
fn what_is_too_long_is_kept_in_a_file_that_is_named() {
    let stage = Stage::new(Model::new());
    let line = tool(&stage, "bash", &json!({"command": "seq 200000"})).is(0).lines().remove(0);
    let output = line["output"].as_str().unwrap();
    assert!(output.len() < 200_000);
    let kept = contents(&stage.root().join("home"));
    let (path, content) = kept.iter().next().expect("the whole output is kept");
    assert!(output.contains(path.to_str().unwrap()), "{} in {output}", path.display());
    assert!(content.ends_with(b"199999\n200000\n"));
    // Where nothing was too long nothing is left behind.
    let stage = Stage::new(Model::new());
    tool(&stage, "bash", &json!({"command": "seq 2"})).is(0);
    assert_eq!(fs_err::read_dir(stage.root().join("home")).unwrap().count(), 0);
}
