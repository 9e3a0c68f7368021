//! What git says of a workspace, where no word of the workspace is obeyed and no link of it followed.
//!
//! A repository may name programs (filters, hooks, drivers of diffs, a watcher of files, ways to fetch what is missing),
//! and may do so in many places. It may have links that lead out and pipes that nobody writes, and a program that runs may
//! put them there while git looks. So git never sees it. It is given a repository and a worktree of its own instead, made for
//! one question (`stand_in`): with a copy of the index, of the files that may have changed (`copies`), and of the objects
//! that they are compared with. Nothing is written into the real one.
//!
//! All that is copied is read without git, from folders that are held open, where no link is followed: which commits names
//! stand for (`refs`), objects (`objects`), commits (`history`), the worktree, and what in it is ignored (`unknown`). A git
//! directory elsewhere, and objects elsewhere, count only below the directories that the caller allows, and only where they
//! say themselves that they belong to this worktree.
//!
//! Submodules are left out: git would look into each of them with its own configuration.

pub(crate) mod attributes;
mod changes;
mod copies;
mod history;
mod index;
mod objects;
mod refs;
mod stand_in;
mod tracked;
pub(crate) mod unknown;

use std::collections::HashSet;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::door::{self, Kind};
pub use changes::{Change, Status};
use copies::{Candidate, Copies, Survey};
use history::Files;
use objects::Objects;
use playhouse_sandbox::Walls;
use playhouse_sandbox::folder::{Folder, lexical};
use playhouse_sandbox::process::{self, Environment, Limits, Receive, Run, Scope, Spec, find_program};
use playhouse_sandbox::try_blocking;
use playhouse_sandbox::walls::git::Git;
use refs::Head;
pub(crate) use stand_in::LONGEST_LIST;
use stand_in::StandIn;
pub use tracked::Tracked;

/// How long the preparation of a question may usually take, and each answer of git's.
const LONGEST: Duration = Duration::from_secs(15);
/// Lists the files that git knows, with all that it saw of each.
const LISTING: &str = "ls-files --stage --debug -z";
/// The most bytes that git may usually say.
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
    /// Where its objects are; empty where it has none.
    objects: Vec<PathBuf>,
    /// How long the preparation of a question may take, and each answer of git's.
    patience: Duration,
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
    #[error("git took longer than it may, usually {} s", LONGEST.as_secs())]
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

/// Whether git keeps the directory `worktree`, which is absolute, links resolved: whether a `.git` is in it. A link that leads to
/// a place that is not `allowed` is none, whether or not anything is there. Blocks.
pub fn is_kept(worktree: &Path, allowed: &dyn Fn(&Path) -> bool) -> bool {
    dot_git(worktree, allowed).is_some()
}

/// What git keeps of a worktree: where it is, and what it is.
fn dot_git(worktree: &Path, allowed: &dyn Fn(&Path) -> bool) -> Option<(PathBuf, Kind)> {
    let dot = worktree.join(".git");
    let kind = |path: &Path| Some(door::facts_at(path).ok()??.kind);
    match kind(&dot)? {
        Kind::Link => {
            let target = Folder::open(worktree).ok()?.link(".git".as_ref()).ok()?;
            let target = lexical(worktree, Path::new(std::ffi::OsStr::from_bytes(&target)));
            let is_folder = allowed(&target) && kind(&target) == Some(Kind::Directory);
            is_folder.then_some((target, Kind::Directory))
        }
        kind @ (Kind::Directory | Kind::File) => Some((dot, kind)),
        _ => None,
    }
}

