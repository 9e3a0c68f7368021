//! Random schedules with crashes: whatever happens, the machine's state is the fold of its log, every call gets one
//! result, every prompt ends once, every attempt is billed once, and there is always a way on.

use std::collections::{BTreeMap, BTreeSet};

use playhouse_policy::Verdict;
use playhouse_protocol::id::{AttemptId, ConsentId, PartId, QuestionId};
use playhouse_protocol::message::{CallOutcome, FinishReason};
use playhouse_protocol::question::{QuestionAnswer, Todo, TodoPriority, TodoStatus};
use playhouse_protocol::record::{ConsentAnswer, Effect as CallEffect, Record};
use playhouse_protocol::{ErrorCode, Timestamp, WhenBusy};
use playhouse_session::{CallReport, Deadline, Effect, Input, Session, chat};
use proptest::prelude::*;

use crate::harness::{Harness, model, prepared, question};

/// What an outside world has to do for the machine.
#[derive(Debug, Default)]
struct World {
    attempts: BTreeSet<AttemptId>,
    preparing: BTreeSet<PartId>,
    executing: BTreeSet<PartId>,
    asking: BTreeSet<ConsentId>,
    /// Requests with questions that are open.
    questions: BTreeSet<QuestionId>,
    /// Running calls that wait for an answer.
    waiting: BTreeSet<PartId>,
    /// What calls were told that somebody or the clock said.
    told: BTreeMap<PartId, QuestionAnswer>,
    deadlines: Vec<Deadline>,
    executed: BTreeMap<PartId, (u32, bool)>,
    replies: usize,
    asked: usize,
}

impl World {
    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::StartAttempt(order) => assert!(self.attempts.insert(order.attempt)),
                Effect::Prepare { call, .. } => assert!(self.preparing.insert(call)),
                Effect::Execute { call, after_flush } => {
                    assert!(self.executing.insert(call), "a call runs once at a time");
                    let times = self.executed.entry(call).or_insert((0, after_flush));
                    times.0 += 1;
                }
                Effect::KillAttempt(attempt) => {
                    self.attempts.remove(&attempt);
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
                        assert_eq!(*before, answer, "a call that runs again is told the same");
                    }
                }
                Effect::Arm(deadline, _) => self.deadlines.push(deadline),
                Effect::RetryLater { step, .. } => self.deadlines.push(Deadline::Retry { step }),
                Effect::Append(entries) => {
                    for entry in entries {
                        match entry.record {
                            Record::ConsentAsked(asked) => {
                                self.asking.insert(asked.consent);
                            }
                            Record::ConsentSettled { consent, .. } => {
                                assert!(self.asking.remove(&consent));
                            }
                            Record::QuestionAsked(asked) => assert!(self.questions.insert(asked.question)),
                            Record::QuestionSettled { question, .. } => {
                                assert!(self.questions.remove(&question));
                            }
                            _ => {}
                        }
                    }
                }
                Effect::Reply(..) => self.replies += 1,
                Effect::CancelAttempt(_) | Effect::CancelCall(_) | Effect::Remove(_) => {}
            }
        }
    }

    fn crash(&mut self) {
        self.attempts.clear();
        self.preparing.clear();
        self.executing.clear();
        self.waiting.clear();
        self.deadlines.clear();
        self.asked = self.replies;
    }
}

fn pick<T: Copy>(set: &BTreeSet<T>, by: u8) -> Option<T> {
    set.iter().nth(usize::from(by) % set.len().max(1)).copied()
}

const TOOLS: [&[&str]; 5] = [&[], &[], &["read"], &["bash", "read"], &["read", "grep", "edit", "glob"]];

