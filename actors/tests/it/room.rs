//! Long sessions with a small window: room is made, and they go on.

use std::sync::Arc;

use bytes::Bytes;
use mock_llm::{Entry, Fault, Model, Rejection, Script, call, text};
use playhouse_protocol::ledger::{Purpose, RowQuery};
use playhouse_protocol::message::{CompactionKind, Message};
use playhouse_protocol::record::{AttemptOutcome, TurnOutcome};
use playhouse_protocol::{CommandError, ErrorCode, Prompt, Record};
use playhouse_store::Store;
use serde_json::{Value, json};

use crate::support::{Stage, until};

/// What a summary begins with.
const SUMMARY: &str = "<summary-of-the-conversation-so-far>";
/// Room of a model for a request, in tokens: a first request takes about a fifth of it.
pub(crate) const ROOM: u64 = 18_600;

/// A model that makes ten calls with large outputs for every prompt, however many there were.
pub(crate) fn walker() -> Script {
    let step = |number: u32| {
        text(format!("Now number {number}.")).call("probe", json!({"mode": format!("free-large {number}")}))
    };
    let model = (0..10).fold(Model::new(), |model, number| model.step(step(number)));
    let summary = "## Goal\nTo look at everything.\n\n## State\nAll that was looked at is fine.";
    Script::new()
        .model("m", model.step(text("That is all.")).cycle())
        .model("summarizer", Model::new().step(text(summary)).cycle())
}

