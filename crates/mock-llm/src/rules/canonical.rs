//! Hashes of JSON that ignore how it is written.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

/// Fields that say nothing of what a model reads.
const IGNORED: [&str; 1] = ["cache_control"];

/// The hash of two hashes, in order.
pub(super) fn mix(first: u64, second: u64) -> u64 {
    hash_of(&(first, second))
}

/// The hash of a value.
pub(super) fn hash_of(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The hash of JSON. The order of fields, fields that are null, `cache_control` anywhere and the fields `without` at the
/// top do not count. A `content` that is a text counts as a list of one text block.
pub(super) fn hash_json(value: &Value, without: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    add(&mut hasher, value, without);
    hasher.finish()
}

fn add(hasher: &mut DefaultHasher, value: &Value, without: &[&str]) {
    match value {
        Value::Null => 0_u8.hash(hasher),
        Value::Bool(value) => (1_u8, value).hash(hasher),
        Value::Number(number) => (2_u8, number.to_string()).hash(hasher),
        Value::String(text) => (3_u8, text).hash(hasher),
        Value::Array(items) => {
            (4_u8, items.len()).hash(hasher);
            items.iter().for_each(|item| add(hasher, item, &[]));
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields
                .iter()
                .filter(|(name, value)| {
                    !value.is_null() && !IGNORED.contains(&name.as_str()) && !without.contains(&name.as_str())
                })
                .collect();
            fields.sort_by_key(|(name, _)| *name);
            (5_u8, fields.len()).hash(hasher);
            for (name, value) in fields {
                name.hash(hasher);
                match value {
                    Value::String(text) if name == "content" => add(hasher, &text_blocks(text), &[]),
                    value => add(hasher, value, &[]),
                }
            }
        }
    }
}

/// A text as a list of one block; an empty one as an empty list.
pub(super) fn text_blocks(text: &str) -> Value {
    if text.is_empty() {
        return Value::Array(Vec::new());
    }
    serde_json::json!([{"type": "text", "text": text}])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_a_model_reads_counts() {
        let value = json!({"a": 1, "content": "x"});
        let same = json!({"content": [{"text": "x", "type": "text", "cache_control": {"type": "ephemeral"}}],
            "b": null, "a": 1, "id": "y"});
        assert_eq!(hash_json(&value, &[]), hash_json(&same, &["id"]));
        for other in [json!({"a": 2, "content": "x"}), json!({"a": 1, "content": "y"}), json!({"a": 1})] {
            assert_ne!(hash_json(&value, &[]), hash_json(&other, &[]), "{other}");
        }
    }
}
