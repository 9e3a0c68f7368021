//! The actors of Playhouse, and the handles by which everything else drives them. Only this crate knows ractor.
//!
//! - [`Engine`] starts the actors and hands out [`SessionHandle`]s. Several engines may live in one process.
//! - The *supervisor* owns the table of sessions: it wakes them from their logs, lets those leave memory that rest, respawns
//!   those that crash, parks those that crash too often, and stops them all at the end.
//! - A *session* actor owns one session's turn machine and carries out its effects. It never waits for a model or a tool.
//! - A *step* actor carries one request to a model and streams the answer into the session's [`Ring`].
//! - An *aside* actor asks a model for a title or a summary.
//! - A *call* actor carries one tool call through its two phases.
//! - The [`Hub`] has the events of all sessions, for those who watch many at once.
//! - A *keeper* actor owns a long-lived child that sessions lease (`shared`).
//! - The *metering* actor adds up the usage of the attempts that ended.
//! - [`Directory`] is what the engine asks about agents, models, and what holds in a workspace.
//!
//! Mailboxes carry commands, finished parts and outcomes. Tokens go from the step actor straight into the ring.

mod api;
mod base;
mod bounds;
mod budget;
mod call;
mod context;
mod conversation;
mod directory;
mod events;
mod figures;
mod formatter;
mod grants;
mod host_tools;
mod journal;
mod judge;
mod limits;
mod listening;
mod mailbox;
mod measure;
mod mentions;
mod metering;
mod parked;
#[doc(hidden)]
pub mod parts;
mod revert;
mod rules;
mod seen;
mod session;
mod shared;
mod space;
mod space_watch;
mod start;
mod step;
mod storage;
mod supervisor;
mod sweeper;
mod tasks;
mod tracker;
mod wake;

pub use api::artifacts::StoredArtifact;
pub use api::engine::{Engine, EngineOptions, fold};
pub use api::forking::ForkAt;
pub use api::handle::SessionHandle;
pub use api::load::Load;
pub use api::looking::{Listed, Outlook};
pub use api::reading::Waiting;
pub use api::subscription::Subscription;
pub use api::tools::OutsideTool;
pub use base::now;
pub use bounds::{Others, Within};
pub use directory::{
    AgentDirectory, Aside, Choice, Directory, FilledTemplate, Ground, Moderate, Profile, ProfileDirectory,
    ProfileRequest, TemplateDirectory, TemplatePiece, WorkspaceDirectory,
};
pub use events::hub::{Heard, Hub, Listener, Owner, Shout};
pub use events::published::Published;
pub use events::ring::Ring;
pub use formatter::Formatter;
pub use host_tools::{HostToolFailure, HostToolSpec, HostTools, MOST_HOST_TOOLS, NewWebhook};
pub use limits::{EngineLimits, Resume, TaskLimits};
pub use mailbox::Stopped;
pub use metering::UsageReport;
pub use playhouse_lsp::{Known as LspKnown, Problem as LspProblem, Severity as LspSeverity};
pub use playhouse_sandbox::process::is_of_a_command;
pub use playhouse_sandbox::try_blocking;
pub use playhouse_session::ModelDirectory;
pub use playhouse_tools::changed::path_of;
pub use playhouse_tools::grep::FoundLine;
pub use playhouse_tools::host_tool::{HOST_PERMISSION, HostToolError};
pub use playhouse_tools::paths::{FoundPath, Reach};
pub use playhouse_workspace::repository::{Change, Repository, RepositoryError, Since, Status, is_kept};
pub use playhouse_workspace::{Strayed, follow_within};
pub use shared::lsp::{LspFile, LspFound, LspLimits, LspOptions, LspServers, LspState, LspStatus, LspSymbol};
pub use shared::mcp::{
    LeasedServer, LoginBegun, LoginFailure, McpOptions, McpServers, McpState, McpStatus, Redirected,
};
