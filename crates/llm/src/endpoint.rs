//! Where requests go.

use playhouse_protocol::ErrorInfo;
use playhouse_protocol::error::ErrorCode;
use secrecy::{ExposeSecret, SecretString};

use crate::DialectKind;

/// A server that speaks a dialect, and how to be let in.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The provider's name, for messages.
    pub provider: String,
    /// What it speaks.
    pub dialect: DialectKind,
    /// Up to where the dialect's own path begins (`https://api.openai.com/v1`, `https://api.anthropic.com`), without a
    /// trailing slash.
    pub base_url: String,
    /// The key, where one is needed.
    pub key: Option<SecretString>,
    /// The variable that the key is read from, for messages.
    pub key_variable: Option<String>,
}

impl Endpoint {
    /// Refuses a key that no header can carry, as one that was read with its line end.
    pub(crate) fn check_key(&self) -> Result<(), ErrorInfo> {
        match &self.key {
            Some(key) if !key.expose_secret().bytes().all(|byte| byte.is_ascii_graphic()) => {
                let provider = &self.provider;
                let what =
                    format!("the key of {provider} holds white space or other characters that no key has");
                Err(ErrorInfo::new(ErrorCode::Authentication, format!("{what}: {}", self.key_advice())))
            }
            _ => Ok(()),
        }
    }

    /// `text` without the key: some servers repeat in their errors what they were sent.
    pub(crate) fn without_key(&self, text: String) -> String {
        match &self.key {
            Some(key) if !key.expose_secret().is_empty() && text.contains(key.expose_secret()) => {
                text.replace(key.expose_secret(), "[key]")
            }
            _ => text,
        }
    }

    /// What a person can do about a key that is missing or was refused.
    pub(crate) fn key_advice(&self) -> String {
        match (&self.key, &self.key_variable) {
            (Some(_), Some(variable)) => format!("check the key in {variable}"),
            (None, Some(variable)) => format!("no key was sent: set {variable}"),
            (_, None) => format!("give provider {} a key in its `api_key_env`", self.provider),
        }
    }
}
