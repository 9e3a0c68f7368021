//! The stored form of entries.
//!
//! A frame holds the entries of one append, or as many of them as come to [`SPILL_BYTES`]. It stands in its log under the
//! place of its last entry.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | magic, `0xb7` |
//! | 1 | version of this frame, 2 |
//! | 2 | 0: the content follows; 1: its length follows, and its packed form (`pack`) |
//! | 3..7 | CRC-32 of the session's id, the last sequence number, bytes 0..3, and what follows |
//! | 7.. | content |
//!
//! The content is the number of entries, a head for each of them, and then their payloads, one behind the other. A head is
//! twice the version of the record, and one more where the payload names a blob that the record is in ([`Spilled`]); the
//! milliseconds since the entry before, for the first one since the epoch; and the length of the payload. A payload is JSON.
//! Numbers are written with seven bits to a byte, the lowest first; times may go back, which the lowest bit says.
//!
//! What names a blob is not packed, so that it can be found in a frame that is damaged. The checksum covers the frame's
//! place, so that a frame copied to another place is refused. It is of what is stored: nothing is unpacked unseen.
//!
//! Frames of version 1 hold one entry:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | magic, `0xb7` |
//! | 1 | version of this frame, 1 |
//! | 2 | where the record is: 0 in the payload, 1 in a blob that the payload names |
//! | 3..5 | version of the record |
//! | 5..13 | when the record was made, in milliseconds since the epoch |
//! | 13..17 | CRC-32 of the session's id, the sequence number, bytes 0..13 and the payload |
//! | 17.. | payload: JSON |
//!
//! All other numbers are big-endian.

use std::str;

use playhouse_protocol::json::{MAX_DEPTH, is_shallow};
use playhouse_protocol::message::BlobRef;
use playhouse_protocol::{Entry, Seq, SessionId, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::StoreError;
use crate::in_hand::named_in;
use number::{push, push_signed, take, take_signed};

mod json;
mod number;
mod pack;

const MAGIC: u8 = 0xb7;
/// The version that is written.
const VERSION: u8 = 2;
/// Of frames with one entry.
const SINGLE: u8 = 1;
const IN_PAYLOAD: u8 = 0;
const IN_BLOB: u8 = 1;
const PLAIN: u8 = 0;
const PACKED: u8 = 1;
/// How much of a frame stands before its checksum, by version.
const CHECKED: [usize; 2] = [13, 3];
const CHECKSUM: usize = size_of::<u32>();

/// A record whose JSON is larger than this many bytes is moved to a blob. What a frame holds is not more either, but for the
/// heads.
pub const SPILL_BYTES: usize = 64 * 1024;

/// Room that is made for what is written to begin with, in bytes: most steps and their records are not much longer.
const USUAL: usize = 2 * 1024;

/// The longest content: heads are shorter than the records that they are of.
const LONGEST: usize = 2 * SPILL_BYTES;

/// The payload of an entry whose record is in a blob.
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
    #[error("the frame is cut off: it has {length} bytes, its header alone has {header}")]
    Short {
        /// Its length in bytes.
        length: usize,
        /// That of its header.
        header: usize,
    },
    /// It does not begin with the magic byte.
    #[error("this is no frame: it begins with {found:#04x}, not {MAGIC:#04x}")]
    Magic {
        /// The first byte.
        found: u8,
    },
    /// A newer engine wrote it, or the byte is damaged.
    #[error("frame version {found}; this engine reads up to {VERSION}")]
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
    /// The content is in a form that this engine does not know.
    #[error(
        "the frame says that its content is in form {found}; this engine knows 0 (as it is) and 1 (packed)"
    )]
    Form {
        /// What it says.
        found: u8,
    },
    /// The content cannot be unpacked, or its heads do not fit it.
    #[error("the frame's content is malformed: {0}")]
    Malformed(String),
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

fn malformed(what: &str) -> FrameError {
    FrameError::Malformed(what.to_owned())
}

