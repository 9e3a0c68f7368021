//! A configuration file as a flat list of settings, each checked against [`KEYS`] and with its line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use playhouse_protocol::Prices;
use playhouse_protocol::nearest::did_you_mean;
use playhouse_protocol::usage::LongContext;
use rust_decimal::Decimal;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::error::ConfigError;
use super::keys::{KEYS, Key, Kind, NAME};

/// A file that holds only keys that exist, with values of the right types.
pub(super) struct Document {
    /// The file.
    pub(super) file: PathBuf,
    /// All settings in their order.
    pub(super) settings: Vec<Setting>,
    /// All tables whose name the operator chose, also empty ones.
    pub(super) sections: Vec<Section>,
}

/// One key with its value.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The key.
    pub(super) key: &'static Key,
    /// What stands for each `NAME` of the key's path.
    pub(super) names: Vec<String>,
    /// The line, from 1.
    pub(super) line: usize,
    /// Where in the file it begins, in bytes.
    pub(super) offset: usize,
    /// The value, of the key's kind.
    pub(super) value: Value,
}

/// One table that stands for a `NAME`.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// Its path, as in [`KEYS`].
    pub(super) path: String,
    /// The names up to here.
    pub(super) names: Vec<String>,
    /// The line, from 1.
    pub(super) line: usize,
}

/// A value of a [`Kind`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Whole(u64),
    Number(Decimal),
    Boolean(bool),
    List(Vec<String>),
    /// What the environment variable of this name holds.
    Variable(String),
    Texts(Vec<Entry>),
    /// By rising threshold.
    Steps(Vec<LongContext>),
}

/// One text of a table of texts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) text: String,
    /// The line, from 1.
    pub(super) line: usize,
    /// Where in the file it begins, in bytes.
    pub(super) offset: usize,
}

impl Document {
    /// Reads `text`, the content of `file`. `permit` may refuse a key of the uppermost level, with a reason.
    pub(super) fn parse(
        file: &Path,
        text: &str,
        permit: &dyn Fn(&str) -> Result<(), String>,
    ) -> Result<Self, ConfigError> {
        let lines = Lines { file, text };
        let root = DeTable::parse(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let message: Vec<&str> = error.message().lines().map(str::trim).collect();
            lines.error(start, format!("not valid TOML: {}", message.join(", ")))
        })?;
        for key in root.get_ref().keys() {
            permit(key.get_ref()).map_err(|message| lines.error(key.span().start, message))?;
        }
        let mut document = Self { file: file.to_owned(), settings: Vec::new(), sections: Vec::new() };
        let mut walk = Walk { lines: &lines, document: &mut document, shown: Vec::new(), names: Vec::new() };
        walk.table(root.get_ref(), "")?;
        Ok(document)
    }
}

/// Finds lines of offsets.
struct Lines<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Lines<'_> {
    fn of(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().get(..offset).unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn error(&self, offset: usize, message: impl Into<String>) -> ConfigError {
        ConfigError::line(self.file, self.of(offset), message)
    }
}

/// Goes down a document beside the paths of [`KEYS`].
struct Walk<'a> {
    lines: &'a Lines<'a>,
    document: &'a mut Document,
    /// The path as it is written in the file.
    shown: Vec<String>,
    /// The names among it that the operator chose.
    names: Vec<String>,
}

