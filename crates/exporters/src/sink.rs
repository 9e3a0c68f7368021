//! A sink whose configuration was checked and whose keys were found.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use playhouse_billing::export::cloudevents::CloudEvents;
use playhouse_billing::export::line::Lines;
use playhouse_billing::export::polar::Polar;
use playhouse_billing::export::report::Reports;
use playhouse_billing::export::webhook::Webhook;
use playhouse_billing::export::{Policy, Shape};
use reqwest::Url;
use secrecy::SecretString;

use crate::config::{ConfigError, SinkConfig, SinkKind, Start};
use crate::file::Rotation;
use crate::http::{Server, address};
use crate::keys::Keys;

/// How long a server may take to answer, where nothing else is wanted.
const TIMEOUT_MS: u64 = 30_000;
const ROTATE_BYTES: u64 = 100_000_000;
const ROTATE_SECONDS: u64 = 24 * 3_600;
const POLAR: &str = "https://api.polar.sh";
const EVENT: &str = "playhouse.usage";
const TURN_EVENT: &str = "playhouse.turn";
const SOURCE: &str = "playhouse";

/// A sink that can be started. Clones are the same sink: only one of them may be started at a time.
#[derive(Clone)]
pub struct Sink {
    pub(crate) name: Arc<str>,
    pub(crate) kind: SinkKind,
    pub(crate) start: Start,
    pub(crate) policy: Policy,
    pub(crate) shape: Arc<dyn Shape>,
    pub(crate) target: Target,
}

/// Where it leads.
#[derive(Clone)]
pub(crate) enum Target {
    Server(Arc<Server>),
    Folder { folder: PathBuf, rotation: Rotation },
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Sink {
    /// Checks a configuration. `secret` reads a variable of the environment; what it gives is kept in memory only.
    ///
    /// # Errors
    /// Something is missing or makes no sense, or the variable of the key is not set.
    pub fn new(
        name: &str,
        config: &SinkConfig,
        secret: &dyn Fn(&str) -> Option<SecretString>,
    ) -> Result<Self, ConfigError> {
        config.check_values(name)?;
        let shape = shape(config);
        let policy = config.policy();
        let target = match config.kind {
            SinkKind::File => folder(name, config)?,
            _ => Target::Server(Arc::new(Server {
                url: url(name, config, &*shape)?,
                keys: keys(name, config, secret)?,
                timeout: Duration::from_millis(config.timeout_ms.unwrap_or(TIMEOUT_MS)),
                shape: Arc::clone(&shape),
                each: policy.each,
            })),
        };
        Ok(Self { name: name.into(), kind: config.kind, start: config.start, policy, shape, target })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is.
    pub fn kind(&self) -> SinkKind {
        self.kind
    }

    /// Where it leads, for people: an address without what may be secret in it, or a folder.
    pub fn address(&self) -> String {
        match &self.target {
            Target::Server(server) => address(&server.url),
            Target::Folder { folder, .. } => folder.display().to_string(),
        }
    }
}

impl SinkConfig {
    /// Checks everything but the value of the key, which [`Sink::new`] needs.
    ///
    /// # Errors
    /// The first thing that is missing or makes no sense.
    pub fn check(&self, name: &str) -> Result<(), ConfigError> {
        self.check_values(name)?;
        match self.kind {
            SinkKind::File => folder(name, self).map(drop),
            _ => {
                url(name, self, &*shape(self))?;
                variable(name, self).map(drop)
            }
        }
    }
}

/// In which form this sink wants what it gets.
fn shape(config: &SinkConfig) -> Arc<dyn Shape> {
    let text = |text: &Option<String>, usual: &str| text.clone().unwrap_or_else(|| usual.to_owned());
    match config.kind {
        SinkKind::File => Arc::new(Lines),
        SinkKind::Cloudevents => {
            Arc::new(CloudEvents { source: text(&config.source, SOURCE), kind: text(&config.event, EVENT) })
        }
        SinkKind::Polar => Arc::new(Polar {
            name: text(&config.event, EVENT),
            turn_name: TURN_EVENT.to_owned(),
            organization: config.organization.clone(),
        }),
        SinkKind::Webhook => Arc::new(Webhook),
        SinkKind::Report => Arc::new(Reports),
    }
}

fn wrong<T>(name: &str, key: &'static str, problem: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError { sink: name.to_owned(), key, problem: problem.into() })
}

fn folder(name: &str, config: &SinkConfig) -> Result<Target, ConfigError> {
    let Some(folder) = config.folder.clone().filter(|folder| folder.is_absolute()) else {
        return wrong(name, "folder", "is needed: name the folder for the files, with its whole path");
    };
    let rotation = Rotation {
        bytes: config.rotate_bytes.unwrap_or(ROTATE_BYTES),
        millis: config.rotate_seconds.unwrap_or(ROTATE_SECONDS).saturating_mul(1_000),
    };
    Ok(Target::Folder { folder, rotation })
}

fn url(name: &str, config: &SinkConfig, shape: &dyn Shape) -> Result<Url, ConfigError> {
    let text = match (&config.url, config.kind) {
        (Some(url), _) => url,
        (None, SinkKind::Polar) => POLAR,
        (None, _) => return wrong(name, "url", "is needed: name the address of the server"),
    };
    let Ok(mut url) = Url::parse(text) else {
        return wrong(name, "url", "is no address of the web: it must begin with https:// or http://");
    };
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return wrong(name, "url", "is no address of the web: it must begin with https:// or http://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return wrong(
            name,
            "url",
            "holds a user or a password: put the key into a variable and name it as key_env",
        );
    }
    if url.path() == "/" && !shape.path().is_empty() {
        url.set_path(shape.path());
    }
    Ok(url)
}

/// The variable that holds the key, for a sink that has one.
fn variable<'a>(name: &str, config: &'a SinkConfig) -> Result<Option<&'a str>, ConfigError> {
    match (&config.key_env, config.kind) {
        (Some(variable), _) => Ok(Some(variable)),
        (None, SinkKind::Polar) => {
            wrong(name, "key_env", "is needed: name the variable that holds the access token")
        }
        (None, SinkKind::Webhook) => {
            wrong(name, "key_env", "is needed: name the variable that holds the signing key (`whsec_…`)")
        }
        (None, _) => Ok(None),
    }
}

