//! An index of the files of a workspace, so that it can be told what a command changed.
//!
//! A command does not say what it writes. So the workspace is looked at before and after it: which files are there, and by
//! inode, size and times whether one changed. What could not be had again is kept before a command starts; what git holds in
//! a pack is not. All sessions of a workspace share one [`TreeIndex`]. See `docs/design/changes.md`.
//!
//! Files that git ignores are seen, and their content is not kept; ignored folders are not looked into.

mod folders;
mod held;
mod news;
mod noted;
mod spool;
mod walk;
mod watch;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::Stat;

use crate::repository::{Repository, Tracked};
use crate::state::{Doubtful, FileState, FileWrite, FolderWrite, LARGEST_KEPT};
use crate::{ContentHash, hash};
use folders::Folders;
pub use held::HeldFiles;
pub use news::{ChangedBy, Ears, FileChange, News};
use noted::Running;
use spool::Spool;
use tokio::sync::Notify;
use walk::{Included, Seen, Stopped, Walk};
use watch::{Dirty, Outside, Watch};

/// Bytes of a file whose content is kept before a command.
const LARGEST: u64 = 2 * 1024 * 1024;
/// Bytes of changed files that one answer brings, and how long they may take to be read.
const MOST_TOLD: u64 = 128 * 1024 * 1024;
const TELLING: Duration = Duration::from_secs(5);
/// Changed files without a content that one answer names.
const MOST_UNKNOWN: usize = 100;
/// How long a workspace that has too many files, or took too long each time, is not looked at again.
const QUIET: Duration = Duration::from_secs(600);
/// One that took too long for the first time is looked at again after so many times what a look may take, and twice as
/// long after each further one: the machine may have been busy.
const PAUSE: u32 = 10;
/// How far the clock of a file system may be behind that of the engine: it moves with the kernel's timer.
const BEHIND: Duration = Duration::from_millis(10);
/// Turns of which it is known what they may still keep.
const TURNS: usize = 64;
/// How long git may take.
const ASKED: Duration = Duration::from_secs(5);

/// How much is looked at, and kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLimits {
    /// Files in a workspace.
    pub files: usize,
    /// How long one look at all of them may take.
    pub scan: Duration,
    /// Bytes of contents that are kept for one turn before its commands.
    pub kept: u64,
    /// Ignored files whose content is kept all the same: patterns as in a `.gitignore`.
    pub include: Vec<String>,
}

impl Default for TreeLimits {
    fn default() -> Self {
        Self { files: 200_000, scan: Duration::from_secs(2), kept: 64 * 1024 * 1024, include: Vec::new() }
    }
}

/// The files of a workspace, by path from it on.
type Files = BTreeMap<Box<[u8]>, Entry>;
/// The files that differ from the last look, and how they were.
type Differing = BTreeMap<Box<[u8]>, Option<Entry>>;

/// What the system says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    mode: u32,
}

impl Stamp {
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "types differ between systems")]
    fn of(facts: &Stat) -> Self {
        Self {
            inode: facts.st_ino,
            size: u64::try_from(facts.st_size).unwrap_or(0),
            modified: (facts.st_mtime, facts.st_mtime_nsec as i64),
            changed: (facts.st_ctime, facts.st_ctime_nsec as i64),
            mode: facts.st_mode,
        }
    }
}

/// Why a content is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Ignored,
    Large,
    NoRoom,
    Unreadable,
}

/// Where the content of a file can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// In a pack of git's: the name of the object.
    Packed(Box<str>),
    /// In the spool.
    Spooled(ContentHash),
    /// Nowhere; it is known what it was.
    Hashed(ContentHash, Why),
    /// Nowhere.
    Unread(Why),
}

impl Content {
    const fn is_ignored(&self) -> bool {
        matches!(self, Self::Unread(Why::Ignored))
    }