impl Walk<'_> {
    /// Reads a table that stands at `pattern` (a path of [`KEYS`] up to here, with a dot at its end unless it is empty).
    fn table(&mut self, table: &DeTable<'_>, pattern: &str) -> Result<(), ConfigError> {
        let known: BTreeSet<&str> = KEYS
            .iter()
            .filter_map(|key| key.path.strip_prefix(pattern))
            .filter_map(|rest| rest.split('.').next())
            .collect();
        for (key, value) in table {
            let name: &str = key.get_ref();
            // Beside names of the operator's choice there may be keys of all.
            let is_key = KEYS.iter().any(|key| key.path.strip_prefix(pattern) == Some(name));
            let segment = if known.contains(NAME) && !is_key { NAME } else { name };
            self.shown.push(shown(name));
            if !known.contains(segment) {
                return Err(self.unknown(key.span().start, name, &known));
            }
            let path = format!("{pattern}{segment}");
            match KEYS.iter().find(|key| key.path == path) {
                Some(known) if segment == NAME => {
                    self.names.push(name.to_owned());
                    self.setting(known, key.span().start, value)?;
                    self.names.pop();
                }
                // A switch with keys below it, as `oauth`.
                Some(known) if value.get_ref().is_table() && has_keys_below(known) => {
                    self.subtable(&path, segment, name, key.span().start, value)?;
                }
                Some(known) => self.setting(known, key.span().start, value)?,
                None => self.subtable(&path, segment, name, key.span().start, value)?,
            }
            self.shown.pop();
        }
        Ok(())
    }

    fn subtable(
        &mut self,
        path: &str,
        segment: &str,
        name: &str,
        offset: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), ConfigError> {
        let DeValue::Table(table) = value.get_ref() else {
            return Err(self.mismatch(offset, "a table", value.get_ref()));
        };
        let chosen = segment == NAME;
        if chosen {
            self.names.push(name.to_owned());
            let line = self.lines.of(offset);
            self.document.sections.push(Section { path: path.to_owned(), names: self.names.clone(), line });
        }
        self.table(table, &format!("{path}."))?;
        if chosen {
            self.names.pop();
        }
        Ok(())
    }

    fn setting(
        &mut self,
        key: &'static Key,
        offset: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), ConfigError> {
        let found = value.get_ref();
        let value = match key.kind {
            Kind::Text => found.as_str().map(|text| Value::Text(text.to_owned())),
            Kind::Whole => found.as_integer().and_then(whole).map(Value::Whole),
            Kind::Number => number(found).map(Value::Number),
            Kind::Boolean => found.as_bool().map(Value::Boolean),
            Kind::List => self.list(found)?.map(Value::List),
            Kind::TextOrWhole => match found.as_str() {
                Some(text) => Some(Value::Text(text.to_owned())),
                None => found.as_integer().and_then(whole).map(Value::Whole),
            },
            Kind::TextOrVariable => match found.as_str() {
                Some(text) => Some(Value::Text(text.to_owned())),
                None => variable(found).map(Value::Variable),
            },
            Kind::Steps => self.steps(found)?.map(Value::Steps),
            Kind::Actions => match found.as_str() {
                Some(text) => Some(Value::Text(text.to_owned())),
                None => self.texts(found)?.map(Value::Texts),
            },
        };
        let Some(value) = value else {
            if is_beyond(key.kind, found) {
                let message =
                    format!("`{}` is {}, which is too large", self.shown.join("."), self::found(found));
                return Err(self.lines.error(offset, message));
            }
            return Err(self.mismatch(offset, &key.kind.to_string(), found));
        };
        let line = self.lines.of(offset);
        self.document.settings.push(Setting { key, names: self.names.clone(), line, offset, value });
        Ok(())
    }

    /// The items of a list; `None` for a value that is no list.
    fn list(&self, value: &DeValue<'_>) -> Result<Option<Vec<String>>, ConfigError> {
        let Some(items) = value.as_array() else { return Ok(None) };
        let text = |item: &Spanned<DeValue<'_>>| match item.get_ref().as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(self.lines.error(
                item.span().start,
                format!("`{}` holds {}, expected texts only", self.shown.join("."), found(item.get_ref())),
            )),
        };
        items.iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// The steps of a list, by rising threshold; `None` for a value that is no list.
    fn steps(&mut self, value: &DeValue<'_>) -> Result<Option<Vec<LongContext>>, ConfigError> {
        let Some(items) = value.as_array() else { return Ok(None) };
        let mut steps: Vec<LongContext> = Vec::new();
        for item in items {
            let Some(table) = item.get_ref().as_table() else {
                let message = format!(
                    "`{}` holds {}, expected steps only, as `{{ above = 200000, input = 4, output = 18 }}`",
                    self.shown.join("."),
                    found(item.get_ref())
                );
                return Err(self.lines.error(item.span().start, message));
            };
            let step = self.step(item.span().start, table)?;
            if steps.iter().any(|other| other.above == step.above) {
                let message = format!("`{}` has two steps of the same threshold", self.shown.join("."));
                return Err(self.lines.error(item.span().start, message));
            }
            steps.push(step);
        }
        steps.sort_by_key(|step| step.above);
        Ok(Some(steps))
    }

    /// One step: `above` or `from`, and prices by class.
    fn step(&mut self, offset: usize, table: &DeTable<'_>) -> Result<LongContext, ConfigError> {
        let (mut above, mut prices) = (None, Prices::default());
        for (key, value) in table {
            let (name, at, value): (&str, usize, _) = (key.get_ref(), key.span().start, value.get_ref());
            self.shown.push(shown(name));
            if let Some(inclusive) = STEP_BOUNDS.iter().position(|bound| *bound == name) {
                let least = inclusive as u64;
                let tokens = value.as_integer().and_then(whole).filter(|tokens| *tokens >= least);
                let Some(tokens) = tokens else {
                    return Err(self.mismatch(at, &format!("a whole number from {least}"), value));
                };
                if above.replace(tokens - least).is_some() {
                    let message =
                        format!("`{}`: a step has `above` or `from`, not both", self.shown.join("."));
                    return Err(self.lines.error(at, message));
                }
            } else if let Some(class) = class(&mut prices, name) {
                let Some(price) = number(value) else {
                    return Err(self.mismatch(at, "a number from 0", value));
                };
                *class = Some(price);
            } else {
                let known = STEP_BOUNDS.into_iter().chain(PRICE_CLASSES).collect();
                return Err(self.unknown(at, name, &known));
            }
            self.shown.pop();
        }
        let missing = || {
            let message = format!("`{}` has a step without `above` or `from`", self.shown.join("."));
            self.lines.error(offset, message)
        };
        Ok(LongContext { above: above.ok_or_else(missing)?, prices })
    }

    /// The entries of a table; `None` for a value that is no table.
    fn texts(&mut self, value: &DeValue<'_>) -> Result<Option<Vec<Entry>>, ConfigError> {
        let Some(table) = value.as_table() else { return Ok(None) };
        let mut entries = Vec::new();
        for (key, value) in table {
            let (name, offset): (&str, usize) = (key.get_ref(), key.span().start);
            let Some(text) = value.get_ref().as_str() else {
                self.shown.push(shown(name));
                return Err(self.mismatch(offset, "allow, ask or deny", value.get_ref()));
            };
            let line = self.lines.of(offset);
            entries.push(Entry { key: name.to_owned(), text: text.to_owned(), line, offset });
        }
        Ok(Some(entries))
    }

    fn mismatch(&self, offset: usize, expected: &str, value: &DeValue<'_>) -> ConfigError {
        let message = format!("`{}` is {}, expected {expected}", self.shown.join("."), found(value));
        self.lines.error(offset, message)
    }

    fn unknown(&self, offset: usize, name: &str, known: &BTreeSet<&str>) -> ConfigError {
        let names: Vec<&str> = known.iter().copied().collect();
        let message = format!(
            "unknown key `{}`; known here are {}{}",
            self.shown.join("."),
            names.join(", "),
            did_you_mean(name, names.iter().copied())
        );
        self.lines.error(offset, message)
    }
}

