//! A server as an operator declares it.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use globset::{Glob, GlobSet, GlobSetBuilder};
use playhouse_protocol::consent::Risk;
use playhouse_protocol::walls::WallsAllowed;
use playhouse_sandbox::process::{Environment, Limits};
use playhouse_tools::web::{HeaderMap, HeaderName, HeaderValue, Url, shown_url};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use crate::oauth::{GrantType, OAuth};
use crate::text::hex;

/// The names of the environment of this process that every server gets: where programs lie, the language, the time zone, and
/// the certificates of the machine. No `HOME`: walls give it one of its own, and without walls it is declared where it is needed.
const PASSED_DOWN: [&str; 7] = ["PATH", "LANG", "LANGUAGE", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The program that sets variables and runs another one.
const ENV: &str = "/usr/bin/env";

/// Headers that the client sets: they cannot be declared.
const OWN_HEADERS: [&str; 9] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// A server of tools. Values of its environment and of its headers are secret: neither its `Debug` nor [`shown`](Self::shown) has them.
#[derive(Clone, Debug)]
pub struct ServerEntry {
    /// Its name: part of the names of its tools, and what people and rules call it.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// How it is greeted.
    pub protocol: Protocol,
    /// Upper bound of its start: until it has answered the first request.
    pub start_timeout: Duration,
    /// Upper bound of a call. It begins anew when somebody has answered a question of the server.
    pub timeout: Duration,
    /// Which of its tools are shown.
    pub tools: ToolChoice,
    /// Names of the agents that are shown its tools; all of them if `None`.
    pub agents: Option<Vec<String>>,
    /// Who shares one process of it.
    pub scope: ServerScope,
    /// What holds it.
    pub walls: WallsWish,
    /// What it may use.
    pub limits: Limits,
    /// How dangerous its tools are, whatever it says of them. By their annotations, and moderate at least, if `None`.
    pub risk: Option<Risk>,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum Transport {
    /// A program that is spoken to over its standard input and output.
    Stdio(Stdio),
    /// An address that is spoken to over streamable HTTP.
    Http(Http),
}

/// A server behind an address.
#[derive(Clone)]
pub struct Http {
    /// Its address.
    pub url: String,
    /// Headers of each request, in the order in which they were declared.
    pub headers: Vec<(String, SecretString)>,
    /// How it is logged in to.
    pub oauth: OAuth,
}

impl Http {
    /// The headers, with the values that are declared. Errors do not have them.
    pub(crate) fn header_map(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let wrong = |why: &str| format!("its header \"{}\" {why}", name.escape_debug());
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("has no valid name"))?;
            if OWN_HEADERS.contains(&header.as_str()) {
                return Err(wrong("is set by the client: leave it out"));
            }
            let mut value = HeaderValue::from_str(value.expose_secret())
                .map_err(|_| wrong("has a value with characters that a header cannot have"))?;
            value.set_sensitive(true);
            headers.append(header, value);
        }
        Ok(headers)
    }

    /// Whether it may be logged in to: not where a header says who asks.
    pub(crate) fn has_logins(&self) -> bool {
        self.oauth.enabled && !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
    }

    /// Its address for people: without credentials, and without the values of its query.
    fn shown(&self) -> String {
        match Url::parse(&self.url) {
            Ok(url) if url.query().is_some() => format!("{}?…", shown_url(&url)),
            Ok(url) => shown_url(&url),
            Err(_) => "(not an address)".to_owned(),
        }
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Http").field("url", &self.shown()).field("headers", &names).finish()
    }
}

/// A server that is a program.
#[derive(Clone)]
pub struct Stdio {
    /// The program: a path, or a name that is looked for in `PATH`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, beside the little that every server gets. In the order in which it was declared.
    pub env: Vec<(String, SecretString)>,
    /// Whether a program inside its walls sets `env`, so that it stands in a command line that others can read. For one that nobody
    /// vouches for: what makes the walls would read a variable like `LD_PRELOAD` as well, outside of them.
    pub env_inside: bool,
    /// The directory in which it starts; that of its [`Place`](crate::Place) if `None`.
    pub cwd: Option<PathBuf>,
}

