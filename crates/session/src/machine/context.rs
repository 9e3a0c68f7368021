//! Room in the context: what is done before a request that would not fit, and after one that was too long.
//!
//! First outputs are cleared, then a model writes a summary of what is left out, and where that is of no use a mark stands
//! for it. Room is made three times at most before an answer comes, so that nothing goes round in circles.

use playhouse_protocol::id::{AttemptId, MessageId};
use playhouse_protocol::ledger::Purpose;
use playhouse_protocol::message::{CompactionKind, FinishReason, Message};
use playhouse_protocol::record::{
    AttemptOutcome, AttemptStarted, ContextCompacted, StepPart, SystemSettled, ToolsSettled, TurnOutcome,
};
use playhouse_protocol::{CommandError, ErrorCode, ErrorInfo, ModelRef, Record, Reply, Timestamp};

use super::Machine;
use crate::context::{Fit, Gauge, Plan, Room, digest, plan, plan_by_hand, write};
use crate::effect::{AsideOrder, AttemptReport, Effect, Stamp, StepAnswer, SystemMade, Ticket};
use crate::fold::{FoldError, Pricing, QueuedPrompt, Session, StepPhase};
use crate::retry::MOST_ALIKE;
use crate::settle::{
    BYTES_PER_TOKEN, OwnCount, estimated_tokens, estimated_usage, usage_of_answer, usage_of_failure,
};

/// So often room is made before an answer comes.
const MOST_IN_A_ROW: u32 = 3;
/// The most tokens of a summary that are of use.
const MOST_SUMMARY: u64 = 8_000;
/// The most bytes of a conversation that a model is shown for a summary.
const MOST_DIGEST: u64 = 1_500_000;

/// A summary under way.
#[derive(Debug)]
pub(super) struct Compaction {
    pub(super) attempt: AttemptId,
    /// The place of the first message that it does not cover.
    from: usize,
    /// Whether somebody asked for it.
    by_hand: bool,
    /// Who writes it.
    model: ModelRef,
    /// When it was begun.
    began: Timestamp,
}

/// Summaries that failed one after the other, for one turn that waits.
#[derive(Debug)]
pub(super) struct FailedSummaries {
    /// When the first one was begun.
    since: Timestamp,
    /// Stands for a step in the deadline of the next one, while that is waited for.
    pub(super) again: Option<MessageId>,
}

impl Machine {
    /// Starts an attempt of the step under way or of a new one, or makes room for it, or ends the turn when there is none.
    /// True when something is at work now.
    pub(super) fn next_attempt(&mut self, stamp: &mut Stamp<'_>) -> Result<bool, FoldError> {
        let Some(turn) = &self.session.turn else { return Ok(false) };
        let (model, gauge) = (turn.model.clone(), self.gauge(stamp));
        let room = self.room(&model, &gauge, stamp);
        let total = self.session.conversation_bytes + room.pending;
        if !self.overflowed() && total <= room.most {
            self.start_attempt(stamp)?;
            return Ok(true);
        }
        let in_a_row = self.session.context.in_a_row;
        if in_a_row >= MOST_IN_A_ROW {
            return self.give_up_turn(total, "are left after room was made", &gauge, &room, stamp);
        }
        match plan(&self.session, &room, in_a_row < MOST_IN_A_ROW - 1) {
            Plan::Clear(cleared) => {
                self.append(Record::ContextCleared(cleared), stamp.now)?;
                Ok(false)
            }
            Plan::TooLong { needed } => self.give_up_turn(needed, "cannot be left out", &gauge, &room, stamp),
            Plan::LeaveOut { from } => {
                // As many as a step has attempts, however often the engine is started meanwhile.
                let summarizes = in_a_row < MOST_IN_A_ROW - 1
                    && self.session.context.failed_summaries < self.retry.attempts;
                if summarizes && self.start_compaction(from, None, false, stamp)? {
                    return Ok(true);
                }
                self.leave_out(from, &room, &gauge, None, false, stamp)?;
                Ok(false)
            }
        }
    }

