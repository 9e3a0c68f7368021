//! Room in the context: what happens before a request that would not fit, and after one that was too long.

use playhouse_protocol::chat::{ChatMessage, UserPart};
use playhouse_protocol::ledger::Purpose;
use playhouse_protocol::message::{CallOutcome, FinishReason};
use playhouse_protocol::record::{Effect, Record, TurnOutcome};
use playhouse_protocol::{ErrorCode, WhenBusy};
use playhouse_session::{CallReport, Input};

use crate::harness::{Harness, TestFacts, model};

/// With room for 4,000 tokens, of which 100 are taken.
fn narrow(asides: bool) -> Harness {
    let mut h = Harness::new();
    h.facts = TestFacts { room: Some(4_000), asides };
    h.silent = true;
    h
}

/// A step of one call with an output of so many bytes; what comes of its end.
fn step(h: &mut Harness, bytes: usize) -> Vec<String> {
    h.answer("I look.", &["read"]);
    h.prepared("read", Effect::None);
    let call = h.call("read");
    h.on(Input::Call(call, CallReport::text(CallOutcome::Done, "o".repeat(bytes))))
}

/// A step that only says something, in a turn of its own.
fn talk(h: &mut Harness, bytes: usize) -> Vec<String> {
    h.prompt("more");
    h.answer(&"a".repeat(bytes), &[])
}

fn aside(h: &mut Harness, text: &str) -> Vec<String> {
    let report = h.finished(text, &[], FinishReason::Stop);
    let attempt = *h.asides.last().unwrap();
    h.on(Input::Attempt(attempt, report))
}

fn fail_aside(h: &mut Harness) -> Vec<String> {
    let report = h.failed(ErrorCode::ProviderUnavailable, "");
    let attempt = *h.asides.last().unwrap();
    h.on(Input::Attempt(attempt, report))
}

fn read(h: &Harness) -> Vec<ChatMessage> {
    let session = h.machine.session();
    let mut out = Vec::new();
    session.read(0..session.messages.len(), &model(), &mut out);
    out
}

fn first_text(h: &Harness) -> String {
    match &read(h)[0] {
        ChatMessage::User { parts } => match &parts[0] {
            UserPart::Text { text } => text.clone(),
            UserPart::File(_) => panic!("it begins with text"),
        },
        other => panic!("it begins with {other:?}"),
    }
}

#[test]
fn old_outputs_are_cleared_before_a_step_that_would_not_fit() {
    let mut h = narrow(true);
    h.prompt("go");
    // 7 outputs of 600 tokens.
    let mut lines = Vec::new();
    for _ in 0..7 {
        lines = step(&mut h, 2_400);
    }
    assert_eq!(
        lines,
        [
            "append call.settled(read done), context.cleared(6, 0 shortened), attempt.started(8.1)",
            "start attempt of 8 messages",
        ]
    );
    // It does not come back with the next step.
    assert_eq!(step(&mut h, 2_400)[0], "append call.settled(read done), attempt.started(9.1)");
}

#[test]
fn a_summary_stands_for_what_was_said_when_no_outputs_are_left() {
    let mut h = narrow(true);
    for _ in 0..7 {
        talk(&mut h, 2_300);
    }
    assert_eq!(
        h.prompt("go"),
        [
            "append prompt.admitted, turn.started(go), attempt.started(compaction)",
            "reply accepted",
            "ask for compaction",
        ]
        .map(str::to_owned)
        .to_vec()
    );
    assert_eq!(h.prompt("later"), ["append prompt.admitted", "reply accepted"], "it waits");
    assert_eq!(
        aside(&mut h, "## Goal\nTo go on."),
        [
            "append attempt.ended(finished), context.compacted(summary), attempt.started(1.1)",
            "start attempt of 16 messages",
        ]
    );
    assert!(first_text(&h).contains("## Goal\nTo go on."));
    assert_eq!(read(&h).len(), 4, "the summary, the last turn, the prompt");
    let Some(Record::AttemptStarted(started)) = h.log.iter().rev().nth(4).map(|entry| &entry.record) else {
        panic!("{:?}", h.log.iter().rev().map(|entry| entry.record.kind()).take(6).collect::<Vec<_>>())
    };
    assert_eq!(started.purpose, Purpose::Compaction);
    // What it used is the turn's, and the session's.
    let turn = h.machine.session().turn.as_ref().unwrap();
    assert_eq!(turn.totals.attempts, 1);
    h.answer("done", &[]);
    assert_eq!(h.machine.session().summary.totals().attempts, 9);
}

