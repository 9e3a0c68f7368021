//! The files of a journal: batches in the order in which they were made durable.
//!
//! Two files take turns. One is written until it is long enough; then what both hold goes to where it is to stay, and by the time
//! that the other one is long enough this one is written over from its beginning, so that a flush has no new blocks to find. They are
//! written in whole [blocks]: the last one of an entry once more with the next.
//!
//! ```text
//! file     one block that says how long the file is (see [layout]), entries
//! entry    length of the content (4 bytes), its CRC-32 (4), number (8), salt (8), CRC-32 of what stands before (4), content
//! content  for each key: its length (4), the length of its value, or 2^32-1 where it is removed (4), key, value
//! ```
//!
//! All numbers are little-endian. Entries are numbered without a gap for as long as the database lives. Each is flushed
//! before the next is begun: where one cannot be read that stands before another, it was durable, and is damaged. One that nothing
//! follows was cut off, and nobody was told of it. The salt is drawn anew each time that a journal is begun and is not known to anybody, so
//! that nothing that somebody had written can look like an entry, nor what is left of an older journal.

mod blocks;
mod layout;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use fs_err as fs;

use self::blocks::{BLOCK, BlockFile};
use self::layout::Layout;
use crate::StoreError;
use crate::blobs::sync_folder;
use crate::table::Batch;

/// The files that take turns.
pub(crate) const FILES: [&str; 2] = ["journal-0", "journal-1"];
/// What stands before the content of an entry.
const HEAD: usize = 28;
/// What stands before a key and its value.
const LENGTHS: usize = 8;
/// In the place of the length of a value: there is none any more.
const REMOVED: u32 = u32::MAX;
/// What is kept of the memory of entries that were written.
const KEPT: usize = 256 * 1024;

/// A journal that is written.
pub(crate) struct Journal {
    files: [BlockFile; 2],
    current: usize,
    /// Where the next entry begins in the current file.
    offset: u64,
    /// The number of the last entry.
    last: u64,
    salt: u64,
    /// The current file was turned to, and begins with no layout yet.
    is_bare: bool,
    /// What stands before the next entry in its block, and the next entry, as far as it is known.
    staged: Vec<u8>,
    /// What is written is put together here.
    buffer: Vec<u8>,
}

/// What is found in the files of a journal.
pub(crate) struct Found {
    pub(crate) journal: Journal,
    /// What its entries change that were not settled, as the last of them leaves it.
    pub(crate) changes: Batch,
    /// What of it cannot be read though it was durable, which is missing among the changes. The causes come first.
    pub(crate) damages: Vec<StoreError>,
    /// Why the last entry may be no more than what the system remembers, where its file cannot be written.
    pub(crate) unsure: Option<StoreError>,
}

impl Journal {
    /// Begins a journal in `directory`, durably, whose entries follow number `last`.
    pub(crate) fn begin(directory: &Path, last: u64) -> Result<Self, StoreError> {
        let [first, second] = FILES.map(|name| BlockFile::open(&directory.join(name), true));
        // Of the keys of a random hasher, which no one else gets to see.
        let salt = RandomState::new().hash_one(last);
        let mut journal = Self::of([first?, second?], last, salt);
        // Nothing of it is in use yet: in which order this becomes durable does not matter.
        for (file, soon) in [(0, true), (1, false)] {
            journal.files[file].lay_out(salt, true, soon, &mut journal.buffer)?;
        }
        // An empty entry, by which it is known later that this is not a journal that was emptied.
        journal.stage(&Batch::new());
        journal.write()?;
        journal.files[1].sync_all()?;
        sync_folder(directory)?;
        Ok(journal)
    }

