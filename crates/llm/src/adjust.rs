//! Optional parameters that a server refuses: what a refusal names, and how requests do without.
//!
//! A request that is refused because of an optional parameter is sent again without it, or in its other form.
//! [`Findings::learn`] reads such a refusal and keeps what it says for that provider and model; [`Findings::of`] gives it to
//! all later requests ([`Head::adjustments`]). What carries meaning (messages, tools) is never left out, and a request never
//! leaves without a limit of its output.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

use parking_lot::Mutex;
use playhouse_protocol::capability::{Effort, Thinking};
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::{ErrorCode, ErrorInfo, ModelRef, ProviderWords};
use serde_json::Value;

mod tools;

use crate::dialect::DialectKind;
use crate::head::{Head, OutputLimitField, Reasoning};
pub use tools::ToolIdentity;
use tools::{MOST_SET_ASIDE, Removable};

/// An optional parameter of requests, whatever its name in a dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Parameter {
    /// How much the model thinks.
    Reasoning,
    /// What becomes of reasoning that does not hold any more.
    BlockBinding,
    /// The sampling temperature.
    Temperature,
    /// Nucleus sampling.
    TopP,
    /// Usage at the end of a stream.
    StreamOptions,
    /// The key of the prompt cache.
    CacheKey,
    /// Marks up to where the prompt cache reaches.
    CacheControl,
    /// Whether tools may be called.
    ToolChoice,
    /// Encrypted reasoning in the answer.
    Include,
    /// That schemas of tools need not be strict.
    Strict,
    /// Tools that the provider searches.
    DeferredTools,
}

impl Parameter {
    /// Each with the names that refusals give it, in lower case.
    const NAMES: [(Self, &'static [&'static str]); 11] = [
        (Self::BlockBinding, &["block_binding", "prefix_mismatch_behavior", "thinking-binding-controls"]),
        (Self::CacheControl, &["cache_control"]),
        (Self::StreamOptions, &["stream_options", "include_usage"]),
        (Self::CacheKey, &["prompt_cache_key"]),
        (Self::ToolChoice, &["tool_choice", "toolconfig", "tool_config", "functioncallingconfig"]),
        (Self::Include, &["include", "reasoning.encrypted_content"]),
        (Self::Temperature, &["temperature"]),
        (Self::TopP, &["top_p", "topp"]),
        (Self::Strict, &["strict"]),
        (
            Self::DeferredTools,
            &[
                "defer_loading",
                "tool search",
                "tool_search",
                "tool_search_tool_regex",
                "tool_search_tool_regex_20251119",
                "advanced-tool-use-2025-11-20",
            ],
        ),
        (
            Self::Reasoning,
            &[
                "reasoning_effort",
                "thinkingconfig",
                "thinking_config",
                "thinkinglevel",
                "thinking_level",
                "thinkingbudget",
                "thinking_budget",
                "enable_thinking",
                "output_config",
                "reasoning",
                "thinking",
                "effort",
            ],
        ),
    ];

    /// Its usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reasoning => "reasoning",
            Self::BlockBinding => "block_binding",
            Self::Temperature => "temperature",
            Self::TopP => "top_p",
            Self::StreamOptions => "stream_options",
            Self::CacheKey => "prompt_cache_key",
            Self::CacheControl => "cache_control",
            Self::ToolChoice => "tool_choice",
            Self::Include => "include",
            Self::Strict => "strict",
            Self::DeferredTools => "defer_loading",
        }
    }
}

/// Keywords of a schema that only narrow it: without them a model is told less, and the tool still checks its arguments.
const KEYWORDS: [&str; 20] = [
    "$schema",
    "additionalProperties",
    "default",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "propertyNames",
    "title",
    "uniqueItems",
];

/// Names of the limit of an answer.
const OUTPUT_LIMITS: [&str; 4] =
    ["max_completion_tokens", "max_output_tokens", "maxoutputtokens", "max_tokens"];

/// The least limit of an answer that is believed.
const LEAST_OUTPUT: u64 = 16;

/// The least context window that is believed.
const LEAST_WINDOW: u64 = 1_024;

