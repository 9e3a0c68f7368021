//! The hash of a file's content.

use std::fmt;
use std::io::Read;

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

/// The hash of what is left to read of `file`, and the number of its bytes.
///
/// # Errors
/// When it cannot be read.
pub fn hash_of(file: &mut impl Read) -> std::io::Result<(ContentHash, u64)> {
    let (mut hasher, mut size) = (Sha256::new(), 0);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((ContentHash(hasher.finalize().into()), size)),
            count => {
                hasher.update(&buffer[..count]);
                size += count as u64;
            }
        }
    }
}

impl ContentHash {
    /// The hash that is written so; `None` for what is none.
    ///
    /// ```
    /// let hash = playhouse_workspace::hash(b"x");
    /// assert_eq!(playhouse_workspace::ContentHash::parse(&hash.to_string()), Some(hash));
    /// assert_eq!(playhouse_workspace::ContentHash::parse("é"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        let mut digest = [0; 32];
        for (index, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
        }
        Some(Self(digest))
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
