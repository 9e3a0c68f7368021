//! Carrying out what the turn machine says.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use playhouse_protocol::event::Provisional;
use playhouse_protocol::id::{AttemptId, PartId};
use playhouse_protocol::message::{CallOutcome, PromptKind};
use playhouse_protocol::{CommandError, ErrorCode, ErrorInfo, HandedOver, Reply, Seq, Timestamp};
use playhouse_session::{
    AsideOrder, AttemptOrder, AttemptReport, CallReport, Deadline, Effect, FailedAttempt, Ticket,
};
use playhouse_tools::submit::SubmitOutput;
use playhouse_tools::{CallContext, CallObserver, OutputSink, Registry, Tool as _, ToolSources, WriteLog};
use playhouse_workspace::tree::Watcher;
use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr};
use tokio_util::sync::CancellationToken;

use super::SessionState;
use super::follow;
use super::live::{Carrier, LiveAside, LiveCall, LiveStep, crashed_with};
use crate::api::removal::Remover;
use crate::base::{now, spawn};
use crate::budget::Before;
use crate::call::host::SessionHost;
use crate::call::{Begun, Call, CallActor, CallArguments, CallMessage, Phase, Report, RingOutput, Running};
use crate::conversation::{Conversation, Offered, Settled};
use crate::directory::ProfileRequest;
use crate::formatter::Formatting;
use crate::journal::Journal;
use crate::listening::StaleReads;
use crate::mailbox::{REMOVED, SessionMessage};
use crate::revert::OwnChanges;
use crate::step::aside::{AsideActor, AsideMessage, AsideWork};
use crate::step::{StepActor, StepMessage, StepWork};
use crate::tasks::Giver;
use crate::tracker::Tracker;
use crate::wake::Place;

impl SessionState {
    /// Does an effect now, or puts it where it waits for the flush.
    pub(super) async fn carry_out(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        effect: Effect,
    ) -> Result<(), ActorProcessingErr> {
        let head = self.machine.session().summary.head;
        if effect.waits_for_flush() && head > self.flushed {
            self.gated.push_back((head, effect));
            return Ok(());
        }
        self.perform(myself, effect).await
    }

    pub(super) async fn perform(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        effect: Effect,
    ) -> Result<(), ActorProcessingErr> {
        match effect {
            Effect::Append(entries) => self.append(entries),
            Effect::Reply(ticket, reply) => self.reply(ticket, reply),
            Effect::StartAttempt(order) => self.start_attempt(myself, order, self.flushed).await?,
            Effect::StartAside(order) => self.start_aside(myself, order).await?,
            Effect::Prepare { call, tool, input, looping } => {
                self.prepare(myself, call, Phase::Prepare { tool, input, looping }).await?;
            }
            Effect::Execute { call, .. } => self.execute(myself, call).await?,
            Effect::TellAnswer(call, answer) => {
                if let Some(asking) = self.asking.remove(&call) {
                    // A call that was dropped waits no more.
                    drop(asking.send(answer));
                }
            }
            Effect::TellResult(call, answer) => {
                if let Some(offering) = self.offering.remove(&call) {
                    drop(offering.send(answer));
                }
            }
            Effect::CancelAttempt(attempt) => self.cancel_attempt(myself, attempt)?,
            Effect::CancelCall(call) => self.cancel_call(myself, call)?,
            Effect::KillAttempt(attempt) => {
                self.gated.retain(|(_, gated)| !starts(gated, attempt));
                if let Some(step) = self.step.take_if(|step| step.attempt == attempt) {
                    step.actor.kill();
                    self.ring.take(attempt);
                }
                if let Some(aside) = self.take_aside(|aside| aside.attempt == attempt) {
                    aside.cancel.cancel();
                    aside.actor.kill();
                }
            }
            Effect::KillCall(call) => {
                self.gated.retain(|(_, gated)| !executes(gated, call));
                self.asking.remove(&call);
                self.offering.remove(&call);
                if let Some(live) = self.calls.remove(&call) {
                    self.await_writes(myself, call, &live, false);
                    live.cancel.cancel();
                    if let Carrier::Actor(actor) = live.carrier {
                        actor.kill();
                    }
                }
            }
            Effect::Arm(deadline, after_ms) => arm(myself, deadline, after_ms),
            Effect::RetryLater { step, attempt_number, wait_ms, error } => {
                let at = Timestamp::from_millis(now().as_millis().saturating_add(wait_ms));
                let attempts = self.shared.limits.retry.attempts;
                follow::retried(self.machine.session(), error.code, &self.shared.measures);
                let retry = Provisional::StepRetry { step, attempt_number, attempts, at, error };
                self.ring.write(|writer| writer.notice(retry));
                arm(myself, Deadline::Retry { step }, wait_ms);
            }
            Effect::Remove(ticket) => self.remove(myself, ticket),
        }
        Ok(())
    }

