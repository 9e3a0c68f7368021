//! What a server holds is the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use playhouse_billing::export::time::rfc3339;
use playhouse_billing::export::{Entry, FeedItem};
use playhouse_exporters::{Feed as _, exported_up_to, letters};
use playhouse_protocol::LedgerRow;
use playhouse_store::{Shelf, Store};
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::ledger::{TestFeed, ledger, rows};
use crate::lives::{Engine, config};
use crate::server::{Dice, Kind, Server};

const ROWS: u64 = 240;

/// Drives a sink through a bad day with kills, and gives what the server holds and the ids of dead letters.
fn bad_day(
    kind: Kind,
    seed: u64,
    items: Vec<FeedItem>,
    bad: impl IntoIterator<Item = String>,
) -> (BTreeMap<String, Vec<Value>>, Vec<Entry>) {
    let server = Server::start(kind, seed);
    let bad: BTreeSet<String> = bad.into_iter().collect();
    server.with(|state| {
        state.bad = bad.clone();
        state.chance = 5;
        state.largest = 6;
    });
    let shelf: Arc<dyn Shelf> = Store::memory().unwrap().shelf;
    let config = config(&server);
    let mut dice = Dice::new(seed + 1_000);
    // The feed grows while it is read.
    let (begin, rest) = items.split_at(items.len() / 3);
    let feed = TestFeed::new(begin.to_vec());
    let mut portions = rest.chunks(rest.len().div_ceil(12).max(1));
    for _ in 0..12 {
        let engine = Engine::start(&config, &feed, &shelf);
        std::thread::sleep(Duration::from_millis(5 + dice.roll(60)));
        feed.grow(portions.next().unwrap_or_default().to_vec());
        std::thread::sleep(Duration::from_millis(dice.roll(20)));
        drop(engine);
    }
    server.with(|state| state.chance = 2);
    let status = Engine::start(&config, &feed, &shelf).finish(&feed);
    assert_eq!(feed.end(), items.len() as u64);
    let dead = letters(&shelf, "money").unwrap();
    assert_eq!(status.dead_letters, dead.len() as u64);
    assert_eq!(exported_up_to(&shelf, "money").unwrap(), feed.end());
    for letter in &dead {
        assert_eq!((letter.status, &*letter.id), (422, letter.entry.id()));
        assert!(
            letter.reason.contains("status 422") && letter.reason.contains("no such meter"),
            "{}",
            letter.reason
        );
        assert!(!letter.reason.contains(kind.key()), "a key is shown: {}", letter.reason);
        assert!(bad.contains(&letter.id), "it was not refused");
    }
    // What the server takes a moment later.
    std::thread::sleep(Duration::from_millis(50));
    server.with(|state| {
        assert_eq!(state.complaints, Vec::<String>::new());
        let faults = state.requests.iter().filter(|(_, mood)| *mood != crate::server::Mood::Fair).count();
        assert!(faults > 10, "only {faults} faults");
        (std::mem::take(&mut state.taken), dead.into_iter().map(|letter| letter.entry).collect())
    })
}

