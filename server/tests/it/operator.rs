//! What the operator's own commands ask, over the socket.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use mock_llm::{Model, Script, call, text};
use playhouse_protocol::event::Provisional;
use playhouse_protocol::operator::{
    BillingRequest, EngineFacts, KeyRequest, ListSessions, OPERATOR_PROTOCOL, OperatorReply, OperatorRequest,
    ScriptedCall,
};
use playhouse_protocol::{
    Command, CommandError, Event, EventBody, ModelRef, NewSession, Prompt, Record, Sandbox, Seq, SessionId,
    Timestamp,
};
use playhouse_sandbox::Walls;
use playhouse_sandbox::process::{Environment, Limits, Run, Scope, Spec, run};
use playhouse_server::{
    DirectClient, Listen, Method, Operations, OperatorClient, OperatorError, Server, ServerOptions,
};
use playhouse_store::{Store, Upkeep};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Events};
use crate::support::{PATIENCE, Served, Site, ask_unix, open, post_unix};
use crate::wire_client::Wire;

struct TestOperations;

impl Operations for TestOperations {
    fn engine(&self) -> EngineFacts {
        EngineFacts {
            protocol: OPERATOR_PROTOCOL,
            version: "0".into(),
            pid: std::process::id(),
            generation: 1,
            configuration: "c".into(),
            file: None,
            sandbox: Sandbox::Off,
            network: false,
            background: false,
            ending: false,
        }
    }

    fn script(&self, _: &[ScriptedCall]) -> Result<ModelRef, CommandError> {
        Err(CommandError::Invalid("there are no calls by hand here".into()))
    }

    fn billing(&self, _: BillingRequest) -> BoxFuture<'_, Result<OperatorReply, CommandError>> {
        ready(Ok(OperatorReply::Sinks(Vec::new()))).boxed()
    }

    fn upkeep(&self) -> Arc<dyn Upkeep> {
        Store::memory().unwrap().upkeep
    }

    fn exported(&self) -> BoxFuture<'_, Result<Vec<(String, u64)>, CommandError>> {
        ready(Ok(Vec::new())).boxed()
    }

    fn observe(&self) {}
}

/// A server with a door for the operator, which ends when it is idle for this time.
async fn serve(ground: &Site, script: Script, idle: Option<Duration>) -> (Served, OperatorClient) {
    serve_with(ground, script, |options| options.idle_exit = idle).await
}

