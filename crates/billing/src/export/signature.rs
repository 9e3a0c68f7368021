//! Signatures of webhooks, in the form of Standard Webhooks: HMAC-SHA256 over id, time and body.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// The block of SHA-256, in bytes.
const BLOCK: usize = 64;
/// What keys begin with that are written in base64.
const PREFIX: &str = "whsec_";
/// The shortest and the longest key, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 24..=64;

/// Why a key cannot sign. It does not repeat the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError(&'static str);

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for KeyError {}

/// The bytes of a key that is written as `whsec_` and base64 of 24 to 64 bytes.
///
/// # Errors
/// It is written otherwise, or too short or too long.
pub fn key_bytes(text: &str) -> Result<Vec<u8>, KeyError> {
    let wrong = KeyError("is not a key of webhooks: it must be `whsec_` and then 24 to 64 bytes in base64");
    let encoded = text.trim().strip_prefix(PREFIX).ok_or(wrong.clone())?;
    let key = STANDARD.decode(encoded).map_err(|_| wrong.clone())?;
    if LENGTHS.contains(&key.len()) { Ok(key) } else { Err(wrong) }
}

/// The value of `webhook-signature` for a body that is sent under `id` at `seconds` since 1970.
pub fn sign(key: &[u8], id: &str, seconds: u64, body: &[u8]) -> String {
    let head = format!("{id}.{seconds}.");
    format!("v1,{}", STANDARD.encode(hmac_sha256(key, &[head.as_bytes(), body])))
}

/// HMAC with SHA-256 (RFC 2104) over the parts, one after the other.
fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let mut inner = Sha256::new_with_prefix(block.map(|byte| byte ^ 0x36));
    for part in parts {
        inner.update(part);
    }
    let mut outer = Sha256::new_with_prefix(block.map(|byte| byte ^ 0x5c));
    outer.update(inner.finalize());
    outer.finalize().into()
}

/// The first 32 hex digits of the SHA-256 of `parts`, each ended by a 0 byte.
pub fn fingerprint(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        hash.update([0]);
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_vectors_of_rfc_4231_hold() {
        let cases: [(&[u8], &[u8], &str); 3] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, text, expected) in cases {
            let (first, second) = text.split_at(3);
            assert_eq!(hex(&hmac_sha256(key, &[first, second])), expected);
        }
    }

    #[test]
    fn what_is_signed_is_id_time_and_body() {
        let key = key_bytes(&format!("whsec_{}", STANDARD.encode([7; 32]))).unwrap();
        let signature = sign(&key, "msg_1", 5, b"{}");
        assert_eq!(signature, format!("v1,{}", STANDARD.encode(hmac_sha256(&[7; 32], &[b"msg_1.5.{}"]))));
        assert_ne!(signature, sign(&key, "msg_1", 6, b"{}"));
    }

    #[test]
    fn bad_keys_are_told_without_being_shown() {
        let short = format!("whsec_{}", STANDARD.encode([7; 23]));
        for text in ["", "secret-secret-secret-secret-secret", "whsec_???", &short] {
            let error = key_bytes(text).unwrap_err().to_string();
            assert!(error.contains("`whsec_`"), "{error}");
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
    }
}
