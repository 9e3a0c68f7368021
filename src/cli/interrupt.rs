//! Ctrl-C and SIGTERM: the first one aborts the turn of this command, and no other one. A second Ctrl-C ends the process at
//! once, and so does a second SIGTERM. Where no turn is watched, the first SIGTERM does.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use playhouse_protocol::{Command, MessageId, SessionId};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};

use super::reach::Reach;

/// What a signal said comes to an end at once. There is one process, and so one of these.
static AT_ONCE: Notify = Notify::const_new();
/// How many turns are watched.
static WATCHED: AtomicUsize = AtomicUsize::new(0);
/// SIGTERM came.
static TERMINATED: AtomicBool = AtomicBool::new(false);

/// How long a turn may take to end that SIGTERM aborts: an engine may not answer any more.
const END_WAIT: Duration = Duration::from_secs(5);

/// Waits until the process shall end at once. Gives the signal's number.
pub(super) async fn end() -> u8 {
    let terminate = async {
        // Where it cannot be waited for, it ends the process as it does by default.
        let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
        loop {
            terminate.recv().await;
            let again = TERMINATED.swap(true, Ordering::SeqCst);
            if again || WATCHED.load(Ordering::SeqCst) == 0 {
                return;
            }
        }
    };
    tokio::select! {
        () = AT_ONCE.notified() => if is_terminated() { 15 } else { 2 },
        () = terminate => 15,
    }
}

/// Whether SIGTERM came: whatever the turn came to, the process ends by that.
pub(super) fn is_terminated() -> bool {
    TERMINATED.load(Ordering::SeqCst)
}

/// Aborts a turn at Ctrl-C and SIGTERM, as long as it lives.
pub(super) struct Interrupt {
    task: tokio::task::JoinHandle<()>,
    turn: watch::Sender<Option<MessageId>>,
}

impl Interrupt {
    /// Watches for a turn of `session` that is named later: it may be on its way already.
    pub(super) fn watch(reach: Reach, session: SessionId) -> Self {
        WATCHED.fetch_add(1, Ordering::SeqCst);
        let (turn, mut known) = watch::channel(None);
        let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        let task = tokio::spawn(async move {
            let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else { return };
            let must_end = tokio::select! {
                _ = interrupt.recv() => false,
                _ = terminate.recv() => true,
            };
            // The outcome is in the log; this only has to go on while the next one is awaited.
            let abort = tokio::spawn(async move {
                let turn = match known.wait_for(Option::is_some).await {
                    Ok(turn) => *turn,
                    Err(_) => None,
                };
                if let Some(turn) = turn {
                    // Where nobody else uses the session, a turn that goes on first was one's own, too.
                    let is_shared = reach.process().is_some();
                    let command = if is_shared { Command::AbortTurn { turn } } else { Command::Abort };
                    drop(reach.command(session, command).await);
                }
            });
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = tokio::time::sleep(END_WAIT), if must_end => {}
            }
            abort.abort();
            AT_ONCE.notify_one();
        });
        Self { task, turn }
    }

    /// Says which turn it is from now on.
    pub(super) fn turn(&self, turn: MessageId) {
        self.turn.send_replace(Some(turn));
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.task.abort();
        WATCHED.fetch_sub(1, Ordering::SeqCst);
    }
}