    pub(super) fn reply(&mut self, ticket: Ticket, reply: Result<Reply, CommandError>) {
        if let Some(port) = self.tickets.remove(&ticket) {
            // A caller that went away needs no answer.
            drop(port.send(reply));
        }
    }

    /// Has the next step of a turn made ready while the record of it becomes durable: its request leaves then.
    pub(super) async fn make_ready(
        &mut self,
        myself: &ActorRef<SessionMessage>,
    ) -> Result<(), ActorProcessingErr> {
        // The first one of a turn belongs to what is told of the turn when that is durable.
        if self.step.is_some() || !self.following.follows(self.machine.session()) {
            return Ok(());
        }
        let is_it = |(_, effect): &(Seq, Effect)| matches!(effect, Effect::StartAttempt(_));
        let Some(place) = self.gated.iter().position(is_it) else { return Ok(()) };
        match self.gated.remove(place) {
            Some((until, Effect::StartAttempt(order))) => self.start_attempt(myself, order, until).await,
            _ => Ok(()),
        }
    }

    /// Gives an attempt to a step actor. Its request leaves when the log is durable up to `until`.
    async fn start_attempt(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        order: AttemptOrder,
        until: Seq,
    ) -> Result<(), ActorProcessingErr> {
        if self.told_tools != self.shared.tools.revision() {
            myself.send_message(SessionMessage::ToolsChanged)?;
        }
        let session = self.machine.session();
        let handed = session.turn.as_ref().and_then(|turn| turn.handed.as_ref());
        let catalogue = self.catalogue();
        let handed = handed.and_then(|handed| self.judge.handed(&handed.mandates, &catalogue));
        let tools = match &session.tools {
            None => handed,
            Some(names) => {
                let is_handed = |name: &&String| handed.as_ref().is_none_or(|handed| handed.contains(name));
                Some(names.iter().filter(is_handed).cloned().collect())
            }
        };
        let output = self.submit_output().map(|tool| tool.spec().clone());
        let conversation = self
            .conversation
            .take()
            .filter(|kept| kept.agent == order.agent && kept.model == order.model)
            .filter(|kept| kept.tools == tools && kept.output == output)
            // What was sent cannot change: where room was made in it, it begins anew.
            .filter(|kept| kept.revision == session.context_revision())
            .unwrap_or_else(|| {
                let revision = session.context_revision();
                let (agent, model) = (order.agent.clone(), order.model.clone());
                let mut begun = Conversation::new(agent, model, revision, tools);
                begun.output.clone_from(&output);
                Box::new(begun)
            });
        let offered = Offered { scope: self.scope.clone(), only: session.tools.clone(), output };
        let mut new = Vec::new();
        session.read(conversation.messages..order.messages, &order.model, &mut new);
        let kept_to = self.shared.bounds.keep_to(&session.summary.tenant);
        let request = ProfileRequest::of(session, &order.agent, &order.model, kept_to);
        let settled = Settled {
            system: session.system_at(&order.agent, &order.model),
            tools: session.tools_at(&order.agent, &order.model),
            outside: session.outside_tools(&order.agent, &order.model).is_some(),
        };
        let (attempt, cancel) = (order.attempt, CancellationToken::new());
        let work = StepWork {
            order,
            conversation,
            new,
            request,
            offered,
            settled,
            until,
            durable: Arc::clone(&self.durable),
            judge: Arc::clone(&self.judge),
            ring: Arc::clone(&self.ring),
            ids: self.ids.clone(),
            cancel: cancel.clone(),
            session: myself.clone(),
            child: self.shared.children.enter(),
            shared: Arc::clone(&self.shared),
            turn: self.following.span(),
            purse: self.purse.clone().map(|purse| (purse, Before::new(self.machine.session()))),
        };
        let actor = self.stepper(myself, StepMessage::Run(Box::new(work))).await?;
        self.step = Some(LiveStep { attempt, actor, cancel });
        Ok(())
    }

