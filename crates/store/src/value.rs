//! The stored form of what is made from logs: a version, a checksum, JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::StoreError;

const HEADER: usize = 1 + size_of::<u32>();

/// More than most values take: a buffer that grows while it is written costs as much as what is written.
const USUAL: usize = 1536;

/// The stored form of `value` in this version. `name` is what it is stored under: it is part of the checksum, so that a
/// value in another's place is not taken for it.
pub(crate) fn encode(version: u8, name: &[u8], value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    encode_behind(&[], version, name, value)
}

/// The same, behind something else.
pub(crate) fn encode_behind(
    start: &[u8],
    version: u8,
    name: &[u8],
    value: &impl Serialize,
) -> Result<Vec<u8>, StoreError> {
    let mut stored = Vec::with_capacity(USUAL);
    stored.extend(start);
    stored.extend([version, 0, 0, 0, 0]);
    serde_json::to_writer(&mut stored, value)
        .map_err(|error| StoreError::Backend(format!("{}: {error}", name.escape_ascii())))?;
    let (_, value) = stored.split_at_mut(start.len());
    let (header, json) = value.split_at_mut(HEADER);
    header[1..].copy_from_slice(&checksum(name, json).to_be_bytes());
    Ok(stored)
}

/// The value, where the stored form is whole and of this version.
pub(crate) fn decode<T: DeserializeOwned>(version: u8, name: &[u8], stored: &[u8]) -> Option<T> {
    read(version, name, stored, |json| serde_json::from_str(json))
}

/// The same, read by a function of the value's crate.
pub(crate) fn read<T>(
    version: u8,
    name: &[u8],
    stored: &[u8],
    parse: impl FnOnce(&str) -> serde_json::Result<T>,
) -> Option<T> {
    let (header, json) = stored.split_at_checked(HEADER)?;
    let (found, sum) = header.split_at(1);
    if found != [version] || checksum(name, json).to_be_bytes() != sum {
        return None;
    }
    parse(str::from_utf8(json).ok()?).ok()
}

fn checksum(name: &[u8], json: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(name);
    hasher.update(json);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_cut_or_elsewhere_is_not_read() {
        let stored = encode(3, b"here", &"hello").unwrap();
        assert_eq!(decode(3, b"here", &stored), Some("hello".to_owned()));
        assert_eq!(decode::<String>(2, b"here", &stored), None);
        assert_eq!(decode::<String>(3, b"there", &stored), None);
        for position in 0..stored.len() {
            let mut changed = stored.clone();
            changed[position] ^= 1;
            assert_eq!(decode::<String>(3, b"here", &changed), None, "byte {position}");
            assert_eq!(decode::<String>(3, b"here", &stored[..position]), None, "cut at {position}");
        }
    }
}
