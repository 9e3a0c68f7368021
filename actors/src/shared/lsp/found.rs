//! Which language servers there are for a workspace, and where its projects begin.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err::os::unix::fs::OpenOptionsExt as _;
use parking_lot::Mutex;
use playhouse_lsp::ServerEntry;
use playhouse_sandbox::process::Environment;
use sha2::{Digest as _, Sha256};

/// Where programs of a workspace lie.
const OF_WORKSPACE: [&str; 3] = ["node_modules/.bin", ".venv/bin", "venv/bin"];
/// The most bytes of a package's description.
const LARGEST_PACKAGE: u64 = 1 << 20;
/// The most bytes of a program of a workspace: a larger one is not used.
const LARGEST_PROGRAM: u64 = 256 << 20;
/// Programs whose hash is remembered.
const MOST_REMEMBERED: usize = 256;
/// How many names are looked at to see whether a workspace has files of a server.
const MOST_NAMES: usize = 2_000;

/// A server that can be started.
#[derive(Debug)]
pub(super) struct FoundServer {
    pub(super) entry: ServerEntry,
    /// Its program, links resolved.
    pub(super) program: PathBuf,
    /// The SHA-256 of a program that lies in the workspace, and of what describes its package.
    pub(super) hash: Option<String>,
    /// Whether the workspace has files for it, as far as one sees at a glance; of a configured one always.
    pub(super) is_wanted: bool,
}

/// The servers for a workspace. Blocks.
pub(super) fn found(entries: &[ServerEntry], workspace: &Path) -> Vec<Arc<FoundServer>> {
    let names = names_of(workspace);
    let mut found: Vec<Arc<FoundServer>> = Vec::new();
    for entry in entries {
        let is_covered = entry.extensions.iter().all(|extension| {
            found.iter().any(|other: &Arc<FoundServer>| other.entry.extensions.contains(extension))
        });
        if is_covered {
            continue;
        }
        let named = || entry.command.first().filter(|_| entry.is_configured).map(PathBuf::from);
        // That a configured one is not there is told when it is started.
        let Some((program, is_workspaces)) = find(entry, workspace).or_else(|| Some((named()?, false)))
        else {
            continue;
        };
        let hash = if is_workspaces || program.starts_with(workspace) {
            let Some(hash) = identity(&program) else { continue };
            Some(hash)
        } else {
            None
        };
        let is_wanted = entry.is_configured
            || names.iter().any(|name| entry.root_markers.contains(name) || entry.takes(name));
        found.push(Arc::new(FoundServer { entry: entry.clone(), program, hash, is_wanted }));
    }
    found
}

/// The names in a workspace and in its folders.
fn names_of(workspace: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![workspace.to_owned()];
    for depth in 0..2 {
        for folder in std::mem::take(&mut folders) {
            let entries = fs_err::read_dir(&folder).into_iter().flatten().flatten();
            for entry in entries.take(MOST_NAMES.saturating_sub(names.len())) {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if depth == 0 && is_folder && !name.starts_with('.') && name != "node_modules" {
                    folders.push(entry.path());
                }
                names.push(name);
            }
        }
    }
    names
}

/// The program of a server, and whether a workspace names it, wherever it lies.
fn find(entry: &ServerEntry, workspace: &Path) -> Option<(PathBuf, bool)> {
    let name = entry.command.first()?;
    let (program, is_workspaces) = if name.contains('/') {
        let path = PathBuf::from(name);
        (path.is_absolute().then_some(path).filter(|path| is_program(path))?, false)
    } else {
        let environment = Environment::of_this_process();
        let path = environment.variables().find(|(name, _)| *name == "PATH").map(|(_, path)| path.to_owned());
        let path = path.unwrap_or_default();
        let own = OF_WORKSPACE.iter().map(|folder| (workspace.join(folder), true));
        let others = std::env::split_paths(&path).filter(|path| path.is_absolute()).map(|path| (path, false));
        own.chain(others)
            .map(|(folder, is_workspaces)| (folder.join(name), is_workspaces))
            .find(|(path, _)| is_program(path) && is_right(entry, path, &environment))?
    };
    // Named by its links: what a program of several names is, it knows by that.
    let folder = fs_err::canonicalize(program.parent()?).ok()?;
    let real = fs_err::canonicalize(&program).ok()?;
    let named = folder.join(program.file_name()?);
    Some((if real.starts_with(workspace) { real } else { named }, is_workspaces))
}

