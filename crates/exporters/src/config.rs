//! Sinks as they are configured.

use std::path::PathBuf;

use playhouse_billing::export::Policy;
use thiserror::Error;

/// The longest name of a sink.
const LONGEST_NAME: usize = 64;
/// The most entries of a batch, and requests under way of a sink that sends each by itself.
const MOST_ROWS: usize = 10_000;
const MOST_AT_ONCE: usize = 64;

/// What is wrong with the configuration of a sink, with what to do. It holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("sinks.{sink}{dot}{key} {problem}", dot = if key.is_empty() { "" } else { "." })]
pub struct ConfigError {
    /// The name of the sink.
    pub sink: String,
    /// The key; empty where the name itself is wrong.
    pub key: &'static str,
    /// What is wrong and what to do.
    pub problem: String,
}

/// Where a sink leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SinkKind {
    /// A folder of files with one row a line.
    #[default]
    File,
    /// A server that takes CloudEvents, as OpenMeter.
    Cloudevents,
    /// Polar.
    Polar,
    /// A server of the platform's own, with signed batches of rows.
    Webhook,
    /// A server that wants `{rawTokens, modelId, tier}` once for each turn and model.
    Report,
}

impl SinkKind {
    /// All there are.
    pub const ALL: [Self; 5] = [Self::File, Self::Cloudevents, Self::Polar, Self::Webhook, Self::Report];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Cloudevents => "cloudevents",
            Self::Polar => "polar",
            Self::Webhook => "webhook",
            Self::Report => "report",
        }
    }
}

impl Start {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Beginning, Self::Now];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Beginning => "beginning",
            Self::Now => "now",
        }
    }
}

/// Where a new sink begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the first row of the ledger.
    #[default]
    Beginning,
    /// With the rows that come after its first start.
    Now,
}

/// A sink. Only `kind` is always needed; a key that its kind has no use for is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkConfig {
    /// Where it leads.
    pub kind: SinkKind,
    /// The address: of the server (the usual path is added), or with a path of its own. Polar has a usual one.
    pub url: Option<String>,
    /// The environment variable with the key: a bearer token, or for a webhook the signing key (`whsec_…`).
    pub key_env: Option<String>,
    /// `file`: the folder. It is made if it is not there.
    pub folder: Option<PathBuf>,
    /// `file`: a file of this many bytes is closed and the next one begun. Usual: 100,000,000.
    pub rotate_bytes: Option<u64>,
    /// `file`: a file that is this old is closed, in seconds. Usual: a day.
    pub rotate_seconds: Option<u64>,
    /// `cloudevents`: `source` of every event. Receivers know duplicates by it: it must never change. Usual: `playhouse`.
    pub source: Option<String>,
    /// `cloudevents`: `type` of every event; `polar`: its name. Usual: `playhouse.usage`.
    pub event: Option<String>,
    /// `polar`: the organization, where the token is not an organization's own.
    pub organization: Option<String>,
    /// Where it begins the first time.
    pub start: Start,
    /// The most rows of a batch (`report`: requests under way at once). Usual: 500 (100 for a webhook, 16 for reports).
    pub batch_rows: Option<usize>,
    /// The most bytes of a batch. Usual: 1,000,000.
    pub batch_bytes: Option<usize>,
    /// How long a batch that is not full waits for more rows, in milliseconds. Usual: 250.
    pub linger_ms: Option<u64>,
    /// How long a server may take to answer, in milliseconds. Usual: 30,000.
    pub timeout_ms: Option<u64>,
    /// The first wait after a failure, in milliseconds; the next ones double. Usual: 500.
    pub retry_first_ms: Option<u64>,
    /// The longest wait after failures, and the one where key or address are wrong, in milliseconds. Usual: 60,000.
    pub retry_longest_ms: Option<u64>,
}