/// What stands before the size of a context window.
const WINDOWS: [&str; 8] = [
    "context length",
    "context window",
    "context size",
    "context limit",
    "maximum prompt length",
    "maximum model length",
    "maximum number of tokens allowed",
    "token limit",
];

/// What one refusal says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// The parameter is left out.
    Without(Parameter),
    /// The model is told outright not to think: it refuses tools otherwise.
    NoReasoning,
    /// The model thinks in levels, and refuses budgets.
    Adaptive,
    /// The limit of the answer goes by its other name.
    OtherLimitField(OutputLimitField),
    /// An answer may have so many tokens at most.
    MostOutput(u64),
    /// The keyword is left out of schemas.
    WithoutKeyword(&'static str),
    /// A request may have so many tokens at most.
    Window(u64),
    /// The tool, which comes from outside, is left out.
    WithoutTool {
        /// Which tool.
        tool: ToolIdentity,
        /// What the provider said, cut.
        words: String,
    },
}

impl Finding {
    /// The line of the configuration that says the same, where there is one.
    pub fn configuration(&self, model: &ModelRef) -> Option<String> {
        let ModelRef { provider, model } = model;
        let of_model = |line: &str| format!("[providers.{provider}.models.\"{model}\"] {line}");
        Some(match self {
            Self::NoReasoning => of_model("reasoning = \"none\""),
            Self::MostOutput(tokens) => of_model(&format!("output = {tokens}")),
            Self::Window(tokens) => of_model(&format!("context = {tokens}")),
            Self::OtherLimitField(field) => {
                let name = serde_json::to_value(field).unwrap_or(Value::Null);
                format!("[providers.{provider}] output_limit_field = {name}")
            }
            Self::Without(Parameter::StreamOptions) => {
                format!("[providers.{provider}] stream_options = false")
            }
            Self::Without(Parameter::DeferredTools) => {
                format!("[providers.{provider}] deferred_tools = false")
            }
            Self::Without(_) | Self::Adaptive | Self::WithoutKeyword(_) | Self::WithoutTool { .. } => {
                return None;
            }
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Without(parameter) => write!(f, "`{}` is left out", parameter.name()),
            Self::NoReasoning => f.write_str("the reasoning effort is `none`"),
            Self::Adaptive => f.write_str("thinking is told as a level, not as a budget"),
            Self::OtherLimitField(field) => {
                let name = match field {
                    OutputLimitField::MaxTokens => "max_tokens",
                    OutputLimitField::MaxCompletionTokens => "max_completion_tokens",
                };
                write!(f, "the limit of the answer is sent as `{name}`")
            }
            Self::MostOutput(tokens) => write!(f, "an answer has at most {tokens} tokens"),
            Self::WithoutKeyword(keyword) => write!(f, "`{keyword}` is left out of the schemas of tools"),
            Self::Window(tokens) => write!(f, "the context window has {tokens} tokens"),
            Self::WithoutTool { tool, words } => {
                write!(f, "the tool `{}` is set aside, since the provider said: {words}", tool.name)
            }
        }
    }
}

/// What [`Findings::learn`] read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned {
    /// The finding.
    pub finding: Finding,
    /// Whether it was not known before, from another request to the same model.
    pub is_new: bool,
}

/// All that was found of one provider and model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adjustments(BTreeSet<Finding>);

impl Adjustments {
    /// Whether the parameter is left out.
    pub(crate) fn omits(&self, parameter: Parameter) -> bool {
        self.0.contains(&Finding::Without(parameter))
    }

    fn keywords(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().filter_map(|finding| match finding {
            Finding::WithoutKeyword(keyword) => Some(*keyword),
            _ => None,
        })
    }

    /// Each finding.
    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.0.iter()
    }

    /// The most tokens of a request, where a refusal said so.
    pub fn window(&self) -> Option<u64> {
        let windows = self.0.iter().filter_map(|finding| match finding {
            Finding::Window(tokens) => Some(*tokens),
            _ => None,
        });
        windows.min()
    }
}

