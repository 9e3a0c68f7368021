//! Looks through a store that nobody has open, and leaves it as it is.
//!
//! No backend can be opened without being written to: redb repairs itself, sled cuts off what it cannot read. So a copy of the
//! database is opened, in a folder for temporary files; blobs are read where they are. A directory that can only be read is
//! looked through as well, and so is a database that the engine refuses.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fs_err as fs;
use playhouse_protocol::upkeep::{StoreProblem, StoreReport};

use super::{check, of_damage};
use crate::blobs::{BLOBS, FileBlobs};
use crate::format::{Backend, inspect};
use crate::in_hand::InHand;
use crate::journaled::Journaled;
use crate::lock::DataLock;
use crate::open::{GENERATION, generation_after};
use crate::projection::Source;
use crate::redb_table::RedbTable;
use crate::sled_table::SledTable;
use crate::switch::Switch;
use crate::table::Table;
use crate::{Store, StoreError, index, keys, ledger, marker, site};

/// What a backend may add to a copy when it opens it, in bytes.
const ROOM: u64 = 64 * 1024 * 1024;

/// What a problem with sled's snapshots alone begins with.
const WITHOUT_SNAPSHOTS: &str = "without its snapshots (`snap.*`)";

/// Whether nothing that was written is lost with this problem of a database.
pub(crate) fn is_of_snapshots(problem: &StoreProblem) -> bool {
    problem.what.starts_with(WITHOUT_SNAPSHOTS)
}

impl Store {
    /// Looks through the store in the directory `data`, which nobody has open, as [`crate::Upkeep::check`] does. Nothing is
    /// changed there, and nothing needs to be writable: a copy of the database is made in the folder for temporary files
    /// (`TMPDIR`), and removed.
    ///
    /// # Errors
    /// [`StoreError::Locked`] while somebody has it open; [`StoreError::Format`] when the directory holds no store, or one that
    /// this engine cannot read; no copy can be made, or the copy cannot be read at all.
    pub fn check_closed(data: &Path) -> Result<StoreReport, StoreError> {
        let Some(format) = inspect(data)? else {
            let (path, found) = (data.to_owned(), "holds no store".to_owned());
            return Err(StoreError::Format { path, found, known: "one that an engine has made".to_owned() });
        };
        let _lock = DataLock::look(data)?;
        let place = site::place_of(data, format.backend)?;
        let mut problems = Vec::new();
        if site::holds_nothing(&place)?
            && let Err(error) = marker::check(data, &place, 0)
        {
            return Ok(StoreReport { problems: vec![of_damage(error)?], ..StoreReport::default() });
        }
        let folder = tempfile::Builder::new().prefix("playhouse-check-").tempdir().map_err(|error| {
            let text = format!(
                "the database is looked at in a copy, for which no folder can be made among the temporary files: set TMPDIR to a \
                 folder that can be written ({error})"
            );
            std::io::Error::new(error.kind(), text)
        })?;
        let table = match open_copy(format.backend, &place, &folder.path().join("database")) {
            Ok((table, of_database)) => {
                problems.extend(of_database);
                table
            }
            Err(error) => {
                problems.push(of_damage(error)?);
                return Ok(StoreReport { problems, ..StoreReport::default() });
            }
        };
        let in_hand = Arc::new(InHand::new(Duration::ZERO));
        let blobs = Arc::new(FileBlobs::to_read(data.join(BLOBS), Arc::clone(&in_hand)));
        let switch = Arc::new(Switch::new(table, None, in_hand)?);
        let mut source = Source::new(switch, blobs);
        // What an engine makes good when it opens the store is not wrong with it.
        let ready = || -> Result<u64, StoreError> {
            let generation = generation_after(source.table.get(&keys::shelf(GENERATION))?.as_deref())?;
            marker::check(data, &place, generation.saturating_sub(1))?;
            marker::check_end(data, &place, generation.saturating_sub(1), &*source.table)?;
            index::prepare(&source, generation)?;
            ledger::prepare(&source, generation)
        };
        match ready() {
            Ok(feed_end) => source.feed_end = AtomicU64::new(feed_end),
            Err(error) => problems.push(of_damage(error)?),
        }
        let mut report = check(&source)?;
        report.problems.splice(0..0, problems);
        Ok(report)
    }
}

