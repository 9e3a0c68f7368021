//! Tests of the crate through its boundary: a conversation goes in, a request comes out; a stream goes in, pieces and an
//! answer come out.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is how a test's helper says that the test failed")]

mod anthropic;
mod clean;
mod gemini;
mod growth;
mod loose;
mod members;
mod oddities;
mod openai_chat;
mod openai_responses;
mod reasoning;
mod refusals;
mod requests;
mod restless;
mod sockets;
mod splitting;
mod streams;
mod support;