    /// Reads the journal in `directory` of which all entries up to the first of `known` are in their place already, and all up to the
    /// last were durable.
    ///
    /// # Errors
    /// The files cannot be read, or are not there. What is damaged in them is told with what was found.
    pub(crate) fn read(directory: &Path, known: RangeInclusive<u64>, salt: u64) -> Result<Found, StoreError> {
        let (settled, seen) = known.into_inner();
        let [first, second] = FILES.map(|name| open(&directory.join(name)));
        let files = [first?, second?];
        let mut contents = [Vec::new(), Vec::new()];
        let mut entries = BTreeMap::new();
        for (file, content) in contents.iter_mut().enumerate() {
            *content = files[file].read_all()?;
            entries
                .extend(entries_of(content, salt).into_iter().map(|(number, place)| (number, (file, place))));
        }
        // What was settled may have been written over since; the last of it is there as long as nothing follows.
        let newer = entries.split_off(&settled.max(1));
        let mut journal = Self::of(files, settled, salt);
        let (mut changes, mut damage, mut end) = (Batch::new(), None, None);
        let layouts = [0, 1].map(|file| Layout::of(&contents[file], salt));
        let too_short = |file: usize| {
            let (path, length) = (directory.join(FILES[file]), contents[file].len());
            let found = match (layouts[file], layouts[1 - file]) {
                (Some(layout), _) if (length as u64) < layout.length => format!(
                    "it is {length} bytes long and was laid out for {}: it was cut off, or copied in part, and what was written \
                     there is gone",
                    layout.length
                ),
                // An engine before layouts begins with an entry there.
                (None, Some(other)) if other.both && !begins_with_entry(&contents[file], salt) => format!(
                    "it is {length} bytes long and its beginning, which says for how many it was laid out, is gone: it was \
                     emptied, or overwritten"
                ),
                _ => return None,
            };
            Some(StoreError::Damaged { what: path.display().to_string(), found })
        };
        let mut damages: Vec<_> = [0, 1].into_iter().filter_map(too_short).collect();
        let damaged = |number: u64, found: &str| StoreError::Damaged {
            what: directory.display().to_string(),
            found: format!("entry {number} of its journal {found}"),
        };
        let last = newer.last_key_value().map_or(0, |(last, _)| *last);
        if last < seen.max(settled) {
            damage = Some(damaged(
                seen.max(settled),
                "is not there: files of it were lost, emptied, or put back from an older copy",
            ));
        }
        let mut next = newer.first_key_value().map_or(0, |(first, _)| (*first).min(settled + 1));
        for (number, (file, place)) in newer {
            if number != next {
                damage = Some(damaged(next, &format!("cannot be read, though entry {number} can")));
            }
            next = number + 1;
            (journal.current, journal.offset, journal.last) = (file, place.end as u64, number);
            end = Some(place.start - HEAD..place.end);
            if number > settled && !take_changes(&contents[file][place], &mut changes) {
                damage = Some(damaged(number, "is not of this form"));
            }
        }
        damages.extend(damage);
        let is_well = damages.is_empty();
        // Where its flush failed it is in no file, and no later flush would care: it is written again. What is refused stays as it is.
        let (content, current) = (&contents[journal.current], &mut journal.files[journal.current]);
        let again = end.map(|end| {
            let (begin, last) = (end.start - end.start % BLOCK, end.end - end.end % BLOCK);
            journal.staged.extend_from_slice(&content[last..end.end]);
            // What follows it there stays as it is.
            let blocks = &content[begin..content.len().min(last + BLOCK)];
            if is_well { current.write(blocks, begin as u64, &mut journal.buffer) } else { Ok(()) }
        });
        let mut unsure = again.and_then(Result::err);
        for (file, layout) in layouts.into_iter().enumerate().filter(|_| is_well) {
            unsure = journal.files[file].take_layout(layout, &mut journal.buffer).err().or(unsure);
        }
        Ok(Found { journal, changes, damages, unsure: unsure.map(StoreError::from) })
    }

    fn of(files: [BlockFile; 2], last: u64, salt: u64) -> Self {
        let (offset, staged, buffer) = (BLOCK as u64, Vec::new(), Vec::new());
        Self { files, current: 0, offset, last, salt, is_bare: false, staged, buffer }
    }

    /// What its entries are known by.
    pub(crate) fn salt(&self) -> u64 {
        self.salt
    }

    /// The number of the last entry.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// How long the entries of the current file are, in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.offset.saturating_sub(BLOCK as u64)
    }

    /// How long the next entry is by now, in bytes.
    pub(crate) fn staged(&self) -> usize {
        self.staged.len() - self.before()
    }

    /// How much stands before the next entry in its block, in bytes.
    fn before(&self) -> usize {
        self.offset as usize % BLOCK
    }

    /// Adds a batch to the next entry.
    pub(crate) fn stage(&mut self, batch: &Batch) {
        if self.staged() == 0 {
            self.staged.resize(self.before() + HEAD, 0);
        }
        for (key, value) in batch {
            let length = |bytes: &[u8]| (bytes.len() as u32).to_le_bytes();
            self.staged.extend_from_slice(&length(key));
            self.staged
                .extend_from_slice(&value.as_ref().map_or(REMOVED.to_le_bytes(), |value| length(value)));
            self.staged.extend_from_slice(key);
            self.staged.extend_from_slice(value.as_deref().unwrap_or_default());
        }
    }

    /// Makes the next entry durable, if something was staged. After an error nothing more may be written: nobody knows what is there.
    pub(crate) fn write(&mut self) -> Result<(), StoreError> {
        if self.staged() == 0 {
            return Ok(());
        }
        let before = self.before();
        let content = &self.staged[before + HEAD..];
        let too_long = |_| StoreError::Backend(format!("a round of {} bytes is too long", content.len()));
        let length = u32::try_from(content.len()).map_err(too_long)?;
        let sum = crc32fast::hash(content);
        let number = self.last + 1;
        let head = head(length, sum, number, self.salt);
        self.staged[before..before + HEAD].copy_from_slice(&head);
        let begin = self.offset - before as u64;
        if self.is_bare {
            self.lay_out()?;
        }
        self.files[self.current].write(&self.staged, begin, &mut self.buffer)?;
        fail_point!(JOURNAL_WRITTEN);
        self.offset = begin + self.staged.len() as u64;
        self.last = number;
        self.staged.drain(..self.staged.len() - self.before());
        self.staged.shrink_to(KEPT);
        Ok(())
    }

    /// Goes on in the other file, whose entries are settled.
    pub(crate) fn turn(&mut self) {
        self.staged.drain(..self.before());
        (self.current, self.offset) = (1 - self.current, BLOCK as u64);
        self.is_bare = self.files[self.current].layout().is_none();
    }

    /// Has the current file, of which all entries are settled, begin with a layout. An engine before layouts made it.
    fn lay_out(&mut self) -> Result<(), StoreError> {
        let other = 1 - self.current;
        let both = self.files[other].layout();
        self.files[self.current].lay_out(self.salt, both.is_some(), false, &mut self.buffer)?;
        if both.is_some() {
            self.files[self.current].sync_all()?;
            self.files[other].lay_out(self.salt, true, false, &mut self.buffer)?;
        }
        self.is_bare = false;
        Ok(())
    }
}

