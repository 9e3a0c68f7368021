//! How much a model thinks before it answers, as people write it.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// How much a model thinks before it answers.
///
/// ```
/// use playhouse_prompts::Reasoning;
/// assert_eq!("high".parse(), Ok(Reasoning::High));
/// assert_eq!("8000".parse(), Ok(Reasoning::Budget(8_000.try_into().unwrap())));
/// assert_eq!(
///     "much".parse::<Reasoning>().unwrap_err(),
///     "is \"much\", expected low, medium, high or a whole number of tokens from 1"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// A little.
    Low,
    /// As most models do on their own.
    Medium,
    /// A lot.
    High,
    /// At most so many tokens.
    Budget(NonZeroU64),
}

impl fmt::Display for Reasoning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Low => f.write_str("low"),
            Self::Medium => f.write_str("medium"),
            Self::High => f.write_str("high"),
            Self::Budget(tokens) => tokens.fmt(f),
        }
    }
}

impl FromStr for Reasoning {
    /// A fragment that goes on after the name of what was to be set.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "low" => Self::Low,
            "medium" => Self::Medium,
            "high" => Self::High,
            _ => Self::Budget(text.parse().map_err(|_| {
                let text: String = text.chars().take(64).collect();
                format!(
                    "is \"{}\", expected low, medium, high or a whole number of tokens from 1",
                    text.escape_debug()
                )
            })?),
        })
    }
}