    const fn hash(&self) -> Option<ContentHash> {
        match self {
            Self::Spooled(hash) | Self::Hashed(hash, _) => Some(*hash),
            Self::Packed(_) | Self::Unread(_) => None,
        }
    }

    const fn why(&self) -> Option<Why> {
        match self {
            Self::Hashed(_, why) | Self::Unread(why) => Some(*why),
            Self::Packed(_) | Self::Spooled(_) => None,
        }
    }
}

/// A file at the last look.
#[derive(Clone, Debug)]
struct Entry {
    stamp: Stamp,
    content: Content,
    /// It changed so shortly before the look that another change may not show: it is read again.
    is_fresh: bool,
}

impl Entry {
    fn is_like(&self, other: &Self) -> bool {
        let is_same = self.content.hash().is_some() && self.content.hash() == other.content.hash();
        self.stamp.mode == other.stamp.mode && (is_same || self.stamp == other.stamp)
    }
}

/// For whom changes are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watcher {
    /// The session.
    pub session: Arc<str>,
    /// Its turn: what is kept for one turn is bounded.
    pub turn: Arc<str>,
}

#[derive(Debug)]
struct State {
    /// `None` before the first look.
    files: Option<Files>,
    /// The folders, if there was a look.
    folders: Folders,
    /// Hears of changes; without it all files are looked at each time.
    watch: Option<Watch>,
    /// Where something changed since the last look.
    dirty: Dirty,
    /// What is to be told to those who hear of changes.
    news: News,
    tracked: Option<Tracked>,
    spool: Spool,
    running: Vec<Running>,
    /// Files that tools are writing: those say themselves what changes.
    held: HashMap<Box<[u8]>, usize>,
    /// Until when nothing is looked at, and why.
    quiet: Option<(Instant, String)>,
    /// Looks that took too long, one after the other.
    slow: u32,
    /// What may still be kept for each of the last turns.
    room: Vec<(Arc<str>, u64)>,
    next: u64,
}

/// The index of one workspace.
#[derive(Debug)]
pub struct TreeIndex {
    root: PathBuf,
    limits: TreeLimits,
    included: Included,
    /// What is no file of the workspace: paths from it on.
    hidden: Vec<Vec<u8>>,
    /// Whether git was asked.
    asked: AtomicBool,
    /// Whether anything was looked at.
    used: AtomicBool,
    /// Whether somebody wants to hear of changes.
    heard: AtomicBool,
    /// Told when there is news.
    told: Arc<Notify>,
    state: Mutex<State>,
}

/// What changed while a call ran.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SeenChanges {
    /// The files that differ, by path.
    pub files: Vec<FileWrite>,
    /// The folders that differ, by path.
    pub folders: Vec<FolderWrite>,
    /// Files and folders that may have been changed by another session.
    pub ambiguous: Vec<Doubtful>,
    /// Those whose content before is not kept, and why.
    pub not_covered: Vec<(PathBuf, &'static str)>,
    /// Why not all is known.
    pub gaps: Vec<String>,
}

/// A call that is watched. Dropped, nobody is told what changed.
#[derive(Debug)]
pub struct Tracking {
    index: Arc<TreeIndex>,
    id: u64,
}

impl TreeIndex {
    /// An index of the workspace at `root`, which is absolute, links resolved, without what lies at the `hidden` paths. Contents
    /// are kept on the disk of `folder`.
    pub fn new(root: &Path, folder: &Path, limits: TreeLimits, hidden: &[PathBuf]) -> Self {
        let state = State {
            files: None,
            folders: Folders::new(),
            watch: None,
            dirty: Dirty::default(),
            news: News::default(),
            tracked: None,
            spool: Spool::new(folder),
            running: Vec::new(),
            held: HashMap::new(),
            quiet: None,
            slow: 0,
            room: Vec::new(),
            next: 0,
        };
        let included = Included::new(&limits.include);
        let within = hidden.iter().filter_map(|path| path.strip_prefix(root).ok());
        let hidden = within.map(|path| path.as_os_str().as_bytes().to_vec()).collect();
        let (asked, used) = (AtomicBool::new(false), AtomicBool::new(false));
        let (heard, told) = (AtomicBool::new(false), Arc::default());
        let (root, state) = (root.to_owned(), Mutex::new(state));
        Self { root, limits, included, hidden, asked, used, heard, told, state }
    }

