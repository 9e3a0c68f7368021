//! The names of permissions: a rule about one that there is not would never match, and nobody would know.

use std::collections::BTreeSet;
use std::path::PathBuf;

use playhouse_policy::{DOOM_LOOP, EXTERNAL_DIRECTORY, Pattern};
use playhouse_prompts::{Agent, Agents};
use playhouse_protocol::nearest::did_you_mean;
use playhouse_tools::Registry;
use playhouse_tools::capture::EXAMPLES;
use playhouse_tools::host_tool::HOST_PERMISSION;

use super::document::shown;
use super::error::ConfigError;

/// Permissions that are not of one tool.
const OTHERS: [&str; 5] = [EXTERNAL_DIRECTORY, DOOM_LOOP, "lsp", "mcp", HOST_PERMISSION];

/// Where the name of a permission stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PermissionName {
    pub(super) name: String,
    pub(super) file: PathBuf,
    pub(super) line: usize,
}

/// Whether there are permissions of all these names.
///
/// # Errors
/// File and line of the first that there is not, with what was probably meant.
pub(crate) fn check_names(names: &[PermissionName], tools: &Registry) -> Result<(), ConfigError> {
    names.iter().try_for_each(|PermissionName { name, file, line }| {
        check(name, tools).map_err(|message| {
            ConfigError::line(file, *line, format!("`permissions.{}` {message}", shown(name)))
        })
    })
}

/// The same for the rules of agents.
///
/// # Errors
/// The agent's file, with what was probably meant.
pub(crate) fn check_agents(agents: &Agents, tools: &Registry) -> Result<(), ConfigError> {
    agents.iter().try_for_each(|agent| {
        let wrong = |(rule, message)| agents.wrong_rule(&agent.name, rule, message).into();
        check_agent(agent, tools).map_err(wrong)
    })
}

/// Which of an agent's rules is wrong, and why.
pub(crate) type WrongRule = (usize, String);

/// The same for the rules of one agent.
///
/// # Errors
/// Which of them is wrong, with what was probably meant.
pub(crate) fn check_agent(agent: &Agent, tools: &Registry) -> Result<(), WrongRule> {
    agent.permissions.iter().enumerate().try_for_each(|(index, rule)| {
        check(&rule.permission, tools)
            .map_err(|message| (index, format!("`permission.{}` {message}", shown(&rule.permission))))
    })
}

fn check(name: &str, tools: &Registry) -> Result<(), String> {
    let known: BTreeSet<&str> = tools.iter().map(|tool| tool.permission()).chain(OTHERS).collect();
    let there_are = || known.iter().copied().collect::<Vec<_>>().join(", ");
    // Those of a configuration are known where it is read.
    if known.contains(name) || EXAMPLES.contains(&name) {
        return Ok(());
    }
    if name.contains(['*', '?']) {
        let pattern = Pattern::new(name);
        return match known.iter().any(|known| pattern.matches(known)) {
            true => Ok(()),
            false => Err(format!("matches no permission: there are {}", there_are())),
        };
    }
    if let Some(tool) = tools.get(name) {
        return Err(format!("is covered by `{0}`: write `{0}` instead", tool.permission()));
    }
    let meant = did_you_mean(name, known.iter().copied());
    Err(format!("names no tool and no other permission: there are {}{meant}", there_are()))
}
