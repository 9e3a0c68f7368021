//! Forks: where they begin, what they take along, and how what was open ends in them.

use playhouse_policy::Verdict;
use playhouse_protocol::id::MessageId;
use playhouse_protocol::message::{CallOutcome, CallState, Message};
use playhouse_protocol::record::{Effect, Record, SessionChanged};
use playhouse_protocol::usage::Totals;
use playhouse_protocol::{Entry, ErrorCode, SessionId, Timestamp, WhenBusy};
use playhouse_session::{FoldError, Input, Session};

use crate::harness::{Harness, ask, changed, prepared_question};

fn kinds(log: &[Entry]) -> Vec<&str> {
    log.iter().map(|entry| entry.record.kind()).collect()
}

fn ids(h: &Harness) -> Vec<MessageId> {
    h.machine.session().messages.iter().map(Message::id).collect()
}

/// A session with a turn of two steps and one of a single step, which are over.
fn two_turns() -> Harness {
    let mut h = Harness::new();
    h.prompt("first");
    h.answer("let me look", &["read"]);
    h.prepared("read", Effect::None);
    h.done("read");
    h.answer("done", &[]);
    h.prompt("second");
    h.answer("done again", &[]);
    h
}

#[test]
fn a_fork_of_an_idle_session_takes_all_and_owes_nothing() {
    let mut h = two_turns();
    let before = h.machine.session().clone();
    let change =
        SessionChanged { title: Some("New".into()), agent: Some("other".into()), ..Default::default() };
    let ticket = h.ticket();
    h.on(Input::Change(ticket, change));
    let records = h.log.len();
    assert_eq!(h.fork(None), records);
    assert_eq!(kinds(&h.log[records..]), ["session.forked"]);
    let fork = h.machine.session();
    assert_eq!(fork.messages, before.messages);
    assert_eq!(fork.conversation_bytes, before.conversation_bytes, "how full the context is stays known");
    let summary = &fork.summary;
    assert_eq!((summary.title.as_str(), summary.agent.as_str()), ("New (fork #1)", "other"));
    assert_eq!((summary.totals(), summary.turns, summary.open_turns), (Totals::default(), 0, 0));
    assert_eq!((summary.forked_from, summary.parent), (Some(before.summary.id), None));
    assert_ne!(summary.id, before.summary.id);
    assert_eq!(fork.shares_with, [before.summary.id]);
    h.prompt("third");
    h.answer("and so it goes on", &[]);
    assert_eq!(h.machine.session().summary.totals().attempts, 1, "it pays for its own attempts");
}

#[test]
fn a_fork_at_a_message_takes_what_came_before_it() {
    let h = two_turns();
    let all = ids(&h);
    assert_eq!(all.len(), 5);
    for (index, message) in all.iter().enumerate() {
        let mut h = two_turns();
        // Ids are made anew in each run, and in the same way.
        assert_eq!(ids(&h), all);
        h.fork(Some(*message));
        assert_eq!(ids(&h), all[..index], "before message {index}");
        assert!(h.machine.session().is_idle());
    }
    // A cut in the middle of a turn ends that one.
    let mut h = two_turns();
    let place = h.fork(Some(all[2]));
    assert_eq!(kinds(&h.log[place..]), ["session.forked", "turn.ended"]);
    let Some(Record::TurnEnded(ended)) = h.log.last().map(|entry| &entry.record) else { panic!("ended") };
    assert_eq!((ended.turn, ended.steps, ended.totals), (all[0], 1, Totals::default()));
    assert!(h.machine.session().knows_prompt(all[0]));
    assert!(!h.machine.session().knows_prompt(all[3]));
}

#[test]
fn what_waits_stays_with_the_session_that_was_forked() {
    let mut h = Harness::new();
    h.prompt("first");
    h.prompt("second");
    let waiting = h.machine.session().queue[0].prompt.message;
    for at in [None, Some(waiting)] {
        let (log, clock) = (h.log.clone(), h.clock);
        h.fork(at);
        let fork = h.machine.session();
        assert!(fork.queue.is_empty() && !fork.knows_prompt(waiting));
        assert_eq!(fork.messages.len(), 1, "the attempt under way is paid for by the other one");
        assert_eq!(fork.summary.totals(), Totals::default());
        (h.log, h.clock) = (log, clock);
        h.crash();
    }
    // Its turn has come.
    h.answer("one", &[]);
    h.fork(Some(waiting));
    assert_eq!(h.machine.session().messages.len(), 2);
    // Nothing is known of it, so that it can be sent again.
    let again = h.new_prompt("second", WhenBusy::Queue, None);
    let prompt = changed(again, |prompt| prompt.message = waiting);
    let ticket = h.ticket();
    assert_eq!(h.on(Input::Prompt(ticket, prompt))[1], "reply accepted");
}

#[test]
fn a_prompt_that_steered_is_left_out_with_the_step_that_read_it() {
    let mut h = Harness::new();
    h.prompt("first");
    h.answer("", &["read"]);
    h.prepared("read", Effect::None);
    h.prompt_with("rather so", WhenBusy::Steer, None);
    h.done("read");
    h.answer("as you wish", &[]);
    let all = ids(&h);
    assert_eq!(all.len(), 4);
    for message in &all[2..] {
        let log = h.log.clone();
        h.fork(Some(*message));
        assert_eq!(ids(&h), all[..2]);
        h.log = log;
    }
}

