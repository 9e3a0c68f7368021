//! Work that one session hands over to another.

use std::sync::Arc;
use std::time::Duration;

use mock_llm::{Model, Script, call, text};
use playhouse_actors::{Resume, SessionHandle, TaskLimits};
use playhouse_protocol::consent::ConsentAnswer;
use playhouse_protocol::event::Provisional;
use playhouse_protocol::ledger::RowQuery;
use playhouse_protocol::message::{CallOutcome, CallResult, Message};
use playhouse_protocol::record::TurnOutcome;
use playhouse_protocol::{
    Attribution, EventBody, KeyRef, Labels, NewSession, Prompt, Record, SessionId, SessionSummary,
};
use playhouse_store::{Kin, ListQuery, Store};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::consents::THERE;
use crate::support::{Stage, until};

/// The arguments of a task.
fn task(agent: &str, more: &Value) -> Value {
    let mut input = json!({"description": "look it up", "prompt": "Look it up.", "subagent_type": agent});
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    input
}

/// A model that hands work over once, and the one of the agent that takes it.
pub(crate) fn hands_over(worker: Model) -> Script {
    let parent = Model::new().step(call("task", task("worker", &json!({})))).step(text("So."));
    Script::new().model("m", parent).model("worker", worker)
}

pub(crate) async fn results(stage: &Stage, session: SessionId) -> Vec<CallResult> {
    let (entries, _) = stage.engine.read(session).await.unwrap();
    let results = entries.into_iter().filter_map(|entry| match entry.record {
        Record::CallSettled { result, .. } => Some(result),
        _ => None,
    });
    results.collect()
}

/// The sub-sessions of a session, the newest first.
async fn children(stage: &Stage, of: SessionId) -> Vec<SessionSummary> {
    let query = ListQuery { kin: Some(Kin::ChildrenOf(of)), limit: 50, ..ListQuery::default() };
    stage.engine.list(query).await.unwrap().sessions
}

