//! `@opencode-ai/sdk`, both of its clients, and the server that it starts by itself.

use std::os::unix::fs::symlink;

use mock_llm::{Fault, Model, Script, call, reasoning, text};
use serde_json::{Value, json};

use super::{needed, of_clients};
use crate::serve::Serving;
use crate::stage::{Dialect, Stage, finish, until};

/// What a script of `tests/clients` saw.
fn seen(stage: &Stage, script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
    of_clients("node_modules/@opencode-ai/sdk");
    let mut node = stage.program(needed("node"));
    node.current_dir(&stage.workspace).arg(of_clients(script)).args(arguments);
    node.envs(variables.iter().copied());
    let ended = finish(node).is(0);
    serde_json::from_str(&ended.stdout).unwrap()
}

/// An answer whose calls changed files.
fn changed(parts: &[&str]) -> Value {
    let mut message = said(parts);
    message["parts"].as_array_mut().unwrap().push(json!("patch"));
    message
}

/// An answer of the model, as the scripts tell of it.
fn said(parts: &[&str]) -> Value {
    let parts = [&["step-start"], parts, &["step-finish"]].concat();
    json!({"role": "assistant", "parts": parts})
}

/// A change of the file `play.txt`.
fn change(from: &str, to: &str) -> mock_llm::Step {
    text("Now a change.").call("edit", json!({"filePath": "play.txt", "oldString": from, "newString": to}))
}

#[test]
fn the_sdk_does_all_that_programs_do_with_sessions() {
    let todo =
        |content: &str, status: &str| json!({"content": content, "status": status, "priority": "high"});
    let todos = json!({"todos": [todo("Write", "completed"), todo("Rehearse", "pending")]});
    let plays = Model::new()
        .step(reasoning("What is there?").text("Let me look.").call("read", json!({"filePath": "play.txt"})))
        .step(change("first act", "second act"))
        .step(call("todowrite", todos))
        .step(text("The curtain falls."));
    let stalls = Model::new().step(text("Once upon a time there was nobody.").fault(Fault::stall(5)));
    let script = Script::new().model("m", plays).model("stalls", stalls);
    let stage = Stage::speaking(Dialect::OpenaiChat, script);
    stage.configure("[permissions]\nedit = \"ask\"\n[asking]\nwait_ms = 3600000");
    stage.write("play.txt", "the first act\nthe end\n");
    let serving = Serving::start(&stage, ["--port", "0"]);
    let url = format!("http://{}", serving.address());
    let workspace = stage.workspace.to_str().unwrap();
    let seen = seen(&stage, "v1.js", &[&url, workspace], &[]);

    let has = |list: &str, names: &[&str]| {
        let list = seen[list].as_array().unwrap();
        names.iter().for_each(|name| assert!(list.contains(&json!(name)), "{name}: {list:?}"));
    };
    has("agents", &["build", "plan"]);
    has("tools", &["bash", "edit", "todowrite"]);
    has("described", &["bash", "edit", "todowrite"]);
    has("projects", &[workspace]);
    let turn = ["session.status", "message.updated", "message.part.updated", "message.part.delta"];
    for kind in
        [&turn[..], &["permission.asked", "permission.replied", "todo.updated", "session.idle"]].concat()
    {
        let types = seen["events"]["types"].as_array().unwrap();
        assert!(types.contains(&json!(kind)), "{kind}: {types:?}");
    }
    let prompt = |text: &str| json!({"role": "user", "parts": [format!("text: {text}")]});
    // Four words came, and no end of the step.
    let aborted = json!({"role": "assistant", "error": "MessageAbortedError",
        "parts": ["step-start", "text: Once upon a time"]});
    let expected = json!({
        "model": "local/m",
        "default": {"local": "m"},
        "connected": ["local"],
        "directory": workspace,
        "worktree": workspace,
        "commands": [],
        "asked": {"permission": "edit", "patterns": ["play.txt"]},
        "answered": true,
        "messages": [
            prompt("Play the piece."),
            said(&["reasoning: What is there?", "text: Let me look.", "read: completed"]),
            changed(&["text: Now a change.", "edit: completed"]),
            said(&["todowrite: completed"]),
            said(&["text: The curtain falls."]),
        ],
        "first": prompt("Play the piece."),
        "todos": ["Write: completed", "Rehearse: pending"],
        "diff": [{"file": "play.txt", "additions": 1, "deletions": 1}],
        "cost": true,
        "found": ["play.txt"],
        "lines": [{"path": "play.txt", "line": 1}],
        "listed": ["play.txt: file"],
        "content": "the second act\nthe end\n",
        "busy": {"type": "busy"},
        "aborted": true,
        "ended": [prompt("Go on."), aborted],
        "idle": {},
        "children": ["Below"],
        "renamed": "Another",
        "titles": ["Another", "By the SDK"],
        "deleted": true,
        "gone": {"status": 404, "name": "NotFoundError"},
        "unbuilt": {"status": 501, "name": "UnknownError"},
        "left": ["By the SDK"],
        "shell": ["shell-42\n"],
        "changed": [],
    });
    for (name, value) in expected.as_object().unwrap() {
        if name == "asked" {
            let diff = seen[name]["diff"].as_str().unwrap();
            assert!(diff.contains("-the first act") && diff.contains("+the second act"), "{diff}");
            assert_eq!(seen[name]["permission"], value["permission"]);
            assert_eq!(seen[name]["patterns"], value["patterns"]);
        } else {
            assert_eq!(seen[name], *value, "{name}");
        }
    }
    let mut answer = expected["messages"][4].clone();
    answer["finish"] = "stop".into();
    answer["model"] = "m".into();
    assert_eq!(seen["answer"], answer);
    assert_eq!(seen["forked"], expected["messages"]);
    // What streamed is what was said in the end.
    let texts = ["What is there?", "Let me look.", "Now a change.", "The curtain falls."];
    assert_eq!(seen["events"]["texts"], json!(texts));
}