/// What refusals have said, by provider and model, until the program ends.
#[derive(Debug, Default)]
pub struct Findings {
    found: Mutex<HashMap<ModelRef, Adjustments>>,
    /// Reasoning that a model was wanted to do and that is sent as another level: it is logged once.
    mapped: Mutex<HashSet<(ModelRef, Effort)>>,
}

impl Findings {
    /// What was found of `model`.
    pub fn of(&self, model: &ModelRef) -> Adjustments {
        let found = self.found.lock();
        found.get(model).cloned().unwrap_or_default()
    }

    /// All models of which something was found.
    pub fn all(&self) -> Vec<(ModelRef, Adjustments)> {
        let found = self.found.lock();
        found.iter().map(|(model, adjustments)| (model.clone(), adjustments.clone())).collect()
    }

    /// A model for which its provider refused this tool, and what it said.
    pub fn refusal_of(&self, tool: &ToolSpec) -> Option<(ModelRef, String)> {
        let found = self.found.lock();
        let mut refusals = found.iter().filter_map(|(model, adjustments)| {
            adjustments.refusal_of(tool).map(|words| (model.clone(), words.to_owned()))
        });
        refusals.next()
    }

    /// Whether this is the first time that `model` is wanted to think at a level that it lacks.
    pub fn is_first_mapping(&self, model: &ModelRef, wanted: Effort) -> bool {
        let mut mapped = self.mapped.lock();
        mapped.insert((model.clone(), wanted))
    }

    fn insert(&self, model: &ModelRef, finding: Finding) -> Learned {
        let mut found = self.found.lock();
        let known = found.entry(model.clone()).or_default();
        if matches!(finding, Finding::WithoutTool { .. }) && known.set_aside().count() >= MOST_SET_ASIDE {
            known.0.retain(|finding| !matches!(finding, Finding::WithoutTool { .. }));
        }
        let is_new = known.0.insert(finding.clone());
        Learned { finding, is_new }
    }

    /// Reads how much a model takes from the refusal of a request that was too long for it. `None` where it does not say so,
    /// or no less than `known`, in tokens.
    pub fn learn_window(&self, model: &ModelRef, error: &ErrorInfo, known: u64) -> Option<Learned> {
        if error.code != ErrorCode::ContextOverflow {
            return None;
        }
        let tokens = window(&error.said.as_deref()?.message)
            .filter(|tokens| (LEAST_WINDOW..known).contains(tokens))?;
        Some(self.insert(model, Finding::Window(tokens)))
    }

    /// Reads the refusal of a request with this head, which was sent in `dialect`. `None` where it names no optional
    /// parameter that the request had: then it is final. Else later heads of the model are made accordingly, and the same
    /// request may be sent once more.
    pub fn learn(
        &self,
        model: &ModelRef,
        dialect: DialectKind,
        head: &Head,
        sent: &SentTools,
        error: &ErrorInfo,
    ) -> Option<Learned> {
        if error.code != ErrorCode::BadRequest || !matches!(error.status, Some(400 | 422)) {
            return None;
        }
        let said = error.said.as_deref()?;
        Some(self.insert(model, Refused { dialect, head, sent, said }.read()?))
    }

    /// Takes findings back that did not help.
    pub fn forget(&self, model: &ModelRef, findings: impl IntoIterator<Item = Finding>) {
        let mut found = self.found.lock();
        let Some(adjustments) = found.get_mut(model) else { return };
        for finding in findings {
            adjustments.0.remove(&finding);
        }
    }
}

/// What a request told of tools, as far as a refusal can name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentTools {
    /// Whether there were any.
    any: bool,
    /// Whether some of them were deferred, for the provider to search.
    searched: bool,
    /// The keywords of their schemas that can be left out.
    keywords: Vec<&'static str>,
    removable: Removable,
}

impl SentTools {
    /// The tools of `head`.
    pub fn of(head: &Head) -> Self {
        let has =
            |keyword: &&'static str| head.tools.iter().any(|tool| holds(&tool.parameters, keyword, false));
        let keywords = KEYWORDS.into_iter().filter(has).collect();
        let searched = head.tools.are_searched();
        Self { any: !head.tools.is_empty(), searched, keywords, removable: Removable::default() }
    }

