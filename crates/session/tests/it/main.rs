//! The turn machine, through its boundary: scripts of inputs and the effects that must come out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod artifacts;
mod asking;
mod changed;
mod clock;
mod consents;
mod forks;
mod harness;
mod loops;
mod offers;
mod prompts;
mod refusals;
mod room;
mod scripts;
mod simulation;
mod summaries;
mod tasks;
