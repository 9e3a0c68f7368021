//! What every backend promises, what becomes of damage, and what is on the disk.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod attached;
mod blobs;
mod changes;
mod checking;
mod compaction;
#[macro_use]
mod conformance;
mod closed;
mod damage;
mod disk;
mod flips;
mod follow;
mod forks;
mod golden;
mod handed;
mod images;
mod ledger;
mod older;
mod opening;
mod property;
mod raw;
mod salvage;
mod samples;
mod shorter;
mod sweeping;

/// How many histories a test draws: 8, or as many as `PLAYHOUSE_HISTORIES` says (see `scripts/slow`).
fn histories() -> u32 {
    let count = std::env::var("PLAYHOUSE_HISTORIES").ok();
    count.map_or(8, |count| count.parse().expect("PLAYHOUSE_HISTORIES is a number"))
}
