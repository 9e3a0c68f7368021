//! What goes wrong with a stream as such, in any dialect.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, StreamExt as _};
use playhouse_llm::{DialectKind, HttpRequest, HttpResponse, Limits, Transport, send};
use playhouse_protocol::ErrorInfo;
use playhouse_protocol::error::ErrorCode;
use playhouse_protocol::message::FinishReason;
use tokio::time::timeout;

use crate::support::{
    ALL, KEY, MODEL, PATIENCE, Scripted, Then, ask, ask_within, attempt, endpoint, everything,
    everything_decoded, merge, read, run, text,
};

/// The time between two chunks of a slow server.
const MOMENT: Duration = Duration::from_millis(5);
/// So many chunks take longer than a test waits.
const AGES: usize = 20_000;

#[tokio::test]
async fn a_stream_cut_anywhere_before_its_end_is_never_an_answer() {
    for dialect in ALL {
        let stream = everything(dialect);
        let marker = match dialect {
            DialectKind::Anthropic => "\"stop_reason\":\"tool",
            DialectKind::OpenaiChat => "\"finish_reason\":\"tool",
            DialectKind::OpenaiResponses => "event: response.completed",
            DialectKind::Gemini => "\"finishReason\"",
        };
        // From within the event of the marker on, the server may have said all that counts.
        for at in 0..stream.find(marker).unwrap() {
            let (_, end) = run(dialect, Scripted::stream([stream.as_bytes()[..at].to_vec()])).await;
            assert_eq!(end.unwrap_err().code, ErrorCode::StreamCut, "cut at {at}");
        }
    }
}

#[tokio::test]
async fn silence_ends_a_stream() {
    for dialect in ALL {
        let mut server = Scripted::stream([": waiting\n\n"]);
        server.then = Then::Hang;
        let limits = Limits { silence: Duration::from_millis(50), ..Limits::default() };
        let begun = Instant::now();
        let answer = ask_within(dialect, &server, limits).await.unwrap();
        let (_, end) = timeout(PATIENCE, read(answer)).await.expect("it ends");
        let error = end.unwrap_err();
        assert_eq!(error.code, ErrorCode::StreamCut);
        assert_eq!(error.message, "acme: nothing came for 0.05 s");
        assert!(begun.elapsed() >= limits.silence);
    }
}

/// Slow is not silent.
#[tokio::test]
async fn a_few_bytes_at_a_time_are_an_answer() {
    let (silence, pause) = (Duration::from_secs(1), Duration::from_millis(20));
    let answers = ALL.map(|dialect| async move {
        let bytes = everything(dialect).into_bytes();
        let mut server = Scripted::stream(bytes.chunks(bytes.len() / 64).map(<[u8]>::to_vec));
        server.then = Then::Every(pause);
        // What follows the end marker is not waited for.
        let least = pause * u32::try_from(server.chunks.len() - 3).unwrap();
        assert!(least > silence, "the answer takes longer than a silence may");
        let begun = Instant::now();
        let limits = Limits { silence, trailer: PATIENCE, ..Limits::default() };
        let (batches, end) = read(ask_within(dialect, &server, limits).await.unwrap()).await;
        assert_eq!(merge(batches.concat()), everything_decoded(dialect), "{dialect:?}");
        assert_eq!(end.unwrap().finish, FinishReason::ToolCalls);
        assert!(begun.elapsed() >= least, "{dialect:?}: {:?}", begun.elapsed());
    });
    futures::future::join_all(answers).await;
}

#[tokio::test]
async fn a_complete_answer_does_not_wait_for_the_end_of_the_body() {
    for dialect in ALL {
        let mut server = Scripted::stream([everything(dialect)]);
        server.then = Then::Hang;
        // Gemini has no end marker: figures may follow for as long as a trailer may take.
        let trailer = if dialect == DialectKind::Gemini { MOMENT } else { 100 * PATIENCE };
        let limits = Limits { trailer, ..Limits::default() };
        let answer = ask_within(dialect, &server, limits).await.unwrap();
        let (_, end) = timeout(PATIENCE, read(answer)).await.expect("it ends");
        assert_eq!(end.unwrap().finish, FinishReason::ToolCalls);
    }
}

