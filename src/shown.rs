//! The tools that models are shown: made once for each choice of them, and shared by all sessions that are shown these.

use std::collections::HashMap;

use parking_lot::Mutex;
use playhouse_llm::Toolset;

/// How many choices are kept. Agents and what is granted to them make a few; sessions with rules of their own could make any
/// number.
const MOST: usize = 64;

/// One [`Toolset`] for each choice of tools.
#[derive(Default)]
pub(crate) struct Shown(Mutex<HashMap<Vec<usize>, Toolset>>);

impl Shown {
    /// The tools with these numbers; `make` says what a model is told of them, always the same.
    pub(crate) fn toolset(&self, numbers: Vec<usize>, make: impl FnOnce(&[usize]) -> Toolset) -> Toolset {
        let kept = || self.0.lock();
        if let Some(known) = kept().get(&numbers) {
            return known.clone();
        }
        let made = make(&numbers);
        let mut kept = kept();
        if kept.len() >= MOST {
            kept.clear();
        }
        // Another session may have been as quick: then both go on with the same ones.
        kept.entry(numbers).or_insert(made).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use playhouse_protocol::chat::ToolSpec;

    use super::*;

    #[test]
    fn a_choice_is_made_once_and_the_number_of_those_kept_has_an_end() {
        let (shown, made) = (Shown::default(), Cell::new(0));
        let spec = |number: &usize| ToolSpec {
            name: number.to_string(),
            description: String::new(),
            parameters: serde_json::Value::Null,
        };
        let make = |numbers: &[usize]| {
            made.set(made.get() + 1);
            numbers.iter().map(spec).collect()
        };
        let first = shown.toolset(vec![0, 2], make);
        assert_eq!(first.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["0", "2"]);
        assert_eq!(shown.toolset(vec![0, 2], make).as_ptr(), first.as_ptr());
        assert_eq!(made.get(), 1);
        for number in 0..10 * MOST {
            assert_eq!(shown.toolset(vec![number], make)[0].name, number.to_string());
            assert!(shown.0.lock().len() <= MOST);
        }
    }
}
