//! What must happen, step by step.

use playhouse_policy::Verdict;
use playhouse_protocol::chat::ChatMessage;
use playhouse_protocol::message::{CallOutcome, FinishReason, Message};
use playhouse_protocol::record::{Effect, Record, StepPart};
use playhouse_protocol::usage::{InnerUsage, Quality};
use playhouse_protocol::{Cost, Entry, ErrorCode, Tokens, WhenBusy};
use playhouse_session::{
    AttemptReport, CallReport, Deadline, Input, Machine, RetryPolicy, Session, SystemMade, chat,
};

use crate::harness::{Harness, model, prepared};

#[test]
fn a_prompt_runs_until_the_model_stops() {
    let mut h = Harness::new();
    assert_eq!(
        h.prompt("fix"),
        [
            "append prompt.admitted, turn.started(fix), attempt.started(1.1)",
            "reply accepted",
            "start attempt of 1 messages",
        ]
    );
    assert_eq!(
        h.answer("let me look", &["read"]),
        ["append attempt.ended(finished), call.proposed(read), step.finished(toolcalls)", "prepare read",]
    );
    assert_eq!(h.prepared("read", Effect::None), ["append call.intended(read)", "execute read"]);
    assert_eq!(
        h.done("read"),
        ["append call.settled(read done), attempt.started(2.1)", "start attempt of 2 messages"]
    );
    assert_eq!(
        h.answer("fixed", &[]),
        ["append attempt.ended(finished), step.finished(stop), turn.ended(fix completed)"]
    );
    let Some(Record::TurnEnded(ended)) = h.log.last().map(|entry| &entry.record) else { panic!("ended") };
    assert_eq!((ended.steps, ended.totals.attempts), (2, 2));
    assert_eq!(ended.totals.cost, Cost("0.00004".parse().unwrap()));
    assert!(h.machine.session().is_idle());
}

#[test]
fn a_step_is_not_adjusted_for_ever() {
    let mut h = Harness::new();
    h.prompt("go");
    for attempt in 1..100 {
        let AttemptReport::Failed(failed) = h.failed(ErrorCode::BadRequest, "") else { panic!("it failed") };
        let attempted = *h.attempts.last().unwrap();
        let failed = playhouse_session::FailedAttempt { adjusted: true, ..failed };
        h.on(Input::Attempt(attempted, AttemptReport::Failed(failed)));
        if h.machine.session().is_idle() {
            assert_eq!(attempt, 11);
            return;
        }
    }
    panic!("the turn never ends");
}

#[test]
fn a_turn_keeps_the_prices_that_it_began_with() {
    let mut h = Harness::new();
    h.prompt("go");
    h.facts.dearer = true;
    h.answer("let me look", &["read"]);
    h.prepared("read", Effect::None);
    h.crash();
    h.done("read");
    h.answer("done", &[]);
    h.prompt("go on");
    let started = h.log.iter().filter_map(|entry| match &entry.record {
        Record::AttemptStarted(started) => Some(started),
        _ => None,
    });
    let priced: Vec<(String, &str)> = started
        .map(|started| (started.prices.input.unwrap().to_string(), started.catalogue.as_deref().unwrap()))
        .collect();
    let (old, new) = (("1".to_owned(), "old"), ("2".to_owned(), "new"));
    assert_eq!(priced, [old.clone(), old, new]);
}

