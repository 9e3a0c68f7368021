//! The providers that are there without configuration: each a row of data, and nothing else.

use std::collections::BTreeMap;

use playhouse_llm::{
    CallIdForm, ChatFacts, Connections, DialectKind, OutputLimitField, Quota, ReasoningWords,
};
use playhouse_protocol::capability::ReasoningField;

use super::credentials::KeyVariable;
use super::error::ConfigError;
use super::provider::{HeaderSource, ProviderSettings, base_url};
use super::settings::Variables;

use DialectKind::{Anthropic, Gemini, OpenaiChat, OpenaiResponses};

/// A provider that is there without configuration. How it counts tokens is known by its name and dialect:
/// [`UsageConvention::of`](playhouse_llm::UsageConvention::of).
pub(super) struct Row {
    pub(super) name: &'static str,
    /// What it speaks at this address; the first is what it is spoken to.
    pub(super) dialects: &'static [DialectKind],
    base_url: &'static str,
    /// The variable that may say where it is instead, as its own libraries have it.
    pub(super) url_variable: &'static str,
    /// What that variable holds.
    form: AddressForm,
    /// The variables that may hold its key; the first that is set counts. None for one that needs no key.
    pub(super) keys: &'static [Key],
    /// What it takes on Chat Completions.
    chat: ChatFacts,
    /// The dialects in which it takes a key by which requests that begin alike find the same cache.
    cache_key: &'static [DialectKind],
    /// What it likes to be told.
    headers: &'static [(&'static str, &'static str)],
}

/// A variable that may hold a key.
pub(super) struct Key {
    pub(super) variable: &'static str,
    /// Whether it goes out as `authorization: Bearer …`, whatever the dialect's own header is.
    bearer: bool,
}

const fn key(variable: &'static str) -> Key {
    Key { variable, bearer: false }
}

