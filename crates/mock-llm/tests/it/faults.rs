//! Answers that go wrong as the script says.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mock_llm::{Cut, Fault, Mock, Model, Moment, Outcome, Script, Step, malformed_call, text};
use serde_json::json;

use crate::support::{Answer, CHAT, MESSAGES, PATIENCE, ask, chat, messages, prompt, read};

fn mock(step: Step) -> Mock {
    Mock::new(Script::new().model("m", Model::new().step(step)))
}

async fn both(step: Step) -> [Answer; 2] {
    let mock = mock(step);
    [ask(&mock, MESSAGES, &messages("m", prompt())).await, ask(&mock, CHAT, &chat("m", prompt())).await]
}

#[tokio::test]
async fn a_status_has_its_headers_and_an_error_of_the_wire() {
    let [anthropic, openai] = both(text("a").fault(Fault::retry_after(429, 2))).await;
    for answer in [&anthropic, &openai] {
        assert_eq!((answer.status, answer.header("retry-after")), (429, Some("2")));
    }
    assert_eq!(anthropic.json()["error"]["type"], "rate_limit_error");
    assert_eq!(openai.json()["error"]["code"], "rate_limit_exceeded");
}

#[tokio::test]
async fn a_status_can_have_any_body() {
    let headers = BTreeMap::from([("Content-Type".to_owned(), "text/plain".to_owned())]);
    let fault = Fault::Status { code: 503, headers, retry_after: None, body: Some("busy".to_owned()) };
    for answer in both(text("a").fault(fault)).await {
        assert_eq!((answer.status, answer.text.as_str()), (503, "busy"));
        let kinds = answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        assert_eq!(kinds.count(), 1);
        assert_eq!(answer.header("content-type"), Some("text/plain"));
    }
}

#[tokio::test]
async fn a_page_comes_with_status_200() {
    for answer in both(text("a").fault(Fault::Html("<html>Sign in</html>".to_owned()))).await {
        assert_eq!((answer.status, answer.text.as_str()), (200, "<html>Sign in</html>"));
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    }
}

#[tokio::test]
async fn an_empty_answer_is_complete() {
    for step in [Step::empty(), text("a").fault(Fault::Empty)] {
        let [anthropic, openai] = both(step).await;
        assert!(!anthropic.text.contains("content_block") && anthropic.text.contains("message_stop"));
        assert_eq!(openai.said(), "");
        assert!(openai.text.ends_with("data: [DONE]\n\n"));
    }
}

#[tokio::test]
async fn arguments_are_sent_as_they_are() {
    let [anthropic, openai] = both(malformed_call("edit", "{\"filePath\": \"a")).await;
    let arguments: String =
        anthropic.events().iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    assert_eq!(arguments, "{\"filePath\": \"a");
    let arguments: String = openai
        .events()
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str())
        .collect();
    assert_eq!(arguments, "{\"filePath\": \"a");
}

#[tokio::test]
async fn a_stream_is_cut_after_exactly_so_many_events() {
    let whole = both(text("one two three")).await;
    for (which, whole) in whole.iter().enumerate() {
        let total = whole.text.matches("\n\n").count();
        for after in 0..total {
            for how in [Cut::Eof, Cut::Reset] {
                let answer = &both(text("one two three").fault(Fault::cut(after as u64, how))).await[which];
                assert_eq!(answer.text.matches("\n\n").count(), after);
                assert!(
                    whole.text.starts_with(&answer.text) && (after == 0 || answer.text.ends_with("\n\n"))
                );
                let error = answer.error.as_ref().map(std::io::Error::kind);
                assert_eq!(error, (how == Cut::Reset).then_some(ErrorKind::ConnectionReset));
            }
        }
        let answer =
            &both(text("one two three").fault(Fault::cut(total as u64 + 1, Cut::Reset))).await[which];
        assert_eq!((&answer.text, answer.error.is_none()), (&whole.text, true));
    }
}

#[tokio::test]
async fn a_stall_loses_nothing() {
    let whole = both(text("one two three")).await;
    // The last of them never comes: a stall there would be longer than the test waits.
    for (after_events, ms) in [(0, 10), (1, 10), (3, 10), (100, 3_600_000)] {
        let start = Instant::now();
        let fault = Fault::Stall { at: Moment::Events(after_events), ms: Some(ms) };
        let answers = both(text("one two three").fault(fault));
        let answers = tokio::time::timeout(PATIENCE, answers).await.expect("the stall ends");
        assert_eq!(
            answers.each_ref().map(|answer| &answer.text),
            whole.each_ref().map(|answer| &answer.text)
        );
        let stalled = if after_events == 100 { 0 } else { 20 };
        assert!(start.elapsed().as_millis() >= stalled);
    }
}

#[tokio::test]
async fn a_stall_without_end_is_over_when_the_client_goes() {
    let mock = mock(text("one two").fault(Fault::stall(4)));
    let request = Bytes::from(messages("m", prompt()).to_string());
    let response = mock.respond(MESSAGES, &[], request).await;
    let wait = tokio::time::timeout(Duration::from_millis(50), read(response));
    assert!(wait.await.is_err());
    let entry = &mock.journal().entries()[0];
    assert_eq!((entry.outcome, entry.events, entry.tokens), (Outcome::ClientGone, 4, 1));
}

#[tokio::test]
async fn an_error_event_ends_the_stream() {
    let fault = Fault::ErrorEvent {
        at: Moment::Events(3),
        kind: "overloaded_error".to_owned(),
        message: "Too busy".to_owned(),
    };
    let [anthropic, openai] = both(text("one two three four").fault(fault)).await;
    let last = anthropic.events().pop().unwrap();
    assert_eq!(last["error"], json!({"type": "overloaded_error", "message": "Too busy"}));
    assert!(anthropic.text.contains("event: error\n"));
    assert_eq!(anthropic.events().len(), 4);
    let last = openai.events().pop().unwrap();
    assert_eq!(last["error"]["message"], "Too busy");
    assert_eq!(openai.text.matches("\n\n").count(), 4);
}

#[tokio::test]
async fn the_first_attempts_of_each_request_fail() {
    let mock = mock(text("well").fault(Fault::status(529)).fail_first(2));
    let ask_as = async |session: &str, prompt: &str| {
        let request = messages("m", json!([{"role": "user", "content": prompt}])).to_string();
        let headers = [("X-Mock-Session".to_owned(), session.to_owned())];
        read(mock.respond(MESSAGES, &headers, Bytes::from(request)).await).await.status
    };
    let mut statuses = Vec::new();
    for (session, prompt) in
        [("a", "x"), ("a", "x"), ("b", "x"), ("a", "y"), ("a", "x"), ("a", "x"), ("b", "x")]
    {
        statuses.push(ask_as(session, prompt).await);
    }
    assert_eq!(statuses, [529, 529, 529, 529, 200, 200, 529]);
}

#[tokio::test]
async fn an_answer_in_one_piece_is_cut_in_the_middle() {
    for (how, is_reset) in [(Cut::Eof, false), (Cut::Reset, true)] {
        let mock = mock(text("one two three").fault(Fault::cut(1, how)));
        let mut request = messages("m", prompt());
        request["stream"] = json!(false);
        let answer = ask(&mock, MESSAGES, &request).await;
        assert_eq!(answer.header("content-length"), None);
        assert!(serde_json::from_str::<serde_json::Value>(&answer.text).is_err());
        assert_eq!(answer.error.is_some(), is_reset);
        assert_eq!(mock.journal().entries()[0].outcome, Outcome::Cut);
    }
}
