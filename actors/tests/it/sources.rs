//! Tools from outside that come, change and go while sessions run.

use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use mock_llm::{Model, Script, call, text};
use playhouse_actors::EngineOptions;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::message::{CallOutcome, CallResult};
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_protocol::tool::ToolOrigin;
use playhouse_protocol::{NewSession, Prompt, Record};
use playhouse_store::Store;
use playhouse_tools::{
    CallContext, Plan, Prepared, Risk, Tool, ToolError, ToolOutput, ToolScope, ToolSource,
};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::room::{ROOM, walker};
use crate::support::{Stage, until};

/// What the server says of its tools.
const INSTRUCTIONS: &str = "Ask x once a day.";

/// Answers with its description.
struct Outside {
    spec: ToolSpec,
    origin: ToolOrigin,
    agent: Option<&'static str>,
}

impl Tool for Outside {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn risk(&self) -> Risk {
        Risk::Safe
    }

    fn origin(&self) -> Option<&ToolOrigin> {
        Some(&self.origin)
    }

    fn instructions(&self) -> Option<&str> {
        Some(INSTRUCTIONS)
    }

    fn serves(&self, agent: &str) -> bool {
        self.agent.is_none_or(|served| served == agent)
    }

    fn prepare<'a>(
        &'a self,
        _: &'a Map<String, Value>,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        let prepared = Prepared {
            accesses: Vec::new(),
            effect: Effect::None,
            recovery: Recovery::Interrupt,
            preview: String::new(),
            title: String::new(),
            plan: Box::new(()),
        };
        std::future::ready(Ok(prepared)).boxed()
    }

    fn execute<'a>(&'a self, _: Plan, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        std::future::ready(Ok(ToolOutput::text(format!("said {}", self.spec.description)))).boxed()
    }
}

/// The tool `mcp_x_NAME`.
fn tool(name: &str, description: &str) -> Arc<Outside> {
    Arc::new(Outside {
        spec: ToolSpec {
            name: format!("mcp_x_{name}"),
            description: description.to_owned(),
            parameters: json!({"type": "object"}),
        },
        origin: ToolOrigin::Mcp { server: "x".to_owned(), tool: name.to_owned() },
        agent: None,
    })
}

/// Offers to each tenant what a test says, and to all others the same.
struct Source(Mutex<Vec<Offer>>, watch::Sender<u64>);

