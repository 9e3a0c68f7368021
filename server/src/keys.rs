//! The keys of tenants: who may use the server, and as whom.
//!
//! A key is `ph_<id>_<secret>`: 12 hexadecimal digits that name it, and 32 random bytes in base64. The store keeps a hash
//! of the secret. The secret has too much entropy to be guessed, so that one round of SHA-256 is enough.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use playhouse_protocol::Timestamp;
pub use playhouse_protocol::operator::ClientKey as Key;
use playhouse_protocol::operator::{BY_HAND_TENANT, KeyRequest, LOCAL_TENANT, OperatorReply};
use playhouse_store::{Shelf, StoreError};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

/// Where keys lie on the shelf.
const PREFIX: &str = "keys/";
/// How long a key that was found counts without being read again. A withdrawn key of another process's making holds for
/// so long at most.
const FRESH: Duration = Duration::from_secs(2);
/// Keys that are remembered.
const REMEMBERED: usize = 10_000;
/// The longest name of a key or a tenant, in bytes.
const LONGEST_NAME: usize = 128;

#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    key: Key,
    /// SHA-256 of the secret, in hexadecimal digits.
    hash: String,
}

/// Why a key could not be made, listed or withdrawn.
#[derive(Debug, Error)]
pub enum KeyError {
    /// A name that cannot be one.
    #[error("{0}")]
    Name(String),
    /// A root that cannot be one.
    #[error("{0}")]
    Root(String),
    /// There is none.
    #[error("there is no key {0}; `playhouse keys list` shows those that there are")]
    Missing(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(String),
}

/// All keys. Its methods block.
pub struct Keys {
    shelf: Arc<dyn Shelf>,
    /// What was read lately, by id; `None` for one that there is not.
    read: Mutex<HashMap<String, Read>>,
    /// What lasts longer than a request of a key ends with these, by id.
    watched: Mutex<HashMap<String, CancellationToken>>,
}

/// When a key was read, and what was found.
type Read = (Instant, Option<Arc<Kept>>);

impl Keys {
    /// Those on this shelf.
    pub fn new(shelf: Arc<dyn Shelf>) -> Self {
        Self { shelf, read: Mutex::default(), watched: Mutex::default() }
    }

    /// Makes a key and says it, secret included, for the only time. It works below `roots`, or below those of the server if
    /// there are none.
    ///
    /// # Errors
    /// A name that is empty, too long or holds control characters; the operator's own tenant; a root that is no directory; a
    /// store that failed.
    pub fn create(
        &self,
        tenant: &str,
        name: &str,
        roots: &[String],
        now: Timestamp,
    ) -> Result<(Key, String), KeyError> {
        check_name("tenant", tenant)?;
        check_name("name", name)?;
        if [LOCAL_TENANT, BY_HAND_TENANT].contains(&tenant) {
            return Err(KeyError::Name(format!(
                "\"{}\" is the operator's own tenant, which has no keys: its sessions are used without one, on this machine. \
                 Choose another name for the tenant",
                tenant.escape_debug()
            )));
        }
        let given = roots;
        let roots = roots.iter().map(|root| resolved_root(root)).collect::<Result<Vec<_>, _>>()?;
        loop {
            let mut bytes = [0; 38];
            getrandom::fill(&mut bytes).map_err(|error| KeyError::Random(error.to_string()))?;
            let (id, secret) = bytes.split_at(6);
            let (id, secret) = (hex(id), URL_SAFE_NO_PAD.encode(secret));
            let key = Key {
                id: id.clone(),
                tenant: tenant.into(),
                name: name.into(),
                created: now,
                roots: roots.clone(),
                given: if roots == given { Vec::new() } else { given.to_vec() },
            };
            let kept = Kept { key: key.clone(), hash: hex(&Sha256::digest(&secret)) };
            let value = serde_json::to_vec(&kept).unwrap_or_default();
            if self.shelf.compare_and_set(&format!("{PREFIX}{id}"), None, Some(&value))? {
                self.forget(&id);
                return Ok((key, format!("ph_{id}_{secret}")));
            }
        }
    }

    /// All keys, by tenant, name and id.
    ///
    /// # Errors
    /// The store failed.
    pub fn list(&self) -> Result<Vec<Key>, KeyError> {
        let kept = self.shelf.scan(PREFIX)?;
        let mut keys: Vec<Key> =
            kept.iter().filter_map(|(_, value)| parse(value)).map(|kept| kept.key).collect();
        keys.sort_by(|a, b| (&a.tenant, &a.name, &a.id).cmp(&(&b.tenant, &b.name, &b.id)));
        Ok(keys)
    }

