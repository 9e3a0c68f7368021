//! How an answer goes wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use hyper::header::{HeaderName, HeaderValue};
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How an answer goes wrong. The first three take the answer's place, the others happen in it. How the bytes of an
/// answer are carried is [`Framing`](crate::Framing), which any of these can be combined with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Another status, with an error in the wire's own form or with this body.
    Status {
        /// The status, 200 to 599.
        #[serde(deserialize_with = "status_code")]
        code: u16,
        /// Headers; a `content-type` replaces the usual one.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "header_map")]
        headers: BTreeMap<String, String>,
        /// When to come back, as a header.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<RetryAfter>,
        /// The body; absent for an error of the wire that fits the status.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
    },
    /// The provider says no, with the status and in the words that it has for that.
    Rejected(Rejection),
    /// Status 200 with this page, as a proxy in the way would answer.
    Html(String),
    /// A complete answer that holds nothing.
    Empty,
    /// The stream ends. An answer in one piece ends in its middle.
    Cut {
        /// When. An answer that never comes to it ends well.
        #[serde(alias = "after_events")]
        at: Moment,
        /// How it ends.
        #[serde(default)]
        how: Cut,
    },
    /// The stream pauses.
    Stall {
        /// When.
        #[serde(alias = "after_events")]
        at: Moment,
        /// How long it pauses; absent for until the client goes away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ms: Option<u64>,
    },
    /// An error event ends the stream.
    ErrorEvent {
        /// When.
        #[serde(alias = "after_events")]
        at: Moment,
        /// The wire's word for the error, as in `overloaded_error`; empty for the one that it has for overload.
        #[serde(default)]
        kind: String,
        /// What it says.
        #[serde(default)]
        message: String,
    },
    /// The answer comes to its end and is not what it should be.
    Broken(Defect),
}

/// Why a provider says no. The wires have a status and words of their own for each, and some have none of their own: what
/// they do then is said here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rejection {
    /// The conversation is longer than the model's context.
    ContextOverflow,
    /// The account has nothing left to spend. Coming back later does not help.
    QuotaUsedUp,
    /// Too many requests. In the Gemini format the error's details say when to come back.
    RateLimited,
    /// The provider has more to do than it can.
    Overloaded,
    /// The key is not valid. In the Gemini format this is status 400.
    BadKey,
    /// The key may not do this.
    Forbidden,
    /// There is no such model, or not for this key.
    NoSuchModel,
    /// The request has too many bytes.
    TooLarge,
    /// A filter stops the request. In the Gemini format this is status 200 and an answer without candidates.
    ContentFilter,
}

impl Rejection {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::ContextOverflow,
        Self::QuotaUsedUp,
        Self::RateLimited,
        Self::Overloaded,
        Self::BadKey,
        Self::Forbidden,
        Self::NoSuchModel,
        Self::TooLarge,
        Self::ContentFilter,
    ];
}

/// What is wrong with an answer that comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Defect {
    /// The event of the first token holds half of its JSON. An answer in one piece does.
    MalformedJson,
    /// The final event does not report usage; neither does an answer in one piece.
    NoUsage,
    /// The events that begin and end each part come twice. Formats without such events have calls twice.
    DuplicateBlocks,
    /// The event that begins each part comes after its first token. In formats without such events a call at the end
    /// comes after the final event.
    OutOfOrder,
    /// All calls have the id of the first; a single call comes twice.
    SameCallId,
    /// The arguments of each call are a list.
    ArgumentsNotAnObject,
}

impl Defect {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::MalformedJson,
        Self::NoUsage,
        Self::DuplicateBlocks,
        Self::OutOfOrder,
        Self::SameCallId,
        Self::ArgumentsNotAnObject,
    ];
}

/// A moment of a stream. As JSON it is a number of events, or a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moment {
    /// After so many events.
    Events(u64),
    /// `first_token`: before the first token, after whatever begins an answer.
    FirstToken,
    /// `in_text`: after the first token of text.
    InText,
    /// `in_arguments`: after the first token of a call's arguments; that is inside an event, where a format has a whole call
    /// in one.
    InArguments,
    /// `final_event`: when all parts are whole, before what ends the answer.
    FinalEvent,
}

