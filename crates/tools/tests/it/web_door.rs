//! The door: what is reached, by name, by number and by redirect.

use std::net::IpAddr;

use playhouse_tools::web::{Door, DoorError, Method, Request, Share, Url};

use super::web_server::{Reply, Server, door, named};

fn get(url: &str) -> Request {
    Request::get(Url::parse(url).unwrap())
}

async fn error(door: &Door, url: &str) -> DoorError {
    match door.send(get(url)).await {
        Ok(answer) => panic!("{url} answers {}", answer.status),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused_and_nothing_is_connected_to() {
    let server = Server::start(|_| Reply::ok("text/plain", "secret")).await;
    let port = server.address.port();
    // The door has nothing allowed: the server's address is as forbidden as any.
    let inside =
        ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "fd00::1"];
    for address in inside {
        let address: IpAddr = address.parse().unwrap();
        let resolver =
            super::web_server::Names { asked: Default::default(), answer: move |_: &str, _| vec![address] };
        let door = Door::with_resolver(Vec::new(), std::sync::Arc::new(resolver));
        let error = error(&door, &format!("http://inside.example:{port}/")).await;
        assert!(matches!(error, DoorError::Refused { .. }), "{address}: {error}");
        assert!(error.to_string().contains("inside.example resolves to"), "{error}");
    }
    let closed = Door::new(Vec::new());
    for host in
        ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]"]
    {
        let error = error(&closed, &format!("http://{host}:{port}/")).await;
        assert!(matches!(error, DoorError::Refused { .. }), "{host}: {error}");
    }
    assert_eq!(server.paths(), Vec::<String>::new());
}

#[tokio::test]
async fn a_name_that_changes_its_mind_is_checked_each_time_and_resolved_once() {
    let server = Server::start(|_| Reply::ok("text/plain", "hello")).await;
    let url = format!("http://rebind.example:{}/", server.address.port());
    let (door, asked) = named(|_, before| {
        let address = if before == 0 { "127.0.0.1" } else { "169.254.169.254" };
        vec![address.parse().unwrap()]
    });
    let answer = door.send(get(&url)).await.unwrap();
    assert_eq!(answer.body(100).await.unwrap(), b"hello");
    // What was checked is what was connected to: nothing asked a second time in between.
    assert_eq!(asked.lock().unwrap().len(), 1);
    let error = error(&door, &url).await;
    assert!(error.to_string().contains("169.254.169.254"), "{error}");
    assert_eq!((asked.lock().unwrap().len(), server.paths().len()), (2, 1));
}

