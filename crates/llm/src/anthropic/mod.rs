//! Anthropic Messages.

mod decode;
mod request;

use playhouse_protocol::chat::ChatMessage;
use secrecy::SecretString;

use crate::UsageConvention;
use crate::call_ids::IdForm;
use crate::decode::Decode;
use crate::dialect::{Context, Dialect, Wire};
use crate::head::Head;

/// The version of the wire format that is spoken here.
const VERSION: &str = "2023-06-01";

/// The dialect.
pub(crate) struct Anthropic;

impl Dialect for Anthropic {
    fn url(&self, base_url: &str, _: &str) -> String {
        // Some configurations name the address with the version that the path of this dialect holds already.
        let base = base_url.trim_end_matches('/');
        format!("{}/v1/messages", base.strip_suffix("/v1").unwrap_or(base))
    }

    fn headers(&self, key: Option<&SecretString>) -> Vec<(&'static str, SecretString)> {
        let mut headers = vec![("anthropic-version", SecretString::from(VERSION))];
        headers.extend(key.map(|key| ("x-api-key", key.clone())));
        headers
    }

    fn call_id_form(&self, _: &Head) -> IdForm {
        IdForm::UpTo(64)
    }

    fn write_head(&self, head: &Head, out: &mut Vec<u8>) {
        request::write_head(head, out);
    }

    fn write_message(&self, message: &ChatMessage, context: &mut Context<'_>, out: &mut Wire) {
        request::write_message(message, context, out);
    }

    fn no_calls(&self) -> &'static str {
        r#"],"tool_choice":{"type":"none"}}"#
    }

    fn cache_marker(&self) -> &'static str {
        request::CACHE_MARKER
    }

    fn decoder(&self, usage: UsageConvention) -> Box<dyn Decode> {
        Box::new(decode::Decoder::new(usage))
    }
}
