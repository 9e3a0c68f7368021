//! The typed client of `/v1`, with which the operator's own commands ask an engine: one in this process by its own router, or
//! one that another process runs, over the operator's socket. Both carry the same requests to the same code.
//!
//! A command is its arguments, one call of this client, and what it prints. An operation is one method here, whose types are
//! those of the server's handler.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_mcp_server::{Api, ApiError, Events};
use playhouse_protocol::ledger::{RepriceReport, RepriceRequest};
use playhouse_protocol::template::TemplateList;
use playhouse_protocol::{PartId, RevertReport, RevertRequest, Seq, SessionId, UnrevertRequest};
use playhouse_server::{
    ArtifactView, Artifacts, DirectClient, ListSearch, McpLogin, McpLoginEnd, McpLoginWish, McpPlace,
    McpSearch, McpServerList, McpServerView, Method, OperatorClient, OperatorError, RowSearch, SessionPage,
    SessionView,
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

/// A query for one tenant, or for all.
#[derive(Serialize)]
struct Of<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(flatten)]
    search: &'a T,
}

impl Client {
    /// `GET /v1/sessions`
    pub(crate) async fn sessions(
        &self,
        tenant: Option<&str>,
        search: &ListSearch,
    ) -> Result<SessionPage, OperatorError> {
        self.get("/v1/sessions", &Of { tenant, search }).await
    }

    /// `GET /v1/sessions/{session}`
    pub(crate) async fn session(&self, session: SessionId) -> Result<SessionView, OperatorError> {
        self.get(&format!("/v1/sessions/{session}"), &()).await
    }

    /// `GET /v1/sessions/{session}/artifacts`
    pub(crate) async fn artifacts(&self, session: SessionId) -> Result<Artifacts, OperatorError> {
        self.get(&format!("/v1/sessions/{session}/artifacts"), &()).await
    }

    /// `GET /v1/sessions/{session}/artifacts/{call}`
    pub(crate) async fn artifact(
        &self,
        session: SessionId,
        call: PartId,
    ) -> Result<ArtifactView, OperatorError> {
        self.get(&format!("/v1/sessions/{session}/artifacts/{call}"), &()).await
    }

    /// `GET /v1/usage/rows`, as JSON.
    pub(crate) async fn usage_rows(
        &self,
        tenant: Option<&str>,
        search: &RowSearch,
    ) -> Result<Value, OperatorError> {
        self.get("/v1/usage/rows", &Of { tenant, search }).await
    }

    /// `POST /v1/usage/reprice`
    pub(crate) async fn reprice(&self, request: &RepriceRequest) -> Result<RepriceReport, OperatorError> {
        self.post("/v1/usage/reprice", request).await
    }

    /// `POST /v1/sessions/{session}/revert`
    pub(crate) async fn revert(
        &self,
        session: SessionId,
        request: &RevertRequest,
    ) -> Result<RevertReport, OperatorError> {
        self.post(&format!("/v1/sessions/{session}/revert"), request).await
    }

    /// `POST /v1/sessions/{session}/unrevert`
    pub(crate) async fn unrevert(
        &self,
        session: SessionId,
        request: &UnrevertRequest,
    ) -> Result<RevertReport, OperatorError> {
        self.post(&format!("/v1/sessions/{session}/unrevert"), request).await
    }

    /// `GET /v1/sessions/{session}/diff`, as JSON.
    pub(crate) async fn diff(&self, session: SessionId) -> Result<Value, OperatorError> {
        self.get(&format!("/v1/sessions/{session}/diff"), &()).await
    }

    /// `GET /v1/models`, as JSON.
    pub(crate) async fn models(&self) -> Result<Value, OperatorError> {
        self.get("/v1/models", &()).await
    }

    /// `GET /v1/commands`
    pub(crate) async fn commands(&self, workspace: &str) -> Result<TemplateList, OperatorError> {
        self.get("/v1/commands", &[("workspace", workspace)]).await
    }

    /// `GET /v1/mcp-servers`
    pub(crate) async fn mcp_servers(&self, search: &McpSearch) -> Result<McpServerList, OperatorError> {
        self.get("/v1/mcp-servers", search).await
    }

    /// `POST /v1/mcp-servers/{name}/connect`
    pub(crate) async fn connect_mcp_server(
        &self,
        name: &str,
        place: &McpPlace,
    ) -> Result<McpServerView, OperatorError> {
        self.post(&format!("/v1/mcp-servers/{name}/connect"), place).await
    }

    /// `POST /v1/mcp-servers/{name}/auth`
    pub(crate) async fn begin_mcp_login(
        &self,
        name: &str,
        wish: &McpLoginWish,
    ) -> Result<McpLogin, OperatorError> {
        self.post(&format!("/v1/mcp-servers/{name}/auth"), wish).await
    }

    /// `POST /v1/mcp-servers/{name}/auth/callback`
    pub(crate) async fn end_mcp_login(
        &self,
        name: &str,
        end: &McpLoginEnd,
    ) -> Result<McpServerView, OperatorError> {
        self.post(&format!("/v1/mcp-servers/{name}/auth/callback"), end).await
    }

    /// `DELETE /v1/mcp-servers/{name}/auth`
    pub(crate) async fn forget_mcp_login(&self, name: &str) -> Result<McpServerView, OperatorError> {
        let path = format!("/v1/mcp-servers/{name}/auth");
        read(&path, self.call(Method::DELETE, &path, None).await?)
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, OperatorError> {
        let wrong =
            |error: &dyn std::fmt::Display| OperatorError::Gone(format!("{path} cannot be asked: {error}"));
        let body = serde_json::to_value(body).map_err(|error| wrong(&error))?;
        read(path, self.call(Method::POST, path, Some(&body)).await?)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Result<T, OperatorError> {
        let wrong =
            |error: &dyn std::fmt::Display| OperatorError::Gone(format!("{path} cannot be asked: {error}"));
        let query = serde_urlencoded::to_string(query).map_err(|error| wrong(&error))?;
        let path_and_query = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        read(path, self.call(Method::GET, &path_and_query, None).await?)
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, OperatorError> {
        match self {
            Self::Inside(client) => client.call(method, path, body).await,
            Self::Outside(client) => client.call(method, path, body).await,
        }
    }
}

impl Api for Client {
    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Value, ApiError>> {
        async move { Ok(self.call(Method::GET, path, None).await?) }.boxed()
    }

    fn post<'a>(&'a self, path: &'a str, body: &'a Value) -> BoxFuture<'a, Result<Value, ApiError>> {
        async move { Ok(self.call(Method::POST, path, Some(body)).await?) }.boxed()
    }

    fn events(&self, session: SessionId, after: Seq) -> BoxFuture<'_, Result<Events, ApiError>> {
        match self {
            Self::Inside(client) => Api::events(client, session, after),
            Self::Outside(client) => Api::events(client, session, after),
        }
    }
}

fn read<T: DeserializeOwned>(path: &str, answer: Value) -> Result<T, OperatorError> {
    serde_json::from_value(answer).map_err(|error| {
        OperatorError::Gone(format!(
            "the engine answers {path} with what this one does not understand: {error}"
        ))
    })
}
