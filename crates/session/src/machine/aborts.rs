//! Aborts: what is at work is cancelled, and the turns end when all of it has reported.

use std::collections::HashSet;

use playhouse_protocol::id::{AttemptId, MessageId, PartId};
use playhouse_protocol::message::FinishReason;
use playhouse_protocol::record::{AttemptOutcome, TurnEnded, TurnOutcome};
use playhouse_protocol::usage::Totals;
use playhouse_protocol::{Record, Reply};

use super::{ABORT_GRACE_MS, LiveCall, Machine};
use crate::effect::{Deadline, Effect, Stamp, Ticket};
use crate::fold::{FoldError, QueuedPrompt};
use crate::settle::{OwnCount, estimated_usage};

/// An abort under way: the turn ends when nothing is at work any more.
#[derive(Debug, Default)]
pub(super) struct Abort {
    /// Who waits for it, with how many turns it ends for them.
    tickets: Vec<(Ticket, u32)>,
    /// Prompts that waited when it began, and end with it.
    queued: HashSet<MessageId>,
    /// Attempts beside the steps of turns that were cancelled.
    asides: Vec<AttemptId>,
    /// By which the [`Deadline::AbortGrace`] that counts is known.
    grace: Option<u32>,
}

impl Machine {
    /// Withdraws the requests for consent, and cancels whatever is at work. The turn ends when all of it has reported: see
    /// [`Self::finish_abort`].
    pub(super) fn begin_abort(
        &mut self,
        ticket: Option<Ticket>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        // A note has no turn that could be ended.
        let turns = self.session.queue.iter().filter(|queued| !queued.prompt.kind.is_note());
        let queued: HashSet<MessageId> = turns.map(|queued| queued.prompt.message).collect();
        self.cancel(ticket, queued, stamp)
    }

    /// Ends one turn; the others go on.
    pub(super) fn on_abort_turn(
        &mut self,
        ticket: Ticket,
        turn: MessageId,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if self.session.turn.as_ref().is_some_and(|running| running.id == turn) {
            return self.cancel(Some(ticket), HashSet::new(), stamp);
        }
        let waits = |queued: &QueuedPrompt| queued.prompt.message == turn && !queued.prompt.kind.is_note();
        let waited = self.session.queue.iter().any(waits);
        if waited {
            self.end_waiting(turn, stamp)?;
        }
        self.reply(ticket, Ok(Reply::Aborted { turns: u32::from(waited) }));
        Ok(())
    }

    /// Cancels whatever is at work for the running turn, which ends with those of the `queued` prompts.
    fn cancel(
        &mut self,
        ticket: Option<Ticket>,
        queued: HashSet<MessageId>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let turns = u32::from(self.session.turn.is_some()) + u32::try_from(queued.len()).unwrap_or(u32::MAX);
        let already = self.live.abort.is_some();
        let abort = self.live.abort.get_or_insert_default();
        abort.tickets.extend(ticket.map(|ticket| (ticket, turns)));
        abort.queued.extend(queued);
        // A removal gives up more than the abort before it.
        let asides: Vec<AttemptId> = self.asides_given_up().collect();
        let abort = self.live.abort.get_or_insert_default();
        let more: Vec<AttemptId> = asides.into_iter().filter(|aside| !abort.asides.contains(aside)).collect();
        abort.asides.extend(&more);
        let gives_up_more = !more.is_empty();
        self.effects.extend(more.into_iter().map(Effect::CancelAttempt));
        if already {
            if gives_up_more {
                self.begin_grace();
            }
            return Ok(());
        }
        self.withdraw_consents(stamp)?;
        (self.live.failed_summaries, self.live.retrying) = (None, None);
        self.effects.extend(self.live.attempt.map(Effect::CancelAttempt));
        let mut calls: Vec<(PartId, bool)> = self
            .live
            .calls
            .iter()
            .map(|(call, state)| (*call, matches!(state, LiveCall::Ready(_))))
            .collect();
        calls.sort_unstable();
        for (call, ready) in calls {
            // A tool that only waits for its turn has nothing to report.
            if ready {
                self.live.calls.remove(&call);
                self.effects.push(Effect::KillCall(call));
            } else {
                self.effects.push(Effect::CancelCall(call));
            }
        }
        if self.is_at_work() {
            self.begin_grace();
        }
        Ok(())
    }

