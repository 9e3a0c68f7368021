//! The session actor: owns one session's turn machine and carries out its effects.
//!
//! Every message becomes an input of the machine; every effect is carried out at once or, where it must not happen before
//! what was appended is flushed, when the store says so; a next step of a turn is made ready meanwhile. No handler waits for a model,
//! a tool or the disk.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_protocol::id::{AttemptId, PartId};
use playhouse_protocol::message::CallInput;
use playhouse_protocol::operator::BY_HAND_TENANT;
use playhouse_protocol::question::QuestionAnswer;
use playhouse_protocol::{
    CallAnswer, CommandError, Entry, HandedOver, MessageId, ModelRef, Record, Seq, SessionId,
};
use playhouse_sandbox::BackgroundCommand;
use playhouse_session::{Effect, Input, Machine, Session, Stamp, StepPhase, Ticket};
use playhouse_store::StoreError;
use playhouse_tools::ToolScope;
use playhouse_tools::submit::SubmitOutput;
use playhouse_workspace::FileTracker;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::base::durable::Durable;
use crate::base::gate::Gate;
use crate::base::{Ids, begins, now, random_fraction, spawn};
use crate::budget::Purse;
use crate::call::host::TodoList;
use crate::context::EngineContext;
use crate::conversation::Conversation;
use crate::directory::DirectoryFacts;
use crate::events::ring::Ring;
use crate::grants::WaitingGuard;
use crate::judge::Judge;
use crate::mailbox::{HELD_UP, LEFT, RUNTIME_ENDS, ReplyPort, SessionMessage, SupervisorMessage};
use crate::measure::{self, Count, Leaving};
use crate::metering::MeteringMessage;
use crate::rules::ShownRules;
use crate::seen::Kept;
use crate::step::StepMessage;
use crate::wake::{Loaded, Place};

mod ahead;
mod appends;
mod attach;
mod commands;
mod consents;
mod effects;
mod follow;
mod inbox;
mod live;
mod outside;
mod place;
mod reports;
mod revert;
mod writes;

use self::appends::Gathered;
use self::follow::Following;
use self::live::{Carrier, LiveAside, LiveCall, LiveStep};

pub(crate) struct SessionArguments {
    pub(crate) loaded: Loaded,
    pub(crate) ring: Arc<Ring>,
    pub(crate) gate: Arc<Gate>,
    /// Whether it goes on at once with what is unfinished.
    pub(crate) goes_on: bool,
    pub(crate) shared: Arc<EngineContext>,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
}

pub(crate) struct SessionState {
    shared: Arc<EngineContext>,
    supervisor: ActorRef<SupervisorMessage>,
    id: SessionId,
    tenant: Arc<str>,
    /// For whom tools are asked for.
    scope: ToolScope,
    /// Whether it is told when files of its workspace change.
    listens: bool,
    /// The revision of the tools from outside of which the model was told last.
    told_tools: u64,
    /// By which the answer of the turn is given, or of one before.
    submit: Mutex<Option<Arc<SubmitOutput>>>,
    /// It was read while the store took no writes: what its log ends with is known when it is read again.
    unsure: bool,
    /// The engine stops.
    stopping: bool,
    machine: Machine,
    ring: Arc<Ring>,
    /// Through which commands come, while it is open.
    gate: Arc<Gate>,
    ids: Ids,
    /// Where it works, or why it cannot.
    place: Result<Place, String>,
    /// What waits until that was looked for again.
    looking: Vec<SessionMessage>,
    /// What may be done in it.
    judge: Arc<Judge>,
    /// The session at the top, for a sub-session: its clients are told of requests.
    root: Option<SessionId>,
    /// What this session knows of the content of files.
    files: Arc<FileTracker>,
    /// Callers that wait.
    tickets: HashMap<Ticket, ReplyPort>,
    next_ticket: u64,
    /// Up to here the log is flushed.
    flushed: Seq,
    /// The same, for those outside of this mailbox.
    durable: Arc<Durable>,
    /// Records that are not flushed yet.
    unpublished: VecDeque<Entry>,
    /// Those of them that the store does not have yet.
    gathered: Gathered,
    /// Effects that wait for a flush up to the place beside them.
    gated: VecDeque<(Seq, Effect)>,
    step: Option<LiveStep>,
    /// The actor of the step before, which takes the next one.
    stepper: Option<ActorRef<StepMessage>>,
    /// Attempts beside the steps of turns.
    asides: Vec<LiveAside>,
    calls: HashMap<PartId, LiveCall>,
    /// Calls that wait for an answer of the people behind the session.
    asking: HashMap<PartId, oneshot::Sender<QuestionAnswer>>,
    /// Calls that wait for their result from the platform.
    offering: HashMap<PartId, oneshot::Sender<CallAnswer>>,
    /// Held while requests for consent are open, so that grants of others are told.
    waiting: Option<WaitingGuard>,
    /// Requests for consent were asked or settled, or the rules changed, by the input under way.
    consents_changed: bool,
    /// The session's list of things to do, for its calls.
    todos: TodoList,
    /// The rules files of subdirectories that its models were shown.
    rules: ShownRules,
    /// The conversation in the model's wire format, while no step has it.
    conversation: Option<Box<Conversation>>,
    /// Models of the attempts under way, for metering.
    models: HashMap<AttemptId, ModelRef>,
    /// What its attempts are charged to, where there is a budget.
    purse: Option<Arc<Purse>>,
    /// Its prompts of whose end another session is to be told.
    reports: Vec<(MessageId, Box<HandedOver>)>,
    /// A revert is carried out.
    reverting: bool,
    /// What was asked meanwhile.
    waits_for_revert: Vec<SessionMessage>,
    /// Calls that were cut off and of which it is not known what they wrote.
    writes_awaited: usize,
    /// What metrics and traces tell of it.
    following: Following,
}

