//! The table on disk: redb.
//!
//! A batch is a transaction that is not made durable; the flush is an empty one that is, and takes with it all before.
//! Redb syncs once for that: which of its two roots is good is told by checksums. After a crash it walks its trees when it
//! is opened, to know again which pages are free.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use fs_err as fs;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use crate::StoreError;
use crate::handle::Handle;
use crate::table::{Batch, Pair, Table, take};

/// How much of the table redb may keep in memory, in bytes.
const CACHE: usize = 16 * 1024 * 1024;

/// The file in its directory.
const FILE: &str = "db";

const PAIRS: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("pairs");

/// A table in a redb database.
pub(crate) struct RedbTable {
    directory: PathBuf,
    handle: Handle<Database>,
    /// Something failed since it was opened: redb then answers from its cache only, and nothing beside that.
    failed: AtomicBool,
}

impl RedbTable {
    /// Opens or creates the database in `directory`. The caller sees to it that no other process does.
    pub(crate) fn open(directory: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            directory: directory.to_owned(),
            handle: Handle::open(directory, || open(directory))?,
            failed: AtomicBool::new(false),
        })
    }

    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let result = self.handle.with(work);
        if result.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        result
    }
}

fn open(directory: &Path) -> Result<Database, StoreError> {
    fs::create_dir_all(directory)?;
    let path = directory.join(FILE);
    let opened = Database::builder().set_cache_size(CACHE).create(&path);
    let database = opened.map_err(|error| match backend(error) {
        StoreError::Backend(found) | StoreError::Damaged { found, .. } => {
            let found = format!("it cannot be opened ({found})");
            StoreError::Damaged { what: path.display().to_string(), found }
        }
        error => error,
    })?;
    // Nothing is written to one that is there: it can be read on a full disk.
    if pairs(&database).is_err() {
        // Readers find the pairs from the beginning.
        let transaction = database.begin_write().map_err(backend)?;
        transaction.open_table(PAIRS).map_err(backend)?;
        transaction.commit().map_err(backend)?;
        fs::File::open(directory)?.sync_all()?;
    }
    Ok(database)
}

fn backend(error: impl Into<redb::Error>) -> StoreError {
    let error = error.into();
    let text = format!("redb: {error}");
    match &error {
        // So it calls what is not its own any more.
        redb::Error::Io(io) if matches!(io.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
            StoreError::Damaged { what: "the database".to_owned(), found: text }
        }
        redb::Error::Io(io) => StoreError::of_disk(io, text),
        redb::Error::Corrupted(_) => StoreError::Damaged { what: "the database".to_owned(), found: text },
        _ => StoreError::Backend(text),
    }
}

fn range<'a>(from: &'a [u8], to: &'a [u8]) -> Range<&'a [u8]> {
    from..to
}

/// What readers read.
fn pairs(database: &Database) -> Result<redb::ReadOnlyTable<&'static [u8], &'static [u8]>, StoreError> {
    database.begin_read().map_err(backend)?.open_table(PAIRS).map_err(backend)
}

impl Table for RedbTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.with(|database| {
            let value = pairs(database)?.get(key).map_err(backend)?;
            Ok(value.map(|value| value.value().to_vec()))
        })
    }

    fn page(&self, from: &[u8], to: &[u8], limit: usize, bytes: usize) -> Result<Vec<Pair>, StoreError> {
        if from >= to {
            return Ok(Vec::new());
        }
        self.with(|database| {
            let found = pairs(database)?.range(range(from, to)).map_err(backend)?.map(|pair| {
                let (key, value) = pair.map_err(backend)?;
                Ok((key.value().to_vec(), value.value().to_vec()))
            });
            take(found, limit, bytes)
        })
    }

    fn can_be_read(&self) -> bool {
        !self.failed.load(Ordering::Acquire)
    }

    fn last_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if from >= to {
            return Ok(None);
        }
        self.with(|database| {
            let last = pairs(database)?.range(range(from, to)).map_err(backend)?.next_back();
            Ok(last.transpose().map_err(backend)?.map(|(key, _)| key.value().to_vec()))
        })
    }

    fn apply(&self, batch: Batch) -> Result<(), StoreError> {
        self.with(|database| {
            let mut transaction = database.begin_write().map_err(backend)?;
            transaction.set_durability(Durability::None).map_err(backend)?;
            {
                let mut pairs = transaction.open_table(PAIRS).map_err(backend)?;
                for (key, value) in &batch {
                    match value {
                        Some(value) => drop(pairs.insert(&key[..], &value[..]).map_err(backend)?),
                        None => drop(pairs.remove(&key[..]).map_err(backend)?),
                    }
                }
            }
            transaction.commit().map_err(backend)
        })
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.with(|database| {
            let mut transaction = database.begin_write().map_err(backend)?;
            transaction.set_durability(Durability::Immediate).map_err(backend)?;
            transaction.commit().map_err(backend)
        })
    }

    fn reopen(&self) -> Result<(), StoreError> {
        self.handle.reopen(|| {
            let database = open(&self.directory)?;
            self.failed.store(false, Ordering::Release);
            Ok(database)
        })
    }
}
