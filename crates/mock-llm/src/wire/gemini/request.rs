//! Reads a request, as strictly as the provider does. Names are accepted in both of its spellings.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::conversation::{MayCall, Said, place};
use crate::wire::content::SHORTEST_NAMED_ID;
use crate::wire::{Asked, Wants, read_json};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request<'a> {
    #[serde(borrow, default)]
    contents: Vec<Content<'a>>,
    #[serde(borrow, default)]
    tools: Option<Vec<Tool<'a>>>,
    #[serde(borrow, default, alias = "tool_config")]
    tool_config: Option<ToolConfig<'a>>,
    #[serde(borrow, default, alias = "system_instruction")]
    system_instruction: Option<Content<'a>>,
    #[serde(default, alias = "generation_config")]
    generation_config: Option<Map<String, Value>>,
    #[serde(default, rename = "model")]
    _model: Option<IgnoredAny>,
    #[serde(default, rename = "safetySettings", alias = "safety_settings")]
    _safety_settings: Option<IgnoredAny>,
    #[serde(default, rename = "cachedContent", alias = "cached_content")]
    _cached_content: Option<IgnoredAny>,
    #[serde(default, rename = "labels")]
    _labels: Option<IgnoredAny>,
    #[serde(default, rename = "serviceTier", alias = "service_tier")]
    _service_tier: Option<IgnoredAny>,
    #[serde(default, rename = "store")]
    _store: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content<'a> {
    #[serde(borrow, default)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    parts: Vec<Part<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(default, alias = "inline_data")]
    inline_data: Option<IgnoredAny>,
    #[serde(default, alias = "file_data")]
    file_data: Option<IgnoredAny>,
    #[serde(borrow, default, alias = "function_call")]
    function_call: Option<FunctionCall<'a>>,
    #[serde(borrow, default, alias = "function_response")]
    function_response: Option<FunctionResponse<'a>>,
    #[serde(default, alias = "executable_code")]
    executable_code: Option<IgnoredAny>,
    #[serde(default, alias = "code_execution_result")]
    code_execution_result: Option<IgnoredAny>,
    #[serde(default, rename = "thought")]
    _thought: Option<bool>,
    #[serde(default, rename = "thoughtSignature", alias = "thought_signature")]
    _thought_signature: Option<IgnoredAny>,
    #[serde(default, rename = "videoMetadata", alias = "video_metadata")]
    _video_metadata: Option<IgnoredAny>,
    #[serde(default, rename = "mediaResolution", alias = "media_resolution")]
    _media_resolution: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FunctionCall<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default, rename = "args")]
    _args: Option<Object>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FunctionResponse<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(rename = "response")]
    _response: Object,
    #[serde(default, rename = "parts")]
    _parts: Option<IgnoredAny>,
    #[serde(default, rename = "willContinue", alias = "will_continue")]
    _will_continue: Option<IgnoredAny>,
    #[serde(default, rename = "scheduling")]
    _scheduling: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool<'a> {
    #[serde(borrow, default, alias = "function_declarations")]
    function_declarations: Option<Vec<Declaration<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Declaration<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    parameters: Option<Value>,
    #[serde(default, alias = "parameters_json_schema")]
    parameters_json_schema: Option<IgnoredAny>,
    #[serde(default, rename = "description")]
    _description: Option<IgnoredAny>,
    #[serde(default, rename = "response")]
    _response: Option<IgnoredAny>,
    #[serde(default, rename = "responseJsonSchema", alias = "response_json_schema")]
    _response_json_schema: Option<IgnoredAny>,
    #[serde(default, rename = "behavior")]
    _behavior: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ToolConfig<'a> {
    #[serde(borrow, default, alias = "function_calling_config")]
    function_calling_config: Option<CallingConfig<'a>>,
    #[serde(default, rename = "retrievalConfig", alias = "retrieval_config")]
    _retrieval_config: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CallingConfig<'a> {
    #[serde(borrow, default)]
    mode: Option<Cow<'a, str>>,
    #[serde(default, rename = "allowedFunctionNames", alias = "allowed_function_names")]
    _allowed_function_names: Option<IgnoredAny>,
}

/// An object, whatever it holds.
struct Object;

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object (google.protobuf.Struct)")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Object)
            }
        }
        deserializer.deserialize_map(ObjectVisitor)
    }
}

/// What may be set of the generation.
const GENERATION: [&str; 22] = [
    "stopSequences",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
    "_responseJsonSchema",
    "responseModalities",
    "responseFormat",
    "candidateCount",
    "maxOutputTokens",
    "temperature",
    "topP",
    "topK",
    "seed",
    "presencePenalty",
    "frequencyPenalty",
    "responseLogprobs",
    "logprobs",
    "enableEnhancedCivicAnswers",
    "speechConfig",
    "thinkingConfig",
    "imageConfig",
    "mediaResolution",
];
const THINKING: [&str; 3] = ["includeThoughts", "thinkingBudget", "thinkingLevel"];

