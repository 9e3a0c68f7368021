use std::path::Path;

use futures::FutureExt as _;

use playhouse_mcp::{ServerScope, Transport, WallsWish};
use playhouse_policy::Verdict;
use playhouse_protocol::IdGenerator;
use playhouse_protocol::question::{Question, QuestionAnswer, Todo};
use playhouse_sandbox::{Processes, Walls};
use playhouse_tools::storage::SessionStorage;
use playhouse_tools::web::Door;
use playhouse_tools::{
    Alone, CallContext, Host, MCP_RESOURCE, Prepared, Registry, Showing, ToolError, ToolOutput,
};
use playhouse_workspace::{FileTracker, PathLocks, Pool, Workspace};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::base::now;

/// A server in the language of shells. Its tool `who` tells its process, `die` ends it, `hang` answers nothing, and `grow`
/// adds one.
const SCRIPT: &str = r#"
say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/^[^,]*,"id":\([0-9]*\),.*/\1/p')
    case "$line" in
    *'"initialize"'*) say '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *'"tools/list"'*) say '{"tools":[{"name":"who","inputSchema":{"type":"object"}},{"name":"die"},{"name":"hang"},{"name":"grow"}'"$more"']}' ;;
    *'"grow"'*) more=',{"name":"new"}'; printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'; say '{}' ;;
    *'"who"'*) say '{"content":[{"type":"text","text":"'$$'"}]}' ;;
    *'"die"'*) exit 4 ;;
    esac
done
"#;

/// One without tools, with a prompt and a resource.
const READS: &str = r#"
say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/^[^,]*,"id":\([0-9]*\),.*/\1/p')
    case "$line" in
    *'"initialize"'*) say '{"protocolVersion":"2025-11-25","capabilities":{"prompts":{},"resources":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *'"prompts/list"'*) say '{"prompts":[{"name":"greet all","description":"Greets.","arguments":[{"name":"who","required":true},{"name":"how"}]}]}' ;;
    *'"how":"loud & clear"'*) say '{"messages":[{"role":"user","content":{"type":"text","text":"Greet the world @loudly."}},{"role":"assistant","content":{"type":"text","text":"Hello."}}]}' ;;
    *'"prompts/get"'*) say '{"messages":[{"role":"user","content":{"type":"text","text":"Greet."}}]}' ;;
    *'"resources/list"'*) say '{"resources":[{"uri":"note://1","name":"one","mimeType":"text/plain","description":"The first."}]}' ;;
    *'"note://1"'*) say '{"contents":[{"uri":"note://1","text":"What it says."}]}' ;;
    *'"resources/read"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"there is no such note"}}\n' "$id" ;;
    esac
done
"#;

fn reads(name: &str) -> ServerEntry {
    let mut entry = ServerEntry::stdio(name, "/bin/sh", vec!["-c".into(), READS.into()]);
    entry.walls = WallsWish { sandbox: playhouse_mcp::ServerSandbox::None, ..WallsWish::default() };
    entry
}

fn entry(name: &str) -> ServerEntry {
    let mut entry = ServerEntry::stdio(name, "/bin/sh", vec!["-c".into(), SCRIPT.into()]);
    entry.walls = WallsWish { sandbox: playhouse_mcp::ServerSandbox::None, ..WallsWish::default() };
    entry
}

