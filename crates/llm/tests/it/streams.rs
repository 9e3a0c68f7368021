//! What goes wrong with a stream as such, in any dialect.

use std::time::Duration;

use bytes::Bytes;
use playhouse_llm::{DialectKind, Limits, send};
use playhouse_protocol::error::ErrorCode;
use playhouse_protocol::message::FinishReason;

use crate::support::{ALL, KEY, MODEL, Scripted, Then, ask, attempt, endpoint, everything, read, run};

#[tokio::test]
async fn a_stream_cut_anywhere_before_its_end_is_never_an_answer() {
    for dialect in ALL {
        let stream = everything(dialect);
        let marker = match dialect {
            DialectKind::Anthropic => "event: message_stop",
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

#[tokio::test(start_paused = true)]
async fn silence_ends_a_stream() {
    for dialect in ALL {
        let mut server = Scripted::stream([": waiting\n\n"]);
        server.then = Then::Hang;
        let (_, end) = read(ask(dialect, &server).await.unwrap()).await;
        let error = end.unwrap_err();
        assert_eq!(error.code, ErrorCode::StreamCut);
        assert_eq!(error.message, "acme: nothing came for 30 s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_complete_answer_does_not_wait_for_the_end_of_the_body() {
    for dialect in ALL {
        let mut server = Scripted::stream([everything(dialect)]);
        server.then = Then::Hang;
        let (_, end) = read(ask(dialect, &server).await.unwrap()).await;
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
    for (body, code, quoted) in [
        (
            r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#,
            ErrorCode::RateLimited,
            "slow down",
        ),
        (r#"{"error":"what"}"#, ErrorCode::BadAnswer, "what"),
        (r#"{"choices":[{"message":{}}]}"#, ErrorCode::BadAnswer, "\"choices\""),
    ] {
        for dialect in ALL {
            let (_, end) = run(dialect, Scripted::refusal(200, &json, body)).await;
            let error = end.unwrap_err();
            assert_eq!((error.code, error.status), (code, Some(200)));
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

#[tokio::test(start_paused = true)]
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
    let limits = Limits { head: Duration::from_secs(5), ..Limits::default() };
    let error = send(&Mute, &endpoint(DialectKind::Anthropic), MODEL, attempt(), Bytes::new(), limits)
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::Connection);
    assert!(error.message.contains("within 5 s") && error.message.contains("acme"), "{error}");
}
