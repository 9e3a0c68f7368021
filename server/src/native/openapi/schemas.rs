//! Schemas of Rust types, as they stand in `components.schemas`.

use std::collections::BTreeMap;

use playhouse_protocol::changes::{
    ChangeKind, ChangeSource, ChangedFile, ChangedFolder, Coverage, FileContent, FileImage, TouchedFile,
    WorkspaceChanged,
};
use playhouse_protocol::consent::{Action, Risk};
use playhouse_protocol::event::{ChangeAuthor, ChangedPath, FilesChanged, Provisional};
use playhouse_protocol::ledger::{RepriceReport, RepriceRequest};
use playhouse_protocol::message::{CallInput, Changed};
use playhouse_protocol::output::WantedOutput;
use playhouse_protocol::question::{Todo, TodoPriority, TodoStatus};
use playhouse_protocol::revert::{
    LeftFile, RevertPoint, RevertReport, RevertRequest, SessionReverted, UnrevertRequest,
};
use playhouse_protocol::template::{TemplateFacts, TemplateList, TemplateOwner};
use playhouse_protocol::tool::ToolOrigin;
use playhouse_protocol::upkeep::SalvagedSession;
use playhouse_protocol::usage::{Cost, LongContext, Prices, Tokens, Totals};
use playhouse_protocol::{
    Accepted, CallAnswer, CallOffered, ConsentId, Damage, KeyRef, Limit, MessageId, ModelRef, PartId,
    PermissionRule, QuestionId, Record, SessionId, Timestamp,
};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::operation::SchemaOf;
use crate::facts::{
    AgentFacts, AgentList, AgentMode, AgentOrigin, Found, ModelView, PriceListView, ProviderView,
    RefusedAgent, ToolKind, ToolView,
};
use crate::native::artifacts::{ArtifactView, Artifacts};
use crate::native::calls::{ToolCallBody, WhenCallBusy};
use crate::native::facts::Models;
use crate::native::grants::{GrantView, Grants};
use crate::native::host_tools::{CallResultBody, ToolDelivery, ToolRegistration, Tools, WebhookBody};
use crate::native::limits::LimitList;
use crate::native::lsp::{
    LspDiagnosed, LspDiagnosis, LspProblem, LspServerList, LspServerView, LspSeverity, LspStanding,
};
use crate::native::mcp::login::{McpLogin, McpLoginEnd, McpLoginWish};
use crate::native::mcp::{McpPlace, McpServerList, McpServerView, McpStanding, RefusedTool};
use crate::native::sessions::{SessionPage, SessionView, Stands, Todos};
use crate::native::usage::rows::{LedgerRowView, LedgerRows};
use crate::problem::ProblemDocument;

/// Where the schemas stand in the file.
const PLACE: &str = "#/components/schemas/";

/// The types that an event may have.
pub(super) fn event_types() -> Value {
    let unknown = json!({"type": "?"});
    let listed = |error: serde_json::Error| {
        let error = error.to_string();
        let (_, kinds) = error.split_once("expected one of ").expect("serde lists the kinds");
        kinds.split('`').skip(1).step_by(2).map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(", ")
    };
    let durable = listed(serde_json::from_value::<Record>(unknown.clone()).unwrap_err());
    let provisional = listed(serde_json::from_value::<Provisional>(unknown).unwrap_err());
    json!({
        "type": "string",
        "description": format!("{durable} for durable events; {provisional} for provisional ones."),
    })
}

/// Who writes a value, on which depends what may be absent. A type that goes both ways is a [`Direction::Request`]: what a
/// client may leave out need not be required of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Clients: the schema of what serde reads.
    Request,
    /// The server: the schema of what serde writes.
    Answer,
}

use Direction::{Answer, Request};

