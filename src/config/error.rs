//! What is wrong with a configuration.

use std::path::{Path, PathBuf};

use playhouse_prompts::PromptError;
use thiserror::Error;

/// What is wrong with a configuration, where, and what to do. Never holds the value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A line of a file is wrong.
    #[error("{}:{line}: {message}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// A file as a whole is wrong, or cannot be read.
    #[error("{}: {message}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A variable of the environment is wrong.
    #[error("environment variable {variable}: {message}")]
    Variable {
        /// The variable.
        variable: String,
        /// What is wrong with it.
        message: String,
    },
    /// An agent's file or a rules file is wrong.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// A model of a provider that does not exist.
    #[error("unknown provider \"{provider}\"; there are {known}{meant}")]
    UnknownProvider {
        /// The provider.
        provider: String,
        /// Those that exist, joined.
        known: String,
        /// What was probably meant, as a question.
        meant: String,
    },
    /// A model that is neither built in nor configured.
    #[error("unknown model \"{model}\"{advice}")]
    UnknownModel {
        /// The model.
        model: String,
        /// What was probably meant, or how to configure it.
        advice: String,
    },
    /// The key of a provider cannot be used.
    #[error(
        "no key for provider {provider}: {variable} {reason}; set it to the key (`export {variable}=…`), or name another \
         variable as `api_key_env` of [providers.{provider}]"
    )]
    MissingKey {
        /// The provider.
        provider: String,
        /// The variable that should hold the key.
        variable: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The value of a configured header cannot be used.
    #[error("no header {header} for provider {provider}: {variable} {reason}")]
    MissingHeader {
        /// The provider.
        provider: String,
        /// The header.
        header: String,
        /// The variable that should hold its value.
        variable: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The server that searches cannot be used as it is configured.
    #[error("`search` in [tools.web] cannot be used: {reason}")]
    Search {
        /// What is wrong with its address or a header.
        reason: String,
    },
}

impl ConfigError {
    pub(super) fn line(file: &Path, line: usize, message: impl Into<String>) -> Self {
        Self::Line { file: file.to_owned(), line, message: message.into() }
    }

    pub(super) fn file(file: &Path, message: impl Into<String>) -> Self {
        Self::File { file: file.to_owned(), message: message.into() }
    }
}
