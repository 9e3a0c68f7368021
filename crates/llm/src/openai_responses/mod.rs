//! OpenAI Responses, without the provider's memory: every request holds the whole conversation.

mod decode;
mod item;
mod request;

use playhouse_protocol::chat::ChatMessage;
use secrecy::{ExposeSecret, SecretString};

use crate::UsageConvention;
use crate::call_ids::IdForm;
use crate::decode::Decode;
use crate::dialect::{Context, Dialect, Wire};
use crate::head::Head;

/// The dialect.
pub(crate) struct OpenaiResponses;

impl Dialect for OpenaiResponses {
    fn url(&self, base_url: &str, _: &str) -> String {
        format!("{}/responses", base_url.trim_end_matches('/'))
    }

    fn headers(&self, key: Option<&SecretString>) -> Vec<(&'static str, SecretString)> {
        let bearer = |key: &SecretString| SecretString::from(format!("Bearer {}", key.expose_secret()));
        key.map(|key| ("authorization", bearer(key))).into_iter().collect()
    }

    fn call_id_form(&self, _: &Head) -> IdForm {
        IdForm::UpTo(64)
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