impl Stdio {
    /// The values of its environment.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.env.iter().map(|(_, value)| value.expose_secret())
    }

    /// The program that is started, and its arguments.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let own = std::iter::once(&self.command).chain(&self.args).map(Into::into);
        if !self.env_inside || self.env.is_empty() {
            return own.collect();
        }
        let set = self.env.iter().map(|(name, value)| format!("{name}={}", value.expose_secret()).into());
        [ENV.into(), "--".into()].into_iter().chain(set).chain(own).collect()
    }

    /// The environment of the program that is started, with the values that are declared.
    pub(crate) fn environment(&self) -> Environment {
        let own = Environment::of_this_process();
        let passed = own.variables().filter(|(name, _)| PASSED_DOWN.iter().any(|passed| name == passed));
        let environment =
            passed.fold(Environment::empty(), |environment, (name, value)| environment.with(name, value));
        let declared = if self.env_inside { &[][..] } else { &self.env };
        declared
            .iter()
            .fold(environment, |environment, (name, value)| environment.with(name, value.expose_secret()))
    }
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Stdio")
            .field("command", &self.command)
            .field("args", &self.args)
            .field("env", &names)
            .field("cwd", &self.cwd)
            .finish()
    }
}

/// How a server is greeted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// With `initialize`, and a server that refuses that, with `server/discover`.
    ///
    /// In this order, since many servers do not answer what they do not know before `initialize`, and some end.
    #[default]
    Auto,
    /// With `initialize` (2025-11-25 and earlier).
    Initialize,
    /// With `server/discover` (2026-07-28).
    Discover,
}

/// Who shares one process of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ServerScope {
    /// All sessions of a tenant.
    Tenant,
    /// The sessions of a tenant that work in the same directory.
    #[default]
    Workspace,
    /// One session.
    Session,
}

/// What holds a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WallsWish {
    /// Whether there are walls.
    pub sandbox: ServerSandbox,
    /// Whether it may reach the network.
    pub network: bool,
    /// Directories that it may read as well: absolute.
    pub read: Vec<String>,
    /// Directories that it may change as well: absolute.
    pub write: Vec<String>,
}

/// Whether walls hold a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerSandbox {
    /// It can do what the user of the engine can.
    None,
    /// It runs in walls.
    #[default]
    Walls,
}

impl WallsWish {
    /// What its walls let through.
    pub fn allowed(&self) -> WallsAllowed {
        WallsAllowed {
            read: self.read.clone(),
            write: self.write.clone(),
            read_only: false,
            network: self.network,
        }
    }
}

/// Which tools of a server are shown: those that a pattern of `allow` names, or all if there is none, without those that a
/// pattern of `deny` names. Patterns are globs of the server's own names.
#[derive(Clone, Debug, Default)]
pub struct ToolChoice {
    allow: Vec<String>,
    deny: Vec<String>,
    allowed: GlobSet,
    denied: GlobSet,
}

impl ToolChoice {
    /// A choice by patterns.
    ///
    /// # Errors
    /// A pattern is no glob; the error names it.
    pub fn new(allow: Vec<String>, deny: Vec<String>) -> Result<Self, globset::Error> {
        let set = |patterns: &[String]| {
            let mut set = GlobSetBuilder::new();
            for pattern in patterns {
                set.add(Glob::new(pattern)?);
            }
            set.build()
        };
        Ok(Self { allowed: set(&allow)?, denied: set(&deny)?, allow, deny })
    }

    /// Whether a tool of this name is shown.
    pub fn takes(&self, tool: &str) -> bool {
        (self.allow.is_empty() || self.allowed.is_match(tool)) && !self.denied.is_match(tool)
    }
}

impl ServerEntry {
    /// An entry with defaults for all but its name and its program.
    pub fn stdio(name: impl Into<String>, command: impl Into<String>, args: Vec<String>) -> Self {
        let stdio = Stdio { command: command.into(), args, env: Vec::new(), env_inside: false, cwd: None };
        Self::new(name.into(), Transport::Stdio(stdio))
    }

