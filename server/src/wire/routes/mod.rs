//! What each route does.

pub(super) mod facts;
pub(super) mod files;
pub(super) mod live;
pub(super) mod login;
pub(super) mod lsp;
pub(super) mod mcp;
pub(super) mod messages;
pub(super) mod prompts;
pub(super) mod requests;
pub(super) mod sessions;
pub(super) mod templates;
pub(super) mod vcs;
