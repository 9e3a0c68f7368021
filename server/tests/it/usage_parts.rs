//! Usage of which a part is gone or not to be seen: after rows were archived, and for a key that is limited to directories.

use std::time::Duration;

use playhouse_protocol::ledger::ArchiveQuery;
use playhouse_protocol::{SessionId, Timestamp};
use serde_json::{Value, json};

use crate::client::Client;
use crate::native_schema::Description;
use crate::support::{Served, Site};
use crate::usage::{all, below, id, keys, script, served, steps, turn};

/// Archives all rows that there are; the time before which they ended.
async fn archive(served: &Served) -> Timestamp {
    let engine = served.app.engine();
    tokio::time::sleep(Duration::from_millis(2)).await;
    let before = engine.used_today("local").await.unwrap().1;
    let query = ArchiveQuery { before, up_to: None, after: 0, limit: 0 };
    let page = engine.archivable(query.clone()).await.unwrap();
    assert_eq!((page.next, page.kept), (None, 0));
    let rows = page.rows.len() as u64;
    assert_eq!(engine.archive(before, page.numbers).await.unwrap(), rows);
    let archived = engine.archivable(query).await.unwrap();
    assert_eq!((archived.rows.len(), archived.archived_before), (0, Some(before)));
    before
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_archived_is_no_zero() {
    let site = Site::new();
    let (served, client) = served(&site).await;
    let description = Description::of(&client).await;
    let usage = async |path: &str| {
        let usage = client.get(&format!("{path}/usage")).await.with(200);
        description.check("TreeUsage", &usage);
        usage
    };
    let top = client.session("two").await;
    let of_first = format!("{top}/turns/{}", turn(&client, &top).await);
    let (first, tree) = (usage(&of_first).await, usage(&format!("{top}/tree")).await);
    assert_eq!((&first["sum"]["attempts"], &tree["sum"]), (&json!(2), &first["sum"]));
    let before = archive(&served).await;
    // What a session used itself is in its log, in full.
    let flagged = |usage: &Value| {
        let mut usage = usage.clone();
        usage["archived_before"] = json!(before);
        usage
    };
    assert_eq!(usage(&of_first).await, flagged(&first));
    assert_eq!(usage(&format!("{top}/tree")).await, flagged(&tree));
    client.get(&format!("{top}/turns/msg_00000000000012345678901234/usage")).await.refused(404, "not-found");
    // A turn that began later misses nothing.
    let second = turn(&client, &top).await;
    let of_second = usage(&format!("{top}/turns/{second}")).await;
    assert_eq!((&of_second["sum"]["attempts"], of_second.get("archived_before")), (&json!(2), None));
    let whole = usage(&format!("{top}/tree")).await;
    assert_eq!((&whole["own"]["attempts"], &whole["archived_before"]), (&json!(4), &json!(before)));
    // Neither does a session that was made later.
    let later = client.session("one").await;
    turn(&client, &later).await;
    assert_eq!(usage(&format!("{later}/tree")).await.get("archived_before"), None);
    // Of a sub-session nothing is known up from above, which is told; of itself it knows.
    let root: SessionId = id(&later);
    let made = turn(&client, &later).await;
    let step = steps(&client, &later, &made).await[0];
    let child = format!("/v1/sessions/{}", below(&site, root, root, step));
    turn(&client, &child).await;
    let with_child = usage(&format!("{later}/turns/{made}")).await;
    assert_eq!((&with_child["sum"]["attempts"], &with_child["own"]["attempts"]), (&json!(2), &json!(1)));
    let before = archive(&served).await;
    let without = usage(&format!("{later}/turns/{made}")).await;
    assert_eq!((&without["own"], &without["archived_before"]), (&with_child["own"], &json!(before)));
    assert_eq!(usage(&format!("{child}/tree")).await["own"]["attempts"], 1);
    // A fork has what it used itself, and nothing of what it shares.
    let fork = client.post(&format!("{top}/fork"), json!({})).await.with(201);
    let fork = format!("/v1/sessions/{}", fork["id"].as_str().unwrap());
    turn(&client, &fork).await;
    archive(&served).await;
    assert_eq!(usage(&format!("{fork}/tree")).await["own"]["attempts"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_roots_sees_what_sessions_in_them_used() {
    let site = Site::new();
    let (own, others) = (site.workspace().join("own"), site.workspace().join("others"));
    for folder in [&own, &others] {
        fs_err::create_dir(folder).unwrap();
    }
    let (narrow, wide) = (site.key_below("acme", &own), site.key("acme"));
    let served = site.serve(script(), |_| {}).await;
    let (narrow, wide) = (Client::of(&served, Some(&narrow)), Client::of(&served, Some(&wide)));
    let session = async |client: &Client, folder: &std::path::Path, model: &str| {
        let body = json!({"workspace": folder, "model": format!("mock/{model}")});
        let made = client.post("/v1/sessions", body).await.with(201);
        let session = made["id"].as_str().unwrap().to_owned();
        turn(client, &format!("/v1/sessions/{session}")).await;
        session
    };
    let mut mine = Vec::new();
    for _ in 0..3 {
        session(&wide, &others, "two").await;
        mine.push(session(&narrow, &own, "one").await);
    }
    session(&wide, &others, "one").await;
    mine.sort();
    assert_eq!(keys(&all(&wide, "by=session", 10).await, "session").len(), 7);
    for limit in [1, 2, 3, 10] {
        assert_eq!(keys(&all(&narrow, "by=session", limit).await, "session"), mine, "{limit}");
        let by_model = all(&narrow, "by=session,model", limit).await;
        assert_eq!(keys(&by_model, "model"), ["mock/one"; 3], "{limit}");
    }
    // Not even the place of a page names a session that is not there for it.
    let page = narrow.get("/v1/usage?by=session&limit=3").await.with(200);
    assert_eq!(page.get("next"), None, "{page}");
    for query in ["", "?by=tenant", "?by=model,day", "?from=2026-01-01", "?by=day&tenant=acme"] {
        let detail = narrow.get(&format!("/v1/usage{query}")).await.refused(403, "forbidden");
        assert!(detail.contains("by=session"), "{query}: {detail}");
        wide.get(&format!("/v1/usage{query}")).await.with(200);
    }
    // What was deleted cannot be told to be within.
    wide.delete(&format!("/v1/sessions/{}", mine[0])).await.with(204);
    assert_eq!(keys(&all(&narrow, "by=session", 2).await, "session"), mine[1..]);
    assert_eq!(all(&wide, "by=session", 10).await.len(), 7);
}