/// Waits until a session has so many sub-sessions.
pub(crate) async fn child(stage: &Stage, of: SessionId) -> SessionHandle {
    let found = async {
        loop {
            if let Some(summary) = children(stage, of).await.first() {
                return stage.engine.session(summary.id).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.expect("the sub-session is made")
}

/// What the last prompt of a session says.
async fn prompts(session: &SessionHandle) -> Vec<String> {
    let told = |message: Message| match message {
        Message::User(message) => message.parts.into_iter().find_map(|part| match part {
            playhouse_protocol::Part::Text { text, .. } => Some(text),
            _ => None,
        }),
        Message::Assistant(_) => None,
    };
    session.snapshot().await.unwrap().messages.into_iter().filter_map(told).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_runs_in_a_session_below_and_its_last_words_come_back() {
    let worker =
        Model::new().step(text("Thinking.").call("list", json!({}))).step(text("It is in src/a.rs."));
    let script = hands_over(worker);
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    let ended = session.run(Prompt::text("where is it?")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Completed);
    let below = children(&stage, session.id()).await;
    let [child] = &below[..] else { panic!("one sub-session: {below:?}") };
    assert_eq!(
        (child.parent, child.root, child.title.as_str()),
        (Some(session.id()), Some(session.id()), "look it up")
    );
    assert_eq!((child.agent.as_str(), child.model.model.as_str()), ("worker", "worker"));
    let result = results(&stage, session.id()).await.remove(0);
    assert_eq!(result.output, format!("task_id: {}\nThe task is done.\n\nIt is in src/a.rs.", child.id));
    assert_eq!(result.metadata["sessionId"], json!(child.id.to_string()));
    // Its rows count in the tree, below the step whose call it was.
    let (entries, _) = stage.engine.read(child.id).await.unwrap();
    let Record::SessionCreated(created) = &entries[0].record else { panic!("{entries:?}") };
    let steps = stage.records(&session).await.into_iter().find_map(|record| match record {
        Record::StepFinished(step) => Some(step.step),
        _ => None,
    });
    assert_eq!(created.parent_step, steps);
    // Its id is in the intent of the call.
    let intended = stage.records(&session).await.into_iter().find_map(|record| match record {
        Record::CallIntended(intended) => intended.delegate,
        _ => None,
    });
    assert_eq!(intended.unwrap().session, child.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_task_and_of_the_turn_that_reads_its_report_have_the_labels_and_the_key_of_the_first_prompt()
 {
    let waits = call("probe", json!({"mode": "wait"}));
    let worker = Model::new().step(waits).step(text("All is well.")).step(text("Still."));
    let stage = Stage::new(background().model("worker", worker)).await;
    let metadata = json!({"customer": "c-42", "note": "no label"}).as_object().unwrap().clone();
    let session = stage.engine.create(NewSession { metadata, ..stage.new_session("parent") }).await.unwrap();
    let mut events = session.events(None).await.unwrap();
    let key = KeyRef { id: "key_1".to_owned(), name: "ci".to_owned() };
    let attribution = Attribution::of_key(Some(key.clone()));
    session.run(Prompt { attribution, ..Prompt::text("go") }).await.unwrap();
    // The report comes after that turn, and has one of its own.
    stage.probe.begun().await;
    stage.probe.release(1);
    let is_report = |record: &Record| matches!(record, Record::PromptAdmitted(prompt) if prompt.steer);
    let Record::PromptAdmitted(report) = until(&mut events, is_report).await else { unreachable!() };
    until(&mut events, |record| matches!(record, Record::TurnEnded(ended) if ended.turn == report.message))
        .await;
    let page =
        stage.store.ledger.rows(&RowQuery { root: Some(session.id()), ..RowQuery::default() }).unwrap();
    let labels: Labels = [("customer".to_owned(), "c-42".to_owned())].into();
    assert!(page.rows.iter().any(|row| row.session != session.id()), "{:?}", page.rows);
    assert!(page.rows.iter().any(|row| row.turn == report.message), "{:?}", page.rows);
    for row in page.rows {
        assert_eq!((&row.labels, row.key.as_ref()), (&labels, Some(&key)), "{row:?}");
    }
    // The next turn is the operator's.
    session.run(Prompt::text("and now?")).await.unwrap();
    let page =
        stage.store.ledger.rows(&RowQuery { session: Some(session.id()), ..RowQuery::default() }).unwrap();
    let last = page.rows.last().unwrap();
    assert_eq!((&last.labels, last.key.as_ref()), (&labels, None));
    // Whoever prompts the sub-session itself has a key of its own, and the labels of the session above.
    let below = children(&stage, session.id()).await.remove(0).id;
    let other = KeyRef { id: "key_2".to_owned(), name: "web".to_owned() };
    let attribution = Attribution::of_key(Some(other.clone()));
    let direct = Prompt { attribution, ..Prompt::text("and you?") };
    stage.engine.session(below).await.unwrap().run(direct).await.unwrap();
    let page = stage.store.ledger.rows(&RowQuery { session: Some(below), ..RowQuery::default() }).unwrap();
    let last = page.rows.last().unwrap();
    assert_eq!((page.rows.len(), &last.labels, last.key.as_ref()), (3, &labels, Some(&other)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_task_goes_on_and_those_of_others_are_not_there() {
    let script = hands_over(Model::new().step(text("Once.")));
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    session.run(Prompt::text("go")).await.unwrap();
    let below = children(&stage, session.id()).await.remove(0).id;
    // The model would pass the id that it read; here somebody else's and none at all.
    let stranger = stage.session("echo").await.id();
    for (id, says) in [
        ("@ID".to_owned(), "leave it out for a new one"),
        (stranger.to_string(), "there is no task"),
        ("ses_000000000000AAAAAAAAAAAAAA".to_owned(), "there is no task"),
    ] {
        let goes_on = Script::new().model(
            "n",
            Model::new().step(call("task", task("worker", &json!({"task_id": id})))).step(text("So.")),
        );
        let other = Stage::on(stage.store.clone(), Arc::clone(&stage.folder), goes_on, 1 << 20).await;
        let again = other.engine.create(NewSession { ..other.new_session("n") }).await.unwrap();
        again.run(Prompt::text("go")).await.unwrap();
        let refused = results(&other, again.id()).await.remove(0);
        assert!(
            refused.outcome == CallOutcome::Failed && refused.output.contains(says),
            "{}",
            refused.output
        );
        other.engine.shutdown().await;
    }
    let more = call("task", task("worker", &json!({"task_id": below.to_string()})));
    let goes_on = Script::new()
        .model("m", Model::new().step(text("-")).next_turn().step(more).step(text("Done.")))
        .model("worker", Model::new().step(text("-")).next_turn().step(text("Twice.")));
    stage.engine.shutdown().await;
    let other = Stage::on(stage.store.clone(), Arc::clone(&stage.folder), goes_on, 1 << 20).await;
    let session = other.engine.session(session.id()).await.unwrap();
    session.run(Prompt::text("more")).await.unwrap();
    assert_eq!(children(&other, session.id()).await.len(), 1);
    let result = results(&other, session.id()).await.pop().unwrap();
    assert_eq!(result.output, format!("task_id: {below}\nThe task is done.\n\nTwice."));
    assert_eq!(other.engine.summary(below).await.unwrap().turns, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_go_only_so_deep_and_only_so_many_at_once() {
    let nested = Model::new().step(call("task", task("helper", &json!({})))).step(text("I did it myself."));
    let deep = hands_over(nested);
    let limits = |depth, children| {
        move |options: &mut playhouse_actors::EngineOptions| {
            options.limits.tasks = TaskLimits { depth, children };
        }
    };
    let folder = || Arc::new(tempfile::tempdir().unwrap());
    let stage = Stage::with(Store::memory().unwrap(), folder(), deep, limits(1, 8)).await;
    let session = stage.session("m").await;
    session.run(Prompt::text("go")).await.unwrap();
    let below = children(&stage, session.id()).await.remove(0).id;
    let refused = results(&stage, below).await.remove(0);
    assert!(refused.output.contains("tasks stand at most 1 deep"), "{}", refused.output);
    assert!(children(&stage, below).await.is_empty());
    // The deepest is not shown the tool; the others are.
    let requests = stage.directory.mock.journal().entries();
    let shown = |index: usize| {
        let body: Value = serde_json::from_slice(requests[index].body.as_deref().unwrap()).unwrap();
        body["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "task")
    };
    assert!(shown(0) && !shown(1));

    let twice = call("task", task("worker", &json!({}))).call("task", task("worker", &json!({})));
    let wide = Script::new()
        .model("m", Model::new().step(twice).step(text("So.")))
        .model("worker", Model::new().step(text("One.")));
    let stage = Stage::with(Store::memory().unwrap(), folder(), wide, limits(3, 1)).await;
    let session = stage.session("m").await;
    session.run(Prompt::text("go")).await.unwrap();
    let results = results(&stage, session.id()).await;
    let refused: Vec<&CallResult> =
        results.iter().filter(|result| result.outcome == CallOutcome::Failed).collect();
    assert_eq!((refused.len(), results.len()), (1, 2));
    assert!(refused[0].output.contains("there may be no more at once"), "{}", refused[0].output);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_of_the_parent_ends_its_tasks() {
    let worker = Model::new().step(call("probe", json!({"mode": "wait"}))).step(text("never"));
    let script = hands_over(worker);
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    session.prompt(Prompt::text("go")).await.unwrap();
    stage.probe.begun().await;
    let below = children(&stage, session.id()).await.remove(0).id;
    assert_eq!(session.abort().await.unwrap(), 1);
    let child = stage.engine.session(below).await.unwrap();
    let mut events = child.events(Some(playhouse_protocol::Seq::START)).await.unwrap();
    let ended = until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
    let Record::TurnEnded(ended) = ended else { unreachable!() };
    assert_eq!(ended.outcome, TurnOutcome::Aborted);
    let result = results(&stage, session.id()).await.remove(0);
    assert_eq!(result.outcome, CallOutcome::Cancelled, "{}", result.output);
}

/// A model that hands work over into the background, goes on, and hears of its end.
fn background() -> Script {
    Script::new().model(
        "parent",
        Model::new()
            .step(call("task", task("worker", &json!({"background": true}))))
            .step(text("I go on."))
            .step(text("So it is done.")),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_in_the_background_is_told_of_when_it_ends() {
    let script = background().model(
        "worker",
        Model::new().step(call("probe", json!({"mode": "wait"}))).step(text("All is well.")),
    );
    let stage = Stage::new(script).await;
    let session = stage.session("parent").await;
    let mut events = session.events(None).await.unwrap();
    session.run(Prompt::text("go")).await.unwrap();
    stage.probe.begun().await;
    let begun = results(&stage, session.id()).await.remove(0);
    assert!(
        begun.output.ends_with("runs in the background: you are told when it has ended."),
        "{}",
        begun.output
    );
    assert_eq!(begun.metadata["background"], json!(true));
    stage.probe.release(1);
    let is_report = |record: &Record| matches!(record, Record::PromptAdmitted(prompt) if prompt.steer);
    let Record::PromptAdmitted(report) = until(&mut events, is_report).await else { unreachable!() };
    until(&mut events, |record| matches!(record, Record::TurnEnded(ended) if ended.turn == report.message))
        .await;
    let told = prompts(&session).await.pop().unwrap();
    assert!(told.starts_with("The task \"look it up\" that you began in the background is done"), "{told}");
    assert!(told.ends_with("All is well."), "{told}");
    assert_eq!(session.snapshot().await.unwrap().messages.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_ends_tasks_in_the_background_and_begins_nothing() {
    let script = background()
        .model("worker", Model::new().step(call("probe", json!({"mode": "wait"}))).step(text("never")));
    let stage = Stage::new(script).await;
    let session = stage.session("parent").await;
    let mut events = session.events(None).await.unwrap();
    session.run(Prompt::text("go")).await.unwrap();
    stage.probe.begun().await;
    assert_eq!(session.abort().await.unwrap(), 0, "nothing runs in it");
    let below = child(&stage, session.id()).await;
    let mut ends = below.events(Some(playhouse_protocol::Seq::START)).await.unwrap();
    let ended = until(&mut ends, |record| matches!(record, Record::TurnEnded(_))).await;
    assert!(matches!(ended, Record::TurnEnded(ended) if ended.outcome == TurnOutcome::Aborted));
    until(&mut events, |record| matches!(record, Record::PromptAdmitted(prompt) if prompt.kind.is_note()))
        .await;
    let told = prompts(&session).await.pop().unwrap();
    assert!(told.contains("was aborted before it was done"), "{told}");
    assert_eq!(stage.engine.summary(session.id()).await.unwrap().turns, 1, "a note begins no turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_may_no_more_than_who_hands_it_over() {
    let dares = || Model::new().step(call("danger", json!({"to": THERE}))).step(text("I could not."));
    let script = || hands_over(dares());
    // The agent that hands it over is denied it; the other one is not, and everything is allowed by configuration.
    let stage = Stage::new(script()).await;
    let session = stage.session("m").await;
    session.run(Prompt { agent: Some("careful".into()), ..Prompt::text("go") }).await.unwrap();
    let below = children(&stage, session.id()).await.remove(0).id;
    let refused = results(&stage, below).await.remove(0);
    assert_eq!((refused.outcome, stage.danger.went()), (CallOutcome::Declined, Vec::new()));
    assert!(refused.output.contains("denied by the rules"), "{}", refused.output);
    // What the first agent hands over is as bound two sessions further down.
    let between = Model::new().step(call("task", task("helper", &json!({})))).step(text("It could not."));
    let stage = Stage::new(hands_over(between).model("helper", dares())).await;
    let session = stage.session("m").await;
    session.run(Prompt { agent: Some("careful".into()), ..Prompt::text("go") }).await.unwrap();
    assert!(stage.danger.went().is_empty());
    // Without such an agent above it runs.
    let stage = Stage::new(script()).await;
    stage.session("m").await.run(Prompt::text("go")).await.unwrap();
    assert_eq!(stage.danger.went(), [THERE]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_has_no_tool_that_those_above_it_do_not_have() {
    let dares = Model::new()
        .step(call("danger", json!({"to": THERE})))
        .step(call("probe", json!({"mode": "once"})))
        .step(text("I could not."));
    let between = Model::new().step(call("task", task("helper", &json!({})))).step(text("It could not."));
    let stage = Stage::new(hands_over(between).model("helper", dares)).await;
    let session = stage.session("m").await;
    // This agent has `probe` and `task`; the others have all that there is.
    session.run(Prompt { agent: Some("giver".into()), ..Prompt::text("go") }).await.unwrap();
    let worker = children(&stage, session.id()).await.remove(0).id;
    let helper = children(&stage, worker).await.remove(0).id;
    let [refused, done] = &results(&stage, helper).await[..] else { panic!("two calls") };
    assert_eq!((refused.outcome, stage.danger.went()), (CallOutcome::Declined, Vec::new()));
    assert!(refused.output.contains("none of those that the agents have who handed"), "{}", refused.output);
    assert_eq!(done.outcome, CallOutcome::Done, "{}", done.output);
    // Nor are their models told of it.
    let shown = |entry: &mock_llm::Entry| {
        let body: Value = serde_json::from_slice(entry.body.as_ref().unwrap()).unwrap();
        let tools = body["tools"].as_array().unwrap();
        let names = tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned);
        names.collect::<Vec<String>>()
    };
    let has = |names: &[String], name: &str| names.iter().any(|other| other == name);
    for entry in stage.directory.mock.journal().entries() {
        let (names, is_first) = (shown(&entry), entry.model.as_deref() == Some("m"));
        assert_eq!((has(&names, "danger"), has(&names, "probe")), (is_first, true), "{names:?}");
    }
    // What that session does for a person later is its own again.
    let again = stage.engine.session(helper).await.unwrap();
    again.run(Prompt::text("go on")).await.unwrap();
    assert!(has(&shown(&stage.directory.mock.journal().entries().pop().unwrap()), "danger"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_changes_nothing_hands_over_nothing_that_does() {
    let looks = Model::new()
        .step(call("probe", json!({"mode": "once"})))
        .step(call("bash", json!({"command": "echo hi > there"})))
        .step(call("task", task("worker", &json!({}))))
        .step(text("So."));
    let worker = Model::new().step(call("probe", json!({"mode": "once"}))).step(text("I could not."));
    let script = Script::new().model("m", looks).model("worker", worker);
    let stage = Stage::new(script).await;
    let session = stage.session("m").await;
    session.run(Prompt { agent: Some("looker".into()), ..Prompt::text("go") }).await.unwrap();
    let own = results(&stage, session.id()).await;
    assert!(
        own[0].output.contains("the agent looker changes nothing, and probe would change"),
        "{}",
        own[0].output
    );
    // In walls where nothing can be written, or not at all.
    assert!(!stage.folder.path().join("workspace/there").exists(), "{}", own[1].output);
    let below = children(&stage, session.id()).await.remove(0).id;
    let refused = results(&stage, below).await.remove(0);
    assert_eq!(refused.outcome, CallOutcome::Declined);
    assert!(refused.output.contains("changes nothing"), "{}", refused.output);
    assert_eq!(stage.probe.executed.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_a_workspaces_agent_only_take_away() {
    let goes = |to: &str| {
        let model = Model::new().step(call("danger", json!({"to": to}))).step(text("So."));
        Script::new().model("m", model)
    };
    // What its own rules allow is asked about all the same, and what they deny is denied though all is allowed.
    let stage = Stage::new(goes(THERE)).await.bare();
    let session = stage.session("m").await;
    session
        .run(Prompt { agent: Some("local".into()), unattended: true, ..Prompt::text("go") })
        .await
        .unwrap();
    assert!(results(&stage, session.id()).await[0].output.contains("nobody is there to be asked"));
    let stage = Stage::new(goes("https://b/x")).await;
    let session = stage.session("m").await;
    session.run(Prompt { agent: Some("local".into()), ..Prompt::text("go") }).await.unwrap();
    let denied = results(&stage, session.id()).await.remove(0);
    assert!(denied.output.contains("denied by a rule of the workspace"), "{}", denied.output);
    assert!(stage.danger.went().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consent_of_a_task_reaches_the_clients_of_the_session_at_the_top() {
    let worker = Model::new().step(call("danger", json!({"to": THERE}))).step(text("I went."));
    let script = hands_over(worker);
    let stage = Stage::new(script).await.bare();
    let session = stage.session("m").await;
    let mut events = session.events(None).await.unwrap();
    session.prompt(Prompt::text("go")).await.unwrap();
    let asked = async {
        loop {
            let event = events.next().await.unwrap().expect("the stream goes on");
            if let EventBody::Provisional(Provisional::DescendantRequest { session, record }) =
                &event.event().body
                && let Record::ConsentAsked(asked) = record.as_ref()
            {
                return (*session, asked.consent);
            }
        }
    };
    let (below, consent) = tokio::time::timeout(Duration::from_secs(20), asked).await.unwrap();
    stage.engine.session(below).await.unwrap().answer(consent, ConsentAnswer::Once).await.unwrap();
    until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
    assert_eq!(stage.danger.went(), [THERE]);
}

/// What a killed engine leaves is finished by the next one, with the sub-session that was begun.
fn killed_in_the_middle(
    child_is_through: bool,
    input: Value,
) -> (Arc<tempfile::TempDir>, Store, SessionId, SessionId) {
    let (store, folder) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let runtime = Runtime::new().unwrap();
    let (parent, below) = runtime.block_on(async {
        let pause = Duration::from_secs(600);
        let script = Script::new()
            .model(
                "parent",
                Model::new().step(call("task", input)).step(text("On.")).step(text("Top.").delay(pause)),
            )
            .model(
                "worker",
                Model::new().step(call("probe", json!({"mode": "free-wait"}))).step(text("Well.")),
            );
        let stage = Stage::on(store.clone(), Arc::clone(&folder), script, 1 << 20).await;
        let session = stage.session("parent").await;
        session.prompt(Prompt::text("go")).await.unwrap();
        stage.probe.begun().await;
        let below = child(&stage, session.id()).await;
        let mut events = below.events(Some(playhouse_protocol::Seq::START)).await.unwrap();
        // Its call has no effects, and began before it was written down.
        until(&mut events, |record| matches!(record, Record::CallIntended(_))).await;
        if child_is_through {
            stage.probe.release(1);
            until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
        }
        (session.id(), below.id())
    });
    runtime.shutdown_timeout(Duration::from_secs(20));
    (folder, store, parent, below)
}

fn after_the_kill(
    found: &(Arc<tempfile::TempDir>, Store, SessionId, SessionId),
    check: impl AsyncFnOnce(&Stage),
) {
    let (folder, store, ..) = found;
    Runtime::new().unwrap().block_on(async {
        // Each has given one answer already.
        let script = Script::new()
            .model("parent", Model::new().step(text("-")).step(text("Top.")))
            .model("worker", Model::new().step(text("-")).step(text("Well.")));
        let stage =
            Stage::with(store.clone(), Arc::clone(folder), script, |options| options.resume = Resume::Auto)
                .await;
        check(&stage).await;
    });
}

async fn all_is_finished(stage: &Stage) {
    let finished = async {
        while !stage.engine.unfinished().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), finished).await.expect("all is finished");
}

#[test]
fn after_a_crash_a_call_finds_the_task_that_it_had_begun() {
    for child_is_through in [false, true] {
        let found = killed_in_the_middle(child_is_through, task("worker", &json!({})));
        let (parent, below) = (found.2, found.3);
        after_the_kill(&found, async |stage| {
            if !child_is_through {
                stage.probe.begun().await;
                stage.probe.release(1);
            }
            all_is_finished(stage).await;
            let below_it: Vec<SessionId> =
                children(stage, parent).await.iter().map(|child| child.id).collect();
            assert_eq!(below_it, [below], "it is not begun twice");
            assert_eq!(stage.engine.summary(below).await.unwrap().turns, 1);
            let results = results(stage, parent).await;
            let [result] = &results[..] else { panic!("one result: {results:?}") };
            assert_eq!(result.output, format!("task_id: {below}\nThe task is done.\n\nWell."));
        });
    }
}

#[test]
fn after_a_crash_a_task_in_the_background_is_told_of_once() {
    let found = killed_in_the_middle(false, task("worker", &json!({"background": true})));
    let (parent, below) = (found.2, found.3);
    after_the_kill(&found, async |stage| {
        stage.probe.begun().await;
        stage.probe.release(1);
        let session = stage.engine.session(parent).await.unwrap();
        let mut events = session.events(Some(playhouse_protocol::Seq::START)).await.unwrap();
        until(&mut events, |record| matches!(record, Record::PromptAdmitted(prompt) if prompt.steer)).await;
        all_is_finished(stage).await;
        let told = prompts(&session).await;
        let reports = told.iter().filter(|text| text.contains(below.as_str())).count();
        assert_eq!(reports, 1, "{told:?}");
    });
}