#[test]
fn the_newer_sdk_answers_what_people_are_asked() {
    let option = |label: &str| json!({"label": label, "description": label});
    let question = json!({"question": "Which ending?", "header": "Ending",
        "options": [option("Happy"), option("Sad")]});
    let asks = || call("question", json!({"questions": [question]}));
    let stage = Stage::new(
        Model::new()
            .step(call("read", json!({"filePath": "play.txt"})))
            .step(change("first", "second"))
            .step(change("first", "third"))
            .step(asks())
            .step(asks())
            .step(text("The curtain falls."))
            .next_turn()
            .step(text("A fine mask."))
            .closing("As you wish."),
    );
    let folder = stage.workspace.join("zweite Bühne");
    stage.write("zweite Bühne/play.txt", "the first act\n");
    for line in [
        &["init", "--quiet", "--initial-branch", "main"][..],
        &["add", "."],
        &["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "--quiet", "-m", "Begin"],
    ] {
        let mut git = stage.program(needed("git"));
        git.current_dir(&folder).args(line);
        finish(git).is(0);
    }
    let serving = Serving::start(&stage, ["--port", "0"]);
    let url = format!("http://{}", serving.address());
    let folder = folder.to_str().unwrap();
    let mut seen = seen(&stage, "v2.js", &[&url, folder], &[]);
    let kinds =
        ["permission.asked", "permission.replied", "question.asked", "question.replied", "question.rejected"];
    let types = seen["events"]["types"].take();
    for kind in kinds.iter().chain(&["server.connected", "message.part.delta", "session.idle"]) {
        assert!(types.as_array().unwrap().contains(&json!(kind)), "{kind}: {types}");
    }
    let expected = json!({
        "healthy": true,
        "directory": folder,
        "rules": [{"permission": "edit", "pattern": "*", "action": "ask"}],
        "busy": {"type": "busy"},
        "permissions": [[["edit", true]], [["edit", true]]],
        "questions": [["Which ending?"], ["Which ending?"]],
        "events": {"types": null, "texts": ["Now a change.", "Now a change.", "The curtain falls."]},
        "places": [folder],
        "messages": [
            {"role": "user", "parts": ["text: Play the piece."]},
            said(&["read: completed"]),
            said(&["text: Now a change.", "edit: error"]),
            changed(&["text: Now a change.", "edit: completed"]),
            said(&["question: completed"]),
            said(&["question: completed"]),
            said(&["text: The curtain falls."]),
        ],
        "pages": [2, 2, true],
        "withFile": said(&["text: A fine mask."]),
        "files": ["mask.png"],
        "remark": {"role": "user", "parts": ["text: The hall is full."]},
        "verse": said(&["text: As you wish."]),
        "metadata": {"stage": 2},
        "archived": 1_800_000_000_000_u64,
        "vcs": {"branch": "main", "default_branch": "main"},
        "changed": ["play.txt: modified"],
        "compared": ["play.txt: modified"],
        "servers": {"lsp": [], "mcp": {}},
        "roots": 1,
        "unknown": {"status": 404},
        "outside": {"status": 400, "name": "BadRequest"},
    });
    assert_eq!(seen, expected);
    assert_eq!(stage.read("zweite Bühne/play.txt"), "the third act\n");
    let requests = stage.requests();
    let [.., remark, verse] = &requests.last().unwrap()["messages"].as_array().unwrap()[..] else {
        panic!("{requests:?}")
    };
    assert_eq!(remark["content"], "The hall is full.");
    let verse = verse["content"].as_str().unwrap();
    assert!(verse.contains("Speak in verse.") && verse.contains("turned off"), "{verse}");
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn the_sdk_starts_and_stops_a_server_of_its_own() {
    for client in ["v1", "v2"] {
        let stage = Stage::new(Model::new().step(text("Here I am.")));
        let programs = stage.root().join("programs");
        fs_err::create_dir(&programs).unwrap();
        symlink(env!("CARGO_BIN_EXE_playhouse"), programs.join("opencode")).unwrap();
        let outside = std::env::var_os("PATH").unwrap();
        let path = std::iter::once(programs).chain(std::env::split_paths(&outside));
        let path = std::env::join_paths(path).unwrap();
        let variables = [
            ("PATH", path.to_str().unwrap()),
            ("PLAYHOUSE_DATA", stage.data.to_str().unwrap()),
            ("PLAYHOUSE_CONFIG", stage.config.to_str().unwrap()),
        ];
        let seen = seen(&stage, "spawn.js", &[client], &variables);
        assert_eq!(seen, json!({"before": true, "answer": said(&["text: Here I am."]), "gone": true}));
        // It goes in good order: whoever comes next finds the store free, and what was said in it.
        until("the server has ended", || stage.playhouse(["sessions", "list"]).code == Some(0));
        stage.playhouse(["sessions", "list"]).is(0).shows(["Spawned"]);
        assert!(!stage.data.join("engine.sock").exists());
    }
}
