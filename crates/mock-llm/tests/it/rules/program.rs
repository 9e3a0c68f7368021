//! Rules of the program.

use std::process::Stdio;

use assert_cmd::Command;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::support::{CHAT, chat, prompt};

#[test]
fn options_of_rules_need_rules() {
    for arguments in [
        &["--drop-stale-thinking"][..],
        &["--refuse-field", "temperature"],
        &["--refusal-shape", "prose"],
        &["--rules-report", "report.json"],
        &["--rules", "--refusal-shape", "song"],
    ] {
        let output = Command::cargo_bin("mock-llm").unwrap().args(arguments).assert().code(2);
        let error = String::from_utf8(output.get_output().stderr.clone()).unwrap();
        assert!(error.contains("--ru") || error.contains("use param, path or prose"), "{error}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn the_journal_and_the_report_tell_what_was_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, report) = (folder.path().join("journal.ndjson"), folder.path().join("report.json"));
    let mut child = tokio::process::Command::new(assert_cmd::cargo::cargo_bin("mock-llm"))
        .args(["--rules", "--drop-stale-thinking", "--refuse-field", "stream_options"])
        .args(["--refuse-field", "seed", "--refusal-shape", "path"])
        .arg("--journal")
        .arg(&journal)
        .arg("--rules-report")
        .arg(&report)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    let address = first.strip_prefix("mock-llm listening on http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = chat("echo", prompt()).to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: mock\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        request.len()
    );
    stream.write_all((head + &request).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let message = "stream_options: Extra inputs are not permitted";
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains(message), "{answer}");

    let id = child.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").arg(id).status().unwrap().success());
    assert!(child.wait().await.unwrap().success());
    let json = |path| serde_json::from_str::<Value>(&fs_err::read_to_string(path).unwrap()).unwrap();
    assert_eq!(json(&journal)["rules"]["refused"], message);
    let counts = json!({"refused": 1, "messages": {message: 1}, "valid": 0, "stale": 0, "foreign": 0,
        "missing": 0});
    assert_eq!(json(&report), json!({"total": counts, "models": {"echo": counts}}));
}
