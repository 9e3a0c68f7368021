//! The program.

use std::process::Stdio;

use assert_cmd::Command;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::support::{CHAT, chat, prompt};

fn mock_llm() -> Command {
    Command::cargo_bin("mock-llm").unwrap()
}

fn stderr_of(command: &mut Command, code: i32) -> String {
    let output = command.assert().code(code).get_output().clone();
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn bad_usage_is_exit_code_2_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.json");
    fs_err::write(&script, "{\"models\": {\"m\": {\"turns\": [{\"steps\": [{\"itmes\": []}]}]}}}").unwrap();
    let error = stderr_of(mock_llm().arg("--script").arg(&script), 2);
    assert!(error.contains("script.json") && error.contains("itmes") && error.contains("line 1"), "{error}");
    let error = stderr_of(mock_llm().args(["--listen", "nowhere"]), 2);
    assert!(error.contains("cannot listen on nowhere"), "{error}");
    let error = stderr_of(mock_llm().args(["--rate", "0"]), 2);
    assert!(error.contains("above 0"), "{error}");
    let error = stderr_of(mock_llm().args(["--journal", "/absent/folder/file"]), 2);
    assert!(error.contains("/absent/folder/file"), "{error}");
    let error = stderr_of(mock_llm().args(["--http2-streams", "0"]), 2);
    assert!(error.contains("--http2-streams"), "{error}");
    let error = stderr_of(mock_llm().arg("--journal-bodies"), 2);
    assert!(error.contains("--journal"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn it_says_where_it_listens_and_keeps_a_journal() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.ndjson");
    let script = folder.path().join("script.json");
    let text = r#"{"models": {"m": {"turns": [{"steps": [{"items": [{"text": "hello there"}]}]}]}}}"#;
    fs_err::write(&script, text).unwrap();
    let mut child = tokio::process::Command::new(assert_cmd::cargo::cargo_bin("mock-llm"))
        .args([
            "--listen",
            "127.0.0.1:0",
            "--journal-bodies",
            "--threads",
            "1",
            "--prompt-cache",
            "--http2-streams",
            "10",
        ])
        .arg("--script")
        .arg(&script)
        .arg("--journal")
        .arg(&journal)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    let address = first.strip_prefix("mock-llm listening on http://").unwrap();

    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = chat("m", prompt()).to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: mock\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        request.len()
    );
    stream.write_all((head + &request).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("\"hello\"") && answer.contains("\" there\""), "{answer}");

    let id = child.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").arg(id).status().unwrap().success());
    assert!(child.wait().await.unwrap().success());
    let line: Value = serde_json::from_str(&fs_err::read_to_string(&journal).unwrap()).unwrap();
    assert_eq!(
        (&line["model"], &line["tokens"], &line["outcome"]),
        (&"m".into(), &2.into(), &"complete".into())
    );
    assert_eq!(line["body"]["model"], "m");
}
