//! Walls as programs meet them: every test runs a program within walls and looks at what happened to the machine.
//!
//! Needs `bwrap` (`apt install bubblewrap`), `git`, `perl`, `setpriv` and `unshare` (`apt install util-linux`), and a kernel
//! with Landlock.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod ends;
mod files;
mod house;
mod levels;
mod needed;
mod repository;
mod system;
