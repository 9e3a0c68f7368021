//! A client that follows the events of a session, loses its connection, and comes back with the last id that it saw.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use crate::client::{Lost, ask, begin};
use crate::model::{Counters, Deletion, Failure, Phase, Seen, World, count, text_at};
use crate::plan::Dice;

/// Follows a session to the end of the run, or of the session.
pub(crate) async fn follow(world: Arc<World>, session: String, tenant: usize) {
    let mut dice = world.plan.dice(("follower", &session));
    let is_late = dice.chance(30);
    let mut follower = Follower {
        world: &world,
        session: &session,
        tenant,
        dice,
        is_late,
        place: "0".into(),
        stream: Stream::default(),
    };
    if let Err(failure) = follower.run().await {
        world.fail(failure);
    }
}

/// What is known from the events of one connection.
#[derive(Default)]
struct Stream {
    generation: u64,
    /// The text of each open part so far.
    open: HashMap<String, String>,
}

struct Follower<'a> {
    world: &'a World,
    session: &'a str,
    tenant: usize,
    dice: Dice,
    /// After the last start it comes back only when all turns are over: these went on by themselves.
    is_late: bool,
    /// The last id that was seen.
    place: String,
    stream: Stream,
}

impl Follower<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        let path = format!("/v1/sessions/{}/events", self.session);
        while self.world.phase() < Phase::Over && self.world.failed().is_ok() {
            if self.is_late && self.world.phase() == Phase::Draining && !self.is_quiet().await {
                self.world.rest(Duration::from_millis(300)).await;
                continue;
            }
            let answer = begin(self.world, self.tenant, "GET", &path, Some(&self.place), None).await;
            let wait = match answer {
                Err(Lost) => {
                    count(&self.world.counters.connections);
                    Duration::from_millis(50)
                }
                Ok(answer) if answer.status() == 200 => {
                    let time = self.dice.millis(200, self.world.plan.tempo.connected);
                    if self.read(answer.into_body(), time).await? {
                        return Ok(());
                    }
                    count(&self.world.counters.connections);
                    // Some come back at once, some take their time.
                    let longest = if self.dice.chance(40) { self.world.plan.tempo.away } else { 50 };
                    self.dice.millis(0, longest)
                }
                Ok(answer) if answer.status() == 404 => {
                    return match self.deletion() {
                        Deletion::No => {
                            Err(self.failure("the session is there", "status 404 for its events"))
                        }
                        _ => Ok(()),
                    };
                }
                Ok(answer) if matches!(answer.status().as_u16(), 429 | 500 | 502 | 503) => {
                    Counters::hit(
                        &self.world.counters.refusals,
                        format!("{} of events", answer.status().as_u16()),
                    );
                    Duration::from_millis(200)
                }
                Ok(answer) => {
                    let status = answer.status();
                    let body =
                        answer.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                    let seen = format!("status {status}: {}", String::from_utf8_lossy(&body));
                    return Err(self.failure("its events can be read", seen));
                }
            };
            self.world.rest(wait).await;
        }
        Ok(())
    }

    /// Whether no turn is open, as far as lists say: asking for that wakes nobody.
    async fn is_quiet(&self) -> bool {
        let path = format!("/v1/sessions/{}", self.session);
        let answer = ask(self.world, self.tenant, "GET", &path, None).await;
        answer.is_ok_and(|answer| {
            answer.status == 404 || (answer.status == 200 && answer.body["open_turns"] == 0)
        })
    }

    fn deletion(&self) -> Deletion {
        self.world.told(self.session, |told| told.deletion)
    }

    fn failure(&self, expected: impl Into<String>, seen: impl Into<String>) -> Failure {
        Failure::of(self.session, expected, seen)
    }

    /// Reads for this time, or longer where nothing is done, or, when nothing is killed any more, to the end. Whether the
    /// session is over.
    async fn read(&mut self, mut body: Incoming, time: Duration) -> Result<bool, Failure> {
        self.stream.open.clear();
        let (mut buffer, mut over) = (Vec::new(), false);
        let began = tokio::time::Instant::now();
        loop {
            let left = time.saturating_sub(began.elapsed());
            let draining = self.world.phase() > Phase::Chaos || self.world.is_calm();
            let left = if draining { Duration::from_millis(500) } else { left };
            if left.is_zero() || self.world.phase() == Phase::Over {
                return Ok(over);
            }
            let frame = match tokio::time::timeout(left, body.frame()).await {
                Err(_) if draining => continue,
                Err(_) => return Ok(over),
                // It was lost, or the server ended it.
                Ok(None | Some(Err(_))) => return Ok(over),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            buffer.extend_from_slice(&data);
            while let Some(end) = memchr::memmem::find(&buffer, b"\n\n") {
                let event: Vec<u8> = buffer.drain(..end + 2).collect();
                match self.event(&String::from_utf8_lossy(&event))? {
                    Next::More => {}
                    Next::Again => return Ok(false),
                    Next::Deleted => over = true,
                }
            }
        }
    }

    /// One event as it stands in the stream.
    fn event(&mut self, written: &str) -> Result<Next, Failure> {
        let (mut place, mut data) = (None, None);
        for line in written.lines() {
            match line.split_once(": ") {
                Some(("id", id)) => place = Some(id.to_owned()),
                Some(("data", json)) => data = Some(json),
                _ => {}
            }
        }
        let Some(data) = data else {
            self.place = place.unwrap_or_else(|| self.place.clone());
            return Ok(Next::More);
        };
        let event: Value = serde_json::from_str(data)
            .map_err(|error| self.failure("an event is JSON", format!("{error}: {data}")))?;
        let kind = text_at(&event, "/type").to_owned();
        if kind == "stream.failed" {
            return Ok(Next::Again);
        }
        let place = place.ok_or_else(|| self.failure("an event has an id", data))?;
        let generation = event["generation"].as_u64().unwrap_or_default();
        if generation < self.stream.generation {
            let expected = format!("the generation does not go back from {}", self.stream.generation);
            return Err(self.failure(expected, data));
        }
        if generation > self.stream.generation {
            self.stream.generation = generation;
            self.stream.open.clear();
        }
        if kind == "resync" {
            let after = event["data"]["after"].as_u64().unwrap_or_default();
            let seen = self.world.told(self.session, |told| told.seen.len() as u64);
            if after != seen {
                return Err(
                    self.failure(format!("resync goes on after {seen}, the last event that was seen"), data)
                );
            }
            self.place = after.to_string();
            return Ok(Next::Again);
        }
        self.world.told(self.session, |told| told.show(data));
        if place.contains('.') {
            self.provisional(&kind, &event["data"], data)?;
        } else {
            self.durable(&place, &kind, &event["data"], data)?;
        }
        self.place = place;
        Ok(if kind == "session.deleted" { Next::Deleted } else { Next::More })
    }

    /// Each record comes once, in order.
    fn durable(&mut self, place: &str, kind: &str, data: &Value, written: &str) -> Result<(), Failure> {
        count(&self.world.counters.events);
        let seen = Seen { kind: kind.to_owned(), hash: hash(kind, data) };
        let before = self.world.told(self.session, |told| {
            told.seen.push(seen);
            told.seen.len() as u64
        });
        if place.parse() != Ok(before) {
            let expected = format!("the next durable event of this client is {before}");
            return Err(self.failure(expected, written));
        }
        match kind {
            "step.finished" => {
                for part in data["parts"].as_array().into_iter().flatten() {
                    let streamed = self.stream.open.get(text_at(part, "/id"));
                    let text = part["text"].as_str();
                    if let (Some(streamed), Some(text)) = (streamed, text)
                        && streamed != text
                    {
                        let expected = format!("the finished part is what was streamed: {streamed:?}");
                        return Err(self.failure(expected, written));
                    }
                }
                self.stream.open.clear();
            }
            "attempt.ended" if text_at(data, "/outcome/status") != "finished" => self.stream.open.clear(),
            _ => {}
        }
        Ok(())
    }

    /// Parts are announced, and grow without gaps.
    fn provisional(&mut self, kind: &str, data: &Value, written: &str) -> Result<(), Failure> {
        let part = text_at(data, "/part");
        let text = text_at(data, "/text");
        match kind {
            "part.started" => drop(self.stream.open.insert(part.to_owned(), String::new())),
            "part.snapshot" => drop(self.stream.open.insert(part.to_owned(), text.to_owned())),
            "part.delta" => {
                let offset = usize::try_from(data["offset"].as_u64().unwrap_or_default()).unwrap();
                let Some(known) = self.stream.open.get_mut(part) else {
                    return Err(self.failure("a part is announced before its first piece", written));
                };
                if offset != known.len() {
                    let expected = format!("the next piece of the part begins at {}", known.len());
                    return Err(Failure::of(self.session, expected, written));
                }
                known.push_str(text);
            }
            _ => {}
        }
        Ok(())
    }
}

enum Next {
    More,
    /// Come back with the last place.
    Again,
    Deleted,
}

/// Tells data of events and of records apart. Clients are told less of errors than stands in the log.
pub(crate) fn hash(kind: &str, data: &Value) -> u64 {
    let is_told_less = matches!(kind, "attempt.ended" | "step.finished" | "turn.ended");
    if is_told_less && (data.get("error").is_some() || data.pointer("/outcome/error").is_some()) {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    data.to_string().hash(&mut hasher);
    hasher.finish()
}