/// Each copy of an entry that a server got is the same, and is what the row makes of it.
fn check_rows(kind: Kind, seed: u64, check: impl Fn(&LedgerRow, &Value)) {
    let items = ledger(seed, ROWS);
    let rows = rows(&items);
    let bad: Vec<String> = rows.iter().skip(7).step_by(41).map(|row| row.id.0.clone()).collect();
    let (taken, dead) = bad_day(kind, seed, items, bad.clone());
    let dead_rows: Vec<Entry> = rows
        .iter()
        .filter(|row| bad.contains(&row.id.0))
        .map(|row| Entry::Row(Box::new(row.clone())))
        .collect();
    assert_eq!(dead, dead_rows, "the letters are the rows that were refused, in order");
    let good: BTreeMap<&str, &LedgerRow> =
        rows.iter().filter(|row| !bad.contains(&row.id.0)).map(|row| (&*row.id.0, row)).collect();
    assert_eq!(taken.keys().map(|id| &**id).collect::<Vec<_>>(), good.keys().copied().collect::<Vec<_>>());
    assert!(taken.values().any(|copies| copies.len() > 1), "nothing came twice, so nothing was tried");
    for (id, copies) in &taken {
        for copy in copies {
            assert_eq!(copy, &copies[0], "{id} came in two forms");
        }
        check(good[&**id], &copies[0]);
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn openmeter_holds_the_ledger() {
    for seed in [1, 2] {
        check_rows(Kind::OpenMeter, seed, |row, event| {
            assert_eq!(event["time"], rfc3339(row.ended));
            assert_eq!(event["subject"], *row.tenant);
            let data = &event["data"];
            let counts = ["input", "cache_read", "cache_write_5m", "cache_write_1h", "output", "reasoning"];
            let tokens: serde_json::Map<String, Value> =
                counts.iter().map(|name| ((*name).to_owned(), data[name].clone())).collect();
            assert_eq!(Value::Object(tokens), json!(row.tokens));
            assert_eq!(data.get("cost").cloned(), row.cost.map(|cost| json!(cost)));
            assert_eq!(data["costs"], json!(row.costs));
            for (name, value) in [
                ("session", json!(row.session)),
                ("turn", json!(row.turn)),
                ("step", json!(row.step)),
                ("attempt", json!(row.attempt)),
                ("model", json!(row.model)),
                ("purpose", json!(row.purpose)),
                ("tier", json!(row.tier)),
                ("quality", json!(row.quality)),
            ] {
                assert_eq!(data[name], value, "{name}");
            }
        });
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn polar_holds_the_ledger() {
    for seed in [3, 4] {
        check_rows(Kind::Polar, seed, |row, event| {
            assert_eq!(event["timestamp"], rfc3339(row.ended));
            assert_eq!(event["external_customer_id"], *row.tenant);
            assert!(event["parent_id"].as_str().unwrap().ends_with(row.turn.as_str()));
            let metadata = &event["metadata"];
            let llm = &metadata["_llm"];
            assert_eq!(llm["input_tokens"], row.tokens.all_input());
            assert_eq!(llm["output_tokens"], row.tokens.output + row.tokens.reasoning);
            assert_eq!(llm["total_tokens"], row.tokens.total());
            assert_eq!(llm.get("cached_input_tokens").is_some(), row.tokens.cache_read > 0);
            let cents = metadata.get("_cost").map(|cost| cost["amount"].as_str().unwrap().parse().unwrap());
            let expected = row.cost.map(|cost| cost.0 * Decimal::ONE_HUNDRED);
            assert_eq!(cents, expected, "to the last digit");
        });
    }
}

#[test]
fn a_webhook_holds_the_ledger() {
    for seed in [5, 6] {
        check_rows(Kind::Webhook, seed, |row, body| {
            assert_eq!(&serde_json::from_value::<LedgerRow>(body.clone()).unwrap(), row);
        });
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn every_turn_is_reported_once_for_each_model() {
    for seed in [7, 8] {
        let items = ledger(seed, ROWS);
        let mut expected: BTreeMap<(String, String, &str), u64> = BTreeMap::new();
        for row in rows(&items) {
            let model = format!("{}/{}", row.provider, row.model);
            *expected.entry((row.turn.to_string(), model, row.tier.name())).or_default() +=
                row.tokens.total();
        }
        let mut sums: Vec<(String, &str, u64)> =
            expected.iter().map(|((_, model, tier), sum)| (model.clone(), *tier, *sum)).collect();
        let (taken, dead) = bad_day(Kind::Report, seed, items, []);
        assert!(dead.is_empty());
        let mut held = Vec::new();
        for copies in taken.values() {
            assert!(copies.iter().all(|copy| copy == &copies[0]), "a report came in two forms");
            let body = &copies[0]["body"];
            assert_eq!(body.as_object().unwrap().len(), 3);
            let tier = if body["tier"] == "light" { "light" } else { "pro" };
            held.push((
                body["modelId"].as_str().unwrap().to_owned(),
                tier,
                body["rawTokens"].as_u64().unwrap(),
            ));
        }
        sums.sort();
        held.sort();
        assert_eq!(held, sums);
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn reports_that_are_refused_are_among_the_letters() {
    let items = ledger(9, ROWS);
    let (all, _) = bad_day(Kind::Report, 9, items.clone(), []);
    let bad: BTreeSet<String> = all.keys().skip(3).step_by(17).cloned().collect();
    let (taken, dead) = bad_day(Kind::Report, 10, items, bad.clone());
    assert_eq!(dead.iter().map(|entry| entry.id().to_owned()).collect::<BTreeSet<_>>(), bad);
    let held: BTreeSet<&String> = taken.keys().collect();
    assert_eq!(
        held,
        all.keys().filter(|id| !bad.contains(*id)).collect(),
        "with the same ids on another day"
    );
}
