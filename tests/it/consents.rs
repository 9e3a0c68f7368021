//! Requests for consent on the command line.

use std::process::Child;

use mock_llm::{Model, Script, call, text};
use playhouse::protocol::Record;
use playhouse::protocol::message::{CallOutcome, CallResult};
use playhouse::protocol::record::ConsentAnswer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::stage::{Dialect, Ended, Stage, in_both};
use crate::terminal::{at_a_terminal, start};

/// What ends every prompt that asks for consent.
const KEYS: &str = "n decline, m decline with a message, v view all: ";

/// Runs a command in each of so many turns.
fn runner(command: &str, turns: usize) -> Model {
    let turn = |model: Model| model.step(call("bash", json!({"command": command}))).step(text("So be it."));
    (1..turns).fold(turn(Model::new()), |model, _| turn(model.next_turn()))
}

fn answers(stage: &Stage) -> Vec<ConsentAnswer> {
    let settled = stage.records(&stage.session()).into_iter().filter_map(|record| match record {
        Record::ConsentSettled { answer, .. } => Some(answer),
        _ => None,
    });
    settled.collect()
}

fn results(stage: &Stage) -> Vec<CallResult> {
    let settled = stage.records(&stage.session()).into_iter().filter_map(|record| match record {
        Record::CallSettled { result, .. } => Some(result),
        _ => None,
    });
    settled.collect()
}

fn end(child: Child) -> Ended {
    child.wait_with_output().unwrap().into()
}

#[test]
fn once_is_for_one_call() {
    in_both(|| {
        let stage = Stage::new(runner("date >> made", 2));
        let (child, mut terminal) = at_a_terminal(&stage, ["Make it."]);
        let shown = terminal.until(KEYS);
        for part in [
            "? bash asks for consent",
            "\n  │ date >> made\r\n",
            "  why     bash date",
            "  risk    dangerous",
            "  walls   ",
            "  always  bash \"date",
            "y once, a always, ",
        ] {
            assert!(shown.contains(part), "{part:?} in {shown}");
        }
        terminal.types("");
        terminal.until("type one of the letters");
        terminal.until(KEYS);
        assert!(!stage.workspace.join("made").exists(), "it waits");
        terminal.types("y");
        terminal.until("→ bash date >> made: allowed once");
        terminal.until("✓ bash date >> made");
        terminal.until("completed");
        assert_eq!(end(child).is(0).stdout, "So be it.\n");
        assert_eq!(stage.read("made").lines().count(), 1);
        assert_eq!(answers(&stage), [ConsentAnswer::Once]);
        let show = stage.playhouse(["sessions", "show", &stage.session()]).is(0);
        show.shows(["[bash ", "→ done, ", "(asked for consent: bash date", "→ allowed once)"]);

        let (child, mut terminal) = at_a_terminal(&stage, ["-c", "Make it again."]);
        terminal.until(KEYS);
        terminal.types("n");
        terminal.until("→ bash date >> made: declined");
        terminal.until("completed");
        end(child).is(0);
        assert_eq!(stage.read("made").lines().count(), 1);
    });
}

