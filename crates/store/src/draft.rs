//! What one request changes, and the table as it would be then: on top of what its round holds already.

use std::collections::BTreeSet;

use crate::StoreError;
use crate::table::{Batch, Table, for_each};

/// The changes of one request. A request that is refused drops them.
pub(crate) struct Draft<'a> {
    table: &'a dyn Table,
    round: &'a Batch,
    pub(crate) changes: Batch,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(table: &'a dyn Table, round: &'a Batch) -> Self {
        Self { table, round, changes: Batch::new() }
    }

    /// With changes that were made already.
    pub(crate) fn with(self, changes: Batch) -> Self {
        Self { changes, ..self }
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.changes.get(key).or_else(|| self.round.get(key)) {
            Some(staged) => Ok(staged.clone()),
            None => self.table.get(key),
        }
    }

    pub(crate) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.changes.insert(key, Some(value));
    }

    pub(crate) fn remove(&mut self, key: Vec<u8>) {
        self.changes.insert(key, None);
    }

    /// The keys that are at least `from` and below `to`.
    pub(crate) fn keys(&self, from: &[u8], to: &[u8]) -> Result<BTreeSet<Vec<u8>>, StoreError> {
        let mut keys = BTreeSet::new();
        for_each(self.table, from.to_vec(), to, |(key, _)| {
            keys.insert(key);
            Ok(true)
        })?;
        for layer in [self.round, &self.changes] {
            for (key, value) in layer.range(from.to_vec()..to.to_vec()) {
                match value {
                    Some(_) => drop(keys.insert(key.clone())),
                    None => drop(keys.remove(key)),
                }
            }
        }
        Ok(keys)
    }

    /// The last key that is at least `from` and below `to`.
    pub(crate) fn last_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut to = to.to_vec();
        loop {
            let layers = [self.round, &self.changes].into_iter();
            let staged = layers.filter_map(|layer| layer.range(from.to_vec()..to.clone()).next_back());
            let staged = staged.map(|(key, _)| key.clone()).max();
            let Some(last) = self.table.last_key(from, &to)?.max(staged) else { return Ok(None) };
            if self.get(&last)?.is_some() {
                return Ok(Some(last));
            }
            // It is removed by now.
            to = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryTable;

    #[test]
    fn what_was_staged_hides_what_is_in_the_table() {
        let table = MemoryTable::default();
        let pair =
            |key: &str, value: Option<&str>| (key.into(), value.map(|value| value.as_bytes().to_vec()));
        table.apply(Batch::from(["a", "b", "c", "d"].map(|key| pair(key, Some("table"))))).unwrap();
        let round = Batch::from([pair("d", None), pair("e", Some("round")), pair("b", Some("round"))]);
        let mut draft = Draft::new(&table, &round);
        draft.remove("e".into());
        draft.remove("c".into());
        draft.put("aa".into(), "draft".into());
        let value =
            |key: &str| draft.get(key.as_bytes()).unwrap().map(|value| String::from_utf8(value).unwrap());
        assert_eq!(value("a").as_deref(), Some("table"));
        assert_eq!(value("b").as_deref(), Some("round"));
        assert_eq!((value("c"), value("d"), value("e")), (None, None, None));
        let keys = draft.keys(b"a", b"z").unwrap();
        assert_eq!(keys.into_iter().collect::<Vec<_>>(), [&b"a"[..], b"aa", b"b"]);
        assert_eq!(draft.last_key(b"a", b"z").unwrap().as_deref(), Some(&b"b"[..]));
        assert_eq!(draft.last_key(b"a", b"b").unwrap().as_deref(), Some(&b"aa"[..]));
        assert_eq!(draft.last_key(b"c", b"z").unwrap(), None);
    }
}