/// The attempt that whoever had the session before left open, and its model.
fn open_attempt(session: &Session) -> Option<(AttemptId, ModelRef)> {
    let turn = session.turn.as_ref()?;
    match &turn.step.as_ref()?.phase {
        StepPhase::Attempting(open) => Some((open.id, turn.model.clone())),
        StepPhase::Unanswered | StepPhase::Finished { .. } => None,
    }
}

pub(crate) struct SessionActor;

impl Actor for SessionActor {
    type Msg = SessionMessage;
    type State = Box<SessionState>;
    type Arguments = Box<SessionArguments>;

    async fn pre_start(
        &self,
        _: ActorRef<SessionMessage>,
        arguments: Box<SessionArguments>,
    ) -> Result<Box<SessionState>, ActorProcessingErr> {
        let SessionArguments { loaded, ring, gate, goes_on, shared, supervisor } = *arguments;
        let Loaded { session, place, judge, root, files, interrupted, recovered, unsure, doomed: _ } = loaded;
        let summary = &session.summary;
        let asides = session.asides.iter().map(|aside| (aside.id, aside.model.clone()));
        let models: HashMap<AttemptId, ModelRef> = open_attempt(&session).into_iter().chain(asides).collect();
        let purse = shared.purses.enter(&session, &models.keys().copied().collect::<Vec<_>>());
        let (todos, rules) = (TodoList::new(&session.todos), ShownRules::of(&session));
        let tenant: Arc<str> = summary.tenant.as_str().into();
        let following = Following::new(&session, Arc::clone(&tenant), &shared.measures);
        let reports = reports::awaited(&session);
        let asks_ahead = !session.consents_ahead().is_empty();
        let (id, ids, flushed) = (summary.id, Ids::after(summary.updated), summary.head);
        let workspace: Arc<Path> = Path::new(&summary.workspace).into();
        let machine = Machine::new(session, shared.limits.retry)
            .asking_wait_ms(shared.limits.asking_wait_ms())
            .interrupted(interrupted)
            .recovered(recovered)
            .most_tasks(shared.limits.tasks.children);
        let machine = if goes_on { machine } else { machine.suspended() };
        Ok(Box::new(SessionState {
            supervisor,
            id,
            scope: ToolScope { tenant: Arc::clone(&tenant), workspace, session: id },
            listens: false,
            told_tools: 0,
            submit: Mutex::default(),
            tenant,
            unsure,
            stopping: false,
            ids,
            flushed,
            durable: Arc::new(Durable::new(flushed)),
            machine,
            files,
            shared,
            ring,
            gate,
            place,
            looking: Vec::new(),
            judge,
            root,
            tickets: HashMap::new(),
            next_ticket: 0,
            unpublished: VecDeque::new(),
            gathered: Gathered::default(),
            gated: VecDeque::new(),
            step: None,
            stepper: None,
            asides: Vec::new(),
            calls: HashMap::new(),
            asking: HashMap::new(),
            offering: HashMap::new(),
            waiting: None,
            consents_changed: asks_ahead,
            todos,
            rules,
            conversation: None,
            models,
            purse,
            reports,
            reverting: false,
            waits_for_revert: Vec::new(),
            writes_awaited: 0,
            following,
        }))
    }

    async fn handle(
        &self,
        myself: ActorRef<SessionMessage>,
        message: SessionMessage,
        state: &mut Box<SessionState>,
    ) -> Result<(), ActorProcessingErr> {
        begins("session", message.name(), Some(state.id));
        if let SessionMessage::Leave(why) = message {
            state.leave(&myself, why);
            return Ok(());
        }
        if let SessionMessage::Settle = message {
            // It rests no shorter for that.
            state.settle();
            return Ok(());
        }
        Box::pin(state.take(&myself, message)).await?;
        state.note_rest();
        state.stop_if_due(&myself);
        Ok(())
    }

