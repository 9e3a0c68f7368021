//! Who asks servers for one session: calls, resources and prompts.

use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use playhouse_mcp::resource::{listed, read};
use playhouse_mcp::{CallError, CallRequest, CallResult, Caller, MessageOfPrompt, ToolCall};
use playhouse_protocol::SessionId;
use playhouse_tools::{CallContext, ToolError};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::kind::Servers;
use super::{Inner, Lease, LeaseError, ServerKey};

/// Asks one server for one session.
pub(super) struct SessionCaller {
    /// Tools are remembered there.
    pub(super) servers: Weak<Inner>,
    pub(super) key: ServerKey,
    pub(super) session: SessionId,
}

impl SessionCaller {
    async fn lease(&self, cancel: &CancellationToken) -> Result<Lease<Servers>, ToolError> {
        let Some(servers) = self.servers.upgrade() else {
            return Err(ToolError::Failed("the engine stops".to_owned()));
        };
        let lease = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(ToolError::Cancelled(String::new())),
            lease = servers.leases.lease(&self.key, self.session) => lease,
        };
        lease.map_err(|error: LeaseError| ToolError::Failed(error.to_string()))
    }

    fn failed(&self, error: CallError) -> ToolError {
        match error {
            CallError::Cancelled => ToolError::Cancelled(String::new()),
            error => ToolError::Failed(format!("server of tools {}: {error}", self.key)),
        }
    }
}

impl SessionCaller {
    /// The messages of a prompt of the server.
    pub(super) async fn prompt(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        cancel: &CancellationToken,
    ) -> Result<Vec<MessageOfPrompt>, ToolError> {
        let lease = self.lease(cancel).await?;
        let prompt = lease.child().prompt(name, arguments, self.session, cancel).await;
        prompt.map_err(|error| self.failed(error))
    }
}

impl Caller for SessionCaller {
    fn call<'a>(
        &'a self,
        call: ToolCall,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<CallResult, ToolError>> {
        Box::pin(async move {
            let lease = self.lease(&context.cancel).await?;
            let request = CallRequest {
                session: self.session,
                tool: call.tool.to_string(),
                arguments: call.arguments,
                cancel: context.cancel.clone(),
                timeout: None,
                progress: Some(call.progress),
                host: Some(Arc::clone(&context.host)),
            };
            lease.child().call(request).await.map_err(|error| self.failed(error))
        })
    }

    fn resources<'a>(
        &'a self,
        uri: Option<String>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<CallResult, ToolError>> {
        Box::pin(async move {
            let lease = self.lease(&context.cancel).await?;
            let server = lease.child();
            let result = match uri {
                Some(uri) => server.read_resource(&uri, self.session, &context.cancel).await.map(read),
                None => {
                    let resources = tokio::select! {
                        biased;
                        () = context.cancel.cancelled() => Err(CallError::Cancelled),
                        resources = server.resources() => resources,
                    };
                    resources.map(|resources| listed(&resources))
                }
            };
            result.map_err(|error| self.failed(error))
        })
    }
}
