//! Counts of Anthropic: `input_tokens` is without the cached ones.

use playhouse_protocol::usage::{Quality, Tokens};
use serde_json::{Map, Value};

use super::Counts;

/// The counts, and whether they agree with each other; `None` where there are none.
pub(super) fn read(raw: &Map<String, Value>) -> Option<(Tokens, Quality)> {
    let mut counts = Counts::new(raw);
    let written = counts.get("cache_creation_input_tokens");
    let five_minutes = counts.get("cache_creation/ephemeral_5m_input_tokens");
    let hour = counts.get("cache_creation/ephemeral_1h_input_tokens");
    let detailed = five_minutes.is_some() || hour.is_some();
    let hour = hour.unwrap_or(0);
    let known = five_minutes.unwrap_or(0).saturating_add(hour);
    let tokens = Tokens {
        input: counts.get("input_tokens").unwrap_or(0),
        cache_read: counts.get("cache_read_input_tokens").unwrap_or(0),
        cache_write_5m: written.unwrap_or(known).saturating_sub(hour),
        cache_write_1h: hour,
        output: counts.get("output_tokens").unwrap_or(0),
        ..Tokens::default()
    };
    let agrees = counts.whole && (!detailed || written.is_none_or(|written| written == known));
    counts.any.then_some((tokens, if agrees { Quality::Reported } else { Quality::Unreconciled }))
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::Usage;
    use serde_json::json;

    use super::super::{Reported, UsageConvention};
    use super::*;

    fn usage(parts: &[Value]) -> Usage {
        let mut reported = Reported::new(UsageConvention::Anthropic);
        for part in parts {
            reported.merge(part.as_object().unwrap().clone());
        }
        reported.usage().unwrap()
    }

    #[test]
    fn later_figures_win_and_the_others_stay() {
        let usage = usage(&[
            json!({"input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 7, "output_tokens": 1}),
            json!({"output_tokens": 42, "cache_read_input_tokens": null}),
        ]);
        let expected =
            Tokens { input: 10, cache_read: 100, cache_write_5m: 7, output: 42, ..Tokens::default() };
        assert_eq!((usage.tokens, usage.quality), (expected, Quality::Reported));
        assert_eq!(usage.raw.unwrap()["output_tokens"], 42);
    }

    #[test]
    fn the_two_caches_are_told_apart() {
        let detail = json!({"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4});
        let usage = usage(&[json!({"cache_creation_input_tokens": 7, "cache_creation": detail})]);
        assert_eq!((usage.tokens.cache_write_5m, usage.tokens.cache_write_1h), (3, 4));
        assert_eq!(usage.quality, Quality::Reported);
    }

    #[test]
    fn figures_that_contradict_each_other_are_marked() {
        let detail = json!({"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4});
        let contradicting = usage(&[json!({"cache_creation_input_tokens": 9, "cache_creation": detail})]);
        assert_eq!((contradicting.tokens.cache_write_5m, contradicting.tokens.cache_write_1h), (5, 4));
        assert_eq!(contradicting.quality, Quality::Unreconciled);
        assert_eq!(usage(&[json!({"input_tokens": -1})]).quality, Quality::Unreconciled);
        assert_eq!(usage(&[json!({"output_tokens": "many"})]).quality, Quality::Unreconciled);
    }
}
