//! Operations described beside their handlers, and the entries of `paths` that follow from them.

use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::schemas::{Direction, Schemas, drop_null};
use crate::native::{artifacts, calls, host_tools, limits, lsp, mcp, reverts, sessions, usage};
use crate::problem::Kind;

/// The operations whose entries in `paths` are generated.
const DESCRIBED: &[Operation] = &[
    sessions::LIST,
    artifacts::LIST,
    artifacts::READ,
    reverts::REVERT,
    reverts::UNREVERT,
    lsp::LIST,
    lsp::DIAGNOSE,
    mcp::LIST,
    mcp::CONNECT,
    mcp::DISCONNECT,
    mcp::login::BEGIN,
    mcp::login::END,
    mcp::login::FORGET,
    calls::CALL,
    host_tools::LIST,
    host_tools::REGISTER,
    host_tools::REMOVE,
    host_tools::RESULT,
    limits::LIST,
    usage::rows::ROWS,
    usage::reprice::REPRICE,
];

/// The schema of a type: `SchemaGenerator::subschema_for::<T>` for a reference to one of
/// [`TYPES`](super::schemas::TYPES), `T::json_schema` for the schema itself.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// An operation of `/v1`, as `openapi.json` describes it.
pub(crate) struct Operation {
    /// The method, in lower case.
    pub(crate) method: &'static str,
    /// The path, with the names of ids in braces.
    pub(crate) path: &'static str,
    /// `operationId`: the method's name in clients that are generated.
    pub(crate) id: &'static str,
    /// One line, with a full stop.
    pub(crate) summary: &'static str,
    /// The ids in the path, in order: name and schema. Empty where `parameters` of the path, written by hand, have them.
    pub(crate) ids: &'static [(&'static str, SchemaOf)],
    /// The struct of the query: each field is a parameter.
    pub(crate) query: Option<SchemaOf>,
    /// The body of requests.
    pub(crate) body: Option<SchemaOf>,
    /// Status, description and body of the answer.
    pub(crate) answer: (u16, &'static str, Option<SchemaOf>),
    /// Problems that a client is told to expect, each kind with what it means here. Any other can come as well.
    pub(crate) problems: &'static [(Kind, &'static str)],
}

/// Method, path and entry of each operation that is described here.
pub(super) fn entries(schemas: &mut Schemas) -> Vec<(&'static str, &'static str, Value)> {
    let entry = |operation: &Operation| (operation.method, operation.path, operation.entry(schemas));
    DESCRIBED.iter().map(entry).collect()
}

/// The parameter that every operation has.
pub(super) fn tenant() -> Value {
    json!({
        "name": "tenant",
        "in": "query",
        "description": "The tenant that the request is about: for the operator, on the Unix socket. Without it lists there \
                        are of all tenants, a session in the path stands for its tenant, and all else is of the \
                        tenant `local`. Others name their own, if any.",
        "schema": {"type": "string"},
    })
}

/// Where a path names it.
pub(super) fn of_all() -> Value {
    json!({"$ref": "#/components/parameters/Tenant"})
}

impl Operation {
    fn entry(&self, schemas: &mut Schemas) -> Value {
        let mut entry = Map::new();
        entry.insert("operationId".to_owned(), self.id.into());
        entry.insert("summary".to_owned(), self.summary.into());
        let parameters = self.parameters(schemas);
        if !parameters.is_empty() {
            entry.insert("parameters".to_owned(), parameters.into());
        }
        if let Some(body) = self.body {
            let schema = schemas.of(Direction::Request, body);
            let required = schemas.resolve(&schema).get("required").is_some();
            let content = content("application/json", schema);
            entry.insert("requestBody".to_owned(), json!({"required": required, "content": content}));
        }
        entry.insert("responses".to_owned(), self.responses(schemas));
        entry.into()
    }

    fn parameters(&self, schemas: &mut Schemas) -> Vec<Value> {
        let mut parameters = Vec::new();
        for (name, id) in self.ids {
            assert!(self.path.contains(&format!("{{{name}}}")), "{} has no {{{name}}}", self.path);
            let schema = schemas.of(Direction::Request, *id);
            parameters.push(json!({"name": name, "in": "path", "required": true, "schema": schema}));
        }
        let query = self.query.map(|query| schemas.of(Direction::Request, query)).unwrap_or_default();
        let required = query["required"].as_array().cloned().unwrap_or_default();
        for (name, schema) in query["properties"].as_object().into_iter().flatten() {
            let (mut schema, required) = (schema.clone(), required.contains(&json!(name)));
            drop_null(&mut schema);
            let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
            let mut parameter = json!({"name": name, "in": "query", "required": required, "schema": schema});
            if let Some(description) = description {
                parameter["description"] = description;
            }
            parameters.push(parameter);
        }
        parameters
    }

    fn responses(&self, schemas: &mut Schemas) -> Value {
        let (status, description, body) = self.answer;
        let mut responses = Map::new();
        let mut answer = json!({"description": description});
        if let Some(body) = body {
            answer["content"] = content("application/json", schemas.of(Direction::Answer, body));
        }
        responses.insert(status.to_string(), answer);
        let problem = content("application/problem+json", json!({"$ref": "#/components/schemas/Problem"}));
        for (kind, description) in self.problems {
            let answer = json!({"description": description, "content": problem});
            let status = kind.status().as_str().to_owned();
            let before = responses.insert(status, answer);
            assert!(before.is_none(), "{}: one description for all problems with a status", self.id);
        }
        responses
            .insert("default".to_owned(), json!({"description": "What went wrong.", "content": problem}));
        responses.into()
    }
}

fn content(kind: &str, schema: Value) -> Value {
    json!({kind: {"schema": schema}})
}
