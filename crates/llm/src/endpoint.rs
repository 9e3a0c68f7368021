//! Where requests go.

use playhouse_protocol::ErrorInfo;
use playhouse_protocol::error::ErrorCode;
use secrecy::{ExposeSecret, SecretString};

use crate::{Connections, DialectKind, UsageConvention};

/// A server that speaks a dialect, and how to be let in.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The provider's name, for messages.
    pub provider: String,
    /// What it speaks.
    pub dialect: DialectKind,
    /// Up to where the dialect's own path begins (`https://api.openai.com/v1`, `https://api.anthropic.com`), without a
    /// trailing slash.
    pub base_url: String,
    /// The key, where one is needed.
    pub key: Option<SecretString>,
    /// The variable that the key is read from, for messages.
    pub key_variable: Option<String>,
    /// Headers beside the dialect's own. One with the name of a dialect's header (as `authorization`) replaces it.
    pub headers: Vec<(String, SecretString)>,
    /// How it counts tokens.
    pub usage: UsageConvention,
    /// How it is connected to.
    pub connections: Connections,
}

/// Values of headers that are shorter are no secrets, and would make holes in messages.
const SHORTEST_SECRET: usize = 8;

impl Endpoint {
    /// A server without a key, that counts as its provider and dialect do, with the usual connections.
    pub fn new(provider: impl Into<String>, dialect: DialectKind, base_url: impl Into<String>) -> Self {
        let provider = provider.into();
        let usage = UsageConvention::of(&provider, dialect);
        let base_url = base_url.into();
        let connections = Connections::default();
        Self {
            provider,
            dialect,
            base_url,
            key: None,
            key_variable: None,
            headers: Vec::new(),
            usage,
            connections,
        }
    }

    /// Whether this is the provider's own server, and takes the request to drop reasoning that does not hold any more
    /// ([`Head::drop_stale_reasoning`](crate::Head::drop_stale_reasoning)).
    pub fn offers_drop(&self) -> bool {
        self.dialect == DialectKind::Anthropic && host(&self.base_url) == "api.anthropic.com"
    }

    /// Whether this is the own server of the vendor of its dialect, at which tools can be deferred
    /// (`tool_search` of [`Head::rules`](crate::Head::rules)).
    pub fn offers_tool_search(&self) -> bool {
        let host = host(&self.base_url);
        match self.dialect {
            DialectKind::Anthropic => host == "api.anthropic.com",
            DialectKind::OpenaiResponses => host == "api.openai.com" || self.region().is_some(),
            DialectKind::OpenaiChat | DialectKind::Gemini => false,
        }
    }

    /// The region in which the server answers, where its provider has hosts by region and prices of their own for them.
    pub fn region(&self) -> Option<&'static str> {
        match host(&self.base_url) {
            "eu.api.openai.com" => Some("eu"),
            "us.api.openai.com" => Some("us"),
            _ => None,
        }
    }

    /// Adds the header by which that request is understood.
    pub fn ask_for_drop(&mut self) {
        self.ask_for_beta("thinking-binding-controls-2026-08-01");
    }

    /// Adds the header by which deferred tools are understood, where the dialect has one.
    pub fn ask_for_tool_search(&mut self) {
        if self.dialect == DialectKind::Anthropic {
            self.ask_for_beta("advanced-tool-use-2025-11-20");
        }
    }

    fn ask_for_beta(&mut self, beta: &str) {
        const NAME: &str = "anthropic-beta";
        match self.headers.iter_mut().find(|(name, _)| name == NAME) {
            Some((_, value)) => *value = format!("{},{beta}", value.expose_secret()).into(),
            None => self.headers.push((NAME.to_owned(), beta.into())),
        }
    }

    /// Refuses a key that no header can carry, as one that was read with its line end.
    pub(crate) fn check_key(&self) -> Result<(), ErrorInfo> {
        match &self.key {
            Some(key) if !key.expose_secret().bytes().all(|byte| byte.is_ascii_graphic()) => {
                let provider = &self.provider;
                let what =
                    format!("the key of {provider} holds white space or other characters that no key has");
                Err(ErrorInfo::new(ErrorCode::Authentication, format!("{what}: {}", self.key_advice())))
            }
            _ => Ok(()),
        }
    }

    /// `text` without the key and the values of headers: some servers repeat in their errors what they were sent.
    pub(crate) fn without_secrets(&self, mut text: String) -> String {
        let key = self.key.iter().map(|key| (key.expose_secret(), "[key]"));
        // The value as a whole, and what follows a scheme (`Bearer …`), which a server may repeat alone.
        let headers = self.headers.iter().flat_map(|(_, value)| {
            let value = value.expose_secret();
            [value, value.rsplit(' ').next().unwrap_or_default()].map(|value| (value, "[header]"))
        });
        let headers = headers.filter(|(value, _)| value.len() >= SHORTEST_SECRET);
        for (secret, stand_in) in key.chain(headers).filter(|(secret, _)| !secret.is_empty()) {
            if text.contains(secret) {
                text = text.replace(secret, stand_in);
            }
        }
        text
    }

    /// What a person can do about a key that is missing or was refused.
    pub(crate) fn key_advice(&self) -> String {
        let sent = self.key.is_some() || self.headers.iter().any(|(name, _)| name == "authorization");
        match (sent, &self.key_variable) {
            (true, Some(variable)) => format!("check the key in {variable}"),
            (true, None) => "check the key".to_owned(),
            (false, Some(variable)) => format!("no key was sent: set {variable}"),
            (false, None) => format!("give provider {} a key in its `api_key_env`", self.provider),
        }
    }
}