fn without_marks(body: &Bytes) -> String {
    String::from_utf8_lossy(body).replace(r#","cache_control":{"type":"ephemeral"}"#, "")
}

/// The bodies of the requests of the model `m`.
fn bodies(entries: &[Entry]) -> Vec<String> {
    let of_model = entries.iter().filter(|entry| entry.model.as_deref() == Some("m"));
    of_model.map(|entry| without_marks(entry.body.as_ref().expect("bodies are kept"))).collect()
}

fn common(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: scripts/slow runs it"]
async fn two_hundred_steps_with_large_outputs_end_well_in_a_small_window() {
    let stage = Stage::new(walker()).await;
    *stage.directory.room.lock().unwrap() = Some(ROOM);
    let session = stage.session("m").await;
    for _ in 0..20 {
        let ended = session.run(Prompt::text("Look at the next ten.")).await.unwrap().ended;
        assert_eq!(ended.outcome, TurnOutcome::Completed, "{:?}", ended.error);
    }
    let records = stage.records(&session).await;
    let count = |is_it: &dyn Fn(&Record) -> bool| records.iter().filter(|record| is_it(record)).count();
    let steps = count(&|record| matches!(record, Record::StepFinished(_)));
    assert!(steps >= 200, "{steps}");
    let compactions = count(&|record| matches!(record, Record::ContextCompacted(_)));
    assert!((1..=6).contains(&compactions), "{compactions} compactions");
    let summaries = count(
        &|record| matches!(record, Record::ContextCompacted(compacted) if compacted.how == CompactionKind::Summary),
    );
    assert_eq!(summaries, compactions);
    let cleared = count(&|record| matches!(record, Record::ContextCleared(_)));
    assert!((1..=20).contains(&cleared), "outputs were cleared {cleared} times");

    // No request was larger than the room, and most of each is what the last one was.
    let entries = stage.directory.mock.journal().entries();
    let bodies = bodies(&entries);
    assert!(bodies.iter().all(|body| body.len() as u64 / 4 <= ROOM));
    let (mut same, mut all) = (0, 0);
    for pair in bodies.windows(2) {
        same += common(&pair[0], &pair[1]);
        all += pair[0].len();
    }
    assert!(same * 100 > all * 95, "{same} of {all} bytes were sent again as they were");

    // Each summary is in the ledger, and what people see is all that was said.
    let query = RowQuery { session: Some(session.id()), limit: 1_000, ..RowQuery::default() };
    let rows = stage.engine.rows(query).await.unwrap().rows;
    let of = |purpose| rows.iter().filter(|row| row.purpose == purpose).count();
    assert_eq!((of(Purpose::Turn), of(Purpose::Compaction)), (steps, compactions));
    let messages = session.snapshot().await.unwrap().messages;
    assert_eq!(messages.len(), steps + 20 + compactions);
    let told =
        messages.iter().filter(|message| matches!(message, Message::User(user) if user.kind.is_compaction()));
    assert_eq!(told.count(), compactions);
    stage.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_comes_back_reads_what_it_read_before() {
    let (store, folder) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let stage = Stage::on(store.clone(), Arc::clone(&folder), walker(), 1 << 20).await;
    *stage.directory.room.lock().unwrap() = Some(ROOM);
    let session = stage.session("m").await;
    for _ in 0..8 {
        session.run(Prompt::text("Look at the next ten.")).await.unwrap();
    }
    let id = session.id();
    let before = bodies(&stage.directory.mock.journal().entries()).pop().unwrap();
    stage.engine.shutdown().await;

    let stage = Stage::on(store, folder, walker(), 1 << 20).await;
    *stage.directory.room.lock().unwrap() = Some(ROOM);
    let session = stage.engine.session(id).await.unwrap();
    session.run(Prompt::text("And once more.")).await.unwrap();
    let after = bodies(&stage.directory.mock.journal().entries()).remove(0);
    let same = common(&before, &after);
    assert!(same > before.len() - 200, "{same} of {} bytes", before.len());
    stage.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_a_provider_finds_too_long_is_made_again_with_less() {
    let step = |number: u32| call("probe", json!({"mode": format!("free-large {number}")}));
    let model = (0..6).fold(Model::new(), |model, number| model.step(step(number)));
    // The same request meets it once; with less in it, it is another one.
    let refused = text("Done.").fault(Fault::Rejected(Rejection::ContextOverflow)).fail_first(1);
    let stage = Stage::new(Script::new().model("m", model.step(refused))).await;
    let session = stage.session("m").await;
    let ended = session.run(Prompt::text("Look.")).await.unwrap().ended;
    let records = stage.records(&session).await;
    let overflows = records.iter().filter(|record| {
        matches!(record, Record::AttemptEnded(ended) if matches!(&ended.outcome, AttemptOutcome::Failed { .. }))
    });
    let (overflows, made) = (
        overflows.count(),
        records
            .iter()
            .filter(|record| matches!(record, Record::ContextCleared(_) | Record::ContextCompacted(_)))
            .count(),
    );
    // Each of them is new to the mock, which refuses it once: so room is made as often as it may be.
    assert!(overflows >= 2 && made >= 2, "{overflows} {made} {:?}", ended.error);
    stage.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_fails_for_a_moment_costs_nothing_of_a_conversation() {
    let summary = text("## Goal\nTo look.").fault(Fault::Rejected(Rejection::Overloaded)).fail_first(1);
    let stage = Stage::new(walker().model("summarizer", Model::new().step(summary).cycle())).await;
    *stage.directory.room.lock().unwrap() = Some(ROOM);
    let session = stage.session("m").await;
    for _ in 0..8 {
        session.run(Prompt::text("Look at the next ten.")).await.unwrap();
    }
    let records = stage.records(&session).await;
    let compacted: Vec<CompactionKind> = records
        .iter()
        .filter_map(|record| match record {
            Record::ContextCompacted(compacted) => Some(compacted.how),
            _ => None,
        })
        .collect();
    assert!(
        !compacted.is_empty() && compacted.iter().all(|how| *how == CompactionKind::Summary),
        "{compacted:?}"
    );
    let failed = records.iter().filter(|record| {
        matches!(record, Record::AttemptEnded(ended) if matches!(ended.outcome, AttemptOutcome::Failed { .. }))
    });
    assert!(failed.count() >= compacted.len(), "each was refused once");
    stage.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_system_prompt_that_has_no_room_is_not_sent() {
    let stage = Stage::new(walker()).await;
    *stage.directory.room.lock().unwrap() = Some(ROOM);
    // The first guess knows nothing of it.
    *stage.directory.system.lock().unwrap() = "r".repeat(120_000);
    let session = stage.session("m").await;
    for _ in 0..2 {
        let ended = session.run(Prompt::text("Look.")).await.unwrap().ended;
        let error = ended.error.unwrap();
        assert_eq!((ended.outcome, error.code), (TurnOutcome::Failed, ErrorCode::PromptTooLong));
        let (_, rest) =
            error.message.split_once("and the tools alone are about ").expect("it names the size");
        let (size, rest) = rest.split_once(" tokens, and there is room for 18600: ").expect("and the room");
        // The tools come on top.
        assert!((30_000..45_000).contains(&size.parse::<u64>().unwrap()), "{size} {rest}");
    }
    assert!(stage.directory.mock.journal().entries().is_empty(), "nothing was sent");
    stage.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_may_ask_for_a_summary_between_turns() {
    let stage = Stage::new(walker()).await;
    let session = stage.session("m").await;
    let nothing = session.compact(None).await;
    assert!(matches!(nothing, Err(CommandError::Invalid(_))), "{nothing:?}");
    *stage.directory.room.lock().unwrap() = Some(ROOM);
    session.run(Prompt::text("Look.")).await.unwrap();
    let mut events = session.events(None).await.unwrap();
    session.compact(None).await.unwrap();
    let compacted = until(&mut events, |record| matches!(record, Record::ContextCompacted(_))).await;
    let Record::ContextCompacted(compacted) = compacted else { unreachable!() };
    assert!(compacted.by_hand && compacted.after + 3_000 < compacted.before, "{compacted:?}");
    session.run(Prompt::text("More.")).await.unwrap();
    let entries = stage.directory.mock.journal().entries();
    let summarized = entries.iter().find(|entry| entry.model.as_deref() == Some("summarizer")).unwrap();
    let asked = without_marks(summarized.body.as_ref().unwrap());
    assert!(asked.contains("Write down what matters.") && asked.contains("free-large 7"), "{asked}");
    let next = bodies(&entries)[11].clone();
    assert!(
        next.contains("<summary-of-the-conversation-so-far>") && !next.contains("free-large 7"),
        "{next}"
    );
    stage.engine.shutdown().await;
}

/// A request as a model reads it: long texts are named by their length, ids by the order in which they come up.
fn readable(body: &str) -> String {
    fn shorten(value: &mut Value, ids: &mut Vec<String>) {
        match value {
            Value::String(text) if text.starts_with("toolu_") || text.starts_with("call_") => {
                let known = ids.iter().position(|id| id == text).unwrap_or_else(|| {
                    ids.push(text.clone());
                    ids.len() - 1
                });
                *text = format!("call {known}");
            }
            Value::String(text) if text.len() > 1_500 => *text = format!("({} bytes)", text.len()),
            Value::Array(items) => items.iter_mut().for_each(|item| shorten(item, ids)),
            Value::Object(fields) => fields.values_mut().for_each(|field| shorten(field, ids)),
            _ => {}
        }
    }
    let mut request: Value = serde_json::from_str(body).unwrap();
    // Which tools there are is shown by the snapshots of whole requests of agents.
    request["tools"] = Value::from(request["tools"].as_array().map_or(0, Vec::len));
    shorten(&mut request, &mut Vec::new());
    serde_json::to_string_pretty(&request).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_requests_after_room_was_made() {
    let stage = Stage::new(walker()).await;
    *stage.directory.room.lock().unwrap() = Some(ROOM);
    let session = stage.session("m").await;
    for _ in 0..8 {
        session.run(Prompt::text("Look at the next ten.")).await.unwrap();
    }
    let entries = stage.directory.mock.journal().entries();
    let bodies = bodies(&entries);
    let first = |with: &str, is_it: fn(&str) -> bool| {
        let found = bodies.iter().find(|body| body.contains(with) && is_it(body));
        readable(found.expect("room was made"))
    };
    insta::assert_snapshot!(
        "request_after_outputs_were_cleared",
        first("output cleared:", |body| !body.contains(SUMMARY))
    );
    insta::assert_snapshot!("request_after_a_summary", first(SUMMARY, |_| true));
    let of_summary = entries.iter().find(|entry| entry.model.as_deref() == Some("summarizer")).unwrap();
    let body: Value = serde_json::from_slice(of_summary.body.as_ref().unwrap()).unwrap();
    let shown = body["messages"][0]["content"].to_string();
    assert!(shown.len() < 64 * 1024 && shown.contains("# The user"), "{shown}");
    stage.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_request_after_a_cut() {
    // Who would write summaries cannot be asked.
    let mut script = walker();
    script.models.remove("summarizer");
    let stage = Stage::new(script).await;
    *stage.directory.room.lock().unwrap() = Some(ROOM);
    let session = stage.session("m").await;
    for _ in 0..8 {
        session.run(Prompt::text("Look at the next ten.")).await.unwrap();
    }
    let bodies = bodies(&stage.directory.mock.journal().entries());
    let cut = bodies.iter().find(|body| body.contains("<part-of-the-conversation-left-out>"));
    insta::assert_snapshot!(
        "request_after_a_cut",
        readable(cut.expect("a mark stands for what is left out"))
    );
    stage.engine.shutdown().await;
}
