//! Whose call runs next: calls of all sessions that share a server, queued fairly.
//!
//! - At most [`AT_ONCE`] calls run at once. Sessions that wait take turns, so one with many calls holds up no other.
//! - Once a server has asked people something, calls of different sessions no longer run beside each other: else nobody could
//!   tell whom it asks.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_protocol::SessionId;
use tokio::sync::{oneshot, watch};

/// Number of calls that run at once.
pub(super) const AT_ONCE: usize = 8;

#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    /// Counts ends of calls.
    ends: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of calls that run, by session.
    running: HashMap<SessionId, usize>,
    /// Sessions that wait, in the order of their turns, with their calls.
    waiting: VecDeque<(SessionId, VecDeque<oneshot::Sender<Turn>>)>,
    /// Calls of different sessions run one after another.
    apart: bool,
}

/// A call that may run, until this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    session: SessionId,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        if let Some(count) = state.running.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                state.running.remove(&self.session);
            }
        }
        drop(state);
        self.turns.ends.send_modify(|ends| *ends += 1);
        self.turns.advance();
    }
}

impl Turns {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), ends: watch::Sender::new(0) })
    }

    /// Waits for the turn of a call of this session. Dropping the future gives up its place.
    pub(super) async fn take(self: &Arc<Self>, session: SessionId) -> Turn {
        loop {
            let (sender, turn) = oneshot::channel();
            {
                let waiting = &mut self.state.lock().waiting;
                match waiting.iter_mut().find(|(waiting, _)| *waiting == session) {
                    Some((_, calls)) => calls.push_back(sender),
                    None => waiting.push_back((session, VecDeque::from([sender]))),
                }
            }
            self.advance();
            // The sender is dropped only with a turn that was sent.
            if let Ok(turn) = turn.await {
                return turn;
            }
        }
    }

    /// The session whose calls run, if they are all of one.
    pub(super) fn only(&self) -> Option<SessionId> {
        let state = self.state.lock();
        let mut sessions = state.running.keys();
        sessions.next().copied().filter(|_| sessions.next().is_none())
    }

    /// Number of sessions whose calls run.
    pub(super) fn sessions(&self) -> usize {
        self.state.lock().running.len()
    }

    /// From now on, calls of different sessions run one after another.
    pub(super) fn keep_apart(&self) {
        self.state.lock().apart = true;
    }

    /// Waits until no call of this session runs.
    pub(super) async fn left(&self, session: SessionId) {
        let mut ends = self.ends.subscribe();
        while self.state.lock().running.contains_key(&session) && ends.changed().await.is_ok() {}
    }

    /// Lets those begin who may.
    fn advance(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            let begun = state.next();
            drop(state);
            let Some((session, sender)) = begun else { return };
            // One that is not wanted any more is dropped here, outside of the lock, and advances again by itself.
            drop(sender.send(Turn { turns: Arc::clone(self), session }));
        }
    }
}

impl State {
    /// Takes the next call out of the queue, and counts it as running.
    fn next(&mut self) -> Option<(SessionId, oneshot::Sender<Turn>)> {
        loop {
            let (session, _) = self.waiting.front()?;
            let alone =
                self.running.is_empty() || (self.running.len() == 1 && self.running.contains_key(session));
            if self.running.values().sum::<usize>() >= AT_ONCE || (self.apart && !alone) {
                return None;
            }
            let (session, mut calls) = self.waiting.pop_front()?;
            let sender = calls.pop_front();
            if !calls.is_empty() {
                self.waiting.push_back((session, calls));
            }
            // Its caller may have gone.
            if let Some(sender) = sender.filter(|sender| !sender.is_closed()) {
                *self.running.entry(session).or_default() += 1;
                return Some((session, sender));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::*;

    fn session(number: u64) -> SessionId {
        SessionId::parse(&format!("ses_{number:012x}Sess1234567890")).unwrap()
    }

    fn wait(turns: &Arc<Turns>, number: u64) -> BoxFuture<'static, Turn> {
        let turns = Arc::clone(turns);
        let mut turn = async move { turns.take(session(number)).await }.boxed();
        match (&mut turn).now_or_never() {
            Some(turn) => std::future::ready(turn).boxed(),
            None => turn,
        }
    }

    fn is_ready(turn: &mut BoxFuture<'static, Turn>) -> bool {
        match turn.now_or_never() {
            Some(taken) => {
                *turn = std::future::ready(taken).boxed();
                true
            }
            None => false,
        }
    }

    #[test]
    fn sessions_take_turns() {
        let turns = Turns::new();
        let mut first: Vec<_> = (0..20).map(|_| wait(&turns, 1)).collect();
        let mut second: Vec<_> = (0..2).map(|_| wait(&turns, 2)).collect();
        let count = |calls: &mut Vec<BoxFuture<'static, Turn>>| {
            calls.iter_mut().map(is_ready).filter(|ready| *ready).count()
        };
        assert_eq!((count(&mut first), count(&mut second)), (AT_ONCE, 0));
        // Two ends let one of each begin.
        first.drain(..2);
        assert_eq!((count(&mut first), count(&mut second)), (AT_ONCE - 1, 1));
    }

    #[test]
    fn apart_sessions_run_one_after_another_and_none_starves() {
        let turns = Turns::new();
        turns.keep_apart();
        let mut one = wait(&turns, 1);
        let mut again = wait(&turns, 1);
        let mut two = wait(&turns, 2);
        let mut late = wait(&turns, 1);
        assert!(is_ready(&mut one) && is_ready(&mut again) && !is_ready(&mut two) && !is_ready(&mut late));
        assert_eq!(turns.only(), Some(session(1)));
        drop((one, again));
        assert!(is_ready(&mut two) && !is_ready(&mut late));
        drop(two);
        assert!(is_ready(&mut late));
    }

    #[test]
    fn one_who_leaves_the_queue_or_never_looks_at_the_turn_holds_up_nobody() {
        let turns = Turns::new();
        turns.keep_apart();
        let one = wait(&turns, 1);
        let gone = wait(&turns, 2);
        let unseen = wait(&turns, 3);
        let mut last = wait(&turns, 4);
        drop(gone);
        drop(one);
        drop(unseen);
        assert!(is_ready(&mut last));
        drop(last);
        assert_eq!((turns.sessions(), turns.only()), (0, None));
    }
}
