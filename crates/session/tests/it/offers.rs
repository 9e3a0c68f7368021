//! What must happen when calls wait for their results from the platform.

use playhouse_policy::Verdict;
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::record::{Effect as CallEffect, Recovery};
use playhouse_protocol::{CallAnswer, Record};
use playhouse_session::{CallReport, Deadline, Input, PreparedCall};

use crate::harness::{Harness, prepared};

const WAIT: u64 = 600_000;

/// A turn in which a call is offered.
fn offering() -> Harness {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["weather"]);
    run(&mut h);
    assert_eq!(offer(&mut h), ["append call.offered(weather)", "arm Offer in 600000 ms"]);
    h
}

fn run(h: &mut Harness) {
    let call = h.call("weather");
    let ready =
        PreparedCall { recovery: Recovery::Reattach, ..prepared(CallEffect::Workspace, Verdict::Allow) };
    let lines = h.on(Input::Prepared(call, Ok(ready)));
    assert_eq!(lines, ["append call.intended(weather)", "execute weather after flush"]);
}

fn offer(h: &mut Harness) -> Vec<String> {
    let call = h.call("weather");
    h.on(Input::Offer(call, WAIT))
}

fn give(h: &mut Harness, tool: &str, answer: CallAnswer) -> Vec<String> {
    let (ticket, call) = (h.ticket(), h.call(tool));
    h.on(Input::AnswerCall(ticket, call, answer))
}

fn rain() -> CallAnswer {
    CallAnswer::Output { output: "rain".to_owned() }
}

#[test]
fn a_call_gets_one_result() {
    let mut h = offering();
    assert!(!h.machine.more_follows(), "somebody waits for what was written");
    assert_eq!(
        give(&mut h, "weather", rain()),
        ["append call.answered(weather)", "tell weather it has an output", "reply done"]
    );
    let again = give(&mut h, "weather", CallAnswer::Error { error: "no".to_owned() });
    assert!(again.len() == 1 && again[0].contains("has its result already"), "{again:?}");
    let call = h.call("weather");
    assert!(h.on(Input::Deadline(Deadline::Offer { call })).is_empty(), "it has its result");
    h.done("weather");
    let late = give(&mut h, "weather", rain());
    assert!(late[0].contains("has its result already"), "{late:?}");
}

#[test]
fn a_call_without_a_result_is_told_so_at_its_deadline() {
    let mut h = offering();
    let call = h.call("weather");
    assert_eq!(
        h.on(Input::Deadline(Deadline::Offer { call })),
        ["append call.answered(weather)", "tell weather its deadline passed"]
    );
    let late = give(&mut h, "weather", rain());
    assert!(late[0].contains("has its result already"), "{late:?}");
}

#[test]
fn after_a_restart_a_call_waits_for_what_is_left_or_has_what_came() {
    let mut h = offering();
    h.clock += WAIT - 1_000;
    h.crash();
    run(&mut h);
    let lines = offer(&mut h);
    let left = lines[0].strip_prefix("arm Offer in ").and_then(|rest| rest.strip_suffix(" ms"));
    assert!(left.unwrap().parse::<u64>().unwrap() <= 1_000, "{lines:?}");
    let offered = h.log.iter().filter(|entry| matches!(entry.record, Record::CallOffered(_)));
    assert_eq!(offered.count(), 1, "it is offered once");

    // A result that comes before the call runs again is not lost.
    let mut h = offering();
    h.crash();
    assert_eq!(give(&mut h, "weather", rain())[0], "append call.answered(weather)");
    run(&mut h);
    assert_eq!(offer(&mut h), ["tell weather it has an output"]);
    let again = give(&mut h, "weather", rain());
    assert!(again[0].contains("has its result already"), "{again:?}");
}

#[test]
fn an_abort_settles_it_and_a_late_result_is_refused() {
    let mut h = offering();
    h.abort();
    let late = give(&mut h, "weather", rain());
    assert!(late[0].contains("has its result already"), "{late:?}");
    let call = h.call("weather");
    h.on(Input::Call(call, CallReport::text(CallOutcome::Cancelled, "cancelled")));
    let late = give(&mut h, "weather", rain());
    assert!(late[0].contains("has its result already"), "{late:?}");
}

#[test]
fn calls_of_other_tools_and_those_not_offered_take_no_result() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["read", "weather"]);
    let native = give(&mut h, "read", rain());
    assert!(native[0].contains("only calls of registered tools take a result"), "{native:?}");
    let early = give(&mut h, "weather", rain());
    assert!(early[0].contains("was not offered yet"), "{early:?}");
    let ticket = h.ticket();
    let nobody = playhouse_protocol::PartId::parse("prt_00000000000012345678901234").unwrap();
    let none = h.on(Input::AnswerCall(ticket, nobody, rain()));
    assert!(none[0].contains("there is no call"), "{none:?}");
}
