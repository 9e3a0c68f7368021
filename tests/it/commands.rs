//! Command templates on the command line, and paths that prompts name.

use mock_llm::{Model, Script, call, text};
use rustix::fs::{FileType, Mode};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::serve::{Serving, key};
use crate::stage::{Dialect, Stage, in_both};

/// The text of the last message of the last request.
fn asked(stage: &Stage) -> String {
    let request = stage.requests().pop().unwrap();
    let content = &request["messages"].as_array().unwrap().last().unwrap()["content"];
    match content {
        Value::String(text) => text.clone(),
        blocks => {
            let texts = blocks.as_array().unwrap().iter().filter_map(|block| block["text"].as_str());
            texts.collect::<Vec<_>>().join("\n---\n")
        }
    }
}

/// Writes a command of the operator.
fn operator(stage: &Stage, name: &str, content: &str) {
    let folder = stage.config.with_file_name("commands");
    fs_err::create_dir_all(&folder).unwrap();
    fs_err::write(folder.join(name), content).unwrap();
}

const FIX: &str =
    "---\ndescription: Fixes an issue\n---\nFix $1: $2\n\n!`printf '%s|' $ARGUMENTS`\n\nRead @notes.md.\n";

#[test]
fn commands_are_listed_with_what_is_wrong() {
    let stage = Stage::new(Model::new());
    operator(&stage, "review.md", "---\nagent: plan\nsubtask: true\n---\nReview $ARGUMENTS.");
    stage
        .write(".playhouse/commands/fix.md", FIX)
        .write(".playhouse/commands/review.md", "Mine.")
        .write(".playhouse/commands/bad.md", "---\nmodel: none\n---\nx");
    let listed = stage.playhouse(["commands"]).is(0);
    listed
        .shows([
            "/fix $1 $2 $ARGUMENTS\n  Fixes an issue\n    from: the workspace\n",
            "/review $ARGUMENTS\n  Review $ARGUMENTS.\n    from: the operator, agent: plan, a subtask\n",
        ])
        .says([
            "warning: .playhouse/commands/bad.md:2: `model`: ",
            "warning: .playhouse/commands/review.md: the operator has a command \"review\" already",
        ]);
    let lines = stage.playhouse(["commands", "--json"]).is(0).lines();
    assert_eq!((&lines[0]["name"], &lines[0]["owner"]), (&json!("fix"), &json!("workspace")));
    assert_eq!(lines.iter().filter(|line| line["error"].is_string()).count(), 2);
    for option in ["-C", "--directory", "--dir"] {
        let elsewhere = stage.playhouse(["commands", option, stage.root().to_str().unwrap()]).is(0);
        assert!(!elsewhere.stdout.contains("/fix"), "{}", elsewhere.stdout);
    }
}

/// A server in the language of shells, with one prompt.
const SERVER: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
while read -r line; do
    id=${line#*\"id\":}
    id=${id%%[,\}]*}
    case "$line" in
    *'"initialize"'*) reply "$id" '{"protocolVersion":"2025-11-25","capabilities":{"prompts":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *'"prompts/list"'*) reply "$id" '{"prompts":[{"name":"greet","description":"Greets","arguments":[{"name":"whom"}]}]}' ;;
    esac
done
"#;

#[test]
fn prompts_of_servers_are_listed_behind_the_commands() {
    in_both(|| {
        let stage = Stage::new(Model::new());
        stage.configure(&format!("[mcp.x]\ncommand = \"/bin/sh\"\nargs = [\"-c\", '''{SERVER}''']\n"));
        stage.write(".playhouse/commands/fix.md", FIX);
        // From then on the list is known.
        stage.playhouse(["mcp", "test", "x"]).is(0);
        let listed = stage.playhouse(["commands"]).is(0);
        listed.shows(["/fix $1 $2 $ARGUMENTS\n", "/x:greet $1\n  Greets\n    from: a server of tools\n"]);
        let lines = stage.playhouse(["commands", "--json"]).is(0).lines();
        assert_eq!((&lines[1]["name"], &lines[1]["owner"]), (&json!("x:greet"), &json!("server")));
    });
}

