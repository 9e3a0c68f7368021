//! Files that tools write: those say themselves what changes, so that no command is thought to have done it.

use std::path::Path;
use std::sync::Arc;

use super::noted::Doubt;
use super::{Content, Entry, LARGEST, Stamp, TreeIndex, Why, folder_of};
use crate::state::{FileWrite, FolderWrite};

/// Files that a tool is writing. Dropped without [`wrote`](Self::wrote), nobody can tell who changed them.
#[derive(Debug)]
pub struct HeldFiles {
    index: Arc<TreeIndex>,
    session: Arc<str>,
    paths: Vec<Box<[u8]>>,
    is_told: bool,
}

impl TreeIndex {
    /// Says that a tool of a session is about to write these files.
    pub fn hold<'a>(
        self: &Arc<Self>,
        session: &Arc<str>,
        paths: impl IntoIterator<Item = &'a Path>,
    ) -> HeldFiles {
        let paths: Vec<Box<[u8]>> = paths.into_iter().filter_map(|path| self.key(path)).collect();
        let mut state = self.state.lock();
        for path in &paths {
            *state.held.entry(path.clone()).or_default() += 1;
        }
        drop(state);
        HeldFiles { index: Arc::clone(self), session: Arc::clone(session), paths, is_told: false }
    }
}

impl HeldFiles {
    /// Notes what the tool wrote, and the folders that it made or removed: no command did. Blocks.
    pub fn wrote(mut self, writes: &[FileWrite], folders: &[FolderWrite]) {
        self.is_told = true;
        let mut guard = self.index.state.lock();
        let state = &mut *guard;
        self.index.tool_changed(state, folders);
        for write in writes {
            let Some(key) = self.index.key(&write.path) else { continue };
            let Some(files) = &state.files else {
                self.index.tell(state, write, &self.session);
                continue;
            };
            let old = files.get(&key).cloned();
            let (before, after) = (write.before.as_ref(), write.after.as_ref());
            let (before, after) = (before.and_then(|file| file.content), after.and_then(|file| file.content));
            let known = old.as_ref().and_then(|old| state.hash_of(old));
            if known == after && old.is_some() == write.after.is_some() {
                // It was told already.
                continue;
            }
            self.index.tell(state, write, &self.session);
            // Ignored files are not read: of these nobody can tell.
            let is_other = old.is_some() != write.before.is_some() || (known.is_some() && known != before);
            let entry = match (&write.after, rustix::fs::lstat(&write.path)) {
                (Some(after), Ok(facts)) => {
                    let content = match (after.content, &after.bytes) {
                        (Some(hash), Some(bytes)) if bytes.len() as u64 <= LARGEST => {
                            state.make_room(bytes.len() as u64);
                            match state.spool.put(hash, bytes) {
                                Ok(()) => Content::Spooled(hash),
                                Err(_) => Content::Hashed(hash, Why::NoRoom),
                            }
                        }
                        (Some(hash), _) => Content::Hashed(hash, Why::Large),
                        (None, _) => Content::Unread(Why::Unreadable),
                    };
                    Some(Entry { stamp: Stamp::of(&facts), content, is_fresh: true })
                }
                _ => None,
            };
            // A command had changed it before: which change is whose cannot be told.
            for running in &mut state.running {
                match running.changed.get_mut(&key) {
                    Some((_, doubt)) => *doubt = Doubt::Anybody,
                    None if is_other => {
                        drop(running.changed.insert(key.clone(), (old.clone(), Doubt::Anybody)));
                    }
                    None => {}
                }
            }
            // It may lie in an ignored folder, which counts from now on.
            let mut folder = &*key;
            while !folder.is_empty() {
                folder = folder_of(folder.strip_suffix(b"/").unwrap_or(folder));
                state.dirty.add(folder);
            }
            let files = state.files.get_or_insert_default();
            match entry {
                Some(entry) => drop(files.insert(key, entry)),
                None => drop(files.remove(&key)),
            }
        }
    }
}

impl Drop for HeldFiles {
    fn drop(&mut self) {
        let mut state = self.index.state.lock();
        for path in self.paths.iter().filter(|_| !self.is_told) {
            let old = state.files.as_ref().and_then(|files| files.get(path)).cloned();
            for running in &mut state.running {
                let noted =
                    running.changed.entry(path.clone()).or_insert_with(|| (old.clone(), Doubt::Nobody));
                noted.1 = Doubt::Anybody;
            }
        }
        for path in &self.paths {
            if let Some(count) = state.held.get_mut(path) {
                *count -= 1;
                if *count == 0 {
                    state.held.remove(path);
                }
            }
        }
    }
}
