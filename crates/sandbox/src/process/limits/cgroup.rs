//! A control group for each command, in one for its session, with limits of tasks and of memory.
//!
//! The groups of this process lie in one folder, which lies where this process may make one: below its own group
//! (version 1), or beside it (version 2, where a group that holds processes has no groups with limits below it). Version 1
//! has a tree of folders for each controller: there a command has a group in each.

mod part;
mod place;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::super::mark::Scope;
use super::super::{program, tree};
use super::{Broken, Limits};
use part::{Part, Tree, remove};
use place::{Place, places};

/// How often it is looked what commands left behind.
const LOOK_FOR_LEFT: Duration = Duration::from_secs(1);
/// In the names of the folders of all such processes, before their numbers.
const PREFIX: &str = "playhouse-";

/// What a control group bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Controllers {
    pub(super) tasks: bool,
    pub(super) memory: bool,
}

/// The folders of the groups of this process.
#[derive(Debug)]
pub(in super::super) struct Groups {
    /// One or two.
    trees: Vec<Tree>,
    left: Arc<Left>,
}

/// The group of one command. Dropped, its folders are removed as soon as no process is in it; until then it is watched.
#[derive(Debug)]
pub(in super::super) struct CommandGroup {
    /// One in each tree.
    parts: Vec<Part>,
    command: Scope,
    left: Arc<Left>,
}

/// Groups of commands that ended and left processes behind.
#[derive(Debug, Default)]
struct Left {
    groups: Mutex<Vec<(Vec<Part>, Scope)>>,
    /// Whether a thread watches them.
    is_watched: AtomicBool,
}

impl Groups {
    /// Makes the folders and tries them out with a command.
    ///
    /// # Errors
    /// Why there can be none.
    pub(super) fn find() -> Result<Self, String> {
        let read = |file: &str| fs_err::read_to_string(file).map_err(|error| error.to_string());
        let mut reason = "no control groups for processes or memory are mounted".to_owned();
        let mut groups = Self { trees: Vec::new(), left: Arc::default() };
        for place in places(&read("/proc/mounts")?, &read("/proc/self/cgroup")?) {
            let found = groups.controllers();
            let wanted = Controllers { tasks: !found.tasks, memory: !found.memory };
            match Self::make(&place, place.offers().and(wanted)) {
                Ok(Some(tree)) => groups.trees.push(tree),
                Ok(None) => {}
                Err(error) => reason = error.to_string(),
            }
        }
        if groups.trees.is_empty() { Err(reason) } else { Ok(groups) }
    }

    /// `None` when the place has nothing of what is wanted.
    fn make(place: &Place, wanted: Controllers) -> io::Result<Option<Tree>> {
        if wanted == Controllers::default() {
            return Ok(None);
        }
        if place.version == 2 {
            part::enable(&place.folder, wanted)?;
        }
        remove_those_of_dead_processes(&place.folder);
        let run: String = Scope::run().as_str().chars().take(8).collect();
        let folder = place.folder.join(format!("{PREFIX}{}-{run}", std::process::id()));
        fs_err::create_dir(&folder)?;
        let tree = Tree { folder, version: place.version, controllers: wanted };
        let tried = Self::try_out(&tree);
        if tried.is_err() {
            // An empty folder that stays does no harm.
            let _ = remove(&tree.folder);
        }
        tried.map(|()| Some(tree))
    }