#[test]
fn a_command_runs_by_its_name_once_somebody_agreed_to_its_shell_blocks() {
    in_both(|| {
        let stage = Stage::new(Model::new().step(text("Fixed.")).cycle());
        stage.write(".playhouse/commands/fix.md", FIX).write("notes.md", "careful\n").write("b.md", "no\n");
        // Nobody is there to agree, and a template is no consent.
        let refused = stage.run(["/fix 12 x"]).is(2);
        refused.says(["/fix was not run: its shell block `printf '%s|' 12 x` did not end well"]);
        assert!(stage.asked().is_empty());
        stage.run(["--yes", "/fix 12 'the $1 @b.md' is slow; `rm`"]).is(0).shows(["Fixed."]);
        let told = asked(&stage);
        let expected =
            "Fix 12: 'the $1 @b.md' is slow; `rm`\n\n12|the $1 @b.md|is|slow;|`rm`|\n\nRead @notes.md.";
        assert!(told.starts_with(expected), "{told}");
        assert!(told.contains("<file name=\"notes.md\">\n1\tcareful\n</file>"), "{told}");
        // What was typed may name a path; what a command printed does not.
        assert_eq!(told.matches("<file name=\"b.md\">").count(), 1, "{told}");
        assert_eq!(stage.asked().len(), 1, "the shell block asked no model");
        // It goes on in the same session, and is shown.
        stage.run(["-c", "--yes", "/fix 1 y"]).is(0).says(["✓ bash printf"]);
    });
}

#[test]
fn what_is_no_command_is_a_prompt_and_a_bad_one_is_named() {
    let stage = Stage::new(Model::new().step(text("Yes.")).cycle());
    stage.write(".playhouse/commands/bad.md", "a\n!`open\n");
    stage.run(["/bad now"]).is(2).says([".playhouse/commands/bad.md:2: this shell block has no closing"]);
    assert!(!stage.data.exists(), "nothing was begun");
    for (head, says) in [
        ("agent: biuld", "c.md:3: unknown agent \"biuld\"; there are "),
        ("model: local/n", "c.md:3: unknown model \"local/n\""),
        ("model: nobody/m", "c.md:3: unknown provider \"nobody\""),
    ] {
        stage.write(".playhouse/commands/c.md", format!("---\ndescription: d\n{head}\n---\nText.\n"));
        stage.run(["/c"]).is(2).says([says]);
    }
    stage.run(["/tmp is full"]).is(0);
    assert_eq!(asked(&stage), "/tmp is full");
}

#[test]
fn where_the_operator_keeps_a_bad_command_is_told_to_the_operator_alone() {
    let stage = Stage::new(Model::new());
    operator(&stage, "open.md", "a\n!`open\n");
    operator(&stage, "quoted.md", "!`echo '$1'`\n");
    operator(&stage, "agent.md", "---\nagent: biuld\n---\nText.\n");
    operator(&stage, "model.md", "---\ndescription: d\nmodel: local/n\n---\nText.\n");
    let folder = stage.config.with_file_name("commands");
    fs_err::write(folder.join("bytes.md"), b"a\n\xff\n").unwrap();
    let faults = [
        ("open", 2, "this shell block has no closing"),
        ("quoted", 1, "`$1` stands in quotes in this shell block"),
        ("agent", 2, "unknown agent \"biuld\"; there are "),
        ("model", 3, "unknown model \"local/n\""),
        ("bytes", 2, "this line is not UTF-8"),
    ];
    for (name, line, message) in faults {
        let says = format!("{}/{name}.md:{line}: {message}", folder.display());
        stage.run([&format!("/{name} x")]).is(2).says([says.as_str()]);
    }
    let listed = stage.playhouse(["commands"]).is(0);
    listed.says([format!("warning: {}/open.md:2: ", folder.display()).as_str()]);

    let mut headers = Vec::new();
    for has_key in [false, true] {
        if has_key {
            headers.push(format!("authorization: Bearer {}", key(&stage, "ada")));
        }
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let serving = Serving::start(&stage, ["--port", "0"]);
        let directory = json!({"workspace": stage.workspace}).to_string();
        let (_, session) = serving.ask("POST", "/v1/sessions", &headers, &directory);
        let session: Value = serde_json::from_str(&session).unwrap();
        let session = session["id"].as_str().unwrap();
        let mut answers = String::new();
        for (name, line, message) in faults {
            let body = json!({"name": name, "arguments": "x"}).to_string();
            let (status, native) =
                serving.ask("POST", &format!("/v1/sessions/{session}/command"), &headers, &body);
            let said = json!(format!("/{name}: line {line}: {message}")).to_string();
            assert!(status == 400 && native.contains(said.trim_matches('"')), "{status} {native}");
            let body = json!({"command": name, "arguments": "x"}).to_string();
            let (status, wire) = serving.ask("POST", &format!("/session/{session}/command"), &headers, &body);
            assert!(status == 400 && wire.contains(said.trim_matches('"')), "{status} {wire}");
            answers.extend([native, wire]);
        }
        let workspace = stage.workspace.display();
        for path in [
            format!("/v1/commands?workspace={workspace}"),
            format!("/command?directory={workspace}"),
            format!("/v1/agents?workspace={workspace}"),
            format!("/agent?directory={workspace}"),
            "/config".to_owned(),
        ] {
            let (status, answer) = serving.ask("GET", &path, &headers, "");
            assert_eq!(status, 200, "{path}: {answer}");
            answers.push_str(&answer);
        }
        assert!(answers.contains("/open: line 2: this shell block"), "{answers}");
        assert!(!answers.contains(folder.to_str().unwrap()) && !answers.contains("config.toml"), "{answers}");
        serving.signal(Signal::TERM);
        serving.ended().is(0).says([format!("{}/agent.md:2: unknown agent", folder.display()).as_str()]);
    }
}

