//! What the engine logs, kept to be read, and messages at which its actors panic, or take their time.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, Write};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use playhouse_protocol::SessionId;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Where actors tell with which message they begin.
const MAILBOX: &str = "playhouse::mailbox";

static LINES: Mutex<String> = Mutex::new(String::new());

struct Kept;

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps what is logged from now on. The log is one for the whole process: lines are told apart by their session.
pub(crate) fn keep() {
    static KEPT: OnceLock<()> = OnceLock::new();
    KEPT.get_or_init(|| {
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(|| Kept);
        let mailboxes = Targets::new().with_target(MAILBOX, LevelFilter::TRACE);
        tracing_subscriber::registry()
            .with(lines.with_filter(LevelFilter::INFO))
            .with(Fire.with_filter(mailboxes))
            .init();
    });
}

/// The lines about a session.
pub(crate) fn of(session: SessionId) -> Vec<String> {
    let session = session.to_string();
    let lines = LINES.lock().unwrap();
    lines.lines().filter(|line| line.contains(&session)).map(str::to_owned).collect()
}

/// A message at which an actor panics, once: which actor, which message, and of which session where there is one.
type Fault = (&'static str, &'static str, Option<SessionId>);

static FAULTS: Mutex<Vec<Fault>> = Mutex::new(Vec::new());

/// Lets an actor panic when it begins with the next such message. Needs [`keep`].
pub(crate) fn set_fire(fault: Fault) {
    FAULTS.lock().unwrap().push(fault);
}

/// Whether that is still to come.
pub(crate) fn is_set(fault: Fault) -> bool {
    FAULTS.lock().unwrap().contains(&fault)
}

/// The sessions whose messages of a kind take so long to begin with.
static SLOW: Mutex<Vec<(Fault, Duration)>> = Mutex::new(Vec::new());

/// Lets an actor wait before each such message. Needs [`keep`], and a runtime of several threads.
pub(crate) fn slow_down(fault: Fault, time: Duration) {
    SLOW.lock().unwrap().push((fault, time));
}

/// Messages that are counted, and how often an actor began with them.
static COUNTED: Mutex<Vec<(Fault, usize)>> = Mutex::new(Vec::new());

/// Counts from now on how often an actor of a session begins with such a message. Needs [`keep`].
pub(crate) fn count(message: Fault) {
    COUNTED.lock().unwrap().push((message, 0));
}

/// How often it did.
pub(crate) fn counted(message: Fault) -> usize {
    let counted = COUNTED.lock().unwrap();
    counted.iter().find(|(of, _)| *of == message).map_or(0, |(_, count)| *count)
}

/// Sessions all of whose messages are counted, by actor and message.
static ALL: Mutex<BTreeMap<String, BTreeMap<String, usize>>> = Mutex::new(BTreeMap::new());

/// Counts from now on all messages with which actors begin that concern a session. Needs [`keep`].
pub(crate) fn count_all(session: SessionId) {
    ALL.lock().unwrap().insert(session.to_string(), BTreeMap::new());
}

/// How many there were, by actor and message.
pub(crate) fn counted_all(session: SessionId) -> BTreeMap<String, usize> {
    ALL.lock().unwrap()[&session.to_string()].clone()
}

/// Panics where it was told to.
struct Fire;

impl<S: Subscriber> Layer<S> for Fire {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut begun = Begun::default();
        event.record(&mut begun);
        let mut all = ALL.lock().unwrap();
        let is_it = |(actor, message, session): &Fault| {
            let session = session.map(|session| session.to_string());
            begun.actor == *actor
                && begun.message == *message
                && (session.is_none() || begun.session == session)
        };
        for (_, count) in COUNTED.lock().unwrap().iter_mut().filter(|(of, _)| is_it(of)) {
            *count += 1;
        }
        if let Some(counts) = begun.session.as_ref().and_then(|session| all.get_mut(session)) {
            *counts.entry(format!("{} {}", begun.actor, begun.message)).or_default() += 1;
        }
        drop(all);
        let slow = SLOW.lock().unwrap().iter().find(|(fault, _)| is_it(fault)).map(|(_, time)| *time);
        if let Some(time) = slow {
            std::thread::sleep(time);
        }
        let mut faults = FAULTS.lock().unwrap();
        let due = faults.iter().position(is_it);
        if let Some(due) = due {
            let (actor, message, _) = faults.swap_remove(due);
            drop(faults);
            panic!("{actor} is on fire at {message}");
        }
    }
}

#[derive(Default)]
struct Begun {
    actor: String,
    message: String,
    session: Option<String>,
}

impl Visit for Begun {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "actor" => value.clone_into(&mut self.actor),
            "begins" => value.clone_into(&mut self.message),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "session" {
            self.session = Some(format!("{value:?}"));
        }
    }
}