    /// Gives a step to an actor: that of the step before, if it lives.
    async fn stepper(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        mut message: StepMessage,
    ) -> Result<ActorRef<StepMessage>, ActorProcessingErr> {
        if let Some(actor) = self.stepper.take() {
            message = match actor.send_message(message) {
                Ok(()) => return Ok(actor),
                Err(MessagingErr::SendErr(message)) => message,
                Err(error) => return Err(error.into()),
            };
        }
        let (actor, _) = Actor::spawn_linked(None, StepActor, (), myself.get_cell()).await?;
        actor.send_message(message)?;
        Ok(actor)
    }

    /// Starts an attempt beside the steps of turns. Nobody sees its answer before it is complete.
    async fn start_aside(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        order: AsideOrder,
    ) -> Result<(), ActorProcessingErr> {
        let session = self.machine.session();
        let kept_to = self.shared.bounds.keep_to(&session.summary.tenant);
        let request = ProfileRequest {
            system: None,
            ..ProfileRequest::of(session, &order.agent, &order.model, kept_to)
        };
        let before = Before::new(session);
        let (actor, _) = Actor::spawn_linked(None, AsideActor, (), myself.get_cell()).await?;
        let (attempt, cancel) = (order.attempt, CancellationToken::new());
        let work = AsideWork {
            order,
            request,
            directory: Arc::clone(self.judge.directory()),
            cancel: cancel.clone(),
            session: myself.clone(),
            child: self.shared.children.enter(),
            shared: Arc::clone(&self.shared),
            turn: self.following.span(),
            purse: self.purse.clone().map(|purse| (purse, before)),
        };
        actor.send_message(AsideMessage::Run(Box::new(work)))?;
        self.asides.push(LiveAside { attempt, actor, cancel });
        Ok(())
    }

    /// The context that a call's tool gets.
    pub(super) fn context(
        &self,
        place: &Place,
        host: &Arc<SessionHost>,
        output: Arc<dyn OutputSink>,
    ) -> CallContext {
        CallContext {
            workspace: Arc::clone(&place.workspace),
            files: Arc::clone(&self.files),
            locks: Arc::clone(&self.shared.locks),
            pool: self.shared.tool_pool.clone(),
            cancel: host.cancel.clone(),
            output,
            output_file: place.workspace.output().join(format!("{}.txt", host.call)),
            storage: place.storage.clone(),
            host: Arc::clone(host) as Arc<_>,
            processes: self.shared.processes.of(self.id.as_str()),
            walls: place.walls.clone(),
            writes: WriteLog::default(),
        }
    }