/// Opens a copy of the database in `place`, which is made as `copy`. Where the engine would refuse the database, that is a problem,
/// and what can be read of it is opened.
///
/// # Errors
/// [`StoreError::Damaged`], of the database, where nothing of it can be opened; there is no room for a copy.
pub(crate) fn open_copy(
    backend: Backend,
    place: &Path,
    copy: &Path,
) -> Result<(Box<dyn Table>, Vec<StoreProblem>), StoreError> {
    copy_database(place, copy)?;
    // Who reads it knows nothing of a copy.
    let of_original = |error| match error {
        StoreError::Damaged { found, .. } => StoreError::Damaged { what: place.display().to_string(), found },
        error => error,
    };
    let mut problems = Vec::new();
    let with_journal = |base: Box<dyn Table>, mut problems: Vec<StoreProblem>| {
        let (table, damages) = Journaled::open_cut(copy, base).map_err(of_original)?;
        for damage in damages {
            problems.push(of_damage(of_original(damage))?);
        }
        Ok((Box::new(table) as Box<dyn Table>, problems))
    };
    if backend == Backend::Redb {
        return with_journal(Box::new(RedbTable::open(copy).map_err(of_original)?), problems);
    }
    if let Some((_, byte)) = SledTable::damage(copy)? {
        problems.push(StoreProblem {
            place: place.join(site::DATABASE).display().to_string(),
            what: format!(
                "byte {byte} is not what was written, so that the engine refuses this store; what was written later cannot be \
                 read, and is not in this report"
            ),
        });
    }
    let error = match SledTable::open_cut(copy) {
        Ok(table) => return with_journal(Box::new(table), problems),
        Err(error) => of_original(error),
    };
    // All is in its log: what it keeps beside that to be quick may be damaged alone.
    if !matches!(error, StoreError::Damaged { .. }) || !remove_snapshots(copy)? {
        return Err(error);
    }
    let table = SledTable::open_cut(copy).map_err(of_original)?;
    problems.push(StoreProblem {
        place: place.display().to_string(),
        what: format!("{WITHOUT_SNAPSHOTS} it can be opened; with them it cannot: {error}"),
    });
    with_journal(Box::new(table), problems)
}

/// Removes what sled keeps of its index beside its log; whether there was such a thing.
fn remove_snapshots(database: &Path) -> Result<bool, StoreError> {
    let mut removed = false;
    for entry in fs::read_dir(database)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("snap.") {
            fs::remove_file(entry.path())?;
            removed = true;
        }
    }
    Ok(removed)
}

/// Copies a database, where there is room for it.
fn copy_database(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::create_dir(to)?;
    let (size, free) = (site::size(from)?, rustix::fs::statvfs(to).map_err(std::io::Error::from)?);
    let free = free.f_bavail.saturating_mul(free.f_frsize);
    if free < size.saturating_add(ROOM) {
        return Err(std::io::Error::new(
            ErrorKind::StorageFull,
            format!(
                "the database is looked at in a copy, which needs {size} bytes and some room in {}, where {free} are free: \
                 set TMPDIR to a folder with more",
                to.display()
            ),
        )
        .into());
    }
    copy_folder(from, to)
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            fs::create_dir(&to)?;
            copy_folder(&from, &to)?;
        } else {
            // Not its permissions: a copy of what can only be read has to be written.
            std::io::copy(&mut fs::File::open(&from)?, &mut fs::File::create(&to)?)?;
        }
    }
    Ok(())
}
