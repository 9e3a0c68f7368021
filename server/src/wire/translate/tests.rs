//! The translation against the wire's own description, and against what a real server says.

mod stage;

use std::sync::Arc;

use playhouse_protocol::changes::ChangeKind;
use playhouse_protocol::consent::{ConsentAnswer, Risk, Want};
use playhouse_protocol::event::{ChangeAuthor, ChangedPath, FilesChanged, OpenPartKind, Provisional};
use playhouse_protocol::ledger::Purpose;
use playhouse_protocol::message::{CallInput, CallOutcome, FinishReason, PromptKind};
use playhouse_protocol::question::{
    Question, QuestionAnswer, QuestionAsked, QuestionOption, Todo, TodoPriority, TodoStatus,
};
use playhouse_protocol::record::{AttemptOutcome, StepPart, TurnOutcome};
use playhouse_protocol::{
    ConsentAsked, ErrorCode, ErrorInfo, Event, EventBody, EventId, Record, Seq, Timestamp,
};
use playhouse_session::Session;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::live::Lost;
use super::*;
use crate::wire::schema::{Description, Opencode};
use crate::wire::shapes::{self, Envelope, WireEvent};
use stage::{Stage, kind, value};

fn retry_later() -> ErrorInfo {
    ErrorInfo::new(ErrorCode::RateLimited, "mock asks for less traffic").with_status(429)
}

#[test]
fn a_turn_with_text_is_told_in_the_order_of_the_wire() {
    let mut stage = Stage::new();
    stage.prompt("hello");
    stage.attempt(false);
    let part = stage.stream(OpenPartKind::Text, &["Hello ", "there"]);
    stage.ended(AttemptOutcome::Finished);
    stage.finished(
        vec![StepPart::Text { id: part, text: "Hello there".into(), opaque: None }],
        FinishReason::Stop,
        None,
    );
    stage.end(TurnOutcome::Completed, None);
    assert_eq!(
        stage.told(),
        [
            "message.updated user",
            "message.part.updated text hello",
            "session.updated",
            "session.status busy",
            "message.updated assistant",
            "message.part.updated step-start",
            "message.part.updated text",
            "message.part.delta Hello",
            "message.part.delta there",
            "message.part.updated text Hello there",
            "message.part.updated step-finish stop",
            "message.updated assistant finish",
            "message.updated assistant completed",
            "session.status idle",
            "session.idle",
            "session.updated",
        ]
    );
}

#[test]
fn a_call_is_pending_asked_for_running_and_completed() {
    let mut stage = Stage::new();
    stage.prompt("list");
    stage.told();
    let call = stage.call("bash", json!({"command": "ls"}));
    let consent = stage.ids.next(Timestamp::from_millis(stage.now));
    stage.record(Record::ConsentAsked(ConsentAsked {
        consent,
        call: Some(call),
        tool: "bash".into(),
        risk: Risk::Dangerous,
        reason: "bash asks".into(),
        preview: "ls".into(),
        diff: false,
        wants: vec![
            Want::new("external_directory", "/etc/*", Risk::Dangerous).always(["/etc/*"]),
            Want::new("bash", "ls", Risk::Dangerous).always(["ls *"]),
        ],
        walls: None,
    }));
    let asked = stage.taken().pop().unwrap();
    assert_eq!(
        asked["properties"],
        json!({
            "id": consent, "sessionID": stage.session(), "permission": "bash", "patterns": ["ls"],
            "metadata": {"reason": "bash asks", "command": "ls",
                "alsoWanted": [{"permission": "external_directory", "pattern": "/etc/*"}]},
            "always": ["ls *"], "tool": {"messageID": stage.step, "callID": "call_1"},
        })
    );
    assert_eq!(stage.live.permissions().len(), 1);
    stage.record(Record::ConsentSettled { consent, answer: ConsentAnswer::Once });
    stage.intend(call);
    stage.provisional(Provisional::CallOutput { call, offset: 0, text: "new".into() });
    let outputs = stage.told();
    assert_eq!(
        outputs,
        ["permission.replied once", "message.part.updated tool running", "message.part.updated tool running"]
    );
    stage.settle(call, CallOutcome::Done, json!({"output": "new.txt\n"}));
    assert_eq!(
        stage.told(),
        [
            "message.part.updated tool completed",
            "message.part.updated step-finish tool-calls",
            "message.updated assistant finish",
            "message.updated assistant completed",
        ]
    );
    assert_eq!(stage.live.permissions(), []);
}

