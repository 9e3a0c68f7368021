//! What the checker was told: by answers of the server, and by the events that clients saw.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{RwLock, watch};

use crate::plan::Plan;

/// How many events of a session are kept to be shown.
const SHOWN: usize = 12;

pub(crate) struct Tenant {
    pub(crate) name: String,
    pub(crate) key: OnceLock<String>,
    pub(crate) workspaces: Vec<PathBuf>,
}

/// How far the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// There is load, and the server is killed.
    Chaos,
    /// No more is asked for, and nothing is killed.
    Draining,
    /// The server ends.
    Over,
}

/// All that is known of a run.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) place: PathBuf,
    /// The program that is started and killed.
    pub(crate) binary: PathBuf,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) address: SocketAddr,
    /// When the kills end.
    pub(crate) end: Instant,
    /// Whoever asks the server for something holds it with others. Nobody does while it is held alone.
    pub(crate) load: RwLock<()>,
    pub(crate) counters: Counters,
    pub(crate) sessions: Mutex<BTreeMap<String, Told>>,
    /// Rows of each tenant, as the server counts them at the end.
    pub(crate) usage: Mutex<Vec<u64>>,
    phase: watch::Sender<Phase>,
    failure: Mutex<Option<Failure>>,
}

/// A deletion, as far as it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deletion {
    #[default]
    No,
    Asked,
    Acknowledged,
}

/// What is known of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) tenant: usize,
    pub(crate) workspace: PathBuf,
    pub(crate) kind: usize,
    /// Prompts that were acknowledged, in order.
    pub(crate) prompts: Vec<String>,
    /// Requests for consent and with questions whose answer was acknowledged, with the first word of the answer.
    pub(crate) answers: BTreeMap<String, &'static str>,
    /// The title that was acknowledged last, if none was asked for since.
    pub(crate) title: Option<String>,
    pub(crate) deletion: Deletion,
    /// What its client saw of each record, from the first on.
    pub(crate) seen: Vec<Seen>,
    pub(crate) last_events: VecDeque<String>,
}

/// A durable event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) kind: String,
    /// Of its data; 0 where clients are told less than the log has.
    pub(crate) hash: u64,
}

impl Told {
    pub(crate) fn show(&mut self, event: &str) {
        if self.last_events.len() == SHOWN {
            self.last_events.pop_front();
        }
        self.last_events.push_back(event.chars().take(600).collect());
    }
}

/// What happened, in numbers.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) lives: AtomicU64,
    pub(crate) kills: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) prompts: AtomicU64,
    pub(crate) answers: AtomicU64,
    pub(crate) aborts: AtomicU64,
    pub(crate) forks: AtomicU64,
    pub(crate) deletions: AtomicU64,
    /// By tool and outcome.
    pub(crate) calls: Mutex<BTreeMap<String, u64>>,
    pub(crate) lines: AtomicU64,
    pub(crate) attempts: AtomicU64,
    pub(crate) rows: AtomicU64,
    pub(crate) records: AtomicU64,
    /// Fail points that were reached when their time had come, and answers that were not what was asked for.
    pub(crate) points: Mutex<BTreeMap<String, u64>>,
    pub(crate) refusals: Mutex<BTreeMap<String, u64>>,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn hit(of: &Mutex<BTreeMap<String, u64>>, what: String) {
        *of.lock().unwrap().entry(what).or_default() += 1;
    }

    pub(crate) fn told(&self) -> String {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counted = |counters: &Mutex<BTreeMap<String, u64>>| {
            let counters = counters.lock().unwrap();
            let each = counters.iter().map(|(what, times)| format!("{what} {times}"));
            each.collect::<Vec<_>>().join(", ")
        };
        format!(
            "{} lives of the server, {} killed at random
fail points:     {}
connections:     {} lost or ended, {} durable events seen
acknowledged:    {} prompts, {} answers, {} aborts, {} forks, {} deletions
refused:         {}
in the end:      {} records, {} lines of programs, {} attempts, {} rows
calls:           {}",
            of(&self.lives),
            of(&self.kills),
            counted(&self.points),
            of(&self.connections),
            of(&self.events),
            of(&self.prompts),
            of(&self.answers),
            of(&self.aborts),
            of(&self.forks),
            of(&self.deletions),
            counted(&self.refusals),
            of(&self.records),
            of(&self.lines),
            of(&self.attempts),
            of(&self.rows),
            counted(&self.calls),
        )
    }
}

