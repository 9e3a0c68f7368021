//! The v1 wire of opencode, so that its clients work unchanged.
//!
//! It is a translation and nothing else: the same sessions, with the same ids, that the API under `/v1` knows.
//!
//! - [`shapes`]: the objects of the wire, field by field.
//! - [`translate`]: from the engine's words to the wire's; pure.
//! - [`feed`]: the events of a tenant's sessions, translated once for all clients.
//! - [`routes`]: what each route does; [`asked`] is what they have in common, [`failure`] how they fail.
//! - [`inline`]: attached files as part of an answer.
//! - [`unbuilt`]: what is not there, answered as such.

mod asked;
mod failure;
mod feed;
mod ids;
mod inline;
mod place;
mod routes;
#[cfg(test)]
#[path = "../../tests/it/wire_schema.rs"]
mod schema;
mod shapes;
mod translate;
mod unbuilt;

use axum::{Extension, Router};

use crate::app::App;
use crate::routing::{delete, get, patch, post};
use feed::Feeds;
use routes::{facts, files, live, login, lsp, mcp, messages, prompts, requests, sessions, templates, vcs};

/// Its routes.
pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/global/health", get(facts::health))
        .route("/global/event", get(live::of_all))
        .route("/global/config", get(facts::config))
        .route("/event", get(live::of_directory))
        .route("/path", get(facts::path))
        .route("/project", get(facts::projects))
        .route("/project/current", get(facts::current_project))
        .route("/project/{id}/directories", get(facts::project_directories))
        .route("/vcs", get(vcs::read))
        .route("/vcs/status", get(vcs::status))
        .route("/vcs/diff", get(vcs::diff))
        .route("/vcs/diff/raw", get(vcs::raw))
        .route("/config", get(facts::config))
        .route("/config/providers", get(facts::config_providers))
        .route("/provider", get(facts::providers))
        .route("/provider/auth", get(facts::nothing))
        .route("/agent", get(facts::agents))
        .route("/command", get(facts::commands))
        .route("/lsp", get(lsp::status))
        .route("/find/symbol", get(lsp::symbols))
        .route("/formatter", get(facts::formatters))
        .route("/mcp", get(mcp::status))
        .route("/mcp/{name}/connect", post(mcp::connect))
        .route("/mcp/{name}/disconnect", post(mcp::disconnect))
        .route("/mcp/{name}/auth", post(login::begin))
        .route("/mcp/{name}/auth", delete(login::forget))
        .route("/mcp/{name}/auth/callback", post(login::end))
        .route("/mcp/{name}/auth/authenticate", post(login::wait))
        .route("/experimental/capabilities", get(facts::capabilities))
        .route("/experimental/console", get(facts::console))
        .route("/experimental/resource", get(facts::nothing))
        .route("/experimental/tool", get(facts::tools))
        .route("/experimental/tool/ids", get(facts::tool_ids))
        .route("/experimental/workspace", get(facts::none))
        .route("/experimental/workspace/adapter", get(facts::none))
        .route("/experimental/workspace/status", get(facts::none))
        .route("/experimental/session", get(sessions::everywhere))
        .route("/session", get(sessions::list))
        .route("/session", post(sessions::create))
        .route("/session/status", get(live::status))
        .route("/session/{id}", get(sessions::read))
        .route("/session/{id}", patch(sessions::change))
        .route("/session/{id}", delete(sessions::remove))
        .route("/session/{id}/children", get(sessions::children))
        .route("/session/{id}/abort", post(sessions::abort))
        .route("/session/{id}/summarize", post(sessions::summarize))
        .route("/session/{id}/revert", post(sessions::revert))
        .route("/session/{id}/unrevert", post(sessions::unrevert))
        .route("/session/{id}/fork", post(sessions::fork))
        .route("/session/{id}/message", get(messages::list))
        .route("/session/{id}/message", post(prompts::prompt))
        .route("/session/{id}/message/{message}", get(messages::read))
        .route("/session/{id}/prompt_async", post(prompts::prompt_async))
        .route("/session/{id}/shell", post(prompts::shell))
        .route("/session/{id}/command", post(templates::run))
        .route("/session/{id}/todo", get(messages::todo))
        .route("/session/{id}/diff", get(messages::diff))
        .route("/session/{id}/permissions/{permission}", post(requests::respond))
        .route("/permission", get(requests::permissions))
        .route("/permission/{id}/reply", post(requests::reply))
        .route("/question", get(requests::questions))
        .route("/question/{id}/reply", post(requests::reply_question))
        .route("/question/{id}/reject", post(requests::reject_question))
        .route("/file", get(files::list))
        .route("/file/content", get(files::content))
        .route("/file/status", get(vcs::file_status))
        .route("/find", get(files::find_text))
        .route("/find/file", get(files::find))
        .merge(unbuilt::router())
        .layer(Extension(Feeds::default()))
}
