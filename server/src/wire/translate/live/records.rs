//! Durable events of a session, in the words of the wire.

use std::collections::HashMap;
use std::sync::Arc;

use playhouse_protocol::ledger::Purpose;
use playhouse_protocol::message::{CallOutcome, CallPart, CallState, Message};
use playhouse_protocol::question::QuestionAnswer;
use playhouse_protocol::record::{
    AttemptEnded, AttemptOutcome, PromptAdmitted, StepFinished, TurnEnded, TurnOutcome, TurnSummarized,
};
use playhouse_protocol::{Entry, MessageId, Part, PartId, Record, Seq, Timestamp};
use playhouse_session::{Changes, QueuedPrompt};

use super::{KEPT, Live, Lost, ToldTurn, trim, without_parts};
use crate::wire::shapes::{self, MessageWithParts, Status, WireEvent};
use crate::wire::translate::{error, message, request};

impl Live {
    /// Tells of a record, once it is durable.
    pub(super) fn durable(
        &mut self,
        seq: Seq,
        at: Timestamp,
        record: &Arc<Record>,
        out: &mut Vec<WireEvent>,
    ) -> Result<(), Lost> {
        let entry = Entry { seq, at, record: Record::clone(record) };
        // A summary that is written, which the session waits for.
        let summary = |ended: &AttemptEnded| {
            let mut asides = self.session.asides.iter();
            asides.any(|aside| aside.id == ended.attempt && aside.purpose == Purpose::Compaction)
        };
        let ends_summary = matches!(&entry.record, Record::AttemptEnded(ended) if summary(ended));
        // A prompt drops what is taken back.
        let taken_back = match &entry.record {
            Record::PromptAdmitted(_) => self.session.taken_back(),
            _ => Vec::new(),
        };
        self.session.apply(&entry).map_err(|_| Lost)?;
        match &entry.record {
            Record::SessionCreated(_)
            | Record::Forked(_)
            | Record::SystemSettled(_)
            | Record::ToolsSettled(_) => {}
            Record::SessionChanged(_) | Record::Reverted(_) => self.updated(out),
            Record::PromptAdmitted(prompt) => {
                let session = self.id();
                let removed = |message| WireEvent::MessageRemoved { session, message };
                out.extend(taken_back.into_iter().map(removed));
                self.prompt_admitted(prompt, at, out);
            }
            Record::TurnStarted { turn } => {
                self.turn_started(*turn);
                self.set_status(Status::Busy, out);
            }
            Record::AttemptStarted(started) if started.purpose.is_aside() => {
                // A summary keeps whoever waits for it; nobody waits for a title.
                if started.purpose == Purpose::Compaction {
                    self.set_status(Status::Busy, out);
                }
            }
            Record::AttemptStarted(started) => {
                self.withdraw_open(|_| true, out);
                self.set_status(Status::Busy, out);
                if started.attempt_number == 1 {
                    self.step_started(started.step, at, out);
                }
            }
            // What is withdrawn is known when the step ends, or is attempted again.
            Record::AttemptEnded(ended) => {
                if matches!(ended.outcome, AttemptOutcome::Lost) {
                    self.withdraw_open(|_| true, out);
                }
                // One that somebody asked for between turns. What one that was written becomes is told first: the next record says it.
                if ends_summary && self.session.is_idle() && ended.outcome != AttemptOutcome::Finished {
                    let session = self.id();
                    if let AttemptOutcome::Failed { error: info } = &ended.outcome {
                        let error = error::error(info, &self.session.summary.model.provider);
                        out.push(WireEvent::SessionError { session, error });
                    }
                    self.rests(out);
                }
            }
            Record::ContextCleared(_)
            | Record::ArtifactCaptured(_)
            | Record::WorkspaceChanged(_)
            | Record::CallOffered(_)
            | Record::CallAnswered { .. } => {}
            Record::ContextCompacted(compacted) => {
                self.compacted(compacted.message, at, out);
                if self.session.is_idle() && !matches!(self.status, Status::Idle) {
                    self.rests(out);
                }
            }
            Record::StepFinished(finished) => self.step_finished(finished, at, out),
            Record::CallProposed(proposed) => {
                // No attempt began the step of a command that a person runs.
                if self.session.turn.as_ref().is_some_and(|turn| !turn.kind.is_turn()) {
                    self.step_started(proposed.step, at, out);
                }
            }
            Record::ConsentAsked(asked) => {
                if let Some(call) = asked.call {
                    self.asked.insert(call, at);
                    self.tell_call(call, at, out);
                }
                out.push(WireEvent::PermissionAsked(Box::new(self.permission(asked))));
            }
            Record::ConsentSettled { consent, answer } => out.push(WireEvent::PermissionReplied {
                session: self.shown_on,
                request: *consent,
                reply: request::reply(answer).to_owned(),
            }),
            Record::QuestionAsked(asked) => {
                let asked = crate::wire::translate::questions(asked, self.shown_on, self.tool_of(asked.call));
                out.push(WireEvent::QuestionAsked(Box::new(asked)));
            }
            Record::QuestionSettled { question, answer } => {
                let (session, request) = (self.shown_on, *question);
                out.push(match answer {
                    QuestionAnswer::Answered { answers } => {
                        WireEvent::QuestionReplied { session, request, answers: answers.clone() }
                    }
                    QuestionAnswer::Rejected | QuestionAnswer::TimedOut | QuestionAnswer::Withdrawn => {
                        WireEvent::QuestionRejected { session, request }
                    }
                });
            }
            Record::TodosChanged { todos } => {
                out.push(WireEvent::TodoUpdated { session: self.id(), todos: todos.clone() });
            }
            Record::CallIntended(intended) => self.tell_call(intended.call, at, out),
            Record::CallSettled { call, .. } => {
                if let Some(part) = self.session.call(*call) {
                    self.changes.add(part);
                    self.turns.iter_mut().next_back().into_iter().for_each(|turn| turn.changes.add(part));
                }
                self.outputs.remove(call);
                self.tell_call(*call, at, out);
                self.tell_end(at, out);
            }
            Record::TurnEnded(ended) => self.turn_ended(ended, at, out),
            Record::TurnSummarized(summarized) => self.turn_summarized(summarized, out),
            Record::Deleted {} => {
                out.push(WireEvent::SessionDeleted { session: self.id(), info: Box::new(self.info()) });
            }
        }
        trim(&mut self.session);
        Ok(())
    }

