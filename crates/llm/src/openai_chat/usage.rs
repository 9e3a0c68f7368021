//! What an answer used, as Chat Completions counts: cached tokens are part of the prompt's, reasoning is part of the
//! completion's.

use playhouse_protocol::usage::{Quality, Tokens, Usage};
use serde_json::Value;

pub(super) fn usage(raw: &Value) -> Usage {
    let mut agrees = true;
    let mut count = |path: &str| match raw.pointer(path) {
        None | Some(Value::Null) => None,
        Some(value) => {
            agrees &= value.is_u64();
            value.as_u64()
        }
    };
    let prompt = count("/prompt_tokens").unwrap_or(0);
    let completion = count("/completion_tokens").unwrap_or(0);
    // Where there are no details, some servers report what was cached beside them.
    let cached = count("/prompt_tokens_details/cached_tokens")
        .or_else(|| count("/prompt_cache_hit_tokens"))
        .unwrap_or(0);
    let reasoning = count("/completion_tokens_details/reasoning_tokens").unwrap_or(0);
    let total = count("/total_tokens");
    agrees &= cached <= prompt && reasoning <= completion;
    agrees &= total.is_none_or(|total| prompt.checked_add(completion) == Some(total));
    Usage {
        tokens: Tokens {
            input: prompt.saturating_sub(cached),
            cache_read: cached,
            output: completion.saturating_sub(reasoning),
            reasoning,
            ..Tokens::default()
        },
        quality: if agrees { Quality::Reported } else { Quality::Unreconciled },
        raw: Some(raw.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn classes_become_exclusive() {
        let raw = json!({
            "prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 80}, "completion_tokens_details": {"reasoning_tokens": 30},
        });
        let usage = usage(&raw);
        let expected = Tokens { input: 20, cache_read: 80, output: 20, reasoning: 30, ..Tokens::default() };
        assert_eq!((usage.tokens, usage.quality), (expected, Quality::Reported));
        assert_eq!(usage.tokens.total(), 150);
        assert_eq!(usage.raw, Some(raw));
    }

    #[test]
    fn details_may_be_missing_or_elsewhere() {
        let plain =
            usage(&json!({"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": null}));
        assert_eq!(plain.tokens, Tokens { input: 7, output: 2, ..Tokens::default() });
        assert_eq!(plain.quality, Quality::Reported);
        let elsewhere =
            usage(&json!({"prompt_tokens": 7, "completion_tokens": 2, "prompt_cache_hit_tokens": 5}));
        assert_eq!((elsewhere.tokens.input, elsewhere.tokens.cache_read), (2, 5));
    }

    #[test]
    fn figures_that_contradict_each_other_are_marked() {
        for raw in [
            json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 18}),
            json!({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 11}}),
            json!({"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 6}}),
            json!({"prompt_tokens": "10", "completion_tokens": 5}),
            json!({"prompt_tokens": u64::MAX, "completion_tokens": 5, "total_tokens": 4}),
        ] {
            assert_eq!(usage(&raw).quality, Quality::Unreconciled, "{raw}");
        }
    }
}
