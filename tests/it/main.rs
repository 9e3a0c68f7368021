//! The `playhouse` binary, run as people run it: against a scripted model on a real socket, with a data directory, a
//! configuration and a workspace of its own for each test, and nothing of the environment of whoever runs the tests.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod agents;
#[cfg(all(target_os = "linux", target_env = "gnu", feature = "jemalloc"))]
mod allocator;
mod answers;
mod budgets;
mod capture;
mod clients;
mod commands;
mod configuration;
mod consents;
mod damaged;
mod demo;
mod deploy;
mod directories;
mod doctor;
mod embed;
mod engine;
#[cfg(target_os = "linux")]
mod escape;
mod examples;
mod facts;
mod folders;
mod formatters;
mod full_disk;
mod going_on;
mod host_tools;
mod interrupt;
mod killed;
mod language_servers;
mod lifecycle;
mod long;
mod mcp_serve;
mod mcp_servers;
mod metrics;
mod models;
mod pages;
mod prompt;
mod providers;
mod questions;
mod reconcile;
mod reprice;
mod resume;
mod rules;
mod run;
mod serve;
mod sessions;
#[path = "../../crates/exporters/tests/it/server.rs"]
mod sink_server;
mod sinks;
mod small;
mod stage;
mod storage;
mod store;
mod tags;
mod tap;
mod terminal;
mod tool;
mod tool_search;
mod tools;
mod undo;
mod usage;
mod worked;
