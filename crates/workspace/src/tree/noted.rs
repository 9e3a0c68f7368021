//! What is noted with calls that run: how files and folders were that changed meanwhile, and who else may have changed them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::folders::{DifferingFolders, FolderFacts};
use super::{Differing, Entry, State};

/// People work beside a background command that runs for longer.
pub(super) const BESIDE: Duration = Duration::from_secs(60);

/// Who may have changed something besides the call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Nobody.
    #[default]
    Nobody,
    /// One of these sessions did, that of the call among them.
    Among(BTreeSet<Arc<str>>),
    /// Anybody.
    Anybody,
}

impl Doubt {
    /// Both doubts.
    fn and(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Anybody, _) | (_, Self::Nobody) => {}
            (Self::Among(sessions), Self::Among(more)) => sessions.extend(more.iter().cloned()),
            _ => *self = other.clone(),
        }
    }

    /// The sessions, unless nobody else may have done it; none: anybody may have.
    pub(super) fn sessions(self) -> Option<Vec<String>> {
        match self {
            Self::Nobody => None,
            Self::Among(sessions) => Some(sessions.iter().map(|session| session.to_string()).collect()),
            Self::Anybody => Some(Vec::new()),
        }
    }
}

/// A call that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) id: u64,
    pub(super) session: Arc<str>,
    /// It goes on behind its call, which began then.
    pub(super) in_background: bool,
    pub(super) since: Instant,
    /// How each file was that changed since it began, and who else may have changed it.
    pub(super) changed: BTreeMap<Box<[u8]>, (Option<Entry>, Doubt)>,
    /// The same of folders.
    pub(super) folders: BTreeMap<Box<[u8]>, (Option<FolderFacts>, Doubt)>,
    pub(super) gaps: Vec<String>,
}

impl Running {
    /// Whether it is a command that runs behind its call for so long that people work beside it.
    pub(super) fn goes_on(&self) -> bool {
        self.in_background && self.since.elapsed() > BESIDE
    }
}

impl State {
    /// Notes changes with the calls that run. Of each session it is one: the first that is no background command, if there is one.
    /// People work beside background commands that run for long: what changes while only these run may be theirs.
    pub(super) fn attribute(&mut self, differing: &Differing, folders: &DifferingFolders) {
        let sessions: BTreeSet<Arc<str>> =
            self.running.iter().map(|running| Arc::clone(&running.session)).collect();
        let doubt = match sessions.len() {
            _ if self.running.iter().all(Running::goes_on) => Doubt::Anybody,
            2.. => Doubt::Among(sessions.clone()),
            _ => Doubt::Nobody,
        };
        for session in &sessions {
            let is_first = |running: &Running| running.session == *session && !running.in_background;
            let place = self.running.iter().position(is_first);
            let place = place.or_else(|| self.running.iter().position(|running| running.session == *session));
            let Some(running) = place.and_then(|place| self.running.get_mut(place)) else { continue };
            for (path, was) in differing {
                let known =
                    running.changed.entry(path.clone()).or_insert_with(|| (was.clone(), Doubt::Nobody));
                known.1.and(&doubt);
            }
            for (path, was) in folders {
                let known = running.folders.entry(path.clone()).or_insert((*was, Doubt::Nobody));
                known.1.and(&doubt);
            }
        }
    }
}
