//! Ctrl-C: the first aborts the turn, a second one ends the process.

use playhouse_actors::SessionHandle;

/// Watches for Ctrl-C as long as it lives.
pub(super) struct Interrupt(tokio::task::JoinHandle<()>);

impl Interrupt {
    pub(super) fn abort(session: SessionHandle) -> Self {
        Self(tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_err() {
                return;
            }
            let abort = tokio::spawn(async move { session.abort().await });
            if tokio::signal::ctrl_c().await.is_ok() {
                abort.abort();
                // 128 + SIGINT, as shells have it.
                std::process::exit(130);
            }
        }))
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.0.abort();
    }
}