fn is_program(path: &Path) -> bool {
    fs_err::metadata(path).is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

/// Whether the program of this name is the one that is meant: of the right version, and there behind what only passes calls on.
fn is_right(entry: &ServerEntry, program: &Path, environment: &Environment) -> bool {
    let Ok(real) = fs_err::canonicalize(program) else { return false };
    if real.file_name().is_some_and(|name| name == "rustup") {
        let variable = |wanted: &str| {
            environment.variables().find(|(name, _)| *name == wanted).map(|(_, value)| PathBuf::from(value))
        };
        let home = variable("RUSTUP_HOME").or_else(|| Some(variable("HOME")?.join(".rustup")));
        let toolchains = home.map(|home| home.join("toolchains"));
        let entries =
            toolchains.and_then(|folder| fs_err::read_dir(folder).ok()).into_iter().flatten().flatten();
        return program.file_name().is_some_and(|name| {
            entries.into_iter().any(|toolchain| toolchain.path().join("bin").join(name).is_file())
        });
    }
    let Some((package, least)) = entry.since else { return true };
    let described = real.ancestors().skip(1).take(4).find_map(package_at);
    described.is_some_and(|(name, version)| {
        let major = version.split('.').next().and_then(|major| major.parse::<u64>().ok());
        name == package && major.is_some_and(|major| major >= least)
    })
}

/// Name and version of the package whose description lies in a folder.
fn package_at(folder: &Path) -> Option<(String, String)> {
    let bytes = content(&folder.join("package.json"), LARGEST_PACKAGE)?;
    let package: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    let text = |key: &str| package.get(key)?.as_str().map(str::to_owned);
    Some((text("name")?, text("version")?))
}

/// A regular file of at most so many bytes. It is opened without waiting, whatever stands there.
fn opened(path: &Path, most: u64) -> Option<(File, Metadata)> {
    let mut options = fs_err::OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    let file = File::from(file);
    let facts = file.metadata().ok()?;
    (facts.is_file() && facts.len() <= most).then_some((file, facts))
}

fn content(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    opened(path, most)?.0.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The hash of a program. It is remembered for as long as the file stays the same.
fn hash_of(program: &Path) -> Option<[u8; 32]> {
    type Stamp = (u64, u64, u64, i64, i64, i64, i64);
    type Known = HashMap<PathBuf, (Stamp, [u8; 32])>;
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let (file, facts) = opened(program, LARGEST_PROGRAM)?;
    let stamp = (
        facts.dev(),
        facts.ino(),
        facts.len(),
        facts.mtime(),
        facts.mtime_nsec(),
        facts.ctime(),
        facts.ctime_nsec(),
    );
    let known = || KNOWN.lock();
    if let Some((_, hash)) = known().get_or_insert_default().get(program).filter(|(known, _)| *known == stamp)
    {
        return Some(*hash);
    }
    let mut hash = Sha256::new();
    let (mut file, mut buffer) = (file.take(LARGEST_PROGRAM), vec![0; 64 * 1024]);
    loop {
        match file.read(&mut buffer).ok()? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    let hash: [u8; 32] = hash.finalize().into();
    let mut known = known();
    let known = known.get_or_insert_default();
    if known.len() >= MOST_REMEMBERED {
        known.clear();
    }
    known.insert(program.to_owned(), (stamp, hash));
    Some(hash)
}

/// What people agree to where the program lies in the workspace. Blocks.
pub(super) fn identity(program: &Path) -> Option<String> {
    let mut hash = Sha256::new();
    hash.update(hash_of(program)?);
    let package = program.ancestors().skip(1).take(4).map(|folder| folder.join("package.json"));
    if let Some(package) = package.into_iter().find_map(|path| content(&path, LARGEST_PACKAGE)) {
        hash.update(package);
    }
    Some(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The folder of the project that a file belongs to: the nearest with one of these in the workspace, else the workspace. Blocks.
pub(super) fn root_of(file: &Path, workspace: &Path, markers: &[String]) -> PathBuf {
    let folders = file.ancestors().skip(1).take_while(|folder| folder.starts_with(workspace));
    let has_marker =
        |folder: &&Path| markers.iter().any(|name| fs_err::symlink_metadata(folder.join(name)).is_ok());
    folders.into_iter().find(has_marker).unwrap_or(workspace).to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(path: &Path, text: &str) {
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
        fs_err::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    #[test]
    fn programs_of_the_workspace_are_found_in_the_right_version_and_have_an_identity() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = fs_err::canonicalize(folder.path()).unwrap();
        let package = workspace.join("node_modules/typescript");
        program(&package.join("bin/tsc"), "#!/bin/sh\n");
        fs_err::create_dir_all(workspace.join("node_modules/.bin")).unwrap();
        std::os::unix::fs::symlink("../typescript/bin/tsc", workspace.join("node_modules/.bin/tsc")).unwrap();
        let mut entry = ServerEntry::new("t", vec!["tsc".to_owned()], vec![".ts".to_owned()]);
        (entry.since, entry.is_configured) = (Some(("typescript", 7)), false);
        entry.root_markers = vec!["tsconfig.json".to_owned()];
        let describe = |version: &str| {
            let text = format!("{{\"name\": \"typescript\", \"version\": \"{version}\"}}");
            fs_err::write(package.join("package.json"), text).unwrap();
        };
        describe("6.0.3");
        assert!(found(&[entry.clone()], &workspace).is_empty());
        describe("7.0.0-rc");
        let first = found(&[entry.clone()], &workspace);
        assert!(!first[0].is_wanted && first[0].program == package.join("bin/tsc"));
        program(&package.join("bin/tsc"), "#!/bin/sh\nexit 1\n");
        fs_err::create_dir_all(workspace.join("sub/deep")).unwrap();
        fs_err::write(workspace.join("sub/tsconfig.json"), "{}").unwrap();
        let second = found(&[entry.clone()], &workspace);
        assert!(second[0].is_wanted && first[0].hash.is_some() && first[0].hash != second[0].hash);
        let root = |file: &str| root_of(&workspace.join(file), &workspace, &entry.root_markers);
        assert_eq!((root("sub/deep/a.ts"), root("a.ts")), (workspace.join("sub"), workspace.clone()));
    }

    #[test]
    fn what_a_workspace_names_is_its_own_wherever_it_lies_and_no_pipe_holds_anybody_up() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let workspace = fs_err::canonicalize(folder.path()).unwrap();
        program(&outside.path().join("bin/own-server"), "#!/bin/sh\n");
        fs_err::create_dir(workspace.join(".venv")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("bin"), workspace.join(".venv/bin")).unwrap();
        // The nearest description of a package is a pipe.
        let pipe = std::process::Command::new("mkfifo").arg(outside.path().join("package.json")).status();
        assert!(pipe.unwrap().success());
        let mut entry = ServerEntry::new("t", vec!["own-server".to_owned()], vec![".t".to_owned()]);
        entry.is_configured = false;
        let found = found(&[entry], &workspace);
        assert!(found.len() == 1 && found[0].hash.is_some(), "{found:?}");
    }

    #[test]
    fn of_two_for_the_same_files_the_first_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        program(&path, "");
        let entry = |name: &str, extensions: &[&str]| {
            let extensions = extensions.iter().map(|text| (*text).to_owned()).collect();
            ServerEntry::new(name, vec![path.to_str().unwrap().to_owned()], extensions)
        };
        let entries = [entry("a", &[".x"]), entry("b", &[".x"]), entry("c", &[".x", ".y"])];
        let workspace = tempfile::tempdir().unwrap();
        let names: Vec<String> =
            found(&entries, workspace.path()).iter().map(|one| one.entry.name.clone()).collect();
        assert_eq!(names, ["a", "c"]);
    }
}