/// The generated schemas: the name in `components.schemas`, the direction, and the type. A type that another one here holds
/// is listed too, unless its schema is inlined.
pub(super) const TYPES: &[(&str, Direction, SchemaOf)] = &[
    ("SessionId", Request, SchemaGenerator::subschema_for::<SessionId>),
    ("MessageId", Request, SchemaGenerator::subschema_for::<MessageId>),
    ("PartId", Request, SchemaGenerator::subschema_for::<PartId>),
    ("ConsentId", Request, SchemaGenerator::subschema_for::<ConsentId>),
    ("QuestionId", Request, SchemaGenerator::subschema_for::<QuestionId>),
    ("Timestamp", Request, SchemaGenerator::subschema_for::<Timestamp>),
    ("Model", Request, SchemaGenerator::subschema_for::<ModelRef>),
    ("Cost", Answer, SchemaGenerator::subschema_for::<Cost>),
    ("Limit", Answer, SchemaGenerator::subschema_for::<Limit>),
    ("LimitList", Answer, SchemaGenerator::subschema_for::<LimitList>),
    ("Problem", Answer, SchemaGenerator::subschema_for::<ProblemDocument<'_>>),
    ("Session", Answer, SchemaGenerator::subschema_for::<SessionView>),
    ("SessionState", Answer, SchemaGenerator::subschema_for::<Stands>),
    ("SalvagedSession", Answer, SchemaGenerator::subschema_for::<SalvagedSession>),
    ("SessionPage", Answer, SchemaGenerator::subschema_for::<SessionPage>),
    ("Artifacts", Answer, SchemaGenerator::subschema_for::<Artifacts>),
    ("Artifact", Answer, SchemaGenerator::subschema_for::<ArtifactView>),
    ("Changed", Answer, SchemaGenerator::subschema_for::<Changed>),
    ("Tokens", Answer, SchemaGenerator::subschema_for::<Tokens>),
    ("Totals", Answer, SchemaGenerator::subschema_for::<Totals>),
    ("Agents", Answer, SchemaGenerator::subschema_for::<AgentList>),
    ("Agent", Answer, SchemaGenerator::subschema_for::<AgentFacts>),
    ("AgentMode", Answer, SchemaGenerator::subschema_for::<AgentMode>),
    ("AgentOrigin", Answer, SchemaGenerator::subschema_for::<AgentOrigin>),
    ("RefusedAgent", Answer, SchemaGenerator::subschema_for::<RefusedAgent>),
    ("Tools", Answer, SchemaGenerator::subschema_for::<Tools>),
    ("Tool", Answer, SchemaGenerator::subschema_for::<ToolView>),
    ("ToolKind", Answer, SchemaGenerator::subschema_for::<ToolKind>),
    ("ToolRegistration", Request, SchemaGenerator::subschema_for::<ToolRegistration>),
    ("Webhook", Request, SchemaGenerator::subschema_for::<WebhookBody>),
    ("ToolDelivery", Request, SchemaGenerator::subschema_for::<ToolDelivery>),
    ("ToolCall", Request, SchemaGenerator::subschema_for::<ToolCallBody>),
    ("WhenCallBusy", Request, SchemaGenerator::subschema_for::<WhenCallBusy>),
    ("Accepted", Answer, SchemaGenerator::subschema_for::<Accepted>),
    ("GivenResult", Request, SchemaGenerator::subschema_for::<CallResultBody>),
    ("FileContent", Answer, SchemaGenerator::subschema_for::<FileContent>),
    ("FileImage", Answer, SchemaGenerator::subschema_for::<FileImage>),
    ("ChangeKind", Answer, SchemaGenerator::subschema_for::<ChangeKind>),
    ("ChangedFile", Answer, SchemaGenerator::subschema_for::<ChangedFile>),
    ("ChangedFolder", Answer, SchemaGenerator::subschema_for::<ChangedFolder>),
    ("ChangeSource", Answer, SchemaGenerator::subschema_for::<ChangeSource>),
    ("Coverage", Answer, SchemaGenerator::subschema_for::<Coverage>),
    ("WorkspaceChanged", Answer, SchemaGenerator::subschema_for::<WorkspaceChanged>),
    ("FilesChanged", Answer, SchemaGenerator::subschema_for::<FilesChanged>),
    ("ChangeAuthor", Answer, SchemaGenerator::subschema_for::<ChangeAuthor>),
    ("ChangedPath", Answer, SchemaGenerator::subschema_for::<ChangedPath>),
    ("RevertRequest", Request, SchemaGenerator::subschema_for::<RevertRequest>),
    ("UnrevertRequest", Request, SchemaGenerator::subschema_for::<UnrevertRequest>),
    ("LeftFile", Answer, SchemaGenerator::subschema_for::<LeftFile>),
    ("RevertReport", Answer, SchemaGenerator::subschema_for::<RevertReport>),
    ("RevertPoint", Answer, SchemaGenerator::subschema_for::<RevertPoint>),
    ("SessionReverted", Answer, SchemaGenerator::subschema_for::<SessionReverted>),
    ("TouchedFile", Answer, SchemaGenerator::subschema_for::<TouchedFile>),
    ("CallOffered", Answer, SchemaGenerator::subschema_for::<CallOffered>),
    ("CallInput", Answer, SchemaGenerator::subschema_for::<CallInput>),
    ("CallAnswer", Answer, SchemaGenerator::subschema_for::<CallAnswer>),
    ("Risk", Answer, SchemaGenerator::subschema_for::<Risk>),
    ("LspServers", Answer, SchemaGenerator::subschema_for::<LspServerList>),
    ("LspServer", Answer, SchemaGenerator::subschema_for::<LspServerView>),
    ("LspStanding", Answer, SchemaGenerator::subschema_for::<LspStanding>),
    ("LspDiagnosis", Answer, SchemaGenerator::subschema_for::<LspDiagnosis>),
    ("LspDiagnosed", Answer, SchemaGenerator::subschema_for::<LspDiagnosed>),
    ("LspProblem", Answer, SchemaGenerator::subschema_for::<LspProblem>),
    ("LspSeverity", Answer, SchemaGenerator::subschema_for::<LspSeverity>),
    ("McpServers", Answer, SchemaGenerator::subschema_for::<McpServerList>),
    ("McpServer", Answer, SchemaGenerator::subschema_for::<McpServerView>),
    ("McpLoginWish", Request, SchemaGenerator::subschema_for::<McpLoginWish>),
    ("McpLogin", Answer, SchemaGenerator::subschema_for::<McpLogin>),
    ("McpLoginEnd", Request, SchemaGenerator::subschema_for::<McpLoginEnd>),
    ("McpStanding", Answer, SchemaGenerator::subschema_for::<McpStanding>),
    ("RefusedTool", Answer, SchemaGenerator::subschema_for::<RefusedTool>),
    ("McpPlace", Request, SchemaGenerator::subschema_for::<McpPlace>),
    ("WantedOutput", Request, SchemaGenerator::subschema_for::<WantedOutput>),
    ("ToolOrigin", Answer, SchemaGenerator::subschema_for::<ToolOrigin>),
    ("Models", Answer, SchemaGenerator::subschema_for::<Models>),
    ("Provider", Answer, SchemaGenerator::subschema_for::<ProviderView>),
    ("ModelFacts", Answer, SchemaGenerator::subschema_for::<ModelView>),
    ("Finding", Answer, SchemaGenerator::subschema_for::<Found>),
    ("PriceList", Answer, SchemaGenerator::subschema_for::<PriceListView<'_>>),
    ("LongContext", Answer, SchemaGenerator::subschema_for::<LongContext>),
    ("Prices", Answer, SchemaGenerator::subschema_for::<Prices>),
    ("Commands", Answer, SchemaGenerator::subschema_for::<TemplateList>),
    ("CommandTemplate", Answer, SchemaGenerator::subschema_for::<TemplateFacts>),
    ("TemplateOwner", Answer, SchemaGenerator::subschema_for::<TemplateOwner>),
    ("Todos", Answer, SchemaGenerator::subschema_for::<Todos>),
    ("Todo", Answer, SchemaGenerator::subschema_for::<Todo>),
    ("TodoStatus", Answer, SchemaGenerator::subschema_for::<TodoStatus>),
    ("TodoPriority", Answer, SchemaGenerator::subschema_for::<TodoPriority>),
    ("Damage", Answer, SchemaGenerator::subschema_for::<Damage>),
    ("LedgerRows", Answer, SchemaGenerator::subschema_for::<LedgerRows>),
    ("LedgerRow", Answer, SchemaGenerator::subschema_for::<LedgerRowView>),
    ("RepriceRequest", Request, SchemaGenerator::subschema_for::<RepriceRequest>),
    ("RepriceReport", Answer, SchemaGenerator::subschema_for::<RepriceReport>),
    ("KeyRef", Answer, SchemaGenerator::subschema_for::<KeyRef>),
    ("Grants", Answer, SchemaGenerator::subschema_for::<Grants>),
    ("Grant", Answer, SchemaGenerator::subschema_for::<GrantView>),
    ("Rule", Request, SchemaGenerator::subschema_for::<PermissionRule>),
    ("Action", Request, SchemaGenerator::subschema_for::<Action>),
];

/// The schemas of [`TYPES`], and what makes further ones that refer to them.
pub(crate) struct Schemas {
    requests: SchemaGenerator,
    answers: SchemaGenerator,
    /// References as `schemars` writes them, by the name of a Rust type, with those of the file.
    references: BTreeMap<String, String>,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings =
            || SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = PLACE[1..].into());
        let mut schemas = Self {
            requests: settings().into_generator(),
            answers: settings().for_serialize().into_generator(),
            references: BTreeMap::new(),
        };
        for (name, _, schema) in TYPES {
            for direction in [Request, Answer] {
                let schema = schema(schemas.generator(direction)).to_value();
                let reference = schema["$ref"].as_str().unwrap_or_else(|| panic!("{name} is inlined"));
                let known = schemas.references.insert(reference.to_owned(), format!("{PLACE}{name}"));
                assert!(known.is_none_or(|known| known == format!("{PLACE}{name}")), "{name} stands twice");
            }
        }
        schemas
    }

    fn generator(&mut self, direction: Direction) -> &mut SchemaGenerator {
        match direction {
            Request => &mut self.requests,
            Answer => &mut self.answers,
        }
    }

    /// The schema of a type, in the form of the file.
    pub(crate) fn of(&mut self, direction: Direction, schema: SchemaOf) -> Value {
        let mut schema = schema(self.generator(direction)).to_value();
        self.adapt(direction, &mut schema);
        schema
    }

    /// The schema that `schema` refers to; itself where it refers to none.
    pub(crate) fn resolve(&mut self, schema: &Value) -> Value {
        let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix(PLACE)) else {
            return schema.clone();
        };
        let (_, direction, of) = TYPES.iter().find(|(listed, ..)| *listed == name).unwrap();
        self.definition(*direction, *of)
    }

    fn definition(&mut self, direction: Direction, of: SchemaOf) -> Value {
        let generator = self.generator(direction);
        let reference = of(generator).to_value()["$ref"].as_str().unwrap().to_owned();
        let mut schema = generator.definitions()[&reference[PLACE.len()..]].clone();
        self.adapt(direction, &mut schema);
        schema
    }

    /// Name and schema of each type, as the file has them.
    pub(super) fn all(&mut self) -> Vec<(&'static str, Value)> {
        TYPES.iter().map(|(name, direction, of)| (*name, self.definition(*direction, *of))).collect()
    }

    /// Makes a schema of `schemars` one of the file, with all schemas in it:
    /// - references name what stands in the file
    /// - an enumeration of names is `enum`, with what they mean in its description
    /// - objects take no other properties than theirs, where they do not say otherwise
    /// - what may be absent from an answer is not `null`, and the defaults of answers are of no matter
    /// - formats of Rust's numbers are left out
    ///
    /// # Panics
    /// If a type is used that is not listed, or an object has its properties in several places (an internally tagged variant
    /// that refers to a type, a flattened enumeration): as each place is closed, no value would fit.
    fn adapt(&self, direction: Direction, schema: &mut Value) {
        let Some(object) = schema.as_object_mut() else { return };
        if let Some(Value::String(reference)) = object.get_mut("$ref") {
            let known = self.references.get(reference);
            *reference = known
                .unwrap_or_else(|| panic!("{reference} is not among TYPES: list its type there"))
                .clone();
        }
        if object.get("format").and_then(Value::as_str).is_some_and(is_integer) {
            object.remove("format");
        }
        if let Some(Value::String(text)) = object.get_mut("description") {
            assert!(!text.contains("[`"), "a description has a link that only rustdoc knows: {text}");
            *text = text.split("\n\n").map(|part| part.replace('\n', " ")).collect::<Vec<_>>().join("\n\n");
        }
        collect_names(object);
        if direction == Answer {
            object.remove("default");
        }
        if object.contains_key("properties") {
            let elsewhere =
                ["$ref", "anyOf", "oneOf", "allOf"].into_iter().find(|name| object.contains_key(*name));
            assert!(elsewhere.is_none(), "inline what stands beside `properties`: {object:?}");
            object.entry("additionalProperties").or_insert(Value::Bool(false));
        }
        let required = object.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        for (name, property) in
            object.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten()
        {
            if direction == Answer && !required.contains(&json!(name)) {
                drop_null(property);
            }
            self.adapt(direction, property);
        }
        for name in ["items", "additionalProperties"] {
            object.get_mut(name).into_iter().for_each(|schema| self.adapt(direction, schema));
        }
        for name in ["anyOf", "oneOf", "allOf", "prefixItems"] {
            let schemas = object.get_mut(name).and_then(Value::as_array_mut);
            schemas.into_iter().flatten().for_each(|schema| self.adapt(direction, schema));
        }
    }
}

