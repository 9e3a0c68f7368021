//! What is known of one model.

use playhouse_protocol::Prices;
use serde::{Deserialize, Serialize};

/// What is known of one model.
///
/// The default knows nothing: no room, no prices, text only, a temperature allowed and no prefill.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFacts {
    /// The context window in tokens: input and output together.
    pub context: u64,
    /// The most input tokens, where that is less than `context`.
    pub input: Option<u64>,
    /// The most output tokens of one answer.
    pub output: u64,
    /// US dollars per million tokens; see [`ModelFacts::prices_at`] for long requests.
    pub prices: Prices,
    /// Prices of long requests, by rising threshold.
    pub long: Vec<LongContext>,
    /// What it reads beside text.
    pub modalities: Modalities,
    /// Whether it can think before it answers.
    pub reasoning: bool,
    /// Whether its server accepts a sampling temperature.
    pub temperature: bool,
    /// Whether it goes on with an answer that the request begins for it (a trailing assistant message).
    pub prefill: bool,
    /// Whether it answers on OpenAI's Responses wire only.
    pub responses: bool,
}

impl Default for ModelFacts {
    fn default() -> Self {
        Self {
            context: 0,
            input: None,
            output: 0,
            prices: Prices::default(),
            long: Vec::new(),
            modalities: Modalities::default(),
            reasoning: false,
            temperature: true,
            prefill: false,
            responses: false,
        }
    }
}

impl ModelFacts {
    /// The most tokens that an answer should be asked for: `output`, but at most half of the window, because servers
    /// refuse a request whose input and limit together exceed it.
    pub fn answer_limit(&self) -> u64 {
        self.output.min(self.context / 2)
    }

    /// The prices of a request with `input` input tokens (cached or not).
    ///
    /// ```
    /// use playhouse_catalogue::Catalogue;
    /// use playhouse_protocol::ModelRef;
    /// let catalogue = Catalogue::builtin();
    /// let facts = catalogue.get(&ModelRef::new("openai", "gpt-5.4")).unwrap();
    /// assert_eq!(facts.prices_at(272_000).input, Some("2.5".parse().unwrap()));
    /// assert_eq!(facts.prices_at(272_001).input, Some("5".parse().unwrap()));
    /// ```
    pub fn prices_at(&self, input: u64) -> Prices {
        self.long.iter().rev().find(|tier| input > tier.above).map_or(self.prices, |tier| tier.prices)
    }
}

/// What a request costs that has more input tokens than a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongContext {
    /// The threshold: these prices hold for more input tokens than this.
    pub above: u64,
    /// The prices, for the whole request.
    pub prices: Prices,
}

/// What a model reads beside text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modalities {
    /// Images.
    pub image: bool,
    /// PDF documents.
    pub pdf: bool,
}

impl Modalities {
    /// The names that [`Modalities::named`] knows.
    pub const NAMES: [&'static str; 2] = ["image", "pdf"];

    /// The same with the one called `name` added; `None` for a name that is not in [`Modalities::NAMES`].
    #[must_use]
    pub fn named(mut self, name: &str) -> Option<Self> {
        match name {
            "image" => self.image = true,
            "pdf" => self.pdf = true,
            _ => return None,
        }
        Some(self)
    }

    /// The names of what is read, as in [`Modalities::NAMES`].
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let reads = [self.image, self.pdf];
        Self::NAMES.into_iter().zip(reads).filter_map(|(name, reads)| reads.then_some(name))
    }

    /// Whether a file of media type `mime` can be sent as it is.
    pub fn accepts(self, mime: &str) -> bool {
        mime.starts_with("text/")
            || (self.image && mime.starts_with("image/"))
            || (self.pdf && mime == "application/pdf")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_threshold_that_is_passed_counts() {
        let price = |text: &str| Prices { input: Some(text.parse().unwrap()), ..Prices::default() };
        let facts = ModelFacts {
            prices: price("1"),
            long: vec![
                LongContext { above: 100, prices: price("2") },
                LongContext { above: 200, prices: price("3") },
            ],
            ..ModelFacts::default()
        };
        let at = |input| facts.prices_at(input);
        assert_eq!([at(100), at(101), at(200), at(201)], [price("1"), price("2"), price("2"), price("3")]);
    }

    #[test]
    fn every_listed_modality_is_known() {
        for name in Modalities::NAMES {
            assert!(Modalities::default().named(name).is_some(), "{name}");
        }
        assert_eq!(Modalities::default().named("smell"), None);
        let all = Modalities { image: true, pdf: true };
        assert!(all.names().eq(Modalities::NAMES) && Modalities::default().names().next().is_none());
    }

    #[test]
    fn an_answer_leaves_room_for_what_is_asked() {
        let limit = |context, output| ModelFacts { context, output, ..ModelFacts::default() }.answer_limit();
        assert_eq!((limit(200_000, 64_000), limit(256_000, 256_000)), (64_000, 128_000));
    }

    #[test]
    fn files_are_accepted_by_kind() {
        let images = Modalities { image: true, pdf: false };
        assert!(images.accepts("image/png") && images.accepts("text/plain"));
        assert!(!images.accepts("application/pdf") && !images.accepts("audio/wav"));
    }
}
