//! The folders on disk that walls need: what the programs of a session see as `/tmp`, and small files that are the same for all.
//!
//! All of a process lie in one folder among the temporary files, whose lock the process holds. So whoever starts later can tell
//! the folder of a process that was killed from that of one that lives, and removes it. What is the same for all sessions lies
//! there once, so that a session has a handful of entries, and little is to be removed when it goes.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::process::{Pid, geteuid, test_kill_process};
use tempfile::TempDir;

use super::arrange::{Mount, What};
use super::system::{self, Setting};

/// How the folder of a process is called; its number and something random follow.
const NAME: &str = "playhouse-walls-";
/// Held by the process to which a folder belongs.
const LOCK: &str = "lock";
/// The same, before it is held.
const UNNAMED: &str = "lock.new";
/// The file with the filter of system calls.
const FILTER: &str = "filter";
/// The empty file that lies over hidden ones.
const NOTHING: &str = "nothing";
/// The most entries of the folder for temporary files that one start looks at.
const LOOKED_AT: usize = 100_000;
/// After this time a folder without a lock is one that was cut off while it was made.
const NEW: Duration = Duration::from_secs(3_600);
/// So many files are removed by whoever drops the walls; more by a thread of their own.
const FEW: usize = 32;

/// The folder of this process.
#[derive(Debug)]
struct Run {
    folder: TempDir,
    /// Locked as long as this lives.
    _lock: File,
}

/// The folder of this process, as long as something in it is needed.
static RUN: Mutex<Weak<Run>> = Mutex::new(Weak::new());
/// What sessions see alike, as long as one of them does.
static ALIKE: Mutex<Vec<Weak<Alike>>> = Mutex::new(Vec::new());

impl Run {
    fn of_this_process() -> io::Result<Arc<Self>> {
        let mut run = RUN.lock();
        if let Some(run) = run.upgrade() {
            return Ok(run);
        }
        let new = Arc::new(Self::create(&std::env::temp_dir())?);
        *run = Arc::downgrade(&new);
        Ok(new)
    }

    fn create(place: &Path) -> io::Result<Self> {
        let prefix = format!("{NAME}{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(place)?;
        // It has its name only when it is locked, so that nobody takes the folder for one that was left.
        let unnamed = folder.path().join(UNNAMED);
        let lock = fs_err::File::create_new(&unnamed)?.into_file();
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs_err::rename(&unnamed, folder.path().join(LOCK))?;
        Ok(Self { folder, _lock: lock })
    }
}

/// Removes the folders of walls that processes left behind which were killed. Follows no links, and touches nothing of other
/// users. What cannot be removed stays. How many were removed. Blocks.
pub fn remove_leftovers() -> usize {
    sweep(&std::env::temp_dir())
}

fn sweep(place: &Path) -> usize {
    let Ok(entries) = fs_err::read_dir(place) else { return 0 };
    let left = entries.take(LOOKED_AT).flatten().map(|entry| entry.path()).filter(|path| is_left(path));
    // One that could be locked is nobody's: nobody takes a lock that was made by somebody else, but another sweep.
    left.filter(|path| remove(path).is_ok()).count()
}

/// Removes the folder of a process, its lock last: a removal that is cut off is gone on with by the next sweep.
fn remove(folder: &Path) -> io::Result<()> {
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == LOCK {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => fs_err::remove_dir_all(entry.path())?,
            false => fs_err::remove_file(entry.path())?,
        }
    }
    fs_err::remove_dir_all(folder)
}

/// Whether this is the folder of a process that has ended.
fn is_left(path: &Path) -> bool {
    let process = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(NAME));
    let process = process.and_then(|rest| rest.split_once('-')?.0.parse().ok()).and_then(Pid::from_raw);
    let Some(process) = process else { return false };
    // Of the entry itself, not of what a link leads to.
    let Ok(facts) = fs_err::symlink_metadata(path) else { return false };
    if !facts.is_dir() || facts.uid() != geteuid().as_raw() {
        return false;
    }
    let lock =
        rustix::fs::open(path.join(LOCK), OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    match lock {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
        Err(rustix::io::Errno::NOENT) => {
            let age = facts.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
            let is_gone = test_kill_process(process) == Err(rustix::io::Errno::SRCH);
            is_gone && age.is_some_and(|age| age > NEW)
        }
        Err(_) => false,
    }
}