/// The words for moments.
const WORDS: [(&str, Moment); 4] = [
    ("first_token", Moment::FirstToken),
    ("in_text", Moment::InText),
    ("in_arguments", Moment::InArguments),
    ("final_event", Moment::FinalEvent),
];

impl From<u64> for Moment {
    fn from(events: u64) -> Self {
        Self::Events(events)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self, WORDS.iter().find(|(_, moment)| moment == self)) {
            (Self::Events(events), _) => serializer.serialize_u64(*events),
            (_, Some((word, _))) => serializer.serialize_str(word),
            (_, None) => Err(serde::ser::Error::custom("a moment without a word")),
        }
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MomentVisitor;
        impl Visitor<'_> for MomentVisitor {
            type Value = Moment;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of events, or one of")?;
                WORDS.iter().try_for_each(|(word, _)| write!(f, " \"{word}\""))
            }

            fn visit_u64<E>(self, events: u64) -> Result<Moment, E> {
                Ok(Moment::Events(events))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Moment, E> {
                let found = WORDS.iter().find(|(word, _)| *word == text);
                found
                    .map(|(_, moment)| *moment)
                    .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(MomentVisitor)
    }
}

/// When to come back, as a header says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAfter {
    /// `retry-after` in seconds.
    Seconds(u64),
    /// `retry-after` with the date that is so many seconds from now.
    DateIn(u64),
    /// `retry-after-ms`, in milliseconds.
    Ms(u64),
}

/// Seconds up to which a date can be written: the year 9999 is the last.
const FARTHEST: u64 = 7_000 * 365 * 24 * 60 * 60;

impl RetryAfter {
    /// The header's name and value at the time `now`.
    pub(crate) fn header(self, now: SystemTime) -> (&'static str, String) {
        match self {
            Self::Seconds(seconds) => ("retry-after", seconds.to_string()),
            Self::DateIn(seconds) => {
                let date = now + Duration::from_secs(seconds.min(FARTHEST));
                ("retry-after", httpdate::fmt_http_date(date))
            }
            Self::Ms(ms) => ("retry-after-ms", ms.to_string()),
        }
    }
}

/// How a stream ends that is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// As if it were complete, only that the rest is missing.
    #[default]
    Eof,
    /// The connection is reset. HTTP/2 resets the stream only.
    Reset,
}

impl Fault {
    /// A status without headers, with an error of the wire.
    pub fn status(code: u16) -> Self {
        Self::Status { code, headers: BTreeMap::new(), retry_after: None, body: None }
    }

    /// A status with `retry-after` in seconds.
    pub fn retry_after(code: u16, seconds: u64) -> Self {
        Self::come_back(code, RetryAfter::Seconds(seconds))
    }

    /// A status that says when to come back.
    pub fn come_back(code: u16, retry_after: RetryAfter) -> Self {
        Self::Status { code, headers: BTreeMap::new(), retry_after: Some(retry_after), body: None }
    }

    /// A redirect to another place, that keeps the method (status 307).
    pub fn redirect(to: impl Into<String>) -> Self {
        let headers = BTreeMap::from([("location".to_owned(), to.into())]);
        Self::Status { code: 307, headers, retry_after: None, body: None }
    }

    /// A stream that is cut at a moment, or after so many events.
    pub fn cut(at: impl Into<Moment>, how: Cut) -> Self {
        Self::Cut { at: at.into(), how }
    }

    /// A stream that goes silent at a moment, or after so many events, until the client goes away.
    pub fn stall(at: impl Into<Moment>) -> Self {
        Self::Stall { at: at.into(), ms: None }
    }

    /// A stream that ends with the wire's error for overload at a moment, or after so many events.
    pub fn error_event(at: impl Into<Moment>, message: impl Into<String>) -> Self {
        Self::ErrorEvent { at: at.into(), kind: String::new(), message: message.into() }
    }

