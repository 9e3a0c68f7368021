//! The folders of saved outputs: they do not grow for ever.
//!
//! Commands of sessions can write there, since no sandbox holds them yet. So no link is followed, and nothing is taken for
//! a session's folder that is not named like one.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use playhouse_protocol::SessionId;
use playhouse_workspace::door::RECORD;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

/// Entries that one sweep looks at.
const LOOKED_AT: usize = 1_000_000;
/// How deep a session's folder is swept.
const DEPTH: usize = 16;

/// What a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Files, and links.
    pub files: usize,
    /// Folders that were left empty.
    pub folders: usize,
    /// Bytes of the files.
    pub bytes: u64,
}

/// Removes the outputs that were saved before `time` from the folders of all sessions in `outputs`, and folders that are
/// empty and were so before. Blocks; ends early when it is cancelled.
///
/// # Errors
/// `outputs` cannot be read. What cannot be removed in it is left there.
pub fn sweep(outputs: &Path, time: SystemTime, cancel: &CancellationToken) -> io::Result<Swept> {
    let folder = match rustix::fs::open(
        outputs,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(Swept::default()),
        Err(error) => {
            let error = io::Error::from(error);
            return Err(io::Error::new(error.kind(), format!("{}: {error}", outputs.display())));
        }
    };
    let mut sweep = Sweep { time, cancel, left: LOOKED_AT, swept: Swept::default() };
    sweep.each(folder.as_fd(), |sweep, folder, entry| {
        let name = entry.file_name();
        let session = name.to_str().is_ok_and(|name| SessionId::parse(name).is_ok());
        let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        if session && is_directory(&stat) {
            sweep.folder(folder, entry, &stat, 1);
        }
    });
    Ok(sweep.swept)
}

/// Removes the folder of a session, which may not be there. Blocks.
///
/// # Errors
/// Something in it cannot be removed; the error names it.
pub fn remove(outputs: &Path, session: SessionId) -> io::Result<()> {
    // It follows no links, and removes one that stands there.
    match fs_err::remove_dir_all(outputs.join(session.as_str())) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

struct Sweep<'a> {
    time: SystemTime,
    cancel: &'a CancellationToken,
    /// How many entries it may still look at.
    left: usize,
    swept: Swept,
}

impl Sweep<'_> {
    /// Calls `visit` with each entry of a folder.
    fn each(
        &mut self,
        folder: BorrowedFd<'_>,
        mut visit: impl FnMut(&mut Self, BorrowedFd<'_>, &rustix::fs::DirEntry),
    ) {
        let Ok(entries) = Dir::read_from(folder) else { return };
        for entry in entries {
            // What is gone or unreadable is no concern of a sweep.
            let Ok(entry) = entry else { return };
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            if self.left == 0 || self.cancel.is_cancelled() {
                return;
            }
            self.left -= 1;
            visit(self, folder, &entry);
        }
    }

    fn folder(&mut self, parent: BorrowedFd<'_>, entry: &rustix::fs::DirEntry, stat: &Stat, depth: usize) {
        let name = entry.file_name();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(opened): Result<OwnedFd, _> = rustix::fs::openat(parent, name, flags, Mode::empty()) else {
            return;
        };
        self.each(opened.as_fd(), |sweep, folder, entry| {
            let name = entry.file_name();
            let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
            if is_directory(&stat) {
                if depth < DEPTH {
                    sweep.folder(folder, entry, &stat, depth + 1);
                }
            } else if modified(&stat) < sweep.time
                && !is_needed(folder, name)
                && rustix::fs::unlinkat(folder, name, AtFlags::empty()).is_ok()
            {
                sweep.swept.files += 1;
                sweep.swept.bytes += u64::try_from(stat.st_size).unwrap_or(0);
            }
        });
        // One that changed lately may be about to get a file. One that holds something stays.
        if modified(stat) < self.time && rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).is_ok() {
            self.swept.folders += 1;
        }
    }
}

