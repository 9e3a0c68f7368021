//! Gemini's `streamGenerateContent`.

mod decode;
mod request;
mod schema;

use playhouse_protocol::chat::ChatMessage;
use secrecy::SecretString;

use crate::UsageConvention;
use crate::call_ids::IdForm;
use crate::decode::Decode;
use crate::dialect::{Context, Dialect, Wire};
use crate::head::Head;

/// The version of the wire format that is spoken here.
const VERSION: &str = "v1beta";

/// The dialect.
pub(crate) struct Gemini;

impl Dialect for Gemini {
    fn url(&self, base_url: &str, model: &str) -> String {
        let base = base_url.trim_end_matches('/');
        // The provider's own libraries are given the address without the version.
        let bare = base.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'));
        let version = if bare { format!("/{VERSION}") } else { String::new() };
        format!("{base}{version}/{}:streamGenerateContent?alt=sse", resource(model))
    }

    fn headers(&self, key: Option<&SecretString>) -> Vec<(&'static str, SecretString)> {
        key.map(|key| ("x-goog-api-key", key.clone())).into_iter().collect()
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

    fn no_calls(&self) -> &'static str {
        r#"],"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}}"#
    }

    fn decoder(&self, usage: UsageConvention) -> Box<dyn Decode> {
        Box::new(decode::Decoder::new(usage))
    }
}

/// A model as a path. Models that somebody tuned have a folder of their own.
fn resource(model: &str) -> String {
    let (folder, name) = ["models/", "tunedModels/"]
        .into_iter()
        .find_map(|folder| model.strip_prefix(folder).map(|name| (folder, name)))
        .unwrap_or(("models/", model));
    let mut path = folder.to_owned();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~@".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

/// Whether a model is of the third generation or a later one: these take levels of thinking, and want the signatures of
/// calls back.
fn wants_signatures(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let version = name.strip_prefix("gemini-").and_then(|rest| rest.split(['.', '-']).next());
    version.and_then(|version| version.parse::<u32>().ok()).is_some_and(|version| version >= 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_names_version_and_model() {
        let google = "https://generativelanguage.googleapis.com";
        for (base, model, expected) in [
            (format!("{google}/v1beta"), "gemini-2.5-pro", format!("{google}/v1beta/models/gemini-2.5-pro")),
            (format!("{google}/"), "models/gemini-2.5-pro", format!("{google}/v1beta/models/gemini-2.5-pro")),
            ("http://gate/way".to_owned(), "tunedModels/x", "http://gate/way/tunedModels/x".to_owned()),
            ("http://gate/way".to_owned(), "../a?b#c", "http://gate/way/models/..%2Fa%3Fb%23c".to_owned()),
            ("mock:".to_owned(), "walk", "mock:/models/walk".to_owned()),
        ] {
            assert_eq!(Gemini.url(&base, model), format!("{expected}:streamGenerateContent?alt=sse"));
        }
    }

    #[test]
    fn generations_are_told_apart() {
        for (model, expected) in [
            ("gemini-3-pro-preview", true),
            ("models/gemini-3.1-flash", true),
            ("gemini-10-pro", true),
            ("gemini-2.5-pro", false),
            ("gemini-flash-latest", false),
            ("gemma-3-27b", false),
        ] {
            assert_eq!(wants_signatures(model), expected, "{model}");
        }
    }
}
