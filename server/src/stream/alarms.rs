//! What a stream of events looks out for beside its events: that it shall end, or tell that it is alive.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The alarms of one stream.
///
/// To ask each of them for every event would cost more than some events: they are asked once by each waker, and then only
/// looked at.
pub(crate) struct Alarms {
    /// The client may not read it any more.
    over: CancellationToken,
    /// The server ends: it waits for no stream.
    closing: CancellationToken,
    /// Wake when the client may not read it any more, and when the server ends.
    ends: [Pin<Box<WaitForCancellationFutureOwned>>; 2],
    heartbeat: Duration,
    /// When something was written last, about.
    written: Instant,
    /// Rings when nothing was written for a heartbeat, or earlier.
    pulse: Pin<Box<Sleep>>,
    /// Who is woken by all of them.
    known: Option<Waker>,
}

/// What rings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// The stream ends.
    End,
    /// Nothing was written for a heartbeat.
    Heartbeat,
}

impl Alarms {
    /// A stream that begins now. No `heartbeat` is shorter than a millisecond.
    pub(crate) fn new(over: CancellationToken, closing: CancellationToken, heartbeat: Duration) -> Self {
        let heartbeat = heartbeat.max(Duration::from_millis(1));
        let ends = [&over, &closing].map(|token| Box::pin(token.clone().cancelled_owned()));
        let (written, pulse) = (Instant::now(), Box::pin(sleep(heartbeat)));
        Self { over, closing, ends, heartbeat, written, pulse, known: None }
    }

    /// Whether the client may not read it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Something was written.
    pub(crate) fn written(&mut self) {
        self.written = Instant::now();
    }

    /// Waits for one of them. May be dropped and called again.
    pub(crate) async fn ring(&mut self) -> Alarm {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Alarm> {
        if !self.known.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            self.known = Some(cx.waker().clone());
            self.register(cx);
        }
        if self.over.is_cancelled() || self.closing.is_cancelled() {
            return Poll::Ready(Alarm::End);
        }
        while self.pulse.is_elapsed() {
            let (now, due) = (Instant::now(), self.written + self.heartbeat);
            let is_due = now >= due;
            if is_due {
                self.written = now;
            }
            // Set anew for each event it would cost more than some events.
            self.pulse.as_mut().reset(self.written + self.heartbeat);
            if is_due {
                // It has to be asked again to wake somebody.
                self.known = None;
                return Poll::Ready(Alarm::Heartbeat);
            }
            self.register(cx);
        }
        Poll::Pending
    }

    /// Has all of them wake who asks. What they say is looked at afterwards.
    fn register(&mut self, cx: &mut Context<'_>) {
        let Self { pulse, ends, .. } = self;
        let asked = std::future::poll_fn(|cx| {
            let _ = pulse.as_mut().poll(cx);
            for end in &mut *ends {
                let _ = end.as_mut().poll(cx);
            }
            Poll::Ready(())
        });
        // One that the runtime puts off, for a task that has done much already, would not be asked again.
        let _ = pin!(unconstrained(asked)).poll(cx);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// Bounds a test that hangs.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn alarms(heartbeat: Duration) -> (Alarms, CancellationToken, CancellationToken) {
        let (over, closing) = (CancellationToken::new(), CancellationToken::new());
        (Alarms::new(over.clone(), closing.clone(), heartbeat), over, closing)
    }

    #[tokio::test]
    async fn a_heartbeat_comes_when_nothing_was_written_for_its_time() {
        let beat = Duration::from_millis(30);
        let (mut alarms, _over, _closing) = alarms(beat);
        let began = Instant::now();
        for _ in 0..3 {
            let mut written = alarms.written;
            // Dropped again and again, as the events between come.
            let alarm = loop {
                if let Ok(alarm) = timeout(beat / 3, alarms.ring()).await {
                    break alarm;
                }
                if began.elapsed() < beat * 2 {
                    alarms.written();
                    written = alarms.written;
                }
                assert!(began.elapsed() < PATIENCE, "no heartbeat comes");
            };
            assert_eq!(alarm, Alarm::Heartbeat);
            assert!(written.elapsed() >= beat, "{:?}", written.elapsed());
        }
    }

    #[tokio::test]
    async fn either_end_is_heard_also_by_who_waits_already() {
        for which in [0, 1] {
            let (mut alarms, over, closing) = alarms(PATIENCE * 100);
            let end = [over, closing][which].clone();
            assert!(!alarms.is_over());
            let (waits, waiting) = tokio::sync::oneshot::channel();
            let heard = tokio::spawn(async move {
                assert!(futures::poll!(pin!(alarms.ring())).is_pending());
                waits.send(()).unwrap();
                (alarms.ring().await, alarms.is_over())
            });
            waiting.await.unwrap();
            end.cancel();
            let heard = timeout(PATIENCE, heard).await.expect("it is heard");
            assert_eq!(heard.unwrap(), (Alarm::End, which == 0));
        }
    }
}