    async fn prepare(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        call: PartId,
        phase: Phase,
    ) -> Result<(), ActorProcessingErr> {
        self.listen();
        let place = match &self.place {
            Ok(place) => place,
            Err(error) => {
                let report = CallReport::text(CallOutcome::Failed, error.clone());
                myself.send_message(SessionMessage::Prepared(call, Box::new(Err(report))))?;
                return Ok(());
            }
        };
        let cancel = CancellationToken::new();
        let turn = self.machine.session().turn.as_ref();
        let of_agent = |turn: &&playhouse_session::Turn| !matches!(turn.kind, PromptKind::Shell { .. });
        let agent = turn.filter(of_agent).map(|turn| turn.agent.clone());
        let journal = Journal { shared: Arc::clone(&self.shared), tenant: Arc::clone(&self.tenant) };
        let tracker = Tracker {
            trees: Arc::clone(&self.shared.trees),
            watcher: Watcher {
                session: self.id.as_str().into(),
                turn: turn.map(|turn| turn.id.as_str()).unwrap_or_default().into(),
            },
            index: place.tree.clone(),
            state: Mutex::default(),
        };
        let mut observers: Vec<Box<dyn CallObserver>> = Vec::new();
        if !self.shared.formatters.is_empty() {
            // The first one, so that the others see the file as it was formatted.
            observers.push(Box::new(Formatting::new(Arc::clone(&self.shared.formatters))));
        }
        observers.push(Box::new(journal));
        observers.push(Box::new(tracker));
        observers.push(Box::new(StaleReads {
            root: place.workspace.root().to_owned(),
            files: Arc::clone(&self.files),
        }));
        if let Some(servers) = &self.shared.lsp {
            observers.push(Box::new(servers.observer(self.scope.clone())));
        }
        let host = Arc::new(SessionHost {
            session_id: self.id,
            call,
            agent,
            tools: turn.map(|turn| turn.tools.clone()).unwrap_or_default(),
            handed: turn.and_then(|turn| turn.handed.clone()),
            giver: self.giver(&phase).map(Arc::new),
            delegate: OnceLock::new(),
            cancel: cancel.clone(),
            judge: Arc::clone(&self.judge),
            catalogue: self.catalogue(),
            todos: self.todos.clone(),
            rules: self.rules.clone(),
            session: myself.clone(),
            own: Some(OwnChanges {
                shared: Arc::clone(&self.shared),
                tenant: Arc::clone(&self.tenant),
                session: self.id,
                workspace: Arc::clone(&place.workspace),
                judge: Arc::clone(&self.judge),
            }),
            observers,
        });
        let walls = if host.is_read_only() { place.walls_for_looking() } else { Ok(place.walls.clone()) };
        let walls = match walls {
            Ok(walls) => walls,
            Err(error) => {
                let report = CallReport::text(CallOutcome::Failed, error.to_string());
                myself.send_message(SessionMessage::Prepared(call, Box::new(Err(report))))?;
                return Ok(());
            }
        };
        let called = phase.tool().and_then(|tool| host.catalogue.get(tool));
        let is_brief = called.is_some_and(|tool| tool.is_brief());
        let output = Arc::new(RingOutput::new(Arc::clone(&self.ring), call));
        let arguments = CallArguments {
            call,
            span: self.call_span(call),
            context: CallContext { walls, ..self.context(place, &host, output) },
            host,
            tenant: Arc::clone(&self.tenant),
            session: myself.clone(),
            session_id: self.id,
            child: self.shared.children.enter(),
            shared: Arc::clone(&self.shared),
        };
        let writes = arguments.context.writes.reader();
        let live = |carrier| LiveCall { carrier, cancel, writes, executes: false };
        let begun = Call::new(arguments);
        if is_brief {
            self.calls.insert(call, live(Carrier::Session(None)));
            return self.begin(myself, call, begun, phase).await;
        }
        let carrier = carried(myself, begun.run(phase)).await?;
        self.calls.insert(call, live(carrier));
        Ok(())
    }

    /// Does what a call prepared.
    async fn execute(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        call: PartId,
    ) -> Result<(), ActorProcessingErr> {
        let Some(live) = self.calls.get_mut(&call) else { return Ok(()) };
        live.executes = true;
        let delegate = self.machine.session().delegate(call);
        match &mut live.carrier {
            Carrier::Actor(actor) => actor.send_message(CallMessage::Execute(delegate))?,
            Carrier::Session(kept) => {
                if let Some(kept) = kept.take() {
                    self.begin(myself, call, kept, Phase::Execute(delegate)).await?;
                }
            }
        }
        Ok(())
    }