/// A tool, and the only tenant that has it.
type Offer = (Option<&'static str>, Arc<dyn Tool>);

impl Source {
    fn of(tools: Vec<Arc<Outside>>) -> Arc<Self> {
        let source = Self(Mutex::default(), watch::Sender::new(1));
        source.set(tools);
        Arc::new(source)
    }

    fn set(&self, tools: Vec<Arc<Outside>>) {
        *self.0.lock().unwrap() = tools.into_iter().map(|tool| (None, tool as Arc<dyn Tool>)).collect();
        self.1.send_modify(|revision| *revision += 1);
    }
}

impl ToolSource for Source {
    fn tools(&self, scope: &ToolScope) -> Arc<[Arc<dyn Tool>]> {
        let tools = self.0.lock().unwrap();
        let is_for = |of: &Option<&str>| of.is_none_or(|tenant| tenant == &*scope.tenant);
        tools.iter().filter(|(of, _)| is_for(of)).map(|(_, tool)| Arc::clone(tool)).collect()
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.1.subscribe()
    }
}

fn with(source: &Arc<Source>) -> impl FnOnce(&mut EngineOptions) + use<> {
    let source = Arc::clone(source);
    move |options| options.sources = vec![source]
}

async fn stage(source: &Arc<Source>, script: Script) -> Stage {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    Stage::with(Store::memory().unwrap(), folder, script, with(source)).await
}

fn request(stage: &Stage, number: usize) -> Value {
    let entry = &stage.directory.mock.journal().entries()[number];
    serde_json::from_slice(&entry.body.clone().unwrap()).unwrap()
}

/// The tools from outside in the request with this number.
fn shown(stage: &Stage, number: usize) -> Vec<String> {
    let request = request(stage, number);
    let names = request["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap());
    names.filter(|name| name.starts_with("mcp_")).map(str::to_owned).collect()
}

/// Each request begins as the one before it.
fn grows(stage: &Stage, from: usize) {
    let entries = stage.directory.mock.journal().entries();
    let requests: Vec<Value> = (from..entries.len()).map(|number| request(stage, number)).collect();
    for pair in requests.windows(2) {
        assert_eq!(pair[0]["tools"].to_string(), pair[1]["tools"].to_string());
        assert_eq!(pair[0]["system"].to_string(), pair[1]["system"].to_string());
        let messages = |request: &Value| {
            let text = request["messages"].to_string();
            // The mark of what a server shall keep moves with the end.
            text.replace(",\"cache_control\":{\"type\":\"ephemeral\"}", "")
        };
        let (before, after) = (messages(&pair[0]), messages(&pair[1]));
        assert!(after.starts_with(&before[..before.len() - 1]), "{before}\n{after}");
    }
}

fn results(records: &[Record]) -> Vec<&CallResult> {
    let results = records.iter().filter_map(|record| match record {
        Record::CallSettled { result, .. } => Some(result),
        _ => None,
    });
    results.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shown_stays_and_a_change_is_told_at_the_end() {
    let source = Source::of(vec![tool("echo", "first words"), tool("gone", "goes")]);
    let model = Model::new()
        .step(call("mcp_x_echo", json!({})))
        .step(text("one"))
        // The note counts as a prompt there.
        .next_turn()
        .next_turn()
        .step(call("mcp_x_new", json!({})))
        .step(call("mcp_x_gone", json!({})))
        .step(text("two"))
        .next_turn()
        .step(text("three"));
    let stage = stage(&source, Script::new().model("m", model)).await;
    let session = stage.session("m").await;
    session.run(Prompt::text("One")).await.unwrap();
    assert_eq!(shown(&stage, 0), ["mcp_x_echo", "mcp_x_gone"]);
    source.set(vec![tool("echo", "other words"), tool("new", "does something new")]);
    session.run(Prompt::text("Two")).await.unwrap();
    session.run(Prompt::text("Three")).await.unwrap();
    grows(&stage, 0);
    let all = request(&stage, 5)["messages"].to_string();
    assert_eq!(all.matches("The tools have changed").count(), 1, "{all}");
    assert!(all.contains("- mcp_x_new: does something new") && all.contains("fail: mcp_x_gone"), "{all}");
    let records = stage.records(&session).await;
    let results = results(&records);
    assert_eq!((results[0].outcome, &*results[0].output), (CallOutcome::Done, "said first words"));
    assert_eq!((results[1].outcome, &*results[1].output), (CallOutcome::Done, "said does something new"));
    assert!(
        results[2].outcome == CallOutcome::Failed && results[2].output.contains("no tool"),
        "{results:?}"
    );
    let sources = records.iter().filter_map(|record| match record {
        Record::CallProposed(proposed) => Some(proposed.source.as_deref().cloned()),
        _ => None,
    });
    let of_x = |tool: &str| Some(ToolOrigin::Mcp { server: "x".into(), tool: tool.into() });
    assert_eq!(sources.collect::<Vec<_>>(), [of_x("echo"), of_x("new"), None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_reads_of_a_change_in_the_middle_of_its_turn() {
    let source = Source::of(vec![tool("echo", "")]);
    let model = Model::new()
        .step(call("probe", json!({"mode": "wait"})))
        .step(call("probe", json!({"mode": "free"})))
        .next_turn()
        .step(text("done"));
    let stage = stage(&source, Script::new().model("m", model)).await;
    let session = stage.session("m").await;
    session.prompt(Prompt::text("One")).await.unwrap();
    stage.probe.begun().await;
    source.set(vec![tool("echo", ""), tool("new", "")]);
    let mut events = session.events(None).await.unwrap();
    stage.probe.release(1);
    until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
    grows(&stage, 0);
    assert!(request(&stage, 2)["messages"].to_string().contains("mcp_x_new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shown_is_the_same_after_a_restart_though_its_source_is_gone() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let echo = || Script::new();
    let (source, empty) = (Source::of(vec![tool("echo", "first words")]), Source::of(Vec::new()));
    let (id, late, first) = {
        let stage = Stage::with(Store::open(&data).unwrap(), folder.clone(), echo(), with(&source)).await;
        let session = stage.session("echo").await;
        session.run(Prompt::text("One")).await.unwrap();
        source.set(Vec::new());
        // It begins without any.
        let late = stage.session("echo").await;
        late.run(Prompt::text("One")).await.unwrap();
        stage.engine.shutdown().await;
        (session.id(), late.id(), [request(&stage, 0), request(&stage, 1)])
    };
    // They stand with the tools, and with none of them where there is none.
    let told = first.each_ref().map(|request| request["system"].to_string().matches(INSTRUCTIONS).count());
    assert_eq!(told, [1, 0]);
    let run = async |source: &Arc<Source>, number: usize| {
        let store = Store::open(&data).unwrap();
        let stage = Stage::with(store, folder.clone(), echo(), with(source)).await;
        for (id, first) in [id, late].into_iter().zip(&first) {
            let session = stage.engine.session(id).await.unwrap();
            session.run(Prompt::text(format!("Prompt {number}"))).await.unwrap();
            let last = stage.directory.mock.journal().entries().len() - 1;
            let request = request(&stage, last);
            assert_eq!(request["tools"].to_string(), first["tools"].to_string());
            assert_eq!(request["system"].to_string(), first["system"].to_string());
            let notes = request["messages"].to_string().matches("The tools have changed").count();
            // One of each run, which stays.
            assert_eq!(notes, number, "{request}");
        }
        stage.engine.shutdown().await;
    };
    source.set(vec![tool("echo", "other words"), tool("late", "")]);
    run(&source, 1).await;
    run(&empty, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn older_messages_that_are_read_differently_show_what_there_is_now() {
    let source = Source::of(vec![tool("echo", "first words")]);
    let stage = stage(&source, walker()).await;
    *stage.directory.room.lock().unwrap() = Some(ROOM);
    let session = stage.session("m").await;
    session.run(Prompt::text("Look.")).await.unwrap();
    source.set(vec![tool("echo", "other words"), tool("new", "")]);
    let mut events = session.events(None).await.unwrap();
    session.compact(None).await.unwrap();
    until(&mut events, |record| matches!(record, Record::ContextCompacted(_))).await;
    session.run(Prompt::text("Three")).await.unwrap();
    let last = stage.directory.mock.journal().entries().len() - 1;
    assert_eq!(shown(&stage, last), ["mcp_x_echo", "mcp_x_new"]);
    let request = request(&stage, last).to_string();
    assert!(request.contains("other words") && !request.contains("first words"), "{request}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tenant_has_its_own_and_each_agent_those_that_serve_it() {
    let source = Source::of(Vec::new());
    let of_looker = Outside { agent: Some("looker"), ..Arc::into_inner(tool("reads", "")).unwrap() };
    *source.0.lock().unwrap() = vec![
        (Some("acme"), tool("acme", "") as _),
        (Some("local"), tool("local", "") as _),
        (None, Arc::new(of_looker) as _),
    ];
    let model = Model::new()
        .step(call("mcp_x_reads", json!({})))
        .step(call("mcp_x_acme", json!({})))
        .step(text("done"));
    let stage = stage(&source, Script::new().model("m", model)).await;
    let session = stage.session("m").await;
    session.run(Prompt::text("One")).await.unwrap();
    assert_eq!(shown(&stage, 0), ["mcp_x_local"]);
    let records = stage.records(&session).await;
    let results = results(&records);
    assert!(results[0].output.contains("may not use the tool mcp_x_reads"), "{results:?}");
    assert!(results[1].output.contains("there is no tool") && results[1].outcome == CallOutcome::Failed);
    let other =
        NewSession { tenant: "acme".into(), agent: Some("looker".into()), ..stage.new_session("echo") };
    let other = stage.engine.create(other).await.unwrap();
    other.run(Prompt::text("One")).await.unwrap();
    assert_eq!(shown(&stage, 3), ["mcp_x_acme", "mcp_x_reads"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_are_searched_instead_of_shown() {
    let many = (0..50).map(|number| tool(&format!("t{number}"), "does it"));
    let pass_on = ["mcp_search", "mcp_call"].map(|name| {
        let spec = ToolSpec { name: name.to_owned(), ..tool("any", "").spec.clone() };
        Arc::new(Outside { spec, origin: ToolOrigin::Host, agent: None })
    });
    let source = Source::of(many.clone().chain(pass_on.clone()).collect());
    let stage = stage(&source, Script::new()).await;
    let few = |source: &Source| source.set(many.clone().take(3).chain(pass_on.clone()).collect());
    let session = stage.session("echo").await;
    session.run(Prompt::text("One")).await.unwrap();
    assert_eq!(shown(&stage, 0), ["mcp_search", "mcp_call"]);
    few(&source);
    session.run(Prompt::text("Two")).await.unwrap();
    assert!(!request(&stage, 1).to_string().contains("The tools have changed"));
    let session = stage.session("echo").await;
    session.run(Prompt::text("One")).await.unwrap();
    assert_eq!(shown(&stage, 2), ["mcp_x_t0", "mcp_x_t1", "mcp_x_t2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allowlist_holds_for_them_and_may_name_what_is_not_there_yet() {
    let source = Source::of(vec![tool("echo", ""), tool("other", "")]);
    let model = Model::new().step(call("mcp_x_other", json!({}))).step(text("done"));
    let stage = stage(&source, Script::new().model("m", model)).await;
    let tools = ["read", "mcp_x_echo", "mcp_y_late"].map(str::to_owned);
    let new = NewSession { tools: Some(tools.into()), ..stage.new_session("m") };
    let session = stage.engine.create(new).await.unwrap();
    session.run(Prompt::text("One")).await.unwrap();
    assert_eq!(shown(&stage, 0), ["mcp_x_echo"]);
    let records = stage.records(&session).await;
    let output = &results(&records)[0].output;
    assert!(output.contains("there is no tool \"mcp_x_other\"") && !output.contains("bash"), "{output}");
    let unknown = NewSession { tools: Some(vec!["host_tool".to_owned()]), ..stage.new_session("m") };
    assert!(stage.engine.create(unknown).await.is_err());
}
