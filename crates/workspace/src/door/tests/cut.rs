//! Where a write in place ends in the middle, by a kill or an error.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

/// The number of bytes of a write after which the process is killed.
pub(super) static KILLED_AT: AtomicUsize = AtomicUsize::new(usize::MAX);

thread_local! {
    /// How many writes fail: the first one there or behind it, the next ones from the front on.
    pub(super) static FAILS: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
}

/// A write has come to the byte `at`.
pub(crate) fn here(at: usize) -> io::Result<()> {
    if at >= KILLED_AT.load(Ordering::Relaxed) {
        kill_process(getpid(), Signal::KILL)?;
    }
    let (from, times) = FAILS.get();
    if times > 0 && at >= from {
        FAILS.set((0, times - 1));
        return Err(Errno::NOSPC.into());
    }
    Ok(())
}
