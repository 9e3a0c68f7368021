//! Where the database lies in a data directory, and how it moves.
//!
//! ```text
//! DATA/sled       the database, of a store that was never compacted (or DATA/redb)
//! DATA/sled-3     the one that the third compaction made
//! DATA/current    names the one that counts; without it, it is the first
//! ```
//!
//! The pointer is written beside, synced, renamed, and its folder synced. Whatever else has a name of this form is what a
//! compaction left that was cut off, and is removed when the store is opened.

use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fs_err as fs;

use crate::StoreError;
use crate::blobs::{BLOBS, sync_folder};
use crate::format::{Backend, FormatFile, write_beside};
use crate::journaled::Journaled;
use crate::lock::DataLock;
use crate::marker;
use crate::redb_table::RedbTable;
use crate::sled_table::SledTable;
use crate::table::Table;
use crate::witness::Seen;

const POINTER: &str = "current";
const NEW_POINTER: &str = "current.new";

/// The file of both backends that holds everything.
pub(crate) const DATABASE: &str = "db";

/// What folders begin with in which a database is saved from damage.
pub(crate) const SALVAGING: &str = "salvage-";

/// So many bytes have to fit on the disk before a database that failed is opened again: a backend writes when it is opened.
const ROOM: usize = 4 * 1024 * 1024;

/// How it stands with a pointer that was changed.
#[derive(Debug)]
pub(crate) enum Pointed {
    /// It is durable.
    Durably,
    /// It was renamed, and nobody knows what a crash would leave: [`Site::sync`] has to succeed before anything else is
    /// acknowledged.
    Perhaps(StoreError),
}

/// Where databases lie, by number. One of them counts.
pub(crate) trait Site: Send + Sync {
    /// Whether it is still the one that was opened.
    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The number of the one that counts.
    fn current(&self) -> u64;

    /// What the one that counts takes up, in bytes.
    fn size(&self) -> Result<u64, StoreError>;

    /// Makes an empty one beside it.
    fn make(&self) -> Result<(u64, Box<dyn Table>), StoreError>;

    /// Makes this one count. After an error it does not.
    fn point_at(&self, number: u64) -> Result<Pointed, StoreError>;

    /// Whether what is written beside the databases becomes durable, some megabytes of it.
    fn try_writing(&self) -> Result<(), StoreError>;

    /// Makes the pointer durable as it is.
    fn sync(&self) -> Result<(), StoreError>;

    /// Removes one that does not count and is closed.
    fn remove(&self, number: u64) -> Result<(), StoreError>;
}

/// A data directory.
pub(crate) struct DiskSite {
    data: PathBuf,
    format: Arc<FormatFile>,
    current: AtomicU64,
    /// The last one that was made. None is made where another is being removed.
    made: AtomicU64,
    /// Held as long as somebody may open databases here.
    lock: Arc<DataLock>,
}

impl DiskSite {
    /// Finds the database that counts, removes the others, and opens or creates it.
    pub(crate) fn open(
        data: &Path,
        format: Arc<FormatFile>,
        lock: Arc<DataLock>,
    ) -> Result<(Self, Box<dyn Table>), StoreError> {
        let backend = format.backend;
        let current = read_pointer(data, backend)?;
        let place = data.join(directory(backend, current));
        // An empty one would be begun in its place.
        if holds_nothing(&place)? {
            marker::check(data, &place, 0)?;
        }
        remove_others(data, backend, current)?;
        remove_salvaging(data)?;
        let table = open_table(backend, &place)?;
        sync_folder(data)?;
        Ok((Self::at(data, format, current, lock), table))
    }

    /// The data directory `data`, whose database is not opened.
    pub(crate) fn closed(
        data: &Path,
        format: Arc<FormatFile>,
        lock: Arc<DataLock>,
    ) -> Result<Self, StoreError> {
        let current = read_pointer(data, format.backend)?;
        Ok(Self::at(data, format, current, lock))
    }

    fn at(data: &Path, format: Arc<FormatFile>, current: u64, lock: Arc<DataLock>) -> Self {
        let [current, made] = [current, current].map(AtomicU64::new);
        Self { data: data.to_owned(), format, current, made, lock }
    }

    /// Refuses a database that knows of `found` openings only, where there were more.
    pub(crate) fn check_opened(&self, found: u64) -> Result<(), StoreError> {
        marker::check(&self.data, &self.place(self.current()), found)
    }

    /// Refuses a database that lost what it had at the end of the opening `generation`.
    pub(crate) fn check_end(&self, generation: u64, table: &dyn Table) -> Result<(), StoreError> {
        marker::check_end(&self.data, &self.place(self.current()), generation, table)
    }

    /// Remembers beside the database what it has at the end of the opening `generation`.
    pub(crate) fn remember_end(&self, generation: u64, seen: &Seen) -> Result<(), StoreError> {
        self.lock.check()?;
        marker::write_end(&self.data, generation, seen)
    }