    /// Whether anything was looked at.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed) || self.heard.load(Ordering::Relaxed)
    }

    /// Asks git which files it knows, before the first look.
    pub async fn ask_git(&self) {
        if self.asked.swap(true, Ordering::Relaxed) {
            return;
        }
        let root = self.root.clone();
        let repository =
            playhouse_sandbox::try_blocking(move || Repository::open(&root, &[], &|_| false)).await;
        let Some(repository) = repository.ok().flatten() else { return };
        match repository.patient(ASKED).tracked().await {
            Ok(tracked) => {
                let mut state = self.state.lock();
                // Another call may have looked meanwhile.
                if state.files.is_none() {
                    state.tracked = tracked;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "git says nothing of a workspace: contents are kept without it");
            }
        }
    }

    /// Begins to watch. What differs from now on is what the call changed. Blocks.
    pub fn begin(self: &Arc<Self>, watcher: &Watcher) -> Tracking {
        let mut state = self.state.lock();
        let known = state.room.iter().position(|(turn, _)| *turn == watcher.turn);
        let room = known.map_or(self.limits.kept, |place| state.room.remove(place).1);
        let left = self.look(&mut state, room, false);
        let gaps = match left {
            Ok(left) => {
                state.room.push((Arc::clone(&watcher.turn), left));
                if state.room.len() > TURNS {
                    state.room.remove(0);
                }
                Vec::new()
            }
            Err(why) => vec![why],
        };
        state.next += 1;
        let id = state.next;
        let session = Arc::clone(&watcher.session);
        let (changed, folders) = (BTreeMap::new(), BTreeMap::new());
        let since = Instant::now();
        state.running.push(Running { id, session, in_background: false, since, changed, folders, gaps });
        Tracking { index: Arc::clone(self), id }
    }

    /// The path from the workspace on; `None` for one that lies elsewhere.
    fn key(&self, path: &Path) -> Option<Box<[u8]>> {
        Some(path.strip_prefix(&self.root).ok()?.as_os_str().as_bytes().into())
    }

    /// Looks at all files, and notes with each call that runs what differs. Gives what may still be kept.
    fn look(&self, state: &mut State, room: u64, hashes: bool) -> Result<u64, String> {
        if let Some((until, why)) = &state.quiet {
            if Instant::now() < *until {
                return Err(why.clone());
            }
            state.quiet = None;
        }
        self.used.store(true, Ordering::Relaxed);
        state.make_room(room);
        if let Some(watch) = &mut state.watch {
            watch.drain(&mut state.dirty);
        }
        let is_first = state.files.is_none();
        if is_first || state.watch.as_ref().is_none_or(|watch| !watch.is_of(&self.root)) {
            state.dirty.all = true;
        }
        let dirty = std::mem::take(&mut state.dirty);
        if dirty.is_empty() {
            return Ok(room);
        }
        let outside = state.watch.as_ref().filter(|_| dirty.all).map(|_| Outside::of(&self.root));
        let renewed = state.watch.as_mut().filter(|_| dirty.all).map(Watch::renew);
        let empty = Files::new();
        let mut walk = Walk {
            old: state.files.as_ref().unwrap_or(&empty),
            old_folders: &state.folders,
            included: &self.included,
            hidden: &self.hidden,
            tracked: state.tracked.as_ref(),
            spool: &mut state.spool,
            deadline: Instant::now() + self.limits.scan,
            left: self.limits.files,
            room,
            hashes,
            hashed: 0,
            watch: state.watch.as_mut(),
            dirty: &dirty,
            seen: Seen::default(),
        };
        let walked = walk.run(&self.root);
        let (seen, left) = (std::mem::take(&mut walk.seen), walk.room);
        let count = seen.files.len().max(state.files.as_ref().map_or(0, Files::len));
        let walked = walked.and(if count > self.limits.files { Err(Stopped::TooMany) } else { Ok(()) });
        if let Err(stopped) = walked {
            let quiet = match stopped {
                Stopped::TooSlow => {
                    let pause = self.limits.scan.saturating_mul(PAUSE << state.slow.min(10)).min(QUIET);
                    state.slow += 1;
                    pause
                }
                _ => QUIET,
            };
            let why = self.stopped(stopped);
            for running in &mut state.running {
                if !running.gaps.contains(&why) {
                    running.gaps.push(why.clone());
                }
            }
            state.files = None;
            state.folders.clear();
            state.tracked = None;
            self.end_watch(state);
            state.quiet = Some((Instant::now() + quiet, why.clone()));
            return Err(why);
        }
        state.slow = 0;
        if let (Some(watch), Some(renewed)) = (&mut state.watch, renewed) {
            renewed(watch);
            watch.is_whole(outside.flatten());
        }
        if let Some(error) = state.watch.as_mut().and_then(Watch::failed) {
            tracing::info!(root = %self.root.display(), %error, "changes of a workspace are not heard of: all of it is looked at");
            self.end_watch(state);
        }
        self.take(state, seen, dirty.all);
        Ok(left)
    }

    /// Nothing is heard any more.
    fn end_watch(&self, state: &mut State) {
        state.watch = None;
        self.told.notify_one();
    }

    /// Takes what a look saw.
    fn take(&self, state: &mut State, mut seen: Seen, is_all: bool) {
        seen.again.iter().for_each(|folder| state.dirty.add(folder));
        state.dirty.all |= seen.has_links;
        if state.files.is_none() {
            state.files = Some(seen.files);
            state.folders = seen.inner;
            if let Some(tracked) = &mut state.tracked {
                tracked.forget_files();
            }
            return;
        }
        let folders = state.take_folders(&mut seen, is_all);
        let Some(old) = &mut state.files else { return };
        let mut differing = seen.differences(old);
        // A tool that writes says so itself.
        for path in state.held.keys() {
            differing.remove(path);
            match old.get(path) {
                Some(entry) => drop(seen.files.insert(path.clone(), entry.clone())),
                None => drop(seen.files.remove(path)),
            }
            state.dirty.add(folder_of(path));
        }
        if is_all {
            *old = seen.files;
        } else {
            for path in differing.keys() {
                old.remove(path);
            }
            old.extend(seen.files);
        }
        if differing.is_empty() && folders.is_empty() {
            return;
        }
        if state.watch.is_some() && !differing.is_empty() {
            state.tell(&self.root, &differing);
            self.told.notify_one();
        }
        state.attribute(&differing, &folders);
    }

    /// Files that changed since a time, in time since 1970. Git ignores none of them. Nobody knows what they were before: they are
    /// not covered, and at most a hundred are named. Blocks.
    ///
    /// # Errors
    /// The files cannot be looked at, or are too many.
    pub fn changed_since(&self, since: Duration) -> Result<SeenChanges, String> {
        let mut state = self.state.lock();
        self.look(&mut state, 0, false)?;
        let since = since.saturating_sub(BEHIND);
        let since = (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), i64::from(since.subsec_nanos()));
        let entries = state.files.iter().flatten();
        let changed =
            entries.filter(|(_, entry)| entry.stamp.changed >= since && !entry.content.is_ignored());
        let write = |key: &[u8], entry: &Entry| {
            let Stamp { size, mode, .. } = entry.stamp;
            let unknown = FileState { content: None, size, bytes: None, mode };
            let path = self.root.join(OsStr::from_bytes(key));
            FileWrite { path, before: Some(unknown.clone()), after: Some(unknown) }
        };
        let mut files: Vec<FileWrite> = changed.map(|(key, entry)| write(key, entry)).collect();
        let unnamed = files.len().saturating_sub(MOST_UNKNOWN);
        files.truncate(MOST_UNKNOWN);
        Ok(SeenChanges { files, gaps: unnamed_gap(unnamed).into_iter().collect(), ..SeenChanges::default() })
    }

    fn stopped(&self, stopped: Stopped) -> String {
        match stopped {
            Stopped::TooMany => format!(
                "the workspace has more than {} files that git does not ignore, so changes of commands are not covered by undo",
                self.limits.files
            ),
            Stopped::TooSlow => format!(
                "looking at all files of the workspace takes longer than {} ms, so changes of commands are not covered by undo",
                self.limits.scan.as_millis()
            ),
            Stopped::Unreadable(why) => {
                format!(
                    "the workspace cannot be read ({why}), so changes of commands are not covered by undo"
                )
            }
        }
    }
}

