//! What clients look at beside sessions: the files of a directory, what git says of it, and content that is kept apart.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use playhouse_policy::Zone;
use playhouse_protocol::CommandError;
use playhouse_protocol::message::BlobRef;
use playhouse_tools::grep::{FoundLine, find_lines};
use playhouse_tools::paths::{FoundPath, Reach, find_paths};
use playhouse_workspace::repository::Repository;
use playhouse_workspace::{Workspace, door};
use tokio_util::sync::CancellationToken;

use crate::api::engine::Engine;

/// Something in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where it is: absolute.
    pub path: PathBuf,
    /// Whether it is a directory; a link is none.
    pub is_directory: bool,
}

/// A directory as clients may look at it: nothing outside of it, and nothing that belongs to the engine itself.
#[derive(Clone, Debug)]
pub struct Outlook(Workspace);

impl Outlook {
    /// The directory: absolute, links resolved.
    pub fn directory(&self) -> &Path {
        self.0.root()
    }

    /// Where `path` leads, from the directory on or absolute; `None` where nothing is to be seen. An empty one is the directory
    /// itself. Blocks.
    pub fn place(&self, path: &str) -> Option<PathBuf> {
        let resolved = self.0.resolve(if path.is_empty() { "." } else { path }).ok()?;
        let is_seen = matches!(resolved.zone, Zone::Workspace | Zone::Guarded);
        (is_seen && door::facts(&resolved).ok()?.is_some()).then_some(resolved.path)
    }

    /// Whether what a walk came to without following links is to be seen.
    pub fn shows(&self, path: &Path) -> bool {
        let zone = self.0.walked(path).map(|resolved| resolved.zone);
        matches!(zone, Ok(Zone::Workspace | Zone::Guarded))
    }

    /// What the directory at `path` holds that is to be seen, at most `most` of it, in no order. Blocks.
    ///
    /// # Errors
    /// What is wrong with the place, as a text.
    pub fn list(&self, path: &str, most: usize) -> Result<Vec<Listed>, String> {
        let resolved =
            self.0.resolve(if path.is_empty() { "." } else { path }).map_err(|error| error.to_string())?;
        if !matches!(resolved.zone, Zone::Workspace | Zone::Guarded) {
            return Err("it is not in the directory".to_owned());
        }
        let entries = door::read_dir(&resolved).map_err(|error| error.to_string())?;
        let listed = entries.flatten().take(most).map(|entry| Listed {
            path: resolved.path.join(entry.name),
            is_directory: entry.kind == door::Kind::Directory,
        });
        Ok(listed.filter(|listed| self.shows(&listed.path)).collect())
    }

    /// The content of the file at `path`, which must not have more than `most` bytes. Blocks; a pipe is not waited for.
    ///
    /// # Errors
    /// What is wrong with the place, as a text. `None` stands for a file that is larger.
    pub fn read(&self, path: &str, most: u64) -> Result<Option<Vec<u8>>, String> {
        let resolved = self.0.resolve(path).map_err(|error| error.to_string())?;
        if !matches!(resolved.zone, Zone::Workspace | Zone::Guarded) {
            return Err("it is not in the directory".to_owned());
        }
        let file = door::open_read(&resolved).map_err(|error| error.to_string())?;
        let mut content = Vec::new();
        file.take(most + 1).read_to_end(&mut content).map_err(|error| error.to_string())?;
        Ok((content.len() as u64 <= most).then_some(content))
    }
}

impl Engine {
    /// A directory, to be looked at: absolute, links resolved. Blocks.
    ///
    /// # Errors
    /// It is none, a part of its path is a link, cannot be listed, or belongs to the engine itself.
    pub fn look(&self, directory: &Path) -> Result<Outlook, CommandError> {
        let invalid = |error: playhouse_workspace::WorkspaceError| CommandError::Invalid(error.to_string());
        // Nothing is saved by those who only look.
        let output = self.shared.outputs.join("nobody");
        // From the top, since a workspace that lies in what is hidden would count as one.
        let all = Workspace::open(Path::new("/"), output.clone())
            .map_err(invalid)?
            .hiding(self.shared.hidden.clone());
        let opened =
            Workspace::reopen(directory, output).map_err(invalid)?.hiding(self.shared.hidden.clone());
        match all.walked(opened.root()).map(|resolved| resolved.zone) {
            Ok(Zone::Hidden | Zone::Output) | Err(_) => {
                Err(CommandError::Invalid(format!("{} is not to be looked at", directory.display())))
            }
            Ok(_) => Ok(Outlook(opened)),
        }
    }

    /// The first lines in a directory that match a regular expression, at most `most`, and what was found of them after `time`.
    /// The search ends when this is dropped.
    ///
    /// # Errors
    /// The expression is not usable, or the directory cannot be read.
    pub async fn find_lines(
        &self,
        outlook: Outlook,
        pattern: String,
        most: usize,
        time: Duration,
    ) -> Result<Vec<FoundLine>, CommandError> {
        let cancel = CancellationToken::new();
        let _ends = cancel.clone().drop_guard();
        let search = move || find_lines(&outlook.0, &pattern, most, time, &cancel);
        let found = self.shared.tool_pool.run(search).await;
        found.map_err(|error| CommandError::Invalid(error.to_string()))
    }

    /// The paths below `path` in a directory, as far as `reach` goes, in their order, but for those that are ignored. The search
    /// ends when this is dropped.
    ///
    /// # Errors
    /// There is no such directory, or it cannot be read.
    pub async fn find_paths(
        &self,
        outlook: Outlook,
        path: String,
        reach: Reach,
    ) -> Result<Vec<FoundPath>, CommandError> {
        let cancel = CancellationToken::new();
        let _ends = cancel.clone().drop_guard();
        let search = move || find_paths(&outlook.0, &path, reach, &cancel);
        let found = self.shared.tool_pool.run(search).await;
        found.map_err(|error| CommandError::Invalid(error.to_string()))
    }

    /// The repository of which `worktree` is the top directory, if it may be looked at: what it needs of git's lies in it or
    /// below `roots`, and is nothing of the engine's own.
    pub async fn repository(&self, worktree: PathBuf, roots: Vec<PathBuf>) -> Option<Repository> {
        let engine = self.clone();
        let open = move || {
            let hidden = |path: &Path| engine.look(path).is_err();
            Repository::open(&worktree, &roots, &hidden)
        };
        self.shared.tool_pool.run(open).await
    }

    /// Content that a session of this tenant names.
    ///
    /// # Errors
    /// The tenant has no such content, or the store failed.
    pub async fn blob(&self, tenant: &str, blob: BlobRef) -> Result<Bytes, CommandError> {
        let (blobs, tenant) = (std::sync::Arc::clone(&self.shared.store.blobs), tenant.to_owned());
        let read = self.shared.pool.run(move || blobs.get(&tenant, &blob)).await;
        read.map(Bytes::from).map_err(CommandError::from)
    }
}
