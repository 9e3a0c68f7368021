//! A stream of events, read back into what the engine published.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Buf as _, Bytes, BytesMut};
use futures::{Stream, stream};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use playhouse_actors::Published;
use playhouse_protocol::{Event, Seq, SessionId};
use serde_json::Value;

use super::client::{OperatorClient, OperatorError, gone, told};

/// How often it is tried to go on with a stream that was cut before anything came, and how long is waited between.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// The events of a session, from another process. An engine cuts the stream of who reads nothing for some time, as while a
/// person looks at what a pager holds back: it goes on behind the last durable event that was read, with what is under way
/// as a snapshot.
#[derive(Debug)]
pub struct OperatorEvents {
    client: OperatorClient,
    session: SessionId,
    /// The last durable event that was read.
    after: Seq,
    /// `None` after it was cut.
    body: Option<Incoming>,
    lines: Lines,
    /// How often it was cut since the last event.
    cut: u32,
}

impl OperatorEvents {
    pub(super) fn new(client: OperatorClient, session: SessionId, after: Seq, body: Incoming) -> Self {
        Self { client, session, after, body: Some(body), lines: Lines::default(), cut: 0 }
    }

    /// The next event; `None` when the session was removed or the engine ends in good order. May be dropped and called
    /// again.
    ///
    /// # Errors
    /// The log could not be read, the session is parked, or the engine went away: nothing more will come.
    pub async fn next(&mut self) -> Result<Option<Arc<Published>>, OperatorError> {
        loop {
            while let Some(line) = self.lines.next() {
                if let Some(json) = line.strip_prefix(b"data: ") {
                    let event = event(json)?;
                    self.after = self.after.max(event.id.seq);
                    self.cut = 0;
                    return Ok(Some(Published::new(event)));
                }
            }
            let Some(body) = &mut self.body else {
                if self.cut > 1 {
                    tokio::time::sleep(PAUSE).await;
                }
                self.body = Some(self.client.stream_again(self.session, self.after).await?);
                continue;
            };
            match body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => self.lines.add(frame.into_data().unwrap_or_default()),
                Some(Err(error)) if self.cut >= TRIES => return Err(gone(&error)),
                Some(Err(_)) => {
                    // What came of an event that is not whole comes again.
                    (self.body, self.lines) = (None, Lines::default());
                    self.cut += 1;
                }
            }
        }
    }
}

/// The events of a stream that an engine in this process answered with.
pub(crate) fn read_stream(body: Body) -> impl Stream<Item = Result<Event, OperatorError>> + Send {
    stream::try_unfold((body, Lines::default()), async |(mut body, mut lines)| {
        loop {
            while let Some(line) = lines.next() {
                if let Some(json) = line.strip_prefix(b"data: ") {
                    return Ok(Some((event(json)?, (body, lines))));
                }
            }
            match body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    lines.add(frame.map_err(|error| gone(&error))?.into_data().unwrap_or_default());
                }
            }
        }
    })
}

fn event(json: &[u8]) -> Result<Event, OperatorError> {
    match serde_json::from_slice::<Event>(json) {
        Ok(event) => Ok(event),
        Err(error) => match serde_json::from_slice::<Value>(json) {
            Ok(last) if last["type"] == "stream.failed" => Err(told(&last["data"]).into()),
            _ => Err(OperatorError::Gone(format!(
                "the engine sends what this one does not understand: {error}"
            ))),
        },
    }
}

/// Bytes, line by line. Each is looked at once, however long a line is.
#[derive(Debug, Default)]
struct Lines {
    waiting: BytesMut,
    /// Up to here there is no line break.
    seen: usize,
}

impl Lines {
    fn add(&mut self, bytes: Bytes) {
        self.waiting.extend_from_slice(&bytes);
    }

    /// The next whole line, without its break.
    fn next(&mut self) -> Option<Bytes> {
        let Some(place) = self.waiting[self.seen..].iter().position(|byte| *byte == b'\n') else {
            self.seen = self.waiting.len();
            return None;
        };
        let line = self.waiting.split_to(self.seen + place).freeze();
        self.waiting.advance(1);
        self.seen = 0;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::CommandError;

    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let text = b"retry: 1\nid: 0\n\ndata: {}\n\nrest";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for piece in text.chunks(size) {
                lines.add(Bytes::copy_from_slice(piece));
                found.extend(std::iter::from_fn(|| lines.next()));
            }
            assert_eq!(found, ["retry: 1", "id: 0", "", "data: {}", ""], "{size}");
        }
    }

    #[test]
    fn a_stream_that_failed_says_why() {
        let failed =
            br#"{"type": "stream.failed", "data": {"type": "urn:playhouse:problem:parked", "detail": "no"}}"#;
        assert_eq!(event(failed).unwrap_err(), CommandError::Store("no".into()).into());
        assert!(matches!(event(b"{}").unwrap_err(), OperatorError::Gone(_)));
    }
}
