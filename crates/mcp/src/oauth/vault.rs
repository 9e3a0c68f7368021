//! Sealed files in which logins and other secrets of tenants are kept.
//!
//! A file is sealed with ChaCha20-Poly1305 under a key that lies in a file of its own, readable by the user of the engine only.
//! The name of a file is sealed with it: one that is put in the place of another is refused.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::text::hex;

/// What a sealed file begins with.
const MAGIC: &[u8; 8] = b"PHMCP 1\n";
/// Name of the file with the key, and its length in bytes.
const KEY: &str = "key";
const KEY_LENGTH: usize = 32;
/// The largest file that is read, in bytes.
const LARGEST: u64 = 4 * 1024 * 1024;
/// Length of the beginning of a hash in the name of a file.
const DIGITS: usize = 32;

/// A folder of sealed files. Its methods block. Clones are the same.
#[derive(Clone, Debug)]
pub struct Vault(Arc<Path>);

impl Vault {
    /// The files in a folder, which is made when something is kept in it.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into().into())
    }

    /// The file of a tenant for what `hash` names: the hash of a server's entry, or another text.
    pub fn file(&self, tenant: &str, hash: &str) -> VaultFile {
        let digits = |text: &str| hex(&Sha256::digest(text)).split_at(DIGITS).0.to_owned();
        VaultFile { vault: self.clone(), name: format!("{}-{}", digits(tenant), digits(hash)) }
    }

    /// The key. It is made if `makes`.
    fn key(&self, makes: bool) -> io::Result<Option<LessSafeKey>> {
        let path = self.0.join(KEY);
        for _ in 0..2 {
            match read(&path) {
                Ok(Some(bytes)) => {
                    let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes).map_err(|_| {
                        wrong(format!("{} is not a key of {KEY_LENGTH} bytes", path.display()))
                    })?;
                    return Ok(Some(LessSafeKey::new(key)));
                }
                Ok(None) if !makes => return Ok(None),
                Ok(None) => {}
                Err(error) => return Err(error),
            }
            let mut bytes = [0; KEY_LENGTH];
            SystemRandom::new()
                .fill(&mut bytes)
                .map_err(|_| io::Error::other("the system has no random bytes"))?;
            // Whole or not at all, and never in place of one that another process made.
            match written(&self.0, &bytes)?.persist_noclobber(&path) {
                Ok(_) => {}
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.error),
            }
        }
        Err(wrong(format!("{} cannot be made", path.display())))
    }
}

/// A sealed file.
#[derive(Clone, Debug)]
pub struct VaultFile {
    vault: Vault,
    name: String,
}