impl State {
    /// Forgets contents that nothing stands for any more, where there is no room.
    fn make_room(&mut self, wanted: u64) {
        if self.spool.has_room(wanted) {
            return;
        }
        let entries = self.files.iter().flat_map(BTreeMap::values);
        let before = self.running.iter().flat_map(|running| running.changed.values());
        let before = before.filter_map(|(entry, _)| entry.as_ref());
        let wanted: HashSet<ContentHash> = entries
            .chain(before)
            .filter_map(|entry| match entry.content {
                Content::Spooled(hash) => Some(hash),
                _ => None,
            })
            .collect();
        if self.spool.is_worth(&wanted) {
            self.spool.keep_only(&wanted);
        }
    }

    /// The hash of a content, if that can be told.
    fn hash_of(&mut self, entry: &Entry) -> Option<ContentHash> {
        match &entry.content {
            Content::Packed(object) => {
                let content = self.tracked.as_mut()?.content(object, LARGEST_KEPT)?;
                as_checked_out(content, entry.stamp.size).as_deref().map(hash)
            }
            content => content.hash(),
        }
    }

    /// The file of an entry.
    fn state(&mut self, entry: &Entry, told: &mut u64, until: Instant) -> FileState {
        let Entry { stamp, content, .. } = entry;
        let has_room = *told + stamp.size <= MOST_TOLD && Instant::now() < until;
        let bytes = match content {
            _ if !has_room => None,
            Content::Spooled(hash) => self.spool.get(*hash),
            Content::Packed(object) => self
                .tracked
                .as_mut()
                .and_then(|tracked| tracked.content(object, LARGEST_KEPT))
                .and_then(|bytes| as_checked_out(bytes, stamp.size)),
            Content::Hashed(..) | Content::Unread(_) => None,
        };
        let content = content.hash().or_else(|| bytes.as_deref().map(hash));
        *told += bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        FileState { content, size: stamp.size, bytes: bytes.map(Bytes::from), mode: stamp.mode }
    }
}

