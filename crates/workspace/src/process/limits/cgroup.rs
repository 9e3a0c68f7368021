//! A control group for each command, with a limit of its tasks.
//!
//! The groups of this process lie in one folder, which lies where this process may make one: below its own group
//! (version 1), or beside it (version 2, where a group that holds processes has no groups with limits below it).

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::super::mark::Scope;
use super::super::{program, tree};

/// How often it is looked what commands left behind.
const LOOK_FOR_LEFT: Duration = Duration::from_secs(1);

/// How deep groups are followed that a command made within its own.
const DEPTH: usize = 8;
/// In the names of the folders of all such processes, before their numbers.
const PREFIX: &str = "playhouse-";

/// The folder of the groups of this process.
#[derive(Debug)]
pub(in super::super) struct Groups {
    folder: PathBuf,
    version: u8,
    left: Arc<Left>,
}

/// The group of one command. Dropped, its folder is removed as soon as no process is in it; until then it is watched.
#[derive(Debug)]
pub(in super::super) struct CommandGroup {
    folder: PathBuf,
    command: Scope,
    left: Arc<Left>,
}

/// Groups of commands that ended and left processes behind.
#[derive(Debug, Default)]
struct Left {
    groups: Mutex<Vec<(PathBuf, Scope)>>,
    /// Whether a thread watches them.
    is_watched: AtomicBool,
}

/// A folder that may be able to hold groups.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    folder: PathBuf,
    version: u8,
}

impl Groups {
    /// Makes the folder and tries it out with a command.
    ///
    /// # Errors
    /// Why there can be none.
    pub(super) fn find() -> Result<Self, String> {
        let read = |file: &str| fs_err::read_to_string(file).map_err(|error| error.to_string());
        let places = places(&read("/proc/mounts")?, &read("/proc/self/cgroup")?);
        let mut reason = "no control groups with a limit of processes are mounted".to_owned();
        for place in places {
            match Self::make(&place) {
                Ok(groups) => return Ok(groups),
                Err(error) => reason = error.to_string(),
            }
        }
        Err(reason)
    }

    fn make(place: &Place) -> io::Result<Self> {
        if place.version == 2 {
            let has = |file: &str| -> io::Result<bool> {
                let controllers = fs_err::read_to_string(place.folder.join(file))?;
                Ok(controllers.split_whitespace().any(|controller| controller == "pids"))
            };
            if !has("cgroup.controllers")? {
                return Err(io::Error::other("the controller of processes is not there"));
            }
            if !has("cgroup.subtree_control")? {
                fs_err::write(place.folder.join("cgroup.subtree_control"), "+pids")?;
            }
        }
        remove_those_of_dead_processes(&place.folder);
        let run: String = Scope::run().as_str().chars().take(8).collect();
        let name = format!("{PREFIX}{}-{run}", std::process::id());
        let folder = place.folder.join(name);
        fs_err::create_dir(&folder)?;
        let groups = Self { folder, version: place.version, left: Arc::default() };
        let tried = groups.try_out();
        if tried.is_err() {
            // An empty folder that stays does no harm.
            let _ = remove(&groups.folder);
        }
        tried.map(|()| groups)
    }

    /// Puts a process into a group.
    fn try_out(&self) -> io::Result<()> {
        if self.version == 2 {
            fs_err::write(self.folder.join("cgroup.subtree_control"), "+pids")?;
        }
        let group = self.command(&Scope::run().within("trial"), super::FEWEST_TASKS)?;
        let mut shell = program(Path::new("/bin/sh"));
        shell.args(["-c", "echo $$ > \"$1\"", "playhouse"]).arg(group.members_file());
        shell.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match shell.status()?.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("no process can be put into {}", group.folder.display()))),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn version(&self) -> u8 {
        self.version
    }

    /// A group for a command, with `most` tasks.
    pub(super) fn command(&self, command: &Scope, most: u32) -> io::Result<CommandGroup> {
        let folder = self.folder.join(command.folder_name());
        fs_err::create_dir(&folder)?;
        let group = CommandGroup { folder, command: command.clone(), left: Arc::clone(&self.left) };
        fs_err::write(group.folder.join("pids.max"), most.to_string())?;
        Ok(group)
    }

    /// The groups of those commands of a scope that ended and left processes behind.
    pub(super) fn within(&self, scope: &Scope) -> Vec<Arc<CommandGroup>> {
        let group =
            |(folder, command)| Arc::new(CommandGroup { folder, command, left: Arc::clone(&self.left) });
        self.left.take(|_, command| scope.holds(command)).into_iter().map(group).collect()
    }
}

impl Left {
    fn groups(&self) -> MutexGuard<'_, Vec<(PathBuf, Scope)>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, is_wanted: impl Fn(&Path, &Scope) -> bool) -> Vec<(PathBuf, Scope)> {
        let mut groups = self.groups();
        let (taken, others) = groups.drain(..).partition(|(folder, command)| is_wanted(folder, command));
        *groups = others;
        taken
    }

    fn add(self: &Arc<Self>, folder: PathBuf, command: Scope) {
        self.groups().push((folder, command));
        if !self.is_watched.swap(true, Ordering::SeqCst) {
            let left = Arc::clone(self);
            let spawned = std::thread::Builder::new().name("watch-left".into()).spawn(move || left.watch());
            if let Err(error) = spawned {
                self.is_watched.store(false, Ordering::SeqCst);
                tracing::warn!(%error, "what a command left behind is not watched");
            }
        }
    }

    /// Until none is left: removes the folders of those that are gone, and ends what wants too many processes. A fork
    /// bomb goes off when its shell has ended.
    fn watch(self: &Arc<Self>) {
        loop {
            std::thread::sleep(LOOK_FOR_LEFT);
            self.groups().retain(|(folder, _)| remove(folder).is_err() && folder.exists());
            for (folder, command) in self.take(|folder, _| was_full(folder)) {
                let scope = command.clone();
                tree::kill_group(scope, CommandGroup { folder, command, left: Arc::clone(self) });
            }
            let groups = self.groups();
            if groups.is_empty() {
                // Before the lock goes, so that whoever adds one sees it.
                self.is_watched.store(false, Ordering::SeqCst);
                return;
            }
        }
    }
}

