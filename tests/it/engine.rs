//! Commands as clients of an engine in another process: one that a `run` started in the background, or a server.

use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use mock_llm::{Fault, Model, Script, call, text};
use rustix::process::{Pid, Signal, getsid, kill_process};
use serde_json::{Value, json};

use crate::interrupt::{is_alive, process, start};
use crate::serve::{Serving, ask, hangups_are_heard};
use crate::stage::{Dialect, Ended, Stage, finish, through_an_engine, until};

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
}

fn end(child: Child) -> Ended {
    child.wait_with_output().unwrap().into()
}

/// Answers each prompt with one word.
fn greeter() -> Model {
    Model::new().step(text("Hello.")).cycle()
}

#[test]
fn a_run_starts_an_engine_that_others_use() {
    through_an_engine(|| {
        let stage = Stage::new(greeter());
        assert!(stage.engine().is_none());
        let ended = stage.run(["Hi."]).is(0);
        assert_eq!(ended.stdout, "Hello.\n");
        let (engine, facts) = stage.engine().expect("it is there still");
        assert!(is_alive(engine));
        assert_eq!(getsid(Some(engine)).unwrap(), engine, "it has left the terminal");
        assert_eq!((&facts["ending"], &facts["network"]), (&json!(false), &json!(false)));
        // Where the command was started is not held by it.
        let place = fs_err::read_link(format!("/proc/{}/cwd", engine.as_raw_nonzero())).unwrap();
        assert_eq!(place, stage.data);
        stage.run(["-c", "Hi again."]).is(0);
        let session = stage.session();
        assert_eq!(stage.records(&session).iter().filter(|record| record.kind() == "turn.ended").count(), 2);
        stage.playhouse(["sessions", "show", &session]).is(0).shows(["Hi.", "Hello.", "Hi again.", "Hello."]);
        stage.playhouse(["sessions", "delete", &session]).is(0);
        assert_eq!(stage.playhouse(["sessions", "list"]).is(0).stdout.lines().count(), 1);
        assert_eq!(stage.engine().map(|(pid, _)| pid), Some(engine), "all of that went through one engine");
        // Whoever wants to keep out of it is told what to do.
        let mut alone = stage.command(["run", "x"]);
        alone.arg("--in-process");
        finish(alone).is(2).says(["is in use by", "serve --background", "leave out --in-process"]);
    });
}

#[test]
fn ten_that_start_at_once_all_work() {
    through_an_engine(|| {
        let stage = Stage::new(greeter());
        let children: Vec<Child> = (0..10).map(|_| start(&stage, ["Hi."])).collect();
        for child in children {
            assert_eq!(end(child).is(0).stdout, "Hello.\n");
        }
        assert_eq!(
            stage.playhouse(["sessions", "list", "--format", "ndjson"]).is(0).stdout.lines().count(),
            10
        );
        let log = fs_err::read_to_string(stage.data.join("engine.log")).unwrap();
        assert_eq!(log.matches("listening on unix:").count(), 1, "one engine: {log}");
    });
}

#[test]
fn ctrl_c_ends_the_turn_of_one() {
    let command = |name: &str| json!({"command": format!("echo $$ > {name}.pid; exec sleep 300")});
    let script = Script::new()
        .model("m", Model::new().step(call("bash", command("one"))))
        .model("n", Model::new().step(call("bash", command("two"))));
    through_an_engine(|| {
        let stage = Stage::speaking(Dialect::OpenaiChat, script.clone());
        let one = start(&stage, ["--yes", "--sandbox", "off", "-m", "local/m", "Wait."]);
        let two = start(&stage, ["--yes", "--sandbox", "off", "-m", "local/n", "Wait."]);
        let (first, second) = (process(&stage, "one.pid"), process(&stage, "two.pid"));
        signal(&one, Signal::INT);
        end(one).is(3).says(["aborted"]);
        assert!(!is_alive(first) && is_alive(second));
        let (engine, _) = stage.engine().unwrap();
        signal(&two, Signal::INT);
        end(two).is(3).says(["aborted"]);
        assert!(!is_alive(second) && is_alive(engine));
    });
}