    /// What was cancelled has so long from now on, whatever was left of the abort before.
    fn begin_grace(&mut self) {
        let Some(abort) = &mut self.live.abort else { return };
        self.live.graces = self.live.graces.wrapping_add(1);
        abort.grace = Some(self.live.graces);
        self.effects.push(Effect::Arm(Deadline::AbortGrace { number: self.live.graces }, ABORT_GRACE_MS));
    }

    fn is_at_work(&self) -> bool {
        self.live.attempt.is_some() || !self.live.calls.is_empty() || self.asides_given_up().next().is_some()
    }

    /// The attempts beside the steps of turns that an abort cancels: the summary that a turn waits for, and all of them if the
    /// session is removed.
    fn asides_given_up(&self) -> impl Iterator<Item = AttemptId> {
        self.live.asides().filter(|attempt| self.is_given_up(*attempt))
    }

    /// Whether the abort under way is one of this attempt beside the steps of turns.
    pub(super) fn is_given_up(&self, aside: AttemptId) -> bool {
        let compacts = self.live.compaction.as_ref().is_some_and(|live| live.attempt == aside);
        self.live.abort.is_some() && (compacts || self.live.delete.is_some())
    }

    /// Ends the aborted turns as soon as nothing is at work for them.
    pub(super) fn finish_abort(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        if self.live.abort.is_none() || self.is_at_work() {
            return Ok(());
        }
        self.cancel_idle_calls(stamp)?;
        let Some(abort) = self.live.abort.take() else { return Ok(()) };
        if self.session.turn.is_some() {
            self.end_turn(TurnOutcome::Aborted, None, stamp)?;
        }
        let waiting: Vec<MessageId> = self
            .session
            .queue
            .iter()
            .map(|queued| queued.prompt.message)
            .filter(|prompt| abort.queued.contains(prompt))
            .collect();
        for turn in waiting {
            self.end_waiting(turn, stamp)?;
        }
        for (ticket, turns) in abort.tickets {
            self.reply(ticket, Ok(Reply::Aborted { turns }));
        }
        Ok(())
    }

    /// The turn of a prompt that waits is over before it began.
    fn end_waiting(&mut self, turn: MessageId, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let (outcome, totals) = (TurnOutcome::Aborted, Totals::default());
        let ended = TurnEnded { turn, outcome, error: None, steps: 0, totals, changed: None, output: None };
        self.append(Record::TurnEnded(ended), stamp.now)
    }

    /// What was cancelled did not end in time: kills it, and settles it as if it had reported.
    pub(super) fn on_abort_grace(&mut self, number: u32, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        if self.live.abort.as_ref().is_none_or(|abort| abort.grace != Some(number)) {
            return Ok(());
        }
        let asides: Vec<AttemptId> = self.asides_given_up().collect();
        for aside in asides {
            self.live.forget_aside(aside);
            self.effects.push(Effect::KillAttempt(aside));
            self.drop_aside(aside, AttemptOutcome::Aborted, stamp)?;
        }
        if let Some(attempt) = self.live.attempt.take() {
            self.effects.push(Effect::KillAttempt(attempt));
            if let Some((step, open)) = self.attempting() {
                let usage = estimated_usage(None, OwnCount::of_request(open.estimated_input));
                self.end_attempt(open.id, AttemptOutcome::Aborted, Some(usage), None, stamp)?;
                self.finish_step(step, Vec::new(), FinishReason::Aborted, None, stamp)?;
            }
        }
        let mut calls: Vec<PartId> = self.live.calls.drain().map(|(call, _)| call).collect();
        calls.sort_unstable();
        self.effects.extend(calls.into_iter().map(Effect::KillCall));
        Ok(())
    }
}
