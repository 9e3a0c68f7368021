//! Taking changes of files back: finds the change sets, plans, and writes path by path.
//!
//! The plan is pure (`playhouse_changes`). Here are the log that it is made from and the files that it is carried out on: through
//! the same door and locks as edits. See `docs/design/changes.md`.

mod history;

use std::path::PathBuf;
use std::sync::Arc;

use playhouse_changes::{PathState, PathWrite, RevertPlan, Selection, Tree, plan};
use playhouse_policy::{AccessKind, Risk, Verdict, wants};
use playhouse_protocol::changes::{ChangeSet, ChangedFile, FileContent, FileImage, TouchedFile};
use playhouse_protocol::message::BlobRef;
use playhouse_protocol::revert::{LeftFile, RevertPoint, RevertReport, SessionReverted};
use playhouse_protocol::{CommandError, SessionId};
use playhouse_tools::changed::{FileState, lines, path_of};
use playhouse_workspace::door::{self, DoorError, Expected, InPlace};
use playhouse_workspace::{ContentHash, Resolved, Workspace};

use crate::context::EngineContext;
use crate::journal::Images;
use crate::judge::Judge;

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

impl Reverter {
    /// Does it. Nothing else of the session runs meanwhile.
    ///
    /// # Errors
    /// The log cannot be read, or a path is named that was not changed.
    pub(crate) async fn run(self) -> Result<Reverted, CommandError> {
        let pool = self.shared.pool.clone();
        let (reverter, history) = pool
            .run(move || {
                let mut history = History::default();
                history.read(&*self.shared.store.log, self.session, &self.wanted, 0)?;
                Ok::<_, CommandError>((self, history))
            })
            .await?;
        let changed =
            |path: &&String| !history.sets().flat_map(|set| &set.changes).any(|change| change.path == **path);
        if let Some(path) = reverter.selection.named.iter().find(changed) {
            let path = path.escape_debug();
            let why =
                format!("\"{path}\" was not changed from there on: name paths as reports of reverts do");
            return Err(CommandError::Invalid(why));
        }
        let paths = history.sets().flat_map(|set| &set.changes);
        let paths: Vec<PathBuf> =
            paths.filter_map(|file| path_of(reverter.workspace.root(), &file.path)).collect();
        let guard = reverter.shared.locks.lock(&paths).await;
        let reverted = pool
            .run(move || {
                let _guard = guard;
                reverter.carry_out(history)
            })
            .await;
        Ok(reverted)
    }

    fn carry_out(&self, history: History) -> Reverted {
        let images = Images { shared: Arc::clone(&self.shared), tenant: Arc::clone(&self.tenant) };
        let mut files = Files { reverter: self, images: &images };
        let RevertPlan { writes, mut conflicts, ambiguous, mut not_covered } =
            plan(history.sets(), &self.selection, &mut files);
        not_covered.extend(history.not_covered);
        let mut set = ChangeSet::default();
        let mut failed = Vec::new();
        for write in writes {
            if self.dry_run {
                set.changes.push(self.change(&write, image_of, image_of));
                continue;
            }
            match self.write(&write, &images) {
                Ok(changed) => set.changes.push(changed),
                Err(why) => {
                    failed.push(write.path.clone());
                    conflicts.push(LeftFile::path(write.path, why));
                }
            }
        }
        let (to, call) = (self.point.map(|point| point.message), self.point.and_then(|point| point.call));
        let touched = set.changes.iter().map(|file| TouchedFile {
            path: file.path.clone(),
            kind: file.kind,
            additions: file.additions,
            deletions: file.deletions,
        });
        let files = touched.collect();
        let left = conflicts.iter().chain(&ambiguous).chain(&not_covered).cloned().collect();
        let report =
            RevertReport { to, call, dry_run: self.dry_run, files, conflicts, ambiguous, not_covered };
        (SessionReverted { to, call, redone: self.redone, set, left, failed }, Box::new(report))
    }

    /// Where a path of a change set lies; no link is followed.
    fn place(&self, path: &str) -> Result<Resolved, String> {
        let path = path_of(self.workspace.root(), path).ok_or("its name cannot be read")?;
        self.workspace.walked(&path).map_err(|error| error.to_string())
    }

