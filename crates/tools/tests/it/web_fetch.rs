//! `webfetch` against a server of its own.

use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use playhouse_policy::{Action, Policy, Rule};
use playhouse_tools::{Registry, ToolError};
use serde_json::json;

use super::web_server::{Place, Reply, Seen, Server, door};

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// One pixel.
const PNG: &[u8] = b"\x89PNG\x0d\x0a\x1a\x0a\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU\x00\x00\x00\x0aIDATx\xdac\xa8\x07\x00\x00\x81\x00\x80~\x1c)\xc7\x00\x00\x00\x00IEND\xaeB`\x82";

fn site(seen: &Seen) -> Reply {
    match seen.path.as_str() {
        "/page" => Reply::ok(
            "text/html; charset=utf-8",
            "<title>Café</title><nav>menu</nav><h1>Café</h1><p>See <a href='sub/x?y=1'>there</a>.<script>1</script>",
        ),
        "/latin" => Reply::ok("text/html; charset=iso-8859-1", b"<p>caf\xe9"),
        "/json" => Reply::ok("application/json", r#"{"a": "<b>"}"#),
        "/markdown" => Reply::ok("text/markdown", "# Hi *there*"),
        "/untyped" => Reply::new(200, "", "  <!DOCTYPE html><p>a <b>page</b>"),
        "/script" => Reply::ok("text/html", "<script>draw()</script>"),
        "/gzip" => Reply::new(200, "Content-Type: text/plain\nContent-Encoding: gzip", gzip(b"unpacked")),
        "/bomb" => {
            Reply::new(200, "Content-Type: text/plain\nContent-Encoding: gzip", gzip(&vec![b'a'; 50_000_000]))
        }
        "/large" => Reply::ok("text/plain", vec![b'a'; 5_000_001]),
        "/largest" => Reply::ok("text/plain", vec![b'a'; 5_000_000]),
        "/endless" => Reply::raw(
            [b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n".as_slice(), &vec![b'a'; 6_000_000]]
                .concat(),
        ),
        "/pixel.png?x=1" => Reply::ok("image/png", PNG),
        "/picture" => Reply::ok("application/octet-stream", PNG),
        "/paper.pdf" => Reply::ok("application/pdf", include_str!("../../../../tests/fixtures/page.pdf")),
        "/svg" => Reply::ok("image/svg+xml", "<svg><title>t</title></svg>"),
        "/binary" => Reply::ok("application/octet-stream", b"\x7fELF\x00\x01"),
        "/film" => Reply::ok("video/mp4", "...."),
        "/archive" => Reply::ok("application/zip", "PK"),
        "/missing" => {
            Reply::new(404, "Content-Type: text/html", "<nav>x</nav><h1>Not here</h1><p>Ask elsewhere")
        }
        "/down" => Reply::new(503, "Retry-After: 5", ""),
        "/binary-error" => Reply::new(500, "", b"\x00\x01"),
        "/moved" => Reply::to("/page"),
        "/hang" => Reply::hanging(""),
        "/hang-in-body" => {
            Reply::hanging("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 99\r\n\r\nsome")
        }
        path => panic!("{path}"),
    }
}

async fn house() -> (Server, Place) {
    (Server::start(site).await, Place::fetching(door()))
}

#[tokio::test]
async fn a_page_comes_in_the_form_that_was_asked_for() {
    let (server, place) = house().await;
    let url = server.url("/page");
    let markdown = place.call("webfetch", &json!({"url": url})).await.unwrap();
    assert_eq!(markdown.output, format!("# Café\n\nSee [there]({}).", server.url("/sub/x?y=1")));
    assert_eq!(markdown.title, format!("{url} (text/html)"));
    assert_eq!(markdown.metadata["url"], url);
    assert_eq!(markdown.metadata["contentType"], "text/html");
    assert_eq!(markdown.metadata["pageTitle"], "Café");
    let text = place.call("webfetch", &json!({"url": url, "format": "text"})).await.unwrap();
    assert_eq!(text.output, "Café\n\nSee there.");
    let html = place.call("webfetch", &json!({"url": url, "format": "html"})).await.unwrap();
    assert!(html.output.starts_with("<title>Café</title><nav>menu</nav>"), "{}", html.output);
    let accepted: Vec<String> =
        server.seen().iter().map(|seen| seen.header("accept").unwrap().to_owned()).collect();
    assert!(
        accepted[0].starts_with("text/markdown") && accepted[1].starts_with("text/plain"),
        "{accepted:?}"
    );
}

#[tokio::test]
async fn rules_hold_for_where_a_redirect_leads() {
    let other = Server::start(|_| Reply::ok("text/plain", "other")).await;
    let target = other.url("/");
    let server = Server::start(move |seen| match seen.path.as_str() {
        "/away" => Reply::to(&target),
        "/back" => Reply::to("/hidden"),
        "/on" => Reply::to("/end"),
        path => Reply::ok("text/plain", path.as_bytes()),
    })
    .await;
    let rules = |elsewhere| {
        let configuration = [
            Rule::new("webfetch", "*", elsewhere),
            Rule::new("webfetch", &server.url("/*"), Action::Allow),
            Rule::new("webfetch", "*/hidden", Action::Deny),
        ];
        Some(Policy { configuration: configuration.into_iter().collect(), ..Policy::default() })
    };
    for (elsewhere, reason) in [(Action::Ask, "it is another site"), (Action::Deny, "denied by a rule")] {
        let place = Place::fetching_by(door(), rules(elsewhere));
        let error =
            place.call("webfetch", &json!({"url": server.url("/away")})).await.unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains(&other.url("/")), "{error}");
        let error =
            place.call("webfetch", &json!({"url": server.url("/back")})).await.unwrap_err().to_string();
        assert!(error.contains("denied by a rule"), "{error}");
        let found = place.call("webfetch", &json!({"url": server.url("/on")})).await.unwrap();
        assert!(found.output.ends_with("/end"), "{}", found.output);
    }
    assert!(other.paths().is_empty() && !server.paths().contains(&"/hidden".to_owned()));
    let place = Place::fetching_by(door(), rules(Action::Allow));
    let found = place.call("webfetch", &json!({"url": server.url("/away")})).await.unwrap();
    assert!(found.output.ends_with("other"), "{}", found.output);
}

#[tokio::test]
async fn people_agree_to_one_site() {
    // Nothing is said about it, so all of it was agreed to by people.
    let server = Server::start(|seen| match seen.path.as_str() {
        "/on" => Reply::to("/end"),
        path => Reply::ok("text/plain", path.as_bytes()),
    })
    .await;
    let place = Place::fetching_by(door(), Some(Policy::default()));
    let found = place.call("webfetch", &json!({"url": server.url("/on")})).await.unwrap();
    assert!(found.output.ends_with("/end"), "{}", found.output);
}

#[tokio::test]
async fn what_is_no_page_comes_as_it_is() {
    let (server, place) = house().await;
    for (path, expected) in [
        ("/latin", "café"),
        ("/json", r#"{"a": "<b>"}"#),
        ("/markdown", "# Hi *there*"),
        ("/untyped", "a **page**"),
        ("/gzip", "unpacked"),
        ("/svg", "<svg><title>t</title></svg>"),
    ] {
        let found = place.call("webfetch", &json!({"url": server.url(path)})).await.unwrap();
        assert_eq!(found.output, expected, "{path}");
    }
    let script = place.call("webfetch", &json!({"url": server.url("/script")})).await.unwrap();
    assert!(script.output.contains("has no text"), "{}", script.output);
    let moved =
        place.call("webfetch", &json!({"url": server.url("/moved#part"), "format": "text"})).await.unwrap();
    assert_eq!(moved.output, format!("(redirected to {})\n\nCafé\n\nSee there.", server.url("/page")));
}

#[tokio::test]
async fn pictures_and_documents_are_attached() {
    let (server, place) = house().await;
    for (path, mime, filename) in [
        ("/pixel.png?x=1", "image/png", "pixel.png"),
        ("/picture", "image/png", "picture"),
        ("/paper.pdf", "application/pdf", "paper.pdf"),
    ] {
        let found = place.call("webfetch", &json!({"url": server.url(path)})).await.unwrap();
        let [attachment] = found.attachments.as_slice() else { panic!("{path}: {found:?}") };
        assert_eq!((attachment.mime.as_str(), attachment.filename.as_str()), (mime, filename));
        assert!(found.output.ends_with("is attached"), "{}", found.output);
    }
}

#[tokio::test]
async fn what_cannot_be_shown_says_why() {
    let (server, place) = house().await;
    for (path, reasons) in [
        ("/large", &["larger than 5000000 bytes"][..]),
        ("/endless", &["larger than 5000000 bytes"]),
        ("/bomb", &["larger than 5000000 bytes"]),
        ("/binary", &["binary file (6 bytes)"]),
        ("/film", &["is video/mp4"]),
        ("/archive", &["is application/zip", "bash"]),
        ("/missing", &["answers 404 Not Found:\n\nNot here\n\nAsk elsewhere"]),
        ("/down", &["answers 503 Service Unavailable"]),
        ("/binary-error", &["answers 500 Internal Server Error"]),
    ] {
        let error = place.call("webfetch", &json!({"url": server.url(path)})).await.unwrap_err();
        assert!(matches!(error, ToolError::Failed(_)), "{path}: {error:?}");
        for reason in reasons {
            assert!(error.to_string().contains(reason), "{path}: {error}");
        }
    }
    let largest = place.call("webfetch", &json!({"url": server.url("/largest")})).await.unwrap();
    assert_eq!(largest.metadata["bytes"], 5_000_000);
}

#[tokio::test]
async fn a_call_that_is_cancelled_ends() {
    for path in ["/hang", "/hang-in-body"] {
        let (server, place) = house().await;
        let input = json!({"url": server.url(path)});
        let call = place.call("webfetch", &input);
        let cancel = async {
            server.asked.notified().await;
            place.context.cancel.cancel();
        };
        let (result, ()) = tokio::join!(call, cancel);
        assert_eq!(result, Err(ToolError::Cancelled(String::new())), "{path}");
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_is_waited_for_no_longer_than_was_asked() {
    let (server, place) = house().await;
    for path in ["/hang", "/hang-in-body"] {
        let error =
            place.call("webfetch", &json!({"url": server.url(path), "timeout": 1})).await.unwrap_err();
        assert!(error.to_string().ends_with("took longer than 1 s"), "{error}");
    }
}

#[tokio::test]
async fn arguments_that_cannot_be_are_refused_before_anything_is_sent() {
    // As it is without configuration: no server of a test is reached.
    let place = Place::new(Registry::native());
    for input in [
        json!({}),
        json!({"url": ""}),
        json!({"url": "not an address"}),
        json!({"url": "ftp://example.com"}),
        json!({"url": "http://127.0.0.1:1/"}),
        json!({"url": "http://2852039166/latest"}),
        json!({"url": "https://metadata.google.internal/"}),
        json!({"url": "https://name:word@example.com/"}),
        json!({"url": "https://example.com", "timeout": 0}),
        json!({"url": "https://example.com", "timeout": 30000}),
        json!({"url": "https://example.com", "timeout": -1}),
        json!({"url": "https://example.com", "format": "pdf"}),
        json!({"url": ["https://example.com"], "depth": 2}),
    ] {
        let error = place.call("webfetch", &input).await.unwrap_err();
        assert!(matches!(error, ToolError::Invalid(_)), "{input}: {error:?}");
        assert!(!error.to_string().contains("name:word"), "{error}");
    }
}

#[tokio::test]
async fn many_calls_share_one_door() {
    let server = Server::start(|seen| Reply::ok("text/plain", &seen.path)).await;
    let place = Arc::new(Place::fetching(door()));
    let calls = (0..100).map(|number| {
        let (place, url) = (place.clone(), server.url(&format!("/{number}")));
        async move { place.call("webfetch", &json!({"url": url})).await.unwrap().output }
    });
    let outputs = futures::future::join_all(calls).await;
    assert_eq!(outputs, (0..100).map(|number| format!("/{number}")).collect::<Vec<_>>());
}
