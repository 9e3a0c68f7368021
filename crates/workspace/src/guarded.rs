//! What git runs or obeys: hooks, configuration, and what says where they are.
//!
//! Whoever can change that runs programs as the next person who calls git in the workspace. So it can be read, and file
//! tools never write it. A name alone tells most of it, in whatever case, since file systems differ in that. A repository
//! whose directory has another name is known by what lies in it.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

#[cfg(target_os = "linux")]
use crate::at_once;
use crate::door::Seen;

/// In a git directory, beside those below.
const OBEYED: [&str; 6] = ["hooks", "config", "config.worktree", "commondir", "gitdir", "modules"];
/// Paths in a git directory that are obeyed with all below them.
const OBEYED_BELOW: [&[&str]; 4] =
    [&["info", "attributes"], &["info", "grafts"], &["objects", "info", "alternates"], &["worktrees"]];
/// The first names of those.
const OBEYED_HOLDERS: [&str; 3] = ["info", "objects", "worktrees"];
/// How many bytes of a file are read that says where a git directory is.
const LONGEST: usize = 4096;

/// Whether `path`, which is absolute and lies in a workspace, is obeyed by git. `directories`: git directories there that are
/// known already, whatever their names.
pub(crate) fn is_guarded(path: &Path, directories: &[PathBuf]) -> bool {
    if directories
        .iter()
        .any(|directory| path.strip_prefix(directory).is_ok_and(|rest| is_obeyed(&names(rest))))
    {
        return true;
    }
    let names = names(path);
    if let Some(at) = names.iter().position(|name| is_git(name)) {
        return is_obeyed(&names[at + 1..]);
    }
    // A new repository begins with this name, and git takes none for one that has it not.
    names.last().is_some_and(|name| name == "HEAD") || in_nameless(path, &names)
}

