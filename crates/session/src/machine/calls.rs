//! The calls of a step: in which order they are prepared, asked about and run, and how each gets its one result.

use playhouse_policy::Verdict;
use playhouse_protocol::id::{ConsentId, PartId};
use playhouse_protocol::message::{CallInput, CallOutcome, CallResult, CallState};
use playhouse_protocol::record::{CallIntended, ConsentAnswer, ConsentAsked, Effect as CallEffect, Recovery};
use playhouse_protocol::{Record, Timestamp};

use super::{LiveCall, Machine};
use crate::effect::{CallReport, Effect, PreparedCall, Stamp};
use crate::fold::{CallPhase, FoldError, OpenCall, StepPhase};

impl Machine {
    pub(super) fn open_calls(&self) -> &[OpenCall] {
        match self.session.turn.as_ref().and_then(|turn| turn.step.as_ref()).map(|step| &step.phase) {
            Some(StepPhase::Finished { calls, .. }) => calls,
            _ => &[],
        }
    }

    fn unsettled(&self) -> Vec<OpenCall> {
        self.open_calls().iter().filter(|call| call.phase != CallPhase::Settled).cloned().collect()
    }

    pub(super) fn asking_call(&self, consent: ConsentId) -> Option<PartId> {
        self.open_calls().iter().find(|call| call.phase == CallPhase::Asking(consent)).map(|call| call.id)
    }

    /// Starts every call whose time has come. True while a call has no result.
    ///
    /// The model's order holds: a call is prepared when each one before it is settled, or runs without effects; one with
    /// effects runs alone; one that waits for consent holds back what follows it.
    pub(super) fn run_calls(&mut self, stamp: &mut Stamp<'_>) -> Result<bool, FoldError> {
        let calls = self.unsettled();
        let mut first = true;
        for call in &calls {
            match self.live.calls.get(&call.id) {
                Some(LiveCall::Preparing) => return Ok(true),
                Some(LiveCall::Running) => {
                    if !runs_beside_others(call.phase) {
                        return Ok(true);
                    }
                }
                Some(LiveCall::Ready(prepared)) => {
                    let prepared = prepared.clone();
                    if !is_free(prepared.effect) && !first {
                        return Ok(true);
                    }
                    self.start_call(call.id, &prepared, stamp)?;
                    if !is_free(prepared.effect) {
                        return Ok(true);
                    }
                }
                None => {
                    if !matches!(call.phase, CallPhase::Asking(_)) {
                        self.prepare_call(call.id);
                    }
                    return Ok(true);
                }
            }
            first = false;
        }
        Ok(!calls.is_empty())
    }

    fn prepare_call(&mut self, id: PartId) {
        let Some(part) = self.session.call(id) else { return };
        let (tool, input): (String, CallInput) = (part.tool.clone(), part.input.clone());
        self.live.calls.insert(id, LiveCall::Preparing);
        self.effects.push(Effect::Prepare { call: id, tool, input });
    }

    fn start_call(
        &mut self,
        call: PartId,
        prepared: &PreparedCall,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let intended = CallIntended { call, effect: prepared.effect, recovery: prepared.recovery };
        self.append(Record::CallIntended(intended), stamp.now)?;
        self.live.calls.insert(call, LiveCall::Running);
        let after_flush = prepared.effect != CallEffect::None;
        self.effects.push(Effect::Execute { call, after_flush });
        Ok(())
    }