    /// Remembers beside the database what it says of itself, durably: that this is the opening `generation`.
    pub(crate) fn remember_opened(&self, generation: u64) -> Result<(), StoreError> {
        marker::write(&self.data, generation)
    }

    fn place(&self, number: u64) -> PathBuf {
        self.data.join(directory(self.format.backend, number))
    }
}

/// Where the database that counts lies. Changes nothing.
pub(crate) fn place_of(data: &Path, backend: Backend) -> Result<PathBuf, StoreError> {
    Ok(data.join(directory(backend, read_pointer(data, backend)?)))
}

/// Whether a database has no file, or an empty one.
pub(crate) fn holds_nothing(place: &Path) -> Result<bool, StoreError> {
    match fs::metadata(place.join(DATABASE)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error.into()),
        Ok(found) => Ok(found.len() == 0),
    }
}

/// Removes a database that does not count any more.
pub(crate) fn remove_database(place: &Path) -> Result<(), StoreError> {
    remove_all(place)
}

pub(crate) fn open_table(backend: Backend, directory: &Path) -> Result<Box<dyn Table>, StoreError> {
    let base: Box<dyn Table> = match backend {
        Backend::Sled => Box::new(SledTable::open(directory)?),
        Backend::Redb => Box::new(RedbTable::open(directory)?),
    };
    Ok(Box::new(Journaled::open(directory, base)?))
}

fn try_writing_in(folder: &Path) -> io::Result<()> {
    // It has no name, so nothing is left of it however this ends.
    let mut file = tempfile::tempfile_in(folder)?;
    let piece = [0; 64 * 1024];
    for _ in 0..ROOM / piece.len() {
        file.write_all(&piece)?;
    }
    file.sync_all()
}

fn directory(backend: Backend, number: u64) -> String {
    match number {
        0 => backend.name().to_owned(),
        number => format!("{backend}-{number}"),
    }
}

/// The number that a name of this form holds.
fn number_of(backend: Backend, name: &str) -> Option<u64> {
    let number = match name.strip_prefix(backend.name())? {
        "" => 0,
        rest => rest.strip_prefix('-')?.parse().ok()?,
    };
    // Not `sled-03`, nor `sled-0`.
    (directory(backend, number) == name).then_some(number)
}

fn read_pointer(data: &Path, backend: Backend) -> Result<u64, StoreError> {
    let path = data.join(POINTER);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return without_pointer(data, backend),
        result => result?,
    };
    let refuse = |found: &str| StoreError::Format {
        path: path.clone(),
        found: format!("{found}: \"{}\"", text.trim_ascii_end().escape_ascii()),
        known: format!("the name of a directory beside it, as in {backend}-1"),
    };
    let name = std::str::from_utf8(&text).ok().map(str::trim_end);
    let number = name.and_then(|name| number_of(backend, name));
    let number = number.ok_or_else(|| refuse("does not name a database"))?;
    // An empty one in its place would hide that all is lost.
    match data.join(directory(backend, number)).is_dir() {
        true => Ok(number),
        false => Err(refuse("names a database that is not there")),
    }
}

/// The first one counts. Where there are only others, a compaction had moved the database, and what named it is lost.
fn without_pointer(data: &Path, backend: Backend) -> Result<u64, StoreError> {
    if data.join(directory(backend, 0)).exists() {
        return Ok(0);
    }
    for entry in fs::read_dir(data)? {
        let name = entry?.file_name();
        if let Some(name) = name.to_str().filter(|name| number_of(backend, name).is_some()) {
            return Err(StoreError::Format {
                path: data.to_owned(),
                found: format!(
                    "holds the database {name}, and no file \"{POINTER}\" that says whether it counts"
                ),
                known: format!(
                    "\"{POINTER}\" with the name of the database in it: restore it from a copy of the directory, or write \
                     {name} into it if that is the only one"
                ),
            });
        }
    }
    Ok(0)
}

