//! The keeper actor: carries out what the state machine of one key decides.
//!
//! Its handlers wait for nothing: starts, watches and stops are spawned tasks, which report by message. If the actor itself
//! ends unexpectedly, dropping its state stops the child first, and makes room for another keeper then.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use playhouse_protocol::SessionId;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::machine::{Effect, Input, LeaseId, Machine, Run};
use super::{Inner, Kind, Lease, Published, Refusal, StartError};
use crate::base::{begins, panic_text, random_fraction, spawn, spawn_on};

/// Why holders lose a child whose keeper ended unexpectedly.
pub(super) const CRASHED: &str = "it was lost to a bug in the engine; lease it again";

pub(super) type Reply<K> = oneshot::Sender<Result<Lease<K>, Refusal>>;

/// ractor's mailboxes are unbounded. What bounds this one: one lease per waiting caller and one release per granted lease, a
/// session having few of both; three reports per run, and the next run begins after the last of them; one timer; a restart
/// per request of a user; one close.
pub(super) enum KeeperMessage<K: Kind> {
    Lease(SessionId, Reply<K>),
    /// The start succeeded.
    Started(Run, Arc<K::Child>),
    Input(Input),
}

pub(super) struct KeeperArguments<K: Kind> {
    pub(super) shared: Arc<Inner<K>>,
    pub(super) key: K::Key,
    pub(super) published: Arc<Mutex<Published>>,
}

pub(super) struct Keeper<K: Kind> {
    arguments: KeeperArguments<K>,
    machine: Machine,
    /// Leases that wait for an answer.
    replies: HashMap<LeaseId, Reply<K>>,
    last_lease: LeaseId,
    /// Number of handled messages that came by way of the table.
    handled: u64,
    /// The child that runs, from its start until its stop begins.
    held: Option<RunningChild<K>>,
    /// Cancels the start under way.
    cancel: CancellationToken,
    /// Starts and watches the child.
    run: Option<JoinHandle<()>>,
    /// Stops the child.
    stop: Option<JoinHandle<()>>,
    /// The armed timer, and when it is due.
    timer: Option<(Duration, JoinHandle<()>)>,
    /// It has left the table.
    left: bool,
}

struct RunningChild<K: Kind> {
    child: Arc<K::Child>,
    gone: watch::Sender<Option<Arc<str>>>,
}

pub(super) struct KeeperActor<K>(PhantomData<fn() -> K>);

impl<K> Default for KeeperActor<K> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<K: Kind> Actor for KeeperActor<K> {
    type Msg = KeeperMessage<K>;
    type State = Keeper<K>;
    type Arguments = KeeperArguments<K>;