/// What a variable says of an address.
enum AddressForm {
    /// The same part of it as `base_url`.
    Whole,
    /// The part before this path, which is added where it is missing.
    Before(&'static str),
    /// A host, perhaps with scheme and port; this port and this path are added where they are missing.
    Host { port: u16, path: &'static str },
}

use AddressForm::{Before, Host, Whole};

const USUAL: ChatFacts = ChatFacts::USUAL;
/// Knows `max_completion_tokens`, and has given up on `max_tokens`.
const RENAMED: ChatFacts = ChatFacts { output_limit_field: OutputLimitField::MaxCompletionTokens, ..USUAL };
/// Refuses fields that it does not know, reports usage unasked, and checks ids.
const MISTRAL: ChatFacts = ChatFacts {
    stream_options: false,
    call_ids: CallIdForm::NineAlphanumeric,
    user_after_results: false,
    ..USUAL
};
/// Refuses calls that it thought about without what it thought.
const DEEPSEEK: ChatFacts = ChatFacts { reasoning_field: Some(ReasoningField::ReasoningContent), ..USUAL };
/// Hands on what each of its models needs again, where it gets it as it gave it.
const OPENROUTER: ChatFacts = ChatFacts {
    reasoning_field: Some(ReasoningField::ReasoningDetails),
    reasoning_words: ReasoningWords::Object,
    ..USUAL
};
/// Its models think by budgets.
const ALIBABA: ChatFacts = ChatFacts { reasoning_words: ReasoningWords::ThinkingBudget, ..USUAL };

/// In the order in which they are told of.
pub(super) const ROWS: [Row; 10] = [
    Row {
        name: "anthropic",
        dialects: &[Anthropic],
        base_url: "https://api.anthropic.com",
        url_variable: "ANTHROPIC_BASE_URL",
        form: Whole,
        keys: &[key("ANTHROPIC_API_KEY"), Key { variable: "ANTHROPIC_AUTH_TOKEN", bearer: true }],
        chat: USUAL,
        cache_key: &[],
        headers: &[],
    },
    Row {
        name: "openai",
        dialects: &[OpenaiChat, OpenaiResponses],
        base_url: "https://api.openai.com/v1",
        url_variable: "OPENAI_BASE_URL",
        form: Whole,
        keys: &[key("OPENAI_API_KEY")],
        chat: RENAMED,
        cache_key: &[OpenaiChat, OpenaiResponses],
        headers: &[],
    },
    Row {
        name: "google",
        dialects: &[Gemini],
        base_url: "https://generativelanguage.googleapis.com",
        url_variable: "GOOGLE_GEMINI_BASE_URL",
        form: Whole,
        keys: &[key("GEMINI_API_KEY"), key("GOOGLE_API_KEY")],
        chat: USUAL,
        cache_key: &[],
        headers: &[],
    },
    Row {
        name: "openrouter",
        dialects: &[OpenaiChat],
        base_url: "https://openrouter.ai/api/v1",
        url_variable: "OPENROUTER_BASE_URL",
        form: Whole,
        keys: &[key("OPENROUTER_API_KEY")],
        chat: OPENROUTER,
        cache_key: &[],
        headers: &[("x-title", "Playhouse")],
    },
    Row {
        name: "mistral",
        dialects: &[OpenaiChat],
        base_url: "https://api.mistral.ai/v1",
        url_variable: "MISTRAL_BASE_URL",
        form: Whole,
        keys: &[key("MISTRAL_API_KEY")],
        chat: MISTRAL,
        cache_key: &[OpenaiChat],
        headers: &[],
    },
    Row {
        name: "groq",
        dialects: &[OpenaiChat],
        base_url: "https://api.groq.com/openai/v1",
        url_variable: "GROQ_BASE_URL",
        form: Before("/openai/v1"),
        keys: &[key("GROQ_API_KEY")],
        chat: RENAMED,
        cache_key: &[],
        headers: &[],
    },
    Row {
        name: "deepseek",
        dialects: &[OpenaiChat],
        base_url: "https://api.deepseek.com",
        url_variable: "DEEPSEEK_BASE_URL",
        form: Whole,
        keys: &[key("DEEPSEEK_API_KEY")],
        chat: DEEPSEEK,
        cache_key: &[],
        headers: &[],
    },
    Row {
        name: "xai",
        dialects: &[OpenaiChat, OpenaiResponses],
        base_url: "https://api.x.ai/v1",
        url_variable: "XAI_BASE_URL",
        form: Whole,
        keys: &[key("XAI_API_KEY")],
        chat: RENAMED,
        cache_key: &[OpenaiResponses],
        headers: &[],
    },
    Row {
        name: "alibaba",
        dialects: &[OpenaiChat],
        base_url: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        url_variable: "DASHSCOPE_BASE_URL",
        form: Whole,
        keys: &[key("DASHSCOPE_API_KEY")],
        chat: ALIBABA,
        cache_key: &[],
        headers: &[],
    },
    Row {
        name: "ollama",
        dialects: &[OpenaiChat],
        base_url: "http://127.0.0.1:11434/v1",
        url_variable: "OLLAMA_HOST",
        form: Host { port: 11_434, path: "/v1" },
        keys: &[],
        chat: USUAL,
        cache_key: &[],
        headers: &[],
    },
];

/// The row of the provider called `name`.
pub(super) fn row(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

/// The built-in providers, where the environment says they are.
pub(super) fn providers(variables: Variables<'_>) -> BTreeMap<String, ProviderSettings> {
    ROWS.iter().map(|row| (row.name.to_owned(), row.settings(variables))).collect()
}

impl Row {
    fn settings(&self, variables: Variables<'_>) -> ProviderSettings {
        let given = variables(self.url_variable).filter(|url| !url.trim().is_empty());
        let address = given.map_or(Ok(self.base_url.to_owned()), |url| self.form.address(url.trim()));
        // Whoever uses other providers need not mend the variable first.
        let (base_url, wrong_address) = match address {
            Ok(url) => (url, None),
            Err(message) => {
                let variable = self.url_variable.to_owned();
                (self.base_url.to_owned(), Some(ConfigError::Variable { variable, message }))
            }
        };
        let header = |(name, value): &(&str, &str)| ((*name).to_owned(), HeaderSource::Text((*value).into()));
        ProviderSettings {
            dialect: self.dialects[0],
            responses: self.dialects.contains(&OpenaiResponses),
            base_url,
            wrong_address,
            keys: self
                .keys
                .iter()
                .map(|key| KeyVariable { name: key.variable.to_owned(), bearer: key.bearer })
                .collect(),
            headers: self.headers.iter().map(header).collect(),
            quota: Quota::default(),
            usage: None,
            connections: Connections::default(),
            chat: self.chat,
            cache_key: self.cache_key,
            deferred_tools: None,
        }
    }
}

impl AddressForm {
    /// The base URL that `text` stands for.
    fn address(&self, text: &str) -> Result<String, String> {
        match self {
            Whole => base_url(text),
            Before(path) => base_url(text).map(|url| with_path(url, path)),
            Host { port, path } => {
                if text.contains("://") {
                    return base_url(text).map(|url| with_path(url, path));
                }
                let (host, rest) = text.split_at(text.find('/').unwrap_or(text.len()));
                // The colons of an IPv6 address are inside of its brackets.
                let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
                let port = if has_port { String::new() } else { format!(":{port}") };
                base_url(&format!("http://{host}{port}{rest}")).map(|url| with_path(url, path))
            }
        }
    }
}

fn with_path(mut url: String, path: &str) -> String {
    if !url.ends_with(path) {
        url.push_str(path);
    }
    url
}

#[cfg(test)]
#[path = "../../server/tests/it/wire_schema.rs"]
mod opencode;

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::opencode::Opencode;
    use super::*;

    #[test]
    fn every_row_is_whole() {
        for row in &ROWS {
            assert_eq!(base_url(row.base_url).as_deref(), Ok(row.base_url), "{}", row.name);
            assert!(!row.dialects.is_empty(), "{}", row.name);
            let settings = row.settings(&|_| None);
            assert_eq!(settings.base_url, row.base_url);
            // What the variable is given as the usual address leads to the usual address.
            let usual = row.settings(&|_| Some(row.base_url.to_owned()));
            assert_eq!((usual.base_url.as_str(), usual.wrong_address), (row.base_url, None), "{}", row.name);
        }
        let mut variables: Vec<&str> =
            ROWS.iter().flat_map(|row| row.keys.iter().map(|key| key.variable)).collect();
        variables.extend(ROWS.iter().map(|row| row.url_variable));
        let count = variables.len();
        variables.sort_unstable();
        variables.dedup();
        assert_eq!(variables.len(), count, "a variable is of one provider");
    }

    #[test]
    fn addresses_are_completed_as_the_providers_own_libraries_do() {
        let address = |name: &str, text: &str| row(name).unwrap().form.address(text);
        let ok = |url: &str| Ok(url.to_owned());
        assert_eq!(address("groq", "https://a.example/"), ok("https://a.example/openai/v1"));
        assert_eq!(address("groq", "https://a.example/openai/v1"), ok("https://a.example/openai/v1"));
        for (host, url) in [
            ("box", "http://box:11434/v1"),
            ("box:8080", "http://box:8080/v1"),
            ("0.0.0.0", "http://0.0.0.0:11434/v1"),
            ("[::1]", "http://[::1]:11434/v1"),
            ("[::1]:80/", "http://[::1]:80/v1"),
            ("https://a.example", "https://a.example/v1"),
            ("http://a.example:1/v1/", "http://a.example:1/v1"),
            ("box/ollama", "http://box:11434/ollama/v1"),
        ] {
            assert_eq!(address("ollama", host), ok(url), "{host}");
        }
        assert!(address("ollama", "a b").is_err() && address("ollama", "ada:pw@box").is_err());
        assert!(address("openai", "api.openai.com").is_err());
        assert!(address("ollama", "box:99999").is_err() && address("openai", "http://[::1/v1").is_err());
    }

    /// Names of keys and addresses are those that opencode knows, as it is installed for tests.
    #[test]
    #[ignore = "slow: scripts/slow runs it"]
    fn keys_and_addresses_are_those_of_opencode() {
        let known = Opencode::start().ask("GET", "/provider", &Value::Null);
        let known = known["all"].as_array().unwrap();
        for row in ROWS.iter().filter(|row| row.name != "ollama") {
            let provider = known.iter().find(|provider| provider["id"] == row.name).unwrap();
            let names: Vec<&str> =
                provider["env"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            let first = row.keys[0].variable;
            assert!(names.contains(&first), "{}: {first} is not among {names:?}", row.name);
            // Where the library that opencode uses knows the address by itself, it is empty.
            let mut urls = provider["models"].as_object().unwrap().values().map(|model| &model["api"]["url"]);
            let is_same =
                |url: &&Value| url.as_str().is_some_and(|url| url == row.base_url || url.is_empty());
            assert!(urls.any(|url| is_same(&url)), "{}: {} is not known", row.name, row.base_url);
        }
    }
}
