//! The git directory that git is shown in place of a repository's own.

use std::fmt::Write as _;
use std::fs::FileTimes;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::RepositoryError;
use super::refs::{self, Head};

/// The largest index that is copied, and the longest lists, in bytes.
const LARGEST_INDEX: u64 = 512 * 1024 * 1024;
const LONGEST_LIST: u64 = 1024 * 1024;
/// Folders of objects that may be chained together.
const MOST_ALTERNATES: usize = 16;
/// Files larger than this are not compared line by line, in bytes.
const LARGEST_TEXT: u64 = 5 * 1024 * 1024;
/// The tree without files, for each kind of hash.
const EMPTY: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
const EMPTY_LONG: &str = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321";

/// A git directory for one question. It is removed with this.
#[derive(Debug)]
pub(super) struct StandIn {
    folder: TempDir,
    head: Head,
    long: bool,
}

impl StandIn {
    /// Makes one. Blocks.
    pub(super) fn make(own: &Path, common: &Path) -> Result<Self, RepositoryError> {
        let unreadable = |what: &str| RepositoryError::Unreadable(what.to_owned());
        let head = refs::head(own, common).ok_or_else(|| {
            unreadable("what is checked out cannot be told: names are kept in a form that is not read")
        })?;
        let long = match &head {
            Head::Commit(hash) => hash.len() == EMPTY_LONG.len(),
            Head::Unborn => has_long_hashes(common),
        };
        let folder = tempfile::Builder::new().prefix("asked-git-").tempdir()?;
        let place = |name: &str| folder.path().join(name);
        for name in ["objects/info", "refs", "info"] {
            fs_err::create_dir_all(place(name))?;
        }
        let objects = common.join("objects");
        let objects = objects.to_str().filter(|path| !path.contains(['\n', '"']));
        let objects = objects.ok_or_else(|| unreadable("its path cannot be written down for git"))?;
        fs_err::write(place("objects/info/alternates"), format!("{objects}\n"))?;
        fs_err::write(
            place("HEAD"),
            match &head {
                Head::Commit(hash) => format!("{hash}\n"),
                Head::Unborn => "ref: refs/heads/unborn\n".to_owned(),
            },
        )?;
        fs_err::write(place("config"), configuration(long))?;
        for (from, name) in
            [(common.join("info/exclude"), "info/exclude"), (common.join("shallow"), "shallow")]
        {
            if let Some(bytes) = refs::bytes(&from, common, LONGEST_LIST) {
                fs_err::write(place(name), bytes)?;
            }
        }
        copy_index(own, folder.path())?;
        Ok(Self { folder, head, long })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whether anything was committed.
    pub(super) fn has_commit(&self) -> bool {
        self.head != Head::Unborn
    }

    /// The commit that is checked out; the tree without files where there is none.
    pub(super) fn base(&self) -> &str {
        match &self.head {
            Head::Commit(hash) => hash,
            Head::Unborn if self.long => EMPTY_LONG,
            Head::Unborn => EMPTY,
        }
    }
}

/// The only settings that git sees. What may run a program is said to be off, though nothing says that it is on.
fn configuration(long: bool) -> String {
    let mut text = format!(
        "[core]\n\trepositoryformatversion = {}\n\tbare = false\n\tquotePath = false\n\tfsmonitor = false\n\
         \thooksPath = /dev/null\n\tattributesFile = /dev/null\n\texcludesFile = /dev/null\n\
         \tbigFileThreshold = {LARGEST_TEXT}\n[advice]\n\taddEmbeddedRepo = false\n[submodule]\n\trecurse = false\n\
         [protocol]\n\tallow = never\n",
        u8::from(long)
    );
    if long {
        let _ = write!(text, "[extensions]\n\tobjectFormat = sha256\n");
    }
    text
}

/// Whether a repository without a commit says that it has the longer kind of hashes.
fn has_long_hashes(common: &Path) -> bool {
    let text = refs::text(&common.join("config"), common, LONGEST_LIST).unwrap_or_default().to_lowercase();
    text.lines().any(|line| line.trim_start().starts_with("objectformat") && line.contains("sha256"))
}

/// The times stay: git finds by them what may have changed since.
fn copy_index(own: &Path, to: &Path) -> io::Result<()> {
    let entries = fs_err::read_dir(own)?.flatten().map(|entry| entry.file_name());
    let is_index = |name: &std::ffi::OsString| {
        // A large index may be kept in two files.
        name == "index" || name.to_str().is_some_and(|name| name.starts_with("sharedindex."))
    };
    for name in entries.filter(is_index) {
        let Some(from) = refs::regular(&own.join(&name), own) else { continue };
        let facts = fs_err::metadata(&from)?;
        if facts.len() > LARGEST_INDEX {
            return Err(io::Error::other(format!("the index is larger than {LARGEST_INDEX} bytes")));
        }
        let copy = to.join(&name);
        fs_err::copy(&from, &copy)?;
        let file = fs_err::OpenOptions::new().write(true).open(&copy)?;
        file.file().set_times(FileTimes::new().set_modified(facts.modified()?))?;
    }
    Ok(())
}

/// The further folders of objects that git would read, links resolved; `None` where there are too many, or one is not there.
pub(super) fn alternates(objects: &Path) -> Option<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut next = vec![objects.to_owned()];
    while let Some(folder) = next.pop() {
        let list = folder.join("info/alternates");
        if fs_err::symlink_metadata(&list).is_err() {
            continue;
        }
        let text = refs::text(&list, &folder, LONGEST_LIST)?;
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            // One in quotes has letters that mean something else.
            let other = Some(line).filter(|line| !line.starts_with('"'))?;
            let other = fs_err::canonicalize(folder.join(other)).ok()?;
            if other != objects && !found.contains(&other) {
                found.push(other.clone());
                next.push(other);
            }
            if found.len() > MOST_ALTERNATES {
                return None;
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_of_objects_are_followed_to_their_end() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        for name in ["a", "b", "c"] {
            fs_err::create_dir_all(top.join(name).join("info")).unwrap();
        }
        let list =
            |name: &str, text: &str| fs_err::write(top.join(name).join("info/alternates"), text).unwrap();
        list("a", "# more\n../b\n");
        list("b", &format!("{}\n../a\n", top.join("c").display()));
        assert_eq!(alternates(&top.join("a")).unwrap(), [top.join("b"), top.join("c")]);
        list("c", "/nowhere/at/all\n");
        assert_eq!(alternates(&top.join("a")), None);
        list("c", "\"/tmp\"\n");
        assert_eq!(alternates(&top.join("a")), None);
    }
}
