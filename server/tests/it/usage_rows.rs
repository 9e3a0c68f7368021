//! Rows of the ledger over the native API: who reads which, and what of them.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use playhouse_server::{Listen, Server};
use serde_json::{Value, json};

use crate::client::Client;
use crate::native_schema::Description;
use crate::support::{Served, Site, ask_unix, post_unix};
use crate::usage::{script, turn};

async fn session(client: &Client, model: &str) -> String {
    let session = client.session_with(json!({"model": format!("mock/{model}"), "agent": "tester"})).await;
    turn(client, &session).await;
    session
}

/// All rows, page by page of `limit`.
async fn all(client: &Client, query: &str, limit: usize) -> Vec<Value> {
    let description = Description::of(client).await;
    let (mut rows, mut after) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/usage/rows?{query}&limit={limit}{after}")).await.with(200);
        description.check("LedgerRows", &page);
        let found = page["rows"].as_array().unwrap();
        assert!(found.len() <= limit, "{page}");
        rows.extend(found.iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return rows,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_reads_its_rows_without_what_is_the_operators() {
    let site = Site::new();
    let (acme, other) = (site.key("acme"), site.key("other"));
    let app = site.app(script(), |_| {}).await;
    let mut server = Server::bind(app, Listen::Tcp("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let socket = site.folder.path().join("engine.sock");
    server.and_on(Listen::Unix(socket.clone())).await.unwrap();
    let served = Served::run(server);
    let (acme_client, other_client) = (Client::of(&served, Some(&acme)), Client::of(&served, Some(&other)));
    let first = session(&acme_client, "one").await;
    session(&acme_client, "two").await;
    session(&other_client, "one").await;
    let mine = all(&acme_client, "", 2).await;
    assert_eq!(mine.len(), 3, "{mine:?}");
    for row in &mine {
        assert_eq!((&row["tenant"], &row["currency"]), (&json!("acme"), &json!("USD")), "{row}");
        assert!(row["key"]["id"].is_string() && row["key"]["name"].is_string(), "{row}");
        for name in ["raw", "prices", "provider_cost"] {
            assert!(row.get(name).is_none(), "{name}: {row}");
        }
    }
    let of_session = first.rsplit('/').next().unwrap();
    for (query, count) in [
        ("model=mock/two", 2),
        ("model=mock/one", 1),
        ("provider=mock", 3),
        ("provider=none", 0),
        (&*format!("session={of_session}"), 1),
        (&*format!("key={}", mine[0]["key"]["id"].as_str().unwrap()), 3),
        ("label=customer=c-42", 0),
        ("to=2026-01-01", 0),
        ("from=2026-01-01", 3),
    ] {
        assert_eq!(all(&acme_client, query, 1).await.len(), count, "{query}");
    }
    acme_client.get("/v1/usage/rows?tenant=other").await.refused(403, "forbidden");
    for wrong in ["limit=0", "limit=1001", "label=customer", "after=x", "from=x", "model=x", "form=1"] {
        acme_client.get(&format!("/v1/usage/rows?{wrong}")).await.refused(400, "invalid");
    }
    let page = ask_unix(&socket, "/v1/usage/rows", &[]).await.with(200);
    Description::of(&acme_client).await.check("LedgerRows", &page);
    let rows = page["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.get("prices").is_some()), "{page}");
    // The sums have the same keys.
    let sums = acme_client.get("/v1/usage?by=key,label:customer").await.with(200);
    assert_eq!((&sums["rows"][0]["key"], &sums["rows"][0]["rows"]), (&mine[0]["key"], &json!(3)), "{sums}");
    assert!(sums["rows"][0]["label:customer"].is_null(), "{sums}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_roots_reads_rows_of_sessions_below_them_only() {
    let site = Site::new();
    let whole = site.key("acme");
    let below = site.workspace().join("below");
    fs_err::create_dir(&below).unwrap();
    let bounded = site.key_below("acme", &below);
    let served = Served::run(
        Server::bind(site.app(script(), |_| {}).await, Listen::Tcp("127.0.0.1:0".parse().unwrap()))
            .await
            .unwrap(),
    );
    let (whole, bounded) = (Client::of(&served, Some(&whole)), Client::of(&served, Some(&bounded)));
    session(&whole, "one").await;
    let own = json!({"model": "mock/one", "agent": "tester", "workspace": below});
    let own = bounded.post("/v1/sessions", own).await.with(201);
    turn(&bounded, &format!("/v1/sessions/{}", own["id"].as_str().unwrap())).await;
    session(&whole, "two").await;
    let sessions =
        |rows: &[Value]| rows.iter().map(|row| row["session"].clone().to_string()).collect::<BTreeSet<_>>();
    assert_eq!(sessions(&all(&whole, "", 10).await).len(), 3);
    for limit in [1, 10] {
        let rows = all(&bounded, "", limit).await;
        assert_eq!(sessions(&rows), [own["id"].to_string()].into(), "{rows:?}");
    }
    // Where its page ends says nothing, and is read by this key only.
    let next = |page: Value| page["next"].as_str().unwrap_or_default().to_owned();
    let sealed = next(bounded.get("/v1/usage/rows?limit=1").await.with(200));
    let plain = next(whole.get("/v1/usage/rows?limit=1").await.with(200));
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let names_a_row = |bytes: &[u8]| bytes.windows(4).any(|part| part == b"row_");
    assert!(names_a_row(&decode(&plain)) && !names_a_row(&decode(&sealed)));
    for (client, after) in [(&bounded, &plain), (&whole, &sealed)] {
        client.get(&format!("/v1/usage/rows?after={after}")).await.refused(400, "invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_operator_on_the_socket_prices_rows_anew() {
    for has_keys in [true, false] {
        let site = Site::new();
        let below = site.workspace().join("below");
        fs_err::create_dir(&below).unwrap();
        let keys = match has_keys {
            true => vec![Some(site.key("acme")), Some(site.key_below("acme", &below))],
            false => vec![None],
        };
        let mut server =
            Server::bind(site.app(script(), |_| {}).await, Listen::Tcp("127.0.0.1:0".parse().unwrap()))
                .await
                .unwrap();
        let socket = site.folder.path().join("engine.sock");
        server.and_on(Listen::Unix(socket.clone())).await.unwrap();
        let served = Served::run(server);
        let path = "/v1/usage/reprice";
        let body = json!({"from": "2026-01-01", "to": "2100-01-01", "models": ["mock/one"]});
        for key in &keys {
            let client = Client::of(&served, key.as_deref());
            // Whatever it asks.
            for body in [&body, &json!({}), &json!({"dry_run": true, "from": 5})] {
                client.post(path, body.clone()).await.refused(403, "forbidden");
            }
        }
        let client = Client::of(&served, keys[0].as_deref());
        session(&client, "one").await;
        for (wrong, said) in [
            (json!({}), "missing field `from`"),
            (json!({"from": "2026-02-30", "to": "2026-03-01", "models": ["mock/one"]}), "is not a day"),
            (json!({"from": "2026-01-01", "to": "2026-01-01", "models": ["mock/one"]}), "is not before"),
            (json!({"from": "2026-01-01", "to": "2026-01-02", "models": []}), "`models` is empty"),
            (json!({"from": "2026-01-01", "to": "2026-01-02", "models": ["one"]}), "one"),
            (
                json!({"from": "2026-01-01", "to": "2026-01-02", "models": ["mock/on"]}),
                "no row of the ledger",
            ),
            (json!({"from": "2026-01-01", "to": "2026-01-02", "model": "mock/one"}), "unknown field `model`"),
        ] {
            let answer = post_unix(&socket, path, &wrong).await;
            assert!(answer.status == 400 && answer.body.contains(said), "{wrong}: {}", answer.body);
        }
        let report = post_unix(&socket, path, &body).await.with(200);
        Description::of(&client).await.check("RepriceReport", &report);
        assert_eq!((&report["looked_at"], &report["corrected"]), (&json!(1), &json!(0)), "{report}");
    }
}
