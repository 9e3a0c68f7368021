//! Logins at servers of tools: one for each tenant and server.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_mcp::{Authorizer, Begun, LoginError, Loopback, Need, Redirected, ServerEntry, Vault};
use playhouse_protocol::operator::{BY_HAND_TENANT, LOCAL_TENANT};
use playhouse_tools::web::Door;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout;

use super::key::ServerKey;
use super::{McpServers, McpState};
use crate::base::spawn_on;

/// How long the engine waits for the browser that comes back to it: as long as the login may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(600);

/// A login that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginBegun {
    /// The address that somebody has to open in a browser.
    pub url: String,
    /// Where the browser is sent when they are done.
    pub redirect: String,
    /// Which login it is, in what the browser brings back.
    pub state: String,
}

/// Why a login was not begun or ended. Texts for users.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoginFailure {
    /// There is no such server.
    #[error("{0}")]
    NoServer(String),
    /// The server has no logins, or nothing can log in to it.
    #[error("{0}")]
    Unsupported(String),
    /// A client has to be registered first.
    #[error("{0}")]
    Registration(String),
    /// It failed.
    #[error("{0}")]
    Failed(String),
}

/// All logins.
pub(super) struct Logins {
    vault: Vault,
    door: Door,
    known: Mutex<HashMap<Whose, Option<Authorizer>>>,
    /// Logins whose browser comes back to the engine, by state.
    waiting: Mutex<HashMap<String, watch::Sender<Ended>>>,
    /// Servers, by tenant and hash, whose login changed since they were started last: how that failed counts no longer.
    changed: Mutex<HashSet<Whose>>,
}

/// A tenant, and the hash of a server's entry.
type Whose = (Arc<str>, Arc<str>);

/// How a login ended, once it has.
type Ended = Option<Result<(), LoginFailure>>;

impl Logins {
    pub(super) fn new(folder: PathBuf, door: Door) -> Self {
        Self {
            vault: Vault::new(folder),
            door,
            known: Mutex::default(),
            waiting: Mutex::default(),
            changed: Mutex::default(),
        }
    }

    /// The login of a tenant at the server of an entry; `None` for one that has none.
    pub(super) fn of(&self, entry: &ServerEntry, tenant: &str) -> Option<Authorizer> {
        let mut known = self.known.lock();
        // What the operator calls by hand uses the operator's logins.
        let tenant = if tenant == BY_HAND_TENANT { LOCAL_TENANT } else { tenant };
        let made = || Authorizer::new(entry, self.door.clone(), Some((&self.vault, tenant)));
        known.entry((tenant.into(), entry.hash().into())).or_insert_with(made).clone()
    }

    /// The login at a server that is being started.
    pub(super) fn of_start(&self, entry: &ServerEntry, key: &ServerKey) -> Option<Authorizer> {
        self.changed.lock().remove(&(Arc::clone(&key.tenant), Arc::clone(&key.hash)));
        self.of(entry, &key.tenant)
    }

    /// Whether the login at a server changed since it was started last.
    pub(super) fn has_changed(&self, key: &ServerKey) -> bool {
        self.changed.lock().contains(&(Arc::clone(&key.tenant), Arc::clone(&key.hash)))
    }

    /// Whom to tell how a login ended.
    fn waits(&self, state: &str) -> watch::Sender<Ended> {
        let ends = watch::Sender::new(None);
        self.waiting.lock().insert(state.to_owned(), ends.clone());
        ends
    }

    fn ended(&self, state: &str) {
        self.waiting.lock().remove(state);
    }

    /// What has to be done before a server can be used: by a tenant, or by any.
    pub(super) fn needs(&self, entry: &ServerEntry, tenant: Option<&str>) -> Option<McpState> {
        let hash = entry.hash();
        let known = self.known.lock();
        let own = known
            .iter()
            .filter(|((whose, of), _)| **of == *hash && tenant.is_none_or(|tenant| *tenant == **whose));
        own.filter_map(|(_, authorizer)| authorizer.as_ref()?.need()).next().map(|need| match need {
            Need::Login(reason) => McpState::NeedsLogin(reason.into()),
            Need::Registration(reason) => McpState::NeedsRegistration(reason.into()),
        })
    }
}

