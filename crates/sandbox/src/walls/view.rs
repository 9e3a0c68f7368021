//! What programs in walls see of the machine: built up from nothing, so that what nobody thought of is not there.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use playhouse_protocol::walls::WallsAllowed;

use super::WallsSpec;
use super::arrange::{Mount, What, arranged};
use super::folders::Folders;
use super::git::{Git, Guards};
use super::system;
use super::toolchain::Surroundings;

/// Where cargo keeps its things when it cannot reach the network: so the operator's packages can be put there, which must
/// not be done in a folder that programs can rearrange.
const OFFLINE_CARGO: &str = "/tmp/.cargo";
/// What the machine is called in walls.
const HOSTNAME: &str = "sandbox";

/// What the programs of one session see.
#[derive(Debug)]
pub(super) struct View {
    /// All but what guards the repository, which is looked at for each command.
    mounts: Vec<Mount>,
    git: Git,
    workspace: PathBuf,
    home: PathBuf,
    own: Folders,
    allowed: WallsAllowed,
    variables: Vec<(&'static str, OsString)>,
    /// What did not go as it was wanted, for people.
    remarks: Vec<String>,
}

/// What one command sees.
#[derive(Debug)]
pub(super) struct Sight {
    mounts: Vec<Mount>,
    workspace: PathBuf,
    nothing: PathBuf,
    /// See [`Guards::absent`].
    pub(super) absent: Vec<PathBuf>,
}

impl View {
    /// Makes the folders that it needs. Blocks.
    ///
    /// # Errors
    /// When they cannot be made.
    pub(super) fn build(spec: &WallsSpec, surroundings: &Surroundings) -> io::Result<Self> {
        fs_err::create_dir_all(&spec.output)?;
        make_home(&spec.home)?;
        let home = fs_err::canonicalize(&spec.home)?;
        let hidden: Vec<_> = spec.hidden.iter().map(|path| canonical(path)).collect();
        let allowed =
            |paths: &[String]| paths.iter().map(|path| canonical(Path::new(path))).collect::<Vec<_>>();
        let network = spec.allowed.network;
        let named = spec.allowed.read.iter().chain(&spec.allowed.write).map(PathBuf::from);
        let mut placed = named.chain([&spec.workspace, &spec.output, &home].map(Clone::clone));
        let own = Folders::create(&home, network, placed.any(|path| path.starts_with(system::ETC)))?;

        let mut mounts = system::mounts();
        mounts.extend(own.settings());
        mounts.extend(surroundings.toolchains());
        mounts.extend(allowed(&spec.allowed.read).into_iter().map(Mount::read));
        mounts.push(own.mount("tmp", "/tmp"));
        mounts.extend(allowed(&spec.allowed.write).into_iter().map(Mount::write));
        // What is asked for does not open what is hidden, nor is anything put into the private HOME.
        mounts.retain(|mount| {
            let is_hidden =
                |path: &Path| !own.hold(path) && hidden.iter().any(|hidden| path.starts_with(hidden));
            !mount.place.starts_with(&home) && !mount.source().is_some_and(is_hidden)
        });
        let mut variables = vec![("HOME", home.clone().into()), ("TMPDIR", "/tmp".into())];
        variables.extend(surroundings.rustup().map(|folder| ("RUSTUP_HOME", folder.into())));
        let packages = if network { Vec::new() } else { surroundings.packages(Path::new(OFFLINE_CARGO)) };
        if packages.is_empty() {
            variables.push(("CARGO_HOME", home.join(".cargo").into()));
        } else {
            variables.extend([("CARGO_HOME", OFFLINE_CARGO.into()), ("CARGO_NET_OFFLINE", "true".into())]);
            mounts.push(own.mount("cargo", OFFLINE_CARGO));
            mounts.extend(packages);
        }
        mounts.push(Mount::write(&home));
        let is_read_only = spec.allowed.read_only;
        mounts.push(if is_read_only { Mount::read(&spec.workspace) } else { Mount::write(&spec.workspace) });
        mounts.push(Mount::read(canonical(&spec.output)));
        mounts.extend(spec.shared.iter().map(|shared| Mount::read(canonical(shared))));
        let links: Vec<_> = mounts.iter().filter(|mount| is_seen_link(mount, &mounts)).cloned().collect();
        mounts.retain(|mount| !links.contains(mount));
        let mut remarks = Vec::new();
        mounts.extend(masks(&mounts, &hidden, &mut remarks));

        let git = Git::of(&spec.workspace, &spec.roots);
        if let Git::Unseen { reason } = &git {
            remarks.push(format!("git does not work in the workspace: {reason}"));
        }
        let (workspace, allowed) = (spec.workspace.clone(), spec.allowed.clone());
        let view = Self { mounts, git, workspace, home, own, allowed, variables, remarks };
        view.make_ways()?;
        Ok(view)
    }

