//! Content by hash, as files.
//!
//! A blob of tenant `acme` is `blobs/acme/<first two digits of its hash>/<hash>`, an image of it lies below
//! `blobs/acme%images` in the same way. It is written beside its place,
//! synced, renamed and its folder synced, so that a record may name it. Files that begin with [`UNFINISHED`] were left
//! by a process that ended in the middle. What no record names any more is removed by a sweep (`sweep`).

use std::fmt::Write;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use fs_err as fs;
use playhouse_protocol::message::BlobRef;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use sha2::{Digest as _, Sha256};

use crate::in_hand::{Digest, InHand, digest, digits};
use crate::lock::DataLock;
use crate::sweep::{Stored, Sweepable, images_of, size_of, trim_images};
use crate::{Blobs, StoreError};

/// The folder of all blobs in a data directory.
pub(crate) const BLOBS: &str = "blobs";
const UNFINISHED: &str = ".new-";
const HASH_DIGITS: usize = 64;

/// The longest name of a tenant's folder that is written out. File systems end at 255 bytes.
const LONGEST_NAME: usize = 200;

/// Blobs as files below one folder.
pub(crate) struct FileBlobs {
    root: PathBuf,
    in_hand: Arc<InHand>,
    /// Held as long as somebody may write here.
    lock: Option<Arc<DataLock>>,
}

impl FileBlobs {
    /// Blobs below `root`, which is created with the first of them. Its parent must exist.
    pub(crate) fn new(root: PathBuf, in_hand: Arc<InHand>, lock: Arc<DataLock>) -> Self {
        Self { root, in_hand, lock: Some(lock) }
    }

    /// The same, for one who only reads.
    pub(crate) fn to_read(root: PathBuf, in_hand: Arc<InHand>) -> Self {
        Self { root, in_hand, lock: None }
    }

    /// Whether the directory is still the one that was opened.
    fn check(&self) -> Result<(), StoreError> {
        self.lock.as_ref().map_or(Ok(()), |lock| lock.check())
    }

    /// Creates the folder for blobs that begin with `digits`, durably.
    fn make_folder(&self, owner: &str, digits: &str) -> Result<PathBuf, StoreError> {
        let mut folder = self.root.clone();
        make_durable_folder(&folder)?;
        for name in [owner, digits] {
            folder.push(name);
            make_durable_folder(&folder)?;
        }
        Ok(folder)
    }

    /// Stores content for an owner, durably.
    fn put_for(&self, owner: &str, content: &[u8]) -> Result<BlobRef, StoreError> {
        self.check()?;
        let (blob, digest) = named(content);
        // Before it is looked for: from here on no sweep removes it.
        self.in_hand.hold(digest);
        self.in_hand.hold_named_in(content);
        let folder = self.make_folder(owner, &blob.hash[..2])?;
        let path = folder.join(&blob.hash);
        // What is there already is kept only if it is good: a damaged file is replaced.
        let is_there = fs::read(&path).is_ok_and(|found| found == content);
        if is_there {
            // For a process that comes after this one and knows nothing of who has it in hand.
            touch(fs::File::open(&path)?.file())?;
        } else {
            let mut file = tempfile::Builder::new()
                .prefix(UNFINISHED)
                .tempfile_in(&folder)
                .map_err(|error| name_folder(&folder, error))?;
            file.write_all(content).map_err(|error| name_folder(&folder, error))?;
            fail_point!(BLOB_WRITTEN);
            file.as_file().sync_all().map_err(|error| name_folder(&folder, error))?;
            fail_point!(BLOB_SYNCED);
            file.persist(&path).map_err(|error| name_folder(&folder, error.error))?;
            fail_point!(BLOB_RENAMED);
        }
        // Also for one that was there: whoever renamed it may not have come to this point.
        sync_folder(&folder)?;
        fail_point!(BLOB_DONE);
        Ok(blob)
    }

    /// The content, checked against its hash; `None` where there is none.
    fn get_for(&self, owner: &str, blob: &BlobRef) -> Result<Option<Vec<u8>>, StoreError> {
        let broken = |reason: String| StoreError::Blob { hash: blob.hash.clone(), reason };
        let is_hash = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if blob.hash.len() != HASH_DIGITS || !blob.hash.as_bytes().iter().all(is_hash) {
            return Err(broken("this is not a SHA-256 hash of 64 lower-case hex digits".to_owned()));
        }
        let path = self.root.join(owner).join(&blob.hash[..2]).join(&blob.hash);
        let content = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            result => result?,
        };
        check_content(blob, &content)?;
        Ok(Some(content))
    }
}

impl Blobs for FileBlobs {
    fn put(&self, tenant: &str, content: &[u8]) -> Result<BlobRef, StoreError> {
        self.put_for(&self.owner(tenant), content)
    }

    fn get(&self, tenant: &str, blob: &BlobRef) -> Result<Vec<u8>, StoreError> {
        self.get_for(&self.owner(tenant), blob)?.ok_or_else(|| missing(tenant, blob))
    }

    fn holds(&self, tenant: &str, content: &[u8]) -> Result<bool, StoreError> {
        let (blob, _) = named(content);
        let path = self.root.join(folder_of_tenant(tenant)).join(&blob.hash[..2]).join(&blob.hash);
        Ok(path.try_exists()?)
    }

    fn size(&self, tenant: &str) -> Result<u64, StoreError> {
        size_of(self, tenant)
    }

