//! The turn machine: decides what happens next.
//!
//! Every decision appends records to the machine's own state first and hands them out as one [`Effect::Append`]; what
//! must not happen before they are flushed comes after it. What the machine knows beside the log ([`Live`]) is only who
//! is at work now, and is empty after a restart; and, after one, what others found out about calls that were cut off.

use std::collections::{BTreeMap, HashMap};

use playhouse_protocol::id::{AttemptId, MessageId, PartId};
use playhouse_protocol::message::FinishReason;
use playhouse_protocol::record::{AttemptOutcome, TurnEnded, TurnOutcome};
use playhouse_protocol::{ChangeSet, CommandError, Entry, ErrorInfo, ModelRef, Record, Reply, Timestamp};

use crate::effect::{Deadline, Effect, Input, PreparedCall, Stamp, Ticket};
use crate::fold::{FoldError, QueuedPrompt, Session, StepPhase};
use crate::retry::RetryPolicy;
use crate::settle::{OwnCount, estimated_usage};

mod aborts;
mod again;
mod attempts;
mod calls;
mod consents;
mod context;
mod forks;
mod offers;
mod output;
mod prompts;
mod questions;
mod refusals;
mod shell;
mod summaries;
mod titles;

use aborts::Abort;
use again::Again;
use context::{Compaction, FailedSummaries};
use summaries::Summary;
use titles::Title;

/// How long what was cancelled may take to end by itself, in milliseconds, before it is killed.
pub(crate) const ABORT_GRACE_MS: u64 = 1_000;
/// How long a request to people waits for an answer, in milliseconds, unless told otherwise.
const ASKING_WAIT_MS: u64 = 86_400_000;
/// How much work may be handed over to other sessions at once, unless told otherwise.
const MOST_TASKS: usize = 8;

/// A session that decides.
#[derive(Debug)]
pub struct Machine {
    session: Session,
    retry: RetryPolicy,
    /// How long a request to people waits for an answer, in milliseconds.
    asking_wait_ms: u64,
    /// How much work may be handed over to other sessions at once.
    most_tasks: usize,
    /// What is known of calls that ran when the engine stopped, by call.
    interrupted: BTreeMap<String, String>,
    /// What calls changed that ran when the engine stopped.
    recovered: BTreeMap<PartId, ChangeSet>,
    live: Live,
    /// It does nothing about what is unfinished until somebody wants something.
    suspended: bool,
    /// The engine stops.
    stopping: bool,
    /// Records of the input under way, not yet handed out.
    fresh: Vec<Entry>,
    effects: Vec<Effect>,
}

/// Who is at work now. Not in the log, and empty after a restart.
#[derive(Debug, Default)]
struct Live {
    /// The attempt that reports one day.
    attempt: Option<AttemptId>,
    /// Bytes of the system prompts and the tools that were made, for each agent and model.
    preceding: Vec<(String, ModelRef, u64)>,
    /// The summary that is written, for which turns wait.
    compaction: Option<Compaction>,
    /// Those that failed before it, or before one that is waited for.
    failed_summaries: Option<FailedSummaries>,
    /// The title that is written, for which nothing waits.
    title: Option<Title>,
    /// The summaries of turns that are written, for which nothing waits.
    summaries: Vec<Summary>,
    /// What of these is asked for once more.
    again: Vec<Again>,
    /// Calls that report one day.
    calls: HashMap<PartId, LiveCall>,
    /// The step that waits for its next attempt.
    retrying: Option<MessageId>,
    /// The abort under way.
    abort: Option<Abort>,
    /// How often what was cancelled was given time to end by itself.
    graces: u32,
    /// Who waits for the removal of the session.
    delete: Option<Ticket>,
}

impl Live {
    /// The attempts beside the steps of turns that report one day.
    fn asides(&self) -> impl Iterator<Item = AttemptId> {
        let compaction = self.compaction.iter().map(|live| live.attempt);
        let title = self.title.iter().map(|live| live.attempt);
        compaction.chain(title).chain(self.summaries.iter().map(|live| live.attempt))
    }

