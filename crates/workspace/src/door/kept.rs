//! The old content of files that are written in place, until that is done.
//!
//! It lies in the folder of saved outputs, as `CALL.before`, and beside it `CALL.before.json` says whose it is: the path,
//! and the hashes of the old and the new content. Both are synced before the file is touched, and removed when it is
//! synced. What is still there when a session is read again was left by a process that ended in the middle:
//! [`restore`] puts the file back then, once. `CALL.restored.json` says what came of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use playhouse_policy::Zone;
use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};

use super::in_place::overwrite;
use super::walk::Spot;
use super::write::hash_of;
use super::{DoorError, create_private, open_read};
use crate::{ContentHash, Resolved, Workspace, hash};

/// How the record of a content ends that was kept and not put back.
pub const RECORD: &str = ".before.json";
/// How the record of what became of it ends.
const RESTORED: &str = ".restored.json";

/// What is kept of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// The file: absolute, without links.
    path: PathBuf,
    /// SHA-256 of the content that is kept.
    before: String,
    /// SHA-256 of the content that is written.
    after: String,
    /// Bytes of that content.
    size: u64,
}

/// What became of it.
#[derive(Debug, Serialize, Deserialize)]
struct Outcome {
    text: String,
}

/// A content that is kept. Its record is locked: a process that finds it so leaves it alone.
#[derive(Debug)]
pub(super) struct Kept {
    bytes: PathBuf,
    record: PathBuf,
    _lock: File,
}

impl Kept {
    /// Keeps `old`, the content of the file at `resolved`, in the file `bytes`, until `new` is written.
    pub(super) fn keep(bytes: &Path, resolved: &Resolved, old: &[u8], new: &[u8]) -> io::Result<Self> {
        let record = Record {
            path: resolved.path.clone(),
            before: hash(old).to_string(),
            after: hash(new).to_string(),
            size: new.len() as u64,
        };
        write_synced(bytes, old)?;
        let path = record_of(bytes);
        let coming = path.with_extension("tmp");
        let lock = write_synced(&coming, &serde_json::to_vec(&record)?)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs_err::rename(&coming, &path)?;
        if let Some(folder) = path.parent() {
            fs_err::File::open(folder)?.sync_all()?;
        }
        Ok(Self { bytes: bytes.to_owned(), record: path, _lock: lock })
    }

    /// The file is written: nothing needs to be kept.
    pub(super) fn remove(self) {
        // Without its record, the content is an output like any other.
        let _ = fs_err::remove_file(&self.record);
        let _ = fs_err::remove_file(&self.bytes);
    }

    /// The file is not as it was: what is kept stays. Gives where it is.
    pub(super) fn leave(self) -> PathBuf {
        let _ = fs_err::remove_file(&self.record);
        self.bytes
    }
}

fn record_of(bytes: &Path) -> PathBuf {
    let mut path = bytes.as_os_str().to_owned();
    path.push(".json");
    path.into()
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<File> {
    let mut file = create_private(path)?;
    file.write_all(content)?;
    file.sync_all()?;
    Ok(file)
}

/// Looks for files of `workspace` that a process left when it ended in the middle of writing them in place, and puts back
/// the content of those that have neither the old nor the new one. Gives what became of them, by the call that wrote them;
/// also of those that were put back before.
///
/// What such a file had then is saved, too, in case that somebody else wrote it meanwhile. Blocks.
pub fn restore(workspace: &Workspace) -> BTreeMap<String, String> {
    let mut told = BTreeMap::<String, String>::new();
    let Ok(entries) = fs_err::read_dir(workspace.output()) else { return told };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(RECORD) || name.ends_with(RESTORED))
        .collect();
    names.sort_unstable();
    for name in names {
        let path = workspace.output().join(&name);
        let text = match name.strip_suffix(RECORD) {
            Some(_) => restore_one(workspace, &path),
            None => read(&path).map(|outcome: Outcome| outcome.text),
        };
        let Some(text) = text else { continue };
        let call = name.split('.').next().unwrap_or_default().to_owned();
        let all = told.entry(call).or_default();
        if !all.is_empty() {
            all.push_str("; ");
        }
        all.push_str(&text);
    }
    told
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs_err::read(path).ok()?).ok()
}

/// Puts back the file of the record at `path`; `None` where that is at work, or where nothing had been begun.
fn restore_one(workspace: &Workspace, path: &Path) -> Option<String> {
    let lock = fs_err::File::open(path).ok()?;
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return None;
    }
    let bytes = path.with_extension("");
    let Some(record) = read::<Record>(path) else {
        let _ = fs_err::remove_file(path);
        return None;
    };
    let (text, is_needed) = match record.put_back(workspace, &bytes) {
        Ok(done) => done,
        Err(error) => {
            let (path, kept) = (record.path.display(), bytes.display());
            (
                format!(
                    "{path} may have a part of the new content: its old content is in {kept}, and was not put back ({error})"
                ),
                true,
            )
        }
    };
    let outcome = Outcome { text };
    let name = path.to_str()?.strip_suffix(RECORD)?.to_owned() + RESTORED;
    let saved = serde_json::to_vec(&outcome).map_err(io::Error::from);
    if saved.and_then(|saved| write_synced(Path::new(&name), &saved)).is_ok() {
        let _ = fs_err::remove_file(path);
    }
    if !is_needed {
        let _ = fs_err::remove_file(&bytes);
    }
    Some(outcome.text)
}

impl Record {
    /// Puts the file back, where that is needed. Gives what came of it, and whether the kept content is still needed.
    fn put_back(&self, workspace: &Workspace, bytes: &Path) -> Result<(String, bool), DoorError> {
        let place =
            workspace.walked(&self.path).map_err(|error| failed(&self.path, io::Error::other(error)))?;
        let shown = &place.shown;
        let io = |error| DoorError::from_io(shown, error);
        if !matches!(place.zone, Zone::Workspace | Zone::Outside) {
            return Err(DoorError::NotToChange(shown.clone()));
        }
        let mut file = open_read(&place)?;
        let is = |hash: ContentHash, told: &str| hash.to_string() == told;
        let size = file.metadata().map_err(io)?.len();
        let old = fs_err::read(bytes).map_err(io)?;
        if !is(hash(&old), &self.before) {
            return Err(failed(bytes, io::Error::other("the content that was kept is damaged")));
        }
        if size > self.size.max(old.len() as u64) {
            // No part of either.
            return Err(DoorError::Changed(shown.clone()));
        }
        let mut found = Vec::new();
        file.read_to_end(&mut found).map_err(io)?;
        let now = hash(&found);
        if is(now, &self.after) {
            return Ok((format!("{shown} has its new content"), false));
        }
        if is(now, &self.before) {
            return Ok((format!("{shown} has its old content"), false));
        }
        let saved = bytes.with_extension("found");
        write_synced(&saved, &found).map_err(io)?;
        let file = File::from(Spot::of(&place)?.open(OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY)?);
        let mut check = file.try_clone().map_err(io)?;
        if hash_of(&mut check).map_err(io)? != now {
            return Err(DoorError::Changed(shown.clone()));
        }
        overwrite(&file, &old).and_then(|()| file.sync_data()).map_err(io)?;
        let text = format!(
            "{shown} had a part of the new content, and its old content was put back, which is also in {}; what it had is in {}",
            bytes.display(),
            saved.display()
        );
        Ok((text, true))
    }
}

fn failed(path: &Path, source: io::Error) -> DoorError {
    DoorError::from_io(&path.to_string_lossy(), source)
}
