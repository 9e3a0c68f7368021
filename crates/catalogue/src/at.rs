//! Values of a JSON document together with their path, for errors that name it.

use rust_decimal::Decimal;
use serde_json::{Map, Value};

use crate::error::CatalogueError;

/// Names go to terminals and into requests.
pub(crate) fn check_name(at: &At<'_>, name: &str) -> Result<(), CatalogueError> {
    if name.is_empty() || name.len() > 256 || name.contains(char::is_control) {
        return Err(at.wrong("a name must have 1 to 256 bytes and no control characters"));
    }
    Ok(())
}

/// A value, or the absence of one, and where it is.
pub(crate) struct At<'a> {
    /// `None` where there is nothing, or `null`.
    value: Option<&'a Value>,
    path: String,
}

impl<'a> At<'a> {
    pub(crate) fn root(value: &'a Value) -> Self {
        Self { value: Some(value), path: String::new() }
    }

    /// The value called `name` of an object; nothing for whatever has no fields.
    pub(crate) fn field(&self, name: &str) -> Self {
        let value = self.value.and_then(|value| value.get(name)).filter(|value| !value.is_null());
        let dot = if self.path.is_empty() { "" } else { "." };
        Self { value, path: format!("{}{dot}{}", self.path, shown(name)) }
    }

    /// The value at `index` of this list.
    pub(crate) fn item(&self, index: usize, value: &'a Value) -> Self {
        Self { value: Some(value), path: format!("{}[{index}]", self.path) }
    }

    /// The same, where it is there.
    pub(crate) fn present(self) -> Option<Self> {
        self.value.is_some().then_some(self)
    }

    pub(crate) fn wrong(&self, message: impl Into<String>) -> CatalogueError {
        let path = if self.path.is_empty() { "the catalogue" } else { &self.path };
        CatalogueError::Value { path: path.to_owned(), message: message.into() }
    }

    /// Reads the value with `read`. Fails where it is missing.
    pub(crate) fn read<T>(
        &self,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, CatalogueError> {
        let value = self.value.ok_or_else(|| self.wrong("is missing"))?;
        read(value).ok_or_else(|| self.wrong(format!("is {}, expected {expected}", found(value))))
    }

    /// The same, for a value that may be absent.
    pub(crate) fn optional<T>(
        &self,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, CatalogueError> {
        self.value.map(|_| self.read(expected, read)).transpose()
    }

    pub(crate) fn object(&self) -> Result<&'a Map<String, Value>, CatalogueError> {
        self.read("an object", Value::as_object)
    }

    pub(crate) fn whole(&self) -> Result<u64, CatalogueError> {
        self.read("a whole number from 0", Value::as_u64)
    }

    pub(crate) fn boolean(&self) -> Result<Option<bool>, CatalogueError> {
        self.optional("true or false", Value::as_bool)
    }

    pub(crate) fn text(&self) -> Result<Option<&'a str>, CatalogueError> {
        self.optional("text", Value::as_str)
    }

    pub(crate) fn price(&self) -> Result<Option<Decimal>, CatalogueError> {
        self.optional("a number from 0", |value| {
            let text = value.as_number()?.to_string();
            let price = text.parse().or_else(|_| Decimal::from_scientific(&text)).ok()?;
            (price >= Decimal::ZERO).then_some(price)
        })
    }
}

/// A name as it stands in a path: quoted where it holds more than letters, digits, `-` and `_`.
fn shown(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(bare) {
        return name.to_owned();
    }
    let short: String = name.chars().take(128).collect();
    format!("\"{}\"", short.escape_debug())
}

/// Description of a value, for messages.
fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => "text".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}
