//! The mock through its boundaries: in process, over sockets, and as a program.

#![allow(clippy::unwrap_used, reason = "in a test that is how it fails")]

mod binary;
mod cache;
mod defects;
mod faults;
mod framing;
mod gemini;
mod http2;
mod journal;
mod pace;
mod paced;
mod rejections;
mod responses;
mod rules;
mod server;
mod steps;
mod support;
mod usage;
mod wires;
