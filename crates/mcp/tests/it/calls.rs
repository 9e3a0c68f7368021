//! Calls: each gets its own answer or its own error, whatever the server does.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use playhouse_mcp::CallError;
use proptest::prelude::*;
use serde_json::json;

use crate::stage::{call, open, request, session, text_of, watched};

#[tokio::test]
async fn a_result_has_content_or_structure_and_pictures() {
    let connection = open(&[]).await.unwrap();
    let result = connection.call(request("everything", json!({}))).await.unwrap();
    let output = result.into_output("title".into()).unwrap();
    assert_eq!(output.output, "a picture\n[result-1.png]\n[resource a:b B]");
    assert_eq!(output.attachments[0].mime, "image/png");
}

#[tokio::test]
async fn errors_say_what_failed() {
    let connection = open(&[]).await.unwrap();
    let refused = "there is no tool nothing";
    assert_eq!(call(&connection, "nothing").await, Err(CallError::Refused(refused.into())));
    assert_eq!(call(&connection, "fail").await.unwrap(), "I failed");
    let malformed = call(&connection, "malformed").await.unwrap_err();
    assert_eq!(malformed, CallError::Refused("the answer is malformed: \"just words\"".into()));
    assert_eq!(call(&connection, "odd").await, Err(CallError::Malformed("its content is no list".into())));
}

#[tokio::test]
async fn an_answer_that_is_too_long_fails_its_call_only() {
    let connection = open(&[]).await.unwrap();
    let (flooded, echoed) = tokio::join!(
        call(&connection, "flood"),
        connection.call(request("echo", json!({"text": "still here"}))),
    );
    let error = flooded.unwrap_err().to_string();
    assert!(error.contains("longer than 16 MB"), "{error}");
    assert_eq!((text_of(echoed.unwrap()).as_str(), connection.diagnosis().too_long), ("still here", 1));
}

#[tokio::test]
async fn a_call_that_is_cancelled_is_cancelled_at_the_server() {
    let connection = open(&[]).await.unwrap();
    let (hang, mut told) = watched(request("hang", json!({})));
    let cancel = hang.cancel.clone();
    let (hung, ()) = tokio::join!(connection.call(hang), async {
        // It has arrived.
        assert_eq!(told.recv().await.unwrap().message.as_deref(), Some("hanging"));
        cancel.cancel();
    });
    assert_eq!(hung, Err(CallError::Cancelled));
    assert!(call(&connection, "cancelled").await.unwrap().starts_with('['));
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled_at_the_server() {
    let connection = open(&[]).await.unwrap();
    let (hang, mut told) = watched(request("hang", json!({})));
    tokio::select! {
        _ = connection.call(hang) => panic!("it hangs"),
        progress = told.recv() => assert!(progress.is_some()),
    }
    assert!(call(&connection, "cancelled").await.unwrap().starts_with('['));
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_and_is_cancelled_at_the_server() {
    let connection = open(&[]).await.unwrap();
    let mut hang = request("hang", json!({}));
    hang.timeout = Some(Duration::from_millis(20));
    assert_eq!(connection.call(hang).await, Err(CallError::TimedOut(Duration::from_millis(20))));
    assert!(call(&connection, "cancelled").await.unwrap().starts_with('['));
}

#[tokio::test]
async fn a_session_with_many_calls_holds_up_no_other() {
    let connection = Arc::new(open(&[]).await.unwrap());
    let (started, mut told) = tokio::sync::mpsc::channel(64);
    let many: Vec<_> = (0..20)
        .map(|_| {
            let (connection, started) = (Arc::clone(&connection), started.clone());
            let mut hang = request("hang", json!({}));
            hang.progress = Some(Arc::new(move |_| started.try_send(()).unwrap_or_default()));
            tokio::spawn(async move { connection.call(hang).await })
        })
        .collect();
    for _ in 0..7 {
        told.recv().await.unwrap();
    }
    // Eight run. One ends, and the next place is for the one who waits elsewhere.
    told.recv().await.unwrap();
    let mut echo = request("echo", json!({"text": "me"}));
    echo.session = session(2);
    let echoed = {
        let connection = Arc::clone(&connection);
        tokio::spawn(async move { connection.call(echo).await })
    };
    many[0].abort();
    many[1].abort();
    assert_eq!(text_of(echoed.await.unwrap().unwrap()), "me");
    many.iter().for_each(tokio::task::JoinHandle::abort);
}

#[test]
fn each_caller_gets_its_own_answer() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let connection = runtime.block_on(open(&[])).unwrap();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) };
    let callers = prop::collection::vec((1_u64..5, ".{0,200}", 0_usize..4), 1..40);
    proptest!(config, |(callers in callers)| {
        let calls = callers.iter().map(|(number, text, kind)| {
            let mut call = match kind {
                0 => request("fail", json!({})),
                1 => request("mumble", json!({})),
                _ => request("echo", json!({"text": text})),
            };
            call.session = session(*number);
            connection.call(call)
        });
        let answers = runtime.block_on(join_all(calls));
        for ((_, text, kind), answer) in callers.iter().zip(answers) {
            let expected = match kind {
                0 => "I failed",
                1 => "clear",
                _ if text.trim().is_empty() => continue,
                _ => text,
            };
            prop_assert_eq!(text_of(answer.unwrap()), expected);
        }
    });
}
