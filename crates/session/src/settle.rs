//! What an attempt without a reported usage is taken to have used.

use playhouse_protocol::Tokens;
use playhouse_protocol::usage::{Quality, Usage};

use crate::effect::FailedAttempt;

/// Bytes of text that stand for one token in an estimate.
pub(crate) const BYTES_PER_TOKEN: u64 = 4;

/// Estimated number of tokens of a text or a request of `bytes`, where no provider has reported any.
pub fn estimated_tokens(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// What the engine knows itself of a request and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnCount {
    /// Estimated tokens of the request.
    pub input: u64,
    /// Bytes of the answer: text, reasoning and calls.
    pub answer_bytes: u64,
    /// The most input tokens that the model takes, where that is known.
    pub window: Option<u64>,
}

impl OwnCount {
    /// Of a request without an answer.
    pub(crate) const fn of_request(input: u64) -> Self {
        Self { input, answer_bytes: 0, window: None }
    }

    /// Whether a count is above what the model takes, and above twice the engine's own estimate.
    fn is_beyond(self, count: u64, estimate: u64) -> bool {
        self.window.is_some_and(|window| count > window) && count > estimate.saturating_mul(2)
    }
}

/// The usage of an attempt that was cut: what the provider had reported until then, and an estimate of the rest.
pub(crate) fn estimated_usage(reported: Option<Usage>, own: OwnCount) -> Usage {
    let mut usage = reported.unwrap_or_default();
    let tokens = of_the_answer(&mut usage);
    if tokens.all_input() == 0 {
        tokens.input = own.input;
    }
    let seen = tokens.all_output();
    let rest = estimated_tokens(own.answer_bytes).saturating_sub(seen);
    tokens.output = tokens.output.saturating_add(rest);
    usage.quality = Quality::Estimated;
    believed(usage, own)
}

/// The usage of an attempt with a complete answer: as it was reported, or estimated where the final figures are missing or
/// are no counts (0 for a request or an answer that holds something).
pub(crate) fn usage_of_answer(reported: Option<Usage>, own: OwnCount) -> Usage {
    let mut usage = match reported {
        Some(usage) if usage.quality != Quality::Estimated => usage,
        partial => return estimated_usage(partial, own),
    };
    let tokens = of_the_answer(&mut usage);
    let no_input = tokens.all_input() == 0 && own.input > 0;
    let no_output = tokens.output == 0 && tokens.reasoning == 0 && own.answer_bytes > 0;
    if no_input {
        tokens.input = own.input;
    }
    if no_output {
        tokens.output = estimated_tokens(own.answer_bytes);
    }
    if (no_input || no_output) && usage.quality == Quality::Reported {
        usage.quality = Quality::Estimated;
    }
    believed(usage, own)
}

/// What the model used that gave the answer: the one that was asked, or another one in its place.
fn of_the_answer(usage: &mut Usage) -> &mut Tokens {
    match usage.inner.iter_mut().find(|call| call.answers) {
        Some(call) => &mut call.tokens,
        None => &mut usage.tokens,
    }
}

/// The same usage, with the engine's own estimate in place of counts that cannot be right.
fn believed(mut usage: Usage, own: OwnCount) -> Usage {
    let mut is_believed = true;
    let tokens = of_the_answer(&mut usage);
    let estimated_output = estimated_tokens(own.answer_bytes);
    if own.is_beyond(tokens.all_input(), own.input) {
        let Tokens { output, reasoning, .. } = *tokens;
        *tokens = Tokens { input: own.input, output, reasoning, ..Tokens::default() };
        is_believed = false;
    }
    if own.is_beyond(tokens.all_output(), estimated_output) {
        (tokens.output, tokens.reasoning) = (estimated_output, 0);
        is_believed = false;
    }
    if !is_believed {
        usage.quality = Quality::Unreconciled;
    }
    usage
}

