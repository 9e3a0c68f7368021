//! What every dialect must be able to do.

use std::cell::Cell;

use bytes::Bytes;
use playhouse_protocol::capability::Modalities;
use playhouse_protocol::chat::ChatMessage;
use playhouse_protocol::message::BlobRef;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::UsageConvention;
use crate::anthropic::Anthropic;
use crate::call_ids::{CallIds, IdForm};
use crate::decode::Decode;
use crate::gemini::Gemini;
use crate::head::{ChatFacts, Head, ToolChoice};
use crate::openai_chat::OpenaiChat;
use crate::openai_responses::OpenaiResponses;

/// A provider wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DialectKind {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions.
    OpenaiChat,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Gemini's `streamGenerateContent`.
    Gemini,
}

impl DialectKind {
    /// How many there are: the last one's number, and one.
    pub(crate) const COUNT: usize = Self::Gemini as usize + 1;

    /// Whether it has words for tools that the provider searches.
    pub fn searches_tools(self) -> bool {
        matches!(self, Self::Anthropic | Self::OpenaiResponses)
    }

    pub(crate) fn dialect(self) -> &'static dyn Dialect {
        match self {
            Self::Anthropic => &Anthropic,
            Self::OpenaiChat => &OpenaiChat,
            Self::OpenaiResponses => &OpenaiResponses,
            Self::Gemini => &Gemini,
        }
    }
}

/// How one wire format writes requests and reads answers.
///
/// A request is head, messages, tail. Only the tail may depend on the single request: whatever stands before the messages
/// is a function of the [`Head`] alone, so that a provider's prompt cache keeps hitting.
pub(crate) trait Dialect: Send + Sync {
    /// The whole address, for a server whose address begins with `base_url`.
    fn url(&self, base_url: &str, model: &str) -> String;

    /// The headers that this dialect adds.
    fn headers(&self, key: Option<&SecretString>) -> Vec<(&'static str, SecretString)>;

    /// Which ids of calls a server takes.
    fn call_id_form(&self, head: &Head) -> IdForm;

    /// Writes everything up to the first message of the conversation, cache markers included: it never changes.
    fn write_head(&self, head: &Head, out: &mut Vec<u8>);

    /// Writes a message as none, one or several wire messages with commas between them.
    fn write_message(&self, message: &ChatMessage, context: &mut Context<'_>, out: &mut Wire);

    /// What closes the list of messages and the request. `tools`: whether the head has any.
    fn tail(&self, tool_choice: ToolChoice, tools: bool) -> &'static str {
        if tools && tool_choice == ToolChoice::None { self.no_calls() } else { "]}" }
    }

    /// What closes them where no tool of the head may be called.
    fn no_calls(&self) -> &'static str {
        r#"],"tool_choice":"none"}"#
    }

    /// What is spliced in at the marks of a [`Wire`].
    fn cache_marker(&self) -> &'static str {
        ""
    }

    /// A decoder for one answer of a server that counts as `usage` says.
    fn decoder(&self, usage: UsageConvention) -> Box<dyn Decode>;
}

/// Serialized JSON, and the places in it where a cache marker may be spliced in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire {
    /// The JSON.
    pub(crate) bytes: Vec<u8>,
    /// Offsets into `bytes`, ascending.
    pub(crate) marks: Vec<usize>,
}

/// What a message needs beside itself to be written.
pub(crate) struct Context<'a> {
    /// The model that will read it.
    pub(crate) model: &'a str,
    /// What it reads beside text.
    pub(crate) modalities: Modalities,
    /// What its server takes, if it is one of Chat Completions.
    pub(crate) chat: ChatFacts,
    /// Whether the last message that was written is the results of calls.
    pub(crate) after_results: &'a mut bool,
    /// Ids of the calls so far.
    pub(crate) ids: &'a mut CallIds,
    /// Loads an attachment.
    pub(crate) blobs: &'a dyn Fn(&BlobRef) -> Option<Bytes>,
    /// How many bytes of files the conversation may still carry.
    pub(crate) file_room: Cell<u64>,
}
