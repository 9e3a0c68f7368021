//! Packs: many objects in one file, with another file that says where each begins.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::Kind;
use playhouse_sandbox::folder::Folder;

/// How a list of places begins that has the form of today.
const MAGIC: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
/// Where its table of first bytes begins, and where it ends.
const FIRST: u64 = 8;
const AFTER_FIRST: u64 = FIRST + 256 * 4;
/// What an entry of a pack says before its content is shorter, in bytes.
const LONGEST_HEAD: usize = 64;

/// A pack.
#[derive(Debug)]
pub(super) struct Pack {
    list: File,
    /// How many objects have a name whose first byte is at most this.
    first: Vec<u32>,
    /// Bytes in a name.
    name: u64,
    folder: Folder,
    content: std::path::PathBuf,
    /// Opened when it is needed.
    opened: OnceCell<File>,
}

/// What stands at a place of a pack.
pub(super) enum Entry {
    /// An object.
    Whole(Kind),
    /// What is different from the object at this place.
    ChangeAt(u64),
    /// What is different from this object.
    ChangeOf(String),
}

impl Pack {
    /// The one with this list; `None` for one that is not read.
    pub(super) fn open(folder: &Folder, list: &Path, long: bool) -> Option<Self> {
        let content = list.with_extension("pack");
        let (list, _) = folder.file(list).ok()?;
        let mut head = [0; AFTER_FIRST as usize];
        list.read_exact_at(&mut head, 0).ok()?;
        let (magic, table) = head.split_at(MAGIC.len());
        if magic != MAGIC {
            return None;
        }
        let first: Vec<u32> = table.chunks_exact(4).filter_map(number).collect();
        let folder = folder.below(Path::new("")).ok()?;
        Some(Self { list, first, name: if long { 32 } else { 20 }, folder, content, opened: OnceCell::new() })
    }

    fn count(&self) -> u64 {
        self.first.last().copied().unwrap_or_default().into()
    }

    /// Where an object begins.
    pub(super) fn find(&self, id: &str) -> Option<u64> {
        let wanted = bytes(id).filter(|wanted| wanted.len() as u64 == self.name)?;
        let byte = usize::from(*wanted.first()?);
        let mut low =
            byte.checked_sub(1).map_or(Some(0), |before| self.first.get(before).copied().map(u64::from))?;
        let mut high = u64::from(*self.first.get(byte)?);
        let mut name = vec![0; wanted.len()];
        while low < high {
            let middle = low + (high - low) / 2;
            self.list.read_exact_at(&mut name, AFTER_FIRST + middle * self.name).ok()?;
            match name.cmp(&wanted) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return self.place(middle),
            }
        }
        None
    }

    fn place(&self, index: u64) -> Option<u64> {
        // After the names there is a sum of each object.
        let places = AFTER_FIRST + self.count() * (self.name + 4);
        let mut place = [0; 4];
        self.list.read_exact_at(&mut place, places + index * 4).ok()?;
        let place = u32::from_be_bytes(place);
        let Some(large) = place.checked_sub(0x8000_0000) else { return Some(place.into()) };
        let mut place = [0; 8];
        self.list.read_exact_at(&mut place, places + self.count() * 4 + u64::from(large) * 8).ok()?;
        Some(u64::from_be_bytes(place))
    }

    /// Opens it, unless it is open.
    pub(super) fn is_open(&self) -> bool {
        self.file().is_some()
    }

    fn file(&self) -> Option<&File> {
        if let Some(file) = self.opened.get() {
            return Some(file);
        }
        let (file, _) = self.folder.file(&self.content).ok()?;
        Some(self.opened.get_or_init(|| file))
    }

    /// What begins at `offset`, how many bytes it has when it is unpacked, and where it lies.
    pub(super) fn entry(&self, offset: u64) -> Option<(Entry, u64, u64)> {
        let mut head = Vec::new();
        At { file: self.file()?, at: offset }.take(LONGEST_HEAD as u64).read_to_end(&mut head).ok()?;
        let mut rest = head.as_slice();
        let mut byte = take(&mut rest)?;
        let kind = byte >> 4 & 7;
        let mut size = u64::from(byte & 15);
        let mut shift = 4;
        while byte & 0x80 != 0 {
            byte = take(&mut rest)?;
            size |= u64::from(byte & 0x7f).checked_shl(shift).filter(|_| shift < 57)?;
            shift += 7;
        }
        let entry = match kind {
            1 => Entry::Whole(Kind::Commit),
            2 => Entry::Whole(Kind::Tree),
            3 => Entry::Whole(Kind::Blob),
            4 => Entry::Whole(Kind::Tag),
            6 => Entry::ChangeAt(offset.checked_sub(distance(&mut rest)?).filter(|base| *base < offset)?),
            7 => {
                let (name, after) = rest.split_at_checked(usize::try_from(self.name).ok()?)?;
                rest = after;
                Entry::ChangeOf(name.iter().map(|byte| format!("{byte:02x}")).collect())
            }
            _ => return None,
        };
        Some((entry, size, offset + (head.len() - rest.len()) as u64))
    }

    /// What lies from `at` on, still packed.
    pub(super) fn unpacked(&self, at: u64) -> io::Result<impl Read + '_> {
        let file = self.file().ok_or(io::ErrorKind::NotFound)?;
        Ok(At { file, at })
    }
}

