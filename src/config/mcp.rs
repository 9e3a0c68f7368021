//! What is configured of servers of tools that speak the Model Context Protocol.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use playhouse_mcp::names::check_name;
use playhouse_mcp::{
    GrantType, OAuth, OAuthClient, ServerEntry, ServerSandbox, ServerScope, ToolChoice, Transport,
};
use playhouse_protocol::consent::Risk;
use secrecy::SecretString;

use super::document::Value;
use super::keys::KeyName;
use super::provider::{HeaderSource, base_url, choose, environment, set_header, variable_name};
use super::settings::Variables;

/// The place of a server in a file.
pub(super) const PATH: &str = "mcp.NAME";

const SCOPES: [(&str, ServerScope); 3] = [
    ("tenant", ServerScope::Tenant),
    ("workspace", ServerScope::Workspace),
    ("session", ServerScope::Session),
];
const SANDBOXES: [(&str, ServerSandbox); 2] =
    [("none", ServerSandbox::None), ("walls", ServerSandbox::Walls)];
const GRANTS: [(&str, GrantType); 2] = [
    ("authorization_code", GrantType::AuthorizationCode),
    ("client_credentials", GrantType::ClientCredentials),
];
const RISKS: [(&str, Risk); 3] =
    [("safe", Risk::Safe), ("moderate", Risk::Moderate), ("dangerous", Risk::Dangerous)];

/// A server as it is configured: everything but the values of its environment, or of its headers.
#[derive(Clone, Debug)]
pub struct McpSettings {
    entry: ServerEntry,
    values: Vec<(String, HeaderSource)>,
    /// The variable that holds the secret of its client.
    secret: Option<String>,
    /// Whether it may start.
    pub enabled: bool,
}

impl McpSettings {
    /// The server, with the values that its variables have now. The second are the variables that are not set.
    pub fn entry(&self, variables: Variables<'_>) -> (ServerEntry, Vec<String>) {
        let (mut entry, mut missing) = (self.entry.clone(), Vec::new());
        if let (Transport::Http(http), Some(variable)) = (&mut entry.transport, &self.secret) {
            match variables(variable) {
                Some(value) => {
                    http.oauth.client.iter_mut().for_each(|client| client.secret = Some(value.clone().into()))
                }
                None => missing.push(variable.clone()),
            }
        }
        let values = match &mut entry.transport {
            Transport::Stdio(stdio) => &mut stdio.env,
            Transport::Http(http) => &mut http.headers,
        };
        for (name, source) in &self.values {
            match source {
                HeaderSource::Text(text) => values.push((name.clone(), text.clone())),
                HeaderSource::Variable(variable) => match variables(variable) {
                    Some(value) => values.push((name.clone(), SecretString::from(value))),
                    None => missing.push(variable.clone()),
                },
            }
        }
        (entry, missing)
    }

    /// The variables that hold values of its environment or its headers.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        let values = self.values.iter().filter_map(|(_, source)| match source {
            HeaderSource::Variable(name) => Some(name.as_str()),
            HeaderSource::Text(_) => None,
        });
        values.chain(self.secret.as_deref())
    }
}

/// A server as far as the file describes it.
#[derive(Default)]
pub(super) struct McpDraft {
    pub(super) line: usize,
    command: Option<String>,
    args: Vec<String>,
    env: Vec<(String, HeaderSource)>,
    cwd: Option<PathBuf>,
    url: Option<String>,
    headers: BTreeMap<String, HeaderSource>,
    scope: Option<ServerScope>,
    disabled: bool,
    timeout: Option<Duration>,
    allow: Vec<String>,
    deny: Vec<String>,
    agents: Option<Vec<String>>,
    sandbox: Option<ServerSandbox>,
    network: bool,
    read: Vec<String>,
    write: Vec<String>,
    risk: Option<Risk>,
    oauth: OAuth,
    has_oauth: bool,
    secret: Option<String>,
}

