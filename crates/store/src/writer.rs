//! The one thread that writes.
//!
//! It takes everything that waits, stages it as one batch, writes and flushes that once, and then tells every caller.
//! So at most one flush is in flight, it starts at once when none is, and what arrives meanwhile shares the next.
//! After a write or a flush that failed nobody knows what is durable: the writer takes nothing more until the store is
//! opened again.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use playhouse_protocol::{Seq, SessionId, Timestamp};

use crate::projection::Source;
use crate::round::{Heads, Round};
use crate::{Append, Done, StoreError};

/// How many requests may wait.
const QUEUE: usize = 8192;

/// A round that holds this much is written before more is taken, so that no caller waits for an endless batch.
const ROUND_BYTES: usize = 8 * 1024 * 1024;

/// A request to the writer.
pub(crate) enum Request {
    Append(Append, Done),
    Fork(Append, Done),
    Delete(SessionId, Done),
    CompareAndSet(CompareAndSet, SetDone),
    Archive(Archive, ArchiveDone),
}

/// See [`crate::Ledger::archive`].
pub(crate) struct Archive {
    pub(crate) before: Timestamp,
    pub(crate) numbers: Vec<u64>,
}

pub(crate) type ArchiveDone = Box<dyn FnOnce(Result<u64, StoreError>) + Send>;

/// See [`crate::Shelf::compare_and_set`].
pub(crate) struct CompareAndSet {
    pub(crate) key: String,
    pub(crate) expected: Option<Vec<u8>>,
    pub(crate) new: Option<Vec<u8>>,
}

pub(crate) type SetDone = Box<dyn FnOnce(Result<bool, StoreError>) + Send>;

/// A request that was staged or refused, and is answered after the flush.
enum Answer {
    Log(Done, Result<Seq, StoreError>),
    Shelf(SetDone, Result<bool, StoreError>),
    Ledger(ArchiveDone, Result<u64, StoreError>),
}

/// The handle of the thread. Dropping it writes what waits, and ends the thread.
pub(crate) struct Writer {
    /// `None` only while this is dropped. Boxed requests keep the queue's own memory small.
    sender: Option<SyncSender<Box<Request>>>,
    thread: Option<JoinHandle<()>>,
    /// Requests that the thread has not taken.
    waiting: Arc<AtomicUsize>,
}

impl Writer {
    pub(crate) fn start(source: Arc<Source>) -> Result<Self, StoreError> {
        let (sender, receiver) = sync_channel(QUEUE);
        let waiting = Arc::<AtomicUsize>::default();
        let queue = Queue { receiver, waiting: Arc::clone(&waiting) };
        let thread =
            thread::Builder::new().name("playhouse-store".to_owned()).spawn(move || run(&source, &queue))?;
        Ok(Self { sender: Some(sender), thread: Some(thread), waiting })
    }

    /// How many requests wait to be taken.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Queues a request without waiting. One that does not fit is answered at once, on this thread.
    pub(crate) fn submit(&self, request: Request) {
        let Some(sender) = &self.sender else { return refuse(request, StoreError::Closed) };
        // Before it is there: the thread may take it at once.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let sent = sender.try_send(Box::new(request));
        if sent.is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        match sent {
            Ok(()) => {}
            Err(TrySendError::Full(request)) => {
                let reason = format!("overloaded: {QUEUE} writes are waiting; try again later");
                refuse(*request, StoreError::Backend(reason));
            }
            Err(TrySendError::Disconnected(request)) => refuse(*request, StoreError::Closed),
        }
    }

    /// Queues a request, and waits while the queue is full.
    pub(crate) fn submit_waiting(&self, request: Request) {
        let Some(sender) = &self.sender else { return refuse(request, StoreError::Closed) };
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = sender.send(Box::new(request)) {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            refuse(*error.0, StoreError::Closed);
        }
    }

    /// Whether the caller is the writer's own thread, which must not wait for itself.
    pub(crate) fn is_current_thread(&self) -> bool {
        self.thread.as_ref().is_some_and(|handle| handle.thread().id() == thread::current().id())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let on_own_thread = self.is_current_thread();
        self.sender = None;
        // A caller's `done` may hold the last handle of the store: then the thread ends by itself after its queue.
        if let Some(thread) = self.thread.take().filter(|_| !on_own_thread)
            && thread.join().is_err()
        {
            tracing::error!("the store's writer panicked");
        }
    }
}

