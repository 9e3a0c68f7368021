//! What the shelf says of sinks, whether they are driven or not.

use std::sync::Arc;

use playhouse_billing::export::Cursor;
use playhouse_protocol::Timestamp;
use playhouse_store::{Shelf, StoreError};

use crate::config::{SinkConfig, Start};
use crate::exporters::store_error;
use crate::feed::Feed;
use crate::records::{Records, Saved};
use crate::status::SinkStatus;

/// The number up to which the sink `name` needs the feed no more: rows behind it must not be archived. 0 for a sink that never
/// began. Blocks.
///
/// # Errors
/// The shelf cannot be read.
pub fn exported_up_to(shelf: &Arc<dyn Shelf>, name: &str) -> Result<u64, StoreError> {
    let saved = Records::new(Arc::clone(shelf), name).load().map_err(store_error)?;
    Ok(saved.map_or(0, |saved| saved.cursor.after))
}

/// How far the sink `name` is that nobody drives now. Blocks.
///
/// # Errors
/// The shelf or the feed cannot be read.
pub fn status_at_rest(
    name: &str,
    config: &SinkConfig,
    shelf: &Arc<dyn Shelf>,
    feed: &dyn Feed,
) -> Result<SinkStatus, StoreError> {
    let mut records = Records::new(Arc::clone(shelf), name);
    let end = feed.end();
    let saved = match records.load().map_err(store_error)? {
        Some(saved) => saved,
        None => first(config.start, feed)?,
    };
    Ok(SinkStatus {
        name: name.to_owned(),
        kind: config.kind.name(),
        settled: saved.cursor.settled,
        rows_behind: end.saturating_sub(saved.cursor.settled),
        oldest: oldest(feed, saved.cursor)?,
        dead_letters: records.letters().map_err(store_error)?.len() as u64,
        archived: saved.archived,
        ..SinkStatus::default()
    })
}

/// Where a sink begins of which nothing is saved.
pub(crate) fn first(start: Start, feed: &dyn Feed) -> Result<Saved, StoreError> {
    Ok(match start {
        Start::Beginning => Saved { archived: feed.archived()?, ..Saved::default() },
        Start::Now => Saved { cursor: Cursor::at(feed.end()), ..Saved::default() },
    })
}

/// The time of the first entry behind a cursor.
pub(crate) fn oldest(feed: &dyn Feed, cursor: Cursor) -> Result<Option<Timestamp>, StoreError> {
    let waiting = feed.after(cursor.settled, 1)?;
    Ok(waiting.first().map(|(_, item)| item.at()))
}

/// What is kept of a sink that is not configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// Its name.
    pub name: String,
    /// What kind of sink it was; `None` where only an older engine drove it, or where that cannot be read.
    pub kind: Option<String>,
    /// The number up to which everything was delivered or given up; 0 where that cannot be read.
    pub settled: u64,
    /// Letters that wait for people.
    pub dead_letters: u64,
}

/// What is kept of sinks that are not among those, in the order of their names. Blocks.
///
/// # Errors
/// The shelf cannot be read.
pub fn leftovers(
    shelf: &Arc<dyn Shelf>,
    is_configured: &dyn Fn(&str) -> bool,
) -> Result<Vec<Leftover>, StoreError> {
    let names = Records::names(&**shelf).map_err(store_error)?;
    let found = names.into_iter().filter(|name| !is_configured(name)).map(|name| {
        let mut records = Records::new(Arc::clone(shelf), &name);
        // It is shown so that it can be removed, also where it is damaged.
        let saved = records.load().ok().flatten().unwrap_or_default();
        let (settled, dead_letters) = (saved.cursor.settled, records.count().map_err(store_error)?);
        Ok(Leftover { kind: saved.kind, settled, dead_letters, name })
    });
    found.collect()
}

/// Removes all that is kept of the sink `name`, which must not be driven: its cursor and its dead letters. How many letters
/// there were. Blocks.
///
/// # Errors
/// The shelf cannot be read or written.
pub fn forget(shelf: &Arc<dyn Shelf>, name: &str) -> Result<u64, StoreError> {
    Records::new(Arc::clone(shelf), name).clear().map_err(store_error)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use playhouse_billing::export::FeedItem;
    use playhouse_billing::export::TurnEnd;
    use playhouse_store::Store;

    use super::*;
    use crate::config::SinkKind;

    /// Turns that ended at the second of their number, up to 9.
    struct Nine;

    impl Feed for Nine {
        fn after(&self, number: u64, limit: usize) -> Result<Vec<(u64, FeedItem)>, StoreError> {
            let item = |number: u64| {
                FeedItem::TurnEnded(TurnEnd {
                    tenant: "acme".to_owned(),
                    session: "ses_0123456789abABCDEFGHIJKLMN".parse().unwrap(),
                    turn: "msg_0123456789abABCDEFGHIJKLMN".parse().unwrap(),
                    at: Timestamp::from_millis(number * 1_000),
                })
            };
            Ok((number + 1..=9).take(limit).map(|number| (number, item(number))).collect())
        }

        fn end(&self) -> u64 {
            9
        }

        fn grown(&self, _: u64) -> futures::future::BoxFuture<'static, ()> {
            std::future::pending().boxed()
        }
    }

    #[test]
    fn a_sink_at_rest_is_where_it_was_left() {
        let shelf = Store::memory().unwrap().shelf;
        let mut config = SinkConfig::new(SinkKind::Report);
        let status = |config: &SinkConfig| status_at_rest("a", config, &shelf, &Nine).unwrap();
        let new = status(&config);
        assert_eq!((new.settled, new.rows_behind), (0, 9));
        assert_eq!(new.seconds_behind(Timestamp::from_millis(10_000)), 9.0);
        config.start = Start::Now;
        assert_eq!((status(&config).settled, status(&config).rows_behind), (9, 0));
        assert_eq!(exported_up_to(&shelf, "a").unwrap(), 0);
        let cursor = Cursor { after: 4, settled: 6 };
        let mut records = Records::new(Arc::clone(&shelf), "a");
        records.load().unwrap();
        records.save(&Saved { cursor, ..Saved::default() }).unwrap();
        let old = status(&config);
        assert_eq!((old.settled, old.rows_behind, old.oldest), (6, 3, Some(Timestamp::from_millis(7_000))));
        assert_eq!(exported_up_to(&shelf, "a").unwrap(), 4);
    }
}