#[test]
fn an_edit_shows_its_file_and_its_diff() {
    let mut stage = Stage::new();
    stage.prompt("edit");
    let call = stage.call("write", json!({"filePath": "/srv/demo/sub/a.txt", "content": "hi\n"}));
    let consent = stage.ids.next(Timestamp::from_millis(stage.now));
    stage.told();
    stage.record(Record::ConsentAsked(ConsentAsked {
        consent,
        call: Some(call),
        tool: "write".into(),
        risk: Risk::Dangerous,
        reason: "write asks".into(),
        preview: "--- a.txt\n+++ a.txt\n@@ -0,0 +1,1 @@\n+hi\n".into(),
        diff: true,
        wants: vec![Want::new("edit", "a.txt", Risk::Dangerous).always(["*"])],
        walls: None,
    }));
    let told = stage.taken();
    assert_eq!(
        kind(&told[0]),
        "message.part.updated tool running",
        "dialogs read the arguments of running calls"
    );
    let metadata = &told[1]["properties"]["metadata"];
    assert_eq!(metadata["filepath"], "/srv/demo/sub/a.txt");
    assert!(metadata["diff"].as_str().unwrap().contains("+hi"));
    // Outside of the workspace nothing is looked at before somebody agrees, so there is no diff; where it is, is told.
    let outside = |wants: &[(&str, &str)], preview: &str| ConsentAsked {
        consent,
        call: Some(call),
        tool: "write".into(),
        risk: Risk::Dangerous,
        reason: "write asks".into(),
        preview: preview.into(),
        diff: false,
        wants: wants.iter().map(|(name, subject)| Want::new(*name, *subject, Risk::Dangerous)).collect(),
        walls: None,
    };
    let write = outside(&[("external_directory", "/o/w.txt"), ("edit", "/o/w.txt")], "write 2 bytes");
    let input = CallInput::Object(json!({"filePath": "/o/w.txt"}).as_object().unwrap().clone());
    let shown = super::request::permission(&write, "/srv/demo", stage.session(), None, Some(&input));
    assert_eq!((shown.permission.as_str(), &shown.metadata["filepath"]), ("edit", &json!("/o/w.txt")));
    for (subject, parent) in [("/o/w.txt", "/o"), ("/o/p/*", "/o/p"), ("/*", "/"), ("/w", "/")] {
        let read = outside(&[("external_directory", subject)], "read");
        let shown = super::request::permission(&read, "/srv/demo", stage.session(), None, None);
        assert_eq!(shown.metadata["parentDir"], parent, "{subject}");
    }
    let decline = ConsentAnswer::Decline { message: Some("no".into()) };
    stage.record(Record::ConsentSettled { consent, answer: decline });
    stage.settle(call, CallOutcome::Declined, json!({}));
    let told = stage.told();
    assert_eq!(told[..2], ["permission.replied reject", "message.part.updated tool error"]);
}

