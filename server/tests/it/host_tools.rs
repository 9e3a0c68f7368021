//! Tools of the platform: who may register which, and the one result of each call.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use mock_llm::{Model, Script, call, calls, text};
use playhouse_actors::HostTools;
use playhouse_store::Shelf;
use playhouse_tools::web::Door;
use serde_json::{Value, json};

use crate::client::Client;
use crate::native_schema::Description;
use crate::support::Site;

fn open(shelf: Arc<dyn Shelf>, taken: HashSet<String>, folder: PathBuf) -> HostTools {
    HostTools::open(shelf, taken, folder, Door::new(Vec::new())).unwrap()
}

/// A site that takes tools of the platform.
pub(crate) fn site() -> Site {
    Site {
        tune: |options| {
            let mut taken: HashSet<String> =
                options.tools.iter().map(|tool| tool.spec().name.clone()).collect();
            taken.insert("save_prd".to_owned());
            let shelf = options.store.shelf.clone();
            options.host_tools = Some(open(shelf, taken, options.outputs.with_file_name("host-tools")));
        },
        ..Site::new()
    }
}

pub(crate) fn weather(name: &str) -> Value {
    json!({
        "name": name,
        "description": "Tells the weather",
        "schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "risk": "safe",
        "delivery": "events",
    })
}

fn with(key: &str, value: Value) -> Value {
    let mut body = weather("other");
    body[key] = value;
    body
}

fn asks(steps: Vec<mock_llm::Step>) -> Script {
    let model = steps.into_iter().fold(Model::new(), Model::step);
    Script::new().model("m", model.step(text("Done.")))
}

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn webhook(url: &str, secret: &str) -> Value {
    json!({"url": url, "secret": secret})
}

fn sent(url: &str, secret: &str) -> Value {
    let mut body = with("webhook", webhook(url, secret));
    body.as_object_mut().unwrap().remove("delivery");
    body
}

