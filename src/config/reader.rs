//! Takes the settings of the operator's document over, provider by provider and model by model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use playhouse_actors::Resume;
use playhouse_llm::{
    CallIdForm, ChatFacts, Connections, DialectKind, Http2, OutputLimitField, Quota, UsageConvention,
};
use playhouse_mcp::names::mixes_up;
use playhouse_prompts::{RulesFile, rules};
use playhouse_protocol::capability::ReasoningField;
use playhouse_tools::Tool as _;
use playhouse_tools::bash::BashOptions;

use super::billing;
use super::budgets;
use super::builtin;
use super::capture::{self, CaptureDraft};
use super::credentials::KeyVariable;
use super::document::{Document, Setting, Value, keyed};
use super::error::ConfigError;
use super::formatter::{self, FormatterDraft};
use super::keys::KeyName;
use super::lsp::{self, LspDraft};
use super::mcp::{self, McpDraft};
use super::metrics;
use super::models::ConfiguredModels;
use super::permissions;
use super::provider::{self, HeaderSource, ProviderSettings};
use super::server;
use super::settings::{Settings, Variables};
use super::sinks::{self, SinkDraft};
use super::snapshots;
use super::walls;

/// A provider as far as the file describes it.
#[derive(Default)]
struct Draft {
    line: usize,
    dialect: Option<DialectKind>,
    base_url: Option<String>,
    key_variable: Option<String>,
    headers: BTreeMap<String, HeaderSource>,
    limits: Limits,
    usage: Option<UsageConvention>,
    http2: Option<Http2>,
    output_limit_field: Option<OutputLimitField>,
    stream_options: Option<bool>,
    reasoning_content: Option<bool>,
    user_after_results: Option<bool>,
    call_ids: Option<CallIdForm>,
    deferred_tools: Option<bool>,
}

/// How many sub-sessions may stand below each other at most: the engine makes none below those.
const DEEPEST_TASK: usize = 8;
/// A shell with a pipe must fit.
const FEWEST_PROCESSES: u64 = 8;
/// The memory of a shell, in MB.
const LEAST_MEGABYTES: u64 = 32;
/// A shell that sets a pipe up must fit.
const FEWEST_OPEN_FILES: u64 = 32;

/// Sets a key of a section in which nothing has a name of the operator's choice.
type SetKey = fn(KeyName, &Value, &mut Settings) -> Result<(), String>;

/// Who reads the keys whose path begins so.
const SECTIONS: [(&str, SetKey); 12] = [
    ("billing.", billing::set),
    ("budgets.", |key, value, settings| budgets::set(key, None, value, &mut settings.budgets)),
    ("lsp.", |key, value, settings| settings.lsp.set(key, value)),
    ("metrics.", metrics::set),
    ("moderate", walls::set),
    ("sandbox", walls::set),
    ("server.", server::set),
    ("snapshots.", snapshots::set),
    ("tools.bash.", |key, value, settings| set_bash(key, value, &mut settings.tools.bash)),
    ("tools.capture", capture::set_examples),
    ("tools.web.", |key, value, settings| settings.web.set(key, value)),
    ("walls.", walls::set),
];

/// The limits that a file sets.
#[derive(Default)]
struct Limits {
    concurrent: Option<usize>,
    requests_per_minute: Option<u32>,
    tokens_per_minute: Option<u64>,
    streams_per_connection: Option<usize>,
}

type Providers = BTreeMap<String, Draft>;
type Sinks = BTreeMap<String, SinkDraft>;
type Servers = BTreeMap<String, McpDraft>;
type LanguageServers = BTreeMap<String, LspDraft>;
type Formatters = BTreeMap<String, FormatterDraft>;
type Captures = BTreeMap<String, CaptureDraft>;

/// What files describe by names, until all of a file is read.
#[derive(Default)]
struct Drafts {
    providers: Providers,
    sinks: Sinks,
    servers: Servers,
    language_servers: LanguageServers,
    formatters: Formatters,
    captures: Captures,
}

