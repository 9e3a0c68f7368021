//! What is wrong with a catalogue that was to be loaded.

use thiserror::Error;

/// What is wrong with a catalogue, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CatalogueError {
    /// It is not JSON.
    #[error("not JSON: {0}")]
    Json(String),
    /// Not a file in the form of `models.toml`.
    #[error("line {line}: {message}")]
    Toml {
        /// The line, from 1.
        line: usize,
        /// Description of the fault.
        message: String,
    },
    /// A value is not what it should be.
    #[error("{path}: {message}")]
    Value {
        /// Where it is: the names down to it, as in `openai.models."gpt-5.4".limit.context`.
        path: String,
        /// What is wrong with it.
        message: String,
    },
    /// A kept catalogue that this program did not write.
    #[error("not a catalogue that `playhouse models update` wrote: {0}")]
    Foreign(String),
    /// A kept catalogue of another version.
    #[error(
        "catalogue version {found}, this program reads version {known}: run `playhouse models update` again"
    )]
    Version {
        /// Its version.
        found: u64,
        /// The version that is known.
        known: u64,
    },
}
