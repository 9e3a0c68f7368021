//! Writing JSON to memory, reading strings without copying them, and reading fields that may have another form.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::ops::Deref;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};
use serde_json::value::RawValue;

/// Appends `value` as JSON. Every text of a request is written here: what [`Clean`] replaces never leaves.
pub(crate) fn append<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    value
        .serialize(&mut serde_json::Serializer::with_formatter(out, Clean))
        .expect("memory takes every write, and all keys of the wire types are strings");
}

/// `value` as JSON text, cleaned likewise. Some dialects have a call's arguments as text, in which an escape would stay one.
pub(crate) fn written<T: Serialize + ?Sized>(value: &T) -> String {
    let mut out = Vec::new();
    append(&mut out, value);
    String::from_utf8(out).expect("JSON is text")
}

/// Writes `\u{fffd}` for control characters other than tabs and line ends, and for code points that are no characters: some
/// servers refuse a request with them, and would refuse every later one of that conversation.
struct Clean;

const REPLACEMENT: &str = "\u{fffd}";

impl Formatter for Clean {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        // The first bytes of what is replaced, and of a few others.
        let may_be = |byte: &u8| matches!(byte, 0x7f | 0xc2 | 0xef | 0xf0..=0xf4);
        if !fragment.as_bytes().iter().any(may_be) {
            return writer.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some((place, bad)) = rest.char_indices().find(|(_, character)| is_replaced(*character)) {
            writer.write_all(&rest.as_bytes()[..place])?;
            writer.write_all(REPLACEMENT.as_bytes())?;
            rest = &rest[place + bad.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: Write + ?Sized>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()> {
        match escape {
            CharEscape::AsciiControl(_) | CharEscape::Backspace | CharEscape::FormFeed => {
                writer.write_all(REPLACEMENT.as_bytes())
            }
            kept => CompactFormatter.write_char_escape(writer, kept),
        }
    }
}

/// Whether a character that JSON does not escape is replaced.
fn is_replaced(character: char) -> bool {
    let is_nothing = matches!(character, '\u{fdd0}'..='\u{fdef}') || u32::from(character) & 0xfffe == 0xfffe;
    character.is_control() || is_nothing
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