/// Held by whoever may replace a file, over all processes.
pub(super) struct VaultLock(#[expect(dead_code, reason = "it is unlocked when it is closed")] fs_err::File);

impl VaultFile {
    fn path(&self) -> PathBuf {
        self.vault.0.join(format!("{}.sealed", self.name))
    }

    /// Waits for whoever replaces the file.
    pub(super) fn lock(&self) -> io::Result<VaultLock> {
        folder(&self.vault.0)?;
        let path = self.vault.0.join(format!("{}.lock", self.name));
        let file = fs_err::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.file().lock()?;
        Ok(VaultLock(file))
    }

    /// What is kept; `None` if there is nothing.
    ///
    /// # Errors
    /// It cannot be read or opened.
    pub fn load(&self) -> io::Result<Option<Vec<u8>>> {
        let path = self.path();
        let Some(sealed) = read(&path)? else { return Ok(None) };
        let refused =
            |why: &str| wrong(format!("{} {why}; log in again, or register it again", path.display()));
        let key = self.vault.key(false)?.ok_or_else(|| refused("cannot be opened: its key is gone"))?;
        let rest = sealed.strip_prefix(MAGIC).ok_or_else(|| refused("has another format"))?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN).ok_or_else(|| refused("is cut off"))?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| refused("is cut off"))?;
        let mut bytes = sealed.to_vec();
        let opened = key
            .open_in_place(nonce, Aad::from(self.name.as_bytes()), &mut bytes)
            .map_err(|_| refused("cannot be opened: it was changed, or sealed with another key"))?;
        Ok(Some(opened.to_vec()))
    }

    /// Keeps something in place of what was there, whole or not at all.
    ///
    /// # Errors
    /// It cannot be sealed or written.
    pub fn save(&self, content: &[u8]) -> io::Result<()> {
        folder(&self.vault.0)?;
        let key = self.vault.key(true)?.ok_or_else(|| io::Error::other("there is no key"))?;
        let mut nonce = [0; NONCE_LEN];
        let random = SystemRandom::new().fill(&mut nonce);
        random.map_err(|_| io::Error::other("the system has no random bytes"))?;
        let mut sealed = content.to_vec();
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(self.name.as_bytes()),
            &mut sealed,
        )
        .map_err(|_| io::Error::other("it cannot be sealed"))?;
        let file = written(&self.vault.0, &[MAGIC, &nonce[..], &sealed].concat())?;
        file.persist(self.path()).map_err(|error| error.error)?;
        Ok(())
    }

    fn note_path(&self) -> PathBuf {
        self.vault.0.join(format!("{}.note", self.name))
    }

    /// What was noted beside it, without a seal. `None` if there is nothing that can be read.
    pub(super) fn note(&self) -> Option<Vec<u8>> {
        read(&self.note_path()).ok().flatten()
    }

    /// Notes something that is not secret beside it, or nothing.
    pub(super) fn set_note(&self, note: Option<&[u8]>) -> io::Result<()> {
        let Some(note) = note else {
            return match fs_err::remove_file(self.note_path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        };
        folder(&self.vault.0)?;
        written(&self.vault.0, note)?.persist(self.note_path()).map_err(|error| error.error)?;
        Ok(())
    }

    /// Removes what is kept, which there may not be.
    ///
    /// # Errors
    /// It is there, and cannot be removed.
    pub fn remove(&self) -> io::Result<bool> {
        match fs_err::remove_file(self.path()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Makes the folder, for nobody else.
fn folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A new file, which only its user can read.
fn written(folder: &Path, content: &[u8]) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    match fs_err::File::open(path) {
        Ok(file) => file.take(LARGEST + 1).read_to_end(&mut content)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if content.len() as u64 > LARGEST {
        return Err(wrong(format!("{} is too large", path.display())));
    }
    Ok(Some(content))
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_kept_is_sealed_and_comes_back() {
        let own = tempfile::tempdir().unwrap();
        let vault = Vault::new(own.path().join("logins"));
        let file = vault.file("acme", "hash");
        assert_eq!(file.load().unwrap(), None);
        assert!(!file.remove().unwrap());
        let lock = file.lock().unwrap();
        file.save(b"hunter2").unwrap();
        drop(lock);
        assert_eq!(file.load().unwrap().unwrap(), b"hunter2");
        let sealed = fs_err::read(file.path()).unwrap();
        assert!(!sealed.windows(7).any(|part| part == b"hunter2"));
        for name in [KEY.to_owned(), format!("{}.sealed", file.name)] {
            let mode = fs_err::metadata(vault.0.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        // Sealed anew each time.
        file.save(b"hunter2").unwrap();
        assert_ne!(fs_err::read(file.path()).unwrap(), sealed);
        assert!(file.remove().unwrap());
        assert_eq!(file.load().unwrap(), None);
    }

    #[test]
    fn what_was_changed_or_moved_is_refused() {
        let own = tempfile::tempdir().unwrap();
        let vault = Vault::new(own.path());
        let (mine, other) = (vault.file("acme", "hash"), vault.file("other", "hash"));
        mine.save(b"hunter2").unwrap();
        fs_err::copy(mine.path(), other.path()).unwrap();
        assert!(other.load().unwrap_err().to_string().contains("log in again"));
        let mut sealed = fs_err::read(mine.path()).unwrap();
        *sealed.last_mut().unwrap() ^= 1;
        fs_err::write(mine.path(), &sealed).unwrap();
        assert!(mine.load().is_err());
        for cut in [0, 5, 12, 25] {
            fs_err::write(mine.path(), &sealed[..cut]).unwrap();
            assert!(mine.load().is_err(), "{cut}");
        }
        fs_err::write(own.path().join(KEY), b"short").unwrap();
        assert!(mine.save(b"x").unwrap_err().to_string().contains("not a key"));
    }
}
