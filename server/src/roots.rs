//! The directories in which sessions may work.

use std::io;
use std::path::{Path, PathBuf};

use playhouse_actors::{Strayed, follow_within};

use crate::keys::Key;
use crate::problem::{Kind, Problem};

/// Directories below which sessions may work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roots {
    /// Links resolved.
    resolved: Vec<PathBuf>,
    /// Those that were given by a path with links, as they were given, with where that leads.
    given: Vec<(PathBuf, PathBuf)>,
}

impl Roots {
    /// These directories, links resolved. Blocks.
    ///
    /// # Errors
    /// One does not exist, or is no directory.
    pub fn new(directories: &[PathBuf]) -> Result<Self, io::Error> {
        let given = directories.iter().map(std::path::absolute).collect::<Result<Vec<_>, _>>()?;
        let resolve = |directory: &PathBuf| {
            let resolved = fs_err::canonicalize(directory)?;
            if fs_err::metadata(&resolved)?.is_dir() {
                return Ok(resolved);
            }
            let text = format!("{} is no directory", directory.display());
            Err(io::Error::new(io::ErrorKind::NotADirectory, text))
        };
        let resolved = directories.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::from_pairs(given.into_iter().zip(resolved)))
    }

    /// Those of a key; `None` where it has none of its own.
    pub(crate) fn of(key: &Key) -> Option<Self> {
        let pair = |(place, resolved): (usize, &String)| {
            (key.given.get(place).unwrap_or(resolved).into(), resolved.into())
        };
        (!key.roots.is_empty()).then(|| Self::from_pairs(key.roots.iter().enumerate().map(pair)))
    }

    /// Of directories as they were given, each with where that leads.
    fn from_pairs(pairs: impl Iterator<Item = (PathBuf, PathBuf)>) -> Self {
        let (mut resolved, mut by_link) = (Vec::new(), Vec::new());
        for (given, leads_to) in pairs {
            if given != leads_to {
                by_link.push((given, leads_to.clone()));
            }
            resolved.push(leads_to);
        }
        Self { resolved, given: by_link }
    }

    /// The same and those of another.
    pub(crate) fn and(&mut self, other: &Self) {
        let new: Vec<_> =
            other.resolved.iter().filter(|root| !self.resolved.contains(root)).cloned().collect();
        self.resolved.extend(new);
        self.given.extend(other.given.iter().cloned());
    }

    /// What of these lies within `outer`; all of them where that has none.
    #[must_use]
    pub(crate) fn within(self, outer: &Self) -> Self {
        if outer.resolved.is_empty() {
            return self;
        }
        let (inside, around): (Vec<_>, Vec<_>) = self.resolved.into_iter().partition(|root| outer.hold(root));
        // Of one that holds a root of the others, that root is left.
        let left = outer.resolved.iter().filter(|root| around.iter().any(|own| root.starts_with(own)));
        let resolved: Vec<PathBuf> = inside.iter().chain(left).cloned().collect();
        let given = self.given.into_iter().filter(|(_, leads_to)| inside.contains(leads_to)).collect();
        Self { resolved, given }
    }

    /// The first of them: where a client works that names no directory.
    pub fn first(&self) -> Option<&Path> {
        self.resolved.first().map(PathBuf::as_path)
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[PathBuf] {
        &self.resolved
    }

    /// Whether `directory`, links resolved, lies in one of them.
    pub fn hold(&self, directory: &Path) -> bool {
        self.resolved.iter().any(|root| directory.starts_with(root))
    }

    /// The directory that a client named, links resolved. Blocks. What lies outside is refused alike, whether it exists or
    /// not, so that nobody can find out what there is.
    ///
    /// # Errors
    /// It is not absolute, lies outside, or is no directory.
    pub fn admit(&self, directory: &str) -> Result<PathBuf, Problem> {
        let written = absolute(directory)?;
        let outside = || {
            let detail = format!(
                "the directory \"{}\" is not below a root that the operator allowed: write the root as the operator \
                 did, or with its links resolved",
                directory.escape_debug()
            );
            Problem::new(Kind::Forbidden, detail)
        };
        // The operator has said where the link leads.
        let by_link = self
            .given
            .iter()
            .find_map(|(given, resolved)| written.strip_prefix(given).ok().map(|rest| resolved.join(rest)));
        let resolved = match follow_within(by_link.as_deref().unwrap_or(written), &self.resolved) {
            Ok(resolved) => resolved,
            Err(Strayed::Outside) => return Err(outside()),
            Err(Strayed::Missing) => return Err(missing(directory)),
        };
        is_directory(resolved, directory)
    }
}

