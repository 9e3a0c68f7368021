//! How sinks treat servers, and what they tell about themselves.

use std::sync::Arc;
use std::time::Duration;

use playhouse_billing::export::FeedItem;
use playhouse_exporters::{
    Exporters, Feed as _, SinkConfig, SinkKind, Start, Wanted, exported_up_to, letters,
};
use playhouse_store::{Shelf, Store};

use crate::ledger::{TestFeed, ledger, rows};
use crate::lives::{Engine, GRACE, config, sink, surroundings};
use crate::server::{Kind, Mood, Server, TOKEN};

fn shelf() -> Arc<dyn Shelf> {
    Store::memory().unwrap().shelf
}

#[test]
fn a_wrong_key_is_told_and_nothing_is_given_up() {
    let server = Server::start(Kind::OpenMeter, 1);
    let (feed, shelf) = (TestFeed::new(ledger(51, 20)), shelf());
    let mut wrong = config(&server);
    wrong.key_env = None;
    let engine = Engine::start(&wrong, &feed, &shelf);
    let status = engine
        .wait("the second try", |status| status.trouble.as_ref().is_some_and(|trouble| trouble.tries > 1));
    let trouble = status.trouble.unwrap();
    assert!(trouble.misconfigured && trouble.reason.contains("status 401"), "{trouble:?}");
    assert!(status.oldest.is_some() && status.rows_behind == feed.end());
    drop(engine);
    Engine::start(&config(&server), &feed, &shelf).finish(&feed);
    assert!(letters(&shelf, "money").unwrap().is_empty());
    server.with(|state| assert_eq!(state.taken.len(), 20));
}

#[test]
fn what_a_server_says_is_shown_without_the_key() {
    let server = Server::start(Kind::OpenMeter, 1);
    server.with(|state| state.script = vec![Mood::Status(403); 3]);
    let (feed, shelf) = (TestFeed::new(ledger(52, 5)), shelf());
    let engine = Engine::start(&config(&server), &feed, &shelf);
    let status = engine.wait("the trouble", |status| status.trouble.is_some());
    let reason = status.trouble.unwrap().reason;
    assert!(reason.contains("not now, [hidden]") && !reason.contains(TOKEN), "{reason}");
    assert_eq!(engine.finish(&feed).trouble, None);
}

#[test]
fn the_wait_that_a_server_asks_for_is_kept() {
    let server = Server::start(Kind::Webhook, 1);
    let (feed, shelf) = (TestFeed::new(ledger(53, 5)), shelf());
    server.with(|state| state.script = vec![Mood::Later]);
    // The sink's own waits are much shorter.
    Engine::start(&config(&server), &feed, &shelf).finish(&feed);
    server.with(|state| {
        let waited = state.requests[1].0.duration_since(state.requests[0].0);
        assert!(waited >= Duration::from_secs(1), "{waited:?}");
    });
}