#[test]
fn what_an_attempt_streamed_is_withdrawn_when_it_failed() {
    let mut stage = Stage::new();
    stage.prompt("hello");
    stage.attempt(false);
    stage.stream(OpenPartKind::Text, &["Hel"]);
    stage.told();
    stage.ended(AttemptOutcome::Failed { error: retry_later() });
    stage.provisional(Provisional::StepRetry {
        step: stage.step,
        attempt_number: 2,
        attempts: 5,
        at: Timestamp::from_millis(stage.now + 2_000),
        error: retry_later(),
    });
    stage.attempt(true);
    let part = stage.stream(OpenPartKind::Reasoning, &["hm"]);
    assert_eq!(
        stage.told(),
        [
            "message.part.removed",
            "session.status retry",
            "session.status busy",
            "message.part.updated reasoning",
            "message.part.delta hm",
        ]
    );
    // It fails again, for good: what it had said stays.
    stage.ended(AttemptOutcome::Failed { error: retry_later() });
    let parts = vec![StepPart::Reasoning { id: part, text: "hm".into(), opaque: None }];
    stage.finished(parts, FinishReason::Failed, Some(retry_later()));
    stage.end(TurnOutcome::Failed, Some(retry_later()));
    let told = stage.taken();
    let kinds: Vec<String> = told.iter().map(kind).collect();
    assert_eq!(
        kinds,
        [
            "message.part.updated reasoning hm",
            "message.updated assistant completed",
            "session.error APIError",
            "session.status idle",
            "session.idle",
            "session.updated",
        ]
    );
    let data = json!({"message": "mock asks for less traffic", "statusCode": 429, "isRetryable": true});
    assert_eq!(told[1]["properties"]["info"]["error"]["data"], data);
}

#[test]
fn clients_do_not_wait_for_a_session_that_is_parked() {
    let mut stage = Stage::new();
    stage.prompt("hello");
    stage.attempt(false);
    stage.told();
    stage.provisional(Provisional::SessionParked { reason: "it crashed 4 times".into() });
    let told = stage.taken();
    let kinds: Vec<String> = told.iter().map(kind).collect();
    assert_eq!(kinds, ["session.error UnknownError", "session.status idle", "session.idle"]);
    let message = told[0]["properties"]["error"]["data"]["message"].as_str().unwrap();
    assert!(message.contains("parked: it crashed 4 times"), "{message}");
}

#[test]
fn an_abort_ends_the_answer_and_takes_back_the_prompts_that_waited() {
    let mut stage = Stage::new();
    stage.prompt("first");
    let call = stage.call("bash", json!({"command": "sleep 60"}));
    stage.intend(call);
    let first = stage.turn;
    let second = stage.admit("second");
    stage.told();
    stage.settle(call, CallOutcome::Cancelled, json!({}));
    stage.end(TurnOutcome::Aborted, None);
    stage.turn = second;
    stage.end(TurnOutcome::Aborted, None);
    let told = stage.taken();
    let kinds: Vec<String> = told.iter().map(kind).collect();
    assert_eq!(
        kinds,
        [
            "message.part.updated tool error",
            "message.part.updated step-finish tool-calls",
            "message.updated assistant finish",
            "message.updated assistant completed",
            "session.error MessageAbortedError",
            "session.updated",
            "message.removed",
            "session.error MessageAbortedError",
            "session.status idle",
            "session.idle",
            "session.updated",
        ]
    );
    assert_eq!(told[3]["properties"]["info"]["error"]["name"], "MessageAbortedError");
    let messages = stage.messages();
    assert_eq!(messages.len(), 2, "who took a prompt back is not shown it");
    assert_eq!(messages[0].info.id(), first);
}

#[test]
fn notes_that_waited_stay_when_prompts_are_taken_back() {
    let mut stage = Stage::new();
    stage.prompt("first");
    stage.attempt(false);
    stage.ended(AttemptOutcome::Failed { error: retry_later() });
    let second = stage.admit("second");
    let note = stage.admit_as(PromptKind::Note, "kept");
    stage.told();
    stage.end(TurnOutcome::Aborted, None);
    assert_eq!(stage.told()[0], "message.updated assistant completed");
    stage.turn = second;
    stage.end(TurnOutcome::Aborted, None);
    let told = stage.taken();
    assert_eq!(kind(&told[0]), "message.removed");
    assert_eq!(told[0]["properties"]["messageID"], second.as_str());
    let messages = stage.messages();
    assert_eq!(messages.last().map(|message| message.info.id()), Some(note));
    assert_eq!(messages.len(), 3);
    // What comes to an idle session is told, and nothing runs.
    stage.admit_as(PromptKind::Note, "more");
    assert_eq!(stage.told(), ["message.updated user", "message.part.updated text more", "session.updated"]);
}