fn names(path: &Path) -> Vec<Cow<'_, str>> {
    let name = |component| match component {
        Component::Normal(name) => Some(plain(name)),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

/// Without what a file system may leave out of a name (HFS+ does).
fn plain(name: &OsStr) -> Cow<'_, str> {
    let is_ignored = |character: &char| matches!(character, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    match name.to_string_lossy() {
        name if name.is_ascii() => name,
        name => name.chars().filter(|character| !is_ignored(character)).collect(),
    }
}

/// Whether a file system may take this name for `.git`. NTFS has a short one for it.
fn is_git(name: &str) -> bool {
    name.eq_ignore_ascii_case(".git") || name.eq_ignore_ascii_case("git~1")
}

/// Whether git obeys what has these names in a git directory; without any it is that directory itself, which may be put
/// in the place of another one, as may those that hold what is obeyed.
fn is_obeyed(names: &[Cow<'_, str>]) -> bool {
    let Some(first) = names.first() else { return true };
    let is = |name: &str, other: &str| name.eq_ignore_ascii_case(other);
    let is_below = |obeyed: &[&str]| names.iter().zip(obeyed.iter()).all(|(name, obeyed)| is(name, obeyed));
    OBEYED.iter().any(|obeyed| is(first, obeyed)) || OBEYED_BELOW.iter().any(|obeyed| is_below(obeyed))
}

/// Whether a directory above is a git directory under another name, as a bare repository is, and obeys the way from
/// there. Asks the file system only where a name on the way is one of those.
fn in_nameless(path: &Path, names: &[Cow<'_, str>]) -> bool {
    let may_be =
        |name: &str| OBEYED.iter().chain(&OBEYED_HOLDERS).any(|obeyed| name.eq_ignore_ascii_case(obeyed));
    let mut above = path.ancestors().skip(1).zip((0..names.len()).rev());
    above.any(|(directory, at)| may_be(&names[at]) && is_obeyed(&names[at..]) && is_git_directory(directory))
}

fn is_git_directory(directory: &Path) -> bool {
    let is = |name: &str, wanted: FileType| {
        stat(&directory.join(name)).is_ok_and(|seen| seen.file_type() == wanted)
    };
    is("HEAD", FileType::RegularFile) && is("objects", FileType::Directory) && is("refs", FileType::Directory)
}

/// What stands at `path`. git follows links here.
fn stat(path: &Path) -> Result<Seen, Errno> {
    #[cfg(target_os = "linux")]
    if at_once::is_on() {
        return at_once::stat(rustix::fs::CWD, path, rustix::fs::OFlags::empty());
    }
    rustix::fs::stat(path).map(|stat| Seen::from(&stat))
}

/// The git directories of the repository at `root`, as far as they have another place than `.git` there: that of a
/// worktree or of a submodule, and the one that it shares. Absolute; they may lie outside of the workspace.
pub(crate) fn directories_of(root: &Path) -> Vec<PathBuf> {
    let entry = root.join(".git");
    let Ok(place) = fs_err::canonicalize(&entry) else { return Vec::new() };
    let directory = match fs_err::metadata(&place) {
        Ok(facts) if facts.is_dir() => place,
        Ok(facts) if facts.is_file() => match told(&place, "gitdir:").and_then(|path| canonical(root, &path))
        {
            Some(directory) => directory,
            None => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    let shared = told(&directory.join("commondir"), "").and_then(|path| canonical(&directory, &path));
    [directory].into_iter().chain(shared).collect()
}

fn canonical(from: &Path, path: &Path) -> Option<PathBuf> {
    fs_err::canonicalize(from.join(path)).ok()
}

/// The path in a file of one line, after `label`.
fn told(file: &Path, label: &str) -> Option<PathBuf> {
    use std::io::Read as _;
    let mut text = String::new();
    let facts = fs_err::metadata(file).ok().filter(std::fs::Metadata::is_file)?;
    (facts.len() <= LONGEST as u64).then_some(())?;
    fs_err::File::open(file).ok()?.take(LONGEST as u64).read_to_string(&mut text).ok()?;
    let path = text.strip_prefix(label)?.trim();
    (!path.is_empty()).then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_obeys_is_known_by_its_name() {
        let guarded = [
            ".git",
            ".GIT",
            "sub/.Git",
            "git~1",
            ".g\u{200c}it",
            ".git/hooks",
            ".git/hooks/pre-commit",
            ".git/Hooks/new",
            ".git/config",
            ".GIT/CONFIG",
            ".git/config.worktree",
            ".git/modules",
            ".git/modules/a/b/config",
            ".git/modules/a/hooks/x",
            ".git/modules/a",
            ".git/worktrees",
            ".git/worktrees/w/config.worktree",
            ".git/worktrees/w/commondir",
            ".git/commondir",
            ".git/gitdir",
            ".git/info",
            ".git/info/attributes",
            ".git/objects",
            ".git/objects/info",
            ".git/objects/info/alternates",
            "deep/sub/.git/config",
            "HEAD",
            "bare/HEAD",
        ];
        for path in guarded {
            assert!(is_guarded(&Path::new("/nowhere/work").join(path), &[]), "{path}");
        }
        let free = [
            "",
            "a",
            ".gitignore",
            ".gitattributes",
            ".github/config",
            "git/config",
            ".git2/hooks/x",
            ".git/COMMIT_EDITMSG",
            ".git/info/exclude",
            ".git/refs/heads/config",
            ".git/index.lock",
            "config",
            "hooks/x",
            "src/head.rs",
            "HEAD/a",
            ".git/objects/ab/cd",
            "git~12/config",
        ];
        for path in free {
            assert!(!is_guarded(&Path::new("/nowhere/work").join(path), &[]), "{path}");
        }
    }

    #[test]
    fn a_repository_without_the_name_is_known_by_what_lies_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let bare = folder.path().join("store");
        for directory in ["refs", "objects"] {
            fs_err::create_dir_all(bare.join(directory)).unwrap();
        }
        assert!(!is_guarded(&bare.join("hooks/update"), &[]));
        fs_err::write(bare.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        for path in
            ["hooks", "hooks/update", "config", "Config", "info/attributes", "modules/a/config", "HEAD"]
        {
            assert!(is_guarded(&bare.join(path), &[]), "{path}");
        }
        for path in ["description", "refs/heads/config", "info/exclude"] {
            assert!(!is_guarded(&bare.join(path), &[]), "{path}");
        }
    }

    #[test]
    fn the_real_directory_of_a_worktree_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs_err::canonicalize(folder.path()).unwrap();
        assert!(directories_of(&base).is_empty());
        let work = base.join("work");
        fs_err::create_dir_all(base.join("main/worktrees/one")).unwrap();
        fs_err::create_dir(&work).unwrap();
        fs_err::write(base.join("main/worktrees/one/commondir"), "../..\n").unwrap();
        fs_err::write(work.join(".git"), "gitdir: ../main/worktrees/one\n").unwrap();
        assert_eq!(directories_of(&work), [base.join("main/worktrees/one"), base.join("main")]);
        assert!(is_guarded(&base.join("main/hooks/x"), &directories_of(&work)));
        assert!(!is_guarded(&base.join("main/description"), &directories_of(&work)));
        fs_err::write(work.join(".git"), "nothing\n").unwrap();
        assert!(directories_of(&work).is_empty());
        fs_err::remove_file(work.join(".git")).unwrap();
        fs_err::os::unix::fs::symlink("../main", work.join(".git")).unwrap();
        assert_eq!(directories_of(&work), [base.join("main")]);
    }
}
