//! How servers are greeted, and what is told when that fails.

use std::time::Duration;

use playhouse_mcp::{Connection, OpenError, Protocol};

use crate::stage::{call, connect, entry, open, place};

#[tokio::test]
async fn a_server_tells_who_it_is() {
    let connection = open(&[]).await.unwrap();
    assert_eq!(connection.server_info(), Some(("scripted", "1.0")));
    assert_eq!(connection.protocol_version(), "2025-11-25");
}

#[tokio::test]
async fn a_server_that_refuses_to_initialize_is_discovered() {
    let connection = open(&["--modern"]).await.unwrap();
    assert_eq!(
        (connection.protocol_version(), connection.server_info()),
        ("2026-07-28", Some(("scripted", "2.0")))
    );
    assert_eq!(call(&connection, "mumble").await.unwrap(), "clear");
    let mut only = entry(&["--modern"]);
    only.protocol = Protocol::Discover;
    assert!(Connection::open(&only, &place()).await.is_ok());
    only.protocol = Protocol::Initialize;
    let error = connect(&only).await.unwrap_err();
    assert_eq!(error, OpenError::Transient("it refuses the connection: method not found".into()));
}

#[tokio::test]
async fn a_server_that_dies_at_its_start_says_why() {
    let error = open(&["--die"]).await.unwrap_err();
    let said = "it ended with exit code 3; its last words: cannot find my configuration";
    assert_eq!(error, OpenError::Transient(said.into()));
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let mut silent = entry(&["--silent"]);
    silent.start_timeout = Duration::from_millis(50);
    let error = connect(&silent).await.unwrap_err();
    assert_eq!(error, OpenError::Transient("it did not answer within 0.05 s of its start".into()));
}

#[tokio::test]
async fn a_program_that_is_not_there_is_not_tried_again() {
    let mut missing = entry(&[]);
    let playhouse_mcp::Transport::Stdio(stdio) = &mut missing.transport else { panic!("it is a program") };
    stdio.command = "no-such-program".into();
    let error = connect(&missing).await.unwrap_err();
    assert!(matches!(&error, OpenError::Permanent(text) if text.contains("no-such-program")), "{error:?}");
}

#[tokio::test]
async fn what_is_no_protocol_is_skipped_and_told() {
    let connection = open(&["--noise"]).await.unwrap();
    assert_eq!(call(&connection, "mumble").await.unwrap(), "clear");
    let known = connection.diagnosis();
    assert_eq!(known.skipped, 5);
    assert_eq!(known.first[0], "Starting up...");
    assert_eq!(known.first[4], "no message at all");
}

#[tokio::test]
async fn a_server_gets_what_is_declared_and_nothing_else() {
    let mut declared = entry(&[]);
    let playhouse_mcp::Transport::Stdio(stdio) = &mut declared.transport else { panic!("it is a program") };
    stdio.env = vec![("TOKEN".into(), "hunter2".into())];
    let (connection, _) = Connection::open(&declared, &place()).await.unwrap();
    let environment = call(&connection, "environment").await.unwrap();
    let names: Vec<&str> =
        environment.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    // The shell that sets the limits says where it is.
    let known = ["PATH", "LANG", "LANGUAGE", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "TOKEN", "PWD"];
    let others: Vec<&&str> =
        names.iter().filter(|name| !known.contains(name) && !name.starts_with("PLAYHOUSE")).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(environment.contains("TOKEN=hunter2") && names.contains(&"PATH"));
}