#[tokio::test]
async fn malformed_json_is_named_and_quoted() {
    for (dialect, stream) in [
        (DialectKind::Anthropic, "event: message_start\ndata: {\"type\": oops\n\n"),
        (DialectKind::OpenaiChat, "data: {\"choices\": oops\n\n"),
        (DialectKind::OpenaiResponses, "event: response.output_item.added\ndata: {\"item\": oops\n\n"),
        (DialectKind::Gemini, "data: {\"candidates\": oops\n\n"),
    ] {
        let (_, end) = run(dialect, Scripted::stream([stream.to_owned() + ": more\n\n"])).await;
        let error = end.unwrap_err();
        assert_eq!(error.code, ErrorCode::BadAnswer);
        assert!(error.message.contains("oops") && error.message.contains("event"), "{error}");
    }
}

#[tokio::test]
async fn a_page_with_a_good_status_is_quoted() {
    let page =
        "<!DOCTYPE html><html><head><title>Sign in\n to Wi-Fi</title></head><body>please</body></html>";
    for dialect in ALL {
        for headers in [&[("content-type", "text/html; charset=utf-8")][..], &[]] {
            let (_, end) = run(dialect, Scripted::refusal(200, headers, page)).await;
            let error = end.unwrap_err();
            assert_eq!(error.code, ErrorCode::BadAnswer);
            assert!(error.message.contains("an HTML page titled \"Sign in to Wi-Fi\""), "{error}");
        }
    }
}

