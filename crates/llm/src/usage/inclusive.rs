//! Counts where cached tokens are part of the prompt's: all providers but Anthropic.

use playhouse_protocol::usage::{Quality, Tokens};
use serde_json::{Map, Value};

use super::Counts;

/// Where a provider's figures stand. Paths are names with `/` between them; an empty path is a figure that it does not
/// give.
pub(super) struct Layout {
    prompt: &'static str,
    /// Input that the prompt's figure leaves out.
    beside_prompt: &'static str,
    completion: &'static str,
    /// Part of the prompt that was read from a cache.
    cached: &'static str,
    /// Part of the prompt that was not, where it has a figure: with `cached` it must be the prompt.
    uncached: &'static str,
    /// Part of the prompt that was written to a cache.
    written: &'static str,
    reasoning: &'static str,
    /// Whether the reasoning is part of the completion's figure.
    reasoning_inside: bool,
    total: &'static str,
}

pub(super) const OPENAI_CHAT: Layout = Layout {
    prompt: "prompt_tokens",
    beside_prompt: "",
    completion: "completion_tokens",
    cached: "prompt_tokens_details/cached_tokens",
    uncached: "",
    written: "",
    reasoning: "completion_tokens_details/reasoning_tokens",
    reasoning_inside: true,
    total: "total_tokens",
};

pub(super) const OPENAI_RESPONSES: Layout = Layout {
    prompt: "input_tokens",
    completion: "output_tokens",
    cached: "input_tokens_details/cached_tokens",
    reasoning: "output_tokens_details/reasoning_tokens",
    ..OPENAI_CHAT
};

pub(super) const DEEPSEEK: Layout =
    Layout { cached: "prompt_cache_hit_tokens", uncached: "prompt_cache_miss_tokens", ..OPENAI_CHAT };

pub(super) const XAI: Layout = Layout { reasoning_inside: false, ..OPENAI_CHAT };

pub(super) const OPENROUTER: Layout =
    Layout { written: "prompt_tokens_details/cache_write_tokens", ..OPENAI_CHAT };

pub(super) const ALIBABA: Layout =
    Layout { written: "prompt_tokens_details/cache_creation_input_tokens", ..OPENAI_CHAT };

pub(super) const GEMINI: Layout = Layout {
    prompt: "promptTokenCount",
    beside_prompt: "toolUsePromptTokenCount",
    completion: "candidatesTokenCount",
    cached: "cachedContentTokenCount",
    uncached: "",
    written: "",
    reasoning: "thoughtsTokenCount",
    reasoning_inside: false,
    total: "totalTokenCount",
};

