//! The change journal: what a call changed in files, as its session's log has it.
//!
//! Before a call of a file tool is intended, the journal stores the files that it names, so that they are durable with the
//! intent. When the call is over, however it ended, its write log becomes a change set. See `docs/design/changes.md`.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_protocol::Timestamp;
use playhouse_protocol::changes::{
    ChangeKind, ChangeSet, ChangeSource, ChangedFile, ChangedFolder, Coverage, FileBefore, FileContent,
    FileImage,
};
use playhouse_protocol::message::BlobRef;
use playhouse_tools::changed::{
    Doubtful, Drained, FileState, FileWrite, FolderWrite, lines, path_of, path_text,
};
use playhouse_tools::{CallContext, CallObserver, Intent, ObservedCall, ToolError};
use playhouse_workspace::tree::SeenChanges;
use playhouse_workspace::{ContentHash, Workspace, folder_mode};

use crate::context::EngineContext;

/// Why nothing is known of a command that ran when the engine stopped.
const CRASH: &str = "crash";

/// Stores the files of calls that name all they write.
pub(crate) struct Journal {
    pub(crate) shared: Arc<EngineContext>,
    pub(crate) tenant: Arc<str>,
}

impl CallObserver for Journal {
    fn intend<'a>(
        &'a self,
        call: ObservedCall<'a>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<Intent, ToolError>> {
        async move {
            if !call.names_all_it_writes() {
                return Ok(Intent::default());
            }
            let mut paths: Vec<String> = call.written().map(str::to_owned).collect();
            paths.sort_unstable();
            paths.dedup();
            let images = Images { shared: Arc::clone(&self.shared), tenant: Arc::clone(&self.tenant) };
            let (workspace, writes) = (Arc::clone(&context.workspace), context.writes.clone());
            let before = context.pool.run(move || {
                let files = paths.into_iter().filter_map(|path| {
                    let place = workspace.resolve(&path).ok()?;
                    // What is no file is refused by the tool, with the reason.
                    let state = FileState::read(&place).ok()?;
                    let image = state.as_ref().map(|state| images.image(state, &[]));
                    let is_stored = image.as_ref().is_some_and(|image| image.content.blob().is_some());
                    writes.intend(place.path.clone(), state.and_then(|state| state.content), is_stored);
                    let above = place.path.ancestors().skip(1);
                    let missing = above.take_while(|folder| folder.symlink_metadata().is_err()).count();
                    let missing_folders = u32::try_from(missing).unwrap_or(0);
                    Some(FileBefore {
                        path: path_text(workspace.root(), &place.path),
                        image,
                        missing_folders,
                    })
                });
                files.collect()
            });
            Ok(Intent { before: before.await, tracked: false })
        }
        .boxed()
    }
}

/// The hash of a file's content as records have it; empty where the content was never read.
pub(crate) fn sha_of(state: &FileState) -> String {
    state.content.map(|content| content.to_string()).unwrap_or_default()
}

/// Stores contents of files for one tenant.
#[derive(Clone)]
pub(crate) struct Images {
    pub(crate) shared: Arc<EngineContext>,
    pub(crate) tenant: Arc<str>,
}

impl Images {
    /// The file, with its content stored unless it is among those that are. Blocks.
    pub(crate) fn image(&self, state: &FileState, stored: &[ContentHash]) -> FileImage {
        let (sha, size) = (sha_of(state), state.size);
        let content = if state.content.is_some_and(|content| stored.contains(&content)) {
            FileContent::Blob(BlobRef { hash: sha, size })
        } else {
            let kept = state.bytes.as_ref().and_then(|bytes| {
                let kept = self.shared.store.blobs.put_image(&self.tenant, bytes);
                kept.inspect_err(|error| {
                    tracing::warn!(%error, "the content of a file that a call changed is not kept");
                })
                .ok()
            });
            kept.map_or(FileContent::Lost { sha, size }, FileContent::Blob)
        };
        FileImage { content, mode: state.mode }
    }

