//! Members of messages and calls that say nothing to us, and that a provider wants back with what they came with: to the
//! same provider and model, as they came. Which they are is a table, since what a provider adds for people (marks of
//! sources, probabilities) is refused by some when it comes back.
//!
//! | member | where | from |
//! |---|---|---|
//! | `phase` | messages of Responses | OpenAI, from `gpt-5.3-codex` on |
//! | `namespace`, `caller` | calls of Responses; `caller` also in `tool_use` | OpenAI, Anthropic: in which namespace a tool stands, and who called it |
//! | `extra_content` | messages and calls of Chat | Google's compatible server: signatures of thoughts |
//! | `provider_specific_fields` | the same | LiteLLM: the same signatures |
//! | `reasoning_opaque` | messages of Chat | GitHub's models: reasoning, encrypted |
//! | `reasoning_details`, `thinking_blocks` | messages of Chat, in pieces | OpenRouter, LiteLLM |
//! | `thought_signature`, `signature` | calls; `signature` in `tool_use` only | gateways between dialects |

use serde_json::{Map, Value};

/// Those of a text or of a message.
pub(crate) const OF_TEXT: [&str; 4] =
    ["phase", "extra_content", "provider_specific_fields", "reasoning_opaque"];

/// Those of a call.
pub(crate) const OF_CALL: [&str; 6] =
    ["namespace", "caller", "extra_content", "provider_specific_fields", "signature", "thought_signature"];

/// Members by name, each of which may be absent.
pub(crate) type Found<'a, const COUNT: usize> = [(&'static str, &'a Option<Value>); COUNT];

/// What there is of these members, as an object; `None` where there is nothing.
pub(crate) fn kept<const COUNT: usize>(found: Found<'_, COUNT>) -> Option<Value> {
    let said = found.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let kept: Map<_, _> = said
        .filter(|(_, value)| !is_empty(value))
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect();
    (!kept.is_empty()).then_some(Value::Object(kept))
}

/// Adds what came later: members of objects by name, everything else in the place of what stood there.
pub(crate) fn merge(into: &mut Option<Value>, more: Option<Value>) {
    match (into, more) {
        (_, None) => {}
        (Some(Value::Object(into)), Some(Value::Object(more))) => {
            for (name, value) in more {
                let mut held = into.remove(&name);
                merge(&mut held, Some(value));
                into.extend(held.map(|held| (name, held)));
            }
        }
        (into, Some(value)) if !is_empty(&value) => *into = Some(value),
        _ => {}
    }
}

/// Those of the members `names` that were kept with a part. Parts hold other things too, of other dialects.
pub(crate) fn back(opaque: Option<&Value>, names: &[&str]) -> Map<String, Value> {
    let held = |name: &&str| Some(((*name).to_owned(), opaque?.get(*name)?.clone()));
    names.iter().filter_map(held).collect()
}

/// Whether there is nothing in it but names: some servers send every member with each piece.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.iter().all(is_empty),
        Value::Object(members) => members.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_without_content_are_not_kept() {
        let (empty, full) = (Some(json!({"google": {"thought_signature": ""}})), Some(json!("commentary")));
        assert_eq!(kept([("extra_content", &empty), ("phase", &None)]), None);
        assert_eq!(kept([("extra_content", &empty), ("phase", &full)]), Some(json!({"phase": "commentary"})));
    }

    #[test]
    fn what_comes_later_is_added() {
        let mut held = Some(json!({"extra_content": {"google": {"a": "1"}}}));
        merge(&mut held, Some(json!({"extra_content": {"google": {"b": "2", "a": ""}}, "phase": "x"})));
        merge(&mut held, None);
        assert_eq!(held, Some(json!({"extra_content": {"google": {"a": "1", "b": "2"}}, "phase": "x"})));
    }

    #[test]
    fn only_named_members_go_back() {
        let opaque = json!({"phase": "commentary", "encrypted_content": "x"});
        assert_eq!(Value::Object(back(Some(&opaque), &OF_TEXT)), json!({"phase": "commentary"}));
        assert!(back(None, &OF_TEXT).is_empty());
    }
}
