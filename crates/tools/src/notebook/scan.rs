//! Where the parts of a JSON text are. Only places are kept, so that everything else can stay as it is, byte for byte.
//!
//! What is scanned is valid JSON: [`check`] makes sure of that first. Nothing here recurses, and nothing panics where the
//! text is not valid after all; the places are then without meaning.

use std::ops::Range;

use memchr::memchr2;
use serde::de::IgnoredAny;

/// A member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Its name.
    pub(super) name: String,
    /// Where its name is, quotes included.
    pub(super) key: Range<usize>,
    /// Where its value is.
    pub(super) value: Range<usize>,
}

/// Is `text` JSON?
pub(super) fn check(text: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    serde_json::from_str::<IgnoredAny>(text).map(|_| ()).map_err(|error| error.to_string())
}

/// The first place at or after `at` that is not white space.
pub(super) fn past_space(text: &[u8], at: usize) -> usize {
    let space = text.get(at..).unwrap_or_default().iter().take_while(|byte| is_space(**byte)).count();
    at + space
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The end of the value that begins at `at`.
fn past_value(text: &[u8], at: usize) -> usize {
    let mut at = at;
    let mut depth = 0_usize;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at = past_string(text, at),
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            _ if depth > 0 => {
                at += 1;
                continue;
            }
            _ => {
                let scalar = |byte: &&u8| !is_space(**byte) && !matches!(byte, b',' | b'}' | b']' | b':');
                at += text[at..].iter().take_while(scalar).count().max(1);
            }
        }
        if depth == 0 {
            break;
        }
    }
    at.min(text.len())
}

/// The end of the string that begins at `at`.
fn past_string(text: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(found) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if text[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    text.len()
}

/// The members of the object at `at`; `None` when there is none.
pub(super) fn members(text: &[u8], at: usize) -> Option<Vec<Member>> {
    let mut members = Vec::new();
    let mut at = inside(text, at, b'{')?;
    while text.get(at) == Some(&b'"') {
        let key = at..past_string(text, at);
        let name = serde_json::from_slice(text.get(key.clone())?).unwrap_or_default();
        let start = past_space(text, past_space(text, key.end) + 1);
        let value = start..past_value(text, start);
        at = past_comma(text, value.end);
        members.push(Member { name, key, value });
    }
    Some(members)
}

/// The elements of the array at `at`; `None` when there is none.
pub(super) fn elements(text: &[u8], at: usize) -> Option<Vec<Range<usize>>> {
    let mut elements = Vec::new();
    let mut at = inside(text, at, b'[')?;
    while at < text.len() && text[at] != b']' {
        let end = past_value(text, at);
        elements.push(at..end);
        at = past_comma(text, end);
    }
    Some(elements)
}

fn inside(text: &[u8], at: usize, bracket: u8) -> Option<usize> {
    (text.get(at) == Some(&bracket)).then(|| past_space(text, at + 1))
}

fn past_comma(text: &[u8], at: usize) -> usize {
    let at = past_space(text, at);
    if text.get(at) == Some(&b',') { past_space(text, at + 1) } else { at }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a\"\\\\\\[\\]{},: \n\u{e9}]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec(("[a-c\"\\\\{\\[]{0,3}", inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn same(text: &[u8], at: usize, value: &Value) {
        assert_eq!(&serde_json::from_slice::<Value>(&text[at..past_value(text, at)]).unwrap(), value);
        match value {
            Value::Object(object) => {
                let members = members(text, at).unwrap();
                assert_eq!(members.len(), object.len());
                for (member, (name, value)) in members.iter().zip(object) {
                    assert_eq!(&member.name, name);
                    same(text, member.value.start, value);
                }
            }
            Value::Array(array) => {
                let elements = elements(text, at).unwrap();
                assert_eq!(elements.len(), array.len());
                for (element, value) in elements.iter().zip(array) {
                    same(text, element.start, value);
                }
            }
            _ => assert!(members(text, at).is_none() && elements(text, at).is_none()),
        }
    }

    proptest! {
        #[test]
        fn the_parts_are_where_serde_finds_them(value in json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
            prop_assert!(check(&text).is_ok());
            same(&text, 0, &value);
        }

        #[test]
        fn any_text_is_survived(text in "[\\[\\]{}\",:\\\\a1 ]{0,40}") {
            let text = text.as_bytes();
            for at in 0..=text.len() {
                let _ = (members(text, at), elements(text, at));
            }
        }
    }
}
