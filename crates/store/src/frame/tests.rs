use playhouse_protocol::id::PartId;
use playhouse_protocol::message::CallInput;
use playhouse_protocol::record::{CallProposed, SessionChanged};
use playhouse_protocol::{MessageId, Record};
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;

fn session(last: char) -> SessionId {
    SessionId::parse(&format!("ses_0000000000001234567890123{last}")).unwrap()
}

fn entry() -> Entry {
    let turn = MessageId::parse("msg_00000000000012345678901234").unwrap();
    Entry { seq: Seq(7), at: Timestamp::from_millis(1_800), record: Record::TurnStarted { turn } }
}

fn titled(seq: u64, title: String) -> Entry {
    let record = Record::SessionChanged(SessionChanged { title: Some(title), ..SessionChanged::default() });
    Entry { seq: Seq(seq), record, ..entry() }
}

fn no_spill(_: &[u8]) -> Result<Spilled, StoreError> {
    panic!("a small record must stay in its frame")
}

fn no_fetch(_: &Spilled) -> Result<Vec<u8>, StoreError> {
    panic!("a small record must stay in its frame")
}

/// The one frame of these entries.
fn frame_of(entries: &[Entry]) -> Vec<u8> {
    let mut frames = encode(session('a'), entries, no_spill).unwrap();
    assert_eq!(frames.len(), 1);
    let (place, frame) = frames.remove(0);
    assert_eq!(Some(place), entries.last().map(|entry| entry.seq));
    frame
}

/// A frame with this before its checksum and this behind it; the checksum matches.
fn forge(checked: &[u8], stored: &[u8]) -> Vec<u8> {
    let sum = checksum(session('a'), Seq(1), checked, stored);
    [checked, &sum.to_be_bytes(), stored].concat()
}

/// One of version 1.
fn forge_single(place: u8, version: u16, payload: &[u8]) -> Vec<u8> {
    let checked = [&[MAGIC, SINGLE, place][..], &version.to_be_bytes(), &5_u64.to_be_bytes()].concat();
    forge(&checked, payload)
}

/// One of version 2 with one entry, whose head begins with this number.
fn forge_content(what: u8, payload: &[u8]) -> Vec<u8> {
    let mut content = vec![1, what, 10];
    push(&mut content, payload.len() as u64);
    content.extend(payload);
    forge(&[MAGIC, VERSION, PLAIN], &content)
}

#[test]
fn a_frame_gives_its_entries_back_in_its_own_place_only() {
    let later = Entry { seq: Seq(8), at: Timestamp::from_millis(2_000), ..entry() };
    // A clock that went back, or is at its end.
    let odd = [0, u64::MAX, 3].map(Timestamp::from_millis);
    let odd = (9..).zip(odd).map(|(seq, at)| Entry { seq: Seq(seq), at, ..entry() });
    let entries: Vec<Entry> = [entry(), later].into_iter().chain(odd).collect();
    let frame = frame_of(&entries);
    assert_eq!(decode(session('a'), Seq(11), &frame, no_fetch).unwrap(), entries);
    let mut unpacked = Vec::new();
    let opened = open(session('a'), Seq(11), &frame, &mut unpacked).unwrap();
    assert_eq!(opened.first, Seq(7));
    for (session, seq) in [(session('b'), Seq(11)), (session('a'), Seq(12)), (session('a'), Seq(7))] {
        let error = decode(session, seq, &frame, no_fetch).unwrap_err();
        assert!(matches!(error, FrameError::Checksum), "{error}");
    }
}

#[test]
fn what_a_step_writes_is_small() {
    let entries: Vec<Entry> = (1..=6).map(|seq| Entry { seq: Seq(seq), ..entry() }).collect();
    let json: usize = entries.iter().map(|entry| serde_json::to_vec(&entry.record).unwrap().len()).sum();
    let frame = frame_of(&entries);
    assert!(frame.len() * 3 < json, "{} of {json}", frame.len());
}