    /// What a call wrote, as a change set of a session that works in `root`. Blocks.
    pub(crate) fn change_set(&self, root: &Path, drained: Drained) -> ChangeSet {
        let Drained { files, folders, source, gaps, ambiguous, stored } = drained;
        let doubt = |path: &Path| {
            let doubts: Vec<&Doubtful> = ambiguous.iter().filter(|doubtful| doubtful.path == path).collect();
            let mut among: Vec<String> =
                doubts.iter().flat_map(|doubtful| doubtful.among.iter().cloned()).collect();
            if doubts.iter().any(|doubtful| doubtful.among.is_empty()) {
                among.clear();
            }
            among.sort_unstable();
            among.dedup();
            (!doubts.is_empty(), among)
        };
        let change = |write: FileWrite| {
            let FileWrite { path, before, after } = write;
            let bytes = |state: &Option<FileState>| state.as_ref().map(|state| state.bytes.clone());
            let (additions, deletions) = match (bytes(&before), bytes(&after)) {
                // What is too large to be kept is not counted.
                (Some(None), _) | (_, Some(None)) => (0, 0),
                (old, new) => lines(old.flatten().as_deref(), new.flatten().as_deref()),
            };
            let (ambiguous, among) = doubt(&path);
            ChangedFile {
                kind: ChangeKind::of(before.is_some(), after.is_some()),
                ambiguous,
                among,
                path: path_text(root, &path),
                before: before.map(|state| self.image(&state, &stored)),
                after: after.map(|state| self.image(&state, &stored)),
                additions,
                deletions,
            }
        };
        let coverage = match gaps.is_empty() {
            true => Coverage::Full,
            false => Coverage::Partial { reason: gaps.join("; ") },
        };
        let folders = folders.into_iter().map(|FolderWrite { path, before, after }| {
            let (ambiguous, among) = doubt(&path);
            ChangedFolder { path: path_text(root, &path), before, after, ambiguous, among }
        });
        let folders = folders.collect();
        ChangeSet { changes: files.into_iter().map(change).collect(), folders, source, coverage }
    }

    /// The change set of a command that a crash cut off: all files that changed since it began, without their contents before,
    /// which are not known. Files that are `known` from other calls are left out. Blocks.
    pub(crate) fn recovered_since(
        &self,
        root: &Path,
        began: Option<Timestamp>,
        known: &HashSet<&str>,
    ) -> ChangeSet {
        let since = began.map(|began| self.shared.trees.changed_since(root, began));
        let SeenChanges { mut files, mut gaps, .. } = since.and_then(Result::ok).unwrap_or_default();
        files.retain(|file| !known.contains(&*path_text(root, &file.path)));
        gaps.insert(0, CRASH.to_owned());
        self.change_set(root, Drained { files, source: ChangeSource::Shell, gaps, ..Drained::default() })
    }

    /// What a call changed that was cut off, as the files tell that it was about to change: they were `before`. Blocks.
    pub(crate) fn recovered(&self, workspace: &Workspace, before: &[FileBefore]) -> ChangeSet {
        let mut set = ChangeSet::default();
        for FileBefore { path, image, missing_folders } in before {
            let place = path_of(workspace.root(), path);
            let above = place.iter().flat_map(|place| place.ancestors().skip(1));
            for folder in above.take(*missing_folders as usize) {
                let path = path_text(workspace.root(), folder);
                let is_new = !set.folders.iter().any(|known| known.path == path);
                if let Some(mode) = folder_mode(folder).filter(|_| is_new) {
                    let (before, after) = (None, Some(mode));
                    // It is removed if it is empty then, whoever made it.
                    let (ambiguous, among) = (false, Vec::new());
                    set.folders.push(ChangedFolder { path, before, after, ambiguous, among });
                }
            }
            let state = path_of(workspace.root(), path).and_then(|whole| {
                let place = workspace.resolve(whole.to_str()?).ok()?;
                FileState::read(&place).ok()
            });
            let Some(state) = state else {
                set.coverage = Coverage::Partial { reason: CRASH.to_owned() };
                continue;
            };
            let was = image.as_ref().map(|image| (image.content.sha().to_owned(), image.mode));
            if was == state.as_ref().map(|state| (sha_of(state), state.mode)) {
                continue;
            }
            let old = image.as_ref().map(|image| self.content(image));
            let new = state.as_ref().map(|state| state.bytes.clone());
            let (additions, deletions) = match (old, new) {
                (Some(None), _) | (_, Some(None)) => (0, 0),
                (old, new) => lines(old.flatten().as_deref(), new.flatten().as_deref()),
            };
            set.changes.push(ChangedFile {
                path: path.clone(),
                kind: ChangeKind::of(image.is_some(), state.is_some()),
                before: image.clone(),
                after: state.map(|state| self.image(&state, &[])),
                additions,
                deletions,
                // Others may have written there before the log was read again.
                ambiguous: true,
                among: Vec::new(),
            });
        }
        set.folders.sort_by(|one, other| one.path.cmp(&other.path));
        set
    }

    /// The file of an image, with its content where that is kept. Blocks.
    pub(crate) fn state(&self, image: Option<&FileImage>) -> Option<FileState> {
        let image = image?;
        let content = ContentHash::parse(image.content.sha());
        Some(match (content, self.content(image)) {
            (Some(content), Some(bytes)) => FileState::new(content, &bytes, image.mode),
            (content, _) => {
                let size = image.content.blob().map_or(0, |blob| blob.size);
                FileState { content, size, bytes: None, mode: image.mode }
            }
        })
    }

    /// The content of a file, where it is kept. Blocks.
    pub(crate) fn content(&self, image: &FileImage) -> Option<Vec<u8>> {
        self.shared.store.blobs.get_image(&self.tenant, image.content.blob()?).ok()?
    }
}