    async fn post_stop(
        &self,
        myself: ActorRef<SessionMessage>,
        state: &mut Box<SessionState>,
    ) -> Result<(), ActorProcessingErr> {
        state.write(&myself);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SessionMessage>,
        event: SupervisionEvent,
        state: &mut Box<SessionState>,
    ) -> Result<(), ActorProcessingErr> {
        let (who, why) = match event {
            SupervisionEvent::ActorFailed(who, why) => (who.get_id(), why.to_string()),
            // Its work is as open in the log as after a kill, and whoever opens the store next goes on with it.
            SupervisionEvent::ActorTerminated(_, _, Some(why)) if why == RUNTIME_ENDS => return Ok(()),
            SupervisionEvent::ActorTerminated(who, _, why) => {
                (who.get_id(), why.unwrap_or_else(|| "it stopped without a report".into()))
            }
            _ => return Ok(()),
        };
        begins("session", "child-ended", Some(state.id));
        Box::pin(state.child_ended(&myself, who, &why)).await?;
        state.note_rest();
        state.stop_if_due(&myself);
        Ok(())
    }
}

impl SessionState {
    /// Whether there is nothing to do, and nobody waits for anything.
    fn rests(&self) -> bool {
        let is_through = self.machine.session().is_idle() || self.machine.is_suspended();
        let nobody_works =
            self.step.is_none() && self.asides.is_empty() && self.calls.is_empty() && self.asking.is_empty();
        let all_is_flushed = self.unpublished.is_empty()
            && self.gated.is_empty()
            && self.writes_awaited == 0
            && !self.reverting;
        is_through && nobody_works && all_is_flushed && self.tickets.is_empty()
    }

    /// Tells the gate whether it rests. One that does keeps no room for what is under way.
    fn note_rest(&mut self) {
        let rests = self.rests();
        if rests {
            self.machine.rest();
            (self.unpublished, self.gated) = (VecDeque::new(), VecDeque::new());
            if let Some(stepper) = self.stepper.take() {
                stepper.stop(None);
            }
        }
        self.gate.note(rests);
    }

    /// Leaves memory, unless there is something to do or somebody is about to ask for something.
    fn leave(&self, myself: &ActorRef<SessionMessage>, why: Leaving) {
        // What runs in the background runs in its walls, and is heard of by its calls.
        let processes = self.shared.processes.of(self.id.as_str());
        if !self.rests() || processes.list().iter().any(BackgroundCommand::runs) || !self.gate.close() {
            self.gate.refuse();
            return;
        }
        self.keep_seen();
        measure::left(why);
        tracing::debug!(session = %self.id, ?why, "left memory");
        myself.stop(Some(LEFT.to_owned()));
    }

    /// Rests for longer: lets go of what is made again when it is needed, as after waking.
    fn settle(&mut self) {
        if self.rests() {
            self.conversation = None;
            self.machine.shrink();
            self.models.shrink_to_fit();
            self.tickets.shrink_to_fit();
            self.calls.shrink_to_fit();
            self.asking.shrink_to_fit();
            self.offering.shrink_to_fit();
        }
    }

    /// Keeps for this session what it does not find in its log.
    fn keep_seen(&self) {
        let walls = self.place.as_ref().ok().map(|place| (Arc::clone(&place.spec), place.walls.clone()));
        let gone = self.shared.seen.keep(self.id, Kept { files: Arc::clone(&self.files), walls });
        if !gone.is_empty() {
            // Folders on disk go with it.
            let pool = self.shared.pool.clone();
            spawn(async move { pool.run(move || drop(gone)).await });
        }
    }

