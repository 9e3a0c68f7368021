//! The turn machine: decides what happens next.
//!
//! Every decision appends records to the machine's own state first and hands them out as one [`Effect::Append`]; what
//! must not happen before they are flushed comes after it. What the machine knows beside the log ([`Live`]) is only who
//! is at work now, and is empty after a restart.

use std::collections::HashMap;

use playhouse_protocol::command::Accepted;
use playhouse_protocol::id::{AttemptId, ConsentId, MessageId, PartId};
use playhouse_protocol::message::{FinishReason, Part};
use playhouse_protocol::record::{
    AttemptEnded, AttemptOutcome, AttemptStarted, ConsentAnswer, PromptAdmitted, SessionChanged,
    StepFinished, StepPart, TurnEnded, TurnOutcome,
};
use playhouse_protocol::summary::UNTITLED;
use playhouse_protocol::usage::{PriceList, Quality};
use playhouse_protocol::{
    CommandError, Entry, ErrorCode, ErrorInfo, Record, Reply, Timestamp, Usage, WhenBusy,
};

use crate::effect::{
    AttemptOrder, AttemptReport, Deadline, Effect, FailedAttempt, Input, NewPrompt, PreparedCall,
    ProposedCall, Stamp, StepAnswer, Ticket,
};
use crate::fold::{FoldError, OpenAttempt, Session, StepPhase};
use crate::retry::RetryPolicy;
use crate::settle::{BYTES_PER_TOKEN, estimated_usage};

mod aborts;
mod calls;
mod questions;

use aborts::Abort;

/// How long what was cancelled may take to end by itself, in milliseconds, before it is killed.
pub(crate) const ABORT_GRACE_MS: u64 = 1_000;
/// How long a request with questions waits for an answer, in milliseconds, unless told otherwise.
const QUESTION_WAIT_MS: u64 = 60_000;
/// The most prompts that may wait in one session.
const QUEUE_LIMIT: usize = 100;
/// Longest title that is made from a prompt, in characters.
const TITLE_LENGTH: usize = 60;

/// A session that decides.
#[derive(Debug)]
pub struct Machine {
    session: Session,
    retry: RetryPolicy,
    /// How long a request with questions waits for an answer, in milliseconds.
    question_wait_ms: u64,
    live: Live,
    /// Records of the input under way, not yet handed out.
    fresh: Vec<Entry>,
    effects: Vec<Effect>,
}

/// Who is at work now. Not in the log, and empty after a restart.
#[derive(Debug, Default)]
struct Live {
    /// The attempt that reports one day.
    attempt: Option<AttemptId>,
    /// Calls that report one day.
    calls: HashMap<PartId, LiveCall>,
    /// The step that waits for its next attempt.
    retrying: Option<MessageId>,
    /// The abort under way.
    abort: Option<Abort>,
    /// Who waits for the removal of the session.
    delete: Option<Ticket>,
}

#[derive(Debug, Clone, PartialEq)]
enum LiveCall {
    /// Its tool reads the arguments.
    Preparing,
    /// It waits for calls before it.
    Ready(PreparedCall),
    /// Its tool is at work.
    Running,
}

/// What follows from a failed attempt.
enum Retry {
    After { wait_ms: u64, attempt_number: u32 },
    GiveUp { advice: Option<String> },
}

