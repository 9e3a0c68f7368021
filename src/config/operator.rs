//! The operator's file: trusted, it may set every key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use playhouse_catalogue::{Modalities, ModelFacts};
use playhouse_prompts::{Agents, RulesFile};
use playhouse_protocol::ModelRef;

use super::document::{Document, Setting, Value};
use super::error::ConfigError;
use super::keys::KeyName;
use super::provider::{self, BUILTIN, ProviderSettings};
use super::settings::{Settings, Variables};

/// The most bytes of an agent's file.
const MAX_AGENT_BYTES: u64 = 256 * 1024;

/// Where the operator's file is.
pub(super) struct Location {
    pub(super) file: PathBuf,
    /// Whether somebody named it, so that it must exist.
    pub(super) named: bool,
}

/// `--config FILE`, else `$PLAYHOUSE_CONFIG`, else the user's own; `None` for a user without a home.
pub(super) fn locate(flag: Option<&Path>, variables: Variables<'_>) -> Option<Location> {
    let variable = |name: &str| variables(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = flag.map(Path::to_owned).or_else(|| variable("PLAYHOUSE_CONFIG")) {
        return Some(Location { file, named: true });
    }
    // A relative XDG_CONFIG_HOME counts as absent, as its specification says.
    let folder = variable("XDG_CONFIG_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| variable("HOME").map(|home| home.join(".config")))?;
    Some(Location { file: folder.join("playhouse/config.toml"), named: false })
}

/// Applies the file at `location`, and the agents beside it, to `settings`.
pub(super) fn apply(
    location: &Location,
    variables: Variables<'_>,
    settings: &mut Settings,
) -> Result<(), ConfigError> {
    let folder = location.file.parent().unwrap_or(Path::new(""));
    add_agents(&folder.join("agents"), &mut settings.agents)?;
    let bytes = match fs_err::read(&location.file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !location.named => return Ok(()),
        Err(error) => return Err(ConfigError::file(&location.file, unreadable(&error))),
    };
    let text = text(&location.file, bytes)?;
    let document = Document::parse(&location.file, &text, &|_| Ok(()))?;
    settings.file = Some(location.file.clone());
    Reader { document: &document, folder, variables, settings }.read()
}

/// The reason why a file cannot be read, without its path.
pub(super) fn unreadable(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => format!("cannot be read: {}", error.kind()),
    }
}

/// The text of a file, or the line that is not UTF-8.
pub(super) fn text(file: &Path, bytes: Vec<u8>) -> Result<String, ConfigError> {
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        ConfigError::line(file, line, "this line is not UTF-8")
    })
}

fn add_agents(folder: &Path, agents: &mut Agents) -> Result<(), ConfigError> {
    let entries = match fs_err::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(ConfigError::file(folder, unreadable(&error))),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| ConfigError::file(folder, unreadable(&error)))?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    files.sort();
    for file in files {
        let content = playhouse_prompts::inside::read_trusted(&file, MAX_AGENT_BYTES)
            .map_err(|error| ConfigError::file(&file, format!("cannot be used as an agent: {error}")))?;
        if content.size > MAX_AGENT_BYTES {
            let message = format!("is {} bytes long; an agent has at most {MAX_AGENT_BYTES}", content.size);
            return Err(ConfigError::file(&file, message));
        }
        agents.add(&file.to_string_lossy(), &text(&file, content.bytes)?)?;
    }
    Ok(())
}

/// A provider as far as the file describes it.
#[derive(Default)]
struct Draft {
    line: usize,
    dialect: Option<playhouse_llm::DialectKind>,
    base_url: Option<String>,
    key_variable: Option<String>,
    output_limit_field: Option<playhouse_llm::OutputLimitField>,
}

struct Reader<'a> {
    document: &'a Document,
    /// What relative paths start from.
    folder: &'a Path,
    variables: Variables<'a>,
    settings: &'a mut Settings,
}

