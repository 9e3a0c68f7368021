//! What is configured of language servers.

use std::collections::BTreeMap;

use playhouse_lsp::{ServerEntry, builtin};
use secrecy::SecretString;
use serde_json::Value as Json;

use super::document::Value;
use super::keys::KeyName;
use super::programs;
use super::provider::{HeaderSource, environment};
use super::settings::Variables;

/// The place of a server in a file.
pub(super) const PATH: &str = "lsp.NAME";
/// Less memory is not given, in MB.
const LEAST_MEGABYTES: u64 = 32;

/// Language servers as they are configured.
#[derive(Clone, Debug)]
pub struct LspSettings {
    /// Whether any is used.
    pub enabled: bool,
    /// How many of a tenant may run at once.
    pub servers_per_tenant: usize,
    /// How much memory one may use, in bytes.
    pub memory: u64,
    /// How much memory all use before no further one is started, in bytes.
    pub total_memory: u64,
    /// Those that are configured, by name.
    pub servers: BTreeMap<String, LspServerSettings>,
}

impl Default for LspSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            servers_per_tenant: 8,
            memory: 4 << 30,
            total_memory: 16 << 30,
            servers: BTreeMap::new(),
        }
    }
}

/// A language server as it is configured: everything but the values of its environment.
#[derive(Clone, Debug)]
pub struct LspServerSettings {
    entry: ServerEntry,
    values: Vec<(String, HeaderSource)>,
    enabled: bool,
}

impl LspServerSettings {
    /// The variables that hold values of its environment.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.values.iter().filter_map(|(_, source)| match source {
            HeaderSource::Variable(name) => Some(name.as_str()),
            HeaderSource::Text(_) => None,
        })
    }
}

impl LspSettings {
    /// The servers that may be used, the configured ones first, with the values that their variables have now. One that is
    /// configured takes the place of the known one of its name.
    pub fn entries(&self, variables: Variables<'_>) -> Vec<ServerEntry> {
        if !self.enabled {
            return Vec::new();
        }
        let configured = self.servers.values().filter(|server| server.enabled).map(|server| {
            let mut entry = server.entry.clone();
            for (name, source) in &server.values {
                match source {
                    HeaderSource::Text(text) => entry.env.push((name.clone(), text.clone())),
                    HeaderSource::Variable(variable) => match variables(variable) {
                        Some(value) => entry.env.push((name.clone(), SecretString::from(value))),
                        None => tracing::warn!(
                            server = %entry.name,
                            %variable,
                            "a language server is started without a variable that is not set"
                        ),
                    },
                }
            }
            entry
        });
        let known = builtin().into_iter().filter(|entry| !self.servers.contains_key(&entry.name));
        configured.chain(known).collect()
    }

    /// Takes a setting over that is about all of them.
    pub(super) fn set(&mut self, key: KeyName, value: &Value) -> Result<(), String> {
        let megabytes = |number: u64| match number {
            LEAST_MEGABYTES.. => Ok(number.saturating_mul(1 << 20)),
            _ => Err(format!("is {number}, at least {LEAST_MEGABYTES} is needed")),
        };
        match (key, value) {
            (KeyName::LspEnabled, Value::Boolean(enabled)) => self.enabled = *enabled,
            (KeyName::LspServers, Value::Whole(0)) => return Err("at least 1 is needed".to_owned()),
            (KeyName::LspServers, Value::Whole(number)) => {
                self.servers_per_tenant = usize::try_from(*number).unwrap_or(usize::MAX);
            }
            (KeyName::LspMemory, Value::Whole(number)) => self.memory = megabytes(*number)?,
            (KeyName::LspTotalMemory, Value::Whole(number)) => self.total_memory = megabytes(*number)?,
            _ => return Err("does not belong here".to_owned()),
        }
        Ok(())
    }
}

/// A server as far as the file describes it.
#[derive(Default)]
pub(super) struct LspDraft {
    pub(super) line: usize,
    command: Option<Vec<String>>,
    extensions: Option<Vec<String>>,
    root_markers: Option<Vec<String>>,
    env: Vec<(String, HeaderSource)>,
    initialization: Option<Json>,
    disabled: bool,
}

impl LspDraft {
    /// Takes a setting over. A fragment says what is wrong with it.
    pub(super) fn set(&mut self, key: KeyName, value: &Value) -> Result<(), String> {
        match (key, value) {
            (KeyName::LspCommand, Value::List(words)) => self.command = Some(programs::command(words)?),
            (KeyName::LspExtensions, Value::List(extensions)) => {
                self.extensions = Some(programs::extensions(extensions)?);
            }
            (KeyName::LspRootMarkers, Value::List(markers)) => {
                if let Some(wrong) = markers
                    .iter()
                    .find(|name| name.is_empty() || name.contains('/') || matches!(name.as_str(), "." | ".."))
                {
                    return Err(format!("\"{}\" is not the name of a file or folder", wrong.escape_debug()));
                }
                self.root_markers = Some(markers.clone());
            }
            (KeyName::LspInitialization, Value::Text(text)) => {
                let json: Json =
                    serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
                if !json.is_object() {
                    return Err("is not an object as JSON, as `{\"key\": true}`".to_owned());
                }
                self.initialization = Some(json);
            }
            (KeyName::LspServerEnabled, Value::Boolean(enabled)) => self.disabled = !enabled,
            _ => return Err("does not belong here".to_owned()),
        }
        Ok(())
    }

