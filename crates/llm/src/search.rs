//! Searches of tools by the provider: what its answers hold of them goes back as it came, in its place.
//!
//! A search has two halves, the call and the result, which are parts of one answer. Each is kept as reasoning without text whose
//! opaque part holds it. A provider refuses one half without the other: of an answer that ended between them neither goes back.

use std::collections::HashMap;

use playhouse_protocol::chat::AssistantPart;
use serde_json::{Map, Value, json};

/// The member of an opaque part that holds half of a search.
const BLOCK: &str = "block";

/// The forms of both halves in a dialect: types, and the members that are equal in halves of one search.
pub(crate) struct SearchForm {
    call: &'static str,
    call_id: &'static str,
    result: &'static str,
    result_id: &'static str,
}

pub(crate) const ANTHROPIC: SearchForm = SearchForm {
    call: "server_tool_use",
    call_id: "id",
    result: "tool_search_tool_result",
    result_id: "tool_use_id",
};

/// Ids may be `null`: then each result belongs to the call before it.
pub(crate) const RESPONSES: SearchForm = SearchForm {
    call: "tool_search_call",
    call_id: "call_id",
    result: "tool_search_output",
    result_id: "call_id",
};

impl SearchForm {
    /// Whether a block of this type is half of a search. `tool` is what the provider ran, where it says so.
    pub(crate) fn is_half(&self, kind: &str, tool: Option<&str>) -> bool {
        let is_search = || tool.is_none_or(|tool| tool.starts_with("tool_search"));
        kind == self.result || (kind == self.call && is_search())
    }

    /// The halves of whole searches among the parts of an answer, by their places.
    pub(crate) fn whole<'a>(&self, parts: &'a [AssistantPart]) -> HashMap<usize, &'a Value> {
        let (mut open, mut whole) = (Vec::<(usize, &Value)>::new(), HashMap::new());
        for (at, part) in parts.iter().enumerate() {
            let AssistantPart::Reasoning { opaque: Some(opaque), .. } = part else { continue };
            let Some(block) = opaque.get(BLOCK) else { continue };
            let kind = &block["type"];
            if kind == self.call {
                open.push((at, block));
            } else if kind == self.result {
                let is_its = |(_, call): &(usize, &Value)| call[self.call_id] == block[self.result_id];
                if let Some(place) = open.iter().position(is_its) {
                    whole.extend([open.remove(place), (at, block)]);
                }
            }
        }
        whole
    }
}

/// The opaque part that keeps half of a search.
pub(crate) fn kept(block: Value) -> Value {
    json!({BLOCK: block})
}

/// Whether an opaque part holds half of a search by a provider. It names tools of its request, and proves nothing.
pub fn is_search(opaque: &Value) -> bool {
    opaque.get(BLOCK).is_some()
}

/// A block with the arguments that came behind its beginning; `None` where they are not whole.
pub(crate) fn with_input(mut block: Value, input: &str) -> Option<Value> {
    if !input.is_empty() {
        block["input"] = serde_json::from_str::<Map<String, Value>>(input).ok()?.into();
    }
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(block: Value) -> AssistantPart {
        AssistantPart::Reasoning { text: String::new(), opaque: Some(kept(block)), stale: true }
    }

    #[test]
    fn only_whole_searches_go_back() {
        let call = |id: &str| part(json!({"type": "server_tool_use", "id": id}));
        let result = |id: &str| part(json!({"type": "tool_search_tool_result", "tool_use_id": id}));
        let text = AssistantPart::Text { text: "hm".into(), opaque: None };
        let parts = [call("a"), result("x"), call("b"), text, result("b"), result("a"), call("c")];
        let mut places: Vec<_> = ANTHROPIC.whole(&parts).into_keys().collect();
        places.sort_unstable();
        assert_eq!(places, [0, 2, 4, 5]);
        let items = ["tool_search_call", "tool_search_output", "tool_search_call"];
        let items = items.map(|kind| part(json!({"type": kind, "call_id": null})));
        assert_eq!(RESPONSES.whole(&items).len(), 2);
        assert!(ANTHROPIC.whole(&items).is_empty());
    }

    #[test]
    fn arguments_that_are_cut_make_no_block() {
        let block = || json!({"type": "server_tool_use", "id": "a", "input": {}});
        assert_eq!(with_input(block(), ""), Some(block()));
        assert_eq!(with_input(block(), r#"{"query":"x"}"#).unwrap()["input"], json!({"query": "x"}));
        assert_eq!(with_input(block(), r#"{"query"#), None);
    }
}