impl Repository {
    /// The repository of which `worktree` is the top directory. `None` where there is none, or where what it needs lies
    /// neither in it nor below `roots`, or is something that `hidden` holds. All are absolute, links resolved. Blocks.
    pub fn open(worktree: &Path, roots: &[PathBuf], hidden: &dyn Fn(&Path) -> bool) -> Option<Self> {
        let allowed = |path: &Path| {
            (path.starts_with(worktree) || roots.iter().any(|root| path.starts_with(root))) && !hidden(path)
        };
        let (own, common) = match dot_git(worktree, &allowed)? {
            (own, Kind::Directory) => {
                let named = Folder::open(&own).ok()?.text("commondir", LONGEST_LIST);
                let common =
                    named.map_or_else(|| own.clone(), |named| lexical(&own, Path::new(named.trim())));
                (own, common)
            }
            _ => match Git::of(worktree, roots) {
                Git::Apart { own, common } => (own, common),
                Git::Within | Git::Unseen { .. } => return None,
            },
        };
        let is_whole = [&own, &common].into_iter().all(|path| allowed(path) && Folder::open(path).is_ok());
        let objects = is_whole.then(|| common.join("objects"))?;
        let objects = match door::facts_at(&objects) {
            Ok(None) => Vec::new(),
            _ => stand_in::with_alternates(objects, &allowed)?,
        };
        Some(Self { worktree: worktree.to_owned(), own, common, objects, patience: LONGEST })
    }

    /// The same, where the preparation of a question may take so long, and each answer of git's; usually they have 15 s.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The branch that is checked out. Blocks.
    pub fn branch(&self) -> Option<String> {
        refs::branch(&Folder::open(&self.own).ok()?)
    }

    /// The branch that others begin at: what `origin` says, else `main` or `master`. Blocks.
    pub fn default_branch(&self) -> Option<String> {
        refs::default_branch(&Folder::open(&self.common).ok()?).map(|(name, _)| name)
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
        let shown = |candidates: &mut Vec<Candidate>| {
            candidates.retain(|candidate| shows(&self.place(&candidate.path)));
            Ok(())
        };
        let Some(asking) = self.ask(directory, since, false, &shown).await? else { return Ok(Vec::new()) };
        let mut changes = asking.summary().await?;
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
        let shown = |candidates: &mut Vec<Candidate>| {
            let is_shown = |candidate: &Candidate| shows(&self.place(&candidate.path));
            if candidates.iter().any(|candidate| candidate.is_known && !is_shown(candidate)) {
                return Err(RepositoryError::Unreadable(
                    "some of what changed is not to be shown".to_owned(),
                ));
            }
            candidates.retain(is_shown);
            Ok(())
        };
        match self.ask(directory, Since::Head, true, &shown).await? {
            Some(asking) => asking.git("diff --patch --binary").await,
            None => Ok(Vec::new()),
        }
    }

    /// A path from the worktree on, absolute.
    fn place(&self, path: &[u8]) -> PathBuf {
        self.worktree.join(std::ffi::OsStr::from_bytes(path))
    }

    /// Prepares a question; `None` where there is nothing to compare. `whole`: whether large files are needed as they are. `shown`
    /// leaves out what is not to be told.
    async fn ask(
        &self,
        directory: &Path,
        since: Since,
        whole: bool,
        shown: &(dyn Fn(&mut Vec<Candidate>) -> Result<(), RepositoryError> + Sync),
    ) -> Result<Option<Asking>, RepositoryError> {
        let program = find_program("git").ok_or(RepositoryError::NoGit)?;
        let Ok(_permit) = ASKING.acquire().await else { return Err(RepositoryError::TooSlow) };
        let outside = |_| RepositoryError::Unreadable("the directory does not lie in it".to_owned());
        let mut within =
            directory.strip_prefix(&self.worktree).map_err(outside)?.as_os_str().as_bytes().to_vec();
        if !within.is_empty() {
            within.push(b'/');
        }
        let deadline = Instant::now() + self.patience;
        let (this, within) = (self.clone(), within);
        let held = blocking(move || Held::open(this, since, deadline)).await?;
        let Some(held) = held else { return Ok(None) };
        let git = Program::in_place_of(program, &held.stand_in, self.patience);
        let listed = git.run(LISTING).await?;
        let within_folder = within.clone();
        let (held, mut candidates) = blocking(move || {
            let candidates = held.survey(&listed, &within_folder)?;
            Ok((held, candidates))
        })
        .await?;
        shown(&mut candidates)?;
        if candidates.is_empty() {
            return Ok(None);
        }
        let stand_in = blocking(move || {
            held.copies(whole).make(&candidates)?;
            Ok(held.stand_in)
        })
        .await?;
        let update = r#"update-index -z --index-info <"$GIT_DIR/now""#;
        let before = r#"GIT_INDEX_FILE="$GIT_DIR/index.before" "$ASKED_GIT""#;
        let list = format!(
            r#"{update} && {before} update-index -z --index-info <"$GIT_DIR/before" && {before} write-tree --missing-ok"#
        );
        let base = String::from_utf8_lossy(&git.run(&list).await?).trim().to_owned();
        if !refs::is_hash(&base) {
            return Err(RepositoryError::Unreadable("git named no tree".to_owned()));
        }
        Ok(Some(Asking { git, base, within, _stand_in: stand_in, _permit }))
    }
}

