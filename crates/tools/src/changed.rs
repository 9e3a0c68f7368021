//! The write log of a call: each file, the moment it is written.
//!
//! A field of a result would lose what a call wrote that failed, was killed or panicked; so a call writes into a log that
//! stands in its [`CallContext`](crate::CallContext) and outlives it. Tools put in what they write, observers what they see.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_protocol::changes::ChangeSource;
use playhouse_workspace::door::DoorError;
use playhouse_workspace::{ContentHash, Resolved};
pub use playhouse_workspace::{Doubtful, FileState, FileWrite, FolderWrite};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::ToolError;
use crate::files::{diff, document};

/// Of a call whose command goes on behind it: the rest is told once that has ended.
pub const GOES_ON: &str = "a command of it goes on in the background";

/// Bytes of all files that a log keeps.
const KEPT: u64 = 128 * 1024 * 1024;

/// Bytes of a file whose lines are counted.
const LARGEST_COMPARED: usize = 2 * 1024 * 1024;

/// What a log holds.
#[derive(Debug, Default)]
struct Content {
    files: BTreeMap<PathBuf, FileWrite>,
    folders: BTreeMap<PathBuf, FolderWrite>,
    kept: u64,
    source: ChangeSource,
    gaps: Vec<String>,
    ambiguous: Vec<Doubtful>,
    /// Something tells what the call changed, also if it is cut off.
    watched: bool,
    /// A command of the call goes on behind it.
    goes_on: bool,
    /// What stands in the intent of the call, by path.
    intended: BTreeMap<PathBuf, Option<ContentHash>>,
    /// Contents that are stored already.
    stored: Vec<ContentHash>,
    /// What was taken out, until it is known that it arrived.
    taken: Taken,
}

#[derive(Debug, Default)]
struct Taken {
    files: Vec<FileWrite>,
    folders: Vec<FolderWrite>,
    gaps: Vec<String>,
    ambiguous: Vec<Doubtful>,
}

/// Where a call notes what it writes. Clones write into one log.
#[derive(Clone, Debug)]
pub struct WriteLog(Arc<Writer>);

#[derive(Debug)]
struct Writer {
    content: Arc<Mutex<Content>>,
    closed: CancellationToken,
    #[allow(dead_code, reason = "held for its drop")]
    open: DropGuard,
}

impl Default for WriteLog {
    fn default() -> Self {
        let closed = CancellationToken::new();
        let open = closed.clone().drop_guard();
        Self(Arc::new(Writer { content: Arc::default(), closed, open }))
    }
}

impl WriteLog {
    /// Notes a write. Several of one path become one.
    pub fn wrote(&self, write: FileWrite) {
        let mut content = self.0.content.lock();
        content.add(write);
    }

    /// Notes folders that were made or removed. Several changes of one become one.
    pub fn changed_folders(&self, folders: impl IntoIterator<Item = FolderWrite>) {
        let mut content = self.0.content.lock();
        folders.into_iter().for_each(|folder| content.add_folder(folder));
    }

    /// Notes what was seen of a call whose tool does not say what it writes: files, folders, and those of both that somebody else
    /// may have changed.
    pub fn saw(&self, writes: Vec<FileWrite>, folders: Vec<FolderWrite>, ambiguous: Vec<Doubtful>) {
        let mut content = self.0.content.lock();
        content.source = ChangeSource::Shell;
        writes.into_iter().for_each(|write| content.add(write));
        folders.into_iter().for_each(|folder| content.add_folder(folder));
        content.ambiguous.extend(ambiguous);
    }

    /// Notes that something was changed, or may have been, that the log does not name.
    pub fn misses(&self, why: impl Into<String>) {
        self.0.content.lock().gaps.push(why.into());
    }

    /// The files that were written so far and not taken out, in the order of their paths.
    pub fn files(&self) -> Vec<FileWrite> {
        let content = self.0.content.lock();
        content.files.values().filter(|write| !write.is_nothing()).cloned().collect()
    }

    /// The folders that were made or removed so far and not taken out, in the order of their paths.
    pub fn folders(&self) -> Vec<FolderWrite> {
        let content = self.0.content.lock();
        content.folders.values().filter(|folder| folder.before != folder.after).cloned().collect()
    }

    /// Says that somebody sees what the call changes.
    pub fn watch(&self) {
        self.0.content.lock().watched = true;
    }

    /// Says that a command of the call goes on behind it: what is changed from here on is told later.
    pub fn goes_on(&self) {
        let mut content = self.0.content.lock();
        content.source = ChangeSource::Shell;
        content.goes_on = true;
        content.gaps.push(GOES_ON.to_owned());
    }

