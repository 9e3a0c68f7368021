//! What git obeys in a workspace: no program in walls can change it, or put it where it is missing.
//!
//! Whoever works in the workspace without walls runs what its hooks and its configuration say, at the next `git status`.
//! So these are bound onto themselves, to be read only; `.git` as a whole is bound onto itself as well, so that it cannot
//! be put aside.
//!
//! The git directory of a worktree or of a submodule lies elsewhere. It is found when walls are built, and seen only if it
//! lies in a place that the operator named, or in the workspace, and if it says itself that it belongs to this workspace:
//! the file `.git` that names it may come from anyone.

use std::io;
use std::path::{Path, PathBuf};

use super::arrange::Mount;
use crate::folder::{self, Folder, lexical};

/// More submodules than this are all read only: each needs some mounts of its own.
const MOST_MODULES: usize = 48;
/// Deeper than this no submodule is looked for.
const DEEPEST_MODULE: usize = 6;
/// Files that name a git directory are shorter, in bytes.
const LONGEST_NAME: u64 = 16 * 1024;
/// The longest configuration that is read, in bytes.
const LONGEST_CONFIGURATION: u64 = 1024 * 1024;

/// Where the repository of a workspace lies.
#[derive(Clone, Debug)]
pub enum Git {
    /// In the workspace, if there is one.
    Within,
    /// Elsewhere.
    Apart {
        /// What belongs to this worktree or submodule only.
        own: PathBuf,
        /// What it has in common with other worktrees; of a submodule the same.
        common: PathBuf,
    },
    /// Elsewhere, where nothing is to be seen.
    Unseen {
        /// Why not.
        reason: String,
    },
}

/// What is put into the view to guard a repository.
#[derive(Debug, Default)]
pub(super) struct Guards {
    pub(super) mounts: Vec<Mount>,
    /// Nothing but making the whole workspace read only guards it.
    pub(super) whole: bool,
    /// Files that git would obey and that are not there. They cannot be held, so they are removed afterwards.
    pub(super) absent: Vec<PathBuf>,
}

impl Git {
    /// Looks for it. `roots` are the operator's directories below which it may lie.
    pub fn of(workspace: &Path, roots: &[PathBuf]) -> Self {
        let file = workspace.join(".git");
        match fs_err::symlink_metadata(&file) {
            Ok(facts) if facts.is_file() => {
                apart(workspace, &file, roots).unwrap_or_else(|reason| Self::Unseen { reason })
            }
            _ => Self::Within,
        }
    }

    /// What of it lies elsewhere and is seen: what is its own, and what it has in common with others.
    pub(super) fn apart(&self) -> Option<[&Path; 2]> {
        match self {
            Self::Apart { own, common } => Some([own, common]),
            Self::Within | Self::Unseen { .. } => None,
        }
    }

    /// What guards it now. Makes what is missing, since nothing can be bound to where nothing is.
    ///
    /// # Errors
    /// When that cannot be made.
    pub(super) fn guards(&self, workspace: &Path) -> io::Result<Guards> {
        let mut guards = Guards::default();
        let dot_git = workspace.join(".git");
        let Ok(facts) = fs_err::symlink_metadata(&dot_git) else { return Ok(guards) };
        if facts.is_symlink() {
            // A link can be replaced, and nothing can be bound over it.
            guards.whole = true;
        } else if facts.is_dir() {
            guards.repository(&dot_git, workspace)?;
        } else {
            guards.mounts.push(Mount::read(dot_git));
            if let Self::Apart { own, common } = self {
                guards.repository(common, workspace)?;
                guards.worktree(own, common);
            }
        }
        Ok(guards)
    }
}