/// The frames of `entries`, which follow each other in the log of `session`, with the places under which they stand. A
/// record over [`SPILL_BYTES`] is handed to `spill`, which stores it durably and says where.
///
/// # Errors
/// A record that could not be read back, and what `spill` fails with.
pub fn encode(
    session: SessionId,
    entries: &[Entry],
    mut spill: impl FnMut(&[u8]) -> Result<Spilled, StoreError>,
) -> Result<Vec<(Seq, Vec<u8>)>, StoreError> {
    let mut frames = Vec::with_capacity(1);
    let mut filling = Filling::default();
    let mut json = Vec::with_capacity(USUAL);
    for entry in entries {
        let refuse = |reason: String| {
            let kind = entry.record.kind();
            StoreError::Backend(format!(
                "record {} ({kind}) of {session} cannot be stored: {reason}",
                entry.seq
            ))
        };
        json.clear();
        serde_json::to_writer(&mut json, &entry.record).map_err(|error| refuse(error.to_string()))?;
        if !is_shallow(&json) {
            return Err(refuse(FrameError::Depth.to_string()));
        }
        let place = if json.len() > SPILL_BYTES {
            json = serde_json::to_vec(&spill(&json)?).map_err(|error| refuse(error.to_string()))?;
            IN_BLOB
        } else {
            IN_PAYLOAD
        };
        if filling.count > 0 && filling.payloads.len() + json.len() > SPILL_BYTES {
            frames.push(std::mem::take(&mut filling).close(session));
        }
        let head =
            Head { version: entry.record.version(), place, at: entry.at.as_millis(), length: json.len() };
        filling.add(entry.seq, head, &json);
    }
    if filling.count > 0 {
        frames.push(filling.close(session));
    }
    Ok(frames)
}

/// A frame that is being filled.
#[derive(Default)]
struct Filling {
    count: u64,
    last: Seq,
    at: u64,
    heads: Vec<u8>,
    payloads: Vec<u8>,
}

impl Filling {
    fn add(&mut self, seq: Seq, head: Head, payload: &[u8]) {
        let Head { version, place, at, length } = head;
        push(&mut self.heads, u64::from(version) * 2 + u64::from(place));
        push_signed(&mut self.heads, at.wrapping_sub(self.at).cast_signed());
        push(&mut self.heads, length as u64);
        if self.payloads.is_empty() {
            self.payloads.reserve(payload.len().max(USUAL));
        }
        self.payloads.extend_from_slice(payload);
        self.count += 1;
        (self.last, self.at) = (seq, at);
    }

    /// The frame, and where it stands.
    fn close(self, session: SessionId) -> (Seq, Vec<u8>) {
        let mut content = Vec::with_capacity(2 + self.heads.len() + self.payloads.len());
        push(&mut content, self.count);
        content.extend(&self.heads);
        content.extend(&self.payloads);
        let mut frame = Vec::with_capacity(content.len().min(USUAL) + 2 * CHECKSUM);
        frame.extend_from_slice(&[MAGIC, VERSION, PACKED, 0, 0, 0, 0]);
        let start = frame.len();
        push(&mut frame, content.len() as u64);
        if named_in(&content).next().is_some() || !pack::pack(&content, &mut frame) {
            frame.truncate(start);
            frame[2] = PLAIN;
            frame.extend_from_slice(&content);
        }
        // It is kept until it is settled.
        frame.shrink_to_fit();
        let (header, stored) = frame.split_at_mut(start);
        let (checked, sum) = header.split_at_mut(start - CHECKSUM);
        sum.copy_from_slice(&checksum(session, self.last, checked, stored).to_be_bytes());
        (self.last, frame)
    }
}

/// The entries of the frame that stands at `last` in the log of `session`. `fetch` reads the blob of a record that was
/// spilled.
///
/// # Errors
/// The first of them that cannot be trusted.
pub fn decode(
    session: SessionId,
    last: Seq,
    frame: &[u8],
    fetch: impl Fn(&Spilled) -> Result<Vec<u8>, StoreError>,
) -> Result<Vec<Entry>, FrameError> {
    open(session, last, frame, &mut Vec::new())?.map(|stored| stored.entry(&fetch)).collect()
}

/// The frame that stands at `last` in the log of `session`, without the entries after `at`: for that place.
pub(crate) fn cut(session: SessionId, last: Seq, frame: &[u8], at: Seq) -> Result<Vec<u8>, FrameError> {
    let mut unpacked = Vec::new();
    let mut filling = Filling::default();
    for entry in open(session, last, frame, &mut unpacked)?.take_while(|entry| entry.seq <= at) {
        filling.add(entry.seq, entry.head, entry.payload()?.as_bytes());
    }
    Ok(filling.close(session).1)
}

/// The entries in the frame that stands at `last` in the log of `session`, not yet read. `unpacked` is where it is unpacked.
pub(crate) fn open<'a>(
    session: SessionId,
    last: Seq,
    frame: &'a [u8],
    unpacked: &'a mut Vec<u8>,
) -> Result<Stored<'a>, FrameError> {
    let version = version_of(frame)?;
    let (checked, rest) = frame.split_at(CHECKED[usize::from(version - 1)]);
    let (sum, stored) = rest.split_at(CHECKSUM);
    if checksum(session, last, checked, stored).to_be_bytes() != sum {
        return Err(FrameError::Checksum);
    }
    Stored::of(version, last, checked, stored, unpacked)
}