struct Stage {
    folder: TempDir,
    ids: IdGenerator,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs_err::create_dir(folder.path().join("workspace")).unwrap();
        Self { folder, ids: IdGenerator::new(|bytes| getrandom::fill(bytes).unwrap()) }
    }

    fn servers(&self, entries: Vec<ServerEntry>) -> McpServers {
        let options = McpOptions {
            entries,
            folder: self.folder.path().join("mcp"),
            runtime: Handle::current(),
            sandbox: Sandbox::BestEffort,
            hidden: Vec::new(),
            roots: Vec::new(),
            door: Door::new(Vec::new()),
        };
        let rules = Rules {
            first_backoff: Duration::ZERO,
            longest_backoff: Duration::ZERO,
            // A death counts, however long the server ran.
            healthy: Duration::from_secs(3_600),
            ..Rules::default()
        };
        McpServers::with(options, rules)
    }

    fn scope(&mut self) -> ToolScope {
        let workspace = fs_err::canonicalize(self.folder.path().join("workspace")).unwrap();
        ToolScope { tenant: "acme".into(), workspace: workspace.into(), session: self.ids.next(now()) }
    }

    fn context(&self) -> CallContext {
        let (workspace, outputs) = (self.folder.path().join("workspace"), self.folder.path().join("outputs"));
        CallContext {
            workspace: Arc::new(Workspace::open(&workspace, outputs.clone()).unwrap()),
            files: Arc::new(FileTracker::new()),
            locks: Arc::new(PathLocks::new()),
            pool: Pool::new(2),
            cancel: CancellationToken::new(),
            output: Arc::new(()),
            output_file: outputs.join("call.txt"),
            storage: SessionStorage::alone(outputs),
            host: Arc::new(Alone::new(Arc::new(Registry::new()))),
            processes: Processes::new().of("ses_1"),
            walls: Walls::open(),
            writes: playhouse_tools::WriteLog::default(),
        }
    }

    async fn call(&self, tools: &[Arc<dyn Tool>], name: &str) -> Result<ToolOutput, ToolError> {
        let tool = tools.iter().find(|tool| tool.spec().name == name).unwrap();
        let context = self.context();
        let prepared = tool.prepare(&Map::new(), &context).await?;
        tool.execute(prepared.plan, &context).await
    }
}

/// Somebody who gives this answer to every question.
struct Person {
    alone: Alone,
    answer: QuestionAnswer,
}

impl Host for Person {
    fn find(&self, tool: &str) -> Result<Arc<dyn Tool>, ToolError> {
        self.alone.find(tool)
    }

    fn judge(&self, tool: &dyn Tool, prepared: &Prepared) -> Verdict {
        self.alone.judge(tool, prepared)
    }

    fn showing(&self) -> Showing {
        self.alone.showing()
    }

    fn todos(&self) -> Arc<[Todo]> {
        self.alone.todos()
    }

    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, QuestionAnswer> {
        assert!(questions[0].question.contains("Which colour?"), "{questions:?}");
        Box::pin(std::future::ready(self.answer.clone()))
    }
}

fn names(tools: &[Arc<dyn Tool>]) -> Vec<&str> {
    // The two that stand for all of them come last.
    let names = tools.iter().map(|tool| tool.spec().name.as_str());
    names.filter(|name| !matches!(*name, "mcp_search" | "mcp_call")).collect()
}

/// The tools of a session once something is known of them.
async fn known(servers: &McpServers, scope: &ToolScope) -> Arc<[Arc<dyn Tool>]> {
    servers.ready(scope).await;
    // It may take longer than sessions wait.
    drop(servers.0.asked.subscribe().wait_for(HashMap::is_empty).await);
    servers.tools(scope)
}

fn state(servers: &McpServers) -> McpState {
    servers.status(None, None).remove(0).state
}

#[tokio::test]
async fn tools_are_learned_once_and_kept() {
    let mut stage = Stage::new();
    let scope = stage.scope();
    let servers = stage.servers(vec![entry("sh")]);
    assert_eq!((state(&servers), servers.status(None, None)[0].tools), (McpState::Stopped, None));
    let mut changed = servers.changed();
    let tools = known(&servers, &scope).await;
    assert!(changed.has_changed().unwrap());
    changed.mark_unchanged();
    assert_eq!(names(&tools), ["mcp_sh_who", "mcp_sh_die", "mcp_sh_hang", "mcp_sh_grow"]);
    assert!(Arc::ptr_eq(&tools, &servers.tools(&scope)));
    assert_eq!(servers.stop_all(Duration::from_secs(60)).await, 0);
    // The next engine knows them, and starts nothing for that.
    let next = stage.servers(vec![entry("sh")]);
    assert_eq!(names(&next.tools(&scope)), names(&tools));
    assert_eq!((state(&next), next.status(None, None)[0].tools), (McpState::Stopped, Some(4)));
    // One that is declared differently is another.
    let mut other = entry("sh");
    other.timeout += Duration::from_secs(1);
    assert_eq!(stage.servers(vec![other]).status(None, None)[0].tools, None);
}