    /// An entry with defaults for all but its name and its address.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(
            name.into(),
            Transport::Http(Http { url: url.into(), headers: Vec::new(), oauth: OAuth::default() }),
        )
    }

    fn new(name: String, transport: Transport) -> Self {
        Self {
            name,
            transport,
            protocol: Protocol::default(),
            start_timeout: Duration::from_secs(30),
            timeout: Duration::from_secs(60),
            tools: ToolChoice::default(),
            agents: None,
            scope: ServerScope::default(),
            walls: WallsWish::default(),
            limits: Limits::default(),
            risk: None,
        }
    }

    /// SHA-256 of all that is declared, values of the environment and of headers included, as hexadecimal digits: another
    /// entry, and one that was changed, have another hash.
    pub fn hash(&self) -> String {
        let mut hash = Hash(Sha256::new());
        hash.text("playhouse-mcp 1").text(&self.name);
        match &self.transport {
            Transport::Stdio(Stdio { command, args, env, env_inside: _, cwd }) => {
                hash.text("stdio").text(command).texts(args).number(env.len() as u64);
                for (name, value) in env {
                    hash.text(name).text(value.expose_secret());
                }
                hash.text(&format!("{cwd:?}"));
            }
            Transport::Http(Http { url, headers, oauth }) => {
                hash.text("http").text(url).number(headers.len() as u64);
                for (name, value) in headers {
                    hash.text(name).text(value.expose_secret());
                }
                hash.oauth(oauth);
            }
        }
        let Self { protocol, start_timeout, timeout, tools, agents, scope, walls, limits, risk, .. } = self;
        hash.texts(&tools.allow).texts(&tools.deny);
        hash.text(&format!(
            "{protocol:?} {start_timeout:?} {timeout:?} {agents:?} {scope:?} {walls:?} {limits:?} {risk:?}"
        ));
        hex(&hash.0.finalize())
    }

    /// The hash of what a login depends on: another name, address or client needs another login, other limits do not.
    pub(crate) fn login_hash(&self) -> String {
        let mut hash = Hash(Sha256::new());
        hash.text("playhouse-mcp login 1").text(&self.name);
        if let Transport::Http(http) = &self.transport {
            let id = http.oauth.client.as_ref().map(|client| client.id.as_str());
            hash.text(&http.url).text(&format!("{id:?} {:?}", http.oauth.grant));
        }
        hex(&hash.0.finalize())
    }

    /// The whole command for people, with the names of its environment and without their values; or the address, with the names
    /// of its headers.
    pub fn shown(&self) -> String {
        match &self.transport {
            Transport::Stdio(stdio) => {
                let env = stdio.env.iter().map(|(name, _)| format!("{name}=…"));
                let words = std::iter::once(&stdio.command).chain(&stdio.args).map(|word| quoted(word));
                env.chain(words).collect::<Vec<_>>().join(" ")
            }
            Transport::Http(http) => {
                let headers = http.headers.iter().map(|(name, _)| format!(" {name}: …"));
                format!("{}{}", http.shown(), headers.collect::<String>())
            }
        }
    }

    /// The whole command or the address, with all values: only for an entry whose values whoever reads this can read elsewhere, as those
    /// of a workspace's file.
    pub fn shown_in_full(&self) -> String {
        match &self.transport {
            Transport::Stdio(Stdio { command, args, env, .. }) => {
                let env = env.iter().map(|(name, value)| format!("{name}={}", quoted(value.expose_secret())));
                let words = std::iter::once(command).chain(args).map(|word| quoted(word));
                env.chain(words).collect::<Vec<_>>().join(" ")
            }
            Transport::Http(http) => http.url.clone(),
        }
    }

    /// Whether its tools are shown to an agent.
    pub fn serves(&self, agent: &str) -> bool {
        self.agents.as_ref().is_none_or(|agents| agents.iter().any(|name| name == agent))
    }
}

/// A word as a shell would read it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A hash of parts, each with its length before it.
struct Hash(Sha256);

impl Hash {
    fn number(&mut self, number: u64) -> &mut Self {
        self.0.update(number.to_le_bytes());
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.number(text.len() as u64);
        self.0.update(text);
        self
    }

    /// Nothing for the default, so that hashes stay as they were.
    fn oauth(&mut self, oauth: &OAuth) {
        let OAuth { enabled, client, client_metadata_url, scopes, grant } = oauth;
        if *enabled
            && client.is_none()
            && client_metadata_url.is_none()
            && scopes.is_empty()
            && *grant == GrantType::default()
        {
            return;
        }
        self.text(&format!("{enabled} {client_metadata_url:?} {grant:?}")).texts(scopes);
        if let Some(client) = client {
            let secret = client.secret.as_ref().map(|secret| secret.expose_secret());
            self.text(&client.id).text(secret.unwrap_or_default());
        }
    }

