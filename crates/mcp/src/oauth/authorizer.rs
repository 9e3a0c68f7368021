//! The login of one tenant at one server.

use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use playhouse_sandbox::blocking;
use playhouse_tools::web::{Door, HeaderValue};
use rmcp::transport::auth::{AuthError, ClientCredentialsConfig, CredentialStore as _};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::grant::{Age, Client, Grant};
use super::login::{Begun, Found, LoginError, Pending, Wish, discover, failed, manager};
use super::loopback::Redirected;
use super::settings::{GrantType, OAuth};
use super::vault::{Vault, VaultFile, VaultLock};
use crate::entry::{ServerEntry, Transport};

/// Number of logins of one tenant at one server that may be under way. Another one ends the oldest.
const LOGINS: usize = 8;

/// What a request is sent with.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(HeaderValue);

impl Token {
    /// The value of the header `Authorization`.
    pub fn header(&self) -> &HeaderValue {
        &self.0
    }

    fn of(grant: &Grant) -> Option<Self> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", grant.access()?.expose_secret())).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// What somebody has to do before the server can be used. Texts for users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// To log in.
    Login(String),
    /// To register a client at the authorization server, and to configure it.
    Registration(String),
}

impl Need {
    /// What to do.
    pub fn reason(&self) -> &str {
        match self {
            Self::Login(reason) | Self::Registration(reason) => reason,
        }
    }
}

/// Why a request cannot be authorized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Somebody has to do something.
    Need(String),
    /// It may work later.
    Failed(String),
}

/// Opens the address of a login, and returns the address to which that led: a login without people, for tests of the protocol.
pub type Visitor = Arc<dyn Fn(String) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// The login of one tenant at one server. Clones are the same.
#[derive(Clone)]
pub struct Authorizer(Arc<Inner>);

struct Inner {
    server: String,
    url: String,
    oauth: OAuth,
    door: Door,
    /// Where it is kept.
    file: Option<VaultFile>,
    /// Held while tokens are renewed.
    state: tokio::sync::Mutex<State>,
    need: Mutex<Option<Need>>,
    /// What of it is noted on disk, for processes that have not asked the server yet.
    noted: Mutex<Option<Need>>,
    /// How the server asked for a login last.
    challenge: Mutex<Option<String>>,
    pending: Mutex<Vec<Arc<Pending>>>,
    /// What requests were sent with last, for texts that shall not have it.
    last: Mutex<Option<Token>>,
    visitor: Option<(String, Visitor)>,
}

#[derive(Default)]
struct State {
    is_loaded: bool,
    grant: Option<Grant>,
}

impl std::fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorizer").field("server", &self.0.server).finish_non_exhaustive()
    }
}

impl Authorizer {
    /// The login of a tenant at the server of an entry, kept in a vault if there is one. Reads one small file. `None` for a server that has no logins: a
    /// program, one with a header `Authorization`, and one whose entry switches them off.
    pub fn new(entry: &ServerEntry, door: Door, kept: Option<(&Vault, &str)>) -> Option<Self> {
        Self::with(entry, door, kept, None)
    }

    /// One that logs in by itself, and sends the browser that nobody has to `redirect`. Nothing is kept.
    pub fn unattended(entry: &ServerEntry, door: Door, redirect: String, visitor: Visitor) -> Option<Self> {
        Self::with(entry, door, None, Some((redirect, visitor)))
    }

    fn with(
        entry: &ServerEntry,
        door: Door,
        kept: Option<(&Vault, &str)>,
        visitor: Option<(String, Visitor)>,
    ) -> Option<Self> {
        let Transport::Http(http) = &entry.transport else { return None };
        if !http.has_logins() {
            return None;
        }
        let oauth = http.oauth.clone();
        // Without people a token is had anew at any time.
        let kept = kept.filter(|_| oauth.grant == GrantType::AuthorizationCode);
        let file = kept.map(|(vault, tenant)| vault.file(tenant, &entry.login_hash()));
        let need: Option<Need> =
            file.as_ref().and_then(VaultFile::note).and_then(|note| serde_json::from_slice(&note).ok());
        Some(Self(Arc::new(Inner {
            server: entry.name.clone(),
            url: http.url.clone(),
            oauth,
            door,
            file,
            state: tokio::sync::Mutex::default(),
            need: Mutex::new(need.clone()),
            noted: Mutex::new(need),
            challenge: Mutex::default(),
            pending: Mutex::default(),
            last: Mutex::default(),
            visitor,
        })))
    }

    /// What has to be done before the server can be used, as far as it is known.
    pub fn need(&self) -> Option<Need> {
        self.0.need.lock().clone()
    }