/// A folder with what every session sees: settings of the system, an empty file, the filter of system calls.
#[derive(Debug)]
struct Alike {
    /// What the settings are made from.
    settings: Vec<Setting>,
    network: bool,
    mounts: Vec<Mount>,
    folder: TempDir,
    /// Goes after what is in it.
    _run: Arc<Run>,
}

impl Alike {
    /// That of other sessions, where these settings are the same, or a new one. `apart`: it is not for other sessions.
    fn of(network: bool, apart: bool) -> io::Result<Arc<Self>> {
        let settings = system::settings(network);
        if apart {
            return Ok(Arc::new(Self::create(settings, network)?));
        }
        let mut alike = ALIKE.lock();
        alike.retain(|alike| alike.strong_count() > 0);
        let known = alike.iter().filter_map(Weak::upgrade);
        if let Some(known) = { known }.find(|alike| alike.network == network && alike.settings == settings) {
            return Ok(known);
        }
        let new = Arc::new(Self::create(settings, network)?);
        alike.push(Arc::downgrade(&new));
        Ok(new)
    }

    fn create(settings: Vec<Setting>, network: bool) -> io::Result<Self> {
        let run = Run::of_this_process()?;
        let folder = tempfile::Builder::new().prefix("all-").tempdir_in(run.folder.path())?;
        let path = |name: &str| folder.path().join(name);
        fs_err::create_dir(path("etc"))?;
        let mounts = system::fill_etc(&path("etc"), &settings, network)?;
        fs_err::write(path(NOTHING), "")?;
        #[cfg(target_os = "linux")]
        if let Some(filter) = super::filter::bytes(super::filter::Sockets::InNamespace) {
            fs_err::write(path(FILTER), filter)?;
        }
        Ok(Self { settings, network, mounts, folder, _run: run })
    }
}

/// The folders of one session's walls. They live as long as this.
#[derive(Debug)]
pub(super) struct Folders {
    /// There until this is dropped.
    own: Option<TempDir>,
    path: PathBuf,
    alike: Arc<Alike>,
    run: Arc<Run>,
}

impl Drop for Folders {
    fn drop(&mut self) {
        let Some(own) = self.own.take() else { return };
        if is_small(own.path(), &mut 0) {
            drop(own);
            return;
        }
        let run = Arc::clone(&self.run);
        // Without a thread they are removed here all the same.
        let _ = std::thread::Builder::new().name("remove-tmp".into()).spawn(move || {
            drop(own);
            drop(run);
        });
    }
}

/// Whether a folder holds few files, with those that were counted before.
fn is_small(folder: &Path, count: &mut usize) -> bool {
    fs_err::read_dir(folder).into_iter().flatten().flatten().all(|entry| {
        *count += 1;
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        *count <= FEW && (!is_folder || is_small(&entry.path(), count))
    })
}

impl Folders {
    /// Makes those of a session whose programs have this HOME. `apart`: something of its own is put into its settings, so that
    /// they cannot be those of others.
    ///
    /// # Errors
    /// When they cannot be made.
    pub(super) fn create(home: &Path, network: bool, apart: bool) -> io::Result<Self> {
        let run = Run::of_this_process()?;
        let alike = Alike::of(network, apart)?;
        let own = tempfile::Builder::new().prefix("one-").tempdir_in(run.folder.path())?;
        let folders = Self { path: own.path().to_owned(), own: Some(own), alike, run };
        for name in ["tmp", "cargo"] {
            fs_err::create_dir(folders.path.join(name))?;
        }
        fs_err::write(folders.path.join("passwd"), system::users(home))?;
        Ok(folders)
    }

    /// What is put at `/etc`.
    pub(super) fn settings(&self) -> Vec<Mount> {
        let mut mounts = self.alike.mounts.clone();
        mounts.push(Mount { place: system::USERS.into(), what: What::Read(self.path.join("passwd")) });
        mounts
    }

    /// The empty file that lies over hidden ones.
    pub(super) fn nothing(&self) -> PathBuf {
        self.alike.folder.path().join(NOTHING)
    }

