//! Which files of a worktree may have changed, and the copies of them that git compares.
//!
//! git looks at a path, and opens it afterwards: whoever changes the worktree meanwhile leads it out by a link, or makes it
//! wait for a pipe. So it never sees the worktree. What differs from the index is found here, in folders that are held open,
//! and copied.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

use super::RepositoryError;
use super::history::{Files, Version};
use super::index::{Entry, Moment};
use super::objects::{Kind, LARGEST, NO_CONTENT, Objects};
use super::stand_in::{LARGEST_TEXT, LONGEST_LIST, StandIn};
use super::unknown::Search;
use playhouse_sandbox::folder::Folder;

/// Kinds of files, as git writes them.
const SUBMODULE: u32 = 0o160_000;
const LINK: u32 = 0o120_000;
const PROGRAM: u32 = 0o100_755;
const PLAIN: u32 = 0o100_644;
/// The most bytes of files that are copied for one question.
const MOST_COPIED: u64 = 256 * 1024 * 1024;
/// What stands for a file that is too large to be compared: it is no text, and is another one before than afterwards. And its
/// names as an object.
const LARGE_BEFORE: &[u8] = b"\0";
const LARGE_BEFORE_IDS: [&str; 2] = [
    "f76dd238ade08917e6712764a16a22005a50573d",
    "449e9b795420cd16fe60ad5298cf680f15a7cd2ac9b44adaf7ed3edc0d08dd78",
];
const LARGE_NOW: &[u8] = b"\0\n";
/// A file that may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// From the worktree on.
    pub(super) path: Vec<u8>,
    /// What it was.
    before: Option<Version>,
    /// Whether git knows it.
    pub(super) is_known: bool,
}

/// Whether git takes a path, and nothing of it leads elsewhere.
fn is_plain(path: &[u8]) -> bool {
    let is_part = |part: &[u8]| {
        !part.is_empty() && part != b"." && part != b".." && !part.eq_ignore_ascii_case(b".git")
    };
    !path.contains(&0) && path.split(|byte| *byte == b'/').all(is_part)
}

/// The folders of a worktree, held open as long as paths come in their order.
struct Ways<'a> {
    worktree: &'a Folder,
    held: Vec<(Vec<u8>, Option<Folder>)>,
}

impl<'a> Ways<'a> {
    fn of(worktree: &'a Folder) -> Self {
        Self { worktree, held: Vec::new() }
    }

    /// The folder in which a path lies, if it is there, and the path's name.
    fn to<'p>(&mut self, path: &'p [u8]) -> Option<(&Folder, &'p OsStr)> {
        let mut parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let name = parts.pop()?;
        let same = self.held.iter().zip(&parts).take_while(|((held, _), part)| held == *part).count();
        self.held.truncate(same);
        for part in parts.split_off(same) {
            let above = self.held.last().map_or(Some(self.worktree), |(_, folder)| folder.as_ref());
            let folder = above.and_then(|above| above.below(Path::new(OsStr::from_bytes(part))).ok());
            self.held.push((part.to_vec(), folder));
        }
        let folder = self.held.last().map_or(Some(self.worktree), |(_, folder)| folder.as_ref());
        Some((folder?, OsStr::from_bytes(name)))
    }
}

/// A worktree and what git knows of it.
pub(super) struct Survey<'a> {
    pub(super) worktree: &'a Folder,
    /// The folder that is asked about: empty, or ending in a slash.
    pub(super) within: &'a [u8],
    /// What the index knows.
    pub(super) entries: Vec<Entry>,
    /// When it was written.
    pub(super) indexed: Moment,
    /// What files are compared with.
    pub(super) before: Files,
    /// Rules of what is ignored, beside those of the worktree.
    pub(super) exclude: Option<&'a str>,
    pub(super) objects: &'a Objects,
}