    fn put_image(&self, tenant: &str, content: &[u8]) -> Result<BlobRef, StoreError> {
        self.put_for(&images_of(&self.owner(tenant)), content)
    }

    fn get_image(&self, tenant: &str, blob: &BlobRef) -> Result<Option<Vec<u8>>, StoreError> {
        let owner = self.owner(tenant);
        match self.get_for(&images_of(&owner), blob)? {
            None => self.get_for(&owner, blob),
            found => Ok(found),
        }
    }

    fn trim_images(&self, tenant: &str, most: u64) -> Result<u64, StoreError> {
        trim_images(self, tenant, most)
    }
}

impl Sweepable for FileBlobs {
    fn owner(&self, tenant: &str) -> String {
        folder_of_tenant(tenant)
    }

    fn owners(&self) -> Result<Vec<String>, StoreError> {
        names_in(&self.root)
    }

    /// Removes on its way what was never finished.
    fn each(&self, owner: &str, each: &mut dyn FnMut(Stored)) -> Result<(), StoreError> {
        let folder = self.root.join(owner);
        for digits in names_in(&folder)? {
            let folder = folder.join(digits);
            for name in names_in(&folder)? {
                let path = folder.join(&name);
                let found = match fs::symlink_metadata(&path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    result => result?,
                };
                // A time to come is one of a clock that jumped.
                let modified = found.modified().ok();
                let age = modified.and_then(|modified| modified.elapsed().ok());
                let settled = age.is_some_and(|age| age >= self.in_hand.grace());
                if name.starts_with(UNFINISHED) && settled {
                    self.check()?;
                    remove_if_there(&path)?;
                }
                if let Some(digest) = digest(name.as_bytes()) {
                    let since = modified.and_then(|modified| modified.duration_since(UNIX_EPOCH).ok());
                    let at = since.unwrap_or_default().as_nanos();
                    each(Stored { digest, size: found.len(), settled, at });
                }
            }
        }
        Ok(())
    }

    fn remove(&self, owner: &str, digest: &Digest) -> Result<bool, StoreError> {
        let hash = digits(digest);
        let path = self.root.join(owner).join(&hash[..2]).join(&hash);
        // Of another directory this store knows nothing, neither what is needed there.
        self.check()?;
        self.in_hand.unless_held(digest, || remove_if_there(&path)).transpose().map(|done| done.is_some())
    }
}

/// The names in a folder that may not be there.
fn names_in(folder: &Path) -> Result<Vec<String>, StoreError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        result => result?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    Ok(names)
}

fn remove_if_there(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => Ok(result?),
    }
}

/// Says that a file was changed now.
fn touch(file: &std::fs::File) -> std::io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let kept = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    Ok(futimens(file, &Timestamps { last_access: kept, last_modification: now })?)
}

/// The name of `content`.
pub(crate) fn reference(content: &[u8]) -> BlobRef {
    named(content).0
}

/// The same, with the hash as it is compared.
pub(crate) fn named(content: &[u8]) -> (BlobRef, Digest) {
    let digest = Digest::from(Sha256::digest(content));
    (BlobRef { hash: digits(&digest), size: content.len() as u64 }, digest)
}

/// The error for content that a tenant does not have.
pub(crate) fn missing(tenant: &str, blob: &BlobRef) -> StoreError {
    StoreError::Blob { hash: blob.hash.clone(), reason: format!("tenant \"{tenant}\" has no such content") }
}

/// Whether `content` is what `blob` names.
pub(crate) fn check_content(blob: &BlobRef, content: &[u8]) -> Result<(), StoreError> {
    let found = reference(content);
    if found == *blob {
        return Ok(());
    }
    let reason = format!(
        "it should have {} bytes; what is stored has {} and the hash {}",
        blob.size, found.size, found.hash
    );
    Err(StoreError::Blob { hash: blob.hash.clone(), reason })
}

/// A folder name for any tenant: lower-case letters, digits, `-` and `_` stand for themselves, every other byte is
/// `%` and two hex digits (upper-case letters too, because some file systems do not tell them apart). A name that would
/// be too long is `%%` and the hash of the tenant.
fn folder_of_tenant(tenant: &str) -> String {
    let mut name = String::new();
    for byte in tenant.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            _ => {
                let _ = write!(name, "%{byte:02x}");
            }
        }
    }
    match name.len() {
        0 => "%".to_owned(),
        1..=LONGEST_NAME => name,
        _ => format!("%%{}", reference(tenant.as_bytes()).hash),
    }
}

fn make_durable_folder(folder: &Path) -> Result<(), StoreError> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        result => result?,
    }
    folder.parent().map_or(Ok(()), sync_folder)
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    Ok(fs::File::open(folder)?.sync_all()?)
}

fn name_folder(folder: &Path, error: std::io::Error) -> StoreError {
    std::io::Error::new(error.kind(), format!("blob in {}: {error}", folder.display())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tenant_gets_out_of_its_folder_or_into_that_of_another() {
        let long = "x".repeat(5_000);
        let tenants = [
            "", ".", "..", "../..", "/etc", "a/b", "a%2fb", "Acme", "acme", "ä", "\0", "%", "%%", "c:\\",
            &long,
        ];
        let names: std::collections::BTreeSet<String> =
            tenants.iter().map(|name| folder_of_tenant(name)).collect();
        assert_eq!(names.len(), tenants.len(), "{names:?}");
        for name in names {
            assert!(name.len() <= LONGEST_NAME, "{name}");
            assert!(
                name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'%')),
                "{name}"
            );
        }
    }
}
