//! Random schedules with crashes: whatever happens, the machine's state is the fold of its log, every call gets one
//! result, every request is settled once, every prompt ends once, every attempt is billed once, and there is always a way
//! on.

use std::collections::BTreeSet;

use playhouse_policy::{Risk, Verdict, Want};
use playhouse_protocol::chat::ChatMessage;
use playhouse_protocol::consent::ConsentAnswer;
use playhouse_protocol::id::PartId;
use playhouse_protocol::message::{CallOutcome, FinishReason, PromptKind};
use playhouse_protocol::question::{Todo, TodoPriority, TodoStatus};
use playhouse_protocol::record::Effect as CallEffect;
use playhouse_protocol::usage::Totals;
use playhouse_protocol::{ErrorCode, Seq, WhenBusy};
use playhouse_session::{
    CallReport, Deadline, Effect, Input, Machine, PreparedCall, RetryPolicy, Session, chat,
};
use proptest::prelude::*;

use crate::harness::{Harness, ask, changed, model, prepared, question};
use check::{check, check_log};
use world::World;

mod check;
mod disk;
mod seeds;
mod world;

fn pick<T: Copy>(set: &BTreeSet<T>, by: u8) -> Option<T> {
    set.iter().nth(usize::from(by) % set.len().max(1)).copied()
}

const TOOLS: [&[&str]; 5] = [&[], &[], &["read"], &["bash", "read"], &["read", "grep", "edit", "glob"]];

/// One with much room, or with little.
fn harness(cramped: bool) -> Harness {
    if cramped { Harness::cramped() } else { Harness::new() }
}

/// How many different things [`act`] knows.
const CHOICES: u8 = 24;

fn step(h: &mut Harness, world: &mut World, choice: u8, by: u8) {
    if let Some(effects) = act(h, world, choice, by) {
        world.take(effects);
        world.waits_for_something(h.machine.session());
    }
}