#[test]
fn a_wait_is_told_and_people_can_end_it() {
    let server = Server::start(Kind::OpenMeter, 1);
    server.with(|state| state.script = vec![Mood::MuchLater]);
    let (feed, shelf) = (TestFeed::new(ledger(61, 5)), shelf());
    let engine = Engine::start(&config(&server), &feed, &shelf);
    let status = engine.wait("the wait", |status| status.waits_until.is_some());
    let trouble = status.trouble.unwrap();
    assert!(trouble.asked && trouble.reason.contains("status 429"), "{trouble:?}");
    let wait = status.waits_until.unwrap().millis_since(trouble.since);
    assert!((3_500_000..=3_700_000).contains(&wait), "a day is an hour at most: {wait}");
    let exporters = engine.exporters.as_ref().unwrap();
    let retry = |wanted: &Wanted| engine.runtime.block_on(exporters.retry("money", wanted)).unwrap().unwrap();
    assert!(!retry(&Wanted { id: Some("row_x".to_owned()), ..Wanted::ALL }).hurried, "only one is wanted");
    assert!(engine.status().waits_until.is_some());
    assert!(retry(&Wanted::ALL).hurried);
    let status = engine.wait("the end", |status| status.rows_behind == 0);
    assert_eq!((status.trouble, status.waits_until), (None, None));
    assert!(!retry(&Wanted::ALL).hurried, "nothing waits");
    // The same for a life that cannot begin.
    let folder = tempfile::tempdir().unwrap();
    let file = SinkConfig {
        folder: Some(folder.path().join("usage")),
        retry_longest_ms: Some(3_600_000),
        ..SinkConfig::new(SinkKind::File)
    };
    fs_err::write(folder.path().join("usage"), "no folder").unwrap();
    let engine = Engine::start(&file, &feed, &self::shelf());
    let status = engine.wait("the wait", |status| status.waits_until.is_some());
    assert!(!status.trouble.unwrap().asked);
    fs_err::remove_file(folder.path().join("usage")).unwrap();
    let exporters = engine.exporters.as_ref().unwrap();
    assert!(engine.runtime.block_on(exporters.retry("money", &Wanted::ALL)).unwrap().unwrap().hurried);
    engine.finish(&feed);
}

#[test]
fn a_new_sink_can_begin_now() {
    let server = Server::start(Kind::OpenMeter, 1);
    let items = ledger(54, 30);
    let (old, new) = items.split_at(12);
    let (feed, shelf) = (TestFeed::new(old.to_vec()), shelf());
    let config = SinkConfig { start: Start::Now, ..config(&server) };
    Engine::start(&config, &feed, &shelf).finish(&feed);
    feed.grow(new.to_vec());
    Engine::start(&config, &feed, &shelf).finish(&feed);
    server.with(|state| {
        let expected: Vec<String> = rows(new).into_iter().map(|row| row.id.0).collect();
        assert_eq!(state.taken.len(), expected.len());
        assert!(expected.iter().all(|id| state.taken.contains_key(id)));
    });
}

#[test]
fn stopping_saves_what_is_delivered() {
    let server = Server::start(Kind::OpenMeter, 1);
    let items = ledger(55, 400);
    let (feed, shelf) = (TestFeed::new(items), shelf());
    let mut engine = Engine::start(&SinkConfig { batch_rows: Some(1), ..config(&server) }, &feed, &shelf);
    engine.wait("the first rows", |status| status.settled > 3);
    let exporters = engine.exporters.take().unwrap();
    engine.runtime.block_on(exporters.stop(Duration::ZERO));
    let taken = server.with(|state| state.taken.len());
    assert!(taken < 400, "it was not stopped in the middle");
    Engine::start(&config(&server), &feed, &shelf).finish(&feed);
    server.with(|state| {
        assert_eq!(state.taken.len(), 400);
        // The request that was under way may have arrived, and its answer not.
        let again: Vec<usize> = state.taken.values().map(Vec::len).filter(|copies| *copies != 1).collect();
        assert!(again.is_empty() || again == [2], "what was settled does not come twice: {again:?}");
    });
}

#[test]
fn a_sink_that_is_stuck_holds_up_no_other() {
    let (good, stuck) = (Server::start(Kind::OpenMeter, 1), Server::start(Kind::OpenMeter, 2));
    stuck.with(|state| state.script = vec![Mood::Closed; 10_000]);
    let shelf = shelf();
    let feed = TestFeed::new(ledger(56, 50));
    let folder = tempfile::tempdir().unwrap();
    let file = SinkConfig { folder: Some(folder.path().to_owned()), ..SinkConfig::new(SinkKind::File) };
    let vault = |_: &str| Some(TOKEN.to_owned().into());
    let sinks = [("stuck", &config(&stuck)), ("good", &config(&good)), ("file", &file)];
    let sinks =
        sinks.map(|(name, config)| playhouse_exporters::Sink::new(name, config, &vault).unwrap()).to_vec();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guard = runtime.enter();
    let exporters = Exporters::start(sinks, Arc::new(feed.clone()), Arc::clone(&shelf), surroundings());
    drop(guard);
    let end = feed.end();
    while exporters.statuses().iter().filter(|status| status.settled == end).count() < 2
        || exporters.statuses()[0].trouble.is_none()
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    let statuses = exporters.statuses();
    assert_eq!(
        (&*statuses[0].name, statuses[0].kind, statuses[0].rows_behind),
        ("stuck", "cloudevents", end)
    );
    assert!(!statuses[0].trouble.as_ref().unwrap().misconfigured);
    assert_eq!(statuses[1].rows_behind, 0);
    runtime.block_on(exporters.stop(Duration::ZERO));
    let exported = ["good", "file", "stuck", "never"].map(|name| exported_up_to(&shelf, name).unwrap());
    assert_eq!(exported, [end, end, 0, 0]);
}

