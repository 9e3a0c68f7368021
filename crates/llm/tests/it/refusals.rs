//! What becomes of answers whose status is not good.

use playhouse_llm::DialectKind;
use playhouse_protocol::error::ErrorCode;

use crate::support::{ALL, MODEL, Scripted, ask, endpoint};

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
        code: ErrorCode::RateLimited, says: &["acme asks for less traffic (429): too many"] },
    Case { status: 529, headers: &[], body: r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        code: ErrorCode::RateLimited, says: &["Overloaded"] },
    Case { status: 429, headers: &[], body: r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"You exceeded your current quota"}}"#,
        code: ErrorCode::QuotaExceeded, says: &["plan and credit"] },
    Case { status: 400, headers: &[], body: r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
        code: ErrorCode::QuotaExceeded, says: &["plan and credit"] },
    Case { status: 402, headers: &[], body: r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}"#,
        code: ErrorCode::QuotaExceeded, says: &["Insufficient Balance", "plan and credit"] },
    Case { status: 403, headers: &[], body: r#"{"code":"The caller does not have permission","error":"Your team has used all available credits or reached its monthly spending limit."}"#,
        code: ErrorCode::QuotaExceeded, says: &["monthly spending limit"] },
    Case { status: 429, headers: &[], body: r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}"#,
        code: ErrorCode::RateLimited, says: &["check your plan"] },
    Case { status: 429, headers: &[], body: r#"[{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},{"retryDelay":"34s"}]}}]"#,
        code: ErrorCode::QuotaExceeded, says: &["plan and credit"] },
    // The limit of a period that nobody waits for, without a word on when it ends.
    Case { status: 429, headers: &[], body: r#"{"error":{"message":"Monthly usage limit reached","code":429}}"#,
        code: ErrorCode::QuotaExceeded, says: &["Monthly usage limit reached", "plan and credit"] },
    Case { status: 429, headers: &[], body: r#"{"error":{"message":"Rate limit exceeded: free-models-per-day","code":429}}"#,
        code: ErrorCode::QuotaExceeded, says: &["free-models-per-day"] },
    Case { status: 429, headers: &[], body: r#"{"error":{"message":"Rate limit reached on tokens per day (TPD). Please try again in 7m12s"}}"#,
        code: ErrorCode::RateLimited, says: &["7m12s"] },
    Case { status: 400, headers: &[], body: r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}"#,
        code: ErrorCode::Authentication, says: &["API key not valid", "ACME_API_KEY"] },
    Case { status: 413, headers: &[], body: r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
        code: ErrorCode::BadRequest, says: &["request of this size for acme-1 (413)", "attach less"] },
    Case { status: 413, headers: &[("content-type", "text/html")], body: "<html><head><title>413 Request Entity Too Large</title></head></html>",
        code: ErrorCode::BadRequest, says: &["attach less"] },
    Case { status: 400, headers: &[], body: r#"{"error":{"message":"The response was filtered due to the prompt triggering content management policy.","type":null,"param":"prompt","code":"content_filter","status":400}}"#,
        code: ErrorCode::ContentFilter, says: &["filtered the request for acme-1 (400)"] },
    Case { status: 400, headers: &[], body: r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 211000 tokens > 200000 maximum"}}"#,
        code: ErrorCode::ContextOverflow, says: &["211000", "shorter"] },
    Case { status: 400, headers: &[], body: r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}"#,
        code: ErrorCode::ContextOverflow, says: &["8192"] },
    Case { status: 400, headers: &[], body: r#"{"error":{"message":"tools.0: bad schema","type":"invalid_request_error"}}"#,
        code: ErrorCode::BadRequest, says: &["acme refused the request for acme-1 (400): tools.0: bad schema"] },
    Case { status: 422, headers: &[], body: r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#,
        code: ErrorCode::BadRequest, says: &["field required"] },
    Case { status: 400, headers: &[], body: r#"{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}"#,
        code: ErrorCode::ContentFilter, says: &["filtered the request for acme-1 (400)"] },
    Case { status: 403, headers: &[], body: r#"{"code":"forbidden","error":"Content violates usage guidelines."}"#,
        code: ErrorCode::ContentFilter, says: &["usage guidelines"] },
    Case { status: 403, headers: &[], body: r#"{"error":{"message":"Project `p` does not have access to model `acme-1`","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
        code: ErrorCode::UnknownModel, says: &["does not let this key use the model \"acme-1\" (403)", "does not have access"] },
    Case { status: 403, headers: &[], body: r#"{"error":{"message":"You are not allowed to sample from this model","type":"invalid_request_error","code":null}}"#,
        code: ErrorCode::BadRequest, says: &["not allowed to sample"] },
    Case { status: 403, headers: &[], body: r#"{"error":{"message":"Country not supported","type":"request_forbidden","code":"unsupported_country_region_territory"}}"#,
        code: ErrorCode::Authentication, says: &["Country not supported"] },
    Case { status: 404, headers: &[], body: r#"{"error":{"code":404,"message":"models/acme-1 is not found for API version v1beta","status":"NOT_FOUND"}}"#,
        code: ErrorCode::UnknownModel, says: &["models/acme-1 is not found"] },
    Case { status: 404, headers: &[], body: r#"{"message":"no route for /v1beta/models/acme-1:streamGenerateContent"}"#,
        code: ErrorCode::BadRequest, says: &["has nothing at https://api.acme.test/v1/", "base_url"] },
    Case { status: 404, headers: &[("content-type", "text/html")], body: "<html><title>Model railways</title></html>",
        code: ErrorCode::BadRequest, says: &["Model railways", "base_url"] },
    Case { status: 503, headers: &[], body: r#"{"error":{"message":"the pool for this context window is busy"}}"#,
        code: ErrorCode::ProviderUnavailable, says: &["context window"] },
    Case { status: 422, headers: &[], body: r#"{"detail":[{"type":"missing","loc":["body","messages",0,"x"],"msg":"Field required","input":{"system":"the prompt is too long; usage policy"}},{"loc":["body"],"msg":"odd"}]}"#,
        code: ErrorCode::BadRequest, says: &["(422): body.messages.0.x: Field required; body: odd"] },
    Case { status: 422, headers: &[], body: r#"{"detail":[{"input":"the prompt is too long"}]}"#,
        code: ErrorCode::BadRequest, says: &["the request is not valid"] },
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
        for dialect in ALL {
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
        ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT", Some(0)),
        ("retry-after", "some day", None),
        ("retry-after", "1e300", Some(u64::MAX)),
    ] {
        let error =
            ask(DialectKind::Anthropic, &Scripted::refusal(429, &[(name, value)], "")).await.unwrap_err();
        assert_eq!(error.retry_after_ms, expected, "{name}: {value}");
    }
}

