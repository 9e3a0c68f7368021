//! The client against a scripted server at the other end of two pipes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Duration;

use playhouse_lsp::{
    Answer, Client, Known, Operation, Query, RequestError, Severity, Spot, Start, apply, frame,
};
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// For what comes anyway.
const PATIENCE: Duration = Duration::from_secs(20);
/// For what does not come.
const BRIEF: Duration = Duration::from_millis(50);

const FILE: &str = "/project/a b/ä.acc";

/// The server's end: it answers as the test says.
struct Server {
    from: BufReader<ReadHalf<DuplexStream>>,
    to: WriteHalf<DuplexStream>,
}

impl Server {
    async fn next(&mut self) -> Option<Value> {
        let body = frame::read(&mut self.from).await.ok().flatten()?;
        Some(serde_json::from_slice(&body).unwrap())
    }

    /// The next message of this method; those before it are passed over.
    async fn until(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await.expect("the client closed its output");
            if message["method"] == method {
                return message;
            }
        }
    }

    async fn send(&mut self, message: Value) {
        frame::write(&mut self.to, message.to_string().as_bytes()).await.unwrap();
    }

    async fn answer(&mut self, request: &Value, result: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    async fn publish(&mut self, version: Option<i32>, messages: &[&str]) {
        let uri = url::Url::from_file_path(FILE).unwrap();
        let mut params = json!({"uri": uri, "diagnostics": found(messages)});
        if let Some(version) = version {
            params["version"] = json!(version);
        }
        self.send(json!({"jsonrpc": "2.0", "method": "textDocument/publishDiagnostics", "params": params}))
            .await;
    }
}

/// Errors in the second line, behind a character of two units.
fn found(messages: &[&str]) -> Value {
    let item = |message: &&str| {
        json!({"range": {"start": {"line": 1, "character": 3}, "end": {"line": 1, "character": 5}},
               "severity": 1, "code": 7, "message": message})
    };
    messages.iter().map(item).collect()
}

/// A client, and the server that it was introduced to.
async fn stage(capabilities: Value) -> (Client, Server) {
    let (here, there) = duplex(1 << 16);
    let ((from, to), (server_from, server_to)) = (split(here), split(there));
    let mut server = Server { from: BufReader::new(server_from), to: server_to };
    let introduced: JoinHandle<Server> = tokio::spawn(async move {
        let request = server.until("initialize").await;
        assert_eq!(request["params"]["rootUri"], "file:///project/a%20b");
        assert_eq!(request["params"]["initializationOptions"], json!({"deep": true}));
        server.answer(&request, json!({"capabilities": capabilities})).await;
        server.until("initialized").await;
        server
    });
    let start =
        Start { root: "/project/a b".into(), initialization: json!({"deep": true}), patience: PATIENCE };
    let client = Client::start(from, to, start).await.unwrap();
    (client, introduced.await.unwrap())
}

fn messages(known: &Known) -> Option<(Vec<&str>, bool)> {
    match known {
        Known::NotYet => None,
        Known::Found { problems, is_verified } => {
            Some((problems.iter().map(|problem| problem.message.as_str()).collect(), *is_verified))
        }
    }
}

#[tokio::test]
async fn no_problems_of_a_server_that_says_it_is_not_ready_count_for_nothing() {
    let (client, mut server) = stage(json!({"diagnosticProvider": {}})).await;
    let path = Path::new(FILE);
    client.show(path, "bad\n").await.unwrap();
    let status = |quiescent: bool| {
        let params = json!({"health": "ok", "quiescent": quiescent});
        json!({"jsonrpc": "2.0", "method": "experimental/serverStatus", "params": params})
    };
    server.send(status(false)).await;
    let (known, ()) = tokio::join!(client.diagnose(path, PATIENCE), async {
        let request = server.until("textDocument/diagnostic").await;
        server.answer(&request, json!({"kind": "full", "items": []})).await;
        server.send(status(true)).await;
        let request = server.until("textDocument/diagnostic").await;
        server.answer(&request, json!({"kind": "full", "items": found(&["loaded"])})).await;
    });
    assert_eq!(messages(&known.unwrap()), Some((vec!["loaded"], true)));
}

