use playhouse_protocol::id::{AttemptId, MessageId, PartId};
use playhouse_protocol::{EventId, SessionId, Timestamp};
use serde_json::{Value, json};

use super::*;

fn id(prefix: &str, number: u64) -> String {
    format!("{prefix}_{number:012x}Tags1234567890")
}

/// Events as a session makes them.
#[derive(Default)]
struct Script {
    events: Vec<Event>,
    seq: u64,
    pieces: u64,
}

impl Script {
    fn push(&mut self, body: EventBody) {
        let id = EventId { seq: Seq(self.seq), provisional: self.pieces };
        let session = SessionId::parse("ses_000000000001Tags1234567890").unwrap();
        self.events.push(Event { id, generation: 1, session, at: Timestamp::from_millis(1), body });
    }

    fn record(&mut self, kind: &str, data: Value) {
        (self.seq, self.pieces) = (self.seq + 1, 0);
        let record: Record = serde_json::from_value(json!({"type": kind, "data": data})).unwrap();
        self.push(EventBody::Durable(std::sync::Arc::new(record)));
    }

    fn piece(&mut self, piece: Provisional) {
        self.pieces += 1;
        self.push(EventBody::Provisional(piece));
    }

    fn attempt(&mut self, number: u64) {
        self.record(
            "attempt.started",
            json!({"attempt": id("att", number), "turn": id("msg", 1), "step": id("msg", 2), "step_number": 1,
                "attempt_number": number, "agent": "a", "model": "mock/m", "estimated_input": 1}),
        );
    }

    /// A part that streams, in pieces of two bytes.
    fn streamed(&mut self, number: u64, text: &str) {
        let part = PartId::parse(&id("prt", number)).unwrap();
        let (step, attempt) =
            (MessageId::parse(&id("msg", 2)).unwrap(), AttemptId::parse(&id("att", 1)).unwrap());
        self.piece(Provisional::PartStarted { step, attempt, part, kind: OpenPartKind::Text });
        for (index, piece) in text.as_bytes().chunks(2).enumerate() {
            let text = String::from_utf8(piece.to_vec()).unwrap();
            self.piece(Provisional::PartDelta { part, offset: 2 * index as u64, text });
        }
    }

    fn finished(&mut self, texts: &[(u64, &str)]) {
        let parts: Vec<Value> = texts
            .iter()
            .map(|(number, text)| json!({"type": "text", "id": id("prt", *number), "text": text}))
            .collect();
        let tokens = serde_json::to_value(playhouse_protocol::Tokens::default()).unwrap();
        self.record(
            "step.finished",
            json!({"step": id("msg", 2), "parts": parts, "finish": "stop", "tokens": tokens}),
        );
    }

    fn call(&mut self, number: u64) {
        self.record(
            "call.proposed",
            json!({"call": id("prt", number), "step": id("msg", 2), "call_id": "c", "tool": "bash", "input": {"object": {"command": "ls"}}}),
        );
    }

    fn call_runs(&mut self, number: u64) {
        self.record(
            "call.intended",
            json!({"call": id("prt", number), "effect": "none", "recovery": "rerun"}),
        );
        self.record(
            "call.settled",
            json!({"call": id("prt", number), "result": {"outcome": "done", "title": "ls", "output": "out",
                "started": 1, "ended": 2}}),
        );
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = |event: &Event| match &event.body {
            EventBody::Durable(record) => {
                Some(Entry { seq: event.id.seq, at: event.at, record: Record::clone(record) })
            }
            EventBody::Provisional(_) => None,
        };
        self.events.iter().filter_map(entry).collect()
    }

    /// The open parts after the first `count` events.
    fn snapshots(&self, count: usize) -> Vec<Provisional> {
        let mut open: Vec<(PartId, String)> = Vec::new();
        for event in &self.events[..count] {
            match &event.body {
                EventBody::Provisional(Provisional::PartStarted { part, .. }) => {
                    open.push((*part, String::new()))
                }
                EventBody::Provisional(Provisional::PartDelta { text, .. }) => {
                    open.last_mut().unwrap().1.push_str(text);
                }
                EventBody::Provisional(_) => {}
                EventBody::Durable(record) => {
                    if matches!(**record, Record::StepFinished(_) | Record::AttemptStarted(_)) {
                        open.clear();
                    }
                }
            }
        }
        let (step, attempt) =
            (MessageId::parse(&id("msg", 2)).unwrap(), AttemptId::parse(&id("att", 1)).unwrap());
        let snapshot =
            |(part, text)| Provisional::PartSnapshot { step, attempt, part, kind: OpenPartKind::Text, text };
        open.into_iter().map(snapshot).collect()
    }
}

