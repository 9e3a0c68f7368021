//! `kill -9`: the commands of an engine end with it.

use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use mock_llm::Model;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::json;

use crate::interrupt::{is_alive, process};
use crate::stage::{Stage, until};

/// In the shell's group, in a session of its own, without a parent there, and one that does not want to end.
const COMMAND: &str = "sleep 300 & echo $! > near.pid
setsid sleep 300 & echo $! > far.pid
(setsid sh -c 'echo $$ > orphan.pid; exec sleep 300' &)
sh -c 'trap \"\" TERM; echo $$ > stubborn.pid; while :; do sleep 0.1; done' &
env -i sh -c 'echo $$ > bare.pid; exec sleep 300' &
wait";

const FILES: [&str; 5] = ["near.pid", "far.pid", "orphan.pid", "stubborn.pid", "bare.pid"];

#[test]
fn the_commands_of_an_engine_that_is_killed_end() {
    for (background, whole_group) in [(false, false), (true, false), (false, true)] {
        let stage = Stage::new(Model::new());
        let mut calls =
            json!({"tool": "bash", "input": {"command": COMMAND, "background": background}}).to_string();
        // The engine must still be there when its command is in the background.
        calls.push_str("\n{\"tool\": \"bash\", \"input\": {\"command\": \"sleep 300\"}}\n");
        let script = stage.root().join("calls.jsonl");
        fs_err::write(&script, calls).unwrap();
        let mut command = stage.command(["tool", "--sandbox", "off", "--script", script.to_str().unwrap()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut engine = command.spawn().unwrap();
        let processes = FILES.map(|file| process(&stage, file));
        assert!(processes.iter().all(|process| is_alive(*process)));
        let id = Pid::from_raw(i32::try_from(engine.id()).unwrap()).unwrap();
        match whole_group {
            false => kill_process(id, Signal::KILL).unwrap(),
            true => kill_process_group(id, Signal::KILL).unwrap(),
        }
        engine.wait().unwrap();
        until("the commands are gone", || !processes.iter().any(|process| is_alive(*process)));
    }
}

#[test]
fn what_a_command_left_behind_ends_when_the_engine_ends_by_itself() {
    let stage = Stage::new(Model::new());
    let input = json!({"command": "setsid sleep 300 & echo $! > left.pid"}).to_string();
    stage.playhouse(["tool", "--sandbox", "off", "bash", "--input", &input]).is(0);
    let left = process(&stage, "left.pid");
    until("it is gone", || !is_alive(left));
}
