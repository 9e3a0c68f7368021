//! `playhouse keys`: who may use the server.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use playhouse_protocol::operator::{KeyRequest, OperatorReply};
use playhouse_server::{Key, KeyError};
use serde_json::json;

use super::asker::visible;
use super::reach::ask_key;
use super::sessions::{ListFormat, json, time};
use super::{CommandResult, Common, Exit, Failure, print};
use crate::clock::now;

/// The subcommands of `playhouse keys`.
#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Make a key. It is shown once, and only its hash is kept
    Create {
        /// Whose sessions it opens: any name but `local`, which is the operator's own
        #[arg(long, value_name = "NAME")]
        tenant: String,
        /// What it is called in lists
        #[arg(long, value_name = "NAME")]
        name: String,
        /// A directory below which the sessions lie that it makes and uses; may be given more than once [default: those of
        /// the server]
        #[arg(long = "root", value_name = "DIR")]
        roots: Vec<PathBuf>,
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
            KeyError::Name(_) | KeyError::Root(_) | KeyError::Missing(_) => Self::usage(error.to_string()),
            KeyError::Store(_) | KeyError::Random(_) => Self::failed(error.to_string()),
        }
    }
}

pub(super) async fn keys(common: &Common, command: KeysCommand) -> CommandResult {
    let (request, format) = match command {
        KeysCommand::Create { tenant, name, roots, format } => {
            let roots = roots.iter().map(|root| absolute(root)).collect::<Result<_, _>>()?;
            (KeyRequest::Create { tenant, name, roots, created: now() }, format)
        }
        KeysCommand::List { format } => (KeyRequest::List, format),
        KeysCommand::Revoke { id, format } => (KeyRequest::Revoke(id), format),
    };
    print(&match (ask_key(common, request).await?, format) {
        (OperatorReply::KeyMade { key, token }, ListFormat::Json) => {
            let mut made = json!({"id": key.id, "tenant": key.tenant, "name": key.name, "key": token});
            if !key.roots.is_empty() {
                made["roots"] = json!(key.roots);
            }
            json(&made)? + "\n"
        }
        // Nothing else stands on standard output: it can be captured.
        (OperatorReply::KeyMade { token, .. }, ListFormat::Table) => format!("{token}\n"),
        (OperatorReply::Keys(keys), format) => list(&keys, format)?,
        (OperatorReply::KeyRevoked(key), ListFormat::Json) => json(&key)? + "\n",
        (OperatorReply::KeyRevoked(Key { id, tenant, name, .. }), ListFormat::Table) => {
            visible(&format!("withdrew {id}: {name} of tenant {tenant}")) + "\n"
        }
        _ => return Err(Failure::failed("the engine answered something else than was asked about keys")),
    })?;
    Ok(Exit::Completed)
}

fn list(keys: &[Key], format: ListFormat) -> Result<String, Failure> {
    if format == ListFormat::Json {
        return keys.iter().map(|key| Ok(json(key)? + "\n")).collect();
    }
    let row = |id: &str, created: &str, tenant: &str, name: &str, roots: &str| {
        format!("{id:12}  {created:16}  {:16}  {:16}  {}\n", visible(tenant), visible(name), visible(roots))
    };
    let mut text = row("ID", "CREATED", "TENANT", "NAME", "ROOTS");
    text.extend(keys.iter().map(|key| {
        let roots = if key.roots.is_empty() { "the server's".to_owned() } else { key.roots.join(", ") };
        row(&key.id, &time(key.created), &key.tenant, &key.name, &roots)
    }));
    Ok(text)
}

/// A root as it is kept: from the root of the file system on.
fn absolute(root: &Path) -> Result<String, Failure> {
    let refused = |why: String| Failure::usage(format!("the root {} cannot be one: {why}", root.display()));
    let absolute = std::path::absolute(root).map_err(|error| refused(error.to_string()))?;
    absolute.into_os_string().into_string().map_err(|_| refused("it is not UTF-8".to_owned()))
}