#[test]
fn what_is_allowed_for_always_is_not_asked_until_it_is_withdrawn() {
    in_both(|| {
        let stage = Stage::new(runner("date >> made", 1));
        let (child, mut terminal) = at_a_terminal(&stage, ["Make it."]);
        terminal.until(KEYS);
        terminal.types("a");
        terminal.until("→ bash date >> made: allowed for always");
        terminal.until("completed");
        end(child).is(0);
        // Another session of the same directory, with nobody there.
        let ended = stage.run(["Make it."]).is(0).says(["✓ bash date >> made"]);
        assert!(!ended.stderr.contains("asks for consent"), "{}", ended.stderr);
        assert_eq!(stage.read("made").lines().count(), 2);
        // It holds here only.
        stage.write("below/file", "");
        stage.run(["-C", "below", "Make it."]).is(0).says(["bash asks for consent", "✗ bash"]);

        let listed = |arguments: &[&str]| {
            let all = ["consents", "list", "--format", "json"].iter().chain(arguments);
            stage.playhouse(all).is(0).lines()
        };
        let grants = listed(&[]);
        // The command, and the file that it writes.
        let of = |permission: &str| grants.iter().find(|grant| grant["rule"]["permission"] == permission);
        assert_eq!((grants.len(), of("edit").unwrap()["rule"]["pattern"].as_str()), (2, Some("made")));
        let id = of("bash").unwrap()["id"].as_str().unwrap();
        assert!(grants.iter().all(|grant| grant["tenant"] == "local"), "{grants:?}");
        let place = stage.workspace.to_str().unwrap();
        stage.playhouse(["consents", "list"]).is(0).shows(["ID ", id, "local", "bash", "date", place]);
        assert!(listed(&["--tenant", "other"]).is_empty());
        stage.playhouse(["consents", "revoke", "--tenant", "other", id]).is(2);
        stage.playhouse(["consents", "revoke", id]).is(0).shows(["withdrew ", id, "bash"]);
        stage.playhouse(["consents", "revoke", id]).is(2).says([id]);
        assert_eq!(listed(&[]).len(), 1);
        stage.run(["Make it."]).is(0).says(["bash asks for consent", "✗ bash"]);
        assert_eq!(stage.read("made").lines().count(), 2, "it is asked for again");
    });
}

#[test]
fn a_message_of_whoever_declines_reaches_the_model() {
    in_both(|| {
        for dialect in Dialect::ALL {
            let stage = Stage::speaking(dialect, Script::new().model("m", runner("touch made", 1)));
            let (child, mut terminal) = at_a_terminal(&stage, ["Make it."]);
            terminal.until(KEYS);
            terminal.types("m");
            terminal.until("What shall it be told? (empty for nothing) ");
            terminal.types("use a better name");
            terminal.until("declined: use a better name");
            terminal.until("completed");
            end(child).is(0);
            assert!(!stage.workspace.join("made").exists());
            let message = Some("use a better name".to_owned());
            assert_eq!(answers(&stage), [ConsentAnswer::Decline { message }]);
            assert_eq!(results(&stage)[0].outcome, CallOutcome::Declined);
            assert!(stage.requests()[1].to_string().contains("use a better name"), "{}", stage.requests()[1]);
        }
    });
}

#[test]
fn what_is_shown_cannot_command_the_terminal_and_can_be_seen_as_a_whole() {
    let mut lines: Vec<String> = (1..=60).map(|number| format!("true {number}")).collect();
    lines[0] = "printf '\u{1b}[2J\u{202e}'".to_owned();
    let stage = Stage::new(runner(&lines.join("\n"), 1));
    let (child, mut terminal) = at_a_terminal(&stage, ["Make it."]);
    let shown = terminal.until(KEYS);
    assert!(shown.contains(r"printf '\u{1b}[2J\u{202e}'"), "{shown}");
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown}");
    assert!(shown.contains("\n  │ true 40\r\n") && !shown.contains("│ true 41\r\n"), "{shown}");
    assert!(shown.contains("20 more lines"), "{shown}");
    terminal.types("v");
    let shown = terminal.until(KEYS);
    assert!(shown.contains("\n  │ true 60\r\n") && !shown.contains("more lines"), "{shown}");
    terminal.types("n");
    terminal.until("completed");
    end(child).is(0);
    assert_eq!(answers(&stage), [ConsentAnswer::Decline { message: None }]);
}

