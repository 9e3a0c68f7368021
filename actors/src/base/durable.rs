//! Up to where a session's log is durable, for those who wait for it outside of its mailbox.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use playhouse_llm::{Hold, Opening};
use playhouse_protocol::Seq;
use tokio::sync::Notify;

/// Told by the store as soon as it is so, which is before the session reads it in its mailbox.
#[derive(Debug)]
pub(crate) struct Durable {
    up_to: AtomicU64,
    moved: Notify,
    /// Requests that may leave when all up to the place beside them is durable.
    held: Mutex<Vec<(Seq, Opening)>>,
}

impl Durable {
    pub(crate) fn new(seq: Seq) -> Self {
        Self { up_to: AtomicU64::new(seq.0), moved: Notify::new(), held: Mutex::default() }
    }

    /// All up to `seq` is durable. Requests that were held for that leave first: their models take longest.
    pub(crate) fn reached(&self, seq: Seq) {
        self.up_to.fetch_max(seq.0, Ordering::SeqCst);
        self.open();
        self.moved.notify_waiters();
    }

    /// Holds a request until all up to `seq` is durable: for ever, if the store does not take it.
    pub(crate) fn hold(&self, seq: Seq) -> Hold {
        let (hold, opening) = Hold::new();
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push((seq, opening));
        // It may be so by now.
        self.open();
        hold
    }

    fn open(&self) {
        let up_to = self.up_to.load(Ordering::SeqCst);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let open: Vec<_> = held.extract_if(.., |(seq, _)| seq.0 <= up_to).collect();
        drop(held);
        open.into_iter().for_each(|(_, opening)| opening.open());
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

    #[tokio::test]
    async fn a_request_is_held_until_all_before_it_is_durable() {
        let durable = Durable::new(Seq(4));
        assert!(durable.hold(Seq(4)).opened_at().is_some());
        let [six, seven] = [6, 7].map(|seq| durable.hold(Seq(seq)));
        durable.reached(Seq(5));
        assert!(six.opened_at().is_none());
        durable.reached(Seq(6));
        assert!(six.opened_at().is_some() && seven.opened_at().is_none());
        drop(seven);
        durable.reached(Seq(9));
        assert!(durable.held.lock().unwrap().is_empty());
    }
}
