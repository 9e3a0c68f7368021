//! How many tokens a request has: an estimate by its bytes, corrected by what the provider said of the last one.

use crate::settle::BYTES_PER_TOKEN;

/// A reported size is believed within these bounds: from half of the plain estimate to four times that. What text comes
/// to lies between, and a server that makes up its counts must not make the engine blind.
const LEAST: u128 = 2;
const MOST: u128 = 4;

/// What a provider said of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calibration {
    /// Bytes of its conversation.
    pub(crate) bytes: u64,
    /// All of its input.
    pub(crate) tokens: u64,
}

/// Turns bytes of a conversation into tokens of a request, and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauge {
    /// Tokens of the system prompt and the tools, as they are estimated.
    overhead: u64,
    /// By how much the plain estimate is wrong.
    times: u128,
    per: u128,
}

impl Gauge {
    pub(crate) fn new(overhead: u64, calibration: Option<Calibration>) -> Self {
        let Some(known) = calibration else { return Self { overhead, times: 1, per: 1 } };
        let plain = u128::from(known.bytes.div_ceil(BYTES_PER_TOKEN) + overhead).max(1);
        let times = u128::from(known.tokens).clamp(plain.div_ceil(LEAST), plain * MOST);
        Self { overhead, times, per: plain }
    }

    /// The same estimate without what a provider said.
    pub(crate) fn plain(&self) -> Self {
        Self::new(self.overhead, None)
    }

    /// Tokens of a request with so many bytes of conversation.
    pub(crate) fn tokens(&self, bytes: u64) -> u64 {
        let plain = u128::from(bytes.div_ceil(BYTES_PER_TOKEN)) + u128::from(self.overhead);
        u64::try_from((plain * self.times).div_ceil(self.per)).unwrap_or(u64::MAX)
    }

    /// Bytes of conversation that a request of so many tokens has room for.
    pub(crate) fn bytes(&self, tokens: u64) -> u64 {
        let plain = u128::from(tokens) * self.per / self.times;
        let bytes = plain.saturating_sub(u128::from(self.overhead)) * u128::from(BYTES_PER_TOKEN);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Tells whether a request has room, of which it is not known yet what precedes its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Bytes of the conversation.
    pub(crate) bytes: u64,
    /// Tokens that the request shall have at most.
    pub(crate) room: u64,
    pub(crate) calibration: Option<Calibration>,
}

impl Fit {
    /// Whether the request has room behind a system prompt and tools of so many bytes.
    pub fn is_within(&self, preceding: u64) -> bool {
        Gauge::new(preceding.div_ceil(BYTES_PER_TOKEN), self.calibration).tokens(self.bytes) <= self.room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bytes_are_a_token_until_a_provider_says_otherwise() {
        let gauge = Gauge::new(100, None);
        assert_eq!((gauge.tokens(400), gauge.bytes(200)), (200, 400));
        // It counted half as much again.
        let gauge = Gauge::new(100, Some(Calibration { bytes: 400, tokens: 300 }));
        assert_eq!((gauge.tokens(400), gauge.tokens(4_400)), (300, 1_800));
        assert_eq!(gauge.bytes(300), 400);
        assert_eq!(gauge.bytes(149), 0, "not even the prompt fits");
    }

    #[test]
    fn counts_that_cannot_be_are_believed_in_part() {
        let plain = Gauge::new(0, None);
        for (reported, expected) in [(1, 500), (499, 500), (700, 700), (4_001, 4_000), (u64::MAX, 4_000)] {
            let gauge = Gauge::new(0, Some(Calibration { bytes: 4_000, tokens: reported }));
            assert_eq!(gauge.tokens(4_000), expected);
        }
        assert_eq!(plain.tokens(u64::MAX), u64::MAX.div_ceil(4));
        assert_eq!(plain.bytes(u64::MAX), u64::MAX);
        let gauge = Gauge::new(0, Some(Calibration { bytes: 0, tokens: u64::MAX }));
        assert_eq!(gauge.tokens(400), 400);
    }

    #[test]
    fn what_has_room_fits() {
        for (overhead, calibration) in [(0, None), (777, Some((12_345, 4_321))), (3, Some((999, 7)))] {
            let calibration = calibration.map(|(bytes, tokens)| Calibration { bytes, tokens });
            let gauge = Gauge::new(overhead, calibration);
            for tokens in [1_000, 11_200, 140_001] {
                assert!(gauge.tokens(gauge.bytes(tokens)) <= tokens.max(gauge.tokens(0)));
            }
        }
    }
}
