//! The table on disk: sled.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fs_err as fs;

use crate::handle::Handle;
use crate::table::{Batch, Pair, Table, take};
use crate::{StoreError, sled_log};

/// How much of the table sled may keep in memory, in bytes.
const CACHE: u64 = 1024 * 1024;

/// Sled writes a leaf of up to 16 values as one message, and moves messages over a quarter of a segment to files of
/// their own, which it does not sync. With segments of 8 MB even 16 frames of 64 KB stay in the log that is synced.
const SEGMENT: usize = 8 * 1024 * 1024;

/// How long to wait until threads of a sled that this process closed let go of its file.
const REOPEN: Duration = Duration::from_secs(5);

/// A table in a sled database.
pub(crate) struct SledTable {
    directory: PathBuf,
    handle: Handle<Opened>,
}

struct Opened {
    database: sled::Db,
    /// Sled flushes with `sync_file_range` on Linux, which does not make a file's new length durable, nor empties the
    /// disk's own cache. So its file is synced here as well.
    file: fs::File,
    /// A batch was written since the last flush.
    is_dirty: AtomicBool,
}

impl SledTable {
    /// Opens or creates the database in `directory`. The caller sees to it that no other process does.
    pub(crate) fn open(directory: &Path) -> Result<Self, StoreError> {
        let handle = Handle::open(directory, || {
            sled_log::check(directory, SEGMENT)?;
            Opened::new(directory)
        })?;
        Ok(Self { directory: directory.to_owned(), handle })
    }

    /// Where the log of the database in `directory`, which is not open, is damaged: its file, and a place in it.
    pub(crate) fn damage(directory: &Path) -> Result<Option<(PathBuf, u64)>, StoreError> {
        sled_log::damage(directory, SEGMENT)
    }

    /// The same, of a copy that may be damaged: what was written behind that is cut off, as sled does it.
    pub(crate) fn open_cut(directory: &Path) -> Result<Self, StoreError> {
        let handle = Handle::open(directory, || Opened::new(directory))?;
        Ok(Self { directory: directory.to_owned(), handle })
    }
}

impl Opened {
    fn new(directory: &Path) -> Result<Self, StoreError> {
        let database = open_patiently(directory)?;
        // Sled has created its files by now; their names have to be durable as well.
        fs::File::open(directory)?.sync_all()?;
        let file = fs::OpenOptions::new().read(true).write(true).open(directory.join("db"))?;
        Ok(Self { database, file, is_dirty: AtomicBool::new(false) })
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.database.flush().map_err(|error| backend(&error))?;
        if cfg!(target_os = "linux") {
            self.file.sync_data()?;
        }
        self.is_dirty.store(false, Ordering::Relaxed);
        Ok(())
    }
}

/// No other process can have the database open, because this one holds the lock of the data directory; but threads of
/// a database that was closed a moment ago may.
fn open_patiently(directory: &Path) -> Result<sled::Db, StoreError> {
    let config =
        sled::Config::new().path(directory).cache_capacity(CACHE).segment_size(SEGMENT).flush_every_ms(None);
    let begun = Instant::now();
    loop {
        match config.open() {
            Err(sled::Error::Io(error))
                if error.to_string().contains("could not acquire lock") && begun.elapsed() < REOPEN =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            // The disk was full, or the process died, while sled wrote a snapshot of its index.
            Err(sled::Error::Corruption { .. }) if remove_unfinished(directory)? => {}
            Err(error @ sled::Error::Corruption { .. }) => {
                let found = format!("it cannot be opened ({error})");
                return Err(StoreError::Damaged { what: directory.display().to_string(), found });
            }
            result => return result.map_err(|error| backend(&error)),
        }
    }
}

/// Removes snapshots of the index that were never finished: sled reads them as if they were, and finds them damaged. They are
/// made again from its log. Whether there were any.
fn remove_unfinished(directory: &Path) -> Result<bool, StoreError> {
    let mut removed = false;
    for file in fs::read_dir(directory)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "generating") {
            fs::remove_file(&path)?;
            tracing::warn!("removed the unfinished file {}", path.display());
            removed = true;
        }
    }
    Ok(removed)
}

fn backend(error: &sled::Error) -> StoreError {
    let text = format!("sled: {error}");
    match error {
        sled::Error::Io(io) => StoreError::of_disk(io, text),
        sled::Error::Corruption { .. } => {
            StoreError::Damaged { what: "the database".to_owned(), found: text }
        }
        _ => StoreError::Backend(text),
    }
}

fn range(from: &[u8], to: &[u8]) -> Range<Vec<u8>> {
    from.to_vec()..to.to_vec()
}

impl Table for SledTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.handle.with(|opened| {
            Ok(opened.database.get(key).map_err(|error| backend(&error))?.map(|value| value.to_vec()))
        })
    }

    fn page(&self, from: &[u8], to: &[u8], limit: usize, bytes: usize) -> Result<Vec<Pair>, StoreError> {
        if from >= to {
            return Ok(Vec::new());
        }
        self.handle.with(|opened| {
            let pairs = opened.database.range(range(from, to)).map(|pair| {
                pair.map(|(key, value)| (key.to_vec(), value.to_vec())).map_err(|error| backend(&error))
            });
            take(pairs, limit, bytes)
        })
    }

    fn last_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if from >= to {
            return Ok(None);
        }
        self.handle.with(|opened| {
            let last = opened.database.range(range(from, to)).next_back();
            Ok(last.transpose().map_err(|error| backend(&error))?.map(|(key, _)| key.to_vec()))
        })
    }

    /// A leaf of 16 values is written anew when it is split, and its halves again. Where its keys are there already, it is not
    /// split, and each value is written once.
    fn wants_keys_first(&self) -> bool {
        true
    }

    fn apply(&self, batch: Batch) -> Result<(), StoreError> {
        let mut changes = sled::Batch::default();
        for (key, value) in batch {
            match value {
                Some(value) => changes.insert(key, value),
                None => changes.remove(key),
            }
        }
        self.handle.with(|opened| {
            // It is told by the batches behind a place whether that was durable (`sled_log`).
            if opened.is_dirty.load(Ordering::Relaxed) {
                opened.flush()?;
            }
            opened.is_dirty.store(true, Ordering::Relaxed);
            opened.database.apply_batch(changes).map_err(|error| backend(&error))
        })
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.handle.with(Opened::flush)
    }

    fn reopen(&self) -> Result<(), StoreError> {
        self.handle.reopen(|| {
            sled_log::check(&self.directory, SEGMENT)?;
            Opened::new(&self.directory)
        })
    }
}
