//! How servers end, and that nothing is left of them.

use std::path::Path;
use std::sync::Arc;

use playhouse_mcp::{CallError, Connection};
use serde_json::json;

use crate::stage::{PATIENCE, call, entry, open, place, request, text_of, watched};

/// Waits until a process is gone, or only waits to be reaped.
async fn gone(process: &str) {
    let stat = Path::new("/proc").join(process).join("stat");
    let is_gone = || {
        let stat = fs_err::read_to_string(&stat).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .is_none_or(|rest| rest.trim().is_empty() || rest.trim_start().starts_with('Z'))
    };
    tokio::time::timeout(PATIENCE, async {
        while !is_gone() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_server_that_dies_fails_every_call_with_the_reason() {
    let (connection, ended) = Connection::open(&entry(&[]), &place()).await.unwrap();
    let (hang, mut told) = watched(request("hang", json!({})));
    let (hung, died) = tokio::join!(connection.call(hang), async {
        told.recv().await.unwrap();
        call(&connection, "die").await
    });
    let reason: Arc<str> = "it ended with exit code 7; its last words: dying as asked".into();
    assert_eq!(
        (hung, died),
        (Err(CallError::Ended(Arc::clone(&reason))), Err(CallError::Ended(Arc::clone(&reason))))
    );
    assert_eq!(call(&connection, "echo").await, Err(CallError::Ended(Arc::clone(&reason))));
    assert_eq!((ended.await, connection.end()), (reason.to_string(), Some(reason)));
}

#[tokio::test]
async fn the_last_answer_of_a_server_is_not_lost() {
    for _ in 0..20 {
        let connection = open(&[]).await.unwrap();
        let answer = connection.call(request("last", json!({}))).await.unwrap();
        assert_eq!(text_of(answer), "my last answer");
    }
}

#[tokio::test]
async fn after_a_drop_no_process_is_left() {
    let (connection, ended) = Connection::open(&entry(&[]), &place()).await.unwrap();
    let child = call(&connection, "spawn").await.unwrap();
    let server = format!("{connection:?}");
    let server: String = server.chars().filter(char::is_ascii_digit).collect();
    assert!(Path::new("/proc").join(&child).exists() && Path::new("/proc").join(&server).exists());
    drop(connection);
    gone(&child).await;
    gone(&server).await;
    // This one holds nothing.
    assert_eq!(ended.await, "it was stopped");
}

#[tokio::test]
async fn a_shutdown_ends_everything_in_order() {
    let connection = open(&[]).await.unwrap();
    let child = call(&connection, "spawn").await.unwrap();
    connection.shutdown().await;
    gone(&child).await;
    assert_eq!(call(&connection, "echo").await, Err(CallError::Ended("it was stopped".into())));
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_nothing() {
    let mut silent = entry(&["--silent"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("process");
    // What becomes the server tells its number, and is silent. It keeps its output: closing that would be an end.
    let playhouse_mcp::Transport::Stdio(stdio) = &mut silent.transport else { panic!("it is a program") };
    stdio.command = "/bin/sh".into();
    stdio.args =
        vec!["-c".into(), format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", file.display())];
    let place = place();
    let process = tokio::select! {
        opened = Connection::open(&silent, &place) => panic!("it is silent: {:?}", opened.map(drop)),
        process = async {
            loop {
                match fs_err::read_to_string(&file) {
                    Ok(process) => break process.trim().to_owned(),
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
                }
            }
        } => process,
    };
    gone(&process).await;
}
