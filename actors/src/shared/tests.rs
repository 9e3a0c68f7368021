use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use playhouse_protocol::IdGenerator;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// So soon an idle child is stopped where a test waits for that.
const SOON: Duration = Duration::from_millis(30);

/// How a start or a stop goes. Without a plan it goes well.
enum Plan {
    Fail(StartError),
    /// Succeeds, and the child is dead by then.
    Die,
    Panic,
    Hang,
    /// Waits until [`Stage::gate`] has a permit.
    Wait,
}

/// What the tests and the fake children share.
struct Stage {
    /// What happened, in order.
    events: watch::Sender<Vec<String>>,
    starts: Mutex<VecDeque<Plan>>,
    stops: Mutex<VecDeque<Plan>>,
    gate: Semaphore,
    count: AtomicUsize,
    /// Number of children that run.
    live: AtomicUsize,
}

struct Fake(Arc<Stage>);

struct FakeChild {
    number: usize,
    stage: Arc<Stage>,
    /// Ends the child with a reason; `panic` makes the watch panic.
    die: Mutex<Option<oneshot::Sender<&'static str>>>,
}

impl FakeChild {
    /// Ends it by itself, unless it has ended already.
    fn die(&self, reason: &'static str) {
        if let Some(die) = self.end() {
            self.stage.say(format!("died {}", self.number));
            let _ = die.send(reason);
        }
    }

    fn end(&self) -> Option<oneshot::Sender<&'static str>> {
        let die = self.die.lock().take()?;
        assert_eq!(self.stage.live.swap(0, Ordering::SeqCst), 1, "child {} ends once", self.number);
        Some(die)
    }
}

impl Stage {
    fn say(&self, event: String) {
        self.events.send_modify(|events| events.push(event));
    }

    fn events(&self) -> Vec<String> {
        self.events.borrow().clone()
    }

    /// Waits for an event.
    async fn saw(&self, event: &str) {
        let mut events = self.events.subscribe();
        events.wait_for(|events| events.iter().any(|seen| seen == event)).await.unwrap();
    }

    /// Does the next of `plans`, for a start or a stop. Returns whether the child dies.
    async fn follow(&self, plans: &Mutex<VecDeque<Plan>>) -> Result<bool, StartError> {
        let plan = plans.lock().pop_front();
        match plan {
            None => Ok(false),
            Some(Plan::Die) => Ok(true),
            Some(Plan::Fail(error)) => Err(error),
            Some(Plan::Panic) => panic!("a bug"),
            Some(Plan::Hang) => std::future::pending().await,
            Some(Plan::Wait) => {
                self.gate.acquire().await.unwrap().forget();
                Ok(false)
            }
        }
    }
}

impl Kind for Fake {
    type Key = &'static str;
    type Child = FakeChild;
    const NAME: &'static str = "fake server";

    fn start<'a>(&'a self, _: &'a &'static str) -> BoxFuture<'a, Result<Started<FakeChild>, StartError>> {
        let stage = Arc::clone(&self.0);
        Box::pin(async move {
            let number = stage.count.fetch_add(1, Ordering::SeqCst) + 1;
            stage.say(format!("start {number}"));
            let dies_at_once = stage.follow(&stage.starts).await?;
            assert_eq!(stage.live.swap(1, Ordering::SeqCst), 0, "one child at a time");
            let (die, dies) = oneshot::channel();
            let ended = async move {
                match dies.await {
                    Ok("panic") => panic!("a bug"),
                    Ok(reason) => reason.to_owned(),
                    Err(_) => std::future::pending().await,
                }
            };
            let child = FakeChild { number, stage, die: Mutex::new(Some(die)) };
            if dies_at_once {
                child.die("it died at once");
            }
            Ok(Started { child, ended: Box::pin(ended) })
        })
    }

    fn stop(&self, child: Arc<FakeChild>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.0.say(format!("stop {}", child.number));
            let _watched = child.end();
            drop(self.0.follow(&self.0.stops).await);
            self.0.say(format!("stopped {}", child.number));
        })
    }
}

fn stage(rules: Rules) -> (Leases<Fake>, Arc<Stage>) {
    let stage = Arc::new(Stage {
        events: watch::Sender::new(Vec::new()),
        starts: Mutex::default(),
        stops: Mutex::default(),
        gate: Semaphore::new(0),
        count: AtomicUsize::new(0),
        live: AtomicUsize::new(0),
    });
    (Leases::new(Fake(Arc::clone(&stage)), rules), stage)
}