#[test]
fn an_edit_is_asked_for_with_its_diff_and_colours() {
    let stage = Stage::new(
        Model::new()
            .step(call("read", json!({"filePath": "a.txt"})))
            .step(call("edit", json!({"filePath": "a.txt", "oldString": "one", "newString": "two"})))
            .step(text("So be it.")),
    );
    stage.write("a.txt", "one\n");
    let (child, mut terminal) = start(stage.command(["run", "Change it."]));
    let shown = terminal.until(KEYS);
    for part in ["\u{1b}[31m  │ -one", "\u{1b}[32m  │ +two", "edit a.txt"] {
        assert!(shown.contains(part), "{part:?} in {shown:?}");
    }
    assert!(!shown.contains("walls"), "no program runs: {shown}");
    terminal.types("y");
    terminal.until("→ edit a.txt: allowed once");
    terminal.until("completed");
    end(child).is(0);
    assert_eq!(stage.read("a.txt"), "two\n");
}

#[test]
fn what_was_declined_is_named_and_said_once() {
    let write = json!({"filePath": "below/new.txt", "content": "x"});
    let stage = Stage::new(Model::new().step(call("write", write)).step(text("So be it.")));
    let ended = stage.run(["Make it."]).is(0).says([
        "→ write below/new.txt: declined: nobody is there to be asked",
        "✗ write below/new.txt",
        "\n    declined: a person must agree to this call",
    ]);
    assert!(!ended.stderr.contains("declined: declined"), "{}", ended.stderr);
}

#[test]
fn without_a_terminal_nobody_is_asked() {
    in_both(|| {
        for format in ["text", "json", "tags"] {
            let stage = Stage::new(runner("touch made", 1));
            let ended = stage.run(["--format", format, "Make it."]).is(0);
            assert!(!stage.workspace.join("made").exists());
            assert_eq!(answers(&stage), [ConsentAnswer::Unattended], "{format}");
            assert_eq!(results(&stage)[0].outcome, CallOutcome::Declined);
            match format {
                "json" => drop(ended.shows(["\"consent.asked\"", "\"consent.settled\"", "\"unattended\""])),
                "tags" => drop(ended.shows(["<opencode-tool name=\"bash\" status=\"error\"", "--yes"])),
                _ => drop(ended.says([
                    "? bash asks for consent\n  │ touch made\n",
                    "→ bash touch made: declined: nobody is there to be asked",
                    "[permissions]",
                    "✗ bash touch made",
                ])),
            }
            let request = stage.requests()[1].to_string();
            assert!(request.contains("[permissions]") && request.contains("--yes"), "{request}");
        }
    });
}

#[test]
fn a_rule_or_yes_allows_it() {
    let stage = Stage::new(runner("touch made", 1));
    stage.run(["--yes", "Make it."]).is(0).says(["→ bash touch made: allowed once", "✓ bash"]);
    assert!(stage.workspace.join("made").exists());
    assert_eq!(answers(&stage), [ConsentAnswer::Once]);
    let stage = Stage::new(runner("touch made", 1));
    stage.configure("[permissions]\nbash = { \"touch *\" = \"allow\" }");
    let ended = stage.run(["Make it."]).is(0);
    assert!(stage.workspace.join("made").exists(), "{}", ended.stderr);
    assert!(answers(&stage).is_empty());
    // What the operator denies, --yes does not allow.
    let stage = Stage::new(runner("touch made", 1));
    stage.configure("[permissions]\nbash = { \"touch *\" = \"deny\" }");
    stage.run(["--yes", "Make it."]).is(0).says(["declined: ", "denied by a rule of the configuration"]);
    assert!(!stage.workspace.join("made").exists() && answers(&stage).is_empty());
}

