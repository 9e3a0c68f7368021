//! The first records of a fork: what was open in the prefix ends, and nothing runs.

use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::record::{Forked, TurnOutcome};
use playhouse_protocol::{Entry, Record};

use super::Machine;
use crate::effect::{CallReport, Stamp};
use crate::fold::{CallPhase, FoldError, Session};
use crate::retry::RetryPolicy;

impl Machine {
    /// The first records of a fork with this prefix.
    pub(crate) fn fork(
        prefix: Session,
        forked: Forked,
        stamp: &mut Stamp<'_>,
    ) -> Result<Vec<Entry>, FoldError> {
        let mut machine = Self::new(prefix, RetryPolicy::default());
        machine.append(Record::Forked(forked), stamp.now)?;
        machine.withdraw_consents(stamp)?;
        for (call, phase) in machine.unsettled() {
            let (outcome, text) = match phase {
                CallPhase::Intended { .. } => (
                    CallOutcome::Interrupted,
                    "interrupted: this session was forked from another one while the call ran there. effects unknown: check before you repeat it",
                ),
                _ => (CallOutcome::Cancelled, "cancelled: the session was forked before this call ran"),
            };
            machine.settle(call, CallReport::text(outcome, text), stamp)?;
        }
        machine.end_turn(TurnOutcome::Aborted, None, stamp)?;
        Ok(machine.fresh)
    }
}
