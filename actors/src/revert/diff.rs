//! What a session changed in files on the whole, as its change sets tell.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use playhouse_protocol::changes::{ChangeKind, FileImage};
use playhouse_protocol::{CommandError, Message, MessageId, Part, PartId};
use playhouse_session::{Changes, FileChange, Session};
use playhouse_tools::changed::patch;

use super::{History, Wanted};
use crate::context::EngineContext;
use crate::journal::Images;

/// The most bytes of patches of a diff, and of one of them.
const MOST_PATCHES: usize = 4 * 1024 * 1024;
const MOST_PATCH: usize = 256 * 1024;

/// The files that differ on the whole from what they were before a session's calls, as far as those are not taken back; with
/// `turn`, only those of that prompt. Of calls whose change sets are not kept their results tell. Blocks.
///
/// # Errors
/// The log cannot be read.
pub(crate) fn diff(
    shared: &Arc<EngineContext>,
    session: &Session,
    turn: Option<MessageId>,
) -> Result<Vec<FileChange>, CommandError> {
    let taken = session.taken_back();
    let messages: Vec<Message> =
        session.messages.iter().filter(|message| !taken.contains(&message.id())).cloned().collect();
    let of_turn = |message: &&Message| match message {
        Message::Assistant(answer) => turn.is_none_or(|turn| turn == answer.parent),
        Message::User(_) => false,
    };
    let calls = messages.iter().filter(of_turn).flat_map(|message| match message {
        Message::Assistant(answer) => answer.parts.as_slice(),
        Message::User(_) => &[],
    });
    let calls = calls.filter_map(|part| match part {
        Part::Call(call) => Some(call.id),
        _ => None,
    });
    let mut history = History::default();
    let mut wanted: HashSet<PartId> = calls.collect();
    if let Some(undone) = session.reverted_to().and_then(|point| session.calls_from(point, true)) {
        wanted.retain(|call| !undone.contains(call));
    }
    match history.read(&*shared.store.log, session.summary.id, &Wanted::Calls(wanted), 0) {
        // What stands before the damage is known.
        Ok(()) | Err(CommandError::Parked { .. }) => {}
        Err(error) => return Err(error),
    }
    let mut net: BTreeMap<&str, (Option<&FileImage>, Option<&FileImage>)> = BTreeMap::new();
    for change in history.sets().flat_map(|(_, set)| &set.changes) {
        // The sets come newest first.
        let whole = net.entry(&change.path).or_insert((None, change.after.as_ref()));
        whole.0 = change.before.as_ref();
    }
    let mut files = Changes::in_messages(&messages, turn, MOST_PATCHES).files(&session.summary.workspace);
    files.retain(|file| !net.contains_key(&*file.path));
    let images = Images { shared: Arc::clone(shared), tenant: session.summary.tenant.as_str().into() };
    let mut left = MOST_PATCHES;
    for (path, (before, after)) in net {
        if is_like(before, after) {
            continue;
        }
        let content = |image: Option<&FileImage>| match image {
            None => Some(None),
            Some(image) => images.content(image).map(Some),
        };
        let told = match (content(before), content(after)) {
            (Some(old), Some(new)) => patch(path, old.as_deref(), new.as_deref()),
            _ => None,
        };
        let (patch, additions, deletions) = told.unwrap_or_default();
        let patch = if patch.len() <= left.min(MOST_PATCH) { patch } else { String::new() };
        left -= patch.len();
        let status = match ChangeKind::of(before.is_some(), after.is_some()) {
            ChangeKind::Added => "added",
            ChangeKind::Modified => "modified",
            ChangeKind::Deleted => "deleted",
        };
        files.push(FileChange { path: path.to_owned(), status, additions, deletions, patch });
    }
    Ok(files)
}

/// Whether a file is surely as it was.
fn is_like(before: Option<&FileImage>, after: Option<&FileImage>) -> bool {
    match (before, after) {
        (None, None) => true,
        (Some(before), Some(after)) => {
            let (old, new) = (before.content.sha(), after.content.sha());
            !old.is_empty() && (old, before.mode) == (new, after.mode)
        }
        _ => false,
    }
}
