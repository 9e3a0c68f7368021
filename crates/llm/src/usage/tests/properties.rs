//! Whatever is reported, no row is free without a word; what a provider reports in its own form is counted exactly.

use playhouse_protocol::usage::InnerUsage;
use proptest::prelude::*;
use serde_json::json;

use super::super::table::{Count, FIGURES, Figure, INPUT_DETAILS, OUTPUT_DETAILS, Place};
use super::super::*;
use super::{ALL, NONE, reported, told_apart};

fn figure_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!(0)),
        (0_u64..100_000).prop_map(|count| json!(count)),
        (0_u64..100_000).prop_map(|count| json!(f64::from(u32::try_from(count).unwrap()))),
        Just(json!(u64::MAX)),
        Just(json!(-1)),
        Just(json!("7")),
    ]
}

/// A figure of the table at its place, or one that it does not know.
fn drawn_figure() -> impl Strategy<Value = (String, Value)> {
    let unknown = Just("server_details/dream_tokens".to_owned());
    let known = (0..FIGURES.len(), 0_usize..4).prop_map(|(index, details)| {
        let figure = &FIGURES[index];
        match figure.place {
            Place::Top | Place::Anywhere => figure.name.to_owned(),
            Place::Input => format!("{}/{}", INPUT_DETAILS[details % INPUT_DETAILS.len()], figure.name),
            Place::Output => format!("{}/{}", OUTPUT_DETAILS[details % OUTPUT_DETAILS.len()], figure.name),
        }
    });
    (prop_oneof![9 => known, 1 => unknown], figure_value())
}

fn drawn_usage() -> impl Strategy<Value = Value> {
    prop::collection::vec(drawn_figure(), 0..8).prop_map(|figures| {
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

/// The largest count at the figures of this kind.
fn largest(usage: &Value, is_it: impl Fn(&Figure) -> bool) -> u64 {
    fn leaves<'a>(path: String, value: &'a Value, found: &mut Vec<(String, &'a Value)>) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                    leaves(path, value, found);
                }
            }
            _ => found.push((path, value)),
        }
    }
    let mut found = Vec::new();
    leaves(String::new(), usage, &mut found);
    let known =
        found.iter().filter(|(path, _)| FIGURES.iter().any(|figure| is_it(figure) && figure.is_at(path)));
    known.filter_map(|(_, value)| read::count(value)).max().unwrap_or(0)
}

proptest! {
    /// Whatever is reported, however often: what was counted once is in the row, or the row says that it is not sure.
    #[test]
    fn no_row_is_free_without_a_word(
        usages in prop::collection::vec(drawn_usage(), 1..4),
        convention in prop::sample::select(ALL.to_vec()),
    ) {
        let Some(usage) = reported(convention, &usages) else {
            // No figure of input or output at all: the caller estimates.
            let is_count = |figure: &Figure| !matches!(figure.counts, Count::Total | Count::Part | Count::InnerInput | Count::InnerHit | Count::InnerOutput);
            prop_assert!(usages.iter().all(|usage| largest(usage, is_count) == 0));
            return Ok(());
        };
        let is_input = |figure: &Figure| !matches!(
            figure.counts,
            Count::Completion | Count::Reasoning | Count::Total | Count::Part | Count::InnerInput | Count::InnerHit | Count::InnerOutput
        );
        let is_output = |figure: &Figure| matches!(figure.counts, Count::Completion | Count::Reasoning);
        if usage.quality == Quality::Reported {
            for drawn in &usages {
                let most = |is_it: &dyn Fn(&Figure) -> bool| largest(drawn, is_it);
                prop_assert!(usage.tokens.all_input() >= most(&is_input), "{usage:?}");
                prop_assert!(usage.tokens.output.saturating_add(usage.tokens.reasoning) >= most(&is_output), "{usage:?}");
                prop_assert!(unknown_figures(&usage).is_empty());
            }
        }
    }
}

/// What a call used, as the provider of the Anthropic dialect counts.
fn drawn_call() -> impl Strategy<Value = Tokens> {
    let count = || prop_oneof![Just(0), 0_u64..50_000];
    (count(), count(), count(), count(), 1_u64..5_000).prop_map(|(input, hits, short, long, output)| Tokens {
        input,
        cache_read: hits,
        cache_write_5m: short,
        cache_write_1h: long,
        output,
        ..NONE
    })
}

/// The figures of a call. `split`: whether it says for how long what was written is kept.
fn figures(tokens: Tokens, split: bool) -> Value {
    let mut usage = json!({
        "input_tokens": tokens.input,
        "cache_read_input_tokens": tokens.cache_read,
        "cache_creation_input_tokens": tokens.cache_writes(),
        "output_tokens": tokens.output,
    });
    if split {
        usage["cache_creation"] = json!({
            "ephemeral_5m_input_tokens": tokens.cache_write_5m,
            "ephemeral_1h_input_tokens": tokens.cache_write_1h,
        });
    }
    usage
}

proptest! {
    /// The first report of a stream splits what was written; the last one has all counts, or those of the output alone.
    #[test]
    fn a_stream_with_calls_inside_of_its_answer_is_counted_exactly(
        answers in prop::collection::vec(drawn_call(), 1..3),
        others in prop::collection::vec(drawn_call(), 0..3),
        lists in any::<bool>(),
        last in 0_usize..3,
    ) {
        let whole = answers.iter().fold(NONE, |sum, call| sum + *call);
        let call = |kind: &str, tokens: &Tokens| {
            let mut call = figures(*tokens, true);
            call["type"] = json!(kind);
            call
        };
        let lists = lists || !others.is_empty();
        let mut end = match last {
            0 => json!({"output_tokens": whole.output}),
            split => figures(whole, split == 2),
        };
        if lists {
            let calls = others.iter().map(|tokens| call("compaction", tokens));
            end["iterations"] = calls.chain(answers.iter().map(|tokens| call("message", tokens))).collect();
        }
        let begin = figures(Tokens { output: 1, ..whole }, true);
        let usage = told_apart(UsageConvention::Anthropic, &[begin, end]).unwrap();
        let (own, rest) = if lists { (answers[0], &answers[1..]) } else { (whole, &[][..]) };
        let expected = others.iter().chain(rest).map(|tokens| InnerUsage { tokens: *tokens, ..InnerUsage::default() });
        prop_assert_eq!(usage.quality, Quality::Reported);
        prop_assert_eq!(usage.tokens, own);
        prop_assert_eq!(usage.inner, expected.collect::<Vec<_>>());
    }
}