impl SinkConfig {
    /// A sink of this kind with usual values.
    pub fn new(kind: SinkKind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Looks for keys that do not fit the kind, and for values that make no sense.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(crate) fn check_values(&self, name: &str) -> Result<(), ConfigError> {
        use SinkKind::{Cloudevents, File, Polar};
        let wrong = |key, problem: String| Err(ConfigError { sink: name.to_owned(), key, problem });
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(is_plain) {
            let sink = name.chars().take(LONGEST_NAME).collect();
            let problem = format!(
                "is not the name of a sink: use 1 to {LONGEST_NAME} letters, digits, hyphens and underscores"
            );
            return Err(ConfigError { sink, key: "", problem });
        }
        let of_its_kind: [(&'static str, bool, &[SinkKind]); 6] = [
            ("folder", self.folder.is_some(), &[File]),
            ("rotate_bytes", self.rotate_bytes.is_some(), &[File]),
            ("rotate_seconds", self.rotate_seconds.is_some(), &[File]),
            ("source", self.source.is_some(), &[Cloudevents]),
            ("event", self.event.is_some(), &[Cloudevents, Polar]),
            ("organization", self.organization.is_some(), &[Polar]),
        ];
        for (key, is_set, kinds) in of_its_kind {
            if is_set && !kinds.contains(&self.kind) {
                return wrong(
                    key,
                    format!("has no meaning for a sink of kind {}: remove it", self.kind.name()),
                );
            }
        }
        if self.kind == File {
            for (key, is_set) in [
                ("url", self.url.is_some()),
                ("key_env", self.key_env.is_some()),
                ("timeout_ms", self.timeout_ms.is_some()),
            ] {
                if is_set {
                    return wrong(key, "has no meaning for a sink of kind file: remove it".to_owned());
                }
            }
        }
        for (key, text) in
            [("source", &self.source), ("event", &self.event), ("organization", &self.organization)]
        {
            if text.as_ref().is_some_and(|text| text.is_empty() || text.len() > 128) {
                return wrong(key, "must have 1 to 128 characters".to_owned());
            }
        }
        let most = if self.kind == SinkKind::Report { MOST_AT_ONCE } else { MOST_ROWS };
        if self.batch_rows.is_some_and(|rows| rows == 0 || rows > most) {
            return wrong("batch_rows", format!("must be from 1 to {most}"));
        }
        for (key, number) in [
            ("rotate_bytes", self.rotate_bytes),
            ("rotate_seconds", self.rotate_seconds),
            ("batch_bytes", self.batch_bytes.map(|bytes| bytes as u64)),
            ("timeout_ms", self.timeout_ms),
            ("retry_first_ms", self.retry_first_ms),
            ("retry_longest_ms", self.retry_longest_ms),
        ] {
            if number == Some(0) {
                return wrong(key, "must be more than 0".to_owned());
            }
        }
        Ok(())
    }

    /// The rules of delivery that follow from it.
    pub(crate) fn policy(&self) -> Policy {
        let usual = Policy::default();
        let rows = match self.kind {
            SinkKind::Webhook => 100,
            SinkKind::Report => 16,
            _ => usual.rows,
        };
        let longest_wait_ms = self.retry_longest_ms.unwrap_or(usual.longest_wait_ms);
        Policy {
            rows: self.batch_rows.unwrap_or(rows),
            bytes: self.batch_bytes.unwrap_or(usual.bytes),
            each: self.kind == SinkKind::Report,
            linger_ms: self.linger_ms.unwrap_or(usual.linger_ms),
            first_wait_ms: self.retry_first_ms.unwrap_or(usual.first_wait_ms).min(longest_wait_ms),
            longest_wait_ms,
            slow_wait_ms: longest_wait_ms,
            ..usual
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(change: impl FnOnce(&mut SinkConfig)) -> String {
        let mut config = SinkConfig::new(SinkKind::Webhook);
        change(&mut config);
        config.check_values("money").map_err(|error| error.to_string()).unwrap_err()
    }

    #[test]
    fn what_does_not_fit_is_told_with_what_to_do() {
        let file = |config: &mut SinkConfig| config.folder = Some("/tmp".into());
        assert_eq!(problem(file), "sinks.money.folder has no meaning for a sink of kind webhook: remove it");
        let file = |config: &mut SinkConfig| {
            config.kind = SinkKind::File;
            config.key_env = Some("KEY".to_owned());
        };
        assert_eq!(problem(file), "sinks.money.key_env has no meaning for a sink of kind file: remove it");
        assert_eq!(
            problem(|config| config.batch_rows = Some(0)),
            "sinks.money.batch_rows must be from 1 to 10000"
        );
        assert_eq!(
            problem(|config| config.timeout_ms = Some(0)),
            "sinks.money.timeout_ms must be more than 0"
        );
    }

    #[test]
    fn names_are_safe_on_the_shelf() {
        let config = SinkConfig::new(SinkKind::File);
        for name in ["", "a/b", "a b", "é", &"x".repeat(65)] {
            assert!(config.check_values(name).is_err(), "{name}");
        }
        assert_eq!(config.check_values("a-B_1"), Ok(()));
    }
}
