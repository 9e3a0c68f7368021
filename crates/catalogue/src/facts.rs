//! What is known of one model.

use playhouse_protocol::capability::{Modalities, ReasoningField, ReasoningForm, RequestRules};
use playhouse_protocol::{Day, PriceList};

/// What is known of one model.
///
/// The default knows nothing: no room, no prices, text only, and the rules of most servers.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFacts {
    /// The context window in tokens: input and output together.
    pub context: u64,
    /// The most input tokens, where that is less than `context`.
    pub input: Option<u64>,
    /// The most output tokens of one answer.
    pub output: u64,
    /// Its prices, with those of long requests and the factors of service tiers, speeds, regions and hours.
    ///
    /// ```
    /// use playhouse_catalogue::Catalogue;
    /// use playhouse_protocol::ModelRef;
    /// let catalogue = Catalogue::builtin();
    /// let prices = &catalogue.get(&ModelRef::new("openai", "gpt-5.4")).unwrap().prices;
    /// assert_eq!(prices.at(272_000).input, Some("2.5".parse().unwrap()));
    /// assert_eq!(prices.at(272_001).input, Some("5".parse().unwrap()));
    /// ```
    pub prices: PriceList,
    /// What it reads beside text.
    pub modalities: Modalities,
    /// Whether it answers in text, as a conversation needs it: some models make images or sound only.
    pub text: bool,
    /// Whether it can think before it answers.
    pub reasoning: bool,
    /// In which words it is told how much to think; `None` where that is not known.
    pub reasoning_form: Option<ReasoningForm>,
    /// The field in which its server wants its reasoning back, on Chat Completions.
    pub reasoning_field: Option<ReasoningField>,
    /// Rules of its server for requests.
    pub rules: RequestRules,
    /// The day from which its provider does not serve it any more, where one is announced.
    pub ends: Option<Day>,
    /// The model of the same provider that is to be used after that.
    pub successor: Option<String>,
}

impl Default for ModelFacts {
    fn default() -> Self {
        Self {
            context: 0,
            input: None,
            output: 0,
            prices: PriceList::default(),
            modalities: Modalities::default(),
            text: true,
            reasoning: false,
            reasoning_form: None,
            reasoning_field: None,
            rules: RequestRules::default(),
            ends: None,
            successor: None,
        }
    }
}

impl ModelFacts {
    /// The most tokens that an answer should be asked for: `output`, but at most a quarter of the window, because servers
    /// refuse a request whose input and limit together exceed it.
    pub fn answer_limit(&self) -> u64 {
        self.output.min(self.context / 4)
    }

    /// Whether a conversation can be held with it, as far as is known: some models of a whole catalogue answer in images,
    /// or have no context.
    pub fn converses(&self) -> bool {
        self.text && self.context > 0 && self.output > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_leaves_room_for_what_is_asked() {
        let limit = |context, output| ModelFacts { context, output, ..ModelFacts::default() }.answer_limit();
        assert_eq!((limit(200_000, 64_000), limit(256_000, 256_000)), (50_000, 64_000));
    }
}
