//! What an answer used, as Anthropic counts: `input_tokens` is without the cached ones, and figures are cumulative.

use playhouse_protocol::usage::{Quality, Tokens, Usage};
use serde_json::{Map, Value};

/// The usage objects of an answer, the later figures over the earlier ones.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// Field by field, the last figure.
    figures: Map<String, Value>,
    /// How many usage objects came.
    reports: u64,
}

impl Reported {
    pub(super) fn merge(&mut self, usage: Map<String, Value>) {
        self.reports += 1;
        self.figures.extend(usage.into_iter().filter(|(_, value)| !value.is_null()));
    }

    pub(super) fn reports(&self) -> u64 {
        self.reports
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        if self.figures.is_empty() {
            return None;
        }
        let mut whole = true;
        let mut count = |value: Option<&Value>| match value {
            None | Some(Value::Null) => None,
            Some(value) => {
                whole &= value.is_u64();
                value.as_u64()
            }
        };
        let written = count(self.figures.get("cache_creation_input_tokens"));
        let detail = self.figures.get("cache_creation");
        let five_minutes = count(detail.and_then(|detail| detail.get("ephemeral_5m_input_tokens")));
        let hour = count(detail.and_then(|detail| detail.get("ephemeral_1h_input_tokens"))).unwrap_or(0);
        let known = five_minutes.unwrap_or(0).saturating_add(hour);
        let tokens = Tokens {
            input: count(self.figures.get("input_tokens")).unwrap_or(0),
            cache_read: count(self.figures.get("cache_read_input_tokens")).unwrap_or(0),
            cache_write_5m: written.unwrap_or(known).saturating_sub(hour),
            cache_write_1h: hour,
            output: count(self.figures.get("output_tokens")).unwrap_or(0),
            reasoning: 0,
        };
        let agrees = detail.is_none() || written.is_none_or(|written| written == known);
        let quality = if whole && agrees { Quality::Reported } else { Quality::Unreconciled };
        Some(Usage { tokens, quality, raw: Some(Value::Object(self.figures.clone())) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn usage(parts: &[Value]) -> Usage {
        let mut reported = Reported::default();
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

    #[test]
    fn nothing_reported_is_not_zero() {
        assert_eq!(Reported::default().usage(), None);
    }
}