/// Whether other keys stand below this one.
fn has_keys_below(key: &Key) -> bool {
    KEYS.iter().any(|other| other.path.strip_prefix(key.path).is_some_and(|rest| rest.starts_with('.')))
}

/// The keys of a step's threshold. The first is exclusive, the second inclusive.
const STEP_BOUNDS: [&str; 2] = ["above", "from"];

/// The classes of prices.
const PRICE_CLASSES: [&str; 8] = [
    "input",
    "output",
    "cache_read",
    "cache_write",
    "cache_write_30m",
    "cache_write_1h",
    "cache_write_12h",
    "reasoning",
];

/// The price of the class called `name`; `None` for a name that is not in [`PRICE_CLASSES`].
fn class<'p>(prices: &'p mut Prices, name: &str) -> Option<&'p mut Option<Decimal>> {
    let Prices {
        input,
        output,
        cache_read,
        cache_write,
        cache_write_30m,
        cache_write_1h,
        cache_write_12h,
        reasoning,
    } = prices;
    let classes =
        [input, output, cache_read, cache_write, cache_write_30m, cache_write_1h, cache_write_12h, reasoning];
    PRICE_CLASSES.into_iter().zip(classes).find_map(|(class, price)| (class == name).then_some(price))
}

/// A message that begins with the setting's key.
pub(super) fn keyed(setting: &Setting, message: &dyn std::fmt::Display) -> String {
    let mut names = setting.names.iter();
    let segments = setting.key.path.split('.').map(|segment| {
        let name = if segment == NAME { names.next() } else { None };
        shown(name.map_or(segment, String::as_str))
    });
    format!("`{}`: {message}", segments.collect::<Vec<_>>().join("."))
}

/// A key as it is shown in a message: quoted where TOML would need that, and never with line breaks.
pub(super) fn shown(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(bare) {
        return name.to_owned();
    }
    let mut short: String = name.chars().take(64).collect();
    short.retain(|c| !c.is_control());
    format!("\"{short}\"")
}

/// What a value is, for people; the value itself for numbers, so that a wrong range is told from a wrong type.
fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(_) => "text".to_owned(),
        DeValue::Integer(number) => format!("the whole number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) => "a date or a time".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// The name in `{ env = "NAME" }`.
fn variable(value: &DeValue<'_>) -> Option<String> {
    let table = value.as_table()?;
    let name = table.get("env").filter(|_| table.len() == 1)?;
    name.get_ref().as_str().map(str::to_owned)
}

fn whole(number: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Whether a number is not below 0, and yet none that a key of this kind can hold.
fn is_beyond(kind: Kind, value: &DeValue<'_>) -> bool {
    let text = match value {
        DeValue::Integer(number) => number.as_str(),
        DeValue::Float(number) => number.as_str(),
        _ => return false,
    };
    // Those that are no decimal numbers were read, or are infinite.
    match kind {
        Kind::Whole | Kind::TextOrWhole => matches!(value, DeValue::Integer(_)) && !text.starts_with('-'),
        Kind::Number => text.parse::<f64>().is_ok_and(|number| number >= 1e19),
        _ => false,
    }
}

/// A number from 0, from its text and so without rounding.
fn number(value: &DeValue<'_>) -> Option<Decimal> {
    let number = match value {
        DeValue::Integer(number) => Decimal::from(whole(number)?),
        DeValue::Float(number) => {
            let text = number.as_str();
            text.parse().or_else(|_| Decimal::from_scientific(text)).ok()?
        }
        _ => return None,
    };
    (number >= Decimal::ZERO).then_some(number)
}
