//! Reads a request, as strictly as the provider does.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::conversation::{Heard, MayCall, Said, Unmatched, check_results, place};
use crate::wire::content::{Content, carries_results};
use crate::wire::{Asked, Wants, read_json};

/// The longest id of a call, in characters.
const LONGEST_CALL_ID: usize = 64;
const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    input: Input<'a>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default, borrow)]
    include: Option<Vec<Cow<'a, str>>>,
    #[serde(default, borrow)]
    tools: Option<Vec<Tool<'a>>>,
    #[serde(default)]
    tool_choice: Option<Value>,
    #[serde(default, borrow)]
    previous_response_id: Option<Cow<'a, str>>,
    #[serde(default)]
    max_output_tokens: Option<u64>,
    #[serde(default, rename = "background")]
    _background: Option<IgnoredAny>,
    #[serde(default, rename = "context_management")]
    _context_management: Option<IgnoredAny>,
    #[serde(default, rename = "conversation")]
    _conversation: Option<IgnoredAny>,
    #[serde(default, rename = "instructions")]
    _instructions: Option<IgnoredAny>,
    #[serde(default, rename = "max_tool_calls")]
    _max_tool_calls: Option<IgnoredAny>,
    #[serde(default, rename = "metadata")]
    _metadata: Option<IgnoredAny>,
    #[serde(default, rename = "parallel_tool_calls")]
    _parallel_tool_calls: Option<IgnoredAny>,
    #[serde(default, rename = "prompt")]
    _prompt: Option<IgnoredAny>,
    #[serde(default, rename = "prompt_cache_key")]
    _prompt_cache_key: Option<IgnoredAny>,
    #[serde(default, rename = "prompt_cache_options")]
    _prompt_cache_options: Option<IgnoredAny>,
    #[serde(default, rename = "prompt_cache_retention")]
    _prompt_cache_retention: Option<IgnoredAny>,
    #[serde(default, rename = "reasoning")]
    _reasoning: Option<IgnoredAny>,
    #[serde(default, rename = "safety_identifier")]
    _safety_identifier: Option<IgnoredAny>,
    #[serde(default, rename = "service_tier")]
    _service_tier: Option<IgnoredAny>,
    #[serde(default, rename = "store")]
    _store: Option<IgnoredAny>,
    #[serde(default, rename = "stream_options")]
    _stream_options: Option<IgnoredAny>,
    #[serde(default, rename = "temperature")]
    _temperature: Option<IgnoredAny>,
    #[serde(default, rename = "text")]
    _text: Option<IgnoredAny>,
    #[serde(default, rename = "top_logprobs")]
    _top_logprobs: Option<IgnoredAny>,
    #[serde(default, rename = "top_p")]
    _top_p: Option<IgnoredAny>,
    #[serde(default, rename = "truncation")]
    _truncation: Option<IgnoredAny>,
    #[serde(default, rename = "user")]
    _user: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
}

/// A prompt, or a conversation.
enum Input<'a> {
    Prompt(Cow<'a, str>),
    Items(Vec<Item<'a>>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
    #[serde(borrow, default)]
    call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(default)]
    arguments: Option<Arguments>,
    #[serde(borrow, default)]
    output: Option<Content<'a>>,
    #[serde(default)]
    summary: Option<Vec<IgnoredAny>>,
    #[serde(borrow, default)]
    encrypted_content: Option<Cow<'a, str>>,
    #[serde(default, rename = "status")]
    _status: Option<IgnoredAny>,
    #[serde(default, rename = "phase")]
    _phase: Option<IgnoredAny>,
    #[serde(default, rename = "namespace")]
    _namespace: Option<IgnoredAny>,
    #[serde(default, rename = "execution")]
    _execution: Option<IgnoredAny>,
    #[serde(default)]
    tools: Option<Vec<IgnoredAny>>,
}

/// Arguments: a text of a function's call, an object of a search.
#[derive(PartialEq)]
enum Arguments {
    Text,
    Object,
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ArgumentsVisitor;

        impl<'de> Visitor<'de> for ArgumentsVisitor {
            type Value = Arguments;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("arguments")
            }

            fn visit_str<E>(self, _: &str) -> Result<Arguments, E> {
                Ok(Arguments::Text)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Arguments, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Arguments::Object)
            }
        }
        deserializer.deserialize_any(ArgumentsVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Input<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InputVisitor)
    }
}

struct InputVisitor;

impl<'de> Visitor<'de> for InputVisitor {
    type Value = Input<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of items as input")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Input::Prompt(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Input::Prompt(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Input::Items(items))
    }
}

