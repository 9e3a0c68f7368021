//! An event that all who read it share, serialized once.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use playhouse_protocol::Event;

/// What stands between the place of an event and its JSON in a stream of server-sent events.
const BETWEEN: &[u8] = b"\ndata: ";
/// What stands behind it.
const BEHIND: &[u8] = b"\n\n";

/// An event, with its written form made when it is first wanted.
#[derive(Debug)]
pub struct Published {
    event: Event,
    written: OnceLock<Written>,
}

/// The event as it stands in the stream of its session, and where its JSON begins in that.
#[derive(Debug)]
struct Written {
    frame: Bytes,
    json: usize,
}

impl Published {
    /// An event to be shared.
    pub fn new(event: Event) -> Arc<Self> {
        Arc::new(Self { event, written: OnceLock::new() })
    }

    /// The event.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// The event as one line of JSON, without a line break. Made once for all subscribers.
    pub fn json(&self) -> &[u8] {
        let Written { frame, json } = self.written();
        frame.get(*json..frame.len() - BEHIND.len()).unwrap_or_default()
    }

    /// The event as a server-sent event whose id is its place in the session: `id: 17.3`, then `data: ` with its JSON, then
    /// a blank line. The same bytes for all who ask.
    pub fn frame(&self) -> Bytes {
        self.written().frame.clone()
    }

    fn written(&self) -> &Written {
        self.written.get_or_init(|| {
            ROOM.with_borrow_mut(|room| {
                room.clear();
                room.extend_from_slice(b"id: ");
                self.event.id.write(room);
                room.extend_from_slice(BETWEEN);
                let json = room.len();
                // Plain data: it always has a JSON form.
                if self.event.write_json(room).is_err() {
                    room.truncate(json);
                }
                room.extend_from_slice(BEHIND);
                let frame = Bytes::copy_from_slice(room);
                room.shrink_to(LARGEST_ROOM);
                Written { frame, json }
            })
        })
    }
}

/// What a thread keeps at most of the room below, in bytes.
const LARGEST_ROOM: usize = 64 * 1024;

thread_local! {
    /// Where events are serialized, so that what is kept of each takes no more memory than it needs.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::event::Provisional;
    use playhouse_protocol::{EventBody, IdGenerator, Seq, Timestamp};

    use super::*;

    #[test]
    fn all_who_ask_are_given_the_same_bytes() {
        let now = Timestamp::from_millis(1);
        let body = EventBody::Provisional(Provisional::Resync { after: Seq(1) });
        let session = IdGenerator::new(|_| {}).next(now);
        let event = Event { id: "17.3".parse().unwrap(), generation: 7, session, at: now, body };
        let json = serde_json::to_vec(&event).unwrap();
        let published = Published::new(event);
        assert_eq!(published.json(), json);
        let frame = published.frame();
        assert_eq!(frame, [b"id: 17.3\ndata: ".as_slice(), &json, b"\n\n"].concat());
        assert_eq!(frame.as_ptr(), published.frame().as_ptr());
    }
}
