//! What sessions held that left goes back to the system.
//!
//! The allocator of the C library keeps what was freed below something that is still used, which after some hundreds of
//! sessions is nearly all of it: a server would stay as large as it ever was. It is asked to give that back after many left,
//! and not often, since others who want memory wait meanwhile. Other allocators do it by themselves.

use std::time::{Duration, Instant};

/// Fewer sessions than these are not worth it, while others are in memory.
const MANY: usize = 64;
/// The least time from one time to the next.
const BETWEEN: Duration = Duration::from_secs(10);

/// Whether it is worth it.
#[derive(Debug, Default)]
pub(super) struct Left {
    sessions: usize,
    given_back: Option<Instant>,
}

impl Left {
    /// A session left.
    pub(super) fn one(&mut self) {
        self.sessions += 1;
    }

    /// Whether memory waits to be given back.
    pub(super) fn are_some(&self) -> bool {
        self.sessions > 0
    }

    /// Whether it is time, with so many sessions in memory; then none have left since.
    fn is_time(&mut self, now: Instant, there: usize) -> bool {
        let is_soon = self.given_back.is_some_and(|last| now.duration_since(last) < BETWEEN);
        let is_worth_it = self.sessions >= MANY || (there == 0 && self.are_some());
        if is_soon || !is_worth_it {
            return false;
        }
        *self = Self { sessions: 0, given_back: Some(now) };
        true
    }

    /// Gives back what they held, if it is time, beside what is going on. So many sessions are in memory.
    pub(super) fn give_back(&mut self, now: Instant, there: usize) {
        if self.is_time(now, there) {
            // Nobody waits for it.
            drop(tokio::task::spawn_blocking(give_back));
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "a function of the C library that takes a number")]
fn give_back() {
    let began = Instant::now();
    // SAFETY: any thread may call it at any time; it touches nothing but what is free, under the allocator's own locks.
    let is_less = unsafe { libc::malloc_trim(0) } == 1;
    tracing::debug!(is_less, took = ?began.elapsed(), "gave back memory of sessions that left");
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_after_many_left_and_not_often() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut left = Left::default();
        assert!(!left.is_time(at(0), 0), "none left");
        (1..MANY).for_each(|_| left.one());
        assert!(!left.is_time(at(0), 9), "too few");
        left.one();
        assert!(left.is_time(at(1), 9));
        assert!(!left.is_time(at(100), 0), "none since");
        (0..MANY).for_each(|_| left.one());
        assert!(!left.is_time(at(10), 9), "too soon");
        assert!(left.is_time(at(11), 9));
        left.one();
        assert!(left.are_some() && !left.is_time(at(100), 1));
        assert!(left.is_time(at(100), 0), "it was the last");
        assert!(!left.are_some());
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn what_is_free_between_what_is_used_goes_back() {
        let resident = || -> usize {
            let pages = fs_err::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4
        };
        let mut pieces: Vec<Option<Vec<u8>>> = (0..200_000).map(|_| Some(vec![1; 1_000])).collect();
        let full = resident();
        for (number, piece) in pieces.iter_mut().enumerate() {
            if number % 1_000 != 0 {
                *piece = None;
            }
        }
        give_back();
        let left = resident();
        assert!(full - left > 100_000, "{full} KB, then {left} KB");
        drop(pieces);
    }
}
