//! Scripts: what each model says, turn by turn and step by step. Read from JSON, or built in Rust.

mod build;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

pub use self::build::{
    call, calls, malformed_call, reasoning, refusal, repeat, signed_reasoning, text, tokens,
};
use crate::fault::Fault;
use crate::framing::Framing;
use crate::usage::Reports;

/// What a model says when its script holds nothing for a request, unless [`Model::closing`] says otherwise.
pub const DEFAULT_CLOSING_TEXT: &str = "That is all I have to say.";

/// Models by name.
///
/// As JSON (`examples/script.json`, which `mock-llm --help` prints):
/// ```
/// let script: mock_llm::Script = include_str!("../examples/script.json").parse().unwrap();
/// assert_eq!(script.models["fix"].turns[0].steps.len(), 2);
/// ```
/// ```json
#[doc = include_str!("../examples/script.json")]
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The models.
    pub models: BTreeMap<String, Model>,
    /// Whether a prompt cache is simulated, for all models: what a request shares with an earlier one of the same model
    /// and wire format is reported as read from the cache. See [the crate's page](crate#prompt-cache).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prompt_cache: bool,
}

/// A script that cannot be used.
#[derive(Debug, Error)]
pub enum ScriptError {
    /// The file cannot be read; the error names it.
    #[error("cannot read the script: {0}")]
    Read(#[from] std::io::Error),
    /// The text is not a script; the error names line and column.
    #[error("{} is not a script: {error}", place.as_deref().unwrap_or(Path::new("the text")).display())]
    Parse {
        /// The file, where it came from one.
        place: Option<PathBuf>,
        /// What is wrong and where.
        error: serde_json::Error,
    },
}

/// A model: what it says in each turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Model {
    /// The turns, by the number of the prompt that they answer.
    pub turns: Vec<Turn>,
    /// Whether the turns begin again after the last one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cycle: bool,
    /// What is said when the script holds nothing for a request; absent for [`DEFAULT_CLOSING_TEXT`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closing: Option<String>,
    /// Tokens a second of steps that set none; absent for the mock's own rate.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "rate_above_zero")]
    pub rate: Option<f64>,
}

/// The steps that follow one prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// One answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// What is said, in order. Nothing gives an empty answer.
    pub items: Vec<Item>,
    /// Why the answer ends; absent for `tool_calls` when it holds calls, else `stop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish: Option<Finish>,
    /// Milliseconds between the request and the head of the answer.
    #[serde(skip_serializing_if = "playhouse_protocol::is_default")]
    pub delay_ms: u64,
    /// Tokens a second; absent for the model's rate.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "rate_above_zero")]
    pub rate: Option<f64>,
    /// Counts that are reported in place of those that were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageOverride>,
    /// How usage is reported, where that is more than counts, once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reports: Option<Box<Reports>>,
    /// How the answer goes wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// How the bytes of the answer are carried; the fault's too.
    #[serde(skip_serializing_if = "Framing::is_plain")]
    pub framing: Framing,
    /// How many times the same request meets the fault before it is answered well; absent for always.
    ///
    /// Two requests are the same when their bodies are, byte for byte, and their `x-mock-session` headers are. So
    /// sessions that ask exactly the same share the count, unless they send that header or differ in their prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_first: Option<u32>,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Item {
    /// This text.
    Text(String),
    /// This reasoning, before whatever follows. Its signature is one that is always the same.
    Reasoning(String),
    /// Reasoning with a signature (Anthropic), encrypted content (Responses) or thought signature (Gemini).
    SignedReasoning {
        /// The reasoning.
        text: String,
        /// The signature.
        signature: String,
    },
    /// Reasoning that nobody may read: redacted thinking (Anthropic), an item with encrypted content only (Responses), a
    /// thought signature only (Gemini). Chat completions have no such thing and say nothing.
    RedactedReasoning(String),
    /// These words in place of what was asked for, and [`Finish::Refusal`] unless the step says otherwise. A text where
    /// the wire has no place of its own for it.
    Refusal(String),
    /// A tool call.
    Call(Call),
    /// A block of content (Anthropic) or an item of the output (Responses), as it is on the wire: what the provider did itself,
    /// such as a search of tools. The `input` of a block comes in pieces. The other formats say nothing.
    Block(Value),
    /// So many tokens of made-up prose.
    Tokens(u64),
    /// A text of so many bytes (at most 256 MiB), all in one event.
    LargeEvent(u64),
    /// A text, several times over.
    Repeat {
        /// The text.
        text: String,
        /// How many times.
        times: u64,
    },
    /// So many tokens, each of which is the time at which it was made, in microseconds since the epoch: `@` and 16 digits.
    /// It tells how long a token is under way. An answer never tells a time twice, and the same request gets another answer.
    Times(u64),
}

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The tool.
    pub name: String,
    /// The arguments; absent for none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub input: Value,
    /// Text to send where the arguments belong, as it is, in place of `input`: for arguments that are not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// The call's id; absent for one made of its place in the conversation, or for none in the Gemini format, where calls
    /// need no id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Why an answer ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// All is said.
    Stop,
    /// The calls are to be made.
    ToolCalls,
    /// The output limit was reached.
    Length,
    /// A filter stopped it.
    ContentFilter,
    /// The model declined.
    Refusal,
    /// These words, as they are, where the wire has its reason.
    Other(String),
}