#[test]
fn a_summary_is_told_as_a_message_of_the_user_and_an_answer() {
    let mut stage = Stage::new();
    stage.prompt("hello");
    stage.end(TurnOutcome::Completed, None);
    stage.taken();
    stage.compact("All is done.");
    let told = stage.taken();
    let types: Vec<&str> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types[..3], ["message.updated", "message.part.updated", "message.updated"]);
    assert_eq!(types[types.len() - 2..], ["session.compacted", "session.updated"]);
    let part = &told[1]["properties"]["part"];
    assert_eq!((part["type"].as_str(), part["auto"].as_bool()), (Some("compaction"), Some(false)));
    let answer = &told[2]["properties"]["info"];
    assert_eq!((answer["summary"].as_bool(), answer["agent"].as_str()), (Some(true), Some("compaction")));
    assert_eq!(answer["parentID"], told[0]["properties"]["info"]["id"]);
    // It reads the same later.
    let messages = stage.messages();
    assert_eq!(messages.len(), 3);
    assert_eq!(serde_json::to_value(&messages[2].info).unwrap(), *answer);
    assert!(
        messages[2]
            .parts
            .iter()
            .any(|part| { matches!(part, shapes::Part::Text { text, .. } if text == "All is done.") })
    );
}

#[test]
fn a_session_is_busy_until_its_summary_is_told_or_failed() {
    let mut stage = Stage::new();
    stage.prompt("hello");
    stage.end(TurnOutcome::Completed, None);
    stage.attempt_for(Purpose::Compaction, false);
    stage.taken();
    stage.ended(AttemptOutcome::Finished);
    assert_eq!(stage.told(), Vec::<String>::new());
    stage.compact("All is done.");
    let told = stage.told();
    let [.., compacted, updated, status, idle] = &told[..] else { panic!("{told:?}") };
    assert_eq!([compacted, updated], ["session.compacted", "session.updated"]);
    assert_eq!([status, idle], ["session.status idle", "session.idle"]);
    stage.attempt_for(Purpose::Compaction, false);
    stage.ended(AttemptOutcome::Failed { error: retry_later() });
    let told = stage.told();
    assert_eq!(told[told.len() - 2..], ["session.status idle", "session.idle"], "{told:?}");
}

#[test]
fn a_command_is_busy_from_its_first_block_to_its_end() {
    let rest = ["session.status idle", "session.idle", "session.updated"];
    let block = |stage: &mut Stage, outcome, metadata: Value| {
        let kind = PromptKind::Block { command: "ls".into(), template: "list".into() };
        stage.turn = stage.admit_as(kind, "");
        let turn = stage.turn;
        stage.record(Record::TurnStarted { turn });
        let call = stage.command("ls");
        stage.intend(call);
        stage.settle(call, outcome, metadata);
        stage.told();
        stage.end(TurnOutcome::Completed, None);
        stage.told()
    };
    let mut stage = Stage::new();
    assert_eq!(block(&mut stage, CallOutcome::Done, json!({})), ["session.updated"]);
    assert!(!stage.live.is_idle() && *stage.live.status() == shapes::Status::Busy);
    stage.prompt("what it becomes");
    stage.told();
    stage.end(TurnOutcome::Completed, None);
    assert_eq!(stage.told(), rest);
    // One that fails ends the command.
    for (outcome, metadata) in
        [(CallOutcome::Failed, json!({})), (CallOutcome::Done, json!({"timedOut": true}))]
    {
        assert_eq!(block(&mut stage, outcome, metadata), rest);
    }
    // Nobody knows why nothing follows: it does not wait for ever.
    assert_eq!(block(&mut stage, CallOutcome::Done, json!({})), ["session.updated"]);
    for (later, told) in [(1_000, &[][..]), (3_000, &rest[..2]), (4_000, &[][..])] {
        let mut out = Vec::new();
        stage.live.tick(Timestamp::from_millis(stage.now + later), &mut out);
        let out: Vec<String> = out.iter().map(|event| kind(&stage::value(event))).collect();
        assert_eq!(out, told, "{later}");
    }
    assert!(!stage.live.waits());
}