/// Reads a file from a place on.
struct At<'a> {
    file: &'a File,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// The bytes that a name of an object stands for.
fn bytes(id: &str) -> Option<Vec<u8>> {
    let pairs = id.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

fn take(rest: &mut &[u8]) -> Option<u8> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    Some(*first)
}

/// How far back the other object lies.
fn distance(rest: &mut &[u8]) -> Option<u64> {
    let mut byte = take(rest)?;
    let mut distance = u64::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = take(rest)?;
        distance = distance.checked_add(1)?.checked_mul(128)? | u64::from(byte & 0x7f);
    }
    Some(distance)
}

/// A size as changes write it.
fn size(rest: &mut &[u8]) -> Option<u64> {
    let (mut size, mut shift) = (0, 0);
    loop {
        let byte = take(rest)?;
        size |= u64::from(byte & 0x7f).checked_shl(shift).filter(|_| shift < 57)?;
        if byte & 0x80 == 0 {
            return Some(size);
        }
        shift += 7;
    }
}

/// How many bytes an object has of which this is a change.
pub(super) fn result_size(change: &[u8]) -> Option<u64> {
    let mut rest = change;
    size(&mut rest)?;
    size(&mut rest)
}

/// An object that is another one with a change, of at most `most` bytes; `None` where they do not fit.
pub(super) fn changed(base: &[u8], change: &[u8], most: u64) -> Option<Vec<u8>> {
    let mut rest = change;
    if size(&mut rest)? != base.len() as u64 {
        return None;
    }
    let end = usize::try_from(size(&mut rest)?.min(most)).ok()?;
    let mut made = Vec::new();
    while let Some(what) = take(&mut rest) {
        if what & 0x80 != 0 {
            let mut word = |bits: std::ops::Range<u32>| {
                let low = bits.start;
                bits.filter(|bit| what & 1 << bit != 0)
                    .try_fold(0, |word, bit| Some(word | usize::from(take(&mut rest)?) << (8 * (bit - low))))
            };
            let (from, length) = (word(0..4)?, word(4..7)?);
            let length = if length == 0 { 0x1_0000 } else { length };
            made.extend_from_slice(base.get(from..from.checked_add(length)?)?);
        } else {
            let (new, after) = rest.split_at_checked(usize::from(what)).filter(|_| what != 0)?;
            made.extend_from_slice(new);
            rest = after;
        }
        if made.len() > end {
            return None;
        }
    }
    (made.len() == end).then_some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_put_on_what_they_belong_to_and_on_nothing_else() {
        // Of 11 bytes 8: six from the fifth on, and two new ones.
        let change = [11, 8, 0x91, 4, 6, 2, b'!', b'?'];
        assert_eq!(result_size(&change), Some(8));
        assert_eq!(changed(b"abcdefghijk", &change, 100).as_deref(), Some(&b"efghij!?"[..]));
        assert_eq!(changed(b"abc", &change, 100), None, "another base");
        assert_eq!(changed(b"abcdefghijk", &change, 7), None, "too large");
        for change in
            [&[11, 8, 0x91, 4, 60][..], &[11, 8, 0], &[11, 8, 9, 1], &[11, 1], &[11, 1, 2, b'a', b'b'], &[]]
        {
            assert_eq!(changed(b"abcdefghijk", change, 100), None, "{change:?}");
        }
    }

    #[test]
    fn distances_are_read() {
        assert_eq!(distance(&mut &[0x05][..]), Some(5));
        assert_eq!(distance(&mut &[0x80, 0x00][..]), Some(128));
        assert_eq!(distance(&mut &[0xff; 20][..]), None);
        assert_eq!(size(&mut &[0x95, 0x01][..]), Some(149));
        assert_eq!(size(&mut &[0xff; 20][..]), None);
    }
}