#[test]
fn a_request_is_charged_as_long_by_what_was_reported_and_not_by_what_was_expected() {
    let mut h = Harness::new();
    h.prompt("go");
    let Some(Record::AttemptStarted(started)) = h.log.last().map(|entry| &entry.record) else {
        panic!("an attempt started")
    };
    assert!(started.estimated_input < 200_000);
    assert_eq!(started.long_prices.len(), 1, "the prices of the moment are durable, all of them");
    // Whoever has the session now counts by what was durable.
    let replayed = Session::replay(&h.log).unwrap();
    assert_eq!(&replayed, h.machine.session());
    let AttemptReport::Finished(mut answer) = h.finished("ok", &[], FinishReason::Stop) else {
        panic!("it is finished")
    };
    answer.usage.as_mut().unwrap().tokens.input = 300_000;
    let attempt = h.attempts[0];
    h.on(Input::Attempt(attempt, AttemptReport::Finished(answer)));
    let Some(Record::TurnEnded(ended)) = h.log.last().map(|entry| &entry.record) else { panic!("ended") };
    assert_eq!(ended.totals.cost, Cost("0.60002".parse().unwrap()));
}

#[test]
fn requests_answers_and_calls_with_effects_wait_for_the_flush_and_nothing_else_does() {
    use playhouse_session::Effect as Do;
    let mut h = Harness::new();
    let mut seen = Vec::new();
    let ticket = h.ticket();
    let prompt = h.new_prompt("go", WhenBusy::Queue, None);
    seen.extend(h.raw(Input::Prompt(ticket, prompt)));
    let answer = h.finished("", &["read", "bash"], FinishReason::ToolCalls);
    let attempt = h.attempts[0];
    seen.extend(h.raw(Input::Attempt(attempt, answer)));
    for (tool, effect) in [("read", Effect::None), ("bash", Effect::Workspace)] {
        let call = h.call(tool);
        seen.extend(h.raw(Input::Prepared(call, Ok(prepared(effect, Verdict::Allow)))));
        if tool == "read" {
            seen.extend(h.raw(Input::Call(call, CallReport::text(CallOutcome::Done, "x"))));
        }
    }
    seen.extend(h.raw(Input::Abort(ticket)));
    let (bash, mut waited) = (h.call("bash"), 0);
    for effect in &seen {
        let must = match effect {
            Do::Reply(..) | Do::StartAttempt(_) => true,
            Do::Execute { call, .. } => *call == bash,
            _ => false,
        };
        assert_eq!(effect.waits_for_flush(), must, "{effect:?}");
        waited += u32::from(must);
    }
    assert_eq!(waited, 3, "{seen:?}");
}

#[test]
fn free_calls_run_side_by_side_and_one_with_effects_is_a_barrier() {
    let mut h = Harness::new();
    h.prompt("go");
    h.answer("", &["read", "grep", "edit", "glob"]);
    assert_eq!(
        h.prepared("read", Effect::None),
        ["append call.intended(read)", "execute read", "prepare grep"]
    );
    assert_eq!(
        h.prepared("grep", Effect::None),
        ["append call.intended(grep)", "execute grep", "prepare edit"]
    );
    assert!(h.prepared("edit", Effect::Workspace).is_empty(), "it waits for the two before it");
    assert_eq!(h.done("grep"), ["append call.settled(grep done)"]);
    assert_eq!(
        h.done("read"),
        ["append call.settled(read done), call.intended(edit)", "execute edit after flush"]
    );
    assert_eq!(h.done("edit"), ["append call.settled(edit done)", "prepare glob"]);
    h.prepared("glob", Effect::None);
    assert_eq!(
        h.done("glob"),
        ["append call.settled(glob done), attempt.started(2.1)", "start attempt of 2 messages"]
    );
}

#[test]
fn results_stand_in_the_order_of_the_calls() {
    let mut h = Harness::new();
    h.prompt("go");
    h.answer("", &["read", "grep"]);
    h.prepared("read", Effect::None);
    h.prepared("grep", Effect::None);
    h.done("grep");
    h.done("read");
    let mut messages = Vec::new();
    for message in &h.machine.session().messages {
        chat::translate(message, &model(), &mut messages);
    }
    let ChatMessage::Results { results } = &messages[2] else { panic!("{messages:?}") };
    let names: Vec<&str> = results.iter().map(|result| result.name.as_str()).collect();
    assert_eq!(names, ["read", "grep"]);
}