    /// Says what stands of a file in the intent of the call: nothing else may be overwritten. `stored`: that content is durable.
    pub fn intend(&self, path: PathBuf, content: Option<ContentHash>, stored: bool) {
        let mut log = self.0.content.lock();
        log.stored.extend(content.filter(|_| stored));
        log.intended.insert(path, content);
    }

    /// Refuses to write a file that is not the one of the call's intent: its content would be nowhere after a crash.
    ///
    /// # Errors
    /// When it changed since the call was prepared.
    pub(crate) fn must_be_intended(
        &self,
        place: &Resolved,
        found: Option<ContentHash>,
    ) -> Result<(), ToolError> {
        match self.0.content.lock().intended.get(&place.path) {
            Some(intended) if *intended != found => Err(DoorError::Changed(place.shown.clone()).into()),
            _ => Ok(()),
        }
    }

    /// For one who reads it when the call is over.
    pub fn reader(&self) -> WriteLogReader {
        WriteLogReader { content: Arc::clone(&self.0.content), closed: self.0.closed.clone() }
    }
}

/// Reads a [`WriteLog`], also when all who write into it are gone.
#[derive(Clone, Debug)]
pub struct WriteLogReader {
    content: Arc<Mutex<Content>>,
    closed: CancellationToken,
}

/// What a log held.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// The files that differ, by path.
    pub files: Vec<FileWrite>,
    /// The folders that were made or removed, or have other permissions, by path.
    pub folders: Vec<FolderWrite>,
    /// Who saw that.
    pub source: ChangeSource,
    /// What is missing, and why.
    pub gaps: Vec<String>,
    /// Paths of which nobody can tell who changed them.
    pub ambiguous: Vec<Doubtful>,
    /// Contents that are stored already.
    pub stored: Vec<ContentHash>,
}

impl Drained {
    /// Whether it says nothing.
    pub fn is_nothing(&self) -> bool {
        self.files.is_empty() && self.folders.is_empty() && self.gaps.is_empty()
    }
}

impl WriteLogReader {
    /// Whether the end of the call is told in a change set of its own, even if that is empty.
    pub fn is_watched(&self) -> bool {
        self.content.lock().watched
    }

    /// Whether a command of the call goes on behind it.
    pub fn goes_on(&self) -> bool {
        self.content.lock().goes_on
    }

    /// Takes out what was written so far. A file that is as it was is left out. It is kept until [`arrived`](Self::arrived) says
    /// that it reached the log of the session.
    pub fn drain(&self) -> Drained {
        let mut content = self.content.lock();
        content.kept = 0;
        let files = std::mem::take(&mut content.files).into_values();
        let files: Vec<FileWrite> = files.filter(|write| !write.is_nothing()).collect();
        let folders = std::mem::take(&mut content.folders).into_values();
        let folders: Vec<FolderWrite> = folders.filter(|folder| folder.before != folder.after).collect();
        let gaps = std::mem::take(&mut content.gaps);
        let ambiguous = std::mem::take(&mut content.ambiguous);
        content.taken.files.extend_from_slice(&files);
        content.taken.folders.extend_from_slice(&folders);
        content.taken.gaps.extend_from_slice(&gaps);
        content.taken.ambiguous.extend_from_slice(&ambiguous);
        let (source, stored) = (content.source, content.stored.clone());
        Drained { files, folders, source, gaps, ambiguous, stored }
    }

    /// What was taken out is known where it belongs.
    pub fn arrived(&self) {
        self.content.lock().taken = Taken::default();
    }

    /// Puts back what was taken out and did not arrive: whoever took it is gone.
    pub fn put_back(&self) {
        let mut content = self.content.lock();
        let Taken { files, folders, gaps, ambiguous } = std::mem::take(&mut content.taken);
        for folder in folders.into_iter().rev() {
            match content.folders.get_mut(&folder.path) {
                Some(later) => later.before = folder.before,
                None => drop(content.folders.insert(folder.path.clone(), folder)),
            }
        }
        for write in files.into_iter().rev() {
            match content.files.get_mut(&write.path) {
                Some(later) => later.before = write.before,
                None => drop(content.files.insert(write.path.clone(), write)),
            }
        }
        content.gaps.splice(0..0, gaps);
        content.ambiguous.extend(ambiguous);
    }

    /// Waits until nothing more can be written: all that might is gone.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

impl Content {
    fn add_folder(&mut self, folder: FolderWrite) {
        match self.folders.get_mut(&folder.path) {
            Some(known) => known.after = folder.after,
            None => drop(self.folders.insert(folder.path.clone(), folder)),
        }
    }

