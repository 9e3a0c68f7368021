//! How an answer goes wrong.

use std::collections::BTreeMap;

use hyper::header::{HeaderName, HeaderValue};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// How an answer goes wrong. Some faults take the answer's place, the others happen inside its stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Another status, with an error in the wire's own form or with this body.
    Status {
        /// The status, 200 to 599.
        #[serde(deserialize_with = "status_code")]
        code: u16,
        /// Headers (such as `retry-after`); a `content-type` replaces the usual one.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "header_map")]
        headers: BTreeMap<String, String>,
        /// The body; absent for an error of the wire that fits the status.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
    },
    /// Status 200 with this page, as a proxy in the way would answer.
    Html(String),
    /// A complete answer that holds nothing.
    Empty,
    /// The stream ends after so many events. An answer with no more events than that ends well.
    Cut {
        /// Events that are sent first.
        after_events: u64,
        /// How it ends.
        #[serde(default)]
        how: Cut,
    },
    /// The stream pauses after so many events.
    Stall {
        /// Events that are sent first.
        after_events: u64,
        /// How long it pauses; absent for until the client goes away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ms: Option<u64>,
    },
    /// An error event ends the stream after so many events.
    ErrorEvent {
        /// Events that are sent first.
        after_events: u64,
        /// The wire's word for the error, as in `overloaded_error`.
        kind: String,
        /// What it says.
        message: String,
    },
}

/// How a stream ends that is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// As if it were complete, only that the rest is missing.
    #[default]
    Eof,
    /// The connection is reset.
    Reset,
}

impl Fault {
    /// A status without headers, with an error of the wire.
    pub fn status(code: u16) -> Self {
        Self::Status { code, headers: BTreeMap::new(), body: None }
    }

    /// A status with `retry-after` in seconds.
    pub fn retry_after(code: u16, seconds: u64) -> Self {
        let headers = BTreeMap::from([("retry-after".to_owned(), seconds.to_string())]);
        Self::Status { code, headers, body: None }
    }

    /// A stream that is cut after so many events.
    pub fn cut(after_events: u64, how: Cut) -> Self {
        Self::Cut { after_events, how }
    }

    /// A stream that goes silent after so many events, until the client goes away.
    pub fn stall(after_events: u64) -> Self {
        Self::Stall { after_events, ms: None }
    }

    /// Events after which something happens inside the stream.
    pub(crate) fn after_events(&self) -> Option<u64> {
        match self {
            Self::Cut { after_events, .. }
            | Self::Stall { after_events, .. }
            | Self::ErrorEvent { after_events, .. } => Some(*after_events),
            Self::Status { .. } | Self::Html(_) | Self::Empty => None,
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
    use super::*;

    fn parse(text: &str) -> Result<Fault, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn faults_are_short_to_write() {
        assert_eq!(parse(r#"{"status": {"code": 529}}"#), Ok(Fault::status(529)));
        assert_eq!(parse(r#"{"cut": {"after_events": 3}}"#), Ok(Fault::cut(3, Cut::Eof)));
        assert_eq!(parse(r#"{"stall": {"after_events": 3}}"#), Ok(Fault::stall(3)));
        assert_eq!(parse(r#""empty""#), Ok(Fault::Empty));
    }

    #[test]
    fn what_http_cannot_carry_is_refused() {
        assert!(parse(r#"{"status": {"code": 100}}"#).unwrap_err().contains("200 to 599"));
        let bad = r#"{"status": {"code": 500, "headers": {"a b": "c"}}}"#;
        assert!(parse(bad).unwrap_err().contains("cannot be an HTTP header"));
        assert!(parse(r#"{"cut": {"after": 3}}"#).unwrap_err().contains("after_events"));
    }
}
