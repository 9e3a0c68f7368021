//! A server that takes what sinks send, and does to it what servers and networks do.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Numbers that are always the same for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// From 0 to `sides - 1`.
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    OpenMeter,
    Polar,
    Webhook,
    Report,
}

/// The bearer token, and the key of webhooks: 32 bytes of 7.
pub(crate) const TOKEN: &str = "token-of-the-test";
pub(crate) const SIGNING_KEY: &str = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";

impl Kind {
    /// What requests are authorized with.
    pub(crate) const fn key(self) -> &'static str {
        if matches!(self, Self::Webhook) { SIGNING_KEY } else { TOKEN }
    }
}

/// What it does with a request, whatever is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// What a server should do.
    Fair,
    /// The connection breaks before it has read anything.
    Closed,
    /// It takes everything, and the connection breaks before the answer.
    AnswerLost,
    /// It takes everything, and answers with an error.
    ErrorAfter,
    /// It answers with an error and takes everything a moment later, after what comes next.
    Late,
    /// It takes everything, and the answer comes after the client gave up.
    Slow,
    /// It takes nothing and never answers.
    Silent,
    /// It answers with this, and takes nothing.
    Status(u16),
    /// It asks to be left alone for a second.
    Later,
    /// The same for a day.
    MuchLater,
}

/// What it saw.
#[derive(Default)]
pub(crate) struct State {
    /// Bodies by id, each as often as it was taken.
    pub(crate) taken: BTreeMap<String, Vec<Value>>,
    /// Events of turns by id, for Polar.
    pub(crate) turns: BTreeMap<String, Value>,
    /// Ids that are refused.
    pub(crate) bad: BTreeSet<String>,
    /// Entries are refused in which this stands.
    pub(crate) bad_text: Option<String>,
    /// When requests came, and what was done.
    pub(crate) requests: Vec<(Instant, Mood)>,
    /// Headers of the last one.
    pub(crate) headers: HeaderMap,
    /// What is wrong with what was sent, as a test sees it.
    pub(crate) complaints: Vec<String>,
    /// What is done next; then `chance` decides.
    pub(crate) script: Vec<Mood>,
    /// Of ten requests so many go wrong.
    pub(crate) chance: u64,
    /// The most entries of a request.
    pub(crate) largest: usize,
}

/// Runs until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) kind: Kind,
    pub(crate) state: Arc<Mutex<State>>,
    _runtime: Runtime,
}

impl Server {
    pub(crate) fn start(kind: Kind, seed: u64) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let state = Arc::new(Mutex::new(State { largest: usize::MAX, ..State::default() }));
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let dice = Arc::new(Mutex::new(Dice::new(seed)));
        let shared = Arc::clone(&state);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, dice) = (Arc::clone(&shared), Arc::clone(&dice));
                let service =
                    service_fn(move |request| answer(kind, Arc::clone(&state), Arc::clone(&dice), request));
                tokio::spawn(async move {
                    // Errors are what some moods are made of.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { address, kind, state, _runtime: runtime }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap())
    }
}

fn mood(state: &mut State, dice: &mut Dice) -> Mood {
    if !state.script.is_empty() {
        return state.script.remove(0);
    }
    if dice.roll(10) >= state.chance {
        return Mood::Fair;
    }
    let moods = [
        Mood::Closed,
        Mood::AnswerLost,
        Mood::AnswerLost,
        Mood::ErrorAfter,
        Mood::Late,
        Mood::Slow,
        Mood::Status(429),
        Mood::Status(503),
        Mood::Status(500),
        Mood::Status(401),
        Mood::Status(404),
    ];
    moods[dice.roll(moods.len() as u64) as usize]
}

async fn answer(
    kind: Kind,
    state: Arc<Mutex<State>>,
    dice: Arc<Mutex<Dice>>,
    request: Request<Incoming>,
) -> io::Result<Response<Full<Bytes>>> {
    let mood = {
        let mut state = state.lock().unwrap();
        let mood = mood(&mut state, &mut dice.lock().unwrap());
        state.requests.push((Instant::now(), mood));
        state.headers = request.headers().clone();
        mood
    };
    let broken = || io::Error::other("the connection is to break");
    if mood == Mood::Closed {
        return Err(broken());
    }
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return Err(broken()) };
    let body = body.to_bytes();
    if mood == Mood::Silent {
        std::future::pending::<()>().await;
    }
    let take = || state.lock().unwrap().take(kind, head.uri.path(), &head.headers, &body);
    Ok(match mood {
        Mood::Closed | Mood::Silent | Mood::Fair => take(),
        Mood::AnswerLost => {
            take();
            return Err(broken());
        }
        Mood::ErrorAfter => {
            take();
            respond(500, json!({ "error": "after all was taken" }))
        }
        Mood::Slow => {
            take();
            tokio::time::sleep(Duration::from_millis(400)).await;
            return Err(broken());
        }
        Mood::Late => {
            let (path, headers, state) =
                (head.uri.path().to_owned(), head.headers.clone(), Arc::clone(&state));
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                state.lock().unwrap().take(kind, &path, &headers, &body);
            });
            respond(503, json!({ "error": "too busy" }))
        }
        Mood::Later | Mood::MuchLater => {
            let mut response = respond(429, Value::Null);
            let seconds = if mood == Mood::Later { "1" } else { "86400" };
            response.headers_mut().insert("retry-after", seconds.parse().unwrap());
            response
        }
        Mood::Status(status) => respond(status, json!({ "error": format!("not now, {}", kind.key()) })),
    })
}

