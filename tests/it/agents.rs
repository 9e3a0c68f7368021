//! Agents: they are listed, those of a workspace among them, and held to what they may.

use mock_llm::{Model, Script, call, calls, text};
use serde_json::{Value, json};

use crate::stage::{Dialect, Stage};

/// The text of what a model was told before the conversation.
fn system(request: &Value) -> String {
    request["messages"][0]["content"].to_string()
}

fn shown(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().into_iter().flatten();
    tools.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn agents_are_listed_with_those_of_the_workspace_and_what_is_wrong_there() {
    let stage = Stage::new(Model::new());
    stage
        .write(
            ".playhouse/agents/docs.md",
            "---\ndescription: writes the manual\ntools: [read, edit, raed]\n---\nWrite.",
        )
        .write(".playhouse/agents/plan.md", "---\ndescription: takes over\n---")
        .write(".playhouse/agents/dear.md", "---\ndescription: d\nmodel: openai/gpt-0\n---")
        .write(".playhouse/agents/loud.md", "---\ndescription: d\npermissions:\n  bahs: deny\n---");
    let listed = stage.playhouse(["agents"]).is(0);
    let listed = listed.shows([
        "docs (all)\n  writes the manual\n    from: .playhouse/agents/docs.md",
        "tools: read, edit, raed\n    not a tool here: raed",
        "explore (subagent)",
        "sisyphus (primary, the usual one)",
    ]);
    let listed = listed.says([
        "warning: .playhouse/agents/plan.md: there is an agent \"plan\" already, which is built in",
        "warning: .playhouse/agents/dear.md:3: `model`: ",
        "warning: .playhouse/agents/loud.md:4: `permission.bahs` names no tool",
    ]);
    assert!(!listed.stdout.contains("compaction"), "hidden ones are left out");
    let all = stage.playhouse(["agents", "--all", "--json"]).is(0).lines();
    let of = |name: &str| all.iter().find(|line| line["name"] == name && line["error"].is_null());
    assert_eq!(of("title").unwrap()["hidden"], true);
    assert_eq!(of("docs").unwrap()["origin"], "workspace");
    assert_eq!(of("plan").unwrap()["origin"], "builtin");
    assert_eq!(
        (&of("atlas").unwrap()["read_only"], &of("atlas").unwrap()["steps"]),
        (&json!(true), &json!(20))
    );
    assert_eq!(all.iter().filter(|line| line["error"].is_string()).count(), 3);
    let elsewhere = stage.playhouse(["agents", "-C", stage.root().to_str().unwrap()]).is(0);
    assert!(!elsewhere.stdout.contains("docs"), "{}", elsewhere.stdout);
}

#[test]
fn an_agent_of_the_workspace_is_used_and_a_broken_one_breaks_only_its_own_use() {
    let stage = Stage::new(Model::new().step(text("Written.")));
    stage
        .write(".playhouse/agents/docs.md", "---\ndescription: writes\ntools: [read, bash]\npermission:\n  bash: deny\n---\nYou are the scribe.")
        .write(".playhouse/agents/broken.md", "---\ndescription: d\nstep: 3\n---")
        .write(".playhouse/config.toml", "agent = \"docs\"");
    stage
        .run(["--agent", "broken", "Hello."])
        .is(2)
        .says([".playhouse/agents/broken.md:3: unknown key `step`"]);
    stage.run(["Hello."]).is(0);
    let request = &stage.requests()[0];
    assert!(system(request).contains("You are the scribe."));
    assert_eq!(shown(request), ["read"], "what its rules deny altogether is not shown");
}

#[test]
fn commands_of_an_agent_that_changes_nothing_can_write_nothing_in_the_workspace() {
    let commands = calls([
        ("bash", json!({"command": "cat old.txt; echo new > new.txt"})),
        ("bash", json!({"command": "echo changed > old.txt; rm -f old.txt; mkdir made"})),
        (
            "bash",
            json!({"command": "echo kept > $HOME/.profile; echo fine > /tmp/scratch && cat /tmp/scratch"}),
        ),
        ("write", json!({"filePath": "new.txt", "content": "x"})),
    ]);
    let stage = Stage::new(Model::new().step(commands).step(text("I looked.")));
    stage.write("old.txt", "as it was\n");
    let ended = stage.run(["--yes", "--agent", "atlas", "Look around."]).is(0);
    ended.says(["declined: ", "the agent atlas may not use the tool write"]);
    let results = stage.requests()[1]["messages"].to_string();
    for said in ["as it was", "Read-only file system", "fine"] {
        assert!(results.contains(said), "{said} is missing in {results}");
    }
    assert_eq!(fs_err::read_to_string(stage.workspace.join("old.txt")).unwrap(), "as it was\n");
    assert!(!stage.workspace.join("new.txt").exists() && !stage.workspace.join("made").exists());
    // Nothing that it leaves in its HOME is seen by the commands of others.
    let homes = fs_err::read_dir(stage.data.join("homes")).unwrap().flatten();
    let profiles: Vec<_> =
        homes.map(|home| home.path().join(".profile")).filter(|file| file.exists()).collect();
    assert!(profiles.iter().all(|file| file.to_string_lossy().contains("-looking")), "{profiles:?}");
}

#[test]
fn a_task_is_shown_with_who_takes_it_and_runs_below_the_session() {
    let input = json!({"description": "find it", "prompt": "Find the word.", "subagent_type": "finder"});
    let script = Script::new()
        .model("m", Model::new().step(call("task", input)).step(text("It is blue.")))
        .model("small", Model::new().step(text("The word is blue.")));
    let stage = Stage::speaking(Dialect::OpenaiChat, script);
    stage.write(
        ".playhouse/agents/finder.md",
        "---\ndescription: finds words\nmode: subagent\nmodel: local/small\n---",
    );
    stage.run(["What is the word?"]).is(0).says(["✓ task"]);
    let requests = stage.requests();
    let of = |request: &Value| {
        let tools = request["tools"].as_array().unwrap().clone();
        tools
            .into_iter()
            .find(|tool| tool["function"]["name"] == "task")
            .map(|tool| tool["function"]["description"].to_string())
    };
    let told = of(&requests[0]).unwrap();
    for agent in [
        "- atlas (changes nothing): ",
        "- explore (changes nothing): ",
        "- general: ",
        "- finder: finds words",
    ] {
        assert!(told.contains(agent), "{agent} is missing in {told}");
    }
    assert!(!told.contains("- title") && !told.contains("- sisyphus"), "{told}");
    assert_eq!(requests[1]["model"], "small");
    assert!(requests[2]["messages"].to_string().contains("The task is done.\\n\\nThe word is blue."));
    let sessions = stage.playhouse(["sessions", "list", "--format", "ndjson"]).is(0).lines();
    assert_eq!(sessions.len(), 1, "a sub-session is in no list unless it is asked for: {sessions:?}");
}