    /// Takes a variable of its environment over.
    pub(super) fn set_env(&mut self, name: &str, value: &Value) -> Result<(), String> {
        self.env.push(environment(name, value)?);
        Ok(())
    }

    /// The server of this name.
    pub(super) fn finish(self, name: &str) -> Result<LspServerSettings, String> {
        programs::check_name(name, "a language server")?;
        let known = builtin().into_iter().find(|entry| entry.name == name);
        let missing = |key: &str| format!("the language server \"{name}\" has no `{key}`");
        let has_command = self.command.is_some();
        let mut entry = match (known, self.command, self.extensions) {
            (Some(known), command, extensions) => ServerEntry {
                command: command.unwrap_or(known.command),
                extensions: extensions.unwrap_or(known.extensions),
                // A program that the operator names is the right one.
                since: known.since.filter(|_| !has_command),
                is_configured: has_command,
                ..known
            },
            (None, Some(command), Some(extensions)) => ServerEntry::new(name, command, extensions),
            (None, None, _) => return Err(missing("command")),
            (None, _, None) => return Err(missing("extensions")),
        };
        entry.root_markers = self.root_markers.unwrap_or(entry.root_markers);
        entry.initialization = self.initialization.unwrap_or(entry.initialization);
        Ok(LspServerSettings { entry, values: self.env, enabled: !self.disabled })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::loaded;

    #[test]
    fn servers_are_read_and_come_before_those_that_are_known() {
        let settings = loaded(
            "[lsp]\nservers_per_tenant = 2\n[lsp.sh]\ncommand = [\"bash-language-server\", \"start\"]\nextensions = [\".sh\"]\n\
             initialization = '{\"a\": 1}'\nenv = { A = \"secret-7\", B = { env = \"OF_B\" } }\n[lsp.ty]\nenabled = false\n\
             [lsp.clangd]\nroot_markers = [\"x\"]",
        )
        .unwrap();
        let entries = settings.lsp.entries(&|name| (name == "OF_B").then(|| "b".to_owned()));
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let known = ["typescript", "typescript-language-server", "basedpyright", "rust-analyzer", "gopls"];
        assert_eq!(names, [&["clangd", "sh"], &known[..]].concat());
        assert_eq!((entries[0].root_markers.len(), entries[0].is_configured), (1, false));
        assert_eq!((entries[1].env.len(), &entries[1].initialization["a"]), (2, &1.into()));
        assert_eq!(settings.lsp.servers_per_tenant, 2);
        assert!(!format!("{settings:?} {entries:?}").contains("secret-7"));
        let off =
            loaded("[lsp]\nenabled = false\n[lsp.x]\ncommand = [\"p\"]\nextensions = [\".x\"]").unwrap();
        assert!(off.lsp.entries(&|_| None).is_empty());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("[lsp.x]\nextensions = [\".x\"]", ":1: the language server \"x\" has no `command`"),
            ("[lsp.x]\ncommand = [\"p\"]", "has no `extensions`"),
            ("[lsp.x]\ncommand = []", ":2: `lsp.x.command`: no program is named"),
            ("[lsp.x]\ncommand = [\"bin/p\"]", "neither the name of a program nor an absolute path"),
            ("[lsp.x]\ncommand = \"p\"", ":2: `lsp.x.command` is text, expected a list of texts"),
            ("[lsp.x]\nextensions = [\"x\"]", "write it as"),
            ("[lsp.x]\nroot_markers = [\"a/b\"]", "not the name of a file"),
            ("[lsp.x]\ninitialization = \"[]\"", "not an object"),
            ("[lsp.x]\ninitialization = \"{\"", "is not JSON"),
            ("[lsp.\"a b\"]\ncommand = [\"p\"]\nextensions = [\".x\"]", ":1: \"a b\" cannot be the name"),
            ("[lsp]\nenabled = 1", ":2: `lsp.enabled`"),
            ("[lsp]\nservers = 1", ":2: `lsp.servers`"),
            ("[lsp]\nmemory_mb = 1", "at least 32"),
            ("[lsp]\nservers_per_tenant = 0", "at least 1"),
            ("[lsp.x.env]\n\"A B\" = \"1\"", "not the name of an environment variable"),
        ] {
            let error = loaded(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
