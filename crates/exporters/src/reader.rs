//! Makes of the feed what a sink sends.

use std::sync::Arc;

use playhouse_billing::export::{Cursor, Entry, FeedItem, Item, Place, Shape, Turns, Wants};
use playhouse_store::StoreError;

use crate::feed::Feed;

/// Reads the feed for one sink.
pub(crate) struct Reader {
    feed: Arc<dyn Feed>,
    shape: Arc<dyn Shape>,
    /// For sinks that want reports.
    turns: Option<Turns>,
    /// Up to where it was read.
    position: u64,
}

/// What was read.
pub(crate) struct Portion {
    pub(crate) items: Vec<Item>,
    /// What may be saved when all of it is settled.
    pub(crate) cursor: Cursor,
    /// Whether the end was not reached.
    pub(crate) more: bool,
}

impl Reader {
    pub(crate) fn new(feed: Arc<dyn Feed>, shape: Arc<dyn Shape>, cursor: Cursor) -> Self {
        let turns = (shape.wants() == Wants::Reports).then(|| Turns::after(cursor));
        Self { feed, shape, turns, position: cursor.after }
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next entries, at most `limit` of the feed. Blocks.
    pub(crate) fn read(&mut self, limit: usize) -> Result<Portion, StoreError> {
        let end = self.feed.end();
        let found = self.feed.after(self.position, limit)?;
        let more = found.len() >= limit;
        let mut items = Vec::new();
        for (number, item) in found {
            self.position = number;
            match &mut self.turns {
                Some(turns) => {
                    let due = turns.push(number, &item);
                    items.extend(
                        due.into_iter()
                            .map(|due| make(&*self.shape, due.place, due.cursor, Entry::Report(due.report))),
                    );
                }
                None => {
                    let entry = match item {
                        FeedItem::Row(row) => Entry::Row(row),
                        FeedItem::Closed(closed) if self.shape.takes_closings() => {
                            Entry::Closed(closed.into())
                        }
                        FeedItem::Closed(_) | FeedItem::TurnEnded(_) => continue,
                    };
                    let place = Place { number, part: 0 };
                    items.push(make(&*self.shape, place, Cursor::at(number), entry));
                }
            }
        }
        if !more {
            // Entries may be missing because they were archived: nobody comes back for them.
            self.position = self.position.max(end);
        }
        let cursor = match &self.turns {
            Some(turns) => turns.cursor(self.position),
            None => Cursor::at(self.position),
        };
        Ok(Portion { items, cursor, more })
    }
}

/// An entry on its way.
pub(crate) fn make(shape: &dyn Shape, place: Place, cursor: Cursor, entry: Entry) -> Item {
    let encoded = shape.encode(&entry);
    Item { place, cursor, entry, encoded }
}