#[test]
fn at_the_step_limit_nothing_more_may_be_called() {
    let mut h = Harness::new();
    let lines = h.prompt_with("go", WhenBusy::Queue, Some(2));
    assert_eq!(lines[2], "start attempt of 1 messages");
    h.answer("", &["read"]);
    h.prepared("read", Effect::None);
    assert_eq!(h.done("read")[1], "start attempt of 2 messages, last");
    assert_eq!(
        h.answer("I would like to", &["bash"]),
        ["append attempt.ended(finished), call.proposed(bash), step.finished(toolcalls), \
             call.settled(bash declined), turn.ended(go max-steps)"]
    );
}

#[test]
fn a_busy_session_queues_rejects_interrupts_and_is_steered() {
    let mut h = Harness::new();
    h.prompt("one");
    assert_eq!(h.prompt("two"), ["append prompt.admitted", "reply accepted"]);
    assert_eq!(h.prompt_with("three", WhenBusy::Reject, None), ["refuse: session is busy"]);
    assert_eq!(h.prompt_with("aside", WhenBusy::Steer, None), ["append prompt.admitted", "reply accepted"]);
    h.answer("", &["read"]);
    h.prepared("read", Effect::None);
    assert_eq!(
        h.done("read"),
        ["append call.settled(read done), attempt.started(2.1 with aside)", "start attempt of 3 messages"]
    );
    assert_eq!(
        h.answer("done", &[]),
        [
            "append attempt.ended(finished), step.finished(stop), turn.ended(one completed), \
             turn.started(two), attempt.started(1.1)",
            "start attempt of 5 messages",
        ]
    );
    assert_eq!(
        h.prompt_with("now", WhenBusy::Interrupt, None),
        ["append prompt.admitted", "cancel attempt", "arm AbortGrace in 1000 ms", "reply accepted"]
    );
    assert_eq!(
        h.fail(ErrorCode::Internal, "half an ans"),
        [
            "append attempt.ended(aborted), step.finished(aborted), turn.ended(two aborted), \
             turn.started(now), attempt.started(1.1)",
            "start attempt of 7 messages",
        ]
    );
}

#[test]
fn a_steered_prompt_that_comes_with_the_last_answer_is_still_read() {
    let mut h = Harness::new();
    h.prompt("one");
    h.prompt_with("aside", WhenBusy::Steer, None);
    assert_eq!(
        h.answer("all said", &[]),
        [
            "append attempt.ended(finished), step.finished(stop), attempt.started(2.1 with aside)",
            "start attempt of 3 messages",
        ]
    );
    h.answer("and that", &[]);
    assert!(h.machine.session().is_idle());
    assert_eq!(h.machine.session().summary.open_turns, 0);
}

#[test]
fn the_same_prompt_again_is_admitted_once() {
    let mut h = Harness::new();
    let prompt = h.new_prompt("one", WhenBusy::Queue, None);
    let ticket = h.ticket();
    h.on(Input::Prompt(ticket, prompt.clone()));
    assert_eq!(h.on(Input::Prompt(ticket, prompt.clone())), ["reply accepted before"]);
    h.answer("done", &[]);
    assert_eq!(h.on(Input::Prompt(ticket, prompt)), ["reply accepted before"]);
}

#[test]
fn no_more_than_a_hundred_prompts_wait() {
    let mut h = Harness::new();
    for _ in 0..101 {
        assert_eq!(h.prompt("one").iter().filter(|line| *line == "reply accepted").count(), 1);
    }
    assert!(h.prompt("too many")[0].starts_with("refuse: 100 prompts wait"));
    let lines = h.prompt_with("now", WhenBusy::Interrupt, None);
    assert_eq!(lines.last().unwrap(), "reply accepted", "an interrupt clears the queue");
}

