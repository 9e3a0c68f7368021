//! Attempts: how each starts, how it ends, and what follows for its step.

use playhouse_protocol::id::{AttemptId, MessageId};
use playhouse_protocol::ledger::{CostByClass, Purpose, RowId};
use playhouse_protocol::message::FinishReason;
use playhouse_protocol::record::{
    AttemptEnded, AttemptOutcome, AttemptStarted, CallProposed, ContextCleared, InnerCall, StepFinished,
    StepPart,
};
use playhouse_protocol::{Attribution, ErrorCode, ErrorInfo, Message, ModelRef, Record, Usage};

use super::Machine;
use crate::effect::{AttemptOrder, AttemptReport, Effect, FailedAttempt, ProposedCall, Stamp, StepAnswer};
use crate::fold::{FoldError, OpenAttempt, Pricing, QueuedPrompt, StepPhase};
use crate::retry::MOST_ALIKE;
use crate::settle::{OwnCount, usage_of_answer, usage_of_failure};

/// What follows from a failed attempt.
enum Retry {
    After { wait_ms: u64, attempt_number: u32 },
    GiveUp { advice: Option<String> },
}

/// After so many failed attempts a step is not attempted at once any more without what was refused.
const MOST_ADJUSTED: u32 = 10;

impl Machine {
    pub(super) fn on_attempt(
        &mut self,
        attempt: AttemptId,
        report: AttemptReport,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if self.live.attempt != Some(attempt) {
            return self.on_aside(attempt, report, stamp);
        }
        self.live.attempt = None;
        let Some((step, open)) = self.attempting() else { return Ok(()) };
        match report {
            AttemptReport::Finished(answer) => self.on_answer_complete(step, &open, answer, stamp),
            AttemptReport::Failed(failed) => self.on_attempt_failed(step, &open, failed, stamp),
        }
    }

