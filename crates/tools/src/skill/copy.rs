//! Copies of operators' skills.
//!
//! Such a skill lies where sessions neither read nor run anything, and where that is they are not told. So its files are
//! copied into the session's folder of saved outputs when it is loaded: file tools read them there, commands run them in
//! walls and without, and a session has the files of those skills only that it loaded.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use playhouse_prompts::{Skill, Skills};
use playhouse_workspace::door;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, mkdirat, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

/// Where copies lie in the folder of saved outputs.
const FOLDER: &str = "skills";
/// The most bytes of one file.
const MOST_OF_ONE: u64 = 16 * 1024 * 1024;
/// The most bytes of all files of a skill.
const MOST: u64 = 64 * 1024 * 1024;

/// A skill's files, for one session.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// Where they lie.
    pub(super) folder: PathBuf,
    /// The files that lie there.
    pub(super) files: Vec<String>,
    /// What is not among them, and why. It says nothing of where the operator keeps skills.
    pub(super) left_out: Vec<String>,
}

/// Copies the `files` of `skill` into the folder of saved outputs `output`, by way of the folder `scratch` in it, which is not
/// left there. Those of an earlier copy go. Blocks; ends early when it is cancelled.
///
/// # Errors
/// They cannot be written.
pub(super) fn copy(
    skills: &Skills,
    skill: &Skill,
    files: &[String],
    output: &Path,
    scratch: &Path,
    cancel: &CancellationToken,
) -> io::Result<Copied> {
    // Of a call that was cut off.
    remove(scratch)?;
    let copied = copy_by(skills, skill, files, output, scratch, cancel);
    let removed = remove(scratch);
    copied.and_then(|copied| removed.map(|()| copied))
}

fn copy_by(
    skills: &Skills,
    skill: &Skill,
    files: &[String],
    output: &Path,
    scratch: &Path,
    cancel: &CancellationToken,
) -> io::Result<Copied> {
    let folder = output.join(FOLDER).join(&skill.name);
    let mut copied = Copied { folder, ..Copied::default() };
    let mut left = MOST;
    for file in files {
        if cancel.is_cancelled() {
            return Err(io::Error::other("the call was cancelled"));
        }
        let most = left.min(MOST_OF_ONE);
        let reason = match skills.content(skill, file, most) {
            Ok(Some(content)) if content.size <= most => {
                left -= content.size;
                write(&scratch.join(file), &content.bytes, content.runs)?;
                copied.files.push(file.clone());
                continue;
            }
            Ok(Some(content)) => {
                format!("{file}: it has {} bytes, and {most} are copied at most", content.size)
            }
            Ok(None) => format!("{file}: it is not there any more"),
            Err(error) => error.to_string(),
        };
        copied.left_out.push(reason);
    }
    match copied.files.is_empty() {
        true => take_away(output, scratch, &skill.name)?,
        false => put_in_place(output, scratch, &skill.name)?,
    }
    Ok(copied)
}

fn write(path: &Path, bytes: &[u8], runs: bool) -> io::Result<()> {
    let mut file = door::create_private(path)?;
    file.write_all(bytes)?;
    if runs {
        file.set_permissions(std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Puts the folder `scratch`, which lies in `output`, among the copies as `name`, also where there is one: at no time is there
/// none. What runs goes on with the one before, which lies at `scratch` then.
fn put_in_place(output: &Path, scratch: &Path, name: &str) -> io::Result<()> {
    let Some(new) = scratch.file_name() else { return Err(Errno::INVAL.into()) };
    let output = folder(CWD, output.as_os_str())?;
    let copies = copies(&output)?;
    match renameat_with(&output, new, &copies, name, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) => {}
        // Some file systems know no such renaming.
        Err(error) if is_unknown(error) => return put_after(&output, &copies, new, name),
        done => return Ok(done?),
    }
    match renameat_with(&output, new, &copies, name, RenameFlags::EXCHANGE) {
        Err(error) if is_unknown(error) => put_after(&output, &copies, new, name),
        done => Ok(done?),
    }
}

/// The same where nothing can be exchanged: the one before goes first.
fn put_after(output: &OwnedFd, copies: &OwnedFd, new: &OsStr, name: &str) -> io::Result<()> {
    let mut before = new.to_owned();
    before.push(".before");
    match renameat(copies, name, output, &*before) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    renameat(output, new, copies, name)?;
    match renameat(output, &*before, output, new) {
        Err(Errno::NOENT) => Ok(()),
        done => Ok(done?),
    }
}

/// Takes the copy called `name` away, if there is one: it lies at `scratch` then.
fn take_away(output: &Path, scratch: &Path, name: &str) -> io::Result<()> {
    let Some(new) = scratch.file_name() else { return Err(Errno::INVAL.into()) };
    if !output.join(FOLDER).exists() {
        return Ok(());
    }
    let output = folder(CWD, output.as_os_str())?;
    match renameat(copies(&output)?, name, &output, new) {
        Err(Errno::NOENT) => Ok(()),
        done => Ok(done?),
    }
}

/// The folder of copies, held open. Commands that no walls hold can put a link in its place: that goes.
fn copies(output: &OwnedFd) -> io::Result<OwnedFd> {
    for _ in 0..2 {
        match mkdirat(output, FOLDER, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        match folder(output, OsStr::new(FOLDER)) {
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOTDIR | Errno::LOOP)) => {
                unlinkat(output, FOLDER, AtFlags::empty())?;
            }
            opened => return opened,
        }
    }
    folder(output, OsStr::new(FOLDER))
}

/// A folder that is no link, held open.
fn folder(at: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, name, flags, Mode::empty())?)
}

fn is_unknown(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::NOTSUP)
}

/// Removes a folder with all in it, if it is there; a link itself, not what it leads to.
fn remove(folder: &Path) -> io::Result<()> {
    match fs_err::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