impl Survey<'_> {
    /// The files that may have changed, sorted by path. Blocks.
    pub(super) fn run(self) -> Result<Vec<Candidate>, RepositoryError> {
        let known: HashSet<Vec<u8>> = self.entries.iter().map(|entry| entry.path.clone()).collect();
        let mut before = self.before;
        before.retain(|path, version| is_plain(path) && version.mode != SUBMODULE);
        let mut found = BTreeMap::new();
        let mut ways = Ways::of(self.worktree);
        for entry in &self.entries {
            let is_asked = entry.path.starts_with(self.within) && is_plain(&entry.path);
            if !is_asked || entry.mode == SUBMODULE {
                continue;
            }
            self.objects.in_time()?;
            let was = before.remove(&entry.path);
            if entry.is_skipped() {
                continue;
            }
            let is_same = entry.stage == 0
                && was.as_ref().is_some_and(|was| was.id == entry.id && was.mode == entry.mode)
                && is_unchanged(&mut ways, entry, self.indexed, self.objects)?;
            if !is_same && !found.contains_key(&entry.path) {
                let candidate = Candidate { path: entry.path.clone(), before: was, is_known: true };
                found.insert(entry.path.clone(), candidate);
            }
        }
        // What the index does not know any more.
        for (path, was) in before {
            found.entry(path.clone()).or_insert(Candidate { path, before: Some(was), is_known: true });
        }
        let mut search = Search::new(&known, self.objects);
        search.run(self.worktree, self.within, self.exclude)?;
        for path in search.found.into_iter().filter(|path| is_plain(path)) {
            found.entry(path.clone()).or_insert(Candidate { path, before: None, is_known: false });
        }
        Ok(found.into_values().collect())
    }
}

/// Whether a file is what the index says.
fn is_unchanged(
    ways: &mut Ways<'_>,
    entry: &Entry,
    indexed: Moment,
    objects: &Objects,
) -> Result<bool, RepositoryError> {
    let Some((folder, name)) = ways.to(&entry.path) else { return Ok(false) };
    let Ok(facts) = folder.facts(name) else { return Ok(false) };
    if mode(&facts) != Some(entry.mode) {
        return Ok(false);
    }
    if entry.is(&facts, indexed) {
        return Ok(true);
    }
    let size = u64::try_from(facts.st_size).unwrap_or(u64::MAX);
    let Some(content) = objects.read(&entry.id, Kind::Blob, size)? else { return Ok(false) };
    if content.len() as u64 != size {
        return Ok(false);
    }
    if entry.mode == LINK {
        return Ok(folder.link(name).is_ok_and(|link| link == content));
    }
    Ok(folder.file(Path::new(name)).is_ok_and(|(file, _)| holds(file, &content).unwrap_or(false)))
}

/// The kind of what stands there, if git keeps such a thing.
fn mode(facts: &Stat) -> Option<u32> {
    match FileType::from_raw_mode(facts.st_mode) {
        FileType::RegularFile if facts.st_mode & 0o100 != 0 => Some(PROGRAM),
        FileType::RegularFile => Some(PLAIN),
        FileType::Symlink => Some(LINK),
        _ => None,
    }
}

/// Whether a file has exactly this content.
fn holds(mut file: std::fs::File, content: &[u8]) -> io::Result<bool> {
    let (mut rest, mut buffer) = (content, vec![0; 64 * 1024]);
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(rest.is_empty());
        }
        match rest.strip_prefix(&buffer[..count]) {
            Some(after) => rest = after,
            None => return Ok(false),
        }
    }
}

/// Copies files into a stand-in.
pub(super) struct Copies<'a> {
    pub(super) worktree: &'a Folder,
    pub(super) objects: &'a Objects,
    pub(super) stand_in: &'a StandIn,
    /// Whether large files are needed as they are.
    pub(super) whole: bool,
}