#[test]
fn a_path_in_a_prompt_is_attached() {
    in_both(|| {
        let stage = Stage::new(Model::new().step(text("Yes.")).cycle());
        stage.write("src/main.rs", "fn main() {}\n");
        stage.run(["what does @src/main.rs do, ada@example.org?"]).is(0);
        let told = asked(&stage);
        assert!(told.contains("<file name=\"src/main.rs\">\n1\tfn main() {}\n</file>"), "{told}");
        stage.playhouse(["sessions", "show", &stage.session()]).is(0).shows(["src/main.rs"]);
    });
}

#[test]
fn a_subtask_is_handed_over_to_its_agent() {
    in_both(|| {
        let task = json!({"description": "Review", "prompt": "Review a.rs.", "subagent_type": "reviewer"});
        let script = Script::new()
            .model("m", Model::new().step(call("task", task)).step(text("It is fine.")))
            .model("small", Model::new().step(text("Nothing is wrong.")));
        let stage = Stage::speaking(Dialect::OpenaiChat, script);
        operator(&stage, "review.md", "---\nagent: reviewer\nsubtask: true\n---\nReview $ARGUMENTS.");
        // Who is given the work must take it.
        let refused = stage.run(["/review a.rs"]).is(2);
        refused.says(["/review is a subtask: no agent \"reviewer\" takes tasks; there are "]);
        let agents = stage.config.with_file_name("agents");
        fs_err::create_dir(&agents).unwrap();
        let reviewer = "---\ndescription: reviews\nmode: MODE\nmodel: local/small\n---\n";
        fs_err::write(agents.join("reviewer.md"), reviewer.replace("MODE", "primary")).unwrap();
        let refused = stage.run(["/review a.rs"]).is(2);
        refused.says(["/review is a subtask: no agent \"reviewer\" takes tasks; there are "]);
        assert!(stage.asked().is_empty());
        fs_err::write(agents.join("reviewer.md"), reviewer.replace("MODE", "subagent")).unwrap();
        let ended = stage.run(["/review a.rs"]).is(0).says(["✓ task"]);
        assert_eq!(ended.stdout, "It is fine.\n");
        let requests = stage.requests();
        let told = requests[0]["messages"].as_array().unwrap().last().unwrap().to_string();
        assert!(told.contains("`reviewer`") && told.contains("Review a.rs."), "{told}");
        assert_eq!(
            (&requests[1]["model"], &requests[1]["messages"][1]["content"]),
            (&json!("small"), &json!("Review a.rs."))
        );
        assert!(requests[2]["messages"].to_string().contains("Nothing is wrong."));
        assert_eq!(
            stage.playhouse(["sessions", "list", "--all", "--format", "ndjson"]).is(0).lines().len(),
            2
        );
    });
}

#[test]
fn what_a_shell_block_ends_with_stands_in_the_prompt() {
    let stage = Stage::new(Model::new().step(text("Well.")).cycle());
    let block = "Tests: !`echo failed; exit 3`\nLint: !`true`.";
    stage.write(".playhouse/commands/check.md", block);
    stage.run(["--yes", "/check"]).is(0);
    assert_eq!(asked(&stage), "Tests: failed\n[exit code 3]\nLint: .");
}

#[test]
fn a_path_of_a_file_that_cannot_be_shown_says_why() {
    let stage = Stage::new(Model::new().step(text("Well.")).cycle());
    stage.write("cut.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").write("a.txt", "one\n");
    let pipe = stage.workspace.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for name in ["b.txt", "c.txt", "d.txt"] {
        stage.write(name, "b\n");
    }
    stage
        .run(["look at @cut.png and @a.txt#7-9 and @none.txt, @pipe, @b.txt#3-2, @c.txt#0-0. and @d.txt#x"])
        .is(0);
    let told = asked(&stage);
    assert!(told.contains("<file name=\"pipe\">\n[not shown: "), "{told}");
    for (name, lines) in [("b.txt", "3-2"), ("c.txt", "0-0"), ("d.txt", "x")] {
        let said =
            format!("<file name=\"{name}\">\n[not shown: \"#{lines}\" names no lines: write the first");
        assert!(told.contains(&said), "{told}");
    }
    assert!(told.contains("<file name=\"cut.png\">\n[not shown: "), "{told}");
    assert!(told.contains("<file name=\"a.txt\">\n[not shown: "), "{told}");
    assert!(!told.contains("<file name=\"none.txt\">"), "{told}");
}
