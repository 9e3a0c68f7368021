//! Whom usage is attributed to, beside its tenant: labels of the session, and the key of the prompt.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The most labels of a row.
pub const MOST_LABELS: usize = 8;
/// The longest label of a row, in bytes.
pub const LONGEST_LABEL: usize = 256;

/// Labels by their name.
pub type Labels = BTreeMap<String, String>;

/// An API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct KeyRef {
    /// Its id.
    pub id: String,
    /// Its name, as it was when it was used.
    pub name: String,
}

/// Whom usage is attributed to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Attribution {
    /// The session's labels, in the tenant's own words.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// The key of the prompt that began the turn; absent where the operator sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyRef>,
}

impl Attribution {
    /// That of a prompt that came with `key`; `None` for one that came without.
    pub fn of_key(key: Option<KeyRef>) -> Option<Box<Self>> {
        key.map(|key| Box::new(Self { key: Some(key), ..Self::default() }))
    }

    /// Boxed, if there is anything in it.
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

/// The labels among the `metadata` of a session: texts, numbers and booleans at `keys`. Calls `left_out` with the name of each
/// value that cannot be one: it is of another kind, longer than [`LONGEST_LABEL`], or there are [`MOST_LABELS`] already.
pub fn labels_of(keys: &[String], metadata: &Map<String, Value>, mut left_out: impl FnMut(&str)) -> Labels {
    let mut labels = Labels::new();
    for name in keys {
        let label = match metadata.get(name) {
            None | Some(Value::Null) => continue,
            Some(Value::String(text)) => Some(text.clone()),
            Some(value @ (Value::Bool(_) | Value::Number(_))) => Some(value.to_string()),
            Some(Value::Array(_) | Value::Object(_)) => None,
        };
        match label.filter(|label| label.len() <= LONGEST_LABEL && labels.len() < MOST_LABELS) {
            Some(label) => drop(labels.insert(name.clone(), label)),
            None => left_out(name),
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_short_values_of_the_named_keys() {
        let Value::Object(metadata) = json!({
            "customer": "c-42", "seats": 3, "trial": false, "share": 0.5, "list": [1], "none": null,
            "long": "x".repeat(257), "edge": "x".repeat(256), "other": "not named",
        }) else {
            unreachable!()
        };
        let keys = ["customer", "seats", "trial", "share", "list", "none", "long", "edge", "absent"]
            .map(str::to_owned);
        let mut left_out = Vec::new();
        let labels = labels_of(&keys, &metadata, |name| left_out.push(name.to_owned()));
        let edge = "x".repeat(256);
        let expected = [
            ("customer", "c-42"),
            ("edge", edge.as_str()),
            ("seats", "3"),
            ("share", "0.5"),
            ("trial", "false"),
        ];
        assert_eq!(labels, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert_eq!(left_out, ["list", "long"]);
        let many: Vec<String> = (0..10).map(|number| format!("k{number}")).collect();
        let metadata = many.iter().map(|name| (name.clone(), json!(1))).collect();
        let mut left_out = 0;
        assert_eq!(labels_of(&many, &metadata, |_| left_out += 1).len(), MOST_LABELS);
        assert_eq!(left_out, 2);
    }
}