    pub(super) fn attempting(&self) -> Option<(MessageId, OpenAttempt)> {
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
        let model = self.model();
        let window = stamp.facts.models().window(&model);
        let answer_bytes = bytes_of(&parts, &calls);
        let usage = usage_of_answer(usage, OwnCount { input: open.estimated_input, answer_bytes, window });
        let only_thought = matches!(finish, FinishReason::Stop | FinishReason::Other)
            && calls.is_empty()
            && !parts
                .iter()
                .any(|part| matches!(part, StepPart::Text { text, .. } if !text.trim().is_empty()));
        if only_thought && self.live.abort.is_none() && !self.stopping {
            let message = format!("the answer of {model} holds reasoning only, neither text nor a call");
            let error = ErrorInfo::new(ErrorCode::EmptyAnswer, message).of_model(&model);
            if let Retry::After { wait_ms, attempt_number } = self.retry_after(&error, 1, stamp) {
                let outcome = AttemptOutcome::Failed { error: error.clone() };
                self.end_attempt(open.id, outcome, Some(usage), answered_by, stamp)?;
                self.live.retrying = Some(step);
                self.effects.push(Effect::RetryLater { step, attempt_number, wait_ms, error });
                return Ok(());
            }
        }
        self.end_attempt(open.id, AttemptOutcome::Finished, Some(usage), answered_by, stamp)?;
        let finish = if only_thought { FinishReason::Stop } else { finish };
        let error = match finish {
            _ if only_thought => Some(ErrorInfo::new(
                ErrorCode::EmptyAnswer,
                format!("{model} gave no answer, only its reasoning: ask again, or use another model"),
            )),
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
            let source = stamp.facts.origin(&call.tool, &call.input).map(Box::new);
            let proposed = CallProposed::new(call.id, step, call.call_id, call.tool, call.input);
            let proposed = CallProposed { source, ..proposed };
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
        let used =
            usage_of_failure(&failed, open.estimated_input, stamp.facts.models().window(&self.model()));
        let FailedAttempt { error, parts, adjusted, .. } = failed;
        if self.live.abort.is_some() {
            self.end_attempt(open.id, AttemptOutcome::Aborted, used, None, stamp)?;
            return self.finish_step(step, parts, FinishReason::Aborted, None, stamp);
        }
        // As if the process had ended in the middle of it, except that it is known what was said until then.
        if self.stopping {
            return self.end_attempt(open.id, AttemptOutcome::Lost, used, None, stamp);
        }
        let files = if adjusted { Vec::new() } else { self.refused_files(&error) };
        let error =
            if adjusted || !files.is_empty() { error } else { self.unsaid_overflow(error, open, stamp) };
        // What it said was for this: records do without.
        let error = ErrorInfo { said: None, ..error };
        let outcome = AttemptOutcome::Failed { error: error.clone() };
        self.end_attempt(open.id, outcome, used, None, stamp)?;
        if !files.is_empty() {
            return self
                .append(Record::ContextCleared(ContextCleared { files, ..Default::default() }), stamp.now);
        }
        // It was not sent, as it did not fit: now that its size is known, `next_attempt` makes room, or ends the turn.
        if error.code == ErrorCode::PromptTooLong {
            return Ok(());
        }
        if adjusted
            && self
                .session
                .turn
                .as_ref()
                .and_then(|turn| turn.step.as_ref())
                .is_some_and(|step| step.failures <= MOST_ADJUSTED)
        {
            return Ok(());
        }
        // It is attempted again when there is more room: see `next_attempt`.
        if error.code == ErrorCode::ContextOverflow && self.can_make_room(stamp) {
            return Ok(());
        }
        match self.retry_after(&error, 0, stamp) {
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

    /// What follows from an attempt that fails with `error`; `unrecorded`: failures that are not in the log yet.
    fn retry_after(&self, error: &ErrorInfo, unrecorded: u32, stamp: &Stamp<'_>) -> Retry {
        let Some(step) = self.session.turn.as_ref().and_then(|turn| turn.step.as_ref()) else {
            return Retry::GiveUp { advice: None };
        };
        let alike = match error.code {
            ErrorCode::BadAnswer => step.bad_answers,
            // An answer without anything is tried as often as any other.
            ErrorCode::EmptyAnswer if unrecorded > 0 => step.empty_answers + unrecorded,
            _ => 0,
        };
        if alike >= MOST_ALIKE {
            return Retry::GiveUp { advice: None };
        }
        let begun = self.session.messages.last().map(|message| match message {
            Message::User(message) => message.created,
            Message::Assistant(message) => message.created,
        });
        let elapsed_ms = begun.map_or(0, |begun| stamp.now.millis_since(begun));
        match self.retry.decide(step.failures + unrecorded, elapsed_ms, stamp.jitter, error) {
            Ok(wait_ms) => Retry::After { wait_ms, attempt_number: step.attempts + 1 },
            Err(advice) => Retry::GiveUp { advice },
        }
    }

    /// The attempt is over, and its usage is what it is charged for.
    pub(super) fn end_attempt(
        &mut self,
        attempt: AttemptId,
        outcome: AttemptOutcome,
        usage: Option<Usage>,
        answered_by: Option<String>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let mut ended = AttemptEnded { answered_by, ..AttemptEnded::new(attempt, outcome) };
        if stamp.now < self.session.summary.updated {
            ended.ended = Some(stamp.now);
        }
        ended.usage = usage;
        let open = self.session.summary.open_attempts.get(attempt.as_str());
        if let (Some(usage), Some(open)) = (&mut ended.usage, open) {
            let inner = std::mem::take(&mut usage.inner);
            let (own, inner): (Vec<_>, Vec<_>) =
                inner.into_iter().partition(|call| call.model.is_empty() || call.model == open.model.model);
            // What a long request costs more depends on each call.
            if !own.is_empty() {
                ended.calls.push(usage.tokens);
                ended.calls.extend(own.iter().map(|call| call.tokens));
                own.iter().for_each(|call| usage.tokens += call.tokens);
                let (list, served) = (&open.prices, &usage.served);
                let costs = CostByClass::of_calls(list, &usage.tokens, &ended.calls, served);
                ended.costs = Some(Box::new(costs));
            }
            let rated = open.prices.rate_calls(&usage.tokens, &ended.calls, &usage.served);
            (ended.cost, ended.assumed) = (rated.cost, rated.assumed);
            let numbered = inner.into_iter().enumerate();
            ended.inner = numbered
                .map(|(index, call)| {
                    let model = ModelRef::new(&open.model.provider, &call.model);
                    let prices = stamp.facts.models().prices(&model).beginning(open.started);
                    let rated = prices.rate(&call.tokens, &usage.served);
                    InnerCall {
                        row: RowId::of_inner(attempt, index + 1),
                        catalogue: stamp.facts.models().catalogue(&model),
                        model,
                        usage: Usage {
                            tokens: call.tokens,
                            quality: usage.quality,
                            served: usage.served.clone(),
                            ..Usage::default()
                        },
                        prices: rated.prices,
                        cost: rated.cost,
                        assumed: rated.assumed,
                    }
                })
                .collect();
        }
        self.append(Record::AttemptEnded(ended), stamp.now)
    }

    pub(super) fn finish_step(
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

    /// What an attempt costs: in a turn, what its model cost when it began.
    pub(super) fn pricing(&self, model: &ModelRef, stamp: &Stamp<'_>) -> Pricing {
        let running = self.session.turn.as_ref().filter(|turn| turn.model == *model);
        running.and_then(|turn| turn.pricing.as_deref()).cloned().unwrap_or_else(|| Pricing {
            prices: stamp.facts.models().prices(model),
            catalogue: stamp.facts.models().catalogue(model),
        })
    }

    /// Whom the usage of an attempt that begins now is attributed to.
    pub(super) fn attribution(&self, turn: MessageId, stamp: &Stamp<'_>) -> Option<Box<Attribution>> {
        self.session.attribution(turn, stamp.facts.models().labels(&self.session.summary.metadata))
    }

    pub(super) fn start_attempt(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let Some(turn) = &self.session.turn else { return Ok(()) };
        let again = turn.step.as_ref().filter(|step| step.phase == StepPhase::Unanswered);
        let attempt = stamp.ids.next(stamp.now);
        let estimated_input = self.estimated_input(stamp);
        let Pricing { prices, catalogue } = self.pricing(&turn.model, stamp);
        let tier = stamp.facts.models().tier(&turn.model);
        let purpose = match self.session.summary.parent {
            Some(_) => Purpose::Subagent,
            None => Purpose::Turn,
        };
        let begun = match again {
            Some(step) => AttemptStarted {
                step_number: step.number,
                attempt_number: step.attempts + 1,
                last: step.last,
                ..AttemptStarted::new(attempt, turn.id, step.id, turn.agent.clone(), turn.model.clone())
            },
            None => {
                let number = turn.steps() + 1;
                let message = |queued: &QueuedPrompt| queued.prompt.message;
                let queue = || self.session.queue.iter();
                let steered = queue().filter(|queued| queued.steers()).map(message).collect();
                let is_note = |queued: &&QueuedPrompt| queued.prompt.kind.is_note() && queued.prompt.steer;
                let notes = queue().filter(is_note).map(message).collect();
                let step = stamp.ids.next(stamp.now);
                AttemptStarted {
                    step_number: number,
                    steered,
                    notes,
                    // The last step of one that wants an answer with a schema may give it.
                    last: turn.output.is_none() && turn.is_over(number),
                    ..AttemptStarted::new(attempt, turn.id, step, turn.agent.clone(), turn.model.clone())
                }
            }
        };
        let attribution = self.attribution(turn.id, stamp);
        let started = AttemptStarted { purpose, tier, catalogue, estimated_input, attribution, ..begun };
        let started = started.priced(prices);
        let fit = self.fit(stamp);
        let mut order = AttemptOrder {
            attempt,
            step: started.step,
            turn: started.turn,
            agent: started.agent.clone(),
            model: started.model.clone(),
            last: started.last,
            messages: 0,
            estimated_input,
            fit,
        };
        self.append(Record::AttemptStarted(started), stamp.now)?;
        // The last message is the step's own, still without content.
        order.messages = self.session.messages.len().saturating_sub(1);
        self.live.attempt = Some(attempt);
        self.effects.push(Effect::StartAttempt(order));
        Ok(())
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
