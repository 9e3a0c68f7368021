//! The API of its own, under `/v1`. `openapi.json` describes it, and is served as `/v1/openapi.json`.
//!
//! Bodies are JSON, checked strictly: an unknown field is refused, with the one that was probably meant. What goes wrong is
//! a problem document ([`Problem`](crate::Problem)). Times are milliseconds since 1970. Ids have the form that
//! [`playhouse_protocol::id`] tells.

pub(crate) mod artifacts;
pub(crate) mod asked;
pub(crate) mod calls;
mod events;
pub(crate) mod extract;
mod facts;
mod grants;
pub(crate) mod host_tools;
pub(crate) mod limits;
pub(crate) mod lsp;
pub(crate) mod mcp;
pub(crate) mod mcp_server;
pub(crate) mod messages;
mod openapi;
mod prompts;
pub(crate) mod reverts;
pub(crate) mod sessions;
mod templates;
pub(crate) mod usage;

use axum::Router;

use crate::app::App;
use crate::routing::{delete, get, patch, post};

/// The operations of the API, and a router of the same.
macro_rules! operations {
    ($($method:ident $path:literal => $handler:path;)*) => {
        /// Method (in lower case) and path of every operation.
        #[cfg(test)]
        const OPERATIONS: &[(&str, &str)] = &[$((stringify!($method), $path),)*];

        /// The routes.
        pub(crate) fn router() -> Router<App> {
            Router::new()$(.route($path, $method($handler)))*
        }
    };
}

operations! {
    post "/v1/sessions" => sessions::create;
    get "/v1/sessions" => sessions::list;
    get "/v1/sessions/{session}" => sessions::read;
    patch "/v1/sessions/{session}" => sessions::change;
    delete "/v1/sessions/{session}" => sessions::remove;
    post "/v1/sessions/{session}/fork" => sessions::fork;
    get "/v1/sessions/{session}/todos" => sessions::todos;
    get "/v1/sessions/{session}/artifacts" => artifacts::list;
    get "/v1/sessions/{session}/artifacts/{call}" => artifacts::read;
    get "/v1/sessions/{session}/diff" => sessions::diff;
    get "/v1/sessions/{session}/usage" => sessions::usage;
    get "/v1/sessions/{session}/tree/usage" => usage::of_tree;
    get "/v1/sessions/{session}/turns/{turn}/usage" => usage::of_turn;
    get "/v1/usage" => usage::usage;
    get "/v1/usage/rows" => usage::rows::rows;
    post "/v1/usage/reprice" => usage::reprice::reprice;
    post "/v1/sessions/{session}/prompts" => prompts::prompt;
    post "/v1/sessions/{session}/shell" => prompts::shell;
    post "/v1/sessions/{session}/calls" => calls::call;
    post "/v1/sessions/{session}/command" => templates::run;
    post "/v1/sessions/{session}/abort" => prompts::abort;
    post "/v1/sessions/{session}/resume" => prompts::resume;
    post "/v1/sessions/{session}/compact" => prompts::compact;
    post "/v1/sessions/{session}/revert" => reverts::revert;
    post "/v1/sessions/{session}/unrevert" => reverts::unrevert;
    get "/v1/lsp-servers" => lsp::list;
    get "/v1/sessions/{session}/lsp" => lsp::diagnose;
    get "/v1/mcp-servers" => mcp::list;
    post "/v1/mcp-servers/{name}/connect" => mcp::connect;
    post "/v1/mcp-servers/{name}/disconnect" => mcp::disconnect;
    post "/v1/mcp-servers/{name}/auth" => mcp::login::begin;
    delete "/v1/mcp-servers/{name}/auth" => mcp::login::forget;
    post "/v1/mcp-servers/{name}/auth/callback" => mcp::login::end;
    get "/v1/sessions/{session}/messages" => messages::page;
    get "/v1/sessions/{session}/attachments/{hash}" => messages::attached;
    get "/v1/sessions/{session}/events" => events::of_one;
    get "/v1/events" => events::of_many;
    get "/v1/consents" => asked::consents;
    get "/v1/questions" => asked::questions;
    post "/v1/sessions/{session}/consents/{consent}" => asked::answer_consent;
    post "/v1/sessions/{session}/questions/{question}" => asked::answer_question;
    get "/v1/grants" => grants::list;
    delete "/v1/grants/{grant}" => grants::revoke;
    get "/v1/agents" => facts::agents;
    get "/v1/commands" => templates::list;
    get "/v1/tools" => host_tools::list;
    post "/v1/tools" => host_tools::register;
    delete "/v1/tools/{name}" => host_tools::remove;
    post "/v1/sessions/{session}/calls/{call}/result" => host_tools::result;
    get "/v1/models" => facts::models;
    get "/v1/limits" => limits::list;
    get "/v1/openapi.json" => openapi::document;
}