#[test]
fn an_abort_between_two_attempts_ends_the_answer_too() {
    let mut stage = Stage::new();
    stage.prompt("hello");
    stage.attempt(false);
    stage.ended(AttemptOutcome::Failed { error: retry_later() });
    stage.told();
    stage.end(TurnOutcome::Aborted, None);
    assert_eq!(stage.told()[0], "message.updated assistant completed");
    let shapes::Message::Assistant(answer) = &stage.messages()[1].info else { panic!("an answer") };
    assert!(answer.time.completed.is_some() && answer.error.is_some());
}

#[test]
fn what_is_told_live_is_what_is_read_later() {
    let mut stage = Stage::new();
    stage.prompt("list");
    let call = stage.call("bash", json!({"command": "ls"}));
    stage.intend(call);
    stage.settle(call, CallOutcome::Done, json!({"output": "x"}));
    stage.attempt(false);
    let part = stage.stream(OpenPartKind::Text, &["done"]);
    stage.ended(AttemptOutcome::Finished);
    stage.finished(
        vec![StepPart::Text { id: part, text: "done".into(), opaque: None }],
        FinishReason::Stop,
        None,
    );
    stage.end(TurnOutcome::Completed, None);
    let told = stage.taken();
    let messages = stage.messages();
    assert_eq!(messages.len(), 3);
    for message in &messages {
        assert!(message.parts.is_sorted_by_key(|part| part.head().id), "parts are sorted by their ids");
        let info = serde_json::to_value(&message.info).unwrap();
        let last = told.iter().rfind(|event| event["properties"]["info"]["id"] == info["id"]).unwrap();
        assert_eq!(last["properties"]["info"], info);
        for part in &message.parts {
            let mut part = serde_json::to_value(part).unwrap();
            let last = told.iter().rfind(|event| event["properties"]["part"]["id"] == part["id"]).unwrap();
            let mut last = last["properties"]["part"].clone();
            if part["type"] == "text" {
                // When a text began is not in the log.
                part["time"].take();
                last["time"].take();
            }
            assert_eq!(last, part);
        }
    }
}

#[test]
fn a_session_that_is_seen_in_the_middle_is_told_as_it_stands() {
    let mut stage = Stage::new();
    stage.prompt("hello");
    stage.attempt(false);
    let part = stage.stream(OpenPartKind::Text, &["Hello "]);
    let session = Session::replay(&stage.log).unwrap();
    let place = Arc::new(Place::new("/srv/demo/sub", "/srv/demo", true, 5));
    let id = stage.session();
    stage.live = Live::new(session, place, "0.1.0".into(), id);
    stage.told.clear();
    let (step, attempt) = (stage.step, stage.attempt);
    let text = "Hello the".to_owned();
    stage.provisional(Provisional::PartSnapshot { step, attempt, part, kind: OpenPartKind::Text, text });
    stage.provisional(Provisional::PartDelta { part, offset: 6, text: "there".into() });
    assert_eq!(stage.told(), ["message.part.updated text Hello the", "message.part.delta re"]);
    let current = stage.live.current().unwrap();
    assert_eq!(serde_json::to_value(current.parts.last().unwrap()).unwrap()["text"], "Hello there");
    stage.live.announce(&mut stage.told);
    assert_eq!(stage.told()[..3], ["session.updated", "session.status busy", "message.updated assistant"]);
    // A record that is missing is noticed.
    let body = EventBody::Durable(Arc::new(Record::TodosChanged { todos: Vec::new() }));
    let seq = Seq(stage.live.head().0 + 2);
    let at = Timestamp::from_millis(stage.now);
    let event = Event { id: EventId::durable(seq), generation: 1, session: id, at, body };
    assert_eq!(stage.live.on(&event, &mut stage.told), Err(Lost));
}

