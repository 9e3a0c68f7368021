//! One look at all files of a workspace. Folders are held open, and no link is followed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use playhouse_sandbox::folder::Folder;
use rustix::fs::{FileType, Stat};

use super::folders::{self, FolderFacts, Folders};
use super::spool::Spool;
use super::watch::{Dirty, Watch};
use super::{Content, Differing, Entry, Files, LARGEST, Stamp, Why, folder_of};
use crate::door::leftovers::is_temporary;
use crate::repository::attributes::CONVERTING;
use crate::repository::unknown::{Rules, is_ignored, rules_in};
use crate::repository::{LONGEST_LIST, Tracked};
use crate::{hash, hash_of};

/// Folders in each other that are looked into.
const DEEPEST: usize = 128;
/// What changed so shortly ago may change again without a trace: the clock of a file system moves in steps.
const TICK: Duration = Duration::from_millis(50);
/// Bytes of files whose content is not kept that are read for their hash, in one look.
const MOST_HASHED: u64 = 256 * 1024 * 1024;

/// Which ignored files count all the same.
#[derive(Debug)]
pub(super) struct Included {
    patterns: Gitignore,
    /// The folders that patterns begin with, each ending in a slash.
    folders: Vec<Vec<u8>>,
}

impl Included {
    pub(super) fn new(patterns: &[String]) -> Self {
        let mut builder = GitignoreBuilder::new("/");
        for pattern in patterns {
            // One that cannot be read was refused where it was configured.
            let _ = builder.add_line(None, pattern);
        }
        let folder = |pattern: &String| {
            let pattern = pattern.trim_start_matches('/');
            let plain = pattern.find(['*', '?', '[', '{']).map_or(pattern, |at| &pattern[..at]);
            plain.rfind('/').map(|at| plain.as_bytes()[..=at].to_vec())
        };
        Self {
            patterns: builder.build().unwrap_or_else(|_| Gitignore::empty()),
            folders: patterns.iter().filter_map(folder).collect(),
        }
    }

    fn has(&self, path: &[u8]) -> bool {
        self.patterns
            .matched_path_or_any_parents(Path::new("/").join(OsStr::from_bytes(path)), false)
            .is_ignore()
    }

    /// Whether a pattern may name something in a folder, whose path ends in a slash.
    fn may_be_in(&self, folder: &[u8]) -> bool {
        self.folders.iter().any(|named| named.starts_with(folder) || folder.starts_with(named))
    }
}

/// Why a look was given up.
pub(super) enum Stopped {
    TooMany,
    TooSlow,
    /// The workspace itself cannot be read.
    Unreadable(String),
}

/// A look under way.
pub(super) struct Walk<'a> {
    pub(super) old: &'a Files,
    pub(super) old_folders: &'a Folders,
    pub(super) included: &'a Included,
    pub(super) hidden: &'a [Vec<u8>],
    pub(super) tracked: Option<&'a Tracked>,
    pub(super) spool: &'a mut Spool,
    pub(super) deadline: Instant,
    /// Files that may still be met.
    pub(super) left: usize,
    /// Bytes that may still be kept.
    pub(super) room: u64,
    /// Whether a content that is not kept is read for its hash.
    pub(super) hashes: bool,
    pub(super) hashed: u64,
    /// What is heard of from now on.
    pub(super) watch: Option<&'a mut Watch>,
    /// The folders to be looked at.
    pub(super) dirty: &'a Dirty,
    pub(super) seen: Seen,
}

/// What a look saw.
#[derive(Default)]
pub(super) struct Seen {
    /// The files in the folders that were looked at.
    pub(super) files: Files,
    /// The folders that were looked at without those below them, with the folders that are in them.
    pub(super) folders: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
    /// Those that were looked at with all that is below them.
    pub(super) whole: Vec<Vec<u8>>,
    /// The folders that were met, with those that cannot be read.
    pub(super) inner: Folders,
    /// Folders that cannot be read, each ending in a slash.
    unreadable: Vec<Vec<u8>>,
    /// Folders that are to be looked at again: there was no room for the content of files, or they cannot be read.
    pub(super) again: BTreeSet<Vec<u8>>,
    /// A file has several names: what is written through another one is told of there.
    pub(super) has_links: bool,
}

/// The rules of the folders from the workspace on.
struct Inherited {
    /// From the top of the repository to the workspace: empty, or ending in a slash.
    prefix: Vec<u8>,
    ignored: Rules,
    /// Paths whose content git converts.
    converted: Rules,
    /// The folder is ignored: only what is included counts.
    hidden: bool,
}

impl Inherited {
    /// A path from the top of the repository on.
    fn place(&self, path: &[u8]) -> Vec<u8> {
        [&self.prefix, path].concat()
    }
}

