//! System prompts: made once for each agent and model of a session, and then as they stand in the log.

use std::sync::Arc;

use mock_llm::Script;
use playhouse_protocol::record::SystemSettled;
use playhouse_protocol::{EventBody, Prompt, Record, Seq};
use playhouse_store::Store;

use crate::support::Stage;

/// Answers each prompt with a word.
fn script() -> Script {
    Script::new()
}

/// The request with this number, up to the end of the first message that says `last`, as text.
fn prefix(stage: &Stage, number: usize, last: &str) -> String {
    let entry = &stage.directory.mock.journal().entries()[number];
    let body = String::from_utf8(entry.body.clone().unwrap().to_vec()).unwrap();
    let text = format!("\"text\":\"{last}\"");
    let end = body.find(&text).unwrap_or_else(|| panic!("{last} in {body}"));
    body[..end + text.len()].to_owned()
}

fn settled(records: &[Record]) -> Vec<&SystemSettled> {
    let settled = records.iter().filter_map(|record| match record {
        Record::SystemSettled(settled) => Some(settled),
        _ => None,
    });
    settled.collect()
}

fn says(stage: &Stage, text: &str) {
    *stage.directory.system.lock().unwrap() = text.to_owned();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_keeps_its_system_prompt_over_restarts_and_changes_of_what_it_was_made_of() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let (id, fork, first) = {
        let stage = Stage::on(Store::open(&data).unwrap(), folder.clone(), script(), 1 << 20).await;
        says(&stage, "You are the first.");
        let session = stage.session("echo").await;
        session.run(Prompt::text("One")).await.unwrap();
        says(&stage, "You are the second.");
        session.run(Prompt::text("Two")).await.unwrap();
        let first = prefix(&stage, 0, "One");
        assert!(first.contains("You are the first."), "{first}");
        assert_eq!(prefix(&stage, 1, "One"), first);
        let records = stage.records(&session).await;
        let [only] = settled(&records)[..] else { panic!("{records:?}") };
        assert_eq!((only.text.as_str(), only.agent.as_str()), ("You are the first.", "tester"));
        let fork = stage.engine.fork(session.id(), None).await.unwrap();
        stage.engine.shutdown().await;
        (session.id(), fork.id(), first)
    };
    let stage = Stage::on(Store::open(&data).unwrap(), folder, script(), 1 << 20).await;
    says(&stage, "You are the third.");
    for (number, id) in [id, fork].into_iter().enumerate() {
        let session = stage.engine.session(id).await.unwrap();
        session.run(Prompt::text("Three")).await.unwrap();
        assert_eq!(prefix(&stage, number, "One"), first, "what it was made of has changed");
        assert_eq!(settled(&stage.records(&session).await).len(), 1);
    }
    // Another agent has another one.
    let session = stage.engine.session(id).await.unwrap();
    session.run(Prompt { agent: Some("reader".into()), ..Prompt::text("Four") }).await.unwrap();
    let records = stage.records(&session).await;
    let texts: Vec<&str> = settled(&records).iter().map(|settled| settled.text.as_str()).collect();
    assert_eq!(texts, ["You are the first.", "You are the third."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_told_that_it_is_settled_and_not_what_it_says() {
    let stage = Stage::new(script()).await;
    let session = stage.session("echo").await;
    let mut live = session.events(Some(Seq::START)).await.unwrap();
    session.run(Prompt::text("One")).await.unwrap();
    let mut replayed = session.events(Some(Seq::START)).await.unwrap();
    for events in [&mut live, &mut replayed] {
        let told = loop {
            let event = events.next().await.unwrap().expect("the stream goes on");
            if let EventBody::Durable(record) = &event.event().body
                && let Record::SystemSettled(settled) = record.as_ref()
            {
                break settled.clone();
            }
        };
        assert_eq!((told.agent.as_str(), told.text.as_str()), ("tester", ""));
    }
}

/// The names of the tools in the request with this number.
fn shown(stage: &Stage, number: usize) -> Vec<String> {
    let entry = &stage.directory.mock.journal().entries()[number];
    let body: serde_json::Value = serde_json::from_slice(&entry.body.clone().unwrap()).unwrap();
    let tools = body["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn settled_tools(records: &[Record]) -> Vec<Vec<&str>> {
    let settled = records.iter().filter_map(|record| match record {
        Record::ToolsSettled(settled) => Some(settled.tools.iter().map(|tool| tool.name.as_str()).collect()),
        _ => None,
    });
    settled.collect()
}

const NOTEBOOK: &str = "notebook_edit";

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_for_files_that_nothing_names_is_left_out_until_older_messages_are_read_differently() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let (id, first) = {
        let stage = Stage::on(Store::open(&data).unwrap(), folder.clone(), script(), 1 << 20).await;
        let session = stage.session("echo").await;
        session.run(Prompt::text("One")).await.unwrap();
        let first = shown(&stage, 0);
        assert!(first.iter().any(|name| name == "edit") && !first.iter().any(|name| name == NOTEBOOK));
        assert_eq!(settled_tools(&stage.records(&session).await), std::slice::from_ref(&first));
        // It is needed now, and would change what was sent before.
        session.run(Prompt::text("Mend notes.ipynb")).await.unwrap();
        assert_eq!(prefix(&stage, 1, "One"), prefix(&stage, 0, "One"));
        stage.engine.shutdown().await;
        (session.id(), first)
    };
    let stage = Stage::on(Store::open(&data).unwrap(), folder, script(), 1 << 20).await;
    let session = stage.engine.session(id).await.unwrap();
    session.run(Prompt::text("Two")).await.unwrap();
    assert_eq!(shown(&stage, 0), first);
    assert_eq!(settled_tools(&stage.records(&session).await).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_for_files_is_shown_where_a_prompt_or_the_workspace_names_one() {
    let stage = Stage::new(script()).await;
    let session = stage.session("echo").await;
    session.run(Prompt::text("Mend notes.ipynb")).await.unwrap();
    // It stands where it always did.
    let names = shown(&stage, 0);
    assert!(names.iter().any(|name| name == NOTEBOOK), "{names:?}");
    let session = stage.session("echo").await;
    session.run(Prompt::text("One")).await.unwrap();
    assert!(!shown(&stage, 1).iter().any(|name| name == NOTEBOOK));
    fs_err::write(stage.folder.path().join("workspace/notes.ipynb"), "{}").unwrap();
    let session = stage.session("echo").await;
    session.run(Prompt::text("One")).await.unwrap();
    assert_eq!(shown(&stage, 2), names);
}
