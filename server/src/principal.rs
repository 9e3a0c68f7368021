//! Who asks.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use playhouse_protocol::Attribution;
use playhouse_protocol::KeyRef;
use playhouse_protocol::operator::{BY_HAND_TENANT, LOCAL_TENANT};

use crate::problem::{Kind, Problem};
use crate::roots::Roots;

/// Who asks: put into each request by the check of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Whose sessions it sees.
    pub tenant: Arc<str>,
    /// The key's id; `None` where no key is needed.
    pub key: Option<Arc<str>>,
    /// The key's name.
    pub key_name: Option<Arc<str>>,
    /// The directories of the key; `None` for those of the server.
    pub roots: Option<Arc<Roots>>,
    /// Whether it came without a key through the socket that only the operator's account can open.
    pub is_operator: bool,
    /// Whether it asks for what all tenants have: the operator, who named no tenant. What belongs to one tenant only is
    /// `tenant`'s all the same.
    pub all: bool,
}

impl Principal {
    /// The tenant of a server without keys.
    pub const LOCAL: &'static str = LOCAL_TENANT;

    /// The one of a server without keys.
    pub fn local() -> Self {
        Self {
            tenant: Self::LOCAL.into(),
            key: None,
            key_name: None,
            roots: None,
            is_operator: false,
            all: false,
        }
    }

    /// Whether it may read how the operator's providers are reached, and what these say: one with a key may not.
    pub(crate) fn reads_all(&self) -> bool {
        self.key.is_none()
    }

    /// Whom the usage of its prompts is attributed to.
    pub(crate) fn attribution(&self) -> Option<Box<Attribution>> {
        let name = self.key_name.as_deref().unwrap_or_default().to_owned();
        Attribution::of_key(self.key.as_deref().map(|id| KeyRef { id: id.to_owned(), name }))
    }

    /// Whose things a list shows: `None` for those of all tenants.
    pub(crate) fn whose(&self) -> Option<&str> {
        (!self.all).then_some(&*self.tenant)
    }

    /// Whether the sessions of `tenant` are there for whoever asks: those of calls by hand are for the operator, who needs
    /// no key.
    pub(crate) fn sees(&self, tenant: &str) -> bool {
        self.all || *self.tenant == *tenant || (tenant == BY_HAND_TENANT && self.key.is_none())
    }
}

/// The operator, who asks on the socket that only the operator's account can open. Others are refused, before their body is
/// read.
pub(crate) struct Operator;

impl<S: Send + Sync> FromRequestParts<S> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Principal::from_request_parts(parts, state).await?.is_operator {
            true => Ok(Self),
            false => {
                let detail = "this is for the operator of the server: ask on the Unix socket, without a key";
                Err(Problem::new(Kind::Forbidden, detail))
            }
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Principal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let missing = || Problem::new(Kind::Internal, "the request came past the check of its key");
        parts.extensions.get::<Self>().cloned().ok_or_else(missing)
    }
}