fn respond(status: u16, body: Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    if status == 429 {
        response.headers_mut().insert("retry-after", "0".parse().unwrap());
    }
    response
}

impl State {
    /// Does what the real one does with a request.
    fn take(&mut self, kind: Kind, path: &str, headers: &HeaderMap, body: &Bytes) -> Response<Full<Bytes>> {
        let parsed: Value = match serde_json::from_slice(body) {
            Ok(parsed) => parsed,
            Err(error) => {
                self.complaints.push(format!("no JSON ({error})"));
                return respond(400, Value::Null);
            }
        };
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let authorized = match kind {
            Kind::Webhook => is_signed(headers, body),
            Kind::OpenMeter | Kind::Polar | Kind::Report => {
                header("authorization") == format!("Bearer {TOKEN}")
            }
        };
        if !authorized {
            self.complaints.push("not authorized".to_owned());
            return respond(401, Value::Null);
        }
        let (expected_path, content_type) = match kind {
            Kind::OpenMeter => ("/api/v1/events", "application/cloudevents-batch+json"),
            Kind::Polar => ("/v1/events/ingest", "application/json"),
            Kind::Webhook | Kind::Report => ("/hook", "application/json"),
        };
        if path != expected_path || header("content-type") != content_type {
            self.complaints.push(format!("{path} with {}", header("content-type")));
            return respond(404, Value::Null);
        }
        let entries: Vec<Value> = match kind {
            Kind::OpenMeter => parsed.as_array().cloned().unwrap_or_default(),
            Kind::Polar => parsed["events"].as_array().cloned().unwrap_or_default(),
            Kind::Webhook => parsed["data"]["rows"].as_array().cloned().unwrap_or_default(),
            Kind::Report => vec![json!({ "key": header("idempotency-key"), "body": parsed })],
        };
        let id_key = match kind {
            Kind::OpenMeter | Kind::Webhook => "id",
            Kind::Polar => "external_id",
            Kind::Report => "key",
        };
        if entries.is_empty() {
            self.complaints.push("an empty batch".to_owned());
        }
        if entries.len() > self.largest {
            return respond(413, json!({ "error": "too large" }));
        }
        let entries: Vec<(String, Value)> = entries
            .into_iter()
            .map(|entry| (entry[id_key].as_str().unwrap_or_default().to_owned(), entry))
            .collect();
        let is_bad =
            |entry: &Value| self.bad_text.as_ref().is_some_and(|bad| entry.to_string().contains(bad));
        if entries.iter().any(|(id, entry)| self.bad.contains(id) || is_bad(entry)) {
            return respond(422, json!({ "detail": [{ "msg": "no such meter", "key": kind.key() }] }));
        }
        match kind {
            Kind::Polar => self.ingest(entries),
            _ => {
                for (id, entry) in entries {
                    self.taken.entry(id).or_default().push(entry);
                }
                respond(204, Value::Null)
            }
        }
    }

    /// Polar skips what it has, refuses children without parents, and fails over new children of a parent that stands in the
    /// same request and is skipped.
    fn ingest(&mut self, entries: Vec<(String, Value)>) -> Response<Full<Bytes>> {
        let in_batch: BTreeSet<&String> = entries.iter().map(|(id, _)| id).collect();
        for (id, entry) in &entries {
            let Some(parent) = entry["parent_id"].as_str().map(str::to_owned) else { continue };
            let has = self.turns.contains_key(&parent);
            if in_batch.contains(&parent) && has && !self.taken.contains_key(id) {
                self.complaints.push("a parent that is there beside a new child".to_owned());
                return respond(500, Value::Null);
            }
            if !has && !in_batch.contains(&parent) {
                self.complaints.push("a child without a parent".to_owned());
                return respond(422, json!({ "detail": [{ "msg": "Parent event not found." }] }));
            }
        }
        let mut inserted = 0;
        let count = entries.len();
        for (id, entry) in entries {
            if entry["parent_id"].is_null() {
                let known = self.turns.entry(id);
                inserted += u64::from(matches!(known, Entry::Vacant(_)));
                if *known.or_insert_with(|| entry.clone()) != entry {
                    self.complaints.push(format!("a turn in two forms: {entry}"));
                }
            } else {
                inserted += u64::from(!self.taken.contains_key(&id));
                self.taken.entry(id).or_default().push(entry);
            }
        }
        respond(200, json!({ "inserted": inserted, "duplicates": count as u64 - inserted }))
    }
}

fn is_signed(headers: &HeaderMap, body: &Bytes) -> bool {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Ok(seconds) = header("webhook-timestamp").parse::<u64>() else { return false };
    let key = [7; 32];
    let expected = playhouse_billing::export::signature::sign(&key, header("webhook-id"), seconds, body);
    header("webhook-signature") == expected && header("webhook-id").starts_with("msg_")
}
