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
