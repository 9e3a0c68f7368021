//! What must happen when a call needs people to agree to it.

use playhouse_policy::{Risk, Verdict, Want};
use playhouse_protocol::consent::{ConsentAnswer, ConsentAsked};
use playhouse_protocol::record::{Effect, Entry, Record, SessionChanged, SessionCreated};
use playhouse_protocol::walls::{Strength, WallsAllowed, WallsInForce};
use playhouse_protocol::{ConsentId, WhenBusy};
use playhouse_session::{ConsentAhead, Deadline, Input, Machine, PreparedCall, RetryPolicy, Session, Ticket};

use crate::harness::{Harness, ask, command, prepared};

/// A turn in which `bash` has asked whether it may run `make`, and `read` waits behind it.
fn asking() -> Harness {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["bash", "read"]);
    assert_eq!(
        h.judged("bash", Effect::Workspace, ask(&["make"])),
        ["append consent.asked", "kill bash", "arm Consent in 60000 ms"]
    );
    h
}

fn overdue(h: &mut Harness) -> Vec<String> {
    let consent = *h.consents.last().unwrap();
    h.on(Input::Deadline(Deadline::Consent { consent }))
}

fn cover(h: &mut Harness, by: Option<ConsentId>) -> Vec<String> {
    let consent = *h.consents.last().unwrap();
    h.on(Input::Cover(consent, by))
}

fn decline(message: &str) -> ConsentAnswer {
    ConsentAnswer::Decline { message: Some(message.to_owned()) }
}

/// What is done after a call was refused that another one waited behind.
const NEXT: &str = "prepare read";

#[test]
fn a_request_says_all_that_people_need_and_holds_back_what_follows() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["bash", "read"]);
    let walls = WallsInForce {
        strength: Strength::Full,
        by: "bubblewrap".into(),
        detail: "the workspace can be written".into(),
        network: false,
    };
    let call = h.call("bash");
    let judged = PreparedCall {
        risk: Risk::Moderate,
        preview: "--- a".into(),
        diff: true,
        walls: Some(walls.clone()),
        ..prepared(Effect::Workspace, ask(&["make", "make test"]))
    };
    h.on(Input::Prepared(call, Ok(judged)));
    let asked = ConsentAsked {
        consent: h.consents[0],
        call: Some(call),
        tool: "bash".into(),
        risk: Risk::Moderate,
        reason: "no rule allows it".into(),
        preview: "--- a".into(),
        diff: true,
        wants: vec![command("make"), command("make test")],
        walls: Some(walls),
    };
    assert_eq!(h.machine.session().open_consents(), [asked]);
    assert_eq!(Session::replay(&h.log).unwrap().open_consents().len(), 1);
}

#[test]
fn whoever_agrees_once_is_not_asked_again_about_the_same() {
    let mut h = asking();
    assert_eq!(
        h.consent(ConsentAnswer::Once),
        ["append consent.settled(once)", "reply done", "prepare bash"]
    );
    assert!(h.machine.session().open_consents().is_empty());
    assert_eq!(
        h.judged("bash", Effect::Workspace, ask(&["make"])),
        ["append call.intended(bash)", "execute bash after flush"]
    );
    assert_eq!(h.done("bash"), ["append call.settled(bash done)", NEXT]);
}

#[test]
fn always_is_for_the_machine_what_once_is_and_the_log_says_which() {
    let mut h = asking();
    assert_eq!(
        h.consent(ConsentAnswer::Always),
        ["append consent.settled(always)", "reply done", "prepare bash"]
    );
    // The rule that it made may be withdrawn before the call is judged again: this call was agreed to all the same.
    assert_eq!(h.judged("bash", Effect::Workspace, ask(&["make"]))[1], "execute bash after flush");
}

#[test]
fn a_request_that_other_rules_cover_meanwhile_is_settled_without_an_answer() {
    let mut h = asking();
    let other = h.ids.next(playhouse_protocol::Timestamp::from_millis(h.clock));
    assert_eq!(cover(&mut h, Some(other)), ["append consent.settled(covered)", "prepare bash"]);
    assert!(cover(&mut h, None).is_empty(), "it is settled");
    let late = h.consent(decline("no"));
    assert!(late[0].ends_with(&format!("it was allowed by the \"always\" said to {other}")), "{late:?}");
    assert_eq!(h.prepared("bash", Effect::Workspace)[1], "execute bash after flush");
}

