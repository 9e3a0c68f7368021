//! What waits for a flush: with a store that flushes only when it is told to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mock_llm::Script;
use playhouse_protocol::{Prompt, Seq, SessionId, SessionSummary};
use playhouse_store::{Append, Done, ListQuery, Log, LogRead, Page, Store, StoreError};

use crate::support::Stage;

/// A log that keeps back what it has to say about flushes.
struct Held {
    log: Arc<dyn Log>,
    hold: AtomicBool,
    appends: Mutex<Vec<(Append, Done)>>,
}

impl Held {
    fn let_go(&self) {
        self.hold.store(false, Ordering::SeqCst);
        for (append, done) in self.appends.lock().unwrap().drain(..) {
            self.log.append(append, done);
        }
    }
}

impl Log for Held {
    fn append(&self, append: Append, done: Done) {
        if self.hold.load(Ordering::SeqCst) {
            self.appends.lock().unwrap().push((append, done));
        } else {
            self.log.append(append, done);
        }
    }

    fn read(&self, session: SessionId, after: Seq, limit: usize) -> Result<LogRead, StoreError> {
        self.log.read(session, after, limit)
    }

    fn summary(&self, session: SessionId) -> Result<Option<SessionSummary>, StoreError> {
        self.log.summary(session)
    }

    fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.log.list(query)
    }

    fn unfinished(&self) -> Result<Vec<SessionId>, StoreError> {
        self.log.unfinished()
    }

    fn unfinished_of(&self, tenant: &str) -> Result<Vec<SessionId>, StoreError> {
        self.log.unfinished_of(tenant)
    }

    fn count(&self, tenant: &str) -> Result<u64, StoreError> {
        self.log.count(tenant)
    }

    fn fork(&self, fork: Append, done: Done) {
        self.log.fork(fork, done);
    }

    fn delete(&self, session: SessionId, done: Done) {
        self.log.delete(session, done);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_flush_nothing_is_acknowledged_published_or_sent() {
    let mut store = Store::memory().unwrap();
    let held = Arc::new(Held {
        log: Arc::clone(&store.log),
        hold: AtomicBool::new(false),
        appends: Mutex::default(),
    });
    store.log = Arc::clone(&held) as _;
    let stage = Stage::on(store, Arc::new(tempfile::tempdir().unwrap()), Script::new(), 1 << 20).await;
    let session = stage.session("echo").await;
    let mut events = session.events(None).await.unwrap();
    held.hold.store(true, Ordering::SeqCst);
    let prompt = tokio::spawn({
        let session = session.clone();
        async move { session.prompt(Prompt::text("go")).await.unwrap() }
    });
    while held.appends.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Time enough for whatever would not wait.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!prompt.is_finished(), "acknowledged means durable");
    assert_eq!(stage.directory.mock.journal().count(), 0, "no request leaves before its record is flushed");
    assert!(events.try_next().is_none(), "no durable event before the flush");
    held.let_go();
    let accepted = prompt.await.unwrap();
    crate::support::until(&mut events, |record| {
        matches!(record, playhouse_protocol::Record::TurnEnded(ended) if ended.turn == accepted.turn)
    })
    .await;
    assert_eq!(stage.directory.mock.journal().count(), 1);
}
