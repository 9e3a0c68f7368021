//! The directories in which sessions may work.

use std::path::{Path, PathBuf};

use playhouse_actors::{Strayed, follow_within};

use crate::keys::Key;
use crate::problem::{Kind, Problem};

/// Directories below which sessions may work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roots(Vec<PathBuf>);

impl Roots {
    /// These directories, links resolved. Blocks.
    ///
    /// # Errors
    /// One does not exist, or is no directory.
    pub fn new(directories: &[PathBuf]) -> Result<Self, std::io::Error> {
        directories.iter().map(fs_err::canonicalize).collect::<Result<_, _>>().map(Self)
    }

    /// Those of a key; `None` where it has none of its own.
    pub(crate) fn of(key: &Key) -> Option<Self> {
        (!key.roots.is_empty()).then(|| Self(key.roots.iter().map(PathBuf::from).collect()))
    }

    /// The same and those of another.
    pub(crate) fn and(&mut self, other: &Self) {
        let new: Vec<_> = other.0.iter().filter(|root| !self.0.contains(root)).cloned().collect();
        self.0.extend(new);
    }

    /// The first of them: where a client works that names no directory.
    pub fn first(&self) -> Option<&Path> {
        self.0.first().map(PathBuf::as_path)
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[PathBuf] {
        &self.0
    }

    /// Whether `directory`, links resolved, lies in one of them.
    pub fn hold(&self, directory: &Path) -> bool {
        self.0.iter().any(|root| directory.starts_with(root))
    }

    /// The directory that a client named, links resolved. Blocks. What lies outside is refused alike, whether it exists or
    /// not, so that nobody can find out what there is.
    ///
    /// # Errors
    /// It is not absolute, lies outside, or is no directory.
    pub fn admit(&self, directory: &str) -> Result<PathBuf, Problem> {
        let written = Path::new(directory);
        if !written.is_absolute() {
            return Err(Problem::invalid(format!(
                "the directory \"{}\" is not absolute: write it from the root",
                directory.escape_debug()
            )));
        }
        let outside = || {
            let detail = format!(
                "the directory \"{}\" is not below a root that the operator allowed",
                directory.escape_debug()
            );
            Problem::new(Kind::Forbidden, detail)
        };
        let resolved = match follow_within(written, &self.0) {
            Ok(resolved) => resolved,
            Err(Strayed::Outside) => return Err(outside()),
            Err(Strayed::Missing) => {
                let detail = format!("there is no directory \"{}\"", directory.escape_debug());
                return Err(Problem::invalid(detail));
            }
        };
        if !resolved.is_dir() {
            return Err(Problem::invalid(format!("\"{}\" is no directory", directory.escape_debug())));
        }
        Ok(resolved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_below_a_root_is_admitted() {
        let folder = tempfile::tempdir().unwrap();
        let (root, other) = (folder.path().join("root"), folder.path().join("other"));
        fs_err::create_dir_all(root.join("a")).unwrap();
        fs_err::create_dir_all(&other).unwrap();
        fs_err::write(root.join("file"), "").unwrap();
        fs_err::os::unix::fs::symlink(&other, root.join("link")).unwrap();
        fs_err::os::unix::fs::symlink(folder.path().join("nowhere"), root.join("dangling")).unwrap();
        let roots = Roots::new(std::slice::from_ref(&root)).unwrap();
        let admit = |path: &Path| roots.admit(path.to_str().unwrap()).map_err(|problem| problem.kind);
        assert!(admit(&root).is_ok() && admit(&root.join("a")).is_ok());
        for (path, kind) in [
            (other.clone(), Kind::Forbidden),
            (root.join("link"), Kind::Forbidden),
            (root.join("dangling"), Kind::Forbidden),
            (root.join("link/../root/a"), Kind::Forbidden),
            (root.join("../other"), Kind::Forbidden),
            (root.join("../nowhere"), Kind::Forbidden),
            (folder.path().join("rootling"), Kind::Forbidden),
            (root.join("missing"), Kind::Invalid),
            (root.join("file"), Kind::Invalid),
            (PathBuf::from("a"), Kind::Invalid),
        ] {
            assert_eq!(admit(&path), Err(kind), "{}", path.display());
        }
    }
}
