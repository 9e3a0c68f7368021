//! What a capture tool keeps.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::id::PartId;
use crate::message::BlobRef;

/// See [`Record::ArtifactCaptured`](super::Record::ArtifactCaptured). It has its value or the blob that holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArtifactCaptured {
    /// The call that captured it.
    pub call: PartId,
    /// The tool's name.
    pub name: String,
    /// The value; absent where a blob holds it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "also_null")]
    pub value: Option<Value>,
    /// The blob with the compact JSON of a value that is too large for the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobRef>,
    /// `sha256:` and the SHA-256 of the compact JSON, 64 hex digits. Blobs are found by a `hash` of digits alone.
    pub hash: String,
}

/// Reads a value that is there, though it may be `null`: for `deserialize_with` beside `default`.
///
/// # Errors
/// It is no JSON.
pub fn also_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_is_a_value_and_a_blob_leaves_none() {
        let blob = BlobRef { hash: "0".repeat(64), size: 70_000 };
        for (value, blob) in [(Some(Value::Null), None), (Some(json!({"a": 1})), None), (None, Some(blob))] {
            let artifact = ArtifactCaptured {
                call: PartId::parse("prt_000000000001Sess1234567890").unwrap(),
                name: "note".to_owned(),
                value,
                blob,
                hash: format!("sha256:{}", "1".repeat(64)),
            };
            let text = serde_json::to_string(&artifact).unwrap();
            assert_eq!(serde_json::from_str::<ArtifactCaptured>(&text).unwrap(), artifact, "{text}");
        }
    }
}
