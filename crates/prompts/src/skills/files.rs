//! The files of a skill beside its own: what is in its folder, and in folders there that links lead to.

use std::path::{Path, PathBuf};

use super::{FILE, FOREIGN};
use crate::inside::{Look, Name, NameKind, leads_outside, look_inside};

/// The most other files of a skill, and how deep they may lie.
pub(super) const MOST: usize = 1_000;
const DEEPEST: usize = 8;
/// The most names that are looked at.
const MOST_LOOKED: usize = 10_000;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The files, from the skill's folder on, sorted.
    pub(super) files: Vec<String>,
    /// What is not among them, and why.
    pub(super) left_out: Vec<String>,
}

/// Lists the files of the skill in `folder`, relative to `root`, out of which nothing leads. Reads folders.
pub(super) fn list(root: &Path, folder: &Path) -> Listing {
    let mut walk = Walk { root, folder, found: Listing::default(), above: Vec::new(), beyond: 0, looked: 0 };
    walk.enter(Path::new(""), NameKind::Folder);
    let Walk { mut found, beyond, looked, .. } = walk;
    if looked >= MOST_LOOKED {
        found.left_out.insert(0, format!("what comes after the first {MOST_LOOKED} names in its folder"));
    }
    if beyond > 0 {
        found.left_out.insert(0, format!("{beyond} more files: {MOST} are looked for at most"));
    }
    found.files.sort();
    found
}

struct Walk<'a> {
    root: &'a Path,
    folder: &'a Path,
    found: Listing,
    /// The folders in which it is, one in the other: a link may lead back to one of them.
    above: Vec<(u64, u64)>,
    /// Files for which there is no room.
    beyond: usize,
    looked: usize,
}

impl Walk<'_> {
    fn leave_out(&mut self, path: &Path, reason: &str) {
        // As people write it, with `\xFF` for what is no text.
        let named = format!("{path:?}");
        self.found.left_out.push(format!("{}: {reason}", named.trim_matches('"')));
    }

    /// Adds what is at `path`, which is not known to be a file.
    fn enter(&mut self, path: &Path, kind: NameKind) {
        match look_inside(self.root, &self.folder.join(path), MOST_LOOKED.saturating_sub(self.looked)) {
            Ok(Some(Look::File)) => self.file(path),
            Ok(Some(Look::Folder { names, identity })) => {
                if self.above.contains(&identity) {
                    return self.leave_out(path, "this link leads back to a folder in which it lies");
                }
                if self.above.len() == DEEPEST {
                    let reason = format!("folders that lie more than {} deep are not looked at", DEEPEST - 1);
                    return self.leave_out(path, &reason);
                }
                self.above.push(identity);
                self.names(path, names);
                self.above.pop();
            }
            Ok(None) if kind == NameKind::Unknown => self.leave_out(path, "this link leads nowhere"),
            // It was removed meanwhile.
            Ok(None) => {}
            // An operator's skill is all that may be looked at.
            Err(error) if leads_outside(&error) && self.folder == Path::new("") => {
                self.leave_out(path, "it leads out of the skill's folder");
            }
            Err(error) => self.leave_out(path, &format!("cannot be looked at: {error}")),
        }
    }

    fn names(&mut self, folder: &Path, names: Vec<Name>) {
        for Name { name, kind } in names {
            if self.looked >= MOST_LOOKED {
                return;
            }
            self.looked += 1;
            let path: PathBuf = folder.join(&name);
            if name == FOREIGN || path == Path::new(FILE) {
                continue;
            }
            match kind {
                NameKind::Other => self.file(&path),
                NameKind::Folder | NameKind::Unknown => self.enter(&path, kind),
            }
        }
    }

    fn file(&mut self, path: &Path) {
        match path.to_str() {
            None => self.leave_out(path, "its name is not UTF-8"),
            Some(_) if self.found.files.len() == MOST => self.beyond += 1,
            Some(file) => self.found.files.push(file.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(root: &Path, file: impl AsRef<Path>) {
        let path = root.join(file);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, "x").unwrap();
    }

    fn listed(root: &Path) -> (Vec<String>, Vec<String>) {
        let Listing { files, left_out } = list(root, Path::new(""));
        (files, left_out)
    }

    #[test]
    fn folders_that_links_lead_to_are_looked_at_and_no_link_is_gone_in_circles() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = root.path();
        write(place, "lib/a.sh");
        write(place, "scripts/run.sh");
        symlink("../lib", place.join("scripts/lib")).unwrap();
        symlink("run.sh", place.join("scripts/same.sh")).unwrap();
        symlink("..", place.join("scripts/up")).unwrap();
        symlink("nothing", place.join("gone")).unwrap();
        symlink(outside.path(), place.join("out")).unwrap();
        let (files, left_out) = listed(place);
        assert_eq!(files, ["lib/a.sh", "scripts/lib/a.sh", "scripts/run.sh", "scripts/same.sh"]);
        assert_eq!(
            left_out,
            [
                "gone: this link leads nowhere",
                "out: it leads out of the skill's folder",
                "scripts/up: this link leads back to a folder in which it lies",
            ]
        );
    }

    #[test]
    #[ignore = "slow: scripts/slow runs it"]
    fn what_is_too_much_or_too_deep_is_told() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..MOST + 7 {
            write(root.path(), format!("many/{number:04}"));
        }
        write(root.path(), "1/2/3/4/5/6/7/deep");
        write(root.path(), "1/2/3/4/5/6/7/8/deeper");
        let (files, left_out) = listed(root.path());
        assert_eq!((files.len(), files[0].as_str()), (MOST, "1/2/3/4/5/6/7/deep"));
        assert_eq!(
            left_out,
            [
                "8 more files: 1000 are looked for at most",
                "1/2/3/4/5/6/7/8: folders that lie more than 7 deep are not looked at",
            ]
        );
        for folder in ["a", "b", "c"] {
            for number in 0..3_500 {
                write(root.path(), format!("{folder}/{number}"));
            }
        }
        let (files, left_out) = listed(root.path());
        assert_eq!(files.len(), MOST);
        assert_eq!(left_out[1], "what comes after the first 10000 names in its folder");
    }

    #[test]
    fn a_name_that_is_no_text_is_told_as_far_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), OsStr::from_bytes(b"a\xff.txt"));
        write(root.path(), "b\n\x1b.txt");
        let (files, left_out) = listed(root.path());
        assert_eq!(files, ["b\n\x1b.txt"]);
        assert_eq!(left_out, ["a\\xFF.txt: its name is not UTF-8"]);
    }
}
