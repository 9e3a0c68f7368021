//! The repository that git is shown in place of the real one: made for one question, of copies.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use rustix::process::geteuid;
use tempfile::TempDir;

use super::RepositoryError;
use super::index::Moment;
use super::refs::{self, Head};
use playhouse_sandbox::folder::{Folder, lexical};

/// The largest index that is copied, and the longest lists, in bytes.
const LARGEST_INDEX: u64 = 512 * 1024 * 1024;
pub(crate) const LONGEST_LIST: u64 = 1024 * 1024;
/// A large index may be kept in two files; of the second one there may be several for a while.
const MOST_SHARED: usize = 8;
/// The most names in a git directory.
const MOST_NAMES: usize = 100_000;
/// Folders of objects that may be chained together.
const MOST_ALTERNATES: usize = 16;
/// Files larger than this are not compared line by line, in bytes.
pub(super) const LARGEST_TEXT: u64 = 5 * 1024 * 1024;

/// The prefix of the folder of each stand-in.
const PREFIX: &str = "asked-git-";
/// A stand-in that is older was left behind: questions take seconds.
const LEFT: Duration = Duration::from_secs(3_600);
/// The most entries of the folder for temporary files that are looked at.
const LOOKED_AT: usize = 10_000;

/// A repository and its worktree for one question. They are removed with this.
#[derive(Debug)]
pub(super) struct StandIn {
    folder: TempDir,
    path: PathBuf,
    pub(super) head: Head,
    /// Whether it has the longer kind of hashes.
    pub(super) long: bool,
    /// When the index was written.
    pub(super) indexed: Moment,
}

impl StandIn {
    /// Makes one without any file. Blocks.
    pub(super) fn make(own: &Folder, common: &Folder) -> Result<Self, RepositoryError> {
        let unreadable = |what: &str| RepositoryError::Unreadable(what.to_owned());
        let head = refs::head(own, common).ok_or_else(|| {
            unreadable("what is checked out cannot be told: names are kept in a form that is not read")
        })?;
        let long = match &head {
            Head::Commit(hash) => refs::is_long(hash),
            Head::Unborn => has_long_hashes(common),
        };
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| remove_left(&std::env::temp_dir(), LEFT));
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let path = fs_err::canonicalize(folder.path())?;
        for name in ["git/objects/info", "git/refs", "tree"] {
            fs_err::create_dir_all(path.join(name))?;
        }
        fs_err::write(path.join("git/HEAD"), "ref: refs/heads/unborn\n")?;
        fs_err::write(path.join("git/config"), configuration(long))?;
        let indexed = copy_index(own, &path.join("git"))?;
        Ok(Self { folder, path, head, long, indexed })
    }

    /// What git takes for the repository.
    pub(super) fn git(&self) -> PathBuf {
        self.path.join("git")
    }

    /// What git takes for the worktree.
    pub(super) fn tree(&self) -> PathBuf {
        self.path.join("tree")
    }

    /// What git takes for a home.
    pub(super) fn home(&self) -> &Path {
        self.folder.path()
    }

    /// Adds an object that is known to be a file.
    pub(super) fn add_file(&self, id: &str, content: &[u8]) -> io::Result<()> {
        let (first, rest) = id.split_at_checked(2).ok_or(io::ErrorKind::InvalidInput)?;
        let folder = self.git().join("objects").join(first);
        fs_err::create_dir_all(&folder)?;
        let place = folder.join(rest);
        if place.exists() {
            return Ok(());
        }
        let mut packed = ZlibEncoder::new(fs_err::File::create(place)?, Compression::fast());
        packed.write_all(format!("blob {}\0", content.len()).as_bytes())?;
        packed.write_all(content)?;
        packed.finish().map(drop)
    }
}

/// Removes the stand-ins of this user in `folder` that are older than `age`: of engines that were killed. Follows no links.
fn remove_left(folder: &Path, age: Duration) {
    let Ok(entries) = fs_err::read_dir(folder) else { return };
    for entry in entries.take(LOOKED_AT).flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        // Of the entry itself, not of what a link leads to.
        let Ok(facts) = entry.metadata() else { continue };
        let is_own = facts.is_dir() && facts.uid() == geteuid().as_raw();
        if is_own && facts.modified().is_ok_and(|made| made.elapsed().is_ok_and(|passed| passed >= age)) {
            // What cannot be removed stays.
            let _ = fs_err::remove_dir_all(entry.path());
        }
    }
}

