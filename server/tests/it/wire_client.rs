//! A client of the wire, as anybody would write one. Whatever it is told is checked against the wire's own description.

use std::collections::{BTreeMap, VecDeque};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::support::{Answer, PATIENCE, Served, open};
use crate::wire_schema::Description;

/// A client of the wire.
pub(crate) struct Wire {
    address: std::net::SocketAddr,
    /// What it proves who it is with.
    authorization: Option<String>,
    description: Description,
}

impl Wire {
    pub(crate) fn of(served: &Served, key: Option<&str>) -> Self {
        let authorization = key.map(|key| format!("Bearer {key}"));
        Self { address: served.address, authorization, description: Description::get() }
    }

    async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> hyper::Response<Incoming> {
        let mut headers = headers.to_vec();
        headers.extend(self.authorization.as_deref().map(|written| ("authorization", written)));
        let stream = TcpStream::connect(self.address).await.unwrap();
        open(stream, &self.address.to_string(), method, path, &headers, body).await
    }

    /// Asks; the answer fits the description, unless it is one that the original never gives.
    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let is_note = body.contains("\"noReply\":true");
        let response = self.open(method, path, headers, body).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let read = tokio::time::timeout(PATIENCE, response.into_body().collect()).await;
        let body = String::from_utf8(read.expect("it answers").unwrap().to_bytes().to_vec()).unwrap();
        let description = &self.description;
        if matches!(status, 200 | 204 | 400 | 404 | 409) {
            let template = description.template(path).unwrap_or_else(|| panic!("{path} is not of the wire"));
            // The original does not say of all operations how they fail.
            let known = status < 400 || description.knows(method, template, status);
            if is_note && status == 200 {
                // A real server answers it with the prompt, and its description has forgotten that.
                let answer: Value = serde_json::from_str(&body).unwrap();
                description.component("UserMessage", &answer["info"]).unwrap();
            } else if known {
                description.response(method, template, status, body.as_bytes()).unwrap();
            }
        }
        Answer { status, headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.ask("GET", path, &[], "").await.with(200)
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        self.ask("POST", path, &[], &body.to_string()).await.with(200)
    }

    /// A new session of this model and agent; its id.
    pub(crate) async fn session(&self, model: &str, agent: &str) -> String {
        let body = json!({"agent": agent, "model": {"providerID": "mock", "id": model}});
        self.post("/session", body).await["id"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt and does not wait for its end.
    pub(crate) async fn prompt(&self, session: &str, text: &str) {
        let body = json!({"parts": [{"type": "text", "text": text}]}).to_string();
        let path = format!("/session/{session}/prompt_async");
        assert_eq!(self.ask("POST", &path, &[], &body).await.status, 204);
    }

    /// A stream of events, from behind the place `last` on. It is open on return.
    pub(crate) async fn events(&self, path: &str, last: Option<&str>) -> WireEvents<'_> {
        let headers: Vec<_> = last.map(|last| ("last-event-id", last)).into_iter().collect();
        let response = self.open("GET", path, &headers, "").await;
        assert_eq!(response.status(), 200, "{path}");
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache, no-transform"),
            ("x-accel-buffering", "no"),
        ] {
            assert_eq!(response.headers()[name], value);
        }
        let mut events = WireEvents {
            body: response.into_body(),
            read: Vec::new(),
            waiting: VecDeque::new(),
            last: String::new(),
            description: &self.description,
        };
        assert_eq!(events.next().await.unwrap()["type"], "server.connected", "it comes first");
        events
    }
}

/// A stream of events, as they are read.
pub(crate) struct WireEvents<'a> {
    body: Incoming,
    read: Vec<u8>,
    waiting: VecDeque<(String, Value)>,
    /// The last `id:` line.
    pub(crate) last: String,
    description: &'a Description,
}

impl WireEvents<'_> {
    /// What comes next, with its wrapper where there is one; `None` at the end.
    pub(crate) async fn raw(&mut self) -> Option<Value> {
        loop {
            if let Some((id, event)) = self.waiting.pop_front() {
                self.last = id;
                return Some(event);
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("something comes")?;
            self.read.extend_from_slice(&frame.unwrap().into_data().unwrap());
            while let Some(length) = self.read.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.read.drain(..length + 2).collect();
                let block = std::str::from_utf8(&block).unwrap();
                let (id, data) = block.trim_end().split_once('\n').unwrap();
                let json = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                self.waiting.push_back((id.strip_prefix("id: ").unwrap().to_owned(), json));
            }
        }
    }

    /// The next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let raw = self.raw().await?;
        let event = if raw["payload"].is_object() { raw["payload"].clone() } else { raw };
        self.description.event(&event).unwrap();
        Some(event)
    }

    /// Reads up to and including the next event of this type; its properties.
    pub(crate) async fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next().await.expect("the stream goes on");
            if event["type"] == kind {
                return event["properties"].clone();
            }
        }
    }

    /// Reads up to the end of what a session does; all events of it.
    pub(crate) async fn turn(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await.expect("the stream goes on");
            let end = event["type"] == "session.idle";
            events.push(event);
            if end {
                return events;
            }
        }
    }
}

/// What a client knows of messages and parts after the events that it read.
#[derive(Default)]
pub(crate) struct Board {
    pub(crate) messages: BTreeMap<String, Value>,
    pub(crate) parts: BTreeMap<String, Value>,
}

impl Board {
    /// Takes an event in, as the terminal client does.
    pub(crate) fn take(&mut self, event: &Value) {
        let of = &event["properties"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        match event["type"].as_str().unwrap() {
            "message.updated" => drop(self.messages.insert(text(&of["info"]["id"]), of["info"].clone())),
            "message.removed" => drop(self.messages.remove(of["messageID"].as_str().unwrap())),
            "message.part.updated" => drop(self.parts.insert(text(&of["part"]["id"]), of["part"].clone())),
            "message.part.removed" => drop(self.parts.remove(of["partID"].as_str().unwrap())),
            "message.part.delta" => {
                let part = self.parts.get_mut(of["partID"].as_str().unwrap()).expect("it was announced");
                assert_eq!(of["field"], "text");
                part["text"] = json!(format!("{}{}", text(&part["text"]), text(&of["delta"])));
            }
            _ => {}
        }
    }

    /// The messages as they are listed, when text of the parts was begun left out.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let parts = |message: &str| {
            let of = self.parts.values().filter(|part| part["messageID"] == message);
            of.cloned().map(plain).collect::<Vec<_>>()
        };
        let mut messages: Vec<&Value> = self.messages.values().collect();
        messages.sort_by_key(|info| (info["time"]["created"].as_u64(), info["id"].as_str().unwrap()));
        let with = messages
            .into_iter()
            .map(|info| json!({"info": info, "parts": parts(info["id"].as_str().unwrap())}));
        with.collect()
    }
}

/// A part without when it was streamed, which is not in the log.
pub(crate) fn plain(mut part: Value) -> Value {
    if matches!(part["type"].as_str(), Some("text" | "reasoning")) {
        part.as_object_mut().unwrap().remove("time");
    }
    part
}