async fn serve_with(
    ground: &Site,
    script: Script,
    options: impl FnOnce(&mut ServerOptions),
) -> (Served, OperatorClient) {
    let app = ground.app(script, options).await.operated(Arc::new(TestOperations));
    let mut server = Server::bind(app, Listen::Tcp("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let path = ground.folder.path().join("engine.sock");
    server.and_on(Listen::Unix(path.clone())).await.unwrap();
    let served = Served::run(server);
    let client = OperatorClient::connect(&path).await.unwrap().expect("somebody serves it");
    (served, client)
}

fn new_session(ground: &Site, tenant: &str) -> NewSession {
    let workspace = ground.workspace().to_str().unwrap().to_owned();
    serde_json::from_value(json!({"tenant": tenant, "workspace": workspace})).unwrap()
}

async fn create(client: &OperatorClient, new: NewSession) -> SessionId {
    match client.ask(&OperatorRequest::Create(new)).await.unwrap() {
        OperatorReply::Created(session) => session,
        other => panic!("{other:?}"),
    }
}

/// The durable events of a turn, and the text of its parts.
fn read(events: &[Event]) -> (Vec<Event>, String) {
    let durable = events.iter().filter(|event| event.id.is_durable()).cloned().collect();
    let deltas = events.iter().filter_map(|event| match &event.body {
        EventBody::Provisional(Provisional::PartDelta { text, .. }) => Some(text.as_str()),
        _ => None,
    });
    (durable, deltas.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_lists_sessions_of_all_tenants_or_of_one() {
    let ground = Site::new();
    let (served, client) = serve(&ground, Script::new(), None).await;
    for tenant in ["local", "acme"] {
        create(&client, new_session(&ground, tenant)).await;
    }
    let socket = ground.folder.path().join("engine.sock");
    for (query, expected) in
        [("", vec!["acme", "local"]), ("?tenant=acme", vec!["acme"]), ("?tenant=x", vec![])]
    {
        let path = format!("/v1/sessions{query}");
        let page = ask_unix(&socket, &path, &[]).await.json();
        let tenants =
            page["sessions"].as_array().unwrap().iter().map(|session| session["tenant"].as_str().unwrap());
        assert_eq!(tenants.collect::<Vec<_>>(), expected, "{query}");
        let direct = DirectClient::new(served.app.clone()).call(Method::GET, &path, None).await.unwrap();
        assert_eq!(direct, page, "in the same process");
        let direct = client.call(Method::GET, &path, None).await.unwrap();
        assert_eq!(direct, page, "as a client of commands");
    }
    let refused = client.call(Method::GET, "/v1/sessions?limit=0", None).await.unwrap_err();
    assert!(refused.to_string().contains("must be from 1 to 500"), "{refused}");
    let others = served.get("/v1/sessions").await.json();
    assert_eq!(others["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(others["sessions"][0].get("tenant"), None);
    assert_eq!(served.get("/v1/sessions?tenant=acme").await.problem(), "forbidden");
    served.stop();
    served.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_follows_the_sessions_of_all_tenants_or_of_one() {
    let ground = Site::new();
    let (served, client) = serve(&ground, Script::new(), None).await;
    let socket = ground.folder.path().join("engine.sock");
    let follow = async |query: &str| {
        let stream = UnixStream::connect(&socket).await.unwrap();
        let answer = open(stream, "localhost", "GET", &format!("/v1/events{query}"), &[], "").await;
        assert_eq!(answer.status(), 200, "{query}");
        let mut events = Events::of(answer.into_body());
        // The place where it begins.
        events.heartbeat().await;
        events
    };
    let (mut all, mut acme) = (follow("").await, follow("?tenant=acme").await);
    let mut made = Vec::new();
    for tenant in ["local", "acme", "other"] {
        made.push(create(&client, new_session(&ground, tenant)).await.to_string());
    }
    for id in &made {
        assert_eq!(all.until("session.created").await["session"], *id);
    }
    assert_eq!(acme.until("session.created").await["session"], made[1]);
    for query in [format!("?after={}", acme.last), format!("?tenant=acme&after={}", all.last)] {
        assert_eq!(
            ask_unix(&socket, &format!("/v1/events{query}"), &[]).await.problem(),
            "invalid",
            "{query}"
        );
    }
    // Who comes back goes on.
    let mut back = follow(&format!("?after={}", all.last)).await;
    made.push(create(&client, new_session(&ground, "acme")).await.to_string());
    for events in [&mut all, &mut acme, &mut back] {
        assert_eq!(events.until("session.created").await["session"], made[3]);
    }
    served.stop();
    served.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_acts_for_the_tenant_of_a_session_or_for_the_one_that_is_named() {
    let ground = Site::new();
    let write = call("write", json!({"filePath": "a.txt", "content": "hello\n"}));
    let script = Script::new().model("m", Model::new().step(write).cycle());
    let (served, _client) = serve(&ground, script, None).await;
    let socket = ground.folder.path().join("engine.sock");
    let workspace = ground.workspace().to_str().unwrap().to_owned();
    let mut sessions = Vec::new();
    for tenant in ["acme", "local"] {
        let new = json!({"workspace": workspace, "model": "mock/m", "agent": "careful"});
        let made = post_unix(&socket, &format!("/v1/sessions?tenant={tenant}"), &new).await;
        assert_eq!(made.status, 201, "{made:?}");
        let id = made.json()["id"].as_str().unwrap().to_owned();
        let file = json!({"mime": "text/plain", "filename": "a.txt", "text": format!("of {tenant}")});
        let prompt = json!({"text": "Go.", "files": [file]});
        let prompted = post_unix(&socket, &format!("/v1/sessions/{id}/prompts"), &prompt).await;
        assert_eq!(prompted.status, 202, "{prompted:?}");
        let asked = async |query: &str| -> Vec<String> {
            let list = ask_unix(&socket, &format!("/v1/consents{query}"), &[]).await.json();
            let consents = list["consents"].as_array().unwrap().iter();
            consents.map(|consent| consent["session"].as_str().unwrap().to_owned()).collect()
        };
        sessions.push(id.clone());
        sessions.sort();
        let all = async {
            while asked("").await != sessions {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, all).await.expect("the requests of all tenants are listed");
        assert_eq!(asked(&format!("?tenant={tenant}")).await, std::slice::from_ref(&id));
        assert!(asked("?tenant=nobody").await.is_empty());
        // The file's content lies with what the session's tenant has.
        let messages = ask_unix(&socket, &format!("/v1/sessions/{id}/messages"), &[]).await.body;
        let (_, rest) = messages.split_once("\"hash\":\"").expect("the file is there");
        let attached = format!("/v1/sessions/{id}/attachments/{}", rest.split('"').next().unwrap());
        let content = ask_unix(&socket, &attached, &[]).await;
        assert_eq!((content.status, content.body), (200, format!("of {tenant}")));
        let elsewhere = ask_unix(&socket, &format!("/v1/sessions/{id}?tenant=nobody"), &[]).await;
        assert_eq!(elsewhere.problem(), "not-found");
    }
    for query in ["?tenant=", "?tenant=a&tenant=b", "?tenant=%0a"] {
        assert_eq!(
            ask_unix(&socket, &format!("/v1/grants{query}"), &[]).await.problem(),
            "invalid",
            "{query}"
        );
    }
    assert_eq!(served.get("/v1/consents?tenant=acme").await.problem(), "forbidden");
    let own = served.get("/v1/consents?tenant=local").await.json();
    assert_eq!(own["consents"].as_array().unwrap().len(), 1);
    // Else the server would wait for them before it ends.
    for id in sessions {
        let aborted = post_unix(&socket, &format!("/v1/sessions/{id}/abort"), &json!({})).await;
        assert!((200..300).contains(&aborted.status), "{aborted:?}");
    }
    served.stop();
    served.ended().await;
}

/// Runs a program as commands of sessions run, without walls, that asks for this path at the socket.
async fn ask_from_a_command(socket: &Path, path: &str, before: &str) -> String {
    let script = "use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new($ARGV[0]) or die $!; \
                  print $s \"GET $ARGV[1] HTTP/1.1\\r\\nhost: localhost\\r\\nconnection: close\\r\\n\\r\\n\"; print <$s>;";
    let command = format!("{before} perl -e '{script}' '{}' '{path}'", socket.display());
    let spec = Spec {
        run: Run::Shell(command),
        workdir: "/".into(),
        timeout: Some(PATIENCE),
        environment: Environment::of_this_process(),
        scope: Scope::new(),
        limits: Limits::default(),
        walls: Walls::open(),
    };
    let mut output = Vec::new();
    let exit = run(&spec, &CancellationToken::new(), &mut output).await.unwrap();
    let output = String::from_utf8(output).unwrap();
    assert_eq!(exit.code, Some(0), "these tests need perl (`apt install perl`): {output}");
    output
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_sessions_are_not_the_operator() {
    let ground = Site::new();
    let (served, client) = serve(&ground, Script::new(), None).await;
    let socket = ground.folder.path().join("engine.sock");
    assert_eq!(ask_unix(&socket, "/v1/sessions", &[]).await.status, 200);
    for before in ["", "setsid --wait", "setsid --wait env -i"] {
        for path in ["/v1/sessions", "/healthz", "/nothing"] {
            let answer = ask_from_a_command(&socket, path, before).await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{before} {path}: {answer}");
            assert!(answer.contains("urn:playhouse:problem:forbidden"), "{answer}");
        }
    }
    client.ask(&OperatorRequest::Hello).await.expect("the operator is not kept out");
    served.stop();
    served.ended().await;
}

#[tokio::test]
async fn events_are_those_that_the_handle_gives() {
    let ground = Site::new();
    let model =
        Model::new().step(text("I look.").call("list", json!({}))).step(text("one two three é \u{1f600}"));
    let (served, client) = serve(&ground, Script::new().model("greeter", model), None).await;
    let session = create(&client, new_session(&ground, "local")).await;
    let handle = served.app.engine().session(session).await.unwrap();
    let (mut there, mut here) =
        (client.events(session, Seq::START).await.unwrap(), handle.events(Some(Seq::START)).await.unwrap());
    let prompt = OperatorRequest::Command { session, command: Command::Prompt(Prompt::text("Look.")) };
    client.ask(&prompt).await.unwrap();
    let (mut heard, mut given) = (Vec::new(), Vec::new());
    let both = async {
        let is_over = |event: &Event| matches!(&event.body, EventBody::Durable(record) if matches!(**record, Record::TurnEnded(_)));
        while !heard.last().is_some_and(is_over) {
            heard.push(there.next().await.unwrap().expect("more comes").event().clone());
        }
        while !given.last().is_some_and(is_over) {
            given.push(here.next().await.unwrap().expect("more comes").event().clone());
        }
    };
    tokio::time::timeout(PATIENCE, both).await.expect("the turn ends");
    assert_eq!(read(&heard), read(&given), "deltas may be merged, and nothing else");
    // The end of the session is the end of its events.
    client.ask(&OperatorRequest::Delete(session)).await.unwrap();
    let last = there.next().await.unwrap().expect("it says that it is deleted");
    assert!(
        matches!(&last.event().body, EventBody::Durable(record) if matches!(**record, Record::Deleted {}))
    );
    assert!(there.next().await.unwrap().is_none());
    let error = client.ask(&OperatorRequest::Summary(session)).await.unwrap_err();
    assert_eq!(error, CommandError::NotFound(session).into());
    let error = client.events(session, Seq::START).await.unwrap_err();
    assert_eq!(error, CommandError::Invalid(CommandError::NotFound(session).to_string()).into());
    served.stop();
    served.ended().await;
}

#[tokio::test]
async fn requests_are_answered_with_what_the_handles_say() {
    let ground = Site::new();
    let (served, client) = serve(&ground, Script::new(), None).await;
    let (ours, theirs) = (
        create(&client, new_session(&ground, "local")).await,
        create(&client, new_session(&ground, "acme")).await,
    );
    for (tenant, expected) in [(Some("local"), vec![ours]), (None, vec![theirs, ours])] {
        let list = ListSessions { tenant: tenant.map(str::to_owned), ..ListSessions::default() };
        let OperatorReply::Sessions(found) = client.ask(&OperatorRequest::List(list)).await.unwrap() else {
            panic!("no list");
        };
        assert_eq!(found.sessions.iter().map(|summary| summary.id).collect::<Vec<_>>(), expected);
    }
    let OperatorReply::Log(log) = client.ask(&OperatorRequest::Read(ours)).await.unwrap() else {
        panic!("no log")
    };
    assert!(log.damage.is_none() && matches!(log.entries[0].record, Record::SessionCreated(_)));
    // 3 MB, of any bytes.
    let content: Vec<u8> = (0..3 << 20).map(|place: u32| place.to_le_bytes()[1]).collect();
    assert_eq!(client.store_blob("local", &content).await.unwrap().size, 3 << 20);
    let error = client.ask(&OperatorRequest::Script(Vec::new())).await.unwrap_err();
    assert_eq!(error.to_string(), "there are no calls by hand here");
    let error = client.ask(&OperatorRequest::Leave).await.unwrap_err();
    assert!(matches!(error, OperatorError::Refused(CommandError::Invalid(_))), "it does not end by itself");
    // While it ends it takes no new work, and says so.
    served.app.drain();
    let error = client.ask(&OperatorRequest::Create(new_session(&ground, "local"))).await.unwrap_err();
    assert!(matches!(error, OperatorError::Refused(CommandError::NotAccepted(_))), "{error:?}");
    client.ask(&OperatorRequest::Summary(ours)).await.unwrap();
    let path = ground.folder.path().join("engine.sock");
    assert!(OperatorClient::connect(&path).await.unwrap().unwrap().facts().ending);
    served.stop();
    served.ended().await;
    assert!(matches!(client.ask(&OperatorRequest::Hello).await.unwrap_err(), OperatorError::Gone(_)));
    assert!(OperatorClient::connect(&path).await.unwrap().is_none());
}

#[tokio::test]
async fn it_ends_when_nobody_needs_it() {
    let ground = Site::new();
    let slow =
        Model::new().step(call("list", json!({})).delay(Duration::from_millis(300))).step(text("Well."));
    let idle = Some(Duration::from_millis(50));
    let (served, client) = serve(&ground, Script::new().model("greeter", slow), idle).await;
    let session = create(&client, new_session(&ground, "local")).await;
    let prompt = OperatorRequest::Command { session, command: Command::Prompt(Prompt::text("Look.")) };
    client.ask(&prompt).await.unwrap();
    drop(client);
    let ended = served.ended().await;
    assert_eq!((ended.finished, ended.suspended), (0, 0), "the turn was over before: {ended:?}");
}

/// Leaves when it is asked to, and not by itself.
fn patient(options: &mut ServerOptions) {
    (options.idle_exit, options.leaves) = (Some(Duration::from_secs(3_600)), true);
}

#[tokio::test]
async fn it_leaves_for_somebody_else_once_nobody_is_there() {
    let ground = Site::new();
    let (served, client) = serve_with(&ground, Script::new(), patient).await;
    assert!(client.facts().background);
    let other = OperatorClient::connect(&ground.folder.path().join("engine.sock")).await.unwrap().unwrap();
    client.ask(&OperatorRequest::Leave).await.unwrap();
    drop(client);
    // The other one is there still.
    assert!(matches!(other.ask(&OperatorRequest::Hello).await, Ok(OperatorReply::Engine(_))));
    drop(other);
    served.ended().await;
}

#[tokio::test]
async fn it_forgets_that_it_was_asked_to_leave() {
    let ground = Site::new();
    let (served, client) = serve_with(&ground, Script::new(), patient).await;
    client.ask(&OperatorRequest::Leave).await.unwrap();
    // Whoever asked does not ask again.
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    drop(client);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let path = ground.folder.path().join("engine.sock");
    let client = OperatorClient::connect(&path).await.unwrap().expect("it is there still");
    assert!(!client.facts().ending);
    served.stop();
    served.ended().await;
}

#[tokio::test]
async fn whoever_holds_it_keeps_it_from_ending() {
    let ground = Site::new();
    let (served, client) = serve_with(&ground, Script::new(), |options| {
        (options.idle_exit, options.head_time) =
            (Some(Duration::from_millis(50)), Duration::from_millis(100));
    })
    .await;
    // Long after an idle connection is closed.
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(matches!(client.ask(&OperatorRequest::Hello).await, Ok(OperatorReply::Engine(_))));
    drop(client);
    served.ended().await;
}

#[tokio::test]
async fn a_stream_of_events_that_was_cut_goes_on() {
    let ground = Site::new();
    // More than sockets hold.
    let long: String = (0..2_000).map(|number: u32| format!("{number}{} ", "x".repeat(1_000))).collect();
    let model = Model::new().step(call("list", json!({}))).step(text(&long));
    let (served, client) = serve_with(&ground, Script::new().model("greeter", model), |options| {
        options.write_time = Duration::from_millis(200);
    })
    .await;
    let session = create(&client, new_session(&ground, "local")).await;
    let mut events = client.events(session, Seq::START).await.unwrap();
    let prompt = OperatorRequest::Command { session, command: Command::Prompt(Prompt::text("Look.")) };
    client.ask(&prompt).await.unwrap();
    let handle = served.app.engine().session(session).await.unwrap();
    let mut here = handle.events(Some(Seq::START)).await.unwrap();
    let is_over = |event: &Event| matches!(&event.body, EventBody::Durable(record) if matches!(**record, Record::TurnEnded(_)));
    let (mut given, mut heard) = (Vec::new(), Vec::new());
    let both = async {
        while !given.last().is_some_and(is_over) {
            given.push(here.next().await.unwrap().expect("more comes").event().clone());
        }
        // Nothing was read of the other stream by now, and the server has lost patience.
        tokio::time::sleep(Duration::from_secs(1)).await;
        while !heard.last().is_some_and(is_over) {
            heard.push(events.next().await.unwrap().expect("more comes").event().clone());
        }
    };
    tokio::time::timeout(PATIENCE, both).await.expect("the turn ends");
    assert_eq!(read(&heard).0, read(&given).0, "each durable event comes once");
    served.stop();
    served.ended().await;
    assert!(matches!(events.next().await, Ok(None) | Err(OperatorError::Gone(_))));
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn a_request_may_be_large_on_the_socket() {
    let ground = Site::new();
    let (served, client) = serve(&ground, Script::new(), None).await;
    let input = json!({"content": "\"".repeat(12 << 20)}).as_object().unwrap().clone();
    let script = OperatorRequest::Script(vec![ScriptedCall { tool: "write".into(), input }]);
    let error = client.ask(&script).await.unwrap_err();
    assert_eq!(error.to_string(), "there are no calls by hand here", "it was read");
    served.stop();
    served.ended().await;
}

#[tokio::test]
async fn the_network_does_not_take_all_seats() {
    let ground = Site::new();
    let (served, client) = serve_with(&ground, Script::new(), |options| {
        (options.connections, options.head_time) = (64, Duration::from_secs(3_600));
    })
    .await;
    let address = served.address;
    let mut idle = Vec::new();
    for _ in 0..80 {
        idle.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    let hello = tokio::time::timeout(PATIENCE, client.ask(&OperatorRequest::Hello)).await;
    assert!(matches!(hello.expect("it is answered"), Ok(OperatorReply::Engine(_))));
    drop(idle);
    served.stop();
    served.ended().await;
}

#[tokio::test]
async fn an_engine_of_another_version_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let engine = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = [0; 1_024];
        let _ = stream.read(&mut asked).await.unwrap();
        let body =
            json!({"reply": "engine", "data": {"protocol": 99, "pid": 7, "version": "9.9"}}).to_string();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream
    };
    let (client, _engine) = tokio::join!(OperatorClient::connect(&path), engine);
    let error = client.unwrap_err().to_string();
    assert!(error.contains("process 7 is Playhouse 9.9") && error.contains("`kill 7`"), "{error}");
}

#[tokio::test]
async fn without_operations_there_is_no_such_door() {
    let ground = Site::new();
    let app = ground.app(Script::new(), |_| {}).await;
    let mut server = Server::bind(app, Listen::Tcp("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let path = ground.folder.path().join("engine.sock");
    server.and_on(Listen::Unix(path.clone())).await.unwrap();
    let served = Served::run(server);
    assert_eq!(ask_unix(&path, "/readyz", &[]).await.status, 200);
    let error = OperatorClient::connect(&path).await.unwrap_err();
    assert!(error.to_string().contains("nothing at"), "{error}");
    served.stop();
    served.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_without_a_key_end_when_the_first_key_is_made() {
    let ground = Site::new();
    let (served, client) = serve(&ground, Script::new(), None).await;
    let open = Client::of(&served, None);
    let session = open.session("echo").await;
    let id = session.rsplit('/').next().unwrap().parse().unwrap();
    let mut own = client.events(id, Seq::START).await.unwrap();
    let mut native =
        [open.events("/v1/events", None).await, open.events(&format!("{session}/events"), None).await];
    let wire = Wire::of(&served, None);
    let mut wired = [wire.events("/event", None).await, wire.events("/global/event", None).await];
    let key = KeyRequest::Create {
        tenant: "acme".into(),
        name: "first".into(),
        roots: Vec::new(),
        created: Timestamp::from_millis(1),
    };
    client.ask(&OperatorRequest::Key(key)).await.unwrap();
    for events in &mut native {
        assert!(events.next().await.is_none());
    }
    for events in &mut wired {
        assert!(events.next().await.is_none());
    }
    assert_eq!(open.get("/v1/events").await.status, 401);
    // The operator needs none.
    let prompt = OperatorRequest::Command { session: id, command: Command::Prompt(Prompt::text("Go on.")) };
    client.ask(&prompt).await.unwrap();
    let is_over = |event: &Event| matches!(&event.body, EventBody::Durable(record) if matches!(**record, Record::TurnEnded(_)));
    let heard = async { while !is_over(own.next().await.unwrap().expect("more comes").event()) {} };
    tokio::time::timeout(PATIENCE, heard).await.expect("the turn ends");
}
