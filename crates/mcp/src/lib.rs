//! The MCP client: servers of tools, which are programs or addresses, and their tools as tools of the engine.
//!
//! Plain async types. Who starts servers, shares them between sessions and stops them, lies in the crate of the actors.
//!
//! - [`ServerEntry`]: a server as an operator declares it
//! - [`declared_in`]: those that a workspace declares
//! - [`Connection`]: a server that is spoken to, over its standard input and output or over streamable HTTP
//! - [`Listing`]: what a server offers; [`KeptLists`] keeps it on disk, so that tools are known before their server runs
//! - [`McpTool`]: a tool of a server, whose calls a [`Caller`] makes
//! - [`pass_on`]: two tools that stand for those of all servers, where these are too many
//! - [`McpResource`]: the tool that lists and reads the resources of all servers
//! - [`SearchServer`]: a server that searches for `websearch`
//! - [`Authorizer`]: the login of a tenant at a server behind an address (OAuth), kept in a [`Vault`]
//! - [`names`], [`schema`], [`result`](mod@result): names that providers take, schemas that models are shown, results as models
//!   read them
//!
//! Nothing that a server says is trusted: neither its descriptions, schemas and annotations, nor the size and the form of its
//! messages. Only the crate of the server names the library behind this one too.

/// What rules call all tools of servers.
pub const PERMISSION: &str = "mcp";

mod connection;
mod entry;
mod list;
pub mod names;
mod oauth;
pub mod resource;
pub mod result;
pub mod schema;
mod search;
mod text;
mod tool;
mod websearch;
mod workspace;

pub use connection::{
    CallError, CallRequest, Connection, Diagnosis, MessageOfPrompt, OpenError, Place, Progress, ProgressSink,
    ResourceContent,
};
pub use entry::{
    Http, Protocol, ServerEntry, ServerSandbox, ServerScope, Stdio, ToolChoice, Transport, WallsWish,
};
pub use list::{
    Annotations, Execution, KeptLists, ListedPrompt, ListedResource, ListedTool, Listing, PromptArgument,
};
pub use oauth::{
    Authorizer, Begun, GrantType, LoginError, Loopback, Need, OAuth, OAuthClient, Redirected, Token, Vault,
    VaultFile, Visitor,
};
pub use resource::{McpResource, ResourceServer};
pub use result::CallResult;
pub use search::pass_on;
pub use tool::{Caller, McpTool, OfferedTool, ToolCall, offered};
pub use websearch::{EXA, SearchServer};
pub use workspace::{MOST_CONTENT, WORKSPACE_FILE, WorkspaceFinding, WorkspaceServer, declared_in};