    /// Begins a phase of a brief call. If it is over at once, the session is told through its mailbox, as an actor would tell it.
    async fn begin(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        call: PartId,
        kept: Box<Call>,
        phase: Phase,
    ) -> Result<(), ActorProcessingErr> {
        let executes = matches!(phase, Phase::Execute(_));
        let (carrier, report) = match kept.begin(phase).await {
            Begun::Over(kept, report) => (Carrier::Session(Some(kept)), Some(report)),
            Begun::Waits(running) => (carried(myself, running).await?, None),
            Begun::Crashed(why) => {
                let report = crashed_with(&why);
                let report = if executes {
                    Report::Executed(Box::new(report))
                } else {
                    Report::Prepared(Box::new(Err(report)))
                };
                (Carrier::Session(None), Some(report))
            }
        };
        if let Some(live) = self.calls.get_mut(&call) {
            live.carrier = carrier;
        }
        if let Some(report) = report {
            myself.send_message(report.of(call))?;
        }
        Ok(())
    }

    /// The tools that there are in the session.
    pub(super) fn catalogue(&self) -> Arc<Registry> {
        let session = self.machine.session();
        let catalogue = self.shared.tools.catalogue(&self.scope, session.tools.as_deref());
        match self.submit_output() {
            Some(tool) => ToolSources::with_output(&catalogue, tool),
            None => catalogue,
        }
    }

    /// The tool by which the running turn's answer is given, where it wants one with a schema.
    fn submit_output(&self) -> Option<Arc<SubmitOutput>> {
        let wanted = &self.machine.session().turn.as_ref()?.output.as_ref()?.wanted;
        let mut kept = self.submit.lock();
        if kept.as_ref().is_none_or(|tool| tool.wanted() != wanted) {
            // It was read when the prompt was admitted.
            *kept = SubmitOutput::new(wanted).map(Arc::new).ok();
        }
        kept.clone()
    }

    /// Who hands work over, for a call that does.
    fn giver(&self, phase: &Phase) -> Option<Giver> {
        let Phase::Prepare { tool, input, .. } = phase else { return None };
        let catalogue = self.catalogue();
        catalogue.get(tool)?.delegation(input)?;
        let session = self.machine.session();
        let turn = session.turn.as_ref().filter(|turn| turn.kind.is_turn())?;
        let above = turn.handed.as_ref().map_or(&[][..], |handed| &handed.mandates);
        let is_read_only = self.judge.directory().is_read_only(&turn.agent);
        let mut mandate = self.judge.mandate(&turn.agent, is_read_only, &catalogue);
        // "All" would be all that there are in another session.
        if session.tools.is_some() || turn.tools.values().any(|on| !on) {
            let names = || catalogue.iter().map(|tool| tool.spec().name.clone()).collect();
            mandate.tools.get_or_insert_with(names).retain(|name| !turn.turns_off(name));
        }
        Some(Giver {
            engine: self.engine(),
            session: self.id,
            tenant: session.summary.tenant.clone(),
            workspace: session.summary.workspace.clone(),
            permissions: session.permissions.clone(),
            walls: session.walls.clone(),
            tools: session.tools.clone(),
            system: session.system.clone(),
            unattended: turn.unattended,
            step: turn.step.as_ref().map(|step| step.id),
            directory: Arc::clone(self.judge.directory()),
            model: turn.model.clone(),
            handed: HandedOver {
                from: self.id,
                agent: turn.agent.clone(),
                model: turn.model.clone(),
                mandates: above.iter().cloned().chain([mandate]).collect(),
                report: None,
                attribution: session
                    .attribution(turn.id, self.judge.directory().labels(&session.summary.metadata)),
            },
        })
    }

