//! What a request holds beside the conversation.

use std::sync::Arc;

use playhouse_protocol::chat::ToolSpec;
use serde::{Deserialize, Serialize};

/// What stays the same in all requests of one agent and model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// The model, as the provider knows it.
    pub model: String,
    /// The system prompt.
    pub system: String,
    /// The tools that the model is shown.
    pub tools: Arc<[ToolSpec]>,
    /// The most tokens that an answer may have.
    pub max_output: u64,
    /// How the server wants to be told of `max_output`. Only Chat Completions has a choice.
    pub output_limit_field: OutputLimitField,
    /// Sampling temperature, where it is set.
    pub temperature: Option<f64>,
    /// Nucleus sampling: the share of probability that is sampled from, where it is set.
    pub top_p: Option<f64>,
    /// How much the model thinks before it answers. `None` leaves it to the model's default, and for a model that does
    /// not think.
    pub reasoning: Option<Reasoning>,
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

/// A level of reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// A little.
    Low,
    /// As most models do on their own.
    Medium,
    /// A lot.
    High,
}

impl Effort {
    /// The level's name on every wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// The budget that stands for it where a wire knows budgets only.
    pub(crate) fn budget(self) -> u64 {
        match self {
            Self::Low => 4_096,
            Self::Medium => 12_288,
            // The most that all models with budgets take.
            Self::High => 24_576,
        }
    }
}

impl Reasoning {
    /// The level, also where a wire knows levels only.
    pub(crate) fn effort(self) -> Effort {
        match self {
            Self::Effort(effort) => effort,
            Self::Budget(tokens) => {
                let fits = |effort: &Effort| tokens <= effort.budget();
                [Effort::Low, Effort::Medium].into_iter().find(fits).unwrap_or(Effort::High)
            }
        }
    }

    /// The budget, also where a wire knows budgets only.
    pub(crate) fn budget(self) -> u64 {
        match self {
            Self::Effort(effort) => effort.budget(),
            Self::Budget(tokens) => tokens,
        }
    }
}

/// The field of a Chat Completions request that limits the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// A text at the end of one request that is no part of the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reminder {
    /// As the beginning of the model's own answer. Where dialect or reasoning exclude that, as the user's words.
    Assistant(String),
    /// As the user's words, for models that refuse to go on with an answer.
    User(String),
}
