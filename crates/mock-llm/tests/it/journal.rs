//! What the journal tells.

use bytes::Bytes;
use futures::StreamExt;
use mock_llm::{Cut, Dialect, Entry, Fault, JournalOptions, Mock, MockOptions, Model, Outcome, Script, text};
use serde_json::{Value, json};

use crate::support::{CHAT, MESSAGES, ask, chat, messages, prompt, read};

fn mock(journal: JournalOptions) -> Mock {
    let script = Script::new()
        .model("m", Model::new().step(text("one two three")))
        .model("cut", Model::new().step(text("one two three").fault(Fault::cut(4, Cut::Eof))));
    Mock::with_options(script, MockOptions { journal, ..MockOptions::default() }).unwrap()
}

#[tokio::test]
async fn an_entry_says_what_was_asked_and_answered() {
    let mock = mock(JournalOptions::default());
    let request = messages("m", prompt()).to_string();
    let headers = [("X-Playhouse-Attempt".to_owned(), "att_1".to_owned())];
    let answer = read(mock.respond("/v1/messages?x=1", &headers, Bytes::from(request.clone())).await).await;
    let entry = mock.journal().entries().pop().unwrap();
    let Entry { at, arrived_us, sent_us, prompt: asked, reported, .. } = entry.clone();
    assert!(asked.is_some());
    assert!(at.as_millis() > 1_700_000_000_000);
    assert_eq!(arrived_us / 1000, at.as_millis());
    assert!(sent_us >= arrived_us);
    let reported = reported.unwrap();
    assert_eq!((reported.input, reported.output), (request.len().div_ceil(4) as u64, 3));
    let expected = Entry {
        number: 1,
        at,
        arrived_us,
        sent_us,
        connection: None,
        http2: false,
        path: "/v1/messages?x=1".to_owned(),
        dialect: Some(Dialect::Anthropic),
        attempt: Some("att_1".to_owned()),
        model: Some("m".to_owned()),
        turn: Some(0),
        step: Some(0),
        prompt: asked,
        stream: true,
        request_bytes: request.len() as u64,
        body: Some(Bytes::from(request)),
        status: 200,
        outcome: Outcome::Complete,
        bytes: answer.text.len() as u64,
        events: 9,
        tokens: 3,
        reported: Some(reported),
        reports: None,
        rules: None,
    };
    assert_eq!(entry, expected);
}

#[tokio::test]
async fn what_was_reported_stops_where_the_answer_was_cut() {
    let mock = mock(JournalOptions::default());
    ask(&mock, MESSAGES, &messages("cut", prompt())).await;
    ask(&mock, CHAT, &chat("cut", prompt())).await;
    let entries = mock.journal().entries();
    for entry in &entries {
        assert_eq!((entry.outcome, entry.events), (Outcome::Cut, 4));
    }
    // The one format counts input (and a first token) at the beginning, the other reports only at the end.
    assert_eq!(entries[0].reported.map(|tokens| (tokens.input > 0, tokens.output)), Some((true, 1)));
    assert_eq!(entries[1].reported, None);
}

#[tokio::test]
async fn a_client_that_goes_away_is_noticed() {
    let mock = mock(JournalOptions::default());
    let request = Bytes::from(messages("tokens-5000", prompt()).to_string());
    let mut response = mock.respond(MESSAGES, &[], request).await;
    let first = response.body.next().await.unwrap().unwrap();
    assert_eq!(mock.journal().entries()[0].outcome, Outcome::Open);
    drop(response);
    let entry = mock.journal().entries().pop().unwrap();
    assert_eq!((entry.outcome, entry.bytes), (Outcome::ClientGone, first.len() as u64));
    assert!((1..5000).contains(&entry.tokens));
}

#[tokio::test]
async fn requests_that_are_refused_are_there_too() {
    let mock = mock(JournalOptions::default());
    ask(&mock, "/nowhere", &json!({})).await;
    ask(&mock, CHAT, &json!({})).await;
    ask(&mock, CHAT, &chat("unknown", prompt())).await;
    let entries = mock.journal().entries();
    let told: Vec<_> =
        entries.iter().map(|entry| (entry.status, entry.dialect, entry.model.as_deref())).collect();
    let chat = Some(Dialect::OpenaiChat);
    assert_eq!(told, [(404, None, None), (400, chat, None), (404, chat, Some("unknown"))]);
    assert!(entries.iter().all(|entry| entry.outcome == Outcome::Complete && entry.reported.is_none()));
}

#[tokio::test]
async fn old_requests_are_forgotten() {
    let journal = mock(JournalOptions { entries: 2, ..JournalOptions::default() });
    for _ in 0..5 {
        ask(&journal, CHAT, &chat("m", prompt())).await;
    }
    let numbers: Vec<u64> = journal.journal().entries().iter().map(|entry| entry.number).collect();
    assert_eq!((journal.journal().count(), numbers), (5, vec![4, 5]));

    let size = chat("m", prompt()).to_string().len();
    let by_size = mock(JournalOptions { body_bytes: 2 * size, ..JournalOptions::default() });
    for _ in 0..5 {
        ask(&by_size, CHAT, &chat("m", prompt())).await;
    }
    assert_eq!(by_size.journal().entries().len(), 2);
    let too_small = mock(JournalOptions { body_bytes: size - 1, ..JournalOptions::default() });
    ask(&too_small, CHAT, &chat("m", prompt())).await;
    assert_eq!(too_small.journal().entries()[0].body, None);
}

#[tokio::test]
async fn a_test_can_wait_for_what_it_expects() {
    let mock = mock(JournalOptions::default());
    let journal = mock.journal().clone();
    let waiting = tokio::spawn(async move {
        journal
            .wait_until(|entries| {
                entries.iter().filter(|entry| entry.outcome == Outcome::Complete).count() == 2
            })
            .await
    });
    ask(&mock, CHAT, &chat("m", prompt())).await;
    ask(&mock, CHAT, &chat("m", prompt())).await;
    assert_eq!(waiting.await.unwrap().len(), 2);
}

#[tokio::test]
async fn the_file_has_a_line_for_each_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.ndjson");
    let mock = mock(JournalOptions { file: Some(path.clone()), ..JournalOptions::default() });
    let request = chat("m", prompt());
    for body in [request.to_string(), format!("{request:#}"), "not json\n".to_owned()] {
        read(mock.respond(CHAT, &[], Bytes::from(body)).await).await;
    }
    mock.journal().flush().unwrap();
    let lines: Vec<Value> = fs_err::read_to_string(&path)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["body"], request);
    assert_eq!(lines[0]["reported"]["output"], 3);
    assert_eq!(lines[0]["outcome"], "complete");
    assert_eq!(lines[1]["body"], format!("{request:#}"));
    assert_eq!((&lines[2]["body"], &lines[2]["status"]), (&json!("not json\n"), &json!(400)));
}

#[test]
fn a_file_that_cannot_be_created_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = Some(folder.path().join("absent").join("journal.ndjson"));
    let options = MockOptions { journal: JournalOptions { file, ..JournalOptions::default() }, rate: None };
    let error = Mock::with_options(Script::new(), options).unwrap_err().to_string();
    assert!(error.contains("journal.ndjson"), "{error}");
}
