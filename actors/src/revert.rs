//! Taking changes of files back: finds the change sets, plans, and writes path by path.
//!
//! The plan is pure (`playhouse_changes`). Here are the log that it is made from and the files that it is carried out on: through
//! the same door and locks as edits. See `docs/design/changes.md`.

mod by_model;
mod diff;
mod folders;
mod history;
mod write;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use playhouse_changes::{PathState, PathWrite, RevertPlan, Selection, Tree, plan};
use playhouse_lsp::Touch;
use playhouse_policy::{AccessKind, Risk, Verdict, wants};
use playhouse_protocol::changes::{
    ChangeKind, ChangeSet, ChangedFile, ChangedFolder, FileContent, FileImage, TouchedFile,
};
use playhouse_protocol::message::BlobRef;
use playhouse_protocol::revert::{LeftFile, RevertPoint, RevertReport, SessionReverted};
use playhouse_protocol::{CommandError, SessionId};
use playhouse_tools::changed::{FileState, FileWrite, FolderWrite, lines, path_of, path_text};
use playhouse_workspace::door::{DoorError, Kind};
use playhouse_workspace::tree::HeldFiles;
use playhouse_workspace::{PathGuard, Resolved, Workspace};

use crate::context::EngineContext;
use crate::journal::{Images, sha_of};
use crate::judge::Judge;
use crate::wake::ancestors;
use folders::Moment;
use write::Wrote;

pub(crate) use by_model::OwnChanges;
pub(crate) use diff::diff;
pub(crate) use history::{History, Wanted};

/// The permission by which writes of a revert are judged.
const EDIT: &str = "edit";

/// One revert, or one that is taken back.
pub(crate) struct Reverter {
    pub(crate) shared: Arc<EngineContext>,
    pub(crate) tenant: Arc<str>,
    pub(crate) session: SessionId,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) judge: Arc<Judge>,
    /// What is taken back.
    pub(crate) wanted: Wanted,
    /// From where on messages are taken back then.
    pub(crate) point: Option<RevertPoint>,
    /// Number of reverts that it takes back; 0 for a revert.
    pub(crate) redone: u32,
    /// Which paths.
    pub(crate) selection: Selection,
    pub(crate) dry_run: bool,
}

/// What came of it: the record, unless nothing was written since nothing was to be.
pub(crate) type Reverted = (SessionReverted, Box<RevertReport>);

/// Writes down what a revert is about to write.
pub(crate) type Begin =
    Box<dyn FnOnce(SessionReverted) -> BoxFuture<'static, Result<(), CommandError>> + Send>;

/// A revert that is planned. Contents that are to be written are stored.
struct Planned {
    reverter: Reverter,
    changes: Vec<ChangedFile>,
    folders: Vec<ChangedFolder>,
    conflicts: Vec<LeftFile>,
    ambiguous: Vec<LeftFile>,
    not_covered: Vec<LeftFile>,
    /// No edit writes meanwhile.
    _guard: PathGuard,
}

impl Reverter {
    /// Finds and plans. No edit writes until that is dropped.
    ///
    /// # Errors
    /// The log cannot be read, or a path is named that was not changed.
    async fn prepare(self) -> Result<Planned, CommandError> {
        let pool = self.shared.pool.clone();
        let (reverter, history) = pool
            .run(move || {
                self.workspace.check().map_err(|error| CommandError::Invalid(error.to_string()))?;
                let mut history = History::default();
                history.read(&*self.shared.store.log, self.session, &self.wanted, 0)?;
                Ok::<_, CommandError>((self, history))
            })
            .await?;
        let changed = |path: &&String| {
            let mut files = history.sets().flat_map(|(_, set)| &set.changes);
            let mut folders = history.sets().flat_map(|(_, set)| &set.folders);
            !files.any(|change| change.path == **path) && !folders.any(|folder| folder.path == **path)
        };
        if let Some(path) = reverter.selection.named.iter().find(changed) {
            let path = path.escape_debug();
            let why =
                format!("\"{path}\" was not changed from there on: name paths as reports of reverts do");
            return Err(CommandError::Invalid(why));
        }
        let paths = history.sets().flat_map(|(_, set)| &set.changes);
        let paths: Vec<PathBuf> =
            paths.filter_map(|file| path_of(reverter.workspace.root(), &file.path)).collect();
        let guard = reverter.shared.locks.lock(&paths).await;
        Ok(pool.run(move || reverter.plan(history, guard)).await)
    }