#[test]
fn a_turn_that_cannot_be_shown_is_aborted() {
    hangups_are_heard();
    let command = json!({"command": "echo $$ > one.pid; exec sleep 300"});
    let model = Model::new().step(text("Wait.").call("bash", command)).cycle();
    through_an_engine(|| {
        let stage = Stage::new(model.clone());
        let arguments = ["run", "--yes", "--sandbox", "off", "Wait."];
        let full = fs_err::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut run = stage.command(arguments);
        let status =
            run.stdin(Stdio::null()).stdout(full.into_file()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(1));
        let ends = || {
            let records = stage.records(&stage.session());
            records.iter().filter(|record| record.kind() == "turn.ended").count()
        };
        assert_eq!(ends(), 1, "nobody would see what comes of it");
        // The command of that turn may have begun, or not.
        let _ = fs_err::remove_file(stage.workspace.join("one.pid"));
        // As when a terminal is closed.
        let run = start(&stage, ["-c", "--yes", "--sandbox", "off", "Wait."]);
        let waits = process(&stage, "one.pid");
        signal(&run, Signal::HUP);
        end(run).is(129).says(["aborted"]);
        assert!(!is_alive(waits));
        assert_eq!(ends(), 2);
    });
}

#[test]
fn ctrl_c_ends_one_of_two_turns_of_a_session() {
    let wait = |name: &str| json!({"command": format!("echo $$ > {name}.pid; exec sleep 300")});
    let script = Script::new()
        .model("m", Model::new().step(call("bash", wait("one"))).step(text("One.")).cycle())
        .model("n", Model::new().step(call("bash", wait("two"))).cycle())
        .model("g", greeter());
    through_an_engine(|| {
        let stage = Stage::speaking(Dialect::OpenaiChat, script.clone());
        stage.run(["--sandbox", "off", "-m", "local/g", "Hi."]).is(0);
        let session = stage.session();
        let run =
            |model: &str| start(&stage, ["--yes", "--sandbox", "off", "-s", &session, "-m", model, "Wait."]);
        let ends = |stage: &Stage| {
            stage.records(&session).iter().filter(|record| record.kind() == "turn.ended").count()
        };
        let prompts = |stage: &Stage| {
            stage.records(&session).iter().filter(|record| record.kind() == "prompt.admitted").count()
        };
        let running = run("local/m");
        let first = process(&stage, "one.pid");
        let waiting = run("local/n");
        until("it waits", || prompts(&stage) == 3);
        signal(&waiting, Signal::INT);
        end(waiting).is(3).says(["aborted"]);
        assert!(is_alive(first), "the turn of the other one goes on");
        assert_eq!(ends(&stage), 2);
        // And the other way round.
        let waiting = run("local/n");
        until("it waits", || prompts(&stage) == 4);
        signal(&running, Signal::INT);
        end(running).is(3).says(["aborted"]);
        assert!(!is_alive(first));
        let second = process(&stage, "two.pid");
        // As `timeout` does it.
        signal(&waiting, Signal::TERM);
        end(waiting).is(143).says(["aborted"]);
        assert!(!is_alive(second));
        assert_eq!(ends(&stage), 4, "and nothing goes on behind its back");
    });
}

#[test]
fn each_of_ten_in_one_session_shows_its_own_answer() {
    through_an_engine(|| {
        let stage = Stage::new(greeter());
        stage.run(["Hi."]).is(0);
        for format in ["text", "tags"] {
            let children: Vec<Child> =
                (0..10).map(|_| start(&stage, ["-c", "--format", format, "Hi."])).collect();
            for child in children {
                assert_eq!(end(child).is(0).stdout, "Hello.\n");
            }
        }
        let children: Vec<Child> = (0..3).map(|_| start(&stage, ["-c", "--format", "json", "Hi."])).collect();
        for child in children {
            let lines = end(child).is(0).lines();
            let ended: Vec<&Value> = lines.iter().filter(|line| line["type"] == "turn.ended").collect();
            assert_eq!(ended.len(), 1, "{lines:?}");
        }
    });
}