fn session(number: u8) -> SessionId {
    IdGenerator::new(move |bytes| bytes.fill(number)).next(Timestamp::from_millis(1_000))
}

/// Waits until no key is in memory.
async fn empty(leases: &Leases<Fake>) {
    leases.0.keepers.subscribe().wait_for(|count| *count == 0).await.unwrap();
    assert!(leases.status().is_empty());
}

async fn refused(leases: &Leases<Fake>) -> String {
    leases.lease(&"a", session(1)).await.expect_err("it is refused").to_string()
}

#[tokio::test]
async fn concurrent_leases_share_a_start_that_a_dropped_caller_does_not_cancel() {
    let (leases, stage) = stage(Rules::default());
    let leases = Arc::new(leases);
    stage.starts.lock().push_back(Plan::Wait);
    let lease = |number| {
        let leases = Arc::clone(&leases);
        tokio::spawn(async move { leases.lease(&"a", session(number)).await })
    };
    let (first, second) = (lease(1), lease(2));
    stage.saw("start 1").await;
    let status = &leases.status()[0];
    assert_eq!((status.key, status.state, status.holders), ("a", State::Starting, 0));
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    stage.gate.add_permits(1);
    let second = second.await.unwrap().unwrap();
    assert_eq!((second.child().number, stage.events()), (1, vec!["start 1".to_owned()]));
    // Both were granted; the one that nobody took came back.
    let third = leases.lease(&"a", session(3)).await.unwrap();
    let status = &leases.status()[0];
    assert!(matches!(status.state, State::Running { .. }) && status.holders == 2);
    assert!(Arc::ptr_eq(second.child(), third.child()));
}

#[tokio::test]
async fn all_holders_are_told_of_a_death_and_a_lease_after_the_backoff_starts_another_child() {
    let (leases, stage) = stage(Rules { idle: SOON, first_backoff: 2 * SECOND, ..Rules::default() });
    let first = leases.lease(&"a", session(1)).await.unwrap();
    let second = leases.lease(&"a", session(2)).await.unwrap();
    assert!(first.gone().now_or_never().is_none());
    first.child().die("out of memory");
    assert_eq!((&*first.gone().await, &*second.gone().await), ("out of memory", "out of memory"));
    let error = leases.lease(&"a", session(1)).await.unwrap_err();
    let Refusal::BackingOff { retry_in, .. } = error.refusal else { panic!("{error}") };
    assert!(retry_in <= 2 * SECOND, "{retry_in:?}");
    let text = error.to_string();
    assert!(text.starts_with("fake server a failed: out of memory; try again in "), "{text}");
    let status = &leases.status()[0];
    assert!(matches!(status.state, State::BackingOff { until } if until > base::now()));
    assert_eq!(status.last_error.as_deref(), Some("out of memory"));
    sleep(retry_in).await;
    assert_eq!(leases.status()[0].state, State::Stopped);
    let third = leases.lease(&"a", session(1)).await.unwrap();
    assert_eq!((first.child().number, third.child().number), (1, 2));
    // Old leases that come back are not the new one's.
    drop((first, second));
    let fourth = leases.lease(&"a", session(2)).await.unwrap();
    assert_eq!(leases.status()[0].holders, 2);
    assert!(fourth.gone().now_or_never().is_none());
    // The failure is remembered for longer than the child may be idle.
    let now = Instant::now();
    drop((third, fourth));
    stage.saw("stop 2").await;
    assert!(now.elapsed() >= SOON);
}

