//! `playhouse run --format tags`.

use mock_llm::{Model, calls, text};
use serde_json::json;

use crate::stage::{Stage, in_both};

/// The value of an attribute.
fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
    let (_, rest) = tag.split_once(&format!(" {name}=\"")).unwrap_or_else(|| panic!("{name} in {tag}"));
    rest.split('"').next().unwrap()
}

#[test]
fn calls_are_tags_between_the_text_of_the_model() {
    in_both(|| {
        let stage = Stage::new(
            Model::new()
                .step(
                    text("First <b>a look</b> & more.")
                        .call("bash", json!({"command": "printf '<a>&\\033[1m\\n'"})),
                )
                .step(calls([
                    ("read", json!({"filePath": "missing.txt"})),
                    ("write", json!({"filePath": "/outside.txt", "content": "x"})),
                ]))
                .step(text("That is all.")),
        );
        let ended = stage.run(["--yes", "--format", "tags", "Look."]).is(0);
        let lines: Vec<&str> = ended.stdout.lines().collect();
        assert_eq!(lines[0], "First <b>a look</b> & more.", "the model's text is left as it is");
        assert_eq!(*lines.last().unwrap(), "That is all.");

        let id = attribute(lines[1], "toolid");
        assert_eq!(
            lines[1],
            format!(
                "<opencode-tool name=\"bash\" status=\"running\" title=\"printf '&lt;a&gt;&amp;\\033[1m\\n'\" \
             toolid=\"{id}\"></opencode-tool>"
            )
        );
        let end = ended.stdout.split(lines[1]).nth(1).unwrap();
        let (bash, rest) = end.split_once("</opencode-tool>\n").unwrap();
        assert!(bash.trim_start().starts_with("<opencode-tool name=\"bash\" status=\"completed\""), "{bash}");
        assert!(bash.contains(&format!("toolid=\"{id}\">&lt;a&gt;&amp;")), "{bash}");
        assert!(!ended.stdout.contains('\x1b'), "what terminals and XML cannot take is replaced");

        // Two calls of one step: one that fails, one that may not run. Each has its own id, and ends.
        let tags: Vec<&str> = rest.lines().filter(|line| line.starts_with("<opencode-tool ")).collect();
        let of = |tool: &str| -> Vec<&str> {
            tags.iter()
                .filter(|tag| attribute(tag, "name") == tool)
                .map(|tag| attribute(tag, "status"))
                .collect()
        };
        assert_eq!(of("read"), ["running", "error"]);
        assert_eq!(of("write"), ["error"]);
        let read: Vec<&str> = tags.iter().map(|tag| attribute(tag, "toolid")).collect();
        assert!(read.iter().all(|other| *other != id), "{read:?}");
        assert_eq!(
            ended.stdout.matches("<opencode-tool ").count(),
            ended.stdout.matches("</opencode-tool>").count()
        );
        ended.says(["3 steps, ", "\ncompleted\n"]);
    });
}

#[test]
fn a_call_has_the_same_title_when_it_begins_and_when_it_ends() {
    let input = json!({"command": "true", "description": "Do nothing"});
    let stage = Stage::new(Model::new().step(mock_llm::call("bash", input)).step(text("Done.")));
    let ended = stage.run(["--yes", "--format", "tags", "Go."]).is(0);
    let tags: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("<opencode-tool ")).collect();
    let titles: Vec<&str> = tags.iter().map(|tag| attribute(tag, "title")).collect();
    assert_eq!(titles, ["Do nothing", "Do nothing"]);
}

#[test]
fn an_aborted_turn_closes_what_it_opened() {
    in_both(|| {
        use rustix::process::{Pid, Signal, kill_process};
        let stage = Stage::new(
            Model::new().step(mock_llm::call("bash", json!({"command": "echo $$ > shell.pid; sleep 600"}))),
        );
        let child =
            crate::interrupt::start(&stage, ["--yes", "--sandbox", "off", "--format", "tags", "Wait."]);
        crate::interrupt::process(&stage, "shell.pid");
        kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
        let ended = crate::stage::Ended::from(child.wait_with_output().unwrap()).is(3);
        let tags: Vec<&str> =
            ended.stdout.lines().filter(|line| line.starts_with("<opencode-tool ")).collect();
        let statuses: Vec<&str> = tags.iter().map(|tag| attribute(tag, "status")).collect();
        assert_eq!(statuses, ["running", "error"], "{}", ended.stdout);
        assert!(ended.stdout.trim_end().ends_with("</opencode-tool>"));
    });
}
