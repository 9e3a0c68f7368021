//! `playhouse prompt`: what it prints is what is sent.

use std::os::unix::fs::PermissionsExt as _;

use mock_llm::{Model, Script, call, text};
use serde_json::{Value, json};

use crate::serve::Serving;
use crate::stage::{Dialect, Stage, finish};

const SKILL: &str = "---\nname: pdf\ndescription: Fills in forms.\n---\nUse the form.";

/// A system prompt without the day.
fn undated(system: &str) -> String {
    system.lines().filter(|line| !line.starts_with("Date: ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_it_prints_is_what_is_sent() {
    let stage = Stage::new(Model::new().step(text("Done.")));
    stage.write("AGENTS.md", "Use tabs.").write(".agents/skills/pdf/SKILL.md", SKILL);
    let printed = stage.playhouse(["prompt", "--format", "json"]).is(0);
    let printed: Value = serde_json::from_str(&printed.stdout).unwrap();
    stage.run(["Do it"]).is(0);
    let request = &stage.requests()[0];
    let sent = request["messages"][0]["content"].as_str().unwrap();
    assert_eq!(undated(sent), undated(printed["system"].as_str().unwrap()));
    assert!(sent.contains("Use tabs.") && sent.contains("- pdf: Fills in forms."));
    let sent: Vec<Value> =
        request["tools"].as_array().unwrap().iter().map(|tool| tool["function"].clone()).collect();
    let fields = |tool: &Value| json!([tool["name"], tool["description"], tool["parameters"]]);
    let of = |tools: &[Value]| tools.iter().map(fields).collect::<Vec<_>>();
    assert_eq!(of(&sent), of(printed["tools"].as_array().unwrap()));
}

#[test]
fn its_parts_are_counted() {
    let stage = Stage::new(Model::new());
    let printed = stage.playhouse(["prompt", "--format", "json"]).is(0);
    let printed: Value = serde_json::from_str(&printed.stdout).unwrap();
    let counted = stage.playhouse(["prompt", "--count", "--format", "json"]).is(0);
    let counted: Value = serde_json::from_str(&counted.stdout).unwrap();
    let system = printed["system"].as_str().unwrap().len();
    assert_eq!(counted["system"], json!({"bytes": system, "tokens": system.div_ceil(4)}));
    let tools = counted["tools"].as_array().unwrap();
    let names = |tools: &Value| -> Vec<Value> {
        tools.as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect()
    };
    assert_eq!(names(&counted["tools"]), names(&printed["tools"]));
    let bytes = |block: &Value| block["bytes"].as_u64().unwrap();
    let total = bytes(&counted["system"]) + tools.iter().map(bytes).sum::<u64>();
    assert_eq!(bytes(&counted["total"]), total);
    let table = stage.playhouse(["prompt", "--count"]).is(0).stdout;
    let cells = |name: &str| {
        let line = table.lines().find(|line| line.split(' ').next() == Some(name)).expect(name);
        line.split_whitespace().skip(1).map(|cell| cell.parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(cells("total"), [total, total.div_ceil(4)]);
    assert_eq!(cells("read")[0], bytes(&tools[0]));
}

#[test]
fn it_needs_no_key_and_names_what_is_wrong() {
    let stage = Stage::new(Model::new());
    let claude = stage.playhouse(["prompt", "-m", "anthropic/claude-sonnet-5", "--agent", "atlas"]).is(0);
    let claude = claude.shows([
        "You are an explorer of code.",
        "Model: anthropic/claude-sonnet-5",
        "--- tool: read\n",
    ]);
    assert!(!claude.stdout.contains("--- tool: write"), "{}", claude.stdout);
    stage.write(".claude/skills/pdf/SKILL.md", "---\nname: PDF\ndescription: d\n---\n");
    let warned = stage.playhouse(["prompt"]).is(0);
    assert!(warned.stderr.contains("warning: left out: "), "{}", warned.stderr);
    assert!(
        warned.stderr.contains(".claude/skills/pdf/SKILL.md:2: \"PDF\" is not a name"),
        "{}",
        warned.stderr
    );
    let wrong = stage.playhouse(["prompt", "--agent", "atals"]).is(2);
    assert!(wrong.stderr.contains("did you mean"), "{}", wrong.stderr);
    stage.playhouse(["prompt", "-m", "openai/gpt-0"]).is(2);
}

#[test]
fn rules_of_the_operator_that_cannot_be_used_are_left_out() {
    let stage = Stage::new(Model::new().step(text("Done.")));
    let file = stage.root().join("AGENTS.md");
    fs_err::write(&file, b"Use tabs.\n\xff\n").unwrap();
    let warning = format!("{}:2: cannot be used as a rules file: this line is not UTF-8", file.display());
    stage.playhouse(["prompt"]).is(0).says([format!("warning: left out: {warning}").as_str()]);
    let mut run = stage.command(["run", "Do it"]);
    run.env("PLAYHOUSE_LOG", "warn");
    finish(run).is(0).says(["left out of a system prompt", &warning]);
    assert!(!stage.requests()[0].to_string().contains("Use tabs."));
    let serving = Serving::start(&stage, ["--port", "0"]);
    assert_eq!(serving.ask("GET", "/v1/agents", &[], "").0, 200);
}

#[test]
fn rules_of_a_subdirectory_come_with_the_first_file_that_is_read_there() {
    let read = |path: &str| call("read", json!({"filePath": path}));
    let stage =
        Stage::new(Model::new().step(read("docs/deep/a.md")).step(read("docs/b.md")).step(text("Done.")));
    stage.write("docs/AGENTS.md", "Write plainly.").write("docs/deep/a.md", "a").write("docs/b.md", "b");
    stage.run(["Look"]).is(0);
    let requests = stage.requests();
    let last = requests.last().unwrap()["messages"].to_string();
    assert_eq!(last.matches("Write plainly.").count(), 1, "{last}");
    assert!(last.contains("Follow them for everything below docs/"), "{last}");
    assert!(!requests[0].to_string().contains("Write plainly."));
}

#[test]
fn rules_that_a_workspace_names_come_once() {
    let read = call("read", json!({"filePath": "docs/b.md"}));
    let stage = Stage::new(Model::new().step(read).step(text("Done.")));
    stage.write("docs/AGENTS.md", "Write plainly.").write("docs/b.md", "b");
    stage.write(".playhouse/config.toml", "rules = [\"docs/AGENTS.md\"]");
    stage.run(["Look"]).is(0);
    let last = stage.requests().last().unwrap()["messages"].to_string();
    assert_eq!(last.matches("Write plainly.").count(), 1, "{last}");
}

#[test]
fn a_skill_is_loaded_when_the_model_wants_it() {
    let load = call("skill", json!({"name": "pdf"}));
    let stage = Stage::new(Model::new().step(load).step(text("Done.")));
    stage.write(".agents/skills/pdf/SKILL.md", SKILL);
    stage.run(["Fill it in"]).is(0);
    let last = stage.requests().last().unwrap()["messages"].to_string();
    assert!(last.contains("<skill name=\\\"pdf\\\">\\nUse the form."), "{last}");
}

#[test]
fn what_a_skill_of_the_operator_brings_runs_in_the_session_that_loaded_it() {
    let load = call("skill", json!({"name": "release"}));
    let mut stage = Stage::new(Model::new().step(load.clone()).step(load).step(text("Loaded.")));
    let skill = stage.root().join("skills/release");
    fs_err::create_dir_all(skill.join("scripts")).unwrap();
    fs_err::write(skill.join("SKILL.md"), "---\nname: release\ndescription: Makes a release.\n---\nRun it.")
        .unwrap();
    fs_err::write(skill.join("scripts/run.sh"), "#!/bin/sh\necho \"made $1\"\n").unwrap();
    fs_err::set_permissions(skill.join("scripts/run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    stage.configure("[permissions]\nbash = \"allow\"");
    fs_err::write(stage.root().join("key"), "secret").unwrap();
    std::os::unix::fs::symlink("../../key", skill.join("out")).unwrap();
    let mut run = stage.command(["run", "--sandbox", "required", "Load it"]);
    run.env("PLAYHOUSE_LOG", "warn");
    let warned = finish(run).is(0).stderr;
    assert_eq!(warned.matches("what a skill brings is not all copied").count(), 1, "{warned}");
    assert!(warned.contains("out: it leads out of the skill's folder"), "{warned}");
    let told = stage.requests().last().unwrap()["messages"].to_string();
    let (_, folder) = told.split_once("Its folder is ").unwrap();
    let folder = folder.split_once(", a copy").unwrap().0.to_owned();
    assert!(folder.starts_with(stage.data.to_str().unwrap()), "{folder}");

    let bash = |command: String| call("bash", json!({"command": command}));
    let model = Model::new()
        .step(text("Loaded."))
        .next_turn()
        .step(bash(format!("{folder}/scripts/run.sh one")))
        .step(bash(format!("sh {folder}/scripts/run.sh two")))
        .step(bash(format!("cd {folder} && scripts/run.sh three")))
        .step(call("bash", json!({"command": "bash scripts/run.sh four", "workdir": folder})))
        .step(bash(format!("echo '#' >> {folder}/scripts/run.sh")))
        .step(text("Done."));
    stage.goes_on_with(model);
    stage.run(["--sandbox", "required", "-c", "Run it"]).is(0);
    let last = stage.requests().last().unwrap()["messages"].clone();
    let results: Vec<&str> = last
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap())
        .take(5)
        .collect();
    assert!(results[0].contains("which can only be read"), "{results:?}");
    assert_eq!(results[1..], ["made four\n", "made three\n", "made two\n", "made one\n"]);

    // A fork has what its conversation names.
    let turn = Model::new().step(text("Loaded.")).next_turn().step(text("Done.")).next_turn();
    stage.goes_on_with(turn.step(bash(format!("sh {folder}/scripts/run.sh five"))).step(text("Done.")));
    stage.run(["--sandbox", "required", "-c", "--fork", "Once more"]).is(0);
    let last = stage.requests().last().unwrap()["messages"].clone();
    assert_eq!(last.as_array().unwrap().last().unwrap()["content"], "made five\n", "{last}");
}

#[test]
fn whoever_may_not_load_skills_is_told_of_none() {
    let task = json!({"description": "look", "prompt": "Look it up.", "subagent_type": "worker"});
    let script = Script::new()
        .model("m", Model::new().step(call("task", task)).step(text("So.")))
        .model("worker", Model::new().step(text("It is blue.")));
    let stage = Stage::speaking(Dialect::OpenaiChat, script);
    stage.write(".agents/skills/pdf/SKILL.md", SKILL);
    // It hands on no more than it has, and that is no way to load skills.
    stage.write(".playhouse/agents/lead.md", "---\ndescription: leads\ntools: [read, task]\n---\nLead.");
    stage.write(".playhouse/agents/worker.md", "---\ndescription: works\nmodel: local/worker\n---\nWork.");
    // A rule that denies it is as good as a list without it.
    stage.write(
        ".playhouse/agents/denied.md",
        "---\ndescription: leads\npermission: {skill: deny}\n---\nLead.",
    );
    for lead in ["lead", "denied"] {
        stage.run(["--agent", lead, "What colour is it?"]).is(0);
        let mut requests = stage.requests();
        let requests = requests.split_off(requests.len() - 3);
        let systems: Vec<&str> =
            requests.iter().map(|request| request["messages"][0]["content"].as_str().unwrap()).collect();
        assert!(systems[0].starts_with("Lead.") && systems[1].starts_with("Work."), "{systems:?}");
        assert!(systems.iter().all(|system| !system.contains("<skills>")), "{lead}: {}", systems[1]);
        let told = requests.iter().map(|request| request["tools"].to_string()).collect::<String>();
        assert!(!told.contains("\"skill\"") && told.contains("\"read\""), "{lead}: {told}");
    }
}
