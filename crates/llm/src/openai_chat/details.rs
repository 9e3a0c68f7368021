//! What goes back with a message as a whole: reasoning as lists of texts with signatures, summaries, and what is encrypted,
//! which come in pieces and go back whole and in their order; and [members] of the message.

use serde_json::{Map, Value};

use crate::members;

/// The names of the lists, on the wire and in what is kept of them.
pub(super) const DETAILS: &str = "reasoning_details";
pub(super) const BLOCKS: &str = "thinking_blocks";

/// The fields that pieces add to; every other field is set by the last piece that has it.
const GROWING: [&str; 3] = ["text", "summary", "thinking"];

/// A list, or what a chunk has of it.
pub(super) type List = Vec<Map<String, Value>>;

/// What came so far.
#[derive(Default)]
pub(super) struct Details {
    details: List,
    blocks: List,
    members: Option<Value>,
}

impl Details {
    /// Adds what came with one chunk.
    pub(super) fn add(&mut self, details: List, blocks: List, members: Option<Value>) {
        add(&mut self.details, details);
        add(&mut self.blocks, blocks);
        members::merge(&mut self.members, members);
    }

    /// All that came, as what a part of reasoning keeps to be sent back.
    pub(super) fn take(&mut self) -> Option<Value> {
        let Self { details, blocks, members } = std::mem::take(self);
        let lists = [(DETAILS, details), (BLOCKS, blocks)].map(|(name, list)| {
            let list: Vec<Value> = list.into_iter().map(Value::Object).collect();
            (name, (!list.is_empty()).then_some(Value::Array(list)))
        });
        let mut all = members::kept([(lists[0].0, &lists[0].1), (lists[1].0, &lists[1].1)]);
        members::merge(&mut all, members);
        all
    }
}

fn add(list: &mut List, pieces: List) {
    for piece in pieces {
        match list.iter_mut().rev().find(|begun| goes_on(begun, &piece)) {
            Some(begun) => extend(begun, piece),
            None => list.push(piece),
        }
    }
}

/// Whether `piece` is more of what began before. What is encrypted comes whole, and what has no number ends with its
/// signature.
fn goes_on(begun: &Map<String, Value>, piece: &Map<String, Value>) -> bool {
    let grows = GROWING.iter().any(|name| begun.contains_key(*name)) && !piece.contains_key("data");
    let is_signed =
        begun.get("signature").and_then(Value::as_str).is_some_and(|signature| !signature.is_empty());
    grows
        && (begun.contains_key("index") || !is_signed)
        && begun.get("type") == piece.get("type")
        && begun.get("index") == piece.get("index")
}

fn extend(begun: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (name, value) in piece {
        match (begun.get_mut(&name), value) {
            (_, Value::Null) => {}
            (Some(_), Value::String(nothing)) if nothing.is_empty() => {}
            (Some(Value::String(text)), Value::String(more)) if GROWING.contains(&name.as_str()) => {
                text.push_str(&more);
            }
            (_, value) => {
                begun.insert(name, value);
            }
        }
    }
}

/// The text for people in the pieces of one chunk.
pub(super) fn text(pieces: &[Map<String, Value>]) -> String {
    let said = |piece: &Map<String, Value>| {
        GROWING.iter().find_map(|name| piece.get(*name)?.as_str().map(str::to_owned))
    };
    pieces.iter().filter_map(said).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn whole(pieces: Value) -> Option<Value> {
        let mut details = Details::default();
        for piece in pieces.as_array().unwrap() {
            details.add(vec![piece.as_object().unwrap().clone()], Vec::new(), None);
        }
        details.take()
    }

    #[test]
    fn pieces_of_one_detail_become_one_and_others_stay_apart() {
        let came = json!([
            {"type": "reasoning.text", "index": 0, "text": "look ", "signature": null, "format": "a"},
            {"type": "reasoning.text", "index": 0, "text": "first", "format": null},
            {"type": "reasoning.encrypted", "index": 1, "data": "eA=="},
            {"type": "reasoning.encrypted", "index": 1, "data": "eQ=="},
            {"type": "reasoning.text", "index": 0, "signature": "c2ln"},
            {"type": "reasoning.summary", "index": 2, "summary": "a"},
            {"type": "reasoning.summary", "index": 3, "summary": "b"},
        ]);
        let kept = json!({"reasoning_details": [
            {"type": "reasoning.text", "index": 0, "text": "look first", "signature": "c2ln", "format": "a"},
            {"type": "reasoning.encrypted", "index": 1, "data": "eA=="},
            {"type": "reasoning.encrypted", "index": 1, "data": "eQ=="},
            {"type": "reasoning.summary", "index": 2, "summary": "a"},
            {"type": "reasoning.summary", "index": 3, "summary": "b"},
        ]});
        assert_eq!(whole(came), Some(kept));
    }

    #[test]
    fn blocks_without_numbers_end_with_their_signature() {
        let mut details = Details::default();
        for (thinking, signature) in
            [("look ", ""), ("first", ""), ("", "one"), ("then ", ""), ("act", "two")]
        {
            let block = json!({"type": "thinking", "thinking": thinking, "signature": signature});
            details.add(Vec::new(), vec![block.as_object().unwrap().clone()], None);
        }
        details.add(Vec::new(), Vec::new(), Some(json!({"reasoning_opaque": "x"})));
        let kept = json!({"thinking_blocks": [
            {"type": "thinking", "thinking": "look first", "signature": "one"},
            {"type": "thinking", "thinking": "then act", "signature": "two"},
        ], "reasoning_opaque": "x"});
        assert_eq!(details.take(), Some(kept));
    }

    #[test]
    fn nothing_is_kept_of_nothing() {
        assert_eq!(whole(json!([])), None);
    }
}
