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
use std::path::Path;

use playhouse_sandbox::folder::Folder;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

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
    /// Device and inode of the workspace.
    root: Option<(u64, u64)>,
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

    /// Whether it is still the same folder that stands at the path of the workspace.
    pub(super) fn is_of(&self, root: &Path) -> bool {
        self.root.is_some() && Folder::open(root).ok().and_then(|folder| identity(&folder)) == self.root
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
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        if path.is_empty() {
            self.root = identity(folder);
        }
        // The folder that is held, whatever stands at its path.
        match inotify::add_watch(&self.events, format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd()), mask)
        {
            Ok(watch) => {
                if let Some(before) = self.folders.insert(watch, path.into())
                    && *before != *path
                {
                    self.watches.remove(&before);
                }
                self.watches.insert(path.into(), watch);
            }
            // One that is gone, or may not be read, is told of by the folder above it.
            Err(Errno::NOENT | Errno::ACCESS) => {}
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
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
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
                // Of the folder itself: others are told of by the one above.
                if folder.is_empty() {
                    dirty.all = true;
                } else if what.contains(ReadFlags::ATTRIB) {
                    dirty.add_below(folder);
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

/// Device and inode.
fn identity(folder: &Folder) -> Option<(u64, u64)> {
    let facts = rustix::fs::fstat(folder).ok()?;
    Some((facts.st_dev, facts.st_ino))
}