fn step(h: &mut Harness, world: &mut World, choice: u8, by: u8) {
    let effects = match choice % 17 {
        0 | 1 => {
            let when = [WhenBusy::Queue, WhenBusy::Reject, WhenBusy::Interrupt, WhenBusy::Steer];
            let limit = (by.is_multiple_of(3)).then_some(u32::from(by % 4) + 1);
            let prompt = h.new_prompt("p", when[usize::from(by) % 4], limit);
            let ticket = h.ticket();
            world.asked += 1;
            h.raw(Input::Prompt(ticket, prompt))
        }
        2 => {
            let ticket = h.ticket();
            world.asked += 1;
            h.raw(Input::Abort(ticket))
        }
        3..=5 => {
            let Some(attempt) = pick(&world.attempts, by) else { return };
            world.attempts.remove(&attempt);
            let report = match by % 8 {
                0 => h.failed(ErrorCode::StreamCut, "half"),
                1 => h.failed(ErrorCode::Authentication, ""),
                2 => h.finished("cut", &["bash"], FinishReason::Length),
                _ => {
                    let tools = TOOLS[usize::from(by) % TOOLS.len()];
                    let finish = if tools.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
                    h.finished("text", tools, finish)
                }
            };
            h.raw(Input::Attempt(attempt, report))
        }
        6..=8 => {
            let Some(call) = pick(&world.preparing, by) else { return };
            world.preparing.remove(&call);
            let tool = h.machine.session().call(call).map(|call| call.tool.clone()).unwrap_or_default();
            let effect =
                if tool == "bash" || tool == "edit" { CallEffect::Workspace } else { CallEffect::None };
            let verdict = match by % 5 {
                0 => Verdict::Ask { reason: "r".into(), wants: Vec::new() },
                1 => Verdict::Deny { reason: "r".into() },
                _ => Verdict::Allow,
            };
            let result = if by.is_multiple_of(11) {
                Err(CallReport::text(CallOutcome::Failed, "bad arguments"))
            } else {
                Ok(prepared(effect, verdict))
            };
            h.raw(Input::Prepared(call, result))
        }
        9 | 10 => {
            let Some(call) = pick(&world.executing, by) else { return };
            world.executing.remove(&call);
            world.waiting.remove(&call);
            let outcome = [CallOutcome::Done, CallOutcome::Failed, CallOutcome::Crashed][usize::from(by) % 3];
            let todos = by.is_multiple_of(4).then(|| todos(usize::from(by) % 3));
            h.raw(Input::Call(call, CallReport { todos, ..CallReport::text(outcome, "output") }))
        }
        11 => {
            let Some(consent) = pick(&world.asking, by) else { return };
            let answer = if by.is_multiple_of(2) {
                ConsentAnswer::Once
            } else {
                ConsentAnswer::Decline { message: None }
            };
            let ticket = h.ticket();
            world.asked += 1;
            h.raw(Input::Answer(ticket, consent, answer))
        }
        12 => {
            if world.deadlines.is_empty() {
                return;
            }
            let deadline = world.deadlines.remove(usize::from(by) % world.deadlines.len());
            h.raw(Input::Deadline(deadline))
        }
        13 | 14 => {
            let silent: BTreeSet<PartId> = world.executing.difference(&world.waiting).copied().collect();
            let Some(call) = pick(&silent, by) else { return };
            world.waiting.insert(call);
            h.raw(Input::Ask(call, vec![question(); usize::from(by) % 4 + 1]))
        }
        15 => {
            let Some(question) = pick(&world.questions, by) else { return };
            // Some of these fit the number of questions, and some do not.
            let yes = || vec!["yes".to_owned()];
            let answers = (!by.is_multiple_of(5)).then(|| vec![yes(); usize::from(by) % 4 + 1]);
            let ticket = h.ticket();
            world.asked += 1;
            h.raw(Input::AnswerQuestion(ticket, question, answers))
        }
        _ => {
            world.crash();
            h.crash_raw()
        }
    };
    world.take(effects);
    let open = h.machine.session().open_questions();
    for call in &world.waiting {
        assert!(open.iter().any(|asked| asked.call == *call), "call {call} would wait for ever");
    }
}

fn todos(count: usize) -> Vec<Todo> {
    let todo = |number| Todo {
        content: format!("thing {number}"),
        status: TodoStatus::Pending,
        priority: TodoPriority::Low,
    };
    (0..count).map(todo).collect()
}

impl Harness {
    fn crash_raw(&mut self) -> Vec<Effect> {
        let session = Session::replay(&self.log).unwrap();
        assert_eq!(&session, self.machine.session(), "the state is the fold of the log");
        self.machine = playhouse_session::Machine::new(session, playhouse_session::RetryPolicy::default());
        self.raw(Input::Resume)
    }
}

/// Lets everything end well: nothing may be left waiting for ever.
fn drain(h: &mut Harness, world: &mut World) {
    for _ in 0..10_000 {
        let effects = if let Some(attempt) = world.attempts.pop_first() {
            let report = h.finished("the end", &[], FinishReason::Stop);
            h.raw(Input::Attempt(attempt, report))
        } else if let Some(call) = world.preparing.pop_first() {
            h.raw(Input::Prepared(call, Ok(prepared(CallEffect::None, Verdict::Allow))))
        } else if let Some(question) = world.questions.first().copied() {
            // The clock may be the one who settles it.
            h.raw(Input::Deadline(Deadline::Question { question }))
        } else if let Some(call) = world.executing.pop_first() {
            world.waiting.remove(&call);
            h.raw(Input::Call(call, CallReport::text(CallOutcome::Done, "output")))
        } else if let Some(consent) = world.asking.first().copied() {
            let ticket = h.ticket();
            world.asked += 1;
            h.raw(Input::Answer(ticket, consent, ConsentAnswer::Once))
        } else if let Some(deadline) = world.deadlines.pop() {
            h.raw(Input::Deadline(deadline))
        } else {
            return;
        };
        world.take(effects);
    }
    panic!("it never ends");
}