    fn ticket(&mut self, port: ReplyPort) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.tickets.insert(ticket, port);
        ticket
    }

    /// Gives the machine an input and carries out what it says.
    async fn feed(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        input: Input,
    ) -> Result<(), ActorProcessingErr> {
        let was_suspended = self.machine.is_suspended();
        let effects = {
            let mut ids = self.ids.lock();
            let origin = |tool: &str, input: &CallInput| self.shared.tools.origin(&self.scope, tool, input);
            let facts = DirectoryFacts(self.judge.directory().as_ref(), &origin);
            let mut stamp = Stamp { now: now(), ids: &mut ids, facts: &facts, jitter: random_fraction() };
            self.machine.on(input, &mut stamp)?
        };
        self.consents_changed |= was_suspended && !self.machine.is_suspended();
        for effect in effects {
            self.carry_out(myself, effect).await?;
        }
        self.write_if_due(myself);
        self.make_ready(myself).await?;
        self.note_consents(myself);
        self.following.stands(self.machine.session());
        Ok(())
    }

    /// What was appended up to `seq` is flushed: publishes it, and does what waited for it.
    async fn on_flushed(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        seq: Seq,
    ) -> Result<(), ActorProcessingErr> {
        self.flushed = self.flushed.max(seq);
        let count = self.unpublished.partition_point(|entry| entry.seq <= self.flushed);
        let entries: Vec<Entry> = self.unpublished.drain(..count).collect();
        for entry in &entries {
            if let Some(purse) = &self.purse {
                purse.flushed(entry);
            }
            let model = self.meter(&entry.record);
            self.following.note(entry, model.as_ref(), &self.shared);
            self.announce(&entry.record);
            if let Record::TurnEnded(ended) = &entry.record {
                self.tell_end(ended);
            }
        }
        self.ring.publish(entries);
        self.following.published(self.flushed);
        let done = self.perform_gated(myself).await;
        // The next request is on its way meanwhile.
        self.following.tell(&self.shared.measures);
        done
    }

    /// Does what waited for what is flushed by now.
    async fn perform_gated(&mut self, myself: &ActorRef<SessionMessage>) -> Result<(), ActorProcessingErr> {
        while self.gated.front().is_some_and(|(until, _)| *until <= self.flushed) {
            let Some((_, effect)) = self.gated.pop_front() else { break };
            self.perform(myself, effect).await?;
        }
        Ok(())
    }

    /// Tells the metering actor of an attempt that ended; the model of that attempt.
    fn meter(&mut self, record: &Record) -> Option<ModelRef> {
        match record {
            Record::AttemptStarted(started) => {
                self.models.insert(started.attempt, started.model.clone());
                None
            }
            Record::AttemptEnded(ended) => {
                let model = self.models.remove(&ended.attempt)?;
                // Calls by hand ask no model that anybody pays.
                let by_hand = self.machine.session().summary.tenant == BY_HAND_TENANT;
                let Some(usage) = ended.usage.clone().filter(|_| !by_hand) else { return Some(model) };
                let (session, cost, usage) = (self.id, ended.cost, Box::new(usage));
                let message = MeteringMessage::Ended { session, model: model.clone(), usage, cost };
                self.shared.measures.census.enter(Count::Metering);
                if self.shared.metering.send_message(message).is_err() {
                    tracing::error!(%session, "the metering actor is gone: totals in memory are short");
                }
                Some(model)
            }
            _ => None,
        }
    }

    /// Nothing that waited for the flush may happen. The supervisor starts this session again from its log: at once after a
    /// crash, and where only the disk took nothing, when it does again.
    fn store_failed(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        error: StoreError,
    ) -> Result<(), ActorProcessingErr> {
        // A file beside the log that could not be written, a blob, is the disk's fault as well.
        let passes = error.suspension().is_some() || matches!(error, StoreError::Io(_));
        let text = error.to_string();
        let told = CommandError::from(error);
        for (_, port) in self.tickets.drain() {
            drop(port.send(Err(told.clone())));
        }
        self.gated.clear();
        self.forget_gathered();
        if !passes {
            return Err(text.into());
        }
        tracing::warn!(session = %self.id, error = text, "what runs is suspended: it cannot be written down");
        self.stop_held_up(myself);
        Ok(())
    }

    /// Stops the running turn if the tenant is suspended because the disk is nearly full.
    fn suspend_for_space(&mut self, myself: &ActorRef<SessionMessage>) {
        if self.rests() {
            return;
        }
        let Err(refusal) = self.shared.space.allows(&self.tenant) else { return };
        tracing::warn!(session = %self.id, "what runs is suspended: there is little space on the disk");
        for (_, port) in self.tickets.drain() {
            drop(port.send(Err(refusal.clone())));
        }
        self.stop_held_up(myself);
    }

    /// Stops with what runs, until the supervisor lets it go on.
    fn stop_held_up(&mut self, myself: &ActorRef<SessionMessage>) {
        let running = self.step.iter().map(|step| &step.cancel);
        let running = running.chain(self.asides.iter().map(|aside| &aside.cancel));
        running.chain(self.calls.values().map(|call| &call.cancel)).for_each(CancellationToken::cancel);
        self.keep_seen();
        myself.stop(Some(HELD_UP.to_owned()));
    }

    /// Takes an attempt beside the steps of turns out of those at work.
    fn take_aside(&mut self, is_it: impl Fn(&LiveAside) -> bool) -> Option<LiveAside> {
        let place = self.asides.iter().position(is_it)?;
        Some(self.asides.swap_remove(place))
    }

    /// Stops a call's actor, whose report has come.
    fn dismiss(&mut self, call: PartId) {
        self.asking.remove(&call);
        self.offering.remove(&call);
        if let Some(LiveCall { carrier: Carrier::Actor(actor), .. }) = self.calls.remove(&call) {
            actor.stop(None);
        }
    }
}
