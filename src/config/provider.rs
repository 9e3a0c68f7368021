//! Providers: servers that speak a dialect.

use std::collections::BTreeMap;

use playhouse_catalogue::ModelFacts;
use playhouse_llm::{
    CallIdForm, ChatFacts, Connections, DialectKind, Http2, OutputLimitField, Quota, UsageConvention,
    check_address,
};
use playhouse_protocol::nearest::did_you_mean;
use secrecy::SecretString;

use super::credentials::KeyVariable;
use super::document::Value;
use super::error::ConfigError;

/// A server, how to speak to it, and where its key is.
#[derive(Clone, Debug)]
pub struct ProviderSettings {
    /// What it is spoken to in.
    pub dialect: DialectKind,
    /// Whether models are asked on the Responses wire instead: at OpenAI's own host those that want it, elsewhere those that
    /// answer nowhere else.
    pub responses: bool,
    /// Where it is, without a trailing slash.
    pub base_url: String,
    /// What is wrong with the address that the environment gives, so that no model of it can be asked.
    pub wrong_address: Option<ConfigError>,
    /// The environment variables that may hold its key, of which the first that is set counts; none for a server that
    /// needs no key.
    pub keys: Vec<KeyVariable>,
    /// Headers that go with every request, by name in lower case.
    pub headers: BTreeMap<String, HeaderSource>,
    /// What may be sent to it with one key.
    pub quota: Quota,
    /// How it counts tokens; `None` for the way that is known of its name and dialect.
    pub usage: Option<UsageConvention>,
    /// How it is connected to.
    pub connections: Connections,
    /// What it takes on Chat Completions.
    pub chat: ChatFacts,
    /// The dialects in which it takes a key by which requests that begin alike find the same cache.
    pub cache_key: &'static [DialectKind],
    /// Whether it searches deferred tools; `None` for what is known of its host and models.
    pub deferred_tools: Option<bool>,
}

impl ProviderSettings {
    /// What a model is asked in.
    pub fn dialect_for(&self, facts: &ModelFacts) -> DialectKind {
        let wants = facts.rules.responses && (!facts.rules.chat || self.is_openai());
        if self.responses && wants { DialectKind::OpenaiResponses } else { self.dialect }
    }

    /// Whether this is a host of OpenAI's own, of any region.
    pub(super) fn is_openai(&self) -> bool {
        let host = playhouse_llm::host(&self.base_url);
        host == "api.openai.com" || host.ends_with(".api.openai.com")
    }
}

/// Where the value of a header comes from.
#[derive(Clone, Debug)]
pub enum HeaderSource {
    /// It stands in the configuration.
    Text(SecretString),
    /// An environment variable holds it.
    Variable(String),
}

/// Dialects by name.
pub(super) const DIALECTS: [(&str, DialectKind); 4] = [
    ("anthropic", DialectKind::Anthropic),
    ("openai-chat", DialectKind::OpenaiChat),
    ("openai-responses", DialectKind::OpenaiResponses),
    ("gemini", DialectKind::Gemini),
];

/// Reads the name of a dialect.
pub(super) fn dialect(text: &str) -> Result<DialectKind, String> {
    choose("dialect", text, &DIALECTS)
}

/// The name of a dialect.
pub(super) fn dialect_name(kind: DialectKind) -> &'static str {
    DIALECTS.iter().find(|(_, known)| *known == kind).map_or("", |(name, _)| name)
}

/// Conventions by name, each with the dialect whose figures it reads.
const CONVENTIONS: [(&str, UsageConvention, DialectKind); 8] = [
    ("anthropic", UsageConvention::Anthropic, DialectKind::Anthropic),
    ("openai-chat", UsageConvention::OpenaiChat, DialectKind::OpenaiChat),
    ("openai-responses", UsageConvention::OpenaiResponses, DialectKind::OpenaiResponses),
    ("gemini", UsageConvention::Gemini, DialectKind::Gemini),
    ("deepseek-chat", UsageConvention::DeepseekChat, DialectKind::OpenaiChat),
    ("xai-chat", UsageConvention::XaiChat, DialectKind::OpenaiChat),
    ("openrouter-chat", UsageConvention::OpenrouterChat, DialectKind::OpenaiChat),
    ("alibaba-chat", UsageConvention::AlibabaChat, DialectKind::OpenaiChat),
];

/// Reads the name of a convention.
pub(super) fn usage(text: &str) -> Result<UsageConvention, String> {
    choose("usage convention", text, &CONVENTIONS.map(|(name, convention, _)| (name, convention)))
}

