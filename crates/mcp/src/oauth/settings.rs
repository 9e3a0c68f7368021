//! How a server is logged in to, as an operator declares it.

use std::fmt;

use secrecy::SecretString;

/// How a server behind an address is logged in to.
#[derive(Clone, Debug)]
pub struct OAuth {
    /// Whether a server that answers 401 may be logged in to.
    pub enabled: bool,
    /// The client that was registered at the authorization server by hand. Without one the engine registers itself.
    pub client: Option<OAuthClient>,
    /// The address of a document that describes the client, for authorization servers that take one as the client's id.
    pub client_metadata_url: Option<String>,
    /// The scopes that are asked for. Those that the server names if empty.
    pub scopes: Vec<String>,
    /// Who grants access.
    pub grant: GrantType,
}

impl Default for OAuth {
    fn default() -> Self {
        Self {
            enabled: true,
            client: None,
            client_metadata_url: None,
            scopes: Vec::new(),
            grant: GrantType::default(),
        }
    }
}

/// A client that was registered by hand.
#[derive(Clone)]
pub struct OAuthClient {
    /// Its id.
    pub id: String,
    /// Its secret, if it has one.
    pub secret: Option<SecretString>,
}

impl fmt::Debug for OAuthClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthClient").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Who grants access to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrantType {
    /// A person, in a browser.
    #[default]
    AuthorizationCode,
    /// The client by itself, with its secret.
    ClientCredentials,
}
