//! Looks at the end of sled's log before sled does.
//!
//! Sled reads its log when it is opened, and takes the first message whose checksum is wrong for the place at which a crash cut
//! it off. It cuts it off there for good, in silence: one byte that was changed loses everything behind it. So what follows
//! such a place is looked at here. Every batch of the store is flushed before the next, and begins with a message that says how
//! far it goes: where two such messages stand behind one that is wrong, the wrong one was durable, and is damaged.
//!
//! Where only one does, it may have been written a moment before what precedes it: sled gives each batch a buffer of its own, has
//! several threads write its buffers, and lets readers add to its log what they tidy up. A process that is killed then leaves a
//! hole before the batch, of zeros or of what the segment held the last time. So the wrong one is damaged only if it can be seen
//! that its buffer was written to its end.
//!
//! What sled wrote before its last snapshot (made at each opening) it reads page by page when it is needed, and then it says
//! itself what is wrong.
//!
//! This is the form of sled 0.34: a log of segments, which begin with a checksum, the place of the segment in the log (its
//! number times its size) and the place up to which all was durable; then messages: a checksum, a kind, and in sled's own form
//! of whole numbers a length, the number of the segment and a page, and the content.

use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::StoreError;

const FILE: &str = "db";

/// What a segment begins with.
const HEADER: usize = 20;

/// Where a segment begins, its first message is looked for within so many bytes.
const FIRST_MESSAGE: usize = 1024 * 1024;

/// No message begins so near to the end of a segment.
const LONGEST_HEAD: usize = 32;

/// Where a message has its kind.
const KIND_AT: usize = 4;

/// So many bytes are seen to be empty at once.
const CHUNK: usize = 256;

/// What a system writes whole, or not at all, when it kills the process that writes it.
const PAGE: usize = 4096;

/// Kinds of messages: nothing was written here; nothing follows in this segment; a batch begins. There are no others above the
/// last.
const NOTHING: u8 = 0;
const CAP: u8 = 2;
const BATCH: u8 = 3;
const LAST_KIND: u8 = 11;

/// What stands before the content of a message.
struct Head {
    sum: u32,
    kind: u8,
    segment: u64,
    /// Where the content is, from the beginning of the message.
    content: std::ops::Range<usize>,
}

/// A message of the log.
struct Message {
    kind: u8,
    /// With its head.
    length: usize,
}

/// A segment that is where it should be.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Segment {
    /// Where it begins in the file.
    offset: u64,
    number: u64,
    /// The place in the log up to which all was durable when it was begun.
    durable: u64,
}

/// Where the log in `directory` is damaged: an offset in its file. `None` also for one that is not there.
///
/// # Errors
/// It cannot be read.
pub(crate) fn damage(directory: &Path, segment: usize) -> Result<Option<(PathBuf, u64)>, StoreError> {
    let path = directory.join(FILE);
    let file = match fs::File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        result => result?,
    };
    let size = segment as u64;
    let (mut segments, mut headless) = (Vec::new(), Vec::new());
    for offset in (0..file.metadata()?.len()).step_by(segment) {
        match read_segment(&file, offset, size)? {
            Some(segment) => segments.push(segment),
            None => headless.extend(headless_segment(&file, offset)?.map(|number| (number, offset))),
        }
    }
    segments.sort_by_key(|segment| segment.number);
    // As sled does it: what is durable goes at least into this one, and what follows is one behind the other.
    let first = segments.iter().map(|segment| segment.durable / size).max().unwrap_or(0);
    // One that is older does not count any more, or sled says itself what is wrong.
    if let Some((_, offset)) = headless.into_iter().find(|(number, _)| *number >= first) {
        return Ok(Some((path, offset)));
    }
    let tail = segments.into_iter().filter(|segment| segment.number >= first);
    let tail: Vec<_> =
        (first..).zip(tail).take_while(|(number, segment)| segment.number == *number).collect();
    let mut wrong: Option<Wrong> = None;
    for (number, Segment { offset, .. }) in tail {
        let mut content = vec![0; segment];
        let length = read_up_to(&file, &mut content, offset)?;
        content.truncate(length);
        let (mut from, before) = match &mut wrong {
            Some(wrong) => (HEADER, wrong),
            None => {
                let Some(end) = end_of_messages(&content, number) else { continue };
                let next = first_batch(&content, end + 1, number);
                let is_written = was_written(&content, end, next, number);
                (end + 1, wrong.insert(Wrong { place: offset + end as u64, is_written, batches: 0 }))
            }
        };
        while let Some(batch) = first_batch(&content, from, number) {
            before.batches += 1;
            if before.is_written || before.batches > 1 {
                return Ok(Some((path, before.place)));
            }
            from = batch + 1;
        }
    }
    Ok(None)
}

