//! Connections that are driven by whoever reads an answer from them, too.
//!
//! HTTP/1.1 hands over the chunks of an answer one by one: the task that has the connection reads what came, hands over the
//! first chunk, and wakes the task that reads the answer; that one takes it, and wakes the other for the next. Models write a
//! chunk for each token, so two tasks take turns for every token, even where ten of them came with one read. Here the reader
//! polls the connection itself, in the name of the connection's task, until no chunk is left: what came together is read
//! together.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
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
        tokio::spawn(Driving(Arc::new(Driver(Mutex::new(seat)))));
    }
}

/// The work of one connection, for its task and for the readers of its answers.
struct Driver(Mutex<Seat>);

struct Seat {
    /// `None` when it is over.
    work: Option<Work>,
    /// Wakes the task. Whoever polls does so with this one: what becomes ready is the task's to see.
    waker: Waker,
}

impl Seat {
    fn poll(&mut self) -> Poll<()> {
        let Some(work) = &mut self.work else { return Poll::Ready(()) };
        let polled = work.as_mut().poll(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl Driver {
    fn seat(&self) -> MutexGuard<'_, Seat> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the connection do what it can do now. If its task is at it, waits for that, which takes microseconds.
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
        AT_WORK.set(Some(Arc::downgrade(&self.0)));
        let mut seat = self.0.seat();
        seat.waker.clone_from(cx.waker());
        let polled = seat.poll();
        AT_WORK.set(None);
        polled
    }
}

/// What a socket and the answers that come through it know of each other: who drives the connection.
#[derive(Clone, Default)]
pub(crate) struct Link(Arc<OnceLock<Weak<Driver>>>);

impl Link {
    /// Called by a socket when it is polled: it is its own connection that polls it.
    pub(crate) fn polled(&self) {
        if self.0.get().is_none()
            && let Some(driver) = AT_WORK.take()
        {
            // Set once, by the first.
            drop(self.0.set(driver));
        }
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
        let driver = link.as_ref().and_then(|link| link.0.get()).and_then(Weak::upgrade);
        if let Some(driver) = driver {
            // What the connection hands over now wakes nobody: it is taken below.
            let next = Pin::new(&mut *body).poll_next(&mut Context::from_waker(Waker::noop()));
            if next.is_ready() {
                return next;
            }
            driver.drive();
        }
        Pin::new(body).poll_next(cx)
    }
}
