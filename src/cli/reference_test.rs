//! The reference pages tell of every command, option, tool, agent and exit code that there is.

use clap::CommandFactory as _;
use playhouse_prompts::Agents;
use playhouse_tools::Registry;

use super::Cli;

/// A page of `docs/reference`.
fn page(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference");
    fs_err::read_to_string(format!("{folder}/{name}.md")).unwrap()
}

/// The rows of its tables whose first cell begins with `first`.
fn rows<'a>(page: &'a str, first: &str) -> Vec<&'a str> {
    page.lines().filter(|line| line.starts_with(&format!("| {first}"))).collect()
}

#[test]
fn the_reference_tells_of_every_command_and_option() {
    let page = page("command-line");
    let mut commands = vec![Cli::command()];
    while let Some(command) = commands.pop() {
        let name = command.get_name();
        assert!(page.contains(name), "the page does not name the command {name}");
        let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
        for option in shown.filter_map(clap::Arg::get_long) {
            assert!(page.contains(&format!("--{option}")), "the page does not name {name} --{option}");
        }
        commands.extend(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
    }
}

#[test]
fn the_reference_tells_of_every_tool_with_its_parameters() {
    let page = page("tools");
    for tool in Registry::native().iter() {
        let spec = tool.spec();
        let rows = rows(&page, &format!("`{}` | ", spec.name));
        let [row] = rows.as_slice() else { panic!("{} has {} rows", spec.name, rows.len()) };
        for parameter in spec.parameters["properties"].as_object().unwrap().keys() {
            assert!(row.contains(&format!("`{parameter}`")), "{} lacks {parameter}: {row}", spec.name);
        }
    }
}

#[test]
fn the_reference_tells_of_every_agent_with_its_tools() {
    let page = page("agents");
    for agent in Agents::builtin().iter() {
        let rows = rows(&page, &format!("`{}` | ", agent.name));
        let [row] = rows.as_slice() else { panic!("{} has {} rows", agent.name, rows.len()) };
        for tool in Registry::native().iter() {
            let name = &tool.spec().name;
            let told = row.ends_with("| all |") || row.contains(&format!("`{name}`"));
            assert_eq!(told, agent.tools.allows(name), "{} and {name}: {row}", agent.name);
        }
    }
}

#[test]
fn the_reference_has_every_exit_code() {
    let page = page("exit-codes");
    for line in super::EXIT_CODES.lines().filter(|line| line.starts_with("  ")) {
        let code = line.split_whitespace().next().unwrap();
        assert_eq!(rows(&page, &format!("{code} |")).len(), 1, "{line}");
    }
}