    /// The file with the filter of system calls, if there is one for this architecture.
    pub(super) fn filter(&self) -> Option<PathBuf> {
        let file = self.alike.folder.path().join(FILTER);
        file.exists().then_some(file)
    }

    /// The folder that is seen as `/tmp`.
    pub(super) fn temporary(&self) -> PathBuf {
        self.path.join("tmp")
    }

    /// Whether `path` lies in one of these.
    pub(super) fn hold(&self, path: &Path) -> bool {
        path.starts_with(&self.path) || path.starts_with(self.alike.folder.path())
    }

    /// Puts a folder of the session's own at a place, where programs can change it.
    pub(super) fn mount(&self, name: &str, place: &str) -> Mount {
        Mount { place: place.into(), what: What::Write(self.path.join(name)) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn entries(folder: &Path) -> BTreeSet<String> {
        let name = |entry: fs_err::DirEntry| entry.file_name().into_string().unwrap();
        fs_err::read_dir(folder).unwrap().map(|entry| name(entry.unwrap())).collect()
    }

    #[test]
    fn sessions_share_what_is_alike_and_each_has_few_files_of_its_own() {
        let home = Path::new("/data/home");
        let [one, two] =
            [home, Path::new("/data/other")].map(|home| Folders::create(home, false, false).unwrap());
        assert!(Arc::ptr_eq(&one.alike, &two.alike));
        assert!(one.alike.folder.path().join("etc/group").exists(), "there is something to share");
        for (folders, home) in [(&one, "/data/home:"), (&two, "/data/other:")] {
            assert_eq!(entries(&folders.path), ["cargo", "passwd", "tmp"].map(str::to_owned).into());
            let users = fs_err::read_to_string(folders.path.join("passwd")).unwrap();
            assert!(users.contains(home), "{users}");
            let settings = folders.settings();
            assert!(settings.iter().any(|mount| mount.source() == Some(&folders.path.join("passwd"))));
        }
        for (network, apart) in [(true, false), (false, true)] {
            let other = Folders::create(home, network, apart).unwrap();
            assert!(!Arc::ptr_eq(&one.alike, &other.alike));
        }
        let (own, alike) = (one.path.clone(), Arc::downgrade(&one.alike));
        let place = one.alike.folder.path().to_owned();
        drop(one);
        assert!(!own.exists() && place.exists(), "another one needs what is alike");
        drop(two);
        // Another test may need it at the moment.
        assert!(alike.strong_count() > 0 || !place.exists());
    }

    #[test]
    fn what_a_process_left_that_was_killed_goes_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let folder = |name: String, locked: bool, age: Duration| {
            let path = place.path().join(name);
            fs_err::create_dir_all(path.join("one-a/tmp")).unwrap();
            fs_err::os::unix::fs::symlink(place.path().join("precious"), path.join("one-a/tmp/link"))
                .unwrap();
            if locked {
                fs_err::write(path.join(LOCK), "").unwrap();
            }
            fs_err::File::open(&path).unwrap().file().set_modified(SystemTime::now() - age).unwrap();
            path
        };
        let precious = folder("precious".into(), true, NEW * 2);
        let gone = [
            folder(format!("{NAME}{dead}-a"), true, Duration::ZERO),
            folder(format!("{NAME}{dead}-b"), false, NEW * 2),
            // The number is that of another process by now.
            folder(format!("{NAME}{}-c", std::process::id()), true, Duration::ZERO),
        ];
        let lives = Run::create(place.path()).unwrap();
        let link = place.path().join(format!("{NAME}{dead}-link"));
        fs_err::os::unix::fs::symlink(&precious, &link).unwrap();
        let stays = [
            folder(format!("{NAME}{dead}-new"), false, NEW / 2),
            folder(format!("{NAME}{}-made", std::process::id()), false, NEW * 2),
            folder(format!("{NAME}abcdef"), true, NEW * 2),
            lives.folder.path().to_owned(),
            precious.join("one-a"),
            link,
        ];
        assert_eq!(sweep(place.path()), gone.len());
        assert!(gone.iter().all(|path| !path.exists()));
        assert!(stays.iter().all(|path| path.symlink_metadata().is_ok()), "{stays:?}");
        assert_eq!(sweep(&place.path().join("missing")), 0);
    }
}
