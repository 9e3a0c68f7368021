//! The README tells of every command, option, tool and agent that there is.

use clap::CommandFactory as _;
use playhouse_prompts::Agents;
use playhouse_tools::Registry;

use super::Cli;

fn readme() -> String {
    fs_err::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap()
}

/// The rows of its tables whose first cell begins with `first`.
fn rows<'a>(readme: &'a str, first: &str) -> Vec<&'a str> {
    readme.lines().filter(|line| line.starts_with(&format!("| {first}"))).collect()
}

#[test]
fn the_readme_tells_of_every_command_and_option() {
    let readme = readme();
    let mut commands = vec![Cli::command()];
    while let Some(command) = commands.pop() {
        let name = command.get_name();
        assert!(readme.contains(name), "the README does not name the command {name}");
        let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
        for option in shown.filter_map(clap::Arg::get_long) {
            assert!(readme.contains(&format!("--{option}")), "the README does not name {name} --{option}");
        }
        commands.extend(command.get_subcommands().cloned());
    }
}

#[test]
fn the_readme_tells_of_every_tool_with_its_parameters() {
    let readme = readme();
    for tool in Registry::native().iter() {
        let spec = tool.spec();
        let rows = rows(&readme, &format!("`{}` | ", spec.name));
        let [row] = rows.as_slice() else { panic!("{} has {} rows", spec.name, rows.len()) };
        for parameter in spec.parameters["properties"].as_object().unwrap().keys() {
            assert!(row.contains(&format!("`{parameter}`")), "{} lacks {parameter}: {row}", spec.name);
        }
    }
}

#[test]
fn the_readme_tells_of_every_agent_with_its_tools() {
    let readme = readme();
    for agent in Agents::builtin().iter() {
        let rows = rows(&readme, &format!("`{}` | ", agent.name));
        let [row] = rows.as_slice() else { panic!("{} has {} rows", agent.name, rows.len()) };
        for tool in Registry::native().iter() {
            let name = &tool.spec().name;
            let told = row.ends_with("| all |") || row.contains(&format!("`{name}`"));
            assert_eq!(told, agent.tools.allows(name), "{} and {name}: {row}", agent.name);
        }
    }
}

#[test]
fn the_readme_has_every_exit_code() {
    let readme = readme();
    for line in super::EXIT_CODES.lines().filter(|line| line.starts_with("  ")) {
        let code = line.split_whitespace().next().unwrap();
        assert_eq!(rows(&readme, &format!("{code} |")).len(), 1, "{line}");
    }
}
