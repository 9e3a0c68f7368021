//! Who changed which files of a workspace, for those who want to hear of it.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use playhouse_protocol::changes::ChangeKind;
use tokio::sync::Notify;

use super::{Differing, Running, State, TreeIndex, Watch};
use crate::ContentHash;
use crate::state::FileWrite;

/// Changes that are kept until they are taken.
const MOST: usize = 20_000;

/// Who changed a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangedBy {
    /// A call of this session.
    Session(Arc<str>),
    /// Nobody whose calls are known: a person, or a program of theirs.
    Outside,
    /// Calls of several sessions ran, or a command that runs for so long that people work beside it.
    Unclear,
}

/// A file that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// Where it is.
    pub path: PathBuf,
    /// How it changed.
    pub kind: ChangeKind,
    /// Who changed it.
    pub by: ChangedBy,
    /// The hash of its content, if that is known.
    pub content: Option<ContentHash>,
}

/// What changed since it was asked last.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The files, in the order in which it was seen.
    pub files: Vec<FileChange>,
    /// Number of further files that changed.
    pub more: u64,
}

/// What a watch is heard by.
#[derive(Debug)]
pub struct Ears {
    /// Can be read when something changed in the workspace.
    pub events: OwnedFd,
    /// Told when a call saw changes, and when the index is gone.
    pub told: Arc<Notify>,
}

impl News {
    pub(super) fn add(&mut self, change: FileChange) {
        match self.files.len() < MOST {
            true => self.files.push(change),
            false => self.more += 1,
        }
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

impl TreeIndex {
    /// Says that somebody will [`watch`](Self::watch), so that what tools write until then is told as well. Gives whether
    /// nobody did before.
    pub fn expect_watch(&self) -> bool {
        !self.heard.swap(true, Ordering::Relaxed)
    }

    /// Says that nobody does after all.
    pub fn watch_failed(&self) {
        self.heard.store(false, Ordering::Relaxed);
        self.state.lock().news = News::default();
    }

    /// The workspace.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Looks at all files, and hears of changes from then on. Blocks.
    ///
    /// # Errors
    /// Why nothing can be heard.
    pub fn watch(&self) -> Result<Ears, String> {
        let heard = self.begin_watch(&mut self.state.lock());
        if heard.is_err() {
            self.watch_failed();
        }
        heard
    }

    fn begin_watch(&self, state: &mut State) -> Result<Ears, String> {
        let watch = Watch::new().map_err(|error| format!("the system lends no watch: {error}"))?;
        let events = watch.events().map_err(|error| error.to_string())?;
        state.watch = Some(watch);
        state.dirty.all = true;
        self.look(state, 0, false)?;
        match state.watch {
            Some(_) => Ok(Ears { events, told: Arc::clone(&self.told) }),
            None => Err("the system lends no watch for so many folders".to_owned()),
        }
    }

    /// Notes what a tool of a session wrote.
    pub(super) fn tell(&self, state: &mut State, write: &FileWrite, session: &Arc<str>) {
        if !self.heard.load(Ordering::Relaxed) {
            return;
        }
        let after = write.after.as_ref();
        state.news.add(FileChange {
            path: write.path.clone(),
            kind: ChangeKind::of(write.before.is_some(), after.is_some()),
            by: ChangedBy::Session(Arc::clone(session)),
            content: after.and_then(|file| file.content),
        });
        self.told.notify_one();
    }

    /// Looks where something changed. Gives what was seen since it was asked last; `None` if nothing is heard any more. Blocks.
    pub fn news(&self) -> Option<News> {
        let mut state = self.state.lock();
        if state.watch.is_some() && self.look(&mut state, 0, false).is_err() {
            // Who needs what it would have seen looks again.
            state.quiet = None;
        }
        let news = std::mem::take(&mut state.news);
        (state.watch.is_some() || !news.is_empty()).then_some(news)
    }
}

impl Drop for TreeIndex {
    fn drop(&mut self) {
        self.told.notify_one();
    }
}

impl State {
    /// Who changes files now.
    pub(super) fn writer(&self) -> ChangedBy {
        let Some(first) = self.running.first() else { return ChangedBy::Outside };
        let is_one = self.running.iter().all(|running| running.session == first.session);
        match is_one && !self.running.iter().all(Running::goes_on) {
            true => ChangedBy::Session(Arc::clone(&first.session)),
            false => ChangedBy::Unclear,
        }
    }

    /// Notes for those who hear of changes what a look saw. Nobody hears of ignored files.
    pub(super) fn tell(&mut self, root: &Path, differing: &Differing) {
        let by = self.writer();
        for (path, was) in differing {
            let is = self.files.as_ref().and_then(|files| files.get(path));
            if [was.as_ref(), is].into_iter().flatten().any(|entry| entry.content.is_ignored()) {
                continue;
            }
            self.news.add(FileChange {
                path: root.join(OsStr::from_bytes(path)),
                kind: ChangeKind::of(was.is_some(), is.is_some()),
                by: by.clone(),
                content: is.and_then(|entry| entry.content.hash()),
            });
        }
    }
}
