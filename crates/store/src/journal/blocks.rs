//! A file that is written in whole blocks, each write durable when it returns.
//!
//! On the file systems that are known for it, writes go past the kernel's memory (`O_DIRECT`) and are durable when they return
//! (`RWF_DSYNC`): one call, of exactly the blocks that changed. There the file also grows by zeros, which are then written over, so
//! that few writes have new blocks to find and a new length to keep. Elsewhere it is written and flushed, and grows by a hole. (In the
//! kernel's memory a long write makes one large page, all of which a short one writes again.)
//!
//! A file with a [layout](Layout) says how long it is: after each growth that is written anew, before the write is durable.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fs_err as fs;

use super::layout::Layout;

/// What is written begins and ends at multiples of this, in bytes.
pub(super) const BLOCK: usize = 4096;
/// By how much a file grows at once, in bytes.
pub(super) const AHEAD: u64 = 128 * 1024;
/// How much is written at once, in bytes. What is longer, or makes the file longer, is flushed when all of it is written.
const PIECE: usize = 512 * 1024;
/// So much of the memory for that is kept.
const KEPT: usize = 256 * 1024;

/// See the module.
pub(super) struct BlockFile {
    file: fs::File,
    /// Its file system is known for writes past the kernel's memory, which begin with the first one.
    may_be_direct: bool,
    is_direct: bool,
    /// How long it is, in bytes.
    length: u64,
    /// What its first block says, if that is one.
    layout: Option<Layout>,
}

