use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A platform that answers deliveries in this order, each on a connection of its own; the requests that came.
async fn platform(answers: Vec<String>) -> (Webhook, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Url = format!("http://{}/hook?token=hidden", listener.local_addr().unwrap()).parse().unwrap();
    let serve = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            let mut piece = [0; 4096];
            while !request.ends_with(b"}") {
                let read = stream.read(&mut piece).await.unwrap();
                assert!(read > 0, "the request is whole");
                request.extend_from_slice(&piece[..read]);
            }
            requests.push(String::from_utf8(request).unwrap());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        requests
    });
    let door = Door::new(vec!["127.0.0.1".parse().unwrap()]);
    // Registered addresses are https: see `new`.
    (Webhook { url, key: key_bytes(SECRET).unwrap().into(), door }, serve)
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

async fn delivered(webhook: &Webhook) -> Option<CallAnswer> {
    let arguments = json!({"city": "Oslo"});
    webhook
        .send_until_it_arrives(Body {
            r#type: "tool.call",
            session: SessionId::parse("ses_00000000000012345678901234").unwrap(),
            call: PartId::parse("prt_00000000000012345678901234").unwrap(),
            tool: "weather_at",
            arguments: arguments.as_object().unwrap(),
        })
        .await
}

fn header<'a>(request: &'a str, name: &str) -> &'a str {
    let line = request.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("{name} in {request}"))
}

#[tokio::test]
async fn a_delivery_is_signed_and_repeated_with_the_same_id_until_it_arrives() {
    let answers = vec![
        answer("503 Service Unavailable", ""),
        // It broke off: it may have arrived.
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_owned(),
        answer("200 OK", r#"{"output": {"sky": "grey"}}"#),
    ];
    let (webhook, served) = platform(answers).await;
    let given = delivered(&webhook).await;
    assert_eq!(given, Some(CallAnswer::Output { output: r#"{"sky":"grey"}"#.to_owned() }));
    let requests = served.await.unwrap();
    assert_eq!(requests.len(), 3);
    for request in &requests {
        assert!(request.starts_with("POST /hook?token=hidden "), "{request}");
        let (id, seconds) = (header(request, "webhook-id"), header(request, "webhook-timestamp"));
        assert_eq!(id, "prt_00000000000012345678901234");
        let body = request.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(
            serde_json::from_str::<Value>(body).unwrap(),
            json!({"type": "tool.call", "session": "ses_00000000000012345678901234", "call": id,
                   "tool": "weather_at", "arguments": {"city": "Oslo"}})
        );
        let signature = sign(&key_bytes(SECRET).unwrap(), id, seconds.parse().unwrap(), body.as_bytes());
        assert_eq!(header(request, "webhook-signature"), signature);
    }
}

#[tokio::test]
async fn what_a_platform_answers_is_a_result_or_comes_later_or_fails_the_call() {
    let large = "x".repeat(LARGEST_ANSWER + 1);
    for (status, body, wanted) in [
        ("202 Accepted", "", None),
        ("200 OK", r#"{"output": "rain"}"#, Some("rain")),
        ("200 OK", r#"{"output": null}"#, Some("null")),
        ("200 OK", r#"{"error": "no such city"}"#, Some("no such city")),
        ("200 OK", "", Some("neither an output nor an error")),
        ("200 OK", r#"{"output": 1, "error": "x"}"#, Some("neither an output nor an error")),
        ("200 OK", &large, Some("more than 65536 bytes")),
        ("404 Not Found", "", Some("it answered 404")),
        ("302 Found\r\nlocation: https://example.org/", "", Some("leads elsewhere")),
    ] {
        let (webhook, served) = platform(vec![answer(status, body)]).await;
        let given = delivered(&webhook).await;
        match (wanted, &given) {
            (None, None) => {}
            (Some(says), Some(CallAnswer::Output { output: text } | CallAnswer::Error { error: text })) => {
                assert!(text.contains(says), "{status}: {text}");
                assert!(!text.contains("hidden") && !text.contains("127.0.0.1"), "{text}");
            }
            other => panic!("{status}: {other:?}"),
        }
        assert_eq!(served.await.unwrap().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn an_address_is_judged_when_it_is_registered_and_at_each_delivery() {
    let secret = SecretString::from(SECRET);
    let closed = || Door::new(Vec::new());
    for url in ["http://example.org/", "https://127.0.0.1/", "https://[::1]/", "https://10.0.0.1/", "example"]
    {
        assert!(Webhook::new(url, &secret, closed()).is_err(), "{url}");
    }
    let error = Webhook::new("https://example.org/", &"whsec_short".into(), closed()).err().unwrap();
    assert!(error.contains("`webhook.secret`") && !error.contains("short"), "{error}");

    // A public name that leads inside by the time of the call.
    struct Inside;
    impl playhouse_tools::web::Resolver for Inside {
        fn resolve(&self, _: &str) -> BoxFuture<'static, std::io::Result<Vec<std::net::IpAddr>>> {
            std::future::ready(Ok(vec!["127.0.0.1".parse().unwrap()])).boxed()
        }
    }
    let door = Door::with_resolver(Vec::new(), Arc::new(Inside));
    let webhook = Webhook::new("https://hook.example.org/", &secret, door).unwrap();
    let Some(CallAnswer::Error { error }) = delivered(&webhook).await else { panic!("it is refused") };
    assert!(error.contains("may not be reached"), "{error}");
}
