//! Writing JSON to memory, reading strings without copying them, and reading fields that may have another form.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Appends `value` as JSON.
pub(crate) fn append<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value)
        .expect("memory takes every write, and all keys of the wire types are strings");
}

/// Appends `,"name":value`. The name needs no escapes.
pub(crate) fn field<T: Serialize + ?Sized>(out: &mut Vec<u8>, name: &str, value: &T) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    append(out, value);
}

/// A string that borrows where it holds no escapes. Needed because serde copies an `Option<Cow<str>>`.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The text, or nothing where it is absent.
pub(crate) fn text<'a>(text: &'a Option<Text<'_>>) -> &'a str {
    text.as_deref().unwrap_or_default()
}

/// The arguments of a call: the JSON text that every dialect has, or the value itself, which some servers send.
pub(crate) struct Arguments<'a>(Cow<'a, str>);

impl Deref for Arguments<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Arguments<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ArgumentsVisitor).map(Self)
    }
}

struct ArgumentsVisitor;

impl<'de> Visitor<'de> for ArgumentsVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("arguments")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let value = Value::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Cow::Owned(value.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        let value = Value::deserialize(SeqAccessDeserializer::new(list))?;
        Ok(Cow::Owned(value.to_string()))
    }
}

/// The arguments, or nothing where they are absent.
pub(crate) fn arguments<'a>(arguments: &'a Option<Arguments<'_>>) -> &'a str {
    arguments.as_deref().unwrap_or_default()
}

/// Reads an optional field that an answer can be understood without: nothing where it has another form than the dialect
/// gives it.
pub(crate) fn fitting<'de: 'a, 'a, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'a>,
{
    let raw = Option::<&'de RawValue>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| serde_json::from_str(raw.get()).ok()))
}
