//! The events of one session.

use playhouse_actors::Subscription;
use playhouse_protocol::{CommandError, EventId};
use serde_json::json;

use super::batch::Place;
use super::sse::{Item, Source};
use crate::problem::Problem;

/// The events of one session.
pub(crate) struct One(pub(crate) Subscription);

impl Source for One {
    async fn next(&mut self) -> Option<Item> {
        match self.0.next().await {
            Ok(event) => event.map(|event| Item::Event(Place::Session(event.event().id), event)),
            Err(error) => Some(Item::Last(failed(error))),
        }
    }

    fn try_next(&mut self) -> Option<Item> {
        self.0.try_next().map(|event| Item::Event(Place::Session(event.event().id), event))
    }

    fn place(&self) -> Place {
        Place::Session(EventId::durable(self.0.place()))
    }
}

/// Says why nothing more comes.
fn failed(error: CommandError) -> String {
    json!({"type": "stream.failed", "data": Problem::from(error).document()}).to_string()
}