#[tokio::test]
async fn a_wait_that_only_the_message_tells_is_kept() {
    let body = r#"{"error":{"message":"Rate limit reached. Please try again in 6s. Visit x","type":"tokens","code":"rate_limit_exceeded"}}"#;
    for (headers, expected) in [(&[][..], 6_000), (&[("retry-after", "9")][..], 9_000)] {
        let error = ask(DialectKind::OpenaiChat, &Scripted::refusal(429, headers, body)).await.unwrap_err();
        assert_eq!((error.code, error.retry_after_ms), (ErrorCode::RateLimited, Some(expected)));
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
    let error = playhouse_llm::send(&server, &endpoint, MODEL, attempt, bytes::Bytes::new(), limits)
        .await
        .unwrap_err();
    assert!(error.message.contains("no key was sent: set ACME_API_KEY"), "{error}");
    let asked = server.asked.lock().unwrap()[0].clone();
    assert!(asked.headers.iter().all(|(name, _)| name != "authorization"));
}

/// Each provider's own words for a conversation that is too long.
#[tokio::test]
async fn a_context_that_is_too_small_is_told_from_other_refusals() {
    for (provider, status, body) in [
        (
            "anthropic",
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 211000 tokens > 200000 maximum"}}"#,
        ),
        (
            "anthropic",
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"}}"#,
        ),
        (
            "openai",
            400,
            r#"{"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}"#,
        ),
        (
            "openai",
            429,
            r#"{"error":{"message":"Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 50000. The input or output tokens must be reduced in order to run successfully.","type":"tokens","code":"rate_limit_exceeded"}}"#,
        ),
        (
            "google",
            400,
            r#"{"error":{"code":400,"message":"The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#,
        ),
        (
            "mistral",
            400,
            r#"{"object":"error","message":"Prompt contains 140000 tokens, too large for model with 131072 maximum context length","type":"invalid_request_error","code":3051}"#,
        ),
        (
            "groq",
            400,
            r#"{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
        ),
        (
            "groq",
            413,
            r#"{"error":{"message":"Request too large for model `llama` in organization `o` on tokens per minute (TPM): Limit 6000, Requested 9000","type":"tokens","code":"rate_limit_exceeded"}}"#,
        ),
        (
            "deepseek",
            400,
            r#"{"error":{"message":"This model's maximum context length is 65536 tokens. However, you requested 70000 tokens.","type":"invalid_request_error"}}"#,
        ),
        (
            "xai",
            400,
            r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}"#,
        ),
        (
            "openrouter",
            400,
            r#"{"error":{"message":"This endpoint's maximum context length is 128000 tokens.","code":400}}"#,
        ),
        (
            "alibaba",
            400,
            r#"{"error":{"code":"invalid_parameter_error","message":"Range of input length should be [1, 129024]","type":"invalid_request_error"}}"#,
        ),
        (
            "vllm",
            400,
            r#"{"object":"error","message":"The decoder prompt (length 9000) is longer than the maximum model length of 8192.","type":"BadRequestError","code":400}"#,
        ),
        ("ollama", 500, r#"{"error":"prompt too long; exceeded max context length by 12 tokens"}"#),
        (
            "llama.cpp",
            400,
            r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}"#,
        ),
        ("lm studio", 400, r#"{"error":"Trying to keep the first 9000 tokens when context the overflows."}"#),
    ] {
        let error = ask(DialectKind::OpenaiChat, &Scripted::refusal(status, &[], body)).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::ContextOverflow, "{provider}: {error}");
        assert!(!error.code.is_retryable());
    }
}