fn keys(
    name: &str,
    config: &SinkConfig,
    secret: &dyn Fn(&str) -> Option<SecretString>,
) -> Result<Keys, ConfigError> {
    let Some(variable) = variable(name, config)? else { return Ok(Keys::default()) };
    let Some(key) = secret(variable) else {
        return wrong(
            name,
            "key_env",
            format!("names the variable {variable}, which is not set: set it to the key"),
        );
    };
    let keys = match config.kind {
        SinkKind::Webhook => Keys::signing(key),
        _ => Keys::bearer(key).map_err(str::to_owned),
    };
    keys.or_else(|problem| {
        wrong(name, "key_env", format!("names the variable {variable}, whose value {problem}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(kind: SinkKind, change: impl FnOnce(&mut SinkConfig)) -> Result<Sink, String> {
        let mut config = SinkConfig::new(kind);
        change(&mut config);
        let vault = |name: &str| (name == "KEY").then(|| SecretString::from("top-secret-key".to_owned()));
        Sink::new("money", &config, &vault).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_without_a_path_gets_the_usual_one() {
        let at = |url: &str| {
            sink(SinkKind::Cloudevents, |config| config.url = Some(url.to_owned())).unwrap().address()
        };
        assert_eq!(at("https://openmeter.example"), "https://openmeter.example/api/v1/events");
        assert_eq!(at("http://localhost:8888/"), "http://localhost:8888/api/v1/events");
        assert_eq!(at("https://gate.example/meter?key=1"), "https://gate.example/meter");
    }

    #[test]
    fn what_is_missing_is_told() {
        for (kind, change, fragment) in [
            (SinkKind::Webhook, (|_| ()) as fn(&mut SinkConfig), "url is needed"),
            (SinkKind::Polar, |_| (), "key_env is needed: name the variable that holds the access token"),
            (SinkKind::File, |_| (), "folder is needed"),
            (SinkKind::File, |config| config.folder = Some("here".into()), "with its whole path"),
            (
                SinkKind::Polar,
                |config| config.key_env = Some("NO".to_owned()),
                "variable NO, which is not set",
            ),
            (SinkKind::Report, |config| config.url = Some("ftp://a".to_owned()), "no address of the web"),
            (
                SinkKind::Report,
                |config| config.url = Some("https://ada:pw@a".to_owned()),
                "a user or a password",
            ),
            (
                SinkKind::Webhook,
                |config| {
                    config.url = Some("https://a".to_owned());
                    config.key_env = Some("KEY".to_owned());
                },
                "names the variable KEY, whose value is not a key of webhooks",
            ),
        ] {
            let error = sink(kind, change).unwrap_err();
            assert!(error.contains(fragment), "{error}");
            assert!(!error.contains("top-secret") && !error.contains("pw"), "{error}");
        }
    }
}