/// Carries a document over into settings.
pub(super) struct Reader<'a> {
    pub(super) document: &'a Document,
    /// What relative paths start from.
    pub(super) folder: &'a Path,
    pub(super) variables: Variables<'a>,
    pub(super) settings: &'a mut Settings,
}

impl Reader<'_> {
    pub(super) fn read(mut self) -> Result<(), ConfigError> {
        let mut drafts = self.sections()?;
        for setting in &self.document.settings {
            self.set(setting, &mut drafts)
                .map_err(|message| ConfigError::line(&self.document.file, setting.line, message))?;
        }
        let Drafts { providers, sinks, servers, language_servers, formatters, captures } = drafts;
        for (name, draft) in captures {
            let tool = draft.finish(&name).map_err(|(line, message)| self.error(line, message))?;
            self.settings.captures.push(tool);
        }
        let permissions = permissions::read(self.document, self.settings.home.as_deref(), &|_| Ok(()))?;
        self.settings.permissions = permissions.rules;
        self.settings.permission_names = permissions.names;
        let captures = &self.settings.captures;
        let is_captures = |name: &str| captures.iter().any(|tool| tool.spec().name == name);
        self.settings.permission_names.retain(|permission| !is_captures(&permission.name));
        self.settings.web.check().map_err(|message| ConfigError::file(&self.document.file, message))?;
        budgets::check(self.document, &self.settings.budgets)?;
        metrics::check(self.document, self.settings)?;
        for (name, draft) in servers {
            let line = draft.line;
            let server = draft.finish(&name).map_err(|message| self.error(line, message))?;
            let mixes = |other: &&String| mixes_up(other, &name);
            if let Some(other) = self.settings.mcp.keys().find(mixes) {
                let message = format!(
                    "tools of the servers \"{other}\" and \"{name}\" could have the same name: give one another name"
                );
                return Err(self.error(line, message));
            }
            self.settings.mcp.insert(name, server);
        }
        for (name, draft) in language_servers {
            let line = draft.line;
            let server = draft.finish(&name).map_err(|message| self.error(line, message))?;
            self.settings.lsp.servers.insert(name, server);
        }
        for (name, draft) in formatters {
            let line = draft.line;
            let formatter = draft.finish(&name).map_err(|message| self.error(line, message))?;
            self.settings.formatters.extend(formatter);
        }
        for (name, draft) in providers {
            let line = draft.line;
            self.provider(&name, draft).map_err(|message| self.error(line, message))?;
        }
        let models = ConfiguredModels::of(self.document);
        self.settings.preferences = models.preferences()?;
        self.settings.catalogue.configure(models)?;
        for (name, draft) in sinks {
            let sink = draft.finish(&name, &self.document.file)?;
            // All tenants are in it.
            self.settings.own.extend(sink.folder().map(Path::to_owned));
            self.settings.sinks.insert(name, sink);
        }
        sinks::check_apart(&self.settings.sinks)
    }

    fn error(&self, line: usize, message: String) -> ConfigError {
        ConfigError::line(&self.document.file, line, message)
    }

    /// An empty draft for each provider, sink, server of tools, language server, formatter and capture tool.
    fn sections(&self) -> Result<Drafts, ConfigError> {
        let mut drafts = Drafts::default();
        for section in &self.document.sections {
            match section.names.as_slice() {
                [name] if section.path == sinks::PATH => {
                    drafts.sinks.entry(name.clone()).or_default().line = section.line;
                }
                _ if section.path.starts_with(mcp::PATH) => {
                    if let [name] = section.names.as_slice() {
                        drafts.servers.entry(name.clone()).or_default().line = section.line;
                    }
                }
                _ if section.path.starts_with(lsp::PATH) => {
                    if let [name] = section.names.as_slice() {
                        drafts.language_servers.entry(name.clone()).or_default().line = section.line;
                    }
                }
                [name] if section.path == formatter::PATH => {
                    drafts.formatters.entry(name.clone()).or_default().line = section.line;
                }
                [name] if section.path == capture::PATH => {
                    drafts.captures.entry(name.clone()).or_default().line = section.line;
                }
                // A tenant without anything of its own has what all have.
                _ if section.path == budgets::PATH => {}
                [name] => {
                    if name == crate::mock::PROVIDER {
                        let message = format!(
                            "provider \"{name}\" is the scripted model in this process: give yours another name"
                        );
                        return Err(self.error(section.line, message));
                    }
                    provider::check_name(name).map_err(|message| self.error(section.line, message))?;
                    drafts.providers.insert(name.clone(), Draft { line: section.line, ..Draft::default() });
                }
                _ => {}
            }
        }
        Ok(drafts)
    }

    fn set(&mut self, setting: &Setting, drafts: &mut Drafts) -> Result<(), String> {
        let value = &setting.value;
        let Drafts { providers, sinks, servers, language_servers, formatters, captures } = drafts;
        let set = match (setting.key.name, setting.names.as_slice()) {
            (_, []) => return self.set_top(setting),
            (KeyName::WebSearchHeader, [header]) => self.settings.web.set_header(header, value),
            // They are read together, in the order of the file.
            (KeyName::Permission, _) => Ok(()),
            (KeyName::Header, [provider, header]) => provider::set_header(
                header,
                value,
                &mut providers.entry(provider.clone()).or_default().headers,
            ),
            (key, [tenant]) if setting.key.path.starts_with(budgets::PATH) => {
                budgets::set(key, Some(tenant), value, &mut self.settings.budgets)
            }
            (_, [name]) if setting.key.path.starts_with(sinks::PATH) => {
                sinks.entry(name.clone()).or_default().set(setting, |text| self.path(text))
            }
            (KeyName::McpHeader, [name, header]) => {
                servers.entry(name.clone()).or_default().set_header(header, value)
            }
            (KeyName::McpEnv, [name, variable]) => {
                servers.entry(name.clone()).or_default().set_env(variable, value)
            }
            (key, [name]) if setting.key.path.starts_with(mcp::PATH) => {
                servers.entry(name.clone()).or_default().set(key, value, |text| self.path(text))
            }
            (KeyName::LspEnv, [name, variable]) => {
                language_servers.entry(name.clone()).or_default().set_env(variable, value)
            }
            (key, [name]) if setting.key.path.starts_with(lsp::PATH) => {
                language_servers.entry(name.clone()).or_default().set(key, value)
            }
            (key, [name]) if setting.key.path.starts_with(formatter::PATH) => {
                formatters.entry(name.clone()).or_default().set(key, value)
            }
            (key, [name]) if setting.key.path.starts_with(capture::PATH) => {
                let draft = captures.entry(name.clone()).or_default();
                draft.set(key, value, setting.line, |text| self.path(text))
            }
            (key, [name]) => set_provider(key, value, providers.entry(name.clone()).or_default()),
            // Models are read together, on top of what the catalogue knows.
            (_, [_, _, ..]) => Ok(()),
        };
        set.map_err(|message| keyed(setting, &message))
    }

    fn set_top(&mut self, setting: &Setting) -> Result<(), String> {
        if let Some((_, set)) = SECTIONS.iter().find(|(prefix, _)| setting.key.path.starts_with(prefix)) {
            return set(setting.key.name, &setting.value, self.settings)
                .map_err(|error| keyed(setting, &error));
        }
        match (setting.key.name, &setting.value) {
            (KeyName::Model, Value::Text(text)) => {
                self.settings.model = Some(text.parse().map_err(|error| keyed(setting, &error))?);
            }
            (KeyName::SmallModel, Value::Text(text)) => {
                self.settings.small_model = Some(text.parse().map_err(|error| keyed(setting, &error))?);
            }
            (KeyName::Agent, Value::Text(text)) => {
                self.settings.agent = Some(self.settings.known_agent(text)?);
            }
            (KeyName::Rules, Value::List(files)) => {
                for file in files {
                    let rules = RulesFile::trusted(&self.path(file)).map_err(|error| error.to_string())?;
                    self.settings.rules.push(rules);
                }
            }
            (KeyName::PromptAppend, Value::Text(text)) => {
                if text.len() > rules::MAX_BYTES {
                    let length = text.len();
                    return Err(keyed(
                        setting,
                        &format!("is {length} bytes long, at most {}", rules::MAX_BYTES),
                    ));
                }
                self.settings.append = Some(text.clone());
            }
            (KeyName::Store, Value::Text(name)) => {
                let parsed = name.parse();
                self.settings.store = parsed.map_err(|error: String| keyed(setting, &error))?;
            }
            (KeyName::StoreOnDamage, Value::Text(name)) => {
                let parsed = name.parse();
                self.settings.store_on_damage = parsed.map_err(|error: String| keyed(setting, &error))?;
            }
            (KeyName::Resume, Value::Text(text)) => {
                self.settings.resume = resume(text).map_err(|error| keyed(setting, &error))?;
            }
            (key, Value::Whole(number)) => {
                let retry = &mut self.settings.engine.retry;
                match key {
                    KeyName::RetryAttempts => {
                        retry.attempts = at_least_one(*number).map_err(|error| keyed(setting, &error))?
                    }
                    KeyName::RetryBase => retry.base_ms = *number,
                    KeyName::RetryLongest => retry.longest_ms = *number,
                    KeyName::RetryTotal => retry.total_ms = *number,
                    KeyName::ConnectTime => self.settings.connect = time(*number, setting)?,
                    KeyName::HeadTime => self.settings.limits.head = time(*number, setting)?,
                    KeyName::SilenceTime => self.settings.limits.silence = time(*number, setting)?,
                    KeyName::AttemptTime => self.settings.limits.attempt = time(*number, setting)?,
                    KeyName::ContextKeep => {
                        self.settings.context_keep =
                            percent_kept(*number).map_err(|error| keyed(setting, &error))?;
                    }
                    KeyName::AskingWait => self.settings.engine.asking_wait = Duration::from_millis(*number),
                    KeyName::SessionsIdle => {
                        let idle = Duration::from_millis(*number);
                        self.settings.engine.idle_after = (!idle.is_zero()).then_some(idle);
                    }
                    KeyName::TasksDepth => {
                        self.settings.engine.tasks.depth = usize::try_from(*number)
                            .ok()
                            .filter(|depth| *depth <= DEEPEST_TASK)
                            .ok_or_else(|| {
                                let error =
                                    format!("is {number}, expected a whole number from 0 to {DEEPEST_TASK}");
                                keyed(setting, &error)
                            })?;
                    }
                    KeyName::TasksChildren => {
                        let most = at_least_one(*number).map_err(|error| keyed(setting, &error))?;
                        self.settings.engine.tasks.children = usize::try_from(most).unwrap_or(usize::MAX);
                    }
                    KeyName::SessionsMost => {
                        let most = at_least_one(*number).map_err(|error| keyed(setting, &error))?;
                        self.settings.engine.max_live = usize::try_from(most).unwrap_or(usize::MAX);
                    }
                    KeyName::KeepOutputs => {
                        let keep = Duration::from_secs(number.saturating_mul(3_600));
                        self.settings.engine.keep_outputs = (!keep.is_zero()).then_some(keep);
                    }
                    KeyName::KeepOutputsMegabytes => {
                        self.settings.engine.storage.outputs = bound_in_megabytes(*number);
                    }
                    _ => return Err(keyed(setting, &"does not belong here")),
                }
            }
            _ => return Err(keyed(setting, &"does not belong here")),
        }
        Ok(())
    }

    /// A path of the file: relative to its folder, or to the user's home after `~/`.
    fn path(&self, text: &str) -> PathBuf {
        let path = match (text.strip_prefix("~/"), (self.variables)("HOME")) {
            (Some(rest), Some(home)) => Path::new(&home).join(rest),
            _ => self.folder.join(text),
        };
        // Models see this name; a relative one would be taken for a file of the workspace.
        std::path::absolute(&path).unwrap_or(path)
    }

    fn provider(&mut self, name: &str, draft: Draft) -> Result<(), String> {
        let known = self.settings.providers.get(name);
        let missing = |key: &str| format!("provider \"{name}\" has no `{key}`");
        if let (Some(dialect), Some(row)) = (draft.dialect, builtin::row(name))
            && !row.dialects.contains(&dialect)
        {
            let spoken: Vec<&str> = row.dialects.iter().map(|kind| provider::dialect_name(*kind)).collect();
            return Err(format!(
                "the built-in provider \"{name}\" speaks {}, not {}: give yours another name",
                spoken.join(" and "),
                provider::dialect_name(dialect)
            ));
        }
        let dialects = || provider::DIALECTS.map(|(name, _)| name).join(", ");
        let dialect = draft
            .dialect
            .or(known.map(|known| known.dialect))
            .ok_or_else(|| format!("{}: there are {}", missing("dialect"), dialects()))?;
        if let Some(usage) = draft.usage {
            provider::check_usage(usage, dialect).map_err(|error| format!("provider \"{name}\": {error}"))?;
        }
        let mut headers = known.map(|known| known.headers.clone()).unwrap_or_default();
        headers.extend(draft.headers);
        let keys = match draft.key_variable {
            Some(name) => vec![KeyVariable { name, bearer: false }],
            None => known.map(|known| known.keys.clone()).unwrap_or_default(),
        };
        let usual = Quota::default();
        let connections = known.map(|known| known.connections).unwrap_or_default();
        let chat = known.map(|known| known.chat).unwrap_or_default();
        let wrong_address = match draft.base_url {
            Some(_) => None,
            None => known.and_then(|known| known.wrong_address.clone()),
        };
        let settings = ProviderSettings {
            dialect,
            wrong_address,
            // Whoever names a dialect means it for every model.
            responses: draft.dialect.is_none() && known.is_some_and(|known| known.responses),
            base_url: draft
                .base_url
                .or(known.map(|known| known.base_url.clone()))
                .ok_or_else(|| missing("base_url"))?,
            keys,
            headers,
            quota: Quota {
                concurrent: draft.limits.concurrent.unwrap_or(usual.concurrent),
                requests_per_minute: draft.limits.requests_per_minute,
                tokens_per_minute: draft.limits.tokens_per_minute,
            },
            usage: draft.usage,
            connections: Connections {
                connect: connections.connect,
                http2: draft.http2.unwrap_or(connections.http2),
                streams: draft.limits.streams_per_connection.unwrap_or(connections.streams),
            },
            chat: ChatFacts {
                output_limit_field: draft.output_limit_field.unwrap_or(chat.output_limit_field),
                stream_options: draft.stream_options.unwrap_or(chat.stream_options),
                reasoning_field: match draft.reasoning_content {
                    Some(true) => Some(ReasoningField::ReasoningContent),
                    Some(false) => None,
                    None => chat.reasoning_field,
                },
                reasoning_words: chat.reasoning_words,
                call_ids: draft.call_ids.unwrap_or(chat.call_ids),
                user_after_results: draft.user_after_results.unwrap_or(chat.user_after_results),
            },
            cache_key: known.map_or(&[], |known| known.cache_key),
            deferred_tools: draft.deferred_tools,
        };
        self.settings.providers.insert(name.to_owned(), settings);
        Ok(())
    }
}

