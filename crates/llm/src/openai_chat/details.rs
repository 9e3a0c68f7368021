//! Reasoning as a list of details (`reasoning_details`): texts with signatures, summaries, and what is encrypted. They come
//! in pieces, and go back whole and in their order.

use serde_json::{Map, Value, json};

/// The name of the list, on the wire and in what is kept of it.
const NAME: &str = "reasoning_details";

/// The fields that pieces add to; every other field is set by the last piece that has it.
const GROWING: [&str; 2] = ["text", "summary"];

/// The details of an answer under way.
#[derive(Default)]
pub(super) struct Details(Vec<Map<String, Value>>);

impl Details {
    /// Adds what came with one chunk.
    pub(super) fn add(&mut self, pieces: Vec<Map<String, Value>>) {
        for piece in pieces {
            match self.0.iter_mut().rev().find(|begun| goes_on(begun, &piece)) {
                Some(begun) => extend(begun, piece),
                None => self.0.push(piece),
            }
        }
    }

    /// All that came, as what a part of reasoning keeps to be sent back.
    pub(super) fn take(&mut self) -> Option<Value> {
        let details = std::mem::take(&mut self.0);
        (!details.is_empty()).then(|| json!({ NAME: details }))
    }
}

/// Whether `piece` is more of what began before. What is encrypted comes whole.
fn goes_on(begun: &Map<String, Value>, piece: &Map<String, Value>) -> bool {
    let grows = GROWING.iter().any(|name| begun.contains_key(*name)) && !piece.contains_key("data");
    grows && begun.get("type") == piece.get("type") && begun.get("index") == piece.get("index")
}

fn extend(begun: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (name, value) in piece {
        match (begun.get_mut(&name), value) {
            (_, Value::Null) => {}
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

/// The details that a part of reasoning kept.
pub(super) fn of(opaque: &Value) -> Option<&Vec<Value>> {
    opaque.get(NAME)?.as_array()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(pieces: Value) -> Option<Value> {
        let mut details = Details::default();
        for piece in pieces.as_array().unwrap() {
            details.add(vec![piece.as_object().unwrap().clone()]);
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
        let whole = whole(came).unwrap();
        assert_eq!(whole, kept);
        assert_eq!(of(&whole).map(Vec::len), Some(5));
        assert_eq!(of(&json!({"signature": "x"})), None);
    }

    #[test]
    fn nothing_is_kept_of_nothing() {
        assert_eq!(whole(json!([])), None);
    }
}