#[tokio::test]
async fn json_with_a_good_status_is_read_as_an_error_or_quoted() {
    let json = [("content-type", "application/json")];
    let google = r#"{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"7s"}]}}"#;
    for (body, code, status, wait, quoted) in [
        (
            r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#,
            ErrorCode::RateLimited,
            200,
            None,
            "slow down",
        ),
        (google, ErrorCode::RateLimited, 429, Some(7_000), "slow"),
        (r#"{"error":"what"}"#, ErrorCode::BadAnswer, 200, None, "what"),
        (r#"{"choices":[{"message":{}}]}"#, ErrorCode::BadAnswer, 200, None, "\"choices\""),
    ] {
        for dialect in ALL {
            let (_, end) = run(dialect, Scripted::refusal(200, &json, body)).await;
            let error = end.unwrap_err();
            assert_eq!((error.code, error.status, error.retry_after_ms), (code, Some(status), wait));
            assert!(error.message.contains(quoted), "{error}");
        }
    }
}

#[tokio::test]
async fn an_answer_has_a_largest_size() {
    for dialect in ALL {
        let server = Scripted::stream(vec![Bytes::from(vec![b':'; 1000]); 5]);
        let limits = Limits { size: 4000, ..Limits::default() };
        let answer = send(&server, &endpoint(dialect), MODEL, attempt(), Bytes::new(), limits).await.unwrap();
        let (_, end) = read(answer).await;
        let error = end.unwrap_err();
        assert_eq!(error.code, ErrorCode::BadAnswer);
        assert!(error.message.contains("larger than 4000 bytes"), "{error}");
    }
}

#[tokio::test]
async fn comments_do_not_hold_a_whole_answer() {
    let mut chunks = vec![
        r#"data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}"#.to_owned() + "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#.to_owned() + "\n\n",
    ];
    chunks.resize(AGES, ": keep-alive\n\n".to_owned());
    let server = Scripted { then: Then::Every(MOMENT), ..Scripted::stream(chunks) };
    let limits = Limits { trailer: 10 * MOMENT, ..Limits::default() };
    let answer = ask_within(DialectKind::OpenaiChat, &server, limits).await.unwrap();
    let (batches, end) = timeout(PATIENCE, read(answer)).await.expect("they are not waited for");
    assert_eq!(batches.concat()[0], text("hi"));
    end.unwrap();
}

#[tokio::test]
async fn an_answer_has_a_longest_time_whatever_comes() {
    for dialect in ALL {
        let chunks = vec![": keep-alive\n\n"; AGES];
        let server = Scripted { then: Then::Every(MOMENT), ..Scripted::stream(chunks) };
        let limits = Limits { attempt: 10 * MOMENT, ..Limits::default() };
        let answer = ask_within(dialect, &server, limits).await.unwrap();
        let (_, end) = timeout(PATIENCE, read(answer)).await.expect("it is given up");
        let error = end.unwrap_err();
        assert_eq!(error.code, ErrorCode::StreamCut);
        assert!(error.message.contains("not whole after 0.05 s"), "{error}");
    }
}

#[tokio::test]
async fn the_body_of_an_error_is_not_waited_for() {
    for (status, headers) in [(500, &[][..]), (200, &[("content-type", "text/plain")][..])] {
        let chunks = vec![Bytes::from_static(b"aaa"); AGES];
        let server = Scripted { then: Then::Every(MOMENT), chunks, ..Scripted::refusal(status, headers, "") };
        let limits = Limits { error_body: 10 * MOMENT, ..Limits::default() };
        let asked = timeout(PATIENCE, ask_within(DialectKind::OpenaiChat, &server, limits));
        let error = asked.await.expect("it is given up").unwrap_err();
        assert!(error.message.contains("aaa"), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_ignores_its_limit_is_not_read_on() {
    let piece = "x".repeat(1_000);
    let call = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}}]}"#;
    for (first, delta) in [
        (None, format!(r#"{{"content":"{piece}"}}"#)),
        (None, format!(r#"{{"reasoning_content":"{piece}"}}"#)),
        (Some(call), format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":"{piece}"}}}}]}}"#)),
    ] {
        let first = first.map(|data| format!("data: {data}\n\n"));
        let more = format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n");
        let chunks: Vec<String> = first.into_iter().chain(std::iter::repeat_n(more, 100)).collect();
        let server = Scripted { then: Then::Slowly, ..Scripted::stream(chunks) };
        let limits = Limits { answer: 10_000, ..Limits::default() };
        let endpoint = endpoint(DialectKind::OpenaiChat);
        let answer = send(&server, &endpoint, MODEL, attempt(), Bytes::new(), limits).await.unwrap();
        let (batches, end) = read(answer).await;
        let error = end.unwrap_err();
        assert_eq!(error.code, ErrorCode::OutputLimit, "{error}");
        assert!(batches.len() < 20 && !error.code.is_retryable(), "{} batches", batches.len());
    }
    let usual = Limits::default().for_output(8_192);
    assert_eq!((usual.answer, usual.for_output(1 << 20).answer), (16 << 20, 32 << 20));
}

/// Says an answer, and then a comment whenever it is asked.
struct Chatty {
    answer: Bytes,
    comments: Arc<AtomicUsize>,
}

impl Transport for Chatty {
    fn send(&self, _: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, ErrorInfo>> {
        let comments = Arc::clone(&self.comments);
        let comment = move || {
            comments.fetch_add(1, Ordering::Relaxed);
            Ok(Bytes::from_static(b": ping\n\n"))
        };
        let body = stream::iter([Ok(self.answer.clone())]).chain(stream::repeat_with(comment)).boxed();
        let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        async move { Ok(HttpResponse { status: 200, headers, body }) }.boxed()
    }
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn a_server_that_never_stops_talking_after_its_answer_holds_nobody_up() {
    let comments = Arc::default();
    for dialect in ALL {
        let server =
            Chatty { answer: everything(dialect).into_bytes().into(), comments: Arc::clone(&comments) };
        let answer =
            send(&server, &endpoint(dialect), MODEL, attempt(), Bytes::new(), Limits::default()).await;
        let (batches, end) = read(answer.unwrap()).await;
        assert_eq!(merge(batches.concat()), everything_decoded(dialect), "{dialect:?}");
        assert_eq!(end.unwrap().finish, FinishReason::ToolCalls);
    }
    // What is read on beside the answer lets others run, and ends.
    let mut before = 0;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if std::mem::replace(&mut before, comments.load(Ordering::Relaxed)) == before {
            return;
        }
    }
    panic!("it is read on and on");
}

#[tokio::test]
async fn bytes_that_are_no_text_are_refused() {
    for dialect in ALL {
        let (_, end) = run(dialect, Scripted::stream([b"data: \xff\xfe\n\n".to_vec()])).await;
        let error = end.unwrap_err();
        assert_eq!(error.code, ErrorCode::BadAnswer);
        assert!(error.message.contains("UTF-8"), "{error}");
    }
}

#[tokio::test]
async fn a_key_that_the_server_repeats_is_not_repeated_here() {
    let body = format!("event: error\ndata: {{\"error\": {{\"message\": \"the key {KEY} is wrong\"}}}}\n\n");
    for dialect in ALL {
        let (_, end) = run(dialect, Scripted::stream([body.clone()])).await;
        let message = end.unwrap_err().message;
        assert!(message.contains("the key [key] is wrong"), "{message}");
        let (_, end) = run(dialect, Scripted::refusal(401, &[], &format!("wrong: {KEY}"))).await;
        let message = end.unwrap_err().message;
        assert!(message.contains("wrong: [key]"), "{message}");
    }
}

#[tokio::test]
async fn requests_carry_what_each_dialect_wants() {
    for (dialect, url, key) in [
        (DialectKind::Anthropic, "https://api.acme.test/v1/messages", ("x-api-key", KEY.to_owned())),
        (
            DialectKind::OpenaiChat,
            "https://api.acme.test/v1/chat/completions",
            ("authorization", format!("Bearer {KEY}")),
        ),
        (
            DialectKind::OpenaiResponses,
            "https://api.acme.test/v1/responses",
            ("authorization", format!("Bearer {KEY}")),
        ),
        (
            DialectKind::Gemini,
            "https://api.acme.test/v1/models/acme-1:streamGenerateContent?alt=sse",
            ("x-goog-api-key", KEY.to_owned()),
        ),
    ] {
        let server = Scripted::stream([everything(dialect)]);
        ask(dialect, &server).await.unwrap();
        let asked = server.asked.lock().unwrap()[0].clone();
        assert_eq!(asked.url, url);
        let mut expected = vec![
            key,
            ("content-type", "application/json".to_owned()),
            ("accept", "text/event-stream".to_owned()),
            ("x-playhouse-attempt", attempt().to_string()),
        ];
        if dialect == DialectKind::Anthropic {
            expected.push(("anthropic-version", "2023-06-01".to_owned()));
        }
        for (name, value) in expected {
            assert!(asked.headers.contains(&(name.to_owned(), value)), "{name} in {:?}", asked.headers);
        }
    }
}

#[tokio::test]
async fn a_server_that_does_not_begin_to_answer_is_given_up() {
    struct Mute;
    impl playhouse_llm::Transport for Mute {
        fn send(
            &self,
            _: playhouse_llm::HttpRequest,
        ) -> futures::future::BoxFuture<
            'static,
            Result<playhouse_llm::HttpResponse, playhouse_protocol::ErrorInfo>,
        > {
            Box::pin(futures::future::pending())
        }
    }
    let limits = Limits { head: Duration::from_millis(50), ..Limits::default() };
    for dialect in ALL {
        let endpoint = endpoint(dialect);
        let sent = send(&Mute, &endpoint, MODEL, attempt(), Bytes::new(), limits);
        let error = timeout(PATIENCE, sent).await.expect("it is given up").unwrap_err();
        assert_eq!(error.code, ErrorCode::NoAnswer);
        assert!(error.message.contains("within 0.05 s") && error.message.contains("acme"), "{error}");
    }
}
