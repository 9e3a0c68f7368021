//! OpenAI Chat Completions, and the many servers that are compatible with it.

mod calls;
mod content;
mod decode;
mod details;
mod request;

use playhouse_protocol::chat::ChatMessage;
use secrecy::{ExposeSecret, SecretString};

use crate::UsageConvention;
use crate::call_ids::IdForm;
use crate::decode::Decode;
use crate::dialect::{Context, Dialect, Wire};
use crate::head::{CallIdForm, Head};

/// The dialect.
pub(crate) struct OpenaiChat;

impl Dialect for OpenaiChat {
    fn url(&self, base_url: &str, _: &str) -> String {
        format!("{}/chat/completions", base_url.trim_end_matches('/'))
    }

    fn headers(&self, key: Option<&SecretString>) -> Vec<(&'static str, SecretString)> {
        let bearer = |key: &SecretString| SecretString::from(format!("Bearer {}", key.expose_secret()));
        key.map(|key| ("authorization", bearer(key))).into_iter().collect()
    }

    fn call_id_form(&self, head: &Head) -> IdForm {
        match head.chat.call_ids {
            CallIdForm::Usual => IdForm::UpTo(40),
            CallIdForm::NineAlphanumeric => IdForm::NineAlphanumeric,
        }
    }

    fn write_head(&self, head: &Head, out: &mut Vec<u8>) {
        request::write_head(head, out);
    }

    fn write_message(&self, message: &ChatMessage, context: &mut Context<'_>, out: &mut Wire) {
        request::write_message(message, context, &mut out.bytes);
    }

    fn decoder(&self, usage: UsageConvention) -> Box<dyn Decode> {
        Box::new(decode::Decoder::new(usage))
    }
}