#[test]
fn a_mark_stands_there_when_summaries_fail() {
    let mut h = narrow(true);
    for _ in 0..7 {
        talk(&mut h, 2_300);
    }
    h.prompt("go");
    assert_eq!(fail_aside(&mut h)[0], "append attempt.ended(failed), attempt.started(compaction)");
    assert_eq!(
        aside(&mut h, "  "),
        [
            "append attempt.ended(failed), context.compacted(cut), attempt.started(1.1)",
            "start attempt of 16 messages",
        ]
    );
    assert_eq!(first_text(&h), "more", "the first prompt stays");
}

#[test]
fn a_mark_stands_there_where_nobody_is_asked_for_summaries() {
    let mut h = narrow(false);
    for _ in 0..7 {
        talk(&mut h, 2_300);
    }
    let lines = h.prompt("go");
    assert_eq!(
        lines[0],
        "append prompt.admitted, turn.started(go), context.compacted(cut), attempt.started(1.1)"
    );
    // Clients are told of it, and the history is as it was.
    let kinds = h.machine.session().messages.iter().filter(
        |message| matches!(message, playhouse_protocol::Message::User(user) if user.kind.is_compaction()),
    );
    assert_eq!(kinds.count(), 1);
    assert_eq!(h.machine.session().messages.len(), 7 * 2 + 3);
}

#[test]
fn a_request_that_was_too_long_is_made_again_with_less() {
    let mut h = narrow(true);
    h.facts.room = None;
    h.prompt("go");
    for _ in 0..4 {
        step(&mut h, 8_000);
    }
    assert_eq!(
        h.fail(ErrorCode::ContextOverflow, ""),
        [
            "append attempt.ended(failed), context.cleared(3, 1 shortened), attempt.started(5.2)",
            "start attempt of 5 messages",
        ]
    );
    assert_eq!(
        h.fail(ErrorCode::ContextOverflow, "")[0],
        "append attempt.ended(failed), context.cleared(0, 1 shortened), attempt.started(5.3)"
    );
    // Nothing is left that helps.
    assert_eq!(
        h.fail(ErrorCode::ContextOverflow, ""),
        ["append attempt.ended(failed), step.finished(failed), turn.ended(go failed)"]
    );
    let Some(Record::TurnEnded(ended)) = h.log.last().map(|entry| &entry.record) else { panic!("it ended") };
    assert_eq!(ended.error.as_ref().unwrap().code, ErrorCode::ContextOverflow);
}

#[test]
fn what_cannot_be_left_out_fails_the_turn_and_names_the_sizes() {
    let mut h = narrow(true);
    let prompt = "x".repeat(20_000);
    let lines = h.prompt(&prompt);
    assert!(lines[0].ends_with("failed)"), "{lines:?}");
    let Some(Record::TurnEnded(ended)) = h.log.last().map(|entry| &entry.record) else { panic!("it ended") };
    let error = ended.error.as_ref().unwrap();
    assert_eq!((ended.outcome, error.code), (TurnOutcome::Failed, ErrorCode::PromptTooLong));
    insta::assert_snapshot!(error.message, @"the prompt is too long for mock/m: about 5400 tokens cannot be left out (100 of them are the system prompt and the tools), and there is room for 4000: ask for less at once, or use a model with a larger context");
    // The session goes on without it.
    assert_eq!(h.prompt("short")[2], "ask for compaction");
    assert_eq!(aside(&mut h, "Something long.")[1], "start attempt of 3 messages");
}

