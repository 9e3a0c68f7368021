//! Ctrl-C, SIGTERM and SIGHUP: the first one aborts the turn of this command, and no other one. A second one ends the process
//! at once. Where no turn is watched, the first SIGTERM or SIGHUP does.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use playhouse_protocol::{Command, MessageId, SessionId};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};

use super::reach::Reach;

/// What a signal said comes to an end at once. There is one process, and so one of these.
static AT_ONCE: Notify = Notify::const_new();
/// How many turns are watched.
static WATCHED: AtomicUsize = AtomicUsize::new(0);
/// The number of the signal that came and ends the process; 0 where none did.
static TERMINATED: AtomicU8 = AtomicU8::new(0);

const HANGUP: u8 = 1;
const INTERRUPT: u8 = 2;
pub(super) const TERMINATE: u8 = 15;

/// How long a turn may take to end that is aborted when the process ends: an engine may not answer any more.
const END_WAIT: Duration = Duration::from_secs(5);

/// Waits until the process shall end at once. Gives the signal's number.
pub(super) async fn end() -> u8 {
    let mut endings = Endings::watch();
    let ended = async {
        loop {
            let number = endings.next().await;
            let again = TERMINATED.swap(number, Ordering::SeqCst) != 0;
            if again || WATCHED.load(Ordering::SeqCst) == 0 {
                return number;
            }
        }
    };
    tokio::select! {
        () = AT_ONCE.notified() => terminated().unwrap_or(INTERRUPT),
        number = ended => number,
    }
}

/// The number of the signal by which the process ends, whatever the turn came to.
pub(super) fn terminated() -> Option<u8> {
    Some(TERMINATED.load(Ordering::SeqCst)).filter(|number| *number != 0)
}

/// The signals that end a process: SIGTERM, and SIGHUP when its terminal is closed.
pub(super) struct Endings {
    /// Where one cannot be waited for, it ends the process as it does by default.
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl Endings {
    pub(super) fn watch() -> Self {
        let hangup = (!is_hangup_ignored()).then(|| signal(SignalKind::hangup()).ok()).flatten();
        Self { terminate: signal(SignalKind::terminate()).ok(), hangup }
    }

    /// Waits for the next one. Gives its number.
    pub(super) async fn next(&mut self) -> u8 {
        tokio::select! {
            () = received(&mut self.terminate) => TERMINATE,
            () = received(&mut self.hangup) => HANGUP,
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    let came = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if came.is_none() {
        std::future::pending::<()>().await;
    }
}

/// Whether whoever started this, as `nohup` does, wants it to outlive its terminal. Where that cannot be told, SIGHUP is left
/// alone.
fn is_hangup_ignored() -> bool {
    static IGNORED: OnceLock<bool> = OnceLock::new();
    *IGNORED.get_or_init(|| {
        let status = fs_err::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask & 1 != 0)
    })
}

/// Aborts a turn. Whoever may use its session besides is let alone.
pub(super) async fn abort(reach: &Reach, session: SessionId, turn: MessageId) {
    // Where nobody else uses the session, a turn that goes on first was one's own, too.
    let is_shared = reach.process().is_some();
    let command = if is_shared { Command::AbortTurn { turn } } else { Command::Abort };
    // The outcome is in the log.
    drop(tokio::time::timeout(END_WAIT, reach.command(session, command)).await);
}

/// Aborts a turn at Ctrl-C, SIGTERM and SIGHUP, as long as it lives.
pub(super) struct Interrupt {
    task: tokio::task::JoinHandle<()>,
    turn: watch::Sender<Option<(SessionId, MessageId)>>,
    /// Whether one of them came.
    came: Arc<AtomicBool>,
}

impl Interrupt {
    /// Watches for a turn that is named later: it may be on its way already, or its session may not be there yet.
    pub(super) fn watch(reach: Reach) -> Self {
        WATCHED.fetch_add(1, Ordering::SeqCst);
        let (turn, mut known) = watch::channel::<Option<(SessionId, MessageId)>>(None);
        let came = Arc::new(AtomicBool::new(false));
        let comes = Arc::clone(&came);
        let (mut interrupt, mut endings) = (signal(SignalKind::interrupt()).ok(), Endings::watch());
        let task = tokio::spawn(async move {
            let must_end = tokio::select! {
                () = received(&mut interrupt) => false,
                _ = endings.next() => true,
            };
            comes.store(true, Ordering::SeqCst);
            // This only has to go on while the next one is awaited.
            let abort = tokio::spawn(async move {
                let turn = match known.wait_for(Option::is_some).await {
                    Ok(turn) => *turn,
                    Err(_) => None,
                };
                if let Some((session, turn)) = turn {
                    self::abort(&reach, session, turn).await;
                }
            });
            tokio::select! {
                () = received(&mut interrupt) => {}
                _ = endings.next() => {}
                () = tokio::time::sleep(END_WAIT), if must_end => {}
            }
            abort.abort();
            AT_ONCE.notify_one();
        });
        Self { task, turn, came }
    }

    /// Says which turn it is from now on.
    pub(super) fn turn(&self, session: SessionId, turn: MessageId) {
        self.turn.send_replace(Some((session, turn)));
    }

    /// Whether one of them came.
    pub(super) fn came(&self) -> bool {
        self.came.load(Ordering::SeqCst)
    }

    /// Whether it came before there was a turn to abort.
    pub(super) fn came_early(&self) -> bool {
        self.came.load(Ordering::SeqCst) && self.turn.borrow().is_none()
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.task.abort();
        WATCHED.fetch_sub(1, Ordering::SeqCst);
    }
}
