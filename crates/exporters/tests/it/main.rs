//! Every kind of sink against a server that behaves like the real one on a bad day, while the driver is killed and started
//! again: what the server holds in the end is the ledger, but for what it refused, which is among the dead letters.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod chaos;
mod closing;
mod dead;
mod files;
mod ledger;
mod lives;
mod manners;
mod server;
mod store;
