//! The stored form of an entry: a header, and the record as JSON.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | magic, `0xb7` |
//! | 1 | version of this frame, 1 |
//! | 2 | where the record is: 0 in the payload, 1 in a blob that the payload names ([`Spilled`]) |
//! | 3..5 | version of the record |
//! | 5..13 | when the record was made, in milliseconds since the epoch |
//! | 13..17 | CRC-32 of the session's id, the sequence number, bytes 0..13 and the payload |
//! | 17.. | payload: JSON |
//!
//! Numbers are big-endian. The checksum covers the frame's place, so that a frame copied to another place is refused.

use playhouse_protocol::message::BlobRef;
use playhouse_protocol::{Entry, Record, Seq, SessionId, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::StoreError;

const MAGIC: u8 = 0xb7;
const FRAME_VERSION: u8 = 1;
const IN_PAYLOAD: u8 = 0;
const IN_BLOB: u8 = 1;
const CHECKED: usize = 13;
const HEADER: usize = CHECKED + size_of::<u32>();

/// A record whose JSON is larger than this many bytes is moved to a blob.
pub const SPILL_BYTES: usize = 64 * 1024;

/// The deepest nesting of a record's JSON. A model may nest arguments 127 deep, and the record puts more around them;
/// the bound keeps a reader's stack safe.
pub const MAX_DEPTH: usize = 256;

/// The newest version that this engine reads of each kind of record.
const KINDS: [(&str, u16); 18] = [
    ("session.created", 1),
    ("session.changed", 1),
    ("session.forked", 1),
    ("prompt.admitted", 1),
    ("turn.started", 1),
    ("attempt.started", 1),
    ("attempt.ended", 1),
    ("step.finished", 1),
    ("call.proposed", 1),
    ("consent.asked", 1),
    ("consent.settled", 1),
    ("question.asked", 1),
    ("question.settled", 1),
    ("todos.changed", 1),
    ("call.intended", 1),
    ("call.settled", 1),
    ("turn.ended", 1),
    ("session.deleted", 1),
];

/// The payload of a frame whose record is in a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spilled {
    /// Who owns the blob.
    pub tenant: String,
    /// The blob: the record's JSON.
    #[serde(flatten)]
    pub blob: BlobRef,
}

