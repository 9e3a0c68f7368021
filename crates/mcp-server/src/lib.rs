//! The engine as a server of the Model Context Protocol: other agents hand work over to its sessions.
//!
//! - [`Api`]: the native API of an engine, which all tools ask; whoever serves says how it is reached and as whom
//! - [`McpServer`]: the tools `session_create`, `session_prompt`, `session_status` and `session_abort`, and native tools of
//!   the engine by choice
//! - [`over_pipes`]: one client, over its pipes
//! - [`HttpSessions`]: many clients, over streamable HTTP
//!
//! Rights, roots, limits and errors are those of the API: nothing is decided here.

mod api;
mod ask;
mod handler;
mod http_sessions;
mod native;
mod pipes;
mod prompt;
mod status;
mod tools;
mod turn;

pub use api::{Api, ApiError, Events};
pub use handler::McpServer;
pub use http_sessions::{Answer, Body, Full, HttpSessions, MOST_HTTP_SESSIONS, Owner};
pub use native::NativeTools;
pub use pipes::{Input, Output, PipeError, over_pipes};
