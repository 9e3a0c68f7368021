//! What the shelf says of sinks, whether they are driven or not.

use std::sync::Arc;

use playhouse_billing::export::{Cursor, FeedItem};
use playhouse_store::{Shelf, StoreError};

use crate::config::{SinkConfig, Start};
use crate::exporters::store_error;
use crate::feed::Feed;
use crate::records::Records;
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
    let cursor = match (records.load().map_err(store_error)?, config.start) {
        (Some(saved), _) => saved.cursor,
        (None, Start::Beginning) => Cursor::default(),
        (None, Start::Now) => Cursor::at(end),
    };
    let waiting = feed.after(cursor.settled, 1)?;
    Ok(SinkStatus {
        name: name.to_owned(),
        kind: config.kind.name(),
        settled: cursor.settled,
        rows_behind: end.saturating_sub(cursor.settled),
        oldest: waiting.first().map(|(_, item)| match item {
            FeedItem::Row(row) => row.ended,
            FeedItem::TurnEnded(end) => end.at,
        }),
        dead_letters: records.letters().map_err(store_error)?.len() as u64,
        delivered: 0,
        trouble: None,
    })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use playhouse_billing::export::TurnEnd;
    use playhouse_protocol::Timestamp;
    use playhouse_store::Store;

    use super::*;
    use crate::config::SinkKind;
    use crate::records::Saved;

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
        records.save(&Saved { cursor, file: None }).unwrap();
        let old = status(&config);
        assert_eq!((old.settled, old.rows_behind, old.oldest), (6, 3, Some(Timestamp::from_millis(7_000))));
        assert_eq!(exported_up_to(&shelf, "a").unwrap(), 4);
    }
}
