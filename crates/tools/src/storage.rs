//! Bounds of what sessions and tenants take up on disk.
//!
//! - [`Storage`]: the accountant of an engine: bytes of each tenant, by folder
//! - [`SessionStorage`]: the part of one session; everything that its calls save goes through it
//!
//! The folder of a session's outputs is counted when the first output since the last one was finished is written, so what
//! lies there from before counts, and an idle session costs nothing. Above a bound the oldest finished outputs of that
//! session are removed; when none is left, outputs are cut.

mod folder;
mod free;
mod home;
mod walk;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use self::folder::Folder;
pub(crate) use self::folder::Writer;
pub use self::free::FreeSpace;
pub use self::walk::{allocated, saved};

const MEGABYTE: u64 = 1 << 20;

/// How much may be taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageLimits {
    /// Bytes of the saved outputs of one session; `None` for no bound.
    pub outputs: Option<u64>,
    /// Bytes of all outputs, homes and attachments of one tenant; `None` for no bound.
    pub tenant: Option<u64>,
    /// Bytes of one tenant's contents of files that are kept for undo; `None` for no bound. They are no part of `tenant`: the
    /// oldest ones go.
    pub undo: Option<u64>,
}

impl Default for StorageLimits {
    fn default() -> Self {
        Self { outputs: Some(256 * MEGABYTE), tenant: Some(10_240 * MEGABYTE), undo: Some(1_024 * MEGABYTE) }
    }
}

/// The bound that an output was cut at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageBound {
    /// Outputs of one session.
    Session(u64),
    /// Everything of a tenant.
    Tenant {
        /// Bytes that it takes up.
        used: u64,
        /// Bytes that it may take up.
        most: u64,
    },
}

impl fmt::Display for StorageBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(most) => {
                let most = most / MEGABYTE;
                write!(f, "the session's outputs may take {most} MB")
            }
            Self::Tenant { used, most } => {
                let (used, most) = (used.div_ceil(MEGABYTE), most / MEGABYTE);
                write!(
                    f,
                    "outputs, homes and attachments of this tenant take {used} MB, and may take {most} MB"
                )
            }
        }
    }
}

/// Bytes that a tenant takes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageUse {
    /// Saved outputs of its sessions.
    pub outputs: u64,
    /// Homes of its commands.
    pub homes: u64,
    /// Attachments.
    pub attachments: u64,
    /// Contents of files that are kept for undo.
    pub undo: u64,
}

impl StorageUse {
    /// All that is bounded as a whole: without what is kept for undo.
    pub fn total(self) -> u64 {
        self.outputs.saturating_add(self.homes).saturating_add(self.attachments)
    }
}

/// Counts what the tenants of an engine take up. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Storage(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    limits: StorageLimits,
    tenants: Mutex<HashMap<Arc<str>, Account>>,
    /// Folders in which an output is being written.
    folders: Mutex<HashMap<PathBuf, Weak<Folder>>>,
}

/// What is known of one tenant.
#[derive(Debug, Default)]
struct Account {
    outputs: HashMap<PathBuf, u64>,
    homes: HashMap<PathBuf, Home>,
    usage: StorageUse,
}

/// What is known of a home.
#[derive(Debug, Default)]
struct Home {
    bytes: u64,
    /// When it may be walked again for a command that has ended.
    rests_until: Option<Instant>,
}

impl Account {
    fn set_outputs(&mut self, folder: &Path, bytes: u64) {
        let before = match bytes {
            0 => self.outputs.remove(folder),
            bytes => self.outputs.insert(folder.to_owned(), bytes),
        };
        self.usage.outputs = self.usage.outputs.saturating_sub(before.unwrap_or(0)) + bytes;
    }

    fn outputs_in(&self, folder: &Path) -> u64 {
        self.outputs.get(folder).copied().unwrap_or(0)
    }
}

impl Storage {
    /// Nothing is counted yet.
    pub fn new(limits: StorageLimits) -> Self {
        Self(Arc::new(Inner { limits, ..Inner::default() }))
    }

    /// The part of a session of this tenant, whose outputs are saved in `outputs` and whose commands have these homes.
    pub fn session(&self, tenant: &str, outputs: PathBuf, homes: Vec<PathBuf>) -> SessionStorage {
        let part = SessionPart { storage: self.clone(), tenant: tenant.into(), outputs, homes };
        SessionStorage(Arc::new(part))
    }

    /// Notes that there is a tenant, which may take up nothing yet.
    pub fn note_tenant(&self, tenant: &str) {
        self.with(tenant, |_| ());
    }

    /// How much may be taken up.
    pub fn limits(&self) -> StorageLimits {
        self.0.limits
    }

    /// Bytes that a tenant takes up, as far as they are counted.
    pub fn usage(&self, tenant: &str) -> StorageUse {
        self.tenants().get(tenant).map(|account| account.usage).unwrap_or_default()
    }

    /// The same of every tenant that takes up any.
    pub fn usages(&self) -> Vec<(Arc<str>, StorageUse)> {
        let tenants = self.tenants();
        tenants.iter().map(|(tenant, account)| (Arc::clone(tenant), account.usage)).collect()
    }

    /// Notes how many bytes of outputs a session of the tenant has in its folder; 0 for one that is removed.
    pub fn note_outputs(&self, tenant: &str, folder: &Path, bytes: u64) {
        self.with(tenant, |account| account.set_outputs(folder, bytes));
    }

    /// Notes that a session's outputs are gone.
    pub fn forget_outputs(&self, folder: &Path) {
        self.tenants().values_mut().for_each(|account| account.set_outputs(folder, 0));
    }

