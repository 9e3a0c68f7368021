//! Identifiers: a three-letter prefix, `_`, 12 hex digits of time and counter, 14 random base62 characters.
//!
//! The 12 digits are the low 48 bits of `milliseconds * 4096 + counter`, so that ids of one generator sort in the order
//! in which they were made. The 48 bits wrap every 795 days: nothing that is stored may depend on the time inside an id.
//! Session ids have these bits inverted, so that the newest sorts first.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use crate::time::Timestamp;

/// Length of every id, in bytes.
pub const ID_LENGTH: usize = PREFIX_LENGTH + 1 + TIME_DIGITS + RANDOM_LENGTH;
const PREFIX_LENGTH: usize = 3;
const TIME_DIGITS: usize = 12;
const RANDOM_LENGTH: usize = 14;
const TIME_MASK: u64 = (1 << 48) - 1;
const COUNTER_STEPS: u64 = 4096;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// What is wrong with a text that should be an id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdError {
    /// The prefix is another one, or missing.
    #[error("\"{text}\" is not a {what} id: it must begin with \"{prefix}_\"")]
    Prefix {
        /// The text that was given (cut at 64 characters).
        text: String,
        /// What the id should name.
        what: &'static str,
        /// The prefix it should have.
        prefix: &'static str,
    },
    /// The length is not [`ID_LENGTH`].
    #[error("\"{text}\" is not a {what} id: it has {length} characters, not {ID_LENGTH}")]
    Length {
        /// The text that was given (cut at 64 characters).
        text: String,
        /// What the id should name.
        what: &'static str,
        /// The length it has, in characters.
        length: usize,
    },
    /// A character is not allowed where it stands.
    #[error(
        "\"{text}\" is not a {what} id: after the prefix come 12 lower-case hex digits and 14 letters or digits"
    )]
    Characters {
        /// The text that was given (cut at 64 characters).
        text: String,
        /// What the id should name.
        what: &'static str,
    },
}

/// An id of some kind. Implemented by the id types of this module only.
pub trait Id: Copy + Sized {
    /// Three letters.
    const PREFIX: &'static str;
    /// What it names, for error messages.
    const WHAT: &'static str;
    /// Whether newer ids sort before older ones.
    const DESCENDING: bool;

    /// The id with these bytes, which have the form of an id of this kind.
    #[doc(hidden)]
    fn from_bytes(bytes: [u8; ID_LENGTH]) -> Self;
}

fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

fn check(text: &str, prefix: &'static str, what: &'static str) -> Result<[u8; ID_LENGTH], IdError> {
    if !text.starts_with(prefix) || text.as_bytes().get(PREFIX_LENGTH) != Some(&b'_') {
        return Err(IdError::Prefix { text: shorten(text), what, prefix });
    }
    let Ok(bytes) = <[u8; ID_LENGTH]>::try_from(text.as_bytes()) else {
        return Err(IdError::Length { text: shorten(text), what, length: text.chars().count() });
    };
    let (time, random) = bytes[PREFIX_LENGTH + 1..].split_at(TIME_DIGITS);
    let well_formed = time.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && random.iter().all(u8::is_ascii_alphanumeric);
    if well_formed { Ok(bytes) } else { Err(IdError::Characters { text: shorten(text), what }) }
}

macro_rules! id_type {
    ($(#[doc = $doc:literal])* $name:ident, $prefix:literal, $what:literal, $descending:literal) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; ID_LENGTH]);

        impl Id for $name {
            const PREFIX: &'static str = $prefix;
            const WHAT: &'static str = $what;
            const DESCENDING: bool = $descending;

            fn from_bytes(bytes: [u8; ID_LENGTH]) -> Self {
                Self(bytes)
            }
        }

        impl $name {
            /// Reads an id, and says what is wrong with one that is malformed.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                check(text, $prefix, $what).map(Self)
            }

            /// The id as text: always [`ID_LENGTH`] ASCII characters.
            pub fn as_str(&self) -> &str {
                std::str::from_utf8(&self.0).unwrap_or_default()
            }

            /// The same as bytes, which needs no look at them.
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::parse(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "pattern": concat!("^", $prefix, "_[0-9a-f]{12}[0-9A-Za-z]{14}$"),
                    "description": concat!($($doc),*).trim(),
                })
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "a {} id", $what)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::parse(text).map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Visitor)
            }
        }
    };
}

