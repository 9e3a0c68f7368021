//! Change sets of calls, in the log and in what is counted.

use playhouse_protocol::changes::{
    ChangeKind, ChangeSet, ChangeSource, ChangedFile, Coverage, FileBefore, FileContent, FileImage,
};
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::record::Effect;
use playhouse_protocol::{Message, Part, Record, SessionReverted};
use playhouse_session::{CallReport, Changes, Input, Machine, PreparedCall, Session};
use serde_json::json;

use crate::harness::{Harness, prepared};

fn image(size: u64) -> FileImage {
    FileImage { content: FileContent::Lost { sha: "a".repeat(64), size }, mode: 0o100_644 }
}

/// A set that says that these files were made, with so many lines each.
pub(crate) fn made(paths: &[&str], additions: u64) -> ChangeSet {
    let file = |path: &&str| ChangedFile {
        path: (*path).to_owned(),
        kind: ChangeKind::Added,
        before: None,
        after: Some(image(3)),
        additions,
        deletions: 0,
        ambiguous: false,
        among: Vec::new(),
    };
    ChangeSet { changes: paths.iter().map(file).collect(), ..ChangeSet::default() }
}

fn reports(set: ChangeSet) -> CallReport {
    let facts = json!({"filePath": "/repo/a", "additions": 7, "deletions": 7, "diff": "+one\n"});
    CallReport {
        metadata: facts.as_object().cloned().unwrap(),
        changed: Some(Box::new(set)),
        ..CallReport::text(CallOutcome::Done, "done")
    }
}

#[test]
fn a_set_stands_directly_before_the_result_and_counts_in_its_place() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["edit"]);
    h.prepared("edit", Effect::Workspace);
    let call = h.call("edit");
    let root = h.machine.session().summary.workspace.clone();
    let effects = h.on(Input::Call(call, reports(made(&["a", "/etc/b"], 2))));
    assert_eq!(effects[0], "append workspace.changed(edit 2), call.settled(edit done), attempt.started(2.1)");
    let total = h.machine.session().changed();
    assert_eq!((total.files, total.additions, total.deletions), (2, 4, 0), "the result is not counted twice");
    let files = Changes::of(h.machine.session(), None, 1_000).files(&root);
    let files: Vec<_> = files.iter().map(|file| (&*file.path, file.status, file.additions)).collect();
    assert_eq!(files, [("a", "added", 2), ("/etc/b", "added", 2)]);
    h.answer("done", &[]);
    assert_eq!(Session::replay(&h.log).unwrap().changed(), total);
}

#[test]
fn what_comes_after_the_result_stands_alone_also_after_the_turn() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["bash"]);
    h.prepared("bash", Effect::Workspace);
    let call = h.call("bash");
    h.done("bash");
    assert_eq!(h.on(Input::Changed(call, made(&["x"], 1))), ["append workspace.changed(bash 1)"]);
    assert!(h.on(Input::Changed(call, ChangeSet::default())).is_empty(), "it says nothing");
    assert_eq!(h.on(Input::AllTold(call)), ["append workspace.changed(bash 0)"]);
    h.answer("done", &[]);
    assert_eq!(h.on(Input::Changed(call, made(&["y"], 1))), ["append workspace.changed(bash 1)"]);
    let session = Session::replay(&h.log).unwrap();
    assert_eq!(session.changed().files, 2);
    let part = session.call(call).unwrap();
    assert_eq!(part.changed.as_ref().map(|files| files.0.len()), Some(2));
}

