//! The result of all configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use playhouse_catalogue::{Catalogue, ModelFacts};
use playhouse_llm::{Endpoint, OutputLimitField};
use playhouse_prompts::{Agents, RulesFile};
use playhouse_protocol::ModelRef;
use playhouse_protocol::nearest::did_you_mean;
use secrecy::SecretString;

use super::error::ConfigError;
use super::provider::{self, ProviderSettings};
use super::{operator, workspace};

/// Gives the value of an environment variable.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// All that is configured. Holds no key: those are read when a model is resolved.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The operator's file, where there is one.
    pub file: Option<PathBuf>,
    /// The model of sessions that name none.
    pub model: Option<ModelRef>,
    /// The agent of sessions that name none; one of `agents`.
    pub agent: Option<String>,
    /// Built-in and configured providers by name.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// Built-in and configured models.
    pub catalogue: Catalogue,
    /// Built-in agents and the operator's.
    pub agents: Agents,
    /// What system prompts hold: the operator's rules, then the workspace's own, then those that it names.
    pub rules: Vec<RulesFile>,
}

/// A model that can be asked.
#[derive(Clone, Debug)]
pub struct ResolvedModel {
    /// The model.
    pub model: ModelRef,
    /// Where it is, with the key.
    pub endpoint: Endpoint,
    /// How its server wants to be told of the output limit.
    pub output_limit_field: OutputLimitField,
    /// What is known of it.
    pub facts: ModelFacts,
}

impl Settings {
    /// Reads the operator's configuration: the file `config_flag`, else the usual ones.
    ///
    /// # Errors
    /// A file that was named does not exist; a file, an agent, a rules file or the address in `ANTHROPIC_BASE_URL` or
    /// `OPENAI_BASE_URL` is wrong.
    ///
    /// ```
    /// use playhouse::config::Settings;
    /// let nothing = |_: &str| None;
    /// let settings = Settings::load(None, &nothing).unwrap();
    /// assert_eq!(settings.providers["openai"].base_url, "https://api.openai.com/v1");
    /// let error = settings.resolve_model(&"openai/gpt-5".parse().unwrap(), &nothing).unwrap_err();
    /// assert!(error.to_string().starts_with("no key for provider openai: OPENAI_API_KEY is not set"));
    /// ```
    pub fn load(config_flag: Option<&Path>, variables: Variables<'_>) -> Result<Self, ConfigError> {
        let mut settings = Self {
            file: None,
            model: None,
            agent: None,
            providers: provider::builtin(variables)?,
            catalogue: Catalogue::builtin(),
            agents: Agents::builtin(),
            rules: Vec::new(),
        };
        if let Some(location) = operator::locate(config_flag, variables) {
            operator::apply(&location, variables, &mut settings)?;
        }
        Ok(settings)
    }

    /// The same with what the workspace `root` chose in its `.playhouse/config.toml`, and with its rules. Reads files.
    ///
    /// # Errors
    /// The workspace sets what it may not, chooses what there is not, or its files are wrong or lead out of it.
    pub fn with_workspace(&self, root: &Path) -> Result<Self, ConfigError> {
        let mut settings = self.clone();
        workspace::apply(root, &mut settings)?;
        Ok(settings)
    }

    /// Where `model` is, with the key, which is read now.
    ///
    /// # Errors
    /// Provider or model are not known, or the key is missing.
    pub fn resolve_model(
        &self,
        model: &ModelRef,
        variables: Variables<'_>,
    ) -> Result<ResolvedModel, ConfigError> {
        let (provider, facts) = self.facts(model)?;
        let key = match &provider.key_variable {
            Some(variable) => Some(key(&model.provider, variable, variables)?),
            None => None,
        };
        Ok(ResolvedModel {
            model: model.clone(),
            endpoint: Endpoint {
                provider: model.provider.clone(),
                dialect: provider.dialect,
                base_url: provider.base_url.clone(),
                key,
                key_variable: provider.key_variable.clone(),
            },
            output_limit_field: provider.output_limit_field,
            facts: facts.clone(),
        })
    }

    /// The provider of a model and what is known of it, or what was probably meant.
    pub(super) fn facts(&self, model: &ModelRef) -> Result<(&ProviderSettings, &ModelFacts), ConfigError> {
        let Some(provider) = self.providers.get(&model.provider) else {
            let names = || self.providers.keys().map(String::as_str);
            return Err(ConfigError::UnknownProvider {
                provider: model.provider.escape_debug().to_string(),
                known: names().collect::<Vec<_>>().join(", "),
                meant: did_you_mean(&model.provider, names()),
            });
        };
        let facts = self.catalogue.get(model).ok_or_else(|| {
            let nearest = self.catalogue.nearest(model);
            let meant = did_you_mean(&model.to_string(), nearest.iter().map(String::as_str));
            ConfigError::UnknownModel {
                model: model.to_string().escape_debug().to_string(),
                advice: format!(
                    "; a model that is not built in needs `context` and `output` in [providers.{}.models.\"{}\"]{meant}",
                    model.provider.escape_debug(),
                    model.model.escape_debug()
                ),
            }
        })?;
        Ok((provider, facts))
    }

    /// `name`, where there is an agent of that name.
    pub(super) fn known_agent(&self, name: &str) -> Result<String, String> {
        if self.agents.get(name).is_some() {
            return Ok(name.to_owned());
        }
        let names: Vec<&str> = self.agents.iter().map(|agent| agent.name.as_str()).collect();
        let meant = did_you_mean(name, names.iter().copied());
        Err(format!(
            "`agent`: there is no agent \"{}\"; there are {}{meant}",
            name.escape_debug(),
            names.join(", ")
        ))
    }
}

/// The key in `variable`. White space around it is an accident of shells and files.
fn key(provider: &str, variable: &str, variables: Variables<'_>) -> Result<SecretString, ConfigError> {
    let missing = |reason| ConfigError::MissingKey {
        provider: provider.to_owned(),
        variable: variable.to_owned(),
        reason,
    };
    let value = variables(variable).ok_or_else(|| missing("is not set"))?;
    let value = value.trim();
    if value.is_empty() {
        return Err(missing("is empty"));
    }
    if !value.chars().all(|c| c.is_ascii_graphic()) {
        return Err(missing("holds characters that no key has"));
    }
    Ok(SecretString::from(value))
}
