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
    /// As the beginning of the model's own answer.
    Assistant(String),
    /// As the user's words, for models that refuse to go on with an answer.
    User(String),
}
