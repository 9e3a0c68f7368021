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

/// The number of random histories that a test draws: that of `PLAYHOUSE_HISTORIES`, which `scripts/slow` sets, or 8.
fn histories() -> u32 {
    let count = std::env::var("PLAYHOUSE_HISTORIES").ok();
    count.map_or(8, |count| count.parse().expect("PLAYHOUSE_HISTORIES is a number"))
}