fn set_provider(key: KeyName, value: &Value, draft: &mut Draft) -> Result<(), String> {
    let limits = &mut draft.limits;
    match (key, value) {
        (KeyName::Dialect, Value::Text(text)) => draft.dialect = Some(provider::dialect(text)?),
        (KeyName::BaseUrl, Value::Text(text)) => draft.base_url = Some(provider::base_url(text)?),
        (KeyName::ApiKeyEnv, Value::Text(text)) => draft.key_variable = Some(provider::variable_name(text)?),
        (KeyName::Usage, Value::Text(text)) => draft.usage = Some(provider::usage(text)?),
        (KeyName::Http2, Value::Text(text)) => draft.http2 = Some(provider::http2(text)?),
        (KeyName::CallIds, Value::Text(text)) => draft.call_ids = Some(provider::call_ids(text)?),
        (KeyName::StreamOptions, Value::Boolean(sent)) => draft.stream_options = Some(*sent),
        (KeyName::DeferredTools, Value::Boolean(sent)) => draft.deferred_tools = Some(*sent),
        (KeyName::ReasoningContent, Value::Boolean(sent)) => draft.reasoning_content = Some(*sent),
        (KeyName::UserAfterResults, Value::Boolean(taken)) => draft.user_after_results = Some(*taken),
        (KeyName::OutputLimitField, Value::Text(text)) => {
            draft.output_limit_field = Some(provider::output_limit_field(text)?);
        }
        (KeyName::LimitConcurrent, Value::Whole(count)) => {
            limits.concurrent = Some(at_least_one(*count)? as usize)
        }
        (KeyName::LimitRequests, Value::Whole(count)) => {
            limits.requests_per_minute = Some(at_least_one(*count)?);
        }
        (KeyName::LimitStreams, Value::Whole(count)) => {
            limits.streams_per_connection = Some(at_least_one(*count)? as usize);
        }
        (KeyName::LimitTokens, Value::Whole(count)) => {
            limits.tokens_per_minute = Some(at_least_one(*count)?.into())
        }
        _ => return Err("does not belong here".to_owned()),
    }
    Ok(())
}

