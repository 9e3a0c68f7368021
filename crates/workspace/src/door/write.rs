//! Writing through the door.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fs_err::os::unix::fs::OpenOptionsExt;
use rustix::fs::{Access, AtFlags, Mode, OFlags, RawMode, RenameFlags, Stat};
use rustix::io::Errno;

use super::walk::{self, Spot};
use super::{DoorError, Kind, carry, in_place, leftovers, names, open_at};
use crate::{ContentHash, Resolved, Workspace, hash};

/// What the writer believes to stand at the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Whatever: it is replaced.
    Anything,
    /// Nothing.
    Nothing,
    /// A file with this content.
    Content(ContentHash),
}

/// How a file may be written where no other one can come in its place.
#[derive(Clone, Copy, Debug)]
pub struct InPlace<'a> {
    /// Where all names of the file have to lie.
    pub workspace: &'a Workspace,
    /// The file that keeps its old content meanwhile, in the folder of saved outputs. Its name ends in `.before`.
    pub kept: &'a Path,
}

/// Type and permission bits of a regular file, where it was gone before they could be read.
const NEW_FILE: u32 = 0o100_644;

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Whether there was no file before.
    pub created: bool,
    /// The content that stands there now.
    pub hash: ContentHash,
    /// How many other names (hard links) the file had that a new one came in the place of. They have the old content.
    pub parted: u64,
    /// Type and permission bits of the file that stood there; `None` for a new one.
    pub mode_before: Option<u32>,
    /// Those of the file that stands there now.
    pub mode: u32,
}

/// Writes the file at `resolved` as a whole: a reader sees the old content or the new one, never a mixture.
///
/// The file keeps its permissions and, where the system allows it, its owner and its extended attributes; a new one gets the
/// usual permissions. One that has other names (hard links) is replaced under this name only. It is not synced: a crash of
/// the machine may lose it.
///
/// # Errors
/// When the file is not the `expected` one, is read-only, is no regular file, or has no directory (see
/// [`create_parents`]), and when the place was replaced.
pub fn write_atomic(resolved: &Resolved, content: &[u8], expected: Expected) -> Result<Written, DoorError> {
    write(resolved, content, expected, Ways::default())
}

/// Writes the file at `resolved` as [`write_atomic`] does; in place, where it has other names, or where no other file can
/// come in its place with all that it has:
///
/// - its directory may not be changed, or something is mounted at the place,
/// - the owner or the extended attributes may not be given to another file.
///
/// A file with other names is written in place only if all of them lie in the workspace and may be changed.
///
/// # Errors
/// As [`write_atomic`]. The old content is put back; where that fails as well, the error says where it is kept.
pub fn write_keeping(
    resolved: &Resolved,
    content: &[u8],
    expected: Expected,
    in_place: &InPlace<'_>,
) -> Result<Written, DoorError> {
    write(resolved, content, expected, Ways { in_place: Some(in_place), ..Ways::default() })
}

/// Writes the file at `resolved` as [`write_keeping`] does, with these permission bits from the start; where it is written in place
/// it keeps those that it has.
///
/// # Errors
/// As [`write_keeping`].
pub fn write_with_mode(
    resolved: &Resolved,
    content: &[u8],
    expected: Expected,
    in_place: &InPlace<'_>,
    mode: u32,
) -> Result<Written, DoorError> {
    let ways = Ways { in_place: Some(in_place), mode: Some(mode & 0o7777), ..Ways::default() };
    write(resolved, content, expected, ways)
}

/// Writes a new file at `resolved`, with the permissions, the extended attributes and, where the system allows it, the
/// owner of the file at `model`, as if that one had been moved.
///
/// # Errors
/// As [`write_atomic`]; also when there is something, and when there is no `model`.
pub fn write_like(resolved: &Resolved, content: &[u8], model: &Resolved) -> Result<Written, DoorError> {
    let spot = Spot::of(model)?;
    let stat = spot.stat()?;
    Kind::of(&stat).must_be_file(&model.shown)?;
    let written =
        write(resolved, content, Expected::Nothing, Ways { like: Some((&spot, &stat)), ..Ways::default() })?;
    Ok(Written { parted: other_names(&stat), ..written })
}