#[test]
fn everything_that_is_told_fits_the_description_of_the_wire() {
    let description = Description::get();
    let mut stage = Stage::new();
    stage.prompt("hello");
    stage.attempt(false);
    stage.stream(OpenPartKind::Text, &["Hel"]);
    stage.ended(AttemptOutcome::Failed { error: retry_later() });
    let (step, attempt) = (stage.step, stage.attempt);
    let at = Timestamp::from_millis(stage.now);
    stage.provisional(Provisional::StepRetry {
        step,
        attempt_number: 2,
        attempts: 5,
        at,
        error: retry_later(),
    });
    stage.attempt(true);
    stage.provisional(Provisional::AttemptWaiting {
        step,
        attempt,
        until: None,
        reason: "mock is busy".into(),
    });
    stage.stream(OpenPartKind::Reasoning, &["hm"]);
    stage.ended(AttemptOutcome::Aborted);
    stage.finished(Vec::new(), FinishReason::Other, None);
    let call = stage.call("write", json!({}));
    let consent = stage.ids.next(Timestamp::from_millis(stage.now));
    stage.record(Record::ConsentAsked(ConsentAsked {
        consent,
        call: Some(call),
        tool: "write".into(),
        risk: Risk::Dangerous,
        reason: "write asks".into(),
        preview: "--- a.txt\n+++ a.txt\n@@ -0,0 +1,1 @@\n+hi\n".into(),
        diff: true,
        wants: vec![Want::new("edit", "a.txt", Risk::Dangerous).always(["*"])],
        walls: None,
    }));
    stage.record(Record::ConsentSettled { consent, answer: ConsentAnswer::Once });
    stage.intend(call);
    stage.settle(call, CallOutcome::Done, json!({}));
    let call = stage.call("question", json!({}));
    stage.intend(call);
    for answer in [QuestionAnswer::Answered { answers: vec![vec!["A".into()]] }, QuestionAnswer::Withdrawn] {
        let question = stage.ids.next(Timestamp::from_millis(stage.now));
        let option = QuestionOption { label: "A".into(), description: "a".into() };
        let asked = Question {
            question: "Pick?".into(),
            header: "Pick".into(),
            options: vec![option],
            multiple: false,
            custom: true,
        };
        stage.record(Record::QuestionAsked(QuestionAsked { question, call, questions: vec![asked] }));
        assert_eq!(stage.live.questions().len(), 1);
        stage.record(Record::QuestionSettled { question, answer });
    }
    stage.provisional(Provisional::CallOutput { call, offset: 0, text: "out".into() });
    let changed = |path: &str, kind| ChangedPath { path: path.into(), kind };
    stage.provisional(Provisional::FileChanged(FilesChanged {
        batch: 1,
        by: ChangeAuthor::Session,
        session: Some(stage.session()),
        files: vec![changed("made", ChangeKind::Added), changed("a\\\\b/é", ChangeKind::Deleted)],
        more: 0,
    }));
    let of_files = stage.told.iter().rev().take(3).rev().map(value);
    let of_files: Vec<Value> = of_files.collect();
    assert_eq!(of_files[0]["type"], "file.edited");
    assert_eq!(of_files[0]["properties"], json!({"file": "/srv/demo/sub/made"}));
    let removed = json!({"file": "/srv/demo/sub/a\\b/é", "event": "unlink"});
    assert_eq!(of_files[2]["properties"], removed);
    stage.record(Record::TodosChanged {
        todos: vec![Todo {
            content: "x".into(),
            status: TodoStatus::InProgress,
            priority: TodoPriority::High,
        }],
    });
    stage.settle(call, CallOutcome::Done, json!({"answers": [["A"]]}));
    let malformed = stage.call("bash", Value::Object(Map::new()));
    stage.settle(malformed, CallOutcome::Failed, json!({}));
    for code in [
        ErrorCode::Authentication,
        ErrorCode::OutputLimit,
        ErrorCode::ContextOverflow,
        ErrorCode::ContentFilter,
        ErrorCode::InvalidOutput,
        ErrorCode::Internal,
    ] {
        stage.attempt(false);
        stage.ended(AttemptOutcome::Finished);
        stage.finished(Vec::new(), FinishReason::Failed, Some(ErrorInfo::new(code, "it failed")));
    }
    let queued = stage.admit("later");
    stage.end(TurnOutcome::Aborted, None);
    stage.turn = queued;
    stage.end(TurnOutcome::Aborted, None);
    stage.compact("All is done.");
    stage.record(Record::Deleted {});
    stage.live.announce(&mut stage.told);
    let info = Box::new(stage.live.info());
    let (session, directory) = (stage.session(), "/srv/demo".to_owned());
    stage.told.extend([
        WireEvent::Connected {},
        WireEvent::Heartbeat {},
        WireEvent::LspUpdated {},
        WireEvent::Disposed { directory },
        WireEvent::SessionCreated { session, info },
        WireEvent::SessionDiff { session, diff: Vec::new() },
    ]);
    let told = stage.taken();
    assert!(told.len() > 60, "{} events", told.len());
    for event in &told {
        description.event(event).unwrap();
    }
    // Whoever reads a type that there is not is told all that there are.
    let none = serde_json::from_value::<WireEvent>(json!({"type": "none", "properties": {}}));
    let all = none.unwrap_err().to_string();
    let unseen: Vec<&str> = all
        .split('`')
        .skip(3)
        .step_by(2)
        .filter(|kind| told.iter().all(|event| event["type"] != **kind))
        .collect();
    assert!(all.contains("session.created") && unseen.is_empty(), "never told here: {unseen:?}");
    for message in stage.messages() {
        let value = serde_json::to_value(&message).unwrap();
        description.component("Message", &value["info"]).unwrap();
        for part in value["parts"].as_array().unwrap() {
            description.component("Part", part).unwrap();
        }
    }
}