impl McpDraft {
    /// Takes a setting over. A fragment says what is wrong with it.
    pub(super) fn set(
        &mut self,
        key: KeyName,
        value: &Value,
        path: impl Fn(&str) -> PathBuf,
    ) -> Result<(), String> {
        let paths = |texts: &[String]| -> Vec<String> {
            texts.iter().map(|text| path(text).to_string_lossy().into_owned()).collect()
        };
        match (key, value) {
            (KeyName::McpCommand, Value::Text(text)) if text.trim().is_empty() => {
                return Err("no program is named".to_owned());
            }
            (KeyName::McpCommand, Value::Text(text)) => self.command = Some(text.clone()),
            (KeyName::McpUrl, Value::Text(text)) => self.url = Some(base_url(text)?),
            (KeyName::McpArgs, Value::List(texts)) => self.args.clone_from(texts),
            (KeyName::McpCwd, Value::Text(text)) => self.cwd = Some(path(text)),
            (KeyName::McpScope, Value::Text(text)) => self.scope = Some(choose("scope", text, &SCOPES)?),
            (KeyName::McpEnabled, Value::Boolean(enabled)) => self.disabled = !enabled,
            (KeyName::McpTimeout, Value::Whole(0)) => return Err("at least 1 is needed".to_owned()),
            (KeyName::McpTimeout, Value::Whole(ms)) => self.timeout = Some(Duration::from_millis(*ms)),
            (KeyName::McpAllow, Value::List(texts)) => self.allow.clone_from(texts),
            (KeyName::McpDeny, Value::List(texts)) => self.deny.clone_from(texts),
            (KeyName::McpAgents, Value::List(texts)) => self.agents = Some(texts.clone()),
            (KeyName::McpSandbox, Value::Text(text)) => {
                self.sandbox = Some(choose("sandbox", text, &SANDBOXES)?);
            }
            (KeyName::McpNetwork, Value::Boolean(network)) => self.network = *network,
            (KeyName::McpRead, Value::List(texts)) => self.read = paths(texts),
            (KeyName::McpWrite, Value::List(texts)) => self.write = paths(texts),
            (KeyName::McpRisk, Value::Text(text)) => self.risk = Some(choose("risk", text, &RISKS)?),
            _ => return self.set_oauth(key, value),
        }
        Ok(())
    }

    /// Takes a setting of its logins over.
    fn set_oauth(&mut self, key: KeyName, value: &Value) -> Result<(), String> {
        match (key, value) {
            (KeyName::McpOauth, Value::Boolean(enabled)) => self.oauth.enabled = *enabled,
            (KeyName::McpOauthClient, Value::Text(id)) if !id.trim().is_empty() => {
                self.oauth.client = Some(OAuthClient { id: id.trim().to_owned(), secret: None });
            }
            (KeyName::McpOauthClient, Value::Text(_)) => return Err("no client is named".to_owned()),
            (KeyName::McpOauthSecret, Value::Text(name)) => self.secret = Some(variable_name(name)?),
            (KeyName::McpOauthDocument, Value::Text(url)) => {
                if !url.starts_with("https://") {
                    return Err(format!("\"{}\" does not begin with https://", url.escape_debug()));
                }
                self.oauth.client_metadata_url = Some(url.clone());
            }
            (KeyName::McpOauthScopes, Value::List(scopes)) => self.oauth.scopes.clone_from(scopes),
            (KeyName::McpOauthGrant, Value::Text(text)) => self.oauth.grant = choose("grant", text, &GRANTS)?,
            _ => return Err("does not belong here".to_owned()),
        }
        self.has_oauth = true;
        Ok(())
    }

    /// Takes a variable of its environment over.
    pub(super) fn set_env(&mut self, name: &str, value: &Value) -> Result<(), String> {
        self.env.push(environment(name, value)?);
        Ok(())
    }

    /// Takes a header over.
    pub(super) fn set_header(&mut self, name: &str, value: &Value) -> Result<(), String> {
        set_header(name, value, &mut self.headers)
    }

    /// The server of this name.
    pub(super) fn finish(self, name: &str) -> Result<McpSettings, String> {
        check_name(name)?;
        let tools = ToolChoice::new(self.allow, self.deny)
            .map_err(|error| format!("the server \"{name}\" has a wrong pattern in `tools`: {error}"))?;
        if self.secret.is_some() && self.oauth.client.is_none() {
            return Err(format!(
                "the server \"{name}\" has `oauth.client_secret_env` and no `oauth.client_id`"
            ));
        }
        if self.oauth.grant == GrantType::ClientCredentials && self.secret.is_none() {
            return Err(format!(
                "the server \"{name}\" has `oauth.grant = \"client_credentials\"`, which needs `client_id` and `client_secret_env`"
            ));
        }
        let (mut entry, values) = match (self.command, self.url) {
            (Some(command), None) if self.headers.is_empty() && !self.has_oauth => {
                let mut entry = ServerEntry::stdio(name, command, self.args);
                if let Transport::Stdio(stdio) = &mut entry.transport {
                    stdio.cwd = self.cwd;
                }
                (entry, self.env)
            }
            (None, Some(url)) if self.args.is_empty() && self.env.is_empty() && self.cwd.is_none() => {
                let mut entry = ServerEntry::http(name, url);
                if let Transport::Http(http) = &mut entry.transport {
                    http.oauth = self.oauth;
                }
                (entry, self.headers.into_iter().collect())
            }
            (None, None) => return Err(format!("the server \"{name}\" has no `command` and no `url`")),
            _ => {
                return Err(format!(
                    "the server \"{name}\" is a program (`command`, `args`, `env`, `cwd`) or an address (`url`, `headers`, `oauth`), not both"
                ));
            }
        };
        (entry.tools, entry.agents, entry.risk) = (tools, self.agents, self.risk);
        entry.scope = self.scope.unwrap_or_default();
        entry.timeout = self.timeout.unwrap_or(entry.timeout);
        entry.walls.sandbox = self.sandbox.unwrap_or(ServerSandbox::None);
        entry.walls.network = self.network;
        (entry.walls.read, entry.walls.write) = (self.read, self.write);
        Ok(McpSettings { entry, values, secret: self.secret, enabled: !self.disabled })
    }
}

