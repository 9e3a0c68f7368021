//! What the tools ask of an engine: its native API.

use std::collections::BTreeSet;
use std::fmt;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use playhouse_protocol::{Event, ModelRef, Seq, SessionId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

/// Most sessions above another one that are looked at.
const DEEPEST: usize = 64;

/// A request that the API refused, or whose answer cannot be read, in words for the client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ApiError(pub String);

/// Events of a session. It ends when the session is removed or the engine stops.
pub type Events = BoxStream<'static, Result<Event, ApiError>>;

/// The native API of an engine, asked as one principal.
pub trait Api: fmt::Debug + Send + Sync {
    /// The answer to `GET path`.
    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Value, ApiError>>;

    /// The answer to `POST path`; null where it has no body.
    fn post<'a>(&'a self, path: &'a str, body: &'a Value) -> BoxFuture<'a, Result<Value, ApiError>>;

    /// The events of a session after `after`, then live ones.
    fn events(&self, session: SessionId, after: Seq) -> BoxFuture<'_, Result<Events, ApiError>>;
}

/// What the tools read of a session.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SessionFacts {
    pub(crate) id: SessionId,
    pub(crate) workspace: String,
    pub(crate) title: String,
    pub(crate) agent: String,
    pub(crate) model: ModelRef,
    pub(crate) parent: Option<SessionId>,
    pub(crate) state: String,
    pub(crate) parked: Option<String>,
    pub(crate) open_turns: u32,
    pub(crate) turns: u32,
    pub(crate) head: Seq,
}

/// The value of an answer.
///
/// # Errors
/// It is something else.
pub(crate) fn read<T: DeserializeOwned>(answer: Value) -> Result<T, ApiError> {
    serde_json::from_value(answer)
        .map_err(|error| ApiError(format!("the engine's answer cannot be read: {error}")))
}

pub(crate) async fn session(api: &dyn Api, id: SessionId) -> Result<SessionFacts, ApiError> {
    read(api.get(&format!("/v1/sessions/{id}")).await?)
}

/// Whether a session lies below one of `branches`, or is one of them, looking up to `top`.
pub(crate) async fn is_below(
    api: &dyn Api,
    below: SessionId,
    branches: &BTreeSet<SessionId>,
    top: Option<SessionId>,
) -> Result<bool, ApiError> {
    let mut current = Some(below);
    for _ in 0..DEEPEST {
        match current {
            Some(id) if branches.contains(&id) => return Ok(true),
            Some(id) if Some(id) != top => current = session(api, id).await?.parent,
            _ => break,
        }
    }
    Ok(false)
}