/// What a schema in `parameters` may hold; JSON Schema has more, and belongs in `parametersJsonSchema`.
const SCHEMA: [&str; 25] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "items",
    "maxItems",
    "minItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "example",
    "anyOf",
    "propertyOrdering",
    "default",
    "additionalProperties",
    "defs",
    "ref",
];

/// What the request asks for; an error says what is wrong with it.
pub(super) fn read(model: &str, is_stream: bool, query: &str, body: &[u8]) -> Result<Asked, String> {
    let request: Request<'_> =
        read_json(body).map_err(|error| format!("Invalid JSON payload received. {error}"))?;
    if request.contents.is_empty() {
        return Err("* GenerateContentRequest.contents: contents is not specified".to_owned());
    }
    if let Some(config) = &request.generation_config {
        check_generation(config)?;
    }
    let has_tools = check_tools(request.tools.as_deref().unwrap_or_default())?;
    if let Some(instruction) = &request.system_instruction {
        check_parts(&instruction.parts, "system_instruction")?;
    }
    let may_call = may_call(has_tools, request.tool_config.as_ref())?;
    let mut prompt = String::new();
    let mut said = Vec::with_capacity(request.contents.len());
    let mut before: Option<&Content<'_>> = None;
    for (number, content) in request.contents.iter().enumerate() {
        said.push(hear(number, content, before, &said, &mut prompt)?);
        before = Some(content);
    }
    if before.is_some_and(|last| last.parts.iter().any(|part| part.function_call.is_some())) {
        return Err(UNANSWERED.to_owned());
    }
    let is_event_stream = query.split('&').any(|pair| pair == "alt=sse");
    Ok(Asked {
        model: model.to_owned(),
        stream: is_stream && is_event_stream,
        wants: Wants {
            stream_usage: true,
            encrypted_reasoning: true,
            chunk_list: is_stream && !is_event_stream,
        },
        place: place(&said, may_call),
        may_call: may_call == MayCall::Yes,
        prompt,
    })
}

const UNANSWERED: &str =
    "Please ensure that function response turn comes immediately after a function call turn.";
const UNCALLED: &str =
    "Please ensure that function call turn comes immediately before a function response turn.";
const UNEVEN: &str = "Please ensure that the number of function response parts is equal to the number of function call \
    parts of the function call turn.";

/// What a content is, after `before`.
fn hear(
    number: usize,
    content: &Content<'_>,
    before: Option<&Content<'_>>,
    said: &[Said],
    prompt: &mut String,
) -> Result<Said, String> {
    check_parts(&content.parts, &format!("contents[{number}]"))?;
    let calls: Vec<&FunctionCall<'_>> = before
        .iter()
        .flat_map(|content| &content.parts)
        .filter_map(|part| part.function_call.as_ref())
        .collect();
    let results: Vec<&FunctionResponse<'_>> =
        content.parts.iter().filter_map(|part| part.function_response.as_ref()).collect();
    if calls.is_empty() != results.is_empty() {
        return Err(if calls.is_empty() { UNCALLED } else { UNANSWERED }.to_owned());
    }
    if calls.len() != results.len() {
        return Err(UNEVEN.to_owned());
    }
    for result in &results {
        let is_known = calls
            .iter()
            .any(|call| call.name == result.name && (result.id.is_none() || call.id == result.id));
        if !is_known {
            let (name, id) = (&result.name, result.id.as_deref().unwrap_or(""));
            return Err(format!(
                "contents[{number}]: no call before it has the name '{name}' and the id '{id}'"
            ));
        }
    }
    match content.role.as_deref() {
        Some("model") if !results.is_empty() => {
            Err(format!("contents[{number}]: function responses belong to the role user"))
        }
        Some("model") => Ok(Said::Answer),
        None | Some("user" | "function") if content.parts.iter().any(|part| part.function_call.is_some()) => {
            Err(format!("contents[{number}]: function calls belong to the role model"))
        }
        None | Some("user" | "function") if !results.is_empty() => Ok(Said::Results),
        None | Some("user") => {
            let texts: Vec<&str> = content.parts.iter().filter_map(|part| part.text.as_deref()).collect();
            if said.last() == Some(&Said::Results) && carries_results(&texts, before) {
                return Ok(Said::Other);
            }
            *prompt = texts.join("\n");
            Ok(Said::Prompt)
        }
        Some(_) => Err("Please use a valid role: user, model.".to_owned()),
    }
}

/// Whether `texts` only come with the files of the results in `before`, which cannot hold them.
fn carries_results(texts: &[&str], before: Option<&Content<'_>>) -> bool {
    let results =
        before.iter().flat_map(|content| &content.parts).filter_map(|part| part.function_response.as_ref());
    let mut ids =
        results.filter_map(|result| result.id.as_deref()).filter(|id| id.len() >= SHORTEST_NAMED_ID);
    texts.is_empty() || ids.any(|id| texts.iter().any(|text| text.contains(id)))
}

