//! What came of turns: how much was changed, and a small model's words for it.

use playhouse_protocol::message::{CallOutcome, Changed, Message};
use playhouse_protocol::record::Effect as CallEffect;
use playhouse_session::{CallReport, Changes, Effect, Input};
use serde_json::json;

use crate::harness::*;

/// A call that changes `path`, done.
fn edited(h: &mut Harness, path: &str, additions: u64) -> Vec<String> {
    let call = h.call("edit");
    let facts =
        json!({"filePath": path, "diff": format!("+{path}\n"), "additions": additions, "deletions": 1});
    let metadata = facts.as_object().unwrap().clone();
    h.on(Input::Call(call, CallReport { metadata, ..CallReport::text(CallOutcome::Done, "done") }))
}

/// A prompt whose turn edits this file.
fn turn_that_edits(h: &mut Harness, path: &str, additions: u64) -> Vec<String> {
    h.prompt("Go on.");
    h.answer("", &["edit"]);
    h.prepared("edit", CallEffect::Workspace);
    edited(h, path, additions);
    h.answer("done", &[])
}

#[test]
fn a_turn_that_changed_files_is_summarized_beside_the_next_ones() {
    let mut h = Harness::roomy();
    let ended = turn_that_edits(&mut h, "/repo/a.rs", 3);
    assert_eq!(
        ended,
        [
            "append attempt.ended(finished), step.finished(stop), turn.ended(Go on. completed), attempt.started(summary)",
            "ask for summary",
        ]
    );
    let attempt = *h.asides.last().unwrap();
    assert_eq!(h.machine.session().changed(), Changed { additions: 3, deletions: 1, files: 1 });
    assert_eq!(h.machine.session().summary.changed, h.machine.session().changed());
    // Nothing waits for it, and what comes meanwhile has none.
    h.prompt("Thanks.");
    assert!(!h.answer("You are welcome.", &[]).concat().contains("summary"));
    let report = h.finished("I changed a.rs.", &[], playhouse_protocol::message::FinishReason::Stop);
    assert_eq!(h.on(Input::Attempt(attempt, report)), ["append attempt.ended(finished), turn.summarized"]);
    let said: Vec<Option<&str>> = h
        .machine
        .session()
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::User(prompt) => Some(prompt.summary.as_deref()),
            Message::Assistant(_) => None,
        })
        .collect();
    assert_eq!(said, [Some("I changed a.rs."), None]);
    assert_eq!(playhouse_session::Session::replay(&h.log).unwrap(), *h.machine.session());
}

#[test]
fn a_summary_that_fails_is_asked_for_once_more_and_one_that_is_lost_is_not() {
    let mut h = Harness::roomy();
    turn_that_edits(&mut h, "/repo/a.rs", 3);
    h.fails_once_more("summary");
    turn_that_edits(&mut h, "/repo/a.rs", 0);
    let attempt = *h.asides.last().unwrap();
    let report = h.failed(playhouse_protocol::ErrorCode::Authentication, "");
    assert_eq!(h.on(Input::Attempt(attempt, report)), ["append attempt.ended(failed)"], "that does not pass");
    turn_that_edits(&mut h, "/repo/b.rs", 1);
    assert_eq!(h.crash(), ["append attempt.ended(lost)"]);
    assert!(h.crash().is_empty());
    assert_eq!(h.machine.session().summary.changed, Changed { additions: 4, deletions: 3, files: 2 });
    // A session that is removed waits for none.
    turn_that_edits(&mut h, "/repo/b.rs", 1);
    let ticket = h.ticket();
    assert_eq!(h.on(Input::Delete(ticket)), ["cancel attempt", "arm AbortGrace in 1000 ms"]);
    let removed = h.grace_is_over();
    assert_eq!(removed, ["append attempt.ended(aborted), session.deleted", "kill attempt", "remove"]);
}

#[test]
fn what_is_shown_for_a_summary_is_its_turn() {
    let mut h = Harness::roomy();
    h.prompt("The first one.");
    h.answer("Nothing to do.", &[]);
    h.prompt("Change a.rs.");
    h.answer("I do.", &["edit"]);
    h.prepared("edit", CallEffect::Workspace);
    edited(&mut h, "/repo/a.rs", 3);
    let attempt = *h.attempts.last().unwrap();
    let report = h.finished("It is changed.", &[], playhouse_protocol::message::FinishReason::Stop);
    let effects = h.raw(Input::Attempt(attempt, report));
    let order = effects.iter().find_map(|effect| match effect {
        Effect::StartAside(order) => Some(order),
        _ => None,
    });
    insta::assert_snapshot!(order.expect("a summary is asked for").text);
}

#[test]
fn changes_of_one_file_are_added_up_and_those_that_are_left_out_are_left_out_whole() {
    let mut h = Harness::new();
    h.prompt("Go on.");
    for (path, additions) in [("/repo/a.rs", 3), ("/elsewhere/b", 1), ("/repo/a.rs", 2)] {
        h.answer("", &["edit"]);
        h.prepared("edit", CallEffect::Workspace);
        edited(&mut h, path, additions);
    }
    let session = h.machine.session();
    let files = Changes::of(session, None, 1_000).files("/repo");
    let told: Vec<_> =
        files.iter().map(|file| (file.path.as_str(), file.additions, file.patch.as_str())).collect();
    assert_eq!(told, [("a.rs", 5, "+/repo/a.rs\n+/repo/a.rs\n"), ("/elsewhere/b", 1, "+/elsewhere/b\n")]);
    let few = Changes::of(session, None, 30).files("/repo");
    let patches: Vec<&str> = few.iter().map(|file| file.patch.as_str()).collect();
    assert_eq!(patches, ["", "+/elsewhere/b\n"], "half of a patch would be taken for all of it");
    assert_eq!(session.changed(), Changed { additions: 6, deletions: 3, files: 2 });
}
