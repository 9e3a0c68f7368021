//! Rows of the index that are held in memory, for searches that look at all of a tenant's.
//!
//! Reading ten thousand rows from the table takes milliseconds, looking through them a fraction of one. So the list of a
//! tenant is held once it was searched, and follows what the writer changes. What is held is the list as it was before a
//! batch or behind it: while the writer is in between, and after a write that failed, readers go to the table.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;

use super::list_of_all;
use crate::keys;
use crate::table::{Batch, Table};
use crate::{StoreError, index};

/// The most rows that are held of all tenants together: about 200 bytes each.
const MOST: u64 = 100_000;

/// Rows by their keys.
pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// See the page.
#[derive(Default)]
pub(crate) struct Held {
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    /// By what the keys of a list begin with.
    lists: HashMap<Vec<u8>, Arc<Rows>>,
    /// How many batches that change rows the writer began with.
    changes: u64,
    /// It is not known to be done with the last of them.
    is_between: bool,
}

/// What a batch changes.
pub(crate) struct Changes(Vec<(Vec<u8>, Option<Vec<u8>>)>);

impl Held {
    /// All rows of a tenant; none where these are too many, or cannot be held just now.
    pub(crate) fn rows(&self, table: &dyn Table, tenant: &str) -> Result<Option<Arc<Rows>>, StoreError> {
        let list = list_of_all(tenant);
        let changes = {
            let inner = self.inner.read();
            if inner.is_between {
                return Ok(None);
            }
            if let Some(rows) = inner.lists.get(&list) {
                return Ok(Some(Arc::clone(rows)));
            }
            inner.changes
        };
        if index::count(table, tenant)? > MOST {
            return Ok(None);
        }
        let mut rows = Rows::new();
        table.visit(list.clone(), &keys::end_of(&list), &mut |key, row| {
            rows.insert(key.to_vec(), row.to_vec());
            Ok(true)
        })?;
        let rows = Arc::new(rows);
        let mut inner = self.inner.write();
        // Otherwise it may be of two times.
        if inner.changes == changes && !inner.is_between {
            let held: usize = inner.lists.values().map(|rows| rows.len()).sum();
            if (held + rows.len()) as u64 > MOST {
                inner.lists.clear();
            }
            inner.lists.insert(list, Arc::clone(&rows));
        }
        Ok(Some(rows))
    }

    /// The writer begins to write a batch: what it changes of the index, for [`Held::changed`].
    pub(crate) fn change(&self, batch: &Batch) -> Changes {
        let rows = batch.range(keys::BY_TENANT.to_vec()..keys::end_of(keys::BY_TENANT));
        let changes = Changes(rows.map(|(key, row)| (key.clone(), row.clone())).collect());
        if !changes.0.is_empty() {
            let mut inner = self.inner.write();
            if inner.is_between {
                // Nobody knows what became of the batch before.
                inner.lists.clear();
            }
            inner.changes += 1;
            inner.is_between = true;
        }
        changes
    }

    /// Readers of the table see the batch.
    pub(crate) fn changed(&self, Changes(changes): Changes) {
        if changes.is_empty() {
            return;
        }
        let mut inner = self.inner.write();
        inner.is_between = false;
        for (key, row) in changes {
            let Some(list) = super::list_of_row(&key) else { continue };
            let Some(rows) = inner.lists.get_mut(list) else { continue };
            let rows = Arc::make_mut(rows);
            match row {
                Some(row) => rows.insert(key, row),
                None => rows.remove(&key),
            };
        }
    }

    /// The table was opened again: what it holds may be other than what was written.
    pub(crate) fn forget(&self) {
        let mut inner = self.inner.write();
        inner.lists.clear();
        // Whoever reads the table just now may have begun with the one before.
        inner.changes += 1;
        inner.is_between = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryTable;

    fn row(number: u8) -> (Vec<u8>, Option<Vec<u8>>) {
        ([&list_of_all("acme")[..], &[number]].concat(), Some(vec![number]))
    }

    #[test]
    fn what_is_held_follows_the_table_and_is_not_used_in_between() {
        let (table, held) = (MemoryTable::default(), Held::default());
        let rows =
            || Some(held.rows(&table, "acme").unwrap()?.values().flatten().copied().collect::<Vec<u8>>());
        table.apply(Batch::from([row(1), row(3)])).unwrap();
        assert_eq!(rows(), Some(vec![1, 3]));
        let write = |batch: Batch| {
            let changes = held.change(&batch);
            table.apply(batch).unwrap();
            assert_eq!(rows(), None);
            held.changed(changes);
        };
        write(Batch::from([row(2), (row(3).0, None)]));
        assert_eq!(rows(), Some(vec![1, 2]));
        // Of other lists, and of none.
        let other = ([&list_of_all("other")[..], b"1"].concat(), Some(b"1".to_vec()));
        write(Batch::from([other, (index::count_key("acme"), Some(vec![]))]));
        assert_eq!(rows(), Some(vec![1, 2]));
        // Without a change nobody waits.
        held.changed(held.change(&Batch::from([(b"s/1".to_vec(), None)])));
        assert_eq!(rows(), Some(vec![1, 2]));
        // After a write that failed nothing is held to be true.
        drop(held.change(&Batch::from([row(4)])));
        assert_eq!(rows(), None);
        table.apply(Batch::from([row(4)])).unwrap();
        write(Batch::from([row(5)]));
        assert_eq!(rows(), Some(vec![1, 2, 4, 5]));
    }
}
