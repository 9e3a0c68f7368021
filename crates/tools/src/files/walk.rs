//! A walk through a directory tree, in the order of names, that obeys ignore files and follows no link.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::directory::{Directory, Entry, Kind};
use super::ignored::Rules;

/// Directories inside each other that are entered. Each costs an open handle.
const DEPTH: usize = 128;

/// How much a walk may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Entries that are looked at.
    pub(crate) entries: usize,
    /// Time that it takes.
    pub(crate) time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 1_000_000, time: Duration::from_secs(20) }
    }
}

/// Where a walk begins.
#[derive(Debug)]
pub(crate) struct Start {
    /// The directory.
    pub(crate) directory: Directory,
    /// Its place, from `/`, the root of the tree that ignore files may speak about.
    place: PathBuf,
    rules: Option<Arc<Rules>>,
}

impl Start {
    /// A walk of `directory`, with nothing above it that counts.
    pub(crate) fn at(directory: Directory) -> Self {
        Self { directory, place: PathBuf::from("/"), rules: None }
    }

    /// A walk of the directory at `inner`, below the open `root`. The ignore files on the way down count.
    pub(crate) fn below(root: Directory, inner: &Path) -> std::io::Result<Self> {
        let mut start = Self::at(root);
        for name in inner {
            let has = |name: &str| start.directory.facts(OsStr::new(name)).is_ok();
            start.rules = Rules::within(&start.directory, &start.place, &has, start.rules.take());
            start.directory = start.directory.child(name)?;
            start.place.push(name);
        }
        Ok(start)
    }
}

/// An entry that a walk came to.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    /// From where the walk began.
    pub(crate) path: &'a Path,
    /// What it is.
    pub(crate) kind: Kind,
    /// The directory that holds it.
    pub(crate) parent: &'a Directory,
    /// Its name in there.
    pub(crate) name: &'a OsStr,
}

/// What a visitor wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Go on; into it, if it is a directory.
    Go,
    /// Go on, but not into it.
    Pass,
    /// Stop.
    Stop,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It came to everything.
    Complete,
    /// Its visitor stopped it.
    Stopped,
    /// It reached the limit of entries.
    Entries,
    /// It reached the limit of time.
    Time,
    /// The call was cancelled.
    Cancelled,
}

/// What a walk has to tell when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// Directories that could not be read, or lie too deep.
    pub(crate) unreadable: usize,
}

impl Report {
    /// For a model: what may be missing from the result; empty when nothing is.
    pub(crate) fn shortfall(&self, limits: &Limits) -> String {
        let advice = "the result is incomplete: search a smaller path";
        match self.outcome {
            Outcome::Entries => format!("(stopped after {} entries; {advice})", limits.entries),
            Outcome::Time => format!("(stopped after {} s; {advice})", limits.time.as_secs()),
            _ if self.unreadable > 0 => format!("({} directories could not be read)", self.unreadable),
            _ => String::new(),
        }
    }
}

/// A walk that is set up.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    /// Whether names that begin with a dot are shown. `.git` never is.
    pub(crate) hidden: bool,
    /// How deep it goes; 1 is only what lies in the first directory.
    pub(crate) depth: usize,
    /// How much it may cost.
    pub(crate) limits: Limits,
    /// Ends it.
    pub(crate) cancel: &'a CancellationToken,
}

/// A directory that a walk is in.
struct Level {
    directory: Directory,
    rules: Option<Arc<Rules>>,
    entries: std::vec::IntoIter<Entry>,
}

