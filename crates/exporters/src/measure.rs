//! What sinks tell of themselves, by the names of `playhouse_protocol::metric`. The one label is the name of the sink, which the
//! operator chose.

use std::sync::Arc;

use metrics::{counter, gauge};
use playhouse_billing::export::{Answer, Answers};
use playhouse_protocol::Timestamp;
use playhouse_protocol::metric::{Metric, SINK_ANSWERS, SINK_OUTCOMES};

use crate::status::SinkStatus;

const DELIVERED: &str = SINK_OUTCOMES[0];
const REFUSED: &str = SINK_OUTCOMES[1];

/// Measures one sink.
#[derive(Clone, Debug)]
pub(crate) struct Measures {
    sink: Arc<str>,
}

impl Measures {
    pub(crate) fn of(sink: &Arc<str>) -> Self {
        Self { sink: Arc::clone(sink) }
    }

    /// So many entries were sent, and this was answered.
    pub(crate) fn answered(&self, answers: &Answers, accepted: u64) {
        match answers {
            Answers::All(answer) => self.request(answer),
            Answers::Each(answers) => answers.iter().for_each(|answer| self.request(answer)),
        }
        self.rows(DELIVERED, accepted);
    }

    /// An entry was refused for good.
    pub(crate) fn buried(&self) {
        self.rows(REFUSED, 1);
    }

    fn request(&self, answer: &Answer) {
        let answer = match answer {
            Answer::Accepted => SINK_ANSWERS[0],
            Answer::Refused { .. } => SINK_ANSWERS[1],
            Answer::Busy { .. } => SINK_ANSWERS[2],
            Answer::Misconfigured { .. } => SINK_ANSWERS[3],
        };
        counter!(Metric::SinkRequests.name(), "sink" => Arc::clone(&self.sink), "answer" => answer)
            .increment(1);
    }

    fn rows(&self, outcome: &'static str, count: u64) {
        counter!(Metric::SinkRows.name(), "sink" => Arc::clone(&self.sink), "outcome" => outcome)
            .increment(count);
    }

    /// Tells how far it is, and keeps the series of what is counted.
    #[allow(clippy::cast_precision_loss, reason = "a count may be off by one in 2^53")]
    pub(crate) fn observe(&self, status: &SinkStatus, now: Timestamp) {
        for answer in SINK_ANSWERS {
            counter!(Metric::SinkRequests.name(), "sink" => Arc::clone(&self.sink), "answer" => *answer)
                .increment(0);
        }
        SINK_OUTCOMES.iter().for_each(|outcome| self.rows(outcome, 0));
        for (metric, value) in [
            (Metric::SinkLagRows, status.rows_behind as f64),
            (Metric::SinkLagTime, status.seconds_behind(now)),
            (Metric::SinkDeadLetters, status.dead_letters as f64),
        ] {
            gauge!(metric.name(), "sink" => Arc::clone(&self.sink)).set(value);
        }
    }
}
