//! What must happen when calls ask people, and when they write the list of things to do.

use playhouse_protocol::Record;
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::question::{Question, Todo, TodoPriority, TodoStatus};
use playhouse_protocol::record::Effect;
use playhouse_session::{CallReport, Deadline, Input, Session};

use crate::harness::{Harness, prepared_question, question};

/// A turn in which the tool `question` has asked.
fn asking() -> Harness {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["question"]);
    run(&mut h);
    assert_eq!(h.ask("question"), ["append question.asked", "arm Question in 60000 ms"]);
    h
}

/// The tool is prepared, and runs.
fn run(h: &mut Harness) {
    let call = h.call("question");
    let lines = h.on(Input::Prepared(call, Ok(prepared_question())));
    assert_eq!(lines, ["append call.intended(question)", "execute question"]);
}

fn yes() -> Option<Vec<Vec<String>>> {
    Some(vec![vec!["yes".to_owned()]])
}

fn todo(content: &str) -> Todo {
    Todo { content: content.to_owned(), status: TodoStatus::Pending, priority: TodoPriority::High }
}

#[test]
fn a_question_waits_for_its_answer_and_is_answered_once() {
    let mut h = asking();
    assert_eq!(h.machine.session().open_questions()[0].questions, [question()]);
    assert_eq!(
        h.reply_to_question(yes()),
        ["append question.settled(yes)", "tell question yes", "reply done"]
    );
    assert!(h.machine.session().open_questions().is_empty());
    let again = h.reply_to_question(None);
    assert!(again[0].ends_with(" is settled already: it was answered"), "{again:?}");
    let question = h.questions[0];
    assert!(h.on(Input::Deadline(Deadline::Question { question })).is_empty(), "it is settled");
    assert_eq!(
        h.done("question"),
        ["append call.settled(question done), attempt.started(2.1)", "start attempt of 2 messages"]
    );
}

#[test]
fn an_answer_that_does_not_fit_is_refused_and_the_question_stays_open() {
    let mut h = asking();
    let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    for (answers, why) in [
        (vec![], "there are 1 questions and 0 answers"),
        (vec![list(&["yes"]), list(&["no"])], "there are 1 questions and 2 answers"),
        (vec![list(&["yes", "no"])], "question 1 takes one answer, and 2 were given"),
        (vec![list(&["maybe"])], "question 1 takes one of its options only (yes, no), not \"maybe\""),
    ] {
        let lines = h.reply_to_question(Some(answers));
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("refuse: ") && lines[0].contains(why), "{lines:?}");
    }
    assert_eq!(
        h.reply_to_question(Some(vec![vec![]]))[0],
        "append question.settled()",
        "one may be left out"
    );
}

#[test]
fn nobody_answers_in_time_or_says_that_they_will_not() {
    let mut h = asking();
    let question = h.questions[0];
    assert_eq!(
        h.on(Input::Deadline(Deadline::Question { question })),
        ["append question.settled(timed out)", "tell question timed out"]
    );
    let mut h = asking();
    assert_eq!(
        h.reply_to_question(None),
        ["append question.settled(rejected)", "tell question rejected", "reply done"]
    );
}

#[test]
fn a_call_that_ends_while_it_asks_withdraws_the_question() {
    let mut h = asking();
    assert_eq!(
        h.done("question")[0],
        "append question.settled(withdrawn), call.settled(question done), attempt.started(2.1)"
    );
    let late = h.reply_to_question(yes());
    assert!(late[0].ends_with(" is settled already: the turn was aborted, or the call ended"), "{late:?}");
}

#[test]
fn an_abort_withdraws_a_question() {
    let mut h = asking();
    assert_eq!(h.abort(), ["cancel question", "arm AbortGrace in 1000 ms"]);
    let late = h.reply_to_question(yes());
    assert!(late[0].starts_with("refuse: ") && late[0].contains("the turn was aborted"), "{late:?}");
    let call = h.call("question");
    assert_eq!(
        h.on(Input::Call(call, CallReport::text(CallOutcome::Cancelled, "cancelled"))),
        [
            "append question.settled(withdrawn), call.settled(question cancelled), turn.ended(one aborted)",
            "reply aborted 1",
        ]
    );
}

#[test]
fn a_question_that_comes_after_the_abort_is_not_asked() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["question"]);
    run(&mut h);
    h.abort();
    assert_eq!(h.ask("question"), ["tell question withdrawn"]);
    h.grace_is_over();
    assert!(h.ask("question").is_empty(), "the call is settled");
}

