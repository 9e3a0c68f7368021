//! Connections to a server that does what the example `scripted` is told, as a program.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod asking;
mod authority;
mod calls;
mod ends;
mod greetings;
mod http;
mod lists;
mod oauth;
mod stage;
mod tasks;
mod web;
mod websearch;
