//! Opening a data directory.
//!
//! ```text
//! DATA/format.json   what this is, in which version: written first, in one step
//! DATA/lock          held by the process that has the store open
//! DATA/sled/         the table: logs, projections, shelf (or DATA/redb; elsewhere after a compaction: `site`)
//! DATA/current       where the table lies, after a compaction
//! DATA/opened        how often the store was opened, which the table says as well: one that lost that is refused (`marker`)
//! DATA/closed        what the last round wrote of an opening that ended in order: one that lost it is refused
//! DATA/salvaged      when the store was salvaged from damage, if it was
//! DATA/blobs/        content by hash
//! ```
//!
//! `format.json` comes first, so that a creation that was cut off at any point leaves either a directory with nothing
//! but its lock (and perhaps an unfinished `format.json.new`), which is begun again, or one that says what it is, in
//! which everything else is made when it is missing.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use playhouse_protocol::Timestamp;
use playhouse_protocol::nearest::did_you_mean;
use playhouse_protocol::upkeep::Salvaged;

use crate::blobs::{BLOBS, FileBlobs, sync_folder};
use crate::format::{Backend, FormatFile, inspect};
use crate::in_hand::InHand;
use crate::lock::DataLock;
use crate::logs::TableStore;
use crate::memory::{MemoryBlobs, MemoryTable};
use crate::projection::Source;
use crate::site::{DiskSite, Site};
use crate::sweep::Sweepable;
use crate::switch::Switch;
use crate::table::Table;
use crate::{Losses, Shelf, Store, StoreError, index, keys, ledger, marker};

pub(crate) const GENERATION: &str = "engine/generation";

/// How a store is opened.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// What a new data directory gets. One that is there keeps what it has.
    pub backend: Backend,
    /// When space is given back.
    pub reclaim: Reclaim,
}

/// What becomes of a store that is found damaged when it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDamage {
    /// It is refused and left as it is.
    #[default]
    Refuse,
    /// It is salvaged, unless that was done within the last hour.
    Salvage,
}

impl OnDamage {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Refuse, Self::Salvage];

    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Salvage => "salvage",
        }
    }
}

impl FromStr for OnDamage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|choice| choice.name() == text).ok_or_else(|| {
            let meant = did_you_mean(text, Self::ALL.map(Self::name));
            format!("is \"{}\", expected refuse or salvage{meant}", text.escape_debug())
        })
    }
}

/// A second damage within so many milliseconds of a salvage is no accident, but a disk that fails.
const AGAIN: u64 = 60 * 60 * 1_000;

/// When a store gives back the space of what was removed. The defaults suit every store; tests take less.
#[derive(Clone, Copy, Debug)]
pub struct Reclaim {
    /// No compaction begins by itself before so many bytes were removed. 8 MB.
    pub least: u64,
    /// For how long nothing must have been removed before a compaction, or a sweep of blobs, begins. 3 s.
    pub quiet: Duration,
    /// How long a blob that no record names is left alone, so that one may be appended that does: longer than the longest
    /// append takes. 10 min.
    pub grace: Duration,
}

impl Default for Reclaim {
    fn default() -> Self {
        Self { least: 8 * 1024 * 1024, quiet: Duration::from_secs(3), grace: Duration::from_secs(10 * 60) }
    }
}

impl Store {
    /// Opens the store in the directory `data`, and creates it where there is none yet. The directory is held until
    /// the last clone of the store and of its parts is gone.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another process has it open; [`StoreError::Format`] when the directory holds
    /// something else, or a store that this engine cannot read. In both cases nothing was changed.
    pub fn open(data: &Path) -> Result<Self, StoreError> {
        Self::open_with(data, &StoreOptions::default())
    }

    /// The same, with options.
    ///
    /// # Errors
    /// As for [`Store::open`].
    pub fn open_with(data: &Path, options: &StoreOptions) -> Result<Self, StoreError> {
        inspect(data)?;
        make_directory(data)?;
        let lock = Arc::new(DataLock::take(data)?);
        // Again, now that nobody else can be creating a store here.
        let format = match inspect(data)? {
            Some(format) => format,
            None => FormatFile::create(data, options.backend)?,
        };
        let (is, wanted) = (format.backend, options.backend);
        if is != wanted {
            tracing::info!("the store in {} stays with {is}; a new one would get {wanted}", data.display());
        }
        let format = Arc::new(format);
        let in_hand = Arc::new(InHand::new(options.reclaim.grace));
        let blobs = Arc::new(FileBlobs::new(data.join(BLOBS), Arc::clone(&in_hand), Arc::clone(&lock)));
        let (site, table) = DiskSite::open(data, Arc::clone(&format), lock)?;
        format.raise()?;
        let store = Self::start(table, blobs, in_hand, Some(Arc::new(site)), options.reclaim)?;
        if let Some(losses) = &store.losses
            && marker::read_salvaged(data)? != Some(losses.note.at)
        {
            // A salvage was cut off behind its end.
            marker::write_salvaged(data, losses.note.at)?;
        }
        Ok(store)
    }