    /// When something happens inside the stream.
    pub(crate) fn moment(&self) -> Option<Moment> {
        match self {
            Self::Cut { at, .. } | Self::Stall { at, .. } | Self::ErrorEvent { at, .. } => Some(*at),
            Self::Status { .. } | Self::Rejected(_) | Self::Html(_) | Self::Empty | Self::Broken(_) => None,
        }
    }

    /// What is wrong with an answer that comes to its end.
    pub(crate) fn defect(&self) -> Option<Defect> {
        match self {
            Self::Broken(defect) => Some(*defect),
            _ => None,
        }
    }
}

fn status_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    match u16::deserialize(deserializer)? {
        code @ 200..=599 => Ok(code),
        code => Err(D::Error::custom(format_args!("{code} is not the status of an answer: give 200 to 599"))),
    }
}

fn header_map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let headers = BTreeMap::<String, String>::deserialize(deserializer)?;
    for (name, value) in &headers {
        if HeaderName::try_from(name).is_err() || HeaderValue::try_from(value).is_err() {
            return Err(D::Error::custom(format_args!("{name:?}: {value:?} cannot be an HTTP header")));
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn parse(text: &str) -> Result<Fault, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn faults_are_short_to_write() {
        assert_eq!(parse(r#"{"status": {"code": 529}}"#), Ok(Fault::status(529)));
        assert_eq!(parse(r#"{"cut": {"after_events": 3}}"#), Ok(Fault::cut(3, Cut::Eof)));
        assert_eq!(parse(r#"{"cut": {"at": 3}}"#), Ok(Fault::cut(3, Cut::Eof)));
        assert_eq!(parse(r#"{"stall": {"at": "in_text"}}"#), Ok(Fault::stall(Moment::InText)));
        assert_eq!(parse(r#"{"error_event": {"at": 1}}"#), Ok(Fault::error_event(1, "")));
        assert_eq!(parse(r#""empty""#), Ok(Fault::Empty));
        assert_eq!(parse(r#"{"rejected": "bad_key"}"#), Ok(Fault::Rejected(Rejection::BadKey)));
        assert_eq!(parse(r#"{"broken": "no_usage"}"#), Ok(Fault::Broken(Defect::NoUsage)));
        let date = Fault::come_back(429, RetryAfter::DateIn(9));
        assert_eq!(parse(r#"{"status": {"code": 429, "retry_after": {"date_in": 9}}}"#), Ok(date));
    }

    #[test]
    fn what_is_written_can_be_read() {
        let moments = WORDS.iter().map(|(_, moment)| *moment).chain([Moment::Events(7)]);
        let faults = moments
            .flat_map(|at| [Fault::cut(at, Cut::Reset), Fault::stall(at), Fault::error_event(at, "x")])
            .chain(Rejection::ALL.map(Fault::Rejected))
            .chain(Defect::ALL.map(Fault::Broken))
            .chain([Fault::redirect("/x"), Fault::retry_after(429, 1), Fault::Html("<p>".into())]);
        for fault in faults {
            let text = serde_json::to_string(&fault).unwrap();
            assert_eq!(parse(&text), Ok(fault), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(parse(r#"{"status": {"code": 100}}"#).unwrap_err().contains("200 to 599"));
        let bad = r#"{"status": {"code": 500, "headers": {"a b": "c"}}}"#;
        assert!(parse(bad).unwrap_err().contains("cannot be an HTTP header"));
        assert!(parse(r#"{"cut": {"after": 3}}"#).unwrap_err().contains("`at`"));
        let error = parse(r#"{"cut": {"at": "later"}}"#).unwrap_err();
        assert!(error.contains("\"later\"") && error.contains("\"in_arguments\""), "{error}");
    }

    #[test]
    fn dates_are_written_as_http_has_them() {
        let header = |retry: RetryAfter| retry.header(UNIX_EPOCH + Duration::from_secs(784_111_770));
        assert_eq!(
            header(RetryAfter::DateIn(7)),
            ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT".to_owned())
        );
        assert_eq!(header(RetryAfter::Ms(1500)), ("retry-after-ms", "1500".to_owned()));
        assert!(header(RetryAfter::DateIn(u64::MAX)).1.ends_with("GMT"));
    }
}