#[test]
fn a_call_that_changed_nothing_of_what_it_named_counts_as_no_change() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["write"]);
    let call = h.call("write");
    let before = vec![FileBefore { path: "a".into(), image: Some(image(1)), missing_folders: 0 }];
    let ready = PreparedCall {
        before: before.clone(),
        ..prepared(Effect::Workspace, playhouse_policy::Verdict::Allow)
    };
    h.on(Input::Prepared(call, Ok(ready)));
    let intended = h.log.iter().find_map(|entry| match &entry.record {
        Record::CallIntended(intended) => Some(&intended.before),
        _ => None,
    });
    assert_eq!(intended, Some(&before));
    h.on(Input::Call(call, CallReport { changed: None, ..reports(ChangeSet::default()) }));
    let session = h.machine.session();
    assert_eq!(session.changed().files, 0);
    assert!(Changes::of(session, None, 1_000).is_empty());
}

#[test]
fn what_was_recovered_stands_before_the_result_of_the_call_that_was_cut_off() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["edit", "bash"]);
    h.prepared("edit", Effect::Workspace);
    let (call, other) = (h.call("edit"), h.call("bash"));
    let session = Session::replay(&h.log).unwrap();
    let cut: Vec<_> = session.cut_off_calls().map(|call| call.id).collect();
    assert_eq!(cut, [call], "the other one has not begun");
    let sets = [(call, made(&["a"], 1)), (other, ChangeSet::unknown(ChangeSource::Shell, "crash"))];
    let retry = playhouse_session::RetryPolicy::default();
    h.machine = Machine::new(session, retry).recovered(sets.into());
    let effects = h.on(Input::Resume);
    assert_eq!(effects[0], "append workspace.changed(edit 1), call.settled(edit interrupted)");
    let told = h.machine.session().messages.iter().find_map(|message| match message {
        Message::Assistant(answer) => answer.parts.iter().find_map(|part| match part {
            Part::Call(part) if part.id == call => part.changed.clone(),
            _ => None,
        }),
        Message::User(_) => None,
    });
    assert_eq!(told.unwrap().0.len(), 1);
    assert_eq!(
        ChangeSet::unknown(ChangeSource::Shell, "crash").coverage,
        Coverage::Partial { reason: "crash".into() }
    );
}

#[test]
fn a_revert_that_was_cut_off_keeps_what_it_was_to_write_and_a_redo_ends_with_its_record() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["write"]);
    h.prepared("write", Effect::Workspace);
    h.done("write");
    h.answer("done", &[]);
    let point = h.machine.session().last_prompt().unwrap();
    let record = |under_way, redone, paths: &[&str], failed: &[&str]| SessionReverted {
        to: Some(point.message).filter(|_| redone == 0),
        redone,
        under_way,
        set: made(paths, 1),
        failed: failed.iter().map(|path| (*path).to_owned()).collect(),
        ..SessionReverted::default()
    };
    let mut reverts = |record: SessionReverted| {
        let ticket = h.ticket();
        h.raw(Input::Reverted(ticket, record, Box::default()));
        let session = Session::replay(&h.log).unwrap();
        assert_eq!(session.reverts, h.machine.session().reverts);
        session
            .reverts
            .iter()
            .map(|revert| (revert.seq, revert.under_way, revert.failed.len()))
            .collect::<Vec<_>>()
    };
    let begun = reverts(record(true, 0, &["a", "b"], &["a", "b"]));
    assert_eq!((begun.len(), begun[0].1, begun[0].2), (1, true, 2));
    // The engine was killed when all was written: the same request finds nothing to write.
    assert_eq!(reverts(record(false, 0, &[], &[])), [(begun[0].0, false, 0)]);
    // A redo that is under way takes nothing back from the list yet.
    assert_eq!(reverts(record(true, 1, &["a", "b"], &["a", "b"])).len(), 1);
    assert!(reverts(record(false, 1, &["a", "b"], &[])).is_empty());
    // The usual way: its own record comes in the place of its beginning.
    let begun = reverts(record(true, 0, &["a", "b"], &["a", "b"]));
    let ended = reverts(record(false, 0, &["a"], &["b"]));
    assert_eq!((ended.len(), ended[0].1, ended[0].2, ended[0].0 > begun[0].0), (1, false, 1, true));
}