fn check_parts(parts: &[Part<'_>], place: &str) -> Result<(), String> {
    if parts.is_empty() {
        return Err(format!("* GenerateContentRequest.{place}.parts: contents.parts must not be empty."));
    }
    for (number, part) in parts.iter().enumerate() {
        let data = [
            part.text.is_some(),
            part.inline_data.is_some(),
            part.file_data.is_some(),
            part.function_call.is_some(),
            part.function_response.is_some(),
            part.executable_code.is_some(),
            part.code_execution_result.is_some(),
        ];
        if data.into_iter().filter(|is_there| *is_there).count() != 1 {
            return Err(format!(
                "* GenerateContentRequest.{place}.parts[{number}].data: required oneof field 'data' must have one \
                 initialized field"
            ));
        }
    }
    Ok(())
}

fn may_call(has_tools: bool, config: Option<&ToolConfig<'_>>) -> Result<MayCall, String> {
    let mode = config
        .and_then(|config| config.function_calling_config.as_ref())
        .and_then(|config| config.mode.as_deref());
    match mode {
        Some("AUTO" | "ANY" | "NONE" | "VALIDATED" | "MODE_UNSPECIFIED") | None => {}
        Some(mode) => {
            return Err(format!("Invalid value at 'tool_config.function_calling_config.mode': \"{mode}\""));
        }
    }
    Ok(match mode {
        _ if !has_tools => MayCall::NoTools,
        Some("NONE") => MayCall::Forbidden,
        _ => MayCall::Yes,
    })
}

/// Whether there are functions.
fn check_tools(tools: &[Tool<'_>]) -> Result<bool, String> {
    let mut has_functions = false;
    for (tool, declarations) in tools.iter().enumerate() {
        for (number, declaration) in declarations.function_declarations.iter().flatten().enumerate() {
            has_functions = true;
            let place = format!("tools[{tool}].function_declarations[{number}]");
            check_name(&declaration.name, &place)?;
            if declaration.parameters.is_some() && declaration.parameters_json_schema.is_some() {
                return Err(format!("{place}: parameters and parameters_json_schema are mutually exclusive"));
            }
            if let Some(schema) = &declaration.parameters {
                check_schema(schema, &format!("{place}.parameters"))?;
            }
        }
    }
    Ok(has_functions)
}

fn check_name(name: &str, place: &str) -> Result<(), String> {
    let is_start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_sound = name.bytes().next().is_some_and(is_start)
        && name.len() <= 64
        && name.bytes().all(|byte| is_start(byte) || byte.is_ascii_digit() || b".:-".contains(&byte));
    if is_sound {
        return Ok(());
    }
    Err(format!(
        "* GenerateContentRequest.{place}.name: Invalid function name. Must start with a letter or an underscore. Must \
         be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length \
         of 64."
    ))
}

/// A name as it is in `camelCase`.
fn camel(name: &str) -> Cow<'_, str> {
    if !name.get(1..).is_some_and(|rest| rest.contains('_')) {
        return Cow::Borrowed(name);
    }
    let mut camel = String::with_capacity(name.len());
    for (number, word) in name.split('_').enumerate() {
        match word.chars().next() {
            Some(first) if number > 0 => {
                camel.push(first.to_ascii_uppercase());
                camel.push_str(&word[first.len_utf8()..]);
            }
            _ => camel.push_str(word),
        }
    }
    Cow::Owned(camel)
}

fn check_names(object: &Map<String, Value>, known: &[&str], place: &str) -> Result<(), String> {
    match object.keys().find(|name| !known.contains(&&*camel(name))) {
        Some(name) => Err(format!(
            "Invalid JSON payload received. Unknown name \"{name}\" at '{place}': Cannot find field."
        )),
        None => Ok(()),
    }
}

fn check_generation(config: &Map<String, Value>) -> Result<(), String> {
    check_names(config, &GENERATION, "generation_config")?;
    let thinking = config.get("thinkingConfig").or_else(|| config.get("thinking_config"));
    match thinking.and_then(Value::as_object) {
        Some(thinking) => check_names(thinking, &THINKING, "generation_config.thinking_config"),
        None => Ok(()),
    }
}

/// Schemas may not nest deeper.
const DEEPEST: usize = 64;

fn check_schema(schema: &Value, place: &str) -> Result<(), String> {
    check_schema_at(schema, place, 0)
}

fn check_schema_at(schema: &Value, place: &str, depth: usize) -> Result<(), String> {
    let Some(object) = schema.as_object().filter(|_| depth < DEEPEST) else {
        return Err(format!(
            "Invalid value at '{place}' (type.googleapis.com/google.ai.generativelanguage.v1beta.Schema)"
        ));
    };
    check_names(object, &SCHEMA, place)?;
    for (name, value) in object {
        match (&*camel(name), value) {
            ("type", Value::Array(_)) => {
                return Err(format!(
                    "Invalid value at '{place}.type': Proto field is not repeating, cannot start list."
                ));
            }
            ("properties", Value::Object(properties)) => {
                for (key, property) in properties {
                    check_schema_at(property, &format!("{place}.properties[{key}].value"), depth + 1)?;
                }
            }
            ("items", items) => check_schema_at(items, &format!("{place}.items"), depth + 1)?,
            ("anyOf", Value::Array(choices)) => {
                for (number, choice) in choices.iter().enumerate() {
                    check_schema_at(choice, &format!("{place}.any_of[{number}]"), depth + 1)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}
