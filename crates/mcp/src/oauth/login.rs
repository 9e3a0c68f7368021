//! A login, from its beginning to the token.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use playhouse_tools::web::{Door, Url};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, CredentialStore as _, InMemoryCredentialStore,
    OAuthClientConfig, OAuthHttpClient,
};
use thiserror::Error;
use tokio::time::Instant;

use super::client::DoorClient;
use super::grant::{Client, Grant};
use super::loopback::Redirected;
use super::settings::OAuth;
use crate::text::line;

/// How long somebody may take to log in.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);
/// How the engine calls itself where it registers.
const NAME: &str = "Playhouse";
/// The longest part of what went wrong, in bytes.
const SAID: usize = 500;

/// Why a login cannot be begun or ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoginError {
    /// The server has none, or it is switched off.
    #[error("{0}")]
    Unsupported(String),
    /// The authorization server does not register clients by itself.
    #[error("{0}")]
    Registration(String),
    /// What came back belongs to no login that is under way.
    #[error("no login with this state is under way: it ended, or was begun elsewhere; begin it anew")]
    Unknown,
    /// Something failed on the way.
    #[error("{0}")]
    Failed(String),
}

/// A login that waits for somebody.
#[derive(Clone)]
pub struct Begun {
    /// The address that they have to open in a browser.
    pub url: String,
    /// Where the browser is sent when they are done.
    pub redirect: String,
    /// Which login it is, in what the browser brings back.
    pub state: String,
}

impl std::fmt::Debug for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Begun").field("redirect", &self.redirect).finish_non_exhaustive()
    }
}

/// A login that is under way.
pub(super) struct Pending {
    manager: AuthorizationManager,
    http: Arc<DoorClient>,
    memory: InMemoryCredentialStore,
    metadata: AuthorizationMetadata,
    client: Client,
    resource: String,
    scopes: Vec<String>,
    pub(super) begun: Begun,
    pub(super) until: Instant,
}

/// What a login is begun with.
pub(super) struct Wish<'a> {
    pub(super) url: &'a str,
    pub(super) oauth: &'a OAuth,
    pub(super) door: &'a Door,
    pub(super) redirect: &'a str,
    /// How the server asked for it, in the words of `WWW-Authenticate`.
    pub(super) challenge: Option<&'a str>,
    /// The login before.
    pub(super) before: Option<&'a Grant>,
}

/// The server's own authorization server, and what speaks to it.
pub(super) struct Found {
    pub(super) manager: AuthorizationManager,
    pub(super) http: Arc<DoorClient>,
    pub(super) memory: InMemoryCredentialStore,
    pub(super) metadata: AuthorizationMetadata,
    is_published: bool,
}

/// A manager of the library over the guarded client.
pub(super) async fn manager(
    url: &str,
    door: &Door,
) -> Result<(AuthorizationManager, Arc<DoorClient>, InMemoryCredentialStore), LoginError> {
    let http = Arc::new(DoorClient::new(door.clone()));
    let client: Arc<dyn OAuthHttpClient> = Arc::<DoorClient>::clone(&http);
    let made = AuthorizationManager::new_with_oauth_http_client(url, client).await;
    let mut manager = made.map_err(|error| failed("its address cannot be used", &error, &http, &[]))?;
    let memory = InMemoryCredentialStore::new();
    manager.set_credential_store(memory.clone());
    Ok((manager, http, memory))
}

/// Finds the authorization server of a server.
pub(super) async fn discover(url: &str, door: &Door, challenge: Option<&str>) -> Result<Found, LoginError> {
    let (mut manager, http, memory) = manager(url, door).await?;
    let resolved = manager.resolve_metadata_from_challenge(challenge).await;
    let resolved =
        resolved.map_err(|error| failed("its authorization server cannot be found", &error, &http, &[]))?;
    let is_published = resolved.source.is_discovered();
    let metadata = resolved.metadata;
    manager.set_metadata(metadata.clone());
    Ok(Found { manager, http, memory, metadata, is_published })
}