/// Does work that blocks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RepositoryError> + Send + 'static,
) -> Result<T, RepositoryError> {
    try_blocking(work).await.map_err(io::Error::other)?
}

/// A repository, held open for one question.
struct Held {
    worktree: Folder,
    objects: Objects,
    stand_in: StandIn,
    /// The commit that files are compared with, if there is one.
    base: Option<String>,
    /// Rules of what is ignored.
    exclude: Option<String>,
    /// Contents may be converted by what lies neither in the worktree nor in the repository.
    converts_elsewhere: bool,
}

impl Held {
    /// `None` where there is nothing to compare with.
    fn open(
        repository: Repository,
        since: Since,
        deadline: Instant,
    ) -> Result<Option<Self>, RepositoryError> {
        if repository.objects.is_empty() {
            return Ok(None);
        }
        let (own, common) = (Folder::open(&repository.own)?, Folder::open(&repository.common)?);
        let worktree = Folder::open(&repository.worktree)?;
        let stand_in = StandIn::make(&own, &common)?;
        let objects = Objects::open(&repository.objects, stand_in.long, deadline)?;
        let head = match &stand_in.head {
            Head::Commit(commit) => Some(commit.clone()),
            Head::Unborn => None,
        };
        let base = match (since, head) {
            (Since::Head, head) => head,
            (Since::Branch, None) => return Ok(None),
            (Since::Branch, Some(head)) => {
                let Some((name, default)) = refs::default_branch(&common) else { return Ok(None) };
                if refs::branch(&own) == Some(name) {
                    return Ok(None);
                }
                let ends = common.text("shallow", LONGEST_LIST).unwrap_or_default();
                let ends: HashSet<String> = ends.lines().map(str::to_owned).collect();
                let Some(base) = history::common_ancestor(&objects, &head, &default, &ends)? else {
                    return Ok(None);
                };
                Some(base)
            }
        };
        let exclude = common.text("info/exclude", LONGEST_LIST);
        let converts_elsewhere = attributes::convert_elsewhere(&own, &common);
        Ok(Some(Self { worktree, objects, stand_in, base, exclude, converts_elsewhere }))
    }

    /// The files that may have changed. `listed` is what git says of the index.
    fn survey(&self, listed: &[u8], within: &[u8]) -> Result<Vec<Candidate>, RepositoryError> {
        let unreadable = || RepositoryError::Unreadable("git says something else of the index".to_owned());
        let before = match &self.base {
            Some(base) => history::files(&self.objects, base, within)?,
            None => Files::new(),
        };
        let survey = Survey {
            worktree: &self.worktree,
            within,
            entries: index::parse(listed).ok_or_else(unreadable)?,
            indexed: self.stand_in.indexed,
            before,
            exclude: self.exclude.as_deref(),
            objects: &self.objects,
        };
        survey.run()
    }

    fn copies(&self, whole: bool) -> Copies<'_> {
        Copies { worktree: &self.worktree, objects: &self.objects, stand_in: &self.stand_in, whole }
    }
}

