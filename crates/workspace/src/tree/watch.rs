//! What the system says of changes in the folders of a workspace, so that a look goes only where something changed.
//!
//! inotify is asked directly: [`Watch::drain`] takes all that happened until now, at once, and opening a file is no event. A
//! library that delivers events from a thread of its own can say neither.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use playhouse_sandbox::folder::Folder;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::{Stamp, folder_of};
use crate::door::leftovers::is_temporary;

/// Bytes of events that are taken at once.
const TAKEN: usize = 16 * 1024;
/// Files whose change changes what a look at the folders below would see.
const RULES: [&[u8]; 2] = [b".gitignore", b".gitattributes"];

/// Folders in which something changed: paths from the workspace on, each empty or ending in a slash.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    /// All of them.
    pub(super) all: bool,
    /// With each, whether those below it are to be looked at as well.
    folders: BTreeMap<Box<[u8]>, bool>,
}

impl Dirty {
    pub(super) fn is_empty(&self) -> bool {
        !self.all && self.folders.is_empty()
    }

    /// Something changed in the folder.
    pub(super) fn add(&mut self, folder: &[u8]) {
        if !self.folders.contains_key(folder) {
            self.folders.insert(folder.into(), false);
        }
    }

    /// Something changed in the folder that concerns those below it.
    fn add_below(&mut self, folder: &[u8]) {
        self.folders.insert(folder.into(), true);
    }

    /// Whether the folder is to be looked at, and whether those below it are.
    pub(super) fn of(&self, folder: &[u8]) -> Option<bool> {
        if self.all {
            return Some(true);
        }
        self.folders.get(folder).copied()
    }

    /// The names in a folder that lead to others which are to be looked at.
    pub(super) fn ways(&self, folder: &[u8]) -> Vec<&OsStr> {
        let below = self.folders.range(folder.to_vec().into_boxed_slice()..);
        let below = below.map_while(|(path, _)| path.strip_prefix(folder));
        let mut names: Vec<&[u8]> =
            below.filter_map(|rest| rest.split(|byte| *byte == b'/').next()).collect();
        names.retain(|name| !name.is_empty());
        names.dedup();
        names.into_iter().map(OsStr::from_bytes).collect()
    }

    /// Whether the folder or one below it is to be looked at.
    pub(super) fn leads_to(&self, folder: &[u8]) -> bool {
        let mut from = self.folders.range(folder.to_vec().into_boxed_slice()..);
        self.all || from.next().is_some_and(|(path, _)| path.starts_with(folder))
    }
}

/// A watch of the folders of one workspace.
#[derive(Debug)]
pub(super) struct Watch {
    events: OwnedFd,
    /// The path of each watched folder.
    folders: HashMap<i32, Box<[u8]>>,
    watches: BTreeMap<Box<[u8]>, i32>,
    /// The workspace, and what says from outside of it which of its files count.
    root: Option<Outside>,
    /// Why not all folders are watched.
    failed: Option<io::Error>,
}

impl Watch {
    /// A watch of nothing yet.
    ///
    /// # Errors
    /// The system lends no more of them.
    pub(super) fn new() -> io::Result<Self> {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let (folders, watches) = (HashMap::new(), BTreeMap::new());
        Ok(Self { events, folders, watches, root: None, failed: None })
    }

    /// What can be read when something changed.
    pub(super) fn events(&self) -> io::Result<OwnedFd> {
        self.events.try_clone()
    }

    /// Why not all folders are watched, if so.
    pub(super) fn failed(&mut self) -> Option<io::Error> {
        self.failed.take()
    }

    /// Whether the same folder stands at the path of the workspace, and the same rules hold there.
    pub(super) fn is_of(&self, root: &Path) -> bool {
        self.root.is_some() && self.root == Outside::of(root)
    }

    /// All of the workspace is watched.
    pub(super) fn is_whole(&mut self, outside: Option<Outside>) {
        self.root = outside;
    }