    fn texts(&mut self, texts: &[String]) -> &mut Self {
        self.number(texts.len() as u64);
        texts.iter().for_each(|text| {
            self.text(text);
        });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> ServerEntry {
        let mut entry = ServerEntry::stdio("files", "npx", vec!["-y".into(), "a server".into()]);
        let Transport::Stdio(stdio) = &mut entry.transport else { panic!("it is a program") };
        stdio.env = vec![("TOKEN".into(), "hunter2".into())];
        entry
    }

    #[test]
    fn no_value_of_the_environment_is_shown() {
        let entry = entry();
        assert_eq!(entry.shown(), "TOKEN=… npx -y 'a server'");
        assert!(!format!("{entry:?} {}", entry.shown()).contains("hunter2"));
        assert!(format!("{entry:?}").contains("TOKEN"));
    }

    #[test]
    fn whatever_changes_changes_the_hash() {
        type Change = fn(&mut ServerEntry);
        fn stdio(entry: &mut ServerEntry) -> &mut Stdio {
            let Transport::Stdio(stdio) = &mut entry.transport else { panic!("it is a program") };
            stdio
        }
        let changes: [Change; 14] = [
            |entry| entry.name.push('x'),
            |entry| stdio(entry).command.push('x'),
            |entry| stdio(entry).args = vec!["-ya".into(), " server".into()],
            |entry| stdio(entry).env[0].1 = "hunter3".into(),
            |entry| stdio(entry).env[0].0.push('x'),
            |entry| stdio(entry).cwd = Some("/".into()),
            |entry| entry.protocol = Protocol::Discover,
            |entry| entry.timeout += Duration::from_secs(1),
            |entry| entry.tools = ToolChoice::new(vec!["a*".into()], Vec::new()).unwrap(),
            |entry| entry.tools = ToolChoice::new(Vec::new(), vec!["a*".into()]).unwrap(),
            |entry| entry.agents = Some(Vec::new()),
            |entry| entry.scope = ServerScope::Session,
            |entry| entry.walls.network = true,
            |entry| entry.limits.tasks = 9,
        ];
        let mut hashes = vec![entry().hash()];
        assert_eq!(hashes[0], entry().hash());
        for change in changes {
            let mut entry = entry();
            change(&mut entry);
            hashes.push(entry.hash());
        }
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 15);
        assert!(hashes.iter().all(|hash| hash.len() == 64));
    }

    #[test]
    fn an_address_is_shown_without_secrets_and_hashed_with_them() {
        let entry = |url: &str, value: &str| {
            let mut entry = ServerEntry::http("docs", url);
            let Transport::Http(http) = &mut entry.transport else { panic!("it is an address") };
            http.headers = vec![("Authorization".into(), value.into())];
            entry
        };
        let one = entry("https://me:hunter1@example.org/mcp?key=hunter2", "Bearer hunter3");
        assert_eq!(one.shown(), "https://example.org/mcp?… Authorization: …");
        assert!(!format!("{one:?}").contains("hunter"), "{one:?}");
        let hashes = [
            one.hash(),
            entry("https://example.org/mcp", "Bearer hunter3").hash(),
            entry("https://example.org/mcp", "Bearer hunter4").hash(),
        ];
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2]);
    }

    #[test]
    fn headers_are_checked_without_telling_their_values() {
        let of = |name: &str, value: &str| {
            let headers = vec![(name.to_owned(), value.to_owned().into())];
            Http { url: String::new(), headers, oauth: OAuth::default() }.header_map()
        };
        assert_eq!(of("Authorization", "Bearer x").unwrap().len(), 1);
        for (name, value) in [("Mcp-Session-Id", "hunter2"), ("a b", "hunter2"), ("X-A", "hunter2\n")] {
            let error = of(name, value).unwrap_err();
            assert!(error.contains(name) && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn tools_are_chosen_by_patterns() {
        let choice = |allow: &[&str], deny: &[&str]| {
            let owned = |patterns: &[&str]| patterns.iter().map(|&pattern| pattern.to_owned()).collect();
            ToolChoice::new(owned(allow), owned(deny)).unwrap()
        };
        assert!(choice(&[], &[]).takes("anything"));
        assert!(choice(&["get_*"], &[]).takes("get_issue") && !choice(&["get_*"], &[]).takes("set_issue"));
        assert!(!choice(&["get_*"], &["*_secret"]).takes("get_secret"));
        let error = ToolChoice::new(vec!["a[".into()], Vec::new()).unwrap_err();
        assert!(error.to_string().contains("a["), "{error}");
    }

    #[test]
    fn agents_are_named_or_all() {
        let mut entry = entry();
        assert!(entry.serves("build"));
        entry.agents = Some(vec!["plan".into()]);
        assert!(entry.serves("plan") && !entry.serves("build"));
    }
}
