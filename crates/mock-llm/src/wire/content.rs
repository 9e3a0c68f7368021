//! What both wire formats share in reading: content that is a text or a list of blocks.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

/// A message's content, read in one pass without keeping what does not matter.
#[derive(Debug, Default)]
pub(super) struct Content<'a> {
    /// The texts, in order; empty ones too.
    pub(super) texts: Vec<Cow<'a, str>>,
    /// The ids of calls in it.
    pub(super) calls: Vec<Cow<'a, str>>,
    /// The ids of the calls whose results are in it.
    pub(super) results: Vec<Cow<'a, str>>,
    /// Whether it is a list that holds nothing.
    pub(super) is_empty_list: bool,
}

impl Content<'_> {
    /// The texts together, a line for each.
    pub(super) fn text(&self) -> String {
        self.texts.join("\n")
    }
}

/// A block, as far as it matters.
#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tool_use_id: Option<Cow<'a, str>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of blocks")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Content { texts: vec![Cow::Borrowed(text)], ..Content::default() })
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Content { texts: vec![Cow::Owned(text.to_owned())], ..Content::default() })
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Content::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut content = Content { is_empty_list: true, ..Content::default() };
        while let Some(block) = list.next_element::<Block<'de>>()? {
            content.is_empty_list = false;
            match &*block.kind {
                "text" => content.texts.extend(block.text),
                "tool_use" => content.calls.extend(block.id),
                "tool_result" => content.results.extend(block.tool_use_id),
                _ => {}
            }
        }
        Ok(content)
    }
}

/// Whether a list of tools holds any.
pub(super) fn has_tools(tools: &Option<Vec<IgnoredAny>>) -> bool {
    tools.as_ref().is_some_and(|tools| !tools.is_empty())
}
