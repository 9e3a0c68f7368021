//! What a command of git may show of files that it tracks, and that may not be read without asking.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use playhouse_workspace::Workspace;

use super::hidden::{Found, Hidden, MOST_HIDDEN};
use crate::Showing;

/// The largest index that is read.
const LARGEST_INDEX: u64 = 256 * 1024 * 1024;

/// A call of git that shows changes of tracked files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// A directory in which it may run.
    pub(super) directory: PathBuf,
    /// Where it looks; in the whole worktree if this is empty.
    pub(super) within: Vec<PathBuf>,
}

/// The tracked files that these calls may show.
pub(super) fn look(calls: &[Shown], workspace: &Workspace, showing: &Showing) -> Found {
    let mut found = Found::default();
    if !showing.may_hide() {
        return found;
    }
    for Shown { directory, within } in calls {
        let Some(worktree) = directory.ancestors().find(|folder| folder.join(".git").exists()) else {
            continue;
        };
        let Some(files) = index_of(worktree).and_then(|index| tracked(&index)) else {
            let shown = worktree.strip_prefix(workspace.root()).unwrap_or(worktree);
            let shown = if shown.as_os_str().is_empty() { Path::new(".") } else { shown };
            found.unseen =
                Some((shown.to_string_lossy().into_owned(), "which files git tracks there is not known"));
            continue;
        };
        for file in files {
            let path = worktree.join(file);
            let is_meant = within.is_empty() || within.iter().any(|folder| path.starts_with(folder));
            let Some(shown) = path.strip_prefix(workspace.root()).ok().filter(|_| is_meant) else { continue };
            let shown = shown.to_string_lossy().into_owned();
            if showing.allows(&shown) || !path.is_file() {
                continue;
            }
            if found.hidden.len() >= MOST_HIDDEN {
                found.unseen = Some((shown, "git tracks more than 200 files that may not be read unasked"));
                break;
            }
            let file = Hidden { path, shown };
            if !found.hidden.contains(&file) {
                found.hidden.push(file);
            }
        }
    }
    found
}

/// The bytes of the index of a worktree; none where there is no index.
fn index_of(worktree: &Path) -> Option<Vec<u8>> {
    let git = worktree.join(".git");
    let folder = if git.is_dir() {
        git
    } else {
        // A linked worktree.
        let text = fs_err::read_to_string(&git).ok()?;
        worktree.join(text.strip_prefix("gitdir:")?.trim())
    };
    let file = folder.join("index");
    match fs_err::metadata(&file) {
        Ok(facts) if facts.len() > LARGEST_INDEX => None,
        Ok(_) => fs_err::read(&file).ok(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(Vec::new()),
        Err(_) => None,
    }
}

/// The paths in an index; `None` where they are not understood.
fn tracked(index: &[u8]) -> Option<Vec<PathBuf>> {
    // Hashes have 20 bytes, or 32.
    if index.is_empty() { Some(Vec::new()) } else { paths(index, 20).or_else(|| paths(index, 32)) }
}

fn paths(index: &[u8], hash: usize) -> Option<Vec<PathBuf>> {
    /// What stands before the hash of an entry: times, places and the size.
    const FACTS: usize = 40;
    let number = |at: usize| Some(u32::from_be_bytes(index.get(at..at + 4)?.try_into().ok()?));
    let (version, count) = (number(4)?, number(8)?);
    if !index.starts_with(b"DIRC") || !(2..=4).contains(&version) {
        return None;
    }
    let (mut found, mut path, mut at) = (Vec::new(), Vec::new(), 12);
    for _ in 0..count {
        let begin = at;
        at += FACTS + hash;
        let flags = u16::from_be_bytes(index.get(at..at + 2)?.try_into().ok()?);
        at += if flags & 0x4000 == 0 { 2 } else { 4 };
        let mut dropped = path.len();
        if version == 4 {
            // How much of the path before is not part of this one: 7 bits in each byte, and each but the last counts for one more.
            let next = |at: &mut usize| {
                *at += 1;
                index.get(*at - 1).map(|byte| usize::from(*byte))
            };
            let mut byte = next(&mut at)?;
            dropped = byte & 0x7f;
            while byte & 0x80 != 0 {
                byte = next(&mut at)?;
                dropped = dropped.checked_add(1)?.checked_mul(128)? + (byte & 0x7f);
            }
        }
        path.truncate(path.len().checked_sub(dropped)?);
        let length = index.get(at..)?.iter().position(|byte| *byte == 0)?;
        path.extend_from_slice(&index[at..at + length]);
        let told = usize::from(flags & 0xfff);
        if path.is_empty() || (told != 0xfff && told != path.len()) {
            return None;
        }
        at += length + 1;
        if version < 4 {
            at = begin + (at - begin).next_multiple_of(8);
        }
        found.push(PathBuf::from(OsStr::from_bytes(&path)));
    }
    // The other part of an index that is split lies elsewhere.
    let is_split = index.get(at..at + 4)? == b"link";
    (!is_split).then_some(found)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn an_index_of_any_form_is_read() {
        for (options, version) in [(&[][..], "2"), (&[], "4"), (&["--object-format=sha256"], "2")] {
            let folder = tempfile::tempdir().unwrap();
            let git = |arguments: &[&str]| {
                let done = Command::new("git").arg("-C").arg(folder.path()).args(arguments).output().unwrap();
                assert!(done.status.success(), "{done:?}");
            };
            git(&[&["init", "-q"], options].concat());
            assert_eq!(index_of(folder.path()).and_then(|index| tracked(&index)), Some(Vec::new()));
            fs_err::create_dir(folder.path().join("keys")).unwrap();
            for name in [".env", "keys/a", "keys/ab", "keys/id", "z"] {
                fs_err::write(folder.path().join(name), "x").unwrap();
            }
            git(&["add", "-A"]);
            git(&["add", "-N", "."]);
            git(&["update-index", "--index-version", version]);
            let found = tracked(&index_of(folder.path()).unwrap()).unwrap();
            let expected = [".env", "keys/a", "keys/ab", "keys/id", "z"].map(PathBuf::from);
            assert_eq!(found, expected, "{options:?} {version}");
            git(&["update-index", "--split-index"]);
            assert_eq!(tracked(&index_of(folder.path()).unwrap()), None);
        }
        assert_eq!(tracked(b"DIRC\0\0\0\x02\0\0\0\x01"), None);
    }
}