/// A registration of a capture tool.
fn capture(name: &str, schema: Value) -> Value {
    json!({"name": name, "description": "Keeps a verdict", "schema": schema, "delivery": "capture"})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_tool_is_registered_and_its_artifacts_are_read() {
    let site = site();
    let schema = json!({"type": "object", "properties": {"good": {"type": "boolean"}}, "required": ["good"]});
    let steps = vec![
        calls([("verdict", json!({"good": "maybe"}))]),
        calls([("verdict", json!({"good": true})), ("score", json!({"value": 7}))]),
    ];
    let script = asks(steps);
    let served = site.serve(script.clone(), |_| {}).await;
    let client = Client::of(&served, None);
    let description = Description::of(&client).await;
    let made = client.post("/v1/tools", capture("verdict", schema.clone())).await.with(201);
    description.check("Tool", &made);
    let facts = json!({"source": made["source"], "permission": made["permission"], "risk": made["risk"]});
    assert_eq!(facts, json!({"source": "capture", "permission": "verdict", "risk": "safe"}));
    let made = client.post("/v1/tools", capture("score", json!({"type": "integer"}))).await.with(201);
    assert_eq!(made["parameters"]["properties"]["value"], json!({"type": "integer"}), "{made}");
    let again = client.post("/v1/tools", capture("verdict", schema.clone())).await.refused(409, "taken");
    assert!(again.contains("verdict"), "{again}");
    let mut risky = capture("other", schema.clone());
    risky["risk"] = json!("dangerous");
    let mut both = capture("other", schema.clone());
    both["webhook"] = webhook("https://example.org/hook", SECRET);
    let large = json!({"type": "object", "description": "x".repeat(70_000)});
    for (body, says) in [
        (risky, "leave \"risk\" out"),
        (both, "and not both"),
        (capture("other", large), "at most 65536"),
        (capture("other", json!({"type": "object", "required": "good"})), "`schema`"),
        (capture("submit_output", schema.clone()), "reserved"),
    ] {
        let why = client.post("/v1/tools", body).await.refused(400, "invalid");
        assert!(why.contains(says), "{says}: {why}");
    }
    served.stop();
    served.ended().await;

    // They are kept, and of every session of the tenant.
    let served = site.serve(script, |_| {}).await;
    let client = Client::of(&served, None);
    let session = client.session("m").await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    client.prompt(&session, "go").await;
    let refused = events.until("call.settled").await;
    assert_eq!(refused["data"]["result"]["outcome"], "failed", "{refused}");
    let kept = events.until("artifact.captured").await;
    assert_eq!(kept["data"]["value"], json!({"good": true}), "{kept}");
    events.until("turn.ended").await;
    let artifacts = client.get(&format!("{session}/artifacts")).await.with(200);
    let values: Vec<&Value> =
        artifacts["artifacts"].as_array().unwrap().iter().map(|kept| &kept["value"]).collect();
    assert_eq!(values, [&json!({"good": true}), &json!(7)]);

    let removed = client.ask("DELETE", "/v1/tools/score", &[], "").await;
    assert_eq!(removed.status, 204, "{}", removed.body);
    let list = client.get("/v1/tools").await.with(200);
    let captures: Vec<&Value> =
        list["tools"].as_array().unwrap().iter().filter(|tool| tool["source"] == "capture").collect();
    assert_eq!((captures.len(), &captures[0]["name"]), (1, &json!("verdict")));
}

async fn names(client: &Client) -> Vec<String> {
    let list = client.get("/v1/tools").await.with(200);
    let host = list["tools"].as_array().unwrap().iter().filter(|tool| tool["source"] == "host");
    host.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_a_tool_is_refused_and_says_why() {
    let site = site();
    let served = site.serve(asks(vec![]), |_| {}).await;
    let client = Client::of(&served, None);
    let description = Description::of(&client).await;
    let made = client.post("/v1/tools", weather("weather_at")).await.with(201);
    description.check("Tool", &made);
    assert_eq!((&made["source"], &made["permission"]), (&json!("host"), &json!("host")));
    for name in ["weather_at", "bash", "save_prd"] {
        let why = client.post("/v1/tools", weather(name)).await.refused(409, "taken");
        assert!(why.contains(&format!("there is a tool \"{name}\" already")), "{why}");
    }
    let deep = (0..200).fold(json!({}), |inner, _| json!({"type": "object", "properties": {"a": inner}}));
    for (body, says) in [
        (weather("mcp_github_push"), "begin with mcp_"),
        (weather("submit_output"), "reserved"),
        (weather("host"), "name of a permission"),
        (weather("two words"), "1 to 64 of the characters"),
        (weather(&"x".repeat(65)), "1 to 64 of the characters"),
        (with("description", json!(" ")), "is missing"),
        (with("description", json!("x".repeat(10_000))), "at most 8192"),
        (with("schema", json!({"type": "string"})), "must be \"object\""),
        (with("schema", json!({"properties": {}})), "must be \"object\""),
        (with("schema", json!({"type": "object", "required": "city"})), "`schema`"),
        (with("schema", json!({"type": "object", "description": "x".repeat(70_000)})), "at most 65536"),
        (with("schema", json!({"$ref": "https://example.org/s.json", "type": "object"})), "`schema`"),
        (with("risk", json!("none")), "unknown variant"),
        (with("delivery", json!("pigeon")), "unknown variant"),
        (with("delivery", Value::Null), "and not both"),
        (with("webhook", webhook("https://example.org/hook", SECRET)), "and not both"),
        (sent("http://example.org/hook", SECRET), "must begin with https://"),
        (sent("ftp://example.org/hook", SECRET), "must begin with https://"),
        (sent("hook", SECRET), "is no address"),
        (sent("https://127.0.0.1/hook", SECRET), "refused"),
        (sent("https://169.254.169.254/hook", SECRET), "refused"),
        (sent("https://me:it@example.org/hook", SECRET), "password"),
        (sent("https://example.org/hook", "hunter2hunter2hunter2"), "`webhook.secret`"),
        (with("wait", json!(1)), "unknown field"),
    ] {
        let why = client.post("/v1/tools", body).await.refused(400, "invalid");
        assert!(why.contains(says), "{says}: {why}");
        assert!(!why.contains("hunter2") && !why.contains(SECRET), "{why}");
    }
    client.post("/v1/tools", with("schema", deep)).await.refused(400, "invalid");
    assert_eq!(names(&client).await, ["weather_at"]);

    for number in 1..64 {
        client.post("/v1/tools", weather(&format!("tool_{number}"))).await.with(201);
    }
    let refused = client.post("/v1/tools", weather("one_more")).await;
    let limit =
        json!({"name": "host_tools", "scope": "tenant", "unit": "count", "max": 64, "used": 64, "needed": 1});
    assert_eq!(refused.json()["limit"], limit);
    let why = refused.refused(403, "forbidden");
    assert!(why.contains("64 registered tools"), "{why}");
    client.delete("/v1/tools/weather_at").await.with(204);
    client.delete("/v1/tools/weather_at").await.refused(404, "not-found");
    client.delete("/v1/tools/read").await.refused(404, "not-found");
    client.post("/v1/tools", weather("one_more")).await.with(201);
    let ids = client.get("/experimental/tool/ids").await.with(200);
    assert!(ids.as_array().unwrap().contains(&json!("one_more")), "{ids}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_its_one_result() {
    let site = site();
    let script = asks(vec![
        calls([("weather_at", json!({"city": "Oslo"})), ("weather_at", json!({"town": "Oslo"}))]),
        call("weather_at", json!({"city": "Rome"})),
        call("weather_at", json!({"city": "Bonn"})),
    ]);
    let (key, other) = (site.key("one"), site.key("other"));
    let served = site.serve(script, |_| {}).await;
    let (client, other) = (Client::of(&served, Some(&key)), Client::of(&served, Some(&other)));
    let description = Description::of(&client).await;
    client.post("/v1/tools", weather("weather_at")).await.with(201);
    let session = client.session("m").await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    client.post(&format!("{session}/prompts"), json!({"text": "go"})).await.with(202);
    let proposed = events.until("call.proposed").await;
    assert_eq!(proposed["data"]["source"]["kind"], "host");
    let offered = events.until("call.offered").await;
    description.check("CallOffered", &offered["data"]);
    assert_eq!(offered["data"]["input"]["object"]["city"], "Oslo");
    let place = |call: &Value| format!("{session}/calls/{}/result", call.as_str().unwrap());
    let first = place(&offered["data"]["call"]);
    for body in [json!({}), json!({"output": "x", "error": "y"}), json!({"result": 1})] {
        client.post(&first, body).await.refused(400, "invalid");
    }
    let large = json!({"output": "x".repeat(1024 * 1024 + 1)});
    client.post(&first, large).await.refused(413, "too-large");
    other.post(&first, json!({"output": "sun"})).await.refused(404, "not-found");
    let absent = format!("{session}/calls/prt_00000000000012345678901234/result");
    client.post(&absent, json!({"output": "sun"})).await.refused(404, "not-found");
    client.post(&first, json!({"output": {"sky": null}})).await.with(204);
    client.post(&first, json!({"output": "sun"})).await.refused(409, "settled");

    let second = events.until("call.offered").await;
    client.post(&place(&second["data"]["call"]), json!({"error": "no such city"})).await.with(204);
    let third = events.until("call.offered").await;
    client.post(&place(&third["data"]["call"]), json!({"output": "y".repeat(200_000)})).await.with(204);
    events.until("turn.ended").await;
    client.post(&first, json!({"output": "sun"})).await.refused(409, "settled");

    let requests = site.requests();
    let last = requests.last().unwrap().to_string();
    assert!(last.contains(r#"{\\\"sky\\\":null}"#) || last.contains(r#"{\"sky\":null}"#), "{last}");
    assert!(last.contains("no such city") && last.contains("do not fit its schema"), "{last}");
    assert!(!last.contains(&"y".repeat(100_000)), "a long result is capped as of other tools");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_settles_a_call_and_its_result_comes_too_late() {
    let site = site();
    let script = asks(vec![call("weather_at", json!({"city": "Oslo"}))]);
    let served = site.serve(script, |_| {}).await;
    let client = Client::of(&served, None);
    client.post("/v1/tools", weather("weather_at")).await.with(201);
    let session = client.session("m").await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    client.post(&format!("{session}/prompts"), json!({"text": "go"})).await.with(202);
    let offered = events.until("call.offered").await;
    client.post(&format!("{session}/abort"), json!({})).await;
    let settled = events.until("call.settled").await;
    assert_eq!(settled["data"]["result"]["outcome"], "cancelled");
    let place = format!("{session}/calls/{}/result", offered["data"]["call"].as_str().unwrap());
    client.post(&place, json!({"output": "sun"})).await.refused(409, "settled");
}

#[tokio::test(flavor = "multi_thread")]
async fn native_calls_take_no_result_and_rules_hold_over_the_risk() {
    let site = site();
    let script = asks(vec![
        call("read", json!({"filePath": "nothing.txt"})),
        call("weather_at", json!({"city": "Oslo"})),
    ]);
    let served = site.serve(script, |_| {}).await;
    let client = Client::of(&served, None);
    client.post("/v1/tools", weather("weather_at")).await.with(201);
    // The agent's rules ask before everything.
    let session = client.session_with(json!({"model": "mock/m", "agent": "careful"})).await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    client.post(&format!("{session}/prompts"), json!({"text": "go"})).await.with(202);
    let native = events.until("call.proposed").await;
    let place = |call: &Value| format!("{session}/calls/{}/result", call.as_str().unwrap());
    let why = client.post(&place(&native["data"]["call"]), json!({"output": "x"})).await;
    assert!(why.refused(400, "invalid").contains("only calls of registered tools"));
    let asked = events.until("consent.asked").await;
    let agree = |asked: &Value| format!("{session}/consents/{}", asked["data"]["consent"].as_str().unwrap());
    client.post(&agree(&asked), json!({"answer": "once"})).await.with(204);
    let asked = events.until("consent.asked").await;
    assert_eq!((&asked["data"]["tool"], &asked["data"]["risk"]), (&json!("weather_at"), &json!("safe")));
    assert_eq!(asked["data"]["wants"][0]["permission"], "host");
    let call = place(&asked["data"]["call"]);
    let early = client.post(&call, json!({"output": "x"})).await.refused(400, "invalid");
    assert!(early.contains("not offered yet"), "{early}");
    client.post(&agree(&asked), json!({"answer": "decline"})).await.with(204);
    events.until("turn.ended").await;
    client.post(&call, json!({"output": "x"})).await.refused(409, "settled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_roots_registers_for_sessions_below_them() {
    let site = site();
    let inside = site.workspace().join("inside");
    fs_err::create_dir_all(&inside).unwrap();
    let (below, all, other) = (site.key_below("one", &inside), site.key("one"), site.key("other"));
    let served = site.serve(asks(vec![]), |_| {}).await;
    let of = |key: &str| Client::of(&served, Some(key));
    let (below, all, other) = (of(&below), of(&all), of(&other));
    below.post("/v1/tools", weather("inner")).await.with(201);
    all.post("/v1/tools", weather("outer")).await.with(201);
    assert_eq!(names(&other).await, Vec::<String>::new());
    assert_eq!(names(&all).await, ["inner", "outer"]);
    other.delete("/v1/tools/inner").await.refused(404, "not-found");
    below.delete("/v1/tools/outer").await.refused(404, "not-found");
    other.post("/v1/tools", weather("inner")).await.with(201);

    for (client, workspace, shown) in
        [(&all, site.workspace(), vec!["outer"]), (&below, inside.clone(), vec!["inner", "outer"])]
    {
        let session = client.session_with(json!({"model": "mock/m", "workspace": workspace})).await;
        let mut events = client.events(&format!("{session}/events"), None).await;
        client.post(&format!("{session}/prompts"), json!({"text": "go"})).await.with(202);
        events.until("turn.ended").await;
        let request = site.requests().pop().unwrap().to_string();
        let place = workspace.display();
        let list = client.get(&format!("/v1/tools?workspace={place}")).await.with(200).to_string();
        let ids = client.get(&format!("/experimental/tool/ids?directory={place}")).await.with(200);
        for name in ["inner", "outer"] {
            assert_eq!(list.contains(&format!("\"{name}\"")), shown.contains(&name), "{list}");
            assert_eq!(ids.as_array().unwrap().contains(&json!(name)), shown.contains(&name), "{ids}");
            let told = request.contains(&format!("\"name\":\"{name}\""));
            assert_eq!(told, shown.contains(&name), "{name} in {}", workspace.display());
        }
    }
    below.get("/v1/tools?workspace=/").await.refused(403, "forbidden");
    below.delete("/v1/tools/inner").await.with(204);
    all.delete("/v1/tools/outer").await.with(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_there_after_a_restart_unless_the_engine_has_one_of_its_name_by_then() {
    let site = site();
    let served = site.serve(asks(vec![]), |_| {}).await;
    let client = Client::of(&served, None);
    client.post("/v1/tools", weather("weather_at")).await.with(201);
    client.post("/v1/tools", weather("later")).await.with(201);
    let made = client.post("/v1/tools", sent("https://example.org/hook", SECRET)).await.with(201);
    assert!(!made.to_string().contains("whsec_"), "{made}");
    let kept = site.store.shelf.scan("host-tools/").unwrap();
    assert!(kept.iter().all(|(_, value)| !value.windows(6).any(|part| part == b"whsec_")));
    drop(served);
    let later = ["later".to_owned()].into();
    let tools = open(site.store.shelf.clone(), later, site.folder.path().join("host-tools"));
    let listed = tools.list("local");
    assert_eq!(listed.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["other", "weather_at"]);
    tools.remove("local", "later", |_| true).unwrap();
}