/// Makes `enum` of an enumeration whose names have descriptions.
fn collect_names(object: &mut Map<String, Value>) {
    let Some(Value::Array(forms)) = object.get("oneOf") else { return };
    let mut text = object.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    text.push('\n');
    let mut names = Vec::new();
    for form in forms {
        // Variants without a doc comment stand together.
        if let Some(Value::Array(others)) = form.get("enum") {
            names.extend(others.clone());
        } else if let Some(Value::String(name)) = form.get("const") {
            names.push(name.as_str().into());
            if let Some(means) = form["description"].as_str() {
                text.push_str(&format!("\n- `{name}`: {}", means.replace('\n', " ")));
            }
        } else {
            return;
        }
    }
    object.remove("oneOf");
    object.insert("type".to_owned(), "string".into());
    object.insert("enum".to_owned(), names.into());
    object.insert("description".to_owned(), text.into());
}

/// Whether a format is that of an integer of Rust, as in `uint64`.
fn is_integer(format: &str) -> bool {
    format.trim_start_matches('u').starts_with("int")
}

/// Leaves `null` out of what a schema allows.
pub(super) fn drop_null(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = &**types {
            let only = only.clone();
            object["type"] = only;
        }
    }
    if let Some(Value::Array(forms)) = object.get_mut("anyOf") {
        forms.retain(|form| form["type"] != "null");
        if let [Value::Object(only)] = &**forms {
            let only = only.clone();
            object.remove("anyOf");
            object.extend(only);
        }
    }
}
