//! A login as it is kept.

use std::time::{SystemTime, UNIX_EPOCH};

use rmcp::transport::auth::{AuthorizationMetadata, OAuthClientConfig, StoredCredentials};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::settings::OAuth;

/// The version of the format.
const VERSION: u32 = 1;
/// A token is renewed this long before its end, in seconds, or when half of its life is over.
const EARLY: u64 = 30;

/// A login.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Grant {
    version: u32,
    /// Counts what was kept in this place: of two that replace the same one, the second notices.
    pub(super) generation: u64,
    /// What the tokens are for.
    pub(super) resource: String,
    /// The authorization server.
    pub(super) metadata: AuthorizationMetadata,
    pub(super) client: Client,
    /// The scopes that were asked for.
    pub(super) scopes: Vec<String>,
    /// Scopes that the server wanted since.
    #[serde(default)]
    pub(super) wanted: Vec<String>,
    credentials: StoredCredentials,
    /// Why nothing can be renewed any more.
    #[serde(default)]
    pub(super) over: Option<String>,
}

/// The client that logged in.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Client {
    pub(super) id: String,
    /// Its secret, if it registered itself and got one.
    pub(super) secret: Option<String>,
    pub(super) redirect: String,
    pub(super) is_registered: bool,
}

impl Client {
    /// The client as the library has it, with the secret that is declared now.
    pub(super) fn config(&self, oauth: &OAuth) -> OAuthClientConfig {
        let declared = oauth.client.as_ref().filter(|client| client.id == self.id);
        let declared = declared.and_then(|client| client.secret.as_ref());
        let secret = declared.map(|secret| secret.expose_secret().to_owned()).or_else(|| self.secret.clone());
        let config = OAuthClientConfig::new(self.id.clone(), self.redirect.clone());
        match secret {
            Some(secret) => config.with_client_secret(secret),
            None => config,
        }
    }
}

impl Grant {
    pub(super) fn new(
        resource: String,
        metadata: AuthorizationMetadata,
        client: Client,
        scopes: Vec<String>,
        credentials: StoredCredentials,
    ) -> Self {
        let (version, generation) = (VERSION, 1);
        Self {
            version,
            generation,
            resource,
            metadata,
            client,
            scopes,
            wanted: Vec::new(),
            credentials,
            over: None,
        }
    }

    /// Reads one that is kept.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let grant: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match grant.version {
            VERSION => Ok(grant),
            other => {
                Err(format!("it has version {other} of the format, and this program reads version {VERSION}"))
            }
        }
    }

    pub(super) fn credentials(&self) -> StoredCredentials {
        self.credentials.clone()
    }

    /// Takes tokens that were renewed over.
    pub(super) fn renew(&mut self, credentials: StoredCredentials) {
        (self.credentials, self.over) = (credentials, None);
        self.generation += 1;
    }

    fn tokens(&self) -> Value {
        serde_json::to_value(&self.credentials.token_response).unwrap_or_default()
    }

    fn text(&self, name: &str) -> Option<String> {
        self.tokens()[name].as_str().map(str::to_owned)
    }

    /// The token of requests.
    pub(super) fn access(&self) -> Option<SecretString> {
        self.text("access_token").map(SecretString::from)
    }

    pub(super) fn can_renew(&self) -> bool {
        self.over.is_none() && self.text("refresh_token").is_some()
    }

    /// How the token stands now.
    pub(super) fn age(&self) -> Age {
        let lives = self.tokens()["expires_in"].as_u64();
        let (Some(lives), Some(since)) = (lives, self.credentials.token_received_at) else {
            return Age::Good;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let left = (since + lives).saturating_sub(now);
        match left {
            0 => Age::Over,
            left if left < EARLY.min(lives / 2) => Age::Late,
            _ => Age::Good,
        }
    }

    /// All secrets of it, for texts that shall not have them.
    pub(super) fn secrets(&self) -> Vec<String> {
        let tokens = ["access_token", "refresh_token", "id_token"].map(|name| self.text(name));
        tokens.into_iter().flatten().chain(self.client.secret.clone()).collect()
    }
}

/// How old a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    Good,
    /// It ends soon.
    Late,
    Over,
}