#[test]
fn what_only_people_can_allow_is_neither_covered_nor_allowed_for_always() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["edit"]);
    let outside = Want { in_person: true, ..Want::new("external_directory", "/etc/motd", Risk::Dangerous) };
    let verdict = Verdict::Ask { reason: "it writes outside".into(), wants: vec![command("x"), outside] };
    h.judged("edit", Effect::Workspace, verdict.clone());
    assert!(cover(&mut h, None).is_empty());
    let always = h.consent(ConsentAnswer::Always);
    assert!(
        always[0].starts_with("refuse: this cannot be allowed for always: it writes outside"),
        "{always:?}"
    );
    assert_eq!(h.machine.session().open_consents().len(), 1, "it still waits");
    h.consent(ConsentAnswer::Once);
    assert_eq!(h.judged("edit", Effect::Workspace, verdict)[1], "execute edit after flush");
}

#[test]
fn a_call_that_wants_more_or_shows_something_else_than_was_agreed_to_asks_anew() {
    let agreed = || {
        let mut h = asking();
        h.consent(ConsentAnswer::Once);
        h
    };
    let asked_anew = ["append consent.asked", "kill bash", "arm Consent in 60000 ms"];
    let mut h = agreed();
    assert_eq!(h.judged("bash", Effect::Workspace, ask(&["make", "make install"])), asked_anew);
    // What was agreed to before does not count together with what is agreed to now.
    h.consent(ConsentAnswer::Once);
    assert_eq!(h.judged("bash", Effect::Workspace, ask(&["make"]))[1], "execute bash after flush");

    for other in [
        PreparedCall { preview: "another preview".into(), ..prepared(Effect::Workspace, ask(&["make"])) },
        PreparedCall { diff: true, ..prepared(Effect::Workspace, ask(&["make"])) },
        prepared(
            Effect::Workspace,
            Verdict::Ask {
                reason: "no rule allows it".into(),
                wants: vec![Want { doubt: Some("a variable".into()), ..command("make") }],
            },
        ),
    ] {
        let mut h = agreed();
        let call = h.call("bash");
        assert_eq!(h.on(Input::Prepared(call, Ok(other))), asked_anew);
        assert_eq!(h.consents.len(), 2);
    }

    // What rules allow or deny meanwhile needs nobody to agree.
    assert_eq!(agreed().prepared("bash", Effect::Workspace)[1], "execute bash after flush");
    let deny = Verdict::Deny { reason: "denied by a rule".into() };
    assert_eq!(
        agreed().judged("bash", Effect::Workspace, deny),
        ["append call.settled(bash declined)", "kill bash", NEXT]
    );
}

#[test]
fn a_declined_call_tells_the_model_what_to_do() {
    let mut h = asking();
    assert_eq!(
        h.consent(decline("use ninja")),
        ["append consent.settled(decline), call.settled(bash declined)", "reply done", NEXT]
    );
    assert_eq!(h.output(), "declined: use ninja");
    for answer in [decline(" "), ConsentAnswer::Decline { message: None }] {
        let mut h = asking();
        h.consent(answer);
        assert!(
            h.output().starts_with("declined by the user, without a reason: do not try"),
            "{}",
            h.output()
        );
    }
}

#[test]
fn nobody_answers_in_time() {
    let mut h = asking();
    assert_eq!(overdue(&mut h), ["append consent.settled(timedout), call.settled(bash declined)", NEXT]);
    assert!(h.output().contains("(no rule allows it), and nobody answered in time"), "{}", h.output());
    assert!(overdue(&mut h).is_empty());
    let late = h.consent(ConsentAnswer::Once);
    assert!(late[0].ends_with(" is settled already: nobody answered in time"), "{late:?}");
}

#[test]
fn an_answer_in_time_makes_its_deadline_void() {
    let mut h = asking();
    h.consent(ConsentAnswer::Once);
    assert!(overdue(&mut h).is_empty());
    assert_eq!(h.judged("bash", Effect::Workspace, ask(&["make"]))[1], "execute bash after flush");
    assert!(overdue(&mut h).is_empty(), "the call runs");
}

