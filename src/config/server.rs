//! What is configured of the server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use playhouse_server::{ServerOptions, TenantLimits};
use rust_decimal::prelude::ToPrimitive as _;

use super::document::Value;
use super::keys::KeyName;
use super::reader::{at_least_one, bound_in_megabytes};
use super::settings::Settings;
use super::walls::directories;

/// What is configured of the server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Directories below which sessions may work: absolute. None for the one where the server was started.
    pub roots: Vec<PathBuf>,
    /// Names by which it may be called, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Origins of pages that may call it.
    pub origins: Vec<String>,
    /// Names of native tools that clients of `/v1/mcp` may call.
    pub mcp_tools: Vec<String>,
    /// What each tenant may have.
    pub limits: TenantLimits,
    /// How long running turns may go on after the server was told to end.
    pub grace: Duration,
    /// How many connections there may be at once.
    pub connections: usize,
}

impl ServerSettings {
    /// Where a server listens that was not told: as opencode's does, so that its clients find it.
    pub const LISTEN: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4_096);

    /// What a server is made of that works with these settings.
    pub fn options(&self) -> ServerOptions {
        ServerOptions {
            roots: self.roots.clone(),
            hosts: self.hosts.clone(),
            origins: self.origins.clone(),
            mcp_tools: self.mcp_tools.clone(),
            limits: self.limits.clone(),
            grace: self.grace,
            connections: self.connections,
            ..ServerOptions::default()
        }
    }
}

impl Default for ServerSettings {
    fn default() -> Self {
        let ServerOptions { roots, hosts, origins, mcp_tools, limits, grace, connections, .. } =
            ServerOptions::default();
        Self { listen: Self::LISTEN, roots, hosts, origins, mcp_tools, limits, grace, connections }
    }
}

/// Takes a setting over. A fragment says what is wrong with it.
pub(super) fn set(key: KeyName, value: &Value, settings: &mut Settings) -> Result<(), String> {
    let home = settings.home.as_deref();
    let server = &mut settings.server;
    let limits = &mut server.limits;
    match (key, value) {
        (KeyName::ServerListen, Value::Text(text)) => server.listen = address(text)?,
        (KeyName::ServerRoots, Value::List(list)) => {
            server.roots = directories(list, home)?.into_iter().map(PathBuf::from).collect();
        }
        (KeyName::ServerHosts, Value::List(list)) => {
            server.hosts = list.iter().map(|text| host(text)).collect::<Result<_, _>>()?;
        }
        (KeyName::ServerOrigins, Value::List(list)) => {
            server.origins = list.iter().map(|text| origin(text)).collect::<Result<_, _>>()?;
        }
        (KeyName::ServerMcpTools, Value::List(list)) => server.mcp_tools.clone_from(list),
        (KeyName::ServerGrace, Value::Whole(millis)) => server.grace = Duration::from_millis(*millis),
        (KeyName::ServerConnections, Value::Whole(count)) => {
            let count = usize::try_from(at_least_one(*count)?).unwrap_or(usize::MAX);
            server.connections = count.min(tokio::sync::Semaphore::MAX_PERMITS);
        }
        (KeyName::ServerStorage, Value::Whole(number)) => {
            settings.engine.storage.tenant = bound_in_megabytes(*number)
        }
        (KeyName::ServerSessions, Value::Whole(count)) => limits.sessions = Some(*count),
        (KeyName::ServerRunningTurns, Value::Whole(count)) => limits.running_turns = Some(*count),
        (KeyName::ServerTokens, Value::Whole(count)) => limits.tokens_per_minute = Some(*count),
        (KeyName::ServerSubscribers, Value::Whole(count)) => limits.subscribers = Some(*count),
        (KeyName::ServerSpend, Value::Number(dollars)) => limits.spend_per_day = dollars.to_f64(),
        _ => return Err("does not belong here".to_owned()),
    }
    Ok(())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("is \"{}\", expected an address with a port, as \"127.0.0.1:4096\"", text.escape_debug())
    })
}

fn host(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !text.is_empty() && text.chars().all(fits) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(format!("\"{}\" is no name of a host: write it without a scheme and a port", text.escape_debug()))
}

/// As browsers write it: scheme, host, and a port that is not the usual one.
fn origin(text: &str) -> Result<String, String> {
    let place = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '[' | ']');
    match place {
        Some(place) if !place.is_empty() && place.chars().all(fits) => Ok(text.to_ascii_lowercase()),
        _ => Err(format!(
            "\"{}\" is no origin: write scheme and host only, as \"https://app.example.org\"",
            text.escape_debug()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_origins_are_checked() {
        assert_eq!(host("Play.Example"), Ok("play.example".to_owned()));
        assert!(["", "a:1", "http://a", "*", "a/b"].into_iter().all(|text| host(text).is_err()));
        assert_eq!(origin("https://App.example:8443"), Ok("https://app.example:8443".to_owned()));
        let wrong = ["", "*", "null", "app.example", "https://", "https://a/", "https://a b", "ftp://a"];
        assert!(wrong.into_iter().all(|text| origin(text).is_err()));
        assert!(address("localhost:1").is_err() && address("[::1]:80").is_ok());
    }
}