impl Machine {
    /// A machine for `session`. After a restart, [`Input::Resume`] comes first.
    pub fn new(session: Session, retry: RetryPolicy) -> Self {
        Self {
            session,
            retry,
            question_wait_ms: QUESTION_WAIT_MS,
            live: Live::default(),
            fresh: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Says how long a request with questions waits for an answer, in milliseconds; it is a minute unless told otherwise.
    #[must_use]
    pub fn question_wait_ms(self, question_wait_ms: u64) -> Self {
        Self { question_wait_ms, ..self }
    }

    /// The session as it stands.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Takes an input and says what is to be done, in order.
    ///
    /// # Errors
    /// A record that the machine itself made does not fit: a bug. Nothing of this input may be carried out.
    pub fn on(&mut self, input: Input, stamp: &mut Stamp<'_>) -> Result<Vec<Effect>, FoldError> {
        self.fresh.clear();
        self.effects.clear();
        self.decide(input, stamp)?;
        self.finish_abort(stamp)?;
        self.advance(stamp)?;
        let mut effects = Vec::with_capacity(self.effects.len() + 1);
        if !self.fresh.is_empty() {
            effects.push(Effect::Append(std::mem::take(&mut self.fresh)));
        }
        effects.append(&mut self.effects);
        Ok(effects)
    }

    fn decide(&mut self, input: Input, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        match input {
            Input::Prompt(ticket, prompt) => self.on_prompt(ticket, prompt, stamp),
            Input::Abort(ticket) => {
                self.begin_abort(Some(ticket));
                Ok(())
            }
            Input::Answer(ticket, consent, answer) => self.on_answer(ticket, consent, answer, stamp),
            Input::AnswerQuestion(ticket, question, answers) => {
                self.on_question_answered(ticket, question, answers, stamp)
            }
            Input::Ask(call, questions) => self.on_ask(call, questions, stamp),
            Input::Change(ticket, changed) => self.on_change(ticket, changed, stamp),
            Input::Delete(ticket) => {
                if self.refuse_deleted(ticket) {
                    return Ok(());
                }
                self.live.delete = Some(ticket);
                self.begin_abort(None);
                Ok(())
            }
            Input::Resume => self.on_resume(stamp),
            Input::Attempt(attempt, report) => self.on_attempt(attempt, report, stamp),
            Input::Prepared(call, prepared) => self.on_prepared(call, prepared, stamp),
            Input::Call(call, report) => self.on_call(call, report, stamp),
            Input::Deadline(Deadline::Retry { step }) => {
                if self.live.retrying == Some(step) {
                    self.live.retrying = None;
                }
                Ok(())
            }
            Input::Deadline(Deadline::Question { question }) => self.on_question_overdue(question, stamp),
            Input::Deadline(Deadline::AbortGrace { turn }) => self.on_abort_grace(turn, stamp),
        }
    }

    /// Adds a record to the state and to what is handed out.
    fn append(&mut self, record: Record, now: Timestamp) -> Result<(), FoldError> {
        let at = now.max(self.session.summary.updated);
        let entry = Entry { seq: self.session.summary.head.next(), at, record };
        self.session.apply(&entry)?;
        self.fresh.push(entry);
        Ok(())
    }

    fn reply(&mut self, ticket: Ticket, reply: Result<Reply, CommandError>) {
        self.effects.push(Effect::Reply(ticket, reply));
    }

    fn refuse_deleted(&mut self, ticket: Ticket) -> bool {
        let gone = self.session.is_deleted() || self.live.delete.is_some();
        if gone {
            self.reply(ticket, Err(CommandError::NotFound(self.session.summary.id)));
        }
        gone
    }

    fn on_prompt(
        &mut self,
        ticket: Ticket,
        prompt: NewPrompt,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if self.refuse_deleted(ticket) {
            return Ok(());
        }
        let turn = prompt.message;
        if self.session.knows_prompt(turn) {
            self.reply(ticket, Ok(Reply::Accepted(Accepted { turn, repeated: true })));
            return Ok(());
        }
        let busy = !self.session.is_idle();
        if busy && prompt.when_busy == WhenBusy::Reject {
            self.reply(ticket, Err(CommandError::Busy));
            return Ok(());
        }
        if self.session.queue.len() >= QUEUE_LIMIT && prompt.when_busy != WhenBusy::Interrupt {
            let text = format!(
                "{QUEUE_LIMIT} prompts wait in this session: send it when some are done, or abort them"
            );
            self.reply(ticket, Err(CommandError::Overloaded(text)));
            return Ok(());
        }
        if busy && prompt.when_busy == WhenBusy::Interrupt {
            self.begin_abort(None);
        }
        if self.session.summary.title == UNTITLED
            && let Some(title) = title_of(&prompt.parts)
        {
            let changed = SessionChanged { title: Some(title), ..SessionChanged::default() };
            self.append(Record::SessionChanged(changed), stamp.now)?;
        }
        let admitted = PromptAdmitted {
            message: turn,
            parts: prompt.parts,
            agent: prompt.agent,
            model: prompt.model,
            step_limit: prompt.step_limit,
            steer: prompt.when_busy == WhenBusy::Steer,
        };
        self.append(Record::PromptAdmitted(admitted), stamp.now)?;
        self.reply(ticket, Ok(Reply::Accepted(Accepted { turn, repeated: false })));
        Ok(())
    }

    fn on_change(
        &mut self,
        ticket: Ticket,
        changed: SessionChanged,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if self.refuse_deleted(ticket) {
            return Ok(());
        }
        self.append(Record::SessionChanged(changed), stamp.now)?;
        self.reply(ticket, Ok(Reply::Done));
        Ok(())
    }

    fn on_answer(
        &mut self,
        ticket: Ticket,
        consent: ConsentId,
        answer: ConsentAnswer,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let Some(call) = self.asking_call(consent).filter(|_| self.live.abort.is_none()) else {
            self.reply(ticket, Err(CommandError::NoSuchConsent(consent)));
            return Ok(());
        };
        let answer = match answer {
            ConsentAnswer::Withdrawn => ConsentAnswer::Decline { message: None },
            other => other,
        };
        self.append(Record::ConsentSettled { consent, answer: answer.clone() }, stamp.now)?;
        if let ConsentAnswer::Decline { message } = answer {
            self.settle_declined(call, message, stamp)?;
        }
        self.reply(ticket, Ok(Reply::Done));
        Ok(())
    }

    /// Goes on after a restart, when nobody is at work.
    fn on_resume(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let Some(turn) = &self.session.turn else { return Ok(()) };
        match turn.step.as_ref().map(|step| &step.phase) {
            Some(StepPhase::Attempting(open)) => {
                let usage = estimated_usage(None, open.estimated_input, 0);
                self.end_attempt(&open.clone(), AttemptOutcome::Lost, Some(usage), None, stamp)
            }
            Some(StepPhase::Finished { .. }) => self.resume_calls(stamp),
            Some(StepPhase::Unanswered) | None => Ok(()),
        }
    }

    fn on_attempt(
        &mut self,
        attempt: AttemptId,
        report: AttemptReport,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if self.live.attempt != Some(attempt) {
            return Ok(());
        }
        self.live.attempt = None;
        let Some((step, open)) = self.attempting() else { return Ok(()) };
        match report {
            AttemptReport::Finished(answer) => self.on_answer_complete(step, &open, answer, stamp),
            AttemptReport::Failed(failed) => self.on_attempt_failed(step, &open, failed, stamp),
        }
    }

    fn attempting(&self) -> Option<(MessageId, OpenAttempt)> {
        let step = self.session.turn.as_ref()?.step.as_ref()?;
        match &step.phase {
            StepPhase::Attempting(open) => Some((step.id, open.clone())),
            StepPhase::Unanswered | StepPhase::Finished { .. } => None,
        }
    }

    fn on_answer_complete(
        &mut self,
        step: MessageId,
        open: &OpenAttempt,
        answer: StepAnswer,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let StepAnswer { parts, calls, finish, usage, answered_by } = answer;
        let usage = match usage {
            Some(usage) if usage.quality != Quality::Estimated => usage,
            // The final figures are missing: the rest is estimated.
            partial => estimated_usage(partial, open.estimated_input, bytes_of(&parts, &calls)),
        };
        self.end_attempt(open, AttemptOutcome::Finished, Some(usage), answered_by, stamp)?;
        let model = self.session.turn.as_ref().map_or_else(String::new, |turn| turn.model.to_string());
        let error = match finish {
            FinishReason::Length => Some(ErrorInfo::new(
                ErrorCode::OutputLimit,
                format!(
                    "the answer reached the output limit of {model} and is cut there: ask for less at once, or raise the limit"
                ),
            )),
            FinishReason::ContentFilter => Some(ErrorInfo::new(
                ErrorCode::ContentFilter,
                format!(
                    "{model} or its provider's content filter refused to answer: change what is asked, or use another model"
                ),
            )),
            _ => None,
        };
        for call in calls {
            let proposed = playhouse_protocol::record::CallProposed {
                call: call.id,
                step,
                call_id: call.call_id,
                tool: call.tool,
                input: call.input,
            };
            self.append(Record::CallProposed(proposed), stamp.now)?;
        }
        self.finish_step(step, parts, finish, error, stamp)
    }

    fn on_attempt_failed(
        &mut self,
        step: MessageId,
        open: &OpenAttempt,
        failed: FailedAttempt,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let FailedAttempt { error, parts, usage, streamed_bytes, may_have_used } = failed;
        let used = (may_have_used || usage.is_some())
            .then(|| estimated_usage(usage, open.estimated_input, streamed_bytes));
        if self.live.abort.is_some() {
            self.end_attempt(open, AttemptOutcome::Aborted, used, None, stamp)?;
            return self.finish_step(step, parts, FinishReason::Aborted, None, stamp);
        }
        let outcome = AttemptOutcome::Failed { error: error.clone() };
        self.end_attempt(open, outcome, used, None, stamp)?;
        match self.retry_after(&error, stamp) {
            Retry::After { wait_ms, attempt_number } => {
                self.live.retrying = Some(step);
                self.effects.push(Effect::RetryLater { step, attempt_number, wait_ms, error });
                Ok(())
            }
            Retry::GiveUp { advice } => {
                let message = match advice {
                    Some(advice) => format!("{error}; {advice}"),
                    None => error.message.clone(),
                };
                let error = ErrorInfo { message, ..error };
                self.finish_step(step, parts, FinishReason::Failed, Some(error), stamp)
            }
        }
    }

    fn retry_after(&self, error: &ErrorInfo, stamp: &Stamp<'_>) -> Retry {
        let Some(step) = self.session.turn.as_ref().and_then(|turn| turn.step.as_ref()) else {
            return Retry::GiveUp { advice: None };
        };
        let begun = self.session.messages.last().map(|message| match message {
            playhouse_protocol::Message::User(message) => message.created,
            playhouse_protocol::Message::Assistant(message) => message.created,
        });
        let elapsed_ms = begun.map_or(0, |begun| stamp.now.millis_since(begun));
        match self.retry.decide(step.failures, elapsed_ms, stamp.jitter, error) {
            Ok(wait_ms) => Retry::After { wait_ms, attempt_number: step.attempts + 1 },
            Err(advice) => Retry::GiveUp { advice },
        }
    }

    fn end_attempt(
        &mut self,
        open: &OpenAttempt,
        outcome: AttemptOutcome,
        usage: Option<Usage>,
        answered_by: Option<String>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let cost = usage.as_ref().and_then(|usage| open.prices.cost(&usage.tokens));
        let ended = AttemptEnded { attempt: open.id, outcome, usage, cost, answered_by };
        self.append(Record::AttemptEnded(ended), stamp.now)
    }

    fn finish_step(
        &mut self,
        step: MessageId,
        parts: Vec<StepPart>,
        finish: FinishReason,
        error: Option<ErrorInfo>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let totals = self.session.turn.as_ref().and_then(|turn| turn.step.as_ref()).map(|step| step.totals);
        let totals = totals.unwrap_or_default();
        let finished =
            StepFinished { step, parts, finish, error, tokens: totals.tokens, cost: totals.known_cost() };
        self.append(Record::StepFinished(finished), stamp.now)?;
        // Calls start only after an answer that ended well, within the step limit, of a turn that goes on.
        let refusal = match finish {
            _ if self.live.abort.is_some() => return self.cancel_idle_calls(stamp),
            FinishReason::Length => {
                "not run: the answer was cut at the output limit, so this call may be incomplete"
            }
            FinishReason::ContentFilter => "not run: the answer was stopped by the content filter",
            _ if self.is_last_step() => "not run: the step limit is reached, nothing more may be called",
            _ => return Ok(()),
        };
        self.refuse_calls(refusal, stamp)
    }

    fn is_last_step(&self) -> bool {
        self.session.turn.as_ref().and_then(|turn| turn.step.as_ref()).is_some_and(|step| step.last)
    }

    /// Does all that can be done now: starts turns, attempts and calls, and ends turns.
    fn advance(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        loop {
            if self.live.abort.is_some() || self.live.attempt.is_some() || self.session.is_deleted() {
                return Ok(());
            }
            let Some(turn) = &self.session.turn else {
                if let Some(ticket) = self.live.delete.take() {
                    self.append(Record::Deleted {}, stamp.now)?;
                    self.effects.push(Effect::Remove(ticket));
                    return Ok(());
                }
                let Some(next) = self.session.queue.front() else { return Ok(()) };
                let turn = next.prompt.message;
                self.append(Record::TurnStarted { turn }, stamp.now)?;
                continue;
            };
            match turn.step.as_ref().map(|step| (step.id, &step.phase)) {
                None => return self.start_attempt(stamp),
                Some((_, StepPhase::Attempting(_))) => return Ok(()),
                Some((step, StepPhase::Unanswered)) => {
                    if self.live.retrying == Some(step) {
                        return Ok(());
                    }
                    return self.start_attempt(stamp);
                }
                Some((_, StepPhase::Finished { .. })) => {
                    if self.run_calls(stamp)? {
                        return Ok(());
                    }
                    match self.outcome() {
                        None => return self.start_attempt(stamp),
                        Some((outcome, error)) => self.end_turn(outcome, error, stamp)?,
                    }
                }
            }
        }
    }

    /// How the running turn ends after its last step, whose calls are all settled; `None` when it takes another step.
    fn outcome(&self) -> Option<(TurnOutcome, Option<ErrorInfo>)> {
        let step = self.session.turn.as_ref()?.step.as_ref()?;
        let StepPhase::Finished { finish, error, calls } = &step.phase else { return None };
        match finish {
            FinishReason::Aborted => Some((TurnOutcome::Aborted, None)),
            FinishReason::Failed | FinishReason::Length | FinishReason::ContentFilter => {
                Some((TurnOutcome::Failed, error.clone()))
            }
            _ if step.last => Some((TurnOutcome::MaxSteps, None)),
            _ if !calls.is_empty() => None,
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other => {
                // A prompt that came in the meantime to steer this turn is read by one more step.
                let steered = self.session.queue.iter().any(|queued| queued.prompt.steer);
                (!steered).then_some((TurnOutcome::Completed, None))
            }
        }
    }

    fn start_attempt(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let Some(turn) = &self.session.turn else { return Ok(()) };
        let again = turn.step.as_ref().filter(|step| step.phase == StepPhase::Unanswered);
        let attempt = stamp.ids.next(stamp.now);
        let estimated_input = self.estimate(stamp);
        let PriceList { usual: prices, long: long_prices } = stamp.facts.prices(&turn.model);
        let started = match again {
            Some(step) => AttemptStarted {
                attempt,
                turn: turn.id,
                step: step.id,
                step_number: step.number,
                attempt_number: step.attempts + 1,
                agent: turn.agent.clone(),
                model: turn.model.clone(),
                estimated_input,
                prices,
                long_prices,
                steered: Vec::new(),
                last: step.last,
            },
            None => {
                let number = turn.steps() + 1;
                let steered = self.session.queue.iter().filter(|queued| queued.prompt.steer);
                AttemptStarted {
                    attempt,
                    turn: turn.id,
                    step: stamp.ids.next(stamp.now),
                    step_number: number,
                    attempt_number: 1,
                    agent: turn.agent.clone(),
                    model: turn.model.clone(),
                    estimated_input,
                    prices,
                    long_prices,
                    steered: steered.map(|queued| queued.prompt.message).collect(),
                    last: turn.step_limit.is_some_and(|limit| number >= limit),
                }
            }
        };
        let mut order = AttemptOrder {
            attempt,
            step: started.step,
            turn: started.turn,
            agent: started.agent.clone(),
            model: started.model.clone(),
            last: started.last,
            messages: 0,
            estimated_input,
        };
        self.append(Record::AttemptStarted(started), stamp.now)?;
        // The last message is the step's own, still without content.
        order.messages = self.session.messages.len().saturating_sub(1);
        self.live.attempt = Some(attempt);
        self.effects.push(Effect::StartAttempt(order));
        Ok(())
    }

    fn estimate(&self, stamp: &Stamp<'_>) -> u64 {
        let Some(turn) = &self.session.turn else { return 0 };
        let conversation = self.session.conversation_bytes.div_ceil(BYTES_PER_TOKEN);
        conversation + stamp.facts.overhead_tokens(&turn.agent, &turn.model)
    }

    fn end_turn(
        &mut self,
        outcome: TurnOutcome,
        error: Option<ErrorInfo>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let Some(turn) = &self.session.turn else { return Ok(()) };
        let ended = TurnEnded { turn: turn.id, outcome, error, steps: turn.steps(), totals: turn.totals };
        self.append(Record::TurnEnded(ended), stamp.now)
    }
}

fn bytes_of(parts: &[StepPart], calls: &[ProposedCall]) -> u64 {
    let text = parts.iter().map(|part| match part {
        StepPart::Text { text, .. } | StepPart::Reasoning { text, .. } => text.len(),
        StepPart::Call { .. } => 0,
    });
    let input = calls.iter().map(|call| call.tool.len() + call.input.to_value().to_string().len());
    text.chain(input).sum::<usize>() as u64
}

/// A title made from a prompt: its first line that says something, cut at a word where it is long.
fn title_of(parts: &[Part]) -> Option<String> {
    let line = parts.iter().find_map(|part| match part {
        Part::Text { text, .. } => text.lines().map(str::trim).find(|line| !line.is_empty()),
        _ => None,
    })?;
    if line.chars().count() <= TITLE_LENGTH {
        return Some(line.to_owned());
    }
    let cut: String = line.chars().take(TITLE_LENGTH).collect();
    let whole_words = cut.rfind(' ').map_or(cut.as_str(), |space| &cut[..space]);
    Some(format!("{}…", whole_words.trim_end()))
}
