//! What every backend promises, what becomes of damage, and what is on the disk.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod blobs;
mod checking;
mod compaction;
#[macro_use]
mod conformance;
mod damage;
mod disk;
mod follow;
mod forks;
mod golden;
mod ledger;
mod opening;
mod property;
mod raw;
mod samples;
mod sweeping;
