//! What is configured of the tools that reach out.

use std::collections::BTreeMap;

use playhouse_mcp::{EXA, SearchServer};
use playhouse_tools::web::{Allowed, Endpoint, SearchOptions, WebOptions};

use super::document::Value;
use super::error::ConfigError;
use super::keys::KeyName;
use super::provider::{self, HeaderSource};
use super::settings::{Variables, headers};

/// Who searches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchKind {
    /// Nobody.
    #[default]
    Off,
    /// Exa.
    Exa,
    /// A SearxNG.
    Searxng,
    /// A server of MCP.
    Mcp,
}

const KINDS: [(&str, SearchKind); 4] = [
    ("off", SearchKind::Off),
    ("exa", SearchKind::Exa),
    ("searxng", SearchKind::Searxng),
    ("mcp", SearchKind::Mcp),
];

/// What is configured of the tools that reach out. Holds no key that stands in a variable.
#[derive(Clone, Debug, Default)]
pub struct WebSettings {
    /// What may be fetched although it is not of the public Internet.
    pub allow_private: Vec<Allowed>,
    /// Who searches.
    pub search: SearchKind,
    /// Where that is; `None` for where it usually is.
    pub search_url: Option<String>,
    /// Headers of each search, by name in lower case.
    pub search_headers: BTreeMap<String, HeaderSource>,
    /// The tool of a server of MCP that searches the web.
    pub search_tool: Option<String>,
    /// The tool of a server of MCP that searches for code.
    pub code_tool: Option<String>,
}

impl WebSettings {
    /// Takes a setting over. A fragment says what is wrong with it.
    pub(super) fn set(&mut self, key: KeyName, value: &Value) -> Result<(), String> {
        match (key, value) {
            (KeyName::WebAllowPrivate, Value::List(places)) => {
                self.allow_private = places.iter().map(|place| place.parse()).collect::<Result<_, _>>()?;
            }
            (KeyName::WebSearch, Value::Text(text)) => {
                let kind = KINDS.iter().find(|(name, _)| name == text);
                let names = || KINDS.map(|(name, _)| name).join(", ");
                let wrong = || format!("is \"{}\", expected one of {}", text.escape_debug(), names());
                self.search = kind.ok_or_else(wrong)?.1;
            }
            (KeyName::WebSearchUrl, Value::Text(url)) => {
                Endpoint::new(url, Vec::new()).map_err(|error| error.to_string())?;
                self.search_url = Some(url.clone());
            }
            (KeyName::WebSearchTool, Value::Text(tool)) => self.search_tool = Some(named(tool)?),
            (KeyName::WebCodeTool, Value::Text(tool)) => self.code_tool = Some(named(tool)?),
            _ => return Err("does not belong here".to_owned()),
        }
        Ok(())
    }

    /// Takes a header over.
    pub(super) fn set_header(&mut self, name: &str, value: &Value) -> Result<(), String> {
        provider::set_header(name, value, &mut self.search_headers)
    }

    /// Is there all that the kind of search needs? A fragment says what is missing.
    pub(super) fn check(&self) -> Result<(), String> {
        let missing = |kind: &str, key: &str, what: &str| {
            Err(format!("`tools.web.search` is \"{kind}\", which needs `tools.web.{key}`: {what}"))
        };
        match self.search {
            SearchKind::Searxng if self.search_url.is_none() => {
                missing("searxng", "search_url", "where the SearxNG is")
            }
            SearchKind::Mcp if self.search_url.is_none() => {
                missing("mcp", "search_url", "where the server is")
            }
            SearchKind::Mcp if self.search_tool.is_none() && self.code_tool.is_none() => {
                missing("mcp", "search_tool", "the name of the server's tool (or `code_tool`, for code)")
            }
            _ => Ok(()),
        }
    }