#[test]
fn after_a_crash_the_open_question_waits_anew_under_its_old_id() {
    let mut h = asking();
    assert_eq!(h.crash(), ["prepare question"]);
    run(&mut h);
    assert_eq!(h.ask("question"), ["arm Question in 60000 ms"], "nothing is asked a second time");
    assert_eq!(
        h.reply_to_question(yes()),
        ["append question.settled(yes)", "tell question yes", "reply done"]
    );
    assert_eq!(h.questions.len(), 1);
}

#[test]
fn an_answer_that_a_crash_kept_from_the_call_is_told_to_the_one_that_runs_again() {
    let mut h = asking();
    h.reply_to_question(yes());
    assert_eq!(h.crash(), ["prepare question"]);
    run(&mut h);
    assert_eq!(h.ask("question"), ["tell question yes"]);

    // The same for one that comes after the crash, before the call runs again.
    let mut h = asking();
    h.crash();
    assert_eq!(h.reply_to_question(yes())[0], "append question.settled(yes)");
    run(&mut h);
    assert_eq!(h.ask("question"), ["tell question yes"]);
}

#[test]
fn a_call_that_asks_something_else_after_an_answer_makes_a_new_request() {
    let mut h = asking();
    h.reply_to_question(yes());
    assert_eq!(h.ask("question"), ["tell question yes"], "the same is asked once");
    let call = h.call("question");
    let other = Question { question: "Other?".into(), ..question() };
    let lines = h.on(Input::Ask(call, vec![other]));
    assert_eq!(lines, ["append question.asked", "arm Question in 60000 ms"]);
    assert_eq!(h.reply_to_question(yes())[0], "append question.settled(yes)");
    assert_eq!(h.questions.len(), 2);
}

#[test]
fn questions_hold_back_calls_with_effects_and_no_others() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["question", "read", "edit"]);
    run_beside(&mut h);
    assert!(h.prepared("edit", Effect::Workspace).is_empty());
    h.done("read");
    h.reply_to_question(yes());
    assert_eq!(
        h.done("question"),
        ["append call.settled(question done), call.intended(edit)", "execute edit after flush"]
    );
}

fn run_beside(h: &mut Harness) {
    let call = h.call("question");
    let lines = h.on(Input::Prepared(call, Ok(prepared_question())));
    assert_eq!(lines, ["append call.intended(question)", "execute question", "prepare read"]);
    h.ask("question");
    assert_eq!(h.prepared("read", Effect::None)[2], "prepare edit");
}

#[test]
fn a_list_of_things_to_do_changes_directly_before_the_result_of_its_call() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["todowrite"]);
    h.prepared("todowrite", Effect::Session);
    let report = |todos| CallReport { todos: Some(todos), ..CallReport::text(CallOutcome::Done, "kept") };
    let call = h.call("todowrite");
    assert_eq!(
        h.on(Input::Call(call, report(vec![todo("look"), todo("fix")])))[0],
        "append todos.changed(2), call.settled(todowrite done), attempt.started(2.1)"
    );
    assert_eq!(h.machine.session().todos, [todo("look"), todo("fix")]);
    assert_eq!(Session::replay(&h.log).unwrap().todos, [todo("look"), todo("fix")]);

    // The whole list is replaced, and a report without one leaves it alone.
    h.answer("", &["todowrite", "read"]);
    h.prepared("todowrite", Effect::Session);
    let call = h.call("todowrite");
    h.on(Input::Call(call, report(vec![todo("rest")])));
    h.prepared("read", Effect::None);
    h.done("read");
    assert_eq!(h.machine.session().todos, [todo("rest")]);
    let changes = h.log.iter().filter(|entry| matches!(entry.record, Record::TodosChanged { .. }));
    assert_eq!(changes.count(), 2);
}

#[test]
fn a_log_with_questions_that_nobody_asked_is_refused() {
    let h = asking();
    let asked = h.log.last().unwrap().clone();
    assert_eq!(asked.record.kind(), "question.asked");
    let mut twice = h.log.clone();
    twice.push(playhouse_protocol::Entry { seq: asked.seq.next(), ..asked.clone() });
    assert!(Session::replay(&twice).unwrap_err().to_string().contains("already"));
    let mut early = h.log[..h.log.len() - 2].to_vec();
    early.push(playhouse_protocol::Entry { seq: early.last().unwrap().seq.next(), ..asked });
    assert!(Session::replay(&early).unwrap_err().to_string().contains("does not run"));
}
