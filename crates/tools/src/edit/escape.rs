//! The wanted text written with escapes that the file does not have, as `\"` for `"`.

use std::rc::Rc;

use memchr::memchr;

use super::exact::{self, Exact};
use super::folded::Folded;
use super::strategy::{Found, Place, Search, Strategy};
use super::trimmed::{IndentationFlexible, LineTrimmed};

/// Escapes of a quotation mark alone, and all that are undone.
const SETS: [&[u8]; 2] = [b"\"'`", b"\"'`\\nrt$"];

/// Escapes may differ.
pub(super) struct EscapeNormalised;

impl Strategy for EscapeNormalised {
    fn name(&self) -> &'static str {
        "escape-normalised"
    }

    fn difference(&self) -> &'static str {
        "oldString has escapes that the file has not, and they were undone in newString too"
    }

    fn find(&self, search: &Search<'_>) -> Found {
        for set in SETS {
            let (wanted, undone) = unescape(search.wanted, set);
            if undone.is_empty() || wanted.text.trim_ascii().is_empty() {
                continue;
            }
            let (new, in_new) = unescape(search.new, set);
            let within = search.with(&wanted.text, &new.text);
            for strategy in [&Exact as &dyn Strategy, &LineTrimmed, &IndentationFlexible] {
                match strategy.find(&within) {
                    Found::Nothing => {}
                    Found::Places(places) => {
                        return match in_new.iter().find(|kind| !undone.contains(kind)) {
                            Some(kind) => {
                                Found::Doubt { range: places[0].range.clone(), reason: unclear(*kind) }
                            }
                            None => Found::Places(spelled(places, &new.text)),
                        };
                    }
                    other => return other,
                }
            }
        }
        escaped_in_file(search)
    }
}

fn unclear(kind: u8) -> String {
    let kind = char::from(kind);
    format!(
        "only without the escapes that oldString has, and newString also has \\{kind}, of which it is not clear how it is meant: write both texts without additional escapes"
    )
}

/// The places with the unescaped new text where they have no text of their own.
fn spelled(mut places: Vec<Place>, new: &[u8]) -> Vec<Place> {
    let new: Rc<[u8]> = new.into();
    for place in &mut places {
        place.new.get_or_insert_with(|| new.clone());
    }
    places
}

/// A place that has escapes where the wanted text has the characters themselves.
fn escaped_in_file(search: &Search<'_>) -> Found {
    if memchr(b'\\', search.text).is_none() {
        return Found::Nothing;
    }
    let (plain, _) = unescape(search.text, SETS[1]);
    match exact::occurrences(&plain.text, search.wanted, true).first() {
        Some(range) => Found::Doubt {
            range: plain.original(range.start)..plain.original(range.end),
            reason: "the file has escapes there (such as \\n or \\\") where oldString has the characters themselves: write them as they are in the file, in newString too".to_owned(),
        },
        None => Found::Nothing,
    }
}

/// `text` with the escapes of `set` undone, and which of them it had.
fn unescape(text: &[u8], set: &[u8]) -> (Folded, Vec<u8>) {
    let mut plain = Folded::default();
    let mut undone = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match text.get(at + 1) {
            Some(kind) if *byte == b'\\' && set.contains(kind) => {
                let meant = match kind {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    same => *same,
                };
                plain.push(meant, 2);
                if !undone.contains(kind) {
                    undone.push(*kind);
                }
                at += 2;
            }
            _ => {
                plain.push(*byte, 1);
                at += 1;
            }
        }
    }
    (plain, undone)
}
