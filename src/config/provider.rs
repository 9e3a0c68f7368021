//! Providers: servers that speak a dialect.

use std::collections::BTreeMap;

use playhouse_llm::{DialectKind, OutputLimitField};
use playhouse_protocol::nearest::did_you_mean;

use super::error::ConfigError;
use super::settings::Variables;

/// A server, how to speak to it, and where its key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSettings {
    /// What it speaks.
    pub dialect: DialectKind,
    /// Where it is, without a trailing slash.
    pub base_url: String,
    /// The environment variable that holds its key; `None` for a server that needs none.
    pub key_variable: Option<String>,
    /// The field that limits an answer.
    pub output_limit_field: OutputLimitField,
}

/// A provider that is there without configuration.
pub(super) struct Builtin {
    pub(super) name: &'static str,
    dialect: DialectKind,
    base_url: &'static str,
    /// The variable that may say where it is instead.
    url_variable: &'static str,
    key_variable: &'static str,
    output_limit_field: OutputLimitField,
}

/// The providers that are there without configuration. The variables are those of their own libraries: Anthropic's
/// address is without `/v1`, OpenAI's with it.
pub(super) const BUILTIN: [Builtin; 2] = [
    Builtin {
        name: "anthropic",
        dialect: DialectKind::Anthropic,
        base_url: "https://api.anthropic.com",
        url_variable: "ANTHROPIC_BASE_URL",
        key_variable: "ANTHROPIC_API_KEY",
        output_limit_field: OutputLimitField::MaxTokens,
    },
    Builtin {
        name: "openai",
        dialect: DialectKind::OpenaiChat,
        base_url: "https://api.openai.com/v1",
        url_variable: "OPENAI_BASE_URL",
        key_variable: "OPENAI_API_KEY",
        output_limit_field: OutputLimitField::MaxCompletionTokens,
    },
];

/// The built-in providers, where the environment says they are.
pub(super) fn builtin(variables: Variables<'_>) -> Result<BTreeMap<String, ProviderSettings>, ConfigError> {
    BUILTIN
        .iter()
        .map(|builtin| {
            let base_url = match variables(builtin.url_variable).filter(|url| !url.is_empty()) {
                Some(url) => base_url(&url).map_err(|message| ConfigError::Variable {
                    variable: builtin.url_variable.to_owned(),
                    message,
                })?,
                None => builtin.base_url.to_owned(),
            };
            let settings = ProviderSettings {
                dialect: builtin.dialect,
                base_url,
                key_variable: Some(builtin.key_variable.to_owned()),
                output_limit_field: builtin.output_limit_field,
            };
            Ok((builtin.name.to_owned(), settings))
        })
        .collect()
}

const DIALECTS: [(&str, DialectKind); 2] =
    [("anthropic", DialectKind::Anthropic), ("openai-chat", DialectKind::OpenaiChat)];

/// Reads the name of a dialect.
pub(super) fn dialect(text: &str) -> Result<DialectKind, String> {
    choose("dialect", text, &DIALECTS)
}

const OUTPUT_LIMIT_FIELDS: [(&str, OutputLimitField); 2] = [
    ("max_tokens", OutputLimitField::MaxTokens),
    ("max_completion_tokens", OutputLimitField::MaxCompletionTokens),
];

/// Reads the name of an output limit field.
pub(super) fn output_limit_field(text: &str) -> Result<OutputLimitField, String> {
    choose("output limit field", text, &OUTPUT_LIMIT_FIELDS)
}

fn choose<T: Copy>(what: &str, text: &str, choices: &[(&str, T)]) -> Result<T, String> {
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
    fn a_key_in_the_place_of_a_variable_is_not_repeated() {
        assert_eq!(variable_name("LOCAL_KEY2"), Ok("LOCAL_KEY2".to_owned()));
        for text in ["", "2KEY", "sk-ant-123", "A B"] {
            let error = variable_name(text).unwrap_err();
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
    }
}