    /// Makes, in folders of these walls, the folders on the way to what is put into them. No program ran there yet.
    fn make_ways(&self) -> io::Result<()> {
        let apart: Vec<_> = self.git.apart().into_iter().flatten().map(Mount::write).collect();
        for around in &self.mounts {
            let Some(source) = around.source().filter(|source| self.own.hold(source) && source.is_dir())
            else {
                continue;
            };
            for mount in self.mounts.iter().chain(&apart) {
                let within = mount.place.strip_prefix(&around.place).ok();
                if let Some(way) = within.and_then(Path::parent) {
                    fs_err::create_dir_all(source.join(way))?;
                }
            }
        }
        Ok(())
    }

    /// What a command that starts now sees. Looks at the repository, and makes what is missing to guard it. Blocks.
    ///
    /// # Errors
    /// When the repository cannot be guarded.
    pub(super) fn sight(&self) -> io::Result<Sight> {
        // It may have been put aside since.
        make_home(&self.home)?;
        let is_there = |mount: &&Mount| match &mount.what {
            What::Read(source) | What::Write(source) => source.exists(),
            _ => true,
        };
        let mut mounts: Vec<_> = self.mounts.iter().filter(is_there).cloned().collect();
        let guards =
            if self.allowed.read_only { Guards::default() } else { self.git.guards(&self.workspace)? };
        if guards.whole {
            mounts.push(Mount::read(&self.workspace));
        }
        mounts.extend(guards.mounts);
        let nothing = self.own.nothing();
        let workspace = self.workspace.clone();
        Ok(Sight { mounts: arranged(mounts), workspace, nothing, absent: guards.absent })
    }

    /// What is to be read and what is to be changed, for walls that cannot put anything elsewhere than it lies.
    pub(super) fn places(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let (mut read, mut write) = (system::settings_in_place(self.allowed.network), Vec::new());
        for mount in &self.mounts {
            match &mount.what {
                What::Read(source) => read.push(source.clone()),
                What::Write(source) => write.push(source.clone()),
                _ => {}
            }
        }
        let places = if self.allowed.read_only { &mut read } else { &mut write };
        places.extend(self.git.apart().into_iter().flatten().map(Path::to_owned));
        (read, write)
    }

    /// Whether something lies over what is hidden.
    pub(super) fn has_masks(&self) -> bool {
        self.mounts.iter().any(|mount| matches!(mount.what, What::NoFolder | What::NoFile))
    }

    /// The folder that is seen as `/tmp`.
    pub(super) fn temporary(&self) -> PathBuf {
        self.own.temporary()
    }

    /// The workspace.
    pub(super) fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The private HOME.
    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// The file with the filter of system calls, if there is one for this architecture.
    pub(super) fn filter(&self) -> Option<PathBuf> {
        self.own.filter()
    }

    /// Variables that say where things are in the view.
    pub(super) fn variables(&self) -> &[(&'static str, OsString)] {
        &self.variables
    }

    /// The number of the user to whom the workspace belongs.
    pub(super) fn owner(&self) -> Option<u32> {
        fs_err::metadata(&self.workspace).ok().map(|facts| facts.uid())
    }

    /// What is let through.
    pub(super) fn allowed(&self) -> &WallsAllowed {
        &self.allowed
    }

    /// For people: what is seen, and what did not go as it was wanted. `tmp`: whether `/tmp` is seen as well.
    pub(super) fn describe(&self, tmp: bool) -> String {
        let allowed = &self.allowed;
        let workspace = if allowed.read_only { "read" } else { "changed" };
        let network = if allowed.network { "the network" } else { "no network" };
        let mut parts = vec![
            format!("the workspace can be {workspace}"),
            "the system and toolchains can be read".to_owned(),
            if tmp { "a private HOME and /tmp" } else { "a private HOME" }.to_owned(),
            network.to_owned(),
        ];
        let named = [("also read", &allowed.read), ("also changed", &allowed.write)];
        parts.extend(
            named
                .iter()
                .filter(|(_, paths)| !paths.is_empty())
                .map(|(how, paths)| format!("{how}: {}", paths.join(", "))),
        );
        parts.extend(self.git.apart().map(|[_, common]| format!("its repository in {}", common.display())));
        parts.extend(self.remarks.iter().cloned());
        parts.join("; ")
    }
}

impl Sight {
    /// What is put over itself in the workspace: where, and whether it can be changed. The folders that these lie in can
    /// themselves be changed by a program that runs already, so it has to be looked whether they came where they should.
    pub(super) fn held(&self) -> Vec<(&Path, bool)> {
        let within =
            |mount: &&Mount| mount.place.starts_with(&self.workspace) && mount.place != self.workspace;
        let itself = self.mounts.iter().filter(within).filter(|mount| mount.source() == Some(&mount.place));
        itself.map(|mount| (&*mount.place, matches!(mount.what, What::Write(_)))).collect()
    }

