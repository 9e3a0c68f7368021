//! Ctrl-C.

use std::process::{Child, Stdio};

use mock_llm::{Fault, Model, Script, call, text};
use playhouse::protocol::Record;
use playhouse::protocol::message::CallOutcome;
use playhouse::protocol::record::TurnOutcome;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;

use crate::stage::{Dialect, Ended, Stage, in_both, through_an_engine, until};

/// Starts a `run` in the background. Tests whose commands name their processes run them without walls, where the numbers
/// are the machine's.
pub(crate) fn start<const N: usize>(stage: &Stage, arguments: [&str; N]) -> Child {
    let mut command = stage.command(["run"].into_iter().chain(arguments));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a command of the model has named a process, and gives it.
#[track_caller]
pub(crate) fn process(stage: &Stage, file: &str) -> Pid {
    let path = stage.workspace.join(file);
    let mut number = None;
    until("the command names its process", || {
        number = fs_err::read_to_string(&path).ok().filter(|text| text.ends_with('\n'));
        number.is_some()
    });
    Pid::from_raw(number.unwrap().trim().parse().unwrap()).unwrap()
}

/// Whether a process runs; one that is dead and not yet taken notice of does not.
pub(crate) fn is_alive(process: Pid) -> bool {
    let state = fs_err::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    match state {
        Ok(stat) => !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X'])),
        Err(_) if cfg!(target_os = "linux") => false,
        Err(_) => test_kill_process(process).is_ok(),
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
}

fn end(child: Child) -> Ended {
    child.wait_with_output().unwrap().into()
}

#[test]
fn it_aborts_the_turn_and_the_command_with_its_children() {
    in_both(|| {
        let command =
            "sleep 600 & echo $! > child.pid; setsid sh -c 'echo $$ > far.pid; exec sleep 600' & wait";
        let stage = Stage::new(
            Model::new()
                .step(text("This may take long.").call("bash", json!({"command": command})))
                .next_turn()
                .step(text("Here I am again.")),
        );
        let child = start(&stage, ["--yes", "--sandbox", "off", "Wait."]);
        let (near, far) = (process(&stage, "child.pid"), process(&stage, "far.pid"));
        assert!(is_alive(near) && is_alive(far));
        signal(&child, Signal::INT);
        let ended = end(child).is(3);
        assert!(!is_alive(near) && !is_alive(far), "nothing of the command is left");
        assert!(ended.stdout.starts_with("This may take long.\n"), "what was said is kept: {}", ended.stdout);
        ended.says(["✗ bash sleep 600", "aborted\n"]);

        let records = stage.records(&stage.session());
        let Some(Record::TurnEnded(last)) = records.last() else { panic!("{records:?}") };
        assert_eq!(last.outcome, TurnOutcome::Aborted);
        let settled = records.iter().find_map(|record| match record {
            Record::CallSettled { result, .. } => Some(result),
            _ => None,
        });
        assert_eq!(settled.unwrap().outcome, CallOutcome::Cancelled);
        assert_eq!(stage.run(["-c", "Are you there?"]).is(0).stdout, "Here I am again.\n");
        assert!(stage.requests()[1].to_string().contains("cancelled"));
    });
}

#[test]
fn it_aborts_an_answer_that_streams_and_keeps_its_text() {
    in_both(|| {
        let stage = Stage::new(
            Model::new()
                .step(text("one two three four").fault(Fault::stall(4)))
                .next_turn()
                .step(text("Five.")),
        );
        let mut child = start(&stage, ["Count."]);
        // Wait for the first words, then take the rest.
        let mut stdout = child.stdout.take().unwrap();
        let mut first = [0; 3];
        std::io::Read::read_exact(&mut stdout, &mut first).unwrap();
        assert_eq!(&first, b"one");
        signal(&child, Signal::INT);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut rest).unwrap();
        end(child).is(3).says(["aborted\n", "(partly estimated)"]);
        stage.run(["-c", "Go on."]).is(0);
        let request = stage.requests().pop().unwrap().to_string();
        assert!(request.contains(&format!("one{}", rest.trim_end())), "{rest:?} in {request}");
    });
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn whenever_it_comes_no_session_is_left_that_nothing_was_asked_in() {
    in_both(|| {
        let stage = Stage::new(Model::new().step(text("Hello.")).cycle());
        stage.run(["Hi."]).is(0);
        for wait in (0..20).map(|step| step * 6) {
            let child = start(&stage, ["Hello?"]);
            std::thread::sleep(std::time::Duration::from_millis(wait));
            signal(&child, Signal::INT);
            // Before it is awaited it ends the process, as it does by default.
            let ended = child.wait_with_output().unwrap();
            assert!(matches!(ended.status.code(), None | Some(0 | 3)), "{wait}: {ended:?}");
        }
        let listed = stage.playhouse(["sessions", "list", "--format", "ndjson"]).is(0).stdout;
        for line in listed.lines() {
            let session: serde_json::Value = serde_json::from_str(line).unwrap();
            let records = stage.records(session["id"].as_str().unwrap());
            let is_prompt = |record: &Record| matches!(record, Record::PromptAdmitted(_));
            assert!(records.iter().any(is_prompt), "{records:?}");
        }
    });
}

#[test]
fn a_second_one_ends_the_process() {
    let command = "trap 'echo $$ > told.pid' TERM; echo $$ > shell.pid; while :; do sleep 0.02; done";
    let stage = Stage::new(
        Model::new().step(call("bash", json!({"command": command}))).next_turn().step(text("Well.")),
    );
    let child = start(&stage, ["--yes", "--sandbox", "off", "Wait."]);
    let shell = process(&stage, "shell.pid");
    signal(&child, Signal::INT);
    // The command was told to end and does not want to.
    process(&stage, "told.pid");
    signal(&child, Signal::INT);
    end(child).is(130);
    until("the command is gone too", || !is_alive(shell));
    // The turn was not ended, so it goes on: the call is settled, the model goes on, the new prompt follows.
    stage.run(["-c", "And now?"]).is(0);
    let records = stage.records(&stage.session());
    let ends = records.iter().filter(|record| matches!(record, Record::TurnEnded(_))).count();
    assert_eq!(ends, 2);
}

#[test]
fn being_told_to_terminate_aborts_the_turn() {
    in_both(|| {
        let command = "echo $$ > shell.pid; sleep 600";
        let stage = Stage::new(
            Model::new()
                .step(call("bash", json!({"command": command})))
                .next_turn()
                .step(text("Here I am again.")),
        );
        let child = start(&stage, ["--yes", "--sandbox", "off", "Wait."]);
        let shell = process(&stage, "shell.pid");
        signal(&child, Signal::TERM);
        end(child).is(143).says(["aborted\n"]);
        assert!(!is_alive(shell));
        let records = stage.records(&stage.session());
        let Some(Record::TurnEnded(last)) = records.last() else { panic!("{records:?}") };
        assert_eq!(last.outcome, TurnOutcome::Aborted);
        assert_eq!(
            stage.run(["-c", "--sandbox", "off", "Are you there?"]).is(0).stdout,
            "Here I am again.\n"
        );
    });
}

#[test]
fn it_aborts_the_wait_for_another_attempt() {
    let stage = Stage::new(Model::new().step(text("x").fault(Fault::retry_after(429, 50))));
    let mut child = start(&stage, ["Hurry."]);
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    assert!(line.starts_with("! attempt failed: "), "{line}");
    signal(&child, Signal::INT);
    end(child).is(3);
    assert_eq!(stage.asked().len(), 1);
}

#[test]
fn it_aborts_calls_by_hand() {
    let stage = Stage::new(Model::new());
    let mut command = stage.command(["tool", "--sandbox", "off", "bash", "--input"]);
    command.arg(json!({"command": "echo $$ > shell.pid; sleep 600"}).to_string());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let shell = process(&stage, "shell.pid");
    signal(&child, Signal::INT);
    let ended = end(child).is(3);
    assert!(!is_alive(shell));
    let line = ended.lines().remove(0);
    assert_eq!((&line["tool"], &line["ok"]), (&json!("bash"), &json!(false)));
}

#[test]
fn it_aborts_the_shell_block_of_a_command_and_nothing_is_asked() {
    in_both(|| {
        let stage = Stage::new(Model::new().step(text("Hello.")).cycle());
        stage.write(".playhouse/commands/slow.md", "Look: !`echo $$ > block.pid; exec sleep 600`");
        let child = start(&stage, ["--yes", "--sandbox", "off", "/slow"]);
        let block = process(&stage, "block.pid");
        signal(&child, Signal::INT);
        end(child).is(3).says(["/slow was not run: its shell block"]);
        assert!(!is_alive(block) && stage.asked().is_empty());
    });
}

#[test]
fn it_ends_the_tasks_that_its_turn_began_in_the_background() {
    through_an_engine(|| {
        let task =
            json!({"description": "wait", "prompt": "Wait.", "subagent_type": "waiter", "background": true});
        let wait = |file: &str| json!({"command": format!("echo $$ > {file}; exec sleep 600")});
        let script = Script::new()
            .model(
                "m",
                Model::new()
                    .step(call("task", task))
                    .step(call("bash", wait("own.pid")))
                    .next_turn()
                    .step(text("Hm."))
                    .cycle(),
            )
            .model("small", Model::new().step(call("bash", wait("task.pid"))));
        let stage = Stage::speaking(Dialect::OpenaiChat, script);
        stage.write(".playhouse/agents/waiter.md", "---\ndescription: waits\nmodel: local/small\n---");
        stage.configure_first("sandbox = \"off\"");
        stage.configure("[permissions]\nbash = \"allow\"\ntask = \"allow\"");
        let child = start(&stage, ["--yes", "Begin it."]);
        let (own, task) = (process(&stage, "own.pid"), process(&stage, "task.pid"));
        signal(&child, Signal::INT);
        end(child).is(3);
        until("both are gone", || !is_alive(own) && !is_alive(task));
        let listed = stage.playhouse(["sessions", "list", "--all", "--format", "ndjson"]).is(0);
        let states: Vec<String> = listed.lines().iter().map(|line| line["state"].to_string()).collect();
        assert_eq!(states, ["\"idle\"", "\"idle\""]);
        let asked = stage.asked().iter().filter(|entry| entry.model.as_deref() == Some("m")).count();
        assert_eq!(asked, 2, "nothing goes on by itself");
    });
}