    /// Whether something may help against a request that was too long.
    pub(super) fn can_make_room(&self, stamp: &Stamp<'_>) -> bool {
        let Some(turn) = &self.session.turn else { return false };
        let (gauge, context) = (self.gauge(stamp), &self.session.context);
        let room = self.room(&turn.model, &gauge, stamp);
        context.in_a_row < MOST_IN_A_ROW && !matches!(plan(&self.session, &room, true), Plan::TooLong { .. })
    }

    /// Input tokens of the next request, as they are estimated.
    pub(super) fn estimated_input(&self, stamp: &Stamp<'_>) -> u64 {
        self.gauge(stamp).tokens(self.session.conversation_bytes + self.pending())
    }

    pub(super) fn gauge(&self, stamp: &Stamp<'_>) -> Gauge {
        let (agent, model) = match &self.session.turn {
            Some(turn) => (&turn.agent, &turn.model),
            None => (&self.session.summary.agent, &self.session.summary.model),
        };
        let measured = self.preceding(agent, model).map(estimated_tokens);
        let preceding = measured.unwrap_or_else(|| stamp.facts.overhead_tokens(agent, model));
        let gauge = self.session.context.gauge(model, preceding);
        let fits = |gauge: &Gauge| {
            let room = self.room(model, gauge, stamp);
            self.session.conversation_bytes + room.pending <= room.most
                || !matches!(plan(&self.session, &room, true), Plan::TooLong { .. })
        };
        // A count that a provider reported may be wrong, and would never be corrected if nothing were sent.
        let is_blind = !self.overflowed() && !fits(&gauge) && fits(&gauge.plain());
        if is_blind { gauge.plain() } else { gauge }
    }

    /// Bytes of what precedes the conversation, once it was made.
    fn preceding(&self, agent: &str, model: &ModelRef) -> Option<u64> {
        let made = self.live.preceding.iter().find(|(of, with, _)| of == agent && with == model);
        made.map(|(_, _, bytes)| *bytes)
    }

    /// What the next request may have, where nobody knows yet whether that is so.
    pub(super) fn fit(&self, stamp: &Stamp<'_>) -> Option<Fit> {
        let turn = self.session.turn.as_ref()?;
        if self.preceding(&turn.agent, &turn.model).is_some() {
            return None;
        }
        let bytes = self.session.conversation_bytes + self.pending();
        Some(self.session.context.fit(&turn.model, bytes, stamp.facts.models().room(&turn.model)?))
    }

    /// The system prompt and the tools of an agent were made. What is not settled yet of them is so from now on.
    pub(super) fn on_system_made(
        &mut self,
        made: SystemMade,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let SystemMade { agent, model, text, tools, instructions, bytes } = made;
        let text = text.filter(|_| self.session.system_at(&agent, &model).is_none());
        let tools = tools.filter(|_| self.session.tools_at(&agent, &model).is_none());
        self.live.preceding.retain(|(of, with, _)| (of, with) != (&agent, &model));
        self.live.preceding.push((agent.clone(), model.clone(), bytes));
        if self.session.is_deleted() {
            return Ok(());
        }
        if let Some(text) = text {
            let (agent, model) = (agent.clone(), model.clone());
            self.append(Record::SystemSettled(SystemSettled { agent, model, text }), stamp.now)?;
        }
        match tools {
            Some(tools) => {
                let settled = ToolsSettled { agent, model, tools, instructions };
                self.append(Record::ToolsSettled(settled), stamp.now)
            }
            None => Ok(()),
        }
    }

    fn overflowed(&self) -> bool {
        let step = self.session.turn.as_ref().and_then(|turn| turn.step.as_ref());
        step.is_some_and(|step| step.overflowed)
    }

