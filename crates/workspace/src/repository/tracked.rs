//! Which files git knows, and the contents of them that lie in packs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use playhouse_sandbox::process::find_program;
use rustix::fs::Stat;

use super::index::{self, Entry, Moment};
use super::objects::{Kind, Objects};
use super::{ASKING, Held, LISTING, Program, Repository, RepositoryError, Since, blocking};

/// The most bytes that git may say of the files that it knows.
const MOST_LISTED: usize = 128 * 1024 * 1024;
/// How long reading one content may take.
const READING: Duration = Duration::from_secs(2);

/// What git knew of the files of a worktree at one time. The packs are held open: what lies in them can be read whatever
/// becomes of the repository.
#[derive(Debug)]
pub struct Tracked {
    /// By path from the worktree on.
    entries: BTreeMap<Vec<u8>, Entry>,
    indexed: Moment,
    objects: Objects,
    /// Contents may be converted by what lies neither in the worktree nor in the repository.
    converts_elsewhere: bool,
}

impl Repository {
    /// What git knows of the worktree; `None` where it has no objects yet.
    ///
    /// # Errors
    /// git is missing or failed, or took too long.
    pub async fn tracked(&self) -> Result<Option<Tracked>, RepositoryError> {
        let program = find_program("git").ok_or(RepositoryError::NoGit)?;
        let Ok(_permit) = ASKING.acquire().await else { return Err(RepositoryError::TooSlow) };
        let deadline = Instant::now() + self.patience;
        let this = self.clone();
        let Some(held) = blocking(move || Held::open(this, Since::Head, deadline)).await? else {
            return Ok(None);
        };
        let git =
            Program { most: MOST_LISTED, ..Program::in_place_of(program, &held.stand_in, self.patience) };
        let listed = git.run(LISTING).await?;
        blocking(move || {
            let unreadable =
                || RepositoryError::Unreadable("git says something else of the index".to_owned());
            let entries = index::parse(&listed).ok_or_else(unreadable)?;
            let indexed = held.stand_in.indexed;
            let entries = entries.into_iter().map(|entry| (entry.path.clone(), entry)).collect();
            let Held { objects, converts_elsewhere, .. } = held;
            Ok(Some(Tracked { entries, indexed, objects, converts_elsewhere }))
        })
        .await
    }
}

impl Tracked {
    /// Whether git knows a file, by its path from the worktree on.
    pub(crate) fn knows(&self, path: &[u8]) -> bool {
        self.entries.contains_key(path)
    }

    /// Whether git knows a file in a folder, whose path ends in a slash.
    pub(crate) fn knows_below(&self, folder: &[u8]) -> bool {
        self.entries.range(folder.to_vec()..).next().is_some_and(|(path, _)| path.starts_with(folder))
    }

    /// The object with the content of a file that has these facts; `None` unless it is surely the one that git saw, and lies
    /// in a pack, and only the worktree and the repository may say how contents are converted.
    pub(crate) fn packed(&self, path: &[u8], facts: &Stat) -> Option<&str> {
        if self.converts_elsewhere {
            return None;
        }
        let entry = self.entries.get(path).filter(|entry| entry.stage == 0)?;
        let is_it = entry.is_surely(facts, self.indexed) && self.objects.is_packed(&entry.id);
        is_it.then_some(entry.id.as_str())
    }

    /// Forgets the files: what stands for their contents goes on to be readable.
    pub(crate) fn forget_files(&mut self) {
        self.entries = BTreeMap::new();
    }

    /// An object of at most `most` bytes; `None` where it cannot be read.
    pub(crate) fn content(&mut self, id: &str, most: u64) -> Option<Vec<u8>> {
        self.objects.go_on_until(Instant::now() + READING);
        self.objects.read(id, Kind::Blob, most).ok().flatten()
    }
}
