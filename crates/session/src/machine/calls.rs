//! The calls of a step: in which order they are prepared, asked about and run, and how each gets its one result.

use playhouse_policy::{LONGEST_CYCLE, REPEATS, Verdict, is_looping};
use playhouse_protocol::delegate::Delegate;
use playhouse_protocol::id::PartId;
use playhouse_protocol::message::{CallOutcome, CallPart, CallResult, CallState, Part};
use playhouse_protocol::record::{CallIntended, Effect as CallEffect, Recovery};
use playhouse_protocol::{CallAnswer, ChangeSet, Message, Record, Timestamp, WorkspaceChanged};

use super::{LiveCall, Machine};
use crate::effect::{CallReport, Effect, PreparedCall, Stamp};
use crate::fold::{CallPhase, FoldError};

/// Results of up to so many bytes and lines are short enough for every model.
const SHORT_ANSWER: usize = 32 * 1024;
const SHORT_LINES: usize = 500;

impl Machine {
    /// The calls without a result, in the model's order, and where each stands.
    pub(super) fn unsettled(&self) -> Vec<(PartId, CallPhase)> {
        let open = self.session.calls().iter().filter(|call| call.phase != CallPhase::Settled);
        open.map(|call| (call.id, call.phase)).collect()
    }

    /// Whether more records follow soon by themselves: calls are at work, and people are asked nothing. Until then nothing
    /// need be written that nobody waits for.
    pub fn more_follows(&self) -> bool {
        let ends = self.live.abort.is_some() || self.live.delete.is_some();
        !ends
            && !self.live.calls.is_empty()
            && self.session.open_requests() == (0, 0)
            && !self.session.is_offering()
    }