impl McpServers {
    /// Begins a login of a tenant at a server. The browser is sent back to `redirect`, or to a port of this machine at which the
    /// engine waits and ends the login by itself.
    ///
    /// # Errors
    /// There is no such server, it has no logins, or its authorization server cannot be used.
    pub async fn begin_login(
        &self,
        name: &str,
        tenant: &str,
        redirect: Option<&str>,
    ) -> Result<LoginBegun, LoginFailure> {
        let authorizer = self.authorizer(name, tenant)?;
        let told = |begun: Begun| LoginBegun { url: begun.url, redirect: begun.redirect, state: begun.state };
        if let Some(redirect) = redirect {
            return authorizer.begin(redirect).await.map(told).map_err(LoginFailure::from);
        }
        let port = Loopback::open().await;
        let port = port.map_err(|error| {
            LoginFailure::Failed(format!("no port can be opened for the browser: {error}"))
        })?;
        let begun = authorizer.begin(port.redirect()).await.map_err(LoginFailure::from)?;
        let (servers, name, tenant, state) =
            (self.clone(), name.to_owned(), tenant.to_owned(), begun.state.clone());
        let ends = self.0.logins.waits(&state);
        spawn_on(&self.0.runtime, async move {
            let ended = match timeout(PATIENCE, port.wait(&state)).await {
                Ok(Ok(redirected)) => servers.finish_login(&name, &tenant, redirected).await,
                Ok(Err(reason)) => Err(LoginFailure::Failed(reason)),
                Err(_) => Err(LoginFailure::Failed("nobody has logged in in time".to_owned())),
            };
            if let Err(failure) = &ended {
                tracing::warn!(server = name, %failure, "a login at a server of tools failed");
            }
            servers.0.logins.ended(&state);
            ends.send_replace(Some(ended));
        });
        Ok(told(begun))
    }

    /// Ends a login with what the browser brought back, and has the server tried anew.
    ///
    /// # Errors
    /// There is no such login, or it failed.
    pub async fn finish_login(
        &self,
        name: &str,
        tenant: &str,
        redirected: Redirected,
    ) -> Result<(), LoginFailure> {
        self.authorizer(name, tenant)?.finish(redirected).await?;
        self.try_anew(name, tenant);
        Ok(())
    }

    /// The state of the login of a tenant at a server that was begun last.
    pub fn last_login(&self, name: &str, tenant: &str) -> Option<String> {
        self.authorizer(name, tenant).ok()?.last_state()
    }

    /// Waits for the end of the login with this state, whose browser comes back to the engine.
    ///
    /// # Errors
    /// There is no such login, or it failed.
    pub async fn login_ended(&self, state: &str) -> Result<(), LoginFailure> {
        let ended = self.0.logins.waiting.lock().get(state).map(watch::Sender::subscribe);
        let gone = || LoginFailure::Failed("no such login is under way: begin it anew".to_owned());
        let mut ended = ended.ok_or_else(gone)?;
        let ended = ended.wait_for(Option::is_some).await.map_err(|_| gone())?.clone();
        ended.unwrap_or_else(|| Err(gone()))
    }

    /// Forgets the login of a tenant at a server. `false` if there was none.
    ///
    /// # Errors
    /// There is no such server, or what is kept cannot be removed.
    pub async fn logout(&self, name: &str, tenant: &str) -> Result<bool, LoginFailure> {
        let forgotten = self.authorizer(name, tenant)?.forget().await;
        let had = forgotten
            .map_err(|error| LoginFailure::Failed(format!("the login cannot be removed: {error}")))?;
        self.try_anew(name, tenant);
        Ok(had)
    }

    fn authorizer(&self, name: &str, tenant: &str) -> Result<Authorizer, LoginFailure> {
        let declared = self.0.declared(name, None).map_err(LoginFailure::NoServer)?;
        self.0.logins.of(&declared.entry, tenant).ok_or_else(|| {
            LoginFailure::Unsupported(format!(
                "the server of tools {name} has no logins: it is a program, has a header `Authorization`, or `oauth = false`"
            ))
        })
    }

    /// Ends the connections of a tenant to a server, and has its tools asked for anew.
    fn try_anew(&self, name: &str, tenant: &str) {
        let Ok(declared) = self.0.declared(name, None) else { return };
        let children = self.0.leases.status().into_iter();
        let own = children.filter(|child| *child.key.hash == declared.hash && *child.key.tenant == *tenant);
        for child in own {
            let of = (Arc::clone(&child.key.tenant), Arc::clone(&child.key.hash));
            self.0.logins.changed.lock().insert(of);
            self.0.leases.restart(&child.key);
        }
        self.0.known.change();
    }
}

impl From<LoginError> for LoginFailure {
    fn from(error: LoginError) -> Self {
        let text = error.to_string();
        match error {
            LoginError::Unsupported(_) => Self::Unsupported(text),
            LoginError::Registration(_) => Self::Registration(text),
            LoginError::Unknown | LoginError::Failed(_) => Self::Failed(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_belongs_to_a_tenant_and_what_it_needs_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins::new(folder.path().to_owned(), Door::new(Vec::new()));
        let entry = ServerEntry::http("docs", "https://a.example/mcp");
        assert!(logins.of(&entry, "acme").is_some());
        assert!(logins.of(&ServerEntry::stdio("files", "x", Vec::new()), "acme").is_none());
        assert_eq!(logins.needs(&entry, None), None);
        assert!(logins.waiting.lock().is_empty());
        let ends = logins.waits("state");
        ends.send_replace(Some(Ok(())));
        logins.ended("state");
        assert!(logins.waiting.lock().is_empty());
    }
}