impl Pending {
    /// Begins a login.
    pub(super) async fn begin(wish: Wish<'_>) -> Result<Self, LoginError> {
        let Wish { url, oauth, door, redirect, challenge, before } = wish;
        check_redirect(redirect)?;
        let Found { mut manager, http, memory, metadata, is_published } =
            discover(url, door, challenge).await?;
        // Servers of the first revision publish nothing: what they can is not known.
        let has_pkce =
            metadata.code_challenge_methods_supported.as_ref().map(|all| all.iter().any(|one| one == "S256"));
        if has_pkce == Some(false) || (has_pkce.is_none() && is_published) {
            return Err(LoginError::Unsupported(
                "its authorization server does not say that it supports PKCE with S256, without which a login is not safe"
                    .to_owned(),
            ));
        }
        let before = before.filter(|before| before.metadata.issuer == metadata.issuer);
        let mut scopes = match &*oauth.scopes {
            [] => manager.select_initial_scopes(&[]).await,
            declared => declared.to_vec(),
        };
        for scope in before.iter().flat_map(|before| before.scopes.iter().chain(&before.wanted)) {
            if !scopes.contains(scope) {
                scopes.push(scope.clone());
            }
        }
        let named: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let (client, config) = match chosen(oauth, &metadata, before, redirect) {
            Some(client) => (client.clone(), client.config(oauth)),
            None => {
                if metadata.registration_endpoint.is_none() {
                    return Err(LoginError::Registration(
                        "its authorization server does not register clients by itself: register one there, and configure `oauth.client_id`"
                            .to_owned(),
                    ));
                }
                let registered = manager.register_client(NAME, redirect, &named).await;
                let config: OAuthClientConfig = registered.map_err(|error| {
                    match failed(
                        "the engine cannot be registered at its authorization server",
                        &error,
                        &http,
                        &[],
                    ) {
                        LoginError::Failed(reason) => LoginError::Registration(reason),
                        other => other,
                    }
                })?;
                let (id, secret) = (config.client_id.clone(), config.client_secret.clone());
                (Client { id, secret, redirect: redirect.to_owned(), is_registered: true }, config)
            }
        };
        manager
            .configure_client(config)
            .map_err(|error| failed("its authorization server cannot be used", &error, &http, &[]))?;
        let address = manager
            .get_authorization_url(&named)
            .await
            .map_err(|error| failed("the login cannot be begun", &error, &http, &[]))?;
        let parsed = Url::parse(&address).map_err(|error| LoginError::Failed(error.to_string()))?;
        // Opened by a person, but named by the server all the same.
        let mut bare = parsed.clone();
        bare.set_query(None);
        door.check(&bare).map_err(|error| LoginError::Failed(error.to_string()))?;
        let of = |name: &str| {
            parsed.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
        };
        let state = of("state").unwrap_or_default();
        let resource = of("resource").unwrap_or_else(|| url.to_owned());
        let begun = Begun { url: address, redirect: redirect.to_owned(), state };
        let until = Instant::now() + PATIENCE;
        Ok(Self { manager, http, memory, metadata, client, resource, scopes, begun, until })
    }

    /// Exchanges what a browser brought back for a token.
    pub(super) async fn finish(&self, redirected: &Redirected) -> Result<Grant, LoginError> {
        let Redirected { code, state, issuer } = redirected;
        let exchanged =
            self.manager.exchange_code_for_token_with_issuer(code, state, issuer.as_deref()).await;
        let secrets: Vec<String> = self.client.secret.iter().chain([code]).cloned().collect();
        exchanged.map_err(|error| failed("the login failed", &error, &self.http, &secrets))?;
        let credentials = self.memory.load().await.ok().flatten();
        let credentials =
            credentials.ok_or_else(|| LoginError::Failed("the login brought no token".to_owned()))?;
        let (resource, metadata) = (self.resource.clone(), self.metadata.clone());
        Ok(Grant::new(resource, metadata, self.client.clone(), self.scopes.clone(), credentials))
    }
}

/// The client that logs in, unless the engine has to register itself.
fn chosen(
    oauth: &OAuth,
    metadata: &AuthorizationMetadata,
    before: Option<&Grant>,
    redirect: &str,
) -> Option<Client> {
    let plain = |id: &str| Client {
        id: id.to_owned(),
        secret: None,
        redirect: redirect.to_owned(),
        is_registered: false,
    };
    if let Some(client) = &oauth.client {
        return Some(plain(&client.id));
    }
    let documents = metadata.additional_fields.get("client_id_metadata_document_supported");
    let takes_documents = documents.and_then(serde_json::Value::as_bool).unwrap_or_default();
    if let Some(url) = oauth.client_metadata_url.as_deref().filter(|_| takes_documents) {
        return Some(plain(url));
    }
    let known = before.map(|before| &before.client);
    known.filter(|client| client.is_registered && client.redirect == redirect).cloned()
}

/// A browser is sent back to this machine, or to a place that is encrypted.
fn check_redirect(redirect: &str) -> Result<(), LoginError> {
    let wrong = || {
        LoginError::Failed(
            "the address to come back to begins with https://, or leads to this machine as http://127.0.0.1:PORT/…"
                .to_owned(),
        )
    };
    let url = Url::parse(redirect).map_err(|_| wrong())?;
    let is_own = matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_own => Ok(()),
        _ => Err(wrong()),
    }
}

/// An error of the library, without secrets.
pub(super) fn failed(what: &str, error: &AuthError, http: &DoorClient, secrets: &[String]) -> LoginError {
    let mut words = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push(error.to_string());
        cause = error.source();
    }
    words.extend(http.failure());
    words.dedup();
    let mut text = words.join(": ");
    for secret in secrets.iter().filter(|secret| secret.len() >= 6) {
        text = text.replace(secret, "…");
    }
    let text = format!("{what}: {}", line(&text, SAID));
    match error {
        AuthError::PkceUnsupported | AuthError::NoAuthorizationSupport => LoginError::Unsupported(text),
        _ => LoginError::Failed(text),
    }
}
