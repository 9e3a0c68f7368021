//! What a session has seen of files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::ContentHash;

/// The most files that one session remembers.
const MOST_FILES: usize = 4096;

/// What a session knows of the content of files, by canonical path. Bounded: the files that were remembered longest
/// ago are forgotten first, and are then as good as never read.
#[derive(Debug, Default)]
pub struct FileTracker {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    files: HashMap<PathBuf, Seen>,
    /// Counts what was remembered, so that it can be told what is oldest.
    clock: u64,
}

#[derive(Debug)]
struct Seen {
    hash: ContentHash,
    at: u64,
    /// Others changed it since, which the session was not told yet.
    is_outdated: bool,
}

impl FileTracker {
    /// A tracker that knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The session has seen, or made, the content `hash` of the file at `path`.
    pub fn remember(&self, path: impl Into<PathBuf>, hash: ContentHash) {
        let mut known = self.known.lock();
        known.clock += 1;
        let at = known.clock;
        known.files.insert(path.into(), Seen { hash, at, is_outdated: false });
        if known.files.len() > MOST_FILES {
            known.forget_older_half();
        }
    }

    /// The content that the session has seen last of the file at `path`.
    pub fn known(&self, path: &Path) -> Option<ContentHash> {
        self.known.lock().files.get(path).map(|seen| seen.hash)
    }

    /// Others changed the file at `path`: it is `content` now, if that is known.
    pub fn outdate(&self, path: &Path, content: Option<ContentHash>) {
        if let Some(seen) = self.known.lock().files.get_mut(path) {
            seen.is_outdated = content != Some(seen.hash);
        }
    }

    /// The files that others changed since the session saw them, by path; each is given once.
    pub fn take_outdated(&self) -> Vec<PathBuf> {
        let mut known = self.known.lock();
        let outdated = known.files.iter_mut().filter_map(|(path, seen)| {
            let is_outdated = std::mem::take(&mut seen.is_outdated);
            is_outdated.then(|| path.clone())
        });
        let mut paths: Vec<PathBuf> = outdated.collect();
        paths.sort_unstable();
        paths
    }

    /// The session knows nothing of the file at `path` any more.
    pub fn forget(&self, path: &Path) {
        self.known.lock().files.remove(path);
    }

    /// The files that it knows, the one remembered last first.
    pub fn paths(&self) -> Vec<PathBuf> {
        let known = self.known.lock();
        let mut paths: Vec<(u64, &PathBuf)> =
            known.files.iter().map(|(path, seen)| (seen.at, path)).collect();
        paths.sort_unstable_by(|a, b| b.cmp(a));
        paths.into_iter().map(|(_, path)| path.clone()).collect()
    }

    /// How many files it knows.
    pub fn len(&self) -> usize {
        self.known.lock().files.len()
    }

    /// Whether it knows no file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Known {
    /// Half at once, so that the cost of finding the oldest is spread over thousands of calls.
    fn forget_older_half(&mut self) {
        let mut ages: Vec<u64> = self.files.values().map(|seen| seen.at).collect();
        let (_, middle, _) = ages.select_nth_unstable(MOST_FILES / 2);
        let middle = *middle;
        self.files.retain(|_, seen| seen.at >= middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash;

    #[test]
    fn the_last_content_counts() {
        let tracker = FileTracker::new();
        let path = Path::new("/repo/a");
        assert_eq!(tracker.known(path), None);
        tracker.remember(path, hash(b"1"));
        tracker.remember(path, hash(b"2"));
        assert_eq!(tracker.known(path), Some(hash(b"2")));
        tracker.forget(path);
        assert_eq!(tracker.known(path), None);
    }

    #[test]
    fn what_others_changed_is_given_once() {
        let tracker = FileTracker::new();
        let (path, other) = (Path::new("/repo/a"), Path::new("/repo/b"));
        tracker.remember(path, hash(b"1"));
        tracker.outdate(other, None);
        tracker.outdate(path, Some(hash(b"2")));
        // It is as it was seen again.
        tracker.outdate(path, Some(hash(b"1")));
        assert_eq!(tracker.take_outdated(), [""; 0].map(PathBuf::from));
        tracker.outdate(path, None);
        assert_eq!(tracker.take_outdated(), [path]);
        assert_eq!(tracker.take_outdated(), [""; 0].map(PathBuf::from));
        tracker.outdate(path, None);
        tracker.remember(path, hash(b"3"));
        assert_eq!(tracker.take_outdated(), [""; 0].map(PathBuf::from));
    }

    #[test]
    fn it_is_bounded_and_forgets_the_oldest_first() {
        let tracker = FileTracker::new();
        let path = |number: usize| PathBuf::from(format!("/repo/{number}"));
        for number in 0..=MOST_FILES {
            tracker.remember(path(number), hash(b"x"));
        }
        assert!(tracker.known.lock().files.len() <= MOST_FILES);
        assert_eq!(tracker.known(&path(0)), None);
        assert_eq!(tracker.known(&path(MOST_FILES)), Some(hash(b"x")));
        assert_eq!(tracker.known(&path(MOST_FILES - 100)), Some(hash(b"x")));
    }
}
