//! Agents, models, tools, projects and files.

use std::collections::BTreeMap;

use playhouse_protocol::PermissionRule;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::facts::AgentMode;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) mode: AgentMode,
    pub(crate) native: bool,
    pub(crate) hidden: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) color: Option<String>,
    pub(crate) permission: Vec<PermissionRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<AgentModel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) variant: Option<String>,
    pub(crate) options: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) steps: Option<u32>,
}

/// A command template.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Command {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    pub(crate) source: &'static str,
    pub(crate) template: String,
    pub(crate) subtask: bool,
    pub(crate) hints: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct AgentModel {
    #[serde(rename = "providerID")]
    pub(crate) provider: String,
    #[serde(rename = "modelID")]
    pub(crate) model: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Provider {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) source: &'static str,
    /// Names of environment variables with keys: none are told.
    pub(crate) env: Vec<String>,
    pub(crate) options: Map<String, Value>,
    pub(crate) models: BTreeMap<String, Model>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Model {
    pub(crate) id: String,
    #[serde(rename = "providerID")]
    pub(crate) provider: String,
    pub(crate) api: ModelApi,
    pub(crate) name: String,
    pub(crate) capabilities: Capabilities,
    pub(crate) cost: ModelCost,
    pub(crate) limit: Limit,
    pub(crate) status: &'static str,
    pub(crate) options: Map<String, Value>,
    pub(crate) headers: Map<String, Value>,
    pub(crate) release_date: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ModelApi {
    pub(crate) id: String,
    pub(crate) url: String,
    pub(crate) npm: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Capabilities {
    pub(crate) temperature: bool,
    pub(crate) reasoning: bool,
    pub(crate) attachment: bool,
    pub(crate) toolcall: bool,
    pub(crate) input: Reads,
    pub(crate) output: Reads,
    pub(crate) interleaved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Reads {
    pub(crate) text: bool,
    pub(crate) audio: bool,
    pub(crate) image: bool,
    pub(crate) video: bool,
    pub(crate) pdf: bool,
}

/// US dollars per million tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ModelCost {
    pub(crate) input: f64,
    pub(crate) output: f64,
    pub(crate) cache: ModelCache,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tiers: Vec<ModelTier>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct ModelCache {
    pub(crate) read: f64,
    pub(crate) write: f64,
}

/// The prices of long requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ModelTier {
    pub(crate) input: f64,
    pub(crate) output: f64,
    pub(crate) cache: ModelCache,
    pub(crate) tier: Tier,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Tier {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) size: u64,
}

/// Tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Limit {
    pub(crate) context: u64,
    pub(crate) output: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ToolListItem {
    pub(crate) id: String,
    pub(crate) description: String,
    pub(crate) parameters: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Project {
    pub(crate) id: String,
    pub(crate) worktree: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vcs: Option<&'static str>,
    pub(crate) time: super::session::SessionTime,
    pub(crate) sandboxes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Path {
    pub(crate) home: String,
    pub(crate) state: String,
    pub(crate) config: String,
    pub(crate) worktree: String,
    pub(crate) directory: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Vcs {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) branch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_branch: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FileNode {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) absolute: String,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) ignored: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FileContent {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) encoding: Option<&'static str>,
    #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
    pub(crate) mime: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Text {
    pub(crate) text: String,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FoundText {
    pub(crate) path: Text,
    pub(crate) lines: Text,
    pub(crate) line_number: u64,
    /// Bytes of the file before the line.
    pub(crate) absolute_offset: u64,
    pub(crate) submatches: Vec<Submatch>,
}

/// Where in a line, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Submatch {
    #[serde(rename = "match")]
    pub(crate) found: Text,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// What git says of a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FileStatus {
    pub(crate) path: String,
    pub(crate) added: u64,
    pub(crate) removed: u64,
    pub(crate) status: &'static str,
}

/// The same in other words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct VcsChange {
    pub(crate) file: String,
    pub(crate) additions: u64,
    pub(crate) deletions: u64,
    pub(crate) status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) patch: Option<String>,
}
