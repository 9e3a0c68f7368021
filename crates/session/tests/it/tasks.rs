//! Work that is handed over: its ids stand in the intent, and stay the same however often the call runs.

use playhouse_protocol::message::{CallOutcome, CallState, Message, Part};
use playhouse_protocol::{Delegate, Delegation, PartId, WhenBusy};
use playhouse_session::{CallReport, Effect, Input};

use crate::harness::{Harness, changed, prepared_task};

const IN_BACKGROUND: Delegation = Delegation { session: None, background: true };

/// A turn whose first answer makes so many calls, each prepared to hand work over.
fn handing_over(h: &mut Harness, tools: &[&str], delegation: Delegation) -> Vec<PartId> {
    h.prompt("go");
    h.answer("", tools);
    let calls: Vec<PartId> = tools.iter().map(|tool| h.call(tool)).collect();
    for call in &calls {
        h.raw(Input::Prepared(*call, Ok(prepared_task(delegation))));
    }
    calls
}

fn delegate(h: &Harness, call: PartId) -> Delegate {
    h.machine.session().delegate(call).expect("it hands work over")
}

fn state(h: &Harness, call: PartId) -> CallState {
    let parts = h.machine.session().messages.iter().flat_map(|message| match message {
        Message::Assistant(message) => message.parts.as_slice(),
        Message::User(_) => &[],
    });
    let mut calls = parts.filter_map(|part| match part {
        Part::Call(part) if part.id == call => Some(part.state.clone()),
        _ => None,
    });
    calls.next_back().expect("there is such a call")
}

#[test]
fn a_call_that_runs_again_after_a_crash_keeps_what_it_had_begun() {
    let mut h = Harness::new();
    let call = handing_over(&mut h, &["task"], Delegation::default())[0];
    let begun = delegate(&h, call);
    assert!(begun.report.is_none());
    assert!(
        matches!(state(&h, call), CallState::Running { session: Some(session), .. } if session == begun.session)
    );
    h.crash();
    let effects = h.raw(Input::Prepared(call, Ok(prepared_task(Delegation::default()))));
    assert!(
        effects.iter().any(|effect| matches!(effect, Effect::Execute { after_flush: true, .. })),
        "its intent is durable before it runs: {effects:?}"
    );
    assert_eq!(delegate(&h, call), begun);
    h.crash();
    h.raw(Input::Prepared(call, Ok(prepared_task(Delegation::default()))));
    assert_eq!(delegate(&h, call), begun);
}

#[test]
fn calls_that_hand_work_over_run_side_by_side_up_to_a_bound() {
    let mut h = Harness::new();
    h.machine = std::mem::replace(&mut h.machine, Harness::new().machine).most_tasks(2);
    let calls = handing_over(&mut h, &["one", "two", "three"], Delegation::default());
    for call in &calls[..2] {
        assert!(matches!(state(&h, *call), CallState::Running { .. }));
    }
    let CallState::Settled(refused) = state(&h, calls[2]) else { panic!("the third is refused") };
    assert_eq!(refused.outcome, CallOutcome::Failed);
    assert!(refused.output.contains("2 tasks of this session are at work"), "{}", refused.output);
}

#[test]
fn work_in_the_background_is_remembered_until_its_end_is_told() {
    let mut h = Harness::new();
    let call = handing_over(&mut h, &["task"], IN_BACKGROUND)[0];
    let begun = delegate(&h, call);
    assert_eq!(h.machine.session().background, [begun]);
    h.raw(Input::Call(call, CallReport::text(CallOutcome::Done, "begun")));
    h.answer("on", &[]);
    assert!(h.machine.session().is_idle());
    assert_eq!(h.machine.session().background, [begun], "the turn is over, the work is not");
    h.crash();
    assert_eq!(h.machine.session().background, [begun]);
    let report = h.new_prompt("it is done", WhenBusy::Steer, None);
    let ticket = h.ticket();
    let prompt = changed(report, |prompt| prompt.message = begun.report.unwrap());
    h.raw(Input::Prompt(ticket, prompt));
    assert!(h.machine.session().background.is_empty());
}

#[test]
fn work_that_could_not_be_begun_is_not_waited_for() {
    let mut h = Harness::new();
    let call = handing_over(&mut h, &["task"], IN_BACKGROUND)[0];
    h.raw(Input::Call(call, CallReport::text(CallOutcome::Failed, "no such agent")));
    assert!(h.machine.session().background.is_empty());
}
