//! The description of the API. `openapi.json` is partly written by hand, partly generated: see `docs/dev/operation.md`.

#[cfg(test)]
pub(super) mod operation;
#[cfg(test)]
mod schemas;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

/// The file that the repository keeps.
const DOCUMENT: &str = include_str!("../../openapi.json");

/// `GET /v1/openapi.json`
pub(crate) async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::Serialize as _;
    use serde_json::Value;
    use serde_json::ser::{PrettyFormatter, Serializer};

    use super::super::OPERATIONS;
    use super::schemas::{self, Schemas};
    use super::*;

    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    /// Set it to write what is generated into the file instead of comparing it.
    const UPDATE: &str = "PLAYHOUSE_UPDATE_OPENAPI";

    /// The schemas that are written by hand, from before there was a generator: the list only becomes shorter.
    const SCHEMAS_BY_HAND: &[&str] = &[
        "Abort",
        "Aborted",
        "AssistantMessage",
        "Attachment",
        "Blob",
        "CallResult",
        "CallState",
        "ChangeSession",
        "Compact",
        "Consent",
        "ConsentAnswer",
        "Consents",
        "Diff",
        "Error",
        "Event",
        "FileChange",
        "Fork",
        "Message",
        "MessagePage",
        "NewSession",
        "Part",
        "Prompt",
        "PromptFile",
        "Question",
        "QuestionAnswer",
        "QuestionOption",
        "QuestionRequest",
        "Questions",
        "Resumed",
        "Resync",
        "RunCommand",
        "Shell",
        "TreeUsage",
        "Usage",
        "UsageLine",
        "UsageRows",
        "UsageSum",
        "UserMessage",
        "Walls",
        "WallsAllowed",
        "Want",
    ];
    /// The same of operations: how many there are.
    const OPERATIONS_BY_HAND: usize = 31;

    #[test]
    fn nothing_new_is_described_by_hand() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let mut schemas = Schemas::new();
        let generated: BTreeSet<&str> = schemas.all().into_iter().map(|(name, _)| name).collect();
        let held = document["components"]["schemas"].as_object().unwrap().keys().map(String::as_str);
        let by_hand: Vec<&str> = held.filter(|name| !generated.contains(name)).collect();
        let new: Vec<&&str> = by_hand.iter().filter(|name| !SCHEMAS_BY_HAND.contains(name)).collect();
        assert!(new.is_empty(), "list the types of {new:?} in TYPES: see docs/dev/operation.md");
        assert_eq!(by_hand.len(), SCHEMAS_BY_HAND.len(), "take what is generated now off the list");
        let by_hand = OPERATIONS.len() - operation::entries(&mut schemas).len();
        assert_eq!(by_hand, OPERATIONS_BY_HAND, "describe the operation in Rust: see docs/dev/operation.md");
    }

    #[test]
    fn every_operation_is_described_and_no_other() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let mut described = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
                described.insert((method.clone(), path.clone()));
            }
        }
        let routed: BTreeSet<(String, String)> =
            OPERATIONS.iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
        assert_eq!(routed, described);
    }

    #[test]
    fn the_file_holds_the_schemas_of_the_types() {
        let held = fs_err::read_to_string(FILE).unwrap();
        let mut document: Value = serde_json::from_str(&held).unwrap();
        assert_eq!(written(&document), held, "{FILE} is not written as JSON with an indent of one space");
        let mut schemas = Schemas::new();
        let mut stale = Vec::new();
        let mut put = |what: String, place: &mut Value, generated: Value| {
            if serde_json::to_string(place).unwrap() != serde_json::to_string(&generated).unwrap() {
                stale.push(what);
                *place = generated;
            }
        };
        for (name, schema) in schemas.all() {
            put(name.to_owned(), &mut document["components"]["schemas"][name], schema);
        }
        put(
            "the types of events".to_owned(),
            &mut document["components"]["schemas"]["Event"]["properties"]["type"],
            schemas::event_types(),
        );
        put(
            "the parameter of all operations".to_owned(),
            &mut document["components"]["parameters"]["Tenant"],
            operation::tenant(),
        );
        let paths: Vec<String> = document["paths"].as_object().unwrap().keys().cloned().collect();
        for path in paths {
            let place = &mut document["paths"][&path]["parameters"];
            let mut parameters = place.as_array().cloned().unwrap_or_default();
            parameters.retain(|parameter| parameter.get("$ref").is_none());
            parameters.push(operation::of_all());
            put(format!("the parameters of {path}"), place, parameters.into());
        }
        for (method, path, entry) in operation::entries(&mut schemas) {
            put(format!("{method} {path}"), &mut document["paths"][path][method], entry);
        }
        if std::env::var_os(UPDATE).is_some() {
            fs_err::write(FILE, written(&document)).unwrap();
            return;
        }
        assert!(
            stale.is_empty(),
            "{FILE} differs from the Rust types in {}: run `{UPDATE}=1 cargo test -p playhouse-server --lib the_file_holds` \
             and look at what changed",
            stale.join(", ")
        );
    }

    #[test]
    fn every_reference_names_a_schema() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        for reference in DOCUMENT.split("\"$ref\": \"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "there is no {pointer}");
        }
    }

    /// The document in the form of the file.
    fn written(document: &Value) -> String {
        let mut bytes = Vec::new();
        let form = PrettyFormatter::with_indent(b" ");
        document.serialize(&mut Serializer::with_formatter(&mut bytes, form)).unwrap();
        bytes.push(b'\n');
        String::from_utf8(bytes).unwrap()
    }
}
