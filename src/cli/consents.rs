//! `playhouse consents`: what people allowed for always, and its withdrawal.

use clap::Subcommand;
use playhouse_protocol::consent::Grant;

use super::asker::visible;
use super::reach::open;
use super::sessions::{ListFormat, json, time};
use super::{CommandResult, Common, Exit, Failure, print};

/// The subcommands of `playhouse consents`.
#[derive(Debug, Subcommand)]
pub(super) enum ConsentsCommand {
    /// List what was allowed for always
    List {
        /// Only what holds for sessions of this tenant
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// How to print it
        #[arg(long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
    },
    /// Withdraw it: from then on it is asked for again
    Revoke {
        /// Its id, as `list` shows it
        id: String,
        /// Only if this tenant allowed it
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
    },
}

pub(super) async fn consents(common: &Common, command: ConsentsCommand) -> CommandResult {
    let held = open(common).await?;
    let result = match command {
        ConsentsCommand::List { tenant, format } => match held.reach().grants(tenant).await {
            Ok(grants) => list(&grants, format),
            Err(error) => Err(error.into()),
        },
        ConsentsCommand::Revoke { id, tenant } => match held.reach().revoke(tenant, id).await {
            Ok(grant) => print(&format!("withdrew {}\n", told(&grant))).map_err(Failure::from),
            Err(error) => Err(error.into()),
        },
    };
    held.close().await;
    result.map(|()| Exit::Completed)
}

fn list(grants: &[Grant], format: ListFormat) -> Result<(), Failure> {
    let mut text = String::new();
    if format == ListFormat::Table {
        text.push_str(&row(["ID", "GIVEN", "TENANT", "PERMISSION", "PATTERN", "DIRECTORY"]));
    }
    for grant in grants {
        text.push_str(&match format {
            ListFormat::Json => json(grant)? + "\n",
            ListFormat::Table => {
                let given = time(grant.given);
                let Grant { id, tenant, workspace, rule, .. } = grant;
                let shown = [id, &given, tenant, &rule.permission, &rule.pattern, workspace];
                let shown = shown.map(|text| visible(text));
                row(shown.each_ref().map(String::as_str))
            }
        });
    }
    Ok(print(&text)?)
}

fn row([id, given, tenant, permission, pattern, directory]: [&str; 6]) -> String {
    format!("{id:12}  {given:16}  {tenant:8}  {permission:18}  {pattern:28}  {directory}\n")
}

fn told(grant: &Grant) -> String {
    let Grant { id, tenant, workspace, rule, .. } = grant;
    let text = format!("{id}: {} \"{}\" in {workspace} for tenant {tenant}", rule.permission, rule.pattern);
    visible(&text)
}