#[tokio::test]
async fn diagnostics_are_pulled_where_they_are_offered() {
    let (client, mut server) = stage(json!({"diagnosticProvider": {}, "positionEncoding": "utf-16"})).await;
    let path = Path::new(FILE);
    assert_eq!(client.diagnose(path, BRIEF).await, Ok(Known::NotYet), "it was not shown");
    client.show(path, "one\n𝄞 bad\n").await.unwrap();
    let (known, ()) = tokio::join!(client.diagnose(path, PATIENCE), async {
        let opened = server.until("textDocument/didOpen").await;
        assert_eq!(opened["params"]["textDocument"]["uri"], "file:///project/a%20b/%C3%A4.acc");
        let request = server.until("textDocument/diagnostic").await;
        server.answer(&request, json!({"kind": "full", "items": found(&["is\n  bad"])})).await;
    });
    let Known::Found { problems, is_verified: true } = known.unwrap() else { panic!("it is known") };
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert_eq!((problem.spot, problem.severity), (Spot { line: 2, column: 3 }, Severity::Error));
    assert_eq!((&*problem.message, problem.code.as_deref()), ("is bad", Some("7")));

    // What is shown again is not told again; what changed has the next version.
    client.show(path, "one\n𝄞 bad\n").await.unwrap();
    client.show(path, "good\n").await.unwrap();
    let changed = server.until("textDocument/didChange").await;
    assert_eq!(changed["params"]["textDocument"]["version"], 2);
    assert_eq!(changed["params"]["contentChanges"], json!([{"text": "good\n"}]));

    // What another file says may change this one.
    let other = Path::new("/project/a b/other.acc");
    let (known, ()) = tokio::join!(client.diagnose(path, PATIENCE), async {
        let request = server.until("textDocument/diagnostic").await;
        client.show(other, "x").await.unwrap();
        server.answer(&request, json!({"kind": "full", "items": []})).await;
    });
    assert_eq!(messages(&known.unwrap()), Some((vec![], false)));
    // One that cannot be read may be the only one.
    let (known, ()) = tokio::join!(client.diagnose(path, PATIENCE), async {
        let request = server.until("textDocument/diagnostic").await;
        server.answer(&request, json!({"kind": "full", "items": [{"range": null, "message": "x"}]})).await;
    });
    assert_eq!(known, Ok(Known::NotYet));
    // No version is given twice.
    client.close(path).await.unwrap();
    client.show(path, "good\n").await.unwrap();
    let opened = server.until("textDocument/didClose").await;
    assert_eq!(opened["params"]["textDocument"]["uri"], "file:///project/a%20b/%C3%A4.acc");
    assert_eq!(server.until("textDocument/didOpen").await["params"]["textDocument"]["version"], 4);

    // An answer that comes too late is called off.
    assert_eq!(client.diagnose(path, BRIEF).await, Ok(Known::NotYet));
    let asked = server.until("textDocument/diagnostic").await;
    let cancelled = server.until("$/cancelRequest").await;
    assert_eq!(cancelled["params"]["id"], asked["id"]);
}

#[tokio::test]
async fn no_problems_count_only_once_the_server_is_ready() {
    let (client, mut server) = stage(json!({"diagnosticProvider": {}})).await;
    let path = Path::new(FILE);
    client.show(path, "bad\n").await.unwrap();
    let progress = |kind: &str| {
        let params = json!({"token": "loads", "value": {"kind": kind, "title": "loads"}});
        json!({"jsonrpc": "2.0", "method": "$/progress", "params": params})
    };
    let nothing = json!({"kind": "full", "items": []});
    server.send(progress("begin")).await;
    let (known, ()) = tokio::join!(client.diagnose(path, PATIENCE), async {
        let request = server.until("textDocument/diagnostic").await;
        server.answer(&request, nothing.clone()).await;
        server.send(progress("end")).await;
        let request = server.until("textDocument/diagnostic").await;
        server.answer(&request, json!({"kind": "full", "items": found(&["loaded"])})).await;
    });
    assert_eq!(messages(&known.unwrap()), Some((vec!["loaded"], true)));
    // One that gave up its answer is asked again, and what it publishes beside is not lost.
    let (known, ()) = tokio::join!(client.diagnose(path, PATIENCE), async {
        let request = server.until("textDocument/diagnostic").await;
        let error = json!({"code": -32_802, "message": "cancelled"});
        server.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
        server.publish(Some(1), &["checked"]).await;
        let request = server.until("textDocument/diagnostic").await;
        server.answer(&request, nothing).await;
    });
    assert_eq!(messages(&known.unwrap()), Some((vec!["checked"], true)));
    assert!(client.beside().is_empty(), "it is shown");
}

