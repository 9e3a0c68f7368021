//! What a model can do, as far as requests depend on it.

use serde::{Deserialize, Serialize};

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

/// A level of reasoning, by rising depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// No reasoning at all.
    None,
    /// As little as the model can.
    Minimal,
    /// A little.
    Low,
    /// As most models do on their own.
    Medium,
    /// A lot.
    High,
    /// More than that.
    Xhigh,
    /// As much as the model can.
    Max,
}

impl Effort {
    /// All levels, by rising depth.
    pub const ALL: [Self; 7] =
        [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh, Self::Max];

    /// The level's name on every wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }

    /// The level of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effort| effort.name() == name)
    }
}

/// The budgets of reasoning that a model takes, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetRange {
    /// The least. Where it is 0, that turns reasoning off.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub min: u64,
    /// The most; `None` where only the output limit bounds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

impl BudgetRange {
    /// The budget that is taken and lies next to `tokens`. It is never 0.
    pub fn nearest(self, tokens: u64) -> u64 {
        tokens.min(self.max.unwrap_or(u64::MAX)).max(self.min).max(1)
    }
}

/// In which words a model takes it how much it is to think. A model may take levels, budgets, both, or neither: it then
/// thinks as it likes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReasoningForm {
    /// The levels that it takes.
    pub efforts: Vec<Effort>,
    /// The budgets that it takes.
    pub budget: Option<BudgetRange>,
}

impl ReasoningForm {
    /// The level that stands for `wanted`: the least one that is not below it, else the highest there is.
    ///
    /// ```
    /// use playhouse_protocol::capability::{Effort, ReasoningForm};
    /// let form = ReasoningForm { efforts: vec![Effort::High, Effort::Max], budget: None };
    /// assert_eq!(form.nearest(Effort::Low), Some(Effort::High));
    /// ```
    pub fn nearest(&self, wanted: Effort) -> Option<Effort> {
        let taken = || self.efforts.iter().copied();
        taken().filter(|effort| *effort >= wanted).min().or_else(|| taken().max())
    }
}

/// The field of an answer in which a server of Chat Completions wants to read its own reasoning again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningField {
    /// `reasoning_content`: the text.
    ReasoningContent,
    /// `reasoning_details`: a list of what came, with signatures and what is encrypted.
    ReasoningDetails,
}

impl ReasoningField {
    /// The field of this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "reasoning_content" => Some(Self::ReasoningContent),
            "reasoning_details" => Some(Self::ReasoningDetails),
            _ => None,
        }
    }
}

/// When a model thinks before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// When a request asks for it.
    #[default]
    OnRequest,
    /// Unless a request turns it off.
    ByDefault,
    /// Always; a request that turns it off is refused.
    Always,
}

/// When a server takes sampling parameters (`temperature`, `top_p`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// In every request.
    #[default]
    Always,
    /// In a request whose effort is `none`.
    WithoutReasoning,
    /// Never: it refuses them.
    Never,
}

/// What a model's own server accepts and refuses in a request. The default is that of most servers, and what is left out
/// where the rules are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequestRules {
    /// When it thinks.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub thinking: Thinking,
    /// Whether thinking is told in levels (`adaptive`) with a `display`, without which its text stays empty.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub display: bool,
    /// Whether thinking that comes back is bound to all that stood before it, and refused or dropped where that changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prefix_check: bool,
    /// When it takes sampling parameters.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub sampling: Sampling,
    /// Whether a request may demand a call of a tool.
    #[serde(skip_serializing_if = "is_yes")]
    pub forced_tool_choice: bool,
    /// Whether it goes on with an answer that the request begins for it (a trailing assistant message).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prefill: bool,
    /// Whether an answer may hold several calls.
    #[serde(skip_serializing_if = "is_yes")]
    pub parallel_calls: bool,
    /// Whether system messages may stand in the middle of a conversation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub system_messages: bool,
    /// Whether it is asked on OpenAI's Responses wire at OpenAI's own host.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub responses: bool,
    /// Whether it answers on Chat Completions at all.
    #[serde(skip_serializing_if = "is_yes")]
    pub chat: bool,
    /// Whether the system prompt goes first in `input` on Responses, since `instructions` are not cached.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub system_in_input: bool,
    /// Whether it searches tools that a request sends as deferred.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tool_search: bool,
}

impl Default for RequestRules {
    fn default() -> Self {
        Self {
            thinking: Thinking::default(),
            display: false,
            prefix_check: false,
            sampling: Sampling::default(),
            forced_tool_choice: true,
            prefill: false,
            parallel_calls: true,
            system_messages: false,
            responses: false,
            chat: true,
            system_in_input: false,
            tool_search: false,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_yes(value: &bool) -> bool {
    *value
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn files_are_accepted_by_kind() {
        let images = Modalities { image: true, pdf: false };
        assert!(images.accepts("image/png") && images.accepts("text/plain"));
        assert!(!images.accepts("application/pdf") && !images.accepts("audio/wav"));
    }

    #[test]
    fn levels_have_the_names_that_serde_gives_them_and_rise() {
        assert!(Effort::ALL.is_sorted());
        for effort in Effort::ALL {
            assert_eq!(serde_json::to_value(effort).unwrap(), effort.name());
            assert_eq!(Effort::named(effort.name()), Some(effort));
        }
        assert_eq!(Effort::named("extreme"), None);
        for name in ["reasoning_content", "reasoning_details"] {
            assert_eq!(serde_json::to_value(ReasoningField::named(name)).unwrap(), name);
        }
    }

    #[test]
    fn what_is_not_taken_becomes_what_is() {
        let nearest = |efforts: &[Effort], wanted| {
            ReasoningForm { efforts: efforts.to_vec(), budget: None }.nearest(wanted)
        };
        let pro = [Effort::Xhigh, Effort::Medium, Effort::High];
        assert_eq!(nearest(&pro, Effort::Low), Some(Effort::Medium));
        assert_eq!(nearest(&pro, Effort::Max), Some(Effort::Xhigh));
        assert_eq!(nearest(&[], Effort::Low), None);
        let range = BudgetRange { min: 512, max: Some(24_576) };
        assert_eq!([1, 600, 90_000].map(|tokens| range.nearest(tokens)), [512, 600, 24_576]);
        assert_eq!(BudgetRange::default().nearest(0), 1);
    }
}
