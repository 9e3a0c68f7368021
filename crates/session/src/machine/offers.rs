//! Calls whose result comes from the platform, and how each gets one.

use playhouse_protocol::id::PartId;
use playhouse_protocol::message::CallState;
use playhouse_protocol::tool::ToolOrigin;
use playhouse_protocol::{CallAnswer, CallOffered, CommandError, Record, Reply, Timestamp};

use super::{LiveCall, Machine};
use crate::effect::{Deadline, Effect, Stamp, Ticket};
use crate::fold::{CallPhase, FoldError};

impl Machine {
    /// A running call is offered. One that runs again after a restart is told the result that came before, or goes on
    /// waiting for it until the same deadline.
    pub(super) fn on_offer(
        &mut self,
        call: PartId,
        wait_ms: u64,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if self.live.calls.get(&call) != Some(&LiveCall::Running) || self.live.abort.is_some() {
            return Ok(());
        }
        let before = self.session.calls().iter().find(|open| open.id == call);
        let until = match before.and_then(|open| open.offer.as_deref()) {
            Some(offer) => {
                if let Some(answer) = offer.answer.clone() {
                    self.effects.push(Effect::TellResult(call, answer));
                    return Ok(());
                }
                offer.until
            }
            None => {
                let Some(part) = self.session.call(call) else { return Ok(()) };
                let until = Timestamp::from_millis(stamp.now.as_millis().saturating_add(wait_ms));
                let (tool, input) = (part.tool.clone(), part.input.clone());
                self.append(Record::CallOffered(CallOffered { call, tool, input, until }), stamp.now)?;
                until
            }
        };
        let left = until.as_millis().saturating_sub(stamp.now.as_millis());
        self.effects.push(Effect::Arm(Deadline::Offer { call }, left.min(wait_ms)));
        Ok(())
    }

    /// Somebody gives the result of a call.
    pub(super) fn on_call_answered(
        &mut self,
        ticket: Ticket,
        call: PartId,
        answer: CallAnswer,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if let Err(refusal) = self.takes_result(call) {
            self.reply(ticket, Err(refusal));
            return Ok(());
        }
        self.answer_offer(call, answer, stamp)?;
        self.reply(ticket, Ok(Reply::Done));
        Ok(())
    }

    /// Why this call takes no result from outside.
    fn takes_result(&self, call: PartId) -> Result<(), CommandError> {
        let part = self.session.call(call).ok_or(CommandError::NoSuchCall(call))?;
        let refused = |why: &str| Err(CommandError::Invalid(format!("call {call} of {} {why}", part.tool)));
        if part.source.as_deref() != Some(&ToolOrigin::Host) {
            return refused("is made by the engine: only calls of registered tools take a result");
        }
        if matches!(part.state, CallState::Settled(_)) || self.live.abort.is_some() {
            return Err(CommandError::CallSettled(call));
        }
        let open = self.session.calls().iter().find(|open| open.id == call);
        match open.and_then(|open| open.offer.as_deref()) {
            Some(offer) if offer.answer.is_none() => Ok(()),
            Some(_) => Err(CommandError::CallSettled(call)),
            None => refused("was not offered yet: wait for its event call.offered"),
        }
    }

    pub(super) fn on_offer_overdue(&mut self, call: PartId, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let open = self.session.calls().iter().find(|open| open.id == call);
        let waits = |phase| phase != CallPhase::Settled;
        let offer = open.filter(|open| waits(open.phase)).and_then(|open| open.offer.as_deref());
        if self.live.abort.is_some() || offer.is_none_or(|offer| offer.answer.is_some()) {
            return Ok(());
        }
        self.answer_offer(call, CallAnswer::TimedOut, stamp)
    }

    fn answer_offer(
        &mut self,
        call: PartId,
        answer: CallAnswer,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        self.append(Record::CallAnswered { call, answer: answer.clone() }, stamp.now)?;
        self.effects.push(Effect::TellResult(call, answer));
        Ok(())
    }
}
