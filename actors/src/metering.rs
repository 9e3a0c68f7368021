//! The metering actor: adds up the usage of the attempts that ended.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use playhouse_billing::Meter;
use playhouse_protocol::usage::Totals;
use playhouse_protocol::{Cost, ModelRef, SessionId, Usage};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use crate::base::{begins, panic_text};
use crate::measure::{Census, Count};

/// What an engine's sessions used since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageReport {
    /// The sum.
    pub totals: Totals,
    /// By model.
    pub by_model: BTreeMap<ModelRef, Totals>,
}

pub(crate) enum MeteringMessage {
    /// An attempt ended; its record is flushed.
    Ended { session: SessionId, model: ModelRef, usage: Box<Usage>, cost: Option<Cost> },
    /// A session left memory, or is removed: its totals stand in its summary.
    Forget(SessionId),
    /// What one session used since it was woken.
    Session(SessionId, RpcReplyPort<BTreeMap<ModelRef, Totals>>),
    /// What all used.
    Report(RpcReplyPort<UsageReport>),
}

pub(crate) struct Metering;

/// The totals, and where it is counted how many messages wait.
pub(crate) struct MeteringState {
    meter: Meter,
    census: Arc<Census>,
}

impl Actor for Metering {
    type Msg = MeteringMessage;
    type State = MeteringState;
    type Arguments = Arc<Census>;

    async fn pre_start(
        &self,
        _: ActorRef<Self::Msg>,
        census: Arc<Census>,
    ) -> Result<MeteringState, ActorProcessingErr> {
        Ok(MeteringState { meter: Meter::default(), census })
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        message: MeteringMessage,
        MeteringState { meter, census }: &mut MeteringState,
    ) -> Result<(), ActorProcessingErr> {
        census.leave(Count::Metering);
        // Nobody starts it again, and its sums stand nowhere else: a bug costs one message, not all of them.
        let taken = catch_unwind(AssertUnwindSafe(|| take(meter, message)));
        if let Err(panic) = taken {
            tracing::error!(
                panic = panic_text(&*panic),
                "the metering actor panicked: totals in memory may be short"
            );
        }
        Ok(())
    }
}

fn take(meter: &mut Meter, message: MeteringMessage) {
    let (name, session) = match &message {
        MeteringMessage::Ended { session, .. } => ("ended", Some(*session)),
        MeteringMessage::Forget(session) => ("forget", Some(*session)),
        MeteringMessage::Session(session, _) => ("session", Some(*session)),
        MeteringMessage::Report(_) => ("report", None),
    };
    begins("metering", name, session);
    match message {
        MeteringMessage::Ended { session, model, usage, cost } => {
            meter.add(session, &model, &usage, cost);
        }
        MeteringMessage::Forget(session) => meter.forget(session),
        // A caller that went away needs no answer.
        MeteringMessage::Session(session, port) => drop(port.send(meter.session(session))),
        MeteringMessage::Report(port) => {
            let report = UsageReport { totals: meter.totals(), by_model: meter.models().clone() };
            drop(port.send(report));
        }
    }
}
