mod properties;

use std::fmt::Write as _;

use playhouse_protocol::usage::InnerUsage;
use serde_json::json;

use super::table::{Count, FIGURES, Place, Relation};
use super::*;

const NONE: Tokens = Tokens {
    input: 0,
    cache_read: 0,
    cache_write_5m: 0,
    cache_write_30m: 0,
    cache_write_1h: 0,
    cache_write_12h: 0,
    output: 0,
    reasoning: 0,
};

const ALL: [UsageConvention; 8] = [
    UsageConvention::Anthropic,
    UsageConvention::OpenaiChat,
    UsageConvention::OpenaiResponses,
    UsageConvention::Gemini,
    UsageConvention::DeepseekChat,
    UsageConvention::XaiChat,
    UsageConvention::OpenrouterChat,
    UsageConvention::AlibabaChat,
];

/// What is reported, with each call of the model that was asked by itself.
fn told_apart(convention: UsageConvention, reports: &[Value]) -> Option<Usage> {
    let mut reported = Reported::new(convention);
    for report in reports {
        reported.add(report.as_object().unwrap());
    }
    reported.usage(Some("m"))
}

/// The same as in its row.
fn reported(convention: UsageConvention, reports: &[Value]) -> Option<Usage> {
    let mut usage = told_apart(convention, reports)?;
    let (own, inner) = usage.inner.into_iter().partition(|call: &InnerUsage| call.model.is_empty());
    usage.inner = inner;
    usage.tokens = Vec::into_iter(own).fold(usage.tokens, |sum, call| sum + call.tokens);
    Some(usage)
}

fn read(convention: UsageConvention, reports: &[Value]) -> (Tokens, Quality) {
    let usage = reported(convention, reports).unwrap();
    (usage.tokens, usage.quality)
}

/// `object` with the members of `more`.
fn with(mut object: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        object[name] = value.clone();
    }
    object
}

#[test]
fn a_provider_counts_as_its_dialect_does_if_it_is_no_exception() {
    for (provider, dialect, expected) in [
        ("openai", DialectKind::OpenaiChat, UsageConvention::OpenaiChat),
        ("openai", DialectKind::OpenaiResponses, UsageConvention::OpenaiResponses),
        ("local", DialectKind::OpenaiChat, UsageConvention::OpenaiChat),
        ("google", DialectKind::Gemini, UsageConvention::Gemini),
        ("deepseek", DialectKind::OpenaiChat, UsageConvention::DeepseekChat),
        ("deepseek", DialectKind::Anthropic, UsageConvention::Anthropic),
        ("xai", DialectKind::OpenaiChat, UsageConvention::XaiChat),
    ] {
        assert_eq!(UsageConvention::of(provider, dialect), expected, "{provider}");
    }
}

#[test]
fn nothing_reported_is_not_zero() {
    for convention in ALL {
        assert_eq!(reported(convention, &[]), None);
        assert_eq!(reported(convention, &[json!({"seconds": 3, "prompt_tokens": null})]), None);
    }
}

#[test]
fn figures_that_nobody_reads_are_kept_for_an_estimate() {
    let usage = reported(UsageConvention::OpenaiChat, &[json!({"inputTokens": 1_000})]).unwrap();
    assert_eq!((usage.tokens, usage.quality), (NONE, Quality::Estimated));
    assert_eq!(unknown_figures(&usage), ["inputTokens"]);
}

