//! What git says of a workspace, where no word of the workspace is obeyed.
//!
//! A repository may name programs (filters, hooks, drivers of diffs, a watcher of files, ways to fetch what is missing),
//! and may do so in many places. So git never sees its configuration: it is given a directory of its own instead, made for
//! one question (`stand_in`), with the commit that is checked out, a copy of the index, the rules of what is ignored,
//! and the way to the objects. Nothing is written into the repository: what git writes goes into that directory.
//!
//! Where the repository lies, and which commits its names stand for, is read without git (`refs`). A git directory elsewhere,
//! and objects elsewhere, count only below the directories that the caller allows, and only where they say themselves that
//! they belong to this worktree.
//!
//! Submodules are left out: git would look into each of them with its own configuration.

mod changes;
mod refs;
mod stand_in;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::BoxFuture;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::process::{self, Environment, Limits, Receive, Scope, Spec, find_program};
use crate::walls::Walls;
use crate::walls::git::Git;
pub use changes::{Change, Status};
use stand_in::StandIn;

/// How long git may take for one question.
const LONGEST: Duration = Duration::from_secs(15);
/// The most bytes that git may say.
const MOST_OUTPUT: usize = 16 * 1024 * 1024;
/// Questions to git at one time, in this process.
static ASKING: Semaphore = Semaphore::const_new(4);

/// A worktree that git keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Absolute, links resolved.
    worktree: PathBuf,
    /// What belongs to this worktree.
    own: PathBuf,
    /// What it has in common with others.
    common: PathBuf,
}

/// Why git's answer is not there.
#[derive(Debug, Error)]
pub enum RepositoryError {
    /// There is no git.
    #[error("git is not installed here")]
    NoGit,
    /// The repository is in a form that is not read, or broken.
    #[error("the repository cannot be read: {0}")]
    Unreadable(String),
    /// There is more than is told.
    #[error("git says more than {MOST_OUTPUT} bytes: ask for less")]
    TooMuch,
    /// It took too long.
    #[error("git took longer than {} s", LONGEST.as_secs())]
    TooSlow,
    /// The system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// git could not be run.
    #[error(transparent)]
    Process(#[from] process::ProcessError),
}

/// Whether a file may be told of.
pub type Shows<'a> = &'a (dyn Fn(&Path) -> bool + Sync);

/// What the files of a worktree are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The commit that is checked out.
    Head,
    /// Where this branch left the default branch.
    Branch,
}

impl Repository {
    /// The repository of which `worktree` is the top directory. `None` where there is none, or where what it needs lies
    /// neither in it nor below `roots`, or is something that `hidden` holds. All are absolute, links resolved. Blocks.
    pub fn open(worktree: &Path, roots: &[PathBuf], hidden: &dyn Fn(&Path) -> bool) -> Option<Self> {
        let dot = worktree.join(".git");
        fs_err::symlink_metadata(&dot).ok()?;
        let (own, common) = match Git::of(worktree, roots) {
            Git::Within => {
                let own = fs_err::canonicalize(&dot).ok()?;
                let common = match refs::short(&own.join("commondir"), &own) {
                    Some(common) => fs_err::canonicalize(own.join(common.trim())).ok()?,
                    None => own.clone(),
                };
                (own, common)
            }
            Git::Apart { own, common } => (own, common),
            Git::Unseen { .. } => return None,
        };
        let allowed = |path: &Path| {
            (path.starts_with(worktree) || roots.iter().any(|root| path.starts_with(root))) && !hidden(path)
        };
        let objects = fs_err::canonicalize(common.join("objects")).ok()?;
        let all = [own.clone(), common.clone(), objects.clone()];
        let others = stand_in::alternates(&objects)?;
        let is_whole = all.iter().chain(&others).all(|path| path.is_dir() && allowed(path));
        is_whole.then(|| Self { worktree: worktree.to_owned(), own, common })
    }

    /// The branch that is checked out. Blocks.
    pub fn branch(&self) -> Option<String> {
        refs::branch(&self.own)
    }

