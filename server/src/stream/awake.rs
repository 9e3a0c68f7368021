//! A stream that is asked only when something woke it.
//!
//! A connection asks the body of an answer again after each chunk, and once more before it waits: to find out that there is
//! nothing would cost as much as to write an event. So what asks a stream that had nothing is told so at once, until the
//! stream was woken.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::Stream;
use futures::task::AtomicWaker;

/// A stream that knows whether something woke it.
pub(crate) struct Awake<S> {
    stream: Pin<Box<S>>,
    bell: Arc<Bell>,
    /// Rings the bell. Always the same one, so that the stream need not register another with each poll.
    waker: Waker,
}

/// What the stream is woken by.
struct Bell {
    /// Whether it may have something.
    rung: AtomicBool,
    /// Who asked last.
    asker: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.asker.wake();
    }
}

impl<S> Awake<S> {
    /// `stream`, which was not asked yet.
    pub(crate) fn new(stream: S) -> Self {
        let bell = Arc::new(Bell { rung: AtomicBool::new(true), asker: AtomicWaker::new() });
        Self { stream: Box::pin(stream), waker: Waker::from(Arc::clone(&bell)), bell }
    }
}

impl<S: Stream> Stream for Awake<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        // First, so that who rings from here on finds who asks.
        self.bell.asker.register(cx.waker());
        if !self.bell.rung.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let Self { stream, bell, waker } = &mut *self;
        let next = stream.as_mut().poll_next(&mut Context::from_waker(waker));
        if next.is_ready() {
            // There may be more.
            bell.rung.store(true, Ordering::Release);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use futures::{FutureExt as _, StreamExt as _};

    use super::*;

    #[tokio::test]
    async fn a_stream_is_asked_when_it_was_woken_and_not_before() {
        let (asked, waiting) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None::<Waker>)));
        let (count, waits) = (Rc::clone(&asked), Rc::clone(&waiting));
        let mut stream = Awake::new(futures::stream::poll_fn(move |cx| {
            count.set(count.get() + 1);
            match count.get() {
                1 | 3 => Poll::Ready(Some(count.get())),
                5 => Poll::Ready(None),
                _ => {
                    waits.set(Some(cx.waker().clone()));
                    Poll::Pending
                }
            }
        }));
        assert_eq!(stream.next().now_or_never(), Some(Some(1)));
        for _ in 0..3 {
            assert_eq!(stream.next().now_or_never(), None);
        }
        assert_eq!(asked.get(), 2);
        waiting.take().unwrap().wake();
        assert_eq!(stream.next().now_or_never(), Some(Some(3)));
        let ended = tokio::join!(stream.next(), async {
            tokio::task::yield_now().await;
            waiting.take().unwrap().wake_by_ref();
        });
        assert_eq!((ended.0, asked.get()), (None, 5));
    }
}