#[test]
fn in_an_unattended_turn_nobody_is_waited_for() {
    let mut h = Harness::new();
    h.prompt_unattended("one");
    h.prompt("two");
    h.answer("", &["bash", "read"]);
    assert_eq!(
        h.judged("bash", Effect::Workspace, ask(&["make"])),
        ["append consent.asked, consent.settled(unattended), call.settled(bash declined)", "kill bash", NEXT]
    );
    let output = h.output();
    assert!(output.contains("a rule (`[permissions]` in the configuration), or with --yes"), "{output}");
    h.prepared("read", Effect::None);
    h.done("read");
    h.answer("", &["edit"]);
    let outside = Want { in_person: true, ..Want::new("external_directory", "/etc/motd", Risk::Dangerous) };
    h.judged("edit", Effect::Workspace, Verdict::Ask { reason: "r".into(), wants: vec![outside] });
    assert!(h.output().contains("each time, whatever the rules say") && !h.output().contains("--yes"));
    h.answer("", &["edit"]);
    let named = Want { named: true, ..Want::new("external_directory", "/etc/motd", Risk::Dangerous) };
    h.judged("edit", Effect::Workspace, Verdict::Ask { reason: "r".into(), wants: vec![named] });
    assert!(h.output().contains("about this permission by its name") && !h.output().contains("--yes"));
    h.answer("done", &[]);
    // Somebody watches the next turn.
    h.answer("", &["bash"]);
    assert_eq!(h.judged("bash", Effect::Workspace, ask(&["make"]))[2], "arm Consent in 60000 ms");
}

#[test]
fn in_an_unattended_session_every_turn_is() {
    let mut h = Harness::new();
    let Record::SessionCreated(created) = &h.log[0].record else { panic!("it begins") };
    let walls = Some(WallsAllowed { network: true, ..WallsAllowed::default() });
    let created = SessionCreated { unattended: true, walls: walls.clone(), ..created.clone() };
    h.log = vec![Entry { record: Record::SessionCreated(created), ..h.log[0].clone() }];
    h.machine = Machine::new(Session::replay(&h.log).unwrap(), RetryPolicy::default()).asking_wait_ms(60_000);
    assert_eq!(h.machine.session().walls, walls);
    h.prompt("one");
    h.answer("", &["bash"]);
    let lines = h.judged("bash", Effect::Workspace, ask(&["make"]));
    assert!(lines[0].contains("consent.settled(unattended), call.settled(bash declined)"), "{lines:?}");
}

#[test]
fn only_what_people_say_is_an_answer() {
    let mut h = asking();
    for answer in [
        ConsentAnswer::Covered { by: None },
        ConsentAnswer::TimedOut,
        ConsentAnswer::Unattended,
        ConsentAnswer::Withdrawn,
    ] {
        let lines = h.consent(answer);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("refuse: only \"once\", \"always\" and \"decline\""), "{lines:?}");
    }
    assert_eq!(h.machine.session().open_consents().len(), 1);
    let (ticket, unknown) = (h.ticket(), h.ids.next(playhouse_protocol::Timestamp::from_millis(h.clock)));
    let lines = h.on(Input::Answer(ticket, unknown, ConsentAnswer::Once));
    assert_eq!(
        lines,
        [format!("refuse: there is no request for consent {unknown} that waits in this session")]
    );
}

#[test]
fn an_answer_to_a_settled_request_says_by_what_it_was_settled_for_a_long_time() {
    let mut h = Harness::new();
    h.prompt("one");
    for _ in 0..257 {
        h.answer("", &["bash"]);
        h.judged("bash", Effect::Workspace, ask(&["make"]));
        h.consent(decline("no"));
    }
    let (first, second) = (h.consents[0], h.consents[1]);
    let replayed = Session::replay(&h.log).unwrap();
    assert_eq!(&replayed, h.machine.session());
    assert_eq!(replayed.settled_consent(first), None, "256 were settled since");
    assert_eq!(replayed.settled_consent(second), Some(&decline("no")));
    let ticket = h.ticket();
    let lines = h.on(Input::Answer(ticket, second, ConsentAnswer::Once));
    assert_eq!(lines, [format!("refuse: request {second} is settled already: it was declined: no")]);
    assert!(h.on(Input::Answer(ticket, first, ConsentAnswer::Once))[0].contains("there is no request"));
}

