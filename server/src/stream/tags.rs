//! The events of one session as one text with tags in it.

use playhouse_actors::Subscription;
use playhouse_protocol::{CommandError, Entry};
use playhouse_session::tags::{TagPlace, TagStream};

use super::batch::Place;
use super::sse::{Item, Source};
use crate::problem::Problem;

/// The events of one session as one text.
pub(crate) struct Tags {
    events: Subscription,
    stream: TagStream,
}

impl Tags {
    /// Begins at `place`; `events` begin behind its record, and `before` is the log up to there.
    pub(crate) fn new(events: Subscription, place: TagPlace, before: &[Entry]) -> Self {
        Self { events, stream: TagStream::new(place, before) }
    }

    fn piece(&self, text: String) -> Option<Item> {
        (!text.is_empty()).then(|| Item::Text(self.place(), text))
    }
}

impl Source for Tags {
    async fn next(&mut self) -> Option<Item> {
        loop {
            let event = match self.events.next().await {
                Ok(event) => event?,
                Err(error) => return Some(failed(error)),
            };
            let text = self.stream.take(event.event());
            if let Some(piece) = self.piece(text) {
                return Some(piece);
            }
        }
    }

    fn try_next(&mut self) -> Option<Item> {
        loop {
            let event = self.events.try_next()?;
            let text = self.stream.take(event.event());
            if let Some(piece) = self.piece(text) {
                return Some(piece);
            }
        }
    }

    fn place(&self) -> Place {
        Place::Tags(self.stream.place())
    }
}

/// Says why nothing more comes, apart from the text.
fn failed(error: CommandError) -> Item {
    Item::Ended("stream.failed", Problem::from(error).document().to_string())
}