    fn prompt_admitted(&self, prompt: &PromptAdmitted, at: Timestamp, out: &mut Vec<WireEvent>) {
        let message = prompt.to_message(at);
        let MessageWithParts { info, parts } = message::user(self.scene(), &message, None);
        out.push(self.message(info));
        out.extend(parts.into_iter().map(|part| self.part_updated(part, at.as_millis())));
        self.updated(out);
    }

    /// Tells of the messages that stand for what models do not read any more.
    fn compacted(&self, id: MessageId, at: Timestamp, out: &mut Vec<WireEvent>) {
        let tells = self.session.messages.iter().rev().find(|message| message.id() == id);
        let Some(Message::User(tells)) = tells else { return };
        for MessageWithParts { info, parts } in message::compaction(self.scene(), tells) {
            out.push(self.message(info));
            out.extend(parts.into_iter().map(|part| self.part_updated(part, at.as_millis())));
        }
        out.push(WireEvent::SessionCompacted { session: self.id() });
        self.updated(out);
    }

    /// Tells that nothing runs any more.
    pub(super) fn rests(&mut self, out: &mut Vec<WireEvent>) {
        self.between = None;
        self.set_status(Status::Idle, out);
        out.push(WireEvent::SessionIdle { session: self.id() });
    }

    fn step_started(&mut self, step: MessageId, at: Timestamp, out: &mut Vec<WireEvent>) {
        self.asked.clear();
        self.outputs.clear();
        self.tell_answer(false, out);
        out.push(self.part_updated(message::step_start(self.scene(), step), at.as_millis()));
    }

    fn step_finished(&mut self, finished: &StepFinished, at: Timestamp, out: &mut Vec<WireEvent>) {
        let begun: HashMap<PartId, Timestamp> =
            self.open.iter().map(|open| (open.part, open.started)).collect();
        let Some(answer) = self.answer().filter(|answer| answer.id == finished.step) else { return };
        let kept: Vec<PartId> = answer.parts.iter().map(Part::id).collect();
        let mut told = Vec::new();
        for part in &answer.parts {
            let mut shown = message::part(self.scene(), answer, part, self);
            if let (
                Some(started),
                shapes::Part::Text { time: Some(time), .. } | shapes::Part::Reasoning { time, .. },
            ) = (begun.get(&part.id()), &mut shown)
            {
                time.start = started.as_millis();
            }
            told.push(self.part_updated(shown, at.as_millis()));
        }
        self.withdraw_open(|part| !kept.contains(&part), out);
        self.open.clear();
        out.append(&mut told);
        self.tell_end(at, out);
    }