    /// The same, where tools of `head` may be set aside if their names say so.
    #[must_use]
    pub fn without_some(self, head: &Head, may_be_set_aside: impl Fn(&str) -> bool) -> Self {
        Self { removable: Removable::of(&head.tools, may_be_set_aside), ..self }
    }
}

impl Head {
    /// Takes over what was found of the model.
    #[must_use]
    pub fn adjusted(mut self, adjustments: Adjustments) -> Self {
        for finding in &adjustments.0 {
            match finding {
                Finding::NoReasoning => {
                    (self.reasoning, self.reasoning_form) = (Some(Reasoning::Effort(Effort::None)), None);
                }
                Finding::Adaptive => {
                    if let Some(form) = &mut self.reasoning_form {
                        form.budget = None;
                    }
                }
                Finding::OtherLimitField(field) => self.chat.output_limit_field = *field,
                Finding::MostOutput(tokens) => self.max_output = self.max_output.min(*tokens),
                Finding::Without(Parameter::StreamOptions) => self.chat.stream_options = false,
                Finding::Without(Parameter::CacheKey) => self.cache_key = None,
                Finding::Without(Parameter::BlockBinding) => self.drop_stale_reasoning = false,
                Finding::Without(Parameter::Temperature) => self.temperature = None,
                Finding::Without(Parameter::TopP) => self.top_p = None,
                Finding::Without(Parameter::DeferredTools) => self.rules.tool_search = false,
                Finding::Without(_)
                | Finding::WithoutKeyword(_)
                | Finding::Window(_)
                | Finding::WithoutTool { .. } => {}
            }
        }
        // The bytes that are kept of the tools are those of requests with all of it.
        if adjustments.change_tools() {
            self.tools = self.tools.rewritten(|tool| adjustments.rewritten(tool));
        }
        self.adjustments = adjustments;
        self
    }
}

/// Takes keywords out of a schema. The names of properties are no keywords.
fn strip(schema: &mut Value, keywords: &[&str], names: bool) {
    match schema {
        Value::Object(members) => {
            if !names {
                members.retain(|name, _| !keywords.contains(&name.as_str()));
            }
            for (name, member) in members {
                let named = !names && matches!(name.as_str(), "properties" | "$defs" | "definitions");
                strip(member, keywords, named);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| strip(item, keywords, false)),
        _ => {}
    }
}

/// A refused request.
struct Refused<'a> {
    dialect: DialectKind,
    head: &'a Head,
    sent: &'a SentTools,
    said: &'a ProviderWords,
}

