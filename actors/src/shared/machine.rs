//! The life cycle of one leased child as a pure state machine: inputs in, effects out, no clock, no actor.
//!
//! - Times are durations since a fixed moment; random numbers are inputs.
//! - A *run* is one child from its start to its end. Reports name their run; a report of an earlier run is ignored.
//! - At most one run exists at a time: a start is ordered only in the phase `Down`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use playhouse_protocol::SessionId;

use super::{Refusal, Rules, StartError, State};

mod health;

use health::Health;

/// Number of a lease, unique for one machine.
pub(super) type LeaseId = u64;
/// Number of a run. The first is 1.
pub(super) type Run = u64;

/// Why holders lose a child that somebody restarts.
pub(super) const RESTARTED: &str = "it was restarted on request; lease it again";
/// Why holders lose a child at shutdown.
pub(super) const CLOSED: &str = "the engine stops";

#[derive(Clone, Debug)]
pub(super) enum Input {
    /// A session asks for the child.
    Lease(LeaseId, SessionId),
    /// A granted lease was dropped.
    Release(LeaseId),
    /// The start succeeded.
    Started(Run),
    /// The start failed, or was cancelled.
    Failed(Run, StartError),
    /// The child ended by itself.
    Ended(Run, Arc<str>),
    /// The watch over the child failed, so that it may still run.
    Lost(Run, Arc<str>),
    /// The stop is over; with the reason if it failed.
    Stopped(Run, Result<(), Arc<str>>),
    /// Somebody wants a fresh child and the past forgotten.
    Restart,
    /// Shutdown.
    Close,
    /// The [deadline](Machine::deadline) may have passed. Early and repeated ones do nothing.
    Timer,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    /// Start a child; report `Started` or `Failed`, then `Ended` or `Lost`.
    Start(Run),
    /// Cancel the start; it still reports `Started` or `Failed`.
    CancelStart,
    /// Stop the child; report `Stopped`.
    Stop(Run),
    /// Give the running child to this lease.
    Grant(LeaseId),
    /// Answer this lease with an error.
    Refuse(LeaseId, Refusal),
    /// Tell the holders of the child why it is gone.
    Gone(Arc<str>),
    /// There is no child and nothing to remember.
    Leave,
}

/// Leases that wait for a child.
type Waiting = Vec<(LeaseId, SessionId)>;

#[derive(Debug)]
enum Phase {
    /// No child.
    Down,
    /// A start is under way. `cancelled`: its child, if one comes, is stopped.
    Starting { waiting: Waiting, cancelled: bool },
    /// A child runs. `idle_since` is set while nobody holds it.
    Running { since: Duration, holders: HashMap<LeaseId, SessionId>, idle_since: Option<Duration> },
    /// A stop is under way. `waiting` get a fresh child.
    Stopping { waiting: Waiting },
}

#[derive(Debug)]
pub(super) struct Machine {
    rules: Rules,
    /// The current or last run.
    run: Run,
    phase: Phase,
    health: Health,
    /// Shutdown has begun.
    closing: bool,
}

impl Machine {
    pub(super) fn new(rules: Rules) -> Self {
        Self { rules, run: 0, phase: Phase::Down, health: Health::default(), closing: false }
    }