    /// The report of this one is awaited no more.
    fn forget_aside(&mut self, attempt: AttemptId) {
        self.compaction.take_if(|live| live.attempt == attempt);
        self.title.take_if(|live| live.attempt == attempt);
        self.summaries.retain(|live| live.attempt != attempt);
    }
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

impl Machine {
    /// A machine for `session`. After a restart, [`Input::Resume`] comes first.
    pub fn new(session: Session, retry: RetryPolicy) -> Self {
        Self {
            session,
            retry,
            asking_wait_ms: ASKING_WAIT_MS,
            most_tasks: MOST_TASKS,
            interrupted: BTreeMap::new(),
            recovered: BTreeMap::new(),
            live: Live::default(),
            suspended: false,
            stopping: false,
            fresh: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Says how long a request for consent or with questions waits for an answer, in milliseconds; it is a day unless
    /// told otherwise.
    #[must_use]
    pub fn asking_wait_ms(self, asking_wait_ms: u64) -> Self {
        Self { asking_wait_ms, ..self }
    }

    /// Says what is known of calls that ran when the engine stopped, beyond that they did. It becomes a part of their results.
    #[must_use]
    pub fn interrupted(self, interrupted: BTreeMap<String, String>) -> Self {
        Self { interrupted, ..self }
    }

    /// Says what calls changed that ran when the engine stopped. It becomes a part of their results.
    #[must_use]
    pub fn recovered(self, recovered: BTreeMap<PartId, ChangeSet>) -> Self {
        Self { recovered, ..self }
    }

    /// Says how much work may be handed over to other sessions at once; it is 8 unless told otherwise.
    #[must_use]
    pub fn most_tasks(self, most_tasks: usize) -> Self {
        Self { most_tasks, ..self }
    }

    /// Makes it wait before it goes on with what is unfinished: for [`Input::Resume`], or for anything that somebody wants of its
    /// turns. Meanwhile it can be read, and changed as far as no turn is concerned.
    #[must_use]
    pub fn suspended(self) -> Self {
        Self { suspended: true, ..self }
    }

    /// Whether it waits so.
    pub fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// Whether an attempt is under way, of its turn or beside it, whose report is to come.
    pub fn is_attempting(&self) -> bool {
        self.live.attempt.is_some() || self.live.asides().next().is_some()
    }

    /// The session as it stands.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Keeps no memory for work while there is none.
    pub fn rest(&mut self) {
        (self.fresh, self.effects) = (Vec::new(), Vec::new());
    }

    /// The same, and no more for the conversation than it takes: it rests for longer.
    pub fn shrink(&mut self) {
        self.rest();
        self.session.shrink();
    }

    /// Takes an input and says what is to be done, in order.
    ///
    /// # Errors
    /// A record that the machine itself made does not fit: a bug. Nothing of this input may be carried out.
    pub fn on(&mut self, input: Input, stamp: &mut Stamp<'_>) -> Result<Vec<Effect>, FoldError> {
        self.fresh.clear();
        self.effects.clear();
        if self.suspended && wants_work(&input) {
            self.suspended = false;
            if !matches!(input, Input::Resume) {
                self.on_resume(stamp)?;
            }
        }
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
            Input::Abort(ticket) => self.begin_abort(Some(ticket), stamp),
            Input::AbortTurn(ticket, turn) => self.on_abort_turn(ticket, turn, stamp),
            Input::Answer(ticket, consent, answer) => self.on_answer(ticket, consent, answer, stamp),
            Input::Cover(consent, by) => self.on_covered(consent, by, stamp),
            Input::AskAhead(ahead) => self.ask_ahead(ahead, stamp),
            Input::WithdrawAhead(consent) => self.withdraw_ahead(consent, stamp),
            Input::AnswerQuestion(ticket, question, answers) => {
                self.on_question_answered(ticket, question, answers, stamp)
            }
            Input::Ask(call, questions) => self.on_ask(call, questions, stamp),
            Input::Offer(call, wait_ms) => self.on_offer(call, wait_ms, stamp),
            Input::AnswerCall(ticket, call, answer) => self.on_call_answered(ticket, call, answer, stamp),
            Input::Change(ticket, changed) => self.on_change(ticket, changed, stamp),
            Input::Compact(ticket, model) => self.on_compact(ticket, model, stamp),
            Input::Delete(ticket) => {
                if self.refuse_deleted(ticket) {
                    return Ok(());
                }
                self.live.delete = Some(ticket);
                self.live.again.clear();
                self.begin_abort(None, stamp)
            }
            Input::Resume => self.on_resume(stamp),
            Input::Stop => {
                self.stopping = true;
                let asides = self.live.asides();
                self.effects.extend(self.live.attempt.into_iter().chain(asides).map(Effect::CancelAttempt));
                Ok(())
            }
            Input::Attempt(attempt, report) => self.on_attempt(attempt, report, stamp),
            Input::SystemMade(made) => self.on_system_made(made, stamp),
            Input::Prepared(call, prepared) => self.on_prepared(call, prepared, stamp),
            Input::Call(call, report) => self.on_call(call, report, stamp),
            Input::Changed(call, set) => self.on_changed(call, set, stamp),
            Input::AllTold(call) => self.on_all_told(call, stamp),
            Input::Reverted(ticket, reverted, report) => {
                if self.refuse_deleted(ticket) {
                    return Ok(());
                }
                self.append(Record::Reverted(reverted), stamp.now)?;
                self.reply(ticket, Ok(Reply::Reverted(report)));
                Ok(())
            }
            Input::Deadline(Deadline::Retry { step }) => {
                self.live.retrying.take_if(|retrying| *retrying == step);
                self.on_summary_due(step);
                self.on_again_due(step, stamp)
            }
            Input::Deadline(Deadline::Consent { consent }) => self.on_consent_overdue(consent, stamp),
            Input::Deadline(Deadline::Question { question }) => self.on_question_overdue(question, stamp),
            Input::Deadline(Deadline::Offer { call }) => self.on_offer_overdue(call, stamp),
            Input::Deadline(Deadline::AbortGrace { number }) => self.on_abort_grace(number, stamp),
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

    /// Goes on after a restart, when nobody is at work.
    fn on_resume(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        self.resume_turn(stamp)?;
        self.lose_asides(stamp)
    }

    fn resume_turn(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let Some(turn) = &self.session.turn else { return Ok(()) };
        match turn.step.as_ref().map(|step| &step.phase) {
            Some(StepPhase::Attempting(open)) => {
                let open = open.clone();
                let usage = estimated_usage(None, OwnCount::of_request(open.estimated_input));
                self.end_attempt(open.id, AttemptOutcome::Lost, Some(usage), None, stamp)
            }
            Some(StepPhase::Finished { .. }) => self.resume_calls(stamp),
            Some(StepPhase::Unanswered) | None => Ok(()),
        }
    }

    /// Does all that can be done now: starts turns, attempts and calls, and ends turns.
    fn advance(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        loop {
            let later = self.live.failed_summaries.as_ref().is_some_and(|failed| failed.again.is_some());
            let at_work = self.live.attempt.is_some() || self.live.compaction.is_some() || later;
            // What is removed does not come back since the engine stops.
            let goes_on = !self.stopping || (self.live.delete.is_some() && self.session.turn.is_none());
            let waits = self.suspended || !goes_on || self.live.abort.is_some() || at_work;
            if waits || self.session.is_deleted() {
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
                None if self.is_one_call() => self.propose_one_call(stamp)?,
                None => {
                    if self.next_attempt(stamp)? {
                        return Ok(());
                    }
                }
                Some((_, StepPhase::Attempting(_))) => return Ok(()),
                Some((_, StepPhase::Unanswered)) if self.is_one_call() => self.propose_one_call(stamp)?,
                Some((step, StepPhase::Unanswered)) => {
                    if self.live.retrying == Some(step) || self.next_attempt(stamp)? {
                        return Ok(());
                    }
                }
                Some((_, StepPhase::Finished { .. })) => {
                    if self.run_calls(stamp)? {
                        return Ok(());
                    }
                    match self.outcome() {
                        None => {
                            self.remind_of_output(stamp)?;
                            if self.next_attempt(stamp)? {
                                return Ok(());
                            }
                        }
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
            _ if self.is_one_call() => Some((TurnOutcome::Completed, None)),
            _ if self.wants_output() => self.output_outcome(),
            _ if step.last => Some((TurnOutcome::MaxSteps, None)),
            _ if !calls.is_empty() => None,
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other => {
                // A prompt that came in the meantime to steer this turn is read by one more step.
                let steered = self.session.queue.iter().any(QueuedPrompt::steers);
                (!steered).then_some((TurnOutcome::Completed, None))
            }
        }
    }

    fn end_turn(
        &mut self,
        outcome: TurnOutcome,
        error: Option<ErrorInfo>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let Some(turn) = self.session.turn.clone() else { return Ok(()) };
        let (steps, totals) = (turn.steps(), turn.totals);
        let changed = turn.changed.then(|| self.session.changed());
        let output = turn.output.as_ref().and_then(|output| output.value.clone());
        let ended = TurnEnded { turn: turn.id, outcome, error, steps, totals, changed, output };
        self.append(Record::TurnEnded(ended), stamp.now)?;
        self.start_summary(&turn, outcome, stamp)
    }
}

/// Whether somebody wants something of the turns of a session. What nobody waits for wants nothing: it comes of what was at
/// work before, and of rules that changed.
fn wants_work(input: &Input) -> bool {
    match input {
        Input::Prompt(..)
        | Input::Abort(_)
        | Input::AbortTurn(..)
        | Input::Answer(..)
        | Input::AnswerQuestion(..)
        | Input::AnswerCall(..)
        | Input::Compact(..)
        | Input::Delete(_)
        | Input::Resume => true,
        Input::Change(..)
        | Input::Cover(..)
        | Input::AskAhead(_)
        | Input::WithdrawAhead(_)
        | Input::Ask(..)
        | Input::Offer(..)
        | Input::Attempt(..)
        | Input::SystemMade(_)
        | Input::Prepared(..)
        | Input::Call(..)
        | Input::Changed(..)
        | Input::AllTold(_)
        | Input::Reverted(..)
        | Input::Stop
        | Input::Deadline(_) => false,
    }
}