/// What a write takes over from another file, and what it may do where it cannot put one in the place of another.
#[derive(Clone, Copy, Default)]
struct Ways<'a> {
    like: Option<(&'a Spot<'a>, &'a Stat)>,
    in_place: Option<&'a InPlace<'a>>,
    /// The permission bits of the file; else those of the file before, or the usual ones.
    mode: Option<u32>,
}

fn other_names(stat: &Stat) -> u64 {
    #[allow(clippy::useless_conversion)]
    let names = u64::from(stat.st_nlink);
    names.saturating_sub(1)
}

fn write(
    resolved: &Resolved,
    content: &[u8],
    expected: Expected,
    ways: Ways<'_>,
) -> Result<Written, DoorError> {
    resolved.must_be_writable()?;
    let spot = Spot::of(resolved)?;
    let before = match spot.stat() {
        Ok(stat) => Some(stat),
        Err(DoorError::Missing(_)) => None,
        Err(error) => return Err(error),
    };
    check_writable(&spot, resolved, before.as_ref(), expected)?;
    leftovers::sweep_once(&spot.directory);
    let bits = |stat: &Stat| RawMode::from(stat.st_mode);
    let now = || spot.stat().as_ref().map_or(NEW_FILE, bits);
    let mode_before = before.as_ref().map(bits);
    let written = Written { created: before.is_none(), hash: hash(content), parted: 0, mode_before, mode: 0 };
    let Some(stat) = &before else {
        let is_private = ways.like.is_some() || ways.mode.is_some();
        let temporary =
            Temporary::with(&spot, content, is_private).map_err(|error| error.into_door(&spot))?;
        if let Some((from, stat)) = ways.like {
            take_over(from, stat, &temporary.file).map_err(|error| spot.error(error))?;
        }
        temporary.set_mode(ways.mode).map_err(|error| spot.error(error))?;
        check_content(resolved, expected)?;
        temporary.put_in_place(expected).map_err(|error| spot.error(error))?;
        return Ok(Written { mode: now(), ..written });
    };
    let others = other_names(stat);
    let in_place =
        ways.in_place.filter(|ways| others == 0 || names::all_within(ways.workspace, &resolved.path, stat));
    let written = Written { parted: if in_place.is_some() { 0 } else { others }, ..written };
    let is_replaced = (others == 0 || in_place.is_none())
        && replace(&spot, resolved, stat, content, expected, Ways { in_place, ..ways })?;
    if let (Some(in_place), false) = (in_place, is_replaced) {
        in_place::write(&spot, resolved, stat, content, expected, in_place)?;
    }
    Ok(Written { mode: now(), ..written })
}

/// Puts a new file in the place of the one with the facts `before`. Where it may be written in place, false if that cannot be
/// done, or if the new one would not have all that the old one has.
fn replace(
    spot: &Spot<'_>,
    resolved: &Resolved,
    before: &Stat,
    content: &[u8],
    expected: Expected,
    ways: Ways<'_>,
) -> Result<bool, DoorError> {
    let or_not = ways.in_place.is_some();
    let temporary = match Temporary::with(spot, content, true) {
        Ok(temporary) => temporary,
        Err(Refused::Name(Errno::ACCESS | Errno::PERM | Errno::ROFS)) if or_not => return Ok(false),
        Err(error) => return Err(error.into_door(spot)),
    };
    let is_whole = take_over(spot, before, &temporary.file).map_err(|error| spot.error(error))?;
    if or_not && !is_whole {
        return Ok(false);
    }
    temporary.set_mode(ways.mode).map_err(|error| spot.error(error))?;
    check_content(resolved, expected)?;
    match temporary.put_in_place(expected) {
        Ok(()) => Ok(true),
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::BUSY | Errno::XDEV) if or_not => Ok(false),
        Err(error) => Err(spot.error(error)),
    }
}

