//! What a request holds beside the conversation.

use playhouse_protocol::capability::{
    BudgetRange, Effort, Modalities, ReasoningField, ReasoningForm, RequestRules, Sampling, Thinking,
};
use serde::{Deserialize, Serialize};

use crate::adjust::{Adjustments, Parameter};
use crate::dialect::DialectKind;
use crate::toolset::Toolset;

/// What stays the same in all requests of one agent and model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// The model, as the provider knows it.
    pub model: String,
    /// The system prompt.
    pub system: String,
    /// The tools that the model is shown.
    pub tools: Toolset,
    /// The most tokens that an answer may have.
    pub max_output: u64,
    /// What the server takes, if it is one of Chat Completions; the other dialects leave no choice.
    pub chat: ChatFacts,
    /// Sampling temperature, where it is set.
    pub temperature: Option<f64>,
    /// Nucleus sampling: the share of probability that is sampled from, where it is set.
    pub top_p: Option<f64>,
    /// What the model reads beside text. Where a file of another kind would be, it reads a note.
    pub modalities: Modalities,
    /// Whether the model can think before it answers. Responses asks such models for their reasoning, encrypted, to send it
    /// back; others refuse to be asked.
    pub reasons: bool,
    /// How much the model is wanted to think before it answers. `None` leaves it to the model's default, and for a model
    /// that does not think.
    pub reasoning: Option<Reasoning>,
    /// In which words the model takes that; `None` where it is not known: then in the words that most models of the
    /// dialect take.
    pub reasoning_form: Option<ReasoningForm>,
    /// Rules of its server for requests.
    pub rules: RequestRules,
    /// Whether its provider is asked to leave out reasoning that does not hold any more instead of refusing the request. For
    /// the provider's own server only: others may not know the field.
    pub drop_stale_reasoning: bool,
    /// What requests do without, since the server was found to refuse it: see [`Head::adjusted`].
    pub adjustments: Adjustments,
    /// What requests that share their beginning have in common (the session's id): the two OpenAI dialects send it as
    /// `prompt_cache_key`. `None` for servers that refuse fields they do not know.
    pub cache_key: Option<String>,
}

/// How much a model thinks before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    /// A level.
    Effort(Effort),
    /// At most so many tokens.
    Budget(u64),
}

impl Reasoning {
    /// The level, also where a wire knows levels only.
    fn effort(self) -> Effort {
        match self {
            Self::Effort(effort) => effort,
            Self::Budget(tokens) => {
                let fits = |effort: &Effort| tokens <= budget_of(*effort);
                [Effort::Low, Effort::Medium].into_iter().find(fits).unwrap_or(Effort::High)
            }
        }
    }

    /// The budget, also where a wire knows budgets only.
    fn budget(self) -> u64 {
        match self {
            Self::Effort(effort) => budget_of(effort),
            Self::Budget(tokens) => tokens,
        }
    }
}

/// The budget that stands for a level, in tokens.
fn budget_of(effort: Effort) -> u64 {
    match effort {
        Effort::None => 0,
        Effort::Minimal => 1_024,
        Effort::Low => 4_096,
        Effort::Medium => 12_288,
        // The most that all models with budgets take.
        Effort::High | Effort::Xhigh | Effort::Max => 24_576,
    }
}

/// What a wire has words for, and which of them it would rather say.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Words {
    /// Levels alone.
    Efforts,
    /// Budgets alone.
    Budgets,
    /// Each in its own words.
    Both,
    /// Both; but a level becomes a budget where the model takes one.
    BudgetsFirst,
}

/// The least budget that every model takes which takes any.
const LEAST_BUDGET: BudgetRange = BudgetRange { min: 1_024, max: None };
/// What a budget leaves of the output limit at least: the limit holds for both.
const ROOM_FOR_THE_ANSWER: u64 = 1_024;