fn remove_others(data: &Path, backend: Backend, current: u64) -> Result<(), StoreError> {
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| number_of(backend, name));
        if number.is_some_and(|number| number != current) {
            tracing::info!("{} is what a compaction left, and is removed", entry.path().display());
            remove_all(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes the copies of a salvage that was killed. The caller holds the lock.
pub(crate) fn remove_salvaging(data: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(SALVAGING) && entry.file_type()?.is_dir() {
            tracing::info!("{} is what a salvage left, and is removed", entry.path().display());
            remove_all(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a directory that may be half gone already.
fn remove_all(directory: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => Ok(result?),
    }
}

/// What the files in a directory take up on the disk.
pub(crate) fn size(directory: &Path) -> Result<u64, StoreError> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        bytes += match fs::symlink_metadata(&path) {
            // A backend may remove a file at any time.
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error.into()),
            Ok(found) if found.is_dir() => size(&path)?,
            Ok(found) => found.blocks() * 512,
        };
    }
    Ok(bytes)
}

impl Site for DiskSite {
    fn check(&self) -> Result<(), StoreError> {
        self.lock.check()
    }

    fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    fn size(&self) -> Result<u64, StoreError> {
        size(&self.place(self.current()))
    }

    fn make(&self) -> Result<(u64, Box<dyn Table>), StoreError> {
        self.check()?;
        let number = self.made.fetch_add(1, Ordering::AcqRel) + 1;
        let place = self.place(number);
        remove_all(&place)?;
        let table = open_table(self.format.backend, &place)?;
        // Its name has to be durable before the pointer has it.
        sync_folder(&self.data)?;
        Ok((number, table))
    }

    fn point_at(&self, number: u64) -> Result<Pointed, StoreError> {
        self.check()?;
        let name = directory(self.format.backend, number);
        write_beside(&self.data, NEW_POINTER, format!("{name}\n").as_bytes())?;
        fail_point!(REWRITE_POINTER_WRITTEN);
        if let Err(error) = fs::rename(self.data.join(NEW_POINTER), self.data.join(POINTER)) {
            // It may have been done all the same.
            return match read_pointer(&self.data, self.format.backend) {
                Ok(found) if found != number => Err(error.into()),
                Ok(_) | Err(_) => {
                    self.current.store(number, Ordering::Release);
                    Ok(Pointed::Perhaps(error.into()))
                }
            };
        }
        self.current.store(number, Ordering::Release);
        let sync = || -> Result<(), StoreError> {
            fail_point!(REWRITE_POINTER_RENAMED);
            sync_folder(&self.data)
        };
        // However this ends, the pointer has its place: whoever took this for a failure would go on with the old database.
        let synced = catch_unwind(AssertUnwindSafe(sync))
            .unwrap_or_else(|_| Err(StoreError::Backend("making the pointer durable panicked".to_owned())));
        Ok(match synced {
            Ok(()) => Pointed::Durably,
            Err(error) => Pointed::Perhaps(error),
        })
    }

    fn try_writing(&self) -> Result<(), StoreError> {
        try_writing_in(&self.data)?;
        // They may lie on another file system.
        match try_writing_in(&self.data.join(BLOBS)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            tried => Ok(tried?),
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        let (found, current) = (read_pointer(&self.data, self.format.backend)?, self.current());
        if found != current {
            return Err(StoreError::Backend(format!(
                "{} names database {found}, but {current} is in use: open the store again",
                self.data.join(POINTER).display()
            )));
        }
        sync_folder(&self.data)
    }

    fn remove(&self, number: u64) -> Result<(), StoreError> {
        // In another directory the same name stands for a database that is not ours.
        self.check()?;
        if number == self.current() {
            return Err(StoreError::Backend(format!("database {number} is in use and cannot be removed")));
        }
        fail_point!(REWRITE_EXCHANGED);
        remove_all(&self.place(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;
    use crate::table::Batch;

    /// What is left of a copy that failed is removed beside the writer, who may have begun with the next one.
    #[test]
    fn a_database_that_is_made_lies_in_no_place_of_one_that_is_being_removed() {
        for backend in Backend::ALL {
            let directory = tempfile::tempdir().unwrap();
            let data = directory.path();
            let format = Arc::new(FormatFile::create(data, backend).unwrap());
            let lock = Arc::new(DataLock::take(data).unwrap());
            let (site, table) = DiskSite::open(data, Arc::clone(&format), Arc::clone(&lock)).unwrap();
            let (failed, left) = site.make().unwrap();
            let (number, fresh) = site.make().unwrap();
            drop(left);
            site.remove(failed).unwrap();
            fresh.apply(Batch::from([(keys::shelf("a"), Some(vec![1]))])).unwrap();
            fresh.flush().unwrap();
            assert!(matches!(site.point_at(number).unwrap(), Pointed::Durably));
            drop((fresh, table, site));
            let (site, table) = DiskSite::open(data, format, lock).unwrap();
            assert_eq!(table.get(&keys::shelf("a")).unwrap(), Some(vec![1]), "{backend}");
            assert_eq!(site.current(), number);
        }
    }

    #[test]
    fn only_names_that_a_compaction_gives_are_names_of_databases() {
        for (name, number) in [("sled", 0), ("sled-1", 1), ("sled-17", 17)] {
            assert_eq!(number_of(Backend::Sled, name), Some(number));
            assert_eq!(directory(Backend::Sled, number), name);
        }
        for name in [
            "sled-",
            "sled-0",
            "sled-01",
            "sled-+1",
            "sled-1.new",
            "sled1",
            "sledge",
            "redb",
            "redb-1",
            "",
            "blobs",
        ] {
            assert_eq!(number_of(Backend::Sled, name), None, "{name}");
        }
        assert_eq!(number_of(Backend::Redb, "redb-1"), Some(1));
    }
}