/// Two steps: one with a failed attempt and with a call, one of two parts.
fn script() -> Script {
    let mut script = Script::default();
    script.attempt(1);
    script.streamed(1, "let me see");
    script.call(7);
    script.finished(&[(1, "let me see")]);
    script.call_runs(7);
    script.attempt(2);
    script.streamed(2, "one more");
    script.streamed(3, "\ntwo\n");
    script.finished(&[(2, "one more"), (3, "\ntwo\n")]);
    script
}

const WHOLE: &str = "let me see\n\
    <opencode-tool name=\"bash\" status=\"running\" title=\"ls\" toolid=\"c\"></opencode-tool>\n\
    <opencode-tool name=\"bash\" status=\"completed\" title=\"ls\" toolid=\"c\">out</opencode-tool>\n\
    one more\ntwo\n";

fn replayed(script: &Script, place: TagPlace) -> String {
    let entries = script.entries();
    let mut stream = TagStream::new(place, &entries);
    let later = script.events.iter().filter(|event| event.id.is_durable() && event.id.seq > place.seq);
    later.map(|event| stream.take(event)).collect()
}

#[test]
fn the_log_and_the_live_events_make_the_same_stream() {
    let script = script();
    let mut live = TagStream::new(TagPlace::default(), &[]);
    let streamed: String = script.events.iter().map(|event| live.take(event)).collect();
    assert_eq!(streamed, WHOLE);
    assert_eq!(replayed(&script, TagPlace::default()), WHOLE);
}

#[test]
fn whoever_comes_back_is_given_what_is_missing_and_nothing_twice() {
    let script = script();
    let mut live = TagStream::new(TagPlace::default(), &[]);
    let mut given = String::new();
    for count in 0..=script.events.len() {
        let place: TagPlace = live.place().to_string().parse().unwrap();
        assert_eq!(place, live.place());
        // Much later, when all of it is in the log.
        assert_eq!(format!("{given}{}", replayed(&script, place)), WHOLE, "{place}");
        // At once: open parts as they stand, and then what comes.
        let entries = script.entries();
        let mut back = TagStream::new(place, &entries);
        let mut rest: String =
            script.snapshots(count).iter().map(|piece| back.piece(piece).to_owned()).collect();
        assert_eq!((rest.as_str(), back.place()), ("", place), "it was given before");
        rest.extend(script.events[count..].iter().map(|event| back.take(event)));
        assert_eq!(format!("{given}{rest}"), WHOLE, "{place}");
        if let Some(event) = script.events.get(count) {
            given.push_str(&live.take(event));
        }
    }
}

#[test]
fn text_of_an_attempt_that_failed_ends_its_line() {
    let mut script = Script::default();
    script.attempt(1);
    script.streamed(1, "lost");
    let before = script.events.len();
    script.attempt(2);
    script.streamed(2, "kept");
    script.finished(&[(2, "kept")]);
    let mut live = TagStream::new(TagPlace::default(), &[]);
    let given: String = script.events[..before].iter().map(|event| live.take(event)).collect();
    let place = live.place();
    assert_eq!((given.as_str(), place.to_string().as_str()), ("lost", "1+4"));
    let rest: String = script.events[before..].iter().map(|event| live.take(event)).collect();
    assert_eq!(rest, "\nkept\n");
    assert_eq!(replayed(&script, place), rest, "what was lost is not taken for what came instead");
    // A subscriber that was outrun is given what it has once more.
    let mut outrun = TagStream::new(TagPlace::default(), &[]);
    script.events[..before].iter().for_each(|event| drop(outrun.take(event)));
    for piece in script.snapshots(before) {
        assert_eq!(outrun.piece(&piece), "");
    }
}

#[test]
fn places_read_back_and_others_are_refused() {
    for text in ["0", "17", "17+40"] {
        assert_eq!(text.parse::<TagPlace>().unwrap().to_string(), text);
    }
    for text in ["", "+1", "1+", "17.3", "1+x", "-1"] {
        assert!(text.parse::<TagPlace>().is_err(), "{text}");
    }
    // Within a character, or behind the end: nobody was given such a place, and nothing breaks.
    let mut script = Script::default();
    script.attempt(1);
    script.finished(&[(1, "éx")]);
    assert_eq!(replayed(&script, TagPlace { seq: Seq(1), text: 1 }), "x\n");
    assert_eq!(replayed(&script, TagPlace { seq: Seq(1), text: 99 }), "\n");
}
