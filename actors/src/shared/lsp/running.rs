//! A language server that runs: the files that it is shown, and what it said of them.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use playhouse_lsp::{Client, Known, Problem, RequestError, Touch};
use playhouse_sandbox::blocking;
use playhouse_sandbox::process::Program;
use playhouse_tools::changed::FileState;
use playhouse_workspace::Workspace;
use tokio::time::{Instant, timeout};

/// Files that a server is shown at once. Beyond it those are closed that were used longest ago.
const MOST_SHOWN: usize = 200;
/// The longest file that a server is shown, in bytes.
const LARGEST: usize = 4 << 20;
/// How long a server may take to read a notification.
const HEARING: Duration = Duration::from_secs(5);

/// A language server that runs.
pub(super) struct Running {
    pub(super) client: Client,
    pub(super) program: Program,
    files: Mutex<Files>,
}

/// What is known of files.
#[derive(Default)]
struct Files {
    shown: HashMap<PathBuf, OnDisk>,
    said: HashMap<PathBuf, Said>,
    /// Number of changes of what is shown.
    changes: u64,
    /// Counts uses, so that it is known which are oldest.
    clock: u64,
}

/// A file that is shown.
struct OnDisk {
    stamp: Stamp,
    used: u64,
}

/// What a server said of a file last.
struct Said {
    problems: Arc<[Problem]>,
    /// The number of changes until then.
    changes: u64,
}

/// What tells whether a file on the disk is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        // Of what a link leads to: its text is shown.
        let facts = fs_err::metadata(path).ok()?;
        Some(Self {
            inode: facts.ino(),
            size: facts.size(),
            modified: (facts.mtime(), facts.mtime_nsec()),
            changed: (facts.ctime(), facts.ctime_nsec()),
        })
    }
}

/// The text of a file as it is on the disk; `None` where there is none that can be shown. Blocks.
fn read(workspace: &Workspace, path: &Path) -> Option<(Stamp, String)> {
    let stamp = Stamp::of(path)?;
    let place = workspace.resolve(path.to_str()?).ok()?;
    let bytes = FileState::read(&place).ok()??.bytes?;
    let text = std::str::from_utf8(&bytes).ok().filter(|text| text.len() <= LARGEST)?;
    Some((stamp, text.to_owned()))
}

impl Running {
    pub(super) fn new(client: Client, program: Program) -> Self {
        Self { client, program, files: Mutex::default() }
    }

    /// Shows files as they are on the disk, and those that are shown already if they changed there. Those that are gone, or
    /// cannot be shown, are closed.
    pub(super) async fn show(
        &self,
        workspace: &Arc<Workspace>,
        paths: &[PathBuf],
    ) -> Result<(), RequestError> {
        let mut known: HashMap<PathBuf, Option<Stamp>> = {
            let files = self.files.lock();
            files.shown.iter().map(|(path, disk)| (path.clone(), Some(disk.stamp))).collect()
        };
        for path in paths {
            known.entry(path.clone()).or_default();
        }
        let workspace = Arc::clone(workspace);
        let changed: Vec<_> = blocking(move || {
            let differ =
                known.into_iter().filter(|(path, stamp)| stamp.is_none() || Stamp::of(path) != *stamp);
            differ.map(|(path, _)| (read(&workspace, &path), path)).collect()
        })
        .await;
        for (content, path) in changed {
            match content {
                Some((stamp, text)) => {
                    let is_news = self.client.show(&path, &text).await?;
                    let mut files = self.files.lock();
                    files.changes += u64::from(is_news);
                    let used = files.clock;
                    files.shown.insert(path, OnDisk { stamp, used });
                }
                None => self.close(&path).await?,
            }
        }
        let oldest = {
            let mut files = self.files.lock();
            files.clock += 1;
            let now = files.clock;
            for path in paths {
                files.shown.entry(path.clone()).and_modify(|disk| disk.used = now);
            }
            let mut by_use: Vec<(u64, PathBuf)> =
                files.shown.iter().map(|(path, disk)| (disk.used, path.clone())).collect();
            by_use.sort_unstable();
            by_use.truncate(by_use.len().saturating_sub(MOST_SHOWN));
            by_use
        };
        for (_, path) in oldest {
            self.close(&path).await?;
        }
        Ok(())
    }

    /// Others changed files. What was said until now may not hold any more.
    pub(super) async fn hear(&self, changes: &[(PathBuf, Touch)]) {
        self.files.lock().changes += 1;
        match timeout(HEARING, self.client.touched(changes)).await {
            Ok(Ok(())) => {}
            // It is told what changed in the files that it is shown.
            failed => tracing::debug!(?failed, "a language server does not hear of changes"),
        }
    }

    async fn close(&self, path: &Path) -> Result<(), RequestError> {
        self.client.close(path).await?;
        let mut files = self.files.lock();
        files.said.remove(path);
        files.changes += u64::from(files.shown.remove(path).is_some());
        Ok(())
    }

    /// Whether a file is shown.
    pub(super) fn shows(&self, path: &Path) -> bool {
        self.files.lock().shown.contains_key(path)
    }

    /// What was said of a file last.
    pub(super) fn said(&self, path: &Path) -> Option<Arc<[Problem]>> {
        self.files.lock().said.get(path).map(|said| Arc::clone(&said.problems))
    }

    /// Whether nothing that is shown changed since it was said what is wrong with a file.
    pub(super) fn is_current(&self, path: &Path) -> bool {
        let files = self.files.lock();
        files.said.get(path).is_some_and(|said| said.changes == files.changes)
    }

    /// Asks what is wrong with files that are shown, until then.
    pub(super) async fn diagnose(
        &self,
        paths: &[PathBuf],
        until: Instant,
    ) -> Vec<Result<Known, RequestError>> {
        let changes = self.files.lock().changes;
        let patience = until.saturating_duration_since(Instant::now());
        let asked = join_all(paths.iter().map(|path| self.client.diagnose(path, patience))).await;
        let mut files = self.files.lock();
        for (path, known) in paths.iter().zip(&asked) {
            if let Ok(Known::Found { problems, .. }) = known {
                files.said.insert(path.clone(), Said { problems: problems.as_slice().into(), changes });
            }
        }
        asked
    }
}
