//! A store that takes no writes for a while: what runs is suspended, what is new is refused, and all goes on by itself.

use std::collections::HashMap;
use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mock_llm::{Model, Script, call, text};
use playhouse_actors::SessionHandle;
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::record::{Record, TurnOutcome};
use playhouse_protocol::{CommandError, Prompt, Seq, SessionId, SessionSummary};
use playhouse_store::{
    Append, Done, ListQuery, Log, LogRead, Page, Store, StoreError, Suspended, SuspensionReason,
};
use serde_json::json;

use crate::support::{Stage, until};

/// A log on a disk that may be full.
pub(crate) struct Disk {
    log: Arc<dyn Log>,
    full: Mutex<Option<Instant>>,
    /// Number of refused writes.
    refused: AtomicU32,
    /// Number of refused writes whose senders were told.
    told: Arc<AtomicU32>,
    /// The result of a call does not fit, so many times; all other records do.
    pub(crate) too_large: AtomicU32,
    /// The writes that come are done, and those who sent them are told that they were not.
    keeps: AtomicBool,
    /// Where the logs ended before such writes: so far they are shown while it is full.
    shown: Mutex<HashMap<SessionId, Seq>>,
    /// So many removals of sessions are refused.
    kept: AtomicU32,
    /// The writes that came since it stands still.
    still: Mutex<Option<Vec<(Append, Done)>>>,
}

impl Disk {
    /// A store whose log lies on such a disk.
    pub(crate) fn with_a_store() -> (Store, Arc<Self>) {
        let mut store = Store::memory().unwrap();
        let disk = Arc::new(Self {
            log: Arc::clone(&store.log),
            full: Mutex::default(),
            refused: AtomicU32::new(0),
            told: Arc::default(),
            too_large: AtomicU32::new(0),
            keeps: AtomicBool::new(false),
            shown: Mutex::default(),
            kept: AtomicU32::new(0),
            still: Mutex::default(),
        });
        store.log = Arc::clone(&disk) as _;
        (store, disk)
    }

    /// Writes nothing from now on, and takes all the same.
    pub(crate) fn stand_still(&self) {
        self.still.lock().unwrap().get_or_insert_default();
    }

    /// Whether something waits to be written.
    pub(crate) fn has_in_hand(&self) -> bool {
        self.still.lock().unwrap().as_ref().is_some_and(|waiting| !waiting.is_empty())
    }

    /// Writes what came meanwhile, and all that comes.
    pub(crate) fn move_on(&self) {
        for (append, done) in self.still.lock().unwrap().take().unwrap_or_default() {
            self.log.append(append, done);
        }
    }

    fn fill(&self) {
        *self.full.lock().unwrap() = Some(Instant::now());
    }

    fn free(&self) {
        self.shown.lock().unwrap().clear();
        *self.full.lock().unwrap() = None;
    }

    fn refused(&self) -> u32 {
        self.refused.load(Ordering::SeqCst)
    }

    /// How this write is refused.
    fn refusal(&self, append: Option<&Append>) -> Option<StoreError> {
        if self.health().is_some() {
            return Some(StoreError::Suspended { reason: SuspensionReason::Full });
        }
        let settles = append?.entries.iter().any(|entry| matches!(entry.record, Record::CallSettled { .. }));
        let left = self.too_large.load(Ordering::SeqCst);
        if settles && left > 0 {
            self.too_large.store(left - 1, Ordering::SeqCst);
            return Some(Error::from(ErrorKind::StorageFull).into());
        }
        None
    }

    /// Tells whoever sent a write that it was refused. Who was told may look at the number at once: it is counted before.
    fn refuse(&self, error: StoreError, done: Done) -> impl FnOnce() + Send + 'static {
        self.refused.fetch_add(1, Ordering::SeqCst);
        let told = Arc::clone(&self.told);
        move || {
            done(Err(error));
            told.fetch_add(1, Ordering::SeqCst);
        }
    }

    async fn refuses_more_than(&self, before: u32) {
        let refused = async {
            while self.told.load(Ordering::SeqCst) <= before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), refused).await.expect("a write is refused");
    }
}

impl Log for Disk {
    fn append(&self, append: Append, done: Done) {
        if let Some(waiting) = &mut *self.still.lock().unwrap() {
            waiting.push((append, done));
            return;
        }
        let Some(error) = self.refusal(Some(&append)) else {
            self.log.append(append, done);
            return;
        };
        let refuse = self.refuse(error, done);
        if self.keeps.load(Ordering::SeqCst) {
            self.shown.lock().unwrap().entry(append.session).or_insert(append.expected);
            self.log.append(append, Box::new(move |_| refuse()));
        } else {
            refuse();
        }
    }

