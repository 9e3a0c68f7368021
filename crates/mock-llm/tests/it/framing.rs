//! Bytes that are carried in unusual ways, in every format.

use std::io::Read;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use mock_llm::{Fault, Framing, LineEnd, Mock, MockResponse, Model, Outcome, Script, Step, text};
use serde_json::json;

use crate::support::{
    MESSAGES, PATIENCE, ask_all, ask_all_whole, gemini, gemini_path, gemini_prompt, messages, prompt,
};

fn mock(framing: Framing) -> Mock {
    let step = text("één \"two\" 🏠 three").call("read", json!({"a": {}})).framing(framing);
    Mock::new(Script::new().model("m", Model::new().step(step)))
}

/// What the standard for event streams makes of a body: the data of each event.
fn parse(body: &str) -> Vec<String> {
    let body = body.strip_prefix('\u{feff}').unwrap_or(body);
    let body = body.replace("\r\n", "\n").replace('\r', "\n");
    let (mut events, mut data): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    for line in body.split('\n') {
        if line.is_empty() && !data.is_empty() {
            events.push(std::mem::take(&mut data).join("\n"));
        }
        if let Some(value) = line.strip_prefix("data:") {
            data.push(value.strip_prefix(' ').unwrap_or(value));
        }
    }
    assert!(data.is_empty(), "the last event has no end");
    events
}

#[tokio::test]
async fn a_standard_reader_sees_the_same_events() {
    let plain = Framing::default();
    let all = Framing {
        line_end: Some(LineEnd::Crlf),
        bom: true,
        comments: true,
        multi_line: true,
        no_space: true,
        split: Some(5),
        ..plain
    };
    let usual = ask_all(&mock(plain), "m").await.map(|answer| answer.text);
    for framing in [
        Framing::line_end(LineEnd::Lf),
        Framing::line_end(LineEnd::Crlf),
        Framing::line_end(LineEnd::Cr),
        Framing { bom: true, ..plain },
        Framing { comments: true, ..plain },
        Framing { multi_line: true, ..plain },
        Framing { no_space: true, ..plain },
        Framing::split(1),
        all,
    ] {
        let mock = mock(framing);
        for (answer, usual) in ask_all(&mock, "m").await.iter().zip(&usual) {
            let value =
                |event: &String| serde_json::from_str::<serde_json::Value>(event).unwrap_or(json!(event));
            let [told, expected] =
                [&answer.text, usual].map(|text| parse(text).iter().map(value).collect::<Vec<_>>());
            assert_eq!(told, expected, "{framing:?}");
            assert!(framing.split.is_some() || answer.text != *usual || framing.line_end.is_some());
        }
        for entry in mock.journal().entries() {
            assert_eq!(entry.outcome, Outcome::Complete);
            assert!(entry.tokens > 0 && entry.bytes > 0);
        }
    }
}

async fn writes(response: MockResponse) -> Vec<Bytes> {
    response.body.map(|bytes| bytes.unwrap()).collect().await
}

#[tokio::test]
async fn writes_split_characters_and_lines() {
    for split in [1, 7] {
        let mock = mock(Framing::split(split));
        let request = Bytes::from(gemini(gemini_prompt()).to_string());
        let writes = writes(mock.respond(&gemini_path("m"), &[], request).await).await;
        assert!(writes.iter().all(|bytes| (1..=split).contains(&bytes.len())));
        assert!(split > 1 || writes.iter().any(|bytes| std::str::from_utf8(bytes).is_err()));
        assert_eq!(mock.journal().entries()[0].bytes, writes.concat().len() as u64);
    }
}

#[tokio::test]
async fn one_byte_at_a_time_takes_its_time() {
    let step = Step::empty().fault(Fault::Html("<p>A page</p>".to_owned())).framing(Framing::slow(5));
    let mock = Mock::new(Script::new().model("m", Model::new().step(step)));
    let start = Instant::now();
    let request = Bytes::from(messages("m", prompt()).to_string());
    let writes = writes(mock.respond(MESSAGES, &[], request).await).await;
    assert!(start.elapsed() >= Duration::from_millis(5 * (writes.len() as u64 - 1)));
    assert_eq!((writes.concat().len(), writes.concat().as_slice()), (writes.len(), &b"<p>A page</p>"[..]));
}

#[tokio::test]
async fn a_client_that_leaves_a_slow_answer_is_noticed() {
    let mock = mock(Framing::slow(5));
    let start = Instant::now();
    let request = Bytes::from(messages("m", prompt()).to_string());
    let mut response = mock.respond(MESSAGES, &[], request).await;
    for _ in 0..20 {
        assert_eq!(response.body.next().await.unwrap().unwrap().len(), 1);
    }
    assert!(start.elapsed() >= Duration::from_millis(5 * 19));
    drop(response);
    let entry = mock.journal().entries().pop().unwrap();
    assert_eq!((entry.outcome, entry.bytes), (Outcome::ClientGone, 20));
}

#[tokio::test]
async fn a_body_may_be_compressed() {
    let gzip = Framing { gzip: true, ..Framing::default() };
    let plain = mock(Framing::default());
    let (events, pieces) = (ask_all(&plain, "m").await, ask_all_whole(&plain, "m").await);
    let mock = mock(gzip);
    let unzip = |bytes: &[u8]| {
        let mut text = String::new();
        flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).unwrap();
        text
    };
    let request = Bytes::from(messages("m", prompt()).to_string());
    let response = mock.respond(MESSAGES, &[], request).await;
    assert!(response.headers.contains(&("content-encoding".to_owned(), "gzip".to_owned())));
    assert_eq!(unzip(&writes(response).await.concat()), events[0].text);
    let mut request = messages("m", prompt());
    request["stream"] = json!(false);
    let response = mock.respond(MESSAGES, &[], Bytes::from(request.to_string())).await;
    assert!(!response.headers.iter().any(|(name, _)| name == "content-length"));
    // The length of the request is a part of what is reported.
    assert_eq!(unzip(&writes(response).await.concat()), pieces[0].text);
    assert!(mock.journal().entries().iter().all(|entry| entry.outcome == Outcome::Complete));
}

#[tokio::test]
async fn an_error_is_carried_in_the_same_way() {
    let framing = Framing { gzip: true, ..Framing::split(2) };
    let step: Step = text("a").fault(Fault::status(500)).framing(framing);
    let mock = Mock::new(Script::new().model("m", Model::new().step(step)));
    let response = mock.respond(MESSAGES, &[], Bytes::from(messages("m", prompt()).to_string())).await;
    assert_eq!(response.status, 500);
    let mut text = String::new();
    let bytes = writes(response).await.concat();
    flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
    assert!(text.contains("api_error"), "{text}");
}

#[tokio::test]
async fn an_answer_may_never_end() {
    let mock = mock(Framing { never_ends: true, ..Framing::default() });
    let request = Bytes::from(messages("m", prompt()).to_string());
    let mut response = mock.respond(MESSAGES, &[], request).await;
    let mut said = Vec::new();
    while !said.ends_with(b"{\"type\":\"message_stop\"}\n\n") {
        let next = tokio::time::timeout(PATIENCE, response.body.next()).await.expect("all of it is said");
        said.extend_from_slice(&next.expect("all of it is said").unwrap());
    }
    assert!(tokio::time::timeout(Duration::from_millis(50), response.body.next()).await.is_err());
    drop(response);
    assert_eq!(mock.journal().entries()[0].outcome, Outcome::Complete);
}