    /// Refuses while a command of the session, or of one below it, runs in the background. Blocks.
    fn nothing_runs(&self) -> Result<(), CommandError> {
        let mut running = Vec::new();
        for (session, command) in self.shared.processes.running() {
            let is_own = *session == *self.session.as_str();
            let is_below = || match SessionId::parse(&session) {
                Ok(id) => Ok(ancestors(&*self.shared.store.log, id)?.sessions.contains(&self.session)),
                Err(_) => Ok::<_, CommandError>(false),
            };
            if is_own || is_below()? {
                let line: String =
                    command.command().lines().next().unwrap_or_default().chars().take(80).collect();
                let whose = if is_own { String::new() } else { format!(", of session {session}") };
                running.push(format!("{} ({line}{whose})", command.id()));
            }
        }
        if running.is_empty() {
            return Ok(());
        }
        running.sort_unstable();
        let why = format!(
            "a command of the session is running in the background: {}. End it, or wait for its end, and try again",
            running.join("; ")
        );
        Err(CommandError::StillRunning(why))
    }

    /// Does it. Nothing else of the session runs meanwhile. `begin` writes down what is about to be written.
    ///
    /// # Errors
    /// The log cannot be read or written, or a path is named that was not changed.
    pub(crate) async fn run(self, begin: Begin) -> Result<Reverted, CommandError> {
        let pool = self.shared.pool.clone();
        let this = pool
            .run(move || {
                self.nothing_runs()?;
                Ok::<_, CommandError>(self)
            })
            .await?;
        let planned = this.prepare().await?;
        if planned.reverter.dry_run || planned.changes.is_empty() && planned.folders.is_empty() {
            return Ok(planned.record(Vec::new()));
        }
        let files = planned.changes.iter().map(|file| file.path.clone());
        let folders = planned.folders.iter().map(|folder| folder.path.clone());
        let (mut begun, _) = planned.record(files.chain(folders).collect());
        begun.under_way = true;
        begin(begun).await?;
        let lsp = planned.reverter.shared.lsp.clone();
        let root = planned.reverter.workspace.root().to_owned();
        let reverted = pool.run(move || planned.carry_out()).await;
        if let Some(servers) = lsp {
            let touch = |file: &ChangedFile| match file.kind {
                ChangeKind::Added => Touch::Made,
                ChangeKind::Modified => Touch::Changed,
                ChangeKind::Deleted => Touch::Removed,
            };
            let changes = reverted.0.set.changes.iter();
            let changes = changes.filter_map(|file| Some((path_of(&root, &file.path)?, touch(file))));
            servers.tell_all(changes.collect());
        }
        Ok(reverted)
    }

    /// Blocks.
    fn plan(self, history: History, guard: PathGuard) -> Planned {
        let images = Images { shared: Arc::clone(&self.shared), tenant: Arc::clone(&self.tenant) };
        let named =
            history.sets().flat_map(|(_, set)| &set.changes).map(|change| change.path.clone()).collect();
        let mut files =
            Files { reverter: &self, images: &images, named, changes: Vec::new(), conflicts: Vec::new() };
        let RevertPlan { mut conflicts, ambiguous, mut not_covered } =
            plan(history.sets(), &self.selection, &mut files);
        let (folders, left, doubtful) = folders::plan(&self, &history, &mut files);
        let Files { changes, conflicts: more, .. } = files;
        conflicts.extend(more);
        not_covered.extend(history.not_covered);
        let mut planned =
            Planned { reverter: self, changes, folders, conflicts, ambiguous, not_covered, _guard: guard };
        planned.leave(left, false);
        planned.leave(doubtful, true);
        planned
    }

    /// Where a path of a change set lies; no link is followed.
    fn place(&self, path: &str) -> Result<Resolved, String> {
        let path = path_of(self.workspace.root(), path).ok_or("its name cannot be read")?;
        self.workspace.found(&path).map_err(|error| error.to_string())
    }
}