    /// Watches a folder, from before it is read on.
    pub(super) fn add(&mut self, folder: &Folder, path: &[u8]) {
        let mask = WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MODIFY
            | WatchFlags::MOVE
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        if !is_local(folder) {
            let error = io::Error::new(io::ErrorKind::Unsupported, "another machine may change files there");
            self.failed = Some(error);
            return;
        }
        // The folder that is held, whatever stands at its path.
        match inotify::add_watch(&self.events, format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd()), mask)
        {
            Ok(watch) => {
                if self.folders.insert(watch, path.into()).is_some_and(|before| *before != *path) {
                    // One path of two would be told of only.
                    self.failed = Some(io::Error::other("a folder is there twice"));
                }
                self.watches.insert(path.into(), watch);
            }
            Err(error) => self.failed = Some(error.into()),
        }
    }

    /// Begins anew: what is not added again is not watched any more.
    pub(super) fn renew(&mut self) -> impl FnOnce(&mut Self) + use<> {
        let before = std::mem::take(&mut self.folders);
        self.watches.clear();
        move |watch| {
            for gone in before.into_keys().filter(|gone| !watch.folders.contains_key(gone)) {
                // It may have ended by itself.
                let _ = inotify::remove_watch(&watch.events, gone);
            }
        }
    }

    /// Takes what happened until now.
    pub(super) fn drain(&mut self, dirty: &mut Dirty) {
        let mut room = [const { MaybeUninit::<u8>::uninit() }; TAKEN];
        let Self { events, folders, watches, .. } = self;
        let mut reader = Reader::new(&*events, &mut room);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    tracing::warn!(%error, "changes of a workspace are not heard of: all of it is looked at");
                    dirty.all = true;
                    return;
                }
            };
            let what = event.events();
            if what.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT) {
                dirty.all = true;
                continue;
            }
            if what.contains(ReadFlags::IGNORED) {
                if let Some(path) = folders.remove(&event.wd())
                    && watches.get(&path) == Some(&event.wd())
                {
                    watches.remove(&path);
                }
                continue;
            }
            let Some(folder) = folders.get(&event.wd()) else { continue };
            let Some(name) = event.file_name().map(|name| name.to_bytes()) else {
                // Of the folder itself.
                match folder.strip_suffix(b"/") {
                    None => dirty.all = true,
                    Some(_) if what.contains(ReadFlags::ATTRIB) => dirty.add_below(folder),
                    Some(path) => dirty.add(folder_of(path)),
                }
                continue;
            };
            if name == b".git" || is_temporary(name) {
                continue;
            }
            if !what.contains(ReadFlags::ISDIR) {
                match RULES.contains(&name) {
                    true => dirty.add_below(folder),
                    false => dirty.add(folder),
                }
                continue;
            }
            let path = [folder, name, b"/"].concat();
            if what.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
                dirty.add(folder);
                let below = watches.range(path.clone().into_boxed_slice()..);
                let below = below.take_while(|(below, _)| below.starts_with(&path));
                let gone: Vec<_> = below.map(|(below, watch)| (below.clone(), *watch)).collect();
                for (path, watch) in gone {
                    // Where it moved to it is a new folder.
                    let _ = inotify::remove_watch(&*events, watch);
                    folders.remove(&watch);
                    watches.remove(&path);
                }
            } else {
                dirty.add_below(&path);
            }
        }
    }
}

/// What no event tells of.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outside {
    /// Device and inode of the workspace.
    root: (u64, u64),
    /// Rules of repositories: of the one of the workspace, and of those above it.
    rules: Vec<Option<Stamp>>,
}

impl Outside {
    pub(super) fn of(root: &Path) -> Option<Self> {
        let folder = Folder::open(root).ok()?;
        let facts = rustix::fs::fstat(&folder).ok()?;
        let inner = [".git", ".git/info/exclude", ".git/info/attributes"];
        let outer = [".gitignore", ".gitattributes"];
        let names = root.ancestors().flat_map(|above| {
            let outer = if above == root { [].as_slice() } else { outer.as_slice() };
            inner.iter().chain(outer).map(move |name| above.join(name))
        });
        let stamp = |path: PathBuf| {
            let mut stamp = Stamp::of(&rustix::fs::lstat(&path).ok()?);
            if path.ends_with(".git") {
                // What git does changes it all the time: it is there or not.
                (stamp.size, stamp.modified, stamp.changed) = Default::default();
            }
            Some(stamp)
        };
        Some(Self { root: (facts.st_dev, facts.st_ino), rules: names.map(stamp).collect() })
    }
}

/// Whether only this machine changes files there: where others do, the system does not tell.
fn is_local(folder: &Folder) -> bool {
    /// bcachefs, btrfs, ext2 to ext4, f2fs, overlayfs, ramfs, tmpfs, XFS, ZFS (`statfs(2)`).
    const LOCAL: [i64; 9] = [
        0xca45_1a4e,
        0x9123_683e,
        0xef53,
        0xf2f5_2010,
        0x794c_7630,
        0x8584_58f6,
        0x0102_1994,
        0x5846_5342,
        0x2fc1_2fc1,
    ];
    rustix::fs::fstatfs(folder).is_ok_and(|facts| LOCAL.contains(&(facts.f_type & 0xffff_ffff)))
}