    /// The room that the next request has. After one that was too long it is a quarter less than that one had.
    fn room(&self, model: &ModelRef, gauge: &Gauge, stamp: &Stamp<'_>) -> Room {
        let known = stamp.facts.models().room(model).map_or(u64::MAX, |tokens| gauge.bytes(tokens));
        let refused = if self.overflowed() { self.session.conversation_bytes / 4 * 3 } else { u64::MAX };
        Room { most: known.min(refused), pending: self.pending() }
    }

    /// Bytes of the prompts that the next step is the first to read.
    fn pending(&self) -> u64 {
        let step = self.session.turn.as_ref().and_then(|turn| turn.step.as_ref());
        if step.is_some_and(|step| step.phase == StepPhase::Unanswered) {
            return 0;
        }
        let reads = |queued: &&QueuedPrompt| queued.prompt.steer && !queued.prompt.kind.is_one_call();
        let queued = self.session.queue.iter().filter(reads);
        queued.map(|queued| self.session.context.bytes_of(&Message::User(queued.message()))).sum()
    }

    /// The turn fails: so many bytes of conversation, which are `why` in its request, do not fit.
    fn give_up_turn(
        &mut self,
        needed: u64,
        why: &str,
        gauge: &Gauge,
        room: &Room,
        stamp: &mut Stamp<'_>,
    ) -> Result<bool, FoldError> {
        let Some(turn) = &self.session.turn else { return Ok(false) };
        let (model, preceding, needed) = (&turn.model, gauge.tokens(0), gauge.tokens(needed));
        let refused = gauge.tokens(room.most);
        let most = stamp.facts.models().room(model).map_or(refused, |known| match self.overflowed() {
            true => known.min(refused),
            false => known,
        });
        let text = if preceding > most {
            format!(
                "the prompt is too long for {model}: the system prompt and the tools alone are about {preceding} tokens, and there is room for {most}: shorten the rules files, use an agent with fewer tools, or a model with a larger context"
            )
        } else {
            format!(
                "the prompt is too long for {model}: about {needed} tokens {why} ({preceding} of them are the system prompt and the tools), and there is room for {most}: ask for less at once, or use a model with a larger context"
            )
        };
        let error = ErrorInfo::new(ErrorCode::PromptTooLong, text).of_model(&turn.model);
        self.fail_turn(error, stamp)?;
        Ok(false)
    }

    /// The turn fails before its next attempt.
    fn fail_turn(&mut self, error: ErrorInfo, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let step = self.session.turn.as_ref().and_then(|turn| turn.step.as_ref());
        let open = step.filter(|step| step.phase == StepPhase::Unanswered);
        match open.map(|step| step.id) {
            Some(step) => self.finish_step(step, Vec::new(), FinishReason::Failed, Some(error), stamp),
            None => self.end_turn(TurnOutcome::Failed, Some(error), stamp),
        }
    }