/// Something happens, as far as it can just now: what the machine says to that.
fn act(h: &mut Harness, world: &mut World, choice: u8, by: u8) -> Option<Vec<Effect>> {
    let effects = match choice % CHOICES {
        0 | 1 => {
            let when = [WhenBusy::Queue, WhenBusy::Reject, WhenBusy::Interrupt, WhenBusy::Steer];
            let limit = (by.is_multiple_of(3)).then_some(u32::from(by % 4) + 1);
            let prompt = h.new_prompt("p", when[usize::from(by) % 4], limit);
            let prompt = match by % 11 {
                // A note, and a command that a person runs.
                9 => changed(prompt, |prompt| prompt.kind = PromptKind::Note),
                10 => h.new_command("make"),
                _ => changed(prompt, |prompt| prompt.unattended = by.is_multiple_of(7)),
            };
            let ticket = h.ticket();
            world.asked += 1;
            h.raw(Input::Prompt(ticket, prompt))
        }
        2 => {
            let ticket = h.ticket();
            world.asked += 1;
            let session = h.machine.session();
            let running = session.turn.as_ref().map(|turn| turn.id);
            let turns: Vec<_> =
                running.into_iter().chain(session.queue.iter().map(|queued| queued.prompt.message)).collect();
            match turns.get(usize::from(by / 2)) {
                Some(turn) if by.is_multiple_of(2) => h.raw(Input::AbortTurn(ticket, *turn)),
                _ => h.raw(Input::Abort(ticket)),
            }
        }
        3..=5 => {
            let attempt = pick(&world.attempts, by)?;
            world.attempts.remove(&attempt);
            let report = match by % 9 {
                3 => h.failed(ErrorCode::ContextOverflow, ""),
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
            let call = pick(&world.preparing, by)?;
            world.preparing.remove(&call);
            let tool = h.machine.session().call(call).map(|call| call.tool.clone()).unwrap_or_default();
            let effect =
                if tool == "bash" || tool == "edit" { CallEffect::Workspace } else { CallEffect::None };
            let result = if by.is_multiple_of(11) {
                Err(CallReport::text(CallOutcome::Failed, "bad arguments"))
            } else {
                // Now and then a call that is prepared again would do something else than before.
                let preview = if by.is_multiple_of(13) { "another preview" } else { "a preview" }.to_owned();
                Ok(PreparedCall { preview, ..prepared(effect, verdict(by)) })
            };
            world.judge(h.machine.session(), call, &result);
            h.raw(Input::Prepared(call, result))
        }
        9 | 10 => {
            let call = pick(&world.executing, by)?;
            world.executing.remove(&call);
            world.waiting.remove(&call);
            let outcome = [CallOutcome::Done, CallOutcome::Failed, CallOutcome::Crashed][usize::from(by) % 3];
            let todos = by.is_multiple_of(4).then(|| todos(usize::from(by) % 3));
            let output = "output ".repeat(usize::from(by) + 1);
            let facts =
                serde_json::json!({"filePath": "/repo/a", "diff": "+a\n", "additions": 1, "deletions": 0});
            let metadata =
                by.is_multiple_of(3).then(|| facts.as_object().cloned()).flatten().unwrap_or_default();
            // No tool does both.
            let artifact = (todos.is_none() && by.is_multiple_of(5))
                .then(|| Box::new(crate::artifacts::captured(call, "note")));
            let text = CallReport::text(outcome, output);
            let changed = by.is_multiple_of(2).then(|| Box::new(crate::changed::made(&["a"], u64::from(by))));
            h.raw(Input::Call(call, CallReport { todos, artifact, metadata, changed, ..text }))
        }
        21 | 22 => {
            let attempt = pick(&world.asides, by)?;
            world.asides.remove(&attempt);
            let report = match by % 4 {
                0 => h.failed(ErrorCode::StreamCut, "half"),
                1 => h.finished(" ", &[], FinishReason::Stop),
                _ => h.finished("what was said", &[], FinishReason::Stop),
            };
            h.raw(Input::Attempt(attempt, report))
        }
        23 => {
            let ticket = h.ticket();
            world.asked += 1;
            h.raw(Input::Compact(ticket, None))
        }
        11 | 17 => {
            let consent = pick(&world.asking, by)?;
            let ticket = h.ticket();
            world.asked += 1;
            h.raw(Input::Answer(ticket, consent, answer(by)))
        }
        18 => {
            // An answer that comes too late, most of the time.
            if h.consents.is_empty() {
                return None;
            }
            let consent = h.consents[usize::from(by) % h.consents.len()];
            let ticket = h.ticket();
            world.asked += 1;
            h.raw(Input::Answer(ticket, consent, answer(by)))
        }
        19 => {
            let consent = pick(&world.asking, by)?;
            h.raw(Input::Cover(consent, h.consents.first().copied().filter(|_| by.is_multiple_of(2))))
        }
        20 => {
            let overdue = |deadline: &Deadline| matches!(deadline, Deadline::Consent { .. });
            let place = world.deadlines.iter().position(overdue)?;
            let deadline = world.deadlines.remove(place);
            h.raw(Input::Deadline(deadline))
        }
        12 => {
            if world.deadlines.is_empty() {
                return None;
            }
            let deadline = world.deadlines.remove(usize::from(by) % world.deadlines.len());
            h.raw(Input::Deadline(deadline))
        }
        13 | 14 => {
            let silent: BTreeSet<PartId> = world.executing.difference(&world.waiting).copied().collect();
            let call = pick(&silent, by)?;
            world.waiting.insert(call);
            h.raw(Input::Ask(call, vec![question(); usize::from(by) % 4 + 1]))
        }
        15 => {
            let question = pick(&world.questions, by)?;
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
    Some(effects)
}

fn verdict(by: u8) -> Verdict {
    let outside = Want { in_person: true, ..Want::new("external_directory", "/etc/motd", Risk::Dangerous) };
    match by % 8 {
        0 | 1 => ask(&["make"]),
        2 => ask(&["make", "make install"]),
        3 => Verdict::Ask { reason: "it writes outside".into(), wants: vec![outside] },
        4 => Verdict::Deny { reason: "r".into() },
        _ => Verdict::Allow,
    }
}

fn answer(by: u8) -> ConsentAnswer {
    match by % 7 {
        0 | 1 => ConsentAnswer::Once,
        2 | 3 => ConsentAnswer::Always,
        4 => ConsentAnswer::Decline { message: None },
        5 => ConsentAnswer::Decline { message: Some("use make".into()) },
        _ => ConsentAnswer::Withdrawn,
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
        self.machine = Machine::new(session, RetryPolicy::default());
        self.raw(Input::Resume)
    }
}

fn translated(session: &Session) -> Vec<ChatMessage> {
    let mut conversation = Vec::new();
    for message in &session.messages {
        chat::translate(message, &model(), &mut conversation);
    }
    conversation
}

/// Lets everything end well: nothing may be left waiting for ever.
fn drain(h: &mut Harness, world: &mut World) {
    for _ in 0..10_000 {
        let effects = if let Some(attempt) = world.attempts.pop_first() {
            let report = h.finished("the end", &[], FinishReason::Stop);
            h.raw(Input::Attempt(attempt, report))
        } else if let Some(attempt) = world.asides.pop_first() {
            let report = match world.replies.is_multiple_of(3) {
                true => h.failed(ErrorCode::StreamCut, ""),
                false => h.finished("what was said", &[], FinishReason::Stop),
            };
            h.raw(Input::Attempt(attempt, report))
        } else if let Some(call) = world.preparing.pop_first() {
            let result = Ok(prepared(CallEffect::None, Verdict::Allow));
            world.judge(h.machine.session(), call, &result);
            h.raw(Input::Prepared(call, result))
        } else if let Some(question) = world.questions.first().copied() {
            // The clock may be the one who settles it.
            h.raw(Input::Deadline(Deadline::Question { question }))
        } else if let Some(call) = world.executing.pop_first() {
            world.waiting.remove(&call);
            h.raw(Input::Call(call, CallReport::text(CallOutcome::Done, "output")))
        } else if let Some(consent) = world.asking.first().copied() {
            // So may the one of these be, or somebody.
            if world.replies.is_multiple_of(2) {
                h.raw(Input::Deadline(Deadline::Consent { consent }))
            } else {
                let ticket = h.ticket();
                world.asked += 1;
                h.raw(Input::Answer(ticket, consent, ConsentAnswer::Once))
            }
        } else if let Some(deadline) = world.deadlines.pop() {
            h.raw(Input::Deadline(deadline))
        } else {
            return;
        };
        world.take(effects);
    }
    panic!("it never ends");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_everything_ends_once(schedule in prop::collection::vec((any::<u8>(), any::<u8>()), 1..150), cramped in any::<bool>()) {
        let (mut h, mut world) = (harness(cramped), World::default());
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
        cramped in any::<bool>(),
    ) {
        let (mut h, mut world) = (harness(cramped), World::default());
        for (choice, by) in schedule {
            step(&mut h, &mut world, choice, by);
        }
        let length = cut.index(h.log.len()) + 1;
        h.log.truncate(length);
        let session = Session::replay(&h.log).unwrap();
        let _ = translated(&session);
        h.machine = Machine::new(session, RetryPolicy::default());
        let mut world = World::of(&h.log);
        let effects = h.raw(Input::Resume);
        world.take(effects);
        world.waits_for_something(h.machine.session());
        drain(&mut h, &mut world);
        prop_assert!(h.machine.session().is_idle());
        check_log(&h.log);
    }

    /// Records that are taken over without being copied: of any log, and of one to which something happened, whose records stop
    /// to fit somewhere.
    #[test]
    fn taking_a_record_over_is_the_same_as_applying_it(
        schedule in prop::collection::vec((any::<u8>(), any::<u8>()), 1..100),
        changes in prop::collection::vec((0..4_u8, any::<prop::sample::Index>()), 0..3),
        cramped in any::<bool>(),
    ) {
        let (mut h, mut world) = (harness(cramped), World::default());
        for (choice, by) in schedule {
            step(&mut h, &mut world, choice, by);
        }
        let mut log = h.log;
        for (change, at) in changes {
            // The first stays: without it there is no session.
            let at = 1 + at.index(log.len().max(2) - 1);
            match change {
                0 if at < log.len() => drop(log.remove(at)),
                1 if at < log.len() => log.insert(at, log[at].clone()),
                2 if at + 1 < log.len() => log.swap(at, at + 1),
                _ => continue,
            }
            // Half of them have their places right, so that it is seen what they say.
            if at.is_multiple_of(2) {
                for (seq, entry) in (1..).zip(&mut log) {
                    entry.seq = Seq(seq);
                }
            }
        }
        let mut applied = Session::begin(&log[0]).unwrap();
        let mut taken = applied.clone();
        for entry in &log[1..] {
            let (one, other) = (applied.apply(entry), taken.take(entry.clone()));
            prop_assert_eq!(one.as_ref().map_err(ToString::to_string), other.as_ref().map_err(ToString::to_string));
            if one.is_err() {
                break;
            }
            prop_assert_eq!(&applied, &taken);
        }
    }

    #[test]
    fn a_fork_ends_what_was_open_and_goes_on_by_itself(
        schedule in prop::collection::vec((any::<u8>(), any::<u8>()), 1..100),
        at in prop::option::of(any::<prop::sample::Index>()),
        twice in any::<bool>(),
        cramped in any::<bool>(),
    ) {
        let (mut h, mut world) = (harness(cramped), World::default());
        for (choice, by) in schedule {
            step(&mut h, &mut world, choice, by);
        }
        let parent = h.machine.session().clone();
        let messages = parent.all_messages();
        let before = at.filter(|_| !messages.is_empty()).map(|at| messages[at.index(messages.len())].id());
        let place = h.fork(before);
        if twice {
            h.fork(None);
        }
        let session = h.machine.session();
        prop_assert!(session.is_idle());
        prop_assert_eq!((session.summary.totals(), session.summary.parent), (Totals::default(), None));
        prop_assert_eq!(&Session::replay(&h.log).unwrap(), session);
        check_log(&h.log);
        // What a model reads of the fork is the beginning of what it reads of the other one.
        let (read, of_parent) = (translated(session), translated(&parent));
        if before.is_some_and(|before| parent.messages.iter().any(|message| message.id() == before)) {
            prop_assert_eq!(&read[..], &of_parent[..read.len()]);
            prop_assert!(session.messages.iter().all(|message| Some(message.id()) != before));
        }
        prop_assert!(h.log[..place].iter().all(|entry| entry.record.kind() != "session.deleted"));
        let mut world = World::of(&h.log);
        let prompt = h.new_prompt("more", WhenBusy::Queue, None);
        let ticket = h.ticket();
        let effects = h.raw(Input::Prompt(ticket, prompt));
        world.take(effects);
        drain(&mut h, &mut world);
        prop_assert!(h.machine.session().is_idle());
        check_log(&h.log);
        prop_assert_eq!(&translated(h.machine.session())[..read.len()], &read[..]);
    }
}