impl CommandGroup {
    /// Where a process writes its number to get in.
    pub(super) fn members_file(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// The numbers of all processes in it.
    pub(in super::super) fn members(&self) -> Vec<i32> {
        let mut members = Vec::new();
        for folder in with_those_below(&self.folder, DEPTH) {
            let text = fs_err::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            members.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
        }
        members
    }

    /// Whether a process was refused since there were too many.
    pub(super) fn was_full(&self) -> bool {
        was_full(&self.folder)
    }

    /// Lets no new process in, and kills those in it at once where the kernel can.
    pub(in super::super) fn close(&self) {
        // What fails here is made up for by killing one after the other.
        let _ = fs_err::write(self.folder.join("pids.max"), "0");
        let kill = self.folder.join("cgroup.kill");
        if kill.exists() {
            let _ = fs_err::write(kill, "1");
        }
    }
}

impl Drop for CommandGroup {
    fn drop(&mut self) {
        if remove(&self.folder).is_err() && self.folder.exists() {
            self.left.add(std::mem::take(&mut self.folder), self.command.clone());
        }
    }
}

fn was_full(folder: &Path) -> bool {
    let events = fs_err::read_to_string(folder.join("pids.events")).unwrap_or_default();
    events.lines().any(|line| line.strip_prefix("max ").is_some_and(|count| count.trim() != "0"))
}

/// Removes a group with those below it, which takes that no process is in them.
fn remove(folder: &Path) -> io::Result<()> {
    with_those_below(folder, DEPTH).iter().rev().try_for_each(fs_err::remove_dir)
}

/// A folder, then all below it, each before those that it holds.
fn with_those_below(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    if depth > 0 {
        let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        below.for_each(|entry| folders.extend(with_those_below(&entry.path(), depth - 1)));
    }
    folders
}

/// A process that was killed together with its watchdog leaves its folder.
fn remove_those_of_dead_processes(place: &Path) {
    for entry in fs_err::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let is_dead = number
            .is_some_and(|number| number.parse::<u32>().is_ok() && !Path::new("/proc").join(number).exists());
        if is_dead {
            // One that still holds processes stays.
            let _ = remove(&entry.path());
        }
    }
}

/// Folders that may hold groups, the best first. `mounts` is `/proc/mounts`, `own` is `/proc/self/cgroup`.
fn places(mounts: &str, own: &str) -> Vec<Place> {
    let own_path = |controller: Option<&str>| {
        own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let fits = match controller {
                Some(controller) => controllers.split(',').any(|name| name == controller),
                None => controllers.is_empty(),
            };
            fits.then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let mut places = Vec::new();
    for mount in mounts.lines() {
        let mut fields = mount.split(' ').skip(1);
        let (Some(folder), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let mount = Path::new(folder);
        if kind == "cgroup" && options.split(',').any(|option| option == "pids") {
            if let Some(own) = own_path(Some("pids")).filter(|own| !own.is_empty()) {
                places.push(Place { folder: mount.join(own), version: 1 });
            }
            // In a container the path may be the one outside of it.
            places.push(Place { folder: mount.to_owned(), version: 1 });
        } else if kind == "cgroup2" {
            let own = own_path(None).unwrap_or_default();
            let own = if own.is_empty() { mount.to_owned() } else { mount.join(own) };
            let above = own.ancestors().take_while(|folder| folder.starts_with(mount));
            places.extend(above.map(|folder| Place { folder: folder.to_owned(), version: 2 }));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(mounts: &str, own: &str) -> Vec<String> {
        let shown = |place: Place| format!("{} {}", place.version, place.folder.display());
        places(mounts, own).into_iter().map(shown).collect()
    }

    #[test]
    fn places_of_the_first_version() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/pids cgroup rw,nosuid,pids 0 0\n";
        let own = "9:name=systemd:/x\n8:pids:/user/a:b\n1:cpu:/\n0::/\n";
        assert_eq!(shown(mounts, own), ["1 /sys/fs/cgroup/pids/user/a:b", "1 /sys/fs/cgroup/pids"]);
        for own in ["", "8:pids:/\n"] {
            assert_eq!(shown(mounts, own), ["1 /sys/fs/cgroup/pids"]);
        }
    }

    #[test]
    fn places_of_the_second_version_go_up_from_the_own_group() {
        let mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        let own = "0::/user.slice/app.slice/one.scope\n";
        let expected = [
            "2 /sys/fs/cgroup/user.slice/app.slice/one.scope",
            "2 /sys/fs/cgroup/user.slice/app.slice",
            "2 /sys/fs/cgroup/user.slice",
            "2 /sys/fs/cgroup",
        ];
        assert_eq!(shown(mounts, own), expected);
        assert_eq!(shown("", own), Vec::<String>::new());
        assert_eq!(shown("nonsense\n\n/dev/x / ext4 rw 0 0", "nonsense"), Vec::<String>::new());
    }
}