#[test]
fn an_abort_withdraws_a_request_at_once() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["read", "bash", "edit"]);
    h.prepared("read", Effect::None);
    h.judged("bash", Effect::Workspace, ask(&["make"]));
    assert_eq!(
        h.abort(),
        [
            "append consent.settled(withdrawn), call.settled(bash cancelled)",
            "cancel read",
            "arm AbortGrace in 1000 ms"
        ],
        "it does not wait for what still runs"
    );
    let late = h.consent(ConsentAnswer::Once);
    assert!(late[0].ends_with(" is settled already: the turn was aborted"), "{late:?}");
    assert!(overdue(&mut h).is_empty() && cover(&mut h, None).is_empty());
    assert_eq!(
        h.done("read")[0],
        "append call.settled(read done), call.settled(edit cancelled), turn.ended(one aborted)"
    );
}

#[test]
fn the_end_of_a_session_and_a_prompt_that_interrupts_withdraw_a_request() {
    let mut h = asking();
    let ticket = h.ticket();
    assert_eq!(
        h.on(Input::Delete(ticket)),
        [
            "append consent.settled(withdrawn), call.settled(bash cancelled), call.settled(read cancelled), \
             turn.ended(one aborted), session.deleted",
            "remove"
        ]
    );
    let late = h.consent(ConsentAnswer::Once);
    assert!(late[0].ends_with(" is settled already: the turn was aborted"), "{late:?}");
    let lines = asking().prompt_with("now", WhenBusy::Interrupt, None);
    assert!(
        lines[0].starts_with("append consent.settled(withdrawn), call.settled(bash cancelled)"),
        "{lines:?}"
    );
}

#[test]
fn a_call_that_is_prepared_when_the_abort_comes_asks_nobody() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["bash"]);
    h.abort();
    let lines = h.judged("bash", Effect::Workspace, ask(&["make"]));
    assert_eq!(lines[0], "append call.settled(bash cancelled), turn.ended(one aborted)");
    assert!(h.consents.is_empty());
}

#[test]
fn after_a_crash_a_request_waits_anew_and_keeps_its_id() {
    let mut h = asking();
    assert_eq!(h.crash(), ["arm Consent in 60000 ms"]);
    assert_eq!(h.machine.session().open_consents()[0].consent, h.consents[0]);
    assert_eq!(h.consent(ConsentAnswer::Once).last().unwrap(), "prepare bash");
    assert_eq!(h.crash(), ["prepare bash"]);
    assert_eq!(
        h.judged("bash", Effect::Workspace, ask(&["make"]))[1],
        "execute bash after flush",
        "what was agreed to is not forgotten"
    );
    let mut h = asking();
    h.crash();
    assert_eq!(overdue(&mut h)[0], "append consent.settled(timedout), call.settled(bash declined)");
}

#[test]
fn a_refusal_that_a_crash_kept_from_its_call_ends_it() {
    for (answer, outcome) in [
        (ConsentAnswer::TimedOut, "declined"),
        (decline("no"), "declined"),
        (ConsentAnswer::Unattended, "declined"),
        (ConsentAnswer::Withdrawn, "cancelled"),
    ] {
        let mut h = asking();
        let last = h.log.last().unwrap().clone();
        let record = Record::ConsentSettled { consent: h.consents[0], answer };
        h.log.push(Entry { seq: last.seq.next(), record, ..last });
        assert_eq!(h.crash(), [format!("append call.settled(bash {outcome})"), NEXT.to_owned()]);
    }
    // The same for a request of an unattended turn, which was never to wait.
    let mut h = Harness::new();
    h.prompt_unattended("one");
    h.answer("", &["bash"]);
    h.judged("bash", Effect::Workspace, ask(&["make"]));
    let asked = h.log.iter().position(|entry| matches!(entry.record, Record::ConsentAsked(_))).unwrap();
    h.log.truncate(asked + 1);
    let lines = h.crash();
    assert!(
        lines[0].starts_with("append consent.settled(unattended), call.settled(bash declined)"),
        "{lines:?}"
    );
}

