//! The folder of a session's saved outputs, as long as something is written into it.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_workspace::door::{self, RECORD};
use rustix::fs::{AtFlags, CWD, FileType};

use super::{SessionStorage, StorageBound, walk};

/// Ends of the names of files that are kept for the repair of a file that was written in place.
const OF_REPAIRS: [&str; 4] = [".before", ".found", ".restored.json", RECORD];

/// A folder of saved outputs with something being written into it.
#[derive(Debug, Default)]
pub(super) struct Folder {
    /// Whether what lies there is counted. Held during writes, so that what is counted is what lies there.
    counted: Mutex<bool>,
    /// Names of the outputs that are being written.
    writing: Mutex<Vec<OsString>>,
}

impl Folder {
    /// Counts what lies there, while nothing is written.
    pub(super) fn count(&self, count: impl FnOnce()) {
        let mut counted = self.counted.lock();
        count();
        *counted = true;
    }
}

/// A finished output that may be removed.
struct Finished {
    changed: (i64, i64),
    name: CString,
    bytes: u64,
}

/// What lies in a folder of saved outputs.
#[derive(Default)]
struct Listing {
    folder: Option<OwnedFd>,
    bytes: u64,
    finished: Vec<Finished>,
}

impl Listing {
    fn of(outputs: &std::path::Path, writing: &[OsString]) -> Self {
        let Some(folder) = walk::open(CWD, outputs) else { return Self::default() };
        let (mut bytes, mut finished) = (0_u64, Vec::new());
        walk::each(folder.as_fd(), |name, stat| {
            let size = match walk::kind(stat) {
                FileType::Directory => walk::saved_below(folder.as_fd(), name),
                _ => walk::size(stat),
            };
            bytes = bytes.saturating_add(size);
            if walk::kind(stat) == FileType::RegularFile && is_finished(name, writing) {
                let changed = (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0));
                finished.push(Finished { changed, name: name.to_owned(), bytes: size });
            }
            true
        });
        finished.sort_unstable_by(|one, other| (one.changed, &one.name).cmp(&(other.changed, &other.name)));
        Self { folder: Some(folder), bytes, finished }
    }
}

fn is_finished(name: &CStr, writing: &[OsString]) -> bool {
    let name = name.to_bytes();
    let of_repair = OF_REPAIRS.iter().any(|end| name.ends_with(end.as_bytes()));
    !of_repair && !writing.iter().any(|writing| writing.as_bytes() == name)
}

/// One output that is being written. It counts as finished when this is dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    session: SessionStorage,
    path: PathBuf,
    name: OsString,
    /// The folder, and the file in it, once there is something to write.
    opened: Option<(Arc<Folder>, File)>,
}

impl SessionStorage {
    /// A new output in the file at `path`, which is made with the first write.
    pub(crate) fn writer(&self, path: PathBuf) -> Writer {
        let name = path.file_name().unwrap_or(OsStr::new("")).to_owned();
        Writer { session: self.clone(), path, name, opened: None }
    }
}

impl Writer {
    /// Writes as much of `bytes` as there is room for, after older outputs were removed; how much that is, and the bound that
    /// allowed no more. Nothing is to be written after fewer. Blocks.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<(usize, Option<StorageBound>)> {
        let folder = match &self.opened {
            Some((folder, _)) => Arc::clone(folder),
            None => self.session.0.storage.folder(&self.session.0.outputs),
        };
        let mut counted = folder.counted.lock();
        let (room, bound) = self.take(&folder, &mut counted, bytes.len() as u64);
        let room = usize::try_from(room).unwrap_or(bytes.len());
        if room == 0 {
            return Ok((0, bound));
        }
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display()));
        let (_, file) = match &mut self.opened {
            Some(opened) => opened,
            none => {
                let file = door::create_private(&self.path)?;
                folder.writing.lock().push(self.name.clone());
                none.insert((Arc::clone(&folder), file))
            }
        };
        file.write_all(&bytes[..room]).map_err(named)?;
        Ok((room, bound))
    }

    /// Takes room for so many bytes.
    fn take(&self, folder: &Folder, counted: &mut bool, wanted: u64) -> (u64, Option<StorageBound>) {
        let part = &*self.session.0;
        let (storage, tenant, outputs) = (&part.storage, &*part.tenant, part.outputs.as_path());
        if !*counted {
            storage.note_outputs(tenant, outputs, walk::saved(outputs));
            *counted = true;
        }
        if storage.room(tenant, outputs) < wanted {
            // Sweeps and commands may have removed some.
            let listing = Listing::of(outputs, &folder.writing.lock());
            storage.note_outputs(tenant, outputs, listing.bytes);
            let removable: u64 = listing.finished.iter().map(|finished| finished.bytes).sum();
            // Without that nothing of the new one would be kept, and what is old would be gone for nothing.
            if removable > storage.excess(tenant, outputs) {
                let mut left = listing.bytes;
                for finished in &listing.finished {
                    if storage.room(tenant, outputs) >= wanted {
                        break;
                    }
                    let Some(opened) = &listing.folder else { break };
                    if rustix::fs::unlinkat(opened, finished.name.as_c_str(), AtFlags::empty()).is_ok() {
                        left = left.saturating_sub(finished.bytes);
                        storage.note_outputs(tenant, outputs, left);
                    }
                }
            }
        }
        storage.take_output(tenant, outputs, wanted)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let Some((folder, _)) = &self.opened else { return };
        let mut writing = folder.writing.lock();
        if let Some(place) = writing.iter().position(|name| *name == self.name) {
            writing.swap_remove(place);
        }
    }
}
