//! Looking at files without ever waiting for a disk.
//!
//! Most of what a call looks at is in the kernel's memory. Going to a thread that may block costs more than looking at it: two
//! threads are woken. So brief work is tried where it is asked for, in a mode in which the kernel answers out of its memory or
//! not at all (`RESOLVE_CACHED` of `openat2`, `RWF_NOWAIT` of `preadv2`), on local file systems. What cannot be had that way is a
//! miss: nothing of what came of the work is used, and it is done again where it may block.
//!
//! Two things may be waited for all the same: a program that the system asks whether a file may be opened (fanotify, as scanners
//! for viruses do), and the file system's own journal, where somebody else's file is read for the first time after it was changed
//! and the system writes down when that was.

#[cfg(target_os = "linux")]
mod kernel;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};

#[cfg(target_os = "linux")]
pub(crate) use kernel::{answer, note_local, open, opened, reading, resolving, stat};

/// The longest file that is read that way, in bytes: who does that holds up others.
const MOST: u64 = 64 * 1024;
/// How often one piece of work looks at something.
const LOOKS: u32 = 128;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It may be waited for.
    Patient,
    /// Nothing was waited for until now, and so many more looks may be taken.
    AtOnce(u32),
    /// Something would have had to be waited for.
    Missed,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Patient) };
}

/// Ends the mode, also by a panic.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        MODE.set(Mode::Patient);
    }
}

/// What comes of `work`, which changes nothing, where all that it looks at is in the kernel's memory; `None` where it is not, or
/// where the system cannot tell. Work within work is part of it.
///
/// What opens, looks at and lists files in the [`door`](crate::door), and [`Workspace::resolve`](crate::Workspace::resolve), know
/// of this. What asks files by other means has to ask [`would_wait`] before.
pub fn at_once<T>(work: impl FnOnce() -> T) -> Option<T> {
    if is_on() {
        let result = work();
        return (MODE.get() != Mode::Missed).then_some(result);
    }
    #[cfg(not(target_os = "linux"))]
    let is_able = false;
    #[cfg(target_os = "linux")]
    let is_able = kernel::is_able();
    if !is_able {
        return None;
    }
    let _end = End;
    MODE.set(Mode::AtOnce(LOOKS));
    let result = work();
    (MODE.get() != Mode::Missed).then_some(result)
}

/// Whether this is tried [`at_once`].
pub(crate) fn is_on() -> bool {
    MODE.get() != Mode::Patient
}

/// Whether this is tried [`at_once`], where it cannot be done: whoever asks gives up then. What it returns is not used.
pub fn would_wait() -> bool {
    if is_on() {
        MODE.set(Mode::Missed);
    }
    is_on()
}

/// Whether a file of this length, in bytes, is not to be read now: as [`would_wait`] has it.
pub fn would_wait_for(length: u64) -> bool {
    length > MOST && would_wait()
}

/// Takes one more look, if there was no miss.
#[cfg(target_os = "linux")]
fn look() -> bool {
    match MODE.get() {
        Mode::AtOnce(left @ 1..) => {
            MODE.set(Mode::AtOnce(left - 1));
            true
        }
        _ => !would_wait(),
    }
}

