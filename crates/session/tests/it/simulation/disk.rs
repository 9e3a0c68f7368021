//! What lies between a machine and a durable log: appends that are not flushed yet, and effects that wait for that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use playhouse_protocol::id::{AttemptId, MessageId};
use playhouse_protocol::record::{Entry, Record};
use playhouse_protocol::{ErrorCode, ErrorInfo};
use playhouse_session::{AttemptReport, CallReport, Effect, FailedAttempt, Input, Ticket};

/// A log of which only the first part is durable.
pub(super) struct Disk {
    /// How many records are durable.
    durable: usize,
    /// Where the appends end that are not, the oldest first.
    waiting: VecDeque<usize>,
    /// Effects that wait until so many records are durable.
    gated: VecDeque<(usize, Effect)>,
    /// What is reported of that which was taken back while it waited.
    pub(super) reports: Vec<Input>,
    /// The prompts that callers wait to have acknowledged, and those that were.
    prompts: BTreeMap<Ticket, MessageId>,
    acknowledged: BTreeSet<MessageId>,
    /// Attempts whose request left.
    left: BTreeSet<AttemptId>,
}

impl Disk {
    /// With `durable` records.
    pub(super) fn new(durable: usize) -> Self {
        Self {
            durable,
            waiting: VecDeque::new(),
            gated: VecDeque::new(),
            reports: Vec::new(),
            prompts: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            left: BTreeSet::new(),
        }
    }

    /// Takes what the machine says; what of it is carried out at once.
    pub(super) fn pass(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let mut now = Vec::new();
        for effect in effects {
            match &effect {
                Effect::Append(entries) => {
                    let end = self.end() + entries.len();
                    self.waiting.push_back(end);
                }
                Effect::CancelAttempt(attempt) | Effect::KillAttempt(attempt) => {
                    let taken = self.take_back(|gated| match gated {
                        Effect::StartAttempt(order) => order.attempt == *attempt,
                        Effect::StartAside(order) => order.attempt == *attempt,
                        _ => false,
                    });
                    if taken && matches!(effect, Effect::CancelAttempt(_)) {
                        self.reports.push(Input::Attempt(*attempt, never_left()));
                        continue;
                    }
                }
                Effect::CancelCall(call) | Effect::KillCall(call) => {
                    let taken = self.take_back(
                        |gated| matches!(gated, Effect::Execute { call: gated, .. } if gated == call),
                    );
                    if taken && matches!(effect, Effect::CancelCall(_)) {
                        use playhouse_protocol::message::CallOutcome::Cancelled;
                        self.reports.push(Input::Call(*call, CallReport::text(Cancelled, "cancelled")));
                        continue;
                    }
                }
                effect if effect.waits_for_flush() && self.end() > self.durable => {
                    self.gated.push_back((self.end(), effect.clone()));
                    continue;
                }
                _ => {}
            }
            self.carried_out(&effect);
            now.push(effect);
        }
        now
    }

    /// The oldest `appends` become durable; what of that which waited is carried out now.
    pub(super) fn flush(&mut self, appends: usize) -> Vec<Effect> {
        for _ in 0..appends.min(self.waiting.len()) {
            self.durable = self.waiting.pop_front().expect("there is one");
        }
        let mut now = Vec::new();
        while self.gated.front().is_some_and(|(place, _)| *place <= self.durable) {
            let (_, effect) = self.gated.pop_front().expect("there is one");
            self.carried_out(&effect);
            now.push(effect);
        }
        now
    }

    pub(super) fn flush_all(&mut self) -> Vec<Effect> {
        self.flush(usize::MAX)
    }

    /// A caller waits to have this prompt acknowledged.
    pub(super) fn asked(&mut self, input: &Input) {
        if let Input::Prompt(ticket, prompt) = input {
            self.prompts.insert(*ticket, prompt.prompt.message);
        }
    }

    /// The process ends. Of what was not durable, any number of whole appends may have come to the disk all the same.
    pub(super) fn crash(&mut self, log: &mut Vec<Entry>, by: u8) {
        let places: Vec<usize> = std::iter::once(self.durable).chain(self.waiting.drain(..)).collect();
        let end = places[usize::from(by) % places.len()];
        log.truncate(end);
        self.durable = end;
        self.gated.clear();
        self.reports.clear();
        self.prompts.clear();
        self.check(log);
    }

    /// Whatever was told to somebody outside is in the log.
    pub(super) fn check(&self, log: &[Entry]) {
        let admitted: BTreeSet<MessageId> = log
            .iter()
            .filter_map(|entry| match &entry.record {
                Record::PromptAdmitted(prompt) => Some(prompt.message),
                _ => None,
            })
            .collect();
        assert!(self.acknowledged.is_subset(&admitted), "an acknowledged prompt is lost");
        let started: BTreeSet<AttemptId> = log
            .iter()
            .filter_map(|entry| match &entry.record {
                Record::AttemptStarted(started) => Some(started.attempt),
                _ => None,
            })
            .collect();
        assert!(self.left.is_subset(&started), "a request left that nobody pays for");
    }

    fn end(&self) -> usize {
        self.waiting.back().copied().unwrap_or(self.durable)
    }

    fn take_back(&mut self, is_it: impl Fn(&Effect) -> bool) -> bool {
        let before = self.gated.len();
        self.gated.retain(|(_, gated)| !is_it(gated));
        self.gated.len() < before
    }

    fn carried_out(&mut self, effect: &Effect) {
        match effect {
            Effect::Reply(ticket, reply) => {
                if let (Some(message), Ok(_)) = (self.prompts.remove(ticket), reply) {
                    self.acknowledged.insert(message);
                }
            }
            Effect::StartAttempt(order) => {
                assert!(self.left.insert(order.attempt), "a request leaves once");
            }
            Effect::StartAside(order) => {
                assert!(self.left.insert(order.attempt), "a request leaves once");
            }
            _ => {}
        }
    }
}

/// As the session's actor reports an attempt that it never began.
fn never_left() -> AttemptReport {
    AttemptReport::Failed(FailedAttempt::without_answer(
        ErrorInfo::new(ErrorCode::Internal, "the turn was aborted"),
        false,
    ))
}
