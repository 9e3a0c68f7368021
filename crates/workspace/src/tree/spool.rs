//! Contents that are kept for as long as an index lives, in one file without a name.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::{ContentHash, hash};

/// The most bytes that are kept for one workspace.
const MOST: u64 = 256 * 1024 * 1024;

/// The contents.
#[derive(Debug)]
pub(super) struct Spool {
    folder: PathBuf,
    /// Made when there is something to keep. It vanishes with the process.
    file: Option<File>,
    /// Where each begins, and its length.
    places: HashMap<ContentHash, (u64, u64)>,
    end: u64,
}

impl Spool {
    /// An empty one, whose file is to lie on the disk of `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), file: None, places: HashMap::new(), end: 0 }
    }

    /// Whether so many bytes more have room.
    pub(super) const fn has_room(&self, bytes: u64) -> bool {
        self.end + bytes <= MOST
    }

    /// Whether a content is kept.
    pub(super) fn has(&self, name: ContentHash) -> bool {
        self.places.contains_key(&name)
    }

    /// Keeps a content, for which there is room.
    pub(super) fn put(&mut self, name: ContentHash, content: &[u8]) -> io::Result<()> {
        if self.places.contains_key(&name) {
            return Ok(());
        }
        let file = match &self.file {
            Some(file) => file,
            None => {
                fs_err::create_dir_all(&self.folder)?;
                self.file.insert(tempfile::tempfile_in(&self.folder)?)
            }
        };
        file.write_all_at(content, self.end)?;
        self.places.insert(name, (self.end, content.len() as u64));
        self.end += content.len() as u64;
        Ok(())
    }

    /// A content; `None` where it is not kept, or cannot be read.
    pub(super) fn get(&self, name: ContentHash) -> Option<Vec<u8>> {
        let (begin, length) = *self.places.get(&name)?;
        let mut content = vec![0; usize::try_from(length).ok()?];
        self.file.as_ref()?.read_exact_at(&mut content, begin).ok()?;
        (hash(&content) == name).then_some(content)
    }

    /// Whether a fourth of what is kept is none of these.
    pub(super) fn is_worth(&self, wanted: &HashSet<ContentHash>) -> bool {
        let live: u64 =
            wanted.iter().filter_map(|name| self.places.get(name)).map(|(_, length)| length).sum();
        (self.end - live.min(self.end)) * 4 >= self.end
    }

    /// Forgets all but these.
    pub(super) fn keep_only(&mut self, wanted: &HashSet<ContentHash>) {
        let mut fresh = Self::new(&self.folder);
        for name in wanted {
            if let Some(content) = self.get(*name) {
                // One that cannot be written is not kept.
                let _ = fresh.put(*name, &content);
            }
        }
        *self = fresh;
    }
}
