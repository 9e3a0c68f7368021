//! Dead letters, once more.

use std::sync::Arc;

use playhouse_exporters::{Leftover, Retried, Wanted, exported_up_to, forget, leftovers, letters};
use playhouse_store::{Shelf, Store};

use crate::ledger::{TestFeed, ledger, rows};
use crate::lives::{Engine, config};
use crate::server::{Kind, Mood, Server};

/// A server that refused three of the rows; it is `kind`'s turn.
fn with_letters(kind: Kind) -> (Server, Arc<dyn Shelf>, TestFeed, Vec<String>) {
    let server = Server::start(kind, 1);
    let items = ledger(41, 30);
    let bad: Vec<String> = rows(&items).iter().step_by(10).map(|row| row.id.0.clone()).collect();
    server.with(|state| state.bad = bad.iter().cloned().collect());
    let shelf: Arc<dyn Shelf> = Store::memory().unwrap().shelf;
    let feed = TestFeed::new(items);
    Engine::start(&config(&server), &feed, &shelf).finish(&feed);
    (server, shelf, feed, bad)
}

#[test]
fn letters_are_sent_once_more_and_go_when_they_are_taken() {
    for kind in [Kind::OpenMeter, Kind::Polar, Kind::Webhook] {
        let (server, shelf, feed, bad) = with_letters(kind);
        assert_eq!(letters(&shelf, "money").unwrap().len(), 3);
        // People made two of them right.
        server.with(|state| state.bad.retain(|id| *id == bad[1]));
        let engine = Engine::start(&config(&server), &feed, &shelf);
        engine.wait("the letters", |status| status.dead_letters == 3);
        let exporters = engine.exporters.as_ref().unwrap();
        let retried = engine.runtime.block_on(exporters.retry("money", &Wanted::ALL)).unwrap();
        assert_eq!(retried, Some(Retried { delivered: 2, refused: 1, ..Retried::default() }));
        assert_eq!(engine.status().dead_letters, 1);
        assert_eq!(engine.runtime.block_on(exporters.retry("other", &Wanted::ALL)).unwrap(), None);
        let left = letters(&shelf, "money").unwrap();
        assert_eq!(left.iter().map(|letter| &letter.id).collect::<Vec<_>>(), [&bad[1]]);
        server.with(|state| assert_eq!(state.taken.len(), 29, "{kind:?}"));
    }
}

#[test]
fn only_those_that_were_named_are_sent() {
    let (server, shelf, feed, bad) = with_letters(Kind::OpenMeter);
    server.with(|state| state.bad.clear());
    let engine = Engine::start(&config(&server), &feed, &shelf);
    let exporters = engine.exporters.as_ref().unwrap();
    let retry = |wanted: &Wanted| engine.runtime.block_on(exporters.retry("money", wanted)).unwrap().unwrap();
    let retried = retry(&Wanted { id: Some(bad[2].clone()), ..Wanted::ALL });
    assert_eq!((retried.delivered, retried.next), (1, None));
    // The rest in two goes.
    let first = retry(&Wanted { limit: 1, ..Wanted::ALL });
    assert_eq!((first.delivered, first.next.is_some()), (1, true));
    assert_eq!(letters(&shelf, "money").unwrap().len(), 1);
    let last = retry(&Wanted { limit: 1, after: first.next, ..Wanted::ALL });
    assert_eq!((last.delivered, last.next), (1, None));
    assert!(letters(&shelf, "money").unwrap().is_empty());
}

#[test]
fn a_server_that_is_gone_leaves_the_letters_where_they_are() {
    let (server, shelf, feed, _) = with_letters(Kind::OpenMeter);
    server.with(|state| {
        state.bad.clear();
        state.script = vec![Mood::Fair, Mood::Status(503)];
    });
    let engine = Engine::start(&config(&server), &feed, &shelf);
    let exporters = engine.exporters.as_ref().unwrap();
    let retried = engine.runtime.block_on(exporters.retry("money", &Wanted::ALL)).unwrap().unwrap();
    assert_eq!((retried.delivered, retried.refused, retried.left), (1, 0, 2));
    assert!(retried.reason.unwrap().contains("status 503"));
    assert_eq!(letters(&shelf, "money").unwrap().len(), 2);
}

#[test]
fn what_is_kept_of_a_sink_that_is_not_configured_is_found_and_removed() {
    let (_server, shelf, feed, _) = with_letters(Kind::Webhook);
    shelf.compare_and_set("sinks/money-2/cursor", None, Some(b"{")).unwrap();
    let end = playhouse_exporters::Feed::end(&feed);
    let kept = |name: &str, kind: Option<&str>, settled, dead_letters| Leftover {
        name: name.to_owned(),
        kind: kind.map(str::to_owned),
        settled,
        dead_letters,
    };
    let damaged = kept("money-2", None, 0, 0);
    let all = leftovers(&shelf, &|_| false).unwrap();
    assert_eq!(all, [damaged.clone(), kept("money", Some("webhook"), end, 3)]);
    assert_eq!(leftovers(&shelf, &|name| name == "money").unwrap(), [damaged]);
    assert_eq!(forget(&shelf, "money").unwrap(), 3);
    assert_eq!(forget(&shelf, "money-2").unwrap(), 0);
    assert!(
        leftovers(&shelf, &|_| false).unwrap().is_empty() && letters(&shelf, "money").unwrap().is_empty()
    );
    assert_eq!(exported_up_to(&shelf, "money").unwrap(), 0);
}
