//! Ctrl-C: the first aborts the turn, a second one ends the process. So does SIGTERM, at once; the turn goes on when its
//! session is woken the next time.

use playhouse_protocol::{Command, SessionId};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::reach::Reach;

/// A second Ctrl-C came. There is one terminal for each process, and so one of these.
static SECOND: Notify = Notify::const_new();

/// Waits until the process shall end at once: Ctrl-C came twice, or it was told to terminate. Gives the signal's number.
pub(super) async fn end() -> u8 {
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            // Then it ends the process as it does by default.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = SECOND.notified() => 2,
        _ = terminate => 15,
    }
}

/// Watches for Ctrl-C as long as it lives.
pub(super) struct Interrupt(tokio::task::JoinHandle<()>);

impl Interrupt {
    pub(super) fn abort(reach: Reach, session: SessionId) -> Self {
        Self(tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_err() {
                return;
            }
            // The outcome is in the log; this only has to go on while the next one is awaited.
            let abort = tokio::spawn(async move { reach.command(session, Command::Abort).await });
            if tokio::signal::ctrl_c().await.is_ok() {
                abort.abort();
                SECOND.notify_one();
            }
        }))
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.0.abort();
    }
}
