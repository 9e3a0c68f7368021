//! What every backend promises, what becomes of damage, and what is on the disk.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod blobs;
#[macro_use]
mod conformance;
mod damage;
mod follow;
mod forks;
mod golden;
mod ledger;
mod opening;
mod property;
mod samples;
