//! A client of the native API, as anybody would write one.

use std::collections::{HashMap, HashSet, VecDeque};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{Answer, PATIENCE, Served, open};

/// A client of the native API.
#[derive(Clone)]
pub(crate) struct Client {
    address: std::net::SocketAddr,
    /// What it proves who it is with.
    authorization: Option<String>,
}

impl Answer {
    /// The JSON of an answer with this status; null where it has no body.
    pub(crate) fn with(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// What the problem document of this kind says.
    pub(crate) fn refused(self, status: u16, kind: &str) -> String {
        assert_eq!((self.status, self.problem().as_str()), (status, kind), "{}", self.body);
        self.json()["detail"].as_str().unwrap().to_owned()
    }
}

impl Client {
    pub(crate) fn of(served: &Served, key: Option<&str>) -> Self {
        Self { address: served.address, authorization: key.map(|key| format!("Bearer {key}")) }
    }

    async fn open(
        &self,
        stream: TcpStream,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> hyper::Response<Incoming> {
        let mut headers = headers.to_vec();
        headers.extend(self.authorization.as_deref().map(|written| ("authorization", written)));
        open(stream, &self.address.to_string(), method, path, &headers, body).await
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let response = self.open(stream, method, path, headers, body).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let read = tokio::time::timeout(PATIENCE, response.into_body().collect()).await;
        let body = read.expect("it answers").unwrap().to_bytes().to_vec();
        Answer { status, headers, body: String::from_utf8(body).unwrap() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.ask("DELETE", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, &[], &body.to_string()).await
    }

    /// The address of a new session of this model, in the server's first root.
    pub(crate) async fn session(&self, model: &str) -> String {
        self.session_with(json!({"model": format!("mock/{model}")})).await
    }

    /// The address of a new session.
    pub(crate) async fn session_with(&self, body: Value) -> String {
        let made = self.post("/v1/sessions", body).await.with(201);
        format!("/v1/sessions/{}", made["id"].as_str().unwrap())
    }

    /// Sends a prompt; its turn.
    pub(crate) async fn prompt(&self, session: &str, text: &str) -> String {
        let accepted = self.post(&format!("{session}/prompts"), json!({"text": text})).await.with(202);
        accepted["turn"].as_str().unwrap().to_owned()
    }

    /// A stream of events from behind the place `last`. It is open on return.
    pub(crate) async fn events(&self, path: &str, last: Option<&str>) -> Events {
        let stream = TcpStream::connect(self.address).await.unwrap();
        self.events_over(stream, path, last).await
    }

    /// The same, over a connection that takes little at once.
    pub(crate) async fn events_through_a_straw(&self, path: &str) -> Events {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let stream = socket.connect(self.address).await.unwrap();
        self.events_over(stream, path, None).await
    }

    async fn events_over(&self, stream: TcpStream, path: &str, last: Option<&str>) -> Events {
        let headers: Vec<_> = last.map(|last| ("last-event-id", last)).into_iter().collect();
        let response = self.open(stream, "GET", path, &headers, "").await;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut events = Events::of(response.into_body());
        let first = events.block().await.unwrap();
        assert_eq!(first.json, Value::Null, "first comes the place where it begins");
        events
    }
}

impl Client {
    /// The answer to a request with a body of JSON, which streams: its head, and its events.
    pub(crate) async fn stream(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (hyper::http::response::Parts, Events) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (head, body) = self.open(stream, method, path, headers, body).await.into_parts();
        (head, Events::of(body))
    }
}

/// One event of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) id: Option<String>,
    pub(crate) json: Value,
}

/// A stream of events, as they are read.
pub(crate) struct Events {
    body: Incoming,
    read: Vec<u8>,
    blocks: VecDeque<Block>,
    /// The last `id:` line.
    pub(crate) last: String,
}

impl Events {
    pub(crate) fn of(body: Incoming) -> Self {
        Self { body, read: Vec::new(), blocks: VecDeque::new(), last: String::new() }
    }

