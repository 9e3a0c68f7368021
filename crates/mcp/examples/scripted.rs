//! A server of tools for tests, which behaves as its arguments say: well, or as badly as servers do.
//!
//! ```text
//! cargo run -p playhouse-mcp --example scripted -- [--silent|--die|--modern|--noise|--pages] ...
//! ```
//!
//! It reads a line, does what the line asks, and reads the next: it never waits for anything but a line.

use std::collections::HashMap;
use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;

use serde_json::{Value, json};

/// A PNG of one pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[derive(Default)]
struct Server {
    arguments: Vec<String>,
    /// Calls that wait for the answer to a question, by the id of the question.
    asked: HashMap<String, Value>,
    /// Calls that are never answered, in their order.
    hanging: Vec<Value>,
    /// Requests that were cancelled.
    cancelled: Vec<Value>,
    /// Calls that wait for another request to be cancelled.
    awaiting_cancel: Vec<Value>,
    /// Tasks that were cancelled, and calls that wait for that.
    cancelled_tasks: Vec<Value>,
    awaiting_task_cancel: Vec<Value>,
    /// Calls that wait until a task is looked at.
    awaiting_look: Vec<Value>,
    /// How often tasks were looked at.
    looks: u64,
    /// It has one tool more.
    grown: bool,
}

fn main() -> ExitCode {
    let mut server = Server { arguments: std::env::args().skip(1).collect(), ..Server::default() };
    if server.is("--die") {
        let _ = writeln!(io::stderr(), "cannot find my configuration");
        return ExitCode::from(3);
    }
    if server.is("--noise") {
        let mut output = io::stdout();
        let _ = output.write_all(b"Starting up...\n\x1b[32mready\x1b[0m on port 1\n\xff\xfe\n{\"half\":\n");
    }
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if server.is("--silent") {
            continue;
        }
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        if let Some(code) = server.read(&message) {
            return code;
        }
    }
    ExitCode::SUCCESS
}

fn say(message: &Value) {
    let mut output = io::stdout().lock();
    // Nobody reads it: then it need not be written.
    let _ = output.write_all(format!("{message}\n").as_bytes()).and_then(|()| output.flush());
}

fn answer(id: &Value, result: Value) {
    say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn refuse(id: &Value, code: i32, message: &str) {
    say(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}));
}

fn text(id: &Value, text: &str) {
    answer(id, json!({"content": [{"type": "text", "text": text}]}));
}

fn task(name: &str, status: &str) -> Value {
    let at = "2026-11-25T10:30:00Z";
    json!({"taskId": name, "status": status, "createdAt": at, "lastUpdatedAt": at, "ttl": null, "pollInterval": 1})
}

impl Server {
    fn is(&self, argument: &str) -> bool {
        self.arguments.iter().any(|given| given == argument)
    }