/// Counts to report in place of those that were counted. Each token is in one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UsageOverride {
    /// Input outside the cache; absent for the counted input without the cached input below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Input that was read from the cache; absent for 0, or what the simulated cache has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// Input that was written to the cache; absent for 0, or what the simulated cache takes. Wires without such a class
    /// report it as input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// Input that was written to the cache that keeps it for an hour; as the one before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_1h: Option<u64>,
    /// Input that was written to the cache that keeps it for 30 minutes; as those before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_30m: Option<u64>,
    /// Input that was written to the cache that keeps it for twelve hours; as those before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_12h: Option<u64>,
    /// Output without reasoning; absent for what was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// Reasoning; absent for what was sent. Wires without such a class report it as output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// The total that is reported; absent for the right one. The Anthropic format reports none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

/// Whether tokens can be sent at `rate` a second.
pub(crate) fn is_rate(rate: f64) -> bool {
    rate.is_finite() && rate > 0.0
}

fn rate_above_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    match Option::<f64>::deserialize(deserializer)? {
        Some(rate) if !is_rate(rate) => Err(D::Error::custom(
            "a rate is a number of tokens a second above 0; leave it out to send as fast as possible",
        )),
        rate => Ok(rate),
    }
}

impl std::str::FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        serde_json::from_str(text).map_err(|error| ScriptError::Parse { place: None, error })
    }
}

impl Script {
    /// Reads a script from a JSON file.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a script: the error names file, line and column.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let text = fs_err::read(path)?;
        serde_json::from_slice(&text)
            .map_err(|error| ScriptError::Parse { place: Some(path.to_owned()), error })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::fault::{Cut, Moment};
    use crate::framing::LineEnd;

    #[test]
    fn json_and_builder_say_the_same() {
        let parsed: Script = json!({"models": {"m": {
            "turns": [
                {"steps": [
                    {"items": [{"reasoning": "a"}, {"text": "b"}, {"call": {"name": "read", "input": {"x": 1}}}]},
                    {"items": [{"tokens": 3}, {"repeat": {"text": "ab ", "times": 2}}], "rate": 2.5, "delay_ms": 7},
                    {"items": [{"signed_reasoning": {"text": "t", "signature": "s"}}, {"redacted_reasoning": "d"},
                        {"refusal": "no"}, {"large_event": 9}], "framing": {"line_end": "crlf"}},
                ]},
                {"steps": [
                    {"fault": {"cut": {"at": "in_text", "how": "reset"}}, "fail_first": 1},
                    {"finish": {"other": "tired"}, "usage": {"cache_read": 9}},
                ]}
            ],
            "closing": "bye", "cycle": true,
        }}, "prompt_cache": true})
        .to_string()
        .parse()
        .unwrap();
        let built = Script::new().prompt_cache().model(
            "m",
            Model::new()
                .step(reasoning("a").text("b").call("read", json!({"x": 1})))
                .step(
                    tokens(3)
                        .item(Item::Repeat { text: "ab ".into(), times: 2 })
                        .rate(2.5)
                        .delay(Duration::from_millis(7)),
                )
                .step(
                    signed_reasoning("t", "s")
                        .redacted_reasoning("d")
                        .item(Item::Refusal("no".into()))
                        .item(Item::LargeEvent(9))
                        .framing(Framing::line_end(LineEnd::Crlf)),
                )
                .next_turn()
                .step(Step::empty().fault(Fault::cut(Moment::InText, Cut::Reset)).fail_first(1))
                .step(
                    Step::empty()
                        .finish(Finish::Other("tired".into()))
                        .usage(UsageOverride { cache_read: Some(9), ..UsageOverride::default() }),
                )
                .closing("bye")
                .cycle(),
        );
        assert_eq!(parsed, built);
        let again: Script = serde_json::to_string(&built).unwrap().parse().unwrap();
        assert_eq!(again, built);
    }

    #[test]
    fn errors_name_file_line_and_column() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.json");
        fs_err::write(&path, "{\"models\": {\"m\": {\n  \"turn\": []}}}").unwrap();
        let error = Script::load(&path).unwrap_err().to_string();
        assert!(error.contains("bad.json is not a script"), "{error}");
        assert!(error.contains("`turn`") && error.contains("`turns`") && error.contains("line 2"), "{error}");
        let error = Script::load(&folder.path().join("absent.json")).unwrap_err().to_string();
        assert!(error.contains("absent.json"), "{error}");
    }

    #[test]
    fn rates_that_cannot_be_are_refused() {
        for rate in ["0", "-1", "\"fast\""] {
            let text = format!(r#"{{"models": {{"m": {{"rate": {rate}}}}}}}"#);
            assert!(text.parse::<Script>().is_err(), "{rate}");
        }
        assert_eq!(tokens(1).rate(0.0).rate, None);
        assert_eq!(tokens(1).rate(f64::NAN).rate, None);
    }
}