    /// Writes one path, as a whole or not at all. Contents are stored before.
    fn write(&self, write: &PathWrite, images: &Images) -> Result<ChangedFile, String> {
        let place = self.place(&write.path)?;
        let keep = |state: &FileState, _: &[u8]| images.image(state, &[]);
        let changed = self.change(write, |state, bytes| keep(state, bytes), keep);
        let lost = [&changed.before, &changed.after]
            .into_iter()
            .flatten()
            .any(|image| matches!(image.content, FileContent::Lost { .. }));
        if lost {
            return Err(
                "its content cannot be kept, so that this could not be undone: nothing was written".into()
            );
        }
        let expected = expected(&write.from)?;
        match (&write.from, &write.to) {
            (_, PathState::Missing) => door::take(&place, expected).and_then(door::Taken::remove),
            (from, PathState::File { mode, bytes: Some(bytes), sha }) => {
                let is_same = matches!(from, PathState::File { sha: now, .. } if now == sha);
                let written = if is_same { Ok(()) } else { self.put(&place, bytes, expected) };
                written.and_then(|()| match from {
                    PathState::File { mode: now, .. } if now == mode => Ok(()),
                    _ => door::set_mode(&place, *mode),
                })
            }
            _ => return Err("its content is not kept".into()),
        }
        .map_err(|error| error.to_string())?;
        Ok(changed)
    }

    fn put(&self, place: &Resolved, bytes: &[u8], expected: Expected) -> Result<(), DoorError> {
        let made = match expected {
            Expected::Nothing => door::create_parents(place)?,
            _ => Vec::new(),
        };
        let kept = self.workspace.output().join("revert.before");
        let in_place = InPlace { workspace: &self.workspace, kept: &kept };
        let written = door::write_keeping(place, bytes, expected, &in_place);
        written.map(drop).inspect_err(|_| door::remove_empty(&made))
    }

    /// What a write changes, with images made by `old` and `new`.
    fn change(
        &self,
        write: &PathWrite,
        old: impl Fn(&FileState, &[u8]) -> FileImage,
        new: impl Fn(&FileState, &[u8]) -> FileImage,
    ) -> ChangedFile {
        let bytes = |state: &PathState| match state {
            PathState::File { bytes, .. } => bytes.clone(),
            PathState::Missing | PathState::Other(_) => None,
        };
        let image = |state: &PathState, make: &dyn Fn(&FileState, &[u8]) -> FileImage| match state {
            PathState::File { bytes: Some(bytes), mode, .. } => {
                let state = FileState::new(playhouse_workspace::hash(bytes), bytes, *mode);
                Some(make(&state, bytes))
            }
            PathState::File { sha, mode, bytes: None } => {
                let content = FileContent::Lost { sha: sha.clone(), size: 0 };
                Some(FileImage { content, mode: *mode })
            }
            PathState::Missing | PathState::Other(_) => None,
        };
        let (additions, deletions) = lines(bytes(&write.from).as_deref(), bytes(&write.to).as_deref());
        let changed = ChangedFile::new(write.path.clone(), image(&write.from, &old), image(&write.to, &new));
        ChangedFile { additions, deletions, ..changed }
    }
}

/// An image of which nothing is stored, for a preview.
fn image_of(state: &FileState, _: &[u8]) -> FileImage {
    let blob = BlobRef { hash: state.content.to_string(), size: state.size };
    FileImage { content: FileContent::Blob(blob), mode: state.mode }
}

fn expected(from: &PathState) -> Result<Expected, String> {
    match from {
        PathState::Missing => Ok(Expected::Nothing),
        PathState::File { sha, .. } => {
            ContentHash::parse(sha).map(Expected::Content).ok_or_else(|| "its hash cannot be read".to_owned())
        }
        PathState::Other(what) => Err(format!("it is {what} now")),
    }
}

/// The files that a plan is made over.
struct Files<'a> {
    reverter: &'a Reverter,
    images: &'a Images,
}

impl Tree for Files<'_> {
    fn look(&mut self, path: &str) -> PathState {
        let found = self.reverter.place(path).map(|place| FileState::read(&place));
        match found {
            Ok(Ok(None)) => PathState::Missing,
            Ok(Ok(Some(state))) => PathState::File {
                sha: state.content.to_string(),
                mode: state.mode,
                bytes: state.bytes.map(|bytes| Arc::from(&*bytes)),
            },
            Ok(Err(DoorError::Directory(_))) => PathState::Other("a directory".into()),
            Ok(Err(DoorError::Replaced(_))) => {
                PathState::Other("a link, or behind one, or below what is no directory".into())
            }
            Ok(Err(error)) => PathState::Other(format!("nothing that can be read ({error})")),
            Err(why) => PathState::Other(format!("nothing that can be read ({why})")),
        }
    }

    fn content(&mut self, image: &FileImage) -> Option<Arc<[u8]>> {
        self.images.content(image).map(Arc::from)
    }

    fn may(&mut self, path: &str) -> Result<(), String> {
        let access = self.reverter.place(path)?.access(AccessKind::Write);
        let verdict = match wants(EDIT, Risk::Moderate, &[access]) {
            Ok(wants) => self.reverter.judge.verdict(None, &[], &wants),
            Err(verdict) => verdict,
        };
        match verdict {
            Verdict::Deny { reason } => Err(reason),
            // Who takes changes back wants them to be written.
            Verdict::Allow | Verdict::Ask { .. } => Ok(()),
        }
    }
}