    /// Counts the outputs of a session in its folder anew. Blocks.
    pub fn count_outputs(&self, tenant: &str, folder: &Path) {
        self.folder(folder).count(|| self.note_outputs(tenant, folder, saved(folder)));
    }

    /// Notes how many bytes a home of the tenant's commands has.
    pub fn note_home(&self, tenant: &str, home: &Path, bytes: u64) {
        self.with(tenant, |account| {
            let home = account.homes.entry(home.to_owned()).or_default();
            let before = std::mem::replace(&mut home.bytes, bytes);
            account.usage.homes = account.usage.homes.saturating_sub(before) + bytes;
        });
    }

    /// Notes how many bytes of attachments a tenant has.
    pub fn note_attachments(&self, tenant: &str, bytes: u64) {
        self.with(tenant, |account| account.usage.attachments = bytes);
    }

    /// Takes up `bytes` for an attachment, if the tenant may.
    ///
    /// # Errors
    /// The bound that it would pass.
    pub fn take_attachment(&self, tenant: &str, bytes: u64) -> Result<(), StorageBound> {
        let most = self.0.limits.tenant;
        self.with(tenant, |account| {
            let used = account.usage.total();
            if let Some(most) = most.filter(|most| used.saturating_add(bytes) > *most) {
                return Err(StorageBound::Tenant { used, most });
            }
            account.usage.attachments += bytes;
            Ok(())
        })
    }

    /// Notes how many bytes of contents are kept so that changes of the tenant can be undone.
    pub fn note_undo(&self, tenant: &str, bytes: u64) {
        self.with(tenant, |account| account.usage.undo = bytes);
    }

    /// The bound of contents that are kept for undo.
    pub fn most_undo(&self) -> Option<u64> {
        self.0.limits.undo
    }

    /// The bound of the tenant, where it takes up more.
    fn passed(&self, tenant: &str) -> Option<StorageBound> {
        let most = self.0.limits.tenant?;
        let used = self.usage(tenant).total();
        (used > most).then_some(StorageBound::Tenant { used, most })
    }

    /// Takes up to `wanted` bytes for an output in `folder`; fewer with the bound that allows no more.
    fn take_output(&self, tenant: &str, folder: &Path, wanted: u64) -> (u64, Option<StorageBound>) {
        let StorageLimits { outputs, tenant: most, .. } = self.0.limits;
        self.with(tenant, |account| {
            let (here, used) = (account.outputs_in(folder), account.usage.total());
            let of_session = outputs.map_or(u64::MAX, |most| most.saturating_sub(here));
            let of_tenant = most.map_or(u64::MAX, |most| most.saturating_sub(used));
            let taken = wanted.min(of_session).min(of_tenant);
            if taken > 0 {
                account.set_outputs(folder, here + taken);
            }
            let bound = match (outputs, most) {
                _ if taken == wanted => None,
                (Some(most), _) if of_session <= of_tenant => Some(StorageBound::Session(most)),
                (_, most) => Some(StorageBound::Tenant { used, most: most.unwrap_or(u64::MAX) }),
            };
            (taken, bound)
        })
    }

    /// How many more bytes an output in `folder` may take.
    fn room(&self, tenant: &str, folder: &Path) -> u64 {
        let StorageLimits { outputs, tenant: most, .. } = self.0.limits;
        self.with(tenant, |account| {
            let of_session = outputs.map_or(u64::MAX, |most| most.saturating_sub(account.outputs_in(folder)));
            let of_tenant = most.map_or(u64::MAX, |most| most.saturating_sub(account.usage.total()));
            of_session.min(of_tenant)
        })
    }

    /// The bytes that removed outputs have to be, for there to be any room in `folder`.
    fn excess(&self, tenant: &str, folder: &Path) -> u64 {
        let StorageLimits { outputs, tenant: most, .. } = self.0.limits;
        self.with(tenant, |account| {
            let of_session = outputs.map_or(0, |most| account.outputs_in(folder).saturating_sub(most));
            let of_tenant = most.map_or(0, |most| account.usage.total().saturating_sub(most));
            of_session.max(of_tenant)
        })
    }

    fn with<T>(&self, tenant: &str, work: impl FnOnce(&mut Account) -> T) -> T {
        let mut tenants = self.tenants();
        match tenants.get_mut(tenant) {
            Some(account) => work(account),
            None => work(tenants.entry(tenant.into()).or_default()),
        }
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<Arc<str>, Account>> {
        self.0.tenants.lock()
    }

    /// The folder, shared by all who write into it now.
    fn folder(&self, path: &Path) -> Arc<Folder> {
        let mut folders = self.0.folders.lock();
        if let Some(folder) = folders.get(path).and_then(Weak::upgrade) {
            return folder;
        }
        folders.retain(|_, folder| folder.strong_count() > 0);
        let folder = Arc::new(Folder::default());
        folders.insert(path.to_owned(), Arc::downgrade(&folder));
        folder
    }
}

/// What one session takes up. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SessionStorage(Arc<SessionPart>);

#[derive(Debug)]
struct SessionPart {
    storage: Storage,
    tenant: Arc<str>,
    outputs: PathBuf,
    homes: Vec<PathBuf>,
}

impl SessionStorage {
    /// With the usual bounds, for one session alone whose outputs are saved in `outputs`.
    pub fn alone(outputs: PathBuf) -> Self {
        Storage::default().session("", outputs, Vec::new())
    }
}

#[cfg(test)]
mod tests;