#[test]
fn an_abort_settles_everything() {
    let mut h = Harness::new();
    h.prompt("one");
    h.prompt("two");
    h.answer("", &["bash", "edit"]);
    h.prepared("bash", Effect::Workspace);
    assert_eq!(h.abort(), ["cancel bash", "arm AbortGrace in 1000 ms"]);
    h.prompt("three");
    let call = h.call("bash");
    assert_eq!(
        h.on(Input::Call(call, CallReport::text(CallOutcome::Cancelled, "cancelled"))),
        [
            "append call.settled(bash cancelled), call.settled(edit cancelled), turn.ended(one aborted), \
             turn.ended(two aborted), turn.started(three), attempt.started(1.1)",
            "reply aborted 2",
            "start attempt of 4 messages",
        ]
    );
}

#[test]
fn an_abort_of_one_turn_leaves_the_others() {
    let mut h = Harness::new();
    h.prompt("one");
    h.prompt("two");
    h.prompt("three");
    let waiting = |h: &Harness| -> Vec<_> {
        h.machine.session().queue.iter().map(|queued| queued.prompt.message).collect()
    };
    let [two, three] = waiting(&h)[..] else { panic!("two wait") };
    assert_eq!(h.abort_turn(two), ["append turn.ended(two aborted)", "reply aborted 1"]);
    assert_eq!(h.abort_turn(two), ["reply aborted 0"], "it is over");
    // The running turn does not notice.
    let shown: Vec<bool> = h
        .machine
        .session()
        .all_messages()
        .iter()
        .filter_map(|message| match message {
            Message::User(user) => Some(user.withdrawn),
            Message::Assistant(_) => None,
        })
        .collect();
    assert_eq!(shown, [false, true, false]);
    h.answer("", &["bash"]);
    h.prepared("bash", Effect::Workspace);
    let one = h.machine.session().turn.as_ref().unwrap().id;
    assert_eq!(h.abort_turn(one), ["cancel bash", "arm AbortGrace in 1000 ms"]);
    let call = h.call("bash");
    assert_eq!(
        h.on(Input::Call(call, CallReport::text(CallOutcome::Cancelled, "cancelled"))),
        [
            "append call.settled(bash cancelled), turn.ended(one aborted), turn.started(three), attempt.started(1.1)",
            "reply aborted 1",
            "start attempt of 4 messages",
        ]
    );
    assert_eq!(h.machine.session().turn.as_ref().unwrap().id, three);
    h.crash();
}

#[test]
fn an_abort_of_one_turn_and_one_of_all_go_together() {
    let mut h = Harness::new();
    h.prompt("one");
    h.prompt("two");
    let one = h.machine.session().turn.as_ref().unwrap().id;
    assert_eq!(h.abort_turn(one), ["cancel attempt", "arm AbortGrace in 1000 ms"]);
    assert!(h.abort().is_empty());
    let ended = h.fail(ErrorCode::Internal, "");
    assert!(ended[0].ends_with("turn.ended(one aborted), turn.ended(two aborted)"), "{ended:?}");
    assert_eq!(ended[1..], ["reply aborted 1", "reply aborted 2"]);
}

#[test]
fn an_aborted_answer_keeps_its_text_and_is_billed_as_an_estimate() {
    let mut h = Harness::new();
    h.prompt("one");
    assert_eq!(h.abort(), ["cancel attempt", "arm AbortGrace in 1000 ms"]);
    h.fail(ErrorCode::Internal, "half an answer");
    let usage = h.last_ended().usage.clone().unwrap();
    assert_eq!(usage.quality, Quality::Estimated);
    assert_eq!((usage.tokens.input, usage.tokens.output), (101, 4));
    let mut messages = Vec::new();
    for message in &h.machine.session().messages {
        chat::translate(message, &model(), &mut messages);
    }
    assert_eq!(messages.len(), 2, "{messages:?}");
}

