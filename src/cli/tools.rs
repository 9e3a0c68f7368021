//! `playhouse tools`: the tools that there are, with risk and parameters.

use std::fmt::Write as _;

use clap::Args;
use playhouse_tools::{Registry, Risk, Tool};
use serde_json::{Value, json};

use super::{CommandResult, Common, Exit, print, variable};
use crate::config::{ConfigError, Settings, check_agents, check_names};

/// Options of `playhouse tools`.
#[derive(Debug, Args)]
pub(super) struct ToolsArguments {
    /// Print one JSON object a line, with the whole description and the schema of the parameters
    #[arg(long)]
    json: bool,
}

pub(super) fn tools(common: &Common, arguments: &ToolsArguments) -> CommandResult {
    let registry = configured(&common.settings_apart()?)?;
    let mut out = String::new();
    if !arguments.json {
        out.push_str(
            "* is needed. Risk is what a tool can do: safe reads, moderate reaches out, dangerous changes.\n",
        );
    }
    for tool in registry.iter() {
        if arguments.json {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}", object(tool.as_ref()));
        } else {
            table(tool.as_ref(), &mut out);
        }
    }
    print(&out)?;
    Ok(Exit::Completed)
}

/// The tools as `settings` make them.
///
/// # Errors
/// A tool cannot be as they say, or a rule of theirs or of an agent is about a permission that there is not.
pub(super) fn configured(settings: &Settings) -> Result<Registry, ConfigError> {
    let registry = Registry::native_with(settings.native_tools(&variable)?);
    check_names(&settings.permission_names, &registry)?;
    check_agents(&settings.agents, &registry)?;
    Ok(registry)
}

/// A parameter of a tool.
struct Parameter<'a> {
    name: &'a str,
    kind: String,
    required: bool,
    description: &'a str,
}

fn parameters(schema: &Value) -> Vec<Parameter<'_>> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties
        .map(|(name, schema)| Parameter {
            name,
            kind: kind(schema),
            required: required.contains(&name.as_str()),
            description: schema["description"].as_str().unwrap_or_default(),
        })
        .collect()
}

/// What a parameter holds, in a few words.
fn kind(schema: &Value) -> String {
    if let Some(words) = schema["enum"].as_array() {
        return words
            .iter()
            .map(|word| word.as_str().map_or(word.to_string(), str::to_owned))
            .collect::<Vec<_>>()
            .join("|");
    }
    match (schema["type"].as_str(), schema["properties"].as_object()) {
        (Some("array"), _) => format!("list of {}", kind(&schema["items"])),
        (Some("object") | None, Some(properties)) => {
            format!("{{{}}}", properties.keys().map(String::as_str).collect::<Vec<_>>().join(", "))
        }
        (Some(name), _) => name.to_owned(),
        (None, None) => "any".to_owned(),
    }
}

fn risk(risk: Risk) -> &'static str {
    match risk {
        Risk::Safe => "safe",
        Risk::Moderate => "moderate",
        Risk::Dangerous => "dangerous",
    }
}

/// One tool, for people.
fn table(tool: &dyn Tool, out: &mut String) {
    let spec = tool.spec();
    let summary = spec.description.lines().next().unwrap_or_default();
    let _ = writeln!(out, "\n{} ({})\n  {summary}", spec.name, risk(tool.risk()));
    if let Some(reason) = tool.unavailable() {
        let _ = writeln!(out, "  not shown to models: {reason}");
    }
    let parameters = parameters(&spec.parameters);
    let width = |text: fn(&Parameter<'_>) -> usize| parameters.iter().map(text).max().unwrap_or_default();
    let names = width(|parameter| parameter.name.chars().count());
    let kinds = width(|parameter| parameter.kind.chars().count());
    for Parameter { name, kind, required, description } in &parameters {
        let mark = if *required { '*' } else { ' ' };
        let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = format!("    {mark} {name:names$}  {kind:kinds$}  {description}");
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// One tool, for programs.
fn object(tool: &dyn Tool) -> Value {
    let spec = tool.spec();
    let parameters: Vec<Value> = parameters(&spec.parameters)
        .into_iter()
        .map(|Parameter { name, kind, required, description }| {
            json!({"name": name, "type": kind, "required": required, "description": description})
        })
        .collect();
    let mut object = json!({
        "name": spec.name,
        "risk": risk(tool.risk()),
        "description": spec.description,
        "parameters": parameters,
        "schema": spec.parameters,
    });
    if let Some(reason) = tool.unavailable() {
        object["unavailable"] = reason.into();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_in_a_few_words() {
        for (schema, word) in [
            (json!({"type": "string"}), "string"),
            (json!({"type": "string", "enum": ["a", "b"]}), "a|b"),
            (json!({"type": "array", "items": {"type": "integer"}}), "list of integer"),
            (
                json!({"type": "array", "items": {"type": "object", "properties": {"x": {}, "y": {}}}}),
                "list of {x, y}",
            ),
            (json!({"type": "object"}), "object"),
            (json!({}), "any"),
        ] {
            assert_eq!(kind(&schema), word);
        }
    }
}