    /// Whether there is any.
    ///
    /// # Errors
    /// The store failed.
    pub fn is_empty(&self) -> Result<bool, KeyError> {
        Ok(self.shelf.scan(PREFIX)?.is_empty())
    }

    /// Withdraws a key, named by its id or by itself.
    ///
    /// # Errors
    /// There is none; a store that failed.
    pub fn revoke(&self, id: &str) -> Result<Key, KeyError> {
        let id = split(id).map_or(id, |(id, _)| id);
        let place = format!("{PREFIX}{id}");
        loop {
            let Some(value) = self.shelf.get(&place)? else { return Err(KeyError::Missing(id.to_owned())) };
            if self.shelf.compare_and_set(&place, Some(&value), None)? {
                self.forget(id);
                let watched = self.watched.lock().remove(id);
                watched.inspect(CancellationToken::cancel);
                return parse(&value).map(|kept| kept.key).ok_or_else(|| KeyError::Missing(id.to_owned()));
            }
        }
    }

    /// Does what the operator's commands ask.
    ///
    /// # Errors
    /// As for the methods that do it.
    pub fn answer(&self, request: KeyRequest) -> Result<OperatorReply, KeyError> {
        Ok(match request {
            KeyRequest::Create { tenant, name, roots, created } => {
                let (key, token) = self.create(&tenant, &name, &roots, created)?;
                OperatorReply::KeyMade { key, token }
            }
            KeyRequest::List => OperatorReply::Keys(self.list()?),
            KeyRequest::Revoke(key) => OperatorReply::KeyRevoked(self.revoke(&key)?),
        })
    }

    /// The key that `token` is. Takes as long for a wrong secret as for the right one.
    ///
    /// # Errors
    /// The store failed.
    pub fn verify(&self, token: &str) -> Result<Option<Key>, KeyError> {
        let Some((id, secret)) = split(token) else { return Ok(None) };
        Ok(compare(secret, self.find(id)?.as_deref()))
    }

    /// The same from memory, without blocking; `None` when the store has to be read.
    pub fn remembered(&self, token: &str) -> Option<Option<Key>> {
        let Some((id, secret)) = split(token) else { return Some(None) };
        Some(compare(secret, self.recall(id)?.as_deref()))
    }

    /// Cancelled when the key with this id is withdrawn in this process. Whether it holds is to be asked after this: one that was
    /// withdrawn before is not told.
    pub(crate) fn watch(&self, id: &str) -> CancellationToken {
        let mut watched = self.watched.lock();
        watched.entry(id.to_owned()).or_default().clone()
    }

    /// Whether there is a key with this id in the store.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn holds(&self, id: &str) -> Result<bool, KeyError> {
        Ok(self.shelf.get(&format!("{PREFIX}{id}"))?.is_some())
    }

    /// What was read lately.
    fn recall(&self, id: &str) -> Option<Option<Arc<Kept>>> {
        let remembered = self.read.lock();
        remembered.get(id).filter(|(read, _)| read.elapsed() < FRESH).map(|(_, kept)| kept.clone())
    }

    fn find(&self, id: &str) -> Result<Option<Arc<Kept>>, KeyError> {
        if let Some(kept) = self.recall(id) {
            return Ok(kept);
        }
        let kept = self.shelf.get(&format!("{PREFIX}{id}"))?.as_deref().and_then(parse).map(Arc::new);
        let mut remembered = self.read.lock();
        if remembered.len() >= REMEMBERED {
            remembered.retain(|_, (read, _)| read.elapsed() < FRESH);
        }
        if remembered.len() < REMEMBERED {
            remembered.insert(id.to_owned(), (Instant::now(), kept.clone()));
        }
        Ok(kept)
    }

    fn forget(&self, id: &str) {
        self.read.lock().remove(id);
    }
}

/// Id and secret of a token that has the form of one.
fn split(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.strip_prefix("ph_")?.split_once('_')?;
    let is_id = id.len() == 12 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (is_id && secret.len() == 43).then_some((id, secret))
}

/// The key, if `secret` is its own. One that there is not is compared as well.
fn compare(secret: &str, kept: Option<&Kept>) -> Option<Key> {
    let hash = hex(&Sha256::digest(secret));
    let known = kept.map_or(hash.as_bytes(), |kept| kept.hash.as_bytes());
    let equal = bool::from(hash.as_bytes().ct_eq(known));
    kept.filter(|_| equal).map(|kept| kept.key.clone())
}

fn parse(value: &[u8]) -> Option<Kept> {
    serde_json::from_slice(value).ok()
}

pub(crate) fn check_name(what: &str, name: &str) -> Result<(), KeyError> {
    let fits = !name.trim().is_empty() && name.len() <= LONGEST_NAME && !name.chars().any(char::is_control);
    if fits {
        return Ok(());
    }
    Err(KeyError::Name(format!(
        "\"{}\" cannot be a {what}: write 1 to {LONGEST_NAME} bytes without control characters",
        name.escape_debug()
    )))
}