/// Whether it is what is kept of a file that was not written to its end, which nobody has looked after yet.
fn is_needed(folder: BorrowedFd<'_>, name: &CStr) -> bool {
    let name = name.to_string_lossy();
    let record = format!("{}{RECORD}", name.strip_suffix(".before").unwrap_or(&name));
    name.ends_with(RECORD)
        || (name.ends_with(".before")
            && rustix::fs::statat(folder, &*record, AtFlags::SYMLINK_NOFOLLOW).is_ok())
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

fn modified(stat: &Stat) -> SystemTime {
    let seconds = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    UNIX_EPOCH.checked_add(seconds).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use fs_err as fs;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn session(number: u64) -> SessionId {
        SessionId::parse(&format!("ses_{number:012x}Sess1234567890")).unwrap()
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// A file that was written so long ago, and its folder with it.
        fn file(&self, name: &str, age: Duration) -> PathBuf {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "12345").unwrap();
            for path in [&path, path.parent().unwrap()] {
                self.age(path, age);
            }
            path
        }

        fn age(&self, path: &Path, age: Duration) {
            fs::File::open(path).unwrap().file().set_modified(SystemTime::now() - age).unwrap();
        }

        fn sweep(&self) -> Swept {
            sweep(self.0.path(), SystemTime::now() - 24 * HOUR, &CancellationToken::new()).unwrap()
        }
    }

    #[test]
    fn what_is_old_goes_and_what_is_young_stays() {
        let folder = Folder::new();
        let (one, two) = (session(1), session(2));
        let young = folder.file(&format!("{two}/young.txt"), 23 * HOUR);
        let old = folder.file(&format!("{two}/old.txt"), 25 * HOUR);
        folder.file(&format!("{one}/old.txt"), 25 * HOUR);
        folder.file(&format!("{one}/deep/old.txt"), 25 * HOUR);
        folder.age(&folder.path(one.as_str()), 25 * HOUR);
        assert_eq!(folder.sweep(), Swept { files: 3, folders: 2, bytes: 15 });
        assert!(young.exists() && !old.exists() && !folder.path(one.as_str()).exists());
        assert_eq!(folder.sweep(), Swept::default());
    }

    #[test]
    fn what_is_kept_of_a_file_that_is_torn_stays() {
        let folder = Folder::new();
        let file = |name: &str| folder.file(&format!("{}/{name}", session(1)), 50 * HOUR);
        let kept = ["prt_1.before", "prt_1.before.json", "prt_2.1.before", "prt_2.1.before.json"].map(file);
        let gone = ["prt_3.before", "prt_3.restored.json", "prt_3.found"].map(file);
        assert_eq!(folder.sweep().files, 3);
        assert!(kept.iter().all(|path| path.exists()) && !gone.iter().any(|path| path.exists()));
    }

    #[test]
    fn an_empty_folder_that_changed_lately_stays() {
        let folder = Folder::new();
        fs::create_dir(folder.path(session(1).as_str())).unwrap();
        folder.file(&format!("{}/old.txt", session(2)), 25 * HOUR);
        folder.age(&folder.path(session(2).as_str()), HOUR);
        assert_eq!(folder.sweep(), Swept { files: 1, folders: 0, bytes: 5 });
        assert!(folder.path(session(1).as_str()).exists() && folder.path(session(2).as_str()).exists());
    }

    #[test]
    fn no_link_is_followed_and_nothing_else_is_touched() {
        let (folder, elsewhere) = (Folder::new(), Folder::new());
        let precious = elsewhere.file("below/precious.txt", 50 * HOUR);
        let foreign = folder.file("notes/mine.txt", 50 * HOUR);
        let beside = folder.file("beside.txt", 50 * HOUR);
        let link = |target: &Path, name: &str| fs::os::unix::fs::symlink(target, folder.path(name)).unwrap();
        link(&elsewhere.path("below"), session(1).as_str());
        folder.file(&format!("{}/old.txt", session(2)), 50 * HOUR);
        link(&elsewhere.path("below"), &format!("{}/below", session(2)));
        link(&precious, &format!("{}/precious", session(2)));
        assert_eq!(folder.sweep().files, 1);
        for path in [&precious, &foreign, &beside, &folder.path(session(1).as_str())] {
            assert!(path.exists(), "{}", path.display());
        }
        // A link itself goes with the session, and what it leads to does not.
        remove(folder.0.path(), session(1)).unwrap();
        remove(folder.0.path(), session(2)).unwrap();
        assert!(precious.exists() && foreign.exists());
        assert!(fs::symlink_metadata(folder.path(session(1).as_str())).is_err());
        assert!(!folder.path(session(2).as_str()).exists());
    }

    #[test]
    fn a_session_without_a_folder_and_a_folder_that_is_not_there_are_no_errors() {
        let folder = Folder::new();
        remove(folder.0.path(), session(1)).unwrap();
        let missing = folder.path("missing");
        assert_eq!(sweep(&missing, SystemTime::now(), &CancellationToken::new()).unwrap(), Swept::default());
        let error =
            sweep(&folder.file("file", HOUR), SystemTime::now(), &CancellationToken::new()).unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
    }

    #[test]
    fn a_cancelled_sweep_removes_nothing() {
        let folder = Folder::new();
        let old = folder.file(&format!("{}/old.txt", session(1)), 50 * HOUR);
        let cancel = CancellationToken::new();
        cancel.cancel();
        assert_eq!(sweep(folder.0.path(), SystemTime::now(), &cancel).unwrap(), Swept::default());
        assert!(old.exists());
    }
}
