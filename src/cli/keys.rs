//! `playhouse keys`: who may use the server.

use std::sync::Arc;

use clap::Subcommand;
use playhouse_protocol::Timestamp;
use playhouse_server::{Key, KeyError, Keys};
use playhouse_store::Store;
use serde_json::json;

use super::asker::visible;
use super::sessions::{ListFormat, json, time};
use super::{CommandResult, Common, Exit, Failure, print};

/// The subcommands of `playhouse keys`.
#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Make a key. It is shown once, and only its hash is kept
    Create {
        /// Whose sessions it opens
        #[arg(long, value_name = "NAME")]
        tenant: String,
        /// What it is called in lists
        #[arg(long, value_name = "NAME")]
        name: String,
        /// How to print it
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// List the keys that there are, without their secrets
    List {
        /// How to print them
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// Withdraw a key: it opens nothing any more
    Revoke {
        /// Its id, as `list` shows it, or the key itself
        id: String,
        /// How to print it
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Name(_) | KeyError::Missing(_) => Self::usage(error.to_string()),
            KeyError::Store(_) | KeyError::Random(_) => Self::failed(error.to_string()),
        }
    }
}

/// Needs no configuration and no engine.
pub(super) fn keys(common: &Common, command: KeysCommand) -> CommandResult {
    let store = Store::open(&common.data()?).map_err(|error| Failure::usage(error.to_string()))?;
    let keys = Keys::new(Arc::clone(&store.shelf));
    print(&match command {
        KeysCommand::Create { tenant, name, format } => {
            let (key, token) = keys.create(&tenant, &name, now())?;
            match format {
                ListFormat::Json => {
                    json(&json!({"id": key.id, "tenant": key.tenant, "name": key.name, "key": token}))? + "\n"
                }
                // Nothing else stands on standard output: it can be captured.
                ListFormat::Table => format!("{token}\n"),
            }
        }
        KeysCommand::List { format } => list(&keys.list()?, format)?,
        KeysCommand::Revoke { id, format } => {
            let key = keys.revoke(&id)?;
            match format {
                ListFormat::Json => json(&key)? + "\n",
                ListFormat::Table => {
                    let Key { id, tenant, name, .. } = &key;
                    visible(&format!("withdrew {id}: {name} of tenant {tenant}")) + "\n"
                }
            }
        }
    })?;
    Ok(Exit::Completed)
}

fn list(keys: &[Key], format: ListFormat) -> Result<String, Failure> {
    if format == ListFormat::Json {
        return keys.iter().map(|key| Ok(json(key)? + "\n")).collect();
    }
    let row = |id: &str, created: &str, tenant: &str, name: &str| {
        format!("{id:12}  {created:16}  {:16}  {}\n", visible(tenant), visible(name))
    };
    let mut text = row("ID", "CREATED", "TENANT", "NAME");
    text.extend(keys.iter().map(|key| row(&key.id, &time(key.created), &key.tenant, &key.name)));
    Ok(text)
}

fn now() -> Timestamp {
    let millis = jiff::Timestamp::now().as_millisecond();
    Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))
}