id_type!(
    /// A session. Newer ids sort first.
    SessionId, "ses", "session", true
);
id_type!(
    /// A message: a user message (which also names the turn that it began) or an assistant message (one per step).
    MessageId, "msg", "message", false
);
id_type!(
    /// A part of a message. The id of a tool part also names the call.
    PartId, "prt", "part", false
);
id_type!(
    /// One request to a provider.
    AttemptId, "att", "attempt", false
);
id_type!(
    /// A request for consent.
    ConsentId, "per", "consent", false
);
id_type!(
    /// A request with questions for the people behind a session.
    QuestionId, "que", "question", false
);

impl MessageId {
    /// An id that sorts before this one, and is the same whenever it is made: `steps` before it, of the same random part.
    ///
    /// ```
    /// use playhouse_protocol::MessageId;
    /// let id = MessageId::parse("msg_00000000010012345678901234").unwrap();
    /// assert_eq!(id.earlier(2).as_str(), "msg_0000000000fe12345678901234");
    /// ```
    #[must_use]
    pub fn earlier(self, steps: u64) -> Self {
        let (mut bytes, place) = (self.0, PREFIX_LENGTH + 1..PREFIX_LENGTH + 1 + TIME_DIGITS);
        let written = std::str::from_utf8(&bytes[place.clone()]).unwrap_or_default();
        let time = u64::from_str_radix(written, 16).unwrap_or_default().wrapping_sub(steps) & TIME_MASK;
        bytes[place].copy_from_slice(format!("{time:012x}").as_bytes());
        Self(bytes)
    }

    /// Whether [`MessageId::earlier`] of `other` gives this id for some number of steps above 0.
    ///
    /// ```
    /// use playhouse_protocol::MessageId;
    /// let id = MessageId::parse("msg_00000000010012345678901234").unwrap();
    /// assert!(id.earlier(2).is_earlier_of(id));
    /// assert!(!id.is_earlier_of(id));
    /// ```
    pub fn is_earlier_of(self, other: Self) -> bool {
        let random = PREFIX_LENGTH + 1 + TIME_DIGITS..;
        self < other && self.0[random.clone()] == other.0[random]
    }
}

/// Makes ids that ascend (session ids: descend), even when the clock steps back.
///
/// It has neither a clock nor a source of randomness: the time comes with each call, and `entropy` fills the buffers it
/// is given with random bytes.
pub struct IdGenerator {
    /// `milliseconds * 4096 + counter` of the last id made.
    last: u64,
    entropy: Entropy,
}

/// Fills a buffer with random bytes.
type Entropy = Box<dyn FnMut(&mut [u8]) + Send>;

impl fmt::Debug for IdGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdGenerator").field("last", &self.last).finish_non_exhaustive()
    }
}

impl IdGenerator {
    /// A generator that takes its randomness from `entropy`.
    pub fn new(entropy: impl FnMut(&mut [u8]) + Send + 'static) -> Self {
        Self { last: 0, entropy: Box::new(entropy) }
    }

    /// Makes sure that every later id sorts after those made up to `time`, whatever the clock says.
    pub fn advance_past(&mut self, time: Timestamp) {
        let floor = time.as_millis().saturating_mul(COUNTER_STEPS).saturating_add(COUNTER_STEPS - 1);
        self.last = self.last.max(floor);
    }

