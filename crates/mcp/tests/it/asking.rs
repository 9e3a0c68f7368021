//! Servers that ask people something.

use std::sync::Arc;
use std::time::Duration;

use playhouse_mcp::{Connection, Elicitation};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use crate::stage::{Person, entry, open, place, request, session, text_of, watched};

async fn with(person: &Arc<Person>, arguments: &[&str]) -> Connection {
    let mut place = place();
    place.elicit = Some(Arc::<Person>::clone(person));
    Connection::open(&entry(arguments), &place).await.unwrap().0
}

fn action(text: &str) -> (String, Value) {
    let answer: Value = serde_json::from_str(text).unwrap();
    (answer["action"].as_str().unwrap().to_owned(), answer["content"]["name"].clone())
}

#[tokio::test]
async fn whoever_calls_is_asked_in_both_protocols() {
    for arguments in [&[][..], &["--modern"]] {
        let person = Arc::new(Person::default());
        let connection = with(&person, arguments).await;
        let mut ask = request("ask", json!({}));
        ask.session = session(3);
        let answer = text_of(connection.call(ask).await.unwrap());
        assert_eq!(action(&answer), ("accept".into(), session(3).as_str().into()));
        let asked = person.asked.lock().unwrap();
        let [(asked, Elicitation::Form { message, schema })] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!((*asked, message.as_str()), (session(3), "Who are you?"));
        assert_eq!(schema["properties"]["name"]["type"], "string");
    }
}

#[tokio::test]
async fn where_nobody_can_be_asked_it_is_declined() {
    let connection = open(&[]).await.unwrap();
    let answer = text_of(connection.call(request("ask", json!({}))).await.unwrap());
    assert_eq!(action(&answer).0, "decline");
    assert!(answer.contains("there is nobody to ask"));
}

#[tokio::test]
async fn nobody_is_asked_while_calls_of_several_sessions_run_and_then_they_run_apart() {
    let person = Arc::new(Person::default());
    let connection = with(&person, &[]).await;
    let (mut hang, mut told) = watched(request("hang", json!({})));
    hang.session = session(2);
    let stop = hang.cancel.clone();
    let (hung, ()) = tokio::join!(connection.call(hang), async {
        told.recv().await.unwrap();
        let answer = text_of(connection.call(request("ask", json!({}))).await.unwrap());
        assert_eq!(action(&answer).0, "decline");
        assert!(answer.contains("calls of several sessions"), "{answer}");
        assert!(person.asked.lock().unwrap().is_empty());
        // From now on this one waits until the other has ended.
        let mut ask = Box::pin(connection.call(request("ask", json!({}))));
        assert!(futures::poll!(&mut ask).is_pending());
        stop.cancel();
        let answer = text_of(ask.await.unwrap());
        assert_eq!(action(&answer), ("accept".into(), session(1).as_str().into()));
    });
    assert!(hung.is_err());
}

#[tokio::test]
async fn a_call_does_not_run_out_of_time_while_somebody_is_asked() {
    let (arrived, mut arrival) = mpsc::channel(1);
    let gate = Arc::new(Semaphore::new(0));
    let person =
        Arc::new(Person { gate: Some(Arc::clone(&gate)), arrived: Some(arrived), ..Person::default() });
    let connection = with(&person, &[]).await;
    let mut ask = request("ask", json!({}));
    ask.timeout = Some(Duration::from_millis(1_000));
    let (answer, ()) = tokio::join!(connection.call(ask), async {
        arrival.recv().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        gate.add_permits(1);
    });
    assert_eq!(action(&text_of(answer.unwrap())).0, "accept");
}

#[tokio::test]
async fn a_question_goes_with_the_call_that_it_is_about() {
    let (arrived, mut arrival) = mpsc::channel(1);
    let person = Arc::new(Person {
        gate: Some(Arc::new(Semaphore::new(0))),
        arrived: Some(arrived),
        ..Person::default()
    });
    let connection = with(&person, &[]).await;
    let ask = request("ask", json!({}));
    let cancel = ask.cancel.clone();
    let (answer, ()) = tokio::join!(connection.call(ask), async {
        arrival.recv().await.unwrap();
        cancel.cancel();
    });
    assert!(answer.is_err());
    // Nobody answers, and the server goes on.
    let echoed = connection.call(request("echo", json!({"text": "on"}))).await.unwrap();
    assert_eq!(text_of(echoed), "on");
}