/// Refuses a convention that reads figures of another dialect.
pub(super) fn check_usage(convention: UsageConvention, dialect: DialectKind) -> Result<(), String> {
    let fits = |(_, known, of): &(&str, UsageConvention, DialectKind)| *known == convention && *of == dialect;
    if CONVENTIONS.iter().any(fits) {
        return Ok(());
    }
    let names: Vec<&str> =
        CONVENTIONS.iter().filter(|(_, _, of)| *of == dialect).map(|(name, _, _)| *name).collect();
    Err(format!("`usage` does not fit the dialect {}: there are {}", dialect_name(dialect), names.join(", ")))
}

const OUTPUT_LIMIT_FIELDS: [(&str, OutputLimitField); 2] = [
    ("max_tokens", OutputLimitField::MaxTokens),
    ("max_completion_tokens", OutputLimitField::MaxCompletionTokens),
];

/// Reads the name of an output limit field.
pub(super) fn output_limit_field(text: &str) -> Result<OutputLimitField, String> {
    choose("output limit field", text, &OUTPUT_LIMIT_FIELDS)
}

const CALL_ID_FORMS: [(&str, CallIdForm); 2] =
    [("usual", CallIdForm::Usual), ("nine-alphanumeric", CallIdForm::NineAlphanumeric)];

/// Reads the name of a form of ids.
pub(super) fn call_ids(text: &str) -> Result<CallIdForm, String> {
    choose("form of ids", text, &CALL_ID_FORMS)
}

const HTTP2: [(&str, Http2); 2] =
    [("negotiated", Http2::Negotiated), ("prior-knowledge", Http2::PriorKnowledge)];

/// Reads when HTTP/2 is spoken.
pub(super) fn http2(text: &str) -> Result<Http2, String> {
    choose("way to speak HTTP/2", text, &HTTP2)
}

/// Headers that hold keys, which never stand in a file.
const SECRET_HEADERS: [&str; 6] =
    ["authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie"];

/// Headers that belong to the engine and to HTTP.
const OWN_HEADERS: [&str; 11] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
    "x-playhouse-attempt",
];

/// Checks the name of a header, and gives it in lower case.
pub(super) fn header_name(name: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || name.len() > 128 || !name.chars().all(fits) {
        return Err("this is not the name of a header".to_owned());
    }
    let name = name.to_ascii_lowercase();
    if OWN_HEADERS.contains(&&*name) {
        return Err(format!("the header {name} is the engine's own"));
    }
    Ok(name)
}

/// Checks the value of the header `name` that stands in a file. It is not repeated.
pub(super) fn header_text(name: &str, value: &str) -> Result<HeaderSource, String> {
    if SECRET_HEADERS.contains(&name) {
        return Err(format!(
            "keys never stand in a file: name the variable that holds it, as in `{name} = {{ env = \"MY_KEY\" }}`"
        ));
    }
    check_header_value(value)?;
    Ok(HeaderSource::Text(value.trim().into()))
}

/// Takes the header `name` over.
pub(super) fn set_header(
    name: &str,
    value: &Value,
    headers: &mut BTreeMap<String, HeaderSource>,
) -> Result<(), String> {
    let name = header_name(name)?;
    let source = match value {
        Value::Text(text) => header_text(&name, text)?,
        Value::Variable(variable) => HeaderSource::Variable(variable_name(variable)?),
        _ => return Err("does not belong here".to_owned()),
    };
    match headers.insert(name, source) {
        Some(_) => Err("this header is set already, in other letters".to_owned()),
        None => Ok(()),
    }
}

/// A variable of a program's environment: its name, and its value or the variable that has it.
pub(super) fn environment(name: &str, value: &Value) -> Result<(String, HeaderSource), String> {
    let source = match value {
        Value::Text(text) => HeaderSource::Text(SecretString::from(text.as_str())),
        Value::Variable(variable) => HeaderSource::Variable(variable_name(variable)?),
        _ => return Err("does not belong here".to_owned()),
    };
    Ok((variable_name(name)?, source))
}

/// Refuses a value that no header can carry.
pub(super) fn check_header_value(value: &str) -> Result<(), &'static str> {
    let fits = |c: char| c == ' ' || c == '\t' || c.is_ascii_graphic();
    if value.trim().is_empty() {
        return Err("is empty");
    }
    if !value.trim().chars().all(fits) {
        return Err("holds characters that no header can carry");
    }
    Ok(())
}