fn refuse(request: Request, error: StoreError) {
    answer(match request {
        Request::Append(_, done) | Request::Fork(_, done) | Request::Delete(_, done) => {
            Answer::Log(done, Err(error))
        }
        Request::CompareAndSet(_, done) => Answer::Shelf(done, Err(error)),
        Request::Archive(_, done) => Answer::Ledger(done, Err(error)),
    });
}

fn answer(answer: Answer) {
    let told = catch_unwind(AssertUnwindSafe(|| match answer {
        Answer::Log(done, result) => done(result),
        Answer::Shelf(done, result) => done(result),
        Answer::Ledger(done, result) => done(result),
    }));
    if let Err(panic) = told {
        tracing::error!(panic = panic_text(&*panic), "a caller's answer to a write panicked");
    }
}

/// What the thread takes from.
struct Queue {
    receiver: Receiver<Box<Request>>,
    waiting: Arc<AtomicUsize>,
}

impl Queue {
    /// The next request; `None` when there will be none any more.
    fn wait(&self) -> Option<Box<Request>> {
        self.receiver.recv().ok().inspect(|_| self.took())
    }

    /// A request that is there already.
    fn next(&self) -> Option<Box<Request>> {
        self.receiver.try_recv().ok().inspect(|_| self.took())
    }

    fn took(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

fn run(source: &Source, queue: &Queue) {
    let mut heads = Heads::new();
    let mut failed: Option<String> = None;
    while let Some(first) = queue.wait() {
        if let Some(reason) = &failed {
            let text = format!("an earlier write failed and the store must be opened again: {reason}");
            refuse(*first, StoreError::Backend(text));
            continue;
        }
        let mut round = Round::new(source, &mut heads);
        let mut answers = vec![stage(&mut round, *first)];
        while round.bytes() < ROUND_BYTES && answers.len() < QUEUE {
            let Some(next) = queue.next() else { break };
            answers.push(stage(&mut round, *next));
        }
        if let Err(error) = guarded(|| round.commit()) {
            let reason = match error {
                StoreError::Backend(reason) => reason,
                error => error.to_string(),
            };
            tracing::error!(error = reason, "the store takes no more writes");
            heads.clear();
            answers = answers.into_iter().map(|answer| fail(answer, &reason)).collect();
            failed = Some(reason);
        }
        answers.into_iter().for_each(answer);
    }
}

/// Stages one request. A panic on the way is that request's error, and nothing of it is staged.
fn stage(round: &mut Round<'_>, request: Request) -> Answer {
    match request {
        Request::Append(append, done) => Answer::Log(done, guarded(|| round.append(&append))),
        Request::Fork(fork, done) => Answer::Log(done, guarded(|| round.fork(&fork))),
        Request::Delete(session, done) => Answer::Log(done, guarded(|| round.delete(session))),
        Request::CompareAndSet(CompareAndSet { key, expected, new }, done) => {
            let set = guarded(|| round.compare_and_set(&key, expected.as_deref(), new.as_deref()));
            Answer::Shelf(done, set)
        }
        Request::Archive(Archive { before, numbers }, done) => {
            Answer::Ledger(done, guarded(|| round.archive(before, &numbers)))
        }
    }
}

/// What was staged did not become durable; what was refused stays refused.
fn fail(answer: Answer, reason: &str) -> Answer {
    let error = || StoreError::Backend(reason.to_owned());
    match answer {
        Answer::Log(done, result) => Answer::Log(done, result.and_then(|_| Err(error()))),
        Answer::Shelf(done, result) => Answer::Shelf(done, result.and_then(|_| Err(error()))),
        Answer::Ledger(done, result) => Answer::Ledger(done, result.and_then(|_| Err(error()))),
    }
}

fn guarded<T>(work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(StoreError::Backend(format!("the writer panicked: {}", panic_text(&*panic))))
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::{Barrier, Mutex};

    use playhouse_protocol::record::{SessionChanged, SessionCreated};
    use playhouse_protocol::{Entry, ModelRef, Record};

    use super::*;
    use crate::logs::TableStore;
    use crate::memory::{MemoryBlobs, MemoryTable};
    use crate::table::{Batch, Pair, Table};
    use crate::{Log, Shelf};

    /// A table in memory whose flushes are counted, wait at a barrier, fail or panic, as told.
    #[derive(Default)]
    struct Disk {
        table: MemoryTable,
        orders: Arc<Orders>,
    }

    #[derive(Default)]
    struct Orders {
        flushes: AtomicUsize,
        fails: AtomicBool,
        panics: AtomicBool,
        gate: Mutex<Option<Arc<Barrier>>>,
    }

    impl Table for Disk {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            self.table.get(key)
        }

        fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
            self.table.scan(from, to, limit)
        }

        fn last_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            self.table.last_key(from, to)
        }

