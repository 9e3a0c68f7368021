//! Tools that reach out: `webfetch`, `websearch` and `codesearch`, and the [`Door`] to the network that they go through.
//!
//! - [`Door`]: the one way to an address that a model, or a server that it talks to, has named
//! - [`WebFetch`]: a page as Markdown, text or HTML; images and documents as attachments
//! - [`SearchBackend`]: who searches; an MCP server (Exa, or any other) or SearxNG

mod address;
mod charset;
mod door;
mod fetch;
mod html;
mod search;
mod searxng;

use std::future::Future;
use std::time::Duration;

use crate::tool::{CallContext, ToolError};

pub use address::{Allowed, Refusal};
pub use door::{Answer, Door, DoorError, Request, Resolver, Share, shown as shown_url};
pub use fetch::WebFetch;
pub use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
pub use reqwest::{Method, Url};
pub use search::{
    CodeQuery, CodeSearch, Endpoint, EndpointError, SearchBackend, SearchError, SearchOptions, WebQuery,
    WebSearch,
};
pub use searxng::SearxngSearch;

/// How the web tools work.
#[derive(Clone, Debug, Default)]
pub struct WebOptions {
    /// What may be fetched although it is not of the public Internet.
    pub allow_private: Vec<Allowed>,
    /// Who searches.
    pub search: SearchOptions,
}

/// Awaits `work`, unless the call is cancelled or the time is over before. `what` is being done, for the message.
async fn bounded<T>(
    context: &CallContext,
    limit: Duration,
    what: &str,
    work: impl Future<Output = Result<T, ToolError>>,
) -> Result<T, ToolError> {
    tokio::select! {
        biased;
        () = context.cancel.cancelled() => Err(ToolError::Cancelled(String::new())),
        result = tokio::time::timeout(limit, work) => result.unwrap_or_else(|_| {
            Err(ToolError::Failed(format!("{what} took longer than {} s", limit.as_secs_f64())))
        }),
    }
}