/// Gives `to` what the file at `from` has. False: not all of it.
fn take_over(from: &Spot<'_>, stat: &Stat, to: &File) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    match open_at(&from.directory, from.name, flags, Mode::empty()) {
        Ok(file) => carry::carry(&file, stat, to),
        // It may be written and not read.
        Err(_) => {
            carry::carry_owner(stat, to)?;
            carry::carry_mode(stat, to).map(|()| false)
        }
    }
}

/// Whether what stands there may be replaced at all, before any work is done.
pub(super) fn check_writable(
    spot: &Spot<'_>,
    resolved: &Resolved,
    before: Option<&Stat>,
    expected: Expected,
) -> Result<(), DoorError> {
    let Some(stat) = before else {
        return match expected {
            Expected::Content(_) => Err(DoorError::Changed(resolved.shown.clone())),
            Expected::Anything | Expected::Nothing => Ok(()),
        };
    };
    Kind::of(stat).must_be_file(&resolved.shown)?;
    if expected == Expected::Nothing {
        return Err(DoorError::Exists(resolved.shown.clone()));
    }
    // Replacing a file needs no permission on the file itself, so its wish is honoured here. Root may write anything,
    // and still means what `chmod a-w` says.
    let writable = Mode::from_raw_mode(stat.st_mode).intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH)
        && rustix::fs::accessat(&spot.directory, spot.name, Access::WRITE_OK, AtFlags::empty()).is_ok();
    if writable { Ok(()) } else { Err(DoorError::ReadOnly(resolved.shown.clone())) }
}

/// Compares the content as late as possible.
pub(super) fn check_content(resolved: &Resolved, expected: Expected) -> Result<(), DoorError> {
    let Expected::Content(expected) = expected else { return Ok(()) };
    let mut file = super::open_read(resolved).map_err(|error| match error {
        DoorError::Missing(shown) => DoorError::Changed(shown),
        error => error,
    })?;
    let found = hash_of(&mut file).map_err(|error| DoorError::from_io(&resolved.shown, error))?;
    if found == expected { Ok(()) } else { Err(DoorError::Changed(resolved.shown.clone())) }
}

pub(super) fn hash_of(file: &mut File) -> std::io::Result<ContentHash> {
    crate::hash_of(file).map(|(content, _)| content)
}

/// A name for a file that is there for a moment only. No two calls give the same one. One that a process left behind when
/// it was killed goes later ([`leftovers`]).
pub(super) fn temporary_name() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(format!(".playhouse-{}-{count}.tmp", std::process::id()))
}

/// Renames `from` to `to` in `directory`, where nothing may stand there.
pub(super) fn rename_new(directory: &OwnedFd, from: &Path, to: &Path) -> Result<(), Errno> {
    match rustix::fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        // Some file systems cannot say "do not replace": then a look before has to do.
        Err(Errno::INVAL | Errno::NOSYS) => {
            match rustix::fs::statat(directory, to, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => rustix::fs::renameat(directory, from, directory, to),
                Ok(_) => Err(Errno::EXIST),
                Err(error) => Err(error),
            }
        }
        result => result,
    }
}

/// A file beside the place, removed again unless it is put in place.
struct Temporary<'a> {
    spot: &'a Spot<'a>,
    name: PathBuf,
    file: File,
    placed: bool,
}

/// Why there is none.
enum Refused {
    /// It may not be made.
    Name(Errno),
    /// It cannot be written.
    Content(std::io::Error),
}

impl Refused {
    fn into_door(self, spot: &Spot<'_>) -> DoorError {
        match self {
            Self::Name(error) => spot.error(error),
            Self::Content(error) => DoorError::from_io(spot.shown, error),
        }
    }
}

