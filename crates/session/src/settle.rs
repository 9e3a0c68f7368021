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

/// The usage of an attempt that was cut: what the provider had reported until then, and an estimate of the rest.
pub(crate) fn estimated_usage(reported: Option<Usage>, estimated_input: u64, streamed_bytes: u64) -> Usage {
    let streamed = estimated_tokens(streamed_bytes);
    let (mut tokens, raw) = match reported {
        Some(usage) => (usage.tokens, usage.raw),
        None => (Tokens::default(), None),
    };
    if tokens.all_input() == 0 {
        tokens.input = estimated_input;
    }
    let seen = tokens.output + tokens.reasoning;
    tokens.output += streamed.saturating_sub(seen);
    Usage { tokens, quality: Quality::Estimated, raw }
}

/// The usage of an attempt with a complete answer: as it was reported, or estimated where the final figures are missing.
pub(crate) fn usage_of_answer(reported: Option<Usage>, estimated_input: u64, bytes: u64) -> Usage {
    match reported {
        Some(usage) if usage.quality != Quality::Estimated => usage,
        partial => estimated_usage(partial, estimated_input, bytes),
    }
}

/// The usage of an attempt that failed, if it may have used anything.
pub(crate) fn usage_of_failure(failed: &FailedAttempt, estimated_input: u64) -> Option<Usage> {
    let FailedAttempt { usage, streamed_bytes, may_have_used, .. } = failed;
    let used = *may_have_used || usage.is_some();
    used.then(|| estimated_usage(usage.clone(), estimated_input, *streamed_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reported_is_kept_and_the_rest_is_estimated() {
        let reported = Usage {
            tokens: Tokens { input: 3, cache_read: 100, output: 1, ..Tokens::default() },
            ..Usage::default()
        };
        let usage = estimated_usage(Some(reported), 9_999, 401);
        assert_eq!(usage.tokens, Tokens { input: 3, cache_read: 100, output: 101, ..Tokens::default() });
        assert_eq!(usage.quality, Quality::Estimated);
    }

    #[test]
    fn with_nothing_reported_all_is_estimated() {
        let usage = estimated_usage(None, 50, 0);
        assert_eq!(usage.tokens, Tokens { input: 50, ..Tokens::default() });
    }
}
