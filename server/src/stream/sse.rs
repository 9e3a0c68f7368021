//! Writes a source of events as server-sent events.
//!
//! Nothing is written ahead: when the connection has room, what waits at the source then is merged and sent. So a client
//! that reads slowly costs nothing but its place in the ring.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;

use super::alarms::{Alarm, Alarms};
use super::awake::Awake;
use super::batch::{Batch, Place};
use crate::app::{Admitted, App};

/// What is written at once at most, about, in bytes: so much may wait in memory for each connection.
const AT_ONCE: usize = 256 * 1024;
/// How soon a client shall come back when its connection ends, in milliseconds.
const COME_BACK: u32 = 1_000;

/// What a source has next.
pub(crate) enum Item {
    /// An event that all its subscribers share.
    Event(Place, std::sync::Arc<playhouse_actors::Published>),
    /// JSON that is made for this stream only, with the place up to which the client has everything then.
    Made(Option<Place>, String),
    /// The same, and nothing comes after it.
    Last(String),
    /// More of a text that is made for this stream only.
    Text(Place, String),
    /// An event of this name with JSON, and nothing comes after it.
    Ended(&'static str, String),
}

/// Where events come from.
pub(crate) trait Source: Send + 'static {
    /// What is next; `None` at the end. May be dropped and called again.
    fn next(&mut self) -> impl Future<Output = Option<Item>> + Send;

    /// What is there already.
    fn try_next(&mut self) -> Option<Item>;

    /// The place up to which everything was given out.
    fn place(&self) -> Place;
}

struct Writer<S, P> {
    source: S,
    alarms: Alarms,
    batch: Batch,
    begun: bool,
    ended: bool,
    /// Held while the stream is open.
    _held: P,
}

/// The answer that streams this source. What is held is dropped with it, and it ends when the token is cancelled.
pub(crate) fn answer<S: Source, P: Send + 'static>(app: &App, source: S, admitted: Admitted<P>) -> Response {
    let Admitted { held, ended: over, reads_all } = admitted;
    let alarms = Alarms::new(over, app.closing().clone(), app.options().heartbeat);
    let batch = Batch::new(reads_all);
    let writer = Writer { source, alarms, batch, begun: false, ended: false, _held: held };
    let chunks = stream::unfold(Box::new(writer), async |mut writer| {
        let chunk = writer.next().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), writer))
    });
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-store"),
        // Proxies that buffer answers would hold events back.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(Awake::new(chunks))).into_response()
}

impl<S: Source, P> Writer<S, P> {
    async fn next(&mut self) -> Option<Bytes> {
        if !self.begun {
            self.begun = true;
            // Whoever loses the connection before the first event comes back to here.
            return Some(Bytes::from(format!("retry: {COME_BACK}\nid: {}\n\n", self.source.place())));
        }
        if self.ended {
            return None;
        }
        if self.alarms.is_over() {
            return None;
        }
        let first = tokio::select! {
            biased;
            first = self.source.next() => first?,
            alarm = self.alarms.ring() => match alarm {
                Alarm::End => return None,
                // The place moves on past what this client does not want to see.
                Alarm::Heartbeat => return Some(Bytes::from(format!(":\nid: {}\n\n", self.source.place()))),
            },
        };
        // It may have waited for long.
        if self.alarms.is_over() {
            return None;
        }
        let batch = &mut self.batch;
        let mut next = Some(first);
        while let Some(item) = next {
            match item {
                Item::Event(place, event) => batch.event(place, event),
                Item::Made(place, json) => batch.made(place, &json),
                Item::Last(json) => {
                    batch.made(None, &json);
                    self.ended = true;
                    break;
                }
                Item::Text(place, text) => batch.text(place, &text),
                Item::Ended(name, json) => {
                    batch.named(name, &json);
                    self.ended = true;
                    break;
                }
            }
            next = if batch.bytes() < AT_ONCE { self.source.try_next() } else { None };
        }
        self.alarms.written();
        Some(batch.finish())
    }
}