fn set_bash(key: KeyName, value: &Value, bash: &mut BashOptions) -> Result<(), String> {
    let &Value::Whole(number) = value else { return Err("does not belong here".to_owned()) };
    let limits = &mut bash.limits;
    match key {
        KeyName::BashMaxTimeout => bash.max_timeout = Duration::from_millis(at_least_one(number)?.into()),
        KeyName::BashProcesses => limits.tasks = at_least_one(at_least(number, FEWEST_PROCESSES)?)?,
        KeyName::BashMemory => limits.memory = or_none(number, LEAST_MEGABYTES)?.map(megabytes),
        KeyName::BashFile => limits.file_size = or_none(number, 1)?.map(megabytes),
        KeyName::BashOpenFiles => limits.open_files = or_none(number, FEWEST_OPEN_FILES)?,
        KeyName::BashCpu => limits.cpu_seconds = or_none(number, 1)?,
        KeyName::BashSessionProcesses => {
            limits.session_tasks = Some(at_least_one(at_least(number, FEWEST_PROCESSES)?)?);
        }
        KeyName::BashSessionMemory => {
            limits.session_memory = Some(megabytes(at_least(number, LEAST_MEGABYTES)?));
        }
        _ => bash.most_background = usize::try_from(number).unwrap_or(usize::MAX),
    }
    Ok(())
}