#[test]
fn what_needs_a_person_is_not_done_for_yes() {
    in_both(|| {
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside.txt");
        let write = json!({"filePath": outside, "content": "x"});
        let stage = Stage::new(Model::new().step(call("write", write)).step(text("So be it.")));
        // Not even a rule allows it.
        stage.configure("[permissions]\n\"*\" = \"allow\"");
        stage.run(["--yes", "Make it."]).is(0).says(["needs a person: run without --yes at a terminal"]);
        assert!(!outside.exists());
        assert!(stage.requests()[1].to_string().contains("needs a person"));
        let (child, mut terminal) = at_a_terminal(&stage, ["Make it."]);
        let shown = terminal.until(KEYS);
        assert!(shown.contains("outside the workspace") && !shown.contains("a always"), "{shown}");
        terminal.types("a");
        terminal.until("this cannot be allowed for always");
        terminal.types("n");
        terminal.until("completed");
        end(child).is(0);
        assert!(!outside.exists());
    });
}

#[test]
fn a_request_that_nobody_answers_in_time_is_withdrawn() {
    let stage = Stage::new(runner("touch made", 1));
    stage.configure("[asking]\nwait_ms = 1");
    let (child, mut terminal) = at_a_terminal(&stage, ["Make it."]);
    terminal.until("→ bash touch made: asked no more: nobody answered in time");
    terminal.until("completed");
    end(child).is(0);
    assert_eq!(answers(&stage), [ConsentAnswer::TimedOut]);
    assert!(!stage.workspace.join("made").exists());
}

#[test]
fn ctrl_c_while_somebody_is_asked_aborts_the_turn() {
    in_both(|| {
        let stage = Stage::new(runner("touch made", 1));
        let (child, mut terminal) = at_a_terminal(&stage, ["Make it."]);
        terminal.until(KEYS);
        kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
        terminal.until("asked no more: the turn was aborted");
        terminal.until("aborted");
        end(child).is(3);
        assert_eq!(answers(&stage), [ConsentAnswer::Withdrawn]);
        assert!(!stage.workspace.join("made").exists());
    });
}

#[test]
fn what_was_asked_before_a_crash_is_asked_again() {
    let model = Model::new().step(call("bash", json!({"command": "touch made"}))).step(text("So be it."));
    let stage = Stage::new(model.next_turn().step(text("Well.")));
    let (mut child, mut terminal) = at_a_terminal(&stage, ["Make it."]);
    terminal.until(KEYS);
    child.kill().unwrap();
    child.wait().unwrap();
    let (child, mut terminal) = at_a_terminal(&stage, ["-c", "And then?"]);
    terminal.until("touch made");
    terminal.until(KEYS);
    terminal.types("y");
    terminal.until("completed");
    end(child).is(0);
    assert!(stage.workspace.join("made").exists());
    assert_eq!(answers(&stage), [ConsentAnswer::Once]);
}

#[test]
fn no_words_of_the_user_are_made_up_where_nobody_is_asked_again() {
    let model = Model::new().step(call("bash", json!({"command": "touch made"}))).step(text("So be it."));
    let stage = Stage::new(model.next_turn().step(text("Well.")));
    let (mut child, mut terminal) = at_a_terminal(&stage, ["Make it."]);
    terminal.until(KEYS);
    child.kill().unwrap();
    child.wait().unwrap();
    stage.run(["-c", "And then?"]).is(0);
    assert!(!stage.workspace.join("made").exists());
    let result = results(&stage).remove(0);
    assert_eq!(result.outcome, CallOutcome::Declined);
    assert!(
        result.output.starts_with("declined: nobody is there to be asked: allow it"),
        "{}",
        result.output
    );
    assert!(!result.output.contains("user"), "{}", result.output);
}

/// The line of one call by hand.
fn by_hand(stage: &Stage, arguments: &[&str], tool: &str, input: &Value, code: i32) -> Value {
    let input = input.to_string();
    let arguments = ["tool"].iter().chain(arguments).copied().chain([tool, "--input", input.as_str()]);
    stage.playhouse(arguments).is(code).lines().remove(0)
}

fn output(line: &Value) -> &str {
    line["output"].as_str().unwrap()
}

