//! What sessions that left memory come back to: what they had seen of files, and the walls around their programs.
//!
//! None of it is in the log, and a session does without it: models are told to read a file once more, and new walls are
//! built, with an empty `/tmp`. So it is kept as far as there is room, for those that left last.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_protocol::SessionId;
use playhouse_sandbox::{Walls, WallsSpec};
use playhouse_workspace::FileTracker;

/// So many files are remembered for all sessions that sleep: at a few hundred bytes each, some ten megabytes.
const MOST_FILES: usize = 32_768;
/// The walls of so many sessions are kept: each has a folder on disk, and some ten kilobytes.
const MOST_SESSIONS: usize = 256;

/// What is kept of sessions that sleep.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Inner>);

/// What one session comes back to.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) files: Arc<FileTracker>,
    /// Its walls, and what they were built from.
    pub(crate) walls: Option<(Arc<WallsSpec>, Walls)>,
}

#[derive(Debug, Default)]
struct Inner {
    by_session: HashMap<SessionId, Place>,
    /// The sessions by the number under which each left.
    order: BTreeMap<u64, SessionId>,
    /// How many have left so far.
    left: u64,
    /// How many files all of them know.
    files: usize,
}

#[derive(Debug)]
struct Place {
    kept: Kept,
    files: usize,
    number: u64,
}

impl Seen {
    /// A session leaves. What there is no more room for comes back, to be dropped where that may block.
    pub(crate) fn keep(&self, session: SessionId, mut kept: Kept) -> Vec<Kept> {
        // Those that nothing needed are nothing yet.
        kept.walls.take_if(|(_, walls)| walls.known().is_none());
        let files = kept.files.len();
        let mut inner = self.0.lock();
        let mut gone: Vec<Kept> = inner.remove(session).into_iter().collect();
        inner.left += 1;
        let number = inner.left;
        inner.by_session.insert(session, Place { kept, files, number });
        inner.order.insert(number, session);
        inner.files += files;
        while inner.files > MOST_FILES || inner.by_session.len() > MOST_SESSIONS {
            let Some((_, oldest)) = inner.order.pop_first() else { break };
            gone.extend(inner.remove(oldest));
        }
        gone
    }

    /// A session comes back.
    pub(crate) fn take(&self, session: SessionId) -> Kept {
        self.0.lock().remove(session).unwrap_or_default()
    }
}

impl Kept {
    /// The walls, if they are what would be built from this.
    pub(crate) fn walls_of(&mut self, spec: &WallsSpec) -> Option<Walls> {
        self.walls.take().filter(|(of, _)| **of == *spec).map(|(_, walls)| walls)
    }
}

impl Inner {
    fn remove(&mut self, session: SessionId) -> Option<Kept> {
        let Place { kept, files, number } = self.by_session.remove(&session)?;
        self.order.remove(&number);
        self.files -= files;
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::{IdGenerator, Sandbox, WallsAllowed};
    use playhouse_workspace::hash;

    use super::*;
    use crate::base::now;

    fn knows(count: usize) -> Kept {
        let files = Arc::new(FileTracker::new());
        (0..count).for_each(|number| files.remember(format!("/{number}"), hash(b"x")));
        Kept { files, walls: None }
    }

    #[test]
    fn those_that_left_first_are_forgotten_when_there_is_no_more_room() {
        let mut ids = IdGenerator::new(|_| {});
        let seen = Seen::default();
        let sessions: Vec<SessionId> = (0..20).map(|_| ids.next(now())).collect();
        for session in &sessions {
            seen.keep(*session, knows(2_048));
            // It came back and left again: it counts once.
            assert_eq!(seen.take(*session).files.len(), 2_048);
            seen.keep(*session, knows(2_048));
        }
        let inner = seen.0.lock();
        assert_eq!((inner.files, inner.by_session.len(), inner.order.len()), (MOST_FILES, 16, 16));
        drop(inner);
        assert_eq!(seen.take(sessions[3]).files.len(), 0);
        assert_eq!(seen.take(sessions[4]).files.len(), 2_048);
    }

    #[test]
    fn walls_are_kept_of_so_many_and_those_that_go_are_given_back() {
        let mut ids = IdGenerator::new(|_| {});
        let seen = Seen::default();
        let gone: usize = (0..MOST_SESSIONS + 5).map(|_| seen.keep(ids.next(now()), knows(1)).len()).sum();
        assert_eq!((gone, seen.0.lock().files), (5, MOST_SESSIONS));
    }

    #[test]
    fn walls_that_nothing_needed_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let spec = Arc::new(WallsSpec {
            sandbox: Sandbox::BestEffort,
            allowed: WallsAllowed::default(),
            workspace: place("workspace"),
            output: place("output"),
            shared: Vec::new(),
            home: place("home"),
            hidden: Vec::new(),
            roots: Vec::new(),
        });
        let session = IdGenerator::new(|_| {}).next(now());
        let seen = Seen::default();
        for (walls, kept) in [(Walls::when_needed(&spec).unwrap(), false), (Walls::open(), true)] {
            let leaving = Kept { walls: Some((Arc::clone(&spec), walls)), ..knows(1) };
            assert!(seen.keep(session, leaving).is_empty());
            assert_eq!(seen.take(session).walls_of(&spec).is_some(), kept);
        }
    }
}
