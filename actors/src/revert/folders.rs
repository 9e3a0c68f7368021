//! Folders of a revert: those that were made are removed where they are empty, those that were removed are made again.

use std::sync::Arc;

use playhouse_changes::{FolderPlan, plan_folders};
use playhouse_protocol::changes::ChangedFolder;
use playhouse_protocol::revert::LeftFile;
use playhouse_tools::changed::{FolderWrite, path_of, path_text};
use playhouse_workspace::door::{self, DoorError};
use playhouse_workspace::{Resolved, folder_mode};

use super::{Files, History, Planned, Reverter};

/// The permission bits that the owner needs to write in a folder.
const OWNERS: u32 = 0o700;
pub(super) const NOT_EMPTY: &str = "the folder is not empty: what is in it is not taken back";

/// When folders are changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Before files are written, after others are removed.
    Between,
    /// When all files are written.
    End,
}

/// Plans what becomes of folders. Gives also those that are left alone: conflicts, and ambiguous ones.
pub(super) fn plan(
    reverter: &Reverter,
    history: &History,
    files: &mut Files<'_>,
) -> (Vec<ChangedFolder>, Vec<LeftFile>, Vec<LeftFile>) {
    let mut look = |path: &str| folder_mode(&path_of(reverter.workspace.root(), path)?);
    let FolderPlan { mut changes, ambiguous } = plan_folders(history.sets(), &reverter.selection, &mut look);
    let mut conflicts = Vec::new();
    changes.retain(|folder| {
        let is_left = match reverter.place(&folder.path) {
            Err(why) => Some(why),
            Ok(place) => files.may_write(&place).err().or_else(|| {
                let goes = folder.after.is_none();
                (goes && !files.is_all_named(&place)).then(|| NOT_EMPTY.to_owned())
            }),
        };
        conflicts.extend(is_left.iter().map(|why| LeftFile::path(&folder.path, why.as_str())));
        is_left.is_none()
    });
    (changes, conflicts, ambiguous)
}

impl Planned {
    /// Adds folders that are left alone. What is in them says it already, if it is left as well.
    pub(super) fn leave(&mut self, folders: Vec<LeftFile>, is_ambiguous: bool) {
        for folder in folders.into_iter().rev() {
            let Some(path) = folder.path.as_deref() else { continue };
            let left = [&self.conflicts, &self.ambiguous, &self.not_covered].into_iter().flatten();
            let below = |left: &str| left.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
            let is_said = left.filter_map(|left| left.path.as_deref()).any(below);
            let selection = &self.reverter.selection;
            let is_asked = !selection.only_named || selection.named.iter().any(|named| named == path);
            if is_asked && !is_said {
                match is_ambiguous {
                    true => self.ambiguous.push(folder),
                    false => self.conflicts.push(folder),
                }
            }
        }
    }

    /// Changes the folders whose moment it is, and gives those that could not be. Blocks.
    pub(super) fn change_folders(
        &self,
        wanted: &[ChangedFolder],
        moment: Moment,
        done: &mut Vec<ChangedFolder>,
    ) -> Vec<LeftFile> {
        let session: Arc<str> = self.reverter.session.as_str().into();
        let mut left = Vec::new();
        let goes = |folder: &&ChangedFolder| folder.after.is_none();
        // The inner ones go first, the outer ones come first.
        let going = wanted.iter().rev().filter(goes).filter(|_| moment == Moment::Between);
        let others = wanted.iter().filter(|folder| !goes(folder));
        for folder in going.chain(others) {
            let changed = self.reverter.place(&folder.path).and_then(|place| {
                let held = self.reverter.shared.trees.hold(&session, &place.path);
                let changed = change(folder, &place, moment).map_err(|error| error.to_string());
                let (path, before, after) = (place.path, folder.before, folder.after);
                let folders = [FolderWrite { path, before, after }];
                let told = matches!(changed, Ok(Some(true)));
                held.into_iter().for_each(|held| held.wrote(&[], if told { &folders } else { &[] }));
                changed
            });
            match changed {
                Ok(Some(true)) => {
                    if !done.iter().any(|known| known.path == folder.path) {
                        done.push(folder.clone());
                    }
                }
                Ok(Some(false)) => left.push(LeftFile::path(&folder.path, NOT_EMPTY)),
                Ok(None) => {}
                Err(why) => left.push(LeftFile::path(&folder.path, why)),
            }
        }
        left
    }

    /// Notes folders that were made for files whose change sets do not name them.
    pub(super) fn note_made(&self, made: &[std::path::PathBuf], done: &mut Vec<ChangedFolder>) {
        let root = self.reverter.workspace.root();
        let made = made.iter().map(|path| ChangedFolder {
            path: path_text(root, path),
            before: None,
            after: folder_mode(path),
            ambiguous: false,
            among: Vec::new(),
        });
        done.extend(made);
        done.sort_by(|one, other| one.path.cmp(&other.path));
    }
}

/// Changes one folder, if it is its moment. False: it is not empty.
fn change(folder: &ChangedFolder, place: &Resolved, moment: Moment) -> Result<Option<bool>, DoorError> {
    let is_narrow = folder.after.is_some_and(|mode| mode & OWNERS != OWNERS);
    match (folder.before, folder.after, moment) {
        (_, None, Moment::Between) => door::remove_folder(place).map(Some),
        (None, Some(mode), Moment::Between) => {
            door::make_folder(place, mode).map(|made| made.then_some(true))
        }
        (Some(_), Some(mode), Moment::Between) if !is_narrow => {
            door::set_folder_mode(place, mode).map(|()| Some(true))
        }
        (_, Some(mode), Moment::End) if is_narrow => door::set_folder_mode(place, mode).map(|()| Some(true)),
        _ => Ok(None),
    }
}
