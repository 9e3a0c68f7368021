//! Command templates, as clients are told of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::ModelRef;

/// Whose a command template is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TemplateOwner {
    /// The operator's.
    Operator,
    /// The workspace's, which is not trusted.
    Workspace,
    /// A prompt of a server of tools (MCP).
    Server,
}

/// A command template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateFacts {
    /// Its name, without a `/`.
    pub name: String,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The agent that answers, where it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model that answers, where it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Whether another agent is given the work.
    pub subtask: bool,
    /// The text as it is written.
    pub template: String,
    /// What stands in it for what is typed: `$1`, `$2` and so on, and `$ARGUMENTS`.
    pub hints: Vec<String>,
    /// Whose it is.
    pub owner: TemplateOwner,
}

/// The command templates that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateList {
    /// Those that can be run, by name.
    pub commands: Vec<TemplateFacts>,
    /// Files that cannot be used, each with its line and what is wrong.
    pub refused: Vec<String>,
}
