//! The server over real sockets, before an engine with a scripted model.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod connections;
mod ending;
mod limits;
mod native_events;
mod native_requests;
mod native_schema;
mod native_sessions;
mod support;
mod who;
mod wire_client;
mod wire_requests;
mod wire_schema;
mod wire_turns;