/// What the request asks for; an error says what is wrong with it.
pub(super) fn read(body: &[u8]) -> Result<Asked, String> {
    let request: Request<'_> = read_json(body)?;
    if let Some(id) = &request.previous_response_id {
        return Err(format!("Previous response with id '{id}' not found."));
    }
    if request.max_output_tokens == Some(0) {
        return Err("Invalid 'max_output_tokens': must be at least 1".to_owned());
    }
    let tools = request.tools.as_deref().unwrap_or_default();
    check_tools(tools)?;
    let may_call = match &request.tool_choice {
        _ if tools.is_empty() => MayCall::NoTools,
        Some(choice) if choice == "none" => MayCall::Forbidden,
        _ => MayCall::Yes,
    };
    let mut conversation = Conversation::default();
    match request.input {
        Input::Prompt(text) => {
            conversation.prompt = text.into_owned();
            conversation.heard.push(Heard::plain(Said::Prompt));
        }
        Input::Items(items) => {
            for (number, item) in items.into_iter().enumerate() {
                conversation.add(number, item)?;
            }
        }
    }
    conversation.check()?;
    let said: Vec<Said> = conversation.heard.iter().map(|heard| heard.said).collect();
    let include = request.include.unwrap_or_default();
    Ok(Asked {
        model: request.model.into_owned(),
        stream: request.stream.unwrap_or(false),
        wants: Wants {
            stream_usage: true,
            encrypted_reasoning: include.iter().any(|what| what == ENCRYPTED_REASONING),
            chunk_list: false,
        },
        place: place(&said, may_call),
        may_call: may_call == MayCall::Yes,
        prompt: conversation.prompt,
    })
}

fn check_tools(tools: &[Tool<'_>]) -> Result<(), String> {
    for (number, tool) in tools.iter().enumerate() {
        let missing = |what: &str| Err(format!("Missing required parameter: 'tools[{number}].{what}'."));
        match tool.kind.as_deref() {
            None => return missing("type"),
            Some("function") if tool.name.is_none() => return missing("name"),
            Some(_) => {}
        }
    }
    Ok(())
}

/// The items as messages: what a model says in one answer is one message.
#[derive(Default)]
struct Conversation<'a> {
    heard: Vec<Heard<'a>>,
    /// The number of the first item of each message.
    items: Vec<usize>,
    /// A reasoning item at the end, which something must follow.
    reasoning: Option<String>,
    /// Searches of tools whose output did not come yet.
    searches: usize,
    prompt: String,
}

impl<'a> Conversation<'a> {
    fn add(&mut self, number: usize, item: Item<'a>) -> Result<(), String> {
        let kind = match (&item.kind, &item.role) {
            (Some(kind), _) => kind.clone(),
            (None, Some(_)) => Cow::Borrowed("message"),
            (None, None) => return Err(missing(number, "type")),
        };
        let is_said =
            matches!(&*kind, "reasoning" | "function_call" | "tool_search_call" | "tool_search_output")
                || (kind == "message" && item.role.as_deref() == Some("assistant"));
        if let Some(id) = self.reasoning.take().filter(|_| !is_said) {
            return Err(unfollowed(&id));
        }
        if !is_said && self.searches > 0 {
            return Err(format!("No tool output found for tool search call. (input[{number}])"));
        }
        check_id(number, &kind, item.id.as_deref())?;
        match &*kind {
            "message" => self.message(number, item),
            "reasoning" => {
                let id = item.id.as_deref().unwrap_or("rs_").to_owned();
                item.summary.ok_or_else(|| missing(number, "summary"))?;
                if item.encrypted_content.is_none_or(|content| content.is_empty()) {
                    return Err(not_kept(&id));
                }
                self.reasoning = Some(id);
                self.answer(number, None);
                Ok(())
            }
            "function_call" => {
                item.name.ok_or_else(|| missing(number, "name"))?;
                let is_text = |arguments: &Arguments| *arguments == Arguments::Text;
                item.arguments.filter(is_text).ok_or_else(|| missing(number, "arguments"))?;
                let call = call_id(number, item.call_id)?;
                self.answer(number, Some(call));
                Ok(())
            }
            "tool_search_call" => {
                item.arguments.ok_or_else(|| missing(number, "arguments"))?;
                self.searches += 1;
                self.answer(number, None);
                Ok(())
            }
            "tool_search_output" => {
                item.tools.ok_or_else(|| missing(number, "tools"))?;
                self.searches = self.searches.checked_sub(1).ok_or_else(|| {
                    format!("No tool search call found for tool search output. (input[{number}])")
                })?;
                self.answer(number, None);
                Ok(())
            }
            "function_call_output" => {
                item.output.ok_or_else(|| missing(number, "output"))?;
                let results = vec![call_id(number, item.call_id)?];
                self.push(number, Heard { results, ..Heard::plain(Said::Results) });
                Ok(())
            }
            "item_reference" => Err(not_kept(item.id.as_deref().unwrap_or_default())),
            kind => Err(format!(
                "Invalid value: '{kind}'. Supported values are: 'message', 'reasoning', 'function_call', \
                 'function_call_output' and 'item_reference'. (input[{number}].type)"
            )),
        }
    }

