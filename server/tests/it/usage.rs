//! What was used and what it cost, over the native API: sums by groups, of turns, and of sessions with those below them.

use std::collections::BTreeSet;
use std::sync::mpsc::sync_channel;

use mock_llm::{Cut, Fault, Model, Script, text};
use playhouse_protocol::record::SessionCreated;
use playhouse_protocol::{Day, Entry, IdGenerator, MessageId, ModelRef, Record, Seq, SessionId, Timestamp};
use playhouse_server::{Listen, Server};
use playhouse_store::Append;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::client::Client;
use crate::native_schema::Description;
use crate::support::{Served, Site, ask_unix};

/// The model `one` answers at once, `two` after a call, and the first answer of `cut` is cut.
pub(crate) fn script() -> Script {
    Script::new()
        .model("one", Model::new().step(text("Hello there, how are you?")).cycle())
        .model(
            "two",
            Model::new().step(text("I look.").call("list", json!({}))).step(text("Nothing.")).cycle(),
        )
        .model("cut", Model::new().step(text("a b c d e f").fault(Fault::cut(5, Cut::Eof)).fail_first(1)))
}

/// Runs a turn to its end; its id.
pub(crate) async fn turn(client: &Client, session: &str) -> String {
    let mut events = client.events(&format!("{session}/events"), None).await;
    let turn = client.prompt(session, "go").await;
    events.until("turn.ended").await;
    turn
}

async fn session(client: &Client, model: &str, agent: &str) -> String {
    let session = client.session_with(json!({"model": format!("mock/{model}"), "agent": agent})).await;
    turn(client, &session).await;
    session
}

/// All rows, page by page of `limit`.
pub(crate) async fn all(client: &Client, query: &str, limit: usize) -> Vec<Value> {
    let (mut rows, mut after) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/usage?{query}&limit={limit}{after}")).await.with(200);
        let found = page["rows"].as_array().unwrap().clone();
        assert!(found.len() <= limit, "{page}");
        rows.extend(found);
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return rows,
        }
    }
}

/// What a group has in common, without its sums.
pub(crate) fn keys(rows: &[Value], name: &str) -> Vec<String> {
    let key = |row: &Value| row[name].as_str().unwrap_or_else(|| panic!("{name}: {row}")).to_owned();
    rows.iter().map(key).collect()
}

const COUNTS: [&str; 9] = [
    "input",
    "cache_read",
    "cache_write",
    "output",
    "reasoning",
    "rows",
    "estimated_rows",
    "unpriced_rows",
    "unreconciled_rows",
];

fn cost(value: &Value) -> Decimal {
    value.as_str().expect("money is written as text, so that it stays exact").parse().unwrap()
}

/// The sums of all rows together.
fn added(rows: &[Value]) -> (Vec<u64>, Decimal) {
    let count = |name: &str| rows.iter().map(|row| row[name].as_u64().unwrap()).sum();
    (COUNTS.map(count).to_vec(), rows.iter().map(|row| cost(&row["cost"])).sum())
}

/// What the model reported to all its clients: input and output.
fn reported(site: &Site) -> (u64, u64) {
    let mock = site.mock.lock().unwrap().clone().unwrap();
    let tokens = mock.journal().entries().into_iter().filter_map(|entry| entry.reported);
    tokens.fold((0, 0), |(input, output), tokens| (input + tokens.input, output + tokens.output))
}

