//! A client's place in a feed, and the stream that it reads.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::stream;

use super::Feed;
use super::ring::{DELTA_END, Found, Made};
use crate::app::Admitted;
use crate::limits::Permit;
use crate::roots::Roots;
use crate::stream::alarms::{Alarm, Alarms};
use crate::stream::awake::Awake;
use crate::stream::many::ManyPlace;
use crate::wire::asked::Asked;
use crate::wire::ids;
use crate::wire::place::Place;
use crate::wire::shapes::{Envelope, WireEvent};

/// What is written at once at most, about, in bytes.
const AT_ONCE: usize = 256 * 1024;

/// A client that reads a feed.
pub(crate) struct Reader {
    feed: Arc<Feed>,
    /// Only events of this directory; of all, each in a wrapper, where there is none.
    directory: Option<Arc<str>>,
    /// Only events of directories in them, where there are any.
    roots: Option<Arc<Roots>>,
    /// Position of the next event.
    position: u64,
    /// It was somewhere of which nothing is left.
    lost: bool,
    begun: bool,
    /// Events that are no session's, so far.
    own: u32,
    alarms: Alarms,
    /// Held while the stream is open.
    _held: Permit,
}

impl Reader {
    /// Reads from behind the place `after` on, as a client that comes back says it, or from now on.
    pub(crate) fn new(
        asked: &Asked,
        feed: Arc<Feed>,
        directory: Option<Arc<str>>,
        after: Option<&str>,
        admitted: Admitted<Permit>,
    ) -> Self {
        let (app, principal) = (&asked.app, &asked.principal);
        let next = feed.ring.next();
        let known = after.map(|after| after.parse::<ManyPlace>().ok());
        let (position, lost) = match known {
            None => (next, false),
            Some(Some(place)) if place.generation == feed.ring.generation() && place.position < next => {
                (place.position + 1, false)
            }
            Some(_) => (next, true),
        };
        let alarms = Alarms::new(admitted.ended, app.closing().clone(), app.options().heartbeat);
        Self {
            feed,
            directory,
            roots: principal.key.as_ref().map(|_| app.roots_of(principal)),
            position,
            lost,
            begun: false,
            own: 0,
            alarms,
            _held: admitted.held,
        }
    }

    /// The answer that streams it.
    pub(crate) fn answer(self) -> Response {
        let chunks = stream::unfold(Box::new(self), async |mut reader| {
            let chunk = reader.next().await?;
            Some((Ok::<_, std::convert::Infallible>(chunk), reader))
        });
        let headers = [
            (CONTENT_TYPE, "text/event-stream"),
            (CACHE_CONTROL, "no-cache, no-transform"),
            (HeaderName::from_static("x-accel-buffering"), "no"),
        ];
        (headers, Body::from_stream(Awake::new(chunks))).into_response()
    }

    async fn next(&mut self) -> Option<Bytes> {
        if !self.begun {
            self.begun = true;
            let mut out = Vec::new();
            self.own(&mut out, WireEvent::Connected {});
            if self.lost {
                let directory = self.directory.clone().unwrap_or_else(|| "global".into());
                self.disposed(&mut out, &directory);
            }
            return Some(out.into());
        }
        loop {
            if self.alarms.is_over() {
                return None;
            }
            let wanted = |directory: &str| match &self.directory {
                Some(wanted) => **wanted == *directory,
                None => self.roots.as_ref().is_none_or(|roots| roots.hold(Path::new(directory))),
            };
            match self.feed.ring.read(self.position, wanted, AT_ONCE) {
                Found::Events(events, next) => {
                    self.position = next;
                    return Some(self.merged(events));
                }
                Found::Behind(changed, next) => {
                    self.position = next;
                    if changed.is_empty() {
                        continue;
                    }
                    let mut out = Vec::new();
                    changed.iter().for_each(|directory| self.disposed(&mut out, directory));
                    return Some(out.into());
                }
                Found::Nothing(next) => self.position = next,
                Found::Closed => return None,
            }
            tokio::select! {
                biased;
                alarm = self.alarms.ring() => match alarm {
                    Alarm::End => return None,
                    Alarm::Heartbeat => {
                        let mut out = Vec::new();
                        self.own(&mut out, WireEvent::Heartbeat {});
                        return Some(out.into());
                    }
                },
                () = self.feed.ring.changed(self.position) => {}
            }
        }
    }

    /// An event that is no session's.
    fn own(&mut self, out: &mut Vec<u8>, event: WireEvent) {
        self.own = self.own.wrapping_add(1);
        let id = ids::event(self.feed.ring.generation(), self.position, self.own);
        // Plain data: it always has a JSON form.
        let json = serde_json::to_vec(&Envelope { id, event }).unwrap_or_default();
        self.head(out, self.position - 1, None);
        out.extend_from_slice(&json);
        self.tail(out);
    }

    /// Says that what a client knows of a directory is out of date.
    fn disposed(&mut self, out: &mut Vec<u8>, directory: &str) {
        self.own(out, WireEvent::Disposed { directory: directory.to_owned() });
    }

    /// Events that wait, the deltas of a part in a row as one.
    fn merged(&self, events: Vec<Made>) -> Bytes {
        if let ([made], Some(_)) = (&*events, &self.directory) {
            // All readers of the directory share it.
            return made.frame.clone();
        }
        let mut out = Vec::with_capacity(events.iter().map(|made| made.frame.len() + 64).sum());
        let mut events = events.into_iter().peekable();
        while let Some(made) = events.next() {
            let Some((part, _)) = made.delta else {
                self.head(&mut out, made.position, Some(&made.place));
                out.extend_from_slice(made.json());
                self.tail(&mut out);
                continue;
            };
            let mut last = made.position;
            let mut more: Vec<(Made, usize)> = Vec::new();
            let is_more = |next: &Made| next.delta.is_some_and(|(of, _)| of == part);
            while let Some(next) = events.next_if(is_more) {
                last = next.position;
                more.extend(next.delta.map(|(_, from)| (next, from)));
            }
            self.head(&mut out, last, Some(&made.place));
            let first = made.json();
            let end = first.len() - DELTA_END;
            out.extend_from_slice(&first[..end]);
            for (made, from) in &more {
                let json = made.json();
                out.extend_from_slice(&json[*from..json.len() - DELTA_END]);
            }
            out.extend_from_slice(&first[end..]);
            self.tail(&mut out);
        }
        out.into()
    }

    /// What comes before an event: its place, and in the stream of all directories which one it is of.
    fn head(&self, out: &mut Vec<u8>, position: u64, place: Option<&Place>) {
        let mut text = format!("id: {}-{position}\ndata: ", self.feed.ring.generation());
        if self.directory.is_none() {
            // Writing to memory does not fail.
            let _ = match place {
                Some(place) => write!(
                    text,
                    "{{\"directory\":{},\"project\":\"{}\",\"payload\":",
                    serde_json::Value::from(&*place.directory),
                    place.project
                ),
                None => write!(text, "{{\"payload\":"),
            };
        }
        out.extend_from_slice(text.as_bytes());
    }

    fn tail(&self, out: &mut Vec<u8>) {
        let end: &[u8] = if self.directory.is_none() { b"}\n\n" } else { b"\n\n" };
        out.extend_from_slice(end);
    }
}