    fn read(&self, session: SessionId, after: Seq, limit: usize) -> Result<LogRead, StoreError> {
        let mut read = self.log.read(session, after, limit)?;
        if let Some(end) = self.shown.lock().unwrap().get(&session) {
            read.entries.retain(|entry| entry.seq <= *end);
        }
        Ok(read)
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
        match self.refusal(None) {
            None => self.log.fork(fork, done),
            Some(error) => self.refuse(error, done)(),
        }
    }

    fn delete(&self, session: SessionId, done: Done) {
        let less = |kept: u32| kept.checked_sub(1);
        if self.kept.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return done(Err(StoreError::Suspended { reason: SuspensionReason::Full }));
        }
        match self.refusal(None) {
            None => self.log.delete(session, done),
            Some(error) => self.refuse(error, done)(),
        }
    }

    fn health(&self) -> Option<Suspended> {
        let since = (*self.full.lock().unwrap())?;
        Some(Suspended { reason: SuspensionReason::Full, since })
    }
}

async fn stage(script: Script) -> (Stage, Arc<Disk>) {
    let (store, disk) = Disk::with_a_store();
    (Stage::on(store, Arc::new(tempfile::tempdir().unwrap()), script, 1 << 20).await, disk)
}

fn waits(mode: &str) -> Script {
    Script::new().model("m", Model::new().step(call("probe", json!({"mode": mode}))).step(text("Done.")))
}

fn is_refused(error: &CommandError) -> bool {
    matches!(error, CommandError::Suspended(text) if text.contains("make room") && text.contains("goes on by itself"))
}

