//! Every operation of the wire that is built, asked for as clients ask for it: each answers well, and what it answers fits
//! the wire's description (as [`Wire::ask`] sees to).

use std::collections::BTreeMap;

use mock_llm::{Model, Script, call, text};
use serde_json::{Value, json};

use crate::support::Site;
use crate::wire_client::Wire;
use crate::wire_schema::Description;

/// Sessions in which everything has happened, or waits, that operations are about.
struct Scene {
    /// It wrote a file and made a list.
    session: String,
    /// The prompt of that.
    message: String,
    /// One that nothing else is about.
    other: String,
    /// One with so many turns that they can be summarized.
    long: String,
    /// Two that wait for somebody to agree, and what they wait for.
    careful: Vec<(String, String)>,
    /// What two others wait to be answered.
    questions: Vec<String>,
}

fn script() -> Script {
    let write = |name: &str| call("write", json!({"filePath": name, "content": "hi\n"}));
    let todo = json!({"content": "Rehearse", "status": "pending", "priority": "high"});
    let option = |label: &str| json!({"label": label, "description": label});
    let question = json!({"question": "Pick?", "header": "Pick", "options": [option("A"), option("B")]});
    Script::new()
        .model(
            "worker",
            Model::new()
                .step(write("b.txt"))
                .step(call("todowrite", json!({"todos": [todo]})))
                .step(text("Done.")),
        )
        .model("talker", Model::new().step(text("A word. ")).cycle())
        .model("writer", Model::new().step(write("a.txt")).step(text("Done.")))
        .model(
            "asker",
            Model::new().step(call("question", json!({"questions": [question]}))).step(text("Done.")),
        )
}

impl Scene {
    async fn set(wire: &Wire) -> Self {
        let session = wire.session("worker", "tester").await;
        let prompt = json!({"parts": [{"type": "text", "text": "go"}]});
        let answer = wire.post(&format!("/session/{session}/message"), prompt).await;
        let message = answer["info"]["parentID"].as_str().unwrap().to_owned();
        let mut events = wire.events("/global/event", None).await;
        let (mut careful, mut questions) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let waits = wire.session("writer", "careful").await;
            wire.prompt(&waits, "go").await;
            let asked = events.until("permission.asked").await["id"].as_str().unwrap().to_owned();
            careful.push((waits, asked));
            let waits = wire.session("asker", "tester").await;
            wire.prompt(&waits, "go").await;
            questions.push(events.until("question.asked").await["id"].as_str().unwrap().to_owned());
        }
        let other = wire.session("worker", "tester").await;
        let long = wire.session("talker", "tester").await;
        for _ in 0..4 {
            let prompt = json!({"parts": [{"type": "text", "text": "Say more. ".repeat(100)}]});
            wire.post(&format!("/session/{long}/message"), prompt).await;
        }
        Self { session, message, other, long, careful, questions }
    }

    /// What stands for the parameters of a path, and what is asked beside it: a query and a body.
    fn asks(&self, method: &str, path: &str) -> (BTreeMap<&'static str, &str>, &'static str, Value) {
        let mut parameters: BTreeMap<&str, &str> =
            [("sessionID", &*self.session), ("messageID", &self.message), ("projectID", "x")].into();
        let prompt = || json!({"parts": [{"type": "text", "text": "more"}]});
        let (mut query, mut body) = ("", Value::Null);
        match (method, path) {
            ("GET", "/experimental/tool") => query = "?provider=mock&model=worker",
            ("GET", "/file") => query = "?path=",
            ("GET", "/file/content") => query = "?path=b.txt",
            ("GET", "/find") => query = "?pattern=hi",
            ("GET", "/find/file") => query = "?query=b",
            ("GET", "/find/symbol") => query = "?query=thing",
            ("GET", "/vcs/diff") => query = "?mode=git",
            ("POST", "/session") => body = json!({"title": "One more"}),
            ("PATCH", "/session/{sessionID}") => body = json!({"title": "Another"}),
            ("DELETE", "/session/{sessionID}") => {
                parameters.insert("sessionID", &self.other);
            }
            ("POST", "/session/{sessionID}/fork") => body = json!({}),
            ("POST", "/session/{sessionID}/message" | "/session/{sessionID}/prompt_async") => body = prompt(),
            ("POST", "/session/{sessionID}/shell") => body = json!({"agent": "tester", "command": "echo hi"}),
            ("POST", "/session/{sessionID}/command") => {
                body = json!({"command": "explain", "arguments": "it"});
            }
            ("POST", "/session/{sessionID}/summarize") => {
                parameters.insert("sessionID", &self.long);
                body = json!({"providerID": "mock", "modelID": "worker"});
            }
            ("POST", "/session/{sessionID}/revert") => body = json!({"messageID": self.message}),
            ("POST", "/session/{sessionID}/permissions/{permissionID}") => {
                let (session, permission) = &self.careful[0];
                parameters.extend([("sessionID", &**session), ("permissionID", permission)]);
                body = json!({"response": "once"});
            }
            ("POST", "/permission/{requestID}/reply") => {
                parameters.insert("requestID", &self.careful[1].1);
                body = json!({"reply": "once"});
            }
            ("POST", "/question/{requestID}/reply") => {
                parameters.insert("requestID", &self.questions[0]);
                body = json!({"answers": [["A"]]});
            }
            ("POST", "/mcp/{name}/auth/callback") => body = json!({"code": "x"}),
            ("POST", "/question/{requestID}/reject") => {
                parameters.insert("requestID", &self.questions[1]);
            }
            _ => {}
        }
        (parameters, query, body)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_that_is_built_answers_as_its_description_says() {
    let description = Description::get();
    let site = Site::new();
    let served = site.serve(script(), |_| {}).await;
    let wire = Wire::of(&served, None);
    let scene = Scene::set(&wire).await;
    let mut answered = 0;
    for (path, method, _) in description.operations() {
        // Streams do not end by themselves; every client of these tests reads them.
        if path.ends_with("/event") && !path.starts_with("/api") {
            continue;
        }
        let (parameters, query, body) = scene.asks(&method, path);
        let filled = |part: &str| match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some(name) => (*parameters.get(name).unwrap_or(&"x")).to_owned(),
            None => part.to_owned(),
        };
        let address = path.split('/').map(filled).collect::<Vec<_>>().join("/") + query;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = wire.ask(&method, &address, &[], &body).await;
        match answer.status {
            200 | 204 => answered += 1,
            501 if answer.body.contains("this is not built") => {}
            // No server of tools is configured.
            404 if path.starts_with("/mcp/") => {}
            other => panic!("{method} {path}: {other} {}: say in `asks` what it needs", answer.body),
        }
    }
    assert!(answered >= 48, "{answered} operations answered");
}
