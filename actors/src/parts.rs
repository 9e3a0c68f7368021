//! Parts of the engine by themselves, for the benches that guard them. Nothing else needs them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use playhouse_protocol::event::OpenPartKind;
use playhouse_protocol::{IdGenerator, PartId, Seq, SessionId, Timestamp};

use crate::events::hub::{Hub, Listener, Owner};
use crate::events::ring::{Join, Next, Ring};

/// Bytes that the ring and the hub keep.
const LIMIT: usize = 1 << 20;

/// A session's ring that the hub reads, with one subscriber and a part that streams.
#[derive(Debug)]
pub struct RingPart {
    ring: Ring,
    /// Reads what the hub is given.
    watching: Listener,
    part: PartId,
    /// The subscriber.
    join: Join,
}

impl Default for RingPart {
    fn default() -> Self {
        let mut ids = IdGenerator::new(|bytes| bytes.fill(7));
        let now = Timestamp::from_millis(1_800_000_000_000);
        let session: SessionId = ids.next(now);
        let (ring, hub) = (Ring::new(session, 1, LIMIT, Seq(4)), Hub::new(1, LIMIT));
        let owner = Owner { tenant: Arc::from("bench"), workspace: Arc::from("/") };
        ring.report_to(|| hub.outlet(session, owner));
        let (step, attempt, part) = (ids.next(now), ids.next(now), ids.next(now));
        ring.write(|writer| writer.begin(step, attempt, part, OpenPartKind::Text));
        let join = ring.join();
        let watching = hub.listen(&Arc::from("bench"), None, |_| true);
        Self { ring, watching, part, join }
    }
}

impl RingPart {
    /// Writes a piece of text as one read of the network brings it, reads it as a subscriber does, and gives the bytes of
    /// the server-sent event that all subscribers share.
    pub fn piece(&mut self, text: &str) -> usize {
        self.ring.write(|writer| writer.delta(self.part, text.to_owned()));
        drop(self.watching.try_next());
        match self.ring.at(self.join.position) {
            Next::Event(event) => {
                self.join.position += 1;
                self.join.reader.store(self.join.position, Ordering::Relaxed);
                event.frame().len()
            }
            Next::Wait | Next::Behind | Next::Closed(_) => 0,
        }
    }
}
