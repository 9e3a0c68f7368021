//! Files that a process left behind when it was killed in the middle of a change.
//!
//! A change puts its new content beside the place first, and takes what goes aside last, both under a hidden name. A
//! process that is killed between leaves that name, and what stands there was either not complete or to be removed. So
//! it goes when this process first writes to the directory, once it is so old that nobody can be at work on it. Its age
//! decides, and not the process number in its name: in containers the numbers of the living and the dead are the same.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use super::open_at;

/// How long a name must have been there. A change takes milliseconds.
const OLD: Duration = Duration::from_secs(60 * 60);
/// Names that are looked at in one directory.
const LOOKED_AT: usize = 10_000;
/// Directories that are remembered as swept.
const REMEMBERED: usize = 4_096;

/// Removes what was left in `directory`, unless this process has looked there already. What cannot be removed stays.
pub(super) fn sweep_once(directory: &OwnedFd) {
    static SWEPT: Mutex<Option<HashSet<(u64, u64)>>> = Mutex::new(None);
    let Ok(stat) = rustix::fs::fstat(directory) else { return };
    {
        let mut swept = SWEPT.lock();
        let swept = swept.get_or_insert_default();
        if swept.len() >= REMEMBERED {
            swept.clear();
        }
        if !swept.insert((stat.st_dev, stat.st_ino)) {
            return;
        }
    }
    sweep(directory, SystemTime::now());
}

/// Removes what is too old at the time `now`.
fn sweep(directory: &OwnedFd, now: SystemTime) {
    // The directory may be held in a way in which it cannot be read.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let Ok(readable) = open_at(directory, ".".as_ref(), flags, Mode::empty()) else { return };
    let Ok(entries) = Dir::new(readable) else { return };
    for entry in entries.take(LOOKED_AT).map_while(Result::ok) {
        if !is_temporary(entry.file_name().to_bytes()) {
            continue;
        }
        let stat = rustix::fs::statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
        if stat.is_ok_and(|stat| is_left(&stat, now)) {
            let _ = rustix::fs::unlinkat(directory, entry.file_name(), AtFlags::empty());
        }
    }
}

/// Whether a change gives such a name: `.playhouse-NUMBER-NUMBER.tmp`.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    let numbers = || {
        let inner = name.strip_prefix(b".playhouse-")?.strip_suffix(b".tmp")?;
        let at = inner.iter().position(|byte| *byte == b'-')?;
        Some((&inner[..at], &inner[at + 1..]))
    };
    let is_number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    numbers().is_some_and(|(process, count)| is_number(process) && is_number(count))
}

/// A file of this user that has had its name for long. Its content may be older than that.
fn is_left(stat: &Stat, now: SystemTime) -> bool {
    let named = Duration::from_secs(u64::try_from(stat.st_ctime).unwrap_or(0));
    let age = UNIX_EPOCH.checked_add(named).and_then(|named| now.duration_since(named).ok());
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && age.is_some_and(|age| age > OLD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_goes_when_it_is_old() {
        let folder = tempfile::tempdir().unwrap();
        let names = || {
            let entries = fs_err::read_dir(folder.path()).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let stay = [
            ".playhouse-1-2.kept",
            ".playhouse-1.tmp",
            ".playhouse-a-2.tmp",
            ".playhouse-1-2.tmp~",
            "playhouse-1-2.tmp",
        ];
        for name in stay.into_iter().chain([".playhouse-1-2.tmp", ".playhouse-314-0.tmp"]) {
            fs_err::write(folder.path().join(name), "x").unwrap();
        }
        fs_err::create_dir(folder.path().join(".playhouse-1-3.tmp")).unwrap();
        fs_err::os::unix::fs::symlink("playhouse-1-2.tmp", folder.path().join(".playhouse-1-4.tmp")).unwrap();
        let directory =
            rustix::fs::open(folder.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let all = names();
        sweep(&directory, SystemTime::now());
        assert_eq!(names(), all);
        sweep(&directory, SystemTime::now() + 2 * OLD);
        let mut left: Vec<_> = stay.into_iter().chain([".playhouse-1-3.tmp", ".playhouse-1-4.tmp"]).collect();
        left.sort_unstable();
        assert_eq!(names(), left);
    }
}
