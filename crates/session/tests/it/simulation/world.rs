//! The world around a machine: what it has to do, and what it knows of what it did.

use std::collections::{BTreeMap, BTreeSet};

use playhouse_policy::Verdict;
use playhouse_protocol::consent::{ConsentAnswer, ConsentAsked};
use playhouse_protocol::id::{AttemptId, ConsentId, MessageId, PartId, QuestionId};
use playhouse_protocol::message::PromptKind;
use playhouse_protocol::question::QuestionAnswer;
use playhouse_protocol::record::{Entry, Record};
use playhouse_session::{CallReport, Deadline, Effect, PreparedCall, Session};

/// What an outside world has to do for the machine.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) attempts: BTreeSet<AttemptId>,
    /// Attempts for titles and summaries.
    pub(super) asides: BTreeSet<AttemptId>,
    pub(super) preparing: BTreeSet<PartId>,
    pub(super) executing: BTreeSet<PartId>,
    /// Requests for consent that are open.
    pub(super) asking: BTreeSet<ConsentId>,
    /// The newest request for each call, and how it ended.
    consents: BTreeMap<PartId, (ConsentAsked, Option<ConsentAnswer>)>,
    /// How each call was judged last.
    judged: BTreeMap<PartId, PreparedCall>,
    /// Requests with questions that are open.
    pub(super) questions: BTreeSet<QuestionId>,
    /// Running calls that wait for an answer.
    pub(super) waiting: BTreeSet<PartId>,
    /// What calls were told that somebody or the clock said to what they asked last.
    told: BTreeMap<PartId, QuestionAnswer>,
    pub(super) deadlines: Vec<Deadline>,
    pub(super) executed: BTreeMap<PartId, (u32, bool)>,
    /// Commands that people run by hand, their calls, and the turn that runs.
    commands: BTreeSet<MessageId>,
    by_hand: BTreeSet<PartId>,
    turn: Option<MessageId>,
    pub(super) replies: usize,
    pub(super) asked: usize,
}

impl World {
    /// The world as a log leaves it, when nobody is at work.
    pub(super) fn of(log: &[Entry]) -> Self {
        let mut world = Self::default();
        for entry in log {
            world.note(&entry.record);
        }
        world
    }

    /// A call is judged.
    pub(super) fn judge(
        &mut self,
        session: &Session,
        call: PartId,
        result: &Result<PreparedCall, CallReport>,
    ) {
        assert!(session.call(call).is_some(), "what is prepared is in the conversation");
        if let Ok(prepared) = result {
            self.judged.insert(call, prepared.clone());
        }
    }

    pub(super) fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::StartAttempt(order) => assert!(self.attempts.insert(order.attempt)),
                Effect::StartAside(order) => {
                    assert!(!order.text.trim().is_empty(), "something is asked");
                    assert!(self.asides.insert(order.attempt));
                }
                Effect::Prepare { call, .. } => assert!(self.preparing.insert(call)),
                Effect::Execute { call, after_flush } => {
                    assert!(self.executing.insert(call), "a call runs once at a time");
                    self.may_run(call);
                    let times = self.executed.entry(call).or_insert((0, after_flush));
                    times.0 += 1;
                }
                Effect::KillAttempt(attempt) => {
                    self.attempts.remove(&attempt);
                    self.asides.remove(&attempt);
                }
                Effect::KillCall(call) => {
                    self.preparing.remove(&call);
                    self.executing.remove(&call);
                    self.waiting.remove(&call);
                }
                Effect::TellAnswer(call, answer) => {
                    // Nobody hears it before the call runs again and asks.
                    if self.waiting.remove(&call) && answer != QuestionAnswer::Withdrawn {
                        let before = self.told.entry(call).or_insert_with(|| answer.clone());
                        assert_eq!(
                            *before, answer,
                            "a call that runs again and asks the same is told the same"
                        );
                    }
                }
                Effect::Arm(deadline, _) => self.deadlines.push(deadline),
                Effect::RetryLater { step, .. } => self.deadlines.push(Deadline::Retry { step }),
                Effect::Append(entries) => entries.iter().for_each(|entry| self.note(&entry.record)),
                Effect::Reply(..) => self.replies += 1,
                Effect::TellResult(..)
                | Effect::CancelAttempt(_)
                | Effect::CancelCall(_)
                | Effect::Remove(_) => {}
            }
        }
    }

    fn note(&mut self, record: &Record) {
        match record {
            Record::ConsentAsked(asked) => {
                assert!(self.asking.insert(asked.consent));
                self.consents.insert(asked.call.unwrap(), (asked.clone(), None));
            }
            Record::ConsentSettled { consent, answer } => {
                assert!(self.asking.remove(consent), "a request is settled once");
                let open = self.consents.values_mut().find(|(asked, _)| asked.consent == *consent);
                open.expect("it is the newest of its call").1 = Some(answer.clone());
            }
            Record::PromptAdmitted(prompt) if matches!(prompt.kind, PromptKind::Shell { .. }) => {
                self.commands.insert(prompt.message);
            }
            Record::TurnStarted { turn } => self.turn = Some(*turn),
            Record::CallProposed(proposed) if self.turn.is_some_and(|turn| self.commands.contains(&turn)) => {
                self.by_hand.insert(proposed.call);
            }
            Record::QuestionAsked(asked) => {
                assert!(self.questions.insert(asked.question));
                // It asks something else than before.
                self.told.remove(&asked.call);
            }
            Record::QuestionSettled { question, .. } => assert!(self.questions.remove(question)),
            _ => {}
        }
    }

    /// Nothing runs that was neither allowed nor agreed to, as it is now.
    fn may_run(&self, call: PartId) {
        let judged = &self.judged[&call];
        match &judged.verdict {
            Verdict::Allow => {}
            Verdict::Deny { .. } => panic!("call {call} was denied, and runs"),
            // Who typed it agreed to it.
            Verdict::Ask { .. } if self.by_hand.contains(&call) => {}
            Verdict::Ask { wants, .. } => {
                let Some((asked, Some(answer))) = self.consents.get(&call) else {
                    panic!("nobody was asked about call {call}, and it runs")
                };
                assert!(answer.agrees(), "call {call} was refused, and runs");
                assert_eq!(asked.preview, judged.preview);
                assert!(wants.iter().all(|want| asked.wants.contains(want)), "call {call} wants more");
            }
        }
    }

    /// What waits has somebody or a clock to end it.
    pub(super) fn waits_for_something(&self, session: &Session) {
        let open = session.open_questions();
        for call in &self.waiting {
            assert!(open.iter().any(|asked| asked.call == *call), "call {call} would wait for ever");
        }
        let open: BTreeSet<ConsentId> = session.open_consents().iter().map(|asked| asked.consent).collect();
        assert_eq!(open, self.asking);
        for consent in open {
            assert!(self.deadlines.contains(&Deadline::Consent { consent }), "{consent} would wait for ever");
        }
    }

    /// The process ended, and another one has read the log. What ran before did so all the same.
    pub(super) fn restart(&mut self, log: &[Entry]) {
        let (executed, replies) = (std::mem::take(&mut self.executed), self.replies);
        *self = Self { executed, replies, asked: replies, ..Self::of(log) };
    }

    /// The process ends.
    pub(super) fn crash(&mut self) {
        self.attempts.clear();
        self.asides.clear();
        self.preparing.clear();
        self.executing.clear();
        self.waiting.clear();
        self.deadlines.clear();
        self.asked = self.replies;
    }
}
