//! What the names of a repository stand for, read without git.

use std::path::Path;

use playhouse_sandbox::folder::Folder;

/// The most bytes of a file that holds one name, and of the file that holds many.
const LONGEST: u64 = 4_096;
const LONGEST_PACKED: u64 = 64 * 1024 * 1024;
/// Names that stand for names that stand for names.
const DEEPEST: usize = 5;
/// What stands before a name in place of a commit.
const SYMBOLIC: &str = "ref: ";

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// This commit.
    Commit(String),
    /// A branch without a commit.
    Unborn,
}

/// Whether it is the hash of an object, written out.
pub(super) fn is_hash(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a hash is of the longer kind.
pub(super) fn is_long(hash: &str) -> bool {
    hash.len() == 64
}

/// The name that another one stands for.
fn symbolic(folder: &Folder, name: impl AsRef<Path>) -> Option<String> {
    let text = folder.text(name, LONGEST)?;
    let name = text.strip_prefix(SYMBOLIC)?.trim();
    is_name(name).then(|| name.to_owned())
}

/// The branch that is checked out.
pub(super) fn branch(own: &Folder) -> Option<String> {
    Some(symbolic(own, "HEAD")?.strip_prefix("refs/heads/")?.to_owned())
}

/// What is checked out; `None` where that cannot be told.
pub(super) fn head(own: &Folder, common: &Folder) -> Option<Head> {
    let text = own.text("HEAD", LONGEST)?;
    let text = text.trim();
    if is_hash(text) {
        return Some(Head::Commit(text.to_owned()));
    }
    let name = text.strip_prefix(SYMBOLIC)?.trim();
    // Where names are kept in another form, this one leads nowhere.
    if !is_name(name) || name == "refs/heads/.invalid" {
        return None;
    }
    Some(resolve(common, name).map_or(Head::Unborn, Head::Commit))
}

/// The name and the commit of the branch that others begin at.
pub(super) fn default_branch(common: &Folder) -> Option<(String, String)> {
    let remote = "refs/remotes/origin/";
    let of_origin = symbolic(common, Path::new(remote).join("HEAD"));
    if let Some(target) = of_origin
        && let Some(name) = target.strip_prefix(remote)
        && let Some(commit) = resolve(common, &target)
    {
        return Some((name.to_owned(), commit));
    }
    let local = |name: &str| Some((name.to_owned(), resolve(common, &format!("refs/heads/{name}"))?));
    ["main", "master"].into_iter().find_map(local)
}

/// The commit that a name stands for.
fn resolve(common: &Folder, name: &str) -> Option<String> {
    let mut name = name.to_owned();
    for _ in 0..DEEPEST {
        if !is_name(&name) {
            return None;
        }
        let Some(text) = common.text(&name, LONGEST) else { return packed(common, &name) };
        let text = text.trim();
        if is_hash(text) {
            return Some(text.to_owned());
        }
        name = text.strip_prefix(SYMBOLIC)?.trim().to_owned();
    }
    None
}

/// Whether it names a file below `refs`.
fn is_name(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    name.starts_with("refs/") && !name.contains(['\0', '\\']) && name.split('/').all(is_part)
}

fn packed(common: &Folder, name: &str) -> Option<String> {
    let text = common.text("packed-refs", LONGEST_PACKED)?;
    text.lines().find_map(|line| {
        let (hash, of) = line.split_once(' ')?;
        (of == name && is_hash(hash)).then(|| hash.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_commits_loose_and_packed() {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().canonicalize().unwrap();
        let (one, two) = ("1".repeat(40), "2".repeat(64));
        for path in ["refs/heads/deep", "refs/remotes/origin"] {
            fs_err::create_dir_all(git.join(path)).unwrap();
        }
        let top = git.clone();
        let write = |path: &str, text: &str| fs_err::write(top.join(path), text).unwrap();
        let git = Folder::open(&git).unwrap();
        write("HEAD", "ref: refs/heads/deep/er\n");
        assert_eq!(head(&git, &git), Some(Head::Unborn));
        assert_eq!(branch(&git).as_deref(), Some("deep/er"));
        write("packed-refs", &format!("# pack-refs with: peeled\n{two} refs/heads/deep/er\n^{one}\n"));
        assert_eq!(head(&git, &git), Some(Head::Commit(two.clone())));
        write("refs/heads/deep/er", &format!("{one}\n"));
        assert_eq!(head(&git, &git), Some(Head::Commit(one.clone())));
        assert_eq!(default_branch(&git), None);
        write("refs/heads/master", &two);
        assert_eq!(default_branch(&git), Some(("master".into(), two.clone())));
        write("refs/remotes/origin/HEAD", "ref: refs/remotes/origin/trunk\n");
        write("refs/remotes/origin/trunk", &one);
        assert_eq!(default_branch(&git), Some(("trunk".into(), one.clone())));
        write("HEAD", &one);
        assert_eq!((branch(&git), head(&git, &git)), (None, Some(Head::Commit(one))));
    }

    #[test]
    fn names_lead_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let git = top.join("git");
        fs_err::create_dir_all(git.join("refs/heads")).unwrap();
        fs_err::write(top.join("secret"), "1".repeat(40)).unwrap();
        fs_err::os::unix::fs::symlink(top.join("secret"), git.join("refs/heads/link")).unwrap();
        let held = Folder::open(&git).unwrap();
        for name in ["refs/heads/link", "refs/../../secret", "refs//x", "refs/heads/../link", "HEAD"] {
            assert_eq!(resolve(&held, name), None, "{name}");
        }
        fs_err::write(git.join("refs/heads/loop"), "ref: refs/heads/loop").unwrap();
        assert_eq!(resolve(&held, "refs/heads/loop"), None);
        fs_err::write(git.join("HEAD"), "ref: refs/heads/.invalid").unwrap();
        assert_eq!(head(&held, &held), None);
    }
}