/// The version of a frame, which is one that this engine reads and whose header is whole.
fn version_of(frame: &[u8]) -> Result<u8, FrameError> {
    let short = |header| FrameError::Short { length: frame.len(), header };
    let least = CHECKED[usize::from(VERSION - 1)] + CHECKSUM;
    if frame.len() < least {
        return Err(short(least));
    }
    if frame[0] != MAGIC {
        return Err(FrameError::Magic { found: frame[0] });
    }
    let version = frame[1];
    if !(SINGLE..=VERSION).contains(&version) {
        return Err(FrameError::FrameVersion { found: version });
    }
    let header = CHECKED[usize::from(version - 1)] + CHECKSUM;
    if frame.len() < header { Err(short(header)) } else { Ok(version) }
}

/// Entries of a frame, in order, not yet read.
#[derive(Debug)]
pub(crate) struct Stored<'a> {
    /// The place of the first of all.
    pub(crate) first: Seq,
    next: Seq,
    left: u64,
    at: u64,
    heads: &'a [u8],
    payloads: &'a str,
    /// Of a frame that has no heads.
    single: Option<Head>,
}

/// What a frame says of an entry.
#[derive(Clone, Copy, Debug)]
struct Head {
    version: u16,
    place: u8,
    at: u64,
    length: usize,
}

impl<'a> Stored<'a> {
    fn of(
        version: u8,
        last: Seq,
        checked: &[u8],
        stored: &'a [u8],
        unpacked: &'a mut Vec<u8>,
    ) -> Result<Self, FrameError> {
        let text = |bytes| str::from_utf8(bytes).map_err(|error| FrameError::Json(error.to_string()));
        if version == SINGLE {
            let single = Head::of_single(checked, stored.len())?;
            let payloads = text(stored)?;
            return Ok(Self {
                first: last,
                next: last,
                left: 1,
                at: 0,
                heads: &[],
                payloads,
                single: Some(single),
            });
        }
        let content = match checked[2] {
            PLAIN => stored,
            PACKED => unpack(stored, unpacked)?,
            found => return Err(FrameError::Form { found }),
        };
        let (left, heads) =
            take(content).ok_or_else(|| malformed("it does not say how many entries it has"))?;
        let first = left.checked_sub(1).and_then(|before| last.0.checked_sub(before));
        let first = first
            .filter(|first| *first > 0)
            .ok_or_else(|| malformed("it has more or less entries than fit its place"))?;
        let (mut rest, mut at, mut length) = (heads, 0, 0_usize);
        for _ in 0..left {
            let (head, behind) = Head::take(rest, at)?;
            at = head.at;
            length = length.saturating_add(head.length);
            rest = behind;
        }
        if length != rest.len() {
            return Err(malformed("its payloads have another length than its heads say"));
        }
        let heads = &heads[..heads.len() - rest.len()];
        Ok(Self {
            first: Seq(first),
            next: Seq(first),
            left,
            at: 0,
            heads,
            payloads: text(rest)?,
            single: None,
        })
    }
}

fn unpack<'a>(stored: &[u8], unpacked: &'a mut Vec<u8>) -> Result<&'a [u8], FrameError> {
    let (length, packed) = take(stored).ok_or_else(|| malformed("it does not say how long it is"))?;
    let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST);
    let length = length.ok_or_else(|| malformed("it would be longer than any is"))?;
    pack::unpack(packed, length, unpacked).map_err(FrameError::Malformed)
}

impl Head {
    /// Of a frame of version 1, from what stands before its checksum.
    fn of_single(checked: &[u8], length: usize) -> Result<Self, FrameError> {
        let &[_, _, place, high, low, ref at @ ..] = checked else {
            return Err(FrameError::Short { length: checked.len(), header: CHECKED[0] + CHECKSUM });
        };
        if place > IN_BLOB {
            return Err(FrameError::Place { found: place });
        }
        let at = at.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Ok(Self { version: u16::from_be_bytes([high, low]), place, at, length })
    }

    /// The next of many, behind one of this time, and what follows it.
    fn take(heads: &[u8], before: u64) -> Result<(Self, &[u8]), FrameError> {
        let cut = || malformed("it ends within its heads");
        let (what, heads) = take(heads).ok_or_else(cut)?;
        let (since, heads) = take_signed(heads).ok_or_else(cut)?;
        let (length, heads) = take(heads).ok_or_else(cut)?;
        let version =
            u16::try_from(what / 2).map_err(|_| malformed("a record has a version that is none"))?;
        let place = if what % 2 == 1 { IN_BLOB } else { IN_PAYLOAD };
        let at = before.wrapping_add_signed(since);
        Ok((Self { version, place, at, length: usize::try_from(length).unwrap_or(usize::MAX) }, heads))
    }
}

