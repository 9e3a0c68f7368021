//! Whose key a request goes out with.

use playhouse_protocol::ErrorInfo;
use secrecy::SecretString;

/// Gives each tenant its keys. A platform implements it over its own vault; the command line reads variables of the
/// environment.
///
/// Requests with different keys have different [`Limiters`](crate::Limiters), so one tenant's rate limit holds up nobody
/// else.
///
/// ```
/// use playhouse_llm::Credentials;
/// use playhouse_protocol::{ErrorCode, ErrorInfo};
/// use secrecy::SecretString;
///
/// struct Vault;
///
/// impl Credentials for Vault {
///     fn key(&self, tenant: &str, provider: &str) -> Result<Option<SecretString>, ErrorInfo> {
///         match tenant {
///             "acme" => Ok(Some(SecretString::from(format!("{provider}-key-of-acme")))),
///             _ => Err(ErrorInfo::new(ErrorCode::Authentication, format!("{tenant} has not paid"))),
///         }
///     }
/// }
///
/// assert!(Vault.key("acme", "openai").unwrap().is_some());
/// assert_eq!(Vault.key("nobody", "openai").unwrap_err().message, "nobody has not paid");
/// ```
pub trait Credentials: Send + Sync {
    /// The key with which `tenant` asks `provider`; `None` where there is none, which is an error of the turn unless the
    /// provider needs no key. It is asked when a session's first request to a model is made, and again when it changes
    /// its agent or model or is woken; where blocking is allowed.
    ///
    /// # Errors
    /// Why this tenant may not ask this provider, or why the key cannot be found out now. The turn fails with it. It must
    /// not hold a key.
    fn key(&self, tenant: &str, provider: &str) -> Result<Option<SecretString>, ErrorInfo>;
}
