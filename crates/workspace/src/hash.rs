//! The hash of a file's content.

use std::fmt;

use sha2::{Digest, Sha256};

/// SHA-256 of a file's content. Written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; 32]);

/// The hash of `content`.
///
/// ```
/// let empty = playhouse_workspace::hash(b"").to_string();
/// assert!(empty.starts_with("e3b0c442") && empty.len() == 64);
/// ```
pub fn hash(content: &[u8]) -> ContentHash {
    ContentHash(Sha256::digest(content).into())
}

impl ContentHash {
    pub(crate) const fn from_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({self})")
    }
}
