//! Whether rows, the lists that name them, sums and the feed can be read.

use super::sums::Running;
use super::{entry, keys, lists};
use crate::StoreError;
use crate::keys::end_of;
use crate::table::Table;

/// Calls `each` for every row, without what is wrong with it, and for everything that is wrong, with the place.
pub(crate) fn check(
    table: &dyn Table,
    each: &mut dyn FnMut(String, Option<String>),
) -> Result<(), StoreError> {
    let place = |key: &[u8]| format!("ledger, {}", key.escape_ascii());
    table.visit(keys::FEED.to_vec(), &end_of(keys::FEED), &mut |key, stored| {
        if keys::number_of_feed(key).is_none() || entry::time(stored).is_none() {
            each(place(key), Some("this entry of the feed is damaged".to_owned()));
        } else if entry::is_closed(stored) {
            each(place(key), entry::closed(key, stored).err().map(|_| "this closing is damaged".to_owned()));
        } else if entry::is_row(stored) {
            let row = entry::row(key, stored).ok().filter(|row| Some(row.ended) == entry::time(stored));
            each(place(key), row.is_none().then(|| "this row is damaged".to_owned()));
        }
        Ok(true)
    })?;
    for kind in [keys::LISTS, keys::OF_SESSION] {
        table.visit(kind.to_vec(), &end_of(kind), &mut |key, block| {
            match lists::numbers(key, block) {
                Err(_) => each(place(key), Some("this list of rows is damaged".to_owned())),
                Ok(numbers) => {
                    for number in numbers {
                        // It may have been archived just now.
                        if table.get(&keys::feed(number))?.is_none()
                            && lists::still_names(table, key, number)?
                        {
                            each(place(key), Some(format!("it names row {number}, which is not there")));
                        }
                    }
                }
            }
            Ok(true)
        })?;
    }
    for kind in [keys::SUMS, keys::SESSION_SUMS] {
        table.visit(kind.to_vec(), &end_of(kind), &mut |key, stored| {
            if Running::decode(key, stored).is_none() {
                each(place(key), Some("this sum is damaged".to_owned()));
            }
            Ok(true)
        })?;
    }
    Ok(())
}
