//! Opening a data directory.
//!
//! ```text
//! DATA/format.json   what this is, in which version: written first, in one step
//! DATA/lock          held by the process that has the store open
//! DATA/sled/         the table: logs, projections, shelf
//! DATA/blobs/        content by hash
//! ```
//!
//! `format.json` comes first, so that a creation that was cut off at any point leaves either a directory with nothing
//! but its lock (and perhaps an unfinished `format.json.new`), which is begun again, or one that says what it is, in
//! which everything else is made when it is missing. A store is of version 1 until the first fork is made in it, and of
//! version 2 from then on.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::blobs::{FileBlobs, sync_folder};
use crate::lock::{self, DataLock};
use crate::logs::TableStore;
use crate::memory::{MemoryBlobs, MemoryTable};
use crate::projection::Source;
use crate::sled_table::SledTable;
use crate::table::Table;
use crate::{Blobs, Shelf, Store, StoreError, index, keys, ledger};

const FORMAT: &str = "playhouse-store";
/// The newest version that is read.
const VERSION: u64 = FORKS;
/// The version of a store in which no log shares records with another.
const PLAIN: u64 = 1;
/// The version of a store in which logs may share records: an older engine, which takes a session's records away with
/// the session, must not open it.
const FORKS: u64 = 2;
const BACKEND: &str = "sled";
const FILE: &str = "format.json";
const NEW_FILE: &str = "format.json.new";
const GENERATION: &str = "engine/generation";

/// What `format.json` says.
#[derive(Serialize, Deserialize)]
struct Format {
    format: String,
    version: u64,
    backend: String,
}

impl Store {
    /// Opens the store in the directory `data`, and creates it where there is none yet. The directory is held until
    /// the last clone of the store and of its parts is gone.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another process has it open; [`StoreError::Format`] when the directory holds
    /// something else, or a store that this engine cannot read. In both cases nothing was changed.
    pub fn open(data: &Path) -> Result<Self, StoreError> {
        inspect(data)?;
        make_directory(data)?;
        let lock = Arc::new(DataLock::take(data)?);
        // Again, now that nobody else can be creating a store here.
        let version = match inspect(data)? {
            Found::Store(version) => version,
            Found::Nothing => {
                write_format(data, PLAIN)?;
                PLAIN
            }
        };
        let format = FormatFile { data: data.to_owned(), version: AtomicU64::new(version) };
        let blobs = Arc::new(FileBlobs::new(data.join("blobs"), Arc::clone(&lock)));
        let directory = data.join(BACKEND);
        let table = SledTable::open(&directory, lock)?;
        sync_folder(data)?;
        Self::start(Box::new(table), blobs, Some(format))
    }

    /// Makes `data` the directory of a store where there is none yet, and opens nothing.
    ///
    /// # Errors
    /// As for [`Store::open`].
    pub fn prepare(data: &Path) -> Result<(), StoreError> {
        if let Found::Store(_) = inspect(data)? {
            return Ok(());
        }
        make_directory(data)?;
        let _lock = DataLock::take(data)?;
        match inspect(data)? {
            Found::Store(_) => Ok(()),
            Found::Nothing => write_format(data, PLAIN),
        }
    }

    /// A store that lives as long as its handles, without a disk. Everything else is as with [`Store::open`], the
    /// writer's thread included.
    pub fn memory() -> Result<Self, StoreError> {
        Self::start(Box::new(MemoryTable::default()), Arc::new(MemoryBlobs::default()), None)
    }

    fn start(
        table: Box<dyn Table>,
        blobs: Arc<dyn Blobs>,
        format: Option<FormatFile>,
    ) -> Result<Self, StoreError> {
        let mut source = Source::new(table, Arc::clone(&blobs), format);
        let before = source.table.get(&keys::shelf(GENERATION))?;
        let generation = generation_after(before.as_deref())?;
        source.feed_end = AtomicU64::new(ledger::prepare(&source, generation)?);
        index::prepare(&source, generation)?;
        let tables = Arc::new(TableStore::start(source)?);
        // Its flush makes durable what ledger and index needed.
        let new = generation.to_string();
        if !tables.compare_and_set(GENERATION, before.as_deref(), Some(new.as_bytes()))? {
            return Err(StoreError::Backend(format!(
                "\"{GENERATION}\" on the shelf was changed by somebody else"
            )));
        }
        let (log, ledger) = (Arc::clone(&tables) as _, Arc::clone(&tables) as _);
        Ok(Self { log, ledger, shelf: tables, blobs, generation })
    }
}

