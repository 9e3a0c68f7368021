//! Tools that are called as tasks.

use std::sync::Arc;
use std::time::Duration;

use playhouse_mcp::CallError;
use serde_json::json;

use crate::stage::{Person, call, open, request, text_of};

/// A server whose tools are called as tasks only, after its list was read.
async fn tasks() -> playhouse_mcp::Connection {
    let connection = open(&["--tasks"]).await.unwrap();
    let listing = connection.listing().await.unwrap();
    let needed = listing.tools.iter().filter(|tool| tool.execution.needs_a_task()).count();
    assert_eq!(needed, 5);
    connection
}

#[tokio::test]
async fn a_tool_that_needs_a_task_is_called_as_one_and_waited_for() {
    let connection = tasks().await;
    assert_eq!(call(&connection, "task").await.unwrap(), "done after 2 looks");
    assert_eq!(call(&connection, "instant").await.unwrap(), "at once");
    assert_eq!(connection.call(request("echo", json!({"text": "me"}))).await.map(text_of).unwrap(), "me");
    let revoked = call(&connection, "revoked").await.unwrap_err();
    assert_eq!(revoked, CallError::Refused("the task was cancelled".into()));
}

#[tokio::test]
async fn a_task_that_asks_is_answered_by_people() {
    let connection = tasks().await;
    let person = Arc::new(Person { name: "Ada".into(), ..Person::default() });
    let mut asks = request("asks", json!({}));
    asks.host = Some(Arc::clone(&person) as _);
    let said = connection.call(asks).await.map(text_of).unwrap();
    assert!(said.contains("Ada"), "{said}");
    assert_eq!(person.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_task_that_nobody_waits_for_is_cancelled_at_the_server() {
    let connection = tasks().await;
    let endless = request("endless", json!({}));
    let cancel = endless.cancel.clone();
    let (ended, ()) = tokio::join!(connection.call(endless), async {
        assert_eq!(call(&connection, "look").await.unwrap(), "looked");
        cancel.cancel();
    });
    assert_eq!(ended, Err(CallError::Cancelled));
    assert_eq!(call(&connection, "task_cancelled").await.unwrap(), r#"["endless"]"#);
}

#[tokio::test]
async fn a_task_that_takes_too_long_is_cancelled_at_the_server() {
    let connection = tasks().await;
    let mut endless = request("endless", json!({}));
    let most = Duration::from_millis(300);
    endless.timeout = Some(most);
    assert_eq!(connection.call(endless).await, Err(CallError::TimedOut(most)));
    assert_eq!(call(&connection, "task_cancelled").await.unwrap(), r#"["endless"]"#);
}