        fn apply(&self, batch: Batch) -> Result<(), StoreError> {
            self.table.apply(batch)
        }

        fn flush(&self) -> Result<(), StoreError> {
            self.orders.flushes.fetch_add(1, Ordering::SeqCst);
            let gate = self.orders.gate.lock().unwrap().take();
            if let Some(gate) = gate {
                gate.wait();
                gate.wait();
            }
            assert!(!self.orders.panics.load(Ordering::SeqCst), "the disk is on fire");
            match self.orders.fails.load(Ordering::SeqCst) {
                true => Err(StoreError::Backend("no space left".to_owned())),
                false => Ok(()),
            }
        }
    }

    fn store() -> (Arc<TableStore>, Arc<Orders>) {
        let disk = Disk::default();
        let orders = Arc::clone(&disk.orders);
        let source = Source::new(Box::new(disk), Arc::new(MemoryBlobs::default()), None);
        (Arc::new(TableStore::start(source).unwrap()), orders)
    }

    fn session(number: usize) -> SessionId {
        SessionId::parse(&format!("ses_{number:012x}12345678901234")).unwrap()
    }

    fn creation(number: usize) -> Append {
        let record = Record::SessionCreated(SessionCreated {
            session: session(number),
            tenant: "acme".to_owned(),
            workspace: "/w".to_owned(),
            title: "t".to_owned(),
            agent: "build".to_owned(),
            model: ModelRef::new("mock", "m"),
            parent: None,
            root: None,
            parent_step: None,
            permissions: Vec::new(),
            unattended: false,
            walls: None,
            metadata: serde_json::Map::new(),
        });
        append(number, 0, record)
    }

    fn change(number: usize, expected: u64) -> Append {
        append(number, expected, Record::SessionChanged(SessionChanged::default()))
    }

    fn append(number: usize, expected: u64, record: Record) -> Append {
        let entry = Entry { seq: Seq(expected + 1), at: Timestamp::from_millis(expected), record };
        Append {
            session: session(number),
            tenant: "acme".into(),
            expected: Seq(expected),
            entries: vec![entry],
        }
    }

    type Answers = std::sync::mpsc::Receiver<Result<Seq, StoreError>>;

    fn begin(log: &dyn Log, append: Append) -> Answers {
        let (sender, receiver) = sync_channel(1);
        log.append(append, Box::new(move |result| sender.send(result).unwrap()));
        receiver
    }

    fn wait(answers: &Answers) -> Result<Seq, StoreError> {
        answers.recv().unwrap()
    }

    /// Holds the first flush; what is appended until the barrier's second use waits for the next.
    fn hold(orders: &Orders) -> Arc<Barrier> {
        let gate = Arc::new(Barrier::new(2));
        *orders.gate.lock().unwrap() = Some(Arc::clone(&gate));
        gate
    }

    #[test]
    fn appends_that_arrive_during_a_flush_share_the_next() {
        let (store, orders) = store();
        let gate = hold(&orders);
        let first = begin(&*store, creation(0));
        gate.wait();
        let others: Vec<_> = (1..200).map(|number| begin(&*store, creation(number))).collect();
        assert_eq!(store.waiting(), 199);
        assert_eq!(orders.flushes.load(Ordering::SeqCst), 1);
        assert!(first.try_recv().is_err(), "answered before it was flushed");
        gate.wait();
        assert_eq!(wait(&first).unwrap(), Seq(1));
        assert!(others.iter().all(|answers| wait(answers).is_ok()));
        assert_eq!((orders.flushes.load(Ordering::SeqCst), store.waiting()), (2, 0));
    }

    #[test]
    fn requests_of_one_round_see_each_other() {
        let (store, orders) = store();
        let gate = hold(&orders);
        let first = begin(&*store, creation(0));
        gate.wait();
        let delete = |number| {
            let (sender, receiver) = sync_channel(1);
            store.delete(session(number), Box::new(move |result| sender.send(result).unwrap()));
            receiver
        };
        let changed = begin(&*store, change(0, 1));
        let late = begin(&*store, change(0, 1));
        let deleted = delete(0);
        let deleted_again = delete(0);
        let created_again = begin(&*store, creation(0));
        let short_lived = begin(&*store, creation(1));
        let short_lived_end = delete(1);
        gate.wait();
        assert_eq!(wait(&first).unwrap(), Seq(1));
        assert_eq!(wait(&changed).unwrap(), Seq(2));
        assert!(matches!(wait(&late), Err(StoreError::Conflict { found: Seq(2), .. })));
        assert_eq!(wait(&deleted).unwrap(), Seq(2));
        assert!(matches!(wait(&deleted_again), Err(StoreError::Missing(_))));
        assert_eq!(wait(&created_again).unwrap(), Seq(1));
        assert_eq!(wait(&short_lived).unwrap(), Seq(1));
        assert_eq!(wait(&short_lived_end).unwrap(), Seq(1));
        assert_eq!(orders.flushes.load(Ordering::SeqCst), 2);
        let read = store.read(session(0), Seq::START, 10).unwrap();
        assert_eq!((read.entries.len(), read.damage), (1, None));
        assert!(matches!(store.read(session(1), Seq::START, 10), Err(StoreError::Missing(_))));
        assert_eq!(store.list(&crate::ListQuery::default()).unwrap().sessions.len(), 1);
    }

    #[test]
    fn after_a_failed_flush_nothing_is_acknowledged() {
        for panics in [false, true] {
            let (store, orders) = store();
            wait(&begin(&*store, creation(0))).unwrap();
            if panics { &orders.panics } else { &orders.fails }.store(true, Ordering::SeqCst);
            let gate = hold(&orders);
            let first = begin(&*store, change(0, 1));
            gate.wait();
            let second = begin(&*store, creation(1));
            gate.wait();
            let expected = if panics { "the disk is on fire" } else { "no space left" };
            let error = wait(&first).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            // The disk may be well again: what is durable is not known all the same.
            orders.panics.store(false, Ordering::SeqCst);
            orders.fails.store(false, Ordering::SeqCst);
            for answers in [second, begin(&*store, change(0, 1)), begin(&*store, creation(2))] {
                let error = wait(&answers).unwrap_err().to_string();
                assert!(error.contains("opened again") && error.contains(expected), "{error}");
            }
            assert!(store.compare_and_set("a", None, Some(b"1")).is_err());
            assert!(store.summary(session(0)).unwrap().is_some());
        }
    }

    #[test]
    fn an_answer_that_panics_harms_nobody() {
        let (store, _) = store();
        store.append(creation(0), Box::new(|_| panic!("a careless caller")));
        assert_eq!(wait(&begin(&*store, change(0, 1))).unwrap(), Seq(2));
    }

    #[test]
    fn a_full_queue_refuses_at_once_and_loses_nothing() {
        let (store, orders) = store();
        let gate = hold(&orders);
        let first = begin(&*store, creation(0));
        gate.wait();
        let waiting: Vec<_> = (0..QUEUE).map(|number| begin(&*store, change(0, 1 + number as u64))).collect();
        let error = wait(&begin(&*store, creation(1))).unwrap_err().to_string();
        assert!(error.contains("overloaded"), "{error}");
        gate.wait();
        wait(&first).unwrap();
        assert!(waiting.iter().all(|answers| wait(answers).is_ok()));
        assert_eq!(store.summary(session(0)).unwrap().unwrap().head, Seq(1 + QUEUE as u64));
        assert_eq!(wait(&begin(&*store, creation(1))).unwrap(), Seq(1));
    }

    #[test]
    fn dropping_the_store_writes_what_waits() {
        let (store, orders) = store();
        let gate = hold(&orders);
        let mut answers = vec![begin(&*store, creation(0))];
        gate.wait();
        answers.extend((1..100).map(|number| begin(&*store, change(0, number))));
        let dropping = thread::spawn(move || drop(store));
        gate.wait();
        dropping.join().unwrap();
        assert!(answers.iter().all(|answers| wait(answers).is_ok()));
    }

    #[test]
    fn the_last_handle_may_be_dropped_by_an_answer() {
        let (store, _) = store();
        let (sender, receiver) = sync_channel(1);
        let held = Arc::clone(&store);
        let gate = Arc::new(Barrier::new(2));
        let dropped = Arc::clone(&gate);
        store.append(
            creation(0),
            Box::new(move |result| {
                dropped.wait();
                drop(held);
                sender.send(result).unwrap();
            }),
        );
        drop(store);
        gate.wait();
        assert_eq!(receiver.recv().unwrap().unwrap(), Seq(1));
    }

    #[test]
    fn the_shelf_cannot_be_waited_for_in_an_answer() {
        let (store, _) = store();
        let (sender, receiver) = sync_channel(1);
        let held = Arc::clone(&store);
        store.append(
            creation(0),
            Box::new(move |_| sender.send(held.compare_and_set("a", None, Some(b"1"))).unwrap()),
        );
        let error = receiver.recv().unwrap().unwrap_err().to_string();
        assert!(error.contains("would wait for itself"), "{error}");
    }
}