impl Planned {
    /// Removes first, so that a file can come in the place of a folder. Blocks.
    fn carry_out(mut self) -> Reverted {
        let reverter = &self.reverter;
        let images = Images { shared: Arc::clone(&reverter.shared), tenant: Arc::clone(&reverter.tenant) };
        let mut changes = std::mem::take(&mut self.changes);
        changes.sort_by(|one, other| match (&one.after, &other.after) {
            (None, None) => other.path.cmp(&one.path),
            (Some(_), Some(_)) => one.path.cmp(&other.path),
            (one, other) => one.is_some().cmp(&other.is_some()),
        });
        let session: Arc<str> = reverter.session.as_str().into();
        let wanted = std::mem::take(&mut self.folders);
        let (mut folders, mut made, mut left) = (Vec::new(), Vec::new(), None);
        let mut failed = Vec::new();
        for mut changed in changes {
            if changed.after.is_some() && left.is_none() {
                left = Some(self.change_folders(&wanted, Moment::Between, &mut folders));
            }
            let reverter = &self.reverter;
            let written = reverter.place(&changed.path).and_then(|place| {
                // It is no change of a command that runs in the workspace meanwhile.
                let held: Vec<HeldFiles> = reverter.shared.trees.hold(&session, &place.path);
                let mut new = Vec::new();
                let written = write::write(&reverter.workspace, &place, &changed, &images, &mut new)?;
                if !held.is_empty() {
                    let [before, after] =
                        [&changed.before, &changed.after].map(|image| images.state(image.as_ref()));
                    let wrote = [FileWrite { path: place.path.clone(), before, after }];
                    let folders: Vec<_> = new.iter().map(|path| FolderWrite::made(path)).collect();
                    held.into_iter().for_each(|held| held.wrote(&wrote, &folders));
                }
                made.extend(new);
                Ok(written)
            });
            match written {
                Ok(Wrote::Whole) => self.changes.push(changed),
                Ok(Wrote::Content(why)) => {
                    let why = format!("its content was written, and its permissions were not: {why}");
                    self.conflicts.push(LeftFile::path(&changed.path, why));
                    if let (Some(after), Some(before)) = (&mut changed.after, &changed.before) {
                        after.mode = before.mode;
                    }
                    self.changes.push(changed);
                }
                Err(why) => {
                    failed.push(changed.path.clone());
                    self.conflicts.push(LeftFile::path(changed.path, why));
                }
            }
        }
        self.changes.sort_by(|one, other| one.path.cmp(&other.path));
        let mut left = left.unwrap_or_else(|| self.change_folders(&wanted, Moment::Between, &mut folders));
        left.extend(self.change_folders(&wanted, Moment::End, &mut folders));
        // A folder that holds what is not taken back is none to try again.
        let below = |folder: &str| {
            let is_below =
                |path: &String| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
            failed.iter().any(is_below)
        };
        let is_failed =
            |left: &&LeftFile| left.reason != folders::NOT_EMPTY || left.path.as_deref().is_some_and(below);
        let again: Vec<String> = left.iter().filter(is_failed).filter_map(|left| left.path.clone()).collect();
        failed.extend(again);
        self.note_made(&made, &mut folders);
        self.folders = folders;
        self.leave(left, false);
        self.record(failed)
    }

    /// What came of it.
    fn record(&self, failed: Vec<String>) -> Reverted {
        let Self { reverter, changes, folders, conflicts, ambiguous, not_covered, .. } = self;
        let (to, call) =
            (reverter.point.map(|point| point.message), reverter.point.and_then(|point| point.call));
        let touched = changes.iter().map(|file| TouchedFile {
            path: file.path.clone(),
            kind: file.kind,
            additions: file.additions,
            deletions: file.deletions,
        });
        let report = RevertReport {
            to,
            call,
            dry_run: reverter.dry_run,
            files: touched.collect(),
            folders: folders.clone(),
            conflicts: conflicts.clone(),
            ambiguous: ambiguous.clone(),
            not_covered: not_covered.clone(),
        };
        let record = SessionReverted {
            to,
            call,
            redone: reverter.redone,
            set: ChangeSet { changes: changes.clone(), folders: folders.clone(), ..ChangeSet::default() },
            left: conflicts.iter().chain(ambiguous).chain(not_covered).cloned().collect(),
            under_way: false,
            failed,
        };
        (record, Box::new(report))
    }
}

