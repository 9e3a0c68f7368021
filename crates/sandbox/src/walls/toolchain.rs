//! The programs of the operator that lie outside of the system's folders: compilers, interpreters and their libraries.
//!
//! What is on the way to a program is readable in walls, and no more of the folder that it lies in: in a HOME there are
//! keys next to programs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::arrange::{Mount, What};
use crate::process::Environment;

/// What programs in a folder `bin` need beside it.
const BESIDE_BIN: &[&str] = &["lib", "lib64", "libexec", "share", "include"];
/// What the scripts in a folder `shims` need beside it.
const BESIDE_SHIMS: &[&str] =
    &["bin", "lib", "libexec", "share", "versions", "installs", "plugins", "version"];
/// Variables that name a toolchain, or a file with certificates.
const NAMED: &[&str] = &["GOROOT", "JAVA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR"];
/// The folders of `registry` that hold what everyone can have: packages of the public registry.
const PUBLIC: &[&str] = &["index.crates.io-", "github.com-"];
const REGISTRY_PARTS: &[&str] = &["index", "cache", "src"];

/// What an operator's environment says about programs.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    variables: BTreeMap<OsString, OsString>,
}

impl Surroundings {
    /// Those of this process.
    pub(super) fn of_this_process() -> Self {
        let environment = Environment::of_this_process();
        Self::of(environment.variables().map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self { variables: variables.into_iter().collect() }
    }

    /// A variable that names an absolute path.
    fn path(&self, name: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.variables.get(OsStr::new(name))?);
        path.is_absolute().then_some(path)
    }

    fn home(&self) -> Option<PathBuf> {
        self.path("HOME")
    }

    /// A folder that a variable names, or that lies in HOME by this name; where it exists.
    fn named_or_in_home(&self, variable: &str, name: &str) -> Option<PathBuf> {
        let folder = self.path(variable).or_else(|| Some(self.home()?.join(name)))?;
        (folder.is_dir() && !self.holds_home(&folder)).then_some(folder)
    }

    /// Where rustup keeps its toolchains.
    pub(super) fn rustup(&self) -> Option<PathBuf> {
        self.named_or_in_home("RUSTUP_HOME", ".rustup")
    }

    fn cargo(&self) -> Option<PathBuf> {
        self.named_or_in_home("CARGO_HOME", ".cargo")
    }

    /// What can be read in walls so that the operator's programs run.
    pub(super) fn toolchains(&self) -> Vec<Mount> {
        let search_path = self.variables.get(OsStr::new("PATH")).cloned().unwrap_or_default();
        let from_path: Vec<_> =
            std::env::split_paths(&search_path).flat_map(|folder| self.with_neighbours(&folder)).collect();
        let named = NAMED.iter().filter_map(|name| self.path(name));
        let all = from_path.into_iter().chain(named).chain(self.rustup());
        all.filter(|path| !self.holds_home(path)).flat_map(|path| seen(&path)).collect()
    }

    /// The packages of the public registry that the operator has, to be read beneath `cargo`.
    pub(super) fn packages(&self, cargo: &Path) -> Vec<Mount> {
        let Some(registry) = self.cargo().map(|folder| folder.join("registry")) else { return Vec::new() };
        let within = |part: &&str| {
            let entries = fs_err::read_dir(registry.join(part)).into_iter().flatten().flatten();
            let part = PathBuf::from(part);
            entries.map(move |entry| (part.join(entry.file_name()), entry.path())).collect::<Vec<_>>()
        };
        let is_public = |path: &Path| {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            PUBLIC.iter().any(|public| name.starts_with(public))
        };
        let found =
            REGISTRY_PARTS.iter().flat_map(within).filter(|(_, path)| is_public(path) && path.is_dir());
        let place = |within: PathBuf| cargo.join("registry").join(within);
        found.map(|(within, path)| Mount { place: place(within), what: What::Read(path) }).collect()
    }

    /// A folder of programs, and what they need beside it.
    fn with_neighbours(&self, folder: &Path) -> Vec<PathBuf> {
        if !folder.is_absolute() || self.holds_home(folder) {
            return Vec::new();
        }
        let mut found = vec![folder.to_owned()];
        let Some(parent) = folder.parent().filter(|parent| *parent != Path::new("/")) else { return found };
        let beside: &[&str] = match folder.file_name().and_then(OsStr::to_str) {
            Some("bin") if self.is_mixed(parent) => &[],
            // What others keep in `~/.local/share` is nobody's business.
            Some("bin") if parent.ends_with(".local") => &["lib"],
            Some("bin") => BESIDE_BIN,
            Some("shims") => BESIDE_SHIMS,
            _ => &[],
        };
        found.extend(beside.iter().map(|name| parent.join(name)));
        found
    }

    /// Whether keys lie in this folder, next to the programs.
    fn is_mixed(&self, folder: &Path) -> bool {
        self.holds_home(folder)
            || self.cargo().is_some_and(|cargo| cargo == folder)
            || folder.ends_with(".cargo")
    }

