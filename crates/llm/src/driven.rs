//! Connections that are driven by whoever reads an answer from them, too.
//!
//! HTTP/1.1 hands over the chunks of an answer one by one: the task that has the connection reads what came, hands over the
//! first chunk, and wakes the task that reads the answer; that one takes it, and wakes the other for the next. Models write a
//! chunk for each token, so two tasks take turns for every token, even where ten of them came with one read. Here the reader
//! polls the connection itself, in the name of the connection's task, until no chunk is left: what came together is read
//! together.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures::stream::Stream;
use http::{Extensions, Version};
use hyper::rt::Executor;
use hyper_util::client::legacy::connect::Connected;

/// What the task of a connection does.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs what a client has to do beside requests: its connections, each as a task that readers may drive.
#[derive(Clone, Debug)]
pub(crate) struct Drivers;

impl Executor<Work> for Drivers {
    fn execute(&self, work: Work) {
        let seat = Seat { work: Some(work), waker: Waker::noop().clone() };
        tokio::spawn(Driving(Arc::new(Driver { seat: Mutex::new(seat), is_known: AtomicBool::new(false) })));
    }
}

/// The work of one connection, for its task and for the readers of its answers.
struct Driver {
    seat: Mutex<Seat>,
    /// Whether its socket knows it.
    is_known: AtomicBool,
}

struct Seat {
    /// `None` when it is over.
    work: Option<Work>,
    /// Wakes the task. Whoever polls does so with this one: what becomes ready is the task's to see.
    waker: Waker,
}

impl Seat {
    fn poll(&mut self) -> Poll<()> {
        let Some(work) = &mut self.work else { return Poll::Ready(()) };
        let mut cx = Context::from_waker(&self.waker);
        // A panic ends the connection, as in a task of its own, and nothing of whoever reads from it.
        let polled =
            catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut cx))).unwrap_or(Poll::Ready(()));
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl Driver {
    fn seat(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the connection do what it can do now. If its task is at it, waits for one poll of that: microseconds, unless the system takes the
    /// processor away from it meanwhile.
    fn drive(&self) {
        let mut seat = self.seat();
        if seat.work.is_some() && seat.poll().is_ready() {
            seat.waker.wake_by_ref();
        }
    }
}

/// The task of a connection.
struct Driving(Arc<Driver>);

thread_local! {
    /// Whose work this thread polls just now, as long as its socket does not know.
    static AT_WORK: RefCell<Option<Weak<Driver>>> = const { RefCell::new(None) };
}

impl Future for Driving {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let driver = &self.0;
        let is_known = driver.is_known.load(Ordering::Relaxed);
        if !is_known {
            AT_WORK.set(Some(Arc::downgrade(driver)));
        }
        let mut seat = driver.seat();
        seat.waker.clone_from(cx.waker());
        let polled = seat.poll();
        if !is_known {
            AT_WORK.set(None);
        }
        polled
    }
}

/// What a socket and the answers that come through it know of each other: who drives the connection.
#[derive(Clone, Default)]
pub(crate) struct Link(Arc<Mutex<Weak<Driver>>>);

impl Link {
    /// Called by a socket when it is polled: by the work of its connection, or before that by whoever makes it. Who came last is
    /// remembered.
    pub(crate) fn polled(&self) {
        let Some(driver) = AT_WORK.take() else { return };
        if let Some(driver) = driver.upgrade() {
            driver.is_known.store(true, Ordering::Relaxed);
        }
        *self.driver() = driver;
    }

    fn driver(&self) -> MutexGuard<'_, Weak<Driver>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a socket tells of itself, with this beside it.
    pub(crate) fn beside(&self, connected: Connected) -> Connected {
        connected.extra(self.clone())
    }
}

/// The body of an answer, which has its connection driven while it is read.
pub(crate) struct Driven<B> {
    body: B,
    link: Option<Link>,
}

impl<B> Driven<B> {
    /// `extensions` are those of the answer. Connections of HTTP/2 carry many answers and hand over all that they have: they are
    /// left alone.
    pub(crate) fn new(body: B, version: Version, extensions: &Extensions) -> Self {
        let link = extensions.get::<Link>().filter(|_| version <= Version::HTTP_11).cloned();
        Self { body, link }
    }
}

impl<B: Stream + Unpin> Stream for Driven<B> {
    type Item = B::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<B::Item>> {
        let Self { body, link } = &mut *self;
        let driver = link.as_ref().and_then(|link| link.driver().upgrade());
        if let Some(driver) = driver {
            // What the connection hands over now does not wake the reader: it is taken below.
            let next = Pin::new(&mut *body).poll_next(&mut Context::from_waker(Waker::noop()));
            if next.is_ready() {
                return next;
            }
            driver.drive();
        }
        Pin::new(body).poll_next(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::stream::poll_fn;
    use tokio::task::yield_now;

    use super::*;

    /// Work that polls the socket of `link` and counts how often it is polled; it is over at the `last` time.
    fn work(link: &Link, last: usize) -> (Work, Arc<AtomicUsize>) {
        let (link, count) = (link.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&count);
        let work = std::future::poll_fn(move |_| {
            link.polled();
            match counted.fetch_add(1, Ordering::Relaxed) + 1 == last {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        });
        (Box::pin(work), count)
    }

    async fn settle() {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    /// A body that has nothing, read once.
    fn read(link: &Link) {
        let mut extensions = Extensions::new();
        extensions.insert(link.clone());
        let body = poll_fn(|_| Poll::<Option<()>>::Pending);
        let mut driven = Driven::new(body, Version::HTTP_11, &extensions);
        assert!(Pin::new(&mut driven).poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    #[tokio::test]
    async fn a_socket_is_driven_by_whoever_polled_it_last() {
        let link = Link::default();
        read(&link);
        // It is made by one that ends, as in a handshake in the background, and then belongs to another.
        let (handshake, of_handshake) = work(&link, 1);
        Drivers.execute(handshake);
        settle().await;
        let (connection, of_connection) = work(&link, 100);
        Drivers.execute(connection);
        settle().await;
        read(&link);
        read(&link);
        assert_eq!([&of_handshake, &of_connection].map(|count| count.load(Ordering::Relaxed)), [1, 3]);
    }

    #[tokio::test]
    async fn a_connection_that_panics_while_it_is_read_from_ends_nothing_else() {
        let link = Link::default();
        let (socket, mut polled) = (link.clone(), false);
        Drivers.execute(Box::pin(std::future::poll_fn(move |_| {
            socket.polled();
            assert!(!std::mem::replace(&mut polled, true), "the second poll");
            Poll::Pending
        })));
        settle().await;
        assert!(link.driver().upgrade().is_some());
        read(&link);
        settle().await;
        assert!(link.driver().upgrade().is_none());
    }

    #[tokio::test]
    async fn a_connection_that_ends_while_it_is_read_from_ends_its_task() {
        let link = Link::default();
        let (connection, count) = work(&link, 2);
        Drivers.execute(connection);
        settle().await;
        assert!(link.driver().upgrade().is_some());
        read(&link);
        settle().await;
        assert!(link.driver().upgrade().is_none());
        read(&link);
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}