/// The first message that cannot be read.
struct Wrong {
    /// Where it is in the file.
    place: u64,
    /// What it stands in was written up to the next batch, or to the end of the segment.
    is_written: bool,
    /// So many batches are behind it.
    batches: usize,
}

/// Refuses a log that is damaged.
///
/// # Errors
/// [`StoreError::Damaged`], and where it cannot be read.
pub(crate) fn check(directory: &Path, segment: usize) -> Result<(), StoreError> {
    match damage(directory, segment)? {
        None => Ok(()),
        Some((path, place)) => Err(StoreError::Damaged {
            what: path.display().to_string(),
            found: format!(
                "byte {place} is not what was written, and what follows cannot be read without it. Nothing was changed"
            ),
        }),
    }
}

/// Reads into all of `buffer`, or up to the end of the file; how much.
fn read_up_to(file: &fs::File, buffer: &mut [u8], offset: u64) -> Result<usize, StoreError> {
    let mut length = 0;
    while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.file().read_at(rest, offset + length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(length)
}

/// The segment at `offset`, if there is one.
fn read_segment(file: &fs::File, offset: u64, size: u64) -> Result<Option<Segment>, StoreError> {
    let mut header = [0; HEADER];
    if read_up_to(file, &mut header, offset)? < HEADER {
        return Ok(None);
    }
    let number = |at: usize| -> Option<u64> {
        let stored = u64::from_le_bytes(*header.get(at..)?.first_chunk()?);
        Some(stored ^ (u64::MAX >> 1))
    };
    let sum = header.first_chunk().map(|sum| u32::from_le_bytes(*sum) ^ u32::MAX);
    let is_good = sum == Some(crc32fast::hash(header.get(4..).unwrap_or_default()));
    Ok(match (number(4), number(12)) {
        (Some(place), Some(durable)) if is_good && place % size == 0 => {
            // It is below 0 where nothing was.
            Some(Segment { offset, number: place / size, durable: (durable as i64).max(0) as u64 })
        }
        _ => None,
    })
}

/// The number of the segment at `offset`, whose header is damaged: its first message has it as well.
fn headless_segment(file: &fs::File, offset: u64) -> Result<Option<u64>, StoreError> {
    let mut content = vec![0; HEADER + FIRST_MESSAGE];
    let length = read_up_to(file, &mut content, offset)?;
    content.truncate(length);
    // Sled empties the headers of segments that it gave up.
    if content.iter().take(HEADER).all(|byte| *byte == 0) {
        return Ok(None);
    }
    Ok(head(&content, HEADER)
        .filter(|head| read_message(&content, HEADER, head.segment).is_some())
        .map(|head| head.segment))
}

/// Where the first message of a segment is that cannot be read; `None` where all of it was read.
fn end_of_messages(content: &[u8], segment: u64) -> Option<usize> {
    let mut place = HEADER;
    while place + LONGEST_HEAD <= content.len() {
        match read_message(content, place, segment) {
            Some(Message { kind: CAP, .. }) => return None,
            Some(message) => place += message.length,
            None => return Some(place),
        }
    }
    None
}

/// The first message at `from` or behind it with which a batch begins.
fn first_batch(content: &[u8], from: usize, segment: u64) -> Option<usize> {
    let kind_at = from.checked_add(KIND_AT)?;
    let kinds = content.get(kind_at..)?;
    memchr::memchr_iter(BATCH, kinds)
        .map(|place| from + place)
        .find(|place| read_message(content, *place, segment).is_some())
}

/// Whether all was written between the message at `place`, which cannot be read, and the batch at `next`; without one up to the
/// end of the segment.
fn was_written(content: &[u8], place: usize, next: Option<usize>, segment: u64) -> bool {
    let ends = |at: usize| match next {
        Some(next) => at == next,
        None => at + LONGEST_HEAD > content.len(),
    };
    let limit = next.unwrap_or(content.len());
    // One behind it can be read, and all that follow that one.
    let mut at = place + 1;
    while at < limit {
        let Some(message) = read_message(content, at, segment) else {
            at = next_kind(content, at + 1);
            continue;
        };
        at += message.length;
        if ends(at) || message.kind == CAP {
            return true;
        }
    }
    // It is the last one itself.
    let of_this = |head: Head| head.segment == segment && ends(place + head.content.end);
    if head(content, place).is_some_and(of_this) {
        // What was cut off in the middle has nothing in its last page.
        let page = limit.saturating_sub(1) / PAGE * PAGE;
        let last = content.get(page.max(place)..limit).unwrap_or_default();
        return last.iter().any(|byte| *byte != 0);
    }
    let message = content.get(place..limit).unwrap_or_default();
    let mut repaired = message.get(..LONGEST_HEAD.min(message.len())).unwrap_or_default().to_vec();
    for at in 4..repaired.len() {
        let was = repaired[at];
        for byte in 0..=u8::MAX {
            repaired[at] = byte;
            let whole = head(&repaired, 0).filter(|head| head.segment == segment);
            if whole.is_some_and(|head| ends(place + head.content.end))
                && read_message(&[&repaired, &message[repaired.len()..]].concat(), 0, segment).is_some()
            {
                return true;
            }
        }
        repaired[at] = was;
    }
    false
}

/// The first place at `from` or behind it whose message would have a kind: most of a segment that was begun is empty, and a
/// look at each place of it takes longer than everything else at the opening.
fn next_kind(content: &[u8], from: usize) -> usize {
    let kinds = content.get(from.saturating_add(KIND_AT)..).unwrap_or_default();
    let is_empty = |chunk: &&[u8]| [NOTHING; CHUNK].starts_with(chunk);
    let empty = kinds.chunks(CHUNK).take_while(is_empty).count() * CHUNK;
    let rest = kinds.get(empty..).unwrap_or_default();
    let kind = rest.iter().position(|kind| *kind != NOTHING);
    kind.map_or(content.len(), |kind| from + empty + kind)
}

/// The head of the message at `place`, if it may be one.
fn head(content: &[u8], place: usize) -> Option<Head> {
    let message = content.get(place..)?;
    let sum = u32::from_le_bytes(*message.first_chunk()?);
    let kind = *message.get(KIND_AT)?;
    if kind == NOTHING || kind > LAST_KIND {
        return None;
    }
    let mut at = 5;
    let mut number = || {
        let (number, length) = read_number(message.get(at..)?)?;
        at += length;
        Some(number)
    };
    let (length, segment, _page) = (number()?, number()?, number()?);
    let end = at.checked_add(length.try_into().ok()?)?;
    Some(Head { sum, kind, segment, content: at..end })
}

/// The message at `place`, if it is whole and of this segment.
fn read_message(content: &[u8], place: usize, segment: u64) -> Option<Message> {
    let head = head(content, place).filter(|head| head.segment == segment)?;
    let message = content.get(place..)?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(message.get(head.content.clone())?);
    hasher.update(message.get(4..head.content.start)?);
    let is_whole = hasher.finalize() ^ u32::MAX == head.sum;
    is_whole.then_some(Message { kind: head.kind, length: head.content.end })
}

/// A whole number in sled's form, and how many bytes it takes.
fn read_number(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let byte = |at: usize| bytes.get(at).copied().map(u64::from);
    Some(match first {
        0..=240 => (first.into(), 1),
        241..=248 => (240 + 256 * (u64::from(first) - 241) + byte(1)?, 2),
        249 => (2288 + 256 * byte(1)? + byte(2)?, 3),
        250..=255 => {
            let count = usize::from(first) - 247;
            let mut number = [0; 8];
            number.get_mut(..count)?.copy_from_slice(bytes.get(1..1 + count)?);
            (u64::from_le_bytes(number), 1 + count)
        }
    })
}

#[cfg(test)]
mod tests;