/// Why a frame gives no entry.
#[derive(Debug, Error)]
pub enum FrameError {
    /// It is shorter than its header.
    #[error("the frame is cut off: it has {length} bytes, its header alone has {HEADER}")]
    Short {
        /// Its length in bytes.
        length: usize,
    },
    /// It does not begin with the magic byte.
    #[error("this is no frame: it begins with {found:#04x}, not {MAGIC:#04x}")]
    Magic {
        /// The first byte.
        found: u8,
    },
    /// A newer engine wrote it, or the byte is damaged.
    #[error("frame version {found}; this engine reads up to {FRAME_VERSION}")]
    FrameVersion {
        /// Its version.
        found: u8,
    },
    /// It was changed, or belongs to another place.
    #[error("the checksum does not match: the frame is damaged, or stands in a place that is not its own")]
    Checksum,
    /// The record is neither in the payload nor in a blob.
    #[error("the frame says that its record is in place {found}; this engine knows 0 (inside) and 1 (blob)")]
    Place {
        /// What it says.
        found: u8,
    },
    /// A newer engine wrote the record.
    #[error("record version {found} of {kind}; this engine reads up to {known}")]
    RecordVersion {
        /// The kind of record.
        kind: String,
        /// Its version.
        found: u16,
        /// The newest version that this engine reads.
        known: u16,
    },
    /// A newer engine wrote a kind of record that this one does not know.
    #[error("record of the unknown kind \"{kind}\" (version {version}); a newer engine may read it")]
    Kind {
        /// The kind.
        kind: String,
        /// The version of the record.
        version: u16,
    },
    /// The payload is not the JSON of a record.
    #[error("the payload is not a record: {0}")]
    Json(String),
    /// The JSON is nested too deep.
    #[error("the record is nested deeper than {MAX_DEPTH} levels")]
    Depth,
    /// The blob that holds the record cannot be read.
    #[error("the record's content cannot be read: {0}")]
    Content(#[source] StoreError),
}

/// The frame of `entry` in the log of `session`. A record over [`SPILL_BYTES`] is handed to `spill`, which stores it
/// durably and says where.
pub fn encode(
    session: SessionId,
    entry: &Entry,
    spill: impl FnOnce(&[u8]) -> Result<Spilled, StoreError>,
) -> Result<Vec<u8>, StoreError> {
    let refuse = |reason: String| {
        let kind = entry.record.kind();
        StoreError::Backend(format!("record {} ({kind}) of {session} cannot be stored: {reason}", entry.seq))
    };
    let json = serde_json::to_vec(&entry.record).map_err(|error| refuse(error.to_string()))?;
    if !is_shallow(&json) {
        return Err(refuse(FrameError::Depth.to_string()));
    }
    let (place, payload) = if json.len() > SPILL_BYTES {
        let spilled = serde_json::to_vec(&spill(&json)?).map_err(|error| refuse(error.to_string()))?;
        (IN_BLOB, spilled)
    } else {
        (IN_PAYLOAD, json)
    };
    let mut frame = Vec::with_capacity(HEADER + payload.len());
    frame.extend([MAGIC, FRAME_VERSION, place]);
    frame.extend(entry.record.version().to_be_bytes());
    frame.extend(entry.at.as_millis().to_be_bytes());
    let sum = checksum(session, entry.seq, &frame, &payload);
    frame.extend(sum.to_be_bytes());
    frame.extend(payload);
    Ok(frame)
}

/// The entry at `seq` in the log of `session`, from its frame. `fetch` reads the blob of a record that was spilled.
pub fn decode(
    session: SessionId,
    seq: Seq,
    frame: &[u8],
    fetch: impl FnOnce(&Spilled) -> Result<Vec<u8>, StoreError>,
) -> Result<Entry, FrameError> {
    let short = FrameError::Short { length: frame.len() };
    let Some((header, payload)) = frame.split_at_checked(HEADER) else { return Err(short) };
    let (checked, sum) = header.split_at(CHECKED);
    let &[magic, frame_version, place, ref numbers @ ..] = checked else { return Err(short) };
    if magic != MAGIC {
        return Err(FrameError::Magic { found: magic });
    }
    if frame_version != FRAME_VERSION {
        return Err(FrameError::FrameVersion { found: frame_version });
    }
    if checksum(session, seq, checked, payload).to_be_bytes() != sum {
        return Err(FrameError::Checksum);
    }
    let (version, at) = numbers.split_at(size_of::<u16>());
    let (Ok(version), Ok(at)) = (version.try_into(), at.try_into()) else { return Err(short) };
    let version = u16::from_be_bytes(version);
    let record = match place {
        IN_PAYLOAD => read_record(version, payload)?,
        IN_BLOB => {
            let spilled =
                serde_json::from_slice(payload).map_err(|error| FrameError::Json(error.to_string()))?;
            read_record(version, &fetch(&spilled).map_err(FrameError::Content)?)?
        }
        found => return Err(FrameError::Place { found }),
    };
    Ok(Entry { seq, at: Timestamp::from_millis(u64::from_be_bytes(at)), record })
}

/// Where the record of a frame lies, if that is a blob. The checksum is not looked at: what a damaged frame says may be
/// true.
pub(crate) fn spilled(frame: &[u8]) -> Option<Spilled> {
    let (header, payload) = frame.split_at_checked(HEADER)?;
    if header[0] != MAGIC || header[2] != IN_BLOB {
        return None;
    }
    serde_json::from_slice(payload).ok()
}

/// The tenant that the first record of a log says, where it can be read. The checksum is not looked at.
pub(crate) fn tenant_of_first(
    frame: &[u8],
    fetch: impl FnOnce(&Spilled) -> Result<Vec<u8>, StoreError>,
) -> Option<String> {
    #[derive(Deserialize)]
    struct First {
        data: Tenant,
    }
    #[derive(Deserialize)]
    struct Tenant {
        tenant: String,
    }
    let content;
    let json = match spilled(frame) {
        Some(spilled) => {
            content = fetch(&spilled).ok()?;
            &content
        }
        None => frame.get(HEADER..)?,
    };
    if !is_shallow(json) {
        return None;
    }
    let Kind { kind } = parse(json).ok()?;
    if kind != "session.created" && kind != "session.forked" {
        return None;
    }
    Some(parse::<First>(json).ok()?.data.tenant)
}

fn checksum(session: SessionId, seq: Seq, checked: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(session.as_str().as_bytes());
    hasher.update(&seq.0.to_be_bytes());
    hasher.update(checked);
    hasher.update(payload);
    hasher.finalize()
}

fn read_record(version: u16, json: &[u8]) -> Result<Record, FrameError> {
    if !is_shallow(json) {
        return Err(FrameError::Depth);
    }
    // All kinds are at version 1: the kind is needed first only for another version, or when reading fails.
    let error = if version == 1 {
        match parse(json) {
            Ok(record) => return Ok(record),
            Err(error) => FrameError::Json(error.to_string()),
        }
    } else {
        FrameError::Json("it names no kind".to_owned())
    };
    let Ok(Kind { kind }) = parse::<Kind>(json) else { return Err(error) };
    Err(match KINDS.iter().find(|(known, _)| *known == kind) {
        None => FrameError::Kind { kind, version },
        Some((_, known)) if version == 0 || version > *known => {
            FrameError::RecordVersion { kind, found: version, known: *known }
        }
        Some(_) => error,
    })
}

#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}

/// Reads JSON whose depth was checked.
fn parse<T: for<'de> Deserialize<'de>>(json: &[u8]) -> Result<T, serde_json::Error> {
    // All of it at once: a reader of bytes looks at each string by itself.
    let json = std::str::from_utf8(json).map_err(serde::de::Error::custom)?;
    let mut reader = serde_json::Deserializer::from_str(json);
    reader.disable_recursion_limit();
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// The bit in which the two kinds of brackets differ.
const DIFFERENCE: u8 = b'[' ^ b'{';

/// Whether brackets outside of strings are nested at most [`MAX_DEPTH`] deep.
fn is_shallow(json: &[u8]) -> bool {
    // Nearly all have so few brackets, strings included, that it does not matter where they stand; and counting takes far
    // less time than looking where that is, most of all in numbers as small as what is counted.
    let few = |bytes: &[u8]| bytes.iter().map(|byte| u8::from(byte | DIFFERENCE == b'{')).sum::<u8>();
    let open = json.chunks(u8::MAX.into()).map(|bytes| usize::from(few(bytes))).sum::<usize>();
    open <= MAX_DEPTH || nests_shallow(json)
}

fn nests_shallow(json: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::MessageId;
    use playhouse_protocol::id::PartId;
    use playhouse_protocol::message::CallInput;
    use playhouse_protocol::record::CallProposed;
    use serde_json::{Map, Value};

    use super::*;

    fn session(last: char) -> SessionId {
        SessionId::parse(&format!("ses_0000000000001234567890123{last}")).unwrap()
    }

    fn entry() -> Entry {
        let turn = MessageId::parse("msg_00000000000012345678901234").unwrap();
        Entry { seq: Seq(7), at: Timestamp::from_millis(1_800), record: Record::TurnStarted { turn } }
    }

    fn no_spill(_: &[u8]) -> Result<Spilled, StoreError> {
        panic!("a small record must stay in its frame")
    }

    fn no_fetch(_: &Spilled) -> Result<Vec<u8>, StoreError> {
        panic!("a small record must stay in its frame")
    }

    /// The frame of a payload, with a checksum that matches.
    fn forge(place: u8, version: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![MAGIC, FRAME_VERSION, place];
        frame.extend(version.to_be_bytes());
        frame.extend(5_u64.to_be_bytes());
        let sum = checksum(session('a'), Seq(1), &frame, payload);
        frame.extend(sum.to_be_bytes());
        frame.extend(payload);
        frame
    }

    #[test]
    fn a_frame_gives_its_entry_back_in_its_own_place_only() {
        let frame = encode(session('a'), &entry(), no_spill).unwrap();
        assert_eq!(decode(session('a'), Seq(7), &frame, no_fetch).unwrap(), entry());
        for (session, seq) in [(session('b'), Seq(7)), (session('a'), Seq(8))] {
            let error = decode(session, seq, &frame, no_fetch).unwrap_err();
            assert!(matches!(error, FrameError::Checksum), "{error}");
        }
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let turn = r#"{"type":"call.settled","data":{}}"#.as_bytes();
        let deep = format!(r#"{{"type":"turn.started","data":{}1{}}}"#, "[".repeat(300), "]".repeat(300));
        for (frame, expected) in [
            (vec![], "cut off: it has 0 bytes"),
            (vec![MAGIC; 16], "cut off: it has 16 bytes"),
            (vec![0; 40], "begins with 0x00, not 0xb7"),
            ([&[MAGIC, 9][..], &[0; 40]].concat(), "frame version 9; this engine reads up to 1"),
            (vec![MAGIC, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4], "checksum"),
            (forge(7, 1, turn), "place 7"),
            (forge(0, 3, turn), "record version 3 of call.settled; this engine reads up to 1"),
            (forge(0, 0, turn), "record version 0 of call.settled"),
            (
                forge(0, 1, br#"{"type":"session.sung","data":{}}"#),
                "unknown kind \"session.sung\" (version 1)",
            ),
            (forge(0, 2, br#"{"type":"session.sung"}"#), "unknown kind \"session.sung\" (version 2)"),
            (forge(0, 1, turn), "not a record: missing field"),
            (forge(0, 1, b"{"), "not a record: EOF"),
            (forge(0, 1, br#"{"type":"session.deleted","data":{}} 1"#), "trailing"),
            (forge(0, 1, deep.as_bytes()), "deeper than 256"),
            (forge(1, 1, b"{}"), "missing field `tenant`"),
        ] {
            let error = decode(session('a'), Seq(1), &frame, no_fetch).unwrap_err().to_string();
            assert!(error.contains(expected), "expected {expected:?} in {error:?}");
        }
    }

    #[test]
    fn every_kind_of_record_has_a_version() {
        let error = parse::<Record>(br#"{"type":"?"}"#).unwrap_err().to_string();
        let (_, expected) = error.split_once("expected one of ").expect("serde lists the kinds");
        let kinds: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        assert_eq!(kinds, KINDS.map(|(kind, _)| kind));
    }

    #[test]
    fn a_large_record_goes_to_a_blob() {
        let text = "x".repeat(SPILL_BYTES);
        let record = Record::SessionChanged(playhouse_protocol::record::SessionChanged {
            title: Some(text),
            ..Default::default()
        });
        let large = Entry { record, ..entry() };
        let mut content = Vec::new();
        let spilled = Spilled { tenant: "acme".to_owned(), blob: BlobRef { hash: "0".repeat(64), size: 1 } };
        let frame = encode(session('a'), &large, |json| {
            content = json.to_vec();
            Ok(spilled.clone())
        })
        .unwrap();
        assert!(frame.len() < 500);
        let read = decode(session('a'), Seq(7), &frame, |named| {
            assert_eq!(*named, spilled);
            Ok(content.clone())
        });
        assert_eq!(read.unwrap(), large);
        let lost =
            |_: &Spilled| Err(StoreError::Blob { hash: "00".to_owned(), reason: "is gone".to_owned() });
        let error = decode(session('a'), Seq(7), &frame, lost).unwrap_err().to_string();
        assert!(error.contains("is gone"), "{error}");
    }

    #[test]
    fn arguments_as_deep_as_a_model_may_write_them_are_read_back() {
        let text = format!(r#"{{"a":{}1{}}}"#, "[".repeat(126), "]".repeat(126));
        let input = CallInput::from_model(&text);
        assert!(matches!(input, CallInput::Object(_)));
        let id = "00000000000012345678901234";
        let record = Record::CallProposed(CallProposed {
            call: PartId::parse(&format!("prt_{id}")).unwrap(),
            step: MessageId::parse(&format!("msg_{id}")).unwrap(),
            call_id: "c".to_owned(),
            tool: "t".to_owned(),
            input,
        });
        let entry = Entry { record, ..entry() };
        let frame = encode(session('a'), &entry, no_spill).unwrap();
        assert_eq!(decode(session('a'), Seq(7), &frame, no_fetch).unwrap(), entry);
    }

    #[test]
    fn a_record_that_could_not_be_read_back_is_not_written() {
        let nested = (0..300).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        let id = "00000000000012345678901234";
        let record = Record::CallProposed(CallProposed {
            call: PartId::parse(&format!("prt_{id}")).unwrap(),
            step: MessageId::parse(&format!("msg_{id}")).unwrap(),
            call_id: "c".to_owned(),
            tool: "t".to_owned(),
            input: CallInput::Object(Map::from_iter([("a".to_owned(), nested)])),
        });
        let error = encode(session('a'), &Entry { record, ..entry() }, no_spill).unwrap_err().to_string();
        assert!(error.contains("record 7 (call.proposed)") && error.contains("256 levels"), "{error}");
    }

    #[test]
    fn brackets_in_strings_do_not_count() {
        let text = serde_json::to_vec(&format!("\\\"{}", "[".repeat(1_000))).unwrap();
        assert!(is_shallow(&text));
    }
}
