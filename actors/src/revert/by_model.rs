//! Changes that a model takes back itself, within its turn.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use playhouse_changes::Selection;
use playhouse_protocol::message::{CallOutcome, CallState};
use playhouse_protocol::{Message, Part, PartId, Seq, SessionId};
use playhouse_session::Session;
use playhouse_store::Log;
use playhouse_tools::changed::{FileWrite, FolderWrite, path_of};
use playhouse_tools::undo::{OwnChange, UNDONE, UndoPlan};
use playhouse_tools::{CallContext, ToolError};
use playhouse_workspace::Workspace;

use super::{Planned, Reverter, Wanted};
use crate::context::EngineContext;
use crate::journal::Images;
use crate::judge::Judge;
use crate::wake::PAGE;

/// The session whose model it is.
#[derive(Clone)]
pub(crate) struct OwnChanges {
    pub(crate) shared: Arc<EngineContext>,
    pub(crate) tenant: Arc<str>,
    pub(crate) session: SessionId,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) judge: Arc<Judge>,
}

impl OwnChanges {
    /// The calls that changed files and were not taken back, newest first.
    pub(crate) async fn list(&self) -> Result<Vec<OwnChange>, ToolError> {
        let this = self.clone();
        self.shared
            .pool
            .run(move || {
                let session = folded(&*this.shared.store.log, this.session)?;
                Ok(own(&session))
            })
            .await
            .map_err(ToolError::Failed)
    }

    fn reverter(&self, calls: Vec<PartId>, dry_run: bool) -> Reverter {
        Reverter {
            shared: Arc::clone(&self.shared),
            tenant: Arc::clone(&self.tenant),
            session: self.session,
            workspace: Arc::clone(&self.workspace),
            judge: Arc::clone(&self.judge),
            wanted: Wanted::Calls(calls.into_iter().collect()),
            point: None,
            redone: 0,
            selection: Selection::default(),
            dry_run,
        }
    }

    /// What taking these calls back would write.
    pub(crate) async fn plan(&self, calls: Vec<PartId>) -> Result<UndoPlan, ToolError> {
        let planned = self.prepared(calls, true).await?;
        let places = planned.changes.iter().filter_map(|change| planned.reverter.place(&change.path).ok());
        let (places, (_, report)) = (places.collect(), planned.record(Vec::new()));
        let left = [&report.conflicts, &report.ambiguous, &report.not_covered];
        let is_any = !report.files.is_empty()
            || !report.folders.is_empty()
            || left.into_iter().any(|left| !left.is_empty());
        Ok(UndoPlan { report: *report, places, is_any })
    }

    /// Takes them back, where only these paths are written.
    pub(crate) async fn undo(
        &self,
        calls: Vec<PartId>,
        paths: Vec<PathBuf>,
        context: &CallContext,
    ) -> Result<UndoPlan, ToolError> {
        let planned = self.prepared(calls, false).await?;
        let root = self.workspace.root();
        let is_seen = |path: &str| path_of(root, path).is_some_and(|path| paths.contains(&path));
        if !planned.changes.iter().all(|change| is_seen(&change.path)) {
            let why = "files changed since the call was looked at: call it again";
            return Err(ToolError::Failed(why.to_owned()));
        }
        let images = Images { shared: Arc::clone(&self.shared), tenant: Arc::clone(&self.tenant) };
        let (writes, root) = (context.writes.clone(), root.to_owned());
        let report = context
            .pool
            .run(move || {
                let (record, report) = planned.carry_out();
                let folders = record.set.folders.into_iter().filter_map(|folder| {
                    let (before, after) = (folder.before, folder.after);
                    Some(FolderWrite { path: path_of(&root, &folder.path)?, before, after })
                });
                writes.changed_folders(folders);
                for change in record.set.changes {
                    let Some(path) = path_of(&root, &change.path) else { continue };
                    let [before, after] =
                        [change.before, change.after].map(|image| images.state(image.as_ref()));
                    writes.wrote(FileWrite { path, before, after });
                }
                report
            })
            .await;
        Ok(UndoPlan { report: *report, places: Vec::new(), is_any: true })
    }

    async fn prepared(&self, calls: Vec<PartId>, dry_run: bool) -> Result<Planned, ToolError> {
        let prepared = self.reverter(calls, dry_run).prepare().await;
        prepared.map_err(|error| ToolError::Failed(error.to_string()))
    }
}

fn folded(log: &dyn Log, id: SessionId) -> Result<Session, String> {
    let (mut entries, mut after) = (Vec::new(), Seq::START);
    loop {
        let read = log.read(id, after, PAGE).map_err(|error| error.to_string())?;
        let count = read.entries.len();
        after = read.entries.last().map_or(after, |entry| entry.seq);
        entries.extend(read.entries);
        if let Some(damage) = read.damage {
            return Err(damage.to_string());
        }
        if count < PAGE {
            return Session::replay(&entries).map_err(|error| error.to_string());
        }
    }
}

/// The calls of a session that changed files, without those that were taken back, newest first.
fn own(session: &Session) -> Vec<OwnChange> {
    let calls = session.messages.iter().flat_map(|message| match message {
        Message::Assistant(answer) => answer.parts.as_slice(),
        Message::User(_) => &[],
    });
    let calls: Vec<_> = calls
        .filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        })
        .collect();
    let mut undone = HashSet::new();
    let mut own = Vec::new();
    for call in calls.into_iter().rev() {
        let CallState::Settled(result) = &call.state else { continue };
        if let Some(taken) = result.metadata.get(UNDONE).and_then(|taken| taken.as_array()) {
            undone.extend(taken.iter().filter_map(|id| PartId::parse(id.as_str()?).ok()));
            continue;
        }
        // Work of others stands in their own logs.
        let is_handed_over = call.tool == "task" && result.outcome == CallOutcome::Done;
        let files = call.changed.as_ref().map(|files| files.0.clone()).unwrap_or_default();
        if !undone.contains(&call.id) && (is_handed_over || !files.is_empty()) {
            own.push(OwnChange { call: call.id, tool: call.tool.clone(), files });
        }
    }
    own
}
