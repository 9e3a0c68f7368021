//! Up to where a session's log is durable, for those who wait for it outside of its mailbox.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use playhouse_protocol::Seq;
use tokio::sync::Notify;

/// Told by the store as soon as it is so, which is before the session reads it in its mailbox.
#[derive(Debug)]
pub(crate) struct Durable {
    up_to: AtomicU64,
    moved: Notify,
}

impl Durable {
    pub(crate) fn new(seq: Seq) -> Self {
        Self { up_to: AtomicU64::new(seq.0), moved: Notify::new() }
    }

    /// All up to `seq` is durable.
    pub(crate) fn reached(&self, seq: Seq) {
        self.up_to.fetch_max(seq.0, Ordering::SeqCst);
        self.moved.notify_waiters();
    }

    /// Waits until all up to `seq` is durable: for ever, if the store does not take it. Whoever waits is cancelled then.
    pub(crate) async fn wait(&self, seq: Seq) {
        loop {
            let mut moved = pin!(self.moved.notified());
            // Counted as waiting before it is looked: nothing is missed in between.
            moved.as_mut().enable();
            if self.up_to.load(Ordering::Acquire) >= seq.0 {
                return;
            }
            moved.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn who_waits_goes_on_when_all_before_it_is_durable_and_not_before() {
        let durable = Arc::new(Durable::new(Seq(4)));
        durable.wait(Seq(4)).await;
        let of = Arc::clone(&durable);
        let waiting = tokio::spawn(async move { of.wait(Seq(7)).await });
        tokio::task::yield_now().await;
        durable.reached(Seq(6));
        durable.reached(Seq(5));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        assert!(durable.wait(Seq(6)).now_or_never().is_some(), "what was told late takes nothing back");
        durable.reached(Seq(9));
        waiting.await.unwrap();
    }
}