impl Walk<'_> {
    pub(super) fn run(&mut self, root: &Path) -> Result<(), Stopped> {
        let top = Folder::open(root).map_err(|error| Stopped::Unreadable(error.to_string()))?;
        // Rules of a repository whose top lies above count as well.
        let above = root.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok());
        let prefix = above.and_then(|above| root.strip_prefix(above).ok()).unwrap_or(Path::new(""));
        let repository = above.and_then(|above| Folder::open(above).ok());
        let told = |path: &str| repository.as_ref().map(|folder| text(folder, path)).unwrap_or_default();
        let mut inherited = Inherited {
            prefix: Vec::new(),
            ignored: vec![crate::repository::unknown::rules(Path::new(""), &told(".git/info/exclude"))],
            converted: vec![converted(&[], &told(".git/info/attributes"))],
            hidden: false,
        };
        let mut folder = repository;
        for name in prefix.components() {
            let Some(outer) = folder else { break };
            inherited.ignored.push(rules_in(&outer, &inherited.prefix));
            inherited.converted.push(converted(&inherited.prefix, &text(&outer, ".gitattributes")));
            inherited.prefix.extend_from_slice(name.as_os_str().as_bytes());
            inherited.prefix.push(b'/');
            folder = outer.below(Path::new(name.as_os_str())).ok();
        }
        self.folder(&top, &mut Vec::new(), &mut inherited, 0, false)?;
        for folder in std::mem::take(&mut self.seen.unreadable) {
            for (path, entry) in below(self.old, &folder) {
                self.seen.files.insert(path.clone(), entry.clone());
            }
            for (path, facts) in folders::below(self.old_folders, &folder) {
                self.seen.inner.entry(path.clone()).or_insert(*facts);
            }
            self.seen.again.insert(folder);
        }
        Ok(())
    }

    fn folder(
        &mut self,
        folder: &Folder,
        path: &mut Vec<u8>,
        inherited: &mut Inherited,
        depth: usize,
        is_whole: bool,
    ) -> Result<(), Stopped> {
        if Instant::now() > self.deadline {
            return Err(Stopped::TooSlow);
        }
        let whole = is_whole || self.dirty.of(path) == Some(true);
        let is_looked_at = whole || self.dirty.of(path).is_some();
        if is_looked_at && let Some(watch) = &mut self.watch {
            watch.add(folder, path);
        }
        let names = match is_looked_at {
            true => folder.names(self.left + 1),
            false => Ok(self.dirty.ways(path).into_iter().map(OsStr::to_owned).collect()),
        };
        let Ok(names) = names else {
            self.seen.unreadable.push(path.clone());
            return Ok(());
        };
        if whole && !is_whole {
            self.seen.whole.push(path.clone());
        }
        if is_looked_at && !whole {
            self.seen.folders.insert(path.clone(), BTreeSet::new());
        }
        let place = inherited.place(path);
        inherited.ignored.push(rules_in(folder, &place));
        inherited.converted.push(converted(&place, &text(folder, ".gitattributes")));
        let length = path.len();
        // What a change of a file tool puts beside it for a moment is no file of anybody's.
        let counts = |name: &&std::ffi::OsString| *name != ".git" && !is_temporary(name.as_bytes());
        for name in names.iter().filter(counts) {
            path.truncate(length);
            path.extend_from_slice(name.as_bytes());
            if self.hidden.contains(path) {
                continue;
            }
            let facts = match folder.facts(name) {
                Ok(facts) => facts,
                Err(error) => {
                    // One that may not be looked at is not gone.
                    if error.kind() != std::io::ErrorKind::NotFound {
                        if let Some(old) = self.old.get(path.as_slice()) {
                            self.seen.files.insert(path.as_slice().into(), old.clone());
                        }
                        path.push(b'/');
                        self.seen.unreadable.push(path.clone());
                        if let Some(inner) = self.seen.folders.get_mut(path.get(..length).unwrap_or_default())
                        {
                            inner.insert(path.clone());
                        }
                    }
                    continue;
                }
            };
            match FileType::from_raw_mode(facts.st_mode) {
                FileType::RegularFile | FileType::Symlink if is_looked_at => {
                    self.left = self.left.checked_sub(1).ok_or(Stopped::TooMany)?;
                    self.file(folder, name, path, &facts, inherited);
                }
                FileType::Directory if depth < DEEPEST => {
                    let hidden =
                        inherited.hidden || is_ignored(&inherited.ignored, &inherited.place(path), true);
                    path.push(b'/');
                    if let Some(inner) = self.seen.folders.get_mut(path.get(..length).unwrap_or_default()) {
                        inner.insert(path.clone());
                    }
                    let is_ignored = hidden && !self.included.may_be_in(path) && !self.knows_below(path);
                    #[allow(clippy::useless_conversion, reason = "types differ between systems")]
                    let mode = u32::from(facts.st_mode) & 0o7777;
                    self.seen.inner.insert(path.as_slice().into(), FolderFacts { mode, is_ignored });
                    if !whole && !self.dirty.leads_to(path) {
                        continue;
                    }
                    if is_ignored {
                        continue;
                    }
                    let Ok(inner) = folder.below(Path::new(name)) else {
                        self.seen.unreadable.push(path.clone());
                        continue;
                    };
                    let outer = std::mem::replace(&mut inherited.hidden, hidden);
                    self.folder(&inner, path, inherited, depth + 1, whole)?;
                    inherited.hidden = outer;
                }
                _ => {}
            }
        }
        path.truncate(length);
        inherited.ignored.pop();
        inherited.converted.pop();
        Ok(())
    }

    /// Whether files count in an ignored folder since git knows them.
    fn knows_below(&self, folder: &[u8]) -> bool {
        let mut below = self.old.range(folder.to_vec().into_boxed_slice()..);
        below.next().is_some_and(|(path, _)| path.starts_with(folder))
            || self.tracked.is_some_and(|tracked| tracked.knows_below(folder))
    }

    fn file(&mut self, folder: &Folder, name: &OsStr, path: &[u8], facts: &Stat, inherited: &Inherited) {
        let old = self.old.get(path);
        let stamp = Stamp::of(facts);
        // One whose content is not kept anyway is not read once more.
        let stays = |old: &&Entry| match old.content {
            Content::Hashed(_, Why::NoRoom) | Content::Unread(Why::NoRoom) => stamp.size > self.room,
            Content::Hashed(..) => true,
            // What is kept stays where there is no room to read it again.
            Content::Spooled(_) if stamp.size > self.room => true,
            _ => !old.is_fresh,
        };
        self.seen.has_links |= facts.st_nlink > 1;
        if let Some(old) = old.filter(|old| old.stamp == stamp).filter(stays) {
            self.note_room(path, old);
            self.seen.files.insert(path.into(), old.clone());
            return;
        }
        let counts = self.included.has(path)
            || old.is_some_and(|old| !old.content.is_ignored())
            || self.tracked.is_some_and(|tracked| tracked.knows(path));
        let ignored =
            !counts && (inherited.hidden || is_ignored(&inherited.ignored, &inherited.place(path), false));
        let entry = if ignored {
            if inherited.hidden {
                return;
            }
            Entry { stamp, content: Content::Unread(Why::Ignored), is_fresh: false }
        } else {
            let packed =
                self.tracked.filter(|_| !is_ignored(&inherited.converted, &inherited.place(path), false));
            match packed.and_then(|tracked| tracked.packed(path, facts)) {
                Some(object) => Entry { stamp, content: Content::Packed(object.into()), is_fresh: false },
                None => self.read(folder, name, facts),
            }
        };
        self.note_room(path, &entry);
        self.seen.files.insert(path.into(), entry);
    }

    /// Notes that a file is to be looked at again: its content may be kept once there is room for it, or it may change without a
    /// trace.
    fn note_room(&mut self, path: &[u8], entry: &Entry) {
        if entry.content.why() == Some(Why::NoRoom) || entry.is_fresh {
            let folder = folder_of(path);
            if !self.seen.again.contains(folder) {
                self.seen.again.insert(folder.to_owned());
            }
        }
    }

    /// Reads a file, as far as its content is wanted.
    fn read(&mut self, folder: &Folder, name: &OsStr, facts: &Stat) -> Entry {
        let unread = |why| Entry { stamp: Stamp::of(facts), content: Content::Unread(why), is_fresh: false };
        if FileType::from_raw_mode(facts.st_mode) == FileType::Symlink {
            let Ok(target) = folder.link(name) else { return unread(Why::Unreadable) };
            let content = self.keep(&target);
            return Entry { stamp: Stamp::of(facts), content, is_fresh: is_fresh(facts) };
        }
        let size = u64::try_from(facts.st_size).unwrap_or(0);
        let is_kept = size <= LARGEST && size <= self.room;
        let why = if size > LARGEST { Why::Large } else { Why::NoRoom };
        let is_hashed = self.hashes && self.hashed + size <= MOST_HASHED;
        if !(is_kept || is_hashed) {
            return unread(why);
        }
        if Instant::now() > self.deadline {
            return unread(Why::NoRoom);
        }
        let Ok((mut file, facts)) = folder.file(Path::new(name)) else { return unread(Why::Unreadable) };
        let stamp = Stamp::of(&facts);
        let content = if is_kept {
            let mut bytes = Vec::new();
            match (&mut file).take(LARGEST + 1).read_to_end(&mut bytes) {
                Ok(_) if bytes.len() as u64 <= LARGEST => self.keep(&bytes),
                Ok(_) => Content::Unread(Why::Large),
                Err(_) => Content::Unread(Why::Unreadable),
            }
        } else {
            self.hashed += size;
            hash_of(&mut file)
                .map_or(Content::Unread(Why::Unreadable), |(hash, _)| Content::Hashed(hash, why))
        };
        // One that is written while it is read is read again the next time.
        let is_steady = rustix::fs::fstat(&file).is_ok_and(|after| Stamp::of(&after) == stamp);
        Entry { stamp, content, is_fresh: is_fresh(&facts) || !is_steady }
    }

    fn keep(&mut self, bytes: &[u8]) -> Content {
        let (name, size) = (hash(bytes), bytes.len() as u64);
        if self.spool.has(name) {
            return Content::Spooled(name);
        }
        if !self.spool.has_room(size) || size > self.room {
            return Content::Hashed(name, Why::NoRoom);
        }
        match self.spool.put(name, bytes) {
            Ok(()) => {
                self.room -= size;
                Content::Spooled(name)
            }
            Err(error) => {
                tracing::warn!(%error, "the content of a file is not kept for an undo");
                Content::Hashed(name, Why::NoRoom)
            }
        }
    }
}