/// Something that is not as it must be.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) session: Option<String>,
    pub(crate) expected: String,
    pub(crate) seen: String,
}

impl Failure {
    pub(crate) fn new(expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Self { session: None, expected: expected.into(), seen: seen.into() }
    }

    pub(crate) fn of(session: &str, expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Self { session: Some(session.to_owned()), ..Self::new(expected, seen) }
    }

    /// All that helps to find out why.
    pub(crate) fn told(&self, world: &World) -> String {
        let mut text = format!("chaos: FAILED with --seed {}\n", world.plan.seed);
        writeln!(text, "expected: {}\nseen:     {}", self.expected, self.seen).unwrap();
        if let Some(session) = &self.session {
            writeln!(text, "session:  {session}").unwrap();
            let sessions = world.sessions.lock().unwrap();
            if let Some(told) = sessions.get(session) {
                writeln!(
                    text,
                    "          of {} in {}, {} prompts acknowledged, {} records seen, deletion {:?}",
                    world.tenants[told.tenant].name,
                    told.workspace.display(),
                    told.prompts.len(),
                    told.seen.len(),
                    told.deletion,
                )
                .unwrap();
                for event in &told.last_events {
                    writeln!(text, "    {event}").unwrap();
                }
            }
        }
        writeln!(text, "data:     {}\nlog:      {}", world.data().display(), world.log().display()).unwrap();
        text
    }
}

impl World {
    /// How many sessions are there.
    pub(crate) fn there(&self) -> usize {
        self.sessions.lock().unwrap().values().filter(|told| told.deletion == Deletion::No).count()
    }

    pub(crate) fn new(
        plan: Plan,
        place: PathBuf,
        binary: PathBuf,
        tenants: Vec<Tenant>,
        port: u16,
        duration: Duration,
    ) -> Self {
        Self {
            plan,
            place,
            binary,
            tenants,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            end: Instant::now() + duration,
            load: RwLock::default(),
            counters: Counters::default(),
            sessions: Mutex::default(),
            usage: Mutex::default(),
            phase: watch::Sender::new(Phase::Chaos),
            failure: Mutex::default(),
        }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.place.join("data")
    }

    /// What the servers wrote.
    pub(crate) fn log(&self) -> PathBuf {
        self.place.join("server.log")
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Whether nobody asks for anything, and nobody may.
    pub(crate) fn is_calm(&self) -> bool {
        self.load.try_read().is_err()
    }

    /// Waits for this time, or until the next phase.
    pub(crate) async fn rest(&self, time: Duration) {
        let mut phase = self.phase.subscribe();
        phase.borrow_and_update();
        let _ = tokio::time::timeout(time, phase.changed()).await;
    }

    /// Something is not as it must be. The first one counts.
    pub(crate) fn fail(&self, failure: Failure) {
        self.failure.lock().unwrap().get_or_insert(failure);
    }

    pub(crate) fn failed(&self) -> Result<(), Failure> {
        self.failure.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    /// Changes what is known of a session.
    pub(crate) fn told<T>(&self, session: &str, change: impl FnOnce(&mut Told) -> T) -> T {
        change(self.sessions.lock().unwrap().entry(session.to_owned()).or_default())
    }

    pub(crate) fn key(&self, tenant: usize) -> &str {
        self.tenants[tenant].key.get().expect("it was made at the beginning")
    }
}

/// A text at this place of a value; empty where there is none.
pub(crate) fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A path as a text.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}
