//! What waits for a flush: with a store that flushes only when it is told to.

use std::io::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mock_llm::{Model, Script, calls, text};
use playhouse_actors::SessionHandle;
use playhouse_protocol::event::Provisional;
use playhouse_protocol::record::TurnOutcome;
use playhouse_protocol::{EventBody, Prompt, Record, Seq, SessionId, SessionSummary};
use playhouse_store::{Append, Done, ListQuery, Log, LogRead, Page, Store, StoreError};

use serde_json::json;
use tokio::task::JoinHandle;

use crate::logs;
use crate::support::{Stage, kinds, until};
use crate::suspended::Disk;

/// A log that keeps back what it has to say about flushes.
struct Held {
    log: Arc<dyn Log>,
    /// What it keeps back.
    kept: Mutex<Kept>,
    /// The kinds of the records of each append.
    kinds: Mutex<Vec<Vec<&'static str>>>,
}

#[derive(Default)]
struct Kept {
    hold: bool,
    /// Holds from the first append on that has such a record.
    from: Option<&'static str>,
    appends: Vec<(Append, Done)>,
}

fn kinds_of(append: &Append) -> Vec<&'static str> {
    append.entries.iter().map(|entry| entry.record.kind()).collect()
}

impl Held {
    /// In place of the log of `store`.
    fn of(store: &mut Store) -> Arc<Self> {
        let held =
            Arc::new(Self { log: Arc::clone(&store.log), kept: Mutex::default(), kinds: Mutex::default() });
        store.log = Arc::clone(&held) as _;
        held
    }

    fn hold(&self) {
        self.kept.lock().unwrap().hold = true;
    }

    fn let_go(&self) {
        let mut kept = self.kept.lock().unwrap();
        kept.hold = false;
        for (append, done) in kept.appends.drain(..) {
            self.log.append(append, done);
        }
    }

    /// Writes nothing of what it keeps back, and says so.
    fn fail(&self) {
        let mut kept = self.kept.lock().unwrap();
        kept.hold = false;
        for (_, done) in kept.appends.drain(..) {
            done(Err(Error::other("the disk is gone").into()));
        }
    }