impl Refused<'_> {
    /// The optional parameter that the refusal names, of those that the request had.
    fn read(&self) -> Option<Finding> {
        let ProviderWords { message, parameter } = self.said;
        let (text, parameter) = (message.to_ascii_lowercase(), parameter.to_ascii_lowercase());
        // A place in the conversation is not an optional parameter, whatever its words are.
        let is_of_conversation = |text: &str| CONVERSATION.iter().any(|place| text.contains(place));
        if (is_of_conversation(&text) || is_of_conversation(&parameter)) && !has_word(&text, "cache_control")
        {
            return None;
        }
        if SCHEMA.iter().any(|words| text.contains(words)) {
            return self.keyword(message).or_else(|| self.tool());
        }
        // What stands beside the message is a name, whatever it is like.
        let named = format!("{text} `{parameter}`");
        if OUTPUT_LIMITS.iter().any(|name| has_word(&named, name)) {
            return self.limit(&text);
        }
        let places = Parameter::NAMES.into_iter().filter_map(|(parameter, names)| {
            Some((names.iter().filter_map(|name| named_at(&named, name)).min()?, parameter))
        });
        let (thinking, others): (Vec<_>, Vec<_>) =
            places.partition(|(_, parameter)| *parameter == Parameter::Reasoning);
        // Names of others may hold its words, and what is refused may be refused because of it.
        let others = others.into_iter().filter(|(_, parameter)| self.sends(*parameter));
        if let Some((_, parameter)) = others.min() {
            return Some(Finding::Without(parameter));
        }
        if !thinking.is_empty() {
            return self.reasoning(&text);
        }
        let may_be_of_tools = ["tools", "function", "parameters", "properties"];
        let is_of_tools = may_be_of_tools.iter().any(|word| text.contains(word))
            || parameter.starts_with("tools")
            || parameter.contains("function_declarations");
        is_of_tools.then(|| self.keyword(message).or_else(|| self.tool())).flatten()
    }

    /// The tool from outside that the refusal names.
    fn tool(&self) -> Option<Finding> {
        self.sent.removable.refused(&self.said.message, &self.said.parameter)
    }

    /// The keyword of a schema that the refusal names.
    fn keyword(&self, message: &str) -> Option<Finding> {
        let is_sent =
            |keyword: &&'static str| !self.head.adjustments.0.contains(&Finding::WithoutKeyword(keyword));
        let mut keywords = self.sent.keywords.iter().copied().filter(is_sent);
        keywords.find(|keyword| has_word(message, keyword)).map(Finding::WithoutKeyword)
    }

    /// What a refusal says that names the limit of the answer.
    fn limit(&self, text: &str) -> Option<Finding> {
        let (sent, name) = match self.head.chat.output_limit_field {
            OutputLimitField::MaxTokens => ("max_tokens", OutputLimitField::MaxCompletionTokens),
            OutputLimitField::MaxCompletionTokens => ("max_completion_tokens", OutputLimitField::MaxTokens),
        };
        let other = if sent == "max_tokens" { "max_completion_tokens" } else { "max_tokens" };
        // Both names were refused: no request leaves without a limit.
        let is_tried =
            self.head.adjustments.0.iter().any(|finding| matches!(finding, Finding::OtherLimitField(_)));
        let swap = (self.dialect == DialectKind::OpenaiChat && has_word(text, sent) && !is_tried)
            .then_some(Finding::OtherLimitField(name));
        if swap.is_some() && has_word(text, other) {
            return swap;
        }
        let range = LEAST_OUTPUT..self.head.max_output;
        let most = numbers(text).filter(|number| range.contains(number)).max();
        let is_bound = BOUNDS.iter().any(|words| text.contains(words));
        most.filter(|_| is_bound).map(Finding::MostOutput).or(swap)
    }

    /// What a refusal says that names how much the model is to think.
    fn reasoning(&self, text: &str) -> Option<Finding> {
        let adjustments = &self.head.adjustments;
        let adaptive = text.contains("adaptive") && !adjustments.0.contains(&Finding::Adaptive);
        if self.dialect == DialectKind::Anthropic && adaptive && text.contains("enabled") {
            return Some(Finding::Adaptive);
        }
        if self.sends(Parameter::Reasoning) {
            return Some(Finding::Without(Parameter::Reasoning));
        }
        // It is demanded rather than refused.
        let demanded =
            self.dialect == DialectKind::OpenaiChat && !adjustments.0.contains(&Finding::NoReasoning);
        demanded.then_some(Finding::NoReasoning)
    }

    /// Whether the request had the parameter.
    fn sends(&self, parameter: Parameter) -> bool {
        let Self { dialect, head, sent, .. } = self;
        let openai = matches!(dialect, DialectKind::OpenaiChat | DialectKind::OpenaiResponses);
        let has = match parameter {
            Parameter::Reasoning => head.reasoning.is_some() || head.rules.thinking != Thinking::OnRequest,
            Parameter::BlockBinding => head.drop_stale_reasoning,
            Parameter::Temperature => head.temperature.is_some(),
            Parameter::TopP => head.top_p.is_some(),
            Parameter::StreamOptions => *dialect == DialectKind::OpenaiChat && head.chat.stream_options,
            Parameter::CacheKey => openai && head.cache_key.is_some(),
            Parameter::CacheControl => *dialect == DialectKind::Anthropic,
            Parameter::ToolChoice => sent.any,
            Parameter::Include => *dialect == DialectKind::OpenaiResponses,
            Parameter::Strict => *dialect == DialectKind::OpenaiResponses && sent.any,
            Parameter::DeferredTools => sent.searched,
        };
        has && !head.adjustments.omits(parameter)
    }
}

/// Places in a conversation, by their beginnings.
const CONVERSATION: [&str; 6] = ["messages.", "messages[", "input[", "input.", "contents[", "contents."];

