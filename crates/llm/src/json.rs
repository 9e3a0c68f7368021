//! Writing JSON to memory, and reading strings without copying them.

use std::borrow::Cow;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

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