    /// Waits until it keeps back such a record.
    async fn keeps(&self, kind: &str) {
        let keeps =
            || self.kept.lock().unwrap().appends.iter().any(|(append, _)| kinds_of(append).contains(&kind));
        soon(async {
            while !keeps() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

impl Log for Held {
    fn append(&self, append: Append, done: Done) {
        let kinds = kinds_of(&append);
        let mut kept = self.kept.lock().unwrap();
        kept.hold |= kept.from.take_if(|from| kinds.contains(from)).is_some();
        self.kinds.lock().unwrap().push(kinds);
        if kept.hold {
            kept.appends.push((append, done));
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
    let held = Held::of(&mut store);
    let stage = Stage::on(store, Arc::new(tempfile::tempdir().unwrap()), Script::new(), 1 << 20).await;
    let session = stage.session("echo").await;
    let mut events = session.events(None).await.unwrap();
    held.hold();
    let prompt = tokio::spawn({
        let session = session.clone();
        async move { session.prompt(Prompt::text("go")).await.unwrap() }
    });
    held.keeps("prompt.admitted").await;
    // Time enough for whatever would not wait.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!prompt.is_finished(), "acknowledged means durable");
    assert_eq!(stage.directory.mock.journal().count(), 0, "no request leaves before its record is flushed");
    assert!(events.try_next().is_none(), "no durable event before the flush");
    held.let_go();
    let accepted = prompt.await.unwrap();
    until(&mut events, |record| matches!(record, Record::TurnEnded(ended) if ended.turn == accepted.turn))
        .await;
    assert_eq!(stage.directory.mock.journal().count(), 1);
}

/// A model that makes calls of these modes, and then says something.
fn probing<const N: usize>(modes: [&str; N]) -> Script {
    let calls = calls(modes.map(|mode| ("probe", json!({ "mode": mode }))));
    Script::new().model("m", Model::new().step(calls).step(text("Done.")))
}

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(flavor = "multi_thread")]
async fn a_step_without_effects_is_written_at_once_with_the_next_attempt() {
    let mut store = Store::memory().unwrap();
    let held = Held::of(&mut store);
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let stage =
        Stage::with(store, folder, probing(["free"]), |options| options.limits.gathering = HOUR).await;
    let session = stage.session("m").await;
    let run = session.run(Prompt::text("go")).await.unwrap();
    assert_eq!(run.ended.outcome, TurnOutcome::Completed);
    let appends = held.kinds.lock().unwrap().clone();
    let step = [
        "attempt.ended",
        "call.proposed",
        "step.finished",
        "call.intended",
        "call.settled",
        "attempt.started",
    ];
    assert!(appends.contains(&step.to_vec()), "{appends:?}");
    assert_eq!(appends.last().unwrap(), &["attempt.ended", "step.finished", "turn.ended"]);
}

/// What comes within 20 seconds.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("it comes")
}

/// A model in the same process, and one behind a socket, in front of which its requests are held.
const MODELS: [&str; 2] = ["mock", "anthropic"];

/// A session that made a call and whose next step waits for the flush, when it is made ready.
async fn ready(stage: &Stage, held: &Held, provider: &str) -> (SessionHandle, JoinHandle<TurnOutcome>) {
    logs::keep();
    let session = stage.session_with(provider, "m").await;
    held.kept.lock().unwrap().from = Some("call.settled");
    let run = ("step", "run", Some(session.id()));
    logs::count(run);
    let turn = tokio::spawn({
        let session = session.clone();
        async move { session.run(Prompt::text("go")).await.unwrap().ended.outcome }
    });
    // It is made ready.
    soon(async {
        while logs::counted(run) < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    // Time enough for whatever would not wait.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(stage.directory.mock.journal().count(), 1, "no request leaves before its record is flushed");
    (session, turn)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_step_is_made_ready_before_the_flush_and_leaves_after_it() {
    for provider in MODELS {
        let mut store = Store::memory().unwrap();
        let held = Held::of(&mut store);
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let stage = Stage::on(store, folder, probing(["free"]), 1 << 20).await;
        let (_session, turn) = ready(&stage, &held, provider).await;
        held.let_go();
        assert_eq!(soon(turn).await.unwrap(), TurnOutcome::Completed);
        assert_eq!(stage.directory.mock.journal().count(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_ready_when_its_turn_is_aborted_never_leaves() {
    for provider in MODELS {
        let mut store = Store::memory().unwrap();
        let held = Held::of(&mut store);
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let stage = Stage::on(store, folder, probing(["free"]), 1 << 20).await;
        let (session, turn) = ready(&stage, &held, provider).await;
        let abort = tokio::spawn({
            let session = session.clone();
            async move { session.abort().await.unwrap() }
        });
        held.keeps("turn.ended").await;
        held.let_go();
        soon(abort).await.unwrap();
        assert_eq!(soon(turn).await.unwrap(), TurnOutcome::Aborted);
        assert_eq!(stage.directory.mock.journal().count(), 1);
        let records = stage.records(&session).await;
        let ended = records.iter().rev().find_map(|record| match record {
            Record::AttemptEnded(ended) => Some(ended),
            _ => None,
        });
        assert_eq!(ended.unwrap().usage, None, "nothing was used");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_ready_when_its_record_cannot_be_written_never_leaves() {
    for provider in MODELS {
        let mut store = Store::memory().unwrap();
        let held = Held::of(&mut store);
        let folder = Arc::new(tempfile::tempdir().unwrap());
        // However slow it is: no record of the step is written by itself before.
        let stage =
            Stage::with(store, folder, probing(["free"]), |options| options.limits.gathering = HOUR).await;
        let (session, turn) = ready(&stage, &held, provider).await;
        held.fail();
        // The session goes on from its log, which has the first attempt alone.
        assert_eq!(soon(turn).await.unwrap(), TurnOutcome::Completed);
        let records = stage.records(&session).await;
        let attempts = records.iter().filter(|record| matches!(record, Record::AttemptStarted(_))).count();
        assert!(attempts > 2, "the first one is made again: {attempts}");
        let asked = stage.directory.mock.journal().count();
        assert_eq!(asked, attempts as u64, "every request that left is in the log");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_an_answer_brings_is_told_after_the_record_of_its_attempt() {
    logs::keep();
    let stage = Stage::new(probing(["free"])).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    // The answer is there before the session has read that the record of its attempt is durable.
    logs::slow_down(("session", "flushed", Some(session.id())), Duration::from_millis(100));
    session.prompt(Prompt::text("go")).await.unwrap();
    let (mut started, mut parts, mut last) = (Vec::new(), 0, None);
    loop {
        let event = soon(events.next()).await.unwrap().unwrap();
        let event = event.event();
        assert!(last < Some(event.id), "{event:?}");
        last = Some(event.id);
        match &event.body {
            EventBody::Durable(record) => match record.as_ref() {
                Record::AttemptStarted(attempt) => started.push(attempt.attempt),
                Record::TurnEnded(_) => break,
                _ => {}
            },
            EventBody::Provisional(Provisional::PartStarted { attempt, .. }) => {
                assert_eq!(Some(attempt), started.last(), "its attempt is not known yet");
                parts += 1;
            }
            EventBody::Provisional(_) => {}
        }
    }
    assert_eq!((started.len(), parts), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_gathered_is_written_before_an_effect() {
    let mut store = Store::memory().unwrap();
    let held = Held::of(&mut store);
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let script = probing(["free", "wait"]);
    let stage = Stage::with(store, folder, script, |options| options.limits.gathering = HOUR).await;
    let session = stage.session("m").await;
    let turn = tokio::spawn({
        let session = session.clone();
        async move { session.run(Prompt::text("go")).await.unwrap() }
    });
    stage.probe.begun().await;
    let records = stage.records(&session).await;
    assert_eq!(kinds(&records).last(), Some(&"call.intended"), "{records:?}");
    stage.probe.release(1);
    assert_eq!(turn.await.unwrap().ended.outcome, TurnOutcome::Completed);
    let appends = held.kinds.lock().unwrap().clone();
    let end = vec!["call.settled", "attempt.started"];
    assert!(appends.contains(&end), "{appends:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_follows_is_written_after_a_while() {
    let stage = Stage::new(probing(["free-wait"])).await;
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    until(&mut events, |record| matches!(record, Record::CallIntended(_))).await;
    stage.probe.begun().await;
    stage.probe.release(1);
    until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_gathered_is_written_when_the_engine_stops() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let store = Store::memory().unwrap();
    let stage =
        Stage::with(store, folder, probing(["free-wait"]), |options| options.limits.gathering = HOUR).await;
    let session = stage.session("m").await;
    session.prompt(Prompt::text("go")).await.unwrap();
    stage.probe.begun().await;
    let before = stage.records(&session).await;
    assert!(!kinds(&before).contains(&"step.finished"), "nobody waits for it: {before:?}");
    assert_eq!(stage.engine.shutdown().await.stragglers, Vec::<String>::new());
    let records = stage.records(&session).await;
    assert_eq!(kinds(&records).last(), Some(&"call.intended"), "{records:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_stops_waits_for_what_is_on_its_way_to_the_disk() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let (store, disk) = Disk::with_a_store();
    let stage =
        Stage::with(store, folder, probing(["free-wait"]), |options| options.limits.gathering = HOUR).await;
    let session = stage.session("m").await;
    session.prompt(Prompt::text("go")).await.unwrap();
    stage.probe.begun().await;
    disk.stand_still();
    let writes = async {
        while !disk.has_in_hand() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        disk.move_on();
    };
    let (stopped, ()) = tokio::join!(stage.engine.shutdown(), writes);
    assert_eq!(stopped.stragglers, Vec::<String>::new());
    assert_eq!(kinds(&stage.records(&session).await).last(), Some(&"call.intended"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_stops_names_what_did_not_get_to_the_disk() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let (store, disk) = Disk::with_a_store();
    let stage =
        Stage::with(store, folder, probing(["free-wait"]), |options| options.limits.gathering = HOUR).await;
    let session = stage.session("m").await;
    session.prompt(Prompt::text("go")).await.unwrap();
    stage.probe.begun().await;
    disk.stand_still();
    assert_eq!(stage.engine.shutdown().await.stragglers, ["1 writes to the log"]);
    disk.move_on();
}