#[test]
fn a_summary_that_a_crash_cut_off_is_paid_for_and_asked_for_again() {
    let mut h = narrow(true);
    for _ in 0..7 {
        talk(&mut h, 2_300);
    }
    h.prompt("go");
    assert_eq!(h.crash(), ["append attempt.ended(lost), attempt.started(compaction)", "ask for compaction"]);
    h.crash();
    // Twice is enough.
    assert_eq!(h.log.last().unwrap().record.kind(), "attempt.started");
    let compacted = h.log.iter().filter(|entry| entry.record.kind() == "context.compacted").count();
    assert_eq!((compacted, h.asides.len()), (1, 2));
    assert!(h.machine.session().asides.is_empty());
}

#[test]
fn an_abort_does_not_wait_for_a_summary() {
    let mut h = narrow(true);
    for _ in 0..7 {
        talk(&mut h, 2_300);
    }
    h.prompt("go");
    assert_eq!(
        h.abort(),
        ["append attempt.ended(aborted), turn.ended(go aborted)", "kill attempt", "reply aborted 1"]
    );
    assert!(aside(&mut h, "too late").is_empty());
    assert!(h.machine.session().is_idle());
}

#[test]
fn a_summary_is_written_when_somebody_asks_for_it() {
    let mut h = narrow(true);
    let ticket = h.ticket();
    assert!(h.on(Input::Compact(ticket, None))[0].starts_with("refuse: there is nothing to summarize"));
    h.prompt("go");
    assert_eq!(h.on(Input::Compact(ticket, None)), ["refuse: session is busy"]);
    h.answer("done", &[]);
    assert_eq!(
        h.on(Input::Compact(ticket, None)),
        ["append attempt.started(compaction)", "ask for compaction", "reply done"]
    );
    assert_eq!(h.on(Input::Compact(ticket, None)), ["refuse: session is busy"]);
    // A prompt that comes meanwhile is read behind the summary.
    assert_eq!(h.prompt("more"), ["append prompt.admitted", "reply accepted"]);
    assert_eq!(
        aside(&mut h, "It went.")[0],
        "append attempt.ended(finished), context.compacted(summary), turn.started(more), attempt.started(1.1)"
    );
    assert!(first_text(&h).contains("It went."));
    assert_eq!(read(&h).len(), 2);
}

#[test]
fn a_title_is_asked_for_once_and_nothing_waits_for_it() {
    let mut h = Harness::cramped();
    assert_eq!(
        h.prompt("Fix the test."),
        [
            "append session.changed, prompt.admitted, attempt.started(title), turn.started(Fix the test.), attempt.started(1.1)",
            "ask for title",
            "reply accepted",
            "start attempt of 1 messages",
        ]
    );
    h.answer("done", &[]);
    assert_eq!(h.machine.session().summary.title, "Fix the test.");
    assert_eq!(aside(&mut h, "\n\"A failing test\"\n"), ["append attempt.ended(finished), session.changed"]);
    assert_eq!(h.machine.session().summary.title, "A failing test");
    assert_eq!(h.prompt_with("more", WhenBusy::Queue, None).len(), 3, "once");
}

#[test]
fn a_title_that_people_chose_stays() {
    let mut h = Harness::cramped();
    h.prompt("Fix the test.");
    let changed = playhouse_protocol::record::SessionChanged {
        title: Some("Mine".into()),
        ..playhouse_protocol::record::SessionChanged::default()
    };
    let ticket = h.ticket();
    h.on(Input::Change(ticket, changed));
    assert_eq!(aside(&mut h, "Theirs"), ["append attempt.ended(finished)"]);
    assert_eq!(h.machine.session().summary.title, "Mine");
    // A session that is removed waits for none either.
    let mut h = Harness::cramped();
    h.prompt("Fix the test.");
    h.answer("done", &[]);
    let ticket = h.ticket();
    assert_eq!(
        h.on(Input::Delete(ticket)),
        ["append attempt.ended(aborted), session.deleted", "kill attempt", "remove"]
    );
}