    /// Puts a process into a group.
    fn try_out(tree: &Tree) -> io::Result<()> {
        if tree.version == 2 {
            part::enable(&tree.folder, tree.controllers)?;
        }
        let alone = Self { trees: vec![tree.clone()], left: Arc::default() };
        let group = alone.command(&Scope::run().within("trial").command(), &Limits::default())?;
        let mut shell = program(Path::new("/bin/sh"));
        shell.args(["-c", "for file; do echo $$ > \"$file\" || exit; done", "playhouse"]);
        shell.args(group.members_files());
        shell.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match shell.status()?.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("no process can be put into {}", tree.folder.display()))),
        }
    }

    /// The folders of all trees.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        self.trees.iter().map(|tree| tree.folder.clone()).collect()
    }

    /// What is bounded by any of the trees.
    pub(super) fn controllers(&self) -> Controllers {
        self.trees.iter().fold(Controllers::default(), |all, tree| all.or(tree.controllers))
    }

    /// The folder and the version of the tree that bounds something.
    pub(super) fn bounding(&self, what: fn(Controllers) -> bool) -> Option<(&Path, u8)> {
        let tree = self.trees.iter().find(|tree| what(tree.controllers))?;
        Some((&tree.folder, tree.version))
    }

    /// A group for a command, in that of its session.
    pub(super) fn command(&self, command: &Scope, limits: &Limits) -> io::Result<CommandGroup> {
        let mut group =
            CommandGroup { parts: Vec::new(), command: command.clone(), left: Arc::clone(&self.left) };
        for tree in &self.trees {
            group.parts.push(Part::make(tree, command, limits)?);
        }
        Ok(group)
    }

    /// The groups of those commands of a scope that ended and left processes behind.
    pub(super) fn within(&self, scope: &Scope) -> Vec<Arc<CommandGroup>> {
        let group =
            |(parts, command)| Arc::new(CommandGroup { parts, command, left: Arc::clone(&self.left) });
        self.left.take(|_, command| scope.holds(command)).into_iter().map(group).collect()
    }
}

impl Controllers {
    fn or(self, other: Self) -> Self {
        Self { tasks: self.tasks || other.tasks, memory: self.memory || other.memory }
    }

    fn and(self, other: Self) -> Self {
        Self { tasks: self.tasks && other.tasks, memory: self.memory && other.memory }
    }
}

impl Left {
    fn take(&self, is_wanted: impl Fn(&[Part], &Scope) -> bool) -> Vec<(Vec<Part>, Scope)> {
        let mut groups = self.groups.lock();
        let (taken, others) = groups.drain(..).partition(|(parts, command)| is_wanted(parts, command));
        *groups = others;
        taken
    }

    fn add(self: &Arc<Self>, parts: Vec<Part>, command: Scope) {
        self.groups.lock().push((parts, command));
        if !self.is_watched.swap(true, Ordering::SeqCst) {
            let left = Arc::clone(self);
            let spawned = std::thread::Builder::new().name("watch-left".into()).spawn(move || left.watch());
            if let Err(error) = spawned {
                self.is_watched.store(false, Ordering::SeqCst);
                tracing::warn!(%error, "what a command left behind is not watched");
            }
        }
    }

    /// Until none is left: removes the folders of those that are gone, and ends what wants too much. A fork bomb goes off
    /// when its shell has ended.
    fn watch(self: &Arc<Self>) {
        loop {
            std::thread::sleep(LOOK_FOR_LEFT);
            self.groups.lock().retain_mut(|(parts, _)| !remove_all(parts));
            for (parts, command) in self.take(|parts, _| parts.iter().any(|part| part.broken().is_some())) {
                let scope = command.clone();
                tree::kill_group(scope, CommandGroup { parts, command, left: Arc::clone(self) });
            }
            let groups = self.groups.lock();
            if groups.is_empty() {
                // Before the lock goes, so that whoever adds one sees it.
                self.is_watched.store(false, Ordering::SeqCst);
                return;
            }
        }
    }
}

/// Removes the folders that can be removed. Whether none is left.
fn remove_all(parts: &mut Vec<Part>) -> bool {
    parts.retain(|part| !part.remove());
    parts.is_empty()
}

impl CommandGroup {
    /// Where a process writes its number to get in.
    pub(super) fn members_files(&self) -> impl Iterator<Item = PathBuf> {
        self.parts.iter().map(Part::members_file)
    }

    /// The numbers of all processes in it. One that is in several trees is there as often.
    pub(in super::super) fn members(&self) -> Vec<i32> {
        self.parts.iter().flat_map(Part::members).collect()
    }

    /// What it bounds.
    pub(super) fn controllers(&self) -> Controllers {
        self.parts.iter().fold(Controllers::default(), |all, part| all.or(part.controllers()))
    }

    /// What a process of it was refused, or ended for.
    pub(super) fn broken(&self) -> Option<Broken> {
        self.parts.iter().find_map(Part::broken)
    }

    /// Lets no new process in, and kills those in it at once where the kernel can.
    pub(in super::super) fn close(&self) {
        self.parts.iter().for_each(Part::close);
    }
}

impl Drop for CommandGroup {
    fn drop(&mut self) {
        if !remove_all(&mut self.parts) {
            self.left.add(std::mem::take(&mut self.parts), self.command.clone());
        }
    }
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
