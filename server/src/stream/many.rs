//! The events of all sessions of a tenant, or of all tenants, from the engine's hub.

use std::fmt;
use std::str::FromStr;

use playhouse_actors::{Heard, Listener};
use playhouse_protocol::SessionId;
use serde::{Deserialize, Deserializer, de};
use serde_json::json;

use super::batch::Place;
use super::sse::{Item, Source};

/// A place in the events of many sessions: the engine's generation and a position, as in `5-17`, or for those of all tenants
/// `a5-17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ManyPlace {
    /// The generation.
    pub(crate) generation: u64,
    /// The position.
    pub(crate) position: u64,
    /// Whether it is one in the events of all tenants.
    pub(crate) all: bool,
}

impl fmt::Display for ManyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { generation, position, all } = *self;
        if all { Place::All(generation, position).fmt(f) } else { Place::Many(generation, position).fmt(f) }
    }
}

impl FromStr for ManyPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let place = text.strip_prefix('a');
        let parsed = place.unwrap_or(text).split_once('-').and_then(|(generation, position)| {
            let (generation, position) = (generation.parse().ok()?, position.parse().ok()?);
            Some(Self { generation, position, all: place.is_some() })
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

/// The events of all sessions of a tenant, or of all tenants.
pub(crate) struct Many {
    pub(crate) listener: Listener,
    pub(crate) all: bool,
}

impl Many {
    fn item(&self, heard: Heard) -> Item {
        match heard {
            Heard::Event(shout) => Item::Event(self.at(shout.position), shout.event),
            Heard::Behind { position, changed } => {
                let (generation, _) = self.listener.place();
                Item::Made(Some(self.at(position)), resync(generation, changed.as_deref()))
            }
        }
    }

    fn at(&self, position: u64) -> Place {
        let (generation, _) = self.listener.place();
        if self.all { Place::All(generation, position) } else { Place::Many(generation, position) }
    }
}

/// Says that events were missed.
fn resync(generation: u64, changed: Option<&[SessionId]>) -> String {
    json!({"type": "resync", "generation": generation, "data": {"sessions": changed}}).to_string()
}

impl Source for Many {
    async fn next(&mut self) -> Option<Item> {
        let heard = self.listener.next().await?;
        Some(self.item(heard))
    }

    fn try_next(&mut self) -> Option<Item> {
        let heard = self.listener.try_next()?;
        Some(self.item(heard))
    }

    fn place(&self) -> Place {
        let (_, position) = self.listener.place();
        self.at(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_back() {
        for (all, written) in [(false, "5-17"), (true, "a5-17")] {
            let place = ManyPlace { generation: 5, position: 17, all };
            assert_eq!((place.to_string().as_str(), written.parse()), (written, Ok(place)));
        }
        for text in ["", "5", "5-", "-5", "5-6-7", "5-x", "17.3", "a5", "aa5-17"] {
            assert!(text.parse::<ManyPlace>().is_err(), "{text}");
        }
    }
}
