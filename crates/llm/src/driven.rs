//! Connections that are driven by whoever reads an answer from them, too.
//!
//! HTTP/1.1 hands over the chunks of an answer one by one: the task that has the connection reads what came, hands over the
//! first chunk, and wakes the task that reads the answer; that one takes it, and wakes the other for the next. Models write a
//! chunk for each token, so two tasks take turns for every token, even where ten of them came with one read. Here the reader
//! polls the connection itself, in the name of the connection's task, until no chunk is left: what came together is read
//! together. And while it does, what would wake that task is kept until it is through: most of it is done by then.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use futures::stream::Stream;
use futures::task::{ArcWake, AtomicWaker, waker};
use http::{Extensions, Version};
use hyper::rt::Executor;
use hyper_util::client::legacy::connect::Connected;
use parking_lot::Mutex;

/// What the task of a connection does.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs what a client has to do beside requests: its connections, each as a task that readers may drive.
#[derive(Clone, Debug)]
pub(crate) struct Drivers;

impl Executor<Work> for Drivers {
    fn execute(&self, work: Work) {
        let bell = Arc::<Bell>::default();
        let waker = waker(Arc::clone(&bell));
        let driver = Arc::new_cyclic(|driver| {
            let known = Some(Known { driver: Weak::clone(driver), to_socket: false });
            let seat = Mutex::new(Seat { work: Some(work), waker, known });
            Driver { seat, bell }
        });
        tokio::spawn(Driving(driver));
    }
}

/// Wakes the task of a connection, unless a reader is at it.
#[derive(Default)]
struct Bell {
    task: AtomicWaker,
    /// How many readers are at it: one, but for the moments between two answers.
    readers: AtomicUsize,
    /// It was rung meanwhile.
    rang: AtomicBool,
}

impl Bell {
    /// A reader is at it, until what it gets is dropped.
    fn mute(&self) -> Muted<'_> {
        self.readers.fetch_add(1, Ordering::SeqCst);
        Muted { bell: self, comes_back: false }
    }

    /// Wakes the task if it rang.
    fn answer(&self) {
        if self.rang.swap(false, Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

/// A reader that is at it.
struct Muted<'a> {
    bell: &'a Bell,
    /// It comes back at once: what rang meanwhile need not wake the task.
    comes_back: bool,
}

impl Drop for Muted<'_> {
    fn drop(&mut self) {
        self.bell.readers.fetch_sub(1, Ordering::SeqCst);
        if !self.comes_back {
            self.bell.answer();
        }
    }
}

impl ArcWake for Bell {
    fn wake_by_ref(bell: &Arc<Self>) {
        // In this order: either this sees that the reader is through, or that one sees that it rang.
        bell.rang.swap(true, Ordering::SeqCst);
        if bell.readers.load(Ordering::SeqCst) == 0 {
            bell.answer();
        }
    }
}

/// The work of one connection, for its task and for the readers of its answers.
pub(crate) struct Driver {
    seat: Mutex<Seat>,
    bell: Arc<Bell>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

struct Seat {
    /// `None` when it is over.
    work: Option<Work>,
    /// The bell. Whoever polls does so with this one: what becomes ready is the task's to see.
    waker: Waker,
    /// Whose work it is; with the thread while it is polled.
    known: Option<Known>,
}

/// Whose work a thread polls.
struct Known {
    driver: Weak<Driver>,
    /// Whether its socket knows.
    to_socket: bool,
}

thread_local! {
    /// Whose work this thread polls just now.
    static AT_WORK: RefCell<Option<Known>> = const { RefCell::new(None) };
}

impl Seat {
    fn poll(&mut self) -> Poll<()> {
        let Some(work) = &mut self.work else { return Poll::Ready(()) };
        let mut cx = Context::from_waker(&self.waker);
        let others = AT_WORK.replace(self.known.take());
        // A panic ends the connection, as in a task of its own, and nothing of whoever reads from it.
        let polled =
            catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut cx))).unwrap_or(Poll::Ready(()));
        self.known = AT_WORK.replace(others);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl Driver {
    /// Lets the connection do what it can do now. If its task is at it, waits for one poll of that: microseconds, unless the system takes the
    /// processor away from it meanwhile.
    fn drive(&self) {
        let mut seat = self.seat.lock();
        // All of that is seen now.
        self.bell.rang.swap(false, Ordering::SeqCst);
        if seat.work.is_some() && seat.poll().is_ready() {
            self.bell.task.wake();
        }
    }
}

