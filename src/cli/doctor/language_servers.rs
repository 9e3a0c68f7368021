//! Which language servers there are for a directory.

use std::path::Path;

use playhouse_actors::LspServers;

use super::{Finding, Status};
use crate::config::Settings;

/// Looks for them; starts none.
pub(super) fn language_servers(settings: &Settings, root: &Path) -> Finding {
    let finding = |status, detail: String| Finding::new("languages", status, detail);
    if !settings.lsp.enabled {
        return finding(Status::Ok, "no language servers: `[lsp] enabled = false`".to_owned());
    }
    // Values of variables are of no interest here.
    let found = LspServers::found(&settings.lsp.entries(&|_| None), root);
    let missing: Vec<&str> = found.iter().filter(|one| !one.is_there).map(|one| one.name.as_str()).collect();
    if !missing.is_empty() {
        let detail = format!("language servers without a program: {}", missing.join(", "));
        return finding(Status::Wrong, detail).advice("correct `command` in `[lsp.NAME]`");
    }
    if found.is_empty() {
        return finding(Status::Missing, "no language server is found".to_owned())
            .advice("install one for your languages, or set `[lsp.NAME] command`; nothing is downloaded");
    }
    let shown = |one: &playhouse_actors::LspFound| {
        let from = if one.is_in_workspace { ", of the workspace" } else { "" };
        format!("{} ({}{from})", one.name, one.program.display())
    };
    finding(Status::Ok, found.iter().map(shown).collect::<Vec<_>>().join(", "))
}