#[test]
fn a_request_of_an_older_log_is_not_taken_for_an_agreement_to_anything() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["bash"]);
    h.judged("bash", Effect::Workspace, ask(&["make"]));
    for entry in &mut h.log {
        if let Record::ConsentAsked(asked) = &mut entry.record {
            asked.wants.clear();
        }
    }
    h.crash();
    let always = h.consent(ConsentAnswer::Always);
    assert!(always[0].starts_with("refuse: this cannot be allowed for always"), "{always:?}");
    h.consent(ConsentAnswer::Once);
    assert_eq!(h.judged("bash", Effect::Workspace, ask(&["make"]))[0], "append consent.asked");
}

#[test]
fn the_rules_of_a_session_are_in_its_log() {
    use playhouse_policy::Action;
    use playhouse_protocol::PermissionRule;
    let mut h = Harness::new();
    let rule = PermissionRule { permission: "bash".into(), pattern: "*".into(), action: Action::Deny };
    let change = |permissions| SessionChanged { permissions, ..SessionChanged::default() };
    let ticket = h.ticket();
    h.on(Input::Change(ticket, change(Some(vec![rule.clone()]))));
    h.on(Input::Change(ticket, SessionChanged { title: Some("t".into()), ..change(None) }));
    assert_eq!(h.machine.session().permissions, [rule]);
    assert_eq!(&Session::replay(&h.log).unwrap(), h.machine.session());
    h.on(Input::Change(ticket, change(Some(Vec::new()))));
    assert!(h.machine.session().permissions.is_empty());
}

#[test]
fn a_log_in_which_requests_do_not_fit_is_refused() {
    let h = asking();
    let asked = h.log.last().unwrap().clone();
    let with = |record| {
        let mut log = h.log.clone();
        log.push(Entry { seq: asked.seq.next(), record, ..asked.clone() });
        Session::replay(&log).unwrap_err().to_string()
    };
    assert!(with(asked.record.clone()).contains("waits for consent"));
    let mut done = asking();
    done.consent(decline("no"));
    let settled = done.log.iter().find(|entry| matches!(entry.record, Record::CallSettled { .. })).unwrap();
    let error = with(settled.record.clone());
    assert!(error.contains("waits for consent"), "{error}");
    let last = done.log.last().unwrap().clone();
    done.log.push(Entry { seq: last.seq.next(), ..asked });
    assert!(Session::replay(&done.log).unwrap_err().to_string().contains("has its result already"));
}

/// Somebody is asked for something that is about no call.
fn ahead() -> ConsentAhead {
    ConsentAhead {
        tool: "mcp_own".into(),
        reason: "the workspace declares it".into(),
        preview: "python3 server.py".into(),
        want: Want::new("start", "mcp own 1", Risk::Dangerous).always(["mcp own 1"]),
    }
}

#[test]
fn a_request_without_a_call_holds_nothing_back_and_waits_for_an_answer() {
    let mut h = Harness::new();
    assert_eq!(h.on(Input::AskAhead(ahead())), ["append consent.asked"]);
    let consent = h.consents[0];
    h.prompt("one");
    h.answer("done", &[]);
    let again = Session::replay(&h.log).unwrap();
    assert_eq!((again.open_consents().len(), again.open_requests(), again.is_idle()), (1, (0, 0), true));
    assert_eq!(again.open_consents()[0].call, None);
    h.on(Input::Abort(Ticket(8)));
    assert_eq!(h.machine.session().open_consents().len(), 1, "an abort is about turns");
    let done = h.on(Input::Answer(Ticket(9), consent, ConsentAnswer::Once));
    assert_eq!(done, ["append consent.settled(once)", "reply done"]);
    let session = Session::replay(&h.log).unwrap();
    assert!(session.open_consents().is_empty());
    assert_eq!(session.consents_ahead()[0].answer, Some(ConsentAnswer::Once));
    assert_eq!(session.settled_consent(consent), Some(&ConsentAnswer::Once));
    // A second answer is refused.
    let second = h.on(Input::Answer(Ticket(10), consent, ConsentAnswer::Always));
    assert!(!second.iter().any(|done| done.starts_with("append")), "{second:?}");
}

#[test]
fn what_is_allowed_for_always_covers_a_request_without_a_call() {
    let mut h = Harness::new();
    h.on(Input::AskAhead(ahead()));
    cover(&mut h, None);
    let answer = h.machine.session().consents_ahead()[0].answer.clone();
    assert_eq!(answer, Some(ConsentAnswer::Covered { by: None }));
}