impl<'a> Temporary<'a> {
    /// A file with this content, for this user alone where it is private.
    fn with(spot: &'a Spot<'a>, content: &[u8], is_private: bool) -> Result<Self, Refused> {
        let mode = if is_private { 0o600 } else { 0o666 };
        let mut temporary = Self::create(spot, Mode::from_raw_mode(mode)).map_err(Refused::Name)?;
        temporary.file.write_all(content).map_err(Refused::Content)?;
        Ok(temporary)
    }

    fn create(spot: &'a Spot<'a>, mode: Mode) -> Result<Self, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        loop {
            let name = temporary_name();
            match open_at(&spot.directory, &name, flags, mode) {
                Ok(file) => return Ok(Self { spot, name, file: File::from(file), placed: false }),
                // Left by a process that was killed and had the same number.
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn set_mode(&self, mode: Option<u32>) -> Result<(), Errno> {
        match mode {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::unnecessary_cast,
                reason = "types differ between systems"
            )]
            Some(mode) => rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode as RawMode)),
            None => Ok(()),
        }
    }

    fn put_in_place(mut self, expected: Expected) -> Result<(), Errno> {
        let (directory, name) = (&self.spot.directory, self.spot.name);
        match expected {
            Expected::Nothing => rename_new(directory, &self.name, name),
            Expected::Anything | Expected::Content(_) => {
                rustix::fs::renameat(directory, &self.name, directory, name)
            }
        }?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.placed {
            let _ = rustix::fs::unlinkat(&self.spot.directory, &self.name, AtFlags::empty());
        }
    }
}

/// Gives the regular file at `resolved` these permission bits.
///
/// # Errors
/// When there is no such file, or it belongs to somebody else, and when the place was replaced.
pub fn set_mode(resolved: &Resolved, mode: u32) -> Result<(), DoorError> {
    resolved.must_be_writable()?;
    let file = super::open_read(resolved)?;
    let changed = rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o7777));
    changed.map_err(|error| DoorError::from_errno(&resolved.shown, error))
}

/// Creates the directories above `resolved` that do not exist yet, and gives those that it made, the upper ones first.
///
/// # Errors
/// When one of them is no directory or may not be made, and when the place was replaced. Nothing new is left then.
pub fn create_parents(resolved: &Resolved) -> Result<Vec<PathBuf>, DoorError> {
    let mut made = Vec::new();
    resolved.must_be_writable()?;
    match create_missing(&resolved.base, &resolved.path, &mut made) {
        Ok(()) => Ok(made),
        Err(error) => {
            super::remove_empty(&made);
            Err(DoorError::from_errno(&resolved.shown, error))
        }
    }
}

fn create_missing(base: &Path, path: &Path, made: &mut Vec<PathBuf>) -> Result<(), Errno> {
    let (parent, _) = walk::split(path);
    let mut missing = Vec::new();
    let mut deepest = parent;
    let mut directory = loop {
        match walk::open_directory(base, deepest) {
            Ok(directory) => break directory,
            Err(Errno::NOENT) => {
                missing.push(deepest);
                deepest = walk::split(deepest).0;
            }
            Err(errno) => return Err(errno),
        }
    };
    for path in missing.into_iter().rev() {
        let name = Path::new(walk::split(path).1);
        match rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(0o777)) {
            Ok(()) => made.push(path.to_owned()),
            // Someone else wants it as well.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        directory = open_at(&directory, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    }
    Ok(())
}

/// Creates the file at `path` for this user alone (mode 0600), and the folders above it that are missing (mode 0700).
/// What stood there before is removed. For the engine's own files, such as saved outputs.
///
/// # Errors
/// When the system refuses; the error names the path.
pub fn create_private(path: &Path) -> std::io::Result<File> {
    if let Some(parent) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = fs_err::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    Ok(file.into_parts().0)
}
