//! Configuration: what an operator sets, and what a workspace may choose among that.
//!
//! - [`Settings`]: the result. [`Settings::load`] reads the operator's file and agents; [`Settings::with_workspace`]
//!   adds what a workspace chose and its rules; [`Settings::resolve_model`] says where a model is and what is known of it.
//! - [`KEYS`]: the one definition of every key, from which types are checked, names are suggested and the reference in
//!   `docs/reference/configuration.md` ([`playhouse_config_reference`]) is made.
//! - [`EnvironmentCredentials`]: the keys, from variables of the environment.
//! - [`ConfigError`]: what was wrong, in which file and line.
//!
//! The operator's file is the one given (`--config`), else the one that `PLAYHOUSE_CONFIG` names, else `config.toml` in
//! `$XDG_CONFIG_HOME/playhouse` or `~/.config/playhouse`, which may be absent. Agents lie beside it, in `agents/*.md`, and so does
//! a catalogue of models that was loaded, as [`CATALOGUE_FILE`].
//! A workspace's `.playhouse/config.toml` is **not trusted**: it may choose a model and an agent among those that there
//! are, name rules files of its own, and make permissions stricter; everything else is refused by name.
//!
//! Nothing here reads the process's environment: variables arrive as a function, so that two engines in one process,
//! and tests, can have different ones.

mod billing;
mod budgets;
mod builtin;
mod capture;
mod catalogue;
mod credentials;
mod document;
mod error;
mod fingerprint;
mod formatter;
mod keys;
mod lsp;
pub(crate) mod mcp;
mod metrics;
mod models;
mod operator;
mod permission_names;
mod permissions;
mod programs;
mod provider;
#[cfg(test)]
mod provider_tests;
mod reader;
#[cfg(test)]
mod reference_test;
mod server;
mod settings;
mod sinks;
mod snapshots;
#[cfg(test)]
mod tests;
mod upcoming;
mod walls;
mod web;
mod workspace;
mod written;

pub use billing::BillingSettings;
pub use budgets::BudgetSettings;
pub use catalogue::{CATALOGUE_FILE, LiveCatalogue, keep_catalogue, load_catalogue};
pub use credentials::{EnvironmentCredentials, KeyVariable, ProviderKey};
pub use error::ConfigError;
pub use keys::{KEYS, Key, KeyName, Kind, playhouse_config_reference};
pub use lsp::{LspServerSettings, LspSettings};
pub use mcp::McpSettings;
pub use metrics::MetricsSettings;
pub(crate) use permission_names::{check_agent, check_agents, check_names};
pub use provider::{HeaderSource, ProviderSettings};
pub use server::ServerSettings;
pub use settings::{ModelPreferences, ResolvedModel, Settings, Variables};
pub use sinks::SinkSettings;
pub(crate) use upcoming::NOTICE;
pub use web::{SearchKind, WebSettings};
pub use written::WrittenKey;