pub(super) fn choose<T: Copy>(what: &str, text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let meant = did_you_mean(text, names.iter().copied());
        format!("unknown {what} \"{}\"; there are {}{meant}", text.escape_debug(), names.join(", "))
    })
}

/// Checks an address, and takes slashes off its end. The address is not repeated where it may hold a secret.
pub(super) fn base_url(text: &str) -> Result<String, String> {
    let text = text.trim();
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(format!(
            "\"{}\" has no scheme: write an address as in \"http://127.0.0.1:11434/v1\"",
            text.escape_debug()
        ));
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("the address must not hold a user or a password: keys come from `api_key_env`".to_owned());
    }
    if rest.contains(['?', '#']) {
        return Err("the address must end with its path, without `?` or `#`".to_owned());
    }
    if !matches!(scheme, "http" | "https") {
        return Err(format!("\"{}\" is not a scheme for a server: use http or https", scheme.escape_debug()));
    }
    let host = authority.rsplit_once(':').map_or(authority, |(host, port)| {
        // The colons of an IPv6 address are inside of its brackets.
        if port.ends_with(']') { authority } else { host }
    });
    if host.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(format!("\"{}\" is not the address of a server", text.escape_debug()));
    }
    check_address(text).map_err(|error| format!("\"{}\" is not an address: {error}", text.escape_debug()))?;
    Ok(text.trim_end_matches('/').to_owned())
}

/// Checks the name of a variable. It is not repeated: people put the key itself there.
pub(super) fn variable_name(text: &str) -> Result<String, String> {
    let fits =
        |(index, c): (usize, char)| c.is_ascii_alphabetic() || c == '_' || (index > 0 && c.is_ascii_digit());
    if text.is_empty() || text.len() > 128 || !text.chars().enumerate().all(fits) {
        return Err(
            "this is not the name of an environment variable: give the name of the one that holds the key, \
                    never the key itself"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// Checks a provider's name: it stands before the first slash of `PROVIDER/MODEL`.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
        let name: String = name.chars().take(64).collect();
        return Err(format!(
            "\"{}\" is not a name for a provider: use up to 64 lower-case letters, digits, `-`, `_` and `.`",
            name.escape_debug()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_has_the_name_that_serde_gives_it() {
        for (name, kind) in DIALECTS {
            assert_eq!(serde_json::to_value(kind).unwrap(), name);
        }
        for (name, field) in OUTPUT_LIMIT_FIELDS {
            assert_eq!(serde_json::to_value(field).unwrap(), name);
        }
        for (name, form) in CALL_ID_FORMS {
            assert_eq!(serde_json::to_value(form).unwrap(), name);
        }
        for (name, http2) in HTTP2 {
            assert_eq!(serde_json::to_value(http2).unwrap(), name);
        }
        for (name, convention, dialect) in CONVENTIONS {
            assert_eq!(serde_json::to_value(convention).unwrap(), name);
            assert_eq!(check_usage(convention, dialect), Ok(()));
        }
        assert!(check_usage(UsageConvention::Gemini, DialectKind::Anthropic).is_err());
    }

    #[test]
    fn addresses_are_checked() {
        for url in ["http://127.0.0.1:11434/v1", "https://a.example", "http://[::1]", "http://[::1]:8080/x"] {
            assert_eq!(base_url(&format!("{url}/")), Ok(url.to_owned()));
        }
        for url in [
            "localhost:11434",
            "ftp://a",
            "http://",
            "http://:80",
            "http:///v1",
            "http://a b",
            "http://a?k=1",
        ] {
            assert!(base_url(url).is_err(), "{url}");
        }
        let error = base_url("https://ada:hunter2@a.example").unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn headers_are_checked_and_hold_no_keys() {
        assert_eq!(header_name("X-Org"), Ok("x-org".to_owned()));
        for name in ["", "a b", "a:b", "Host", "content-type", "x-playhouse-attempt", "ä"] {
            assert!(header_name(name).is_err(), "{name}");
        }
        assert!(matches!(header_text("x-org", " blue team "), Ok(HeaderSource::Text(_))));
        for (name, value) in [("x-org", ""), ("x-org", "a\nb"), ("authorization", "hunter2")] {
            let error = header_text(name, value).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_key_in_the_place_of_a_variable_is_not_repeated() {
        assert_eq!(variable_name("LOCAL_KEY2"), Ok("LOCAL_KEY2".to_owned()));
        for text in ["", "2KEY", "sk-ant-123", "A B"] {
            let error = variable_name(text).unwrap_err();
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
    }
}