    /// What the tools are made of, with the headers that `variables` hold now.
    pub(super) fn options(&self, variables: Variables<'_>) -> Result<WebOptions, ConfigError> {
        let endpoint = || {
            let url = self.search_url.as_deref().unwrap_or(EXA);
            let headers = headers("tools.web.search", &self.search_headers, variables)?;
            Endpoint::new(url, headers).map_err(|error| ConfigError::Search { reason: error.to_string() })
        };
        let search = match self.search {
            SearchKind::Off => SearchOptions::Off,
            SearchKind::Exa => SearchServer::exa(endpoint()?),
            SearchKind::Searxng => SearchOptions::searxng(endpoint()?),
            SearchKind::Mcp => {
                SearchServer::options(endpoint()?, self.search_tool.clone(), self.code_tool.clone())
            }
        };
        Ok(WebOptions { allow_private: self.allow_private.clone(), search })
    }
}

fn named(tool: &str) -> Result<String, String> {
    if tool.is_empty() || tool.len() > 128 || tool.contains(char::is_control) {
        return Err("this is not the name of a tool".to_owned());
    }
    Ok(tool.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    fn settings(pairs: &[(KeyName, &str)]) -> Result<WebSettings, String> {
        let mut settings = WebSettings::default();
        for (key, value) in pairs {
            settings.set(*key, &text(value))?;
        }
        settings.check().map(|()| settings)
    }

    const NOTHING: Variables<'static> = &|_| None;

    #[test]
    fn each_kind_of_search_is_made() {
        for (pairs, made) in [
            (&[][..], "Off"),
            (&[(KeyName::WebSearch, "off")], "Off"),
            (&[(KeyName::WebSearch, "exa")], "Backend(\"exa\")"),
            (
                &[(KeyName::WebSearch, "searxng"), (KeyName::WebSearchUrl, "http://127.0.0.1:8888")],
                "Backend(\"searxng\")",
            ),
            (
                &[
                    (KeyName::WebSearchUrl, "https://mcp.example/"),
                    (KeyName::WebCodeTool, "find"),
                    (KeyName::WebSearch, "mcp"),
                ],
                "Backend(\"mcp\")",
            ),
        ] {
            let options = settings(pairs).unwrap().options(NOTHING).unwrap();
            assert_eq!(format!("{:?}", options.search), made);
        }
    }

    #[test]
    fn what_is_wrong_or_missing_is_told() {
        for (pairs, expected) in [
            (&[(KeyName::WebSearch, "google")][..], "expected one of off, exa, searxng, mcp"),
            (&[(KeyName::WebSearch, "searxng")], "needs `tools.web.search_url`"),
            (&[(KeyName::WebSearch, "mcp")], "needs `tools.web.search_url`"),
            (
                &[(KeyName::WebSearch, "mcp"), (KeyName::WebSearchUrl, "https://a.example")],
                "needs `tools.web.search_tool`",
            ),
            (&[(KeyName::WebSearchUrl, "a.example")], "is not an address"),
            (&[(KeyName::WebSearchUrl, "https://a:b@a.example")], "user name or a password"),
            (&[(KeyName::WebCodeTool, "")], "not the name of a tool"),
        ] {
            let error = settings(pairs).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let places = Value::List(vec!["10.0.0.0/8".into(), "10.0.0.0/99".into()]);
        let error = WebSettings::default().set(KeyName::WebAllowPrivate, &places).unwrap_err();
        assert!(error.contains("from 0 to 32"), "{error}");
    }

    #[test]
    fn a_key_is_read_when_it_is_needed_and_missed_by_name() {
        let mut settings = settings(&[(KeyName::WebSearch, "exa")]).unwrap();
        let variable = Value::Variable("EXA_API_KEY".to_owned());
        settings.set_header("X-Api-Key", &variable).unwrap();
        let error = settings.options(NOTHING).unwrap_err().to_string();
        assert_eq!(error, "no header x-api-key for provider tools.web.search: EXA_API_KEY is not set");
        let variables = |name: &str| (name == "EXA_API_KEY").then(|| "hunter2".to_owned());
        let options = settings.options(&variables).unwrap();
        assert!(!format!("{options:?} {settings:?}").contains("hunter2"));
        assert!(settings.set_header("x-api-key", &text("hunter2")).is_err());
    }
}
