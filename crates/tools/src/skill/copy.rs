//! Copies of operators' skills.
//!
//! Such a skill lies where sessions neither read nor run anything, and where that is they are not told. So its files are
//! copied into the session's folder of saved outputs when it is loaded: file tools read them there, commands run them in
//! walls and without, and a session has the files of those skills only that it loaded.

use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use playhouse_prompts::{Skill, Skills};
use playhouse_workspace::door;
use rustix::fs::{CWD, RenameFlags, renameat_with};
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
    /// What is not among them, and why. It says nothing of where the operator keeps skills.
    pub(super) left_out: Vec<String>,
}

/// Copies the `files` of `skill` into the folder of saved outputs `output`, by way of the folder `scratch` in it. Those of an
/// earlier copy go. Blocks; ends early when it is cancelled.
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
    let place = output.join(FOLDER).join(&skill.name);
    let mut copied = Copied { folder: place.clone(), left_out: Vec::new() };
    // Of a call that was cut off.
    remove(scratch)?;
    let mut left = MOST;
    for file in files {
        if cancel.is_cancelled() {
            remove(scratch)?;
            return Err(io::Error::other("the call was cancelled"));
        }
        let most = left.min(MOST_OF_ONE);
        let reason = match skills.content(skill, file, most) {
            Ok(Some(content)) if content.size <= most => {
                left -= content.size;
                write(&scratch.join(file), &content.bytes, content.runs)?;
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
    if !scratch.exists() {
        // Nothing could be copied.
        remove(&place)?;
        return Ok(copied);
    }
    fs_err::create_dir_all(output.join(FOLDER))?;
    put_in_place(scratch, &place)?;
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

/// Puts the folder `new` at `place`, also where there is one: at no time is there none. What runs goes on with the one before.
fn put_in_place(new: &Path, place: &Path) -> io::Result<()> {
    match fs_err::rename(new, place) {
        Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {}
        done => return done,
    }
    match renameat_with(CWD, new, CWD, place, RenameFlags::EXCHANGE) {
        Ok(()) => remove(new),
        // Some file systems exchange nothing.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            remove(place)?;
            fs_err::rename(new, place)
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes a folder with all in it, if it is there; a link itself, not what it leads to.
fn remove(folder: &Path) -> io::Result<()> {
    match fs_err::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