    /// Takes one input at the time `now`. `random` is from 0 to 1 and spreads backoffs.
    pub(super) fn on(&mut self, now: Duration, random: f64, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Lease(lease, holder) => self.lease(now, (lease, holder), &mut effects),
            Input::Release(lease) => {
                if let Phase::Running { holders, idle_since, .. } = &mut self.phase
                    && holders.remove(&lease).is_some()
                    && holders.is_empty()
                {
                    *idle_since = Some(now);
                }
            }
            Input::Started(run)
            | Input::Failed(run, _)
            | Input::Ended(run, _)
            | Input::Lost(run, _)
            | Input::Stopped(run, _)
                if run != self.run => {}
            Input::Started(_) => self.started(now, &mut effects),
            Input::Failed(_, error) => {
                if let Phase::Starting { cancelled, .. } = self.phase {
                    if !cancelled {
                        self.health.start_failed(&self.rules, now, random, &error);
                        self.refuse_waiting(self.health.block(now), &mut effects);
                    }
                    self.down(&mut effects);
                }
            }
            Input::Ended(_, reason) => {
                if let Phase::Running { since, .. } = self.phase {
                    self.health.died(&self.rules, since, now, random, &reason);
                    effects.push(Effect::Gone(reason));
                    self.phase = Phase::Down;
                }
            }
            Input::Lost(_, reason) => {
                if let Phase::Running { since, .. } = self.phase {
                    self.health.died(&self.rules, since, now, random, &reason);
                    self.stop(Some(reason), &mut effects);
                }
            }
            Input::Stopped(_, ended) => {
                if let Phase::Stopping { .. } = self.phase {
                    if let Err(reason) = ended {
                        self.health.failed(&self.rules, now, random, reason);
                        self.refuse_waiting(self.health.block(now), &mut effects);
                    }
                    self.down(&mut effects);
                }
            }
            Input::Restart => {
                self.health = Health::default();
                self.interrupt(RESTARTED, &mut effects);
            }
            Input::Close => {
                self.closing = true;
                self.refuse_waiting(Some(Refusal::Closed), &mut effects);
                self.interrupt(CLOSED, &mut effects);
            }
            Input::Timer => {
                if let Phase::Running { since, idle_since: Some(idle), .. } = self.phase
                    && idle.saturating_add(self.rules.idle) <= now
                {
                    self.health.ran(&self.rules, since, now);
                    self.stop(None, &mut effects);
                }
            }
        }
        if let Phase::Down = self.phase {
            if self.health.remembered_until(&self.rules).is_none_or(|until| until <= now) {
                self.health = Health::default();
            }
            if self.closing || self.health.remembered_until(&self.rules).is_none() {
                effects.push(Effect::Leave);
            }
        }
        effects
    }

    /// When [`Input::Timer`] is due; `None` if no time changes anything.
    pub(super) fn deadline(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Running { idle_since, .. } => idle_since.map(|idle| idle.saturating_add(self.rules.idle)),
            Phase::Down => self.health.remembered_until(&self.rules).filter(|until| *until != Duration::MAX),
            Phase::Starting { .. } | Phase::Stopping { .. } => None,
        }
    }

    /// The state as listings show it. Times may lie in the past; see [`State::at`].
    pub(super) fn state(&self) -> State<Duration> {
        match &self.phase {
            Phase::Starting { .. } => State::Starting,
            Phase::Running { idle_since: Some(since), .. } => State::Idle { since: *since },
            Phase::Running { since, .. } => State::Running { since: *since },
            Phase::Stopping { .. } => State::Stopping,
            Phase::Down => self.health.state(),
        }
    }

    /// Whether a child runs that holders may have.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    /// Number of sessions that hold the running child.
    pub(super) fn holders(&self) -> usize {
        match &self.phase {
            Phase::Running { holders, .. } => holders.values().collect::<HashSet<_>>().len(),
            _ => 0,
        }
    }

    /// The last failure that is remembered.
    pub(super) fn last_error(&self) -> Option<Arc<str>> {
        self.health.last_error()
    }

    fn lease(&mut self, now: Duration, (lease, holder): (LeaseId, SessionId), effects: &mut Vec<Effect>) {
        if self.closing {
            effects.push(Effect::Refuse(lease, Refusal::Closed));
            return;
        }
        match &mut self.phase {
            Phase::Running { holders, idle_since, .. } => {
                holders.insert(lease, holder);
                *idle_since = None;
                effects.push(Effect::Grant(lease));
            }
            Phase::Starting { waiting, .. } => waiting.push((lease, holder)),
            Phase::Down | Phase::Stopping { .. } => {
                match (self.health.block(now).filter(Refusal::is_in_force), &mut self.phase) {
                    (Some(refusal), _) => effects.push(Effect::Refuse(lease, refusal)),
                    (None, Phase::Stopping { waiting }) => waiting.push((lease, holder)),
                    (None, _) => self.start(vec![(lease, holder)], effects),
                }
            }
        }
    }

    fn start(&mut self, waiting: Waiting, effects: &mut Vec<Effect>) {
        self.run += 1;
        self.health.start();
        self.phase = Phase::Starting { waiting, cancelled: false };
        effects.push(Effect::Start(self.run));
    }

    fn started(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let Phase::Starting { waiting, cancelled } = &mut self.phase else { return };
        let waiting = std::mem::take(waiting);
        if *cancelled {
            self.phase = Phase::Stopping { waiting };
            effects.push(Effect::Stop(self.run));
            return;
        }
        effects.extend(waiting.iter().map(|(lease, _)| Effect::Grant(*lease)));
        let holders: HashMap<_, _> = waiting.into_iter().collect();
        let idle_since = holders.is_empty().then_some(now);
        self.phase = Phase::Running { since: now, holders, idle_since };
    }

    /// Begins to stop the running child. `why` is told to its holders.
    fn stop(&mut self, why: Option<Arc<str>>, effects: &mut Vec<Effect>) {
        self.phase = Phase::Stopping { waiting: Vec::new() };
        effects.extend(why.map(Effect::Gone));
        effects.push(Effect::Stop(self.run));
    }

    /// Stops the child, or cancels its start.
    fn interrupt(&mut self, why: &str, effects: &mut Vec<Effect>) {
        match &mut self.phase {
            Phase::Running { .. } => self.stop(Some(why.into()), effects),
            Phase::Starting { cancelled, .. } => {
                *cancelled = true;
                effects.push(Effect::CancelStart);
            }
            Phase::Down | Phase::Stopping { .. } => {}
        }
    }

    /// Answers those who wait with an error.
    fn refuse_waiting(&mut self, refusal: Option<Refusal>, effects: &mut Vec<Effect>) {
        if let Phase::Starting { waiting, .. } | Phase::Stopping { waiting } = &mut self.phase
            && let Some(refusal) = refusal
        {
            let refused = waiting.drain(..);
            effects.extend(refused.map(|(lease, _)| Effect::Refuse(lease, refusal.clone())));
        }
    }

    /// A start or a stop left no child: those who still wait get a fresh one.
    fn down(&mut self, effects: &mut Vec<Effect>) {
        if let Phase::Starting { waiting, .. } | Phase::Stopping { waiting } =
            std::mem::replace(&mut self.phase, Phase::Down)
            && !waiting.is_empty()
        {
            self.start(waiting, effects);
        }
    }
}

#[cfg(test)]
mod tests;
