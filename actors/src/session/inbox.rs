//! Translates messages of a session, and the ends of its children, into inputs of its machine.

use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::{ErrorCode, ErrorInfo, PromptKind, Reply};
use playhouse_session::{AttemptReport, FailedAttempt, Input, NewPrompt, Ticket};
use ractor::{ActorId, ActorProcessingErr, ActorRef};

use super::SessionState;
use super::live::{LiveCall, crashed_with};
use crate::mailbox::{SessionMessage, UNSURE};

impl SessionState {
    /// Makes an input of a message, or does what is not for the machine.
    pub(super) async fn take(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        message: SessionMessage,
    ) -> Result<(), ActorProcessingErr> {
        if self.unsure && message.appends() {
            // The caller gets no answer and asks again; the session is read from the log anew.
            myself.stop(Some(UNSURE.to_owned()));
            return Ok(());
        }
        if self.place.is_err() && message.works(self.machine.is_suspended()) {
            self.look_again(myself, message);
            return Ok(());
        }
        if self.waits_for_revert(&message) {
            self.waits_for_revert.push(message);
            return Ok(());
        }
        let input = match message {
            SessionMessage::Command(command, port) => match self.command(myself, *command, port) {
                Some(input) => input,
                None => return Ok(()),
            },
            SessionMessage::Attached(prompt, port) => match self.attached(*prompt, port) {
                Some(input) => input,
                None => return Ok(()),
            },
            SessionMessage::Abort(port) => Input::Abort(self.ticket(port)),
            SessionMessage::AbortTurn(turn, port) => Input::AbortTurn(self.ticket(port), turn),
            SessionMessage::Delete(port) => {
                self.abandon_background();
                Input::Delete(self.ticket(port))
            }
            SessionMessage::Flushed(Ok(seq)) => return self.on_flushed(myself, seq).await,
            SessionMessage::Flushed(Err(error)) => return self.store_failed(myself, error),
            SessionMessage::Attempt(attempt, report, conversation) => {
                if let Some(step) = self.step.take_if(|step| step.attempt == attempt) {
                    self.stepper = Some(step.actor);
                }
                if let Some(aside) = self.take_aside(|aside| aside.attempt == attempt) {
                    aside.actor.stop(None);
                }
                if conversation.is_some() {
                    self.conversation = conversation;
                }
                Input::Attempt(attempt, *report)
            }
            SessionMessage::ToolsChanged => {
                let turn = self.machine.session().turn.as_ref();
                match turn.map(|turn| (turn.agent.clone(), turn.model.clone())) {
                    Some((agent, model)) => return self.tell_changed_tools(myself, &agent, &model).await,
                    None => return Ok(()),
                }
            }
            SessionMessage::SystemMade(made) => Input::SystemMade(*made),
            SessionMessage::Prepared(call, prepared) => {
                if prepared.is_err() {
                    self.dismiss(call);
                }
                Input::Prepared(call, *prepared)
            }
            SessionMessage::Ask(call, questions, answer) => {
                // One that was killed meanwhile waits no more.
                if !self.calls.contains_key(&call) {
                    return Ok(());
                }
                self.asking.insert(call, answer);
                Input::Ask(call, questions)
            }
            SessionMessage::Offer(call, wait, result) => {
                if !self.calls.contains_key(&call) {
                    return Ok(());
                }
                self.offering.insert(call, result);
                Input::Offer(call, u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
            }
            SessionMessage::Give(call, answer) => {
                // Nobody waits for the reply.
                self.next_ticket += 1;
                Input::AnswerCall(Ticket(self.next_ticket), call, answer)
            }
            SessionMessage::Call(call, report) => {
                // One that was cut off may still write: its work on the pool goes on.
                if let Some(live) = self.calls.remove(&call) {
                    live.writes.arrived();
                    let is_cut_off = matches!(report.outcome, CallOutcome::Cancelled | CallOutcome::Crashed);
                    if is_cut_off || live.writes.goes_on() {
                        let is_told = report.changed.is_some() && !live.writes.goes_on();
                        self.await_writes(myself, call, &live, is_told);
                    }
                    self.calls.insert(call, live);
                }
                self.dismiss(call);
                Input::Call(call, *report)
            }
            SessionMessage::Wrote(call, set) => {
                self.writes_awaited = self.writes_awaited.saturating_sub(1);
                match set {
                    Some(set) if set.is_nothing() => Input::AllTold(call),
                    Some(set) => Input::Changed(call, *set),
                    None => return Ok(()),
                }
            }
            SessionMessage::RevertBegins(begun, port) => {
                Input::Reverted(self.ticket(port), *begun, Box::default())
            }
            SessionMessage::Reverted(reverted, port) => match self.reverted(myself, reverted, port) {
                Some(input) => input,
                None => return Ok(()),
            },
            SessionMessage::Deadline(deadline) => Input::Deadline(deadline),
            SessionMessage::Write => {
                self.write(myself);
                return Ok(());
            }
            SessionMessage::Granted(ticket, consent, granted) => {
                return self.granted(myself, ticket, consent, granted).await;
            }
            SessionMessage::Rejudge(by) => return self.rejudge(myself, by).await,
            SessionMessage::Awake => {
                self.announce_open();
                if self.machine.is_suspended() {
                    return Ok(());
                }
                self.look_after_background();
                self.consents_changed = true;
                Input::Resume
            }
            SessionMessage::Resume
                if self.machine.is_suspended() && self.shared.space.allows(&self.tenant).is_ok() =>
            {
                Input::Resume
            }
            // It is there: else it was looked for.
            SessionMessage::Place(port) => {
                drop(port.send(Ok(Reply::Done)));
                return Ok(());
            }
            SessionMessage::Looked(found) => {
                self.looked(myself, found);
                return Ok(());
            }
            SessionMessage::Suspend => {
                self.suspend_for_space(myself);
                return Ok(());
            }
            SessionMessage::Stop => {
                self.stopping = true;
                Input::Stop
            }
            // Leaving is not for the machine: see `handle`.
            SessionMessage::Resume | SessionMessage::Settle | SessionMessage::Leave(_) => return Ok(()),
        };
        if let Input::Prompt(_, NewPrompt { prompt, .. }) = &input
            && prompt.kind == PromptKind::Turn
        {
            self.ask_ahead(myself, !prompt.unattended).await?;
            self.tell_changed_tools(myself, &prompt.agent, &prompt.model).await?;
        }
        self.feed(myself, input).await
    }

    /// A child ended by itself: it panicked, or was killed by something else than this actor.
    pub(super) async fn child_ended(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        who: ActorId,
        why: &str,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(step) = self.step.take_if(|step| step.actor.get_id() == who) {
            self.ring.take(step.attempt);
            let error = ErrorInfo::new(
                ErrorCode::Internal,
                format!(
                    "a bug in the engine: the step's actor crashed: {why}. Other sessions are not affected"
                ),
            );
            let report = FailedAttempt::without_answer(error, true);
            let input = Input::Attempt(step.attempt, AttemptReport::Failed(report));
            return self.feed(myself, input).await;
        }
        if let Some(aside) = self.take_aside(|aside| aside.actor.get_id() == who) {
            let text = format!("a bug in the engine: the actor of a title or a summary crashed: {why}");
            let error = ErrorInfo::new(ErrorCode::Internal, text);
            let report = FailedAttempt::without_answer(error, true);
            let input = Input::Attempt(aside.attempt, AttemptReport::Failed(report));
            return self.feed(myself, input).await;
        }
        let is_it = |live: &LiveCall| live.actor().is_some_and(|actor| actor.get_id() == who);
        let crashed = self.calls.iter().find(|(_, live)| is_it(live)).map(|(call, _)| *call);
        let Some(call) = crashed else { return Ok(()) };
        if let Some(live) = self.calls.remove(&call) {
            self.await_writes(myself, call, &live, false);
        }
        self.asking.remove(&call);
        self.offering.remove(&call);
        let report = crashed_with(why);
        // The machine ignores the report that does not fit the phase of the call.
        self.feed(myself, Input::Prepared(call, Err(report.clone()))).await?;
        self.feed(myself, Input::Call(call, report)).await
    }
}