/// A question to git.
struct Asking {
    git: Program,
    /// What files are compared with: a tree of those that may have changed.
    base: String,
    /// The folder that is asked about: empty, or ending in a slash.
    within: Vec<u8>,
    _stand_in: StandIn,
    _permit: tokio::sync::SemaphorePermit<'static>,
}

impl Asking {
    /// What changed, without patches.
    async fn summary(&self) -> Result<Vec<Change>, RepositoryError> {
        Ok(changes::parse(&self.git("diff --raw --numstat -z").await?))
    }

    /// Compares.
    async fn git(&self, diff: &str) -> Result<Vec<u8>, RepositoryError> {
        let plain = "--no-ext-diff --no-textconv --no-renames --no-color --ignore-submodules=all";
        let within = std::ffi::OsStr::from_bytes(&self.within);
        let relative = r#""--relative=$ASKED_WITHIN""#;
        self.git.run_with(&format!("{diff} {plain} {relative} {} -- .", self.base), within).await
    }
}

/// git, in a stand-in.
struct Program {
    program: PathBuf,
    git: PathBuf,
    tree: PathBuf,
    home: PathBuf,
    patience: Duration,
    /// The most bytes that it may say.
    most: usize,
}

impl Program {
    fn in_place_of(program: PathBuf, stand_in: &StandIn, patience: Duration) -> Self {
        Self {
            program,
            git: stand_in.git(),
            tree: stand_in.tree(),
            home: stand_in.home().into(),
            patience,
            most: MOST_OUTPUT,
        }
    }

    /// Runs it with arguments that a shell reads.
    async fn run(&self, arguments: &str) -> Result<Vec<u8>, RepositoryError> {
        self.run_with(arguments, "".as_ref()).await
    }

    async fn run_with(&self, arguments: &str, within: &std::ffi::OsStr) -> Result<Vec<u8>, RepositoryError> {
        let environment = Environment::of_this_process()
            .with("HOME", &self.home)
            .with("XDG_CONFIG_HOME", &self.home)
            .with("LC_ALL", "C")
            .with("GIT_DIR", &self.git)
            .with("GIT_WORK_TREE", &self.tree)
            .with("GIT_CONFIG_NOSYSTEM", "1")
            .with("GIT_CONFIG_GLOBAL", "/dev/null")
            .with("GIT_ATTR_NOSYSTEM", "1")
            .with("GIT_LITERAL_PATHSPECS", "1")
            .with("GIT_NO_LAZY_FETCH", "1")
            .with("GIT_NO_REPLACE_OBJECTS", "1")
            .with("ASKED_GIT", &self.program)
            .with("ASKED_WITHIN", within);
        let spec = Spec {
            run: Run::Shell(format!(r#"{{ "$ASKED_GIT" --no-pager {arguments}; }} 2>"$GIT_DIR/errors""#)),
            workdir: self.tree.clone(),
            timeout: Some(self.patience),
            environment,
            scope: Scope::new(),
            limits: Limits::default(),
            // All that it sees are copies.
            walls: Walls::open(),
        };
        let enough = CancellationToken::new();
        let mut said = Said { bytes: Vec::new(), most: self.most, enough: enough.clone() };
        let exit = process::run(&spec, &enough, &mut said).await?;
        if said.bytes.len() > self.most {
            return Err(RepositoryError::TooMuch);
        }
        if exit.timed_out {
            return Err(RepositoryError::TooSlow);
        }
        if exit.code != Some(0) {
            let errors = self.git.join("errors");
            let errors = try_blocking(move || fs_err::read(errors)).await;
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
    most: usize,
    enough: CancellationToken,
}

impl Receive for Said {
    fn receive<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, ()> {
        if self.bytes.len() <= self.most {
            self.bytes.extend_from_slice(chunk);
        }
        if self.bytes.len() > self.most {
            self.enough.cancel();
        }
        Box::pin(std::future::ready(()))
    }
}