impl Guards {
    /// Guards a git directory.
    fn repository(&mut self, folder: &Path, workspace: &Path) -> io::Result<()> {
        self.mounts.push(Mount::write(folder));
        let before = self.mounts.len();
        if !self.files_of(folder)? {
            self.mounts.truncate(before);
            // Something is a link, over which nothing can be bound: then nothing of it can be changed.
            self.mounts.push(Mount::read(folder));
            self.link_target(&folder.join("hooks"), workspace);
            return Ok(());
        }
        self.modules(&folder.join("modules"))?;
        self.other_worktrees(&folder.join("worktrees"), workspace);
        Ok(())
    }

    /// The files that git obeys. False when one of them is not what it should be.
    fn files_of(&mut self, folder: &Path) -> io::Result<bool> {
        let (hooks, config) = (folder.join("hooks"), folder.join("config"));
        if !is_or_becomes(&hooks, true)? || !is_or_becomes(&config, false)? {
            return Ok(false);
        }
        // Only a configuration that says so makes git read the other one.
        let text = Folder::open(folder).ok().and_then(|held| held.bytes("config", LONGEST_CONFIGURATION));
        let says_so =
            |text: Vec<u8>| String::from_utf8_lossy(&text).to_ascii_lowercase().contains("worktreeconfig");
        let is_read = text.is_none_or(says_so);
        let worktree_config = folder.join("config.worktree");
        if is_read || fs_err::symlink_metadata(&worktree_config).is_ok() {
            if !is_or_becomes(&worktree_config, false)? {
                return Ok(false);
            }
            self.mounts.push(Mount::read(worktree_config));
        }
        // Says where hooks and configuration really lie. A repository of the usual kind has none, and git does not work
        // with an empty one.
        let redirection = folder.join("commondir");
        match fs_err::symlink_metadata(&redirection) {
            Ok(facts) if facts.is_file() => self.mounts.push(Mount::read(redirection)),
            Ok(_) => return Ok(false),
            Err(_) => self.absent.push(redirection),
        }
        self.mounts.extend([hooks, config].map(Mount::read));
        Ok(true)
    }

    /// Hooks that are a link are changed where it leads.
    fn link_target(&mut self, link: &Path, workspace: &Path) {
        let target = fs_err::canonicalize(link).ok();
        let within = target.filter(|target| target.starts_with(workspace) && target != workspace);
        self.mounts.extend(within.map(Mount::read));
    }

    /// What belongs to a worktree only.
    fn worktree(&mut self, own: &Path, common: &Path) {
        if own == common {
            return;
        }
        let named = ["commondir", "gitdir", "config.worktree"].map(|name| own.join(name));
        let is_file = |file: &PathBuf| fs_err::symlink_metadata(file).is_ok_and(|facts| facts.is_file());
        self.mounts.extend(named.into_iter().filter(is_file).map(Mount::read));
    }

    /// The git directories of submodules: theirs are found by walking, since their names may have slashes.
    fn modules(&mut self, folder: &Path) -> io::Result<()> {
        match fs_err::symlink_metadata(folder) {
            Ok(facts) if facts.is_dir() => {}
            _ => return Ok(()),
        }
        let mut found = Vec::new();
        let all_are_found = find_modules(folder, 0, &mut found);
        let before = (self.mounts.len(), self.absent.len());
        for module in &found {
            if !all_are_found || !self.files_of(module)? {
                self.mounts.truncate(before.0);
                self.absent.truncate(before.1);
                self.mounts.push(Mount::read(folder));
                break;
            }
        }
        Ok(())
    }

    /// Worktrees that lie outside of the workspace are others': what says where they are and what they obey stays.
    fn other_worktrees(&mut self, folder: &Path, workspace: &Path) {
        let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for own in folders.map(|entry| entry.path()) {
            let place = first_line(&own.join("gitdir")).unwrap_or_default();
            if !Path::new(place.trim_end()).starts_with(workspace) {
                self.worktree(&own, folder);
            }
        }
    }
}

