//! What clients may know of agents, tools and models.

use std::collections::BTreeMap;
use std::path::Path;

use playhouse_protocol::capability::Modalities;
use playhouse_protocol::consent::Risk;
use playhouse_protocol::usage::{LongContext, PriceList, Prices};
use playhouse_protocol::{ModelRef, PermissionRule};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

/// Where an agent may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentMode {
    /// By people.
    Primary,
    /// By other agents.
    Subagent,
    /// By both.
    All,
}

/// Where an agent comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentOrigin {
    /// It comes with the engine.
    Builtin,
    /// The operator's.
    Operator,
    /// The workspace's own.
    Workspace,
}

/// A file of a workspace that cannot be used as an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RefusedAgent {
    /// The name of its agent, as far as it is known.
    pub name: String,
    /// File and line, and what is wrong there.
    pub error: String,
}

/// The agents that there are for sessions in a workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct AgentList {
    /// The agents, hidden ones included, the usual one first.
    pub agents: Vec<AgentFacts>,
    /// Files of the workspace that cannot be used as one.
    pub refused: Vec<RefusedAgent>,
}

/// An agent, as clients may know it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AgentFacts {
    /// Its name.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Where it may be used.
    pub mode: AgentMode,
    /// Where it comes from.
    pub origin: AgentOrigin,
    /// Whether lists leave it out.
    pub hidden: bool,
    /// A colour for it, as `#rrggbb` or a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    /// How much its model thinks: `low`, `medium`, `high` or the most tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Whether it can change nothing in the workspace.
    pub read_only: bool,
    /// The tools that it may call; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The model that it wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// The most steps of a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// Its own rules, which opencode's clients are told.
    #[serde(skip)]
    pub permissions: Vec<PermissionRule>,
}

/// A tool, as clients may know it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ToolView {
    /// Its name.
    pub name: String,
    /// What a model is told of it.
    pub description: String,
    /// The JSON Schema of its arguments.
    #[schemars(with = "Map<String, Value>")]
    pub parameters: Value,
    /// How dangerous it is.
    pub risk: Risk,
    /// What rules call it.
    pub permission: String,
    /// Where it comes from; absent for tools that come with the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<ToolKind>,
}

/// Where a tool comes from that does not come with the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// A server of the Model Context Protocol.
    Mcp,
    /// The platform, which registered it.
    Host,
    /// A capture tool.
    Capture,
}

/// A model, as clients may know it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ModelView {
    /// Provider and model.
    pub model: ModelRef,
    /// What people call it.
    pub name: String,
    /// Its context window, in tokens.
    pub context: u64,
    /// The most tokens of an answer.
    pub output: u64,
    /// Whether it thinks before it answers.
    pub reasoning: bool,
    /// Whether it takes a temperature.
    pub temperature: bool,
    /// What it reads beside text.
    #[serde(serialize_with = "names")]
    #[schemars(schema_with = "names_schema")]
    pub modalities: Modalities,
    /// Its prices. Those of long requests stand beside the usual ones, as `long`.
    #[serde(serialize_with = "price_list")]
    #[schemars(with = "PriceListView<'static>")]
    pub prices: PriceList,
    /// When it came out, as `2026-07-04`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released: Option<String>,
}

fn names<S: Serializer>(modalities: &Modalities, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(modalities.names())
}

fn names_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "enum": Modalities::NAMES}})
}

/// US dollars per million tokens. What is absent is unknown.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PriceListView<'a> {
    #[serde(flatten)]
    usual: &'a Prices,
    /// Prices of requests with more input tokens than a threshold.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    long: &'a [LongContext],
}

fn price_list<S: Serializer>(list: &PriceList, serializer: S) -> Result<S::Ok, S::Error> {
    PriceListView { usual: &list.usual, long: &list.long }.serialize(serializer)
}

/// Something that a running engine found a provider to refuse: requests go without it until the engine ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// What it is, in words.
    pub finding: String,
    /// The line of the configuration that says the same, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
}

/// A provider, as clients may know it: no address, no key.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ProviderView {
    /// Its name.
    pub id: String,
    /// Whether it can be used: its key is there, or it needs none.
    pub connected: bool,
    /// Its models, by name.
    pub models: Vec<ModelView>,
}

/// What clients may know of agents, tools and models. Its methods are fast, and do no I/O beyond a look whether a file has
/// changed, unless they say so.
pub trait Facts: Send + Sync {
    /// The agents that there are in every workspace, hidden ones included, the usual one first.
    fn agents(&self) -> Vec<AgentFacts>;

    /// The agents that there are for sessions in `workspace`, with those that it has of its own. Reads files: it is called
    /// where that may block.
    fn agents_in(&self, workspace: &Path) -> AgentList;

    /// The tools.
    fn tools(&self) -> Vec<ToolView>;

    /// The providers that are known.
    fn providers(&self) -> Vec<ProviderView>;

    /// What was found of requests to models, by `PROVIDER/MODEL`, since the engine began.
    fn findings(&self) -> BTreeMap<String, Vec<Found>> {
        BTreeMap::new()
    }

    /// The model of sessions that name none.
    fn default_model(&self) -> Option<ModelRef>;

    /// The engine's version.
    fn version(&self) -> &str;
}