pub(crate) async fn served(site: &Site) -> (Served, Client) {
    let served = site.serve(script(), |_| {}).await;
    let client = Client::of(&served, None);
    (served, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sum_over_all_is_what_the_model_reported() {
    let site = Site::new();
    let (_served, client) = served(&site).await;
    assert_eq!(client.get("/v1/usage").await.with(200), json!({"rows": []}));
    session(&client, "one", "tester").await;
    session(&client, "two", "tester").await;
    let page = client.get("/v1/usage").await.with(200);
    Description::of(&client).await.check("UsageRows", &page);
    let (input, output) = reported(&site);
    assert!(input > 0 && output > 0);
    let micros = Decimal::from(input + 5 * output);
    let expected = json!({"rows": [{
        "input": input,
        "cache_read": 0,
        "cache_write": 0,
        "output": output,
        "reasoning": 0,
        "cost": page["rows"][0]["cost"],
        "rows": 3,
        "estimated_rows": 0,
        "unpriced_rows": 0,
        "unreconciled_rows": 0,
        "assumed_rows": 0,
    }]});
    assert_eq!(page, expected);
    assert_eq!(cost(&page["rows"][0]["cost"]), micros / Decimal::from(1_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_group_tells_sums_apart_and_adds_up_to_the_same() {
    let site = Site::new();
    let (served, client) = served(&site).await;
    let first = session(&client, "one", "tester").await;
    let second = session(&client, "two", "tester").await;
    let third = session(&client, "cut", "careful").await;
    let description = Description::of(&client).await;
    let whole = added(&all(&client, "", 10).await);
    assert_eq!(whole.0[5..7], [5, 1], "the attempt that was cut is an estimate");
    let today = served.app.engine().used_today("local").await.unwrap().1;
    let sessions: BTreeSet<_> = [&first, &second, &third].map(|path| path.rsplit('/').next().unwrap()).into();
    for (group, expected) in [
        ("tenant", vec!["local"]),
        ("session", sessions.into_iter().collect()),
        ("model", vec!["mock/cut", "mock/one", "mock/two"]),
        ("provider", vec!["mock"]),
        ("day", vec![&*Day::of(today).to_string()]),
        ("purpose", vec!["turn"]),
        ("agent", vec!["careful", "tester"]),
    ] {
        let page = client.get(&format!("/v1/usage?by={group}")).await.with(200);
        description.check("UsageRows", &page);
        let rows = page["rows"].as_array().unwrap();
        assert_eq!(keys(rows, group), expected);
        assert_eq!(added(rows), whole, "by {group}");
    }
    let both = all(&client, "by=agent,model", 10).await;
    let told: Vec<_> = keys(&both, "model").into_iter().zip(keys(&both, "agent")).collect();
    let pair = |model: &str, agent: &str| (model.to_owned(), agent.to_owned());
    let expected = [pair("mock/cut", "careful"), pair("mock/one", "tester"), pair("mock/two", "tester")];
    assert_eq!(told, expected);
    assert_eq!((added(&both), both[0].get("day")), (whole, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_of_time_is_of_what_ended_in_it() {
    let site = Site::new();
    let (_served, client) = served(&site).await;
    let first = session(&client, "one", "tester").await;
    let middle = client.get(&first).await.with(200)["updated"].as_u64().unwrap() + 1;
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    session(&client, "two", "tester").await;
    // They are asked about together: midnight may come between two questions.
    let day = Day::of(Timestamp::from_millis(middle));
    let (today, later) = (day.to_string(), day.next().next());
    let counts = async |query: String| {
        let rows = all(&client, &query, 10).await;
        (added(&rows).0[5], added(&all(&client, &format!("{query}&by=session"), 1).await).0[5])
    };
    for (query, expected) in [
        (format!("from={today}"), 3),
        (format!("from={today}&to={later}"), 3),
        (format!("to={today}"), 0),
        (format!("from={later}"), 0),
        (format!("from={today}&to={today}"), 0),
        (format!("to={middle}"), 1),
        (format!("from={middle}"), 2),
        (format!("from={today}&to={middle}"), 1),
        (format!("from={middle}&to={later}"), 2),
    ] {
        assert_eq!(counts(query.clone()).await, (expected, expected), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_come_in_pages_and_stay_when_they_are_deleted() {
    let site = Site::new();
    let (_served, client) = served(&site).await;
    let mut sessions = Vec::new();
    for model in ["one", "two", "one", "two", "one"] {
        sessions.push(session(&client, model, "tester").await);
    }
    let whole = all(&client, "by=session", 10).await;
    assert_eq!(whole.len(), 5);
    for limit in [1, 2, 4, 5] {
        assert_eq!(all(&client, "by=session", limit).await, whole, "{limit}");
        let told_apart = all(&client, "by=session,model", limit).await;
        assert_eq!(keys(&told_apart, "session"), keys(&whole, "session"), "{limit}");
    }
    client.delete(&sessions[0]).await.with(204);
    assert_eq!(all(&client, "by=session", 2).await, whole);
    // A fork brings nothing with it, and pays for what it does itself.
    let fork = client.post(&format!("{}/fork", sessions[1]), json!({})).await.with(201);
    assert_eq!(all(&client, "by=session", 2).await, whole);
    let fork = fork["id"].as_str().unwrap().to_owned();
    turn(&client, &format!("/v1/sessions/{fork}")).await;
    let more = all(&client, "by=session", 2).await;
    let of_fork = more.iter().find(|row| row["session"] == fork).unwrap();
    assert_eq!((more.len(), &of_fork["rows"]), (6, &json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_sees_its_own_and_the_operator_all() {
    let site = Site::new();
    let (acme, other) = (site.key("acme"), site.key("other"));
    let app = site.app(script(), |_| {}).await;
    let mut server = Server::bind(app, Listen::Tcp("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let socket = site.folder.path().join("engine.sock");
    server.and_on(Listen::Unix(socket.clone())).await.unwrap();
    let served = Served::run(server);
    let (acme_client, other_client) = (Client::of(&served, Some(&acme)), Client::of(&served, Some(&other)));
    let mine = session(&acme_client, "one", "tester").await;
    let made = turn(&acme_client, &mine).await;
    session(&other_client, "two", "tester").await;
    let by_tenant = "/v1/usage?by=tenant";
    let row =
        |page: &Value| (keys(page["rows"].as_array().unwrap(), "tenant"), page["rows"][0]["rows"].clone());
    let seen = acme_client.get(by_tenant).await.with(200);
    assert_eq!(row(&seen), (vec!["acme".to_owned()], json!(2)));
    assert_eq!(acme_client.get(&format!("{by_tenant}&tenant=acme")).await.with(200), seen);
    let detail = acme_client.get(&format!("{by_tenant}&tenant=other")).await.refused(403, "forbidden");
    assert!(detail.contains("Unix socket"), "{detail}");
    // A place that was taken from another's page leads nowhere else.
    session(&acme_client, "one", "tester").await;
    session(&other_client, "one", "tester").await;
    for (whose, asks, own) in [(&acme_client, &other_client, "other"), (&other_client, &acme_client, "acme")]
    {
        let page = whose.get("/v1/usage?by=session&limit=1").await.with(200);
        let path = format!("/v1/usage?by=session&after={}", page["next"].as_str().unwrap());
        let found = asks.get(&path).await.with(200);
        let tenants = keys(found["rows"].as_array().unwrap(), "tenant");
        assert!(tenants.iter().all(|tenant| tenant == own), "{found}");
    }
    for path in [format!("{mine}/turns/{made}/usage"), format!("{mine}/tree/usage")] {
        acme_client.get(&path).await.with(200);
        other_client.get(&path).await.refused(404, "not-found");
    }
    let seen = acme_client.get(by_tenant).await.with(200);
    let all = ask_unix(&socket, by_tenant, &[]).await.with(200);
    assert_eq!(keys(all["rows"].as_array().unwrap(), "tenant"), ["acme", "other"]);
    let one = ask_unix(&socket, &format!("{by_tenant}&tenant=other"), &[]).await.with(200);
    assert_eq!(row(&one), (vec!["other".to_owned()], json!(3)));
    let bearer = format!("Bearer {acme}");
    let with_key = ask_unix(&socket, by_tenant, &[("authorization", &bearer)]).await.with(200);
    assert_eq!(with_key, seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_asked_is_a_problem_that_says_why() {
    let site = Site::new();
    let (_served, client) = served(&site).await;
    let session = session(&client, "one", "tester").await;
    for (query, said) in [
        ("from=yesterday", "is not a day"),
        ("to=2026-02-30", "is not a day"),
        ("from=-1", "is not a day"),
        ("from=99999999999999999999", "is not a day"),
        ("by=modle", "did you mean \"model\""),
        ("by=model,,%00", "cannot be summed up by"),
        ("limit=0", "`limit` must be from 1 to"),
        ("limit=1000000", "`limit` must be from 1 to"),
        ("limit=many", "limit"),
        ("after=nowhere", "`after` is not"),
        ("from=2026-11-02&to=2026-11-01", "`from` is after `to`"),
        ("from=1800000000000&to=1700000000000", "`from` is after `to`"),
        ("form=2026-01-01", "from"),
    ] {
        let detail = client.get(&format!("/v1/usage?{query}")).await.refused(400, "invalid");
        assert!(detail.contains(said), "{query}: {detail}");
    }
    client.get(&format!("{session}/turns/x/usage")).await.refused(400, "invalid");
    let nobody = format!("{}0000", &session[..session.len() - 4]);
    client.get(&format!("{nobody}/tree/usage")).await.refused(404, "not-found");
    let turn = "msg_00000000000012345678901234";
    client.get(&format!("{nobody}/turns/{turn}/usage")).await.refused(404, "not-found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_asked_about_where_it_ran() {
    let site = Site::new();
    let (_served, client) = served(&site).await;
    let session = client.session_with(json!({"model": "mock/one", "agent": "tester"})).await;
    let made = turn(&client, &session).await;
    let other = client.session_with(json!({"model": "mock/one", "agent": "tester"})).await;
    let of_other = turn(&client, &other).await;
    let used = client.get(&format!("{session}/turns/{made}/usage")).await.with(200);
    assert_eq!((&used["sum"]["attempts"], used.get("archived_before")), (&json!(1), None));
    for nothing in [&*of_other, "msg_00000000000012345678901234"] {
        let path = format!("{session}/turns/{nothing}/usage");
        let detail = client.get(&path).await.refused(404, "not-found");
        assert!(detail.contains("there is no turn") && detail.contains(nothing), "{detail}");
    }
    // What a prompt without a turn used nobody can say, and what a turn used that needed no model is nothing.
    let note = client.post(&format!("{session}/prompts"), json!({"text": "Remember.", "reply": false})).await;
    let note = note.with(202)["turn"].as_str().unwrap().to_owned();
    client.get(&format!("{session}/turns/{note}/usage")).await.refused(404, "not-found");
    let fork = client.post(&format!("{session}/fork"), json!({})).await.with(201);
    let fork = format!("/v1/sessions/{}", fork["id"].as_str().unwrap());
    let shared = client.get(&format!("{fork}/turns/{made}/usage")).await.with(200);
    assert_eq!(shared["sum"]["attempts"], 0, "the session that ran it paid for it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_of_a_page_is_of_its_groups_only() {
    let site = Site::new();
    let (_served, client) = served(&site).await;
    session(&client, "one", "tester").await;
    session(&client, "two", "tester").await;
    let page = client.get("/v1/usage?by=model&limit=1").await.with(200);
    let next = page["next"].as_str().unwrap();
    let rest = client.get(&format!("/v1/usage?by=model&after={next}")).await.with(200);
    assert_eq!(keys(rest["rows"].as_array().unwrap(), "model"), ["mock/two"]);
    for by in ["", "&by=day", "&by=agent", "&by=session", "&by=model,day", "&by=tenant"] {
        let detail = client.get(&format!("/v1/usage?after={next}{by}")).await.refused(400, "invalid");
        assert!(
            detail.contains("`after` is of a page that was told apart by other groups"),
            "{by}: {detail}"
        );
    }
}

/// A session below `parent`, as a step of it would start one.
pub(crate) fn below(site: &Site, parent: SessionId, root: SessionId, step: MessageId) -> SessionId {
    let mut ids = IdGenerator::new(|bytes| getrandom::fill(bytes).unwrap());
    let (at, log) = (Timestamp::from_millis(1_800_000_000_000), sync_channel(1));
    let session: SessionId = ids.next(at);
    let record = Record::SessionCreated(SessionCreated {
        title: "Below".to_owned(),
        parent: Some(parent),
        root: Some(root),
        parent_step: Some(step),
        ..SessionCreated::new(
            session,
            "local",
            site.workspace().to_str().unwrap(),
            "tester",
            ModelRef::new("mock", "one"),
        )
    });
    let entries = vec![Entry { seq: Seq(1), at, record }];
    let append = Append { session, tenant: "local".into(), expected: Seq::START, entries };
    let done = log.0.clone();
    site.store.log.append(append, Box::new(move |end| done.send(end).unwrap()));
    log.1.recv().unwrap().unwrap();
    session
}

/// The id at the end of a path.
pub(crate) fn id<T: serde::de::DeserializeOwned>(path: &str) -> T {
    serde_json::from_value(json!(path.rsplit('/').next().unwrap())).unwrap()
}

/// The steps of a turn.
pub(crate) async fn steps(client: &Client, session: &str, turn: &str) -> Vec<MessageId> {
    let page = client.get(&format!("{session}/messages")).await.with(200);
    let messages = page["messages"].as_array().unwrap().iter();
    let answers = messages.filter(|message| message["role"] == "assistant" && message["parent"] == turn);
    answers.map(|message| id(message["id"].as_str().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_has_its_steps_and_the_sessions_that_they_started() {
    let site = Site::new();
    let (_served, client) = served(&site).await;
    let top = client.session("two").await;
    let (first, second) = (turn(&client, &top).await, turn(&client, &top).await);
    let description = Description::of(&client).await;
    let usage = async |path: String| {
        let usage = client.get(&format!("{path}/usage")).await.with(200);
        description.check("TreeUsage", &usage);
        let told = |sum: &Value| (sum["attempts"].as_u64().unwrap(), cost(&sum["cost"]));
        (told(&usage["own"]), told(&usage["sum"]), usage)
    };
    let (own, sum, told) = usage(format!("{top}/turns/{first}")).await;
    assert_eq!((own.0, sum, &told["sub_sessions"]), (2, own, &json!(0)));
    // A child of the first turn, one below that, and a child of the second turn.
    let of_first = steps(&client, &top, &first).await;
    let of_second = steps(&client, &top, &second).await;
    assert_eq!((of_first.len(), of_second.len()), (2, 2));
    let root: SessionId = id(&top);
    let child = below(&site, root, root, of_first[0]);
    let child_path = format!("/v1/sessions/{child}");
    let turn_of_child = turn(&client, &child_path).await;
    let step_of_child = steps(&client, &child_path, &turn_of_child).await[0];
    let lowest = below(&site, child, root, step_of_child);
    turn(&client, &format!("/v1/sessions/{lowest}")).await;
    let other = below(&site, root, root, of_second[1]);
    turn(&client, &format!("/v1/sessions/{other}")).await;

    let (own_of_child, of_child, _) = usage(format!("{child_path}/tree")).await;
    assert_eq!((own_of_child.0, of_child.0), (1, 2));
    let (own_of_first, of_first, told) = usage(format!("{top}/turns/{first}")).await;
    assert_eq!((own_of_first, of_first.0), (own, 4));
    assert_eq!(of_first.1, own.1 + of_child.1, "in money too");
    assert_eq!((&told["models"]["mock/one"]["attempts"], &told["sub_sessions"]), (&json!(2), &json!(2)));
    let (_, of_second, _) = usage(format!("{top}/turns/{second}")).await;
    assert_eq!(of_second.0, 3);
    let (own_of_tree, of_tree, told) = usage(format!("{top}/tree")).await;
    assert_eq!((own_of_tree.0, of_tree.0), (4, 7));
    assert_eq!((of_tree.1, &told["sub_sessions"]), (of_first.1 + of_second.1, &json!(3)));
    let by_purpose = all(&client, "by=purpose", 10).await;
    assert_eq!(keys(&by_purpose, "purpose"), ["turn", "subagent"]);
    assert_eq!((&by_purpose[0]["rows"], &by_purpose[1]["rows"]), (&json!(4), &json!(3)));
    assert_eq!(added(&by_purpose).1, of_tree.1);
    // The tree keeps what a session of it used when that is deleted.
    client.delete(&format!("/v1/sessions/{lowest}")).await.with(204);
    assert_eq!(usage(format!("{top}/tree")).await.2, told);
}
