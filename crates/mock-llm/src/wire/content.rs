//! What wire formats share in reading: content that is a text or a list of blocks.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use crate::conversation::{Heard, Said};

/// A message's content, read in one pass without keeping what does not matter.
#[derive(Debug, Default)]
pub(super) struct Content<'a> {
    /// The texts, in order; empty ones too.
    pub(super) texts: Vec<Cow<'a, str>>,
    /// The ids of calls in it.
    pub(super) calls: Vec<Cow<'a, str>>,
    /// The ids of the calls whose results are in it.
    pub(super) results: Vec<Cow<'a, str>>,
    /// The ids of searches of tools by the provider, and of those whose results are in it.
    pub(super) searches: Vec<Cow<'a, str>>,
    pub(super) found: Vec<Cow<'a, str>>,
    /// What each block is.
    pub(super) kinds: Vec<Cow<'a, str>>,
    /// Whether it is a list that holds nothing.
    pub(super) is_empty_list: bool,
    /// The number of a block of reasoning without what proves where it comes from, and what is missing.
    pub(super) unsigned: Option<(usize, &'static str)>,
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
    #[serde(borrow, default)]
    signature: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "is_text")]
    data: bool,
}

/// Whether it is a text that holds something; only asked of data, which may be large.
fn is_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    struct TextVisitor;
    impl<'de> Visitor<'de> for TextVisitor {
        type Value = bool;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }

        fn visit_str<E>(self, text: &str) -> Result<bool, E> {
            Ok(!text.is_empty())
        }

        fn visit_unit<E>(self) -> Result<bool, E> {
            Ok(false)
        }
    }
    deserializer.deserialize_any(TextVisitor)
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
                "text" | "input_text" | "output_text" => content.texts.extend(block.text),
                "thinking" if block.signature.is_none_or(|signature| signature.is_empty()) => {
                    content.unsigned = Some((content.kinds.len(), "signature"));
                }
                "redacted_thinking" if !block.data => {
                    content.unsigned = Some((content.kinds.len(), "data"));
                }
                "tool_use" => content.calls.extend(block.id),
                "tool_result" => content.results.extend(block.tool_use_id),
                "server_tool_use" => content.searches.extend(block.id),
                "tool_search_tool_result" => content.found.extend(block.tool_use_id),
                _ => {}
            }
            content.kinds.push(block.kind);
        }
        Ok(content)
    }
}

/// Shorter ids of calls may stand in any text by chance.
pub(super) const SHORTEST_NAMED_ID: usize = 6;

/// Whether a user's message only brings the files of the results before it, which cannot hold them: it has no text of its
/// own, or its text names one of their calls.
pub(super) fn carries_results(content: &Content<'_>, before: &[Heard<'_>]) -> bool {
    let mut results = before.iter().rev().take_while(|message| message.said == Said::Results).peekable();
    if results.peek().is_none() {
        return false;
    }
    let mut ids = results.flat_map(|message| &message.results).filter(|id| id.len() >= SHORTEST_NAMED_ID);
    content.texts.is_empty() || ids.any(|id| content.texts.iter().any(|text| text.contains(&**id)))
}

/// Whether a list of tools holds any.
pub(super) fn has_tools(tools: &Option<Vec<IgnoredAny>>) -> bool {
    tools.as_ref().is_some_and(|tools| !tools.is_empty())
}
