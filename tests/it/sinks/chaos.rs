//! What each sink holds is the ledger, row for row, after a bad day: an engine that is killed again and again, and servers
//! that lose answers, take things twice and late, and refuse work.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use playhouse::protocol::LedgerRow;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{lines, rows, serve, settled, sink, stage};
use crate::metrics::prompt;
use crate::sink_server::{Dice, Kind, Mood, Server};

const LIVES: u64 = 8;

/// What a server took, each entry once: what it took more often came in the same form.
fn held(server: &Server) -> BTreeMap<String, Value> {
    server.with(|state| {
        assert_eq!(state.complaints, Vec::<String>::new(), "{:?}", server.kind);
        let faults = state.requests.iter().filter(|(_, mood)| *mood != Mood::Fair).count();
        assert!(faults > 3, "only {faults} faults of {:?}", server.kind);
        let taken = std::mem::take(&mut state.taken);
        assert!(taken.values().any(|copies| copies.len() > 1), "nothing came twice to {:?}", server.kind);
        taken
            .into_iter()
            .map(|(id, mut copies)| {
                assert!(copies.iter().all(|copy| *copy == copies[0]), "{id} came in two forms");
                (id, copies.swap_remove(0))
            })
            .collect()
    })
}

fn by_id(rows: &[LedgerRow]) -> Vec<&str> {
    rows.iter().map(|row| &*row.id.0).collect()
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn every_sink_holds_the_ledger_after_a_bad_day() {
    let [meter, polar, hook, turns] =
        [Kind::OpenMeter, Kind::Polar, Kind::Webhook, Kind::Report].map(|kind| Server::start(kind, 7));
    let servers = [("meter", &meter), ("polar", &polar), ("hook", &hook), ("turns", &turns)];
    let stage = stage();
    let folder = stage.root().join("usage");
    stage.configure(&format!(
        "[sinks.files]\nkind = \"file\"\nfolder = {folder:?}\nrotate_bytes = 20000\nlinger_ms = 1"
    ));
    for (name, server) in servers {
        server.with(|state| {
            (state.chance, state.largest) = (5, 5);
            // Whatever chance has in store.
            state.script = vec![Mood::AnswerLost, Mood::Later, Mood::Closed, Mood::Status(429)];
        });
        stage.configure(&sink(name, server, "timeout_ms = 200\nbatch_rows = 8"));
    }
    let mut dice = Dice::new(11);
    for _ in 0..LIVES {
        let serving = serve(&stage);
        for model in ["haiku", "opus", "haiku"] {
            prompt(&serving, &stage, model);
            std::thread::sleep(Duration::from_millis(dice.roll(60)));
        }
        std::thread::sleep(Duration::from_millis(dice.roll(400)));
        // Killed.
        drop(serving);
    }
    for (_, server) in servers {
        server.with(|state| (state.chance, state.script) = (2, Vec::new()));
    }
    let serving = serve(&stage);
    settled(&stage);
    let ledger = rows(&stage);
    serving.signal(Signal::TERM);
    serving.ended().is(0);
    // What servers take a moment later.
    std::thread::sleep(Duration::from_millis(100));

    assert!(
        ledger.len() >= 6 * usize::try_from(LIVES).unwrap(),
        "two for each of the turns: {}",
        ledger.len()
    );
    check(&folder, [&meter, &polar, &hook, &turns], &ledger);
}

/// Each sink holds these rows, which are in the order of their ids, after removing duplicates: the files in this folder, and
/// servers of each kind, in this order: OpenMeter, Polar, webhook, report.
pub(crate) fn check(folder: &Path, [meter, polar, hook, turns]: [&Server; 4], ledger: &[LedgerRow]) {
    let mut written = lines(folder);
    written.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(written, ledger, "files hold each row once");

    let events = held(meter);
    assert_eq!(events.keys().map(String::as_str).collect::<Vec<_>>(), by_id(ledger));
    for (row, event) in ledger.iter().zip(events.values()) {
        let data = &event["data"];
        assert_eq!(
            (event["subject"].as_str(), data["model"].as_str()),
            (Some(&*row.tenant), Some(&*row.model))
        );
        let tokens = json!(row.tokens);
        for (class, count) in tokens.as_object().unwrap() {
            assert_eq!(data[class], *count, "{class}");
        }
        assert_eq!(data.get("cost").cloned(), row.cost.map(|cost| json!(cost)));
        for (key, value) in
            [("costs", json!(row.costs)), ("attempt", json!(row.attempt)), ("tier", json!(row.tier))]
        {
            assert_eq!(data[key], value, "{key}");
        }
    }

    let events = held(polar);
    assert_eq!(events.keys().map(String::as_str).collect::<Vec<_>>(), by_id(ledger));
    for (row, event) in ledger.iter().zip(events.values()) {
        let told = &event["metadata"]["_llm"];
        assert_eq!(told["input_tokens"], row.tokens.all_input());
        assert_eq!(told["output_tokens"], row.tokens.output + row.tokens.reasoning);
        assert_eq!(event["metadata"].get("_cost").is_some(), row.cost.is_some());
    }

    let bodies = held(hook);
    let rows_held: Vec<LedgerRow> =
        bodies.into_values().map(|body| serde_json::from_value(body).unwrap()).collect();
    assert_eq!(rows_held, ledger);

    let mut used: BTreeMap<(String, String), u64> = BTreeMap::new();
    for row in ledger {
        let key = (format!("{}/{}", row.provider, row.model), row.tier.name().to_owned());
        *used.entry(key).or_default() += row.tokens.total();
    }
    let mut reported: BTreeMap<(String, String), u64> = BTreeMap::new();
    for report in held(turns).into_values() {
        let body = &report["body"];
        let text = |key: &str| body[key].as_str().unwrap().to_owned();
        let tier = if body["tier"] == "light" { "light" } else { "pro" };
        *reported.entry((text("modelId"), tier.to_owned())).or_default() +=
            body["rawTokens"].as_u64().unwrap();
    }
    assert_eq!(reported, used);
}