#[tokio::test]
async fn headers_that_are_configured_are_sent_and_never_shown() {
    let server = Scripted::refusal(400, &[], r#"{"error":"header tok-0123456789 is wrong, debug is on"}"#);
    let mut endpoint = endpoint(DialectKind::Anthropic);
    endpoint.headers = vec![
        ("Authorization".into(), "tok-0123456789".into()),
        ("X-Debug".into(), "on".into()),
        ("anthropic-version".into(), "2099-01-01".into()),
    ];
    let send = playhouse_llm::send(
        &server,
        &endpoint,
        MODEL,
        crate::support::attempt(),
        bytes::Bytes::new(),
        playhouse_llm::Limits::default(),
    );
    let error = send.await.unwrap_err();
    assert!(error.message.contains("header [header] is wrong, debug is on"), "{error}");
    let asked = server.asked.lock().unwrap()[0].clone();
    let sent = |name: &str| -> Vec<String> {
        let headers = asked.headers.iter().filter(|(sent, _)| sent == name);
        headers.map(|(_, value)| value.clone()).collect()
    };
    assert_eq!(sent("authorization"), ["tok-0123456789"]);
    assert_eq!(sent("x-debug"), ["on"]);
    assert_eq!(sent("anthropic-version"), ["2099-01-01"], "it stands instead of the dialect's own");
    assert!(!format!("{endpoint:?}").contains("tok-"));
}

/// However it says so.
#[tokio::test]
async fn the_end_of_a_used_up_quota_is_known() {
    const DAY: u64 = 86_400_000;
    for (headers, body) in [
        (&[][..], r#"{"error":{"message":"Monthly usage limit reached. Resets in 16 days","code":429}}"#),
        (
            &[],
            r#"{"error":{"type":"usage_limit_reached","message":"Limit reached","resets_in_seconds":1382400}}"#,
        ),
        (&[], "Weekly limit reached, try again in 16 days"),
        (&[("retry-after", "1382400")], r#"{"error":{"message":"slow down"}}"#),
        // The longer one of two.
        (
            &[("retry-after", "20")],
            r#"{"error":{"message":"usage limit reached: resets in 2 weeks and 2 days"}}"#,
        ),
    ] {
        for dialect in ALL {
            let server = Scripted::refusal(429, headers, body);
            let error = ask(dialect, &server).await.unwrap_err();
            let expected = (ErrorCode::RateLimited, Some(16 * DAY));
            assert_eq!((error.code, error.retry_after_ms), expected, "{dialect:?}: {body}");
        }
    }
}
