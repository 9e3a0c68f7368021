//! Whatever providers report: no answer that says something is free without a word.

use std::collections::BTreeMap;

use mock_llm::{Model, Reports, Script, Step, Told, call, reasoning, text};
use playhouse_protocol::ledger::RowQuery;
use playhouse_protocol::usage::Tokens;
use playhouse_protocol::{Cost, Prompt};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

use crate::faults::DIALECTS;
use crate::support::Stage;

/// Usage objects that are drawn.
const DRAWN: usize = 60;

/// Names of figures, and places of them.
const FIGURES: [&str; 21] = [
    "input_tokens",
    "prompt_tokens",
    "promptTokenCount",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cachedContentTokenCount",
    "prompt_tokens_details/cached_tokens",
    "input_tokens_details/cache_write_tokens",
    "cache_creation/ephemeral_1h_input_tokens",
    "output_tokens",
    "completion_tokens",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "output_tokens_details/reasoning_tokens",
    "total_tokens",
    "totalTokenCount",
    "usage/input_tokens",
    "usage/output_tokens",
    "meta/billed_units/input_tokens",
    "dream_tokens",
    "cost",
];

fn figure_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => Just(Value::Null),
        4 => Just(json!(0)),
        4 => (1_u64..100_000).prop_map(|count| json!(count)),
        1 => Just(json!(12.0)),
        1 => Just(json!(u64::MAX)),
        1 => Just(json!(-1)),
        1 => Just(json!("7")),
    ]
}

fn figures() -> impl Strategy<Value = Value> {
    let figure = (prop::sample::select(FIGURES.to_vec()), figure_value());
    prop::collection::vec(figure, 0..7).prop_map(|figures| {
        let mut usage = json!({});
        for (path, value) in figures {
            let mut place = &mut usage;
            for name in path.split('/') {
                if !place.is_object() {
                    *place = json!({});
                }
                place = &mut place[name];
            }
            *place = value;
        }
        usage
    })
}

/// A usage object, most often without calls inside of the answer, and how often it is reported.
fn drawn() -> impl Strategy<Value = Reports> {
    let kinds = vec!["message", "compaction", "advisor_message", "fallback_message"];
    let model = prop::option::of(prop::sample::select(vec!["other", "another"]));
    let inner = (prop::sample::select(kinds), model, figures()).prop_map(|(kind, model, mut call)| {
        call["type"] = json!(kind);
        if let Some(model) = model {
            call["model"] = json!(model);
        }
        call
    });
    let inner = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(inner, 1..4)];
    let told = prop::sample::select(vec![
        vec![],
        vec![Told::Counts, Told::Counts],
        vec![Told::Counts, Told::Zeros],
        vec![Told::Zeros, Told::Counts],
        vec![Told::Half, Told::Counts],
        vec![Told::Counts, Told::Nulls],
    ]);
    (figures(), inner, told).prop_map(|(usage, inner, told)| {
        let mut object: Map<String, Value> = usage.as_object().cloned().unwrap();
        if !inner.is_empty() {
            object.insert("iterations".to_owned(), inner.into());
        }
        Reports { told, object: Some(object), ..Reports::default() }
    })
}

/// An answer that says something.
fn answer(number: usize) -> Step {
    let probe = || json!({"mode": "quick"});
    match number % 4 {
        0 => text("It is so."),
        1 => text("Let me look.").call("probe", probe()),
        2 => reasoning("Hm.").text("Well."),
        _ => call("probe", probe()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_is_free_without_a_word() {
    let mut runner = TestRunner::deterministic();
    let all: Vec<Reports> = (0..DRAWN).map(|_| drawn().new_tree(&mut runner).unwrap().current()).collect();
    let script = all.iter().enumerate().fold(Script::new(), |script, (number, reports)| {
        let model = Model::new().step(answer(number).reports(reports.clone())).closing("Done.");
        script.model(format!("m{number}"), model)
    });
    let stage = Stage::new(script).await;
    for dialect in DIALECTS {
        for number in 0..DRAWN {
            let session = stage.session_with(dialect, &format!("m{number}")).await;
            session.run(Prompt::text("go")).await.unwrap();
        }
    }
    let rows = stage.engine.rows(RowQuery { limit: 100_000, ..RowQuery::default() }).await.unwrap().rows;
    let mut used: BTreeMap<String, (Tokens, Cost)> = BTreeMap::new();
    for row in &rows {
        let sum = used.entry(row.attempt.to_string()).or_default();
        sum.0 += row.tokens;
        sum.1 += row.cost.expect("each model has prices of input and output");
    }
    let asked = stage.directory.mock.journal().entries();
    assert_eq!(used.len(), asked.len(), "each request has a row");
    for entry in asked {
        let (tokens, cost) = used[&entry.attempt.clone().unwrap()];
        let is_counted = tokens.all_input() > 0 && tokens.all_output() > 0;
        let told: Vec<_> = rows.iter().filter(|row| Some(row.attempt.to_string()) == entry.attempt).collect();
        assert!(is_counted && cost > Cost::ZERO, "{tokens:?} {cost}: {told:#?} {:?}", entry.reports);
    }
}