#[test]
fn a_failed_answer_is_kept_for_people_and_not_read_by_models() {
    let mut h = Harness::new();
    h.prompt("one");
    h.fail(ErrorCode::BadRequest, "half an answer");
    let session = h.machine.session();
    assert!(session.is_idle());
    let shown = serde_json::to_string(&session.messages).unwrap();
    assert!(shown.contains("half an answer"), "{shown}");
    let mut messages = Vec::new();
    for message in &session.messages {
        chat::translate(message, &model(), &mut messages);
    }
    assert!(matches!(messages.as_slice(), [ChatMessage::User { .. }]), "{messages:?}");
}

#[test]
fn what_does_not_end_when_cancelled_is_killed_and_its_late_report_is_ignored() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["bash"]);
    h.prepared("bash", Effect::Workspace);
    h.abort();
    assert_eq!(
        h.grace_is_over(),
        ["append call.settled(bash cancelled), turn.ended(one aborted)", "kill bash", "reply aborted 1"]
    );
    assert!(h.done("bash").is_empty());
}

#[test]
fn an_abort_of_an_idle_session_is_answered() {
    let mut h = Harness::new();
    assert_eq!(h.abort(), ["reply aborted 0"]);
}

#[test]
fn a_failed_attempt_is_made_again_and_then_given_up() {
    let mut h = Harness::new();
    h.prompt("one");
    assert_eq!(h.fail(ErrorCode::StreamCut, "half"), ["append attempt.ended(failed)", "attempt 2 in 100 ms"]);
    let step = h.machine.session().turn.as_ref().unwrap().step.as_ref().unwrap().id;
    assert_eq!(
        h.on(Input::Deadline(Deadline::Retry { step })),
        ["append attempt.started(1.2)", "start attempt of 1 messages"]
    );
    assert_eq!(h.fail(ErrorCode::StreamCut, "half")[1], "attempt 3 in 200 ms");
    h.on(Input::Deadline(Deadline::Retry { step }));
    assert_eq!(
        h.fail(ErrorCode::StreamCut, "half"),
        ["append attempt.ended(failed), step.finished(failed), turn.ended(one failed)"]
    );
    let Some(Record::TurnEnded(ended)) = h.log.last().map(|entry| &entry.record) else { panic!("ended") };
    assert_eq!(ended.error.as_ref().map(|error| error.code), Some(ErrorCode::StreamCut));
    assert_eq!(ended.totals.attempts, 3, "each attempt is billed");
}

/// An answer that cannot be decoded is the same the next time; other failures before it do not count.
#[test]
fn an_answer_that_cannot_be_decoded_is_asked_for_once_more() {
    for before in [None, Some(ErrorCode::RateLimited)] {
        let mut h = Harness::new();
        h.prompt("one");
        let step = h.machine.session().turn.as_ref().unwrap().step.as_ref().unwrap().id;
        let again = |h: &mut Harness| h.on(Input::Deadline(Deadline::Retry { step }));
        if let Some(code) = before {
            h.fail(code, "");
            again(&mut h);
        }
        let second = h.fail(ErrorCode::BadAnswer, "half");
        assert!(second[1].starts_with("attempt "), "{second:?}");
        again(&mut h);
        assert_eq!(
            h.fail(ErrorCode::BadAnswer, "half"),
            ["append attempt.ended(failed), step.finished(failed), turn.ended(one failed)"]
        );
    }
}