#[test]
fn rows_of_open_turns_are_kept_for_reports() {
    let server = Server::start(Kind::Report, 1);
    let mut items = ledger(57, 3);
    items.retain(|item| matches!(item, FeedItem::Row(_)));
    let (feed, shelf) = (TestFeed::new(items), shelf());
    let engine = Engine::start(&config(&server), &feed, &shelf);
    engine.wait("the end", |status| status.settled == 3);
    drop(engine);
    assert_eq!(exported_up_to(&shelf, "money").unwrap(), 0);
    server.with(|state| assert!(state.requests.is_empty()));
}

#[test]
fn at_the_end_what_there_is_is_delivered_without_waiting_for_more() {
    let server = Server::start(Kind::Webhook, 1);
    let patient = SinkConfig { linger_ms: Some(3_600_000), batch_rows: None, ..config(&server) };
    let (feed, shelf) = (TestFeed::new(ledger(58, 5)), shelf());
    let engine = Engine::start(&patient, &feed, &shelf);
    engine.wait("what it waits with", |status| status.oldest.is_some());
    server.with(|state| assert!(state.requests.is_empty()));
    feed.grow(ledger(59, 5));
    let exporters = engine.exporters.as_ref().unwrap();
    engine.runtime.block_on(exporters.stop(GRACE));
    assert_eq!(engine.status().rows_behind, 0);
    server.with(|state| assert_eq!(state.taken.len(), 10));
    // Once more is no harm.
    engine.runtime.block_on(exporters.stop(GRACE));
}

#[test]
fn at_the_end_a_server_that_fails_or_is_silent_holds_nobody_up() {
    let long = |server: &Server| SinkConfig {
        retry_first_ms: Some(3_600_000),
        retry_longest_ms: Some(3_600_000),
        timeout_ms: Some(3_600_000),
        ..config(server)
    };
    let server = Server::start(Kind::OpenMeter, 1);
    server.with(|state| state.script = vec![Mood::Status(503)]);
    let (feed, shelf) = (TestFeed::new(ledger(60, 5)), shelf());
    let engine = Engine::start(&long(&server), &feed, &shelf);
    engine.wait("the failure", |status| status.trouble.is_some());
    engine.runtime.block_on(engine.exporters.as_ref().unwrap().stop(GRACE));
    assert_eq!(exported_up_to(&shelf, "money").unwrap(), 0);
    drop(engine);
    server.with(|state| state.script = vec![Mood::Silent]);
    let engine = Engine::start(&long(&server), &feed, &shelf);
    engine.wait("what it sends", |_| server.with(|state| state.requests.len() == 2));
    engine.runtime.block_on(engine.exporters.as_ref().unwrap().stop(Duration::from_millis(10)));
    assert_eq!(exported_up_to(&shelf, "money").unwrap(), 0, "nothing is taken for delivered");
}

#[test]
fn a_debug_print_holds_no_secret() {
    let server = Server::start(Kind::OpenMeter, 1);
    let shown = format!("{:?} {:?}", sink(&config(&server)), surroundings());
    assert!(!shown.contains(TOKEN), "{shown}");
}
