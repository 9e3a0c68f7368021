//! Logging in to servers behind addresses (OAuth 2.1).
//!
//! - [`OAuth`]: how a server is logged in to, as an operator declares it
//! - [`Authorizer`]: the login of one tenant at one server: begins and ends it, gives requests their token, renews it
//! - [`Vault`]: sealed files in which logins are kept
//! - [`Loopback`]: the address of this machine to which a browser comes back
//!
//! Discovery, registration and the exchange of tokens are the protocol library's, over the guarded client of the engine: each
//! address that a server leads to is judged like the server's own.
//!
//! - One renewal is under way per login, over all processes; it is finished even if nobody waits for it any more.
//! - A renewal that fails deletes nothing. One that the server rejects for good marks the login, which is then begun anew.
//! - No token stands in an error, a log or an answer.

mod authorizer;
mod client;
mod grant;
mod login;
mod loopback;
mod settings;
mod vault;

pub use authorizer::{Authorizer, Need, Token, Visitor};
pub(crate) use authorizer::{Refused, wants_scopes};
pub use login::{Begun, LoginError};
pub use loopback::{Loopback, Redirected};
pub use settings::{GrantType, OAuth, OAuthClient};
pub use vault::{Vault, VaultFile};
