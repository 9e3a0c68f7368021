//! The MCP server over streamable HTTP.

use mock_llm::{Fault, Model, Script, call, text};
use serde_json::{Value, json};

use crate::client::{Client, Events};
use crate::support::{Served, Site};

const PATH: &str = "/v1/mcp";
const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");

/// A client of the protocol, in the revision with sessions.
struct Mcp {
    client: Client,
    session: String,
    requests: std::cell::Cell<u64>,
}

fn hello(capabilities: &Value) -> String {
    let client = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string()
}

impl Mcp {
    async fn new(client: &Client, capabilities: Value) -> Self {
        let (head, mut events) = client.stream("POST", PATH, &[ACCEPT], &hello(&capabilities)).await;
        assert_eq!(head.status, 200);
        let session = head.headers["mcp-session-id"].to_str().unwrap().to_owned();
        let first = events.next().await.unwrap().json;
        assert_eq!(first["result"]["protocolVersion"], "2025-11-25", "{first}");
        assert_eq!(first["result"]["serverInfo"]["name"], "playhouse", "{first}");
        let mcp = Self { client: client.clone(), session, requests: 0.into() };
        mcp.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        mcp
    }

    /// One whose people can be asked.
    async fn asked(client: &Client) -> Self {
        Self::new(client, json!({"elicitation": {}})).await
    }

    fn headers(&self) -> [(&str, &str); 2] {
        [ACCEPT, ("mcp-session-id", &self.session)]
    }

    /// Sends what has no answer.
    async fn send(&self, message: Value) {
        let answer = self.client.ask("POST", PATH, &self.headers(), &message.to_string()).await;
        assert_eq!(answer.status, 202, "{}", answer.body);
    }

    /// Asks something; its id, and what comes before and with its answer.
    async fn request(&self, method: &str, params: Value) -> (u64, Events) {
        let id = self.requests.get() + 1;
        self.requests.set(id);
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let (head, events) = self.client.stream("POST", PATH, &self.headers(), &request.to_string()).await;
        assert_eq!(head.status, 200, "{request}");
        (id, events)
    }

    async fn begin(&self, tool: &str, arguments: Value) -> (u64, Events) {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "p"}});
        self.request("tools/call", params).await
    }

    /// The result of a call, or what is wrong with it.
    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let (_, mut events) = self.begin(tool, arguments).await;
        last(&mut events).await
    }

    async fn made(&self, arguments: Value) -> String {
        let made = self.call("session_create", arguments).await;
        made["structuredContent"]["session"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    }

    /// Answers what the server asked.
    async fn answer(&self, asked: &Value, result: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})).await;
    }
}

/// The answer, after whatever comes before it.
async fn last(events: &mut Events) -> Value {
    loop {
        let message = events.next().await.expect("it answers").json;
        if message.get("method").is_none() {
            return message.get("result").or(message.get("error")).unwrap().clone();
        }
    }
}

/// What the server asks next.
async fn elicited(events: &mut Events) -> Value {
    loop {
        let message = events.next().await.expect("it asks").json;
        if message["method"] == "elicitation/create" {
            return message;
        }
        assert_eq!(message["method"], "notifications/progress", "{message}");
    }
}

fn said(result: &Value) -> String {
    let texts = result["content"].as_array().unwrap_or_else(|| panic!("{result}")).iter();
    texts.map(|block| block["text"].as_str().unwrap()).collect()
}

async fn served(model: Model) -> (Site, Served, Client) {
    let site = Site::new();
    let served = site.serve(Script::new().model("m", model), |_| {}).await;
    let client = Client::of(&served, None);
    (site, served, client)
}

fn write(name: &str) -> mock_llm::Step {
    call("write", json!({"filePath": name, "content": "hello\n"}))
}

