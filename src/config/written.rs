//! The keys that the operator's file sets, for people who ask what holds.

use playhouse_llm::address;
use playhouse_protocol::ModelRef;
use playhouse_protocol::usage::LongContext;
use serde_json::{Map, Value as Json, json};

use super::document::{Document, Setting, Value, shown};
use super::keys::{Kind, NAME};

/// A key that the operator's file sets.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenKey {
    /// Its path, with the names that the operator chose, quoted where TOML would need that.
    pub path: String,
    /// The line of the file, from 1.
    pub line: usize,
    /// Its value: `{"env": NAME}` for what a variable holds. Texts that may be secrets are [`WrittenKey::HIDDEN`], and addresses
    /// are without user, password and query.
    pub value: Json,
}

impl WrittenKey {
    /// Stands for a text that may be a secret.
    pub const HIDDEN: &str = "(hidden)";

    /// The path of a price of `model`, as `["input"]` or `["multiples", "batch"]`.
    pub fn path_of_price(model: &ModelRef, price: &[&str]) -> String {
        let path = ["providers", &model.provider, "models", &model.model, "cost"]
            .into_iter()
            .chain(price.iter().copied());
        path.map(shown).collect::<Vec<_>>().join(".")
    }
}

/// All keys of a file, by line.
pub(super) fn written(document: &Document) -> Vec<WrittenKey> {
    let key = |setting: &Setting| WrittenKey {
        path: path(setting),
        line: setting.line,
        value: value(setting.key.kind, &setting.value),
    };
    let mut keys: Vec<WrittenKey> = document.settings.iter().map(key).collect();
    keys.sort_by_key(|key| key.line);
    keys
}

/// The path of a setting as it would be written.
pub(super) fn path(setting: &Setting) -> String {
    let mut names = setting.names.iter();
    let segments = setting.key.path.split('.').map(|segment| {
        let name = if segment == NAME { names.next() } else { None };
        shown(name.map_or(segment, String::as_str))
    });
    segments.collect::<Vec<_>>().join(".")
}

fn value(kind: Kind, value: &Value) -> Json {
    match value {
        Value::Text(_) if kind == Kind::TextOrVariable => json!(WrittenKey::HIDDEN),
        Value::Text(text) => json!(text_of(text)),
        Value::Whole(number) => json!(number),
        // As it is written: a float would round.
        Value::Number(number) => json!(number.normalize().to_string()),
        Value::Boolean(is_set) => json!(is_set),
        Value::List(items) => items.iter().map(|item| json!(text_of(item))).collect(),
        Value::Variable(name) => json!({"env": name}),
        Value::Texts(entries) => {
            Json::Object(entries.iter().map(|entry| (entry.key.clone(), json!(entry.text))).collect())
        }
        Value::Steps(steps) => steps.iter().map(step).collect(),
    }
}

fn text_of(text: &str) -> String {
    if text.contains("://") { address(text) } else { text.to_owned() }
}

fn step(step: &LongContext) -> Json {
    let prices =
        step.prices.known().map(|(class, price)| (class.to_owned(), json!(price.normalize().to_string())));
    let mut object: Map<String, Json> = prices.collect();
    object.insert("above".to_owned(), json!(step.above));
    Json::Object(object)
}