/// The only settings that git sees. What may run a program is said to be off, though nothing says that it is on. Links are
/// kept as files, so that nothing leads out of the stand-in.
fn configuration(long: bool) -> String {
    let mut text = format!(
        "[core]\n\trepositoryformatversion = {}\n\tbare = false\n\tquotePath = false\n\tfsmonitor = false\n\
         \thooksPath = /dev/null\n\tattributesFile = /dev/null\n\texcludesFile = /dev/null\n\
         \tbigFileThreshold = {LARGEST_TEXT}\n\tsymlinks = false\n\tprotectNTFS = false\n\tprotectHFS = false\n\
         [advice]\n\taddEmbeddedRepo = false\n[submodule]\n\trecurse = false\n[protocol]\n\tallow = never\n",
        u8::from(long)
    );
    if long {
        let _ = write!(text, "[extensions]\n\tobjectFormat = sha256\n");
    }
    text
}

/// Whether a repository without a commit says that it has the longer kind of hashes.
fn has_long_hashes(common: &Folder) -> bool {
    let text = common.text("config", LONGEST_LIST).unwrap_or_default().to_lowercase();
    text.lines().any(|line| line.trim_start().starts_with("objectformat") && line.contains("sha256"))
}

/// When it was written; without one, nothing is known.
fn copy_index(own: &Folder, to: &Path) -> io::Result<Moment> {
    let is_shared =
        |name: &std::ffi::OsString| name.to_str().is_some_and(|name| name.starts_with("sharedindex."));
    let shared = own.names(MOST_NAMES)?.into_iter().filter(is_shared).take(MOST_SHARED);
    let mut indexed = Moment::default();
    for name in shared.chain(["index".into()]) {
        let Ok((file, facts)) = own.file(Path::new(&name)) else { continue };
        let mut copy = fs_err::File::create(to.join(&name))?;
        if io::copy(&mut file.take(LARGEST_INDEX + 1), &mut copy)? > LARGEST_INDEX {
            return Err(io::Error::other(format!("the index is larger than {LARGEST_INDEX} bytes")));
        }
        indexed = Moment::changed(&facts);
    }
    Ok(indexed)
}

/// These folders of objects and all further ones that they name; `None` where there are too many, or one is not `allowed`, which
/// is asked before anything is looked at, or is not there.
pub(super) fn with_alternates(objects: PathBuf, allowed: &dyn Fn(&Path) -> bool) -> Option<Vec<PathBuf>> {
    let mut found = vec![objects];
    let mut done = 0;
    while let Some(path) = found.get(done).cloned() {
        let folder = Some(&path).filter(|path| allowed(path)).and_then(|path| Folder::open(path).ok())?;
        done += 1;
        if folder.below(Path::new("info")).and_then(|info| info.facts("alternates".as_ref())).is_err() {
            continue;
        }
        let text = folder.text("info/alternates", LONGEST_LIST)?;
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            // One in quotes has letters that mean something else.
            let line = Some(line).filter(|line| !line.starts_with('"'))?;
            let other = lexical(&path, Path::new(line));
            if !found.contains(&other) {
                found.push(other);
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
    fn what_killed_engines_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["asked-git-1/git", "asked-git-2", "other"] {
            fs_err::create_dir_all(folder.path().join(name)).unwrap();
        }
        let long_ago = std::time::SystemTime::now() - LEFT;
        for old in ["asked-git-1", "other"] {
            fs_err::File::open(folder.path().join(old)).unwrap().file().set_modified(long_ago).unwrap();
        }
        remove_left(folder.path(), LEFT);
        let left = fs_err::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(
            left.collect::<std::collections::BTreeSet<_>>(),
            ["asked-git-2".into(), "other".into()].into()
        );
    }

    #[test]
    fn chains_of_objects_are_followed_to_their_end() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        for name in ["a", "b", "c"] {
            fs_err::create_dir_all(top.join(name).join("info")).unwrap();
        }
        let list =
            |name: &str, text: &str| fs_err::write(top.join(name).join("info/alternates"), text).unwrap();
        let all = |allowed: &dyn Fn(&Path) -> bool| with_alternates(top.join("a"), allowed);
        list("a", "# more\n../b\n");
        list("b", &format!("{}\n../a\n", top.join("c").display()));
        assert_eq!(all(&|_| true).unwrap(), ["a", "b", "c"].map(|name| top.join(name)));
        assert_eq!(all(&|path| !path.ends_with("c")), None);
        fs_err::os::unix::fs::symlink("c", top.join("link")).unwrap();
        for named in ["/nowhere/at/all\n", "\"/tmp\"\n", "../link\n"] {
            list("c", named);
            assert_eq!(all(&|_| true), None, "{named}");
        }
    }
}