#[test]
fn calls_and_requests_that_are_open_end_in_the_fork() {
    let mut h = Harness::new();
    h.prompt("go");
    h.answer("", &["read", "bash", "edit"]);
    let read = h.call("read");
    h.on(Input::Prepared(read, Ok(prepared_question())));
    h.ask("read");
    h.judged("bash", Effect::Workspace, ask(&["make"]));
    let log = h.log.len();
    assert_eq!(h.fork(None), log);
    let own: Vec<&Record> = h.log[log..].iter().map(|entry| &entry.record).collect();
    let kinds = kinds(&h.log[log..]);
    assert_eq!(kinds.iter().filter(|kind| **kind == "call.settled").count(), 3, "{kinds:?}");
    assert!(kinds.contains(&"question.settled") && kinds.contains(&"consent.settled"), "{kinds:?}");
    assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("session.forked", "turn.ended"));
    let outcome = |call| match &h.machine.session().call(call).unwrap().state {
        CallState::Settled(result) => result.outcome,
        other => panic!("{other:?}"),
    };
    assert_eq!(outcome(read), CallOutcome::Interrupted);
    assert_eq!(outcome(h.call("bash")), CallOutcome::Cancelled);
    assert_eq!(outcome(h.call("edit")), CallOutcome::Cancelled);
    assert!(own.iter().all(|record| !matches!(record, Record::AttemptStarted(_) | Record::CallIntended(_))));
}

#[test]
fn an_attempt_that_waits_to_be_made_again_is_not_in_the_fork() {
    let mut h = Harness::new();
    h.prompt("go");
    h.fail(ErrorCode::StreamCut, "");
    let place = h.fork(None);
    assert_eq!(h.log[place - 1].record.kind(), "turn.started");
    assert_eq!(h.machine.session().messages.len(), 1);
    assert!(h.machine.session().is_idle());
}

#[test]
fn forks_of_forks_know_where_they_come_from() {
    let mut h = two_turns();
    let first = h.machine.session().summary.id;
    h.fork(None);
    let second = h.machine.session().summary.id;
    h.prompt("third");
    h.answer("yes", &[]);
    h.fork(None);
    let fork = h.machine.session();
    assert_eq!(fork.shares_with, [first, second]);
    assert_eq!(fork.summary.title, "a title (fork #2)");
    // Before its own first message there is only what it shares with the first.
    let all = ids(&h);
    h.fork(Some(all[0]));
    assert_eq!(h.machine.session().shares_with, [first]);
}

#[test]
fn a_fork_record_that_does_not_fit_is_refused() {
    let refusal = |log: &[Entry], change: &dyn Fn(&mut Entry)| {
        let mut session = Session::replay(&log[..log.len() - 1]).unwrap();
        let mut last = log[log.len() - 1].clone();
        change(&mut last);
        session.apply(&last).map_err(|FoldError { reason, .. }| reason)
    };
    let mut h = two_turns();
    h.fork(None);
    assert_eq!(refusal(&h.log, &|_| {}), Ok(()));
    type Change = fn(&mut playhouse_protocol::record::Forked);
    let changes: [(Change, &str); 4] = [
        (|forked| forked.at.0 -= 1, "should stand behind record"),
        (|forked| forked.tenant = "other".into(), "tenant \"local\""),
        (|forked| forked.workspace = "/elsewhere".into(), "in /repo"),
        (|forked| forked.turn = MessageId::parse("msg_00000000000012345678901234").ok(), "another turn"),
    ];
    for (change, expected) in changes {
        let error = refusal(&h.log, &|entry| match &mut entry.record {
            Record::Forked(forked) => change(forked),
            other => panic!("{other:?}"),
        });
        assert!(error.as_ref().is_err_and(|error| error.contains(expected)), "{error:?}");
    }
    // An attempt under way belongs to the session that made it.
    let mut h = Harness::new();
    h.prompt("go");
    let session = h.machine.session().clone();
    let now = Timestamp::from_millis(h.clock);
    let id: SessionId = h.ids.next(now);
    let order = playhouse_session::ForkOrder::new(id, session.summary.id, &session);
    let error = h.stamped(|stamp| playhouse_session::fork(session, order, stamp)).unwrap_err();
    assert_eq!(error.reason, "an attempt is under way");
}

#[test]
fn a_verdict_given_in_the_prefix_is_no_consent_in_the_fork() {
    let mut h = Harness::new();
    h.prompt("go");
    h.answer("", &["bash"]);
    h.judged("bash", Effect::Workspace, ask(&["make"]));
    h.consent(playhouse_protocol::consent::ConsentAnswer::Once);
    h.fork(None);
    h.prompt("again");
    h.answer("", &["bash"]);
    let effects = h.judged("bash", Effect::Workspace, ask(&["make"]));
    assert!(effects.iter().any(|line| line.contains("consent.asked")), "{effects:?}");
    let effects = h.judged("bash", Effect::Workspace, Verdict::Allow);
    assert!(effects.is_empty(), "it is not prepared while it waits: {effects:?}");
}