#[tokio::test]
async fn diagnostics_are_pulled_where_that_is_registered_later() {
    let (client, mut server) = stage(json!({})).await;
    let path = Path::new(FILE);
    let registered = json!({"registrations": [{"id": "1", "method": "textDocument/diagnostic"}]});
    let request =
        json!({"jsonrpc": "2.0", "id": 1, "method": "client/registerCapability", "params": registered});
    server.send(request).await;
    assert_eq!(server.next().await.unwrap()["id"], 1);
    client.show(path, "bad\n").await.unwrap();
    let (known, ()) = tokio::join!(client.diagnose(path, PATIENCE), async {
        let request = server.until("textDocument/diagnostic").await;
        server.answer(&request, json!({"kind": "full", "items": found(&["pulled"])})).await;
    });
    assert_eq!(messages(&known.unwrap()), Some((vec!["pulled"], true)));
    // What it says of a file that it was not shown is known as well.
    client.close(path).await.unwrap();
    server.until("textDocument/didClose").await;
    server.publish(None, &["elsewhere"]).await;
    server.send(json!({"jsonrpc": "2.0", "id": 2, "method": "window/showMessageRequest"})).await;
    server.next().await.unwrap();
    assert_eq!(client.beside()[path][0].message, "elsewhere");
}

#[tokio::test]
async fn pushed_diagnostics_count_for_their_version_only() {
    let (client, mut server) = stage(json!({})).await;
    let path = Path::new(FILE);
    client.show(path, "bad\n").await.unwrap();
    client.show(path, "good\n").await.unwrap();
    server.until("textDocument/didChange").await;
    server.publish(Some(1), &["stale"]).await;
    assert_eq!(client.diagnose(path, BRIEF).await, Ok(Known::NotYet));
    let (known, ()) = tokio::join!(client.diagnose(path, PATIENCE), async {
        server.publish(Some(2), &[]).await;
    });
    assert_eq!(messages(&known.unwrap()), Some((vec![], true)));
}

#[tokio::test]
async fn diagnostics_without_a_version_count_after_a_quiet_time() {
    let (client, mut server) = stage(json!({})).await;
    let path = Path::new(FILE);
    client.show(path, "bad\n").await.unwrap();
    server.publish(None, &["before"]).await;
    server.until("textDocument/didOpen").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    client.show(path, "worse\n").await.unwrap();
    server.until("textDocument/didChange").await;
    assert_eq!(client.diagnose(path, BRIEF).await, Ok(Known::NotYet), "they are of the content before");
    let (known, ()) = tokio::join!(client.diagnose(path, PATIENCE), async {
        server.publish(None, &["one"]).await;
        server.publish(None, &["one", "two"]).await;
    });
    assert_eq!(messages(&known.unwrap()), Some((vec!["one", "two"], false)));
}

