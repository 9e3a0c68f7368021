//! What the file tools have in common.

pub(crate) mod change;
pub(crate) mod diff;
pub(crate) mod directory;
pub(crate) mod document;
pub(crate) mod encoding;
pub(crate) mod endings;
pub(crate) mod ignored;
pub(crate) mod neighbours;
pub(crate) mod pattern;
pub(crate) mod seen;
pub(crate) mod sweep;
pub(crate) mod walk;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use playhouse_policy::{AccessKind, Zone};
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_workspace::door::{self, DoorError, Facts};
use playhouse_workspace::{Resolved, Workspace};

use crate::tool::{CallContext, ToolError};
use crate::typed::Ready;
use directory::Directory;
use walk::{Hides, Start};

impl From<DoorError> for ToolError {
    fn from(error: DoorError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The error of a call that was cancelled before it did anything.
pub(crate) fn cancelled() -> ToolError {
    ToolError::Cancelled(String::new())
}

/// Where `path` leads.
pub(crate) async fn resolve(context: &CallContext, path: &str) -> Result<Resolved, ToolError> {
    let workspace = context.workspace.clone();
    let path = path.to_owned();
    brief(context, move || workspace.resolve(&path).map_err(|error| ToolError::Invalid(error.to_string())))
        .await
}

/// [`reading`] for what takes no longer than going to another thread does, and knows of [`playhouse_workspace::at_once`].
pub(crate) async fn brief<T: Send + 'static>(
    context: &CallContext,
    work: impl Fn() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    tokio::select! {
        biased;
        () = context.cancel.cancelled() => Err(cancelled()),
        result = context.pool.brief(work) => result,
    }
}

/// Runs `work`, which changes nothing, on the pool. A cancelled call does not wait for its end.
pub(crate) async fn reading<T: Send + 'static>(
    context: &CallContext,
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    tokio::select! {
        biased;
        () = context.cancel.cancelled() => Err(cancelled()),
        result = context.pool.run(work) => result,
    }
}

/// A call that writes one file, with what is shown to whoever is asked for consent.
pub(crate) async fn writing<T: Send + 'static>(
    context: &CallContext,
    task: T,
    place: impl FnOnce(&T) -> &Resolved,
    preview: impl FnOnce(&T) -> String + Send + 'static,
) -> Result<Ready<T>, ToolError> {
    let (task, preview) = reading(context, move || {
        let preview = preview(&task);
        Ok((task, preview))
    })
    .await?;
    let place = place(&task);
    Ok(Ready {
        accesses: vec![place.access(AccessKind::Write)],
        effect: Effect::Workspace,
        recovery: Recovery::Interrupt,
        preview,
        title: place.shown.clone(),
        task,
    })
}

/// Runs `work`, which changes the file at `resolved`, on the pool, with that file locked.
///
/// A call that is cancelled while it waits its turn does nothing. Work that has begun is waited for, so that what a
/// model is told is what happened.
pub(crate) async fn changing<T: Send + 'static>(
    context: &CallContext,
    resolved: &Resolved,
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    changing_all(context, std::slice::from_ref(&resolved.path), work).await
}

/// The same for several files. Their locks are taken in sorted order.
pub(crate) async fn changing_all<T: Send + 'static>(
    context: &CallContext,
    paths: &[PathBuf],
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let guard = tokio::select! {
        biased;
        () = context.cancel.cancelled() => return Err(cancelled()),
        guard = context.locks.lock(paths) => guard,
    };
    let started = Arc::new(AtomicBool::new(false));
    let (starts, cancel) = (started.clone(), context.cancel.clone());
    let mut run = pin!(context.pool.run(move || {
        // Goes with the work: dropping this future does not stop what has begun.
        let _guard = guard;
        starts.store(true, Ordering::SeqCst);
        if cancel.is_cancelled() { Err(cancelled()) } else { work() }
    }));
    tokio::select! {
        biased;
        result = &mut run => result,
        () = context.cancel.cancelled() => {
            if started.load(Ordering::SeqCst) { run.await } else { Err(cancelled()) }
        }
    }
}

