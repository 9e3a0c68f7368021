//! What calls changed in files, as change sets tell it.

use playhouse_protocol::changes::{FileBefore, TouchedFile};
use playhouse_protocol::message::CallPart;
use playhouse_protocol::{Message, Part, PartId, WorkspaceChanged};

use super::Session;
use crate::changes::whole_path;

impl Session {
    /// The contents stay in the log, for those who take changes back.
    pub(super) fn workspace_changed(&mut self, changed: &WorkspaceChanged) {
        let workspace = &self.summary.workspace;
        let touched = changed.set.changes.iter().map(|file| TouchedFile {
            path: whole_path(workspace, &file.path),
            kind: file.kind,
            additions: file.additions,
            deletions: file.deletions,
        });
        let touched: Vec<TouchedFile> = touched.collect();
        self.tally.add_set(changed.call, &touched);
        if let Some(turn) = &mut self.turn {
            turn.changed |= !touched.is_empty();
        }
        if let Some(part) = self.part_of(changed.call) {
            part.changed.get_or_insert_default().0.extend(touched);
        }
    }

    /// Whether a call whose files were known before changed none of them: its result may say that it did.
    pub(super) fn names_no_change(&mut self, call: PartId, before: &[FileBefore]) -> bool {
        if before.is_empty() {
            return false;
        }
        match self.part_of(call) {
            Some(part) if part.changed.is_none() => {
                part.changed = Some(Box::default());
                true
            }
            _ => false,
        }
    }

    fn part_of(&mut self, id: PartId) -> Option<&mut CallPart> {
        self.messages.iter_mut().rev().find_map(|message| {
            let Message::Assistant(message) = message else { return None };
            message.parts.iter_mut().find_map(|part| match part {
                Part::Call(call) if call.id == id => Some(call),
                _ => None,
            })
        })
    }
}
