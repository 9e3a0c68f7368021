//! What git is asked about workspaces that nobody vouches for.
//!
//! Needs `git`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod asked;
mod asked_of_others;
