//! The events of all sessions of a tenant, from the engine's hub.

use std::fmt;
use std::str::FromStr;

use playhouse_actors::{Heard, Listener};
use playhouse_protocol::SessionId;
use serde::{Deserialize, Deserializer, de};
use serde_json::json;

use super::batch::Place;
use super::sse::{Item, Source};

/// A place in the events of many sessions: the engine's generation and a position, as in `5-17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ManyPlace {
    /// The generation.
    pub(crate) generation: u64,
    /// The position.
    pub(crate) position: u64,
}

impl fmt::Display for ManyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Place::Many(self.generation, self.position).fmt(f)
    }
}

impl FromStr for ManyPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('-').and_then(|(generation, position)| {
            Some(Self { generation: generation.parse().ok()?, position: position.parse().ok()? })
        });
        parsed.ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            format!(
                "\"{}\" is no place in the events of many sessions: it is two numbers with a dash between, as in \"5-17\"",
                shown.escape_debug()
            )
        })
    }
}

impl<'de> Deserialize<'de> for ManyPlace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The events of all sessions of a tenant.
pub(crate) struct Many(pub(crate) Listener);

impl Many {
    fn item(&self, heard: Heard) -> Item {
        let (generation, _) = self.0.place();
        match heard {
            Heard::Event(shout) => Item::Event(Place::Many(generation, shout.position), shout.event),
            Heard::Behind { position, changed } => {
                Item::Made(Some(Place::Many(generation, position)), resync(generation, changed.as_deref()))
            }
        }
    }
}

/// Says that events were missed.
fn resync(generation: u64, changed: Option<&[SessionId]>) -> String {
    json!({"type": "resync", "generation": generation, "data": {"sessions": changed}}).to_string()
}

impl Source for Many {
    async fn next(&mut self) -> Option<Item> {
        let heard = self.0.next().await?;
        Some(self.item(heard))
    }

    fn try_next(&mut self) -> Option<Item> {
        let heard = self.0.try_next()?;
        Some(self.item(heard))
    }

    fn place(&self) -> Place {
        let (generation, position) = self.0.place();
        Place::Many(generation, position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_back() {
        let place = ManyPlace { generation: 5, position: 17 };
        assert_eq!(place.to_string().parse(), Ok(place));
        for text in ["", "5", "5-", "-5", "5-6-7", "5-x", "17.3"] {
            assert!(text.parse::<ManyPlace>().is_err(), "{text}");
        }
    }
}