/// A file as it is read where it may be tried [`at_once`].
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a File);

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(target_os = "linux")]
        if is_on() {
            return kernel::read(self.0, buffer).map_err(|error| {
                would_wait();
                error.into()
            });
        }
        Read::read(&mut self.0, buffer)
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::PathBuf;

    use fs_err as fs;
    use rustix::fs::Advice;
    use rustix::io::Errno;

    use super::*;
    use crate::{Workspace, door};

    fn workspace() -> (tempfile::TempDir, PathBuf, Workspace) {
        let folder = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir(base.join("sub")).unwrap();
        fs::write(base.join("sub/file"), "content").unwrap();
        fs::os::unix::fs::symlink("sub", base.join("link")).unwrap();
        let workspace = Workspace::open(&base, base.join("out")).unwrap();
        (folder, base, workspace)
    }

    #[test]
    fn what_the_kernel_has_is_as_it_is() {
        let (_folder, base, workspace) = workspace();
        for path in
            [".", "sub", "sub/file", "sub/missing", "missing/file", "sub/../sub/file", "sub/file/below"]
        {
            let patient = workspace.resolve(path);
            let found = at_once(|| workspace.resolve(path));
            // Not all file systems keep in mind what is not there.
            let may_miss = path.contains("missing");
            assert!(found.as_ref().map_or(may_miss, |found| *found == patient), "{path}: {found:?}");
            let Ok(resolved) = patient else { continue };
            let facts = at_once(|| door::facts(&resolved).unwrap());
            let expected = door::facts(&resolved).unwrap();
            assert!(facts.map_or(may_miss, |facts| facts == expected), "{path}: {facts:?}");
        }
        assert!(at_once(|| workspace.check().is_ok()).unwrap());
        let file = workspace.resolve("sub/file").unwrap();
        // Not all file systems can be read like that: tmpfs and overlays can't.
        let can_be_read = {
            let file = fs::File::open(base.join("sub/file")).unwrap();
            let mut buffer = [0];
            let mut into = [std::io::IoSliceMut::new(&mut buffer)];
            rustix::io::preadv2(&file, &mut into, 0, rustix::io::ReadWriteFlags::NOWAIT).is_ok()
        };
        let read = || {
            at_once(|| {
                let mut text = String::new();
                Reader(&door::open_read(&file).ok()?).read_to_string(&mut text).ok().map(|_| text)
            })
        };
        let expected = can_be_read.then(|| Some("content".to_owned()));
        assert_eq!((read(), read()), (expected.clone(), expected));
        assert_eq!(at_once(|| door::open_read(&file).is_ok()).is_some(), can_be_read, "it is kept in mind");
        // The way of a place that was replaced is refused, at once as well.
        fs::remove_dir_all(base.join("sub")).unwrap();
        fs::create_dir(base.join("other")).unwrap();
        fs::write(base.join("other/file"), "secret").unwrap();
        fs::os::unix::fs::symlink("other", base.join("sub")).unwrap();
        assert!(door::open_read(&file).is_err());
        let opened = at_once(|| door::open_read(&file)).expect("the link was looked at before");
        assert!(matches!(opened, Err(door::DoorError::Replaced(_))), "{opened:?}");
    }

    #[test]
    fn what_would_wait_is_a_miss() {
        let (_folder, base, workspace) = workspace();
        // Links are read by another call of the system.
        assert_eq!(at_once(|| workspace.resolve("link/file")), None);
        let directory = workspace.resolve("sub").unwrap();
        assert!(at_once(|| door::read_dir(&directory).map(drop)).is_none());
        let forgotten = |text: &mut String| {
            let file = fs::File::open(base.join("sub/file")).unwrap();
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            at_once(|| Reader(file.file()).read_to_string(text).is_ok()).is_none().then_some(file)
        };
        let mut text = String::new();
        // The kernel takes it as advice: while something else uses the page, it stays.
        let file = (0..3_000).find_map(|_| {
            text.clear();
            let file = forgotten(&mut text);
            if file.is_none() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            file
        });
        let file = file.expect("what the kernel has forgotten is a miss");
        assert_eq!(text, "");
        assert_eq!(Reader(file.file()).read_to_string(&mut text).unwrap(), 7);
        assert!(
            at_once(|| would_wait_for(MOST)) == Some(false) && at_once(|| would_wait_for(MOST + 1)).is_none()
        );
    }

    #[test]
    fn other_file_systems_and_many_looks_are_a_miss() {
        let (_folder, _, workspace) = workspace();
        let processes = workspace.resolve("/proc/self/status").unwrap();
        assert!(at_once(|| door::facts(&processes).map(drop)).is_none());
        assert!(at_once(|| workspace.resolve("/proc/version").map(drop)).is_none());
        let deep = "sub/../".repeat(LOOKS as usize + 1);
        assert!(workspace.resolve(&deep).is_ok() && at_once(|| workspace.resolve(&deep)).is_none());
    }

    #[test]
    fn what_does_not_say_what_stands_there_is_a_miss() {
        for error in [Errno::MFILE, Errno::NOMEM, Errno::AGAIN, Errno::ACCESS, Errno::PERM, Errno::INVAL] {
            assert!(at_once(|| answer(error)).is_none(), "{error}");
        }
        assert_eq!(at_once(|| 1), Some(1), "one error is none of all that come later");
        assert_eq!(at_once(|| answer(Errno::NOENT)), Some(Errno::NOENT));
    }

    #[test]
    fn the_mode_ends_with_the_work() {
        assert!(!would_wait() && !would_wait_for(u64::MAX));
        assert_eq!(at_once(|| 1), Some(1));
        assert_eq!(at_once(|| at_once(|| 1)), Some(Some(1)));
        assert_eq!(at_once(|| at_once(would_wait)), None);
        assert_eq!(at_once(|| (at_once(|| 1), is_on())), Some((Some(1), true)));
        assert_eq!(at_once(would_wait), None);
        assert!(catch_unwind(AssertUnwindSafe(|| at_once(|| -> u32 { panic!("on purpose") }))).is_err());
        assert!(!would_wait());
    }
}
