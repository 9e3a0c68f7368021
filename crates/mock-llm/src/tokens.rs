//! What a token is here: a word with the space before it, or a piece of a long word. Also the made-up prose.

use std::time::{SystemTime, UNIX_EPOCH};

/// The longest piece of a word, in bytes.
const LONGEST: usize = 12;

/// The length in bytes of the first token of `text`; 0 only for an empty text. Tokens never split a character.
pub(crate) fn first_token(text: &str) -> usize {
    let mut in_word = false;
    let mut word_bytes = 0;
    for (at, character) in text.char_indices() {
        if character.is_whitespace() {
            // A run of spaces counts as one word too, so that a token is never large.
            if in_word || at >= LONGEST {
                return at;
            }
            continue;
        }
        in_word = true;
        if word_bytes > 0 && word_bytes + character.len_utf8() > LONGEST {
            return at;
        }
        word_bytes += character.len_utf8();
    }
    text.len()
}

/// Words of the made-up prose, each a token.
const PROSE: [&str; 40] = [
    "The",
    " small",
    " house",
    " stands",
    " where",
    " the",
    " road",
    " bends",
    " and",
    " from",
    " its",
    " window",
    " you",
    " can",
    " see",
    " the",
    " river,",
    " two",
    " boats",
    " and",
    " a",
    " field",
    " of",
    " barley.\n",
    "In",
    " the",
    " evening",
    " someone",
    " lights",
    " a",
    " lamp,",
    " reads",
    " a",
    " page",
    " aloud,",
    " and",
    " shuts",
    " the",
    " door",
    " again.\n",
];

/// Token number `number` of the made-up prose, which repeats itself.
pub(crate) fn prose(number: u64) -> &'static str {
    PROSE[(number % PROSE.len() as u64) as usize]
}

/// Gives tokens one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A text, `left` times over; `at` is the place in it.
    Text {
        /// The text.
        text: String,
        /// Where the next token begins.
        at: usize,
        /// Times that it is still to be said, this one included.
        left: u64,
    },
    /// Made-up prose.
    Prose {
        /// The number of the next token.
        next: u64,
        /// The number after the last token.
        end: u64,
    },
    /// The time, again and again.
    Times {
        /// The time as it was told last, in microseconds.
        last: u64,
        /// The same as text.
        text: String,
        /// How often it is still to be told.
        left: u64,
    },
    /// One token, of any size.
    One {
        /// The token.
        text: String,
        /// Whether it was said.
        is_said: bool,
    },
}

/// Puts a time in place of `text`: an `@` and 16 digits.
fn write_time(text: &mut String, mut time: u64) {
    let mut digits = [b'0'; 16];
    for digit in digits.iter_mut().rev() {
        // Less than 10.
        *digit += (time % 10) as u8;
        time /= 10;
    }
    text.clear();
    text.push('@');
    text.extend(digits.iter().map(|digit| char::from(*digit)));
}

/// The most bytes of one token.
const LARGEST: u64 = 256 << 20;

impl Source {
    /// A text, several times over.
    pub(crate) fn text(text: impl Into<String>, times: u64) -> Self {
        let text = text.into();
        let left = if text.is_empty() { 0 } else { times };
        Self::Text { text, at: 0, left }
    }

    /// So many tokens of made-up prose.
    pub(crate) fn prose(count: u64) -> Self {
        Self::Prose { next: 0, end: count }
    }

    /// The time, so often; never the same twice.
    pub(crate) fn times(count: u64) -> Self {
        Self::Times { last: 0, text: String::new(), left: count }
    }

    /// Made-up prose of so many bytes (at most 256 MiB) in one token.
    pub(crate) fn one(bytes: u64) -> Self {
        let bytes = usize::try_from(bytes.min(LARGEST)).unwrap_or_default();
        let mut text = String::with_capacity(bytes);
        for number in 0.. {
            let word = prose(number);
            let count = word.len().min(bytes - text.len());
            text.push_str(&word[..count]);
            if text.len() == bytes {
                break;
            }
        }
        Self::One { is_said: text.is_empty(), text }
    }

    /// The next token.
    pub(crate) fn next_token(&mut self) -> Option<&str> {
        match self {
            Self::Text { left: 0, .. } => None,
            Self::Text { text, at, left } => {
                let start = *at;
                *at += first_token(&text[start..]);
                let end = *at;
                if end == text.len() {
                    *at = 0;
                    *left -= 1;
                }
                Some(&text[start..end])
            }
            Self::Prose { next, end } => (*next < *end).then(|| {
                *next += 1;
                prose(*next - 1)
            }),
            Self::Times { left: 0, .. } => None,
            Self::Times { last, text, left } => {
                *left -= 1;
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
                *last = now.max(last.saturating_add(1));
                write_time(text, *last);
                Some(text)
            }
            Self::One { is_said: true, .. } => None,
            Self::One { text, is_said } => {
                *is_said = true;
                Some(text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(mut text: &str) -> Vec<&str> {
        let mut tokens = Vec::new();
        while !text.is_empty() {
            let (token, rest) = text.split_at(first_token(text));
            tokens.push(token);
            text = rest;
        }
        tokens
    }

    #[test]
    fn a_token_is_a_word_with_the_space_before_it() {
        assert_eq!(split("Let me look.\n\n  Now"), ["Let", " me", " look.", "\n\n  Now"]);
        assert_eq!(split("{\"filePath\":\"README.md\"}"), ["{\"filePath\":", "\"README.md\"}"]);
        assert_eq!(split("trailing "), ["trailing", " "]);
        assert_eq!(split(""), Vec::<&str>::new());
    }

    #[test]
    fn tokens_are_small_and_whole_characters() {
        let text = format!("{}{}{}", " ".repeat(100), "é".repeat(100), "🏠".repeat(10));
        let tokens = split(&text);
        assert!(tokens.iter().all(|token| (1..=2 * LONGEST).contains(&token.len())), "{tokens:?}");
        assert_eq!(tokens.concat(), text);
    }

    #[test]
    fn sources_give_every_token_once() {
        let all = |mut source: Source| {
            let mut tokens = Vec::new();
            while let Some(token) = source.next_token() {
                tokens.push(token.to_owned());
            }
            tokens
        };
        assert_eq!(all(Source::text("a b", 2)), ["a", " b", "a", " b"]);
        assert_eq!(all(Source::text("a", 0)), Vec::<String>::new());
        assert_eq!(all(Source::text("", 5)), Vec::<String>::new());
        assert_eq!(all(Source::prose(2)), ["The", " small"]);
        let times = all(Source::times(3));
        assert!(
            times.is_sorted_by(|one, next| one < next)
                && times.iter().all(|time| time.len() == 17 && time.starts_with('@')),
            "{times:?}"
        );
        assert_eq!(times.len(), 3);
        assert_eq!(all(Source::one(8)), ["The smal"]);
        assert_eq!(all(Source::one(0)), Vec::<String>::new());
        assert_eq!(all(Source::one(1 << 20))[0].len(), 1 << 20);
    }

    #[test]
    fn prose_repeats() {
        assert_eq!(prose(0), prose(40));
        assert_eq!((0..40).map(prose).collect::<String>().lines().count(), 2);
    }
}
