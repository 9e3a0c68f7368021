//! The engine over HTTP.
//!
//! Two faces over the same handles, each a thin translation and nothing else: an API of its own under `/v1`, and the v1
//! wire of opencode, so that its clients work unchanged.
//!
//! - [`Server`]: listens on an address or a Unix socket, and ends in good order.
//! - [`Facts`]: what clients may know of agents, tools and models; the product has it.
//! - [`Operator`], [`OperatorClient`]: the two ends of what the operator's own commands ask.
//! - [`Keys`]: who may use the server, and as which tenant.
//! - [`Problem`]: what goes wrong, as RFC 9457 says it.
//!
//! A request goes through these, from outside: the connection with its time limits, a request id and the access log, the
//! check of `Host` and `Origin`, the key ([`Principal`]), the size of the body, the route.

mod access;
mod app;
mod auth;
mod connection;
mod discreet;
mod facts;
mod hosts;
mod keys;
mod limits;
mod metrics;
mod native;
mod operator;
mod options;
mod principal;
mod problem;
mod roots;
mod router;
mod routing;
mod server;
mod socket;
mod stream;
mod wire;

pub use app::App;
pub use facts::{
    AgentFacts, AgentList, AgentMode, AgentOrigin, Facts, Found, ModelView, ProviderView, RefusedAgent,
    ToolKind, ToolView,
};
pub use hyper::Method;
pub use keys::{Key, KeyError, Keys};
pub use limits::{Limits, Permit};
pub use metrics::{MetricsAccess, MetricsOptions, MetricsSource, MetricsToken};
pub use native::artifacts::{ArtifactView, Artifacts};
pub use native::lsp::{
    LspDiagnosed, LspDiagnosis, LspProblem, LspSearch, LspServerList, LspServerView, LspSeverity, LspStanding,
};
pub use native::mcp::login::{McpLogin, McpLoginEnd, McpLoginWish};
pub use native::mcp::{McpPlace, McpSearch, McpServerList, McpServerView, McpStanding, RefusedTool};
pub use native::sessions::{ListSearch, SessionPage, SessionView, Stands};
pub use native::usage::rows::RowSearch;
pub use operator::{
    DirectClient, Operations, Operator, OperatorClient, OperatorError, OperatorEvents, answer_store,
};
pub use options::{ServerOptions, TenantLimits};
pub use principal::Principal;
pub use problem::{Kind, Problem};
pub use roots::Roots;
pub use router::router;
pub use server::{Ended, Listen, Server, ServerError};
