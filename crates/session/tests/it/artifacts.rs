//! What capture tools keep: a record directly before the result of the call.

use playhouse_protocol::id::PartId;
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::record::{ArtifactCaptured, Effect};
use playhouse_protocol::{Entry, Record};
use playhouse_session::{CallReport, Input, Session};
use serde_json::json;

use crate::harness::Harness;

/// What `call` captured with the tool `name`.
pub(crate) fn captured(call: PartId, name: &str) -> ArtifactCaptured {
    ArtifactCaptured {
        call,
        name: name.to_owned(),
        value: Some(json!({"title": "short"})),
        blob: None,
        hash: format!("sha256:{}", "a".repeat(64)),
    }
}

#[test]
fn an_artifact_stands_directly_before_the_result_of_its_call() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["save_note"]);
    h.prepared("save_note", Effect::Session);
    let call = h.call("save_note");
    let artifact = Some(Box::new(captured(call, "save_note")));
    let report = CallReport { artifact, ..CallReport::text(CallOutcome::Done, "kept") };
    assert_eq!(
        h.on(Input::Call(call, report.clone()))[0],
        "append artifact.captured(save_note), call.settled(save_note done), attempt.started(2.1)"
    );
    // A report that comes too late keeps nothing.
    h.on(Input::Call(call, report));
    let kept = h.log.iter().filter(|entry| matches!(entry.record, Record::ArtifactCaptured(_)));
    assert_eq!(kept.count(), 1);
    Session::replay(&h.log).unwrap();
}

#[test]
fn a_log_with_an_artifact_of_a_call_that_does_not_run_is_refused() {
    let mut h = Harness::new();
    h.prompt("one");
    h.answer("", &["save_note"]);
    let call = h.call("save_note");
    let entry = |h: &Harness| {
        let last = h.log.last().unwrap();
        Entry { seq: last.seq.next(), at: last.at, record: Record::ArtifactCaptured(captured(call, "x")) }
    };
    let with = |h: &Harness| {
        let mut log = h.log.clone();
        log.push(entry(h));
        Session::replay(&log).map(drop).map_err(|error| error.to_string())
    };
    assert!(with(&h).unwrap_err().contains("does not run"));
    h.prepared("save_note", Effect::Session);
    assert_eq!(with(&h), Ok(()), "a log may be cut behind it");
    h.done("save_note");
    assert!(with(&h).is_err());
}