#[tokio::test]
async fn a_child_that_dies_while_it_starts_is_told_to_those_who_wait() {
    let (leases, stage) = stage(Rules { first_backoff: 2 * SECOND, ..Rules::default() });
    stage.starts.lock().extend([Plan::Die, Plan::Fail(StartError::Transient("no port".into()))]);
    let leased = tokio::join!(leases.lease(&"a", session(1)), leases.lease(&"a", session(2)));
    let (first, second) = (leased.0.unwrap(), leased.1.unwrap());
    assert_eq!((&*first.gone().await, &*second.gone().await), ("it died at once", "it died at once"));
    assert!(refused(&leases).await.contains("failed: it died at once; try again in "));
    sleep(2 * SECOND).await;
    let leased = tokio::join!(leases.lease(&"a", session(1)), leases.lease(&"a", session(2)));
    for refused in [leased.0.unwrap_err(), leased.1.unwrap_err()] {
        assert!(refused.to_string().contains("failed: no port; try again in "), "{refused}");
    }
    assert_eq!(
        (stage.events(), leases.status()[0].holders),
        (["start 1", "died 1", "start 2"].map(String::from).to_vec(), 0)
    );
}

#[tokio::test]
async fn an_idle_child_is_stopped_and_leaves_memory() {
    let (leases, stage) = stage(Rules { idle: SOON, ..Rules::default() });
    let (one, two) =
        (leases.lease(&"a", session(1)).await.unwrap(), leases.lease(&"a", session(1)).await.unwrap());
    assert_eq!(leases.status()[0].holders, 1);
    drop(one);
    sleep(3 * SOON).await;
    assert_eq!(stage.events(), ["start 1"]);
    // A holder that panics, outside of the runtime, gives its lease back.
    let panicked = std::thread::spawn(move || {
        let _held = two;
        panic!("a bug of a holder");
    });
    assert!(panicked.join().is_err());
    empty(&leases).await;
    assert_eq!(stage.events(), ["start 1", "stop 1", "stopped 1"]);
}

#[tokio::test]
async fn a_lease_during_an_idle_stop_gets_a_fresh_child() {
    let (leases, stage) = stage(Rules { idle: SOON, ..Rules::default() });
    stage.stops.lock().push_back(Plan::Wait);
    drop(leases.lease(&"a", session(1)).await.unwrap());
    stage.saw("stop 1").await;
    let lease = leases.lease(&"a", session(1));
    let open = async {
        assert_eq!(leases.status()[0].state, State::Stopping);
        stage.gate.add_permits(1);
    };
    let (lease, ()) = tokio::join!(lease, open);
    assert_eq!(lease.unwrap().child().number, 2);
    assert_eq!(stage.events()[1..], ["stop 1", "stopped 1", "start 2"]);
}

#[tokio::test]
async fn panics_and_hangs_are_failures_of_the_child() {
    let (leases, stage) = stage(Rules {
        idle: SOON,
        start_deadline: SECOND,
        stop_deadline: SECOND / 2,
        first_backoff: Duration::ZERO,
        failures: 9,
        ..Rules::default()
    });
    stage.starts.lock().extend([Plan::Panic, Plan::Hang]);
    stage.stops.lock().extend([Plan::Panic, Plan::Hang]);
    assert!(refused(&leases).await.contains("failed: starting it panicked: a bug;"));
    assert!(refused(&leases).await.contains("failed: it did not start within 1s;"));
    let held = leases.lease(&"a", session(1)).await.unwrap();
    held.child().die("panic");
    assert_eq!(&*held.gone().await, "watching it panicked: a bug");
    stage.saw("stop 3").await;
    let held = loop {
        // The stop panics.
        match leases.lease(&"a", session(1)).await {
            Ok(lease) => break lease,
            Err(error) => assert!(error.to_string().contains("panicked: a bug"), "{error}"),
        }
    };
    assert_eq!(held.child().number, 4);
    drop(held);
    stage.saw("stop 4").await;
    let text = refused(&leases).await;
    assert!(text.contains("failed: it did not stop within 500ms"), "{text}");
    assert_eq!(leases.lease(&"a", session(1)).await.unwrap().child().number, 5);
}

#[tokio::test]
async fn what_cannot_be_mended_by_trying_waits_for_a_restart() {
    let (leases, stage) = stage(Rules::default());
    stage.starts.lock().push_back(Plan::Fail(StartError::Permanent("rust-analyzer is missing".into())));
    for _ in 0..2 {
        let text = "fake server a cannot start: rust-analyzer is missing; correct that, then restart it";
        assert_eq!(refused(&leases).await, text);
    }
    assert_eq!(leases.status()[0].state, State::Failed);
    leases.restart(&"a");
    let held = leases.lease(&"a", session(1)).await.unwrap();
    leases.restart(&"a");
    assert_eq!(&*held.gone().await, machine::RESTARTED);
    assert_eq!(leases.lease(&"a", session(1)).await.unwrap().child().number, 3);
    assert_eq!(stage.events(), ["start 1", "start 2", "stop 2", "stopped 2", "start 3"]);
}

