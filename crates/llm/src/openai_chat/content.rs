//! What a message says: one text, or (from Mistral's models that think) a list of pieces.

use std::borrow::Cow;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::json::{Text, text};

/// The content of a delta.
pub(super) enum Content<'a> {
    /// The usual.
    Text(Cow<'a, str>),
    /// What stands side by side.
    Pieces(Vec<Piece<'a>>),
}

/// One of several pieces. Those of other kinds (as references) have neither field.
#[derive(Deserialize)]
pub(super) struct Piece<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    thinking: Option<Vec<Thought<'a>>>,
}

#[derive(Deserialize)]
struct Thought<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
}

impl Content<'_> {
    /// Hands out every text with whether it is reasoning.
    pub(super) fn each(&self, mut take: impl FnMut(&str, bool)) {
        match self {
            Self::Text(said) => take(said, false),
            Self::Pieces(pieces) => {
                for piece in pieces {
                    piece.thinking.iter().flatten().for_each(|thought| take(text(&thought.text), true));
                    take(text(&piece.text), false);
                }
            }
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

/// An untagged enum would read every text into a buffer first.
struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of pieces")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Content<'de>, E> {
        Ok(Content::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Content<'de>, E> {
        Ok(Content::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content<'de>, A::Error> {
        let mut pieces = Vec::new();
        while let Some(piece) = list.next_element()? {
            pieces.push(piece);
        }
        Ok(Content::Pieces(pieces))
    }
}
