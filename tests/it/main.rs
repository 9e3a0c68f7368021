//! The `playhouse` binary, run as people run it: against a scripted model on a real socket, with a data directory, a
//! configuration and a workspace of its own for each test, and nothing of the environment of whoever runs the tests.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod answers;
mod configuration;
mod demo;
mod directories;
mod embed;
mod interrupt;
mod models;
mod providers;
mod resume;
mod run;
mod sessions;
mod stage;
mod tap;
mod tool;