/// What stands at `resolved`, the place that a search is to begin at; where there is nothing, the error says what is near.
pub(crate) fn existing(workspace: &Workspace, resolved: &Resolved) -> Result<Facts, ToolError> {
    let facts = door::facts(resolved)?;
    facts.ok_or_else(|| ToolError::Failed(neighbours::missing(workspace, resolved)))
}

/// Opens the directory at `resolved` for a walk. Ignore files above it count as far as the workspace goes.
pub(crate) fn start(workspace: &Workspace, resolved: &Resolved) -> Result<Start, ToolError> {
    let inner = match resolved.zone {
        Zone::Workspace | Zone::Guarded => {
            resolved.path.strip_prefix(workspace.root()).unwrap_or(Path::new(""))
        }
        Zone::Output | Zone::Hidden | Zone::Outside => Path::new(""),
    };
    // Says what is wrong with the place itself, before the way to it is walked.
    existing(workspace, resolved)?;
    let directory = door::open_directory(resolved)?;
    if inner.as_os_str().is_empty() {
        let hides = Hides::below(workspace, &resolved.path, &resolved.path);
        return Ok(Start::at(Directory::new(directory)).hiding(hides));
    }
    let hides = Hides::below(workspace, workspace.root(), &resolved.path);
    let root = workspace.walked(workspace.root()).map_err(|error| ToolError::Failed(error.to_string()))?;
    Start::below(Directory::new(door::open_directory(&root)?), inner)
        .map(|start| start.hiding(hides))
        .map_err(|_| DoorError::Replaced(resolved.shown.clone()).into())
}

/// How `inner`, a path below `resolved`, is shown.
pub(crate) fn shown_below(resolved: &Resolved, inner: &Path) -> String {
    let inner = inner.to_string_lossy();
    match resolved.shown.as_str() {
        "." => inner.into_owned(),
        "/" => format!("/{inner}"),
        outer => format!("{outer}/{inner}"),
    }
}

/// `1 line`, `2 lines`.
pub(crate) fn counted(count: usize, word: &str) -> String {
    let plural = match word.strip_suffix('y') {
        Some(stem) if count != 1 => format!("{stem}ies"),
        _ if count == 1 || word.is_empty() => word.to_owned(),
        _ if word.ends_with("ch") => format!("{word}es"),
        _ => format!("{word}s"),
    };
    format!("{count} {plural}")
}

/// `512 bytes`, `3.4 MB`.
pub(crate) fn size(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss)]
    let value = bytes as f64;
    match bytes {
        0..1_000 => counted(usize::try_from(bytes).unwrap_or(0), "byte"),
        1_000..1_000_000 => format!("{:.1} KB", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", value / 1e6),
        _ => format!("{:.1} GB", value / 1e9),
    }
}

/// Refuses `path` where it can only be a directory.
pub(crate) fn must_name_a_file(path: &str) -> Result<(), ToolError> {
    if path.ends_with('/') {
        return Err(ToolError::Invalid(format!("filePath \"{path}\" names a directory: name a file in it")));
    }
    Ok(())
}

/// The directory of a search that names none.
pub(crate) fn or_workspace(path: Option<&str>) -> &str {
    path.filter(|path| !path.is_empty()).unwrap_or(".")
}

/// One line about a search for `pattern`.
pub(crate) fn search_title(pattern: &str, place: &Resolved) -> String {
    let (shown, cut) = document::cut_characters(pattern, 100);
    let dots = if cut { "…" } else { "" };
    match place.shown.as_str() {
        "." => format!("{shown}{dots}"),
        directory => format!("{shown}{dots} in {directory}"),
    }
}

#[cfg(test)]
mod tests;
