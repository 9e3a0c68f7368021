//! Events that wait to be written together: all deltas of a part become one.
//!
//! Every other event is passed on as it is, in the form that all subscribers share. Merging changes no order that
//! matters: deltas of other parts may stand between those that are merged, but nothing else, and what is merged takes
//! the place (and the id) of its last piece, so that ids ascend.

use std::fmt;
use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use playhouse_actors::Published;
use playhouse_protocol::event::Provisional;
use playhouse_protocol::id::PartId;
use playhouse_protocol::{Event, EventBody, EventId, SessionId};
use playhouse_session::tags::TagPlace;

use crate::discreet;

/// The place of an event in its stream, as its `id:` line says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the events of one session: `17`, or `17.3`.
    Session(EventId),
    /// In the events of many: the engine's generation and a position, as in `5-17`.
    Many(u64, u64),
    /// In the events of all tenants: the same behind an `a`, as in `a5-17`.
    All(u64, u64),
    /// In the stream of tags of one session: `17`, or `17+40`.
    Tags(TagPlace),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(id) => id.fmt(f),
            Self::Tags(place) => place.fmt(f),
            Self::Many(generation, position) => write!(f, "{generation}-{position}"),
            Self::All(generation, position) => write!(f, "a{generation}-{position}"),
        }
    }
}

/// More than what is written around an event: its id, the names of fields and line breaks.
const FRAME: usize = 64;

/// Whose text a delta is more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Part(SessionId, PartId),
    Output(SessionId, PartId),
}

/// Deltas of one part, as far as nothing but deltas of others stands between them.
struct Run {
    target: Target,
    place: Place,
    /// The first of them, or, once there are more, the last.
    event: Arc<Published>,
    /// Where the next one begins.
    end: u64,
    /// The text of all, once there is more than one, and where it begins.
    merged: Option<(u64, String)>,
}

/// Events that are written together.
#[derive(Default)]
pub(crate) struct Batch {
    /// Whether errors are told as tenants may know them.
    is_discreet: bool,
    out: Vec<u8>,
    /// Not written yet, by rising place.
    runs: Vec<Run>,
    /// Text that is not written yet, and the place behind it.
    text: Option<(Place, String)>,
    /// About how long `out` will be.
    bytes: usize,
}

impl Batch {
    /// An empty one, for somebody who reads errors as they came, or for a tenant.
    pub(crate) fn new(reads_all: bool) -> Self {
        Self { is_discreet: !reads_all, ..Self::default() }
    }

    /// About how many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is to be sent. It is empty afterwards, and can be filled again.
    pub(crate) fn finish(&mut self) -> Bytes {
        if let Some(frame) = self.only_one() {
            self.runs.clear();
            self.bytes = 0;
            return frame;
        }
        self.flush();
        self.bytes = 0;
        Bytes::from(std::mem::take(&mut self.out))
    }

    /// What all subscribers share, where a piece that came alone is everything.
    fn only_one(&self) -> Option<Bytes> {
        let [run] = &*self.runs else { return None };
        let is_all = self.out.is_empty() && self.text.is_none() && run.merged.is_none();
        (is_all && run.place == Place::Session(run.event.event().id)).then(|| run.event.frame())
    }

    /// Adds an event.
    pub(crate) fn event(&mut self, place: Place, event: Arc<Published>) {
        let Some((target, offset, text)) = delta(event.event()) else {
            self.flush();
            let told = if self.is_discreet { discreet::event(event.event()) } else { None };
            // Plain data: it always has a JSON form.
            let told = told.map(|event| serde_json::to_vec(&event).unwrap_or_default());
            let json = told.as_deref().unwrap_or_else(|| event.json());
            self.bytes += json.len();
            self.write(Some(place), json);
            return;
        };
        self.bytes += text.len();
        let end = offset + text.len() as u64;
        let known = self.runs.iter().position(|run| run.target == target);
        match known {
            Some(index) if self.runs[index].end == offset => {
                let mut run = self.runs.remove(index);
                let (_, merged) = run.merged.get_or_insert_with(|| {
                    let (_, offset, text) = delta(run.event.event()).unwrap_or((target, offset, ""));
                    (offset, text.to_owned())
                });
                merged.push_str(text);
                self.runs.push(Run { place, end, event, ..run });
                return;
            }
            // It does not go on where the last one ended.
            Some(_) => self.flush(),
            None => {}
        }
        self.runs.push(Run { target, place, event, end, merged: None });
    }