impl Head {
    /// How much the model is told to think, in words that the wire has and the model takes. `None` where nothing is said:
    /// nothing is wanted, the model takes no such words, or there is no room for a budget.
    ///
    /// A budget of 0, and the level `none`, turn reasoning off.
    pub(crate) fn told_reasoning(&self, words: Words) -> Option<Reasoning> {
        let wanted = self.reasoning.filter(|_| !self.adjustments.omits(Parameter::Reasoning))?;
        let form = self.reasoning_form.as_ref();
        let efforts = words != Words::Budgets && form.is_none_or(|form| !form.efforts.is_empty());
        let budgets = words != Words::Efforts && form.is_none_or(|form| form.budget.is_some());
        let by_effort = match wanted {
            Reasoning::Effort(_) => efforts && !(budgets && words == Words::BudgetsFirst),
            Reasoning::Budget(_) => efforts && !budgets,
        };
        if by_effort {
            let effort = wanted.effort();
            return form.map_or(Some(effort), |form| form.nearest(effort)).map(Reasoning::Effort);
        }
        let range = form.map_or(Some(LEAST_BUDGET), |form| form.budget).filter(|_| budgets)?;
        if wanted == Reasoning::Effort(Effort::None) && range.min == 0 {
            return Some(Reasoning::Budget(0));
        }
        let room = self.max_output.saturating_sub(ROOM_FOR_THE_ANSWER);
        let budget = range.nearest(wanted.budget()).min(room);
        (budget >= range.min.max(1)).then_some(Reasoning::Budget(budget))
    }

    /// The level that is wanted and the one that the model has in its place, where these are not the same.
    pub fn mapped_effort(&self, dialect: DialectKind) -> Option<(Effort, Effort)> {
        let Reasoning::Effort(wanted) = self.reasoning? else { return None };
        // Anthropic has another word for that.
        let can_be_off = dialect == DialectKind::Anthropic && self.rules.thinking != Thinking::Always;
        if wanted == Effort::None && can_be_off {
            return None;
        }
        let nearest = self.reasoning_form.as_ref()?.nearest(wanted)?;
        (nearest != wanted).then_some((wanted, nearest))
    }

    /// Temperature and nucleus sampling, as far as the server takes them in a request that is `told` to think so much.
    pub(crate) fn sampling(&self, told: Option<Reasoning>) -> [(&'static str, Option<f64>); 2] {
        let is_taken = match self.rules.sampling {
            Sampling::Always => true,
            Sampling::WithoutReasoning => told == Some(Reasoning::Effort(Effort::None)),
            Sampling::Never => false,
        };
        [("temperature", self.temperature), ("top_p", self.top_p)]
            .map(|(name, value)| (name, value.filter(|value| is_taken && value.is_finite())))
    }
}

/// What a server of Chat Completions takes: those that are compatible with OpenAI's differ in this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatFacts {
    /// How it is told of the most tokens of an answer.
    pub output_limit_field: OutputLimitField,
    /// Whether it is asked for usage with `stream_options`. A server that refuses the field reports usage unasked, or not
    /// at all.
    pub stream_options: bool,
    /// In which field answers go back with their reasoning. Some servers refuse a conversation with calls where it is
    /// missing, others one where it is there.
    pub reasoning_field: Option<ReasoningField>,
    /// In which words it is told how much to think.
    pub reasoning_words: ReasoningWords,
    /// Which ids of calls it takes.
    pub call_ids: CallIdForm,
    /// Whether it takes a message of the user directly after results. For one that does not, a short answer of the model
    /// stands between them.
    pub user_after_results: bool,
}

impl ChatFacts {
    /// `max_tokens`, `stream_options`, `reasoning_effort` and nothing of the reasoning back, the usual ids, messages in any
    /// order: what most servers take.
    pub const USUAL: Self = Self {
        output_limit_field: OutputLimitField::MaxTokens,
        stream_options: true,
        reasoning_field: None,
        reasoning_words: ReasoningWords::Effort,
        call_ids: CallIdForm::Usual,
        user_after_results: true,
    };
}

impl Default for ChatFacts {
    fn default() -> Self {
        Self::USUAL
    }
}

/// How a server of Chat Completions is told how much to think.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReasoningWords {
    /// A level, as `reasoning_effort`.
    #[default]
    Effort,
    /// A level or a budget, as `effort` or `max_tokens` in an object `reasoning`.
    Object,
    /// A budget, as `thinking_budget` beside `enable_thinking`.
    ThinkingBudget,
}

/// The ids of calls that a server of Chat Completions takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallIdForm {
    /// Up to 40 letters, digits, `_` and `-`.
    #[default]
    Usual,
    /// Exactly nine letters and digits.
    NineAlphanumeric,
}

/// The field of a Chat Completions request that limits the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputLimitField {
    /// `max_tokens`: what compatible servers know.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`: what OpenAI's own server wants.
    MaxCompletionTokens,
}

/// Whether the model may call tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// Not in this answer.
    None,
}