    fn message(&mut self, number: usize, item: Item<'a>) -> Result<(), String> {
        let content = item.content.ok_or_else(|| missing(number, "content"))?;
        let role = item.role.ok_or_else(|| missing(number, "role"))?;
        let known: &[&str] = match &*role {
            "user" | "system" | "developer" => &["input_text", "input_image", "input_file"],
            "assistant" => &["output_text", "refusal"],
            role => {
                return Err(format!(
                    "Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', and 'user'. \
                     (input[{number}].role)"
                ));
            }
        };
        if let Some(at) = content.kinds.iter().position(|kind| !known.contains(&&**kind)) {
            let (kind, known) = (&content.kinds[at], known.join("', '"));
            return Err(format!(
                "Invalid value: '{kind}'. Supported values are: '{known}'. (input[{number}].content[{at}])"
            ));
        }
        match &*role {
            "assistant" => self.answer(number, None),
            "user" if carries_results(&content, &self.heard) => {
                self.push(number, Heard::plain(Said::Other));
            }
            "user" => {
                self.prompt = content.text();
                self.push(number, Heard::plain(Said::Prompt));
            }
            _ => self.push(number, Heard::plain(Said::Other)),
        }
        Ok(())
    }

    /// Adds an item that the model said.
    fn answer(&mut self, number: usize, call: Option<Cow<'a, str>>) {
        match self.heard.last_mut() {
            Some(heard) if heard.said == Said::Answer => heard.calls.extend(call),
            _ => {
                let calls = call.into_iter().collect();
                self.push(number, Heard { calls, ..Heard::plain(Said::Answer) });
            }
        }
    }

    fn push(&mut self, number: usize, heard: Heard<'a>) {
        self.heard.push(heard);
        self.items.push(number);
    }

    fn check(&self) -> Result<(), String> {
        if let Some(id) = &self.reasoning {
            return Err(unfollowed(id));
        }
        check_results(&self.heard).map_err(|unmatched| match unmatched {
            Unmatched::NoCall { id, at } => {
                let item = self.items.get(at).copied().unwrap_or_default();
                format!("No tool call found for function call output with call_id {id}. (input[{item}])")
            }
            Unmatched::TooEarly { id, .. } | Unmatched::Missing { id } => {
                format!("No tool output found for function call {id}.")
            }
        })
    }
}

fn missing(number: usize, what: &str) -> String {
    format!("Missing required parameter: 'input[{number}].{what}'.")
}

fn not_kept(id: &str) -> String {
    format!(
        "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` \
         set to true, or remove this item from your input."
    )
}

fn unfollowed(id: &str) -> String {
    format!("Item '{id}' of type 'reasoning' was provided without its required following item.")
}

fn check_id(number: usize, kind: &str, id: Option<&str>) -> Result<(), String> {
    let prefix = match kind {
        "message" => "msg",
        "reasoning" => "rs",
        "function_call" => "fc",
        _ => return Ok(()),
    };
    match id {
        Some(id) if !id.starts_with(prefix) => {
            Err(format!("Invalid 'input[{number}].id': '{id}'. Expected an ID that begins with '{prefix}'."))
        }
        _ => Ok(()),
    }
}

fn call_id<'a>(number: usize, id: Option<Cow<'a, str>>) -> Result<Cow<'a, str>, String> {
    let id = id.ok_or_else(|| missing(number, "call_id"))?;
    match id.chars().count() {
        0 => Err(format!("Invalid 'input[{number}].call_id': empty string.")),
        length if length > LONGEST_CALL_ID => Err(format!(
            "Invalid 'input[{number}].call_id': string too long. Expected a string with maximum length \
             {LONGEST_CALL_ID}, but got a string with length {length} instead."
        )),
        _ => Ok(id),
    }
}