    /// Opens the store in the directory `data`, and salvages it first if it is damaged, unless that was done within the last hour.
    /// `now` is the time. What a salvage saved, if there was one.
    ///
    /// # Errors
    /// As for [`Store::open`], and for [`Store::salvage`].
    pub fn open_or_salvage(
        data: &Path,
        options: &StoreOptions,
        now: Timestamp,
    ) -> Result<(Self, Option<Salvaged>), StoreError> {
        let (what, found) = match Self::open_with(data, options) {
            Err(StoreError::Damaged { what, found }) => (what, found),
            opened => return Ok((opened?, None)),
        };
        // What is not there at all may lie on a disk that is not mounted.
        if !has_database(data)? {
            return Err(StoreError::Damaged { what, found });
        }
        if let Some(last) = marker::read_salvaged(data)?
            && now.millis_since(last) < AGAIN
        {
            let found = format!(
                "{found}. It was salvaged from damage at {last}, less than an hour ago, and is not salvaged by itself again: look at \
                 the disk first"
            );
            return Err(StoreError::Damaged { what, found });
        }
        tracing::error!("{what} is damaged: {found}. What can be read of the store is salvaged");
        let salvaged = match Self::salvage(data, now) {
            Err(StoreError::Damaged { found: why, .. }) if why != found => {
                let found = format!("{found}. Nothing of it can be salvaged ({why})");
                return Err(StoreError::Damaged { what, found });
            }
            salvaged => salvaged?,
        };
        Ok((Self::open_with(data, options)?, Some(salvaged)))
    }

    /// Whether there is a store in the directory `data`. Changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Format`] when the directory holds something else, or a store that this engine cannot read.
    pub fn is_in(data: &Path) -> Result<bool, StoreError> {
        Ok(inspect(data)?.is_some())
    }

    /// Makes `data` the directory of a store where there is none yet, and opens nothing.
    ///
    /// # Errors
    /// As for [`Store::open`].
    pub fn prepare(data: &Path, options: &StoreOptions) -> Result<(), StoreError> {
        if inspect(data)?.is_some() {
            return Ok(());
        }
        make_directory(data)?;
        let _lock = DataLock::take(data)?;
        if inspect(data)?.is_none() {
            FormatFile::create(data, options.backend)?;
        }
        Ok(())
    }

    /// A store that lives as long as its handles, without a disk. Everything else is as with [`Store::open`], the
    /// writer's thread included.
    pub fn memory() -> Result<Self, StoreError> {
        let reclaim = Reclaim::default();
        let in_hand = Arc::new(InHand::new(reclaim.grace));
        let blobs = Arc::new(MemoryBlobs::new(Arc::clone(&in_hand)));
        Self::start(Box::<MemoryTable>::default(), blobs, in_hand, None, reclaim)
    }

    fn start<B: Sweepable + 'static>(
        table: Box<dyn Table>,
        blobs: Arc<B>,
        in_hand: Arc<InHand>,
        site: Option<Arc<DiskSite>>,
        reclaim: Reclaim,
    ) -> Result<Self, StoreError> {
        let switch = Arc::new(Switch::new(table, site.clone().map(|site| site as Arc<dyn Site>), in_hand)?);
        let mut source = Source::new(Arc::clone(&switch) as _, Arc::clone(&blobs) as _);
        let before = source.table.get(&keys::shelf(GENERATION))?;
        let generation = generation_after(before.as_deref())?;
        if let Some(site) = &site {
            site.check_opened(generation.saturating_sub(1))?;
            site.check_end(generation.saturating_sub(1), &*source.table)?;
        }
        source.feed_end = AtomicU64::new(ledger::prepare(&source, generation)?);
        source.closed = AtomicU64::new(ledger::closed(&*source.table)?.as_millis());
        index::prepare(&source, generation)?;
        let tables = Arc::new(TableStore::start(source, switch, Arc::clone(&blobs) as _, reclaim)?);
        // Its flush makes durable what ledger and index needed.
        let new = generation.to_string();
        if !tables.compare_and_set(GENERATION, before.as_deref(), Some(new.as_bytes()))? {
            return Err(StoreError::Backend(format!(
                "\"{GENERATION}\" on the shelf was changed by somebody else"
            )));
        }
        if let Some(site) = site {
            if let Err(error) = site.remember_opened(generation) {
                // The table is well: only less would be noticed, should it lose something.
                tracing::warn!(%error, "the number of openings could not be written beside the database");
            }
            tables.ends_in(site, generation);
        }
        let (log, ledger, upkeep) =
            (Arc::clone(&tables) as _, Arc::clone(&tables) as _, Arc::clone(&tables) as _);
        let shelf = tables as Arc<dyn Shelf>;
        let losses = Losses::read(&shelf)?.map(Arc::new);
        Ok(Self { log, ledger, shelf, blobs, upkeep, generation, losses })
    }
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

/// The number of the opening after the one that is on the shelf.
pub(crate) fn generation_after(before: Option<&[u8]>) -> Result<u64, StoreError> {
    let Some(text) = before else { return Ok(1) };
    std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok()?.checked_add(1)).ok_or_else(
        || StoreError::Damaged {
            what: "the database".to_owned(),
            found: format!("\"{GENERATION}\" on its shelf, the number of its openings, is not a number"),
        },
    )
}

/// Whether there is anything of a database in the directory `data`.
fn has_database(data: &Path) -> Result<bool, StoreError> {
    for entry in fs_err::read_dir(data)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_one =
            ["sled", "redb"].iter().any(|backend| name.as_encoded_bytes().starts_with(backend.as_bytes()));
        if !is_one {
            continue;
        }
        let facts = entry.metadata()?;
        let holds_any = match facts.is_dir() {
            true => fs_err::read_dir(entry.path())?.next().is_some(),
            false => facts.len() > 0,
        };
        if holds_any {
            return Ok(true);
        }
    }
    Ok(false)
}