#[test]
fn an_answer_of_reasoning_only_is_asked_for_once_more_and_then_shown() {
    for (crashes, attempts) in [(false, 3), (true, 3), (false, 1)] {
        let mut h = Harness::new();
        let policy = RetryPolicy { attempts, base_ms: 100, longest_ms: 1_000, total_ms: 10_000 };
        h.machine = Machine::new(Session::replay(&h.log).unwrap(), policy);
        h.prompt("one");
        let step = h.machine.session().turn.as_ref().unwrap().step.as_ref().unwrap().id;
        let think = |h: &mut Harness| {
            let AttemptReport::Finished(mut answer) = h.finished(" ", &[], FinishReason::Stop) else {
                panic!("it is finished")
            };
            let StepPart::Text { id, .. } = answer.parts[0] else { panic!("a text") };
            answer.parts.insert(0, StepPart::Reasoning { id, text: "hm".into(), opaque: None });
            let attempt = *h.attempts.last().unwrap();
            h.on(Input::Attempt(attempt, AttemptReport::Finished(answer)))
        };
        if attempts > 1 {
            assert_eq!(think(&mut h), ["append attempt.ended(failed)", "attempt 2 in 100 ms"]);
            if crashes {
                h.crash();
            } else {
                h.on(Input::Deadline(Deadline::Retry { step }));
            }
        }
        assert_eq!(
            think(&mut h),
            ["append attempt.ended(finished), step.finished(stop), turn.ended(one completed)"]
        );
        let Some(Message::Assistant(message)) = h.machine.session().messages.last() else {
            panic!("an answer")
        };
        let note = message.error.as_ref().unwrap();
        assert_eq!(note.code, ErrorCode::EmptyAnswer);
        assert!(note.message.contains("only its reasoning"), "{note}");
        let Some(Record::TurnEnded(ended)) = h.log.last().map(|entry| &entry.record) else { panic!("ended") };
        assert_eq!((&ended.error, ended.totals.attempts), (&None, u64::from(attempts.min(2))));
        assert_eq!(h.last_ended().usage.as_ref().unwrap().quality, Quality::Reported);
    }
}

#[test]
fn an_abort_between_two_attempts_ends_the_turn() {
    let mut h = Harness::new();
    h.prompt("one");
    h.fail(ErrorCode::StreamCut, "");
    let step = h.machine.session().turn.as_ref().unwrap().step.as_ref().unwrap().id;
    assert_eq!(h.abort(), ["append turn.ended(one aborted)", "reply aborted 1"]);
    assert!(h.on(Input::Deadline(Deadline::Retry { step })).is_empty());
}

#[test]
fn an_answer_that_was_cut_at_the_output_limit_runs_no_calls() {
    let mut h = Harness::new();
    h.prompt("one");
    let report = h.finished("a long", &["bash"], FinishReason::Length);
    let attempt = *h.attempts.last().unwrap();
    assert_eq!(
        h.on(Input::Attempt(attempt, report)),
        ["append attempt.ended(finished), call.proposed(bash), step.finished(length), \
             call.settled(bash declined), turn.ended(one failed)"]
    );
}

#[test]
fn after_a_crash_the_step_is_made_again_and_the_lost_attempt_is_billed() {
    let mut h = Harness::new();
    h.prompt("one");
    assert_eq!(
        h.crash(),
        ["append attempt.ended(lost), attempt.started(1.2)", "start attempt of 1 messages"]
    );
    h.answer("done", &[]);
    let Some(Record::TurnEnded(ended)) = h.log.last().map(|entry| &entry.record) else { panic!("ended") };
    assert_eq!((ended.totals.attempts, ended.totals.estimated), (2, 1));
}

#[test]
fn after_a_crash_a_call_without_effects_runs_again_and_one_with_effects_does_not() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["read"]);
    h.prepared("read", Effect::None);
    assert_eq!(h.crash(), ["prepare read"]);
    h.prepared("read", Effect::None);
    h.done("read");
    h.answer("", &["bash", "read"]);
    h.prepared("bash", Effect::Workspace);
    assert_eq!(h.crash(), ["append call.settled(bash interrupted)", "prepare read"]);
}

#[test]
fn a_session_is_removed_after_its_turn_is_aborted() {
    let mut h = Harness::new();
    h.prompt("one");
    let ticket = h.ticket();
    assert_eq!(h.on(Input::Delete(ticket)), ["cancel attempt", "arm AbortGrace in 1000 ms"]);
    assert!(h.prompt("two")[0].starts_with("refuse: there is no session"));
    assert_eq!(
        h.fail(ErrorCode::Internal, ""),
        [
            "append attempt.ended(aborted), step.finished(aborted), turn.ended(one aborted), session.deleted",
            "remove",
        ]
    );
}

