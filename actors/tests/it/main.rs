//! The engine through its handles, against a scripted model in the same process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aborts;
mod allowlist;
mod asking;
mod attachments;
mod budgets;
mod changes;
mod consents;
mod crashes;
mod descendants;
mod events;
mod faults;
mod file_changes;
mod flushes;
mod forks;
mod grants;
mod http2;
mod keeping;
mod limits;
mod load;
mod logs;
mod metrics;
mod outputs;
mod outputs_with_schema;
mod panics;
mod processes;
mod prompts;
mod removal;
mod repairs;
mod reprice;
mod resume;
mod reverts;
mod room;
mod sleep;
mod sources;
mod starts;
mod stories;
mod support;
mod suspended;
mod systems;
mod tasks;
mod templates;
mod turns;
mod watching;
mod webhooks;