/// What a real server says is read into the shapes and written as it was, fields left out that are not built.
#[test]
fn the_shapes_hold_what_a_real_server_says() {
    fn same<T: Serialize + DeserializeOwned>(value: &Value) {
        let shape: T =
            serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"));
        assert_eq!(alike(serde_json::to_value(&shape).unwrap()), alike(value.clone()));
    }
    let server = Opencode::start();
    let events = server.events();
    let session = server.ask("POST", "/session", &json!({"title": "Hello"}));
    let path = format!("/session/{}", session["id"].as_str().unwrap());
    same::<shapes::Session>(&built(session));
    same::<shapes::Session>(&built(server.ask("PATCH", &path, &json!({"title": "Well"}))));
    let prompt = json!({"noReply": true, "parts": [{"type": "text", "text": "Hi."}]});
    server.ask("POST", &format!("{path}/message"), &prompt);
    server.ask("POST", &format!("{path}/shell"), &json!({"agent": "build", "command": "echo one"}));

    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    for event in events {
        let (kind, of) = (event["type"].as_str().unwrap(), &event["properties"]);
        match kind {
            "session.created" | "session.updated" => {
                // The answer to its making has all fields.
                let mut info = of["info"].clone();
                let zero = json!({"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}});
                info.as_object_mut().unwrap().entry("tokens").or_insert(zero);
                info.as_object_mut().unwrap().entry("cost").or_insert(0.into());
                same::<shapes::Session>(&built(info));
            }
            "message.updated" => same::<shapes::Message>(&built(of["info"].clone())),
            "message.part.updated" => same::<shapes::Part>(&built(of["part"].clone())),
            "session.status" => same::<shapes::Status>(&of["status"]),
            "session.idle" => same::<Envelope>(&event),
            _ => continue,
        }
        *seen.entry(kind.to_owned()).or_default() += 1;
        if kind == "session.idle" {
            break;
        }
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
    for message in server.ask("GET", &format!("{path}/message"), &Value::Null).as_array().unwrap() {
        same::<shapes::Message>(&built(message["info"].clone()));
        for part in message["parts"].as_array().unwrap() {
            same::<shapes::Part>(&built(part.clone()));
        }
    }
}

/// The same without what is not built.
fn built(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let running = object.get("status").is_some_and(|status| status == "running");
            let kept = object.into_iter().filter(|(name, _)| match name.as_str() {
                "snapshot" | "summary" | "workspaceID" => false,
                "title" => !running,
                _ => true,
            });
            Value::Object(kept.map(|(name, value)| (name, built(value))).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(built).collect()),
        other => other,
    }
}

/// The same with all numbers alike: 0 is 0.0.
fn alike(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            Value::Object(object.into_iter().map(|(name, value)| (name, alike(value))).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(alike).collect()),
        Value::Number(number) => json!(number.as_f64()),
        other => other,
    }
}
