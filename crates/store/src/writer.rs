//! The one thread that writes.
//!
//! It takes everything that waits, stages it as one batch, writes and flushes that once, and then tells every caller.
//! So at most one flush is in flight, it starts at once when none is, and what arrives meanwhile shares the next.
//! After a write or a flush that failed nobody knows what is durable: the writer takes nothing more until it could open the
//! table again in place (`health`). Between rounds it copies the table to a fresh one, a slice at a time, when much was
//! removed (`compact`).

use std::any::Any;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use playhouse_protocol::{LedgerRow, Seq, SessionId, Timestamp};

use crate::compact::{Compactor, ReclaimDone};
use crate::health::{self, Health};
use crate::projection::Source;
use crate::round::{Heads, Round};
use crate::{Append, Done, StoreError, Suspended};

/// How many requests may wait.
const QUEUE: usize = 8192;

/// A round that holds this much is written before more is taken, so that no caller waits for an endless batch.
const ROUND_BYTES: usize = 8 * 1024 * 1024;

/// How often a suspended store tries to go on.
const AGAIN: Duration = Duration::from_secs(1);

/// A request to the writer.
pub(crate) enum Request {
    Append(Append, Done),
    Fork(Append, Done),
    Delete(SessionId, Done),
    CompareAndSet(CompareAndSet, SetDone),
    Archive(Archive, ArchiveDone),
    /// See [`crate::Ledger::correct`].
    Correct(Vec<LedgerRow>, LedgerDone),
    /// See [`crate::Ledger::close`].
    Close(Timestamp, LedgerDone),
    /// Answered when all is done, from another thread.
    Reclaim(ReclaimDone),
}

/// See [`crate::Ledger::archive`].
pub(crate) struct Archive {
    pub(crate) before: Timestamp,
    pub(crate) numbers: Vec<u64>,
    /// Those of them that are rows without a cost whose corrections say it.
    pub(crate) priced: HashSet<u64>,
}

pub(crate) type ArchiveDone = Box<dyn FnOnce(Result<u64, StoreError>) + Send>;

pub(crate) type LedgerDone = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

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
    LedgerChange(LedgerDone, Result<(), StoreError>),
    /// Only ever refused: what is done is told by whoever does it.
    Reclaim(ReclaimDone, StoreError),
}

/// The handle of the thread. Dropping it writes what waits, and ends the thread.
pub(crate) struct Writer {
    /// `None` only while this is dropped. Boxed requests keep the queue's own memory small.
    sender: Option<SyncSender<Box<Request>>>,
    thread: Option<JoinHandle<()>>,
    /// Requests that the thread has not taken.
    waiting: Arc<AtomicUsize>,
    health: Arc<Health>,
}

impl Writer {
    pub(crate) fn start(source: Arc<Source>, compactor: Compactor) -> Result<Self, StoreError> {
        let (sender, receiver) = sync_channel(QUEUE);
        let waiting = Arc::<AtomicUsize>::default();
        let queue = Queue { receiver, waiting: Arc::clone(&waiting) };
        let health = Arc::<Health>::default();
        let of_thread = Arc::clone(&health);
        let thread = thread::Builder::new()
            .name("playhouse-store".to_owned())
            .spawn(move || run(&source, compactor, &queue, &of_thread))?;
        Ok(Self { sender: Some(sender), thread: Some(thread), waiting, health })
    }

    /// Why nothing is taken just now.
    pub(crate) fn health(&self) -> Option<Suspended> {
        self.health.suspended()
    }

    /// How many requests wait to be taken.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Queues a request without waiting. One that does not fit, or that is refused anyway, is answered at once, on this
    /// thread.
    pub(crate) fn submit(&self, request: Request) {
        if let Some(refusal) = self.health.refusal() {
            return refuse(request, refusal);
        }
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
        if let Some(refusal) = self.health.refusal() {
            return refuse(request, refusal);
        }
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
        Request::Reclaim(done) => Answer::Reclaim(done, error),
        Request::Append(_, done) | Request::Fork(_, done) | Request::Delete(_, done) => {
            Answer::Log(done, Err(error))
        }
        Request::CompareAndSet(_, done) => Answer::Shelf(done, Err(error)),
        Request::Archive(_, done) => Answer::Ledger(done, Err(error)),
        Request::Correct(_, done) | Request::Close(_, done) => Answer::LedgerChange(done, Err(error)),
    });
}

