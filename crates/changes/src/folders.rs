//! Folders: those that were made go once they are empty, those that were removed come back.

use std::collections::{BTreeMap, BTreeSet};

use playhouse_protocol::changes::{ChangeSet, ChangedFolder};
use playhouse_protocol::revert::LeftFile;

use crate::{AMBIGUOUS, Selection, is_doubtful};

/// The folders to remove, to make or to give other permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderPlan {
    /// The changes, by path. `before` is the state now. A folder without an `after` is removed if it is empty by then.
    pub changes: Vec<ChangedFolder>,
    /// Folders of which nobody can tell who changed them.
    pub ambiguous: Vec<LeftFile>,
}

/// Plans what becomes of the folders that `sets` made or removed, which come newest first, each with its session. `look` gives the
/// permission bits of the folder at a path, if there is one.
pub fn plan_folders<'a>(
    sets: impl IntoIterator<Item = (&'a str, &'a ChangeSet)>,
    selection: &Selection,
    look: &mut dyn FnMut(&str) -> Option<u32>,
) -> FolderPlan {
    struct Net<'a> {
        before: Option<u32>,
        after: Option<u32>,
        changes: Vec<&'a ChangedFolder>,
        sessions: BTreeSet<&'a str>,
    }
    let mut paths: BTreeMap<&str, Net<'_>> = BTreeMap::new();
    for (session, set) in sets {
        for folder in set.folders.iter().rev() {
            let Net { before, changes, sessions, .. } = paths.entry(&folder.path).or_insert_with(|| Net {
                before: None,
                after: folder.after,
                changes: Vec::new(),
                sessions: BTreeSet::new(),
            });
            *before = folder.before;
            changes.push(folder);
            sessions.insert(session);
        }
    }
    let mut plan = FolderPlan::default();
    for (path, Net { before, after, changes, sessions }) in paths {
        let is_named = selection.names_in(path);
        if before == after || selection.only_named && !is_named {
            continue;
        }
        let now = look(path);
        let is_wanted = match (now, before, after) {
            (Some(_), None, _) | (None, Some(_), None) => true,
            // Whoever changed the permissions since keeps them.
            (Some(now), Some(before), Some(after)) => now == after && now != before,
            _ => false,
        };
        if !is_wanted {
            continue;
        }
        if !is_named && changes.iter().any(|folder| is_doubtful(folder.ambiguous, &folder.among, &sessions)) {
            plan.ambiguous.push(LeftFile::path(path, AMBIGUOUS));
            continue;
        }
        let (path, ambiguous, among) = (path.to_owned(), false, Vec::new());
        plan.changes.push(ChangedFolder { path, before: now, after: before, ambiguous, among });
    }
    plan
}