    /// Tells the end of a step, if it is over with all its calls.
    fn tell_end(&self, at: Timestamp, out: &mut Vec<WireEvent>) {
        let Some(answer) = self.answer().filter(|answer| message::over(answer).is_some()) else { return };
        if let Some(part) = message::step_finish(self.scene(), answer) {
            out.push(self.part_updated(part, at.as_millis()));
            self.tell_answer(false, out);
        }
        if let Some(part) = message::patch(self.scene(), answer) {
            out.push(self.part_updated(part, at.as_millis()));
        }
        self.tell_answer(true, out);
    }

    fn turn_started(&mut self, turn: MessageId) {
        self.between = None;
        let prompt = self.session.messages.iter().rev().find(|message| message.id() == turn);
        let Some(Message::User(prompt)) = prompt else { return };
        let told = ToldTurn { prompt: without_parts(prompt), changes: Changes::new(message::TURN_PATCHES) };
        while self.turns.len() >= KEPT {
            self.turns.pop_front();
        }
        self.turns.push_back(told);
    }

    /// Tells what a turn changed in files, if it did.
    fn tell_changes(&self, turn: MessageId, out: &mut Vec<WireEvent>) {
        let told = self.turns.iter().find(|told| told.prompt.id == turn);
        if let Some(told) = told.filter(|told| !told.changes.is_empty()) {
            let diff = message::diffs(self.scene(), &self.changes);
            out.push(WireEvent::SessionDiff { session: self.id(), diff });
            self.tell_prompt(told, out);
        }
    }

    fn tell_prompt(&self, told: &ToldTurn, out: &mut Vec<WireEvent>) {
        let info = message::prompt(self.scene(), &told.prompt, Some(&told.changes));
        out.push(self.message(shapes::Message::User(Box::new(info))));
    }

    fn turn_summarized(&mut self, summarized: &TurnSummarized, out: &mut Vec<WireEvent>) {
        let place = self.turns.iter().position(|told| told.prompt.id == summarized.turn);
        if let Some(place) = place {
            self.turns[place].prompt.summary = Some(summarized.text.clone());
            self.tell_prompt(&self.turns[place], out);
        }
        self.updated(out);
    }

    fn turn_ended(&mut self, ended: &TurnEnded, at: Timestamp, out: &mut Vec<WireEvent>) {
        let session = self.id();
        // Notes that waited for the end may stand behind it.
        let withdrawn = |message: &Message| matches!(message, Message::User(user) if user.withdrawn && user.id == ended.turn);
        let waited = |queued: &QueuedPrompt| queued.prompt.message == ended.turn;
        // One that was withdrawn while another turn runs stands in the conversation later.
        if self.session.withdrawn.iter().any(waited) || self.session.messages.iter().any(withdrawn) {
            out.push(WireEvent::MessageRemoved { session, message: ended.turn });
        } else {
            self.withdraw_open(|_| true, out);
            self.give_up_unanswered(at, out);
            self.tell_changes(ended.turn, out);
        }
        let error = match &ended.error {
            Some(info) => Some(error::error(info, &self.session.summary.model.provider)),
            None => (ended.outcome == TurnOutcome::Aborted).then(error::aborted),
        };
        if let Some(error) = error {
            out.push(WireEvent::SessionError { session, error });
        }
        if self.session.is_idle() {
            self.asked.clear();
            self.outputs.clear();
            if self.ended_a_block() {
                self.between = Some(at);
            } else {
                self.status = Status::Idle;
                self.tell_status(out);
                out.push(WireEvent::SessionIdle { session });
            }
        }
        self.updated(out);
    }

    /// Whether the turn that ended was a shell block that ended well: the command goes on. Clients that wait for its end would leave
    /// before the answer.
    fn ended_a_block(&self) -> bool {
        let is_block = self.turns.back().is_some_and(|told| told.prompt.kind.is_block());
        let is_well = |part: &Part| match part {
            Part::Call(CallPart { state: CallState::Settled(result), .. }) => {
                result.outcome == CallOutcome::Done && result.metadata.get("timedOut") != Some(&true.into())
            }
            _ => true,
        };
        is_block && self.answer().is_some_and(|answer| answer.parts.iter().all(is_well))
    }

    /// An abort between two attempts leaves a step without an end: clients would wait for it.
    fn give_up_unanswered(&mut self, at: Timestamp, out: &mut Vec<WireEvent>) {
        let answers = self.session.messages.iter_mut().rev().find_map(|message| match message {
            Message::Assistant(answer) => Some(answer),
            Message::User(_) => None,
        });
        let Some(answer) = answers else { return };
        if answer.completed.is_none() {
            *answer = message::given_up(answer.clone(), at);
            self.tell_end(at, out);
        }
    }
}