#[cfg(test)]
mod tests {
    use playhouse_mcp::Transport;

    use super::super::tests::loaded;

    #[test]
    fn a_server_is_read_with_its_environment() {
        let settings = loaded(
            "[mcp.x]\ncommand = \"p\"\nargs = [\"a\"]\ntools = { deny = [\"*_secret\"] }\nenabled = false\n\
             [mcp.x.env]\nA = \"1\"\nB = { env = \"OF_B\" }\nC = { env = \"OF_C\" }",
        )
        .unwrap();
        let server = &settings.mcp["x"];
        let (entry, missing) = server.entry(&|name| (name == "OF_B").then(|| "secret-7".to_owned()));
        assert_eq!((entry.shown().as_str(), missing), ("A=… B=… p a", vec!["OF_C".to_owned()]));
        assert!(!server.enabled && entry.tools.takes("b") && !entry.tools.takes("a_secret"));
        assert!(!format!("{settings:?}").contains("secret-7") && !format!("{entry:?}").contains("secret-7"));
    }

    #[test]
    fn a_server_is_read_with_its_logins() {
        let settings = loaded(
            "[mcp.x]\nurl = \"https://a.example\"\n[mcp.x.oauth]\nclient_id = \"me\"\nclient_secret_env = \"S\"\nscopes = [\"a\"]\n\
             [mcp.y]\nurl = \"https://a.example\"\noauth = false",
        )
        .unwrap();
        let entry = |name: &str| settings.mcp[name].entry(&|_| Some("secret-7".to_owned())).0;
        let Transport::Http(http) = entry("x").transport else { panic!("it is an address") };
        let client = http.oauth.client.as_ref().unwrap();
        assert!(http.oauth.enabled && client.id == "me" && client.secret.is_some());
        assert_eq!(http.oauth.scopes, ["a"]);
        assert!(!format!("{http:?} {:?}", http.oauth).contains("secret-7"));
        let Transport::Http(http) = entry("y").transport else { panic!("it is an address") };
        assert!(!http.oauth.enabled);
        assert_eq!(settings.mcp["x"].entry(&|_| None).1, ["S"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("[mcp.a]\ncommand = \"p\"\n[mcp.a_b]\ncommand = \"p\"", "could have the same name"),
            ("[mcp.x]\nargs = [\"a\"]", ":1: the server \"x\" has no `command`"),
            ("[mcp.x]\ncommand = \"p\"\nurl = \"https://a.example\"", "not both"),
            ("[mcp.x]\nurl = \"a.example\"", ":2: `mcp.x.url`"),
            ("[mcp.x]\ncommand = \"p\"\noauth = false", "not both"),
            (
                "[mcp.x]\nurl = \"https://a.example\"\noauth = 1",
                ":3: `mcp.x.oauth` is the whole number 1, expected true or false",
            ),
            ("[mcp.x.oauth]\nclient_ids = \"a\"", ":2: unknown key `mcp.x.oauth.client_ids`"),
            ("[mcp.x]\nurl = \"https://a.example\"\noauth.client_secret_env = \"A\"", "no `oauth.client_id`"),
            (
                "[mcp.x]\nurl = \"https://a.example\"\noauth.grant = \"client_credentials\"",
                "needs `client_id`",
            ),
            ("[mcp.\"a b\"]\ncommand = \"p\"", ":1: \"a b\" cannot be the name of a server"),
            ("[mcp.x]\ncommand = \" \"", ":2: `mcp.x.command`: no program is named"),
            (
                "[mcp.x]\ncommand = \"p\"\nscope = \"all\"",
                ":3: `mcp.x.scope`: unknown scope \"all\"; there are tenant",
            ),
            ("[mcp.x]\ncommand = \"p\"\ntimeout_ms = 0", ":3: `mcp.x.timeout_ms`: at least 1 is needed"),
            ("[mcp.x]\ncommand = \"p\"\ntools = { allow = [\"[\"] }", "a wrong pattern"),
            (
                "[mcp.x]\ncommand = \"p\"\nenv = { \"A B\" = \"1\" }",
                "not the name of an environment variable",
            ),
        ] {
            let error = loaded(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
