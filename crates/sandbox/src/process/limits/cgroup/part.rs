//! The group of one command in one tree of control groups: a folder, and the files in it.

use std::io;
use std::path::{Path, PathBuf};

use super::super::super::mark::Scope;
use super::super::{Broken, Limits, Share};
use super::Controllers;

/// How deep groups are followed that a command made within its own.
const DEPTH: usize = 8;
/// How often the folder of a session is made, which goes when the last command of the session leaves it.
const TRIES: usize = 16;

/// The folder of the groups of this process in one tree.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) folder: PathBuf,
    pub(super) version: u8,
    pub(super) controllers: Controllers,
}

/// The folder of a command's group.
#[derive(Debug)]
pub(super) struct Part {
    folder: PathBuf,
    version: u8,
    controllers: Controllers,
}

impl Part {
    /// Makes it, in that of the command's session, which is made as well.
    pub(super) fn make(tree: &Tree, command: &Scope, limits: &Limits) -> io::Result<Self> {
        let session = tree.folder.join(command.parent().folder_name());
        let folder = session.join(command.folder_name());
        for _ in 0..TRIES {
            match fs_err::create_dir(&session) {
                Ok(()) => tree.set(&session, limits.of_session())?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            let made = tree.enable_below(&session).and_then(|()| fs_err::create_dir(&folder));
            match made {
                Ok(()) => {
                    let part = Self { folder, version: tree.version, controllers: tree.controllers };
                    let set = tree.set(&part.folder, limits.of_command());
                    // A command ends as a whole, also when it is that of its session that takes too much.
                    let whole = part.folder.join("memory.oom.group");
                    if whole.exists() {
                        let _ = fs_err::write(whole, "1");
                    }
                    if set.is_err() {
                        part.remove();
                    }
                    return set.map(|()| part);
                }
                // Another command's end took it away meanwhile.
                Err(_) if !session.exists() => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("{} does not stay", session.display())))
    }

    /// Where a process writes its number to get in.
    pub(super) fn members_file(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// The numbers of all processes in it.
    pub(super) fn members(&self) -> Vec<i32> {
        let mut members = Vec::new();
        for folder in with_those_below(&self.folder, DEPTH) {
            let text = fs_err::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            members.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
        }
        members
    }

    pub(super) fn controllers(&self) -> Controllers {
        self.controllers
    }

    /// What a process was refused, or ended for: more tasks, more memory.
    pub(super) fn broken(&self) -> Option<Broken> {
        let killed = if self.version == 2 { "memory.events" } else { "memory.oom_control" };
        let memory = || self.controllers.memory && self.counts(killed, "oom_kill");
        let tasks = || self.controllers.tasks && self.counts("pids.events", "max");
        // What is out of memory makes no more processes, so the other is the cause only where this is not.
        if memory() { Some(Broken::Memory) } else { tasks().then_some(Broken::Tasks) }
    }

    /// Whether a file of lines with a name and a number has another number than 0 beside this name.
    fn counts(&self, file: &str, name: &str) -> bool {
        let text = fs_err::read_to_string(self.folder.join(file)).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        count.is_some_and(|count| count.trim() != "0")
    }

    /// Lets no new process in, and kills those in it at once where the kernel can.
    pub(super) fn close(&self) {
        // What fails here is made up for by killing one after the other.
        if self.controllers.tasks {
            let _ = fs_err::write(self.folder.join("pids.max"), "0");
        }
        let kill = self.folder.join("cgroup.kill");
        if kill.exists() {
            let _ = fs_err::write(kill, "1");
        }
    }

    /// Removes it if no process is in it, and that of the session if it was the last one there. Whether it is gone.
    pub(super) fn remove(&self) -> bool {
        let gone = remove(&self.folder).is_ok() || !self.folder.exists();
        if let Some(session) = self.folder.parent().filter(|_| gone) {
            // Others of the session are still there, more often than not.
            let _ = fs_err::remove_dir(session);
        }
        gone
    }
}

impl Tree {
    /// Sets the limits of a group.
    fn set(&self, group: &Path, share: Share) -> io::Result<()> {
        if self.controllers.tasks {
            fs_err::write(group.join("pids.max"), share.tasks.to_string())?;
        }
        let Some(memory) = share.memory.filter(|_| self.controllers.memory) else { return Ok(()) };
        let memory = memory.to_string();
        // What is not there on each kernel is set where it is.
        let also = |file: &str, value: &str| {
            let file = group.join(file);
            if file.exists() {
                let _ = fs_err::write(file, value);
            }
        };
        if self.version == 2 {
            fs_err::write(group.join("memory.max"), memory)?;
            also("memory.swap.max", "0");
        } else {
            // Older kernels count those below only when they are told to.
            also("memory.use_hierarchy", "1");
            fs_err::write(group.join("memory.limit_in_bytes"), &memory)?;
            also("memory.memsw.limit_in_bytes", &memory);
        }
        Ok(())
    }

    fn enable_below(&self, session: &Path) -> io::Result<()> {
        if self.version == 2 { enable(session, self.controllers) } else { Ok(()) }
    }
}

/// Lets the groups below one of version 2 have limits, unless it does already.
pub(super) fn enable(group: &Path, controllers: Controllers) -> io::Result<()> {
    let file = group.join("cgroup.subtree_control");
    let there = fs_err::read_to_string(&file)?;
    let wanted = [("pids", controllers.tasks), ("memory", controllers.memory)];
    let missing = wanted
        .into_iter()
        .filter(|(name, wanted)| *wanted && !there.split_whitespace().any(|it| it == *name));
    let missing: Vec<String> = missing.map(|(name, _)| format!("+{name}")).collect();
    if missing.is_empty() { Ok(()) } else { fs_err::write(&file, missing.join(" ")) }
}

/// Removes a group with those below it, which takes that no process is in them.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Plain folders in place of those of the kernel.
    fn tree(folder: &Path, version: u8) -> Tree {
        Tree { folder: folder.to_owned(), version, controllers: Controllers { tasks: true, memory: true } }
    }

    fn limits() -> Limits {
        Limits { tasks: 64, memory: Some(1 << 30), session_memory: Some(2 << 30), ..Limits::default() }
    }

    #[test]
    fn a_group_of_the_second_version_has_its_limits_in_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let tree = tree(folder.path(), 2);
        let command = Scope::new().within("ses").command();
        let session = folder.path().join(command.parent().folder_name());
        fs_err::create_dir(&session).unwrap();
        fs_err::write(session.join("cgroup.subtree_control"), "cpu\n").unwrap();
        for file in ["memory.swap.max", "memory.oom.group"] {
            fs_err::write(session.join(file), "").unwrap();
        }
        tree.set(&session, limits().of_session()).unwrap();
        let part = Part::make(&tree, &command, &limits()).unwrap();
        let read = |folder: &Path, file: &str| fs_err::read_to_string(folder.join(file)).unwrap_or_default();
        assert_eq!(read(&session, "cgroup.subtree_control"), "+pids +memory");
        let in_session = ["pids.max", "memory.max", "memory.swap.max", "memory.oom.group"];
        assert_eq!(in_session.map(|file| read(&session, file)), ["256", "2147483648", "0", ""]);
        assert_eq!(["pids.max", "memory.max"].map(|file| read(&part.folder, file)), ["64", "1073741824"]);
        assert_eq!(part.broken(), None);
        fs_err::write(part.folder.join("pids.events"), "max 3\n").unwrap();
        assert_eq!(part.broken(), Some(Broken::Tasks));
        fs_err::write(part.folder.join("memory.events"), "low 0\nhigh 0\nmax 9\noom 1\noom_kill 0\n")
            .unwrap();
        assert_eq!(part.broken(), Some(Broken::Tasks));
        fs_err::write(part.folder.join("memory.events"), "oom 1\noom_kill 2\noom_group_kill 1\n").unwrap();
        assert_eq!(part.broken(), Some(Broken::Memory));
        fs_err::write(part.folder.join("cgroup.kill"), "").unwrap();
        part.close();
        assert_eq!(["pids.max", "cgroup.kill"].map(|file| read(&part.folder, file)), ["0", "1"]);
    }

