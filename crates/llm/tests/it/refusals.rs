//! What becomes of answers whose status is not good.

use playhouse_llm::DialectKind;
use playhouse_protocol::error::ErrorCode;

use crate::support::{Scripted, ask, endpoint};

struct Case {
    status: u16,
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
    code: ErrorCode,
    /// What the message must hold.
    says: &'static [&'static str],
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { status: 401, headers: &[], body: r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
        code: ErrorCode::Authentication, says: &["acme refused the key (401)", "invalid x-api-key", "ACME_API_KEY"] },
    Case { status: 403, headers: &[], body: "", code: ErrorCode::Authentication, says: &["no more was said", "ACME_API_KEY"] },
    Case { status: 404, headers: &[], body: r#"{"type":"error","error":{"type":"not_found_error","message":"model: acme-1"}}"#,
        code: ErrorCode::UnknownModel, says: &["does not know the model \"acme-1\" (404)"] },
    Case { status: 404, headers: &[], body: "404 page not found",
        code: ErrorCode::BadRequest, says: &["https://api.acme.test/v1/", "404 page not found", "base_url", "\"acme-1\""] },
    Case { status: 400, headers: &[], body: r#"{"error":{"code":"model_not_found","message":"no such"}}"#,
        code: ErrorCode::UnknownModel, says: &["\"acme-1\""] },
    Case { status: 429, headers: &[("retry-after", "7")], body: r#"{"error":{"type":"rate_limit_error","message":"too many"}}"#,
        code: ErrorCode::RateLimited, says: &["too many", "try again in 7 s"] },
    Case { status: 529, headers: &[], body: r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        code: ErrorCode::RateLimited, says: &["Overloaded"] },
    Case { status: 429, headers: &[], body: r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"You exceeded your current quota"}}"#,
        code: ErrorCode::BadRequest, says: &["plan and credit"] },
    Case { status: 400, headers: &[], body: r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
        code: ErrorCode::BadRequest, says: &["plan and credit"] },
    Case { status: 400, headers: &[], body: r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 211000 tokens > 200000 maximum"}}"#,
        code: ErrorCode::ContextOverflow, says: &["211000", "shorter"] },
    Case { status: 400, headers: &[], body: r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}"#,
        code: ErrorCode::ContextOverflow, says: &["8192"] },
    Case { status: 400, headers: &[], body: r#"{"error":{"message":"tools.0: bad schema","type":"invalid_request_error"}}"#,
        code: ErrorCode::BadRequest, says: &["acme refused the request (400): tools.0: bad schema"] },
    Case { status: 422, headers: &[], body: r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#,
        code: ErrorCode::BadRequest, says: &["field required"] },
    Case { status: 500, headers: &[], body: r#"{"error":"it broke"}"#, code: ErrorCode::ProviderUnavailable, says: &["it broke"] },
    Case { status: 502, headers: &[("content-type", "text/html")], body: "<html>\r\n<head><title>502 Bad Gateway</title></head><body>long</body></html>",
        code: ErrorCode::ProviderUnavailable, says: &["an HTML page titled \"502 Bad Gateway\""] },
    Case { status: 503, headers: &[("retry-after-ms", "1500.5")], body: "", code: ErrorCode::ProviderUnavailable, says: &["acme failed (503)"] },
    Case { status: 302, headers: &[("location", "https://login.test/?token=secret")], body: "",
        code: ErrorCode::BadRequest, says: &["redirects https://api.acme.test/v1/", "to https://login.test/ (302)"] },
    Case { status: 599, headers: &[], body: "\u{0}\u{1}odd\n\n\tbody", code: ErrorCode::ProviderUnavailable, says: &["odd body"] },
];

#[tokio::test]
async fn every_refusal_is_typed_and_says_what_to_do() {
    for Case { status, headers, body, code, says } in CASES {
        for dialect in [DialectKind::Anthropic, DialectKind::OpenaiChat] {
            let error = ask(dialect, &Scripted::refusal(*status, headers, body)).await.unwrap_err();
            assert_eq!((error.code, error.status), (*code, Some(*status)), "{error}");
            for said in *says {
                assert!(error.message.contains(said), "\"{said}\" in \"{error}\"");
            }
            assert!(!error.message.contains("secret"), "{error}");
        }
    }
}

#[tokio::test]
async fn the_wait_that_a_server_asks_for_is_kept() {
    for (name, value, expected) in [
        ("retry-after", "7", Some(7000)),
        ("retry-after", "0.25", Some(250)),
        ("retry-after-ms", "1500.5", Some(1501)),
        ("retry-after", "-1", None),
        ("retry-after", "NaN", None),
        ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("retry-after", "1e300", Some(u64::MAX)),
    ] {
        let error =
            ask(DialectKind::Anthropic, &Scripted::refusal(429, &[(name, value)], "")).await.unwrap_err();
        assert_eq!(error.retry_after_ms, expected, "{name}: {value}");
    }
}

#[tokio::test]
async fn a_huge_refusal_is_capped() {
    for body in ["x ".repeat(1 << 20), format!(r#"{{"error":{{"message":"{}"}}}}"#, "é".repeat(20_000))] {
        let error = ask(DialectKind::OpenaiChat, &Scripted::refusal(400, &[], &body)).await.unwrap_err();
        assert!(error.message.chars().count() < 600, "{} characters", error.message.chars().count());
    }
}

#[tokio::test]
async fn advice_about_a_key_that_was_not_sent_names_the_variable() {
    let server = Scripted::refusal(401, &[], "");
    let mut endpoint = endpoint(DialectKind::OpenaiChat);
    endpoint.key = None;
    let limits = playhouse_llm::Limits::default();
    let attempt = crate::support::attempt();
    let error =
        playhouse_llm::send(&server, &endpoint, attempt, bytes::Bytes::new(), limits).await.unwrap_err();
    assert!(error.message.contains("no key was sent: set ACME_API_KEY"), "{error}");
    let asked = server.asked.lock().unwrap()[0].clone();
    assert!(asked.headers.iter().all(|(name, _)| name != "authorization"));
}
