//! The events of a session as one text with tags in it.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use mock_llm::{Cut, Fault, Model, Script, call, text};
use serde_json::json;
use tokio::net::TcpStream;

use crate::client::Client;
use crate::support::{PATIENCE, Served, Site, open};

/// A stream, as it is read.
struct Text {
    body: Incoming,
    read: String,
    /// The last `id:` line.
    last: String,
}

impl Text {
    async fn open(served: &Served, session: &str, last: Option<&str>) -> Self {
        let path = format!("{session}/events?format=tags");
        let headers: Vec<_> = last.map(|last| ("last-event-id", last)).into_iter().collect();
        let stream = TcpStream::connect(served.address).await.unwrap();
        let response = open(stream, &served.address.to_string(), "GET", &path, &headers, "").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), read: String::new(), last: String::new() }
    }

    /// The next piece of the text.
    async fn next(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.piece()).await.expect("more of the text comes")
    }

    async fn piece(&mut self) -> String {
        loop {
            while let Some((block, rest)) = self.read.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.read = rest;
                let fields = |name: &str| {
                    let of = block.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                    of.map(|value| value.strip_prefix(' ').unwrap_or(value)).collect::<Vec<_>>()
                };
                if let Some(id) = fields("id").last() {
                    self.last = (*id).to_owned();
                }
                let data = fields("data");
                if !data.is_empty() {
                    return data.join("\n");
                }
            }
            let frame = self.body.frame().await;
            let bytes = frame.expect("the stream goes on").unwrap().into_data().unwrap();
            self.read.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    /// Reads until the text ends so.
    async fn until(&mut self, end: &str) -> String {
        let mut all = String::new();
        while !all.ends_with(end) {
            all.push_str(&self.next().await);
        }
        all
    }
}

fn script() -> Script {
    let look =
        text("let me\r\nlook").call("bash", json!({"command": "echo '<out>'", "description": "say it"}));
    let cut = text("one two three four\nfive six").fault(Fault::cut(5, Cut::Eof)).fail_first(1);
    Script::new().model("m", Model::new().step(look).step(cut))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_one_text_and_is_gone_on_with_anywhere() {
    let site = Site::new();
    let served = site.serve(script(), |_| {}).await;
    let client = Client::of(&served, None);
    let session = client.session("m").await;
    let mut live = Text::open(&served, &session, None).await;
    client.prompt(&session, "go").await;
    let mut places = vec![(String::new(), "0".to_owned())];
    let mut streamed = String::new();
    while !streamed.ends_with("five six\n") {
        streamed.push_str(&live.next().await);
        places.push((streamed.clone(), live.last.clone()));
    }
    let tag = |status: &str, body: &str| {
        format!(
            "<opencode-tool name=\"bash\" status=\"{status}\" title=\"say it\" toolid=\"ID\">{body}</opencode-tool>\n"
        )
    };
    let id = streamed.split("toolid=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let tags = format!("{}{}", tag("running", ""), tag("completed", "&lt;out&gt;\n")).replace("ID", &id);
    let begin = format!("let me\nlook\n{tags}");
    assert!(streamed.starts_with(&begin), "{streamed}");
    assert!(
        streamed.len() > begin.len() + "one two three four\nfive six\n".len(),
        "some of it was lost: {streamed}"
    );
    // Whoever comes back is given the rest. What was withdrawn is not in the log, so whoever had none of it is not told of it.
    let end = "one two three four\nfive six\n";
    for (given, place) in places {
        let mut back = Text::open(&served, &session, Some(&place)).await;
        let mut whole = given;
        while !whole.ends_with(end) {
            whole.push_str(&back.next().await);
        }
        let middle = whole.strip_prefix(&begin).and_then(|rest| rest.strip_suffix(end));
        let middle = middle.unwrap_or_else(|| panic!("from {place}: {whole}"));
        let lost = middle.strip_suffix('\n').unwrap_or(middle);
        assert!(end.starts_with(lost) && middle.is_empty() == lost.is_empty(), "{middle:?}");
    }
    client.delete(&session).await.with(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_in_the_middle_of_an_answer_is_given_what_stands_there() {
    let site = Site::new();
    let step = text("one two three four five").fault(Fault::stall(5));
    let served = site.serve(Script::new().model("m", Model::new().step(step)), |_| {}).await;
    let client = Client::of(&served, None);
    let session = client.session("m").await;
    let mut early = Text::open(&served, &session, None).await;
    client.prompt(&session, "go").await;
    let first = early.next().await;
    assert!("one two three four five".starts_with(&first), "{first}");
    // The same once more for somebody new, and the rest for somebody who has the first piece.
    let place = early.last.clone();
    assert!(place.ends_with(&format!("+{}", first.len())), "{place}");
    let mut new = Text::open(&served, &session, None).await;
    assert!(new.next().await.starts_with(&first));
    let mut back = Text::open(&served, &session, Some(&place)).await;
    client.post(&format!("{session}/abort"), json!({})).await.with(200);
    let rest = format!("{first}{}", back.until("\n").await);
    assert!("one two three four five".starts_with(rest.trim_end()), "{rest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn places_of_another_kind_are_refused() {
    let site = Site::new();
    let served =
        site.serve(Script::new().model("m", Model::new().step(call("list", json!({})))), |_| {}).await;
    let client = Client::of(&served, None);
    let session = client.session("m").await;
    for (path, header) in [
        (format!("{session}/events?format=tags&after=1.2"), None),
        (format!("{session}/events?format=tags"), Some("1.2")),
        (format!("{session}/events"), Some("1+2")),
        ("/v1/events?format=tags".to_owned(), None),
        (format!("{session}/events?format=text"), None),
    ] {
        let headers: Vec<_> = header.map(|header| ("last-event-id", header)).into_iter().collect();
        client.ask("GET", &path, &headers, "").await.refused(400, "invalid");
    }
}
