use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::Registry;
use crate::testing::{call, context};

fn note() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"title": {"type": "string", "maxLength": 10}},
        "required": ["title"],
    })
}

async fn called(tool: CaptureTool, input: Value) -> Result<ToolOutput, ToolError> {
    let folder = tempfile::tempdir().unwrap();
    let context = context(folder.path(), &folder.path().join("outputs")).unwrap();
    let name = tool.spec().name.clone();
    let mut registry = Registry::new();
    registry.add(Arc::new(tool)).unwrap();
    call(&registry, &name, &input, &context).await
}

#[tokio::test]
async fn what_fits_is_kept_and_what_does_not_is_told_with_its_path() {
    let tool = || CaptureTool::new("save_note", " Keeps a note. ", &note()).unwrap();
    let (spec, built) = (tool().spec().clone(), tool());
    assert_eq!(spec.description, "Keeps a note.");
    assert!(spec.parameters.get("$schema").is_none());
    assert_eq!((built.risk(), built.permission()), (Risk::Safe, "save_note"));
    assert_eq!(built.origin(), Some(&ToolOrigin::Capture));
    let kept = called(tool(), json!({"title": "a"})).await.unwrap();
    let artifact = kept.artifact.unwrap();
    assert_eq!((artifact.name.as_str(), &artifact.value), ("save_note", &json!({"title": "a"})));
    assert_eq!(artifact.json, r#"{"title":"a"}"#);
    assert_eq!(artifact.hash, format!("sha256:{}", playhouse_workspace::hash(artifact.json.as_bytes())));
    assert!(kept.output.contains(&artifact.hash), "{}", kept.output);
    let error = called(tool(), json!({"title": "much too long a title"})).await.unwrap_err().to_string();
    assert!(error.contains("title: ") && error.contains("10"), "{error}");
    assert!(matches!(called(tool(), json!({})).await, Err(ToolError::Invalid(_))));
}

#[tokio::test]
async fn a_value_that_is_no_object_stands_in_a_member() {
    let schema = json!({
        "$defs": {"step": {"type": "string"}},
        "type": "array",
        "items": {"anyOf": [{"$ref": "#/$defs/step"}, {"$ref": "#"}]},
    });
    let tool = || CaptureTool::new("steps", "Keeps steps.", &schema).unwrap();
    let parameters = tool().spec().parameters.clone();
    assert_eq!(parameters["type"], "object");
    assert_eq!(parameters["$defs"]["step"]["type"], "string");
    assert!(!parameters.to_string().contains("$id"));
    let kept = called(tool(), json!({"value": ["a", ["b"]]})).await.unwrap();
    assert_eq!(kept.artifact.unwrap().value, json!(["a", ["b"]]));
    for wrong in [json!({"value": [1]}), json!({"value": "a"}), json!({}), json!({"value": [], "x": 1})] {
        assert!(called(tool(), wrong.clone()).await.is_err(), "{wrong}");
    }
    let whatever = CaptureTool::new("any", "Keeps anything.", &json!(true)).unwrap();
    assert_eq!(called(whatever, json!({"value": null})).await.unwrap().artifact.unwrap().value, Value::Null);
}

#[test]
fn what_cannot_be_a_tool_is_told_by_the_part_that_is_wrong() {
    let error = |name: &str, description: &str, schema: Value| {
        CaptureTool::new(name, description, &schema).unwrap_err().to_string()
    };
    for name in ["", "a b", "mcp_x_y", "mcp", "lsp", SUBMIT_OUTPUT] {
        assert!(error(name, "d", note()).starts_with("`name` is "), "{name}");
    }
    assert!(error("a", " ", note()).starts_with("`description` is missing"));
    assert!(error("a", &"d".repeat(LONGEST_DESCRIPTION + 1), note()).contains("at most 8192"));
    assert!(error("a", "d", json!({"type": "objekt"})).starts_with("`schema`: "));
}

#[tokio::test]
async fn the_examples_take_what_their_workflow_writes() {
    for name in EXAMPLES {
        let tool = example(name).unwrap().unwrap();
        assert_eq!(
            (tool.spec().name.as_str(), tool.spec().parameters["type"].as_str()),
            (name, Some("object"))
        );
    }
    assert!(example("save_note").is_none());
    let story = json!({"id": "US-001", "title": "t", "acceptance_criteria": ["a"], "priority": 1, "status": "done",
                       "notes": ""});
    let prd =
        json!({"prd": {"schema_version": 1, "id": "001-x", "branch_name": "b", "user_stories": [story]}});
    let idea =
        |title: String| json!({"ideas": [{"title": title, "description": "d", "scope": {"inScope": ["a"]}}]});
    for (name, good, bad, path) in [
        ("save_interview_ideas", idea("x".repeat(59)), idea("x".repeat(60)), "ideas[0].title"),
        ("save_prd", prd, json!({"prd": {"schema_version": 2}}), "prd.schema_version"),
        (
            "update_story_status",
            json!({"story_id": "US-001", "status": "done"}),
            json!({"story_id": "US-001", "status": "finished"}),
            "status",
        ),
    ] {
        let tool = || example(name).unwrap().unwrap();
        assert!(called(tool(), good).await.is_ok(), "{name}");
        let error = called(tool(), bad).await.unwrap_err().to_string();
        assert!(error.contains(&format!("{path}: ")), "{error}");
    }
    assert!(called(example("wreckit_complete").unwrap().unwrap(), json!({})).await.is_ok());
}
