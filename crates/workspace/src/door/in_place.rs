//! Writing a file in place: where no other one can come in its place, or where it has several names.
//!
//! A reader may see a mixture of the old and the new content, and so may the next process if this one ends in the middle.
//! So the old content is [kept](super::kept) first.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use parking_lot::Mutex;
use rustix::fs::{OFlags, Stat};

use super::kept::Kept;
use super::walk::Spot;
use super::{DoorError, Expected, InPlace};
use crate::{Resolved, hash};

/// Bytes that are written at once.
const PIECE: usize = 64 * 1024;

/// Writes `content` over the file at `spot`, which has the facts `before`.
pub(super) fn write(
    spot: &Spot<'_>,
    resolved: &Resolved,
    before: &Stat,
    content: &[u8],
    expected: Expected,
    keeping: &InPlace<'_>,
) -> Result<(), DoorError> {
    // Two names of a file are two paths, which are locked one by one.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let failed = |error| DoorError::from_io(&resolved.shown, error);
    let changed = || DoorError::Changed(resolved.shown.clone());
    let file = File::from(spot.open(OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY)?);
    let now = rustix::fs::fstat(&file).map_err(|error| spot.error(error))?;
    let facts = |stat: &Stat| (stat.st_dev, stat.st_ino, stat.st_mode, stat.st_nlink);
    if facts(&now) != facts(before) {
        return Err(changed());
    }
    let mut old = Vec::new();
    std::io::Read::read_to_end(&mut &file, &mut old).map_err(failed)?;
    match expected {
        Expected::Content(expected) if hash(&old) != expected => return Err(changed()),
        Expected::Nothing => return Err(DoorError::Exists(resolved.shown.clone())),
        Expected::Content(_) | Expected::Anything => {}
    }
    let kept = Kept::keep(keeping.kept, resolved, &old, content).map_err(failed)?;
    if let Err(error) = overwrite(&file, content).and_then(|()| file.sync_data()) {
        return Err(match overwrite(&file, &old).and_then(|()| file.sync_data()) {
            Ok(()) => {
                kept.remove();
                failed(error)
            }
            Err(_) => DoorError::Torn {
                path: resolved.shown.clone(),
                kept: kept.leave().to_string_lossy().into_owned(),
                source: error,
            },
        });
    }
    kept.remove();
    Ok(())
}

/// Makes `content` the content of `file`, from the front on.
pub(super) fn overwrite(file: &File, content: &[u8]) -> std::io::Result<()> {
    for (index, piece) in content.chunks(PIECE).enumerate() {
        #[cfg(test)]
        super::tests::cut::here(index * PIECE)?;
        file.write_all_at(piece, (index * PIECE) as u64)?;
    }
    #[cfg(test)]
    super::tests::cut::here(content.len())?;
    file.set_len(content.len() as u64)
}
