//! Wire formats: one trait, and a small implementation for each.

mod anthropic;
mod content;
mod frame;
mod gemini;
mod openai_chat;
mod openai_error;
mod openai_responses;

use playhouse_protocol::Tokens;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use self::frame::{Counts, Frame};
use crate::conversation::Place;
use crate::fault::Rejection;
use crate::rules::Refusal;
use crate::script::Finish;
use crate::usage::Reports;

/// A provider's wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// Anthropic Messages: `POST …/messages`.
    Anthropic,
    /// OpenAI Chat Completions: `POST …/chat/completions`.
    OpenaiChat,
    /// OpenAI Responses: `POST …/responses`.
    OpenaiResponses,
    /// Gemini: `POST …/models/MODEL:streamGenerateContent?alt=sse` and `POST …/models/MODEL:generateContent`.
    Gemini,
}

/// What a request asks for beside the answer itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// A stream that reports usage.
    pub(crate) stream_usage: bool,
    /// Reasoning in the form that can be sent back.
    pub(crate) encrypted_reasoning: bool,
    /// An answer in one piece as a list of chunks.
    pub(crate) chunk_list: bool,
}

/// What matters of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The model's name.
    pub(crate) model: String,
    /// Whether the answer is to be a stream.
    pub(crate) stream: bool,
    /// What else is asked for.
    pub(crate) wants: Wants,
    /// Where the conversation stands.
    pub(crate) place: Place,
    /// Whether the model may call tools.
    pub(crate) may_call: bool,
    /// The text of the last prompt.
    pub(crate) prompt: String,
}

/// What every event of an answer may need.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// The model's name.
    pub(crate) model: String,
    /// Where the conversation stands; ids are made of it.
    pub(crate) place: Place,
    /// What else is asked for.
    pub(crate) wants: Wants,
    /// The input's tokens; no output yet.
    pub(crate) input: Tokens,
    /// Whether they are reported before the end of a stream, in formats that do.
    pub(crate) is_early: bool,
    /// Entries of `input_transformations`; the formats that have no such list leave them out.
    pub(crate) transformations: Vec<Value>,
}

/// What a part of an answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartKind {
    /// Text.
    Text,
    /// Words with which the model declines.
    Refusal,
    /// Reasoning.
    Reasoning {
        /// What proves that the provider said it; absent for the wire's usual one.
        signature: Option<String>,
    },
    /// Reasoning that nobody may read; it has no text.
    Redacted {
        /// What stands in its place.
        data: String,
    },
    /// A call; its text is its arguments.
    Call {
        /// The id; empty for none, where the format can do without.
        id: String,
        /// The tool.
        name: String,
    },
    /// A block of the wire, as it is; its text is the block's `input`, where that comes in pieces.
    Block {
        /// The block.
        block: Value,
    },
}

impl PartKind {
    /// Whether it is a call.
    pub(crate) fn is_call(&self) -> bool {
        matches!(self, Self::Call { .. })
    }

    /// Whether its tokens are reasoning.
    pub(crate) fn is_reasoning(&self) -> bool {
        matches!(self, Self::Reasoning { .. } | Self::Redacted { .. })
    }
}

/// How an answer ends.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    /// Why.
    pub(crate) finish: Finish,
    /// All tokens, input and output.
    pub(crate) tokens: Tokens,
    /// The total to report, where that is not their sum.
    pub(crate) total: Option<u64>,
    /// How they are reported.
    pub(crate) reports: Reports,
    /// Whether they are reported.
    pub(crate) is_reported: bool,
}

/// The mark of an event that reports usage, and tells the client these counts.
fn mark(says: Option<Tokens>) -> frame::Mark {
    says.map_or(frame::Mark::Structure, frame::Mark::Usage)
}

impl Ending {
    /// The total to report.
    pub(crate) fn total(&self) -> u64 {
        self.total.unwrap_or_else(|| self.tokens.total())
    }
}

/// How a provider says no.
#[derive(Debug)]
pub(crate) struct Rejected {
    /// The status.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: Vec<u8>,
    /// Whether the body is a stream of events.
    pub(crate) is_stream: bool,
}

/// A wire format.
pub(crate) trait Wire: Send + Sync {
    /// Which one it is.
    fn dialect(&self) -> Dialect;

    /// Whether requests to `path` (without a query) are in this format.
    fn serves(&self, path: &str) -> bool;