    async fn block(&mut self) -> Option<Block> {
        loop {
            if let Some(block) = self.blocks.pop_front() {
                self.last = block.id.clone().unwrap_or_else(|| self.last.clone());
                return Some(block);
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("something comes")?;
            self.read.extend_from_slice(&frame.unwrap().into_data().unwrap());
            let mut begin = 0;
            while let Some(length) = self.read[begin..].windows(2).position(|pair| pair == b"\n\n") {
                let text = std::str::from_utf8(&self.read[begin..begin + length]).unwrap();
                self.blocks.push_back(parse(text));
                begin += length + 2;
            }
            self.read.drain(..begin);
        }
    }

    /// Reads the next block, which is no event.
    pub(crate) async fn heartbeat(&mut self) {
        let block = self.block().await.expect("the stream goes on");
        assert_eq!(block.json, Value::Null, "{block:?}");
    }

    /// The next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Block> {
        let next = async {
            loop {
                let block = self.block().await?;
                if block.json != Value::Null {
                    return Some(block);
                }
            }
        };
        tokio::time::timeout(PATIENCE, next).await.expect("an event comes")
    }

    /// Reads up to and including the next event of this type.
    pub(crate) async fn until(&mut self, kind: &str) -> Value {
        loop {
            let block = self.next().await.expect("the stream goes on");
            if block.json["type"] == kind {
                return block.json;
            }
        }
    }
}

fn parse(block: &str) -> Block {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let json = field("data")
        .filter(|data| !data.is_empty())
        .map_or(Value::Null, |data| serde_json::from_str(data).unwrap());
    Block { id: field("id").map(str::to_owned), json }
}

/// What a client knows of a session after the events that it read, and checks on the way.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) durable: Vec<u64>,
    /// Streamed text by part.
    pub(crate) parts: HashMap<String, String>,
    /// Text of finished steps by part.
    pub(crate) finished: HashMap<String, String>,
    /// Parts that were open when the last connection ended, and of which this one has told nothing yet.
    left_open: HashSet<String>,
    pub(crate) deltas: usize,
    pub(crate) snapshots: usize,
    pub(crate) resyncs: usize,
    pub(crate) ended: bool,
}

impl Known {
    /// Reads until a turn is over, or until `enough`.
    pub(crate) async fn read(&mut self, events: &mut Events, enough: impl Fn(&Self) -> bool) {
        self.ended = false;
        while !self.ended && !enough(self) {
            let block = events.next().await.expect("the stream goes on");
            assert_eq!(block.id.as_deref(), block.json["id"].as_str(), "the id is that of the event");
            self.take(&block.json);
        }
    }

    /// Notes that what follows comes by another connection.
    pub(crate) fn comes_back(&mut self) {
        let open = self.parts.keys().filter(|part| !self.finished.contains_key(*part));
        self.left_open = open.cloned().collect();
    }

    /// Takes one event in.
    pub(crate) fn take(&mut self, event: &Value) {
        let data = &event["data"];
        let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str().unwrap() {
            "part.started" => drop(self.parts.insert(text("part"), String::new())),
            "part.snapshot" => {
                self.snapshots += 1;
                self.left_open.remove(&text("part"));
                self.parts.insert(text("part"), text("text"));
            }
            "part.delta" => {
                self.deltas += 1;
                let known = self.parts.get_mut(&text("part")).expect("announced before its first delta");
                assert_eq!(known.len() as u64, data["offset"], "pieces follow each other");
                known.push_str(&text("text"));
            }
            "resync" => {
                self.resyncs += 1;
                self.parts.clear();
            }
            kind => {
                let id = event["id"].as_str().unwrap();
                if id.contains('.') {
                    return;
                }
                let seq: u64 = id.parse().unwrap();
                if let Some(last) = self.durable.last() {
                    assert_eq!(seq, last + 1, "no gap, and nothing twice");
                }
                self.durable.push(seq);
                if kind == "step.finished" {
                    for part in data["parts"].as_array().unwrap() {
                        if part["type"] == "text" {
                            let (id, text) = (part["id"].as_str().unwrap(), part["text"].as_str().unwrap());
                            // It was finished while nobody listened: its end comes with the step.
                            if self.left_open.remove(id) {
                                assert!(text.starts_with(&self.parts[id]), "{id}");
                                self.parts.insert(id.to_owned(), text.to_owned());
                            }
                            self.finished.insert(id.to_owned(), text.to_owned());
                        }
                    }
                }
                self.ended = kind == "turn.ended";
            }
        }
    }

    /// Every part was streamed as it then was in its finished step.
    pub(crate) fn check_parts(&self) {
        assert!(!self.finished.is_empty());
        for (part, text) in &self.finished {
            assert_eq!(self.parts.get(part), Some(text), "{part}");
        }
    }
}