    async fn pre_start(
        &self,
        _: ActorRef<KeeperMessage<K>>,
        arguments: KeeperArguments<K>,
    ) -> Result<Keeper<K>, ActorProcessingErr> {
        Ok(Keeper {
            machine: Machine::new(arguments.shared.rules.clone()),
            arguments,
            replies: HashMap::new(),
            last_lease: 0,
            handled: 0,
            held: None,
            cancel: CancellationToken::new(),
            run: None,
            stop: None,
            timer: None,
            left: false,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<KeeperMessage<K>>,
        message: KeeperMessage<K>,
        keeper: &mut Keeper<K>,
    ) -> Result<(), ActorProcessingErr> {
        keeper.take(&myself, message);
        Ok(())
    }

    /// It has no actors below it. Were one linked to it, its end would not be the keeper's.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<KeeperMessage<K>>,
        _: SupervisionEvent,
        _: &mut Keeper<K>,
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

impl<K: Kind> Keeper<K> {
    fn take(&mut self, myself: &ActorRef<KeeperMessage<K>>, message: KeeperMessage<K>) {
        let input = match message {
            KeeperMessage::Lease(holder, reply) => {
                self.last_lease += 1;
                self.replies.insert(self.last_lease, reply);
                Input::Lease(self.last_lease, holder)
            }
            KeeperMessage::Started(run, child) => {
                self.held = Some(RunningChild { child, gone: watch::Sender::new(None) });
                Input::Started(run)
            }
            KeeperMessage::Input(input) => input,
        };
        let (name, session) = match &input {
            Input::Lease(_, holder) => ("lease", Some(*holder)),
            Input::Release(_) => ("release", None),
            Input::Started(_) => ("started", None),
            Input::Failed(..) => ("failed", None),
            Input::Ended(..) => ("ended", None),
            Input::Lost(..) => ("lost", None),
            Input::Stopped(..) => ("stopped", None),
            Input::Restart => ("restart", None),
            Input::Close => ("close", None),
            Input::Timer => ("timer", None),
        };
        begins("keeper", name, session);
        match &input {
            Input::Lease(..) | Input::Restart | Input::Close => self.handled += 1,
            Input::Failed(_, StartError::Transient(reason) | StartError::Permanent(reason)) => {
                self.warn("did not start", reason);
            }
            // While it is stopped, its end is expected.
            Input::Ended(_, reason) | Input::Lost(_, reason) if self.held.is_some() => {
                self.warn("died", reason)
            }
            Input::Stopped(_, ended) => {
                self.stop = None;
                if let Some(run) = self.run.take() {
                    run.abort();
                }
                if let Err(reason) = ended {
                    self.warn("did not stop", reason);
                }
            }
            Input::Timer => self.timer = None,
            Input::Release(_) | Input::Started(_) | Input::Ended(..) | Input::Lost(..) => {}
        }
        let effects = self.machine.on(self.arguments.shared.epoch.elapsed(), random_fraction(), input);
        for effect in effects {
            self.carry_out(myself, effect);
        }
        if !self.machine.is_running() {
            self.held = None;
        }
        self.arm(myself);
        let (state, holders) = (self.machine.state(), self.machine.holders());
        let published = Published { state, holders, last_error: self.machine.last_error() };
        *self.arguments.published.lock() = published;
    }

    fn warn(&self, what: &str, reason: &str) {
        tracing::warn!(kind = K::NAME, key = %self.arguments.key, reason, "a leased child {what}");
    }

    fn carry_out(&mut self, myself: &ActorRef<KeeperMessage<K>>, effect: Effect) {
        match effect {
            Effect::Start(run) => {
                self.cancel = CancellationToken::new();
                let (shared, key) = (Arc::clone(&self.arguments.shared), self.arguments.key.clone());
                let work = run_child(shared, key, run, self.cancel.clone(), myself.clone());
                self.run = Some(spawn(work));
            }
            Effect::CancelStart => self.cancel.cancel(),
            Effect::Stop(run) => {
                let Some(held) = self.held.take() else { return };
                tracing::info!(kind = K::NAME, key = %self.arguments.key, run, "a leased child is stopped");
                let (shared, myself) = (Arc::clone(&self.arguments.shared), myself.clone());
                self.stop = Some(spawn(async move {
                    let ended = stop_child(&shared, held.child).await.map_err(Arc::from);
                    // Without a keeper nobody waits for it.
                    drop(myself.send_message(KeeperMessage::Input(Input::Stopped(run, ended))));
                }));
            }
            Effect::Grant(id) => {
                if let (Some(reply), Some(held)) = (self.replies.remove(&id), &self.held) {
                    let (child, gone) = (Arc::clone(&held.child), held.gone.subscribe());
                    // A caller that went away drops the lease, which gives it back.
                    drop(reply.send(Ok(Lease { child, gone, id, keeper: myself.clone() })));
                }
            }
            Effect::Refuse(id, refusal) => {
                if let Some(reply) = self.replies.remove(&id) {
                    drop(reply.send(Err(refusal)));
                }
            }
            Effect::Gone(reason) => {
                if let Some(held) = &self.held {
                    held.gone.send_replace(Some(reason));
                }
            }
            Effect::Leave => {
                self.left = self.arguments.shared.leave(&self.arguments.key, self.handled);
                if self.left {
                    myself.stop(None);
                }
            }
        }
    }

    /// Arms the timer if it is needed earlier than it is armed for. One that fires early is armed again.
    fn arm(&mut self, myself: &ActorRef<KeeperMessage<K>>) {
        let Some(due) = self.machine.deadline().filter(|_| !self.left) else { return };
        if self.timer.as_ref().is_some_and(|(armed, _)| *armed <= due) {
            return;
        }
        // Beyond what the clock can count is never.
        let Some(at) = self.arguments.shared.epoch.checked_add(due) else { return };
        let myself = myself.clone();
        let timer = spawn(async move {
            tokio::time::sleep_until(at).await;
            drop(myself.send_message(KeeperMessage::Input(Input::Timer)));
        });
        if let Some((_, earlier)) = self.timer.replace((due, timer)) {
            earlier.abort();
        }
    }
}

impl<K: Kind> Drop for Keeper<K> {
    fn drop(&mut self) {
        self.cancel.cancel();
        if let Some((_, timer)) = self.timer.take() {
            timer.abort();
        }
        if self.left {
            return;
        }
        tracing::warn!(kind = K::NAME, key = %self.arguments.key, "the keeper of a leased child ended unexpectedly");
        let (shared, key) = (Arc::clone(&self.arguments.shared), self.arguments.key.clone());
        let (held, run, stop) = (self.held.take(), self.run.take(), self.stop.take());
        let clean_up = async move {
            if let Some(held) = held {
                held.gone.send_replace(Some(CRASHED.into()));
                // Nobody is left to be told how that ended.
                drop(stop_child(&shared, held.child).await);
            }
            if let Some(stop) = stop {
                drop(stop.await);
            }
            if let Some(run) = run {
                run.abort();
                drop(run.await);
            }
            shared.remove(&key);
        };
        // Without a runtime all children have ended with it.
        if let Ok(runtime) = Handle::try_current() {
            spawn_on(&runtime, clean_up);
        }
    }
}

/// Starts a child and watches over it until it ends.
async fn run_child<K: Kind>(
    shared: Arc<Inner<K>>,
    key: K::Key,
    run: Run,
    cancel: CancellationToken,
    keeper: ActorRef<KeeperMessage<K>>,
) {
    let deadline = shared.rules.start_deadline;
    // Also what is dropped at the deadline is dropped in here, where a panic is caught.
    let attempt = AssertUnwindSafe(async {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(StartError::Transient("it was cancelled".into())),
            started = timeout(deadline, shared.kind.start(&key)) => started.unwrap_or_else(|_| {
                Err(StartError::Transient(format!("it did not start within {deadline:?}")))
            }),
        }
    });
    let started = attempt.catch_unwind().await.unwrap_or_else(|panic| {
        Err(StartError::Transient(format!("starting it panicked: {}", panic_text(&*panic))))
    });
    let started = match started {
        Ok(started) => started,
        Err(error) => {
            drop(keeper.send_message(KeeperMessage::Input(Input::Failed(run, error))));
            return;
        }
    };
    let child = Arc::new(started.child);
    tracing::info!(kind = K::NAME, %key, run, "a leased child started");
    if keeper.send_message(KeeperMessage::Started(run, Arc::clone(&child))).is_err() {
        drop(stop_child(&shared, child).await);
        return;
    }
    drop(child);
    let input = match AssertUnwindSafe(started.ended).catch_unwind().await {
        Ok(reason) => Input::Ended(run, reason.into()),
        Err(panic) => Input::Lost(run, format!("watching it panicked: {}", panic_text(&*panic)).into()),
    };
    drop(keeper.send_message(KeeperMessage::Input(input)));
}

/// Stops a child within the deadline. Returns why it may still run.
async fn stop_child<K: Kind>(shared: &Inner<K>, child: Arc<K::Child>) -> Result<(), String> {
    let deadline = shared.rules.stop_deadline;
    let stop = AssertUnwindSafe(async { timeout(deadline, shared.kind.stop(child)).await });
    match stop.catch_unwind().await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(format!("it did not stop within {deadline:?}")),
        Err(panic) => Err(format!("stopping it panicked: {}", panic_text(&*panic))),
    }
}