/// The host that a base URL names.
pub fn host(base_url: &str) -> &str {
    let authority = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
    authority.split(['/', ':']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(header: &str) -> Endpoint {
        Endpoint {
            headers: vec![("authorization".to_owned(), header.into())],
            key_variable: Some("A_TOKEN".to_owned()),
            ..Endpoint::new("p", DialectKind::Anthropic, "http://a")
        }
    }

    #[test]
    fn a_token_is_taken_out_with_and_without_its_scheme() {
        let clean = |text: &str| endpoint("Bearer token-123").without_secrets(text.to_owned());
        assert_eq!(clean("you sent Bearer token-123"), "you sent [header]");
        assert_eq!(clean("token-123 is not valid"), "[header] is not valid");
        assert_eq!(endpoint("Basic short").without_secrets("short".to_owned()), "short");
    }

    #[test]
    fn only_the_providers_own_server_is_asked_to_drop_reasoning() {
        let at = |url: &str| Endpoint::new("p", DialectKind::Anthropic, url);
        assert!(
            at("https://api.anthropic.com").offers_drop() && at("https://api.anthropic.com/v1").offers_drop()
        );
        assert!(!at("https://api.anthropic.com.evil.example").offers_drop());
        assert!(!Endpoint::new("p", DialectKind::OpenaiChat, "https://api.anthropic.com").offers_drop());
        let mut endpoint = at("https://api.anthropic.com");
        endpoint.headers = vec![("anthropic-beta".to_owned(), "a-1".into())];
        endpoint.ask_for_drop();
        endpoint.ask_for_tool_search();
        let betas = "a-1,thinking-binding-controls-2026-08-01,advanced-tool-use-2025-11-20";
        assert_eq!(endpoint.headers[0].1.expose_secret(), betas);
    }

    #[test]
    fn only_vendors_own_servers_search_tools_unasked() {
        let offers = |dialect: DialectKind, url: &str| Endpoint::new("p", dialect, url).offers_tool_search();
        assert!(offers(DialectKind::Anthropic, "https://api.anthropic.com"));
        assert!(offers(DialectKind::OpenaiResponses, "https://eu.api.openai.com/v1"));
        assert!(!offers(DialectKind::OpenaiChat, "https://api.openai.com/v1"));
        assert!(!offers(DialectKind::OpenaiResponses, "https://gateway.example/v1"));
        let mut openai = Endpoint::new("p", DialectKind::OpenaiResponses, "https://api.openai.com/v1");
        openai.ask_for_tool_search();
        assert!(openai.headers.is_empty());
    }

    #[test]
    fn a_token_counts_as_a_key_that_was_sent() {
        assert_eq!(endpoint("Bearer token-123").key_advice(), "check the key in A_TOKEN");
        let mut open = endpoint("Bearer token-123");
        open.headers.clear();
        assert_eq!(open.key_advice(), "no key was sent: set A_TOKEN");
    }
}