/// Whether a file may change once more without a trace.
fn is_fresh(facts: &Stat) -> bool {
    let seconds = u64::try_from(facts.st_ctime).unwrap_or(0);
    let changed = Duration::new(seconds, u32::try_from(facts.st_ctime_nsec).unwrap_or(0));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    changed + TICK > now
}

fn text(folder: &Folder, path: &str) -> String {
    let bytes = folder.bytes(path, LONGEST_LIST).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The patterns of a file of attributes whose contents git converts.
fn converted(folder: &[u8], attributes: &str) -> Gitignore {
    let converts = |attribute: &str| {
        let name = attribute.split('=').next().unwrap_or_default();
        CONVERTING.contains(&name)
    };
    // Macros may stand for anything.
    let macros: HashSet<&str> = attributes
        .lines()
        .filter_map(|line| line.trim().strip_prefix("[attr]"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let mut builder = GitignoreBuilder::new(Path::new("/").join(OsStr::from_bytes(folder)));
    for line in attributes.lines().map(str::trim) {
        let mut words = line.split_whitespace();
        let Some(pattern) = words.next().filter(|pattern| !pattern.starts_with(['#', '['])) else { continue };
        if words.any(|word| converts(word) || macros.contains(word)) {
            // One that cannot be read is left out, as git does.
            let _ = builder.add_line(None, pattern);
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// The files below a folder, whose path is empty or ends in a slash.
fn below<'a>(files: &'a Files, folder: &[u8]) -> impl Iterator<Item = (&'a Box<[u8]>, &'a Entry)> {
    let folder: Box<[u8]> = folder.into();
    files.range(folder.clone()..).take_while(move |(path, _)| path.starts_with(&folder))
}

impl Seen {
    /// What differs from the last look: the path, and how it was.
    pub(super) fn differences(&self, old: &Files) -> Differing {
        let mut differing = Differing::new();
        let mut look = |path: &[u8], entry: &Entry| {
            if !self.files.contains_key(path) {
                differing.insert(path.into(), Some(entry.clone()));
            }
        };
        for folder in &self.whole {
            below(old, folder).for_each(|(path, entry)| look(path, entry));
        }
        for (folder, inner) in &self.folders {
            let mut from = folder.clone();
            while let Some((path, entry)) = old.range(from.into_boxed_slice()..).next()
                && let Some(name) = path.strip_prefix(folder.as_slice())
            {
                let Some(slash) = name.iter().position(|byte| *byte == b'/') else {
                    look(path, entry);
                    from = [path, [0].as_slice()].concat();
                    continue;
                };
                let way = path.get(..=folder.len() + slash).unwrap_or_default();
                if !inner.contains(way) {
                    below(old, way).for_each(|(path, entry)| look(path, entry));
                }
                // Behind all that lies below it: what follows a slash is a zero.
                from = [path.get(..folder.len() + slash).unwrap_or_default(), b"0"].concat();
            }
        }
        for (path, now) in &self.files {
            match old.get(path) {
                Some(was) if was.is_like(now) => {}
                was => drop(differing.insert(path.clone(), was.cloned())),
            }
        }
        differing
    }
}