/// The task of a connection.
struct Driving(Arc<Driver>);

impl Future for Driving {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let driver = &self.0;
        driver.bell.task.register(cx.waker());
        driver.seat.lock().poll()
    }
}

/// What a socket and those who read answers from it tell each other. The client hands it on with each answer.
#[derive(Clone, Default)]
pub(crate) struct Link(Arc<Linked>);

#[derive(Default)]
struct Linked {
    /// Who drives the connection.
    driver: Mutex<Weak<Driver>>,
    /// How often something was asked for.
    asked: AtomicU64,
    /// What that was when the answer began that came to its end last.
    over: AtomicU64,
}

impl Link {
    /// Called by a socket when it is written to: something is asked for.
    pub(crate) fn asked(&self) {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether nothing is expected any more but that the other end closes the connection.
    pub(crate) fn is_over(&self) -> bool {
        let asked = self.asked_so_far();
        asked > 0 && self.0.over.load(Ordering::Relaxed) == asked
    }

    /// How often something was asked for.
    pub(crate) fn asked_so_far(&self) -> u64 {
        self.0.asked.load(Ordering::Relaxed)
    }

    /// Called when an answer came to its end that began after so much was asked for: the connection may be at the next one already.
    pub(crate) fn ended(&self, asked: u64) {
        self.0.over.store(asked, Ordering::Relaxed);
    }

    /// Called by a socket when it is polled: by the work of its connection, or before that by whoever makes it. Who came last is
    /// remembered.
    pub(crate) fn polled(&self) {
        AT_WORK.with_borrow_mut(|known| {
            if let Some(known) = known.as_mut().filter(|known| !known.to_socket) {
                known.to_socket = true;
                *self.0.driver.lock() = Weak::clone(&known.driver);
            }
        });
    }

    /// What a socket tells of itself, with this beside it.
    pub(crate) fn beside(&self, connected: Connected) -> Connected {
        connected.extra(self.clone())
    }
}

/// The body of an answer, which has its connection driven while it is read.
pub(crate) struct Driven<B> {
    body: B,
    /// With what was asked for when the answer began.
    link: Option<(Link, u64)>,
}

impl<B> Driven<B> {
    /// `extensions` are those of the answer. Connections of HTTP/2 carry many answers and hand over all that they have: they are
    /// left alone.
    pub(crate) fn new(body: B, version: Version, extensions: &Extensions) -> Self {
        let link = extensions.get::<Link>().filter(|_| version <= Version::HTTP_11);
        Self { body, link: link.map(|link| (link.clone(), link.asked_so_far())) }
    }
}

impl<B: Stream + Unpin> Stream for Driven<B> {
    type Item = B::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<B::Item>> {
        let Self { body, link } = &mut *self;
        let linked =
            link.as_ref().and_then(|(link, asked)| Some((link, *asked, link.0.driver.lock().upgrade()?)));
        let Some((link, asked, driver)) = linked else { return Pin::new(body).poll_next(cx) };
        let mut muted = driver.bell.mute();
        // What the connection hands over now does not wake the reader: it is taken below.
        let mut next = Pin::new(&mut *body).poll_next(&mut Context::from_waker(Waker::noop()));
        if next.is_pending() {
            driver.drive();
            next = Pin::new(body).poll_next(cx);
        }
        if matches!(next, Poll::Ready(None)) && link.asked_so_far() == asked && !link.is_over() {
            // A socket that rests would see too late that the other end closed it: when the next request is lost.
            link.ended(asked);
            driver.drive();
        }
        // Whoever got a chunk asks for the next one, and drives then; or drops this.
        muted.comes_back = matches!(next, Poll::Ready(Some(_))) && link.asked_so_far() == asked;
        next
    }
}

impl<B> Drop for Driven<B> {
    /// A connection that was kept asleep for a chunk is to see that nobody reads from it any more: what would tell it rang
    /// already, and rings no second time.
    fn drop(&mut self) {
        let driver = self.link.as_ref().and_then(|(link, _)| link.0.driver.lock().upgrade());
        if let Some(driver) = driver {
            driver.bell.answer();
        }
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

    /// The same, which runs, and how often it was polled.
    async fn started(link: &Link, last: usize) -> Arc<AtomicUsize> {
        let (work, count) = work(link, last);
        Drivers.execute(work);
        settle().await;
        count
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
        let of_handshake = started(&link, 1).await;
        let of_connection = started(&link, 100).await;
        read(&link);
        read(&link);
        assert_eq!([&of_handshake, &of_connection].map(|count| count.load(Ordering::Relaxed)), [1, 3]);
    }

    #[tokio::test]
    async fn a_socket_is_told_once_that_an_answer_came_to_its_end() {
        let link = Link::default();
        let polled = started(&link, 100).await;
        let mut extensions = Extensions::new();
        extensions.insert(link.clone());
        assert!(!link.is_over());
        link.asked();
        let answer = || Driven::new(futures::stream::iter([(), ()]), Version::HTTP_11, &extensions);
        let read = |mut driven: Driven<_>| -> Vec<(bool, usize)> {
            let next = |_| {
                let _ = Pin::new(&mut driven).poll_next(&mut Context::from_waker(Waker::noop()));
                (link.is_over(), polled.load(Ordering::Relaxed))
            };
            (0..4).map(next).collect()
        };
        assert_eq!(read(answer()), [(false, 1), (false, 1), (true, 2), (true, 2)]);
        // The end of this one is read when the next is asked for.
        let late = answer();
        link.asked();
        assert_eq!(read(late), [(false, 2); 4]);
        assert_eq!(read(answer()), [(false, 2), (false, 2), (true, 3), (true, 3)]);
    }

    #[tokio::test]
    async fn what_rings_while_a_reader_is_at_it_wakes_the_connection_only_if_that_is_left_to_it() {
        let (link, waker) = (Link::default(), Arc::new(Mutex::new(Waker::noop().clone())));
        let polled = Arc::new(AtomicUsize::new(0));
        let (socket, known, count) = (link.clone(), Arc::clone(&waker), Arc::clone(&polled));
        Drivers.execute(Box::pin(std::future::poll_fn(move |cx| {
            socket.polled();
            known.lock().clone_from(cx.waker());
            count.fetch_add(1, Ordering::Relaxed);
            Poll::Pending
        })));
        settle().await;
        let ring = || waker.lock().wake_by_ref();
        let mut extensions = Extensions::new();
        extensions.insert(link.clone());
        let given = std::cell::Cell::new(Poll::Pending);
        let body = poll_fn(|_| {
            ring();
            given.get()
        });
        let mut driven = Driven::new(body, Version::HTTP_11, &extensions);
        let mut expected = 1;
        for (what, next, by_reader, by_task) in [
            ("a chunk", Poll::Ready(Some(())), 0, 0),
            ("nothing yet, and it rings behind the drive", Poll::Pending, 1, 1),
            ("another chunk", Poll::Ready(Some(())), 0, 0),
        ] {
            given.set(next);
            assert_eq!(Pin::new(&mut driven).poll_next(&mut Context::from_waker(Waker::noop())), next);
            expected += by_reader;
            assert_eq!(polled.load(Ordering::Relaxed), expected, "{what}");
            settle().await;
            expected += by_task;
            assert_eq!(polled.load(Ordering::Relaxed), expected, "{what}, afterwards");
        }
        // It sees that its reader is gone.
        drop(driven);
        settle().await;
        assert_eq!(polled.load(Ordering::Relaxed), expected + 1);
        // Nobody is at it.
        ring();
        settle().await;
        assert_eq!(polled.load(Ordering::Relaxed), expected + 2);
    }

    #[test]
    fn no_ring_is_lost_between_a_reader_and_others() {
        struct Counting(AtomicUsize);
        impl ArcWake for Counting {
            fn wake_by_ref(counting: &Arc<Self>) {
                counting.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        for _ in 0..2_000 {
            let (bell, counting) = (Arc::<Bell>::default(), Arc::new(Counting(AtomicUsize::new(0))));
            bell.task.register(&waker(Arc::clone(&counting)));
            let muted = bell.mute();
            std::thread::scope(|scope| {
                scope.spawn(|| ArcWake::wake_by_ref(&bell));
                scope.spawn(|| drop(muted));
            });
            assert_eq!(counting.0.load(Ordering::SeqCst), 1);
        }
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
        assert!(link.0.driver.lock().upgrade().is_some());
        read(&link);
        settle().await;
        assert!(link.0.driver.lock().upgrade().is_none());
    }

    #[tokio::test]
    async fn a_connection_that_ends_while_it_is_read_from_ends_its_task() {
        let link = Link::default();
        let count = started(&link, 2).await;
        assert!(link.0.driver.lock().upgrade().is_some());
        read(&link);
        settle().await;
        assert!(link.0.driver.lock().upgrade().is_none());
        read(&link);
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}