/// Words of refusals that are about the schema of a tool.
const SCHEMA: [&str; 4] = ["invalid schema", "json schema", "input_schema", "in context="];

/// Words with which a refusal names a bound.
const BOUNDS: [&str; 13] = [
    " > ",
    "<=",
    "at most",
    "exceed",
    "less than",
    "limit",
    "maximum",
    "no more than",
    "range",
    "supports",
    "too high",
    "too large",
    "up to",
];

/// Names of parameters that are words of the language as well: they count where they are written as a name.
const PLAIN_WORDS: [&str; 5] = ["effort", "include", "reasoning", "strict", "thinking"];

/// Where a parameter is named. A plain word counts in quotes, as a part of a path, before a colon at the beginning, or after
/// a word for a parameter; not as the type of an item.
fn named_at(text: &str, name: &str) -> Option<usize> {
    if !PLAIN_WORDS.contains(&name) {
        return place(text, name);
    }
    const BEFORE: [&str; 5] = ["parameter: ", "parameter ", "argument ", "supplied: ", "field "];
    places(text, name).find(|at| {
        let (before, after) = (&text[..*at], &text[at + name.len()..]);
        let quoted = before.ends_with(['\'', '"', '`'])
            && !before.trim_end_matches(['\'', '"', '`']).ends_with("type ");
        let path = before.ends_with('.') || after.starts_with(['.', '[']) && !after.starts_with(". ");
        let heads = before.is_empty() && after.starts_with(':');
        quoted || path || heads || BEFORE.iter().any(|words| before.ends_with(words))
    })
}

/// The whole numbers in a text that stand by themselves: none of a name, a date or a version.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ','))).filter_map(
        |word| {
            let word = word.trim_matches(['.', ',']);
            let digits = word.replace(',', "");
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
        },
    )
}

/// Whether a request was refused because of reasoning that it brought back: it does not hold any more, or was made for
/// somebody else.
pub fn refuses_reasoning(error: &ErrorInfo) -> bool {
    let text = error.message.to_ascii_lowercase();
    let refused = error.code == ErrorCode::BadRequest && matches!(error.status, Some(400 | 422));
    let anthropic = text.contains("thinking` block")
        && (text.contains("invalid `") || text.contains("cannot be modified"));
    let openai = text.contains("invalid_encrypted_content") || text.contains("encrypted content");
    refused && (anthropic || openai || text.contains("thought signature"))
}

/// The size of a context window that a refusal tells: `maximum context length is 4096 tokens`, or `210000 > 200000`.
fn window(message: &str) -> Option<u64> {
    let text = message.to_ascii_lowercase();
    let number = |text: &str| {
        let digits: String = text.chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
        digits.replace(',', "").parse::<u64>().ok()
    };
    let compared = text.rsplit_once("> ").and_then(|(_, rest)| number(rest));
    let named = || {
        WINDOWS.iter().find_map(|name| {
            let (_, rest) = text.split_once(name)?;
            let rest = rest.trim_start_matches([' ', ':', '(', '=', '\'', '`']);
            let rest = ["is ", "of "].iter().find_map(|word| rest.strip_prefix(word)).unwrap_or(rest);
            number(rest)
        })
    };
    compared.or_else(named)
}

/// Whether a schema has the keyword anywhere.
fn holds(schema: &Value, keyword: &str, names: bool) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(name, member)| {
            let named = !names && matches!(name.as_str(), "properties" | "$defs" | "definitions");
            (!names && name == keyword) || holds(member, keyword, named)
        }),
        Value::Array(items) => items.iter().any(|item| holds(item, keyword, false)),
        _ => false,
    }
}

/// The places of `word` in `text`, not as a part of a longer name.
fn places(text: &str, word: &str) -> impl Iterator<Item = usize> {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        !is_part(text[..*at].chars().next_back()) && !is_part(text[at + word.len()..].chars().next())
    })
}

fn place(text: &str, word: &str) -> Option<usize> {
    places(text, word).next()
}

fn has_word(text: &str, word: &str) -> bool {
    place(text, word).is_some()
}

#[cfg(test)]
mod tests;
