//! `opencode attach`, with all that its screen shows of a turn, and `opencode run --attach`.

use mock_llm::{Fault, Model, call, reasoning, text};
use serde_json::{Value, json};

use super::opencode_into;
use super::screen::Screen;
use crate::serve::{Serving, key};
use crate::stage::{Stage, finish, until};

/// A turn with a command, a change that has to be agreed to and a question, and one that does not end.
pub(super) fn play() -> Stage {
    let option = |label: &str, description: &str| json!({"label": label, "description": description});
    let ending = json!({"question": "Which ending?", "header": "Ending",
        "options": [option("Happy", "They marry"), option("Sad", "They part")]});
    let change = json!({"filePath": "play.txt", "oldString": "first act", "newString": "second act"});
    let stage = Stage::new(
        Model::new()
            .step(
                reasoning("What is there?")
                    .text("Let me rehearse.")
                    .call("bash", json!({"command": "echo played-$((40+2))", "description": "Rehearse"})),
            )
            .step(call("read", json!({"filePath": "play.txt"})))
            .step(text("Now the next act.").call("edit", change))
            .step(call("question", json!({"questions": [ending]})))
            .step(text("The curtain falls."))
            .next_turn()
            .step(text("Once upon a time there was nobody.").fault(Fault::stall(5))),
    );
    // However long this machine takes for a key.
    stage.configure("[permissions]\nedit = \"ask\"\nbash = \"allow\"\n[asking]\nwait_ms = 3600000");
    stage.write("play.txt", "the first act\n");
    stage
}