#[test]
fn who_types_a_call_agrees_to_it_as_far_as_it_stays_in_the_directory() {
    let stage = Stage::new(Model::new());
    let place = tempfile::tempdir().unwrap();
    let (secret, new) = (place.path().join("secret.txt"), place.path().join("new.txt"));
    fs_err::write(&secret, "hidden\n").unwrap();
    by_hand(&stage, &[], "bash", &json!({"command": "touch made"}), 0);
    assert!(stage.workspace.join("made").exists());
    let read = json!({"filePath": secret});
    let line = by_hand(&stage, &[], "read", &read, 1);
    assert!(
        output(&line).starts_with("asked: ") && output(&line).contains("is outside the workspace"),
        "{line}"
    );
    assert!(output(&line).ends_with("or with --yes") && line["ok"] == false, "{line}");
    let line = by_hand(&stage, &["--yes"], "read", &read, 0);
    assert!(output(&line).contains("hidden"), "{line}");
    let list = json!({"command": format!("ls {}", place.path().display())});
    let line = by_hand(&stage, &[], "bash", &list, 1);
    assert!(output(&line).contains(&format!("; and for {}", place.path().display())), "{line}");
    let write = json!({"filePath": new, "content": "x"});
    for arguments in [&[][..], &["--yes"]] {
        let line = by_hand(&stage, arguments, "write", &write, 1);
        assert!(output(&line).starts_with("asked: ") && output(&line).contains("at a terminal"), "{line}");
        assert!(!new.exists());
    }
    let mut command = stage.command(["tool", "write", "--input", &write.to_string()]);
    command.env("NO_COLOR", "1");
    let (child, mut terminal) = start(command);
    terminal.until(KEYS);
    terminal.types("y");
    assert_eq!(end(child).is(0).lines()[0]["ok"], true);
    assert!(new.exists());
    // What the operator denies is refused with its reason.
    stage.configure("[permissions]\nbash = { \"touch *\" = \"deny\" }");
    let line = by_hand(&stage, &["--yes"], "bash", &json!({"command": "touch more"}), 1);
    assert!(output(&line).contains("denied by a rule of the configuration"), "{line}");
    assert!(!stage.workspace.join("more").exists());
}

#[test]
fn a_verdict_runs_nothing() {
    let stage = Stage::new(Model::new());
    stage.write("a.txt", "one\n");
    stage.write(".playhouse/config.toml", "[permissions]\nbash = { \"make *\" = \"deny\" }\n");
    stage.configure("[permissions]\nbash = { \"touch *\" = \"allow\" }");
    for (tool, input, says) in [
        ("read", json!({"filePath": "a.txt"}), "allow\n"),
        ("bash", json!({"command": "touch made"}), "allow\n"),
        ("bash", json!({"command": "date > made"}), "ask: bash date"),
        ("bash", json!({"command": "make install"}), "deny: denied by a rule of the workspace"),
        ("write", json!({"filePath": "/etc/motd", "content": "x"}), "ask: "),
        ("read", json!({"file": "a.txt"}), "refuse: "),
    ] {
        let ended = stage.playhouse(["tool", "--verdict", tool, "--input", &input.to_string()]).is(0);
        assert!(ended.stdout.starts_with(says), "{input}: {}", ended.stdout);
        assert_eq!(ended.stdout.lines().count(), 1, "{}", ended.stdout);
    }
    assert!(!stage.workspace.join("made").exists());
    let unknown = stage.playhouse(["tool", "--verdict", "raed", "--input", "{}"]).is(2);
    unknown.says(["did you mean \"read\"?"]);
}

#[test]
fn the_sandbox_is_one_of_three() {
    let stage = Stage::new(Model::new());
    let says = ["required, best-effort, off", "did you mean \"required\"?"];
    stage.run(["--sandbox", "requird", "x"]).is(2).says(says);
    let input = json!({"command": "echo here"}).to_string();
    let arguments = ["tool", "--sandbox", "off", "--network", "bash", "--input", &input];
    stage.playhouse(arguments).is(0).shows(["here"]);
}