pub(super) fn megabytes(number: u64) -> u64 {
    number.saturating_mul(1024 * 1024)
}

fn at_least(number: u64, least: u64) -> Result<u64, String> {
    match number < least {
        true => Err(format!("is {number}, expected a whole number from {least}")),
        false => Ok(number),
    }
}

/// A limit, where 0 stands for none.
fn or_none(number: u64, least: u64) -> Result<Option<u64>, String> {
    match number {
        0 => Ok(None),
        _ if number < least => Err(format!("is {number}, expected 0 or a whole number from {least}")),
        _ => Ok(Some(number)),
    }
}

/// A time in milliseconds; without any, nothing would ever be answered.
fn time(millis: u64, setting: &Setting) -> Result<Duration, String> {
    let millis = at_least_one(millis).map_err(|error| keyed(setting, &error))?;
    Ok(Duration::from_millis(millis.into()))
}

fn resume(text: &str) -> Result<Resume, String> {
    match text {
        "auto" => Ok(Resume::Auto),
        "manual" => Ok(Resume::Manual),
        _ => Err(format!("is \"{}\", expected auto or manual", text.escape_debug())),
    }
}

/// How much of a window is kept: an answer may have a quarter of it.
fn percent_kept(percent: u64) -> Result<u64, String> {
    if (25..=80).contains(&percent) {
        return Ok(percent);
    }
    Err(format!("is {percent}, expected a percentage from 25 to 80"))
}

/// The bytes of so many MB of storage; 0 for no limit.
pub(super) fn bound_in_megabytes(number: u64) -> Option<u64> {
    (number > 0).then(|| megabytes(number))
}

/// A count that must be 1 or more.
pub(super) fn at_least_one(count: u64) -> Result<u32, String> {
    u32::try_from(count)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| format!("is {count}, expected a whole number from 1 to {}", u32::MAX))
}
