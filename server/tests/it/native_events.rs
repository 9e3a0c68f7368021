//! Streams of events over the native API.

use mock_llm::{Fault, Model, Script, text, tokens};
use playhouse_protocol::event::Provisional;
use playhouse_protocol::{EventBody, Record, SessionId};
use serde_json::{Value, json};

use crate::client::{Client, Known};
use crate::native_schema::Description;
use crate::support::{Served, Site};

async fn served(script: Script) -> (Site, Served, Client) {
    on(Site::new(), script).await
}

async fn on(site: Site, script: Script) -> (Site, Served, Client) {
    let served = site.serve(script, |_| {}).await;
    let client = Client::of(&served, None);
    (site, served, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_streamed_in_order_and_without_a_gap() {
    let model = Model::new().step(tokens(300).call("list", json!({"path": "."}))).step(text("Größe: ü."));
    let (_site, _served, client) = served(Script::new().model("m", model)).await;
    let description = Description::of(&client).await;
    let session = client.session("m").await;
    let mut events = client.events(&format!("{session}/events?after=0"), None).await;
    assert_eq!(events.last, "0");
    client.prompt(&session, "go").await;
    let mut known = Known::default();
    let mut checked = 0;
    while !known.ended {
        let block = events.next().await.unwrap();
        description.check("Event", &block.json);
        known.take(&block.json);
        checked += 1;
    }
    assert_eq!(known.durable[0], 1);
    known.check_parts();
    assert_eq!(known.finished.len(), 2);
    assert!(checked > known.durable.len());
    // The whole of it can be read again, without what was provisional.
    let mut again = Known::default();
    let mut events = client.events(&format!("{session}/events?after=0"), None).await;
    again.read(&mut events, |_| false).await;
    assert_eq!((again.durable, again.deltas), (known.durable, 0));
    assert_eq!(again.finished, known.finished);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_back_misses_nothing() {
    let model =
        Model::new().rate(400.0).step(tokens(120).call("list", json!({"path": "."}))).step(tokens(120));
    let (_site, _served, client) = served(Script::new().model("m", model)).await;
    let session = client.session("m").await;
    // It was opened for the first time behind record 1, and comes back with the same address.
    let path = format!("{session}/events?after=1");
    let mut known = Known::default();
    let mut events = client.events(&path, None).await;
    client.prompt(&session, "go").await;
    let mut connections = 1;
    loop {
        let so_far = known.deltas;
        known.read(&mut events, |known| known.deltas >= so_far + 20).await;
        if known.ended {
            break;
        }
        let last = events.last.clone();
        assert!(last.contains('.'), "it is in the middle of a part: {last}");
        known.comes_back();
        events = client.events(&path, Some(&last)).await;
        connections += 1;
    }
    assert_eq!(known.durable[0], 2);
    assert!(connections > 1 && known.snapshots > 0, "{connections}");
    known.check_parts();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_client_gets_open_parts_as_they_stand() {
    let step = text("one two three four five").fault(Fault::stall(5));
    let (_site, _served, client) = served(Script::new().model("m", Model::new().step(step))).await;
    let session = client.session("m").await;
    let mut early = client.events(&format!("{session}/events"), None).await;
    client.prompt(&session, "go").await;
    early.until("part.delta").await;
    let mut late = client.events(&format!("{session}/events?after=0"), None).await;
    let mut known = Known::default();
    known.read(&mut late, |known| known.snapshots > 0).await;
    assert_eq!((known.durable[0], known.deltas), (1, 0), "the log comes first");
    let open = known.parts.values().next().unwrap();
    assert!(!open.is_empty() && "one two three four five".starts_with(open.as_str()), "{open}");
    client.post(&format!("{session}/abort"), json!({})).await.with(200);
    // Whoever wants no past gets the open parts too, and nothing else of before.
    let mut now = client.events(&format!("{session}/events"), None).await;
    client.prompt(&session, "again").await;
    assert_eq!(now.next().await.unwrap().json["type"], "prompt.admitted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_gets_merged_deltas_and_loses_nothing() {
    let site = Site { tune: |options| options.limits.ring_bytes = 64 * 1024 * 1024, ..Site::new() };
    let model = Model::new().step(tokens(30_000)).step(text("never"));
    let (_site, served, client) = on(site, Script::new().model("m", model)).await;
    let session = client.session("m").await;
    let id: SessionId = session.rsplit('/').next().unwrap().parse().unwrap();
    let handle = served.app.engine().session(id).await.unwrap();
    let mut beside = handle.events(None).await.unwrap();
    let mut slow = client.events_through_a_straw(&format!("{session}/events?after=0")).await;
    client.prompt(&session, "go").await;
    let mut made = 0;
    loop {
        let event = beside.next().await.unwrap().unwrap();
        match &event.event().body {
            EventBody::Provisional(Provisional::PartDelta { .. }) => made += 1,
            EventBody::Durable(record) if matches!(**record, Record::TurnEnded(_)) => break,
            _ => {}
        }
    }
    // Only now it begins to read.
    let mut known = Known::default();
    known.read(&mut slow, |_| false).await;
    known.check_parts();
    assert_eq!((known.durable[0], known.resyncs), (1, 0));
    assert!(known.deltas * 2 < made, "{} of {made}", known.deltas);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_falls_behind_goes_on_from_the_log() {
    let site = Site { tune: |options| options.limits.ring_bytes = 4_000, ..Site::new() };
    let model = Model::new().step(tokens(30_000).call("list", json!({"path": "."}))).step(text("the end"));
    let (_site, served, client) = on(site, Script::new().model("m", model)).await;
    let session = client.session("m").await;
    let mut slow = client.events_through_a_straw(&format!("{session}/events?after=0")).await;
    let id: SessionId = session.rsplit('/').next().unwrap().parse().unwrap();
    let handle = served.app.engine().session(id).await.unwrap();
    handle.run(playhouse_protocol::Prompt::text("go")).await.unwrap();
    let mut known = Known::default();
    known.read(&mut slow, |_| false).await;
    assert!(known.resyncs > 0, "a ring of 4,000 bytes does not hold all");
    assert_eq!(known.durable[0], 1);
    assert_eq!(known.finished.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_knows_more_than_the_log_holds_is_told_so_first() {
    let (_site, _served, client) = served(Script::new()).await;
    let session = client.session("echo").await;
    for ahead in [0, 1, 999_999] {
        let head = client.get(&session).await.with(200)["head"].as_u64().unwrap();
        let place = (head + ahead).to_string();
        // By the header and by the query.
        let header = client.events(&format!("{session}/events"), Some(&place)).await;
        let query = client.events(&format!("{session}/events?after={place}"), None).await;
        client.prompt(&session, "go").await;
        for mut events in [header, query] {
            let mut first = events.next().await.unwrap();
            if ahead > 0 {
                assert_eq!(first.json["type"], "resync", "{ahead}: {first:?}");
                assert_eq!(first.json["data"]["after"], head);
                assert!(first.id.unwrap().starts_with(&format!("{head}.")), "it goes on from there");
                first = events.next().await.unwrap();
            }
            assert_eq!(first.id.unwrap(), (head + 1).to_string(), "{ahead}");
            events.until("turn.ended").await;
        }
    }
}

/// Reads events of many sessions until this session's turn is over; the positions that were read.
async fn read_turn(events: &mut crate::client::Events, session: &str) -> Vec<u64> {
    let mut positions = Vec::new();
    loop {
        let block = events.next().await.unwrap();
        let (_, position) = block.id.as_deref().unwrap().split_once('-').unwrap();
        positions.push(position.parse().unwrap());
        if block.json["type"] == "turn.ended" && session.ends_with(block.json["session"].as_str().unwrap()) {
            return positions;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sessions_are_followed_in_one_stream() {
    let (site, _served, client) = served(Script::new()).await;
    let below = site.workspace().join("below");
    fs_err::create_dir_all(&below).unwrap();
    let mut all = client.events("/v1/events", None).await;
    let mut some = client.events(&format!("/v1/events?directory={}", below.display()), None).await;
    let here = client.session("echo").await;
    let there = client.session_with(json!({"model": "mock/echo", "workspace": below})).await;
    let created = all.until("session.created").await;
    assert!(here.ends_with(created["session"].as_str().unwrap()));
    client.prompt(&here, "one").await;
    read_turn(&mut all, &here).await;
    client.prompt(&there, "two").await;
    let place = all.last.clone();
    let rest = read_turn(&mut all, &there).await;
    let first = some.next().await.unwrap();
    assert!(there.ends_with(first.json["session"].as_str().unwrap()), "{first:?}");
    read_turn(&mut some, &there).await;
    // Whoever comes back is given what was missed.
    let mut back = client.events("/v1/events", Some(&place)).await;
    assert_eq!(read_turn(&mut back, &there).await, rest);
    client.delete(&there).await.with(204);
    back.until("session.deleted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_was_outrun_hears_which_sessions_changed() {
    let site = Site { tune: |options| options.limits.hub_bytes = 2_000, ..Site::new() };
    let (_site, _served, client) = on(site, Script::new()).await;
    let description = Description::of(&client).await;
    let (old, changed) = (client.session("echo").await, client.session("tokens-500").await);
    let mut events = client.events("/v1/events", None).await;
    let place = events.last.clone();
    client.prompt(&changed, "go").await;
    while events.next().await.unwrap().json["type"] != "turn.ended" {}
    drop(events);
    let mut back = client.events(&format!("/v1/events?after={place}"), None).await;
    let first = back.next().await.unwrap();
    description.check("Resync", &first.json);
    let sessions: Vec<&str> =
        first.json["data"]["sessions"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert!(sessions.len() == 1 && changed.ends_with(sessions[0]) && !old.ends_with(sessions[0]));
    // It goes on where the ring begins, each place behind the one before.
    let last = back.last.clone();
    let next = back.next().await.unwrap().id.unwrap();
    let number = |place: &str| place.split_once('-').unwrap().1.parse::<u64>().unwrap();
    assert_eq!(number(&next), number(&last) + 1);
    // A place in another run of the engine says nothing.
    let mut foreign = client.events("/v1/events", Some("99-1")).await;
    let first = foreign.next().await.unwrap();
    description.check("Resync", &first.json);
    assert_eq!(first.json["data"]["sessions"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_events_says_that_it_lives_and_where_it_is() {
    let site = Site::new();
    let short = std::time::Duration::from_millis(5);
    let served = site.serve(Script::new(), |options| options.heartbeat = short).await;
    let client = Client::of(&served, None);
    let nowhere = site.workspace().join("nowhere");
    let mut events = client.events(&format!("/v1/events?directory={}", nowhere.display()), None).await;
    let begin = events.last.clone();
    client.session("echo").await;
    while events.last == begin {
        events.heartbeat().await;
    }
    served.stop();
    assert!(events.next().await.is_none(), "it ends with the server");
    served.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_so_many_streams() {
    let site = Site::new();
    let served = site.serve(Script::new(), |options| options.limits.subscribers = Some(2)).await;
    let client = Client::of(&served, None);
    let session = client.session("echo").await;
    let path = format!("{session}/events");
    let (one, _two) = (client.events(&path, None).await, client.events("/v1/events", None).await);
    let refused = client.get(&path).await;
    assert!(refused.header("retry-after").is_none());
    refused.refused(429, "limited");
    drop(one);
    while served.app.limits().subscribers() == 2 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    client.events(&path, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_its_session() {
    let (_site, _served, client) = served(Script::new()).await;
    let session = client.session("echo").await;
    let mut events = client.events(&format!("{session}/events"), None).await;
    client.delete(&session).await.with(204);
    events.until("session.deleted").await;
    assert!(events.next().await.is_none());
    client.get(&format!("{session}/events")).await.refused(404, "not-found");
}
