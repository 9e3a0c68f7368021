//! What all HTTP clients have in common: TLS, and how their errors are told. There is one choice of cryptography, set up without
//! anything global, so that programs which embed the engine may choose another.
//!
//! ```
//! let config = playhouse_tls::client_config(playhouse_tls::Trust::Nobody).unwrap();
//! assert_eq!(config.alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
//! ```

use std::error::Error;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;

/// The certificates by which servers are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those that the machine trusts. Loading them takes milliseconds, and a machine may have none.
    Machine,
    /// None: for clients that speak without TLS.
    Nobody,
}

/// The configuration of a client that offers HTTP/2 and HTTP/1.1. Blocks where certificates are loaded.
///
/// # Errors
/// The machine's certificates cannot be loaded: a fragment that says so and what to do.
pub fn client_config(trust: Trust) -> Result<ClientConfig, String> {
    let configured = || {
        let builder =
            ClientConfig::builder_with_provider(cryptography()).with_safe_default_protocol_versions()?;
        Ok(match trust {
            Trust::Machine => builder.with_platform_verifier()?.with_no_client_auth(),
            Trust::Nobody => builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth(),
        })
    };
    let mut config = configured().map_err(|error: rustls::Error| {
        format!("TLS cannot be set up ({error}): are the machine's CA certificates installed?")
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The process's default provider of cryptography, else ring.
pub fn cryptography() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()))
}

/// The innermost reason: outer ones repeat the address.
pub fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