#[test]
fn what_a_model_thought_and_what_came_with_its_parts_goes_back_to_that_model_only() {
    let mut h = Harness::new();
    h.prompt("one");
    let answer = h.finished("said", &["read"], FinishReason::ToolCalls);
    let AttemptReport::Finished(mut answer) = answer else { panic!() };
    for part in &mut answer.parts {
        let (StepPart::Text { opaque, .. } | StepPart::Call { opaque, .. }) = part else { continue };
        *opaque = Some(serde_json::json!({"phase": "commentary"}));
    }
    let id = h.ids.next(playhouse_protocol::Timestamp::from_millis(h.clock));
    let opaque = Some(serde_json::json!({"signature": "s"}));
    answer.parts.insert(0, StepPart::Reasoning { id, text: "hm".into(), opaque });
    let attempt = *h.attempts.last().unwrap();
    h.on(Input::Attempt(attempt, AttemptReport::Finished(answer)));
    let read_by = |reader: &playhouse_protocol::ModelRef| {
        let mut messages = Vec::new();
        for message in &h.machine.session().messages {
            chat::translate(message, reader, &mut messages);
        }
        format!("{messages:?}")
    };
    let own = read_by(&model());
    assert!(own.contains("signature") && own.matches("commentary").count() == 2, "{own}");
    let other = read_by(&playhouse_protocol::ModelRef::new("mock", "other"));
    assert!(other.contains("said") && !other.contains("\"hm\"") && !other.contains("commentary"), "{other}");
}

#[test]
fn a_withdrawn_prompt_is_not_shown_to_the_model() {
    let mut h = Harness::new();
    h.prompt("one");
    h.prompt("withdrawn");
    h.abort();
    h.fail(ErrorCode::Internal, "half");
    let mut messages = Vec::new();
    for message in &h.machine.session().messages {
        chat::translate(message, &model(), &mut messages);
    }
    assert_eq!(h.machine.session().messages.len(), 3);
    assert!(!format!("{messages:?}").contains("withdrawn"), "{messages:?}");
}

#[test]
fn a_system_prompt_is_settled_once_for_each_agent_and_model() {
    let mut h = Harness::new();
    let made = |agent: &str, text: &str| {
        let (agent, text) = (agent.to_owned(), Some(text.to_owned()));
        Input::SystemMade(SystemMade {
            agent,
            model: model(),
            text,
            tools: None,
            instructions: None,
            bytes: 400,
        })
    };
    h.prompt("fix");
    assert_eq!(h.on(made("build", "first")), ["append system.settled"]);
    let at = h.machine.session().system_at("build", &model());
    assert_eq!(at, h.log.last().map(|entry| entry.seq));
    assert!(h.on(made("build", "second")).is_empty());
    assert_eq!(h.on(made("plan", "third")), ["append system.settled"]);
    h.answer("fixed", &[]);
    h.crash();
    assert_eq!(h.machine.session().system_at("build", &model()), at);
    let again = h.log.iter().filter(|entry| matches!(entry.record, Record::SystemSettled(_))).count();
    assert_eq!(again, 2);
    // A log in which it is settled twice is damaged.
    let mut log = h.log.clone();
    let last = log.last().unwrap().clone();
    let record = log.iter().find(|entry| Some(entry.seq) == at).unwrap().record.clone();
    log.push(Entry { seq: last.seq.next(), record, ..last });
    assert!(Session::replay(&log).unwrap_err().reason.contains("is settled in record"));
}