impl Layout {
    /// The counts, and whether they agree with each other; `None` where there are none.
    pub(super) fn read(&self, raw: &Map<String, Value>) -> Option<(Tokens, Quality)> {
        let mut counts = Counts::new(raw);
        let prompt = counts.get(self.prompt).unwrap_or(0);
        let beside_prompt = counts.get(self.beside_prompt).unwrap_or(0);
        let completion = counts.get(self.completion).unwrap_or(0);
        let cached = counts.get(self.cached).unwrap_or(0);
        let uncached = counts.get(self.uncached);
        let written = counts.get(self.written).unwrap_or(0);
        let reasoning = counts.get(self.reasoning).unwrap_or(0);
        let total = counts.get(self.total);
        if !counts.any {
            return None;
        }
        let outside = if self.reasoning_inside { 0 } else { reasoning };
        let sum = [beside_prompt, completion, outside]
            .into_iter()
            .try_fold(prompt, |sum: u64, count| sum.checked_add(count));
        let known = cached.saturating_add(written);
        let agrees = counts.whole
            && known <= prompt
            && uncached.is_none_or(|uncached| cached.checked_add(uncached) == Some(prompt))
            && (!self.reasoning_inside || reasoning <= completion)
            && total.is_none_or(|total| sum == Some(total));
        let tokens = Tokens {
            input: prompt.saturating_sub(known).saturating_add(beside_prompt),
            cache_read: cached,
            cache_write_5m: written,
            output: if self.reasoning_inside { completion.saturating_sub(reasoning) } else { completion },
            reasoning,
            ..Tokens::default()
        };
        Some((tokens, if agrees { Quality::Reported } else { Quality::Unreconciled }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(layout: &Layout, raw: &Value) -> (Tokens, Quality) {
        layout.read(raw.as_object().unwrap()).unwrap()
    }

    #[test]
    fn classes_become_exclusive() {
        let expected = Tokens { input: 20, cache_read: 80, output: 20, reasoning: 30, ..Tokens::default() };
        let written = Tokens { input: 13, cache_write_5m: 7, ..expected };
        let chat = |extra: Value| {
            let mut raw = json!({
                "prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
                "prompt_tokens_details": {"cached_tokens": 80}, "completion_tokens_details": {"reasoning_tokens": 30},
            });
            for (field, value) in extra.as_object().unwrap() {
                raw[field] = value.clone();
            }
            raw
        };
        for (layout, raw, expected) in [
            (OPENAI_CHAT, chat(json!({})), expected),
            (
                OPENAI_RESPONSES,
                json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 80}, "output_tokens": 50,
                    "output_tokens_details": {"reasoning_tokens": 30}, "total_tokens": 150}),
                expected,
            ),
            (
                DEEPSEEK,
                chat(json!({"prompt_cache_hit_tokens": 80, "prompt_cache_miss_tokens": 20,
                    "prompt_tokens_details": {"cached_tokens": 0}})),
                expected,
            ),
            (XAI, chat(json!({"completion_tokens": 20})), expected),
            (
                OPENROUTER,
                chat(json!({"prompt_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 7}})),
                written,
            ),
            (
                ALIBABA,
                chat(
                    json!({"prompt_tokens_details": {"cached_tokens": 80, "cache_creation_input_tokens": 7}}),
                ),
                written,
            ),
            (
                GEMINI,
                json!({"promptTokenCount": 95, "toolUsePromptTokenCount": 5, "cachedContentTokenCount": 80,
                    "candidatesTokenCount": 20, "thoughtsTokenCount": 30, "totalTokenCount": 150}),
                expected,
            ),
        ] {
            assert_eq!(read(&layout, &raw), (expected, Quality::Reported), "{raw}");
            assert_eq!(expected.total(), 150);
        }
    }

    #[test]
    fn details_may_be_missing() {
        let raw = json!({"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": null});
        let expected = Tokens { input: 7, output: 2, ..Tokens::default() };
        assert_eq!(read(&OPENAI_CHAT, &raw), (expected, Quality::Reported));
    }

    #[test]
    fn figures_that_contradict_each_other_are_marked() {
        let cached = |details: Value| json!({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": details});
        for (layout, raw) in [
            (OPENAI_CHAT, json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 18})),
            (OPENAI_CHAT, cached(json!({"cached_tokens": 11}))),
            (OPENROUTER, cached(json!({"cached_tokens": 5, "cache_write_tokens": 6}))),
            (
                OPENAI_CHAT,
                json!({"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 6}}),
            ),
            (OPENAI_CHAT, json!({"prompt_tokens": "10", "completion_tokens": 5})),
            (OPENAI_CHAT, json!({"prompt_tokens": u64::MAX, "completion_tokens": 5, "total_tokens": 4})),
            (
                DEEPSEEK,
                json!({"prompt_tokens": 10, "prompt_cache_hit_tokens": 5, "prompt_cache_miss_tokens": 6}),
            ),
            // Reasoning inside of the completion, where the convention says beside it.
            (
                XAI,
                json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
                    "completion_tokens_details": {"reasoning_tokens": 3}}),
            ),
            (
                GEMINI,
                json!({"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 3, "totalTokenCount": 15}),
            ),
        ] {
            assert_eq!(read(&layout, &raw).1, Quality::Unreconciled, "{raw}");
        }
    }
}
