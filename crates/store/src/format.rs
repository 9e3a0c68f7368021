//! What a data directory says of itself: `format.json`.
//!
//! Written beside, synced and renamed, so that it is there as a whole or not at all. Stores of version 1 have no forks, those
//! of version 2 may have some. In one of version 3 the rows of the ledger stand in the feed, and its database may lie in
//! another place than `DATA/sled`. In one of version 4 a frame holds many entries, a summary may end before its log, and rows
//! of the ledger are packed. In one of version 5 a journal may stand before the database: every store becomes one when it is
//! opened. An older engine refuses what it would misread.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use fs_err as fs;
use playhouse_protocol::nearest::did_you_mean;
use serde::{Deserialize, Serialize};

use crate::blobs::sync_folder;
use crate::{StoreError, lock};

const FORMAT: &str = "playhouse-store";
/// The newest version that is read.
const VERSION: u64 = 5;
/// The oldest version that is read. In a store of this one no log shares records with another.
const PLAIN: u64 = 1;
const FILE: &str = "format.json";
const NEW_FILE: &str = "format.json.new";

/// What the logs and all else but blobs are kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// [sled](https://docs.rs/sled): a log of changes with an index.
    #[default]
    Sled,
    /// [redb](https://docs.rs/redb): a tree of pages that are copied when they change.
    Redb,
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Sled, Self::Redb];

    /// Its name in configurations, in `format.json`, and of its directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sled => "sled",
            Self::Redb => "redb",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|backend| backend.name() == text).ok_or_else(|| {
            let meant = did_you_mean(text, Self::ALL.map(Self::name));
            format!("is \"{}\", expected sled or redb{meant}", text.escape_debug())
        })
    }
}

/// What `format.json` says.
#[derive(Serialize, Deserialize)]
struct Format {
    format: String,
    version: u64,
    backend: String,
}

/// The file that says what a data directory holds, in which version.
pub(crate) struct FormatFile {
    data: PathBuf,
    pub(crate) backend: Backend,
    version: AtomicU64,
}

impl FormatFile {
    /// Makes `data` the directory of a store with this backend, durably.
    pub(crate) fn create(data: &Path, backend: Backend) -> Result<Self, StoreError> {
        write(data, VERSION, backend)?;
        Ok(Self { data: data.to_owned(), backend, version: AtomicU64::new(VERSION) })
    }

    /// Says durably that the store is of this engine's version, before anything is written that an older one would misread.
    pub(crate) fn raise(&self) -> Result<(), StoreError> {
        if self.version.load(Ordering::Relaxed) < VERSION {
            write(&self.data, VERSION, self.backend)?;
            self.version.store(VERSION, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Looks at the directory without changing anything. `None`: no store yet, and nothing else.
pub(crate) fn inspect(data: &Path) -> Result<Option<FormatFile>, StoreError> {
    let refuse = |found: String| {
        let known = format!("{FORMAT} versions {PLAIN} to {VERSION} (sled, redb)");
        Err(StoreError::Format { path: data.to_owned(), found, known })
    };
    match fs::metadata(data) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(metadata) if !metadata.is_dir() => return refuse("is not a directory".to_owned()),
        Ok(_) => {}
    }
    let text = match fs::read(data.join(FILE)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return match first_foreign(data)? {
                // Somebody made the store since it was looked for.
                Some(_) if data.join(FILE).exists() => inspect(data),
                Some(name) => refuse(format!(
                    "holds something else ({name}, for one) and no {FILE}; name an empty directory"
                )),
                None => Ok(None),
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
    let backend = value["backend"].as_str().and_then(|name| name.parse().ok());
    let Some(backend) = backend else {
        return refuse(format!("holds {FORMAT} version {version} with the backend {}", value["backend"]));
    };
    Ok(Some(FormatFile { data: data.to_owned(), backend, version: AtomicU64::new(version) }))
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

fn write(data: &Path, version: u64, backend: Backend) -> Result<(), StoreError> {
    let format = Format { format: FORMAT.to_owned(), version, backend: backend.name().to_owned() };
    let mut text = serde_json::to_vec(&format).map_err(|error| StoreError::Backend(error.to_string()))?;
    text.push(b'\n');
    write_beside(data, NEW_FILE, &text)?;
    fs::rename(data.join(NEW_FILE), data.join(FILE))?;
    sync_folder(data)
}

/// Writes and syncs a file that is to be renamed.
pub(crate) fn write_beside(data: &Path, name: &str, content: &[u8]) -> Result<(), StoreError> {
    let mut file = fs::File::create(data.join(name))?;
    file.write_all(content)?;
    Ok(file.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As when many commands begin at once with a directory that is new.
    #[test]
    fn a_store_that_is_made_meanwhile_is_nothing_foreign() {
        for _ in 0..100 {
            let folder = tempfile::tempdir().unwrap();
            let data = folder.path();
            std::thread::scope(|scope| {
                let watcher = || while inspect(data).unwrap().is_none() {};
                let watchers = [scope.spawn(watcher), scope.spawn(watcher)];
                FormatFile::create(data, Backend::Sled).unwrap();
                fs::write(data.join("sled"), "what a store has besides").unwrap();
                for watcher in watchers {
                    watcher.join().unwrap();
                }
            });
        }
    }
}
