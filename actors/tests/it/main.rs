//! The engine through its handles, against a scripted model in the same process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aborts;
mod crashes;
mod events;
mod faults;
mod flushes;
mod limits;
mod support;
mod turns;