impl BlockFile {
    /// Opens the file at `path`, or makes an empty one of it if `anew`.
    pub(super) fn open(path: &Path, anew: bool) -> io::Result<Self> {
        let file = fs::OpenOptions::new().read(true).write(true).create(anew).truncate(anew).open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { may_be_direct: direct::is_known(&file), file, is_direct: false, length, layout: None })
    }

    /// What is in it, before it is written to.
    pub(super) fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut content = vec![0; usize::try_from(self.length).unwrap_or(usize::MAX)];
        let mut length = 0;
        while length < content.len() {
            match self.file.file().read_at(&mut content[length..], length as u64) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.named("read", &error)),
            }
        }
        content.truncate(length);
        Ok(content)
    }

    /// What its first block says. An engine before layouts has none written there.
    pub(super) fn layout(&self) -> Option<Layout> {
        self.layout
    }

    /// Takes what its first block was found to say, and writes that anew where the file is longer: what is there counts from now on.
    pub(super) fn take_layout(&mut self, found: Option<Layout>, buffer: &mut Vec<u8>) -> io::Result<()> {
        self.layout = found;
        if found.is_some_and(|layout| layout.length < self.length) {
            // After a crash that may be what the system remembers only.
            self.file.sync_all()?;
        }
        self.raise(buffer)
    }

    /// Has the file begin with a layout of the journal with this salt. One that is empty grows by one step if it is to be written
    /// `soon`, and by a block else, which nobody knows to be durable.
    pub(super) fn lay_out(
        &mut self,
        salt: u64,
        both: bool,
        soon: bool,
        buffer: &mut Vec<u8>,
    ) -> io::Result<()> {
        let least = if soon { AHEAD } else { BLOCK as u64 };
        if !soon && self.length < least {
            self.file.set_len(least)?;
            self.length = least;
        }
        let layout = Layout { length: self.length.max(least), salt, both };
        self.put(&layout.block(), 0, buffer)?;
        self.layout = Some(layout);
        Ok(())
    }

    /// Has its layout, if it has one, say how long it is by now. It is that long durably.
    fn raise(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        match self.layout {
            Some(layout) if layout.length < self.length => {
                fail_point!(JOURNAL_GROWN);
                self.lay_out(layout.salt, layout.both, false, buffer)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Writes `content` at `at`, which is a multiple of [`BLOCK`], and zeros up to the end of its last block. `buffer` is kept for the
    /// next time.
    pub(super) fn write(&mut self, content: &[u8], at: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        self.put(content, at, buffer)?;
        self.raise(buffer)
    }

    fn put(&mut self, content: &[u8], at: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        debug_assert!(at.is_multiple_of(BLOCK as u64));
        if std::mem::take(&mut self.may_be_direct) {
            self.is_direct = direct::begin(&self.file).is_ok();
        }
        let end = at + content.len() as u64;
        let grows = end > self.length;
        let end = end.next_multiple_of(if grows && self.is_direct { AHEAD } else { BLOCK as u64 });
        let length = (end - at) as usize;
        let most = length.min(PIECE);
        if buffer.len() < most + BLOCK {
            *buffer = vec![0; most + BLOCK];
        }
        let begin = buffer.as_ptr().align_offset(BLOCK);
        let aligned = &mut buffer[begin..begin + most];
        // Linux from 5.5 on, up to 6.6, does not always make the new length of a file on ext4 durable with such a write.
        let is_one = length <= PIECE && !grows;
        for from in (0..length).step_by(PIECE) {
            let piece = &mut aligned[..PIECE.min(length - from)];
            let taken = content.get(from..).unwrap_or_default();
            let taken = &taken[..taken.len().min(piece.len())];
            piece[..taken.len()].copy_from_slice(taken);
            piece[taken.len()..].fill(0);
            self.write_piece(piece, at + from as u64, is_one)?;
        }
        self.length = self.length.max(end);
        if grows && !self.length.is_multiple_of(AHEAD) {
            self.length = self.length.next_multiple_of(AHEAD);
            self.file.set_len(self.length)?;
        }
        if !(self.is_direct && is_one) {
            self.file.sync_data()?;
        }
        if buffer.len() > KEPT {
            *buffer = Vec::new();
        }
        Ok(())
    }

    /// Writes a piece; where that goes past the kernel's memory it is durable then, if it `is_all`.
    fn write_piece(&mut self, piece: &[u8], at: u64, is_all: bool) -> io::Result<()> {
        if self.is_direct {
            match direct::write(&self.file, piece, at, is_all) {
                // Its disk has longer blocks, or it cannot after all, or may not.
                Err(error) if direct::is_refusal(&error) => {
                    direct::end(&self.file)?;
                    self.is_direct = false;
                }
                result => return result.map_err(|error| self.named("write", &error)),
            }
        }
        self.file.file().write_all_at(piece, at).map_err(|error| self.named("write", &error))
    }

    /// An error of a call that does not know the file's name, with it.
    fn named(&self, what: &str, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("failed to {what} {}: {error}", self.file.path().display()))
    }

    /// Makes its length durable.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// Writing past the kernel's memory.
#[cfg(target_os = "linux")]
mod direct {
    use std::io::{self, ErrorKind, IoSlice};

    use fs_err as fs;
    use rustix::fs::{OFlags, fcntl_setfl, fstatfs};
    use rustix::io::{Errno, ReadWriteFlags, pwritev2};

    /// The magic numbers of the file systems that are known for it.
    const EXT4: u64 = 0xEF53;
    const XFS: u64 = 0x5846_5342;

    /// Whether the file system of a file is known for them.
    pub(super) fn is_known(file: &fs::File) -> bool {
        fstatfs(file).is_ok_and(|found| matches!(found.f_type as u64, EXT4 | XFS))
    }

    /// From now on a file is written so.
    pub(super) fn begin(file: &fs::File) -> io::Result<()> {
        Ok(fcntl_setfl(file, OFlags::DIRECT)?)
    }

    /// And no longer.
    pub(super) fn end(file: &fs::File) -> io::Result<()> {
        Ok(fcntl_setfl(file, OFlags::empty())?)
    }

    /// Whether a write failed since it was one of these.
    pub(super) fn is_refusal(error: &io::Error) -> bool {
        matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::PermissionDenied)
    }

    /// Writes to such a file, durably if told to.
    pub(super) fn write(file: &fs::File, mut bytes: &[u8], mut at: u64, durably: bool) -> io::Result<()> {
        let flags = if durably { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        while !bytes.is_empty() {
            match pwritev2(file, &[IoSlice::new(bytes)], at, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => (bytes, at) = (&bytes[written..], at + written as u64),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
mod direct {
    use std::io::{Error, ErrorKind, Result};

    use fs_err as fs;

    pub(super) fn is_known(_: &fs::File) -> bool {
        false
    }

    pub(super) fn begin(_: &fs::File) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    pub(super) fn end(_: &fs::File) -> Result<()> {
        Ok(())
    }

    pub(super) fn is_refusal(_: &Error) -> bool {
        true
    }

    pub(super) fn write(_: &fs::File, _: &[u8], _: u64, _: bool) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn open(directory: &Path, is_direct: bool) -> BlockFile {
        let file = BlockFile::open(&directory.join("file"), true).unwrap();
        BlockFile { may_be_direct: file.may_be_direct && is_direct, ..file }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Where the file system takes it, also past the kernel's memory.
        #[test]
        fn what_is_written_is_there_and_zeros_behind_it(
            pieces in proptest::collection::vec((0_usize..40, 1_usize..30_000), 1..12),
            long in PIECE - 5..3 * PIECE,
            is_direct: bool,
        ) {
            let directory = tempfile::tempdir().unwrap();
            let mut file = open(directory.path(), is_direct);
            let (mut expected, mut buffer) = (Vec::new(), Vec::new());
            for (number, (block, length)) in pieces.into_iter().chain([(7, long)]).enumerate() {
                let content: Vec<u8> = (0..length).map(|byte| (byte % 251 + number) as u8 | 1).collect();
                let at = block * BLOCK;
                file.write(&content, at as u64, &mut buffer).unwrap();
                let end = (at + length).next_multiple_of(BLOCK);
                expected.resize(expected.len().max(end), 0);
                expected[at..end].fill(0);
                expected[at..at + length].copy_from_slice(&content);
                let found = fs::read(directory.path().join("file")).unwrap();
                prop_assert!(found[..expected.len()] == expected);
                prop_assert!(found[expected.len()..].iter().all(|byte| *byte == 0));
                prop_assert_eq!(found.len() as u64, file.length);
                prop_assert!(found.len().is_multiple_of(AHEAD as usize));
                prop_assert!(found.len() - expected.len() < AHEAD as usize);
            }
        }
    }

    #[test]
    fn a_disk_that_takes_no_such_blocks_is_written_through_the_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = open(directory.path(), true);
        file.write(&[1; BLOCK], 0, &mut Vec::new()).unwrap();
        // Some file systems refuse a length like this, and some do the same by themselves.
        file.write_piece(&[7; 100], 0, true).unwrap();
        let found = BlockFile::open(&directory.path().join("file"), false).unwrap().read_all().unwrap();
        assert!(found[..100] == [7; 100] && found[100..BLOCK] == [1; BLOCK - 100]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_disk_without_room_says_which_file_could_not_be_written() {
        let mut file = BlockFile::open(Path::new("/dev/full"), false).unwrap();
        let error = file.write(&[1; 100], 0, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("failed to write /dev/full: "), "{error}");
    }
}