impl Copies<'_> {
    /// Makes them, and lists for git of what was and of what is, as `before` and `now`. Blocks.
    pub(super) fn make(&self, candidates: &[Candidate]) -> Result<(), RepositoryError> {
        let (mut before, mut now) = (Vec::new(), Vec::new());
        let mut ways = Ways::of(self.worktree);
        let mut left = MOST_COPIED;
        let long = usize::from(self.stand_in.long);
        for candidate in candidates {
            self.objects.in_time()?;
            if let Some(was) = &candidate.before {
                let id = self.copy_object(&was.id, long)?;
                line(&mut before, was.mode, id, &candidate.path);
            }
            if let Some(mode) = self.copy_file(&mut ways, &candidate.path, &mut left)? {
                line(&mut now, mode, NO_CONTENT[long], &candidate.path);
            }
        }
        self.copy_attributes(candidates)?;
        let git = self.stand_in.git();
        fs_err::write(git.join("before"), before)?;
        fs_err::write(git.join("now"), now)?;
        // What it held is in the list.
        match fs_err::remove_file(git.join("index")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn copy_object<'i>(&self, id: &'i str, long: usize) -> Result<&'i str, RepositoryError> {
        if self.whole {
            let content = self.objects.read(id, Kind::Blob, LARGEST)?.ok_or(RepositoryError::TooMuch)?;
            self.stand_in.add_file(id, &content)?;
            return Ok(id);
        }
        let (id, content) = match self.objects.read(id, Kind::Blob, LARGEST_TEXT)? {
            Some(content) => (id, content),
            None => (LARGE_BEFORE_IDS[long], LARGE_BEFORE.to_vec()),
        };
        self.stand_in.add_file(id, &content)?;
        Ok(id)
    }

    /// Copies what stands at a path by now, and says what it is. A link becomes a file with what it says.
    fn copy_file(
        &self,
        ways: &mut Ways<'_>,
        path: &[u8],
        left: &mut u64,
    ) -> Result<Option<u32>, RepositoryError> {
        let Some((folder, name)) = ways.to(path) else { return Ok(None) };
        if let Ok(link) = folder.link(name) {
            self.create(path, PLAIN)?.write_all(&link)?;
            return Ok(Some(LINK));
        }
        let Ok((file, facts)) = folder.file(Path::new(name)) else { return Ok(None) };
        let mode = mode(&facts).unwrap_or(PLAIN);
        let mut copy = self.create(path, mode)?;
        if !self.whole && u64::try_from(facts.st_size).unwrap_or(0) > LARGEST_TEXT {
            copy.write_all(LARGE_NOW)?;
            return Ok(Some(mode));
        }
        let copied = io::copy(&mut file.take(*left + 1), &mut copy)?;
        *left = left.checked_sub(copied).ok_or(RepositoryError::TooMuch)?;
        Ok(Some(mode))
    }

    fn place(&self, path: &[u8]) -> PathBuf {
        self.stand_in.tree().join(OsStr::from_bytes(path))
    }

    fn create(&self, path: &[u8], mode: u32) -> io::Result<fs_err::File> {
        let place = self.place(path);
        if let Some(folder) = place.parent() {
            fs_err::create_dir_all(folder)?;
        }
        let mut options = fs_err::OpenOptions::new();
        options.options_mut().mode(mode & 0o777);
        options.write(true).create_new(true).open(place)
    }

    /// Copies the files that say how others are to be compared. One that cannot be is none.
    fn copy_attributes(&self, candidates: &[Candidate]) -> io::Result<()> {
        let mut ways = Ways::of(self.worktree);
        let mut last = None;
        for candidate in candidates {
            let ends =
                candidate.path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end + 1);
            for end in [0].into_iter().chain(ends) {
                let folder = candidate.path.get(..end).unwrap_or_default();
                let path = [folder, &b".gitattributes"[..]].concat();
                if last.as_ref() == Some(&path) || self.place(&path).exists() {
                    continue;
                }
                if let Some((folder, name)) = ways.to(&path)
                    && let Some(content) = folder.bytes(name, LONGEST_LIST)
                    && let Ok(mut copy) = self.create(&path, PLAIN)
                {
                    copy.write_all(&content)?;
                }
                last = Some(path);
            }
        }
        Ok(())
    }
}

/// A line of what `git update-index -z --index-info` reads.
fn line(list: &mut Vec<u8>, mode: u32, id: &str, path: &[u8]) {
    list.extend_from_slice(format!("{mode:o} {id}\t").as_bytes());
    list.extend_from_slice(path);
    list.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_that_stay_within_are_taken() {
        for path in ["a", "a/b c", ".gitignore", "...", "a/.github/x"] {
            assert!(is_plain(path.as_bytes()), "{path}");
        }
        for path in ["", "/a", "a/", "a//b", "../a", "a/..", "a/./b", ".git/config", "a/.GIT", "a\0b"] {
            assert!(!is_plain(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn folders_are_held_on_the_way_from_path_to_path() {
        let folder = tempfile::tempdir().unwrap();
        let top = fs_err::canonicalize(folder.path()).unwrap();
        fs_err::create_dir_all(top.join("a/b")).unwrap();
        fs_err::write(top.join("a/b/file"), "x").unwrap();
        fs_err::os::unix::fs::symlink("b", top.join("a/link")).unwrap();
        let worktree = Folder::open(&top).unwrap();
        let mut ways = Ways::of(&worktree);
        let mut is_there =
            |path: &str| ways.to(path.as_bytes()).is_some_and(|(folder, name)| folder.facts(name).is_ok());
        for (path, expected) in [
            ("a/b/file", true),
            ("a/b/other", false),
            ("a/link/file", false),
            ("a/link", true),
            ("c/d/e", false),
            ("c/d", false),
            ("a/b/file", true),
            ("a", true),
        ] {
            assert_eq!(is_there(path), expected, "{path}");
        }
    }
}