#[test]
fn a_turn_that_goes_first_is_told_once_and_not_shown() {
    through_an_engine(|| {
        let waits =
            call("bash", json!({"command": "until [ -e go ]; do sleep 0.05; done", "description": "Wait"}));
        let model =
            Model::new().step(text("First.")).next_turn().step(waits).step(text("Second.")).next_turn();
        let stage = Stage::new(model.step(text("Third.")));
        stage.run(["--sandbox", "off", "One."]).is(0);
        let second = start(&stage, ["-c", "--yes", "--sandbox", "off", "Two."]);
        until("the command runs", || stage.asked().len() == 2);
        let third = start(&stage, ["-c", "--sandbox", "off", "Three."]);
        until("it waits", || {
            let sessions = stage.playhouse(["sessions", "list", "--format", "ndjson"]).is(0).lines();
            sessions[0]["open_turns"] == 2
        });
        stage.write("go", "");
        let third = end(third).is(0);
        assert_eq!(third.stdout, "Third.\n");
        assert_eq!(
            third.stderr.matches("another turn of this session goes on first").count(),
            1,
            "{third:#?}"
        );
        assert!(!third.stderr.contains("bash"), "{third:#?}");
        assert!(end(second).is(0).stdout.contains("Second."));
    });
}

#[test]
fn calls_by_hand_leave_nothing_behind() {
    through_an_engine(|| {
        let stage = Stage::new(greeter());
        stage.run(["--sandbox", "off", "Hi."]).is(0);
        let session = stage.session();
        let sessions = || stage.playhouse(["sessions", "list", "--format", "ndjson"]).is(0).lines();
        let tool = |command: &str| {
            let mut tool = stage.command(["tool", "--sandbox", "off", "bash", "--input"]);
            tool.arg(json!({"command": command}).to_string());
            tool.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut killed = tool("echo $$ > shell.pid; exec sleep 300");
        let shell = process(&stage, "shell.pid");
        assert_eq!(sessions().len(), 1, "they are no session of anybody's");
        killed.kill().unwrap();
        killed.wait().unwrap();
        until("the command is gone too", || !is_alive(shell));
        // What was too long to print is there for whoever reads its name.
        let line = end(tool("seq 1 100000")).is(0).lines().remove(0);
        let saved = line["metadata"]["outputPath"].as_str().expect("it names what it saved");
        assert!(fs_err::read_to_string(saved).unwrap().contains("99999"));
        stage.run(["-c", "--sandbox", "off", "Hi."]).is(0);
        assert_eq!(stage.session(), session);
        assert_eq!(sessions().len(), 1);
    });
}

#[test]
fn calls_by_hand_that_an_engine_left_are_gone_with_the_next() {
    through_an_engine(|| {
        let stage = Stage::new(greeter());
        stage.run(["--sandbox", "off", "Hi."]).is(0);
        let mut tool = stage.command(["tool", "--sandbox", "off", "bash", "--input"]);
        tool.arg(json!({"command": "echo $$ >> shell.pid; exec sleep 300"}).to_string());
        let child = tool.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let shell = process(&stage, "shell.pid");
        let (engine, _) = stage.engine().unwrap();
        kill_process(engine, Signal::KILL).unwrap();
        end(child).is(1);
        // It outlives an engine that is killed.
        let _ = kill_process(shell, Signal::KILL);
        stage.run(["-c", "--sandbox", "off", "Hi."]).is(0);
        let hidden = stage.playhouse(["sessions", "list", "--format", "ndjson"]).is(0).lines();
        assert_eq!(hidden.len(), 1);
        assert_eq!(hidden[0]["turns"], 2);
        assert_eq!(stage.read("shell.pid").lines().count(), 1, "it did not run again");
    });
}

#[test]
fn a_second_ctrl_c_leaves() {
    through_an_engine(|| {
        let stage = Stage::new(Model::new().step(text("one two three four").fault(Fault::stall(4))));
        let mut child = start(&stage, ["Count."]);
        let mut first = [0; 3];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        // An engine that does not answer any more: the abort hangs.
        let (engine, _) = stage.engine().unwrap();
        kill_process(engine, Signal::STOP).unwrap();
        signal(&child, Signal::INT);
        std::thread::sleep(Duration::from_millis(200));
        signal(&child, Signal::INT);
        let ended = end(child).is(130);
        kill_process(engine, Signal::CONT).unwrap();
        assert!(!ended.stderr.contains("error"), "{ended:?}");
    });
}

#[test]
fn an_engine_that_goes_away_is_told_and_loses_nothing() {
    for how in [Signal::KILL, Signal::TERM] {
        through_an_engine(|| {
            let slow = text("one two three four").fault(Fault::stall(4));
            let stage = Stage::new(Model::new().step(slow).next_turn().step(text("Never asked.")));
            stage.configure("[server]\ngrace_ms = 0");
            let mut child = start(&stage, ["Count."]);
            let mut first = [0; 3];
            child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
            let (engine, _) = stage.engine().unwrap();
            kill_process(engine, how).unwrap();
            end(child).is(1).says(["before the turn ended. What was done is kept", "playhouse run -s ses_"]);
            let list = stage.playhouse(["sessions", "list", "--format", "ndjson"]).is(0);
            let summary: Value = serde_json::from_str(&list.stdout).unwrap();
            assert_eq!((&summary["state"], &summary["title"]), (&json!("busy"), &json!("Count.")));
            // Another engine goes on with it, and takes the next prompt.
            let child = start(&stage, ["-c", "Go on."]);
            stage.wait_for(|asked| asked.len() == 2);
            let (session, begun) = (summary["id"].as_str().unwrap(), Instant::now());
            while !stage.playhouse(["sessions", "export", session]).stdout.contains("Go on.") {
                assert!(begun.elapsed() < Duration::from_secs(30), "the prompt is not admitted");
                std::thread::sleep(Duration::from_millis(50));
            }
            signal(&child, Signal::INT);
            end(child).is(3);
            assert_ne!(stage.engine().unwrap().0, engine);
        });
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn an_engine_with_another_configuration_makes_way_or_is_named() {
    let command = json!({"command": "echo $$ > sleeping.pid; exec sleep 300"});
    let script = Script::new().model("m", greeter()).model("n", Model::new().step(call("bash", command)));
    through_an_engine(|| {
        let stage = Stage::speaking(Dialect::OpenaiChat, script.clone());
        stage.run(["Hi."]).is(0);
        let (first, _) = stage.engine().unwrap();
        stage.run(["Hi."]).is(0);
        assert_eq!(stage.engine().unwrap().0, first, "the same configuration");
        // Nobody needs it: one with the new configuration takes its place.
        stage.configure("[permissions]\nwebfetch = \"deny\"");
        let ended = stage.run(["Hi."]).is(0);
        assert!(!ended.stderr.contains("configuration"), "{}", ended.stderr);
        let (second, _) = stage.engine().unwrap();
        assert_ne!(first, second);
        // So it is with what commands get of the environment.
        let mut elsewhere = stage.command(["run", "Hi."]);
        elsewhere.env("LANG", "C.UTF-8");
        finish(elsewhere).is(0);
        assert_ne!(stage.engine().unwrap().0, second);
        // Now somebody needs it.
        let child = start(&stage, ["--yes", "--sandbox", "off", "-m", "local/n", "Wait."]);
        process(&stage, "sleeping.pid");
        let name = format!("process {}", stage.engine().unwrap().0.as_raw_nonzero());
        stage.configure("[tools]\nkeep_outputs_hours = 5");
        stage.run(["--sandbox", "off", "Hi."]).is(2).says([
            &name,
            "another configuration",
            "wait until it ends",
        ]);
        signal(&child, Signal::INT);
        end(child).is(3);
    });
}

#[test]
fn the_configuration_of_a_server_is_its_own() {
    let stage = Stage::new(greeter());
    let _serving = Serving::start(&stage, ["--port", "0", "--idle-exit", "5m"]);
    let (engine, _) = stage.engine().unwrap();
    let quiet = stage.client(["run", "--sandbox", "off", "Hi."]).is(0);
    assert!(!quiet.stderr.contains("note:"), "{}", quiet.stderr);
    stage.configure("[tools]\nkeep_outputs_hours = 5");
    let advice = format!("`kill {}`", engine.as_raw_nonzero());
    let ended = stage.client(["run", "--sandbox", "off", "Hi."]).is(0);
    let ended = ended.says(["another configuration", "its own holds", &advice]);
    assert_eq!(ended.stderr.lines().filter(|line| line.starts_with("note: ")).count(), 1);
    stage.client(["sessions", "list"]).is(0).says(["another configuration"]);
    // Nobody makes it leave.
    stage.client(["run", "--sandbox", "best-effort", "Hi."]).is(2).says(["--sandbox off", &advice]);
    let (still, facts) = stage.engine().unwrap();
    assert_eq!((still, &facts["ending"]), (engine, &json!(false)));
}

#[test]
fn a_server_takes_the_place_of_an_engine_that_nobody_needs() {
    through_an_engine(|| {
        let stage = Stage::new(greeter());
        stage.run(["Hi."]).is(0);
        let (background, facts) = stage.engine().unwrap();
        assert_eq!(facts["background"], true);
        let serving = Serving::start(&stage, ["--port", "0"]);
        assert_eq!(serving.ask("GET", "/v1/sessions", &[], "").0, 200);
        let (engine, facts) = stage.engine().unwrap();
        assert_ne!(engine, background);
        assert_eq!(facts["background"], false);
    });
}

#[test]
fn an_engine_holds_no_file_of_the_command_that_started_it() {
    through_an_engine(|| {
        let stage = Stage::new(greeter());
        let held = stage.root().join("held");
        let command = stage.command(["run", "Hi."]);
        let mut shell = stage.program("sh");
        shell.args(["-c", "exec 9>\"$0\"; exec \"$@\""]).arg(&held);
        shell.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            shell.envs(value.map(|value| (name, value)));
        }
        finish(shell).is(0);
        let (engine, _) = stage.engine().unwrap();
        let open = fs_err::read_dir(format!("/proc/{}/fd", engine.as_raw_nonzero())).unwrap();
        let open: Vec<_> = open.filter_map(|entry| fs_err::read_link(entry.unwrap().path()).ok()).collect();
        assert!(!open.is_empty() && !open.contains(&held), "{open:?}");
    });
}

#[test]
fn a_file_is_no_data_directory() {
    through_an_engine(|| {
        let mut stage = Stage::new(greeter());
        stage.data = stage.root().join("file");
        fs_err::write(&stage.data, "mine").unwrap();
        let name = stage.data.display().to_string();
        stage.run(["Hi."]).is(2).says([&name, "cannot be the data directory"]);
        stage.playhouse(["sessions", "list"]).is(2).says([&name, "cannot be the data directory"]);
        assert_eq!(fs_err::read_to_string(&stage.data).unwrap(), "mine");
    });
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn an_engine_that_holds_commands_otherwise_makes_way_or_is_named() {
    let command = json!({"command": "echo $$ > sleeping.pid; exec sleep 300"});
    let script = Script::new().model("m", greeter()).model("n", Model::new().step(call("bash", command)));
    through_an_engine(|| {
        let stage = Stage::speaking(Dialect::OpenaiChat, script.clone());
        stage.run(["--sandbox", "off", "Hi."]).is(0);
        let (first, facts) = stage.engine().unwrap();
        assert_eq!(facts["sandbox"], "off");
        // Nobody needs it: another one takes its place.
        stage.run(["Hi."]).is(0);
        let (second, facts) = stage.engine().unwrap();
        assert_eq!(facts["sandbox"], "best-effort");
        assert_ne!(first, second);
        stage.run(["--network", "Hi."]).is(0);
        assert_eq!(stage.engine().unwrap().1["network"], true);
        // Now somebody does.
        let child = start(&stage, ["--yes", "--sandbox", "off", "-m", "local/n", "Wait."]);
        process(&stage, "sleeping.pid");
        let (engine, _) = stage.engine().unwrap();
        let name = format!("process {}", engine.as_raw_nonzero());
        stage.run(["Hi."]).is(2).says([&name, "--sandbox off", "without --network", "wait until it ends"]);
        signal(&child, Signal::INT);
        end(child).is(3);
    });
}

#[test]
fn an_engine_that_cannot_start_says_why() {
    through_an_engine(|| {
        let stage = Stage::new(greeter());
        stage.configure("[permissions]\nbahs = \"deny\"");
        let ended = stage.run(["Hi."]).is(2).says(["`permissions.bahs` names no tool", "engine.log"]);
        assert_eq!(ended.stderr.matches("error: ").count(), 1, "{}", ended.stderr);
        assert!(stage.engine().is_none());
    });
}

#[test]
fn a_data_directory_may_have_a_long_path() {
    through_an_engine(|| {
        let mut stage = Stage::new(greeter());
        let short = stage.root().join("short");
        stage.data = stage.root().join("x".repeat(120));
        let children: Vec<Child> = (0..10).map(|_| start(&stage, ["Hi."])).collect();
        for child in children {
            assert_eq!(end(child).is(0).stdout, "Hello.\n");
        }
        assert_eq!(stage.playhouse(["sessions", "list"]).is(0).stdout.lines().count(), 11);
        // Where the test finds the engine, and ends it.
        std::os::unix::fs::symlink(&stage.data, &short).unwrap();
        stage.data = short;
        assert!(stage.engine().is_some());
    });
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn an_engine_that_nobody_needs_ends_and_whoever_comes_then_is_not_lost() {
    through_an_engine(|| {
        let stage = Stage::new(greeter());
        let listen = format!("unix:{}", stage.data.join("engine.sock").display());
        for round in 0..6_u64 {
            let serve = Serving::start(&stage, ["--listen", &listen, "--idle-exit", "300ms"]);
            let (engine, _) = stage.engine().unwrap();
            // About when it leaves.
            std::thread::sleep(Duration::from_millis(230 + 25 * round));
            assert_eq!(stage.run(["--sandbox", "off", "Hi."]).is(0).stdout, "Hello.\n");
            if let Some((other, _)) = stage.engine().filter(|(other, _)| *other != engine) {
                kill_process(other, Signal::KILL).unwrap();
                until("it is gone", || !is_alive(other));
            }
            serve.ended().is(0).says(["stopped: 0 turns finished, 0 suspended"]);
        }
    });
}

#[test]
fn an_engine_stays_while_a_turn_runs_or_a_client_listens() {
    let stage = Stage::new(Model::new().step(text("Well.").delay(Duration::from_millis(900))).cycle());
    let serving = Serving::start(&stage, ["--port", "0", "--idle-exit", "100ms"]);
    serving.prompt(&stage);
    stage.wait_for(|asked| asked.len() == 1 && asked[0].outcome == mock_llm::Outcome::Complete);
    serving.ended().is(0).says(["0 suspended"]);
    assert!(stage.playhouse(["sessions", "list"]).is(0).stdout.contains("idle"));
}

#[test]
fn keys_count_at_once_while_a_server_runs() {
    let stage = Stage::new(greeter());
    let serving = Serving::start(&stage, ["--port", "0"]);
    assert_eq!(serving.ask("GET", "/v1/sessions", &[], "").0, 200, "nobody made a key yet");
    let made = stage.client(["keys", "create", "--tenant", "acme", "--name", "ci"]).is(0);
    let bearer = format!("authorization: Bearer {}", made.stdout.trim_end());
    let status = |headers: &[&str]| serving.ask("GET", "/v1/sessions", headers, "").0;
    assert_eq!((status(&[]), status(&[&bearer])), (401, 200));
    let listed = stage.client(["keys", "list", "--format", "json"]).is(0).lines();
    assert_eq!((listed.len(), &listed[0]["tenant"]), (1, &json!("acme")));
    let id = listed[0]["id"].as_str().unwrap();
    stage.client(["keys", "revoke", id]).is(0).shows(["withdrew", id]);
    assert_eq!(status(&[&bearer]), 401, "and not only after a while");
    stage.client(["keys", "revoke", id]).is(2).says(["there is no key"]);
    stage.client(["keys", "create", "--tenant", " ", "--name", "x"]).is(2).says(["cannot be a tenant"]);
    // The operator needs none.
    stage.client(["run", "--sandbox", "off", "Hi."]).is(0);
}

#[test]
fn calls_by_hand_go_through_a_server() {
    let stage = Stage::new(greeter());
    stage.write("a.txt", "content\n");
    let _serving = Serving::start(&stage, ["--port", "0"]);
    let script = stage.root().join("calls.jsonl");
    let lines = [
        json!({"tool": "read", "input": {"filePath": "a.txt"}}),
        json!({"tool": "bash", "input": {"command": "seq 100000"}}),
        json!({"tool": "read", "input": {"filePath": "absent"}}),
    ];
    fs_err::write(&script, lines.map(|line| line.to_string()).join("\n")).unwrap();
    let script = script.to_str().unwrap();
    let here = stage.playhouse(["tool", "--sandbox", "off", "--script", script]).is(1).lines();
    let there = stage.client(["tool", "--sandbox", "off", "--script", script]).is(1).lines();
    assert_eq!(there.len(), 3);
    for (here, there) in here.iter().zip(&there) {
        assert_eq!((&here["tool"], &here["ok"]), (&there["tool"], &there["ok"]));
    }
    assert_eq!(here[0], there[0]);
    let saved = there[1]["metadata"]["outputPath"].as_str().unwrap();
    assert!(
        saved.starts_with(stage.data.to_str().unwrap()) && fs_err::metadata(saved).unwrap().len() > 500_000
    );
    // What was too long to print is kept; no list shows its session.
    let sessions = || stage.client(["sessions", "list"]).is(0).stdout.lines().count() - 1;
    assert_eq!(sessions(), 0);
    stage.client(["tool", "--sandbox", "off", "list", "--input", "{}"]).is(0);
    assert_eq!(sessions(), 0);
    stage
        .client(["tool", "--sandbox", "off", "lisst", "--input", "{}"])
        .is(2)
        .says(["unknown tool", "did you mean"]);
    // One that holds programs otherwise is not what was asked for: the call is made here.
    let mut elsewhere = stage
        .client(["tool", "--sandbox", "best-effort", "bash", "--input", "{\"command\": \"seq 100000\"}"])
        .is(0)
        .lines();
    let saved = elsewhere[0]["metadata"]["outputPath"].take();
    assert!(!saved.as_str().unwrap().starts_with(stage.data.to_str().unwrap()), "{saved}");
}

#[test]
fn nobody_but_the_operator_finds_the_operators_door() {
    let stage = Stage::new(greeter());
    let serving = Serving::start(&stage, ["--port", "0"]);
    let hello = r#"{"request": "hello"}"#;
    assert_eq!(serving.ask("POST", "/operator", &[], "").0, 404);
    let socket = || std::os::unix::net::UnixStream::connect(stage.data.join("engine.sock")).unwrap();
    assert_eq!(ask(socket(), "POST", "/operator", &[], hello).0, 200);
    let key = stage.client(["keys", "create", "--tenant", "acme", "--name", "x"]).is(0).stdout;
    let bearer = format!("authorization: Bearer {}", key.trim_end());
    assert_eq!(ask(socket(), "POST", "/operator", &[&bearer], "").0, 404, "who shows a key is a client");
    assert_eq!(ask(socket(), "POST", "/operator", &[], "{\"request\": \"nothing\"}").0, 400);
}

#[test]
fn a_command_waits_for_one_that_is_quick() {
    through_an_engine(|| {
        let stage = Stage::new(greeter());
        let mut alone = stage.command(["run", "Hi."]);
        alone.arg("--in-process");
        finish(alone).is(0);
        let list = || {
            let mut command = stage.command(["sessions", "list"]);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let children: Vec<Child> = (0..3).map(|_| list()).collect();
        for child in children {
            assert!(end(child).is(0).stdout.contains("Hi."));
        }
    });
}
