//! The keys that the operator's file sets, for people who ask what holds.

use playhouse_llm::address;
use playhouse_protocol::ModelRef;
use playhouse_protocol::usage::LongContext;
use rust_decimal::Decimal;
use serde_json::{Map, Value as Json, json};

use super::document::{Document, Setting, Value};
use super::keys::{KeyName, Kind, NAME};

/// A key that the operator's file sets.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenKey {
    /// Its path as TOML has it, with the names that the operator chose.
    pub path: String,
    /// The line of the file, from 1.
    pub line: usize,
    /// Its value: `{"env": NAME}` for what a variable holds. What may be a secret is [`WrittenKey::HIDDEN`], and addresses are without
    /// user, password and query.
    pub value: Json,
}

impl WrittenKey {
    /// Stands for a text that may be a secret.
    pub const HIDDEN: &str = "(hidden)";

    /// The path of a price of `model`, as `["input"]` or `["multiples", "batch"]`.
    pub fn path_of_price(model: &ModelRef, price: &[&str]) -> String {
        let model = ["providers", &model.provider, "models", &model.model, "cost"];
        joined(model.into_iter().chain(price.iter().copied()))
    }
}

/// All keys of a file, by line.
pub(super) fn written(document: &Document) -> Vec<WrittenKey> {
    let key =
        |setting: &Setting| WrittenKey { path: path(setting), line: setting.line, value: value(setting) };
    let mut keys: Vec<WrittenKey> = document.settings.iter().map(key).collect();
    keys.sort_by_key(|key| key.line);
    keys
}

fn path(setting: &Setting) -> String {
    let mut names = setting.names.iter();
    let name = |segment| if segment == NAME { names.next().map_or(segment, String::as_str) } else { segment };
    let segments: Vec<&str> = setting.key.path.split('.').collect();
    joined(segments.into_iter().map(name))
}

/// Segments of a path with dots between, quoted where TOML needs that.
fn joined<'a>(segments: impl Iterator<Item = &'a str>) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let quoted = |segment: &str| match !segment.is_empty() && segment.chars().all(bare) {
        true => segment.to_owned(),
        // A string of JSON is one of TOML.
        false => json!(segment).to_string(),
    };
    segments.map(quoted).collect::<Vec<_>>().join(".")
}

fn value(setting: &Setting) -> Json {
    let (name, kind) = (setting.key.name, setting.key.kind);
    let hides_all = matches!(name, KeyName::McpArgs | KeyName::LspInitialization);
    match &setting.value {
        Value::Text(_) if hides_all || kind == Kind::TextOrVariable => json!(WrittenKey::HIDDEN),
        Value::Text(text) if setting.key.path.ends_with("url") => json!(address(text)),
        Value::Text(text) => json!(text),
        Value::Whole(number) => json!(number),
        Value::Number(number) => number_of(*number),
        Value::Boolean(is_set) => json!(is_set),
        Value::List(_) if hides_all => json!(WrittenKey::HIDDEN),
        // Arguments of a program may be anything.
        Value::List(words) if matches!(name, KeyName::LspCommand | KeyName::FormatterCommand) => {
            let hidden = words.iter().skip(1).map(|_| WrittenKey::HIDDEN);
            words.iter().map(String::as_str).take(1).chain(hidden.take(1)).collect()
        }
        Value::List(items) => json!(items),
        Value::Variable(name) => json!({"env": name}),
        Value::Texts(entries) => {
            Json::Object(entries.iter().map(|entry| (entry.key.clone(), json!(entry.text))).collect())
        }
        Value::Steps(steps) => steps.iter().map(step).collect(),
    }
}

fn number_of(number: Decimal) -> Json {
    serde_json::from_str(&number.normalize().to_string()).unwrap_or_default()
}

fn step(step: &LongContext) -> Json {
    let mut object: Map<String, Json> =
        step.prices.known().map(|(class, price)| (class.to_owned(), number_of(price))).collect();
    object.insert("above".to_owned(), json!(step.above));
    Json::Object(object)
}