/// A directory that the operator named, links resolved: any that there is. Blocks.
///
/// # Errors
/// It is not absolute, or is no directory.
pub(crate) fn existing(directory: &str) -> Result<PathBuf, Problem> {
    let resolved = fs_err::canonicalize(absolute(directory)?).map_err(|_| missing(directory))?;
    is_directory(resolved, directory)
}

fn absolute(directory: &str) -> Result<&Path, Problem> {
    let written = Path::new(directory);
    if written.is_absolute() {
        return Ok(written);
    }
    Err(Problem::invalid(format!(
        "the directory \"{}\" is not absolute: write it from the root",
        directory.escape_debug()
    )))
}

fn missing(directory: &str) -> Problem {
    Problem::invalid(format!("there is no directory \"{}\"", directory.escape_debug()))
}

fn is_directory(resolved: PathBuf, directory: &str) -> Result<PathBuf, Problem> {
    if resolved.is_dir() {
        return Ok(resolved);
    }
    Err(Problem::invalid(format!("\"{}\" is no directory", directory.escape_debug())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_reach_no_further_than_those_around_them() {
        let roots = |paths: &[&str]| Roots::from_pairs(paths.iter().map(|path| (path.into(), path.into())));
        for (own, outer, left) in [
            (&["/srv/a"][..], &["/srv"][..], &["/srv/a"][..]),
            (&["/srv"], &["/srv/a", "/srv/b", "/home"], &["/srv/a", "/srv/b"]),
            (&["/srv/a", "/etc"], &["/srv"], &["/srv/a"]),
            (&["/srv/ab"], &["/srv/a"], &[]),
            (&["/"], &["/srv"], &["/srv"]),
            (&["/srv/a"], &[], &["/srv/a"]),
        ] {
            assert_eq!(roots(own).within(&roots(outer)), roots(left), "{own:?} within {outer:?}");
        }
        let by_link = Roots::from_pairs([("/link".into(), "/srv/a".into())].into_iter());
        assert_eq!(by_link.clone().within(&roots(&["/srv"])), by_link);
    }

    #[test]
    fn only_what_lies_below_a_root_is_admitted() {
        let folder = tempfile::tempdir().unwrap();
        let (root, other) = (folder.path().join("root"), folder.path().join("other"));
        fs_err::create_dir_all(root.join("a")).unwrap();
        fs_err::create_dir_all(&other).unwrap();
        fs_err::write(root.join("file"), "").unwrap();
        fs_err::os::unix::fs::symlink(&other, root.join("link")).unwrap();
        fs_err::os::unix::fs::symlink(folder.path().join("nowhere"), root.join("dangling")).unwrap();
        let by_link = folder.path().join("by-link");
        fs_err::os::unix::fs::symlink(folder.path(), &by_link).unwrap();
        let linked = Roots::new(&[by_link.join("root")]).unwrap();
        let resolved = fs_err::canonicalize(root.join("a")).unwrap();
        for path in [by_link.join("root/a"), root.join("a")] {
            assert_eq!(linked.admit(path.to_str().unwrap()), Ok(resolved.clone()), "the path that was given");
        }
        for path in [by_link.join("other"), by_link.join("root/../other"), by_link.join("root/link")] {
            assert!(linked.admit(path.to_str().unwrap()).is_err(), "{}", path.display());
        }
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