    /// Whether a folder is HOME, or around it.
    fn holds_home(&self, folder: &Path) -> bool {
        let Some(home) = self.home() else { return false };
        let real = fs_err::canonicalize(&home).ok();
        let is_held = |folder: &Path| {
            home.starts_with(folder) || real.as_ref().is_some_and(|real| real.starts_with(folder))
        };
        is_held(folder) || fs_err::canonicalize(folder).is_ok_and(|folder| is_held(&folder))
    }
}

/// A path where it is named, and where it really lies as well: programs ask for both.
fn seen(path: &Path) -> Vec<Mount> {
    let Ok(real) = fs_err::canonicalize(path) else { return Vec::new() };
    // Without `.` and double slashes, so that the same place is the same path.
    let named = Mount { place: path.components().collect(), what: What::Read(real.clone()) };
    if named.place == real { vec![named] } else { vec![Mount::read(real), named] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings(variables: &[(&str, &Path)]) -> Surroundings {
        let owned = |(name, value): &(&str, &Path)| (OsString::from(name), value.as_os_str().to_owned());
        Surroundings::of(variables.iter().map(owned))
    }

    fn places(mounts: &[Mount], below: &Path) -> Vec<String> {
        let within = |mount: &Mount| Some(mount.place.strip_prefix(below).ok()?.display().to_string());
        let mut places: Vec<_> = mounts.iter().filter_map(within).collect();
        places.sort();
        places
    }

    fn make(root: &Path, folders: &[&str]) {
        folders.iter().for_each(|folder| fs_err::create_dir_all(root.join(folder)).unwrap());
    }

    #[test]
    fn programs_are_seen_and_keys_beside_them_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let home = fs_err::canonicalize(folder.path()).unwrap();
        let made = [
            ".cargo/bin",
            ".cargo/registry",
            ".cargo/lib",
            ".local/bin",
            ".local/share/keyrings",
            ".local/lib",
            "bin",
            "lib",
            ".pyenv/shims",
            ".pyenv/versions/3",
            ".pyenv/libexec",
            "go/bin",
            "go/share",
            ".ssh",
            ".rustup",
        ];
        make(&home, &made);
        let search_path = [".cargo/bin", ".local/bin", "bin", ".pyenv/shims", "go/bin", "none/bin", ""];
        let search_path = std::env::join_paths(search_path.map(|name| home.join(name))).unwrap();
        let surroundings = surroundings(&[("PATH", Path::new(&search_path)), ("HOME", &home)]);
        let expected = [
            ".cargo/bin",
            ".local/bin",
            ".local/lib",
            ".pyenv/libexec",
            ".pyenv/shims",
            ".pyenv/versions",
            ".rustup",
            "bin",
            "go/bin",
            "go/share",
        ];
        assert_eq!(places(&surroundings.toolchains(), &home), expected);
    }

    #[test]
    fn home_and_what_is_around_it_is_never_a_toolchain() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs_err::canonicalize(folder.path()).unwrap();
        make(&root, &["home/bin", "bin"]);
        let (home, link) = (root.join("home"), root.join("to-home"));
        fs_err::os::unix::fs::symlink(&home, &link).unwrap();
        let search_path = std::env::join_paths([&*root, &home, &link, Path::new("relative")]).unwrap();
        let variables =
            [("PATH", Path::new(&search_path)), ("HOME", &*home), ("JAVA_HOME", &*root), ("GOROOT", &*link)];
        assert_eq!(surroundings(&variables).toolchains(), []);
    }

    #[test]
    fn a_folder_behind_a_link_is_seen_by_both_names() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs_err::canonicalize(folder.path()).unwrap();
        make(&root, &["jdk-21/bin", "jdk-21/lib"]);
        fs_err::os::unix::fs::symlink("jdk-21", root.join("current")).unwrap();
        let bin = root.join("current/bin");
        let seen = surroundings(&[("PATH", &bin)]).toolchains();
        assert_eq!(places(&seen, &root), ["current/bin", "current/lib", "jdk-21/bin", "jdk-21/lib"]);
        assert!(seen.iter().all(|mount| mount.source().unwrap().starts_with(root.join("jdk-21"))));
    }

    #[test]
    fn only_public_packages_are_shared() {
        let folder = tempfile::tempdir().unwrap();
        let cargo = fs_err::canonicalize(folder.path()).unwrap();
        let public = ["registry/index/index.crates.io-1", "registry/src/index.crates.io-1"];
        make(&cargo, &public);
        make(&cargo, &["registry/src/my.company-2", "git/db"]);
        fs_err::write(cargo.join("credentials.toml"), "secret").unwrap();
        let shared = surroundings(&[("CARGO_HOME", &cargo)]).packages(Path::new("/run/cargo"));
        assert_eq!(places(&shared, Path::new("/run/cargo")), public);
        assert_eq!(shared.len(), 2);
    }
}
