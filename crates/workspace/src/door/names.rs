//! The names of a file that has several (hard links).
//!
//! A file that is written in place changes under all of them. So they are looked for first: one that lies outside of the
//! workspace, or that is not to be changed there, must keep its content.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use playhouse_policy::Zone;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use super::{open_at, walk};
use crate::Workspace;

/// Entries of directories that are looked at. Beyond that, names count as not found.
const LOOKED_AT: usize = 500_000;

/// Whether every name of the file `stat` at `path` lies in `workspace`, in a place that may be changed.
pub(super) fn all_within(workspace: &Workspace, path: &Path, stat: &Stat) -> bool {
    let root = workspace.root();
    let Some(parent) = path.parent().filter(|parent| parent.starts_with(root)) else { return false };
    let search = || Search { workspace, stat, found: 0, left: LOOKED_AT };
    // Most of them lie beside each other.
    let mut beside = search();
    if !beside.look(parent, &mut Vec::new()) {
        return false;
    }
    if beside.is_done() {
        return true;
    }
    let (mut search, mut folders) = (search(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        if !search.look(&folder, &mut folders) {
            return false;
        }
        if search.is_done() {
            return true;
        }
    }
    false
}

struct Search<'a> {
    workspace: &'a Workspace,
    stat: &'a Stat,
    found: u64,
    left: usize,
}

impl Search<'_> {
    fn is_done(&self) -> bool {
        #[allow(clippy::useless_conversion)]
        let names = u64::from(self.stat.st_nlink);
        self.found >= names
    }

    /// Looks at the names in `folder`, and adds the folders in it to `folders`. False where one of the file is not to be
    /// changed, or too much was looked at.
    fn look(&mut self, folder: &Path, folders: &mut Vec<PathBuf>) -> bool {
        let Ok(held) = walk::open_directory(self.workspace.root(), folder) else { return true };
        // It may be held in a way in which it cannot be read.
        let readable = open_at(&held, ".".as_ref(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        let Ok(entries) = readable.and_then(Dir::new) else { return true };
        for entry in entries {
            let Ok(entry) = entry else { return true };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Some(left) = self.left.checked_sub(1) else { return false };
            self.left = left;
            let path = || folder.join(OsStr::from_bytes(name.to_bytes()));
            let mut kind = entry.file_type();
            if entry.ino() == self.stat.st_ino || kind == FileType::Unknown {
                let Ok(found) = rustix::fs::statat(&held, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                kind = FileType::from_raw_mode(found.st_mode);
                if (found.st_dev, found.st_ino) == (self.stat.st_dev, self.stat.st_ino) {
                    let place = self.workspace.walked(&path());
                    if !place.is_ok_and(|place| place.zone == Zone::Workspace) {
                        return false;
                    }
                    self.found += 1;
                }
            }
            if kind == FileType::Directory {
                folders.push(path());
            }
        }
        true
    }
}