    /// Starts every call whose time has come. True while a call has no result.
    ///
    /// The model's order holds: a call is prepared when each one before it is settled, or runs without effects; one with
    /// effects runs alone; one that waits for consent holds back what follows it.
    pub(super) fn run_calls(&mut self, stamp: &mut Stamp<'_>) -> Result<bool, FoldError> {
        let calls = self.unsettled();
        let mut first = true;
        for (call, phase) in calls.iter().copied() {
            match self.live.calls.get(&call) {
                Some(LiveCall::Preparing) => return Ok(true),
                Some(LiveCall::Running) => {
                    if !runs_beside_others(phase) {
                        return Ok(true);
                    }
                }
                Some(LiveCall::Ready(prepared)) => {
                    let prepared = prepared.clone();
                    if !is_free(prepared.effect) && !first {
                        return Ok(true);
                    }
                    self.start_call(call, &prepared, stamp)?;
                    if !is_free(prepared.effect) {
                        return Ok(true);
                    }
                }
                None => {
                    if !matches!(phase, CallPhase::Asking(_)) {
                        self.prepare_call(call);
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
        let (tool, input) = (part.tool.clone(), part.input.clone());
        let looping = self.closes_loop(id);
        self.live.calls.insert(id, LiveCall::Preparing);
        self.effects.push(Effect::Prepare { call: id, tool, input, looping });
    }

    /// Whether the calls of the running turn, across its steps, go round in circles with this one: the same calls, which had the same
    /// results as far as they ran.
    fn closes_loop(&self, id: PartId) -> bool {
        let Some(turn) = &self.session.turn else { return false };
        let messages = self.session.messages.iter().rev().take_while(|message| message.id() != turn.id);
        let parts = messages.flat_map(|message| {
            match message {
                Message::Assistant(message) => message.parts.as_slice(),
                // Prompts that steered the turn.
                Message::User(_) => &[],
            }
            .iter()
            .rev()
        });
        let calls = parts.filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        });
        let calls = calls.skip_while(|call| call.id != id).take(LONGEST_CYCLE * REPEATS);
        let mut calls: Vec<&CallPart> = calls.collect();
        calls.reverse();
        is_looping(&calls, |call, again| {
            let both = ran(call).zip(ran(again));
            (&call.tool, &call.input) == (&again.tool, &again.input)
                && both.is_none_or(|(result, again)| {
                    // What waited and saw nothing may wait again.
                    !result.has_waited() && (result.outcome, &result.output) == (again.outcome, &again.output)
                })
        })
    }

    fn start_call(
        &mut self,
        call: PartId,
        prepared: &PreparedCall,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let begun = self.session.calls().iter().find(|open| open.id == call).and_then(|open| open.delegate);
        let delegate = prepared.delegation.map(|delegation| {
            // One that runs again goes on with what it had begun.
            begun.unwrap_or_else(|| Delegate {
                session: delegation.session.unwrap_or_else(|| stamp.ids.next(stamp.now)),
                prompt: stamp.ids.next(stamp.now),
                report: delegation.background.then(|| stamp.ids.next(stamp.now)),
            })
        });
        let PreparedCall { effect, recovery, before, tracked, .. } = prepared;
        let intended = CallIntended {
            call,
            effect: *effect,
            recovery: *recovery,
            delegate,
            before: before.clone(),
            tracked: *tracked,
        };
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
        if prepared.delegation.is_some()
            && let Some(refusal) = self.too_much_at_work(call)
        {
            self.effects.push(Effect::KillCall(call));
            return self.settle(call, CallReport::text(CallOutcome::Failed, refusal), stamp);
        }
        match &prepared.verdict {
            Verdict::Deny { reason } => {
                self.effects.push(Effect::KillCall(call));
                self.settle(call, CallReport::text(CallOutcome::Declined, reason), stamp)
            }
            Verdict::Ask { reason, wants }
                if !self.is_by_hand() && !self.was_agreed(call, &prepared, wants) =>
            {
                // The tool's plan would grow old: it is prepared again when there is an answer.
                self.effects.push(Effect::KillCall(call));
                self.ask_consent(call, &prepared, reason, wants, stamp)
            }
            Verdict::Allow | Verdict::Ask { .. } => {
                self.live.calls.insert(call, LiveCall::Ready(prepared));
                Ok(())
            }
        }
    }

    /// Why this call cannot hand over more work: enough of it is under way.
    fn too_much_at_work(&self, call: PartId) -> Option<String> {
        let calls = self.session.calls();
        if calls.iter().any(|open| open.id == call && open.delegate.is_some()) {
            // It is under way itself.
            return None;
        }
        let waits = |state: &LiveCall| matches!(state, LiveCall::Ready(ready) if ready.delegation.is_some());
        let waiting = self.live.calls.values().filter(|state| waits(state)).count();
        let in_front = |delegate: Delegate| delegate.report.is_none();
        let open = calls.iter().filter(|open| open.phase != CallPhase::Settled);
        let running = open.filter(|open| open.delegate.is_some_and(in_front)).count();
        let most = self.most_tasks;
        (waiting + running + self.session.background.len() >= most).then(|| {
            format!(
                "{most} tasks of this session are at work, and there may be no more at once: go on when one has ended, or do this yourself"
            )
        })
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

    /// Gives a call its result, unless it has one.
    pub(super) fn settle(
        &mut self,
        call: PartId,
        report: CallReport,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let started = match self.session.call(call).map(|part| &part.state) {
            Some(CallState::Running { started, .. }) => *started,
            Some(CallState::Settled(_)) | None => return Ok(()),
            Some(CallState::Pending | CallState::Asking) => stamp.now,
        };
        let ended: Timestamp = stamp.now.max(started);
        let CallReport { outcome, title, output, metadata, attachments, todos, artifact, changed } = report;
        self.withdraw_question(call, stamp)?;
        if let Some(todos) = todos {
            self.append(Record::TodosChanged { todos }, stamp.now)?;
        }
        if let Some(artifact) = artifact {
            self.append(Record::ArtifactCaptured(*artifact), stamp.now)?;
        }
        let recovered = self.recovered.remove(&call);
        if let Some(set) = changed.map(|set| *set).or(recovered) {
            self.append(Record::WorkspaceChanged(WorkspaceChanged { call, set }), stamp.now)?;
        }
        let result = CallResult { outcome, title, output, metadata, attachments, started, ended };
        self.append(Record::CallSettled { call, result }, stamp.now)
    }

    /// Writes down what a call changed that has its result already.
    pub(super) fn on_changed(
        &mut self,
        call: PartId,
        set: ChangeSet,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        if set.is_nothing() || self.session.is_deleted() {
            return Ok(());
        }
        self.append(Record::WorkspaceChanged(WorkspaceChanged { call, set }), stamp.now)
    }

    /// Writes down that nothing is missing of what a call changed: a log that does not say so was cut off.
    pub(super) fn on_all_told(&mut self, call: PartId, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        if self.session.is_deleted() {
            return Ok(());
        }
        let set = ChangeSet::default();
        self.append(Record::WorkspaceChanged(WorkspaceChanged { call, set }), stamp.now)
    }

    /// Settles all calls of an answer that must not be acted upon.
    pub(super) fn refuse_calls(&mut self, why: &str, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        for (call, _) in self.unsettled() {
            self.settle(call, CallReport::text(CallOutcome::Declined, why), stamp)?;
        }
        Ok(())
    }

    /// Settles the calls that nobody works on, for an abort.
    pub(super) fn cancel_idle_calls(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        for (call, phase) in self.unsettled() {
            if self.live.calls.contains_key(&call) {
                continue;
            }
            let text = match phase {
                CallPhase::Intended { .. } => "cancelled: the turn was aborted while this call ran",
                _ => "cancelled: the turn was aborted before this call ran",
            };
            let text = self.with_what_is_known(call, text);
            self.settle(call, CallReport::text(CallOutcome::Cancelled, text), stamp)?;
        }
        Ok(())
    }

    /// `text` about a call that was cut off, with what is known of it.
    fn with_what_is_known(&self, call: PartId, text: &str) -> String {
        match self.interrupted.get(call.as_str()) {
            Some(known) => format!("{text}. {known}"),
            None => text.to_owned(),
        }
    }

    /// The result that came for a call before a restart, if it is short: a long one is cut where calls run.
    fn kept_answer(&self, call: PartId) -> Option<CallAnswer> {
        let open = self.session.calls().iter().find(|open| open.id == call)?;
        let answer = open.offer.as_deref()?.answer.clone()?;
        let is_short = |text: &str| text.len() <= SHORT_ANSWER && text.lines().count() <= SHORT_LINES;
        let fits = match &answer {
            CallAnswer::Output { output: text } | CallAnswer::Error { error: text } => is_short(text),
            CallAnswer::TimedOut => false,
        };
        fits.then_some(answer)
    }

    /// After a restart: requests for consent wait anew; what was running is run again if it has no effects, else it is
    /// settled.
    pub(super) fn resume_calls(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        for (call, phase) in self.unsettled() {
            self.resume_consent(call, stamp)?;
            let CallPhase::Intended { recovery, .. } = phase else { continue };
            if let Some(answer) = self.kept_answer(call) {
                let report = match answer {
                    CallAnswer::Output { output } => CallReport::text(CallOutcome::Done, &output),
                    CallAnswer::Error { error } => CallReport::text(CallOutcome::Failed, &error),
                    CallAnswer::TimedOut => continue,
                };
                let title = self.session.call(call).map(|part| part.tool.clone()).unwrap_or_default();
                self.settle(call, CallReport { title, ..report }, stamp)?;
                continue;
            }
            // One that asks finds its request in the log when it runs again.
            if matches!(recovery, Recovery::Rerun | Recovery::Reattach) {
                continue;
            }
            let text = "interrupted: the engine stopped while this call ran. effects unknown: check before you repeat it";
            let text = self.with_what_is_known(call, text);
            self.settle(call, CallReport::text(CallOutcome::Interrupted, text), stamp)?;
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

/// The result of a call that was carried out.
fn ran(call: &CallPart) -> Option<&CallResult> {
    match &call.state {
        CallState::Settled(result) if result.outcome != CallOutcome::Declined => Some(result),
        _ => None,
    }
}