/// A list that the wire gives.
fn list(serving: &Serving, path: &str) -> Vec<Value> {
    let (status, body) = serving.ask("GET", path, &[], "");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// What the wire says of the only session.
pub(super) fn messages(serving: &Serving) -> Vec<Value> {
    let [session] = &list(serving, "/session")[..] else { panic!("there is one session") };
    list(serving, &format!("/session/{}/message", session["id"].as_str().unwrap()))
}

#[test]
fn the_terminal_client_shows_a_turn_and_takes_what_people_decide() {
    let stage = play();
    let serving = Serving::start(&stage, ["--port", "0"]);
    let screen = Screen::start(&stage, ["attach", &format!("http://{}", serving.address())]);
    screen.shows(["Ask anything", "Sisyphus", "m local", "commands"]);

    screen.prompts("Play the piece");
    // The command has run, and the change waits.
    let dialog = [
        "Permission required",
        "Edit play.txt",
        "- the first act",
        "+ the second act",
        "Allow once",
        "Reject",
    ];
    screen.shows(["Let me rehearse.", "$ echo played-", "played-42", "Now the next act."]);
    screen.shows(dialog);
    assert_eq!(stage.read("play.txt"), "the first act\n");
    screen.press(["Enter"]);
    screen.hides("Permission required");
    screen.shows(["Edit play.txt", "- the first act", "+ the second act"]);

    screen.shows(["Which ending?", "1. Happy", "They marry", "2. Sad", "They part", "submit"]);
    assert_eq!(stage.read("play.txt"), "the second act\n");
    screen.press(["Down", "Enter"]);
    screen.shows(["Questions", "Which ending?", "Sad", "The curtain falls."]);

    // The rest of what streams never comes.
    screen.hides("interrupt");
    screen.prompts("Tell a story");
    screen.shows(["The curtain falls.", "Tell a story", "Once upon a time", "esc interrupt"]);
    screen.press(["Escape"]);
    screen.shows(["esc again to interrupt"]);
    screen.press(["Escape"]);
    let shown = screen.shows(["Once upon a time", "interrupted"]);
    assert!(!shown.contains("nobody"), "{shown}");
    screen.hides("again to interrupt");

    let messages = messages(&serving);
    assert_eq!(messages.last().unwrap()["info"]["error"]["name"], "MessageAbortedError", "{messages:?}");
    assert_eq!(serving.ask("GET", "/session/status", &[], ""), (200, "{}".to_owned()));
    let answers = &messages[4]["parts"][1]["state"]["metadata"]["answers"];
    assert_eq!(*answers, json!([["Sad"]]), "{messages:?}");

    // A command of the person, and the whole conversation once more.
    screen.types("!");
    screen.shows(["exit shell mode"]);
    screen.prompts("echo shell-$((6*7))");
    screen.shows(["Tell a story", "$ echo shell-", "shell-42"]);
    screen.hides("exit shell mode");
    screen.types("/fork");
    screen.shows(["Fork session"]);
    screen.press(["Enter"]);
    screen.shows(["Fork session", "Full session"]);
    screen.press(["Enter"]);
    screen.hides("Full session");
    until("there is a fork", || list(&serving, "/session").len() == 2);
    screen.shows(["Play the piece", "The curtain falls.", "Tell a story", "shell-42"]);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn what_a_prompt_changed_is_undone_and_redone_from_the_terminal_client() {
    let change = json!({"filePath": "play.txt", "oldString": "first act", "newString": "second act"});
    let stage = Stage::new(
        Model::new()
            .step(call("read", json!({"filePath": "play.txt"})))
            .step(call("edit", change))
            .step(call("bash", json!({"command": "echo staged > scene.txt", "description": "Stage it"})))
            .step(text("The curtain falls.")),
    );
    stage.configure("[permissions]\nedit = \"allow\"\nbash = \"allow\"");
    stage.write("play.txt", "the first act\n");
    let serving = Serving::start(&stage, ["--port", "0"]);
    let screen = Screen::start(&stage, ["attach", &format!("http://{}", serving.address())]);
    screen.shows(["Ask anything"]);
    screen.prompts("Play the piece");
    screen.shows(["The curtain falls."]);
    screen.hides("interrupt");
    let scene = stage.workspace.join("scene.txt");
    assert_eq!((stage.read("play.txt").as_str(), scene.exists()), ("the second act\n", true));

    screen.types("/undo");
    screen.shows(["Undo previous message"]);
    screen.press(["Enter"]);
    screen.shows(["1 message reverted"]);
    screen.hides("The curtain falls.");
    assert_eq!((stage.read("play.txt").as_str(), scene.exists()), ("the first act\n", false));

    // The prompt stands in the line again, and would come before a command.
    screen.press(["C-x", "r"]);
    screen.shows(["The curtain falls."]);
    screen.hides("1 message reverted");
    assert_eq!((stage.read("play.txt").as_str(), scene.exists()), ("the second act\n", true));
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_prompt_can_be_sent_with_a_key_and_without_a_screen() {
    let stage = play();
    let key = key(&stage, "acme");
    let serving = Serving::start(&stage, ["--port", "0"]);
    let url = format!("http://{}", serving.address());
    let said = stage.root().join("said.jsonl");
    let run = |key: &str, prompt: &str| {
        let mut command = opencode_into(&stage, &said);
        command.current_dir(&stage.workspace).args(["run", "--attach", &url, "--format", "json", "-p", key]);
        // Whoever cannot be asked declines.
        finish({
            command.arg(prompt);
            command
        })
    };
    assert_ne!(run("wrong", "Play the piece").code, Some(0));
    let ended = run(&key, "Play the piece").is(0);
    let lines = fs_err::read_to_string(&said).unwrap();
    let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let told: Vec<String> = lines
        .filter_map(|event| match event["type"].as_str()? {
            "text" => Some(event["part"]["text"].as_str()?.to_owned()),
            "tool_use" => {
                let state = event["part"]["state"]["status"].as_str()?;
                Some(format!("{}: {state}", event["part"]["tool"].as_str()?))
            }
            _ => None,
        })
        .collect();
    let expected = [
        "Let me rehearse.",
        "bash: completed",
        "read: completed",
        "Now the next act.",
        "edit: error",
        "question: error",
        "The curtain falls.",
    ];
    assert_eq!(told, expected, "{ended:?}");
    assert_eq!(stage.read("play.txt"), "the first act\n");
}
