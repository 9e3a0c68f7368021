//! Which tools from outside a model is shown.

use playhouse_llm::Head;
use playhouse_protocol::chat::ToolSpec;
use playhouse_protocol::output::SUBMIT_OUTPUT;
use playhouse_protocol::record::SettledTool;
use playhouse_protocol::tool::ToolOrigin;
use playhouse_tools::{MCP_CALL, MCP_SEARCH, Registry, Tool};

use crate::judge::Judge;

/// More tools of MCP servers than these are not shown, but two that search and call them.
const MOST_SHOWN: usize = 40;
/// So are tools of which a model would be told more, in bytes of names, descriptions and schemas.
const MOST_BYTES: usize = 64 * 1024;
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

/// The tools from outside that a new conversation shows.
pub(super) fn shown(
    catalogue: &Registry,
    native: &Registry,
    judge: &Judge,
    agent: &str,
    handed: Option<&[String]>,
) -> Vec<SettledTool> {
    let offered = offered(catalogue, native, judge, agent, handed);
    let of_mcp: Vec<usize> =
        offered.iter().filter(|tool| is_of_mcp(**tool)).map(|tool| bytes(*tool)).collect();
    let are_many = of_mcp.len() > MOST_SHOWN || of_mcp.iter().sum::<usize>() > MOST_BYTES;
    let is_shown = |tool: &&&dyn Tool| match passes_on(**tool) {
        true => are_many,
        false => !(are_many && is_of_mcp(**tool)),
    };
    offered.iter().filter(is_shown).map(|tool| settled(*tool)).collect()
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
pub(super) fn show(head: &mut Head, outside: Vec<ToolSpec>) {
    if !outside.is_empty() {
        head.tools = head.tools.iter().cloned().chain(outside).collect();
    }
}

fn settled(tool: &dyn Tool) -> SettledTool {
    let spec = tool.spec();
    SettledTool {
        name: spec.name.clone(),
        source: tool.origin().cloned().map(Box::new),
        spec: Some(spec.clone()),
    }
}

fn bytes(tool: &dyn Tool) -> usize {
    let spec = tool.spec();
    spec.name.len() + spec.description.len() + spec.parameters.to_string().len()
}
