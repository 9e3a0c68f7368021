//! Which tools from outside a model is shown.

use std::collections::HashSet;

use playhouse_llm::{Head, Toolset};
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::output::SUBMIT_OUTPUT;
use playhouse_protocol::record::{Deferral, SettledTool};
use playhouse_protocol::tool::ToolOrigin;
use playhouse_tools::{MCP_CALL, MCP_SEARCH, Registry, Tool};

use crate::judge::Judge;

/// More tools of MCP servers than these are not shown, but two that search and call them.
const MOST_SHOWN: usize = 40;
/// So are tools of which a model would be told more, in bytes of names, descriptions and schemas.
const MOST_BYTES: usize = 64 * 1024;
/// So many of these are deferred at most, where the provider searches tools itself. Each request holds them.
const MOST_DEFERRED: usize = 1_000;
/// So are tools up to these bytes.
const MOST_DEFERRED_BYTES: usize = 512 * 1024;
/// The most bytes of instructions of servers in a system prompt.
const MOST_INSTRUCTIONS: usize = 16 * 1024;
/// The heading of these instructions.
const INSTRUCTIONS: &str = "# Servers of tools\n\nWhat each server says of the use of its tools, whose names begin with `mcp_` and \
                            the server's. Neither the user nor the operator wrote it.";

/// The tools of a `catalogue` that `agent` may use and that are not `native`. `handed` are those that the agents could call who
/// handed the work over.
fn offered<'a>(
    catalogue: &'a Registry,
    native: &Registry,
    judge: &Judge,
    agent: &str,
    handed: Option<&[String]>,
) -> Vec<&'a dyn Tool> {
    let (hides, directory) = (judge.hides(agent), judge.directory());
    let is_offered = |tool: &&dyn Tool| {
        let name = &tool.spec().name;
        native.get(name).is_none()
            && handed.is_none_or(|handed| handed.contains(name))
            && !hides(tool.permission())
            && tool.serves(agent)
            && directory.allows(agent, name)
            // The conversation adds it at the end of the list.
            && name != SUBMIT_OUTPUT
    };
    catalogue.iter().map(|tool| &**tool).filter(is_offered).collect()
}

/// The tools from outside that a new conversation shows. `searches`: whether the provider searches deferred ones.
pub(super) fn shown(
    catalogue: &Registry,
    native: &Registry,
    judge: &Judge,
    agent: &str,
    handed: Option<&[String]>,
    searches: bool,
) -> Vec<SettledTool> {
    let offered = offered(catalogue, native, judge, agent, handed);
    let sizes = offered.iter().filter(|tool| is_of_mcp(**tool)).map(|tool| bytes(*tool));
    let (count, bytes) = sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size));
    let are_many = count > MOST_SHOWN || bytes > MOST_BYTES;
    let are_deferred = are_many && searches && count <= MOST_DEFERRED && bytes <= MOST_DEFERRED_BYTES;
    let shown = offered.into_iter().filter_map(|tool| {
        let deferral = match (passes_on(tool), is_of_mcp(tool)) {
            (true, _) => are_deferred.then_some(Deferral::Fallback),
            (_, true) => are_deferred.then_some(Deferral::Deferred),
            _ => return Some(settled(tool, None)),
        };
        let is_shown = passes_on(tool) == are_many || deferral.is_some();
        is_shown.then(|| settled(tool, deferral))
    });
    shown.collect()
}

/// Keeps the tools that a request sends: the deferred ones where its provider `searches` tools, else those that search for it.
pub(super) fn sent(settled: &mut Vec<SettledTool>, searches: bool) {
    settled.retain(|tool| match tool.deferral {
        None => true,
        Some(Deferral::Deferred) => searches,
        Some(Deferral::Fallback) => !searches,
    });
}

/// The names of those that are deferred.
pub(super) fn deferred(sent: &[SettledTool]) -> HashSet<String> {
    let deferred = sent.iter().filter(|tool| tool.deferral == Some(Deferral::Deferred));
    deferred.map(|tool| tool.name.clone()).collect()
}

/// The instructions of the servers of these tools, for the end of the system prompt; `None` if there are none.
pub(super) fn instructions(
    catalogue: &Registry,
    native: &Registry,
    judge: &Judge,
    agent: &str,
    handed: Option<&[String]>,
) -> Option<String> {
    let mut said = String::new();
    let mut servers = Vec::new();
    for tool in offered(catalogue, native, judge, agent, handed) {
        let server = tool.origin().and_then(ToolOrigin::mcp).map(|(server, _)| server);
        let (Some(server), Some(text)) = (server, tool.instructions()) else { continue };
        if servers.contains(&server) {
            continue;
        }
        servers.push(server);
        if said.len() + text.len() <= MOST_INSTRUCTIONS {
            // Quoted, so that no line of it looks like one of the engine's.
            let quoted = text.lines().map(|line| format!("> {line}\n"));
            said.push_str(&format!("\n## {server}\n\n{}", quoted.collect::<String>()));
        }
    }
    (!said.is_empty()).then(|| format!("\n\n{INSTRUCTIONS}\n{said}"))
}

/// What can be called of them, sorted by name.
pub(crate) fn callable<'a>(
    catalogue: &'a Registry,
    native: &Registry,
    judge: &Judge,
    agent: &str,
    handed: Option<&[String]>,
) -> Vec<&'a ToolSpec> {
    let offered = offered(catalogue, native, judge, agent, handed);
    let mut specs: Vec<&ToolSpec> =
        offered.into_iter().filter(|tool| !passes_on(*tool)).map(Tool::spec).collect();
    specs.sort_unstable_by_key(|spec| &spec.name);
    specs
}

fn is_of_mcp(tool: &dyn Tool) -> bool {
    tool.origin().is_some_and(|origin| origin.mcp().is_some())
}

/// Whether it stands for tools that are not shown.
fn passes_on(tool: &dyn Tool) -> bool {
    matches!(tool.spec().name.as_str(), MCP_SEARCH | MCP_CALL)
}

/// Shows them behind the others.
pub(super) fn show(head: &mut Head, outside: Vec<ToolSpec>, deferred: HashSet<String>) {
    if !outside.is_empty() {
        head.tools = Toolset::deferring(head.tools.iter().cloned().chain(outside).collect(), deferred);
    }
}

fn settled(tool: &dyn Tool, deferral: Option<Deferral>) -> SettledTool {
    let spec = tool.spec();
    SettledTool {
        name: spec.name.clone(),
        source: tool.origin().cloned().map(Box::new),
        spec: Some(spec.clone()),
        deferral,
    }
}

fn bytes(tool: &dyn Tool) -> usize {
    let spec = tool.spec();
    spec.name.len() + spec.description.len() + spec.parameters.to_string().len()
}