fn careful() -> Value {
    json!({"model": "mock/m", "agent": "careful"})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_begun_prompted_and_looked_at() {
    let (site, _served, client) = served(Model::new().step(write("a.txt")).step(text("All done."))).await;
    let mcp = Mcp::new(&client, json!({})).await;
    let (_, mut events) = mcp.request("tools/list", json!({})).await;
    let tools = last(&mut events).await;
    let names: Vec<_> =
        tools["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["session_create", "session_prompt", "session_status", "session_abort"]);

    let session = mcp.made(json!({"model": "mock/m", "title": "Handed over"})).await;
    let (_, mut events) = mcp.begin("session_prompt", json!({"session": session, "text": "go"})).await;
    let mut told = Vec::new();
    let result = loop {
        let message = events.next().await.unwrap().json;
        if message["method"] != "notifications/progress" {
            break message["result"].clone();
        }
        assert_eq!(message["params"]["progressToken"], "p");
        told.push(message["params"]["message"].as_str().unwrap().to_owned());
    };
    assert_eq!(told, ["the turn has begun", "step 1", "the tool write runs", "step 2"]);
    assert_eq!(said(&result), "All done.");
    let facts = &result["structuredContent"];
    assert_eq!((&facts["outcome"], &facts["steps"]), (&json!("completed"), &json!(2)), "{result}");
    assert_eq!(facts["totals"]["attempts"], 2, "{result}");
    assert!(site.workspace().join("a.txt").exists());

    let status = mcp.call("session_status", json!({"session": session})).await;
    let facts = &status["structuredContent"];
    assert_eq!((&facts["state"], &facts["title"]), (&json!("idle"), &json!("Handed over")), "{status}");
    assert_eq!((&facts["last"]["text"], &facts["turns"]), (&json!("All done."), &json!(1)), "{status}");
    let aborted = mcp.call("session_abort", json!({"session": session})).await;
    assert_eq!(aborted["structuredContent"], json!({"turns": 0}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_turn_asks_goes_to_the_people_behind_the_client() {
    let model = Model::new().step(write("a.txt")).step(write("b.txt")).step(text("So."));
    let (site, _served, client) = served(model).await;
    let mcp = Mcp::asked(&client).await;
    let session = mcp.made(careful()).await;
    let (_, mut events) = mcp.begin("session_prompt", json!({"session": session, "text": "go"})).await;
    let asked = elicited(&mut events).await;
    let message = asked["params"]["message"].as_str().unwrap();
    assert!(message.contains("write") && message.contains("a.txt"), "{message}");
    let status = mcp.call("session_status", json!({"session": session})).await;
    assert_eq!(status["structuredContent"]["waits"][0]["tool"], "write", "{status}");
    mcp.answer(&asked, json!({"action": "accept", "content": {}})).await;
    let asked = elicited(&mut events).await;
    mcp.answer(&asked, json!({"action": "decline"})).await;
    let result = last(&mut events).await;
    let declined = &result["structuredContent"]["declined"];
    assert_eq!((declined.as_array().unwrap().len(), &declined[0]["tool"]), (1, &json!("write")), "{result}");
    assert!(said(&result).starts_with("So.\n\nDeclined: write:"), "{result}");
    let exists = |name: &str| site.workspace().join(name).exists();
    assert!(exists("a.txt") && !exists("b.txt"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_answer_is_not_asked_any_more() {
    let (site, _served, client) = served(Model::new().step(write("a.txt")).step(text("So."))).await;
    let mcp = Mcp::asked(&client).await;
    let session = mcp.made(careful()).await;
    let (_, mut events) = mcp.begin("session_prompt", json!({"session": session, "text": "go"})).await;
    elicited(&mut events).await;
    let waiting = client.get("/v1/consents").await.with(200);
    let consent = waiting["consents"][0]["consent"].as_str().unwrap();
    let path = format!("/v1/sessions/{session}/consents/{consent}");
    client.post(&path, json!({"answer": "once"})).await.with(204);
    assert_eq!(said(&last(&mut events).await), "So.");
    assert!(site.workspace().join("a.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_forms() {
    let option = |label: &str| json!({"label": label, "description": "like it"});
    let question = json!({"questions": [
        {"question": "Which?", "header": "Colour", "options": [option("Red"), option("Blue")], "custom": false},
    ]});
    let model = Model::new().step(call("question", question.clone())).step(text("So.")).cycle();
    let (site, _served, client) = served(model).await;
    let mcp = Mcp::asked(&client).await;
    let session = mcp.made(json!({"model": "mock/m"})).await;
    let prompt = json!({"session": session, "text": "ask"});
    let (_, mut events) = mcp.begin("session_prompt", prompt.clone()).await;
    let asked = elicited(&mut events).await;
    let schema = &asked["params"]["requestedSchema"];
    assert_eq!(schema["properties"]["answer_1"]["enum"], json!(["Red", "Blue"]), "{asked}");
    mcp.answer(&asked, json!({"action": "accept", "content": {"answer_1": "Blue"}})).await;
    assert_eq!(said(&last(&mut events).await), "So.");
    assert!(site.requests()[1].to_string().contains("→ Blue"), "the model reads it");

    let mcp = Mcp::new(&client, json!({})).await;
    let result = mcp.call("session_prompt", prompt).await;
    assert_eq!(result["structuredContent"]["declined"][0]["tool"], "question", "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_can_be_asked_is_declined_and_said() {
    let (site, _served, client) = served(Model::new().step(write("a.txt")).step(text("So."))).await;
    for capabilities in [json!({}), json!({"elicitation": {"url": {}}})] {
        let mcp = Mcp::new(&client, capabilities).await;
        let session = mcp.made(careful()).await;
        let result = mcp.call("session_prompt", json!({"session": session, "text": "go"})).await;
        assert_eq!(result["structuredContent"]["outcome"], "completed", "{result}");
        assert!(said(&result).contains("Declined: write"), "{result}");
        assert!(!site.workspace().join("a.txt").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_cancelled_aborts_its_turn() {
    let step = text("one two three four five").fault(Fault::stall(5));
    let (_site, _served, client) = served(Model::new().step(step)).await;
    let mcp = Mcp::new(&client, json!({})).await;
    let session = mcp.made(json!({"model": "mock/m"})).await;
    let mut all = client.events(&format!("/v1/sessions/{session}/events"), None).await;
    let (id, _events) = mcp.begin("session_prompt", json!({"session": session, "text": "go"})).await;
    all.until("part.delta").await;
    let params = json!({"requestId": id, "reason": "no more"});
    mcp.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})).await;
    assert_eq!(all.until("turn.ended").await["data"]["outcome"], "aborted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_aborted_by_another_request() {
    let step = text("one two three four five").fault(Fault::stall(5));
    let (_site, _served, client) = served(Model::new().step(step)).await;
    let mcp = Mcp::new(&client, json!({})).await;
    let session = mcp.made(json!({"model": "mock/m"})).await;
    let mut all = client.events(&format!("/v1/sessions/{session}/events"), None).await;
    let (_, mut events) = mcp.begin("session_prompt", json!({"session": session, "text": "go"})).await;
    all.until("part.delta").await;
    let status = mcp.call("session_status", json!({"session": session})).await;
    assert_eq!(status["structuredContent"]["state"], "busy", "{status}");
    let aborted = mcp.call("session_abort", json!({"session": session})).await;
    assert_eq!(aborted["structuredContent"], json!({"turns": 1}));
    let result = last(&mut events).await;
    assert_eq!(
        (&result["isError"], &result["structuredContent"]["outcome"]),
        (&json!(true), &json!("aborted"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_a_schema_is_in_the_result() {
    let model = Model::new().step(call("submit_output", json!({"count": 7}))).step(text("So."));
    let (_site, _served, client) = served(model).await;
    let mcp = Mcp::new(&client, json!({})).await;
    let session = mcp.made(json!({"model": "mock/m"})).await;
    let schema = json!({"type": "object", "properties": {"count": {"type": "integer"}}});
    let prompt = json!({"session": session, "text": "count", "output": {"schema": schema}});
    let result = mcp.call("session_prompt", prompt).await;
    assert_eq!(result["structuredContent"]["output"], json!({"count": 7}), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_said_to_the_caller() {
    let (_site, _served, client) = served(Model::new().step(text("So."))).await;
    let mcp = Mcp::new(&client, json!({})).await;
    let unknown = "ses_00000000000012345678901234";
    for (tool, arguments, word) in [
        ("session_status", json!({"session": unknown}), unknown),
        ("session_prompt", json!({"session": unknown, "text": "go"}), unknown),
        ("session_prompt", json!({"text": "go"}), "session"),
        ("session_prompt", json!({"session": "nothing", "text": "go"}), "nothing"),
        ("session_create", json!({"workspaec": "/"}), "workspaec"),
        ("session_create", json!({"workspace": "/"}), "root"),
        ("session_create", json!({"model": "none/m"}), "none/m"),
    ] {
        let result = mcp.call(tool, arguments).await;
        assert_eq!(result["isError"], true, "{result}");
        assert!(said(&result).contains(word), "{result}");
    }
    let error = mcp.call("session_destroy", json!({})).await;
    assert_eq!(error["code"], -32602, "{error}");
    assert!(error["message"].as_str().unwrap().contains("session_destroy"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_belongs_to_another_key_is_not_there() {
    let site = Site::new();
    let (mine, theirs) = (site.key("acme"), site.key("other"));
    let below = site.workspace().join("below");
    fs_err::create_dir_all(&below).unwrap();
    let narrow = site.key_below("acme", &below);
    let script = Script::new().model("m", Model::new().step(text("So.")));
    let served = site.serve(script, |_| {}).await;
    let client = |key: &str| Client::of(&served, Some(key));
    let none = Client::of(&served, None);
    none.ask("POST", PATH, &[ACCEPT], &hello(&json!({}))).await.refused(401, "unauthorized");
    let foreign = [ACCEPT, ("origin", "https://evil.example.org")];
    client(&mine).ask("POST", PATH, &foreign, &hello(&json!({}))).await.refused(403, "forbidden");
    let foreign = [ACCEPT, ("host", "evil.example.org")];
    client(&mine).ask("POST", PATH, &foreign, &hello(&json!({}))).await.refused(403, "forbidden");

    let mcp = Mcp::new(&client(&mine), json!({})).await;
    let session = mcp.made(json!({"model": "mock/m"})).await;
    let other = Mcp::new(&client(&theirs), json!({})).await;
    let within = Mcp::new(&client(&narrow), json!({})).await;
    for stranger in [&other, &within] {
        for tool in ["session_status", "session_abort"] {
            let result = stranger.call(tool, json!({"session": session})).await;
            assert!(result["isError"] == true && said(&result).contains("no session"), "{result}");
        }
        // A session of the protocol belongs to its key.
        let stolen =
            Mcp { client: stranger.client.clone(), session: mcp.session.clone(), requests: 0.into() };
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
        let headers = stolen.headers();
        assert_eq!(stolen.client.ask("POST", PATH, &headers, &list).await.status, 404);
        assert_eq!(stolen.client.ask("GET", PATH, &headers, "").await.status, 404);
        stolen.client.ask("DELETE", PATH, &headers, "").await;
    }
    let outside = within.call("session_create", json!({"workspace": site.workspace()})).await;
    assert!(outside["isError"] == true && said(&outside).contains("root"), "{outside}");
    within.made(json!({"workspace": below, "model": "mock/m"})).await;
    // Nobody else ended it.
    let status = mcp.call("session_status", json!({"session": session})).await;
    assert_eq!(status["structuredContent"]["state"], "idle", "{status}");
    let ended = mcp.client.ask("DELETE", PATH, &mcp.headers(), "").await;
    assert!(ended.status < 300, "{}", ended.status);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    assert_eq!(mcp.client.ask("POST", PATH, &mcp.headers(), &list).await.status, 404);
}

#[tokio::test]
async fn no_session_of_the_protocol_makes_room_while_all_are_in_use() {
    let (_site, _served, client) = served(Model::new()).await;
    let mut open = Vec::new();
    for _ in 0..64 {
        let mcp = Mcp::new(&client, json!({})).await;
        let headers = [("accept", "text/event-stream"), ("mcp-session-id", &mcp.session)];
        open.push(client.stream("GET", PATH, &headers, "").await);
    }
    let refused = client.ask("POST", PATH, &[ACCEPT], &hello(&json!({}))).await;
    let limit = json!({"name": "mcp_sessions", "scope": "tenant", "unit": "count", "max": 64, "used": 64, "needed": 1});
    assert_eq!(refused.json()["limit"], limit);
    assert!(refused.header("retry-after").is_none(), "waiting does not help");
    let detail = refused.refused(429, "limited");
    assert!(detail.contains("64 sessions of this protocol"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_used_session_of_the_protocol_makes_room() {
    let (_site, _served, client) = served(Model::new().step(text("So."))).await;
    let first = Mcp::new(&client, json!({})).await;
    for _ in 0..64 {
        Mcp::new(&client, json!({})).await;
    }
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    assert_eq!(client.ask("POST", PATH, &first.headers(), &list).await.status, 404);
}

/// A request of the revision without sessions.
async fn alone(client: &Client, params: Value) -> Value {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    });
    let name = params["name"].as_str().unwrap().to_owned();
    let headers = [
        ACCEPT,
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", name.as_str()),
    ];
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let (head, mut events) = client.stream("POST", PATH, &headers, &request.to_string()).await;
    assert_eq!(head.status, 200);
    last(&mut events).await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_sessions_the_client_answers_with_its_next_request() {
    let model = Model::new().step(write("a.txt")).step(write("b.txt")).step(text("So."));
    let (site, _served, client) = served(model).await;
    let made = alone(&client, json!({"name": "session_create", "arguments": careful()})).await;
    let session = made["structuredContent"]["session"].as_str().unwrap_or_else(|| panic!("{made}"));
    let prompt = json!({"name": "session_prompt", "arguments": {"session": session, "text": "go"}});
    let mut result = alone(&client, prompt.clone()).await;
    for action in ["accept", "decline"] {
        assert_eq!(result["resultType"], "input_required", "{result}");
        let asked = result["inputRequests"].as_object().unwrap();
        assert_eq!(asked.len(), 1, "{result}");
        let (name, request) = asked.iter().next().unwrap();
        assert!(request["params"]["message"].as_str().unwrap().contains("write"), "{request}");
        let mut again = prompt.clone();
        again["inputResponses"] = json!({name: {"action": action}});
        again["requestState"] = result["requestState"].clone();
        result = alone(&client, again).await;
    }
    assert_eq!(result["structuredContent"]["outcome"], "completed", "{result}");
    assert_eq!(result["structuredContent"]["declined"][0]["tool"], "write", "{result}");
    let exists = |name: &str| site.workspace().join(name).exists();
    assert!(exists("a.txt") && !exists("b.txt"));
    let mut forged = prompt;
    forged["requestState"] = "nothing".into();
    let refused = alone(&client, forged).await;
    assert!(said(&refused).contains("request state"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn chosen_native_tools_are_called_as_the_key_in_sessions_below_its_roots() {
    let site = Site::new();
    let below = site.workspace().join("below");
    fs_err::create_dir_all(&below).unwrap();
    fs_err::write(below.join("in.txt"), "inside\n").unwrap();
    fs_err::write(site.workspace().join("out.txt"), "outside\n").unwrap();
    let (narrow, wide) = (site.key_below("acme", &below), site.key("acme"));
    let offer = |options: &mut playhouse_server::ServerOptions| options.mcp_tools = vec!["read".to_owned()];
    let served = site.serve(Script::new(), offer).await;
    let client = Client::of(&served, Some(&narrow));

    let mcp = Mcp::new(&client, json!({})).await;
    let (_, mut events) = mcp.request("tools/list", json!({})).await;
    let tools = last(&mut events).await;
    let listed = tools["tools"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&listed["name"], &listed["description"]), (&json!("read"), &json!("reads a file")));
    for _ in 0..2 {
        let result = mcp.call("read", json!({"filePath": "in.txt"})).await;
        assert!(said(&result).contains("inside") && result["isError"] != true, "{result}");
    }
    let error = mcp.call("write", json!({"filePath": "new.txt", "content": "x"})).await;
    assert_eq!(error["code"], -32602, "{error}");

    // Each session of the protocol has its own; requests without one share that of their key.
    Mcp::new(&client, json!({})).await.call("read", json!({"filePath": "in.txt"})).await;
    for _ in 0..2 {
        let call = json!({"name": "read", "arguments": {"filePath": "in.txt"}});
        let result = alone(&client, call).await;
        assert!(said(&result).contains("inside"), "{result}");
    }
    let sessions = client.get("/v1/sessions").await.with(200);
    let sessions = sessions["sessions"].as_array().unwrap();
    let works_below = |session: &Value| session["workspace"] == json!(below);
    assert!(sessions.len() == 3 && sessions.iter().all(works_below), "{sessions:?}");
    assert!(site.requests().is_empty(), "no model is asked");

    // The other key works in the first root.
    let other = Mcp::new(&Client::of(&served, Some(&wide)), json!({})).await;
    let result = other.call("read", json!({"filePath": "out.txt"})).await;
    assert!(said(&result).contains("outside"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_tool_that_there_is_not_ends_the_server_at_its_start() {
    let site = Site::new();
    let app = site.app(Script::new(), |options| options.mcp_tools = vec!["raed".to_owned()]).await;
    let listen = playhouse_server::Listen::Tcp("127.0.0.1:0".parse().unwrap());
    let error = playhouse_server::Server::bind(app, listen).await.unwrap_err().to_string();
    assert!(
        error.contains("server.mcp_tools") && error.contains("\"raed\"") && error.contains("read"),
        "{error}"
    );
}