/// The usage of an attempt that failed, if it may have used anything.
pub(crate) fn usage_of_failure(
    failed: &FailedAttempt,
    estimated_input: u64,
    window: Option<u64>,
) -> Option<Usage> {
    let FailedAttempt { usage, streamed_bytes, may_have_used, .. } = failed;
    let own = OwnCount { input: estimated_input, answer_bytes: *streamed_bytes, window };
    (*may_have_used || usage.is_some()).then(|| estimated_usage(usage.clone(), own))
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::usage::InnerUsage;

    use super::*;

    fn own(input: u64, answer_bytes: u64) -> OwnCount {
        OwnCount { input, answer_bytes, window: Some(10_000) }
    }

    fn of_answer(tokens: Tokens, own: OwnCount) -> (Tokens, Quality) {
        let usage = usage_of_answer(Some(Usage { tokens, ..Usage::default() }), own);
        (usage.tokens, usage.quality)
    }

    #[test]
    fn a_false_zero_is_no_count() {
        let none = Tokens::default();
        let all = Tokens { input: 50, output: 25, ..none };
        assert_eq!(of_answer(none, own(50, 100)), (all, Quality::Estimated));
        let input = Tokens { input: 70, ..none };
        let estimated = Tokens { input: 70, output: 25, ..none };
        assert_eq!(of_answer(input, own(50, 100)), (estimated, Quality::Estimated));
        assert_eq!(of_answer(input, own(50, 0)), (input, Quality::Reported), "an answer without anything");
        for sound in
            [Tokens { cache_read: 60, output: 1, ..none }, Tokens { input: 60, reasoning: 1, ..none }]
        {
            assert_eq!(of_answer(sound, own(50, 100)), (sound, Quality::Reported));
        }
    }

    #[test]
    fn with_calls_inside_the_answer_is_of_the_model_that_gave_it() {
        let none = Tokens::default();
        let asked = Tokens { input: 40, ..none };
        let call = |tokens, answers| InnerUsage { model: "other".to_owned(), tokens, answers };
        let usage = |tokens, inner| Some(Usage { tokens, inner: vec![inner], ..Usage::default() });
        let advised = usage_of_answer(usage(asked, call(asked, false)), own(50, 100));
        assert_eq!((advised.tokens.output, advised.inner[0].tokens), (25, asked));
        assert_eq!(advised.quality, Quality::Estimated);
        let replaced = usage_of_answer(usage(none, call(asked, true)), own(50, 100));
        assert_eq!((replaced.tokens, replaced.inner[0].tokens), (none, Tokens { output: 25, ..asked }));
        // Cut while it was streamed.
        let cut = estimated_usage(usage(asked, call(none, true)), own(50, 100));
        assert_eq!((cut.tokens, cut.inner[0].tokens), (asked, Tokens { input: 50, output: 25, ..none }));
    }

    #[test]
    fn a_count_that_no_request_can_have_is_not_believed() {
        let none = Tokens::default();
        let sound = Tokens { input: 50, output: 5, ..none };
        let huge = Tokens { input: 4_000, cache_read: 500_000, output: 5, ..none };
        assert_eq!(of_answer(huge, own(50, 20)), (sound, Quality::Unreconciled));
        let talkative = Tokens { input: 50, reasoning: 500_000, ..none };
        assert_eq!(of_answer(talkative, own(50, 20)), (sound, Quality::Unreconciled));
        for (tokens, own) in [
            (huge, OwnCount { window: None, ..own(50, 20) }),
            (huge, own(300_000, 20)),
            (Tokens { input: 9_999, output: 5, ..none }, own(50, 20)),
        ] {
            assert_eq!(of_answer(tokens, own), (tokens, Quality::Reported));
        }
    }

    #[test]
    fn what_was_reported_is_kept_and_the_rest_is_estimated() {
        let reported = Usage {
            tokens: Tokens { input: 3, cache_read: 100, output: 1, ..Tokens::default() },
            ..Usage::default()
        };
        let usage = estimated_usage(Some(reported), own(9_999, 401));
        assert_eq!(usage.tokens, Tokens { input: 3, cache_read: 100, output: 101, ..Tokens::default() });
        assert_eq!(usage.quality, Quality::Estimated);
    }

    #[test]
    fn with_nothing_reported_all_is_estimated() {
        let usage = estimated_usage(None, OwnCount::of_request(50));
        assert_eq!(usage.tokens, Tokens { input: 50, ..Tokens::default() });
    }
}