    /// The span of a call, within that of its turn.
    fn call_span(&self, call: PartId) -> tracing::Span {
        let span = tracing::info_span!(
            parent: &self.following.span(),
            "execute_tool",
            otel.name = tracing::field::Empty,
            otel.kind = "internal",
            gen_ai.operation.name = "execute_tool",
            gen_ai.conversation.id = %self.id,
            gen_ai.tool.name = tracing::field::Empty,
            gen_ai.tool.call.id = %call,
            outcome = tracing::field::Empty,
        );
        if !span.is_disabled()
            && let Some(part) = self.machine.session().call(call)
        {
            span.record("otel.name", format!("execute_tool {}", part.tool));
            span.record("gen_ai.tool.name", &*part.tool);
        }
        span
    }

    /// Ends an attempt; one that still waits for the flush never leaves.
    fn cancel_attempt(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        attempt: AttemptId,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(step) = self.step.as_ref().filter(|step| step.attempt == attempt) {
            step.cancel.cancel();
            return Ok(());
        }
        if let Some(aside) = self.asides.iter().find(|aside| aside.attempt == attempt) {
            aside.cancel.cancel();
            return Ok(());
        }
        let waiting = self.gated.len();
        self.gated.retain(|(_, gated)| !starts(gated, attempt));
        if self.gated.len() == waiting {
            return Ok(());
        }
        // Nobody runs it, so nobody reports: the machine is told through the mailbox, like of any other attempt.
        let error = ErrorInfo::new(ErrorCode::Internal, "the turn was aborted");
        let failed = FailedAttempt::without_answer(error, false);
        let report = Box::new(AttemptReport::Failed(failed));
        myself.send_message(SessionMessage::Attempt(attempt, report, None))?;
        Ok(())
    }

    fn cancel_call(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        call: PartId,
    ) -> Result<(), ActorProcessingErr> {
        let waiting = self.gated.len();
        self.gated.retain(|(_, gated)| !executes(gated, call));
        if self.gated.len() < waiting {
            let report = CallReport::text(CallOutcome::Cancelled, "cancelled: the turn was aborted");
            myself.send_message(SessionMessage::Call(call, Box::new(report)))?;
        } else if let Some(live) = self.calls.get(&call) {
            live.cancel.cancel();
        }
        Ok(())
    }

    /// The log says that the session is deleted: takes it out of the store and out of the supervisor's table.
    fn remove(&mut self, myself: &ActorRef<SessionMessage>, ticket: Ticket) {
        let Some(port) = self.tickets.remove(&ticket) else { return };
        let (ring, session, myself) = (Arc::clone(&self.ring), self.id, myself.clone());
        let remover = Remover { shared: Arc::clone(&self.shared), supervisor: self.supervisor.clone() };
        spawn(async move {
            let removed = remover.finish(session).await;
            ring.close(None);
            remover.tell(session, removed.is_ok());
            myself.stop(Some(REMOVED.to_owned()));
            drop(port.send(removed.map(|()| Reply::Done)));
        });
    }
}

/// An actor that does a phase of a call, and keeps the call.
async fn carried(myself: &ActorRef<SessionMessage>, running: Running) -> Result<Carrier, ActorProcessingErr> {
    let (actor, _) = Actor::spawn_linked(None, CallActor, (), myself.get_cell()).await?;
    actor.send_message(CallMessage::GoOn(running))?;
    Ok(Carrier::Actor(actor))
}

/// The timer ends with the actor; a deadline begins anew after a restart.
fn arm(myself: &ActorRef<SessionMessage>, deadline: Deadline, after_ms: u64) {
    drop(myself.send_after(Duration::from_millis(after_ms), move || SessionMessage::Deadline(deadline)));
}

fn starts(effect: &Effect, attempt: AttemptId) -> bool {
    match effect {
        Effect::StartAttempt(order) => order.attempt == attempt,
        Effect::StartAside(order) => order.attempt == attempt,
        _ => false,
    }
}

fn executes(effect: &Effect, call: PartId) -> bool {
    matches!(effect, Effect::Execute { call: executed, .. } if *executed == call)
}
