//! Whether a table that was opened again in place still has what was durable.
//!
//! What a backend writes is in order: whoever has the last thing that was durable has all before it. So one value of the last
//! round that was flushed is remembered, and looked for. One that the round behind it changes, of which nobody
//! knows whether it arrived, may be as either left it.

use std::fmt;

use parking_lot::Mutex;

use crate::table::{Batch, Table};
use crate::{StoreError, keys};

/// What is made again from what else is there is written beside the rounds, too: lists and sums of the ledger, and marks.
const MADE_AGAIN: [&[u8]; 5] = [b"a/", b"b/", b"i/", b"j/", b"m/"];

/// What is known of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// There is none.
    None,
    /// There is one. It has a checksum of its own: where it is damaged that is no matter of the whole table.
    Some,
    /// It has this checksum.
    Sum(u32),
}

impl Value {
    fn of(key: &[u8], value: Option<&[u8]>) -> Self {
        match value {
            None => Self::None,
            Some(_) if key.starts_with(keys::LOGS) => Self::Some,
            Some(value) => Self::Sum(crc32fast::hash(value)),
        }
    }
}

/// A value that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    key: Vec<u8>,
    value: Value,
}

impl Seen {
    /// Of a round: a frame, if there is one, since the next rounds leave it as it is; else what only rounds change.
    fn of(batch: &Batch) -> Option<Self> {
        let frame = batch.range(keys::LOGS.to_vec()..keys::end_of(keys::LOGS)).next_back();
        let is_of_rounds = |key: &[u8]| !MADE_AGAIN.iter().any(|kind| key.starts_with(kind));
        let (key, value) = frame.or_else(|| batch.iter().rev().find(|(key, _)| is_of_rounds(key)))?;
        Some(Self { key: key.clone(), value: Value::of(key, value.as_deref()) })
    }

    /// Whether the table has it.
    pub(crate) fn is_in(&self, table: &dyn Table) -> Result<bool, StoreError> {
        Ok(Value::of(&self.key, table.get(&self.key)?.as_deref()) == self.value)
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (key, value) = text.split_once(' ')?;
        let bytes = key.as_bytes().chunks(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let key = bytes.map(byte).collect::<Option<Vec<u8>>>()?;
        let value = match value {
            "-" => Value::None,
            "+" => Value::Some,
            sum => Value::Sum(u32::from_str_radix(sum, 16).ok()?),
        };
        Some(Self { key, value })
    }
}

/// The key in hexadecimal, and the checksum, or whether there is a value.
impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self.key {
            write!(f, "{byte:02x}")?;
        }
        match self.value {
            Value::None => f.write_str(" -"),
            Value::Some => f.write_str(" +"),
            Value::Sum(sum) => write!(f, " {sum:08x}"),
        }
    }
}

/// A value of the last round.
#[derive(Default)]
pub(crate) struct Witness(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    durable: Option<Seen>,
    /// A round is under way, or failed, and this is to be remembered when it is durable.
    next: Option<Seen>,
    /// What that round makes of the value that is durable, if it changes it.
    changed: Option<Value>,
}

impl Witness {
    /// A round is written.
    pub(crate) fn begin(&self, batch: &Batch) {
        let mut inner = self.0.lock();
        let changed = inner.durable.as_ref().and_then(|seen| batch.get_key_value(&seen.key));
        inner.changed = changed.map(|(key, value)| Value::of(key, value.as_deref()));
        inner.next = Seen::of(batch);
    }

    /// It is durable.
    pub(crate) fn done(&self) {
        let mut inner = self.0.lock();
        inner.changed = None;
        inner.durable = inner.next.take().or(inner.durable.take());
    }

    /// What is durable for sure.
    pub(crate) fn seen(&self) -> Option<Seen> {
        let inner = self.0.lock();
        inner.durable.clone().filter(|_| inner.next.is_none())
    }

