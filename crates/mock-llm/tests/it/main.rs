//! The mock through its boundaries: in process, over sockets, and as a program.

#![allow(clippy::unwrap_used, reason = "in a test that is how it fails")]

mod binary;
mod faults;
mod journal;
mod pace;
mod server;
mod steps;
mod support;
mod wires;