impl Walk<'_> {
    /// Walks from `start` on. `visit` is called for everything that is not ignored: a directory comes before what it
    /// holds.
    pub(crate) fn run(self, start: Start, visit: &mut dyn FnMut(&Found<'_>) -> Flow) -> Report {
        let deadline = Instant::now() + self.limits.time;
        let mut report = Report { outcome: Outcome::Complete, unreadable: 0 };
        let mut left = self.limits.entries;
        let mut place = start.place;
        let prefix = place.clone();
        let mut levels = Vec::new();
        match self.enter(start.directory, &place, start.rules, &mut left) {
            Some(level) => levels.push(level),
            None => report.unreadable += 1,
        }
        while let Some(level) = levels.last_mut() {
            if self.cancel.is_cancelled() {
                report.outcome = Outcome::Cancelled;
                return report;
            }
            if Instant::now() >= deadline {
                report.outcome = Outcome::Time;
                return report;
            }
            let Some(Entry { name, kind }) = level.entries.next() else {
                levels.pop();
                place.pop();
                continue;
            };
            place.push(&name);
            let is_directory = kind == Kind::Directory;
            if self.shows(&name)
                && !level.rules.as_ref().is_some_and(|rules| rules.ignores(&place, is_directory))
            {
                let path = place.strip_prefix(&prefix).unwrap_or(&place);
                match visit(&Found { path, kind, parent: &level.directory, name: &name }) {
                    Flow::Stop => {
                        report.outcome = Outcome::Stopped;
                        return report;
                    }
                    Flow::Go if is_directory && levels.len() < self.depth => {
                        if let Some(level) = self.descend(&levels, &name, &place, &mut left) {
                            levels.push(level);
                            continue;
                        }
                        report.unreadable += 1;
                    }
                    Flow::Go | Flow::Pass => {}
                }
            }
            place.pop();
        }
        if self.cancel.is_cancelled() {
            report.outcome = Outcome::Cancelled;
        } else if left == 0 {
            report.outcome = Outcome::Entries;
        }
        report
    }

    fn shows(&self, name: &OsStr) -> bool {
        name != ".git" && (self.hidden || !name.as_encoded_bytes().starts_with(b"."))
    }

    fn descend(&self, levels: &[Level], name: &OsString, place: &Path, left: &mut usize) -> Option<Level> {
        let parent = levels.last().filter(|_| levels.len() < DEPTH)?;
        let directory = parent.directory.child(name).ok()?;
        self.enter(directory, place, parent.rules.clone(), left)
    }

    fn enter(
        &self,
        directory: Directory,
        place: &Path,
        outer: Option<Arc<Rules>>,
        left: &mut usize,
    ) -> Option<Level> {
        let (entries, more) = directory.entries(*left, &|| self.cancel.is_cancelled()).ok()?;
        *left = if more { 0 } else { *left - entries.len() };
        let has = |name: &str| {
            entries.binary_search_by(|entry| entry.name.as_os_str().cmp(OsStr::new(name))).is_ok()
        };
        let rules = Rules::within(&directory, place, &has, outer);
        Some(Level { directory, rules, entries: entries.into_iter() })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// A tree of files (`name` or `name=content`) and directories (`name/`).
    fn tree(entries: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for entry in entries {
            let (name, content) = entry.split_once('=').unwrap_or((entry, ""));
            let path = root.path().join(name);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            if name.ends_with('/') {
                fs_err::create_dir_all(path).unwrap();
            } else {
                fs_err::write(path, content).unwrap();
            }
        }
        root
    }

    #[allow(clippy::disallowed_methods)]
    fn open(path: &Path) -> Directory {
        Directory::new(File::open(path).unwrap().into())
    }

    fn walk_with(root: &Path, inner: &str, limits: Limits, hidden: bool) -> (Vec<String>, Report) {
        let cancel = CancellationToken::new();
        let mut seen = Vec::new();
        let start = Start::below(open(root), Path::new(inner)).unwrap();
        let walk = Walk { hidden, depth: usize::MAX, limits, cancel: &cancel };
        let report = walk.run(start, &mut |found| {
            seen.push(found.path.to_str().unwrap().to_owned());
            Flow::Go
        });
        (seen, report)
    }

    fn walk(root: &Path, inner: &str) -> Vec<String> {
        walk_with(root, inner, Limits::default(), false).0
    }

    #[test]
    fn names_come_in_order_and_hidden_ones_do_not() {
        let root = tree(&["b", "a/z", "a/b/c", ".hidden", ".git/config", "c/"]);
        assert_eq!(walk(root.path(), ""), ["a", "a/b", "a/b/c", "a/z", "b", "c"]);
        let (all, _) = walk_with(root.path(), "", Limits::default(), true);
        assert_eq!(all, [".hidden", "a", "a/b", "a/b/c", "a/z", "b", "c"]);
    }

    #[test]
    fn ignore_files_are_obeyed_also_above_the_start_and_without_a_repository() {
        let root = tree(&[
            ".gitignore=*.log\n/target\nsub/deep/secret\n",
            "a.log",
            "a.txt",
            "target/x",
            "sub/.gitignore=!keep.log\n",
            "sub/keep.log",
            "sub/b.log",
            "sub/target/y",
            "sub/deep/secret",
            "sub/deep/c.log",
            "sub/deep/open",
        ]);
        let seen = walk(root.path(), "");
        assert_eq!(
            seen,
            ["a.txt", "sub", "sub/deep", "sub/deep/open", "sub/keep.log", "sub/target", "sub/target/y"]
        );
        assert_eq!(walk(root.path(), "sub/deep"), ["open"]);
        assert_eq!(walk(root.path(), "target"), ["x"], "what is named outright is searched");
    }

    #[test]
    fn a_plain_ignore_file_beats_gitignore_and_a_nested_repository_has_its_own_rules() {
        let root = tree(&[
            ".gitignore=x\ny\n",
            ".ignore=!x\n",
            ".git/info/exclude=z\n",
            "x",
            "y",
            "z",
            "inner/.git/HEAD",
            "inner/y",
            "inner/z",
        ]);
        assert_eq!(walk(root.path(), ""), ["inner", "inner/y", "inner/z", "x"]);
    }

    #[test]
    fn links_are_not_followed_and_hostile_ignore_files_are_harmless() {
        let root = tree(&["a/b", "piped/c", "linked/d"]);
        std::os::unix::fs::symlink("/", root.path().join("out")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", root.path().join("linked/.gitignore")).unwrap();
        let pipe = root.path().join("piped/.gitignore");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert_eq!(walk(root.path(), ""), ["a", "a/b", "linked", "linked/d", "out", "piped", "piped/c"]);
        assert!(Start::below(open(root.path()), Path::new("out/etc")).is_err());
    }

    #[test]
    fn a_walk_ends_at_its_limits() {
        let root = tree(&["a/1", "a/2", "b/1", "c/1"]);
        let few = Limits { entries: 4, ..Limits::default() };
        let (seen, report) = walk_with(root.path(), "", few, false);
        assert_eq!(report.outcome, Outcome::Entries);
        assert!(seen.len() <= 4, "{seen:?}");
        assert!(report.shortfall(&few).contains("stopped after 4 entries"));

        let none = Limits { time: Duration::ZERO, ..Limits::default() };
        assert_eq!(walk_with(root.path(), "", none, false).1.outcome, Outcome::Time);
    }

    #[test]
    fn a_cancelled_walk_visits_nothing_more() {
        let root = tree(&["a", "b", "c"]);
        let cancel = CancellationToken::new();
        let mut seen = 0;
        let walk = Walk { hidden: false, depth: usize::MAX, limits: Limits::default(), cancel: &cancel };
        let start = Start::below(open(root.path()), Path::new("")).unwrap();
        let report = walk.run(start, &mut |_| {
            seen += 1;
            cancel.cancel();
            Flow::Go
        });
        assert_eq!((seen, report.outcome), (1, Outcome::Cancelled));
    }

    #[test]
    fn a_tree_deeper_than_the_limit_is_told() {
        let root = tempfile::tempdir().unwrap();
        fs_err::create_dir_all(root.path().join("d/".repeat(DEPTH + 5))).unwrap();
        let (seen, report) = walk_with(root.path(), "", Limits::default(), false);
        assert_eq!((seen.len(), report.unreadable), (DEPTH, 1));
    }
}