    #[test]
    fn a_group_of_the_first_version_has_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let command = Scope::new().command();
        let part = Part::make(&tree(folder.path(), 1), &command, &limits()).unwrap();
        let limit = part.folder.join("memory.limit_in_bytes");
        assert_eq!(fs_err::read_to_string(limit).unwrap(), "1073741824");
        let control = part.folder.join("memory.oom_control");
        fs_err::write(&control, "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n").unwrap();
        assert_eq!(part.broken(), None);
        fs_err::write(&control, "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n").unwrap();
        assert_eq!(part.broken(), Some(Broken::Memory));
        let without = Limits { memory: None, session_memory: None, ..limits() };
        let other = Part::make(&tree(folder.path(), 1), &command.parent().command(), &without).unwrap();
        assert!(!other.folder.join("memory.limit_in_bytes").exists());
    }

    #[test]
    fn an_empty_group_goes_and_so_does_that_of_its_session() {
        let folder = tempfile::tempdir().unwrap();
        let bare = Tree { controllers: Controllers::default(), ..tree(folder.path(), 1) };
        let session = Scope::new();
        let [one, two] = [(); 2].map(|()| Part::make(&bare, &session.command(), &limits()).unwrap());
        fs_err::create_dir_all(one.folder.join("made/by/it")).unwrap();
        assert!(one.remove() && two.folder.is_dir());
        assert!(two.remove());
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 0);
    }
}