fn answer(answer: Answer) {
    let told = catch_unwind(AssertUnwindSafe(|| match answer {
        Answer::Log(done, result) => done(result),
        Answer::Shelf(done, result) => done(result),
        Answer::Ledger(done, result) => done(result),
        Answer::LedgerChange(done, result) => done(result),
        Answer::Reclaim(done, error) => done(Err(error)),
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

/// What came of waiting for a request.
enum Taken {
    Request(Box<Request>),
    /// None came in time.
    Nothing,
    /// There will be none any more.
    Closed,
}

impl Queue {
    /// The next request. It is waited for until `until`, or as long as it takes.
    fn wait(&self, until: Option<Instant>) -> Taken {
        let received = match until {
            Some(until) => self.receiver.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => self.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match received {
            Ok(request) => {
                self.took();
                Taken::Request(request)
            }
            Err(RecvTimeoutError::Timeout) => Taken::Nothing,
            Err(RecvTimeoutError::Disconnected) => Taken::Closed,
        }
    }

    /// A request that is there already.
    fn next(&self) -> Option<Box<Request>> {
        self.receiver.try_recv().ok().inspect(|_| self.took())
    }

    fn took(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

fn run(source: &Source, compactor: Compactor, queue: &Queue, health: &Health) {
    let mut work = Work { source, compactor, heads: Heads::new(), health, again: None };
    loop {
        let due = work.again.or_else(|| work.compactor.due());
        let busy = match queue.wait(due) {
            Taken::Closed => return,
            Taken::Nothing => false,
            Taken::Request(first) => {
                work.round(first, queue);
                true
            }
        };
        match work.again {
            None => work.compact(busy),
            Some(again) if again <= Instant::now() => work.go_on(queue),
            Some(_) => {}
        }
    }
}

/// What the thread keeps between rounds.
struct Work<'a> {
    source: &'a Source,
    compactor: Compactor,
    heads: Heads,
    health: &'a Health,
    /// While nothing is taken: when that is to be tried again.
    again: Option<Instant>,
}

impl Work<'_> {
    /// Serves a request, and those that wait behind it.
    fn round(&mut self, first: Box<Request>, queue: &Queue) {
        if let Some(refusal) = self.health.refusal() {
            return refuse(*first, refusal);
        }
        let mut round = Round::new(self.source, &mut self.heads);
        let mut answers = Vec::new();
        let mut next = Some(first);
        while let Some(request) = next {
            match *request {
                Request::Reclaim(done) => self.compactor.ask(done),
                request => answers.push(stage(&mut round, request)),
            }
            let is_full = round.bytes() >= ROUND_BYTES || answers.len() >= QUEUE;
            next = if is_full { None } else { queue.next() };
        }
        // A backend that failed may fail all that follows. It is told apart from what is wrong with a request by asking it.
        let may_be_broken = answers.iter().any(may_be_broken);
        let looked = if may_be_broken { look(self.source) } else { Ok(()) };
        let is_broken = looked.is_err();
        if let Err(error) = looked.and_then(|()| guarded(|| round.commit())) {
            self.suspend(&error);
            let refusal = || self.health.refusal().unwrap_or(StoreError::Closed);
            answers = answers.into_iter().map(|answer| fail(answer, is_broken, &refusal)).collect();
        } else if let Some(error) =
            answers.iter().filter_map(error_of).find(|error| error.suspension().is_some())
        {
            // What goes beside the table had no room, or no place that is ours. Whoever is refused that would try again and again, at a price.
            self.suspend(error);
        }
        answers.into_iter().for_each(answer);
    }

    /// Does what is due of a compaction.
    fn compact(&mut self, busy: bool) {
        let compactor = &mut self.compactor;
        if let Err(error) = guarded(|| compactor.work(busy)) {
            self.suspend(&error);
        }
    }

    /// Takes no more requests.
    fn suspend(&mut self, error: &StoreError) {
        let reason = self.health.suspend(error);
        tracing::error!(
            %error, reason = reason.name(), "the store takes no more writes: {reason}. It is tried again every second"
        );
        self.heads.clear();
        self.compactor.give_up(&StoreError::Suspended { reason });
        if look(self.source).is_err() {
            // Readers are not to wait for it. Whether it can be written is seen later.
            let reopened = guarded(|| self.source.table.reopen());
            tracing::debug!(?reopened, "the table could not be read and was opened again");
        }
        self.again = Some(Instant::now() + AGAIN);
    }

    /// Takes requests again, if the disk is well.
    fn go_on(&mut self, queue: &Queue) {
        match guarded(|| health::reopen(self.source)) {
            Ok(()) => {
                // Who sent them may know already that what they stand on was refused.
                while let Some(request) = queue.next() {
                    refuse(*request, self.health.refusal().unwrap_or(StoreError::Closed));
                }
                self.again = None;
                if let Some(suspended) = self.health.end() {
                    let seconds = suspended.since.elapsed().as_secs_f64();
                    tracing::warn!(seconds, "the store takes writes again");
                }
            }
            Err(error) => {
                let before = self.health.suspended().map(|suspended| suspended.reason);
                let reason = self.health.suspend(&error);
                if before != Some(reason) {
                    tracing::error!(%error, reason = reason.name(), "the store takes no writes yet: {reason}");
                } else {
                    tracing::debug!(%error, "the store takes no writes yet");
                }
                self.again = Some(Instant::now() + AGAIN);
            }
        }
    }
}

/// Stages one request. A panic on the way is that request's error, and nothing of it is staged.
fn stage(round: &mut Round<'_>, request: Request) -> Answer {
    match request {
        Request::Reclaim(done) => {
            Answer::Reclaim(done, StoreError::Backend("a compaction is no part of a round".to_owned()))
        }
        Request::Append(append, done) => Answer::Log(done, guarded(|| round.append(&append))),
        Request::Fork(fork, done) => Answer::Log(done, guarded(|| round.fork(&fork))),
        Request::Delete(session, done) => Answer::Log(done, guarded(|| round.delete(session))),
        Request::CompareAndSet(CompareAndSet { key, expected, new }, done) => {
            let set = guarded(|| round.compare_and_set(&key, expected.as_deref(), new.as_deref()));
            Answer::Shelf(done, set)
        }
        Request::Archive(archive, done) => Answer::Ledger(done, guarded(|| round.archive(&archive))),
        Request::Correct(corrections, done) => {
            Answer::LedgerChange(done, guarded(|| round.correct(&corrections)))
        }
        Request::Close(until, done) => Answer::LedgerChange(done, guarded(|| round.close(until))),
    }
}

/// Whether the table can be read.
fn look(source: &Source) -> Result<(), StoreError> {
    let look = || match source.table.can_be_read() {
        true => Ok(()),
        false => Err(StoreError::Backend("the table cannot be read".to_owned())),
    };
    guarded(look)
}

/// Whether this may be an error of the backend.
fn may_be_broken(answer: &Answer) -> bool {
    error_of(answer).is_some_and(is_of_backend)
}

/// Why a request is refused, if it is.
fn error_of(answer: &Answer) -> Option<&StoreError> {
    match answer {
        Answer::Log(_, result) => result.as_ref().err(),
        Answer::Shelf(_, result) => result.as_ref().err(),
        Answer::Ledger(_, result) => result.as_ref().err(),
        Answer::LedgerChange(_, result) => result.as_ref().err(),
        Answer::Reclaim(_, error) => Some(error),
    }
}

fn is_of_backend(error: &StoreError) -> bool {
    matches!(error, StoreError::Backend(_) | StoreError::Io(_))
}

/// What was staged did not become durable; what was refused stays refused, unless it was the backend, which `is_broken`.
fn fail(answer: Answer, is_broken: bool, refusal: &dyn Fn() -> StoreError) -> Answer {
    fn of<T>(result: Result<T, StoreError>, is_broken: bool, refusal: &dyn Fn() -> StoreError) -> StoreError {
        match result {
            Err(error) if !(is_broken && is_of_backend(&error)) => error,
            Ok(_) | Err(_) => refusal(),
        }
    }
    match answer {
        Answer::Log(done, result) => Answer::Log(done, Err(of(result, is_broken, refusal))),
        Answer::Shelf(done, result) => Answer::Shelf(done, Err(of(result, is_broken, refusal))),
        Answer::Ledger(done, result) => Answer::Ledger(done, Err(of(result, is_broken, refusal))),
        Answer::LedgerChange(done, result) => Answer::LedgerChange(done, Err(of(result, is_broken, refusal))),
        refused @ Answer::Reclaim(..) => refused,
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
pub(crate) mod tests {
    use std::sync::{Barrier, Mutex};

    use playhouse_protocol::record::{SessionChanged, SessionCreated};
    use playhouse_protocol::{Entry, ModelRef, Record};

    use super::*;
    use crate::in_hand::InHand;
    use crate::logs::TableStore;
    use crate::memory::{MemoryBlobs, MemoryTable};
    use crate::open::Reclaim;
    use crate::switch::Switch;
    use crate::table::{Batch, Pair, Table};
    use crate::{Log, Shelf};

    /// A table in memory whose flushes are counted, and wait at a barrier, as told.
    #[derive(Default)]
    struct Disk {
        table: MemoryTable,
        orders: Arc<Orders>,
    }

    #[derive(Default)]
    struct Orders {
        flushes: AtomicUsize,
        gate: Mutex<Option<Arc<Barrier>>>,
    }

    impl Table for Disk {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            self.table.get(key)
        }

        fn page(&self, from: &[u8], to: &[u8], limit: usize, bytes: usize) -> Result<Vec<Pair>, StoreError> {
            self.table.page(from, to, limit, bytes)
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
            Ok(())
        }

        fn reopen(&self) -> Result<(), StoreError> {
            self.table.reopen()
        }
    }

    fn store() -> (Arc<TableStore>, Arc<Orders>) {
        let disk = Disk::default();
        let orders = Arc::clone(&disk.orders);
        (store_in(Box::new(disk)), orders)
    }

    /// A store in this table.
    pub(crate) fn store_in(table: Box<dyn Table>) -> Arc<TableStore> {
        let in_hand = Arc::new(InHand::new(std::time::Duration::from_secs(60)));
        let blobs = Arc::new(MemoryBlobs::new(Arc::clone(&in_hand)));
        let switch = Arc::new(Switch::new(table, None, in_hand).unwrap());
        let source = Source::new(Arc::clone(&switch) as _, Arc::clone(&blobs) as _);
        Arc::new(TableStore::start(source, switch, blobs, Reclaim::default()).unwrap())
    }

    pub(crate) fn session(number: usize) -> SessionId {
        SessionId::parse(&format!("ses_{number:012x}12345678901234")).unwrap()
    }

    pub(crate) fn creation(number: usize) -> Append {
        let record = Record::SessionCreated(SessionCreated {
            title: "t".to_owned(),
            ..SessionCreated::new(session(number), "acme", "/w", "build", ModelRef::new("mock", "m"))
        });
        append(number, 0, record)
    }

    pub(crate) fn change(number: usize, expected: u64) -> Append {
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

    pub(crate) type Answers = std::sync::mpsc::Receiver<Result<Seq, StoreError>>;

    pub(crate) fn begin(log: &dyn Log, append: Append) -> Answers {
        let (sender, receiver) = sync_channel(1);
        log.append(append, Box::new(move |result| sender.send(result).unwrap()));
        receiver
    }

    pub(crate) fn wait(answers: &Answers) -> Result<Seq, StoreError> {
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
        let shown = store.list(&crate::ListQuery::default()).unwrap().sessions.len();
        gate.wait();
        assert_eq!(shown, 0, "shown before it was flushed");
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
