//! How much a model thinks before it answers, as people write it.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use playhouse_protocol::capability::Effort;

/// How much a model thinks before it answers.
///
/// ```
/// use playhouse_prompts::Reasoning;
/// use playhouse_protocol::capability::Effort;
/// assert_eq!("high".parse(), Ok(Reasoning::Effort(Effort::High)));
/// assert_eq!("8000".parse(), Ok(Reasoning::Budget(8_000.try_into().unwrap())));
/// assert_eq!(
///     "much".parse::<Reasoning>().unwrap_err(),
///     "is \"much\", expected none, minimal, low, medium, high, xhigh, max or a whole number of tokens from 1"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// A level. A model that lacks it is told the next higher one that it has, else its highest.
    Effort(Effort),
    /// At most so many tokens.
    Budget(NonZeroU64),
}

impl fmt::Display for Reasoning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Effort(effort) => f.write_str(effort.name()),
            Self::Budget(tokens) => tokens.fmt(f),
        }
    }
}

impl FromStr for Reasoning {
    /// A fragment that goes on after the name of what was to be set.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(effort) = Effort::named(text) {
            return Ok(Self::Effort(effort));
        }
        text.parse().map(Self::Budget).map_err(|_| {
            let text: String = text.chars().take(64).collect();
            let names = Effort::ALL.map(Effort::name).join(", ");
            format!("is \"{}\", expected {names} or a whole number of tokens from 1", text.escape_debug())
        })
    }
}