impl<'a> Iterator for Stored<'a> {
    type Item = StoredEntry<'a>;

    fn next(&mut self) -> Option<StoredEntry<'a>> {
        self.left = self.left.checked_sub(1)?;
        let head = match self.single {
            Some(head) => head,
            None => {
                // All were looked at when it was opened.
                let (head, heads) = Head::take(self.heads, self.at).ok()?;
                (self.heads, self.at) = (heads, head.at);
                head
            }
        };
        let seq = self.next;
        self.next = Seq(seq.0.saturating_add(1));
        let split = self.payloads.split_at_checked(head.length);
        let (payload, rest) = split.map_or((None, self.payloads), |(payload, rest)| (Some(payload), rest));
        self.payloads = rest;
        Some(StoredEntry { seq, head, payload })
    }
}

/// One entry of a frame, not yet read.
pub(crate) struct StoredEntry<'a> {
    /// Its place.
    pub(crate) seq: Seq,
    head: Head,
    /// `None` where its end is in the middle of a character.
    payload: Option<&'a str>,
}

impl StoredEntry<'_> {
    /// Reads it. `fetch` reads the blob of a record that was spilled.
    pub(crate) fn entry(
        &self,
        fetch: impl FnOnce(&Spilled) -> Result<Vec<u8>, StoreError>,
    ) -> Result<Entry, FrameError> {
        let Head { version, place, at, .. } = self.head;
        let payload = self.payload()?;
        let record = match place {
            IN_PAYLOAD => json::read_record(version, payload)?,
            _ => {
                let spilled =
                    serde_json::from_str(payload).map_err(|error| FrameError::Json(error.to_string()))?;
                let content = fetch(&spilled).map_err(FrameError::Content)?;
                let content =
                    str::from_utf8(&content).map_err(|error| FrameError::Json(error.to_string()))?;
                json::read_record(version, content)?
            }
        };
        Ok(Entry { seq: self.seq, at: Timestamp::from_millis(at), record })
    }

    fn payload(&self) -> Result<&str, FrameError> {
        self.payload.ok_or_else(|| malformed("a payload ends within a character"))
    }

    /// Where its record lies, if that is a blob.
    fn spilled(&self) -> Option<Spilled> {
        if self.head.place == IN_PAYLOAD {
            return None;
        }
        serde_json::from_str(self.payload?).ok()
    }
}

/// The entries of a frame of any place. The checksum is not looked at: what a damaged frame says may be true.
fn look_into<'a>(frame: &'a [u8], unpacked: &'a mut Vec<u8>) -> Option<Stored<'a>> {
    let version = version_of(frame).ok()?;
    let (checked, rest) = frame.split_at(CHECKED[usize::from(version - 1)]);
    Stored::of(version, Seq(u64::MAX), checked, &rest[CHECKSUM..], unpacked).ok()
}

/// Where the records of a frame lie that are in blobs. The checksum is not looked at.
pub(crate) fn spilled(frame: &[u8]) -> Vec<Spilled> {
    // Only these are not packed.
    if named_in(frame).next().is_none() {
        return Vec::new();
    }
    match look_into(frame, &mut Vec::new()) {
        Some(entries) => entries.filter_map(|entry| entry.spilled()).collect(),
        None => anything_spilled(frame),
    }
}

/// What looks like [`Spilled`] in a frame whose heads are damaged.
fn anything_spilled(frame: &[u8]) -> Vec<Spilled> {
    let begins = memchr::memmem::find_iter(frame, br#"{"tenant":"#);
    let read = |at: usize| serde_json::Deserializer::from_slice(&frame[at..]).into_iter().next();
    begins.filter_map(|at| read(at)?.ok()).collect()
}

/// The tenant that the first record of a log says, where it can be read. The checksum is not looked at.
pub(crate) fn tenant_of_first(
    frame: &[u8],
    fetch: impl FnOnce(&Spilled) -> Result<Vec<u8>, StoreError>,
) -> Option<String> {
    let mut unpacked = Vec::new();
    let first = look_into(frame, &mut unpacked)?.next()?;
    match first.spilled() {
        Some(spilled) => json::tenant_of_first(str::from_utf8(&fetch(&spilled).ok()?).ok()?),
        None => json::tenant_of_first(first.payload?),
    }
}

fn checksum(session: SessionId, seq: Seq, checked: &[u8], stored: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(session.as_str().as_bytes());
    hasher.update(&seq.0.to_be_bytes());
    hasher.update(checked);
    hasher.update(stored);
    hasher.finalize()
}

#[cfg(test)]
mod tests;
