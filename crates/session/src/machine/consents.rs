//! Requests for consent: what is asked, and how each ends once.

use playhouse_policy::Want;
use playhouse_protocol::consent::{ConsentAnswer, ConsentAsked};
use playhouse_protocol::id::{ConsentId, PartId};
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::{CommandError, Record, Reply};

use super::Machine;
use crate::effect::{CallReport, ConsentAhead, Deadline, Effect, PreparedCall, Stamp, Ticket};
use crate::fold::{CallPhase, FoldError, OpenConsent};

impl Machine {
    /// Whether people have agreed to all that this call wants now, and were shown what it would do now.
    pub(super) fn was_agreed(&self, call: PartId, prepared: &PreparedCall, wants: &[Want]) -> bool {
        let call = self.session.calls().iter().find(|open| open.id == call);
        let Some(OpenConsent { asked, answer: Some(answer) }) = call.and_then(|call| call.consent.as_deref())
        else {
            return false;
        };
        answer.agrees()
            && asked.preview == prepared.preview
            && asked.diff == prepared.diff
            && wants.iter().all(|want| asked.wants.contains(want))
    }

    pub(super) fn ask_consent(
        &mut self,
        call: PartId,
        prepared: &PreparedCall,
        reason: &str,
        wants: &[Want],
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let consent = stamp.ids.next(stamp.now);
        let asked = ConsentAsked {
            consent,
            call: Some(call),
            tool: self.session.call(call).map_or_else(String::new, |part| part.tool.clone()),
            risk: prepared.risk,
            reason: reason.to_owned(),
            preview: prepared.preview.clone(),
            diff: prepared.diff,
            wants: wants.to_vec(),
            walls: prepared.walls.clone(),
        };
        self.append(Record::ConsentAsked(asked), stamp.now)?;
        self.await_consent(consent, stamp)
    }

    /// Asks people for something that is about no call.
    pub(super) fn ask_ahead(&mut self, ahead: ConsentAhead, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let ConsentAhead { tool, reason, preview, want } = ahead;
        let asked = ConsentAsked {
            consent: stamp.ids.next(stamp.now),
            call: None,
            tool,
            risk: want.risk,
            reason,
            preview,
            diff: false,
            wants: vec![want],
            walls: None,
        };
        self.append(Record::ConsentAsked(asked), stamp.now)
    }

    /// What a request about no call asks for is not there any more.
    pub(super) fn withdraw_ahead(
        &mut self,
        consent: ConsentId,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        self.settle_consent(consent, ConsentAnswer::Withdrawn, stamp)
    }

    /// Gives people their time to answer, if there are any.
    fn await_consent(&mut self, consent: ConsentId, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        if self.session.turn.as_ref().is_some_and(|turn| turn.unattended) {
            return self.settle_consent(consent, ConsentAnswer::Unattended, stamp);
        }
        self.effects.push(Effect::Arm(Deadline::Consent { consent }, self.asking_wait_ms));
        Ok(())
    }

    pub(super) fn on_answer(
        &mut self,
        ticket: Ticket,
        consent: ConsentId,
        answer: ConsentAnswer,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let reply = match self.refusal_of(consent, &answer) {
            Some(error) => Err(error),
            None => {
                self.settle_consent(consent, answer, stamp)?;
                Ok(Reply::Done)
            }
        };
        self.reply(ticket, reply);
        Ok(())
    }

    /// Why this answer cannot be taken.
    fn refusal_of(&self, consent: ConsentId, answer: &ConsentAnswer) -> Option<CommandError> {
        let Some(asked) = self.open_consent(consent) else {
            return Some(match self.session.settled_consent(consent) {
                Some(answer) => CommandError::ConsentSettled { consent, answer: answer.clone() },
                None => CommandError::NoSuchConsent(consent),
            });
        };
        if !answer.is_given() {
            let text = "only \"once\", \"always\" and \"decline\" are answers that can be given to a request for consent";
            return Some(CommandError::Invalid(text.to_owned()));
        }
        (*answer == ConsentAnswer::Always && asked.always().is_empty()).then(|| {
            CommandError::Invalid(format!(
                "this cannot be allowed for always: {}. answer \"once\" or \"decline\"",
                asked.reason
            ))
        })
    }