    /// Adds something that is made for this stream only.
    pub(crate) fn made(&mut self, place: Option<Place>, json: &str) {
        self.flush();
        self.bytes += json.len();
        self.write(place, json.as_bytes());
    }

    /// Adds more of a text. All that waits of it is one event.
    pub(crate) fn text(&mut self, place: Place, text: &str) {
        self.bytes += text.len();
        let (last, all) = self.text.get_or_insert_with(|| (place, String::new()));
        *last = place;
        all.push_str(text);
    }

    /// Adds an event with a name.
    pub(crate) fn named(&mut self, name: &str, json: &str) {
        self.flush();
        // Writing to memory does not fail.
        let _ = writeln!(self.out, "event: {name}");
        self.write(None, json.as_bytes());
    }

    fn flush(&mut self) {
        if let Some((place, text)) = self.text.take() {
            // A carriage return would end a line of the answer, and has no other form in it.
            let text = text.replace('\r', "");
            let lines = text.split('\n').collect::<Vec<_>>().join("\ndata: ");
            self.write(Some(place), lines.as_bytes());
        }
        // Taken out while they are written, and put back for their room.
        let mut runs = std::mem::take(&mut self.runs);
        for run in runs.drain(..) {
            let Some((offset, text)) = run.merged else {
                self.write(Some(run.place), run.event.json());
                continue;
            };
            let body = match run.target {
                Target::Part(_, part) => Provisional::PartDelta { part, offset, text },
                Target::Output(_, call) => Provisional::CallOutput { call, offset, text },
            };
            let last = run.event.event();
            let (id, generation, session, at) = (last.id, last.generation, last.session, last.at);
            let event = Event { id, generation, session, at, body: EventBody::Provisional(body) };
            self.head(Some(run.place), 0);
            // Plain data: it always has a JSON form.
            let _ = event.write_json(&mut self.out);
            self.out.extend_from_slice(b"\n\n");
        }
        self.runs = runs;
    }

    fn write(&mut self, place: Option<Place>, json: &[u8]) {
        self.head(place, json.len());
        self.out.extend_from_slice(json);
        self.out.extend_from_slice(b"\n\n");
    }

    /// What stands before so many bytes of an event.
    fn head(&mut self, place: Option<Place>, length: usize) {
        self.out.reserve(length + FRAME);
        if let Some(place) = place {
            self.out.extend_from_slice(b"id: ");
            match place {
                Place::Session(id) => id.write(&mut self.out),
                // Writing to memory does not fail.
                place => drop(write!(self.out, "{place}")),
            }
            self.out.push(b'\n');
        }
        self.out.extend_from_slice(b"data: ");
    }
}