#[tokio::test]
async fn places_symbols_texts_and_edits_are_read_in_all_their_forms() {
    let offers = [
        "definitionProvider",
        "hoverProvider",
        "documentSymbolProvider",
        "renameProvider",
        "callHierarchyProvider",
    ];
    let offers: Value =
        offers.iter().map(|name| ((*name).to_owned(), json!(true))).collect::<serde_json::Map<_, _>>().into();
    let (client, mut server) = stage(offers).await;
    let path = Path::new(FILE);
    client.show(path, "one\n𝄞 two\n").await.unwrap();
    let (questions, mut asked) = mpsc::channel(16);
    let answering = tokio::spawn(async move {
        let range = json!({"start": {"line": 1, "character": 3}, "end": {"line": 1, "character": 6}});
        let uri = "file:///project/a%20b/b.acc";
        loop {
            let Some(message) = server.next().await else { return };
            let result = match message["method"].as_str().unwrap_or_default() {
                "textDocument/definition" => json!([
                    {"uri": uri, "range": range},
                    {"targetUri": uri, "targetRange": range, "targetSelectionRange": range},
                    {"uri": "untitled:new", "range": range},
                ]),
                "textDocument/hover" => json!({"contents": [{"language": "x", "value": "one"}, "two"]}),
                "textDocument/documentSymbol" => json!([
                    {"name": "Outer", "kind": 5, "range": range, "selectionRange": range,
                     "children": [{"name": "inner", "kind": 6, "range": range, "selectionRange": range}]},
                ]),
                "textDocument/rename" => json!({"documentChanges": [
                    {"textDocument": {"uri": uri, "version": null}, "edits": [{"range": range, "newText": "new"}]},
                ]}),
                "textDocument/prepareCallHierarchy" => {
                    json!([{"name": "f", "kind": 12, "uri": uri, "range": range, "selectionRange": range}])
                }
                "callHierarchy/incomingCalls" => {
                    json!([{"from": {"name": "g", "kind": 12, "uri": uri, "range": range, "selectionRange": range}, "fromRanges": []}])
                }
                _ => continue,
            };
            server.answer(&message, result).await;
            drop(questions.send(message).await);
        }
    });
    let ask = async |operation| {
        let query = Query { operation, path, spot: Spot { line: 2, column: 3 }, words: "new" };
        client.ask(&query, PATIENCE).await
    };
    let Answer::Places(places) = ask(Operation::GoToDefinition).await.unwrap() else { panic!("places") };
    assert_eq!(places.len(), 2, "what is no file is left out");
    assert_eq!(client.spot(places[0].start, Some("𝄞 two")), Spot { line: 2, column: 3 });
    assert_eq!(asked.recv().await.unwrap()["params"]["position"], json!({"line": 1, "character": 3}));
    assert_eq!(ask(Operation::Hover).await, Ok(Answer::Text("one\n\ntwo".to_owned())));
    let Answer::Places(symbols) = ask(Operation::DocumentSymbol).await.unwrap() else { panic!("places") };
    let names: Vec<_> = symbols.iter().map(|place| place.symbol.as_ref().unwrap().shown()).collect();
    assert_eq!((names, &*symbols[0].path), (vec!["class Outer".to_owned(), "method inner".to_owned()], path));
    let Answer::Edits(files) = ask(Operation::Rename).await.unwrap() else { panic!("edits") };
    assert_eq!(apply("one\n𝄞 two\n", &files[0].edits, client.encoding()).unwrap(), "one\n𝄞 new\n");
    let Answer::Places(callers) = ask(Operation::IncomingCalls).await.unwrap() else { panic!("places") };
    assert_eq!(callers[0].symbol.as_ref().map(playhouse_lsp::Symbol::shown).as_deref(), Some("function g"));
    let error = ask(Operation::FindReferences).await.unwrap_err();
    assert_eq!(error, RequestError::Refused("it has no findReferences".to_owned()));
    drop(client);
    answering.await.unwrap();
}

#[tokio::test]
async fn a_server_that_ends_or_says_too_much_is_told() {
    let (client, server) = stage(json!({"diagnosticProvider": {}})).await;
    client.show(Path::new(FILE), "x").await.unwrap();
    let (known, ()) = tokio::join!(client.diagnose(Path::new(FILE), PATIENCE), async { drop(server) });
    assert!(matches!(known, Err(RequestError::Ended(_))), "{known:?}");
    assert!(client.ended().is_some());

    let (client, mut server) = stage(json!({"diagnosticProvider": {}})).await;
    client.show(Path::new(FILE), "x").await.unwrap();
    let (known, ()) = tokio::join!(client.diagnose(Path::new(FILE), PATIENCE), async {
        server.until("textDocument/diagnostic").await;
        server.to.write_all(b"Content-Length: 200000000\r\n\r\n").await.unwrap();
    });
    let Err(RequestError::Ended(reason)) = known else { panic!("{known:?}") };
    assert!(reason.contains("200000000 bytes"), "{reason}");
}

#[tokio::test]
async fn what_a_server_asks_is_answered() {
    let (_client, mut server) = stage(json!({})).await;
    for (method, params, result) in [
        ("workspace/configuration", json!({"items": [{}, {}]}), json!([{"deep": true}, {"deep": true}])),
        (
            "workspace/configuration",
            json!({"items": [{"section": "deep"}, {"section": "deep.er"}, {"section": "other"}]}),
            json!([true, null, null]),
        ),
        ("client/registerCapability", json!({}), Value::Null),
        (
            "workspace/applyEdit",
            json!({}),
            json!({"applied": false, "failureReason": "this client applies no edits"}),
        ),
    ] {
        server.send(json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params})).await;
        let answer = server.next().await.unwrap();
        assert_eq!((&answer["id"], &answer["result"]), (&json!(method), &result));
    }
    server.send(json!({"jsonrpc": "2.0", "id": 1, "method": "window/unknown"})).await;
    assert_eq!(server.next().await.unwrap()["error"]["code"], -32_601);
}
