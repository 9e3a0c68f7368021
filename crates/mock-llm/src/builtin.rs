//! Models that need no script.
//!
//! | name | what it says |
//! |---|---|
//! | `echo` | the text of the last prompt |
//! | `tokens-N` | N tokens of made-up prose (at most 10,000,000) |
//! | `tools-K-tokens-N` | in each of K steps (at most 10,000) a call of `read` with `{"filePath": "README.md"}`, then N tokens |
//!
//! A model of the same name in a script comes first.

use serde_json::json;

use crate::conversation::Place;
use crate::script::{Step, call, text, tokens};

const MOST_TOKENS: u64 = 10_000_000;
const MOST_STEPS: usize = 10_000;

/// A model that needs no script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Builtin {
    /// Repeats the prompt.
    Echo,
    /// Calls `read` in so many steps, then says so many tokens.
    Load {
        /// Steps with a call.
        steps: usize,
        /// Tokens after them.
        tokens: u64,
    },
}

impl Builtin {
    /// The model of that name.
    pub(crate) fn find(name: &str) -> Option<Self> {
        if name == "echo" {
            return Some(Self::Echo);
        }
        let (steps, count) = match name.strip_prefix("tools-") {
            Some(rest) => {
                let (steps, count) = rest.split_once("-tokens-")?;
                (steps.parse().ok()?, count)
            }
            None => (0, name.strip_prefix("tokens-")?),
        };
        let tokens = count.parse().ok()?;
        (steps <= MOST_STEPS && tokens <= MOST_TOKENS).then_some(Self::Load { steps, tokens })
    }

    /// What it says at a place, after the prompt `prompt`.
    pub(crate) fn step(self, place: Place, may_call: bool, prompt: &str) -> Step {
        match self {
            Self::Echo => text(prompt),
            Self::Load { steps, .. } if may_call && place.step < steps => {
                call("read", json!({"filePath": "README.md"}))
            }
            Self::Load { tokens: count, .. } => tokens(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_said() {
        assert_eq!(Builtin::find("echo"), Some(Builtin::Echo));
        assert_eq!(Builtin::find("tokens-20"), Some(Builtin::Load { steps: 0, tokens: 20 }));
        assert_eq!(Builtin::find("tools-3-tokens-20"), Some(Builtin::Load { steps: 3, tokens: 20 }));
        for name in ["", "gpt", "tokens-", "tokens-x", "tokens--1", "tools-3", "tools-x-tokens-2"] {
            assert_eq!(Builtin::find(name), None, "{name}");
        }
        assert_eq!(Builtin::find("tokens-10000001"), None);
        assert_eq!(Builtin::find("tools-10001-tokens-1"), None);
    }
}