/// The file that says what a data directory holds, in which version.
pub(crate) struct FormatFile {
    data: PathBuf,
    version: AtomicU64,
}

impl FormatFile {
    /// Says durably that logs may share records, before the first two of them do.
    pub(crate) fn allow_forks(&self) -> Result<(), StoreError> {
        if self.version.load(Ordering::Relaxed) < FORKS {
            write_format(&self.data, FORKS)?;
            self.version.store(FORKS, Ordering::Relaxed);
        }
        Ok(())
    }
}

enum Found {
    /// No store yet, and nothing else.
    Nothing,
    /// A store that this engine reads, of this version.
    Store(u64),
}

/// Looks at the directory without changing anything.
fn inspect(data: &Path) -> Result<Found, StoreError> {
    let refuse = |found: String| {
        let known = format!("{FORMAT} versions {PLAIN} to {VERSION} ({BACKEND})");
        Err(StoreError::Format { path: data.to_owned(), found, known })
    };
    match fs::metadata(data) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error.into()),
        Ok(metadata) if !metadata.is_dir() => return refuse("is not a directory".to_owned()),
        Ok(_) => {}
    }
    let text = match fs::read(data.join(FILE)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return match first_foreign(data)? {
                Some(name) => refuse(format!(
                    "holds something else ({name}, for one) and no {FILE}; name an empty directory"
                )),
                None => Ok(Found::Nothing),
            };
        }
        result => result?,
    };
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(&text) else {
        return refuse(format!("has a {FILE} that is not JSON"));
    };
    // Looked at by field: a newer format may have changed all but these two.
    if value["format"] != FORMAT {
        return refuse(format!("holds the foreign format {}", value["format"]));
    }
    let version = value["version"].as_u64().filter(|version| (PLAIN..=VERSION).contains(version));
    let Some(version) = version else {
        return refuse(format!("holds {FORMAT} version {}", value["version"]));
    };
    if value["backend"] != BACKEND {
        return refuse(format!("holds {FORMAT} version {version} with the backend {}", value["backend"]));
    }
    Ok(Found::Store(version))
}

/// A file that no interrupted creation of a store leaves behind.
fn first_foreign(data: &Path) -> Result<Option<String>, StoreError> {
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_ours = match name.to_str() {
            Some(lock::FILE) => fs::read(entry.path()).is_ok_and(|content| lock::is_ours(&content)),
            Some(NEW_FILE) => true,
            _ => false,
        };
        if !is_ours {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

fn make_directory(data: &Path) -> Result<(), StoreError> {
    if data.is_dir() {
        return Ok(());
    }
    // Conversations are private.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(|error| {
        let text = format!("failed to create the data directory {}: {error}", data.display());
        std::io::Error::new(error.kind(), text)
    })?;
    match data.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_folder(parent),
        _ => Ok(()),
    }
}

fn write_format(data: &Path, version: u64) -> Result<(), StoreError> {
    let format = Format { format: FORMAT.to_owned(), version, backend: BACKEND.to_owned() };
    let mut text = serde_json::to_vec(&format).map_err(|error| StoreError::Backend(error.to_string()))?;
    text.push(b'\n');
    let path = data.join(NEW_FILE);
    let mut file = fs::File::create(&path)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&path, data.join(FILE))?;
    sync_folder(data)
}

/// The number of the opening after the one that is on the shelf.
fn generation_after(before: Option<&[u8]>) -> Result<u64, StoreError> {
    let Some(text) = before else { return Ok(1) };
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<u64>().ok()?.checked_add(1))
        .ok_or_else(|| StoreError::Backend(format!("\"{GENERATION}\" on the shelf is not a number")))
}