#[test]
fn calls_inside_of_an_answer_are_charged_at_their_models() {
    let mut h = Harness::new();
    h.prompt("go");
    let AttemptReport::Finished(mut answer) = h.finished("ok", &[], FinishReason::Stop) else {
        panic!("it is finished")
    };
    let tokens = |input| Tokens { input, ..Tokens::default() };
    let call =
        |model: &str, input| InnerUsage { model: model.to_owned(), tokens: tokens(input), answers: false };
    let own = crate::harness::model();
    let usage = answer.usage.as_mut().unwrap();
    usage.tokens = Tokens { cache_read: 1_000_000, ..tokens(2_000_000) };
    // One of the model that was asked is part of its row.
    usage.inner = vec![call("advisor", 250_000), call(&own.model, 1_000_000)];
    let attempt = h.attempts[0];
    h.on(Input::Attempt(attempt, AttemptReport::Finished(answer)));
    let ended = h.last_ended();
    assert_eq!(ended.usage.as_ref().unwrap().tokens.input, 3_000_000);
    // Both are long requests: input costs 2, and a hit without a price what input costs. Its output is estimated.
    assert_eq!(
        (ended.cost.unwrap().0.normalize().to_string(), &ended.assumed[..]),
        ("8.000004".to_owned(), &["cache_read".to_owned()][..])
    );
    let [inner] = &ended.inner[..] else { panic!("{ended:?}") };
    assert_eq!((&inner.model.provider, &*inner.model.model), (&own.provider, "advisor"));
    assert_eq!(
        (inner.usage.tokens, inner.cost.unwrap().0.normalize().to_string()),
        (tokens(250_000), "0.5".to_owned())
    );
    let attempts: u64 = h.machine.session().summary.usage.values().map(|totals| totals.attempts).sum();
    assert_eq!(attempts, 2, "each is a row");
    assert_eq!(&Session::replay(&h.log).unwrap(), h.machine.session());
}

#[test]
fn each_call_of_a_model_is_priced_by_its_own_size() {
    let mut h = Harness::new();
    h.prompt("go");
    let AttemptReport::Finished(mut answer) = h.finished("It is so.", &[], FinishReason::Stop) else {
        panic!("it is finished")
    };
    let tokens = |input| Tokens { input, ..Tokens::default() };
    let usage = answer.usage.as_mut().unwrap();
    // One call alone is long. The answer has no count of its output, which the other call does not hide.
    usage.tokens = tokens(100_000);
    usage.inner =
        vec![InnerUsage { tokens: Tokens { output: 1_000, ..tokens(400_000) }, ..InnerUsage::default() }];
    let attempt = h.attempts[0];
    h.on(Input::Attempt(attempt, AttemptReport::Finished(answer)));
    let ended = h.last_ended();
    let used = ended.usage.as_ref().unwrap();
    assert_eq!((used.tokens.input, used.tokens.output, used.quality), (500_000, 1_003, Quality::Estimated));
    assert!(ended.inner.is_empty(), "it is one row");
    assert_eq!(ended.cost.unwrap().0.normalize().to_string(), "0.904006");
    let short = Tokens { output: 3, ..tokens(100_000) };
    assert_eq!(ended.calls, [short, Tokens { output: 1_000, ..tokens(400_000) }]);
    let costs = ended.costs.as_ref().unwrap();
    assert_eq!(costs.input.unwrap().0 + costs.output.unwrap().0, ended.cost.unwrap().0);
}

#[test]
fn an_attempt_keeps_the_time_of_a_clock_that_was_put_right() {
    let mut h = Harness::new();
    h.prompt("go");
    h.clock -= 400;
    let clock = h.clock;
    h.answer("done", &[]);
    let ended = h.last_ended().ended.expect("its entry has a later time");
    assert!(ended.as_millis() >= clock, "{ended:?}");
    assert!(h.log.windows(2).all(|pair| pair[0].at <= pair[1].at));
    h.clock += 10_000;
    h.prompt("go on");
    h.answer("done", &[]);
    assert_eq!(h.last_ended().ended, None, "it is the time of the entry");
}
