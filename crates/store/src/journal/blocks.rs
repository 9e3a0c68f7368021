//! A file that is written in whole blocks, each write durable when it returns.
//!
//! On the file systems that are known for it, writes go past the kernel's memory (`O_DIRECT`, `O_DSYNC`): one call, of exactly the
//! blocks that changed. There the file also grows by zeros, which are then written over, so that few writes have new blocks to find
//! and a new length to keep. (In the kernel's memory a long write makes one large page, all of which a short one writes again.)
//! Elsewhere it is written and flushed.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fs_err as fs;

/// What is written begins and ends at multiples of this, in bytes.
pub(super) const BLOCK: usize = 4096;
/// By how much a file grows at once, in bytes.
const AHEAD: u64 = 128 * 1024;
/// How much is written at once, in bytes.
const PIECE: usize = 256 * 1024;

/// See the module.
pub(super) struct BlockFile {
    file: fs::File,
    is_direct: bool,
    /// How long it is, in bytes.
    length: u64,
}

impl BlockFile {
    /// Opens the file at `path`, or makes an empty one of it if `anew`.
    pub(super) fn open(path: &Path, anew: bool) -> io::Result<Self> {
        let file = options(anew).open(path)?;
        let length = file.metadata()?.len();
        let direct = direct(&file);
        Ok(Self { is_direct: direct.is_some(), file: direct.unwrap_or(file), length })
    }

    /// What is in it.
    pub(super) fn read_all(&self) -> io::Result<Vec<u8>> {
        fs::read(self.file.path())
    }

    /// Writes `content` at `at`, which is a multiple of [`BLOCK`], and zeros up to the end of its last block. `buffer` is kept for the
    /// next time.
    pub(super) fn write(&mut self, content: &[u8], at: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        debug_assert!(at.is_multiple_of(BLOCK as u64));
        let end = at + content.len() as u64;
        let grows = self.is_direct && end > self.length;
        let end = end.next_multiple_of(if grows { AHEAD } else { BLOCK as u64 });
        let length = (end - at) as usize;
        let most = length.min(PIECE);
        if buffer.len() < most + BLOCK {
            *buffer = vec![0; most + BLOCK];
        }
        let begin = buffer.as_ptr().align_offset(BLOCK);
        let aligned = &mut buffer[begin..begin + most];
        for from in (0..length).step_by(PIECE) {
            let piece = &mut aligned[..PIECE.min(length - from)];
            let taken = content.get(from..).unwrap_or_default();
            let taken = &taken[..taken.len().min(piece.len())];
            piece[..taken.len()].copy_from_slice(taken);
            piece[taken.len()..].fill(0);
            self.write_piece(piece, at + from as u64)?;
        }
        fail_point!(JOURNAL_WRITTEN);
        if !self.is_direct {
            self.file.sync_data()?;
        }
        self.length = self.length.max(end);
        Ok(())
    }

    fn write_piece(&mut self, piece: &[u8], at: u64) -> io::Result<()> {
        match self.file.file().write_all_at(piece, at) {
            // Its disk has longer blocks, or it cannot after all.
            Err(error) if self.is_direct && error.kind() == io::ErrorKind::InvalidInput => {
                self.file = options(false).open(self.file.path())?;
                self.is_direct = false;
                self.file.file().write_all_at(piece, at)
            }
            result => result,
        }
    }

    /// Makes its length durable.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

fn options(anew: bool) -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(anew).truncate(anew);
    options
}

/// The same file, whose writes go past the kernel's memory and are durable when they return. Where it is not known that its file
/// system does both, none.
#[cfg(target_os = "linux")]
fn direct(file: &fs::File) -> Option<fs::File> {
    use fs_err::os::unix::fs::OpenOptionsExt;
    use rustix::fs::OFlags;

    const EXT4: i64 = 0xEF53;
    const XFS: i64 = 0x5846_5342;
    let kind = rustix::fs::fstatfs(file).ok()?.f_type as i64;
    let flags = (OFlags::DIRECT | OFlags::DSYNC).bits() as i32;
    let open = || options(false).custom_flags(flags).open(file.path()).ok();
    matches!(kind, EXT4 | XFS).then(open).flatten()
}

#[cfg(not(target_os = "linux"))]
fn direct(_: &fs::File) -> Option<fs::File> {
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn open(directory: &Path, is_direct: bool) -> BlockFile {
        let mut file = BlockFile::open(&directory.join("file"), true).unwrap();
        if !is_direct {
            (file.file, file.is_direct) = (options(false).open(file.file.path()).unwrap(), false);
        }
        file
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
                let found = file.read_all().unwrap();
                prop_assert!(found[..expected.len()] == expected);
                prop_assert!(found[expected.len()..].iter().all(|byte| *byte == 0));
                prop_assert_eq!(found.len() as u64, file.length);
                let ahead = if file.is_direct { AHEAD as usize } else { BLOCK };
                prop_assert!(found.len().is_multiple_of(ahead) && found.len() - expected.len() < ahead);
            }
        }
    }

    #[test]
    fn a_disk_that_takes_no_such_blocks_is_written_through_the_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = open(directory.path(), true);
        // Some file systems refuse a length like this, and some do the same by themselves.
        file.write_piece(&[7; 100], 0).unwrap();
        assert_eq!(file.read_all().unwrap(), [7; 100]);
    }
}