/// A root with its links resolved. Blocks.
fn resolved_root(written: &str) -> Result<String, KeyError> {
    let wrong = |why: &str| KeyError::Root(format!("the root \"{}\" {why}", written.escape_debug()));
    if !Path::new(written).is_absolute() {
        return Err(wrong("is not absolute: write it from the root of the file system"));
    }
    let resolved =
        fs_err::canonicalize(written).map_err(|error| wrong(&format!("cannot be one: {error}")))?;
    if !resolved.is_dir() {
        return Err(wrong("is no directory"));
    }
    resolved.into_os_string().into_string().map_err(|_| wrong("leads to a path that is not UTF-8"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use playhouse_store::Store;

    use super::*;

    fn keys() -> Keys {
        Keys::new(Store::memory().unwrap().shelf)
    }

    #[test]
    fn a_key_opens_until_it_is_withdrawn() {
        let keys = keys();
        assert!(keys.is_empty().unwrap());
        let now = Timestamp::from_millis(1);
        let (key, token) = keys.create("acme", "ci", &[], now).unwrap();
        assert_eq!(keys.verify(&token).unwrap(), Some(key.clone()));
        let mut wrong = token.clone();
        let last = wrong.pop().unwrap();
        wrong.push(if last == 'A' { 'B' } else { 'A' });
        let other_id = token.replacen(&key.id, "000000000000", 1);
        for token in [wrong.as_str(), other_id.as_str(), "", "ph_", "ph__", &token[1..], &key.id] {
            assert_eq!(keys.verify(token).unwrap(), None, "{token}");
        }
        assert_eq!(keys.list().unwrap(), std::slice::from_ref(&key));
        assert_eq!(keys.revoke(&key.id).unwrap(), key);
        assert_eq!(keys.verify(&token).unwrap(), None);
        assert!(matches!(keys.revoke(&key.id), Err(KeyError::Missing(_))));
    }

    #[test]
    fn the_store_never_holds_the_secret() {
        let store = Store::memory().unwrap();
        let keys = Keys::new(Arc::clone(&store.shelf));
        let (_, token) = keys.create("acme", "ci", &[], Timestamp::from_millis(1)).unwrap();
        // The secret may hold a low line, too.
        let secret = token.splitn(3, '_').nth(2).unwrap();
        assert!(secret.len() > 20, "{token}");
        for (name, value) in store.shelf.scan("").unwrap() {
            let text = String::from_utf8_lossy(&value).into_owned();
            assert!(!text.contains(secret) && !name.contains(secret), "{name}: {text}");
        }
    }

    #[test]
    fn roots_are_directories_and_kept_with_their_links_resolved() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs_err::canonicalize(folder.path()).unwrap();
        fs_err::create_dir(base.join("real")).unwrap();
        fs_err::write(base.join("file"), "").unwrap();
        fs_err::os::unix::fs::symlink("real", base.join("link")).unwrap();
        let text = |name: &str| base.join(name).to_str().unwrap().to_owned();
        let keys = keys();
        let make = |root: String| keys.create("acme", "ci", &[root], Timestamp::from_millis(1));
        let (key, token) = make(text("link")).unwrap();
        assert_eq!((&key.roots, &key.given), (&vec![text("real")], &vec![text("link")]));
        assert_eq!(keys.verify(&token).unwrap(), Some(key));
        for root in [text("file"), text("missing"), "real".to_owned(), String::new()] {
            assert!(matches!(make(root.clone()), Err(KeyError::Root(_))), "{root}");
        }
    }

    #[test]
    fn names_are_checked() {
        let long = "x".repeat(129);
        for (tenant, name) in [("", "a"), ("a", " "), ("a\n", "a"), (long.as_str(), "a")] {
            let made = keys().create(tenant, name, &[], Timestamp::from_millis(1));
            assert!(matches!(made, Err(KeyError::Name(_))), "{tenant:?} {name:?}");
        }
    }

    #[test]
    fn nobody_gets_a_key_to_the_operators_own_sessions() {
        for tenant in [LOCAL_TENANT, BY_HAND_TENANT] {
            let made = keys().create(tenant, "a", &[], Timestamp::from_millis(1));
            assert!(matches!(made, Err(KeyError::Name(_))), "{tenant:?}");
        }
        let refused = keys().create(LOCAL_TENANT, "a", &[], Timestamp::from_millis(1)).unwrap_err();
        assert!(refused.to_string().contains("\"local\" is the operator's own tenant"), "{refused}");
    }
}