#[tokio::test]
async fn only_the_first_session_waits_for_a_server_that_says_nothing() {
    let mut stage = Stage::new();
    let (first, second) = (stage.scope(), stage.scope());
    let mut silent = ServerEntry::stdio("silent", "/bin/sh", vec!["-c".into(), "exec sleep 1000".into()]);
    silent.walls = entry("silent").walls;
    let servers = stage.servers(vec![silent]);
    assert!(servers.ready(&first).now_or_never().is_none(), "something may be known in time");
    servers.ready(&first).await;
    assert!(servers.ready(&second).now_or_never().is_some());
    servers.stop_all(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_server_that_did_not_answer_is_waited_for_again_only_when_it_has() {
    let mut stage = Stage::new();
    // It answers once it may.
    let may = stage.folder.path().join("may");
    let script = format!("[ -e {} ] || exit 1\n{SCRIPT}", may.display());
    let mut late = ServerEntry::stdio("late", "/bin/sh", vec!["-c".into(), script]);
    late.walls = entry("late").walls;
    let servers = stage.servers(vec![late]);
    servers.ready(&stage.scope()).await;
    let mut asked = servers.0.asked.subscribe();
    asked.wait_for(HashMap::is_empty).await.unwrap();
    let scope = stage.scope();
    assert!(servers.ready(&scope).now_or_never().is_some());
    assert!(!servers.0.asked.borrow().is_empty(), "it is asked again");
    asked.wait_for(HashMap::is_empty).await.unwrap();
    fs_err::write(may, "").unwrap();
    let scope = stage.scope();
    assert!(servers.ready(&scope).now_or_never().is_some());
    asked.wait_for(HashMap::is_empty).await.unwrap();
    assert!(!names(&servers.tools(&scope)).is_empty());
    assert!(servers.0.silent.lock().is_empty());
    servers.stop_all(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn what_a_server_uses_is_counted_while_it_runs() {
    let mut stage = Stage::new();
    let scope = stage.scope();
    let servers = stage.servers(vec![entry("sh")]);
    let processes = || servers.uses()["sh"].processes;
    assert_eq!(processes(), 0);
    known(&servers, &scope).await;
    assert!(processes() >= 1 && servers.uses()["sh"].resident_bytes > 100_000, "{:?}", servers.uses());
    assert_eq!(servers.uses()["workspace"].processes, 0);
    assert_eq!(servers.stop_all(Duration::from_secs(60)).await, 0);
    assert_eq!(processes(), 0);
}

#[tokio::test]
async fn resources_are_listed_and_read_by_one_tool() {
    let mut stage = Stage::new();
    let scope = stage.scope();
    let mut hidden = reads("hidden");
    hidden.agents = Some(vec!["plan".to_owned()]);
    let servers = stage.servers(vec![reads("notes"), entry("sh"), hidden]);
    servers.ready(&scope).await;
    let tools = known(&servers, &scope).await;
    assert_eq!(names(&tools).iter().filter(|name| **name == MCP_RESOURCE).count(), 1);
    let read = async |input: Value| {
        let context = stage.context();
        let tool = tools.iter().find(|tool| tool.spec().name == MCP_RESOURCE).unwrap();
        let Value::Object(input) = input else { unreachable!() };
        let prepared = tool.prepare(&input, &context).await?;
        tool.execute(prepared.plan, &context).await
    };
    let listed = read(json!({"server": "notes"})).await.unwrap();
    assert_eq!(listed.output, "note://1 (text/plain): The first.");
    assert_eq!(read(json!({"server": "notes", "uri": "note://1"})).await.unwrap().output, "What it says.");
    for (input, said) in [
        (json!({"server": "notes", "uri": "note://2"}), "there is no such note"),
        (json!({"server": "sh"}), "no server \"sh\" has resources; these do: notes"),
        // Its agents are others.
        (json!({"server": "hidden"}), "these do: notes"),
        (json!({}), "\"server\" is missing"),
        (json!({"server": "notes", "uri": 7}), "\"uri\" must be a text"),
    ] {
        let error = read(input).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(servers.stop_all(Duration::from_secs(60)).await, 0);
}

#[tokio::test]
async fn prompts_are_commands_with_words_as_arguments() {
    let mut stage = Stage::new();
    let scope = stage.scope();
    let servers = stage.servers(vec![reads("notes")]);
    known(&servers, &scope).await;
    let prompts = servers.prompts(&scope);
    let facts: Vec<_> = prompts.iter().map(ServerPrompt::facts).collect();
    assert_eq!(
        (facts[0].name.as_str(), &facts[0].hints[..]),
        ("notes:greet_all", &["$1".into(), "$2".into()][..])
    );
    assert_eq!(facts[0].template, "The prompt greet all of a server of tools, with who [how]");
    let get = async |words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Ok::<_, String>(prompts[0].get(words).await?.into_output(String::new()).unwrap().output)
    };
    assert_eq!(get(&["world"]).await.unwrap(), "Greet.");
    let told = get(&["world", "loud & clear"]).await.unwrap();
    assert_eq!(told, "Greet the world @loudly.\nassistant:\nHello.");
    assert_eq!(get(&[]).await.unwrap_err(), "/notes:greet_all: its argument \"who\" is missing");
    servers.set_enabled("notes", None, false).unwrap();
    assert!(servers.prompts(&scope).is_empty());
    assert_eq!(servers.stop_all(Duration::from_secs(60)).await, 0);
}

#[tokio::test]
async fn sessions_share_a_server_as_far_as_its_entry_says() {
    for (scope, shared) in
        [(ServerScope::Tenant, true), (ServerScope::Workspace, true), (ServerScope::Session, false)]
    {
        let mut stage = Stage::new();
        let mut declared = entry("sh");
        declared.scope = scope;
        let servers = stage.servers(vec![declared]);
        let (one, two) = (stage.scope(), stage.scope());
        let first = stage.call(&known(&servers, &one).await, "mcp_sh_who").await.unwrap().output;
        let second = stage.call(&servers.tools(&two), "mcp_sh_who").await.unwrap().output;
        assert_eq!(first == second, shared, "{scope:?}");
        assert_eq!(
            (state(&servers), servers.status(None, None)[0].running),
            (McpState::Connected, if shared { 1 } else { 2 })
        );
        assert_eq!(servers.stop_all(Duration::from_secs(60)).await, 0);
        assert!(!Path::new("/proc").join(&first).exists() || !Path::new("/proc").join(&second).exists());
    }
}

#[tokio::test]
async fn a_server_that_dies_three_times_is_left_alone_until_somebody_connects_it() {
    let mut stage = Stage::new();
    let scope = stage.scope();
    let servers = stage.servers(vec![entry("sh")]);
    let tools = known(&servers, &scope).await;
    for _ in 0..DEATHS {
        let leased = servers.lease("sh", &scope).await.unwrap();
        let error = stage.call(&tools, "mcp_sh_die").await.unwrap_err();
        assert!(error.to_string().contains("exit code 4"), "{error}");
        assert_eq!(*leased.gone().await, *"it ended with exit code 4");
    }
    let error = stage.call(&tools, "mcp_sh_who").await.unwrap_err().to_string();
    assert!(
        error.starts_with("server of tools sh keeps failing, last with: it ended with exit code 4"),
        "{error}"
    );
    assert!(matches!(state(&servers), McpState::Failed(reason) if reason.contains("exit code 4")));
    servers.connect("sh", &scope).await.unwrap();
    assert_eq!(state(&servers), McpState::Connected);
    assert!(stage.call(&tools, "mcp_sh_who").await.is_ok());
}

#[tokio::test]
async fn a_question_of_a_server_is_put_to_the_people_behind_the_call() {
    const ASK: &str = r#"call=$id; printf '%s\n' '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Which colour?","requestedSchema":{"type":"object","properties":{"colour":{"type":"string","enum":["red","green"]}},"required":["colour"]}}}'; read -r reply; id=$call; say "$(printf '%s' "$reply" | sed 's/"/\\"/g; s/.*/{"content":[{"type":"text","text":"&"}]}/')""#;
    let mut stage = Stage::new();
    let scope = stage.scope();
    let mut asking = entry("sh");
    let Transport::Stdio(stdio) = &mut asking.transport else { panic!("it is a program") };
    stdio.args[1] = SCRIPT.replace("exit 4", ASK);
    let servers = stage.servers(vec![asking]);
    let tools = known(&servers, &scope).await;
    let green = QuestionAnswer::Answered { answers: vec![vec!["green".into()]] };
    for (answer, says) in [
        (green, r#""result":{"action":"accept","content":{"colour":"green"}}"#),
        (QuestionAnswer::Rejected, r#""action":"decline""#),
        (QuestionAnswer::TimedOut, r#""action":"cancel""#),
    ] {
        let mut context = stage.context();
        context.host = Arc::new(Person { alone: Alone::default(), answer });
        let tool = tools.iter().find(|tool| tool.spec().name == "mcp_sh_die").unwrap();
        let prepared = tool.prepare(&Map::new(), &context).await.unwrap();
        let told = tool.execute(prepared.plan, &context).await.unwrap().output;
        assert!(told.contains(says), "{told}");
    }
}

#[tokio::test]
async fn a_list_that_changes_is_asked_for_again() {
    let mut stage = Stage::new();
    let scope = stage.scope();
    let servers = stage.servers(vec![entry("sh")]);
    let tools = known(&servers, &scope).await;
    let mut changed = servers.changed();
    changed.mark_unchanged();
    stage.call(&tools, "mcp_sh_grow").await.unwrap();
    changed.changed().await.unwrap();
    assert_eq!(names(&servers.tools(&scope)).last(), Some(&"mcp_sh_new"));
    // Others begin with what it offers when it has just started.
    assert_eq!(names(&servers.tools(&stage.scope())).len(), 5);
    let other = ToolScope { tenant: "other".into(), ..stage.scope() };
    assert_eq!(names(&servers.tools(&other)).len(), 4);
}

#[tokio::test]
async fn a_server_is_switched_off_and_on() {
    let mut stage = Stage::new();
    let scope = stage.scope();
    let servers = stage.servers(vec![entry("sh")]);
    known(&servers, &scope).await;
    let mut changed = servers.changed();
    changed.mark_unchanged();
    servers.set_enabled("sh", None, false).unwrap();
    assert!(changed.has_changed().unwrap() && servers.tools(&scope).is_empty());
    assert_eq!(state(&servers), McpState::Disabled);
    assert!(servers.connect("sh", &scope).await.unwrap_err().contains("switched off"));
    assert!(servers.connect("nothing", &scope).await.unwrap_err().contains("no server of tools"));
    servers.set_enabled("sh", None, true).unwrap();
    assert_eq!(names(&servers.tools(&scope)).len(), 4);
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let mut stage = Stage::new();
    let scope = stage.scope();
    let mut missing = entry("sh");
    let Transport::Stdio(stdio) = &mut missing.transport else { panic!("it is a program") };
    stdio.command = "no-such-program".into();
    let servers = stage.servers(vec![missing]);
    let error = servers.connect("sh", &scope).await.unwrap_err();
    assert!(error.contains("no-such-program"), "{error}");
    assert!(matches!(state(&servers), McpState::Failed(reason) if reason.contains("no-such-program")));
}

#[tokio::test]
async fn a_server_behind_an_address_is_reached_through_the_door() {
    let mut stage = Stage::new();
    let scope = stage.scope();
    let servers = stage.servers(vec![ServerEntry::http("web", "http://127.0.0.1:1/mcp")]);
    let error = servers.connect("web", &scope).await.unwrap_err();
    assert!(error.contains("allow_private"), "{error}");
    assert!(matches!(state(&servers), McpState::Failed(reason) if reason.contains("loopback")));
    assert_eq!(servers.status(None, None)[0].command, "http://127.0.0.1:1/mcp");
}

#[tokio::test]
async fn a_server_works_in_walls() {
    for scope in [ServerScope::Tenant, ServerScope::Workspace] {
        let mut stage = Stage::new();
        let mut held = entry("sh");
        held.walls = WallsWish::default();
        held.scope = scope;
        let servers = stage.servers(vec![held]);
        let session = stage.scope();
        let tools = known(&servers, &session).await;
        assert!(stage.call(&tools, "mcp_sh_who").await.is_ok(), "{:?}", servers.status(None, None));
        assert_eq!(servers.stop_all(Duration::from_secs(60)).await, 0);
    }
}

#[tokio::test]
async fn a_cancelled_call_ends_and_after_a_stop_nothing_starts() {
    let mut stage = Stage::new();
    let scope = stage.scope();
    let servers = stage.servers(vec![entry("sh")]);
    let tools = known(&servers, &scope).await;
    let context = stage.context();
    let hang = tools.iter().find(|tool| tool.spec().name == "mcp_sh_hang").unwrap();
    let prepared = hang.prepare(&json!({"a": 1}).as_object().cloned().unwrap(), &context).await.unwrap();
    assert_eq!(prepared.preview, "server sh, tool hang\n{\n  \"a\": 1\n}");
    let mut hung = hang.execute(prepared.plan, &context);
    assert!(futures::poll!(&mut hung).is_pending());
    context.cancel.cancel();
    assert_eq!(hung.await, Err(ToolError::Cancelled(String::new())));
    servers.stop().await;
    let error = stage.call(&tools, "mcp_sh_who").await.unwrap_err().to_string();
    assert!(error.contains("the engine stops"), "{error}");
}