    /// The workspace.
    pub(super) fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Options of bubblewrap that put nothing over files of the workspace. What is not there any more is left out: bubblewrap
    /// would make it.
    pub(super) fn covers(&self, files: &[PathBuf]) -> Vec<OsString> {
        let is_there = |file: &&PathBuf| {
            file.starts_with(&self.workspace)
                && fs_err::symlink_metadata(file).is_ok_and(|facts| facts.is_file())
        };
        let cover = |file: &PathBuf| ["--ro-bind".into(), self.nothing.clone().into(), file.clone().into()];
        files.iter().filter(is_there).flat_map(cover).collect()
    }

    /// Options of bubblewrap that build it.
    pub(super) fn options(&self) -> Vec<OsString> {
        let mut options = Vec::new();
        let mut add = |words: &[&dyn AsRef<OsStr>]| {
            options.extend(words.iter().map(|word| word.as_ref().to_owned()));
        };
        let root = Path::new("/");
        let has_root = self.mounts.iter().any(|mount| mount.place == root);
        if has_root {
            add(&[&"--ro-bind", &"/", &"/"]);
        } else {
            add(&[&"--dir", &"/run", &"--dir", &"/var", &"--symlink", &"../tmp", &"/var/tmp"]);
        }
        for Mount { place, what } in self.mounts.iter().filter(|mount| mount.place != root) {
            match what {
                What::Read(source) => add(&[&"--ro-bind", source, place]),
                What::Write(source) => add(&[&"--bind", source, place]),
                What::NoFolder => add(&[&"--tmpfs", place]),
                What::NoFile => add(&[&"--ro-bind", &self.nothing, place]),
                What::Link(target) if !has_root => add(&[&"--symlink", target, place]),
                What::Link(_) => {}
                What::Processes => add(&[&"--proc", place]),
                What::Devices => add(&[&"--dev", place]),
            }
        }
        // Last, since folders were made in them until here.
        for mount in self.mounts.iter().filter(|mount| mount.what == What::NoFolder) {
            add(&[&"--remount-ro", &mount.place]);
        }
        add(&[&"--remount-ro", &"/", &"--hostname", &HOSTNAME]);
        options
    }
}

/// Whether a mount is to put at a link, within a folder that is seen as it is, what the link leads to anyway: nothing can be
/// put at a link.
fn is_seen_link(mount: &Mount, mounts: &[Mount]) -> bool {
    let What::Read(source) = &mount.what else { return false };
    let is_around = |other: &&Mount| other.place != mount.place && mount.place.starts_with(&other.place);
    let inner = mounts.iter().filter(is_around).max_by_key(|other| other.place.components().count());
    let is_as_it_is = inner.is_some_and(|inner| inner.source() == Some(&inner.place));
    is_as_it_is && *source != mount.place && canonical(&mount.place) == *source
}

fn make_home(home: &Path) -> io::Result<()> {
    if !home.is_dir() {
        fs_err::create_dir_all(home)?;
        fs_err::set_permissions(home, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// What lies over hidden files and folders where they would be seen.
fn masks(mounts: &[Mount], hidden: &[PathBuf], remarks: &mut Vec<String>) -> Vec<Mount> {
    let mut masks = Vec::new();
    for path in hidden {
        for mount in mounts {
            let Some(place) = mount.place_of(path).filter(|place| *place != mount.place) else { continue };
            let is_between = |other: &Mount| {
                other.place != mount.place
                    && other.place.starts_with(&mount.place)
                    && place.starts_with(&other.place)
            };
            if !mounts.iter().any(is_between) {
                masks.extend(mask(mount, path, place, remarks));
            }
        }
    }
    masks
}

fn mask(mount: &Mount, path: &Path, place: PathBuf, remarks: &mut Vec<String>) -> Option<Mount> {
    match fs_err::metadata(path) {
        Ok(facts) if facts.is_dir() => return Some(Mount { place, what: What::NoFolder }),
        Ok(_) => return Some(Mount { place, what: What::NoFile }),
        Err(_) if matches!(mount.what, What::Read(_)) => return None,
        Err(_) => {}
    }
    // It is not there, and must not be put there: then nothing is put next to it either.
    let there = path.ancestors().find(|folder| folder.exists())?;
    let place = mount.place_of(there).filter(|place| *place != mount.place);
    if place.is_none() {
        remarks.push(format!("programs could make {}, which is not there", path.display()));
    }
    Some(Mount { place: place?, what: What::Read(there.to_owned()) })
}

/// With links resolved, as far as it is there.
fn canonical(path: &Path) -> PathBuf {
    fs_err::canonicalize(path).unwrap_or_else(|_| path.components().collect())
}
