//! What must be true of every log, and of everything that was done for it.

use std::collections::{BTreeMap, BTreeSet};

use playhouse_protocol::Timestamp;
use playhouse_protocol::consent::ConsentAnswer;
use playhouse_protocol::id::{ConsentId, MessageId, PartId, QuestionId};
use playhouse_protocol::message::PromptKind;
use playhouse_protocol::record::{AttemptOutcome, Entry, Record, StepPart};

use super::world::World;
use crate::harness::Harness;

pub(super) fn check(h: &Harness, world: &World) {
    assert!(h.machine.session().is_idle(), "{:?}", h.machine.session().turn);
    assert_eq!(world.replies, world.asked, "every command of a living engine is answered once");
    check_log(&h.log);
    for (call, (times, mutating)) in &world.executed {
        assert!(!mutating || *times == 1, "call {call} has effects and ran {times} times");
    }
    assert_eq!(h.machine.session().summary.open_turns, 0);
    assert!(h.machine.session().summary.open_attempts.is_empty());
}

/// Requests that are open, and those that were.
#[derive(Default)]
struct Requests {
    consents: BTreeMap<ConsentId, PartId>,
    questions: BTreeMap<QuestionId, PartId>,
    seen: BTreeSet<String>,
}

impl Requests {
    fn of(&self, call: PartId) -> bool {
        self.consents.values().chain(self.questions.values()).any(|asking| *asking == call)
    }

    fn none(&self) -> bool {
        self.consents.is_empty() && self.questions.is_empty()
    }
}

/// A log in which everything has ended.
pub(super) fn check_log(log: &[Entry]) {
    let mut prompts = BTreeSet::new();
    let (mut notes, mut commands) = (BTreeSet::new(), BTreeSet::new());
    let mut unattended: BTreeSet<MessageId> = BTreeSet::new();
    let mut turn = None;
    let (mut attempts, mut asides) = (BTreeSet::new(), BTreeSet::new());
    let mut proposed = BTreeSet::new();
    let mut results: BTreeMap<PartId, u32> = BTreeMap::new();
    let mut open = Requests::default();
    let mut last = Timestamp::default();
    for (index, entry) in log.iter().enumerate() {
        assert_eq!(entry.seq.0, index as u64 + 1);
        assert!(entry.at >= last);
        last = entry.at;
        let next = log.get(index + 1).map(|entry| &entry.record);
        match &entry.record {
            Record::PromptAdmitted(prompt) => {
                let all = if prompt.kind.is_note() { &mut notes } else { &mut prompts };
                assert!(all.insert(prompt.message));
                if matches!(prompt.kind, PromptKind::Shell { .. }) {
                    commands.insert(prompt.message);
                }
                if prompt.unattended {
                    unattended.insert(prompt.message);
                }
            }
            Record::TurnStarted { turn: started } => turn = Some(*started),
            Record::Forked(forked) => {
                assert!(attempts.is_empty(), "an attempt is paid for by one session");
                // The other one waits for these.
                asides.clear();
                prompts.retain(|prompt| forked.turn == Some(*prompt));
            }
            Record::TurnEnded(ended) => {
                assert!(prompts.remove(&ended.turn));
                // One that never began may end while another waits for answers.
                assert!(turn != Some(ended.turn) || open.none(), "requests outlive their turn");
            }
            Record::AttemptStarted(started) if started.purpose.is_aside() => {
                assert!(asides.insert(started.attempt));
                assert!(started.steered.is_empty() && started.notes.is_empty());
            }
            Record::AttemptStarted(started) => {
                assert!(attempts.insert(started.attempt));
                assert!(!commands.contains(&started.turn), "no model is asked for a command");
                for steered in &started.steered {
                    assert!(prompts.remove(steered));
                }
                assert!(started.notes.iter().all(|note| notes.remove(note)), "a note is read once");
            }
            Record::AttemptEnded(ended) => {
                assert!(attempts.remove(&ended.attempt) || asides.remove(&ended.attempt));
            }
            Record::CallProposed(call) => assert!(proposed.insert(call.call)),
            // What was proposed in an answer whose end is not in the log is void.
            Record::StepFinished(finished) => {
                let calls = finished.parts.iter().filter_map(|part| match part {
                    StepPart::Call { id, .. } => Some(*id),
                    _ => None,
                });
                for call in calls {
                    assert!(proposed.contains(&call));
                    assert!(results.insert(call, 0).is_none());
                }
            }
            Record::ConsentAsked(asked) => {
                let call = asked.call.unwrap();
                assert!(!open.of(call) || open.consents.values().all(|asking| *asking != call));
                assert!(open.seen.insert(asked.consent.to_string()));
                open.consents.insert(asked.consent, call);
                assert!(!asked.wants.is_empty() && !asked.tool.is_empty());
                assert!(!turn.is_some_and(|turn| commands.contains(&turn)), "who typed it agreed to it");
                if turn.is_some_and(|turn| unattended.contains(&turn)) {
                    let answer = &ConsentAnswer::Unattended;
                    let settled =
                        matches!(next, Some(Record::ConsentSettled { answer: given, .. }) if given == answer);
                    assert!(settled, "nobody is waited for: {next:?}");
                }
            }
            Record::ConsentSettled { consent, answer } => {
                let call = open.consents.remove(consent).expect("an open request is settled, once");
                let over = matches!(next, Some(Record::CallSettled { call: settled, .. }) if *settled == call)
                    || matches!(next, Some(Record::QuestionSettled { .. }));
                // One that people agreed to is prepared again, and may fail there.
                assert!(over || answer.agrees(), "{answer:?}, then {next:?}");
            }
            Record::QuestionAsked(asked) => {
                assert!(open.seen.insert(asked.question.to_string()));
                open.questions.insert(asked.question, asked.call);
            }
            Record::QuestionSettled { question, .. } => {
                open.questions.remove(question).expect("an open request is settled, once");
            }
            Record::TodosChanged { .. } | Record::ArtifactCaptured(_)
                if matches!(next, Some(Record::WorkspaceChanged(_))) => {}
            Record::TodosChanged { .. } | Record::ArtifactCaptured(_) | Record::WorkspaceChanged(_) => {
                // Where the log was cut between the two, the call runs again, and an attempt beside the turn is lost before that.
                let goes_on = match next {
                    Some(Record::AttemptEnded(ended)) => ended.outcome == AttemptOutcome::Lost,
                    next => matches!(next, Some(Record::CallSettled { .. } | Record::CallIntended(_))),
                };
                assert!(goes_on, "{next:?}");
            }
            Record::CallIntended(intended) => {
                assert!(open.consents.values().all(|asking| *asking != intended.call), "it runs unasked");
            }
            Record::CallSettled { call, .. } => {
                *results.get_mut(call).unwrap() += 1;
                assert!(!open.of(*call), "it asks no more");
            }
            _ => {}
        }
    }
    assert!(prompts.is_empty() && attempts.is_empty() && asides.is_empty() && open.none());
    assert!(results.values().all(|results| *results == 1), "{results:?}");
}