#[test]
fn errors_name_what_is_wrong() {
    let turn = r#"{"type":"call.settled","data":{}}"#.as_bytes();
    let deep = format!(r#"{{"type":"turn.started","data":{}1{}}}"#, "[".repeat(300), "]".repeat(300));
    let content = |content: &[u8]| forge(&[MAGIC, VERSION, PLAIN], content);
    let packed = |stored: &[u8]| forge(&[MAGIC, VERSION, PACKED], stored);
    let huge = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    for (frame, expected) in [
        (vec![], "cut off: it has 0 bytes"),
        (vec![MAGIC; 6], "cut off: it has 6 bytes"),
        (vec![0; 40], "begins with 0x00, not 0xb7"),
        ([&[MAGIC, 9][..], &[0; 40]].concat(), "frame version 9; this engine reads up to 2"),
        ([&[MAGIC, 0][..], &[0; 40]].concat(), "frame version 0"),
        (vec![MAGIC, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 1, 2, 3], "cut off: it has 16 bytes"),
        (vec![MAGIC, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4], "checksum"),
        (vec![MAGIC, 2, 0, 1, 2, 3, 4, 1], "checksum"),
        (forge_single(7, 1, turn), "place 7"),
        (forge_single(0, 3, turn), "record version 3 of call.settled; this engine reads up to 1"),
        (forge_single(0, 0, turn), "record version 0 of call.settled"),
        (forge_single(1, 1, b"{}"), "missing field `tenant`"),
        (forge(&[MAGIC, VERSION, 2], b"1"), "form 2"),
        (content(b""), "how many entries"),
        (content(b"\x00"), "more or less entries"),
        (content(b"\x02\x02\x00\x00\x02\x00\x00"), "more or less entries"),
        (content(b"\x01\x02\x00"), "ends within its heads"),
        (content(b"\x01\x02\x00\x05abc"), "another length"),
        (content(b"\x01\x02\x00\x03abcd"), "another length"),
        (content(b"\x01\xff\xff\xff\x7f\x00\x01a"), "a version that is none"),
        (content(b"\x01\x02\x00\x02\xc3("), "not a record: invalid utf-8"),
        (packed(b""), "how long it is"),
        (packed(&huge), "longer than any is"),
        (packed(b"\x10nonsense"), "malformed"),
        (forge_content(6, turn), "record version 3 of call.settled; this engine reads up to 1"),
        (forge_content(3, b"{}"), "missing field `tenant`"),
        (
            forge_content(2, br#"{"type":"session.sung","data":{}}"#),
            "unknown kind \"session.sung\" (version 1)",
        ),
        (forge_content(4, br#"{"type":"session.sung"}"#), "unknown kind \"session.sung\" (version 2)"),
        (forge_content(2, turn), "not a record: missing field"),
        (forge_content(2, b"{"), "not a record: EOF"),
        (forge_content(2, br#"{"type":"session.deleted","data":{}} 1"#), "trailing"),
        (forge_content(2, deep.as_bytes()), "deeper than 256"),
    ] {
        let error = decode(session('a'), Seq(1), &frame, no_fetch).unwrap_err().to_string();
        assert!(error.contains(expected), "expected {expected:?} in {error:?}");
    }
}

#[test]
fn entries_before_one_that_cannot_be_read_are_read() {
    let good = serde_json::to_vec(&entry().record).unwrap();
    let mut content = vec![2, 2, 10];
    push(&mut content, good.len() as u64);
    content.extend([2, 0, 1]);
    content.extend(&good);
    content.push(b'{');
    let checked = [MAGIC, VERSION, PLAIN];
    let sum = checksum(session('a'), Seq(8), &checked, &content);
    let frame = [&checked[..], &sum.to_be_bytes(), &content].concat();
    let mut unpacked = Vec::new();
    let read: Vec<_> = open(session('a'), Seq(8), &frame, &mut unpacked)
        .unwrap()
        .map(|stored| stored.entry(no_fetch))
        .collect();
    assert_eq!(read[0].as_ref().unwrap().record, entry().record);
    assert!(read[1].is_err() && read.len() == 2);
}

#[test]
fn much_is_spread_over_frames() {
    let entries: Vec<Entry> = (1..=40).map(|seq| titled(seq, "x".repeat(10_000))).collect();
    let frames = encode(session('a'), &entries, no_spill).unwrap();
    assert_eq!(frames.iter().map(|(place, _)| place.0).collect::<Vec<_>>(), [6, 12, 18, 24, 30, 36, 40]);
    let read =
        frames.iter().flat_map(|(place, frame)| decode(session('a'), *place, frame, no_fetch).unwrap());
    assert_eq!(read.collect::<Vec<_>>(), entries);
    assert_eq!(encode(session('a'), &[], no_spill).unwrap(), []);
}

#[test]
fn a_large_record_goes_to_a_blob() {
    let large = titled(7, "x".repeat(SPILL_BYTES));
    let entries = [Entry { seq: Seq(6), ..entry() }, large, Entry { seq: Seq(8), ..entry() }];
    let mut content = Vec::new();
    let spilled = Spilled { tenant: "acme".to_owned(), blob: BlobRef { hash: "0".repeat(64), size: 1 } };
    let frames = encode(session('a'), &entries, |json| {
        content = json.to_vec();
        Ok(spilled.clone())
    });
    let [(_, frame)] = &frames.unwrap()[..] else { panic!("one frame") };
    assert!(frame.len() < 500);
    // It can be found in the frame, whatever else is damaged there.
    assert_eq!(self::spilled(frame), std::slice::from_ref(&spilled));
    let heads_are_damaged = [&frame[..7], &[0xff; 30], &frame[7..]].concat();
    assert_eq!(self::spilled(&heads_are_damaged), std::slice::from_ref(&spilled));
    let read = decode(session('a'), Seq(8), frame, |named| {
        assert_eq!(*named, spilled);
        Ok(content.clone())
    });
    assert_eq!(read.unwrap(), entries);
    let lost = |_: &Spilled| Err(StoreError::Blob { hash: "00".to_owned(), reason: "is gone".to_owned() });
    let error = decode(session('a'), Seq(8), frame, lost).unwrap_err().to_string();
    assert!(error.contains("is gone"), "{error}");
}

#[test]
fn arguments_as_deep_as_a_model_may_write_them_are_read_back() {
    let text = format!(r#"{{"a":{}1{}}}"#, "[".repeat(126), "]".repeat(126));
    let input = CallInput::from_model(&text);
    assert!(matches!(input, CallInput::Object(_)));
    let entry = Entry { record: called(input), ..entry() };
    let frame = frame_of(std::slice::from_ref(&entry));
    assert_eq!(decode(session('a'), Seq(7), &frame, no_fetch).unwrap(), [entry]);
}

fn called(input: CallInput) -> Record {
    let id = "00000000000012345678901234";
    Record::CallProposed(CallProposed::new(
        PartId::parse(&format!("prt_{id}")).unwrap(),
        MessageId::parse(&format!("msg_{id}")).unwrap(),
        "c",
        "t",
        input,
    ))
}

#[test]
fn a_record_that_could_not_be_read_back_is_not_written() {
    let nested = (0..300).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
    let record = called(CallInput::Object(Map::from_iter([("a".to_owned(), nested)])));
    let error = encode(session('a'), &[Entry { record, ..entry() }], no_spill).unwrap_err().to_string();
    assert!(error.contains("record 7 (call.proposed)") && error.contains("256 levels"), "{error}");
}

#[test]
fn the_tenant_of_a_log_is_found_without_its_place() {
    let created = r#"{"type":"session.created","data":{"session":"ses_","tenant":"acme"}}"#;
    for frame in [forge_single(0, 1, created.as_bytes()), forge_content(2, created.as_bytes())] {
        assert_eq!(tenant_of_first(&frame, no_fetch).as_deref(), Some("acme"));
    }
    assert_eq!(tenant_of_first(&frame_of(&[entry()]), no_fetch), None);
    assert_eq!(tenant_of_first(b"nonsense", no_fetch), None);
}

proptest! {
    /// Also where the checksum is forged to match.
    #[test]
    fn no_content_makes_a_reader_panic(form in 0_u8..3, content in proptest::collection::vec(any::<u8>(), 0..200)) {
        let frame = forge(&[MAGIC, VERSION, form], &content);
        let no_blob = |_: &Spilled| Err(StoreError::Closed);
        let _ = decode(session('a'), Seq(1), &frame, no_blob);
        let _ = spilled(&frame);
        let _ = tenant_of_first(&frame, no_blob);
    }
}
