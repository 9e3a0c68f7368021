//! Servers that ask people something.

use std::sync::Arc;
use std::time::Duration;

use playhouse_mcp::CallRequest;
use playhouse_tools::Host;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use crate::stage::{Person, open, request, session, text_of, watched};

/// A call of the tool that asks for a name, made for somebody.
fn ask(person: &Arc<Person>, number: u64) -> CallRequest {
    let host = Some(Arc::<Person>::clone(person) as Arc<dyn Host>);
    CallRequest { session: session(number), host, ..request("ask", json!({})) }
}

fn person(name: &str) -> Arc<Person> {
    Arc::new(Person { name: name.to_owned(), ..Person::default() })
}

fn action(text: &str) -> (String, Value) {
    let answer: Value = serde_json::from_str(text).unwrap();
    (answer["action"].as_str().unwrap().to_owned(), answer["content"]["name"].clone())
}

#[tokio::test]
async fn whoever_calls_is_asked_in_both_protocols() {
    for arguments in [&[][..], &["--modern"]] {
        let (one, other) = (person("one"), person("other"));
        let connection = open(arguments).await.unwrap();
        let answer = text_of(connection.call(ask(&other, 3)).await.unwrap());
        assert_eq!(action(&answer), ("accept".into(), "other".into()));
        let answer = text_of(connection.call(ask(&one, 1)).await.unwrap());
        assert_eq!(action(&answer), ("accept".into(), "one".into()));
        let asked = other.asked.lock().unwrap();
        let [questions] = &asked[..] else { panic!("{asked:?}") };
        assert!(
            questions[0].question.starts_with("The server scripted asks: Who are you?\n"),
            "{questions:?}"
        );
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
    let person = person("me");
    let connection = open(&[]).await.unwrap();
    let (mut hang, mut told) = watched(request("hang", json!({})));
    hang.session = session(2);
    let stop = hang.cancel.clone();
    let (hung, ()) = tokio::join!(connection.call(hang), async {
        told.recv().await.unwrap();
        let answer = text_of(connection.call(ask(&person, 1)).await.unwrap());
        assert_eq!(action(&answer).0, "decline");
        assert!(answer.contains("calls of several sessions"), "{answer}");
        assert!(person.asked.lock().unwrap().is_empty());
        // From now on this one waits until the other has ended.
        let mut ask = Box::pin(connection.call(ask(&person, 1)));
        assert!(futures::poll!(&mut ask).is_pending());
        stop.cancel();
        let answer = text_of(ask.await.unwrap());
        assert_eq!(action(&answer), ("accept".into(), "me".into()));
    });
    assert!(hung.is_err());
}

#[tokio::test]
async fn a_call_does_not_run_out_of_time_while_somebody_is_asked() {
    let (arrived, mut arrival) = mpsc::channel(1);
    let gate = Arc::new(Semaphore::new(0));
    let person = Arc::new(Person {
        name: "me".into(),
        gate: Some(Arc::clone(&gate)),
        arrived: Some(arrived),
        ..Person::default()
    });
    let connection = open(&[]).await.unwrap();
    let mut ask = ask(&person, 1);
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
    let connection = open(&[]).await.unwrap();
    let ask = ask(&person, 1);
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