    /// Begins a login. The browser shall be sent back to `redirect`.
    ///
    /// # Errors
    /// The server has no logins, or its authorization server cannot be used.
    pub async fn begin(&self, redirect: &str) -> Result<Begun, LoginError> {
        let inner = &self.0;
        if inner.oauth.grant == GrantType::ClientCredentials {
            return Err(LoginError::Unsupported(
                "it is logged in to with `oauth.client_secret_env`, by the engine itself".to_owned(),
            ));
        }
        let before = {
            let mut state = inner.state.lock().await;
            // One that cannot be read is replaced.
            drop(inner.load(&mut state).await);
            state.grant.clone()
        };
        let pending = inner.begun(redirect, before.as_ref()).await;
        inner.note().await;
        let pending = pending?;
        let begun = pending.begun.clone();
        let mut all = inner.pending.lock();
        let now = Instant::now();
        all.retain(|other| other.until > now);
        if all.len() >= LOGINS {
            all.remove(0);
        }
        all.push(Arc::new(pending));
        Ok(begun)
    }

    /// Ends a login with what the browser brought back.
    ///
    /// # Errors
    /// There is no such login, or it failed.
    pub async fn finish(&self, redirected: Redirected) -> Result<(), LoginError> {
        let this = self.clone();
        // A code can be exchanged only once: whoever asked for it may be gone.
        finished(async move {
            let finished = this.0.finish(&redirected).await;
            this.0.note().await;
            finished
        })
        .await
    }

    /// The state of the login that was begun last, for clients that do not tell it.
    pub fn last_state(&self) -> Option<String> {
        self.0.pending.lock().last().map(|pending| pending.begun.state.clone())
    }

    /// Forgets the login, and those that are under way. `false` if there was none.
    ///
    /// # Errors
    /// What is kept cannot be removed.
    pub async fn forget(&self) -> io::Result<bool> {
        let inner = &self.0;
        let mut state = inner.state.lock().await;
        let had = match &inner.file {
            Some(file) => {
                let file = file.clone();
                blocking(move || file.lock().and_then(|_lock| file.remove())).await?
            }
            None => state.grant.is_some(),
        };
        *state = State { is_loaded: true, grant: None };
        inner.pending.lock().clear();
        *inner.need.lock() = None;
        *inner.last.lock() = None;
        inner.note().await;
        Ok(had)
    }

    /// What a request is sent with; renewed if it ends soon.
    pub(crate) async fn token(&self) -> Result<Option<Token>, Refused> {
        let token = {
            let mut state = self.0.state.lock().await;
            if !state.is_loaded {
                self.0.load(&mut state).await.map_err(|error| Refused::Failed(error.to_string()))?;
            }
            match &state.grant {
                None => None,
                Some(grant) if grant.age() == Age::Good => Token::of(grant),
                Some(_) => {
                    drop(state);
                    let this = self.clone();
                    finished(async move { this.0.kept_fresh().await }).await?
                }
            }
        };
        (*self.0.last.lock()).clone_from(&token);
        Ok(token)
    }

    /// What a request is sent with that the server refused (401).
    pub(crate) async fn refused(
        &self,
        used: Option<Token>,
        challenge: Option<&str>,
    ) -> Result<Token, Refused> {
        let (this, challenge) = (self.clone(), challenge.map(str::to_owned));
        let token = finished(async move {
            let renewed = this.0.refused(used, challenge).await;
            this.0.note().await;
            renewed
        })
        .await?;
        *self.0.last.lock() = Some(token.clone());
        Ok(token)
    }

    /// What a request is sent with for which the server wants more scopes (403).
    pub(crate) async fn widened(&self, used: Option<Token>, challenge: &str) -> Result<Token, Refused> {
        let (this, challenge) = (self.clone(), challenge.to_owned());
        let token = finished(async move { this.0.widened(used, challenge).await }).await?;
        *self.0.last.lock() = Some(token.clone());
        Ok(token)
    }

    /// Takes note that the server refuses a token that it was just given, and says what to do.
    pub(crate) fn still_refused(&self) -> String {
        let reason = format!(
            "it refuses the token that its login just brought: run `playhouse mcp auth {}`",
            self.0.server
        );
        *self.0.need.lock() = Some(Need::Login(reason.clone()));
        reason
    }

    /// A text without the token that requests are sent with.
    pub(crate) fn without_token(&self, text: &str) -> String {
        let last = self.0.last.lock().clone();
        let token = last.as_ref().and_then(|token| token.0.to_str().ok()?.strip_prefix("Bearer "));
        token.map_or_else(|| text.to_owned(), |token| text.replace(token, "…"))
    }
}

