//! When a model goes round in circles, the call that closes the circle says so to whoever judges it.

use playhouse_policy::Verdict;
use playhouse_policy::loop_want;
use playhouse_protocol::WhenBusy;
use playhouse_protocol::consent::ConsentAnswer;
use playhouse_protocol::message::{CallInput, CallOutcome, FinishReason, WAITED};
use playhouse_protocol::record::Effect;
use playhouse_session::{AttemptReport, CallReport, Input};

use crate::harness::Harness;

/// The model proposes calls, each `TOOL` or `TOOL ARGUMENTS`; all that runs ends well. Answers with what was prepared.
fn propose(h: &mut Harness, calls: &[&str]) -> Vec<String> {
    let ok = || CallReport::text(CallOutcome::Done, "ok");
    propose_with(h, calls, ok)
}

/// The same with these results.
fn propose_with(h: &mut Harness, calls: &[&str], mut result: impl FnMut() -> CallReport) -> Vec<String> {
    let tools: Vec<&str> = calls.iter().map(|call| call.split(' ').next().unwrap()).collect();
    let AttemptReport::Finished(mut answer) = h.finished("", &tools, FinishReason::ToolCalls) else {
        panic!("it is finished")
    };
    for (proposed, call) in answer.calls.iter_mut().zip(calls) {
        proposed.input = CallInput::from_model(call.split_once(' ').map_or("{}", |(_, input)| input));
    }
    let ids: Vec<_> = answer.calls.iter().map(|call| call.id).collect();
    let attempt = *h.attempts.last().unwrap();
    let mut lines = h.on(Input::Attempt(attempt, AttemptReport::Finished(answer)));
    for id in ids {
        let judged = crate::harness::prepared(Effect::Workspace, Verdict::Allow);
        lines.extend(h.on(Input::Prepared(id, Ok(judged))));
        lines.extend(h.on(Input::Call(id, result())));
    }
    lines.retain(|line| line.starts_with("prepare"));
    lines
}

#[test]
fn a_call_with_another_result_each_time_is_no_loop_nor_is_one_that_waited() {
    let mut h = turn();
    let mut count = 0;
    let mut counted = || {
        count += 1;
        CallReport::text(CallOutcome::Done, format!("tick {count}"))
    };
    for _ in 0..6 {
        assert_eq!(propose_with(&mut h, &["process"], &mut counted), ["prepare process"]);
    }
    let waited = || {
        let mut report = CallReport::text(CallOutcome::Done, "(no new output)");
        report.metadata.insert(WAITED.to_owned(), true.into());
        report
    };
    for _ in 0..6 {
        assert_eq!(propose_with(&mut h, &["process {\"wait\":400}"], waited), ["prepare process"]);
    }
}

fn turn() -> Harness {
    let mut h = Harness::new();
    h.prompt("one");
    h
}

#[test]
fn the_same_call_three_times_across_steps_and_within_one() {
    let mut h = turn();
    assert_eq!(propose(&mut h, &["ls"]), ["prepare ls"]);
    assert_eq!(
        propose(&mut h, &["ls", "ls", "ls"]),
        ["prepare ls", "prepare ls, looping", "prepare ls, looping"]
    );
    assert_eq!(propose(&mut h, &["read"]), ["prepare read"]);
    assert_eq!(propose(&mut h, &["ls"]), ["prepare ls"], "it was broken");
}

#[test]
fn a_cycle_of_two_or_three_calls_three_times() {
    for cycle in [&["ls", "read"][..], &["ls", "read", "edit"]] {
        let mut h = turn();
        propose(&mut h, &["grep"]);
        for _ in 0..2 {
            for call in cycle {
                assert!(!propose(&mut h, &[call])[0].ends_with("looping"));
            }
        }
        let (last, before) = cycle.split_last().unwrap();
        for call in before {
            assert!(!propose(&mut h, &[call])[0].ends_with("looping"));
        }
        assert_eq!(propose(&mut h, &[last]), [format!("prepare {last}, looping")]);
    }
}

#[test]
fn other_arguments_are_another_call() {
    let mut h = turn();
    propose(&mut h, &[r#"read {"a":1}"#, r#"read {"a":1}"#]);
    assert_eq!(propose(&mut h, &[r#"read {"a":2}"#]), ["prepare read"]);
    propose(&mut h, &["read [", "read ["]);
    assert_eq!(propose(&mut h, &["read ["]), ["prepare read, looping"], "also ones that nobody can read");
}

#[test]
fn a_new_turn_begins_anew_and_a_prompt_that_steers_does_not() {
    let mut h = turn();
    propose(&mut h, &["ls", "ls"]);
    h.prompt_with("aside", WhenBusy::Steer, None);
    propose(&mut h, &["grep"]);
    propose(&mut h, &["ls", "ls"]);
    h.prompt_with("again", WhenBusy::Steer, None);
    assert_eq!(propose(&mut h, &["ls"]), ["prepare ls, looping"]);
    h.answer("done", &[]);
    assert!(h.machine.session().is_idle());
    h.prompt("two");
    assert_eq!(propose(&mut h, &["ls"]), ["prepare ls"]);
}

#[test]
fn people_who_let_a_circle_go_on_are_asked_once_for_each_call() {
    let mut h = turn();
    for _ in 0..2 {
        h.answer("", &["ls"]);
        h.judged("ls", Effect::None, Verdict::Allow);
        h.done("ls");
    }
    let circle = || Verdict::Ask { reason: "it goes round in circles".into(), wants: vec![loop_want("ls")] };
    for _ in 0..2 {
        assert_eq!(h.answer("", &["ls"])[1], "prepare ls, looping");
        assert_eq!(h.judged("ls", Effect::None, circle())[0], "append consent.asked");
        assert_eq!(h.consent(ConsentAnswer::Once).last().unwrap(), "prepare ls, looping");
        assert_eq!(h.judged("ls", Effect::None, circle()), ["append call.intended(ls)", "execute ls"]);
        h.done("ls");
    }
    assert_eq!(h.consents.len(), 2);
}