    pub(super) fn on_prepared(
        &mut self,
        call: PartId,
        prepared: Result<PreparedCall, CallReport>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if self.live.calls.get(&call) != Some(&LiveCall::Preparing) {
            return Ok(());
        }
        self.live.calls.remove(&call);
        if self.live.abort.is_some() {
            // It waits for its tool no more; whoever ends the abort settles it.
            self.effects.push(Effect::KillCall(call));
            return Ok(());
        }
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(report) => return self.settle(call, report, stamp),
        };
        let consented = self.open_calls().iter().any(|open| open.id == call && open.consented);
        match &prepared.verdict {
            Verdict::Deny { reason } => {
                self.effects.push(Effect::KillCall(call));
                self.settle(call, CallReport::text(CallOutcome::Declined, reason), stamp)
            }
            Verdict::Ask { reason, .. } if !consented => {
                // The tool's plan would grow old: it is prepared again when there is an answer.
                self.effects.push(Effect::KillCall(call));
                let asked = ConsentAsked {
                    consent: stamp.ids.next(stamp.now),
                    call,
                    reason: reason.clone(),
                    preview: prepared.preview.clone(),
                };
                self.append(Record::ConsentAsked(asked), stamp.now)
            }
            Verdict::Allow | Verdict::Ask { .. } => {
                self.live.calls.insert(call, LiveCall::Ready(prepared));
                Ok(())
            }
        }
    }

    pub(super) fn on_call(
        &mut self,
        call: PartId,
        report: CallReport,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        // A report of a call that is settled (it was killed) comes too late.
        if self.live.calls.remove(&call).is_none() {
            return Ok(());
        }
        self.settle(call, report, stamp)
    }

    pub(super) fn settle_declined(
        &mut self,
        call: PartId,
        message: Option<String>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let text = match message {
            Some(message) => format!("declined by the user, who says: {message}"),
            None => "declined by the user".to_owned(),
        };
        self.settle(call, CallReport::text(CallOutcome::Declined, text), stamp)
    }

    fn settle(&mut self, call: PartId, report: CallReport, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let started = match self.session.call(call).map(|part| &part.state) {
            Some(CallState::Running { started }) => *started,
            Some(CallState::Settled(_)) | None => return Ok(()),
            Some(CallState::Pending | CallState::Asking) => stamp.now,
        };
        let ended: Timestamp = stamp.now.max(started);
        let CallReport { outcome, title, output, metadata, attachments, todos } = report;
        self.withdraw_question(call, stamp)?;
        if let Some(todos) = todos {
            self.append(Record::TodosChanged { todos }, stamp.now)?;
        }
        let result = CallResult { outcome, title, output, metadata, attachments, started, ended };
        self.append(Record::CallSettled { call, result }, stamp.now)
    }

    /// Settles all calls of an answer that must not be acted upon.
    pub(super) fn refuse_calls(&mut self, why: &str, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        for call in self.unsettled() {
            self.settle(call.id, CallReport::text(CallOutcome::Declined, why), stamp)?;
        }
        Ok(())
    }

    /// Settles the calls that nobody works on, for an abort.
    pub(super) fn cancel_idle_calls(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        for call in self.unsettled() {
            if self.live.calls.contains_key(&call.id) {
                continue;
            }
            if let CallPhase::Asking(consent) = call.phase {
                let answer = ConsentAnswer::Withdrawn;
                self.append(Record::ConsentSettled { consent, answer }, stamp.now)?;
            }
            let text = match call.phase {
                CallPhase::Intended { .. } => "cancelled: the turn was aborted while this call ran",
                _ => "cancelled: the turn was aborted before this call ran",
            };
            self.settle(call.id, CallReport::text(CallOutcome::Cancelled, text), stamp)?;
        }
        Ok(())
    }

    /// After a restart: what was running is run again if it has no effects, else it is settled.
    pub(super) fn resume_calls(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        for call in self.unsettled() {
            let CallPhase::Intended { recovery, .. } = call.phase else { continue };
            // One that asks finds its request in the log when it runs again.
            if matches!(recovery, Recovery::Rerun | Recovery::Reattach) {
                continue;
            }
            let text = "interrupted: the engine stopped while this call ran. effects unknown: check before you repeat it";
            self.settle(call.id, CallReport::text(CallOutcome::Interrupted, text), stamp)?;
        }
        Ok(())
    }
}

/// Whether calls with this effect run side by side.
fn is_free(effect: CallEffect) -> bool {
    matches!(effect, CallEffect::None | CallEffect::Delegated)
}

fn runs_beside_others(phase: CallPhase) -> bool {
    matches!(phase, CallPhase::Intended { effect, .. } if is_free(effect))
}