    /// Rules that changed meanwhile allow what was asked for.
    pub(super) fn on_covered(
        &mut self,
        consent: ConsentId,
        by: Option<ConsentId>,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        match self.open_consent(consent) {
            // What no rule can allow is not covered by any.
            Some(asked) if !asked.wants.iter().any(|want| want.in_person) => {
                self.settle_consent(consent, ConsentAnswer::Covered { by }, stamp)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn on_consent_overdue(
        &mut self,
        consent: ConsentId,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        match self.open_consent(consent) {
            Some(_) => self.settle_consent(consent, ConsentAnswer::TimedOut, stamp),
            None => Ok(()),
        }
    }

    /// Settles all open requests at once, for an abort: nobody needs to wait for what is cancelled.
    pub(super) fn withdraw_consents(&mut self, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        for (_, phase) in self.unsettled() {
            if let CallPhase::Asking(consent) = phase {
                self.settle_consent(consent, ConsentAnswer::Withdrawn, stamp)?;
            }
        }
        Ok(())
    }

    /// After a restart: an open request waits anew; one that was refused ends its call, if the log does not say so yet.
    pub(super) fn resume_consent(&mut self, call: PartId, stamp: &mut Stamp<'_>) -> Result<(), FoldError> {
        let open = self.session.calls().iter().find(|open| open.id == call);
        match open.and_then(|open| open.consent.as_deref()) {
            Some(OpenConsent { asked, answer: None }) => self.await_consent(asked.consent, stamp),
            Some(OpenConsent { asked, answer: Some(answer) }) => match refusal(asked, answer) {
                Some(report) => self.settle(call, report, stamp),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    fn open_consent(&self, consent: ConsentId) -> Option<&ConsentAsked> {
        let asking = self.session.calls().iter().find(|call| call.phase == CallPhase::Asking(consent));
        let of_call = asking.and_then(|asking| asking.consent.as_deref()).map(|open| &open.asked);
        of_call.or_else(|| {
            let open = self.session.consents_ahead().iter().find(|open| open.asked.consent == consent);
            open.filter(|open| open.answer.is_none()).map(|open| &open.asked)
        })
    }

    /// Ends a request, and its call with it where nobody agreed; where they did, the call is prepared again.
    fn settle_consent(
        &mut self,
        consent: ConsentId,
        answer: ConsentAnswer,
        stamp: &mut Stamp<'_>,
    ) -> Result<(), FoldError> {
        let Some(asked) = self.open_consent(consent) else { return Ok(()) };
        let (call, report) = (asked.call, refusal(asked, &answer));
        self.append(Record::ConsentSettled { consent, answer }, stamp.now)?;
        match (call, report) {
            (Some(call), Some(report)) => self.settle(call, report, stamp),
            _ => Ok(()),
        }
    }
}

/// What the model reads of a call that nobody agreed to: what happened, and what to do now. `None` where they agreed.
fn refusal(asked: &ConsentAsked, answer: &ConsentAnswer) -> Option<CallReport> {
    let why = &asked.reason;
    let (outcome, text) = match answer {
        ConsentAnswer::Once | ConsentAnswer::Always | ConsentAnswer::Covered { .. } => return None,
        ConsentAnswer::Decline { message: Some(message) } if !message.trim().is_empty() => {
            // Whoever answers need not be a person: a client declines where none is there.
            (CallOutcome::Declined, format!("declined: {message}"))
        }
        ConsentAnswer::Decline { .. } => (
            CallOutcome::Declined,
            "declined by the user, without a reason: do not try the same in another way. go on without it, or ask what to do instead".to_owned(),
        ),
        ConsentAnswer::TimedOut => (
            CallOutcome::Declined,
            format!(
                "declined: a person must agree to this call ({why}), and nobody answered in time. go on without it, or say what you would do and end your answer, so that the user can decide"
            ),
        ),
        ConsentAnswer::Unattended if asked.wants.iter().any(|want| want.in_person) => (
            CallOutcome::Declined,
            format!(
                "declined: a person must agree to this call each time, whatever the rules say ({why}), and nobody is there to be asked. find another way, or go on without it"
            ),
        ),
        ConsentAnswer::Unattended if asked.wants.iter().any(|want| want.named) => (
            CallOutcome::Declined,
            format!(
                "declined: a person must agree to this call ({why}), and nobody is there to be asked: allow it with a rule that is about this permission by its name (`[permissions]` in the configuration). find another way, or go on without it, and tell the user what was not done"
            ),
        ),
        ConsentAnswer::Unattended => (
            CallOutcome::Declined,
            format!(
                "declined: a person must agree to this call ({why}), and nobody is there to be asked: allow it with a rule (`[permissions]` in the configuration), or with --yes. go on without it, and tell the user what was not done"
            ),
        ),
        ConsentAnswer::Withdrawn => {
            (CallOutcome::Cancelled, "cancelled: the turn was aborted before this call ran".to_owned())
        }
    };
    Some(CallReport::text(outcome, text))
}
