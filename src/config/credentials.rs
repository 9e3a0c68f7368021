//! Keys from variables of the environment: the first way to have some.

use std::collections::BTreeMap;
use std::sync::Arc;

use playhouse_llm::Credentials;
use playhouse_protocol::{ErrorCode, ErrorInfo};
use secrecy::SecretString;

use super::error::ConfigError;
use super::settings::{Settings, Variables};

/// A variable that may hold a provider's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyVariable {
    /// The variable.
    pub name: String,
    /// Whether the key goes out as `authorization: Bearer …`, whatever the dialect's own header is.
    pub bearer: bool,
}

/// A key, and how it goes out.
#[derive(Clone, Debug)]
pub struct ProviderKey {
    /// The key.
    pub secret: SecretString,
    /// The variable that it came from, for messages.
    pub variable: Option<String>,
    /// The value of an `authorization` header with which it goes out; `None` for the dialect's own header.
    pub bearer: Option<SecretString>,
}

impl ProviderKey {
    /// A key that goes out in the dialect's own header, from no variable.
    pub fn new(secret: SecretString) -> Self {
        Self { secret, variable: None, bearer: None }
    }
}

/// Gives the value of a variable, from any thread.
type Read = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The keys that the environment holds, the same for every tenant: what an engine has without
/// [`HouseBuilder::credentials`](crate::HouseBuilder::credentials).
pub struct EnvironmentCredentials {
    /// Variables by provider.
    variables: BTreeMap<String, Vec<KeyVariable>>,
    read: Arc<Read>,
}

impl EnvironmentCredentials {
    /// The keys of all providers of `settings`, whose variables `read` gives.
    pub fn new(settings: &Settings, read: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        let variables =
            settings.providers.iter().map(|(name, provider)| (name.clone(), provider.keys.clone())).collect();
        Self { variables, read: Arc::new(read) }
    }

    /// The key of `provider`; `None` for one that needs none, or that is not known.
    ///
    /// # Errors
    /// No variable that may hold it does.
    pub fn of(&self, provider: &str) -> Result<Option<ProviderKey>, ConfigError> {
        self.variables.get(provider).map_or(Ok(None), |keys| find(provider, keys, &*self.read))
    }
}

impl Credentials for EnvironmentCredentials {
    fn key(&self, _tenant: &str, provider: &str) -> Result<Option<SecretString>, ErrorInfo> {
        let key = self
            .of(provider)
            .map_err(|error| ErrorInfo::new(ErrorCode::Authentication, error.to_string()))?;
        Ok(key.map(|key| key.secret))
    }
}

/// The key in the first of `keys` that is set; `None` where there are no such variables.
pub(super) fn find(
    provider: &str,
    keys: &[KeyVariable],
    variables: Variables<'_>,
) -> Result<Option<ProviderKey>, ConfigError> {
    let set = |key: &&KeyVariable| variables(&key.name).is_some_and(|value| !value.trim().is_empty());
    let Some(key) = keys.iter().find(set).or(keys.first()) else { return Ok(None) };
    let value = variables(&key.name).unwrap_or_default();
    let value = check(&value).map_err(|reason| ConfigError::MissingKey {
        provider: provider.to_owned(),
        variable: key.name.clone(),
        reason: if variables(&key.name).is_none() { "is not set" } else { reason },
    })?;
    Ok(Some(ProviderKey {
        secret: SecretString::from(value),
        variable: Some(key.name.clone()),
        bearer: key.bearer.then(|| SecretString::from(format!("Bearer {value}"))),
    }))
}

/// The key in what a variable holds, or what is wrong with it. White space around it is an accident of shells and files.
fn check(value: &str) -> Result<&str, &'static str> {
    let value = value.trim();
    if value.is_empty() {
        return Err("is empty");
    }
    if !value.chars().all(|c| c.is_ascii_graphic()) {
        return Err("holds characters that no key has");
    }
    Ok(value)
}
