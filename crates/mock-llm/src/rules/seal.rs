//! The signature of a block of reasoning: the model that made it, its text and what it is bound to.

use std::fmt;

use super::canonical::hash_of;

/// The head of every signature. Followed by the numbers it is valid base64.
const HEAD: &str = "bW9jayByZWFz";
const SECRET: &str = "mock-llm";

/// A signature, as its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seal {
    /// The hash of the model's name.
    pub(super) model: u64,
    /// The hash of the text.
    pub(super) text: u64,
    /// The hash of what stood before it.
    pub(super) prefix: u64,
}

impl Seal {
    /// The number of the block that it signs: a hash of all parts, by which forged signatures are recognised.
    pub(super) fn id(self) -> u64 {
        hash_of(&(SECRET, self.model, self.text, self.prefix))
    }

    /// Parses a signature; `None` for one that was not made here.
    pub(super) fn parse(signature: &str) -> Option<Self> {
        let numbers = signature.strip_prefix(HEAD).filter(|rest| rest.len() == 64 && rest.is_ascii())?;
        let number = |at: usize| u64::from_str_radix(&numbers[at * 16..(at + 1) * 16], 16).ok();
        let seal = Self { model: number(0)?, text: number(1)?, prefix: number(2)? };
        (number(3)? == seal.id()).then_some(seal)
    }
}

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HEAD}{:016x}{:016x}{:016x}{:016x}", self.model, self.text, self.prefix, self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_signature_is_not_genuine() {
        let seal = Seal { model: 1, text: 2, prefix: 3 };
        let text = seal.to_string();
        assert_eq!(text.len() % 4, 0);
        assert_eq!(Seal::parse(&text), Some(seal));
        let changed = text.replacen('2', "4", 1);
        for wrong in ["", "bW9jay1yZWFzb25pbmctc2lnbmF0dXJl", &changed, &text[..text.len() - 1]] {
            assert_eq!(Seal::parse(wrong), None, "{wrong}");
        }
    }
}