    /// The next id.
    pub fn next<I: Id>(&mut self, now: Timestamp) -> I {
        self.last = now.as_millis().saturating_mul(COUNTER_STEPS).max(self.last.saturating_add(1));
        let bits = if I::DESCENDING { !self.last } else { self.last } & TIME_MASK;
        let mut bytes = [0; ID_LENGTH];
        bytes[..PREFIX_LENGTH].copy_from_slice(I::PREFIX.as_bytes());
        bytes[PREFIX_LENGTH] = b'_';
        let (time, random) = bytes[PREFIX_LENGTH + 1..].split_at_mut(TIME_DIGITS);
        for (index, digit) in time.iter_mut().enumerate() {
            let nibble = (bits >> (4 * (TIME_DIGITS - 1 - index))) & 0xf;
            *digit = b"0123456789abcdef"[nibble as usize];
        }
        self.fill_base62(random);
        I::from_bytes(bytes)
    }

    /// Fills `out` with uniformly distributed base62 characters (bytes from 248 on would favour the first eight).
    fn fill_base62(&mut self, out: &mut [u8]) {
        let mut filled = 0;
        let mut pool = [0_u8; 24];
        for round in 0.. {
            (self.entropy)(&mut pool);
            for byte in pool {
                if filled == out.len() {
                    return;
                }
                // A broken source that gives nothing but high bytes must not hang the engine.
                if byte < 248 || round > 16 {
                    out[filled] = BASE62[byte as usize % 62];
                    filled += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generator() -> IdGenerator {
        let mut state = 1_u8;
        IdGenerator::new(move |bytes| {
            for byte in bytes {
                state = state.wrapping_mul(37).wrapping_add(11);
                *byte = state;
            }
        })
    }

    #[test]
    fn ids_have_the_form_of_the_wire() {
        let id: MessageId = generator().next(Timestamp::from_millis(1_795_292_879_257));
        assert_eq!(id.as_str().len(), ID_LENGTH);
        let expected = format!("msg_{:012x}", (1_795_292_879_257_u64 * 4096) & TIME_MASK);
        assert!(id.as_str().starts_with(&expected), "{id} should begin with {expected}");
        assert_eq!(MessageId::parse(id.as_str()), Ok(id));
    }

    #[test]
    fn ids_ascend_when_the_clock_steps_back_and_session_ids_descend() {
        let mut ids = generator();
        let times = [5_000, 5_000, 4_000, 6_000, 1].map(Timestamp::from_millis);
        let messages: Vec<MessageId> = times.iter().map(|time| ids.next(*time)).collect();
        assert!(messages.is_sorted_by(|a, b| a < b), "{messages:?}");
        let sessions: Vec<SessionId> = times.iter().map(|time| ids.next(*time)).collect();
        assert!(sessions.is_sorted_by(|a, b| a > b), "{sessions:?}");
    }

    #[test]
    fn a_restarted_generator_goes_on_after_the_log() {
        let mut before = generator();
        let old: PartId = before.next(Timestamp::from_millis(9_000));
        let mut after = generator();
        after.advance_past(Timestamp::from_millis(9_000));
        let new: PartId = after.next(Timestamp::from_millis(10));
        assert!(new > old, "{new} after {old}");
    }

    #[test]
    fn malformed_ids_say_what_is_wrong() {
        for (text, fragment) in [
            ("", "must begin with \"ses_\""),
            ("msg_00000000000012345678901234", "must begin with \"ses_\""),
            ("ses_123", "7 characters, not 30"),
            ("ses_00000000000G12345678901234", "12 lower-case hex digits"),
            ("ses_000000000000123456789-1234", "12 lower-case hex digits"),
            ("ses_00000000000é1234567890123", "12 lower-case hex digits"),
        ] {
            let error = SessionId::parse(text).unwrap_err().to_string();
            assert!(error.contains(fragment), "{text}: {error}");
        }
    }

    #[test]
    fn a_broken_source_of_randomness_does_not_hang() {
        let mut ids = IdGenerator::new(|bytes| bytes.fill(255));
        let _: PartId = ids.next(Timestamp::from_millis(1));
    }

    proptest::proptest! {
        #[test]
        fn parsing_never_panics_and_accepts_only_what_it_prints(text in "(ses_)?[0-9a-zé]{0,40}") {
            if let Ok(id) = SessionId::parse(&text) {
                proptest::prop_assert_eq!(id.as_str(), text);
            }
        }
    }
}