    /// Whether the table has it; as what it was found, for [`Witness::settle`].
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where it has not, or it cannot be read.
    pub(crate) fn check(&self, table: &dyn Table) -> Result<Option<Seen>, StoreError> {
        let inner = self.0.lock();
        let Some(Seen { key, value: durable }) = inner.durable.clone() else { return Ok(None) };
        let found = Value::of(&key, table.get(&key)?.as_deref());
        if found != durable && inner.changed != Some(found) {
            return Err(StoreError::Damaged {
                what: "the database".to_owned(),
                found: format!("what was durable is gone from it (the value of {})", key.escape_ascii()),
            });
        }
        Ok(Some(Seen { key, value: found }))
    }

    /// What was found is durable. Until then it may be found otherwise, when the table is opened once more.
    pub(crate) fn settle(&self, found: Option<Seen>) {
        *self.0.lock() = Inner { durable: found, ..Inner::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryTable;

    fn batch(pairs: &[(&str, Option<&str>)]) -> Batch {
        let pair = |(key, value): &(&str, Option<&str>)| {
            (key.as_bytes().to_vec(), value.map(|value| value.as_bytes().to_vec()))
        };
        pairs.iter().map(pair).collect()
    }

    fn table(pairs: &[(&str, Option<&str>)]) -> MemoryTable {
        let table = MemoryTable::default();
        table.apply(batch(pairs)).unwrap();
        table
    }

    #[test]
    fn what_was_durable_is_there_as_the_last_round_or_the_one_behind_it_left_it() {
        let witness = Witness::default();
        assert_eq!(witness.check(&table(&[])).unwrap(), None);
        for round in [&[("l/1", Some("a")), ("s/1", Some("x"))][..], &[("s/1", Some("y"))]] {
            witness.begin(&batch(round));
            witness.done();
        }
        let is_well = |pairs: &[(&str, Option<&str>)]| witness.check(&table(pairs)).is_ok();
        assert!(is_well(&[("s/1", Some("y"))]));
        assert!(!is_well(&[("s/1", Some("x"))]) && !is_well(&[]));
        // A round that failed.
        witness.begin(&batch(&[("s/1", None), ("l/2", Some("b"))]));
        assert!(is_well(&[("s/1", Some("y"))]));
        witness.begin(&batch(&[("s/1", None), ("l/2", Some("b"))]));
        assert!(!is_well(&[("s/1", Some("x"))]));
        assert!(is_well(&[("l/2", Some("b"))]));
        assert!(is_well(&[("s/1", Some("y"))]), "it was not durable as it was found");
        // From then on as it was found.
        witness.settle(witness.check(&table(&[("l/2", Some("b"))])).unwrap());
        assert!(!is_well(&[("s/1", Some("y"))]));
    }

    #[test]
    fn what_is_written_beside_the_rounds_is_not_remembered() {
        let witness = Witness::default();
        witness.begin(&batch(&[("b/1", Some("1")), ("k/1", Some("a")), ("m/settled", Some("7"))]));
        witness.done();
        // Opened again, all was settled.
        let opened = |key| table(&[(key, Some("a")), ("b/1", Some("2")), ("m/settled", Some("8"))]);
        assert!(witness.check(&opened("k/1")).is_ok());
        assert!(witness.check(&opened("k/2")).is_err());
    }

    #[test]
    fn a_frame_is_remembered_before_all_else() {
        let witness = Witness::default();
        witness.begin(&batch(&[("l/1", Some("a")), ("s/1", Some("x"))]));
        witness.done();
        assert!(witness.check(&table(&[("s/1", Some("x"))])).is_err());
        assert!(witness.check(&table(&[("l/1", Some("damaged"))])).is_ok(), "its session tells that");
    }

    #[test]
    fn what_was_seen_reads_back() {
        for value in [Value::None, Value::Some, Value::Sum(0), Value::Sum(u32::MAX)] {
            let seen = Seen { key: b"l/\0\xffx".to_vec(), value };
            assert_eq!(Seen::parse(&seen.to_string()), Some(seen));
        }
        for text in ["", "6c", "6c x", "6 -", "zz -", "\u{e4}\u{e4} -"] {
            assert!(Seen::parse(text).is_none_or(|seen| seen.key == [6]), "{text}");
        }
    }
}