    /// Starts the attempt that writes a summary of what stands before `from`. False when nobody is asked for one.
    fn start_compaction(
        &mut self,
        from: usize,
        by: Option<ModelRef>,
        by_hand: bool,
        stamp: &mut Stamp<'_>,
    ) -> Result<bool, FoldError> {
        let model = match &self.session.turn {
            Some(turn) => &turn.model,
            None => &self.session.summary.model,
        };
        let Some((agent, model)) = stamp.facts.aside(Purpose::Compaction, model) else { return Ok(false) };
        let model = by.unwrap_or(model);
        // What is quoted has no more than what a request to this model may have, without its prompt.
        let room = stamp
            .facts
            .models()
            .room(&model)
            .map_or(u64::MAX, |tokens| tokens.saturating_mul(BYTES_PER_TOKEN));
        let text = digest(&self.session, from, (room / 8 * 7).min(MOST_DIGEST));
        let turn = self.session.turn.as_ref().map(|turn| turn.id);
        let last = self.session.messages.last().map(Message::id);
        let Some(of) = turn.or(last) else { return Ok(false) };
        let writer = model.clone();
        let attempt = self.start_aside(Purpose::Compaction, of, agent, model, text, MOST_SUMMARY, stamp)?;
        self.live.compaction = Some(Compaction { attempt, from, by_hand, model: writer, began: stamp.now });
        Ok(true)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one order")]
    pub(super) fn start_aside(
        &mut self,
        purpose: Purpose,
        turn: MessageId,
        agent: String,
        model: ModelRef,
        text: String,
        most_output: u64,
        stamp: &mut Stamp<'_>,
    ) -> Result<AttemptId, FoldError> {
        let estimated_input = estimated_tokens(text.len() as u64);
        let Pricing { prices, catalogue } = self.pricing(&model, stamp);
        let (attempt, step) = (stamp.ids.next(stamp.now), stamp.ids.next(stamp.now));
        let started = AttemptStarted {
            purpose,
            tier: stamp.facts.models().tier(&model),
            catalogue,
            estimated_input,
            attribution: self.attribution(turn, stamp),
            ..AttemptStarted::new(attempt, turn, step, agent.clone(), model.clone())
        };
        let started = started.priced(prices);
        self.append(Record::AttemptStarted(started), stamp.now)?;
        let in_turn = self.session.turn.as_ref().is_some_and(|running| running.id == turn);
        self.effects.push(Effect::StartAside(AsideOrder {
            attempt,
            purpose,
            turn,
            step,
            in_turn,
            agent,
            model,
            text,
            most_output,
            estimated_input,
        }));
        Ok(attempt)
    }

    /// An attempt beside the steps of turns ended.
    pub(super) fn on_aside(
        &mut self,
        attempt: AttemptId,
        report: AttemptReport,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if self.is_given_up(attempt) {
            let ended = self.end_aside(attempt, report, |_, _| Ok(()), stamp);
            self.live.forget_aside(attempt);
            return ended.map(drop);
        }
        if let Some(compaction) = self.live.compaction.take_if(|live| live.attempt == attempt) {
            let room = self.room_now(stamp);
            let from = compaction.by_hand.then_some(compaction.from);
            let written = self.end_aside(attempt, report, |machine, summary| match from {
                Some(from) if !frees_enough(&machine.session, &room, from, summary) => Err(ErrorInfo::new(
                    ErrorCode::BadAnswer,
                    "the summary is hardly shorter than what it would stand for, so that the conversation stays as it is",
                )),
                _ => Ok(()),
            }, stamp)?;
            return self.go_on_with(written, stamp, |machine, written, stamp| {
                machine.on_summary(compaction, written, stamp)
            });
        }
        if let Some(title) = self.live.title.take_if(|live| live.attempt == attempt) {
            let written = self.end_aside(attempt, report, |_, _| Ok(()), stamp)?;
            return self.go_on_with(written, stamp, |machine, written, stamp| {
                machine.on_title(title, written, stamp)
            });
        }
        if let Some(summary) = self.take_summary(attempt) {
            let written = self.end_aside(attempt, report, |_, _| Ok(()), stamp)?;
            return self.go_on_with(written, stamp, |machine, written, stamp| {
                machine.on_turn_summary(summary, written, stamp)
            });
        }
        Ok(())
    }

    /// Does what follows from what an attempt wrote; nothing where it was ended since the engine stops, as after a crash.
    fn go_on_with(
        &mut self,
        written: Result<String, ErrorInfo>,
        stamp: &mut Stamp<'_>,
        follow: impl FnOnce(&mut Self, Result<String, ErrorInfo>, &mut Stamp<'_>) -> Result<(), FoldError>,
    ) -> Result<(), FoldError> {
        if self.stopping && written.is_err() {
            return Ok(());
        }
        follow(self, written, stamp)
    }

    /// Ends an attempt as it reports; what it wrote, or why it wrote nothing that `is_of_use`.
    fn end_aside(
        &mut self,
        attempt: AttemptId,
        report: AttemptReport,
        is_of_use: impl FnOnce(&Self, &str) -> Result<(), ErrorInfo>,
        stamp: &mut Stamp<'_>,
    ) -> Result<Result<String, ErrorInfo>, FoldError> {
        let Some(open) = self.session.asides.iter().find(|open| open.id == attempt).cloned() else {
            return Ok(Err(ErrorInfo::new(ErrorCode::Internal, "the attempt is not under way")));
        };
        let window = stamp.facts.models().window(&open.model);
        let own = |answer_bytes| OwnCount { input: open.estimated_input, answer_bytes, window };
        match report {
            AttemptReport::Finished(StepAnswer { parts, usage, answered_by, .. }) => {
                let text: Vec<String> = parts
                    .into_iter()
                    .filter_map(|part| match part {
                        StepPart::Text { text, .. } => Some(text),
                        StepPart::Reasoning { .. } | StepPart::Call { .. } => None,
                    })
                    .collect();
                let text = text.join("\n\n").trim().to_owned();
                let usage = usage_of_answer(usage, own(text.len() as u64));
                let outcome = match text.is_empty() {
                    false => is_of_use(self, &text).map(|()| text),
                    true => Err(ErrorInfo::new(ErrorCode::EmptyAnswer, "the answer holds no text")),
                };
                let recorded = match &outcome {
                    Ok(_) => AttemptOutcome::Finished,
                    Err(error) => AttemptOutcome::Failed { error: error.clone() },
                };
                self.end_attempt(attempt, recorded, Some(usage), answered_by, stamp)?;
                Ok(outcome)
            }
            AttemptReport::Failed(failed) => {
                let used = usage_of_failure(&failed, open.estimated_input, window);
                let error = failed.error;
                let outcome = match self.stopping {
                    _ if self.is_given_up(attempt) => AttemptOutcome::Aborted,
                    true => AttemptOutcome::Lost,
                    false => AttemptOutcome::Failed { error: error.clone() },
                };
                self.end_attempt(attempt, outcome, used, None, stamp)?;
                Ok(Err(error))
            }
        }
    }

    /// Ends one whose report is not awaited, as if it had used what its request held.
    pub(super) fn drop_aside(
        &mut self,
        attempt: AttemptId,
        outcome: AttemptOutcome,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let Some(open) = self.session.asides.iter().find(|open| open.id == attempt).cloned() else {
            return Ok(());
        };
        let usage = estimated_usage(None, OwnCount::of_request(open.estimated_input));
        self.end_attempt(attempt, outcome, Some(usage), None, stamp)
    }

    /// After a restart nobody is at work on them.
    pub(super) fn lose_asides(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let open: Vec<AttemptId> = self.session.asides.iter().map(|open| open.id).collect();
        open.into_iter().try_for_each(|attempt| self.drop_aside(attempt, AttemptOutcome::Lost, stamp))
    }

    /// A summary was written, or not.
    fn on_summary(
        &mut self,
        compaction: Compaction,
        written: Result<String, ErrorInfo>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let Compaction { attempt, from, by_hand, model: writer, began } = compaction;
        let error = match written {
            Ok(summary) => {
                self.live.failed_summaries = None;
                let (gauge, room) = (self.gauge(stamp), self.room_now(stamp));
                let written = Some((attempt, summary.as_str()));
                return self.leave_out(from, &room, &gauge, written, by_hand, stamp);
            }
            Err(error) => error,
        };
        // Who asked for it finds the conversation as it was, and may ask again.
        if by_hand {
            return Ok(());
        }
        let before = self.live.failed_summaries.take();
        let since = before.map_or(began, |failed| failed.since);
        let failures = self.session.context.failed_summaries;
        let is_alike = error.code == ErrorCode::BadAnswer && failures >= MOST_ALIKE;
        let again = self.retry.decide(failures, stamp.now.millis_since(since), stamp.jitter, &error);
        if let Ok(wait_ms) = again
            && !is_alike
        {
            let step: MessageId = stamp.ids.next(stamp.now);
            self.live.failed_summaries = Some(FailedSummaries { since, again: Some(step) });
            let attempt_number = failures + 1;
            self.effects.push(Effect::RetryLater { step, attempt_number, wait_ms, error });
            return Ok(());
        }
        // What keeps the next step from being asked as well is no reason to lose what was said.
        let is_barred = match error.code {
            ErrorCode::Budget => true,
            ErrorCode::Authentication | ErrorCode::QuotaExceeded | ErrorCode::Misconfigured => {
                writer == self.model()
            }
            _ => false,
        };
        if is_barred {
            return self.fail_turn(error, stamp);
        }
        let (gauge, room) = (self.gauge(stamp), self.room_now(stamp));
        self.leave_out(from, &room, &gauge, None, false, stamp)
    }

    /// The next summary is due, if it is still waited for.
    pub(super) fn on_summary_due(&mut self, step: MessageId) {
        if let Some(failed) = self.live.failed_summaries.as_mut() {
            failed.again.take_if(|again| *again == step);
        }
    }

    fn room_now(&self, stamp: &Stamp<'_>) -> Room {
        self.room(&self.model(), &self.gauge(stamp), stamp)
    }

    pub(super) fn model(&self) -> ModelRef {
        self.session.turn.as_ref().map_or(&self.session.summary.model, |turn| &turn.model).clone()
    }

    /// Something short stands for what comes before `from`: a summary, with the attempt that wrote it, or a mark.
    fn leave_out(
        &mut self,
        from: usize,
        room: &Room,
        gauge: &Gauge,
        summary: Option<(AttemptId, &str)>,
        by_hand: bool,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let before = gauge.tokens(self.session.conversation_bytes);
        let written = write(&self.session, room, from, summary.map(|(_, text)| text));
        if let Some(cleared) = written.cleared {
            self.append(Record::ContextCleared(cleared), stamp.now)?;
        }
        let compacted = ContextCompacted {
            how: if summary.is_some() { CompactionKind::Summary } else { CompactionKind::Cut },
            message: stamp.ids.next(stamp.now),
            answer: stamp.ids.next(stamp.now),
            part: stamp.ids.next(stamp.now),
            text: written.text,
            first: written.first,
            prompt: written.prompt,
            kept_from: written.kept_from,
            attempt: summary.map(|(attempt, _)| attempt),
            by_hand,
            before,
            after: gauge.tokens(written.bytes),
        };
        self.append(Record::ContextCompacted(compacted), stamp.now)
    }

    /// Somebody wants a summary to stand for the conversation so far.
    pub(super) fn on_compact(
        &mut self,
        ticket: Ticket,
        by: Option<ModelRef>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if self.refuse_deleted(ticket) {
            return Ok(());
        }
        if !self.session.is_idle() || self.live.compaction.is_some() || self.live.abort.is_some() {
            self.reply(ticket, Err(CommandError::Busy));
            return Ok(());
        }
        let (model, gauge) = (self.model(), self.gauge(stamp));
        let from = plan_by_hand(&self.session, &self.room(&model, &gauge, stamp));
        let refusal = match from {
            Some(from) if self.start_compaction(from, by, true, stamp)? => None,
            Some(_) => Some("there is no agent here that writes summaries: it is called `compaction`"),
            None => Some(
                "there is nothing to summarize in this session: its conversation is as short as it can be",
            ),
        };
        self.reply(
            ticket,
            refusal.map_or(Ok(Reply::Done), |text| Err(CommandError::Invalid(text.to_owned()))),
        );
        Ok(())
    }
}

/// Whether a summary that somebody asked for frees a quarter of the conversation. When there is no room that matters less.
fn frees_enough(session: &Session, room: &Room, from: usize, summary: &str) -> bool {
    write(session, room, from, Some(summary)).bytes <= session.conversation_bytes / 4 * 3
}