    fn add(&mut self, mut write: FileWrite) {
        for state in [&mut write.before, &mut write.after].into_iter().flatten() {
            let size = state.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
            if self.kept + size > KEPT {
                state.bytes = None;
            } else {
                self.kept += size;
            }
        }
        match self.files.get_mut(&write.path) {
            Some(known) => known.after = write.after,
            None => {
                self.files.insert(write.path.clone(), write);
            }
        }
    }
}

/// Lines that were added and removed between two contents; none of either for binary ones and for very large ones.
pub fn lines(before: Option<&[u8]>, after: Option<&[u8]>) -> (u64, u64) {
    patch("", Some(before.unwrap_or_default()), after).map_or((0, 0), |(_, added, removed)| (added, removed))
}

/// A unified diff of two contents, and how many lines were added and removed; `None` for binary ones and for very large ones.
pub fn patch(path: &str, before: Option<&[u8]>, after: Option<&[u8]>) -> Option<(String, u64, u64)> {
    let is_text = |bytes: &&[u8]| {
        bytes.len() <= LARGEST_COMPARED && document::classify(bytes) != document::Content::Binary
    };
    if !before.iter().chain(&after).all(is_text) {
        return None;
    }
    let mut diff = diff::unified(path, before, after.unwrap_or_default());
    if after.is_none() {
        diff.text = diff.text.replacen(&format!("\n+++ b/{path}\n"), "\n+++ /dev/null\n", 1);
    }
    Some((diff.text, diff.additions as u64, diff.deletions as u64))
}

/// How a change set names a path: from `root` on where it lies there. A backslash is written `\\`, a byte that is no UTF-8
/// `\xNN`.
pub fn path_text(root: &Path, path: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', r"\\"));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// The path that [`path_text`] wrote so; `None` for a text that it never writes.
pub fn path_of(root: &Path, text: &str) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        if let Some(after) = escaped.strip_prefix('\\') {
            bytes.push(b'\\');
            rest = after;
        } else {
            let digits = escaped.strip_prefix('x')?.get(..2)?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &escaped[3..];
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(root.join(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use playhouse_workspace::hash;

    use super::*;

    fn state(text: &str) -> FileState {
        FileState::new(hash(text.as_bytes()), text.as_bytes(), 0o100_644)
    }

    fn write(path: &str, before: Option<&str>, after: Option<&str>) -> FileWrite {
        FileWrite { path: path.into(), before: before.map(state), after: after.map(state) }
    }

    #[test]
    fn writes_of_one_path_become_one_and_what_is_as_it_was_is_left_out() {
        let log = WriteLog::default();
        let reader = log.reader();
        log.wrote(write("/a", Some("1"), Some("2")));
        log.wrote(write("/a", Some("2"), None));
        log.wrote(write("/b", None, Some("x")));
        log.wrote(write("/b", None, Some("x")).reversed());
        let drained = reader.drain();
        assert_eq!(drained.files, [write("/a", Some("1"), None)]);
        assert!(reader.drain().is_nothing());
    }

    #[test]
    fn what_was_taken_out_and_did_not_arrive_is_there_again() {
        let log = WriteLog::default();
        let reader = log.reader();
        log.wrote(write("/a", Some("1"), Some("2")));
        log.wrote(write("/b", None, Some("x")));
        assert_eq!(reader.drain().files.len(), 2);
        log.wrote(write("/a", Some("2"), Some("3")));
        reader.put_back();
        assert_eq!(reader.drain().files, [write("/a", Some("1"), Some("3")), write("/b", None, Some("x"))]);
        reader.arrived();
        reader.put_back();
        assert!(reader.drain().is_nothing());
    }

    #[tokio::test]
    async fn it_is_closed_when_nobody_can_write_any_more() {
        let log = WriteLog::default();
        let (reader, other) = (log.reader(), log.clone());
        drop(log);
        assert!(!reader.closed.is_cancelled());
        other.wrote(write("/a", None, Some("late")));
        drop(other);
        reader.closed().await;
        assert_eq!(reader.drain().files, [write("/a", None, Some("late"))]);
    }

    #[test]
    fn every_path_reads_back() {
        let root = Path::new("/repo");
        for name in [&b"a b"[..], b"x\\xff", b"\xff\xfe", "ü\\".as_bytes(), b"d/\xc3"] {
            let path = root.join(OsStr::from_bytes(name));
            assert_eq!(path_of(root, &path_text(root, &path)), Some(path));
        }
        let outside = Path::new("/etc/motd");
        assert_eq!(path_text(root, outside), "/etc/motd");
        assert_eq!(path_of(root, "/etc/motd").as_deref(), Some(outside));
        assert_eq!((path_of(root, r"a\q"), path_of(root, r"\xü1")), (None, None));
    }
}
