//! Messages over streamable HTTP, through the guarded client of the engine.
//!
//! - Each message is a POST. A request is answered with JSON or with a stream of events, which may hold other messages before the
//!   answer. A stream that breaks is resumed where the server numbers its events.
//! - A GET stream carries what the server says by itself. Servers without one are left alone.
//! - A session that the server has forgotten (404) is begun anew, once, and the message is sent again.
//! - Redirects are followed within the origin of the server only: its headers are secret.

mod body;
mod mirror;
mod remote;
mod sse;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use playhouse_tools::web::{Share, Url};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use tokio::sync::mpsc;

pub(crate) use mirror::mirrored;
use remote::Outgoing;
pub(super) use remote::Remote;

use super::messages::Noise;
use super::{OpenError, Place};
use crate::entry::Http;

/// Number of messages that wait to be read by the library.
const WAITING: usize = 64;
/// A server behind an address, as the library speaks to it.
pub(super) struct Web {
    remote: Arc<Remote>,
    incoming: mpsc::Receiver<ServerJsonRpcMessage>,
}

impl Web {
    /// Prepares the connection; nothing is sent.
    pub(super) fn new(http: &Http, place: &Place, noise: Arc<Noise>) -> Result<Self, OpenError> {
        let url = Url::parse(&http.url)
            .map_err(|error| OpenError::Permanent(format!("its url is not an address: {error}")))?;
        let (sender, incoming) = mpsc::channel(WAITING);
        let headers = http.header_map().map_err(OpenError::Permanent)?;
        Ok(Self { remote: Remote::new(place, url, headers, noise, sender), incoming })
    }

    pub(super) fn remote(&self) -> Arc<Remote> {
        Arc::clone(&self.remote)
    }
}

impl Transport<RoleClient> for Web {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let remote = Arc::clone(&self.remote);
        let outgoing = outgoing(&message, &remote);
        remote.sent(&message);
        async move {
            let outgoing = outgoing?;
            if outgoing.id.is_some() {
                // Its answer, or its failure, is an answer.
                remote.request(outgoing);
                return Ok(());
            }
            remote.tell(outgoing).await
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.remote.end().await;
        Ok(())
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let remote = Arc::clone(&self.remote);
        remote.stop();
        // Without a runtime nothing can be told to the server.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { remote.end().await });
        }
    }
}

/// A message as it is sent.
fn outgoing(message: &ClientJsonRpcMessage, remote: &Remote) -> io::Result<Outgoing> {
    let value = serde_json::to_value(message)?;
    let (id, share, greets) = match message {
        JsonRpcMessage::Request(request) => {
            let share = match &request.request {
                ClientRequest::SubscriptionsListenRequest(_) => Share::Stream,
                _ => Share::Exchange,
            };
            let greets = matches!(&request.request, ClientRequest::InitializeRequest(_));
            (Some(request.id.clone()), share, greets)
        }
        _ => (None, Share::Exchange, false),
    };
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let method = text(&value["method"]);
    let params = &value["params"];
    let name = match method.as_deref() {
        Some("tools/call" | "prompts/get") => text(&params["name"]),
        Some("resources/read" | "resources/subscribe" | "resources/unsubscribe") => text(&params["uri"]),
        _ => None,
    };
    let mirrored = match (method.as_deref(), &name) {
        (Some("tools/call"), Some(tool)) => remote.mirrored(tool, &params["arguments"]),
        _ => Vec::new(),
    };
    let version = text(&params["_meta"]["io.modelcontextprotocol/protocolVersion"]);
    let body = Bytes::from(value.to_string());
    Ok(Outgoing { id, body, share, greets, method, name, mirrored, version })
}
