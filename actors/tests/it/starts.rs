//! Programs that a workspace declares, which people must agree to before they are started.

use std::sync::Arc;

use mock_llm::Script;
use playhouse_actors::{McpOptions, McpServers, McpState, SessionHandle};
use playhouse_protocol::consent::{ConsentAnswer, ConsentAsked};
use playhouse_protocol::walls::Sandbox;
use playhouse_protocol::{Prompt, Record};
use playhouse_store::Store;
use playhouse_tools::web::Door;
use tokio::runtime::Handle;

use crate::consents::asked;
use crate::support::{Stage, until};

/// A workspace whose file declares a server behind an address that nobody may go to: it is never reached.
async fn stage(folder: &Arc<tempfile::TempDir>, store: Store) -> Stage {
    let options = McpOptions {
        entries: Vec::new(),
        folder: folder.path().join("mcp"),
        runtime: Handle::current(),
        sandbox: Sandbox::BestEffort,
        hidden: Vec::new(),
        roots: Vec::new(),
        door: Door::new(Vec::new()),
    };
    let folder = Arc::clone(folder);
    Stage::with(store, folder, Script::new(), |all| all.mcp = Some(McpServers::new(options))).await
}

fn declare(folder: &tempfile::TempDir, url: &str) {
    fs_err::create_dir_all(folder.path().join("workspace")).unwrap();
    let text = format!(r#"{{"mcpServers": {{"own": {{"url": "{url}"}}}}}}"#);
    fs_err::write(folder.path().join("workspace/.mcp.json"), text).unwrap();
}

async fn state(stage: &Stage) -> McpState {
    let workspace = fs_err::canonicalize(stage.folder.path().join("workspace")).unwrap();
    let workspace = workspace.to_string_lossy().into_owned();
    stage.engine.mcp_status(None, Some(&workspace)).await.unwrap().remove(0).state
}

/// What a session has asked so far, after a turn.
async fn after_a_turn(stage: &Stage, session: &SessionHandle, prompt: Prompt) -> Vec<ConsentAsked> {
    session.run(prompt).await.unwrap();
    let records = stage.records(session).await.into_iter();
    let asked = records.filter_map(|record| match record {
        Record::ConsentAsked(asked) => Some(asked),
        _ => None,
    });
    asked.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspaces_server_is_asked_for_once_until_it_changes() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let store = Store::memory().unwrap();
    declare(&folder, "http://127.0.0.1:1/mcp?key=7");
    let stage = stage(&folder, store).await;
    let session = stage.session("echo").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    let first = asked(&mut events).await;
    assert_eq!((first.call, first.tool.as_str()), (None, "mcp_own"));
    assert_eq!(first.preview, "http://127.0.0.1:1/mcp?key=7");
    let other = stage.session("echo").await;
    let mut others = other.events(None).await.unwrap();
    let waiting = after_a_turn(&stage, &other, Prompt::text("go")).await;
    assert_eq!((waiting.len(), state(&stage).await), (1, McpState::Asks));
    let listed: Vec<_> = stage.engine.waiting("local").await.unwrap();
    assert_eq!(listed.len(), 2, "both are told of although no turn runs");
    session.answer(first.consent, ConsentAnswer::Always).await.unwrap();
    assert_ne!(state(&stage).await, McpState::Asks);
    // The request of the other session is covered by it, and a third one asks nobody.
    let is_covered = |record: &Record| matches!(record, Record::ConsentSettled { answer: ConsentAnswer::Covered { by: Some(by) }, .. } if *by == first.consent);
    until(&mut others, is_covered).await;
    assert!(stage.engine.waiting("local").await.unwrap().is_empty());
    let third = stage.session("echo").await;
    assert!(after_a_turn(&stage, &third, Prompt::text("go")).await.is_empty());
    // Another address is another server.
    declare(&folder, "http://127.0.0.1:2/mcp");
    let fourth = stage.session("echo").await;
    let again = after_a_turn(&stage, &fourth, Prompt::text("go")).await;
    assert_eq!((again.len(), again[0].preview.as_str()), (1, "http://127.0.0.1:2/mcp"));
    assert_eq!(state(&stage).await, McpState::Asks);
    // What is not declared any more is not asked for any more.
    declare(&folder, "http://127.0.0.1:3/mcp");
    assert_eq!(state(&stage).await, McpState::Asks);
    assert_eq!(after_a_turn(&stage, &fourth, Prompt::text("go")).await.len(), 2);
    let waiting = stage.engine.waiting("local").await.unwrap().remove(0).consents;
    let previews: Vec<&str> = waiting.iter().map(|asked| asked.preview.as_str()).collect();
    assert_eq!(previews, ["http://127.0.0.1:3/mcp"]);
    // What is withdrawn is asked for again.
    fourth.answer(waiting[0].consent, ConsentAnswer::Always).await.unwrap();
    assert_ne!(state(&stage).await, McpState::Asks);
    for grant in stage.engine.grants(None).await.unwrap() {
        stage.engine.revoke(None, &grant.id).await.unwrap();
    }
    assert_eq!(state(&stage).await, McpState::Asks);
}

#[tokio::test(flavor = "multi_thread")]
async fn once_and_no_hold_for_the_session_over_a_restart() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    declare(&folder, "http://127.0.0.1:1/mcp");
    let (yes, no) = {
        let stage = stage(&folder, Store::open(&data).unwrap()).await;
        let answered = async |answer: ConsentAnswer| {
            let session = stage.session("echo").await;
            let asked = after_a_turn(&stage, &session, Prompt::text("go")).await;
            session.answer(asked[0].consent, answer).await.unwrap();
            session
        };
        let no = answered(ConsentAnswer::Decline { message: None }).await;
        assert_eq!(state(&stage).await, McpState::Asks);
        let yes = answered(ConsentAnswer::Once).await;
        assert_ne!(state(&stage).await, McpState::Asks);
        let ids = (yes.id(), no.id());
        stage.engine.shutdown().await;
        ids
    };
    let stage = stage(&folder, Store::open(&data).unwrap()).await;
    assert_eq!(state(&stage).await, McpState::Asks, "nothing is agreed to for others");
    let no = stage.engine.session(no).await.unwrap();
    assert_eq!(after_a_turn(&stage, &no, Prompt::text("again")).await.len(), 1, "it is not asked twice");
    assert_eq!(state(&stage).await, McpState::Asks);
    let yes = stage.engine.session(yes).await.unwrap();
    assert_eq!(after_a_turn(&stage, &yes, Prompt::text("again")).await.len(), 1);
    assert_ne!(state(&stage).await, McpState::Asks);
    stage.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_can_answer_nobody_is_asked() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    declare(&folder, "http://127.0.0.1:1/mcp");
    let stage = stage(&folder, Store::memory().unwrap()).await;
    let session = stage.session("echo").await;
    let prompt = Prompt { unattended: true, ..Prompt::text("go") };
    assert!(after_a_turn(&stage, &session, prompt).await.is_empty());
    assert_eq!(state(&stage).await, McpState::Asks);
    assert_eq!(after_a_turn(&stage, &session, Prompt::text("go")).await.len(), 1, "a later prompt asks");
}