fn check(h: &Harness, world: &World) {
    assert!(h.machine.session().is_idle(), "{:?}", h.machine.session().turn);
    assert_eq!(world.replies, world.asked, "every command of a living engine is answered once");
    let mut open_prompts = BTreeSet::new();
    let mut open_attempts = BTreeSet::new();
    let mut open_calls = BTreeMap::new();
    let mut open_questions = BTreeMap::new();
    let mut last = Timestamp::default();
    for (index, entry) in h.log.iter().enumerate() {
        assert_eq!(entry.seq.0, index as u64 + 1);
        assert!(entry.at >= last);
        last = entry.at;
        match &entry.record {
            Record::PromptAdmitted(prompt) => assert!(open_prompts.insert(prompt.message)),
            Record::TurnEnded(ended) => assert!(open_prompts.remove(&ended.turn)),
            Record::AttemptStarted(started) => {
                assert!(open_attempts.insert(started.attempt));
                for steered in &started.steered {
                    assert!(open_prompts.remove(steered));
                }
            }
            Record::AttemptEnded(ended) => assert!(open_attempts.remove(&ended.attempt)),
            Record::CallProposed(proposed) => assert!(open_calls.insert(proposed.call, 0).is_none()),
            Record::QuestionAsked(asked) => {
                assert!(open_questions.insert(asked.question, asked.call).is_none());
            }
            Record::QuestionSettled { question, .. } => assert!(open_questions.remove(question).is_some()),
            Record::TodosChanged { .. } => {
                let next = h.log.get(index + 1).map(|entry| &entry.record);
                assert!(matches!(next, Some(Record::CallSettled { .. })), "{next:?}");
            }
            Record::CallSettled { call, .. } => {
                *open_calls.get_mut(call).unwrap() += 1;
                assert!(open_questions.values().all(|asking| asking != call), "it asks no more");
            }
            _ => {}
        }
    }
    assert!(open_prompts.is_empty() && open_attempts.is_empty() && open_questions.is_empty());
    assert!(open_calls.values().all(|results| *results == 1), "{open_calls:?}");
    for (call, (times, mutating)) in &world.executed {
        assert!(!mutating || *times == 1, "call {call} has effects and ran {times} times");
    }
    assert_eq!(h.machine.session().summary.open_turns, 0);
    assert!(h.machine.session().summary.open_attempts.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_everything_ends_once(schedule in prop::collection::vec((any::<u8>(), any::<u8>()), 1..150)) {
        let (mut h, mut world) = (Harness::new(), World::default());
        for (choice, by) in schedule {
            step(&mut h, &mut world, choice, by);
        }
        drain(&mut h, &mut world);
        check(&h, &world);
        prop_assert_eq!(&Session::replay(&h.log).unwrap(), h.machine.session());
    }

    #[test]
    fn a_log_cut_after_any_record_opens_and_goes_on(
        schedule in prop::collection::vec((any::<u8>(), any::<u8>()), 1..80),
        cut in any::<prop::sample::Index>(),
    ) {
        let (mut h, mut world) = (Harness::new(), World::default());
        for (choice, by) in schedule {
            step(&mut h, &mut world, choice, by);
        }
        let length = cut.index(h.log.len()) + 1;
        h.log.truncate(length);
        let session = Session::replay(&h.log).unwrap();
        let mut conversation = Vec::new();
        for message in &session.messages {
            chat::translate(message, &model(), &mut conversation);
        }
        h.machine = playhouse_session::Machine::new(session.clone(), playhouse_session::RetryPolicy::default());
        let mut world = World::default();
        for entry in &h.log {
            match &entry.record {
                Record::ConsentAsked(asked) => { world.asking.insert(asked.consent); }
                Record::ConsentSettled { consent, .. } => { world.asking.remove(consent); }
                Record::QuestionAsked(asked) => { world.questions.insert(asked.question); }
                Record::QuestionSettled { question, .. } => { world.questions.remove(question); }
                _ => {}
            }
        }
        let effects = h.raw(Input::Resume);
        world.take(effects);
        drain(&mut h, &mut world);
        prop_assert!(h.machine.session().is_idle());
    }
}