    /// Reads a request to `path` with `query`, which has no question mark; an error says what is wrong with it.
    fn read(&self, path: &str, query: &str, body: &[u8]) -> Result<Asked, String>;

    /// An error's body.
    fn error(&self, status: u16, message: &str) -> Vec<u8>;

    /// The body of a refusal.
    fn refuse(&self, refusal: &Refusal) -> Vec<u8> {
        self.error(refusal.status, &refusal.message)
    }

    /// What the provider says no with, to a request for a stream or for an answer in one piece.
    fn reject(&self, rejection: Rejection, about: &About, is_stream: bool) -> Rejected;

    /// The id of call `number` of an answer, for calls that the script gives none; empty for none.
    fn call_id(&self, place: Place, number: usize) -> String;

    /// Begins a stream.
    fn stream(&self, about: About) -> Box<dyn Encode>;

    /// An answer in one piece: each part with its text.
    fn whole(&self, about: &About, parts: &[(PartKind, String)], ending: &Ending) -> Vec<u8>;

    /// The counts as this format tells them: classes that it lacks are in others.
    fn reported(&self, tokens: Tokens) -> Tokens;

    /// The usage object with counts that are [`reported`](Self::reported) so.
    fn usage(&self, tokens: Tokens, total: u64) -> Value;
}

/// Writes the events of one stream. Called in order: `start`, then for each part `begin`, any number of `delta`, `end`,
/// and then `finish`; or `error` at any time.
pub(crate) trait Encode: Send {
    /// The answer begins.
    fn start(&mut self, frame: &mut Frame);
    /// A part begins.
    fn begin(&mut self, part: &PartKind, frame: &mut Frame);
    /// A token of the part.
    fn delta(&mut self, token: &str, frame: &mut Frame);
    /// The part ends.
    fn end(&mut self, frame: &mut Frame);
    /// The answer ends.
    fn finish(&mut self, ending: &Ending, frame: &mut Frame);
    /// The answer breaks off with an error event; an empty `kind` is the format's word for overload.
    fn error(&mut self, kind: &str, message: &str, frame: &mut Frame);
}

/// All wire formats.
const WIRES: [&dyn Wire; 4] =
    [&anthropic::Anthropic, &openai_chat::OpenaiChat, &openai_responses::OpenaiResponses, &gemini::Gemini];

/// The wire format of requests to `path`.
pub(crate) fn wire_of(path: &str) -> Option<&'static dyn Wire> {
    WIRES.into_iter().find(|wire| wire.serves(path))
}

/// The error body for requests that belong to no wire format.
pub(crate) fn foreign_error(status: u16, message: &str) -> Vec<u8> {
    openai_error::error(status, message)
}

/// Reads a request's body; an error says where it is not what it should be.
fn read_json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("the body is not a request of this format: {error}"))
}

/// Appends `text` as a JSON string.
fn push_json(out: &mut Vec<u8>, text: &str) {
    // The common token needs no escape; asking the serializer costs twice the time of copying it.
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_prefix_will_do() {
        let dialect = |path| wire_of(path).map(|wire| wire.dialect());
        for path in ["/v1/messages", "/messages", "/anthropic/v1/messages"] {
            assert_eq!(dialect(path), Some(Dialect::Anthropic), "{path}");
        }
        for path in ["/v1/chat/completions", "/chat/completions", "/openai/v1/chat/completions"] {
            assert_eq!(dialect(path), Some(Dialect::OpenaiChat), "{path}");
        }
        for path in ["/v1/responses", "/responses", "/openai/v1/responses"] {
            assert_eq!(dialect(path), Some(Dialect::OpenaiResponses), "{path}");
        }
        for path in ["/v1beta/models/m:generateContent", "/models/a.b-c:streamGenerateContent"] {
            assert_eq!(dialect(path), Some(Dialect::Gemini), "{path}");
        }
        for path in ["/v1beta/models/m:countTokens", "/v1/m:generateContent", "/models/:generateContent"] {
            assert_eq!(dialect(path), None, "{path}");
        }
        for path in ["/", "/v1/models", "/v1/completions", "/v1/messages/count_tokens", "/v1/xmessages"] {
            assert_eq!(dialect(path), None, "{path}");
        }
    }

    #[test]
    fn strings_are_escaped() {
        for text in ["", "plain é 🏠", "a \"b\" \\ \n \u{1}\u{7f}"] {
            let mut out = Vec::new();
            push_json(&mut out, text);
            assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }
    }
}