#[tokio::test]
async fn stop_all_stops_what_runs_and_what_starts_and_refuses_leases() {
    let (leases, stage) = stage(Rules::default());
    let held = leases.lease(&"a", session(1)).await.unwrap();
    stage.starts.lock().push_back(Plan::Hang);
    stage.stops.lock().push_back(Plan::Wait);
    let (starting, stopped) = tokio::join!(leases.lease(&"b", session(1)), async {
        stage.saw("start 2").await;
        leases.stop_all(SECOND).await
    });
    assert_eq!(starting.unwrap_err().to_string(), "fake server b is not available: the engine stops");
    assert_eq!(stopped, ["a"], "its stop takes longer");
    assert_eq!(&*held.gone().await, machine::CLOSED);
    assert_eq!(leases.lease(&"c", session(1)).await.unwrap_err().refusal, Refusal::Closed);
    stage.gate.add_permits(1);
    assert_eq!(leases.stop_all(SECOND).await, Vec::<&str>::new());
    assert_eq!(stage.events(), ["start 1", "start 2", "stop 1", "stopped 1"]);
}

#[tokio::test]
async fn children_of_dropped_leases_are_stopped() {
    let (leases, stage) = stage(Rules::default());
    let held = leases.lease(&"a", session(1)).await.unwrap();
    drop(leases);
    assert_eq!(&*held.gone().await, machine::CLOSED);
    stage.saw("stopped 1").await;
}

#[tokio::test]
async fn a_keeper_that_ends_unexpectedly_stops_its_child_before_another_one_begins() {
    let (leases, stage) = stage(Rules::default());
    let held = leases.lease(&"a", session(1)).await.unwrap();
    stage.stops.lock().push_back(Plan::Wait);
    leases.0.table.lock().keepers["a"].keeper.kill();
    assert_eq!(&*held.gone().await, keeper::CRASHED);
    stage.saw("stop 1").await;
    assert_eq!(leases.lease(&"a", session(1)).await.unwrap_err().refusal, Refusal::Crashed);
    stage.gate.add_permits(1);
    empty(&leases).await;
    assert_eq!(leases.lease(&"a", session(1)).await.unwrap().child().number, 2);
}

/// Leases come and go in threads of their own while the child is stopped as soon as it is idle, dies, and is restarted.
/// The fake checks that one child runs at a time, and ends once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leases_race_with_stops_deaths_and_restarts() {
    let zero = Duration::ZERO;
    // No failure is remembered.
    let (leases, stage) = stage(Rules {
        idle: zero,
        first_backoff: zero,
        window: zero,
        failures: u32::MAX,
        ..Rules::default()
    });
    let leases = Arc::new(leases);
    let tasks = (0..8_u8).map(|number| {
        let leases = Arc::clone(&leases);
        tokio::spawn(async move {
            for round in 0..200_u32 {
                match leases.lease(&"a", session(number)).await {
                    Ok(_) if round % 50 == 7 => leases.restart(&"a"),
                    Ok(lease) if round % 20 == 3 => lease.child().die("it died"),
                    Ok(lease) if round % 3 == 0 => {
                        tokio::task::yield_now().await;
                        drop(lease);
                    }
                    Ok(_) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    for task in futures::future::join_all(tasks).await {
        task.unwrap();
    }
    empty(&leases).await;
    let mut ends = HashMap::new();
    for event in stage.events() {
        let (what, number) = event.split_once(' ').unwrap();
        *ends.entry((number.to_owned(), what.to_owned())).or_insert(0) += 1;
    }
    let children = stage.count.load(Ordering::SeqCst);
    let mut by_themselves = 0;
    for number in 1..=children {
        let of = |what: &str| ends.get(&(number.to_string(), what.to_owned())).copied().unwrap_or(0);
        assert!(of("stop") == of("stopped") && of("stop") <= 1 && of("stop") + of("died") >= 1, "{ends:?}");
        by_themselves += of("died");
    }
    assert!(children > 10 && by_themselves > 0 && stage.live.load(Ordering::SeqCst) == 0);
}