/// Whether there is a folder, or a file, and no link. One that is missing is made.
fn is_or_becomes(path: &Path, folder: bool) -> io::Result<bool> {
    match fs_err::symlink_metadata(path) {
        Ok(facts) => return Ok(if folder { facts.is_dir() } else { facts.is_file() }),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    // Neither follows a link that appears meanwhile.
    let made = if folder {
        fs_err::create_dir(path)
    } else {
        fs_err::OpenOptions::new().write(true).create_new(true).open(path).map(drop)
    };
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => is_or_becomes(path, folder),
        made => made.map(|()| true),
    }
}

/// The git directories below a folder, without following links. False when there is more than can be guarded one by one.
fn find_modules(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> bool {
    let is_there = |path: PathBuf| fs_err::symlink_metadata(path).is_ok();
    for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { return false };
        if kind.is_symlink() {
            found.push(path);
            return false;
        }
        if !kind.is_dir() {
            continue;
        }
        let is_git = ["HEAD", "config", "objects"].iter().any(|name| is_there(path.join(name)));
        // A submodule's own submodules, or a part of a name.
        let below = if is_git { path.join("modules") } else { path.clone() };
        if is_git {
            found.push(path);
        }
        let is_too_much = found.len() > MOST_MODULES || depth > DEEPEST_MODULE;
        if is_too_much || !find_modules(&below, depth + 1, found) {
            found.push(below);
            return false;
        }
    }
    true
}

/// Follows a file `.git` to the git directory that it names.
fn apart(workspace: &Path, file: &Path, roots: &[PathBuf]) -> Result<Git, String> {
    let named = first_line(file).and_then(|line| Some(line.strip_prefix("gitdir:")?.trim().to_owned()));
    let named = named.ok_or("its file .git names no git directory")?;
    // Judged before anything is looked at, so that nobody learns what there is elsewhere.
    let own = lexical(workspace, Path::new(&named));
    let is_allowed = |folder: &Path| {
        let mut allowed = roots.iter().filter_map(|root| fs_err::canonicalize(root).ok());
        folder.starts_with(workspace) || allowed.any(|root| folder.starts_with(root))
    };
    let allowed = |folder: &Path| {
        let shown = folder.display();
        let outside =
            || format!("its git directory {shown} lies outside of the operator's roots (`[walls] roots`)");
        if is_allowed(folder) { Ok(()) } else { Err(outside()) }
    };
    let is_there = |folder: &Path| Folder::open(folder).is_ok();
    allowed(&own)?;
    if !is_there(&own) {
        return Err(format!("its git directory {named} is not there"));
    }
    let foreign = || format!("its git directory {} does not say that it belongs to it", own.display());
    let Some(common) = first_line(&own.join("commondir")) else {
        let is_its_own = submodule_of(&own).is_some_and(|place| place == workspace);
        return if is_its_own { Ok(Git::Apart { common: own.clone(), own }) } else { Err(foreign()) };
    };
    let common = lexical(&own, Path::new(common.trim()));
    allowed(&common)?;
    if !is_there(&common) {
        return Err(foreign());
    }
    let back = first_line(&own.join("gitdir")).map(|line| lexical(&own, Path::new(line.trim())));
    let is_its_own = own.parent() == Some(&common.join("worktrees")) && back.as_deref() == Some(file);
    if is_its_own { Ok(Git::Apart { own, common }) } else { Err(foreign()) }
}

/// The place of a submodule's files, which its configuration names.
fn submodule_of(git_directory: &Path) -> Option<PathBuf> {
    let text = folder::text(&git_directory.join("config"), LONGEST_CONFIGURATION)?;
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        name.trim().eq_ignore_ascii_case("worktree").then(|| value.trim().trim_matches('"').to_owned())
    })?;
    Some(lexical(git_directory, Path::new(&value)))
}

fn first_line(file: &Path) -> Option<String> {
    folder::text(file, LONGEST_NAME)?.lines().next().map(str::to_owned)
}

#[cfg(test)]
mod tests;
