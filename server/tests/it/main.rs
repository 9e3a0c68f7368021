//! The server over real sockets, before an engine with a scripted model.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod artifacts;
mod attachments;
mod client;
mod connections;
mod discreet;
mod ending;
mod forks;
mod host_tools;
mod limits;
mod looking;
mod mcp_server;
mod native_events;
mod native_prompts;
mod native_requests;
mod native_schema;
mod native_sessions;
mod operator;
mod parked;
mod steer;
mod support;
mod tags;
mod templates;
mod usage;
mod usage_parts;
mod usage_rows;
mod who;
mod wire_client;
mod wire_coverage;
mod wire_prompts;
mod wire_requests;
mod wire_schema;
mod wire_turns;
