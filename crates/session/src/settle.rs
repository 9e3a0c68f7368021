//! What an attempt without a reported usage is taken to have used.

use playhouse_protocol::Tokens;
use playhouse_protocol::usage::{Quality, Usage};

/// Bytes of text that stand for one token in an estimate.
pub(crate) const BYTES_PER_TOKEN: u64 = 4;

/// The usage of an attempt that was cut: what the provider had reported until then, and an estimate of the rest.
pub(crate) fn estimated_usage(reported: Option<Usage>, estimated_input: u64, streamed_bytes: u64) -> Usage {
    let streamed = streamed_bytes.div_ceil(BYTES_PER_TOKEN);
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
