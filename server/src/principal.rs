//! Who asks.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::problem::{Kind, Problem};

/// Who asks: put into each request by the check of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Whose sessions it sees.
    pub tenant: Arc<str>,
    /// The key's id; `None` where no key is needed.
    pub key: Option<Arc<str>>,
}

impl Principal {
    /// The tenant of a server without keys.
    pub const LOCAL: &'static str = "local";

    /// The one of a server without keys.
    pub fn local() -> Self {
        Self { tenant: Self::LOCAL.into(), key: None }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Principal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let missing = || Problem::new(Kind::Internal, "the request came past the check of its key");
        parts.extensions.get::<Self>().cloned().ok_or_else(missing)
    }
}