/// What a write changes, with images made by `image`.
fn change(write: &PathWrite, image: impl Fn(&FileState) -> FileImage) -> ChangedFile {
    let bytes = |state: &PathState| match state {
        PathState::File { bytes, .. } => bytes.clone(),
        PathState::Missing | PathState::Other(_) => None,
    };
    let image = |state: &PathState| match state {
        PathState::File { bytes: Some(bytes), mode, .. } => {
            Some(image(&FileState::new(playhouse_workspace::hash(bytes), bytes, *mode)))
        }
        PathState::File { sha, mode, bytes: None } => {
            Some(FileImage { content: FileContent::Lost { sha: sha.clone(), size: 0 }, mode: *mode })
        }
        PathState::Missing | PathState::Other(_) => None,
    };
    let (additions, deletions) = lines(bytes(&write.from).as_deref(), bytes(&write.to).as_deref());
    let changed = ChangedFile::new(write.path.clone(), image(&write.from), image(&write.to));
    ChangedFile { additions, deletions, ..changed }
}

/// An image of which nothing is stored, for a preview.
fn image_of(state: &FileState) -> FileImage {
    let blob = BlobRef { hash: sha_of(state), size: state.size };
    FileImage { content: FileContent::Blob(blob), mode: state.mode }
}

/// The files that a plan is made over.
struct Files<'a> {
    reverter: &'a Reverter,
    images: &'a Images,
    /// All paths of the history.
    named: HashSet<String>,
    changes: Vec<ChangedFile>,
    conflicts: Vec<LeftFile>,
}

impl Files<'_> {
    fn is_named(&self, path: &Path) -> bool {
        self.named.contains(&path_text(self.reverter.workspace.root(), path))
    }

    /// Whether all that stands in a folder is what the session made there.
    fn is_all_named(&self, place: &Resolved) -> bool {
        let workspace = &self.reverter.workspace;
        write::each_below(workspace, place, 0, &mut |path, kind| {
            kind == Kind::Directory || self.is_named(path)
        })
    }

    /// Checks that no rule denies writing at a place.
    fn may_write(&self, place: &Resolved) -> Result<(), String> {
        let verdict = match wants(EDIT, Risk::Moderate, &[place.access(AccessKind::Write)]) {
            Ok(wants) => self.reverter.judge.verdict(None, &[], &wants),
            Err(verdict) => verdict,
        };
        match verdict {
            Verdict::Deny { reason } => Err(reason),
            // Who takes changes back wants them to be written.
            Verdict::Allow | Verdict::Ask { .. } => Ok(()),
        }
    }

    /// Whether a place lies below what is a file now, and the session's.
    fn is_below_named(&self, place: &Resolved) -> bool {
        let root = self.reverter.workspace.root();
        let mut above = place.path.ancestors().skip(1).take_while(|above| *above != root);
        place.path.starts_with(root) && above.any(|above| self.is_named(above))
    }
}

impl Tree for Files<'_> {
    fn look(&mut self, path: &str) -> PathState {
        let place = match self.reverter.place(path) {
            Ok(place) => place,
            Err(why) => return PathState::Other(format!("nothing that can be read ({why})")),
        };
        match FileState::read(&place) {
            Ok(None) => PathState::Missing,
            Ok(Some(state)) => PathState::File {
                sha: sha_of(&state),
                mode: state.mode,
                bytes: state.bytes.map(|bytes| Arc::from(&*bytes)),
            },
            Err(DoorError::Directory(_)) if self.is_all_named(&place) => PathState::Missing,
            Err(DoorError::Directory(_)) => PathState::Other("a directory".into()),
            Err(DoorError::Replaced(_)) if self.is_below_named(&place) => PathState::Missing,
            Err(DoorError::Replaced(_)) => {
                PathState::Other("behind a link, or below what is no directory".into())
            }
            Err(error) => PathState::Other(format!("nothing that can be read ({error})")),
        }
    }

    fn content(&mut self, image: &FileImage) -> Option<Arc<[u8]>> {
        self.images.content(image).map(Arc::from)
    }

    fn may(&mut self, path: &str) -> Result<(), String> {
        self.may_write(&self.reverter.place(path)?)
    }

    fn planned(&mut self, write: PathWrite) {
        let changed = match self.reverter.dry_run {
            true => change(&write, image_of),
            false => change(&write, |state| self.images.image(state, &[])),
        };
        let images = [&changed.before, &changed.after];
        if images.into_iter().flatten().any(|image| image.content.blob().is_none()) {
            let why = "its content cannot be kept, so that this could not be undone: nothing was written";
            return self.conflicts.push(LeftFile::path(changed.path, why));
        }
        self.changes.push(changed);
    }
}
