//! Capture tools that come with the engine, as examples: offered only to sessions that name them.

use serde_json::{Value, json};

use super::{CaptureError, CaptureTool};

/// The names of all examples.
pub const EXAMPLES: [&str; 5] =
    ["save_interview_ideas", "save_parsed_ideas", "save_prd", "update_story_status", "wreckit_complete"];

/// The example of this name; `None` where there is none.
///
/// # Errors
/// Never: a test makes all of them.
pub fn example(name: &str) -> Option<Result<CaptureTool, CaptureError>> {
    let (description, schema) = match name {
        "save_interview_ideas" => ("Keeps the ideas of the conversation, in one call.", ideas()),
        "save_parsed_ideas" => ("Keeps the ideas of the document, in one call.", ideas()),
        "save_prd" => ("Keeps the plan: its user stories, by priority.", prd()),
        "update_story_status" => ("Says that a user story is done, or pending again.", story_status()),
        "wreckit_complete" => ("Says that the work on the item is complete.", json!({"type": "object"})),
        _ => return None,
    };
    Some(CaptureTool::new(name, description, &schema))
}

fn strings() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

fn ideas() -> Value {
    let idea = json!({
        "type": "object",
        "properties": {
            "title": {"type": "string", "minLength": 1, "maxLength": 59},
            "description": {"type": "string"},
            "problemStatement": {"type": "string"},
            "motivation": {"type": "string"},
            "successCriteria": strings(),
            "technicalConstraints": strings(),
            "scope": {
                "type": "object",
                "properties": {"inScope": strings(), "outOfScope": strings()},
            },
            "priorityHint": {"enum": ["low", "medium", "high", "critical"]},
            "urgencyHint": {"type": "string"},
            "suggestedSection": {"type": "string"},
        },
        "required": ["title", "description"],
    });
    json!({
        "type": "object",
        "properties": {"ideas": {"type": "array", "items": idea}},
        "required": ["ideas"],
    })
}

fn status() -> Value {
    json!({"enum": ["pending", "done"]})
}

fn story_id() -> Value {
    json!({"type": "string", "pattern": "^US-[0-9]{3,}$", "description": "As \"US-001\"."})
}

fn prd() -> Value {
    let story = json!({
        "type": "object",
        "properties": {
            "id": story_id(),
            "title": {"type": "string"},
            "acceptance_criteria": strings(),
            "priority": {"type": "number", "description": "1 is the highest."},
            "status": status(),
            "notes": {"type": "string"},
        },
        "required": ["id", "title", "acceptance_criteria", "priority", "status", "notes"],
    });
    let prd = json!({
        "type": "object",
        "properties": {
            "schema_version": {"const": 1},
            "id": {"type": "string", "description": "The item."},
            "branch_name": {"type": "string"},
            "user_stories": {"type": "array", "items": story},
        },
        "required": ["schema_version", "id", "branch_name", "user_stories"],
    });
    json!({"type": "object", "properties": {"prd": prd}, "required": ["prd"]})
}

fn story_status() -> Value {
    json!({
        "type": "object",
        "properties": {"story_id": story_id(), "status": status()},
        "required": ["story_id", "status"],
    })
}