impl Reader<'_> {
    fn read(mut self) -> Result<(), ConfigError> {
        let (mut providers, mut models) = self.sections()?;
        for setting in &self.document.settings {
            self.set(setting, &mut providers, &mut models)
                .map_err(|message| ConfigError::line(&self.document.file, setting.line, message))?;
        }
        for (name, draft) in providers {
            let line = draft.line;
            self.provider(&name, draft).map_err(|message| self.error(line, message))?;
        }
        for (model, (line, facts)) in models {
            check_facts(&model, &facts).map_err(|message| self.error(line, message))?;
            self.settings.catalogue.insert(model, facts);
        }
        Ok(())
    }

    fn error(&self, line: usize, message: String) -> ConfigError {
        ConfigError::line(&self.document.file, line, message)
    }

    /// An empty draft for each provider, and what is known already for each model.
    #[expect(clippy::type_complexity, reason = "two maps that live as long as one function")]
    fn sections(
        &self,
    ) -> Result<(BTreeMap<String, Draft>, BTreeMap<ModelRef, (usize, ModelFacts)>), ConfigError> {
        let (mut providers, mut models) = (BTreeMap::new(), BTreeMap::new());
        for section in &self.document.sections {
            match section.names.as_slice() {
                [name] => {
                    if name == crate::mock::PROVIDER {
                        let message = format!(
                            "provider \"{name}\" is the scripted model in this process: give yours another name"
                        );
                        return Err(self.error(section.line, message));
                    }
                    provider::check_name(name).map_err(|message| self.error(section.line, message))?;
                    providers.insert(name.clone(), Draft { line: section.line, ..Draft::default() });
                }
                [provider, model] => {
                    if model.is_empty() || model.contains(char::is_control) {
                        let message =
                            "this is not a name for a model: it is empty or holds control characters";
                        return Err(self.error(section.line, message.to_owned()));
                    }
                    let model = ModelRef::new(provider, model);
                    let facts = self.settings.catalogue.get(&model).cloned().unwrap_or_default();
                    models.insert(model, (section.line, facts));
                }
                _ => {}
            }
        }
        Ok((providers, models))
    }

    fn set(
        &mut self,
        setting: &Setting,
        providers: &mut BTreeMap<String, Draft>,
        models: &mut BTreeMap<ModelRef, (usize, ModelFacts)>,
    ) -> Result<(), String> {
        let value = &setting.value;
        match setting.names.as_slice() {
            [] => self.set_top(setting),
            [name] => {
                let draft = providers.entry(name.clone()).or_default();
                set_provider(setting.key.name, value, draft).map_err(|message| keyed(setting, &message))
            }
            [provider, model, ..] => {
                let (_, facts) = models.entry(ModelRef::new(provider, model)).or_default();
                set_model(setting.key.name, value, facts).map_err(|message| keyed(setting, &message))
            }
        }
    }

    fn set_top(&mut self, setting: &Setting) -> Result<(), String> {
        match (setting.key.name, &setting.value) {
            (KeyName::Model, Value::Text(text)) => {
                self.settings.model = Some(text.parse().map_err(|error| keyed(setting, &error))?);
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
        let known = self.settings.providers.get(name).cloned();
        if draft.dialect.is_some() && BUILTIN.iter().any(|builtin| builtin.name == name) {
            return Err(format!(
                "`dialect` of the built-in provider \"{name}\" is fixed: give yours another name"
            ));
        }
        let missing = |key: &str| format!("provider \"{name}\" has no `{key}`");
        let settings = ProviderSettings {
            dialect: draft
                .dialect
                .or(known.as_ref().map(|known| known.dialect))
                .ok_or_else(|| missing("dialect") + ": anthropic or openai-chat")?,
            base_url: draft
                .base_url
                .or(known.as_ref().map(|known| known.base_url.clone()))
                .ok_or_else(|| missing("base_url"))?,
            key_variable: draft.key_variable.or(known.as_ref().and_then(|known| known.key_variable.clone())),
            output_limit_field: draft
                .output_limit_field
                .or(known.map(|known| known.output_limit_field))
                .unwrap_or_default(),
        };
        self.settings.providers.insert(name.to_owned(), settings);
        Ok(())
    }
}

/// A message that begins with the setting's key.
fn keyed(setting: &Setting, message: &dyn std::fmt::Display) -> String {
    let mut names = setting.names.iter();
    let path: Vec<&str> =
        setting
            .key
            .path
            .split('.')
            .map(|segment| {
                if segment == super::keys::NAME { names.next().map_or(segment, |name| name) } else { segment }
            })
            .collect();
    format!("`{}`: {message}", path.join("."))
}

fn set_provider(key: KeyName, value: &Value, draft: &mut Draft) -> Result<(), String> {
    match (key, value) {
        (KeyName::Dialect, Value::Text(text)) => draft.dialect = Some(provider::dialect(text)?),
        (KeyName::BaseUrl, Value::Text(text)) => draft.base_url = Some(provider::base_url(text)?),
        (KeyName::ApiKeyEnv, Value::Text(text)) => draft.key_variable = Some(provider::variable_name(text)?),
        (KeyName::OutputLimitField, Value::Text(text)) => {
            draft.output_limit_field = Some(provider::output_limit_field(text)?);
        }
        _ => return Err("does not belong here".to_owned()),
    }
    Ok(())
}

fn set_model(key: KeyName, value: &Value, facts: &mut ModelFacts) -> Result<(), String> {
    match (key, value) {
        (KeyName::Context, Value::Whole(tokens)) => {
            facts.context = *tokens;
            // A limit of its own that is known of a built-in model need not hold for another window.
            facts.input = None;
        }
        (KeyName::Output, Value::Whole(tokens)) => facts.output = *tokens,
        (KeyName::Prefill, Value::Boolean(prefill)) => facts.prefill = *prefill,
        (KeyName::Attachments, Value::List(names)) => {
            facts.modalities = names.iter().try_fold(Modalities::default(), |modalities, name| {
                modalities.named(name).ok_or_else(|| {
                    format!(
                        "unknown kind \"{}\"; there are {}",
                        name.escape_debug(),
                        Modalities::NAMES.join(", ")
                    )
                })
            })?;
        }
        (_, Value::Number(price)) => {
            // Whoever sets a price means it for every request.
            facts.long.clear();
            let prices = &mut facts.prices;
            match key {
                KeyName::CostInput => prices.input = Some(*price),
                KeyName::CostOutput => prices.output = Some(*price),
                KeyName::CostCacheRead => prices.cache_read = Some(*price),
                KeyName::CostCacheWrite => prices.cache_write = Some(*price),
                _ => return Err("does not belong here".to_owned()),
            }
        }
        _ => return Err("does not belong here".to_owned()),
    }
    Ok(())
}

fn check_facts(model: &ModelRef, facts: &ModelFacts) -> Result<(), String> {
    for (key, tokens) in [("context", facts.context), ("output", facts.output)] {
        if tokens == 0 {
            return Err(format!("model \"{model}\" has no `{key}`: give it in tokens"));
        }
    }
    if facts.output > facts.context {
        return Err(format!(
            "model \"{model}\": `output` ({}) is larger than `context` ({}), which holds it",
            facts.output, facts.context
        ));
    }
    Ok(())
}