#[tokio::test]
async fn of_a_mixed_answer_only_what_is_allowed_is_connected_to() {
    let server = Server::start(|_| Reply::ok("text/plain", "hello")).await;
    let (door, _) = named(|_, _| vec!["127.0.0.2".parse().unwrap(), "127.0.0.1".parse().unwrap()]);
    let url = format!("http://mixed.example:{}/", server.address.port());
    assert_eq!(door.send(get(&url)).await.unwrap().status, 200);
    let (door, _) = named(|_, _| Vec::new());
    let error = error(&door, &url).await;
    assert!(matches!(error, DoorError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn each_hop_is_checked() {
    let server = Server::start(|seen| match seen.path.strip_prefix("/to?") {
        Some(target) => Reply::to(target),
        None => Reply::ok("text/plain", "arrived"),
    })
    .await;
    let (door, _) = named(|_, _| vec!["192.168.0.1".parse().unwrap()]);
    for target in [
        "http://127.0.0.2/",
        "http://10.0.0.1/",
        "//169.254.169.254/latest/meta-data",
        "http://0x7f000002/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "https://inside.example/",
        "http://metadata.google.internal/",
        "http://localhost.:1/x/../y",
    ] {
        let error = error(&door, &server.url(&format!("/to?{target}"))).await;
        let refused = matches!(error, DoorError::Refused { .. });
        // The name is one of those that this door's 127.0.0.1 lets through; nobody listens there.
        assert!(refused || target.contains("localhost"), "{target}: {error}");
    }
    for target in
        ["file:///etc/passwd", "ftp://example.com/", "data:text/plain,x", "http://a:b@127.0.0.1/", "http://"]
    {
        let error = error(&door, &server.url(&format!("/to?{target}"))).await;
        assert!(matches!(error, DoorError::Address { .. } | DoorError::Redirect { .. }), "{target}: {error}");
        assert!(!error.to_string().contains("a:b"), "{error}");
    }
    let answer = door.send(get(&server.url("/to?/x"))).await.unwrap();
    assert_eq!((answer.url.path(), answer.status), ("/x", 200));
    assert!(server.paths().iter().all(|path| path.starts_with("/to?") || path == "/x"));
}

#[tokio::test]
async fn there_are_five_redirects_and_no_more() {
    let server = Server::start(|seen| {
        let left: u32 = seen.path[1..].parse().unwrap();
        if left == 0 { Reply::ok("text/plain", "arrived") } else { Reply::to(&format!("/{}", left - 1)) }
    })
    .await;
    assert_eq!(door().send(get(&server.url("/5"))).await.unwrap().url.path(), "/0");
    let error = error(&door(), &server.url("/6")).await;
    assert!(error.to_string().contains("5 redirects"), "{error}");
    let around = Server::start(|_| Reply::to("/again")).await;
    assert!(matches!(super::web_door::error(&door(), &around.url("/")).await, DoorError::Redirect { .. }));
    assert_eq!(around.paths().len(), 6);
}

#[tokio::test]
async fn what_was_meant_for_one_server_does_not_reach_the_next() {
    let other = Server::start(|_| Reply::ok("text/plain", "other")).await;
    let target = other.url("/");
    let first = Server::start(move |_| Reply::to(&target)).await;
    let mut request = get(&first.url("/?secret=1"));
    for (name, value) in [("x-key", "hunter2"), ("accept", "text/plain")] {
        request.headers.insert(name, value.parse().unwrap());
    }
    door().send(request).await.unwrap();
    assert_eq!(first.seen()[0].header("x-key"), Some("hunter2"));
    let seen = &other.seen()[0];
    assert_eq!((seen.header("x-key"), seen.header("referer"), seen.header("cookie")), (None, None, None));
    assert_eq!(seen.header("accept"), Some("text/plain"));
    assert_eq!(seen.header("accept-encoding"), Some("gzip"));
    assert!(seen.header("user-agent").unwrap().contains("playhouse/"));
}

fn post(url: &str) -> Request {
    Request { method: Method::POST, body: Some("x".into()), share: Share::Exchange, ..get(url) }
}

#[tokio::test]
async fn a_post_is_not_sent_elsewhere() {
    let other = Server::start(|_| Reply::ok("text/plain", "other")).await;
    let target = other.url("/");
    let server = Server::start(move |seen| match seen.path.as_str() {
        "/found" => Reply::to("/here"),
        "/kept" => Reply::new(307, "Location: /here", ""),
        "/away" => Reply::new(308, &format!("Location: {target}"), ""),
        _ => Reply::ok("text/plain", &seen.body),
    })
    .await;
    let unfollowed = Request { follow: false, ..post(&server.url("/kept")) };
    for request in [post(&server.url("/found")), post(&server.url("/away")), unfollowed] {
        let error = door().send(request).await.unwrap_err();
        assert!(matches!(error, DoorError::Redirect { .. }), "{error}");
    }
    assert!(other.paths().is_empty());
    assert_eq!(server.paths(), ["/found", "/away", "/kept"]);
    // Within the origin it is the same request.
    let answer = door().send(post(&server.url("/kept"))).await.unwrap();
    assert_eq!(answer.body(100).await.unwrap(), b"x");
    let delete = Request { method: Method::DELETE, ..get(&server.url("/here")) };
    assert_eq!(door().send(delete).await.unwrap().status, 200);
    assert!(server.seen().last().unwrap().head.starts_with("delete /here "));
}

#[tokio::test]
async fn streams_that_stay_open_hold_up_nothing_else() {
    let stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    let server = Server::start(move |seen| match seen.path.as_str() {
        "/stream" => Reply::hanging(stream),
        _ => Reply::ok("text/plain", "hello"),
    })
    .await;
    let door = door();
    let mut open = Vec::new();
    for share in [Share::Stream, Share::Exchange] {
        for _ in 0..70 {
            let request = Request { share, ..get(&server.url("/stream")) };
            open.push(door.send(request).await.unwrap());
        }
    }
    assert_eq!(door.send(get(&server.url("/"))).await.unwrap().status, 200);
}

#[tokio::test]
async fn addresses_that_are_none_are_told() {
    let door = door();
    for url in
        ["ftp://example.com/", "http://user@example.com/", "https://:pw@example.com/", "file:///etc/passwd"]
    {
        let error = error(&door, url).await;
        assert!(matches!(error, DoorError::Address { .. }), "{url}: {error}");
    }
    let long = format!("http://example.com/{}", "x".repeat(9000));
    let error = error(&door, &long).await.to_string();
    assert!(error.contains("longer than") && error.len() < 1000, "{error}");
}

#[tokio::test]
async fn what_is_broken_is_told() {
    let server = Server::start(|seen| match seen.path.as_str() {
        "/garbage" => Reply::raw("what?\r\n\r\n"),
        "/nothing" => Reply::raw(""),
        "/cut" => Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"),
        "/br" => Reply::new(200, "Content-Type: text/html\nContent-Encoding: br", "xxxx"),
        "/bad-gzip" => Reply::new(200, "Content-Encoding: gzip", "this is no gzip"),
        _ => Reply::new(302, "", "no location"),
    })
    .await;
    for path in ["/garbage", "/nothing"] {
        let error = error(&door(), &server.url(path)).await;
        assert!(matches!(error, DoorError::Unreachable { .. }), "{path}: {error}");
    }
    let error = error(&door(), &server.url("/br")).await;
    assert!(matches!(error, DoorError::Encoded { .. }), "{error}");
    for path in ["/cut", "/bad-gzip"] {
        let answer = door().send(get(&server.url(path))).await.unwrap();
        assert!(matches!(answer.body(1000).await, Err(DoorError::Unreachable { .. })), "{path}");
    }
    assert_eq!(door().send(get(&server.url("/"))).await.unwrap().status, 302);
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = super::web_door::error(&door(), &format!("http://{gone}/")).await;
    assert!(matches!(error, DoorError::Unreachable { .. }), "{error}");
}