async fn outcomes(stage: &Stage, session: &SessionHandle) -> Vec<CallOutcome> {
    let records = stage.records(session).await;
    let settled = records.iter().filter_map(|record| match record {
        Record::CallSettled { result, .. } => Some(result.outcome),
        _ => None,
    });
    settled.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_suspended_and_goes_on_and_what_is_new_is_refused() {
    for keeps in [false, true] {
        let (stage, disk) = stage(waits("wait")).await;
        disk.keeps.store(keeps, Ordering::SeqCst);
        let (session, idle) = (stage.session("m").await, stage.session("echo").await);
        let mut events = session.events(None).await.unwrap();
        session.prompt(Prompt::text("go")).await.unwrap();
        stage.probe.begun().await;
        disk.fill();
        assert_eq!(stage.engine.suspended().map(|suspended| suspended.reason), Some(SuspensionReason::Full));
        // What has nothing to write goes on running.
        assert_eq!(disk.refused(), 0);
        stage.probe.release(1);
        disk.refuses_more_than(0).await;
        for handle in [&session, &idle] {
            assert!(is_refused(&handle.prompt(Prompt::text("more")).await.unwrap_err()));
            assert!(is_refused(&handle.abort().await.unwrap_err()));
        }
        let refused = stage.engine.create(stage.new_session("echo")).await.unwrap_err();
        assert!(is_refused(&refused), "{refused}");
        assert!(is_refused(&stage.engine.delete(idle.id()).await.unwrap_err()));
        // Both can be read, and reading begins nothing.
        let before = disk.refused();
        for _ in 0..10 {
            assert!(session.snapshot().await.unwrap().summary.open_turns > 0);
            idle.snapshot().await.unwrap();
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        assert_eq!(disk.refused(), before, "nobody tries again before the store says so");
        disk.free();
        let ended = until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
        let Record::TurnEnded(ended) = ended else { unreachable!() };
        assert_eq!(ended.outcome, TurnOutcome::Completed);
        let expected = if keeps { CallOutcome::Done } else { CallOutcome::Interrupted };
        assert_eq!(outcomes(&stage, &session).await, [expected]);
        assert_eq!(stage.probe.executed.load(Ordering::SeqCst), 1, "it ran once");
        let ended = session.run(Prompt::text("again")).await.unwrap().ended;
        assert_eq!(ended.outcome, TurnOutcome::Completed, "{:?}", ended.error);
        assert_eq!(idle.run(Prompt::text("hi")).await.unwrap().ended.outcome, TurnOutcome::Completed);
        stage.engine.delete(idle.id()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_meets_a_full_disk_is_told_and_can_be_sent_again() {
    let (stage, disk) = stage(Script::new()).await;
    let session = stage.session("echo").await;
    // It is on its way when the disk is full.
    disk.keeps.store(true, Ordering::SeqCst);
    let id = session.prompt(Prompt::text("first")).await.unwrap().turn;
    let mut prompt = Prompt::text("first");
    prompt.message = Some(id);
    disk.fill();
    assert!(is_refused(&session.prompt(prompt.clone()).await.unwrap_err()));
    disk.free();
    assert!(session.prompt(prompt).await.unwrap().repeated);
    let admitted = stage.records(&session).await;
    assert_eq!(admitted.iter().filter(|record| matches!(record, Record::PromptAdmitted(_))).count(), 1);
}

/// It was read while the store took no writes, and what was refused is in the log all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_looked_at_meanwhile_takes_prompts_as_its_log_is_then() {
    let (stage, disk) = stage(waits("wait")).await;
    let session = stage.session("m").await;
    disk.keeps.store(true, Ordering::SeqCst);
    session.prompt(Prompt::text("go")).await.unwrap();
    stage.probe.begun().await;
    disk.fill();
    stage.probe.release(1);
    disk.refuses_more_than(0).await;
    let handles = [session.clone(), stage.engine.session(session.id()).await.unwrap()];
    for handle in &handles {
        assert!(handle.snapshot().await.unwrap().summary.open_turns > 0);
    }
    disk.free();
    for handle in &handles {
        handle.prompt(Prompt::text("more")).await.unwrap();
    }
    let ended = session.run(Prompt::text("again")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Completed, "{:?}", ended.error);
    assert_eq!(outcomes(&stage, &session).await[0], CallOutcome::Done);
    assert_eq!(stage.probe.executed.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: scripts/slow runs it"]
async fn one_record_that_finds_no_room_harms_no_other_session_and_parks_none() {
    let (stage, disk) = stage(waits("free")).await;
    let (session, other) = (stage.session("m").await, stage.session("echo").await);
    // More often than a session may crash.
    disk.too_large.store(4, Ordering::SeqCst);
    let running = tokio::spawn({
        let session = session.clone();
        async move { session.run(Prompt::text("go")).await }
    });
    for failed in 0..3 {
        disk.refuses_more_than(failed).await;
        let ended = other.run(Prompt::text("hi")).await.unwrap().ended;
        assert_eq!(ended.outcome, TurnOutcome::Completed);
    }
    let ended = tokio::time::timeout(Duration::from_secs(60), running).await.unwrap().unwrap().unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Completed, "{:?}", ended.error);
    assert_eq!(disk.refused(), 4);
    assert_eq!(outcomes(&stage, &session).await, [CallOutcome::Done]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: scripts/slow runs it"]
async fn many_sessions_are_suspended_and_all_go_on() {
    let (stage, disk) = stage(waits("wait")).await;
    let mut running = Vec::new();
    for _ in 0..40 {
        let session = stage.session("m").await;
        let events = session.events(None).await.unwrap();
        session.prompt(Prompt::text("go")).await.unwrap();
        stage.probe.begun().await;
        running.push((session, events));
    }
    disk.fill();
    stage.probe.release(running.len());
    disk.refuses_more_than(39).await;
    disk.free();
    for (session, events) in &mut running {
        until(events, |record| matches!(record, Record::TurnEnded(_))).await;
        assert_eq!(outcomes(&stage, session).await, [CallOutcome::Interrupted]);
    }
    assert_eq!(stage.probe.executed.load(Ordering::SeqCst), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_the_store_refuses_is_not_done_until_it_is() {
    let (stage, disk) = stage(Script::new()).await;
    let session = stage.session("echo").await;
    session.run(Prompt::text("hi")).await.unwrap();
    // The record is written, and the log stays: twice.
    disk.kept.store(2, Ordering::SeqCst);
    for _ in 0..2 {
        assert!(stage.engine.delete(session.id()).await.is_err_and(|error| is_refused(&error)));
        assert!(stage.store.log.summary(session.id()).unwrap().is_some());
    }
    // From here on it is gone, for whoever asks first as for others.
    let last = stage.engine.delete(session.id()).await;
    assert!(matches!(last, Ok(()) | Err(CommandError::NotFound(_))), "{last:?}");
    assert_eq!(stage.store.log.summary(session.id()).unwrap(), None);
    // Where nobody asks again it is finished all the same.
    let session = stage.session("echo").await;
    disk.kept.store(2, Ordering::SeqCst);
    assert!(stage.engine.delete(session.id()).await.is_err_and(|error| is_refused(&error)));
    let gone = async {
        while stage.store.log.summary(session.id()).unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("it goes by itself");
    assert_eq!(disk.kept.load(Ordering::SeqCst), 0);
}
