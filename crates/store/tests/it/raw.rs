//! The table as it is on the disk, without the store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fs_err as fs;
use playhouse_store::Backend;
use redb::{ReadableDatabase, ReadableTable};

/// Where the database lies.
pub(crate) fn place(data: &Path, backend: Backend) -> PathBuf {
    match fs::read_to_string(data.join("current")) {
        Ok(name) => data.join(name.trim_end()),
        Err(_) => data.join(backend.name()),
    }
}

/// Opens the database as soon as its lock is free. Sled releases the lock when its file is closed by all who hold it:
/// threads of a database that was just dropped, and processes that another test has forked but not yet executed. The
/// store's own open waits in the same way.
fn open_sled(place: &Path) -> sled::Db {
    let open = || sled::Config::new().path(place).segment_size(8 * 1024 * 1024).open();
    for _ in 0..500 {
        if let Ok(database) = open() {
            return database;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    open().unwrap()
}

/// All pairs of a store that is closed.
pub(crate) fn pairs(data: &Path, backend: Backend) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let place = place(data, backend);
    match backend {
        Backend::Sled => open_sled(&place)
            .iter()
            .map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
            .collect(),
        Backend::Redb => {
            let database = redb::Database::open(place.join("db")).unwrap();
            let pairs = redb::TableDefinition::<&[u8], &[u8]>::new("pairs");
            let table = database.begin_read().unwrap().open_table(pairs).unwrap();
            let all = table.iter().unwrap();
            all.map(|pair| pair.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())).unwrap())
                .collect()
        }
    }
}

/// All keys of a store that is closed.
pub(crate) fn keys(data: &Path, backend: Backend) -> BTreeSet<Vec<u8>> {
    pairs(data, backend).into_keys().collect()
}

/// Changes a store that is closed.
pub(crate) fn tamper(data: &Path, backend: Backend, change: impl FnOnce(&mut BTreeMap<Vec<u8>, Vec<u8>>)) {
    let before = pairs(data, backend);
    let mut after = before.clone();
    change(&mut after);
    let place = place(data, backend);
    match backend {
        Backend::Sled => {
            let database = open_sled(&place);
            before
                .keys()
                .filter(|key| !after.contains_key(*key))
                .for_each(|key| drop(database.remove(key).unwrap()));
            after.iter().for_each(|(key, value)| drop(database.insert(key, &value[..]).unwrap()));
            database.flush().unwrap();
        }
        Backend::Redb => {
            let database = redb::Database::open(place.join("db")).unwrap();
            let transaction = database.begin_write().unwrap();
            {
                let mut table =
                    transaction.open_table(redb::TableDefinition::<&[u8], &[u8]>::new("pairs")).unwrap();
                for key in before.keys() {
                    table.remove(&key[..]).unwrap();
                }
                for (key, value) in &after {
                    table.insert(&key[..], &value[..]).unwrap();
                }
            }
            transaction.commit().unwrap();
        }
    }
}
