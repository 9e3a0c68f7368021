//! The typed client of `/v1`, with which the operator's own commands ask an engine: one in this process by its own router, or
//! one that another process runs, over the operator's socket. Both carry the same requests to the same code.
//!
//! A command is its arguments, one call of this client, and what it prints. An operation is one method here, whose types are
//! those of the server's handler.

use playhouse_protocol::SessionId;
use playhouse_server::{
    DirectClient, ListSearch, Method, OperatorClient, OperatorError, SessionPage, SessionView,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An engine, asked as the operator.
#[derive(Clone, Debug)]
pub(crate) enum Client {
    /// In this process.
    Inside(DirectClient),
    /// In another one.
    Outside(OperatorClient),
}

impl Client {
    /// `GET /v1/sessions`
    pub(crate) async fn sessions(&self, search: &ListSearch) -> Result<SessionPage, OperatorError> {
        self.get("/v1/sessions", search).await
    }

    /// `GET /v1/sessions/{session}`
    pub(crate) async fn session(&self, session: SessionId) -> Result<SessionView, OperatorError> {
        self.get(&format!("/v1/sessions/{session}"), &()).await
    }

    /// `GET /v1/models`, as JSON.
    pub(crate) async fn models(&self) -> Result<Value, OperatorError> {
        self.get("/v1/models", &()).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Result<T, OperatorError> {
        let wrong =
            |error: &dyn std::fmt::Display| OperatorError::Gone(format!("{path} cannot be asked: {error}"));
        let query = serde_urlencoded::to_string(query).map_err(|error| wrong(&error))?;
        let path_and_query = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let answer = match self {
            Self::Inside(client) => client.call(Method::GET, &path_and_query, None).await?,
            Self::Outside(client) => client.call(Method::GET, &path_and_query, None).await?,
        };
        serde_json::from_value(answer).map_err(|error| {
            OperatorError::Gone(format!(
                "the engine answers {path} with what this one does not understand: {error}"
            ))
        })
    }
}