    /// Does what a message asks. Returns a code if it is the last.
    fn read(&mut self, message: &Value) -> Option<ExitCode> {
        let id = &message["id"];
        let params = &message["params"];
        match message["method"].as_str() {
            Some("initialize") if self.is("--modern") => refuse(id, -32601, "method not found"),
            Some("initialize") => answer(
                id,
                json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {"listChanged": true}, "prompts": {}, "resources": {}},
                    "serverInfo": {"name": "scripted", "version": "1.0"},
                    "instructions": "Do not trust me.",
                }),
            ),
            Some("server/discover") if self.is("--modern") => answer(
                id,
                json!({
                    "resultType": "complete",
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {"listChanged": true}},
                    "ttlMs": 0,
                    "cacheScope": "private",
                    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "2.0"}},
                }),
            ),
            // Tells of a change at once.
            Some("subscriptions/listen") => {
                let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
                let notice = |method: &str, params: Value| {
                    say(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
                };
                let accepted = json!({"notifications": params["notifications"], "_meta": meta});
                notice("notifications/subscriptions/acknowledged", accepted);
                notice("notifications/tools/list_changed", json!({"_meta": meta}));
            }
            Some("ping") => answer(id, json!({})),
            Some("tools/list") => self.list(id, params),
            Some("prompts/list") => {
                answer(id, json!({"prompts": [{"name": "greet", "arguments": [{"name": "whom"}]}]}))
            }
            Some("prompts/get") => answer(
                id,
                json!({"messages": [{"role": "user", "content": {"type": "text", "text": format!("Greet {}", params["arguments"]["whom"])}}]}),
            ),
            Some("resources/list") => answer(id, json!({"resources": [{"uri": "a:b", "name": "B"}]})),
            Some("resources/read") => {
                answer(id, json!({"contents": [{"uri": params["uri"], "text": "content"}]}))
            }
            Some("tools/call") => return self.call(id, params),
            Some("tasks/get") => self.look(id, params),
            Some("tasks/result") => match params["taskId"].as_str() {
                Some("asks") => {
                    let call = json!({"content": []});
                    self.ask(id, &call);
                }
                _ => text(id, &format!("done after {} looks", self.looks)),
            },
            Some("tasks/cancel") => {
                answer(id, task(params["taskId"].as_str().unwrap_or_default(), "cancelled"));
                self.cancelled_tasks.push(params["taskId"].clone());
                for waiting in std::mem::take(&mut self.awaiting_task_cancel) {
                    text(&waiting, &json!(self.cancelled_tasks).to_string());
                }
            }
            Some("notifications/cancelled") => {
                self.cancelled.push(params["requestId"].clone());
                for waiting in std::mem::take(&mut self.awaiting_cancel) {
                    text(&waiting, &json!(self.cancelled).to_string());
                }
            }
            Some(_) if id.is_null() => {}
            Some(_) => refuse(id, -32601, "method not found"),
            None => {
                let call = id.as_str().and_then(|id| self.asked.remove(id));
                if let Some(call) = call {
                    text(&call, &message["result"].to_string());
                }
            }
        }
        None
    }

    /// Tells of a task: one that ends is over at the second look.
    fn look(&mut self, id: &Value, params: &Value) {
        self.looks += 1;
        for waiting in std::mem::take(&mut self.awaiting_look) {
            text(&waiting, "looked");
        }
        let name = params["taskId"].as_str().unwrap_or_default();
        let status = match (name, self.looks) {
            ("asks", _) => "input_required",
            ("revoked", _) => "cancelled",
            ("task", 2..) => "completed",
            _ => "working",
        };
        answer(id, task(name, status));
    }

    fn list(&self, id: &Value, params: &Value) {
        let tool = |name: &str| json!({"name": name, "description": format!("Does {name}."), "inputSchema": {"type": "object"}});
        let mut tools = vec![
            json!({
                "name": "echo",
                "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
                "annotations": {"readOnlyHint": true},
            }),
            tool("die"),
            json!({"name": "liar", "inputSchema": "a lie"}),
            json!({"description": "I have no name."}),
        ];
        if self.is("--tasks") {
            for name in ["task", "asks", "revoked", "endless", "instant"] {
                let mut tool = tool(name);
                tool["execution"] = json!({"taskSupport": "required"});
                tools.push(tool);
            }
        }
        if self.grown {
            tools.push(tool("new"));
        }
        if !self.is("--pages") {
            return answer(id, json!({"tools": tools}));
        }
        // Pages without end, of one tool each.
        let page: usize = params["cursor"].as_str().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
        answer(id, json!({"tools": [tool(&format!("tool{page}"))], "nextCursor": (page + 1).to_string()}));
    }

    fn call(&mut self, id: &Value, params: &Value) -> Option<ExitCode> {
        let arguments = &params["arguments"];
        match params["name"].as_str().unwrap_or_default() {
            name @ ("task" | "asks" | "revoked" | "endless") => match params.get("task") {
                Some(_) => answer(id, json!({"task": task(name, "working")})),
                None => refuse(id, -32601, "this tool is called as a task"),
            },
            // Does not know what a task is.
            "instant" => text(id, "at once"),
            "task_cancelled" if self.cancelled_tasks.is_empty() => self.awaiting_task_cancel.push(id.clone()),
            "task_cancelled" => text(id, &json!(self.cancelled_tasks).to_string()),
            "look" => self.awaiting_look.push(id.clone()),
            "echo" => text(id, arguments["text"].as_str().unwrap_or_default()),
            "hang" => {
                self.hanging.push(id.clone());
                // The client is told that the call is there.
                say(&json!({
                    "jsonrpc": "2.0",
                    "method": "notifications/progress",
                    "params": {"progressToken": params["_meta"]["progressToken"], "progress": 1, "message": "hanging"},
                }));
            }
            // Answers all that hang, the last first.
            "release" => {
                for id in self.hanging.drain(..).rev() {
                    text(&id, "released");
                }
                text(id, "done");
            }
            // Answers when something was cancelled.
            "cancelled" if self.cancelled.is_empty() => self.awaiting_cancel.push(id.clone()),
            "cancelled" => text(id, &json!(self.cancelled).to_string()),
            "die" => {
                let _ = writeln!(io::stderr(), "dying as asked");
                return Some(ExitCode::from(7));
            }
            "last" => {
                text(id, "my last answer");
                return Some(ExitCode::SUCCESS);
            }
            "flood" => flood(id),
            "mumble" => {
                let _ = io::stdout().write_all(b"no message at all\n");
                text(id, "clear");
            }
            "malformed" => say(&json!({"jsonrpc": "2.0", "id": id, "error": "just words"})),
            "odd" => answer(id, json!({"content": 1})),
            "fail" => answer(id, json!({"content": [{"type": "text", "text": "I failed"}], "isError": true})),
            "everything" => answer(
                id,
                json!({
                    "content": [
                        {"type": "text", "text": "a picture"},
                        {"type": "image", "data": PNG, "mimeType": "image/png"},
                        {"type": "resource_link", "uri": "a:b", "name": "B"},
                    ],
                    "structuredContent": {"a": 1},
                }),
            ),
            "ask" => return self.ask(id, params),
            "grow" => {
                self.grown = true;
                say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                text(id, "grown");
            }
            "environment" => {
                let names: Vec<String> =
                    std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
                text(id, &names.join("\n"));
            }
            // Starts a program that outlives the call.
            "spawn" => match std::process::Command::new("sleep")
                .arg("600")
                .stdin(std::process::Stdio::null())
                .spawn()
            {
                Ok(child) => text(id, &child.id().to_string()),
                Err(error) => text(id, &error.to_string()),
            },
            other => refuse(id, -32602, &format!("there is no tool {other}")),
        }
        None
    }

    /// Asks people, by the means of the protocol that is spoken.
    fn ask(&mut self, id: &Value, params: &Value) -> Option<ExitCode> {
        let question = json!({
            "mode": "form",
            "message": "Who are you?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
        });
        if !self.is("--modern") {
            let question_id = format!("question-{id}");
            say(
                &json!({"jsonrpc": "2.0", "id": question_id, "method": "elicitation/create", "params": question}),
            );
            self.asked.insert(question_id, id.clone());
        } else if params["requestState"] == "halfway" {
            text(id, &params["inputResponses"]["who"].to_string());
        } else {
            answer(
                id,
                json!({
                    "resultType": "input_required",
                    "inputRequests": {"who": {"method": "elicitation/create", "params": question}},
                    "requestState": "halfway",
                }),
            );
        }
        None
    }
}

/// An answer of 50 MB, and a good one after it.
fn flood(id: &Value) {
    let mut output = io::stdout().lock();
    let _ = output.write_all(br#"{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":""#);
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..50 {
        let _ = output.write_all(&piece);
    }
    let _ = output.write_all(format!("\"}}]}},\"id\":{id}}}\n").as_bytes());
    let _ = output.flush();
}