fn open(path: &Path) -> Result<BlockFile, StoreError> {
    match BlockFile::open(path, false) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(missing(path.to_owned())),
        result => Ok(result?),
    }
}

/// Makes the files of a journal that are not there, empty; what that means.
pub(crate) fn complete(directory: &Path) -> Result<Vec<StoreError>, StoreError> {
    let mut damages = Vec::new();
    for path in FILES.map(|name| directory.join(name)) {
        if !path.exists() {
            fs::write(&path, "")?;
            damages.push(missing(path));
        }
    }
    Ok(damages)
}

fn missing(path: PathBuf) -> StoreError {
    StoreError::Damaged {
        what: path.display().to_string(),
        found: "it is not there, though the database was not closed in order: what was written last is in it"
            .to_owned(),
    }
}

fn head(length: u32, sum: u32, number: u64, salt: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[4..8].copy_from_slice(&sum.to_le_bytes());
    head[8..16].copy_from_slice(&number.to_le_bytes());
    head[16..24].copy_from_slice(&salt.to_le_bytes());
    let sum = crc32fast::hash(&head[..24]);
    head[24..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// All entries with this salt, with their numbers and where their contents are. What stands between them is passed over.
fn entries_of(content: &[u8], salt: u64) -> Vec<(u64, Range<usize>)> {
    let salt = salt.to_le_bytes();
    let mut entries = Vec::new();
    let mut from = 0;
    while let Some(at) = memchr::memmem::find(&content[from..], &salt) {
        let at = from + at;
        match at.checked_sub(16).and_then(|begin| entry_at(content, begin)) {
            Some((number, place)) => {
                from = place.end;
                entries.push((number, place));
            }
            None => from = at + 1,
        }
    }
    entries
}

/// Whether there is an entry with this salt at the first byte.
fn begins_with_entry(content: &[u8], salt: u64) -> bool {
    entry_at(content, 0).is_some() && content[16..24] == salt.to_le_bytes()
}

fn entry_at(content: &[u8], begin: usize) -> Option<(u64, Range<usize>)> {
    let known = content.get(begin..begin + HEAD)?;
    let (length, sum) = (u32_at(known, 0)?, u32_at(known, 4)?);
    let number = u64::from_le_bytes(known.get(8..16)?.try_into().ok()?);
    let salt = u64::from_le_bytes(known.get(16..24)?.try_into().ok()?);
    let place = begin + HEAD..(begin + HEAD).checked_add(length as usize)?;
    let is_whole =
        head(length, sum, number, salt) == known && crc32fast::hash(content.get(place.clone())?) == sum;
    is_whole.then_some((number, place))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Takes the changes of an entry's content over; whether it could be read to its end.
fn take_changes(mut content: &[u8], changes: &mut Batch) -> bool {
    let take = |content: &mut &[u8], length: u32| -> Option<Vec<u8>> {
        let (taken, rest) = content.split_at_checked(length as usize)?;
        *content = rest;
        Some(taken.to_vec())
    };
    while !content.is_empty() {
        let (Some(key), Some(value)) = (u32_at(content, 0), u32_at(content, 4)) else { return false };
        content = &content[LENGTHS..];
        let Some(key) = take(&mut content, key) else { return false };
        let value = match value {
            REMOVED => None,
            length => match take(&mut content, length) {
                Some(value) => Some(value),
                None => return false,
            },
        };
        changes.insert(key, value);
    }
    true
}

#[cfg(test)]
mod tests;