    /// The branch that others begin at: what `origin` says, else `main` or `master`. Blocks.
    pub fn default_branch(&self) -> Option<String> {
        refs::default_branch(&self.common).map(|(name, _)| name)
    }

    /// The files in `directory`, which lies in the worktree, that are not as they were, sorted by path; those that git does
    /// not know yet and does not ignore are among them. Only those count that `shows` lets through, which is asked with absolute
    /// paths. With `context`, each has a patch with so many lines around what changed, unless all patches are longer than 16 MB.
    ///
    /// # Errors
    /// git is missing or failed, or says too much.
    pub async fn changes(
        &self,
        directory: &Path,
        since: Since,
        context: Option<u32>,
        shows: Shows<'_>,
    ) -> Result<Vec<Change>, RepositoryError> {
        let Some(asking) = self.ask(directory, since, shows).await? else { return Ok(Vec::new()) };
        let mut changes = asking.summary().await?;
        changes.retain(|change| shows(&directory.join(&change.path)));
        if let Some(context) = context.filter(|_| !changes.is_empty()) {
            match asking.git(&format!("diff --patch --unified={context}")).await {
                Ok(patches) => changes::add_patches(&mut changes, &patches),
                Err(RepositoryError::TooMuch) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(changes)
    }

    /// One patch of all that [`changes`](Self::changes) since the commit that is checked out, to be applied by git.
    ///
    /// # Errors
    /// git is missing or failed, or the patch is longer than 16 MB, or would hold what `shows` does not let through.
    pub async fn patch(&self, directory: &Path, shows: Shows<'_>) -> Result<Vec<u8>, RepositoryError> {
        let Some(asking) = self.ask(directory, Since::Head, shows).await? else { return Ok(Vec::new()) };
        let changes = asking.summary().await?;
        if changes.iter().any(|change| !shows(&directory.join(&change.path))) {
            return Err(RepositoryError::Unreadable("some of what changed is not to be shown".to_owned()));
        }
        asking.git("diff --patch --binary").await
    }

    /// Prepares a question; `None` where there is nothing to compare with.
    async fn ask(
        &self,
        directory: &Path,
        since: Since,
        shows: Shows<'_>,
    ) -> Result<Option<Asking>, RepositoryError> {
        let git = find_program("git").ok_or(RepositoryError::NoGit)?;
        let Ok(permit) = ASKING.acquire().await else { return Err(RepositoryError::TooSlow) };
        let this = self.clone();
        let prepare = move || {
            let default = match since {
                Since::Head => None,
                Since::Branch => {
                    let Some((name, commit)) = refs::default_branch(&this.common) else { return Ok(None) };
                    if refs::branch(&this.own) == Some(name) {
                        return Ok(None);
                    }
                    Some(commit)
                }
            };
            StandIn::make(&this.own, &this.common).map(|stand_in| Some((stand_in, default)))
        };
        let made = tokio::task::spawn_blocking(prepare).await.map_err(io::Error::other)??;
        let Some((stand_in, default)) = made else { return Ok(None) };
        let base = stand_in.base().to_owned();
        let mut asking = Asking {
            git,
            stand_in,
            base,
            worktree: self.worktree.clone(),
            directory: directory.to_owned(),
            _permit: permit,
        };
        if let Some(default) = default {
            if !asking.stand_in.has_commit() {
                return Ok(None);
            }
            // Without a common commit, git ends with 1 and says nothing.
            let found = asking.run(&format!("merge-base HEAD {default} || test $? = 1")).await?;
            let found = String::from_utf8_lossy(&found).trim().to_owned();
            if !refs::is_hash(&found) {
                return Ok(None);
            }
            asking.base = found;
        }
        asking.add_unknown(shows).await?;
        Ok(Some(asking))
    }
}

/// A question to git.
struct Asking {
    git: PathBuf,
    stand_in: StandIn,
    /// What files are compared with.
    base: String,
    worktree: PathBuf,
    directory: PathBuf,
    _permit: tokio::sync::SemaphorePermit<'static>,
}

impl Asking {
    /// Lets the index of the stand-in know of the files that git does not know, so that they are compared like the others.
    async fn add_unknown(&self, shows: Shows<'_>) -> Result<(), RepositoryError> {
        let listed = self.run("ls-files --others --exclude-standard -z").await?;
        // A directory is another repository.
        let is_file = |path: &&[u8]| !path.is_empty() && !path.ends_with(b"/");
        let is_shown = |path: &&[u8]| shows(&self.directory.join(OsStr::from_bytes(path)));
        let files = listed.split(|byte| *byte == 0).filter(is_file).filter(is_shown);
        let files: Vec<u8> = files.flat_map(|path| path.iter().copied().chain([0])).collect();
        if files.is_empty() {
            return Ok(());
        }
        let list = self.stand_in.folder().join("unknown");
        tokio::task::spawn_blocking(move || fs_err::write(list, files)).await.map_err(io::Error::other)??;
        let list = r#"--pathspec-from-file="$GIT_DIR/unknown" --pathspec-file-nul"#;
        self.run(&format!("add --intent-to-add --ignore-errors {list}")).await.map(drop)
    }

    /// What changed, without patches.
    async fn summary(&self) -> Result<Vec<Change>, RepositoryError> {
        Ok(changes::parse(&self.git("diff --raw --numstat -z").await?))
    }

    /// Compares.
    async fn git(&self, diff: &str) -> Result<Vec<u8>, RepositoryError> {
        let plain = "--no-ext-diff --no-textconv --no-renames --no-color --ignore-submodules=all --relative";
        self.run(&format!("{diff} {plain} {} -- .", self.base)).await
    }

    /// Runs git with arguments that a shell reads.
    async fn run(&self, arguments: &str) -> Result<Vec<u8>, RepositoryError> {
        let folder = self.stand_in.folder();
        let environment = Environment::of_this_process()
            .with("HOME", folder)
            .with("XDG_CONFIG_HOME", folder)
            .with("LC_ALL", "C")
            .with("GIT_DIR", folder)
            .with("GIT_WORK_TREE", &self.worktree)
            .with("GIT_CONFIG_NOSYSTEM", "1")
            .with("GIT_CONFIG_GLOBAL", "/dev/null")
            .with("GIT_ATTR_NOSYSTEM", "1")
            .with("GIT_LITERAL_PATHSPECS", "1")
            .with("GIT_NO_LAZY_FETCH", "1")
            .with("GIT_NO_REPLACE_OBJECTS", "1")
            .with("ASKED_GIT", &self.git);
        let spec = Spec {
            command: format!(r#"{{ "$ASKED_GIT" --no-pager {arguments}; }} 2>"$GIT_DIR/errors""#),
            workdir: self.directory.clone(),
            timeout: Some(LONGEST),
            environment,
            scope: Scope::new(),
            limits: Limits::default(),
            walls: Walls::open(),
        };
        let enough = CancellationToken::new();
        let mut said = Said { bytes: Vec::new(), enough: enough.clone() };
        let exit = process::run(&spec, &enough, &mut said).await?;
        if said.bytes.len() > MOST_OUTPUT {
            return Err(RepositoryError::TooMuch);
        }
        if exit.timed_out {
            return Err(RepositoryError::TooSlow);
        }
        if exit.code != Some(0) {
            let errors = folder.join("errors");
            let errors = tokio::task::spawn_blocking(move || fs_err::read(errors)).await;
            let errors = errors.map_err(io::Error::other)?.unwrap_or_default();
            let line = String::from_utf8_lossy(&errors).lines().next().unwrap_or("git failed").to_owned();
            return Err(RepositoryError::Unreadable(line.chars().take(300).collect()));
        }
        Ok(said.bytes)
    }
}

/// What git says, up to a point.
struct Said {
    bytes: Vec<u8>,
    enough: CancellationToken,
}

impl Receive for Said {
    fn receive<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, ()> {
        if self.bytes.len() <= MOST_OUTPUT {
            self.bytes.extend_from_slice(chunk);
        }
        if self.bytes.len() > MOST_OUTPUT {
            self.enough.cancel();
        }
        Box::pin(std::future::ready(()))
    }
}