#[test]
fn classes_become_exclusive() {
    use UsageConvention::{
        AlibabaChat, Anthropic, DeepseekChat, Gemini, OpenaiChat, OpenaiResponses, OpenrouterChat, XaiChat,
    };
    let expected = Tokens { input: 20, cache_read: 80, output: 20, reasoning: 30, ..NONE };
    let written = Tokens { input: 13, cache_write_5m: 7, ..expected };
    let written_30m = Tokens { input: 13, cache_write_30m: 7, ..expected };
    let chat = |more: Value| {
        let usage = json!({
            "prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 80}, "completion_tokens_details": {"reasoning_tokens": 30},
        });
        with(usage, &more)
    };
    let responses = |details: Value| {
        json!({"input_tokens": 100, "input_tokens_details": details, "output_tokens": 50,
            "output_tokens_details": {"reasoning_tokens": 30}, "total_tokens": 150})
    };
    let messages = json!({"input_tokens": 13, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 7,
        "output_tokens": 50, "output_tokens_details": {"thinking_tokens": 30}});
    let lifetimes = |known: Value| json!({"cached_tokens": 80, "cache_write_tokens": 7, "cache_write_tokens_details": known});
    for (convention, usage, expected) in [
        (OpenaiChat, chat(json!({})), expected),
        (OpenaiResponses, responses(json!({"cached_tokens": 80})), expected),
        (
            OpenaiChat,
            chat(json!({"prompt_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 7}})),
            written_30m,
        ),
        (OpenaiResponses, responses(json!({"cached_tokens": 80, "cache_write_tokens": 7})), written_30m),
        (OpenaiResponses, responses(lifetimes(json!({"ttl_30m_tokens": 7}))), written_30m),
        (
            OpenaiResponses,
            responses(lifetimes(json!({"ttl_30m_tokens": 2, "ttl_12h_tokens": 5}))),
            Tokens { cache_write_30m: 2, cache_write_12h: 5, ..written_30m },
        ),
        (
            DeepseekChat,
            chat(json!({"prompt_cache_hit_tokens": 80, "prompt_cache_miss_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 0}})),
            expected,
        ),
        (XaiChat, chat(json!({"completion_tokens": 20})), expected),
        // The total says which reading is right, whatever the convention is.
        (XaiChat, chat(json!({})), expected),
        (OpenaiChat, chat(json!({"completion_tokens": 20})), expected),
        (
            OpenrouterChat,
            chat(json!({"prompt_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 7}})),
            written,
        ),
        (
            AlibabaChat,
            chat(json!({"prompt_tokens_details": {"cached_tokens": 80, "cache_creation_input_tokens": 7}})),
            written,
        ),
        (
            Gemini,
            json!({"promptTokenCount": 95, "toolUsePromptTokenCount": 5, "cachedContentTokenCount": 80,
                "candidatesTokenCount": 20, "thoughtsTokenCount": 30, "totalTokenCount": 150}),
            expected,
        ),
        (Anthropic, messages.clone(), written),
        // A gateway that translates: names of one dialect in another, with and without a total.
        (
            OpenaiChat,
            with(messages.clone(), &json!({"total_tokens": 150})),
            Tokens { cache_write_30m: 7, cache_write_5m: 0, ..written },
        ),
        (Anthropic, with(messages, &json!({"input_tokens": 100, "total_tokens": 150})), written),
        (OpenaiChat, chat(json!({"cache_read_input_tokens": 80, "total_tokens": null})), expected),
        (OpenaiChat, chat(json!({"prompt_tokens_details": null, "cached_tokens": 80})), expected),
        // Calls that the provider makes on its own stand beside what was asked.
        (
            OpenaiResponses,
            json!({"input_tokens": 20, "output_tokens": 7, "total_tokens": 66,
                "input_tokens_details": {"cached_tokens": 2, "orchestration_input_tokens": 30,
                    "orchestration_input_cached_tokens": 3},
                "output_tokens_details": {"orchestration_output_tokens": 6}}),
            Tokens { input: 48, cache_read: 5, output: 13, ..NONE },
        ),
        // Parts of a class stay in it.
        (
            OpenaiChat,
            chat(json!({"completion_tokens_details": {"reasoning_tokens": 30, "audio_tokens": 3,
                "accepted_prediction_tokens": 4, "rejected_prediction_tokens": 1}})),
            expected,
        ),
    ] {
        assert_eq!(
            read(convention, std::slice::from_ref(&usage)),
            (expected, Quality::Reported),
            "{convention:?} {usage}"
        );
    }
}

#[test]
fn thoughts_alone_are_counted_once() {
    let thoughts = json!({"promptTokenCount": 100, "thoughtsTokenCount": 50, "totalTokenCount": 150});
    let only = Tokens { input: 100, reasoning: 50, ..NONE };
    assert_eq!(read(UsageConvention::Gemini, std::slice::from_ref(&thoughts)), (only, Quality::Reported));
    let whole = json!({"candidatesTokenCount": 10, "totalTokenCount": 160});
    let all = Tokens { output: 10, ..only };
    assert_eq!(read(UsageConvention::Gemini, &[thoughts, whole]), (all, Quality::Reported));
    let beside = json!({"prompt_tokens": 100, "completion_tokens_details": {"reasoning_tokens": 50}});
    assert_eq!(read(UsageConvention::XaiChat, std::slice::from_ref(&beside)).0, only);
    assert_eq!(read(UsageConvention::OpenaiChat, &[beside]).0, only);
}

#[test]
fn a_part_that_is_larger_than_the_whole_is_beside_it() {
    let usage = json!({"prompt_tokens": 2_000, "completion_tokens": 10,
                       "prompt_tokens_details": {"cached_tokens": 18_000}});
    let beside = Tokens { input: 2_000, cache_read: 18_000, output: 10, ..NONE };
    assert_eq!(read(UsageConvention::OpenaiChat, &[usage]), (beside, Quality::Unreconciled));
}

#[test]
fn figures_that_contradict_each_other_are_marked() {
    use UsageConvention::{Anthropic, DeepseekChat, Gemini, OpenaiChat, OpenrouterChat};
    let cached = |details: Value| json!({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": details});
    for (convention, usage) in [
        (OpenaiChat, json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 18})),
        (OpenaiChat, cached(json!({"cached_tokens": 11}))),
        (OpenrouterChat, cached(json!({"cached_tokens": 5, "cache_write_tokens": 6}))),
        (OpenaiChat, with(cached(json!({})), &json!({"completion_tokens_details": {"reasoning_tokens": 6}}))),
        (OpenaiChat, json!({"prompt_tokens": "10", "completion_tokens": 5})),
        (OpenaiChat, json!({"prompt_tokens": 10.5, "completion_tokens": 5})),
        (OpenaiChat, json!({"prompt_tokens": u64::MAX, "completion_tokens": 5, "total_tokens": 4})),
        (OpenaiChat, with(cached(json!({"cached_tokens": 4})), &json!({"cache_read_input_tokens": 5}))),
        (
            DeepseekChat,
            json!({"prompt_tokens": 10, "prompt_cache_hit_tokens": 5, "prompt_cache_miss_tokens": 6}),
        ),
        (
            Gemini,
            json!({"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 3, "totalTokenCount": 15}),
        ),
        (Anthropic, json!({"input_tokens": -1})),
        (
            Anthropic,
            json!({"cache_creation_input_tokens": 9, "cache_creation":
                {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4}}),
        ),
    ] {
        assert_eq!(read(convention, std::slice::from_ref(&usage)).1, Quality::Unreconciled, "{usage}");
    }
    let both = json!({"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4});
    let usage = json!({"cache_creation_input_tokens": 9, "cache_creation": both});
    let tokens = Tokens { cache_write_5m: 5, cache_write_1h: 4, ..NONE };
    assert_eq!(read(UsageConvention::Anthropic, &[usage]).0, tokens, "the larger sum counts");
}

#[test]
fn whole_floats_are_counts() {
    let usage = json!({"prompt_tokens": 20000.0, "completion_tokens": 1e2, "total_tokens": 20100.0});
    let tokens = Tokens { input: 20_000, output: 100, ..NONE };
    assert_eq!(read(UsageConvention::OpenaiChat, &[usage]), (tokens, Quality::Reported));
}

/// A usage object in the names of a dialect: of all input, of which so much was read from a cache, and of output.
fn in_dialect(convention: UsageConvention, input: Value, hits: Value, output: Value) -> Value {
    match convention {
        UsageConvention::Anthropic => {
            json!({"input_tokens": input, "cache_read_input_tokens": hits, "output_tokens": output})
        }
        UsageConvention::Gemini => {
            json!({"promptTokenCount": input, "cachedContentTokenCount": hits, "candidatesTokenCount": output})
        }
        UsageConvention::OpenaiResponses => {
            json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": hits}, "output_tokens": output})
        }
        _ => {
            json!({"prompt_tokens": input, "prompt_tokens_details": {"cached_tokens": hits}, "completion_tokens": output})
        }
    }
}

#[test]
fn the_largest_report_counts_in_all_dialects() {
    for convention in ALL {
        let exclusive = convention == UsageConvention::Anthropic;
        let own = if exclusive { 2_000 } else { 20_000 };
        let first = in_dialect(convention, json!(own), json!(18_000), json!(1));
        let tokens = Tokens { input: 2_000, cache_read: 18_000, output: 100, ..NONE };
        let null = Value::Null;
        for (later, quality) in [
            // Growth, nulls and what is missing contradict nothing.
            (vec![in_dialect(convention, null.clone(), null.clone(), json!(100))], Quality::Reported),
            (vec![in_dialect(convention, json!(own), json!(18_000), json!(100))], Quality::Reported),
            (
                vec![
                    in_dialect(convention, null.clone(), null.clone(), json!(40)),
                    in_dialect(convention, null.clone(), null.clone(), json!(100)),
                ],
                Quality::Reported,
            ),
            // Zeros do.
            (vec![in_dialect(convention, json!(0), json!(0), json!(100))], Quality::Unreconciled),
            (
                vec![
                    in_dialect(convention, json!(own), json!(18_000), json!(100)),
                    in_dialect(convention, json!(0), json!(0), json!(0)),
                ],
                Quality::Unreconciled,
            ),
            (
                vec![
                    in_dialect(convention, json!(0), json!(0), json!(0)),
                    in_dialect(convention, json!(own), json!(18_000), json!(100)),
                ],
                Quality::Unreconciled,
            ),
        ] {
            let reports: Vec<Value> = std::iter::once(first.clone()).chain(later).collect();
            assert_eq!(read(convention, &reports), (tokens, quality), "{convention:?} {reports:?}");
        }
        // The same sum, split further.
        let unsplit = in_dialect(convention, json!(20_000), Value::Null, json!(100));
        let split = in_dialect(convention, json!(own), json!(18_000), json!(100));
        assert_eq!(read(convention, &[unsplit, split]), (tokens, Quality::Reported), "{convention:?}");
    }
}

#[test]
fn a_report_counts_as_a_whole() {
    use UsageConvention::{Anthropic, OpenaiChat, OpenaiResponses};
    let split = Tokens { input: 20, cache_read: 80, output: 1, ..NONE };
    for (convention, reports, tokens, quality) in [
        // The later one has the same input without the hits: nothing is counted twice.
        (
            Anthropic,
            vec![
                json!({"input_tokens": 20, "cache_read_input_tokens": 80, "output_tokens": 1}),
                json!({"input_tokens": 100, "output_tokens": 1}),
            ],
            split,
            Quality::Unreconciled,
        ),
        // More was written than the earlier one knew, which said for how long: the rest is for the usual time.
        (
            Anthropic,
            vec![
                json!({"input_tokens": 20, "cache_creation_input_tokens": 5,
                    "cache_creation": {"ephemeral_1h_input_tokens": 5}, "output_tokens": 1}),
                json!({"input_tokens": 20, "cache_creation_input_tokens": 9, "output_tokens": 1}),
            ],
            Tokens { input: 20, cache_write_5m: 4, cache_write_1h: 5, output: 1, ..NONE },
            Quality::Reported,
        ),
        (
            OpenaiResponses,
            vec![
                json!({"input_tokens": 30, "input_tokens_details": {"cache_write_tokens": 9,
                    "cache_write_tokens_details": {"ttl_30m_tokens": 2, "ttl_12h_tokens": 7}}, "output_tokens": 1}),
                json!({"input_tokens": 40, "input_tokens_details": {"cache_write_tokens": 12}, "output_tokens": 1}),
            ],
            Tokens { input: 28, cache_write_30m: 5, cache_write_12h: 7, output: 1, ..NONE },
            Quality::Reported,
        ),
        // Less was written: nobody knows which part of it.
        (
            Anthropic,
            vec![
                json!({"input_tokens": 20, "cache_creation_input_tokens": 5,
                    "cache_creation": {"ephemeral_1h_input_tokens": 5}, "output_tokens": 1}),
                json!({"input_tokens": 30, "cache_creation_input_tokens": 3, "output_tokens": 1}),
            ],
            Tokens { input: 30, cache_write_5m: 3, output: 1, ..NONE },
            Quality::Reported,
        ),
        // As much was written as the earlier one knew, which said for how long.
        (
            Anthropic,
            vec![
                json!({"input_tokens": 20, "cache_creation_input_tokens": 180, "cache_creation":
                    {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 180}, "output_tokens": 1}),
                json!({"input_tokens": 20, "cache_creation_input_tokens": 180, "cache_read_input_tokens": 0,
                    "output_tokens": 100}),
            ],
            Tokens { input: 20, cache_write_1h: 180, output: 100, ..NONE },
            Quality::Reported,
        ),
        (
            Anthropic,
            vec![
                json!({"input_tokens": 20, "cache_creation_input_tokens": 8, "cache_creation":
                    {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 5}, "output_tokens": 1}),
                json!({"input_tokens": 20, "cache_creation_input_tokens": 8, "output_tokens": 100}),
            ],
            Tokens { input: 20, cache_write_5m: 3, cache_write_1h: 5, output: 100, ..NONE },
            Quality::Reported,
        ),
        // The thoughts of an earlier report are no part of a later answer without any.
        (
            OpenaiChat,
            vec![
                json!({"prompt_tokens": 20, "completion_tokens": 30,
                    "completion_tokens_details": {"reasoning_tokens": 25}}),
                json!({"completion_tokens": 40}),
            ],
            Tokens { input: 20, output: 40, ..NONE },
            Quality::Reported,
        ),
        // A side that a report leaves out is that of the earlier one; so is a main figure of which it tells a part.
        (
            OpenaiChat,
            vec![
                json!({"prompt_tokens": 100}),
                json!({"prompt_tokens_details": {"cached_tokens": 80}, "completion_tokens": 1, "total_tokens": 101}),
            ],
            split,
            Quality::Reported,
        ),
    ] {
        assert_eq!(read(convention, &reports), (tokens, quality), "{convention:?} {reports:?}");
    }
}

#[test]
fn a_later_report_drops_no_call() {
    let calls = json!({"input_tokens": 20, "output_tokens": 5, "iterations": [
        {"type": "compaction", "input_tokens": 900, "output_tokens": 30},
        {"type": "message", "input_tokens": 20, "output_tokens": 5}]});
    let own = reported(UsageConvention::Anthropic, std::slice::from_ref(&calls)).unwrap();
    let fewer = json!({"input_tokens": 20, "output_tokens": 5, "iterations": []});
    let kept = reported(UsageConvention::Anthropic, &[calls.clone(), fewer]).unwrap();
    assert_eq!((kept.tokens, kept.inner), (own.tokens, own.inner));
    assert_eq!((own.quality, kept.quality), (Quality::Reported, Quality::Unreconciled));
    // Nor does one whose calls used nothing.
    let zeros = json!({"input_tokens": 20, "output_tokens": 5, "iterations": [
        {"type": "compaction", "input_tokens": 0, "output_tokens": 0},
        {"type": "message", "input_tokens": 20, "output_tokens": 5}]});
    let kept = reported(UsageConvention::Anthropic, &[calls, zeros]).unwrap();
    assert_eq!((kept.tokens, kept.quality), (own.tokens, Quality::Unreconciled));
    // Calls that add up to the whole stay in it when the output grows.
    let sum = json!({"input_tokens": 920, "output_tokens": 35, "iterations": [
        {"type": "compaction", "input_tokens": 900, "output_tokens": 30},
        {"type": "message", "input_tokens": 20, "output_tokens": 5}]});
    let grown = read(UsageConvention::Anthropic, &[sum, json!({"output_tokens": 40})]);
    assert_eq!(grown, (Tokens { input: 920, output: 40, ..NONE }, Quality::Reported));
}

#[test]
fn contradicting_reports_are_both_kept() {
    let (first, second) = (json!({"prompt_tokens": 5}), json!({"prompt_tokens": 0}));
    let usage = reported(UsageConvention::OpenaiChat, &[first.clone(), second.clone()]).unwrap();
    assert_eq!(usage.raw, Some(json!([first, second])));
}

#[test]
fn only_what_is_new_counts_as_a_report() {
    let mut reported = Reported::new(UsageConvention::Anthropic);
    for (count, reports) in [(1, 1), (1, 1), (2, 2)] {
        reported.add(json!({"input_tokens": count, "output_tokens": null}).as_object().unwrap());
        assert_eq!(reported.reports(), reports);
    }
}

#[test]
fn counts_that_nobody_reads_are_named() {
    let usage = |more: Value| {
        let usage = json!({"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105});
        reported(UsageConvention::OpenaiChat, &[with(usage, &more)]).unwrap()
    };
    for (more, field) in [
        (json!({"prompt_tokens_details": {"mystery_tokens": 500}}), "prompt_tokens_details/mystery_tokens"),
        (json!({"dreamTokenCount": 1}), "dreamTokenCount"),
        (json!({"more": [{"dream_token_count": 1.5}]}), "more/dream_token_count"),
        (
            json!({"iterations": [{"type": "message", "input_tokens": 100, "output_tokens": 5, "odd_tokens": 1}]}),
            "odd_tokens",
        ),
    ] {
        let usage = usage(more);
        assert_eq!((usage.quality, unknown_figures(&usage)), (Quality::Unreconciled, vec![field.to_owned()]));
    }
    for more in [
        json!({"mystery_tokens": 0, "tokens_per_second": 55.5, "queue_time": 1}),
        json!({"prompt_tokens_details": {"audio_tokens": 7, "cached_tokens_details": {"text_tokens": 5}}}),
        json!({"iterations": [{"type": "message", "input_tokens": 100, "output_tokens": 5}]}),
    ] {
        let usage = usage(more);
        assert_eq!((usage.quality, unknown_figures(&usage)), (Quality::Reported, Vec::new()));
    }
}

#[test]
fn calls_inside_of_an_answer_are_told_apart() {
    let whole = json!({"input_tokens": 1_000, "output_tokens": 500});
    let own = Tokens { input: 1_000, output: 500, ..NONE };
    let call = |kind: &str, model: &str, input: u64, output: u64| {
        let mut call = json!({"type": kind, "input_tokens": input, "output_tokens": output});
        if !model.is_empty() {
            call["model"] = json!(model);
        }
        call
    };
    let message = || call("message", "m", 1_000, 500);
    let other = |model: &str, input, output| InnerUsage {
        model: model.to_owned(),
        tokens: Tokens { input, output, ..NONE },
        answers: model == "other",
    };
    let compacted = Tokens { input: 21_000, output: 1_500, ..NONE };
    for (calls, tokens, inner) in [
        (vec![message()], own, vec![]),
        (vec![call("compaction", "", 20_000, 1_000)], compacted, vec![]),
        (vec![call("compaction", "m", 20_000, 1_000), message()], compacted, vec![]),
        (vec![call("message", "", 400, 200), call("step", "", 600, 300)], own, vec![]),
        (vec![message(), call("advisor_message", "big", 7, 8)], own, vec![other("big", 7, 8)]),
        (
            vec![call("message", "asked", 30, 2), call("fallback_message", "other", 1_000, 500)],
            Tokens { input: 30, output: 2, ..NONE },
            vec![other("other", 1_000, 500)],
        ),
    ] {
        let usage =
            reported(UsageConvention::Anthropic, &[with(whole.clone(), &json!({"iterations": calls}))]);
        let usage = usage.unwrap();
        assert_eq!((usage.tokens, usage.inner), (tokens, inner), "{calls:?}");
        assert_eq!(usage.quality, Quality::Reported);
    }
}

#[test]
fn each_call_of_the_model_that_was_asked_is_by_itself() {
    let tokens = |input, output| Tokens { input, output, ..NONE };
    let call =
        |kind: &str, input, output| json!({"type": kind, "input_tokens": input, "output_tokens": output});
    for (whole, calls, own, others) in [
        ((60, 10), vec![call("compaction", 200, 7), call("message", 60, 10)], (60, 10), vec![(200, 7)]),
        // An answer without a count beside a call that has one.
        ((60, 0), vec![call("compaction", 200, 7)], (60, 0), vec![(200, 7)]),
        ((60, 10), vec![call("message", 25, 4), call("message", 35, 6)], (25, 4), vec![(35, 6)]),
        ((260, 17), vec![call("compaction", 200, 7), call("message", 60, 10)], (60, 10), vec![(200, 7)]),
        // It has grown.
        ((260, 20), vec![call("compaction", 200, 7), call("message", 60, 10)], (60, 13), vec![(200, 7)]),
        // They are not what adds up to it.
        ((60, 10), vec![call("message", 20, 4), call("message", 35, 6)], (60, 10), vec![]),
        ((60, 3), vec![call("message", 25, 4), call("message", 35, 6)], (60, 3), vec![]),
    ] {
        let whole = json!({"input_tokens": whole.0, "output_tokens": whole.1, "iterations": calls});
        let usage = told_apart(UsageConvention::Anthropic, std::slice::from_ref(&whole)).unwrap();
        assert!(usage.inner.iter().all(|call| call.model.is_empty() && !call.answers));
        let found: Vec<Tokens> = usage.inner.iter().map(|call| call.tokens).collect();
        let others: Vec<Tokens> = others.into_iter().map(|(input, output)| tokens(input, output)).collect();
        assert_eq!((usage.tokens, found), (tokens(own.0, own.1), others), "{whole}");
    }
}

#[test]
fn a_figure_that_a_later_report_takes_back_is_in_doubt() {
    let usage = |mystery: u64, cost: f64| {
        json!({"prompt_tokens": 100, "completion_tokens": 5, "cost": cost,
            "prompt_tokens_details": {"mystery_tokens": mystery}})
    };
    let taken_back = reported(UsageConvention::OpenaiChat, &[usage(500, 0.5), usage(0, 0.0)]).unwrap();
    assert_eq!(taken_back.quality, Quality::Unreconciled);
    assert_eq!(unknown_figures(&taken_back), ["prompt_tokens_details/mystery_tokens"]);
    assert_eq!(taken_back.provider_cost.map(|cost| cost.to_string()), Some("$0.5000".to_owned()));
    let free = reported(UsageConvention::OpenaiChat, &[usage(0, 0.0)]).unwrap();
    assert_eq!(free.provider_cost, Some(Cost::ZERO));
}

#[test]
fn ways_of_service_and_costs_are_read() {
    let served = |usage: Value| {
        reported(UsageConvention::Anthropic, &[with(json!({"input_tokens": 1}), &usage)]).unwrap().served
    };
    for (usage, expected) in [
        (json!({"service_tier": "standard", "speed": "fast", "inference_geo": "us"}), vec!["fast", "us"]),
        (json!({"service_tier": "batch", "inference_geo": "not_available"}), vec!["batch"]),
        (json!({"trafficType": "ON_DEMAND"}), vec![]),
        (json!({"trafficType": "ON_DEMAND_PRIORITY"}), vec!["priority"]),
        (json!({"service_tier": "a name\nof two lines", "speed": 5}), vec![]),
    ] {
        assert_eq!(served(usage.clone()), expected, "{usage}");
    }
    let cost = |usage: Value| service::cost(usage.as_object().unwrap()).map(|cost| cost.0.to_string());
    for (usage, expected) in [
        (json!({"cost": 0.0123}), Some("0.0123")),
        (json!({"cost": 1.5e-7}), Some("0.00000015")),
        (json!({"cost": "0.5"}), Some("0.5")),
        (json!({"cost": 0}), Some("0")),
        (json!({"cost": {"total_cost": 0.25, "currency": "USD"}}), Some("0.25")),
        (
            json!({"cost": 0.01, "is_byok": true, "cost_details": {"upstream_inference_cost": 0.2}}),
            Some("0.21"),
        ),
        (json!({"cost": 0.01, "cost_details": {"upstream_inference_cost": 0.01}}), Some("0.01")),
        (json!({"cost_in_usd_ticks": 37_756_000}), Some("0.0037756")),
        (json!({"cost": -1}), None),
        (json!({"cost": "much"}), None),
        (json!({}), None),
    ] {
        assert_eq!(cost(usage.clone()).as_deref(), expected, "{usage}");
    }
}

/// The table for people.
fn reference() -> String {
    let mut text = String::from(
        "# Usage figures of providers\n\n\
         The counts that answers are known to report, where they stand, and what they become in a row of the ledger. They are\n\
         read under any provider: gateways and compatible servers mix them. A count whose name ends in `tokens`, `token_count`\n\
         or `TokenCount`, that is above 0 and not in this table, makes its row `unreconciled`, and is named once per provider in\n\
         the program's log.\n\n\
         - *Part*: the count is in that of the prompt or of the completion. *Beside*: it is not. *By total*: as the name says,\n  \
           unless only the other reading gives the reported total. *By convention*: as the provider does; where a total is\n  \
           reported and only the other reading gives it, that one.\n\
         - `input/` stands for `prompt_tokens_details/` and `input_tokens_details/`, `output/` for\n  \
           `completion_tokens_details/` and `output_tokens_details/` (and for both without the `s` of `tokens`), `*/` for any\n  \
           place.\n\
         - Calls inside of an answer (`iterations[]`) have figures of the same names. Those of another model become rows of\n  \
           their own.\n\n\
         | figure | counts | relation | source |\n|---|---|---|---|\n",
    );
    for figure in FIGURES {
        let place = match figure.place {
            Place::Top => "",
            Place::Input => "input/",
            Place::Output => "output/",
            Place::Anywhere => "*/",
        };
        let counts = match figure.counts {
            Count::Prompt => "prompt",
            Count::BesidePrompt => "input beside the prompt",
            Count::Hit => "input read from a cache",
            Count::Miss => "input not read from a cache",
            Count::Write => "input written to a cache",
            Count::Write5m => "of it for 5 minutes",
            Count::Write30m => "of it for 30 minutes",
            Count::Write1h => "of it for an hour",
            Count::Write12h => "of it for 12 hours",
            Count::Completion => "completion",
            Count::Reasoning => "reasoning",
            Count::InnerInput => "input of the provider's own calls",
            Count::InnerHit => "the same, from a cache",
            Count::InnerOutput => "output of the provider's own calls",
            Count::Total => "total",
            Count::Part => "part of another figure",
        };
        let relation = match (figure.counts, figure.relation) {
            (Count::Prompt | Count::Completion | Count::Total, _) => "",
            (_, Relation::Inside) => "part",
            (_, Relation::Beside) => "beside",
            (_, Relation::Part) => "part, by total",
            (_, Relation::Convention) => "by convention",
        };
        let _ = writeln!(text, "| `{place}{}` | {counts} | {relation} | {} |", figure.name, figure.source);
    }
    text
}

#[test]
fn the_reference_shows_the_table() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/usage-figures.md");
    let text = reference();
    if std::env::var_os("PLAYHOUSE_UPDATE_REFERENCE").is_some() {
        fs_err::write(file, &text).unwrap();
    }
    let written = fs_err::read_to_string(file).unwrap_or_default();
    assert!(written == text, "{file} is not what the table says: run with PLAYHOUSE_UPDATE_REFERENCE=1");
}