/// Runs something to its end, even if nobody waits for it any more: a renewal that is cut off may lose the login.
async fn finished<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime ends.
        Err(_) => std::future::pending().await,
    }
}

impl Inner {
    /// What to do about a server that wants a login.
    fn wanted(&self) -> String {
        format!("it wants a login: run `playhouse mcp auth {}`", self.server)
    }

    fn needs(&self, need: Need) -> Refused {
        let reason = need.reason().to_owned();
        *self.need.lock() = Some(need);
        Refused::Need(reason)
    }

    /// Notes on disk what has to be done, if that changed.
    async fn note(&self) {
        let Some(file) = self.file.clone() else { return };
        let need = self.need.lock().clone();
        if std::mem::replace(&mut *self.noted.lock(), need.clone()) == need {
            return;
        }
        let note = need.and_then(|need| serde_json::to_vec(&need).ok());
        if let Err(error) = blocking(move || file.set_note(note.as_deref())).await {
            tracing::warn!(server = self.server, %error, "what a server of tools needs is forgotten when the engine ends");
        }
    }

    /// Reads what is kept, in place of what is known.
    async fn load(&self, state: &mut State) -> io::Result<()> {
        if let Some(file) = self.file.clone() {
            let kept = blocking(move || file.load()).await?;
            let read = |bytes: Vec<u8>| Grant::read(&bytes);
            state.grant = kept.map(read).transpose().map_err(|error| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("the login cannot be read: {error}; log in again"),
                )
            })?;
        }
        state.is_loaded = true;
        Ok(())
    }

    async fn locked(&self) -> Result<Option<VaultLock>, Refused> {
        let Some(file) = self.file.clone() else { return Ok(None) };
        let locked = blocking(move || file.lock()).await;
        locked.map(Some).map_err(|error| Refused::Failed(format!("the login cannot be locked: {error}")))
    }

    /// Keeps the login. One that cannot be written is good until the engine ends.
    async fn save(&self, grant: &Grant) {
        let Some(file) = self.file.clone() else { return };
        let bytes = match serde_json::to_vec(grant) {
            Ok(bytes) => bytes,
            Err(error) => return tracing::error!(server = self.server, %error, "a login cannot be kept"),
        };
        if let Err(error) = blocking(move || file.save(&bytes)).await {
            tracing::error!(server = self.server, %error, "a login cannot be kept");
        }
    }

    /// The token, renewed if it ends soon.
    async fn kept_fresh(&self) -> Result<Option<Token>, Refused> {
        let mut state = self.state.lock().await;
        let Some(grant) = &state.grant else { return Ok(None) };
        let age = grant.age();
        if age != Age::Good {
            match self.renew(&mut state, None).await {
                Err(error) if age == Age::Over && matches!(error, Refused::Failed(_)) => return Err(error),
                // The server says whether the old one is still good.
                Ok(()) | Err(_) => {}
            }
        }
        Ok(state.grant.as_ref().and_then(Token::of))
    }

    async fn refused(&self, used: Option<Token>, challenge: Option<String>) -> Result<Token, Refused> {
        let mut state = self.state.lock().await;
        if challenge.is_some() {
            self.challenge.lock().clone_from(&challenge);
        }
        if let Some(newer) = self.newer(&mut state, used.as_ref()).await? {
            return Ok(newer);
        }
        if state.grant.as_ref().is_some_and(Grant::can_renew) {
            match self.renew(&mut state, used.as_ref()).await {
                Ok(()) => {}
                Err(error @ Refused::Failed(_)) => return Err(error),
                Err(need) if self.visitor.is_none() => return Err(need),
                Err(_) => self.login(&mut state).await?,
            }
        } else {
            self.login(&mut state).await?;
        }
        let token = state.grant.as_ref().and_then(Token::of);
        token
            .filter(|token| Some(token) != used.as_ref())
            .ok_or_else(|| self.needs(Need::Login(self.wanted())))
    }

    async fn widened(&self, used: Option<Token>, challenge: String) -> Result<Token, Refused> {
        let mut state = self.state.lock().await;
        let lock_of_file = self.locked().await?;
        if let Some(newer) = self.newer(&mut state, used.as_ref()).await? {
            return Ok(newer);
        }
        let wanted = scopes_of(&challenge);
        if let Some(grant) = &mut state.grant {
            for scope in &wanted {
                if !grant.scopes.contains(scope) && !grant.wanted.contains(scope) {
                    grant.wanted.push(scope.clone());
                }
            }
            grant.generation += 1;
            self.save(grant).await;
        }
        drop(lock_of_file);
        *self.challenge.lock() = Some(challenge);
        if self.visitor.is_some() || self.oauth.grant == GrantType::ClientCredentials {
            self.login(&mut state).await?;
            let token = state.grant.as_ref().and_then(Token::of);
            return token.ok_or_else(|| Refused::Failed("the login brought no token".to_owned()));
        }
        Err(Refused::Need(format!(
            "it wants more rights for this ({}): run `playhouse mcp auth {}` to grant them",
            wanted.join(" "),
            self.server
        )))
    }

    /// A token that came since this one was used.
    async fn newer(&self, state: &mut State, used: Option<&Token>) -> Result<Option<Token>, Refused> {
        if self.file.is_some() {
            self.load(state)
                .await
                .map_err(|error| self.needs(Need::Login(format!("{error}: {}", self.wanted()))))?;
        }
        let known = state.grant.as_ref().and_then(Token::of);
        Ok(known.filter(|known| Some(known) != used))
    }

    /// Has tokens renewed, once over all processes. `used` is the token that the server refused.
    async fn renew(&self, state: &mut State, used: Option<&Token>) -> Result<(), Refused> {
        if self.oauth.grant == GrantType::ClientCredentials {
            return self.login(state).await;
        }
        let _lock = self.locked().await?;
        if self.file.is_some() {
            let known = state.grant.as_ref().map(|grant| grant.generation);
            self.load(state).await.map_err(|error| Refused::Failed(error.to_string()))?;
            let is_other = state.grant.as_ref().map(|grant| grant.generation) != known;
            let now = state.grant.as_ref().filter(|grant| grant.age() == Age::Good).and_then(Token::of);
            if is_other && now.is_some_and(|now| Some(&now) != used) {
                return Ok(());
            }
        }
        let Some(grant) = state.grant.as_mut().filter(|grant| grant.can_renew()) else {
            return Err(self.needs(Need::Login(self.wanted())));
        };
        let failed_as = |error: LoginError| Refused::Failed(error.to_string());
        let (mut manager, http, memory) = manager(&grant.resource, &self.door).await.map_err(failed_as)?;
        manager.set_metadata(grant.metadata.clone());
        let config = grant.client.config(&self.oauth);
        let mut secrets = grant.secrets();
        secrets.extend(config.client_secret.clone());
        let what = "its login cannot be renewed";
        manager.configure_client(config).map_err(|error| failed_as(failed(what, &error, &http, &secrets)))?;
        // In memory: this does not fail.
        drop(memory.save(grant.credentials()).await);
        match manager.refresh_token().await {
            Ok(_) => {}
            Err(error @ AuthError::TokenRefreshRejected(_)) => {
                let reason = failed("its login is over", &error, &http, &secrets).to_string();
                tracing::warn!(server = self.server, %reason, "somebody has to log in again");
                grant.over = Some(reason.clone());
                grant.generation += 1;
                self.save(grant).await;
                return Err(
                    self.needs(Need::Login(format!("{reason}: run `playhouse mcp auth {}`", self.server)))
                );
            }
            Err(error) => return Err(failed_as(failed(what, &error, &http, &secrets))),
        }
        if let Some(renewed) = memory.load().await.ok().flatten() {
            grant.renew(renewed);
            self.save(grant).await;
        }
        *self.need.lock() = None;
        Ok(())
    }

    /// Logs in without people, where that is possible.
    async fn login(&self, state: &mut State) -> Result<(), Refused> {
        let grant = if self.oauth.grant == GrantType::ClientCredentials {
            self.by_itself().await
        } else if let Some((redirect, visitor)) = &self.visitor {
            self.by_visitor(redirect, visitor, state.grant.as_ref()).await
        } else {
            return Err(self.needs(Need::Login(self.wanted())));
        };
        let grant = grant.map_err(|error| match error {
            LoginError::Failed(reason) => Refused::Failed(reason),
            LoginError::Registration(reason) => self.needs(Need::Registration(reason)),
            other => self.needs(Need::Login(other.to_string())),
        })?;
        state.grant = Some(grant);
        *self.need.lock() = None;
        Ok(())
    }

    /// A token for the client itself.
    async fn by_itself(&self) -> Result<Grant, LoginError> {
        let declared = self.oauth.client.as_ref();
        let secret = declared.and_then(|client| Some((client.id.clone(), client.secret.as_ref()?)));
        let Some((client_id, secret)) = secret else {
            return Err(LoginError::Registration(
                "`oauth.grant = \"client_credentials\"` needs `client_id` and `client_secret_env`, whose variable is set"
                    .to_owned(),
            ));
        };
        let client_secret = secret.expose_secret().to_owned();
        let challenge = self.challenge.lock().clone();
        let Found { mut manager, http, memory, metadata, .. } =
            discover(&self.url, &self.door, challenge.as_deref()).await?;
        let scopes = match &*self.oauth.scopes {
            [] => manager.select_initial_scopes(&[]).await,
            declared => declared.to_vec(),
        };
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: client_id.clone(),
            client_secret: client_secret.clone(),
            scopes: scopes.clone(),
            resource: Some(self.url.clone()),
        };
        let what = |error: &AuthError| {
            failed(
                "its authorization server gives no token",
                error,
                &http,
                std::slice::from_ref(&client_secret),
            )
        };
        manager.validate_client_credentials_metadata(&config).map_err(|error| what(&error))?;
        manager.configure_client_credentials(&config).map_err(|error| what(&error))?;
        manager.exchange_client_credentials(&config).await.map_err(|error| what(&error))?;
        let credentials = memory.load().await.ok().flatten();
        let credentials =
            credentials.ok_or_else(|| LoginError::Failed("the login brought no token".to_owned()))?;
        let client = Client { id: client_id, secret: None, redirect: String::new(), is_registered: false };
        Ok(Grant::new(self.url.clone(), metadata, client, scopes, credentials))
    }

    async fn by_visitor(
        &self,
        redirect: &str,
        visitor: &Visitor,
        before: Option<&Grant>,
    ) -> Result<Grant, LoginError> {
        let pending = self.begun(redirect, before).await?;
        let address = visitor(pending.begun.url.clone()).await.map_err(LoginError::Failed)?;
        let redirected = Redirected::read(&address).map_err(LoginError::Failed)?;
        if redirected.state != pending.begun.state {
            return Err(LoginError::Unknown);
        }
        pending.finish(&redirected).await
    }

    async fn begun(&self, redirect: &str, before: Option<&Grant>) -> Result<Pending, LoginError> {
        let challenge = self.challenge.lock().clone();
        let (url, oauth, door, challenge) = (&*self.url, &self.oauth, &self.door, challenge.as_deref());
        let begun = Pending::begin(Wish { url, oauth, door, redirect, challenge, before }).await;
        if let Err(LoginError::Registration(reason)) = &begun {
            *self.need.lock() = Some(Need::Registration(reason.clone()));
        }
        begun
    }

    async fn finish(&self, redirected: &Redirected) -> Result<(), LoginError> {
        let now = Instant::now();
        let found = self
            .pending
            .lock()
            .iter()
            .find(|pending| pending.begun.state == redirected.state && pending.until > now)
            .map(Arc::clone);
        let pending = found.ok_or(LoginError::Unknown)?;
        let mut grant = pending.finish(redirected).await?;
        self.pending.lock().retain(|other| !Arc::ptr_eq(other, &pending));
        let mut state = self.state.lock().await;
        let _lock = self.locked().await.map_err(|refused| match refused {
            Refused::Need(reason) | Refused::Failed(reason) => LoginError::Failed(reason),
        })?;
        // One that cannot be read is replaced.
        drop(self.load(&mut state).await);
        grant.generation = state.grant.as_ref().map_or(0, |before| before.generation) + 1;
        self.save(&grant).await;
        *state = State { is_loaded: true, grant: Some(grant) };
        *self.need.lock() = None;
        Ok(())
    }
}

/// The scopes in a challenge.
fn scopes_of(challenge: &str) -> Vec<String> {
    let Some((_, rest)) = challenge.split_once("scope=") else { return Vec::new() };
    let rest = rest.strip_prefix('"').map_or_else(
        || rest.split([',', ' ']).next().unwrap_or_default(),
        |quoted| quoted.split('"').next().unwrap_or_default(),
    );
    rest.split_whitespace().map(str::to_owned).collect()
}

/// Whether a challenge says that a token has too few scopes.
pub(crate) fn wants_scopes(challenge: &str) -> bool {
    challenge.contains("insufficient_scope")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_from_a_challenge() {
        let challenge = r#"Bearer error="insufficient_scope", scope="a b", resource_metadata="https://x""#;
        assert!(wants_scopes(challenge));
        assert_eq!(scopes_of(challenge), ["a", "b"]);
        assert_eq!(scopes_of("Bearer scope=a, x=y"), ["a"]);
        assert!(scopes_of("Bearer").is_empty());
    }
}