/// Says that so many more files are not covered.
fn unnamed_gap(count: usize) -> Option<String> {
    (count > 0).then(|| format!("{count} more files changed whose content before is not kept"))
}

/// The path of the folder that a file lies in: empty, or ending in a slash.
fn folder_of(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    path.get(..end).unwrap_or_default()
}

/// The content of a file that has so many bytes and of which git keeps `object`: line ends may have been written out as CR LF.
fn as_checked_out(object: Vec<u8>, size: u64) -> Option<Vec<u8>> {
    if object.len() as u64 == size {
        return Some(object);
    }
    let lines = object.iter().filter(|byte| **byte == b'\n').count();
    if object.contains(&b'\r') || (object.len() + lines) as u64 != size {
        return None;
    }
    let mut out = Vec::with_capacity(object.len() + lines);
    for byte in object {
        if byte == b'\n' {
            out.push(b'\r');
        }
        out.push(byte);
    }
    Some(out)
}

impl Tracking {
    /// The call goes on in the background.
    pub fn in_background(&self) {
        let mut state = self.index.state.lock();
        if let Some(running) = state.running.iter_mut().find(|running| running.id == self.id) {
            running.in_background = true;
        }
    }

    /// What changed since it began. Blocks.
    pub fn end(self) -> SeenChanges {
        let index = Arc::clone(&self.index);
        let mut state = index.state.lock();
        // A failure stands with the call.
        let _ = index.look(&mut state, index.limits.kept, true);
        let place = state.running.iter().position(|running| running.id == self.id);
        let Some(running) = place.map(|place| state.running.remove(place)) else {
            return SeenChanges::default();
        };
        let mut seen = SeenChanges { gaps: running.gaps, ..SeenChanges::default() };
        // After a look that was given up nobody knows what is there: the gap says so.
        let Some(files) = &state.files else { return seen };
        for (key, (before, doubt)) in running.folders {
            let after = state.folders.get(&key).map(|facts| facts.mode);
            let before = before.map(|facts| facts.mode);
            if before != after {
                let path = index.root.join(OsStr::from_bytes(key.strip_suffix(b"/").unwrap_or(&key)));
                let doubtful = doubt.sessions().map(|among| Doubtful { path: path.clone(), among });
                seen.ambiguous.extend(doubtful);
                seen.folders.push(FolderWrite { path, before, after });
            }
        }
        let changed: Vec<_> = running
            .changed
            .into_iter()
            .map(|(key, (before, doubt))| {
                let after = files.get(&key).cloned();
                (key, before, after, doubt)
            })
            .collect();
        let (mut told, mut unnamed, until) = (0, 0_usize, Instant::now() + TELLING);
        for (key, before, after, doubt) in changed {
            let path = index.root.join(OsStr::from_bytes(&key));
            let was = before.as_ref().map(|entry| state.state(entry, &mut told, until));
            let is = after.as_ref().map(|entry| state.state(entry, &mut told, until));
            let write = FileWrite { path, before: was, after: is };
            if write.is_nothing() {
                continue;
            }
            let lost = |entry: &Option<Entry>, file: &Option<FileState>| {
                let entry = entry.as_ref().filter(|_| file.as_ref().is_some_and(|file| file.bytes.is_none()));
                entry.map(|entry| entry.content.why().unwrap_or(Why::NoRoom))
            };
            // A new file is taken back by removing it, if only it is known.
            let is_unknown =
                |file: &Option<FileState>| file.as_ref().is_some_and(|file| file.content.is_none());
            let why = match &write.before {
                Some(_) => lost(&before, &write.before),
                None => lost(&after, &write.after).filter(|_| is_unknown(&write.after)),
            };
            if let Some(why) = why {
                if seen.not_covered.len() >= MOST_UNKNOWN {
                    unnamed += 1;
                    continue;
                }
                seen.not_covered.push((write.path.clone(), why.text()));
            }
            let doubtful = doubt.sessions().map(|among| Doubtful { path: write.path.clone(), among });
            seen.ambiguous.extend(doubtful);
            seen.files.push(write);
        }
        seen.gaps.extend(unnamed_gap(unnamed));
        seen
    }
}

impl Drop for Tracking {
    fn drop(&mut self) {
        self.index.state.lock().running.retain(|running| running.id != self.id);
    }
}

impl Why {
    const fn text(self) -> &'static str {
        match self {
            Self::Ignored => "git ignores it",
            Self::Large => "it is too large",
            Self::NoRoom => "too much would have to be kept",
            Self::Unreadable => "it cannot be read",
        }
    }
}

#[cfg(test)]
mod tests;