fn delta(event: &Event) -> Option<(Target, u64, &str)> {
    match &event.body {
        EventBody::Provisional(Provisional::PartDelta { part, offset, text }) => {
            Some((Target::Part(event.session, *part), *offset, text))
        }
        EventBody::Provisional(Provisional::CallOutput { call, offset, text }) => {
            Some((Target::Output(event.session, *call), *offset, text))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::{IdGenerator, Record, Seq, Timestamp};

    use super::*;

    struct Script {
        session: SessionId,
        parts: Vec<PartId>,
        last: EventId,
    }

    impl Script {
        fn new() -> Self {
            let mut ids = IdGenerator::new(|_| {});
            let now = Timestamp::from_millis(1);
            Self {
                session: ids.next(now),
                parts: (0..3).map(|_| ids.next(now)).collect(),
                last: EventId::durable(Seq(4)),
            }
        }

        fn publish(&mut self, body: EventBody) -> (Place, Arc<Published>) {
            match body {
                EventBody::Durable(_) => self.last = EventId::durable(Seq(self.last.seq.0 + 1)),
                EventBody::Provisional(_) => self.last.provisional += 1,
            }
            let (id, at) = (self.last, Timestamp::from_millis(1));
            let event = Event { id, generation: 2, session: self.session, at, body };
            (Place::Session(id), Published::new(event))
        }

        fn delta(&mut self, part: usize, offset: u64, text: &str) -> (Place, Arc<Published>) {
            let (part, text) = (self.parts[part], text.to_owned());
            self.publish(EventBody::Provisional(Provisional::PartDelta { part, offset, text }))
        }

        fn record(&mut self) -> (Place, Arc<Published>) {
            self.publish(EventBody::Durable(Arc::new(Record::Deleted {})))
        }
    }

    /// The ids and the events that a client reads.
    fn read(mut batch: Batch) -> Vec<(String, Event)> {
        let bytes = batch.finish();
        let text = std::str::from_utf8(&bytes).unwrap();
        text.split_terminator("\n\n")
            .map(|block| {
                let (id, data) = block.split_once('\n').unwrap();
                let json = data.strip_prefix("data: ").unwrap();
                (id.strip_prefix("id: ").unwrap().to_owned(), serde_json::from_str(json).unwrap())
            })
            .collect()
    }

    fn texts(events: &[(String, Event)]) -> Vec<(String, u64, String)> {
        let of = |(id, event): &(String, Event)| {
            assert_eq!(*id, event.id.to_string());
            match delta(event) {
                Some((_, offset, text)) => (id.clone(), offset, text.to_owned()),
                None => (id.clone(), 0, "record".to_owned()),
            }
        };
        events.iter().map(of).collect()
    }

    #[test]
    fn all_waiting_deltas_of_a_part_are_one_event() {
        let mut script = Script::new();
        let mut batch = Batch::default();
        for (part, offset, text) in
            [(0, 5, "né"), (1, 0, "other "), (0, 8, "w\n"), (1, 6, "part"), (0, 10, "!"), (2, 0, "alone")]
        {
            let (place, event) = script.delta(part, offset, text);
            batch.event(place, event);
        }
        let expected = [("4.4", 0, "other part"), ("4.5", 5, "néw\n!"), ("4.6", 0, "alone")];
        assert_eq!(texts(&read(batch)), expected.map(|(id, at, text)| (id.into(), at, text.into())));
    }

    #[test]
    fn nothing_is_merged_over_anything_else_or_over_a_gap() {
        let mut script = Script::new();
        let mut batch = Batch::default();
        let events = [
            script.delta(0, 0, "a"),
            script.delta(1, 0, "x"),
            script.record(),
            script.delta(0, 1, "b"),
            script.delta(1, 1, "y"),
            script.delta(0, 7, "c"),
        ];
        for (place, event) in events {
            batch.event(place, event);
        }
        let expected = [
            ("4.1", 0, "a"),
            ("4.2", 0, "x"),
            ("5", 0, "record"),
            ("5.1", 1, "b"),
            ("5.2", 1, "y"),
            ("5.3", 7, "c"),
        ];
        assert_eq!(texts(&read(batch)), expected.map(|(id, at, text)| (id.into(), at, text.into())));
    }

    #[test]
    fn a_piece_alone_is_the_same_bytes_for_all_who_read_its_session() {
        let mut script = Script::new();
        let (place, event) = script.delta(0, 0, "alone");
        let written = |place| {
            let mut batch = Batch::new(false);
            batch.event(place, Arc::clone(&event));
            let bytes = batch.finish();
            assert_eq!((batch.bytes(), batch.finish().len()), (0, 0), "it can be filled again");
            bytes
        };
        let (one, other, many) = (written(place), written(place), written(Place::Many(2, 9)));
        assert_eq!(one.as_ptr(), other.as_ptr());
        let json = serde_json::to_string(event.event()).unwrap();
        assert_eq!(one, format!("id: 4.1\ndata: {json}\n\n"));
        assert_eq!(many, format!("id: 2-9\ndata: {json}\n\n"));
    }

    #[test]
    fn text_is_one_event_of_many_lines() {
        let mut batch = Batch::default();
        let place = |text| Place::Tags(TagPlace { seq: playhouse_protocol::Seq(17), text });
        batch.text(place(4), "one\r\n");
        batch.text(place(9), "\ntwo\n");
        batch.named("stream.failed", "{}");
        let expected = "id: 17+9\ndata: one\ndata: \ndata: two\ndata: \n\nevent: stream.failed\ndata: {}\n\n";
        assert_eq!(batch.finish(), expected);
    }

    #[test]
    fn what_is_made_here_may_have_no_id() {
        let mut batch = Batch::default();
        batch.made(Some(Place::Many(5, 17)), "{}");
        batch.made(None, "[]");
        assert_eq!(batch.finish(), "id: 5-17\ndata: {}\n\ndata: []\n\n");
    }
}
